/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_parts.h"

/* The model: sessions, peers, and what STATUS counts. */

void
model_init(struct model *m, uint32_t capacity, uint32_t max_promised, uint32_t ranks, uint32_t readers,
	   uint32_t max_sessions)
{
	MUST(capacity <= MODEL_CHUNKS && ranks <= MODEL_RANKS && readers <= MODEL_READERS &&
	     max_sessions <= MODEL_SESSIONS);
	memset(m, 0, sizeof(*m));
	m->capacity = capacity;
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

	return s && s->ns == m->peers[peer].ns ? s : NULL;
}

static struct model_session *
own_session(struct model *m, uint32_t peer, uint64_t ticket)
{
	struct model_session *s = find_ticket(m, ticket);

	return s && s->peer == peer ? s : NULL;
}

uint32_t
model_n_sessions(const struct model *m, uint32_t ns)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MODEL_SESSIONS; i++)
		n += m->sessions[i].used && (ns == MODEL_NAMESPACES || m->sessions[i].ns == ns);
	return n;
}

static void
withdraw(struct model *m, struct model_session *s, uint32_t i)
{
	struct model_chunk *c = model_find_serial(m, s->serials[i]);
	uint32_t units = (uint32_t)__builtin_popcount(s->units[i]);

	s->kept[i] = false;
	s->units[i] = 0;
	if (units == 0)
		return; /* all were used: this session has not pinned it any more */
	MUST(c && c->promises >= units);
	c->promises -= units;
	model_let_go(m, c);
}

static void
touch(struct model *m, uint32_t serial)
{
	struct model_chunk *c = model_find_serial(m, serial);

	if (c)
		c->time = ++m->clock;
}

void
model_end_session(struct model *m, struct model_session *s, bool touches)
{
	for (uint32_t i = s->n_stored; touches && i-- > 0;)
		touch(m, s->stored[i]);
	for (uint32_t i = s->hit; i-- > 0;) {
		if (s->kept[i])
			withdraw(m, s, i);
		if (touches)
			touch(m, s->serials[i]);
	}
	memset(s, 0, sizeof(*s));
}

bool
model_weights_fit(const struct model *m, uint32_t peer)
{
	const struct model_peer *p = &m->peers[peer];

	return p->weights == 0 || p->weights == m->ns[p->ns].weights;
}

/* Chunk @i of the lookup counts for the hit: promise it to all readers of all ranks. */
static bool
promise(struct model *m, struct model_session *s, struct model_chunk *c)
{
	uint32_t units = m->ranks * m->readers;

	if (c->promises == 0 && model_n_promised(m) == m->max_promised) {
		m->promises_refused++;
		return false;
	}
	c->promises += units;
	s->serials[s->hit] = c->serial;
	s->kept[s->hit] = true;
	s->units[s->hit] = (uint32_t)((UINT64_C(1) << units) - 1);
	s->hit++;
	return true;
}

/* From where the session stands: what is skipped, then what is promised. */
static void
walk(struct model *m, struct model_session *s, const struct model_run *run, uint32_t skip, struct model_hit *ret)
{
	struct model_chunk *c;
	bool enough = true;

	for (; s->hit < skip; s->hit++) {
		c = s->ns == 0 ? model_find_key(m, run->tenant, run->keys[s->hit]) : NULL;
		s->serials[s->hit] = c ? c->serial : 0;
	}
	while (s->hit < run->n && s->ns == 0) {
		c = model_find_key(m, run->tenant, run->keys[s->hit]);
		if (!c || c->spoiled || model_shards(c, MODEL_READABLE) < m->ranks)
			break;
		enough = promise(m, s, c);
		if (!enough)
			break;
	}
	*ret = (struct model_hit){.hit = s->hit, .l1 = s->hit - skip, .limited = !enough};
}

int
model_lookup(struct model *m, uint32_t peer, uint64_t ticket, const struct model_run *run, uint32_t skip,
	     struct model_hit *ret)
{
	struct model_session *s = m->sessions;

	m->ops[SCOUT_OP_LOOKUP]++;
	if (!model_weights_fit(m, peer))
		return model_refuse(m, SCOUT_WIRE_WEIGHTS);
	if (find_ticket(m, ticket))
		return model_refuse(m, SCOUT_WIRE_STATE);
	if (model_n_sessions(m, MODEL_NAMESPACES) == m->max_sessions)
		return model_refuse(m, SCOUT_WIRE_LIMIT);
	while (s->used)
		s++;
	*s = (struct model_session){.used = true,
				    .peer = peer,
				    .ns = m->peers[peer].ns,
				    .ticket = ticket,
				    .opened = m->number,
				    .run = *run,
				    .n = run->n};
	walk(m, s, run, skip, ret);
	m->asked += run->n - skip;
	m->hits += ret->l1;
	m->limited += ret->limited;
	return SCOUT_WIRE_OK;
}

/* Whether @run with @skip goes on where what @s promises, [from, to), ends. */
static bool
goes_on(struct model *m, const struct model_session *s, const struct model_run *run, uint32_t skip, uint32_t from,
	uint32_t to)
{
	const struct model_chunk *last = to ? model_find_serial(m, s->serials[to - 1]) : NULL;

	if (run->n != s->n)
		return false;
	return from == to ||
	       (skip >= from && skip <= to && last && last->tenant == run->tenant && last->key == run->keys[to - 1]);
}

int
model_renew(struct model *m, uint32_t peer, uint64_t ticket, const struct model_run *run, uint32_t skip,
	    struct model_hit *ret)
{
	struct model_session *s = own_session(m, peer, ticket);
	uint32_t from = 0;
	uint32_t to;

	m->ops[SCOUT_OP_LOOKUP]++;
	if (!model_weights_fit(m, peer))
		return model_refuse(m, SCOUT_WIRE_WEIGHTS);
	if (!s)
		return model_refuse(m, SCOUT_WIRE_NO_SESSION);
	if (s->retrieved)
		return model_refuse(m, SCOUT_WIRE_STATE);
	while (from < s->hit && !s->kept[from])
		from++;
	for (to = from; to < s->hit && s->kept[to];)
		to++;
	if (!goes_on(m, s, run, skip, from, to))
		return model_refuse(m, SCOUT_WIRE_RANGE);
	if (from < to)
		s->hit = to;
	else if (s->hit > skip)
		s->hit = skip;
	walk(m, s, run, skip, ret);
	return SCOUT_WIRE_OK;
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
	/* What lies behind the range, from the tail; then what lies before it. */
	for (uint32_t i = s->hit; i-- > 0;) {
		if (s->kept[i] && i >= to)
			withdraw(m, s, i);
	}
	for (uint32_t i = 0; i < s->hit; i++) {
		if (s->kept[i] && i < from)
			withdraw(m, s, i);
		kept += s->kept[i];
	}
	*ret_kept = kept;
	return SCOUT_WIRE_OK;
}

int
model_finish(struct model *m, uint32_t peer, uint64_t ticket)
{
	struct model_session *s = own_session(m, peer, ticket);

	m->ops[SCOUT_OP_FINISH]++;
	if (!s)
		return model_refuse(m, SCOUT_WIRE_NO_SESSION);
	model_end_session(m, s, true);
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
	if (p->weights)
		p->weights = weights;
	if (weights == ns->weights)
		return SCOUT_WIRE_OK;
	ns->weights = weights;
	ns->era++;
	for (uint32_t i = 0; i < MODEL_SESSIONS; i++) {
		if (m->sessions[i].used && m->sessions[i].ns == p->ns)
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

			if (s->used && s->peer == peer && (!first || s->opened < first->opened))
				first = s;
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
		{"slots", ns == 0 ? m->capacity : 0},
		{"bytes", chunks * m->ranks * MODEL_SHARD_BYTES},
	};
	char text[32];

	for (size_t i = 0; i < sizeof(of_ns) / sizeof(of_ns[0]); i++) {
		(void)snprintf(text, sizeof(text), "ns.%s.%s", name, of_ns[i].name);
		put(items, text, of_ns[i].value);
	}
}

uint32_t
model_status(const struct model *m, struct model_item *ret_items)
{
	const uint64_t chunk_bytes = (uint64_t)m->ranks * MODEL_SHARD_BYTES;
	struct items items = {ret_items, 0};

	put(&items, "peers", n_peers(m, MODEL_NAMESPACES));
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
	put(&items, "l1.chunks", model_n_chunks(m));
	put(&items, "l1.bytes_used", model_n_chunks(m) * chunk_bytes);
	put(&items, "l1.bytes_promised", model_n_promised(m) * chunk_bytes);
	put(&items, "l1.bytes_held", model_n_held(m) * chunk_bytes);
	put(&items, "l1.evictions", m->evictions);
	put(&items, "l1.refusals", m->refusals);
	put(&items, "l1.promises_refused", m->promises_refused);
	put_ns(m, &items, 0, "test");
	put_ns(m, &items, 1, "other");
	return items.n;
}
