/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_parts.h"

/* The model: sessions, peers, and what STATUS counts. */

void
model_init(struct model *m, uint64_t max_promised, uint32_t ranks, uint32_t readers, uint32_t max_sessions)
{
	MUST(ranks <= MODEL_RANKS && readers <= MODEL_READERS && max_sessions <= MODEL_SESSIONS);
	memset(m, 0, sizeof(*m));
	m->max_promised = max_promised;
	m->ranks = ranks;
	m->readers = readers;
	m->max_sessions = max_sessions;
}

int
model_refuse(struct model *m, int status)
{
	m->refused++;
	return status;
}

/* ---- sessions ---- */

/* By whomever it was opened. */
static struct model_session *
find_ticket(struct model *m, uint64_t ticket)
{
	for (uint32_t i = 0; i < MODEL_SESSIONS; i++) {
		if (m->sessions[i].used && m->sessions[i].ticket == ticket)
			return &m->sessions[i];
	}
	return NULL;
}

struct model_session *
model_session_in_ns(struct model *m, uint32_t peer, uint64_t ticket)
{
	struct model_session *s = find_ticket(m, ticket);

	return s && !s->is_kept && s->ns == m->peers[peer].ns ? s : NULL;
}

static struct model_session *
own_session(struct model *m, uint32_t peer, uint64_t ticket)
{
	struct model_session *s = find_ticket(m, ticket);

	return s && !s->is_kept && s->peer == peer ? s : NULL;
}

uint32_t
model_n_sessions(const struct model *m, uint32_t ns)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MODEL_SESSIONS; i++)
		n += m->sessions[i].used && !m->sessions[i].is_kept &&
		     (ns == MODEL_NAMESPACES || m->sessions[i].ns == ns);
	return n;
}

void
model_withdraw(struct model *m, struct model_kept *k, uint32_t i)
{
	struct model_chunk *c = model_find_serial(m, k->serials[i]);
	uint32_t units = (uint32_t)__builtin_popcount(k->units[i]);

	k->kept[i] = false;
	k->units[i] = 0;
	if (units == 0)
		return; /* all were used: this session has not pinned it any more */
	MUST(c && c->promises >= units);
	c->promises -= units;
	model_let_go(m, c);
}

/* Of one group: what it stored, then what it looked up, each from the tail. */
static void
end_group(struct model *m, struct model_session *s, uint32_t group, bool touches)
{
	struct model_end end = model_end_of(m, s, group);
	struct model_kept *k = &s->of[group];
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n_stored; i++)
		n += s->stored[i].group == group;
	for (uint32_t i = s->n_stored; touches && i-- > 0;) {
		if (s->stored[i].group != group)
			continue;
		model_end_stored(m, &end, --n, s->stored[i].serial, s->stored[i].present);
		model_keep_one(m, s, group, k->n + n);
	}
	for (uint32_t i = k->n; i-- > 0;) {
		if (k->kept[i])
			model_withdraw(m, k, i);
		if (touches)
			model_end_found(m, &end, k->serials[i]);
		model_keep_one(m, s, group, i);
	}
}

void
model_end_parts(struct model *m, struct model_session *s, bool touches)
{
	for (uint32_t group = m->n_groups; group-- > 0;)
		end_group(m, s, group, touches);
}

void
model_end_session(struct model *m, struct model_session *s, bool touches)
{
	model_end_parts(m, s, touches);
	memset(s, 0, sizeof(*s));
}

bool
model_weights_fit(const struct model *m, uint32_t peer)
{
	const struct model_peer *p = &m->peers[peer];

	return p->weights == 0 || p->weights == m->ns[p->ns].weights;
}

bool
model_promise(struct model *m, struct model_session *s, uint32_t group, uint32_t i, struct model_chunk *c)
{
	struct model_kept *k = &s->of[group];
	uint32_t units = m->ranks * m->readers;

	if (c->promises == 0 && model_bytes_promised(m) + model_chunk_bytes(m, group) > m->max_promised) {
		m->promises_refused++;
		return false;
	}
	model_use(c);
	c->promises += units;
	k->serials[i] = c->serial;
	k->kept[i] = true;
	k->units[i] = (uint32_t)((UINT64_C(1) << units) - 1);
	return true;
}

bool
model_is_run(const struct model *m, const struct model_ask *ask)
{
	const struct model_group *only = &m->groups[0];

	return m->n_groups == 1 && only->policy == SCOUT_POLICY_ALL && only->stride == 1 && only->margin == 0 &&
	       ask->first == 0 && ask->beyond == 0 && ask->more == 0;
}

/* From where the session stands: what is skipped, then what is promised. */
static void
walk(struct model *m, struct model_session *s, const struct model_ask *ask, struct model_hit *ret)
{
	const struct model_run *run = &ask->run;
	struct model_kept *k = &s->of[0];
	struct model_chunk *c;
	bool enough = true;

	for (; k->n < ask->skip; k->n++) {
		c = s->ns == 0 ? model_find_key(m, 0, run->tenant, run->keys[k->n]) : NULL;
		k->serials[k->n] = c ? c->serial : 0;
		k->from = k->to = k->n + 1;
	}
	while (k->n < run->n && s->ns == 0) {
		c = model_find_key(m, 0, run->tenant, run->keys[k->n]);
		if (!c || c->spoiled || model_shards(c, MODEL_READABLE) < m->ranks)
			break;
		enough = model_promise(m, s, 0, k->n, c);
		if (!enough)
			break;
		k->to = ++k->n;
	}
	s->hit = k->n;
	*ret = (struct model_hit){.hit = s->hit, .l1 = s->hit - ask->skip, .limited = !enough};
}

/* Sessions and keeps. */
static uint32_t
n_places(const struct model *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MODEL_SESSIONS; i++)
		n += m->sessions[i].used;
	return n;
}

static int
lookup(struct model *m, uint32_t peer, uint64_t ticket, const struct model_ask *ask, struct model_hit *ret)
{
	struct model_session *s = m->sessions;

	if (find_ticket(m, ticket))
		return model_refuse(m, SCOUT_WIRE_STATE);
	if (n_places(m) == m->max_sessions)
		return model_refuse(m, SCOUT_WIRE_LIMIT);
	while (s->used)
		s++;
	*s = (struct model_session){.used = true,
				    .peer = peer,
				    .ns = m->peers[peer].ns,
				    .ticket = ticket,
				    .opened = m->number,
				    .ask = *ask,
				    .skip = ask->skip,
				    .is_ahead = ask->ahead,
				    .n = ask->run.n};
	if (model_is_run(m, ask))
		walk(m, s, ask, ret);
	else
		model_walk_groups(m, s, ask, ret);
	m->asked += ask->run.n - ask->beyond - ask->skip;
	m->hits += ret->hit - ask->skip;
	m->limited += ret->limited;
	return SCOUT_WIRE_OK;
}

/* Whether @ask goes on where what @s promises ends. */
static bool
goes_on(struct model *m, const struct model_session *s, const struct model_ask *ask)
{
	const struct model_kept *k = &s->of[0];
	const struct model_chunk *last = k->to ? model_find_serial(m, k->serials[k->to - 1]) : NULL;

	if (ask->run.n != s->n)
		return false;
	return k->from == k->to || (ask->skip >= k->from && ask->skip <= k->to && last &&
				    last->tenant == ask->run.tenant && last->key == ask->run.keys[k->to - 1]);
}

static int
renew(struct model *m, uint32_t peer, uint64_t ticket, const struct model_ask *ask, struct model_hit *ret)
{
	struct model_session *s = own_session(m, peer, ticket);
	int refusal;

	if (!s)
		return model_refuse(m, SCOUT_WIRE_NO_SESSION);
	if (s->retrieved)
		return model_refuse(m, SCOUT_WIRE_STATE);
	if (!model_is_run(m, ask)) {
		refusal = model_may_renew(m, s, ask);
		if (refusal)
			return model_refuse(m, refusal);
		model_walk_groups(m, s, ask, ret);
		return SCOUT_WIRE_OK;
	}
	if (!goes_on(m, s, ask))
		return model_refuse(m, SCOUT_WIRE_RANGE);
	if (s->of[0].from < s->of[0].to)
		s->of[0].n = s->of[0].to;
	else if (s->of[0].n > ask->skip)
		s->of[0].n = ask->skip;
	if (s->of[0].from == s->of[0].to)
		s->of[0].from = s->of[0].to = s->of[0].n;
	walk(m, s, ask, ret);
	return SCOUT_WIRE_OK;
}

int
model_lookup(struct model *m, uint32_t peer, uint64_t ticket, const struct model_ask *ask, struct model_hit *ret)
{
	m->ops[SCOUT_OP_LOOKUP]++;
	if (!model_weights_fit(m, peer))
		return model_refuse(m, SCOUT_WIRE_WEIGHTS);
	return (ask->renews ? renew : lookup)(m, peer, ticket, ask, ret);
}

/* ADMIT does not need object @i. Where a group does not need all before a length, the session knows it no more. */
static void
give_back(struct model *m, const struct model_group *g, struct model_kept *k, uint32_t i)
{
	if (k->kept[i])
		model_withdraw(m, k, i);
	if (g->policy != SCOUT_POLICY_ALL)
		k->serials[i] = 0;
}

/* Of one group, keep what a restore of @to keys needs if the GPU has @from. Returns how much that is. */
static uint32_t
admit_group(struct model *m, struct model_session *s, uint32_t group, uint32_t from, uint32_t to)
{
	const struct model_group *g = &m->groups[group];
	struct model_kept *k = &s->of[group];
	uint32_t first = MODEL_RUN, end = 0, kept = 0;

	for (uint32_t i = 0; i < MODEL_RUN; i++) {
		if (!model_needs(m, g, from, to, i))
			continue;
		first = first < i ? first : i;
		end = i + 1;
	}
	/* What lies behind that, from the tail; then what lies before it. */
	while (k->to > k->from && k->to > end)
		give_back(m, g, k, --k->to);
	while (k->from < k->to && k->from < first)
		give_back(m, g, k, k->from++);
	for (uint32_t i = k->from; i < k->to; i++)
		kept += k->kept[i];
	return kept;
}

int
model_admit(struct model *m, uint32_t peer, uint64_t ticket, uint32_t from, uint32_t to, uint32_t *ret_kept)
{
	struct model_session *s = own_session(m, peer, ticket);
	uint32_t kept = 0;

	m->ops[SCOUT_OP_ADMIT]++;
	if (!s)
		return model_refuse(m, SCOUT_WIRE_NO_SESSION);
	if (from >= to)
		to = 0;
	for (uint32_t group = 0; group < m->n_groups; group++)
		kept += admit_group(m, s, group, from, to);
	s->is_ahead = false;
	if (to)
		s->skip = from;
	s->hit = s->hit < to ? s->hit : to;
	if (!model_keeps(m, s, s->skip, s->hit))
		s->hit = 0;
	*ret_kept = kept;
	return SCOUT_WIRE_OK;
}

int
model_finish(struct model *m, uint32_t peer, uint64_t ticket, const struct model_wish *wish, struct model_wish *ret)
{
	struct model_session *s = own_session(m, peer, ticket);

	m->ops[SCOUT_OP_FINISH]++;
	if (!s)
		return model_refuse(m, SCOUT_WIRE_NO_SESSION);
	*ret = model_end_with_wish(m, s, wish);
	return SCOUT_WIRE_OK;
}

int
model_reset(struct model *m, uint32_t peer, uint64_t weights)
{
	struct model_peer *p = &m->peers[peer];
	struct model_ns *ns = &m->ns[p->ns];

	m->ops[SCOUT_OP_RESET]++;
	if (p->worker && !model_weights_fit(m, peer))
		return model_refuse(m, SCOUT_WIRE_WEIGHTS);
	if (p->weights || !p->worker)
		p->weights = weights;
	if (weights == ns->weights)
		return SCOUT_WIRE_OK;
	ns->weights = weights;
	ns->era++;
	for (uint32_t i = 0; i < MODEL_SESSIONS; i++) {
		if (!m->sessions[i].used || m->sessions[i].ns != p->ns)
			continue;
		if (m->sessions[i].is_kept)
			model_unkeep(m, &m->sessions[i]);
		else
			model_end_session(m, &m->sessions[i], false);
	}
	for (uint32_t i = 0; i < MODEL_CHUNKS; i++) {
		struct model_chunk *c = &m->chunks[i];

		if (c->serial && c->era != m->ns[0].era && !model_is_pinned(c))
			model_drop(c); /* what a hold pins is dropped when that ends */
	}
	return SCOUT_WIRE_OK;
}

/* ---- peers ---- */

uint32_t
model_join(struct model *m, const struct model_peer *peer)
{
	uint32_t i = 0;

	while (m->peers[i].used)
		MUST(++i < MODEL_PEERS);
	m->peers[i] = *peer;
	m->peers[i].used = true;
	m->joined++;
	return i;
}

int
model_hello(struct model *m, uint32_t peer, uint64_t weights)
{
	struct model_peer *p = &m->peers[peer];

	if (weights && weights != m->ns[p->ns].weights)
		return model_refuse(m, SCOUT_WIRE_WEIGHTS);
	p->weights = weights;
	return SCOUT_WIRE_OK;
}

/* First its sessions, then its holds, each in the order in which they came. */
void
model_bye(struct model *m, uint32_t peer)
{
	for (;;) {
		struct model_session *first = NULL;

		for (uint32_t i = 0; i < MODEL_SESSIONS; i++) {
			struct model_session *s = &m->sessions[i];

			if (s->used && !s->is_kept && s->peer == peer && (!first || s->opened < first->opened))
				first = s;
			if (s->used && s->is_kept && s->keep.peer == peer)
				s->keep.peer = MODEL_PEERS;
		}
		if (!first)
			break;
		model_end_session(m, first, false);
	}
	for (;;) {
		struct model_hold *first = NULL;

		for (uint32_t i = 0; i < MODEL_HOLDS; i++) {
			struct model_hold *h = &m->holds[i];

			if (h->used && h->peer == peer && (!first || h->opened < first->opened))
				first = h;
		}
		if (!first)
			break;
		if (first->write)
			(void)model_end_write(m, first, 0);
		else
			model_end_read(m, first);
	}
	m->peers[peer].used = false;
	m->left++;
}

static uint32_t
n_peers(const struct model *m, uint32_t ns)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MODEL_PEERS; i++)
		n += m->peers[i].used && (ns == MODEL_NAMESPACES || m->peers[i].ns == ns);
	return n;
}

/* ---- STATUS ---- */

struct items {
	struct model_item *list;
	uint32_t n;
};

static void
put(struct items *items, const char *name, uint64_t value)
{
	struct model_item *item = &items->list[items->n++];

	MUST(items->n <= MODEL_ITEMS);
	(void)snprintf(item->name, sizeof(item->name), "%s", name);
	item->value = value;
}

static void
put_ns(const struct model *m, struct items *items, uint32_t ns, const char *name)
{
	const uint64_t chunks = ns == 0 ? model_n_chunks(m) : 0;
	uint64_t slots = 0;
	char text[32];

	for (uint32_t group = 0; ns == 0 && group < m->n_groups; group++)
		slots += m->groups[group].capacity;
	const struct {
		const char *name;
		uint64_t value;
	} of_ns[] = {
		{"peers", n_peers(m, ns)},
		{"sessions", model_n_sessions(m, ns)},
		{"holds", ns == 0 ? model_n_holds(m) : 0},
		{"weights", m->ns[ns].weights},
		{"tenants",
		 (uint64_t)m->ns[ns].tenant_known[0] + m->ns[ns].tenant_known[1] + m->ns[ns].tenant_known[2]},
		{"chunks", chunks},
		{"slots", slots},
		{"bytes", ns == 0 ? model_bytes_used(m) : 0},
		{"bytes_kept", model_bytes_kept(m, ns, MODEL_PEERS)},
	};

	for (size_t i = 0; i < sizeof(of_ns) / sizeof(of_ns[0]); i++) {
		(void)snprintf(text, sizeof(text), "ns.%s.%s", name, of_ns[i].name);
		put(items, text, of_ns[i].value);
	}
}

uint32_t
model_status(const struct model *m, struct model_item *ret_items)
{
	struct items items = {ret_items, 0};

	put(&items, "peers", n_peers(m, MODEL_NAMESPACES) + m->other_peers);
	put(&items, "peers.joined", m->joined);
	put(&items, "peers.left", m->left);
	put(&items, "peers.died", 0);
	put(&items, "peers.forgotten", 0);
	put(&items, "sessions", model_n_sessions(m, MODEL_NAMESPACES));
	put(&items, "holds", model_n_holds(m));
	put(&items, "quarantine", 0);
	put(&items, "lookups.asked_chunks", m->asked);
	put(&items, "lookups.hit_chunks", m->hits);
	put(&items, "lookups.limited", m->limited);
	put(&items, "bugs.mismatches", m->mismatches);
	put(&items, "replies.undone", 0);
	put(&items, "out_of_memory", 0);
	put(&items, "ops.refused", m->refused);
	put(&items, "ops.waiting", 0);
	put(&items, "ops.lookup", m->ops[SCOUT_OP_LOOKUP]);
	put(&items, "ops.admit", m->ops[SCOUT_OP_ADMIT]);
	put(&items, "ops.finish", m->ops[SCOUT_OP_FINISH]);
	put(&items, "ops.reset", m->ops[SCOUT_OP_RESET]);
	put(&items, "ops.store", m->ops[SCOUT_OP_STORE]);
	put(&items, "ops.store_done", m->ops[SCOUT_OP_STORE_DONE]);
	put(&items, "ops.retrieve", m->ops[SCOUT_OP_RETRIEVE]);
	put(&items, "ops.retrieve_done", m->ops[SCOUT_OP_RETRIEVE_DONE]);
	put(&items, "l1.chunks", model_n_chunks(m) + m->other_chunks);
	put(&items, "l1.bytes_used", model_bytes_used(m) + m->other_bytes);
	put(&items, "l1.bytes_promised", model_bytes_promised(m));
	put(&items, "l1.bytes_held", model_bytes_held(m));
	put(&items, "l1.evictions", m->evictions);
	put(&items, "l1.evictions_unneeded", m->evictions_unneeded);
	put(&items, "l1.refusals", m->refusals);
	put(&items, "l1.promises_refused", m->promises_refused);
	put(&items, "keeps.accepted", m->keeps[SCOUT_OUTCOME_ACCEPTED]);
	put(&items, "keeps.clipped", m->keeps[SCOUT_OUTCOME_CLIPPED]);
	put(&items, "keeps.rejected", m->keeps[SCOUT_OUTCOME_REJECTED]);
	put(&items, "keeps.missing", m->keeps[SCOUT_OUTCOME_MISSING]);
	put_ns(m, &items, 0, "test");
	put_ns(m, &items, 1, "other");
	return items.n;
}
