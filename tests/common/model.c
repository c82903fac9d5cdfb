/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(x) ((x) ? (void)0 : abort())

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

static int
refuse(struct model *m, int status)
{
	m->refused++;
	return status;
}

/* ---- chunks ---- */

static struct model_chunk *
find_key(struct model *m, uint32_t tenant, uint32_t key)
{
	for (uint32_t i = 0; i < MODEL_CHUNKS; i++) {
		struct model_chunk *c = &m->chunks[i];

		if (c->serial && c->tenant == tenant && c->key == key && c->era == m->ns[0].era)
			return c;
	}
	return NULL;
}

static struct model_chunk *
find_serial(struct model *m, uint32_t serial)
{
	for (uint32_t i = 0; serial && i < MODEL_CHUNKS; i++) {
		if (m->chunks[i].serial == serial)
			return &m->chunks[i];
	}
	return NULL;
}

static uint32_t
shards(const struct model_chunk *c, enum model_shard state)
{
	uint32_t n = 0;

	for (uint32_t rank = 0; rank < MODEL_RANKS; rank++)
		n += c->shard[rank] == state;
	return n;
}

static bool
is_pinned(const struct model_chunk *c)
{
	return c->promises || c->reads || shards(c, MODEL_WRITING);
}

static uint32_t
n_chunks(const struct model *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MODEL_CHUNKS; i++)
		n += m->chunks[i].serial != 0;
	return n;
}

static uint32_t
n_promised(const struct model *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MODEL_CHUNKS; i++)
		n += m->chunks[i].promises != 0;
	return n;
}

/* Chunks that a retrieve reads or a store writes. */
static uint32_t
n_held(const struct model *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MODEL_CHUNKS; i++) {
		bool held = m->chunks[i].reads != 0;

		for (uint32_t rank = 0; rank < MODEL_RANKS; rank++)
			held = held || m->chunks[i].shard[rank] == MODEL_WRITING;
		n += held;
	}
	return n;
}

static void
drop(struct model_chunk *c)
{
	memset(c, 0, sizeof(*c));
}

/* A pin is gone. The last one: the chunk may be evicted from now on, or is of no use to anybody. */
static void
let_go(struct model *m, struct model_chunk *c)
{
	if (is_pinned(c))
		return;
	if (shards(c, MODEL_READABLE) == 0 || c->spoiled || c->era != m->ns[0].era)
		drop(c);
	else
		c->time = ++m->clock;
}

static struct model_chunk *
oldest(struct model *m)
{
	struct model_chunk *found = NULL;

	for (uint32_t i = 0; i < MODEL_CHUNKS; i++) {
		struct model_chunk *c = &m->chunks[i];

		if (c->serial && !is_pinned(c) && (!found || c->time < found->time))
			found = c;
	}
	return found;
}

/* The next to go for @user (0: nobody in particular). NULL: all the others are pinned. */
static struct model_chunk *
next_victim(struct model *m, uint64_t user)
{
	struct model_chunk *c;

	while ((c = oldest(m)) && user && c->used_by == user) {
		if (c->spared == m->number)
			return NULL;
		c->spared = m->number;
		c->time = ++m->clock;
	}
	return c;
}

/* A new chunk, at the cost of another one if need be. NULL: all are pinned. */
static struct model_chunk *
create(struct model *m, uint32_t tenant, uint32_t key, uint64_t user)
{
	uint32_t i = 0;

	if (n_chunks(m) == m->capacity) {
		struct model_chunk *victim = next_victim(m, user);

		if (!victim) {
			m->refusals++;
			return NULL;
		}
		m->evictions++;
		m->evicted_tenant = victim->tenant;
		m->evicted_key = victim->key;
		drop(victim);
	}
	while (m->chunks[i].serial)
		i++;
	m->chunks[i] =
		(struct model_chunk){.serial = ++m->last_serial, .tenant = tenant, .key = key, .era = m->ns[0].era};
	return &m->chunks[i];
}

uint32_t
model_evictable(const struct model *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MODEL_CHUNKS; i++)
		n += m->chunks[i].serial && !is_pinned(&m->chunks[i]);
	return n;
}

bool
model_is_there(const struct model *m, uint32_t tenant, uint32_t key)
{
	struct model *unconst = (struct model *)(uintptr_t)m; /* only looked at */

	return find_key(unconst, tenant, key) != NULL;
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

static struct model_session *
session_in_ns(struct model *m, uint32_t peer, uint64_t ticket)
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

static uint32_t
n_sessions(const struct model *m, uint32_t ns)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MODEL_SESSIONS; i++)
		n += m->sessions[i].used && (ns == MODEL_NAMESPACES || m->sessions[i].ns == ns);
	return n;
}

static void
withdraw(struct model *m, struct model_session *s, uint32_t i)
{
	struct model_chunk *c = find_serial(m, s->serials[i]);
	uint32_t units = (uint32_t)__builtin_popcount(s->units[i]);

	s->kept[i] = false;
	s->units[i] = 0;
	if (units == 0)
		return; /* all were used: this session has not pinned it any more */
	MUST(c && c->promises >= units);
	c->promises -= units;
	let_go(m, c);
}

static void
touch(struct model *m, uint32_t serial)
{
	struct model_chunk *c = find_serial(m, serial);

	if (c)
		c->time = ++m->clock;
}

static void
end_session(struct model *m, struct model_session *s, bool touches)
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

static bool
weights_fit(const struct model *m, uint32_t peer)
{
	const struct model_peer *p = &m->peers[peer];

	return p->weights == 0 || p->weights == m->ns[p->ns].weights;
}

/* Chunk @i of the lookup counts for the hit: promise it to all readers of all ranks. */
static bool
promise(struct model *m, struct model_session *s, struct model_chunk *c)
{
	uint32_t units = m->ranks * m->readers;

	if (c->promises == 0 && n_promised(m) == m->max_promised) {
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

int
model_lookup(struct model *m, uint32_t peer, uint64_t ticket, const struct model_run *run, uint32_t skip,
	     struct model_hit *ret)
{
	struct model_session *s = m->sessions;
	struct model_chunk *c;
	bool enough = true;

	m->ops[SCOUT_OP_LOOKUP]++;
	if (!weights_fit(m, peer))
		return refuse(m, SCOUT_WIRE_WEIGHTS);
	if (find_ticket(m, ticket))
		return refuse(m, SCOUT_WIRE_STATE);
	if (n_sessions(m, MODEL_NAMESPACES) == m->max_sessions)
		return refuse(m, SCOUT_WIRE_LIMIT);
	while (s->used)
		s++;
	*s = (struct model_session){.used = true,
				    .peer = peer,
				    .ns = m->peers[peer].ns,
				    .ticket = ticket,
				    .opened = m->number,
				    .n = run->n};
	for (; s->hit < skip; s->hit++) {
		c = s->ns == 0 ? find_key(m, run->tenant, run->keys[s->hit]) : NULL;
		s->serials[s->hit] = c ? c->serial : 0;
	}
	while (s->hit < run->n && s->ns == 0) {
		c = find_key(m, run->tenant, run->keys[s->hit]);
		if (!c || c->spoiled || shards(c, MODEL_READABLE) < m->ranks)
			break;
		enough = promise(m, s, c);
		if (!enough)
			break;
	}
	*ret = (struct model_hit){.hit = s->hit, .l1 = s->hit - skip, .limited = !enough};
	m->asked += run->n - skip;
	m->hits += ret->l1;
	m->limited += ret->limited;
	return SCOUT_WIRE_OK;
}

int
model_admit(struct model *m, uint32_t peer, uint64_t ticket, uint32_t from, uint32_t to, uint32_t *ret_kept)
{
	struct model_session *s = own_session(m, peer, ticket);
	uint32_t kept = 0;

	m->ops[SCOUT_OP_ADMIT]++;
	if (!s)
		return refuse(m, SCOUT_WIRE_NO_SESSION);
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
		return refuse(m, SCOUT_WIRE_NO_SESSION);
	end_session(m, s, true);
	return SCOUT_WIRE_OK;
}

int
model_reset(struct model *m, uint32_t peer, uint64_t weights)
{
	struct model_peer *p = &m->peers[peer];
	struct model_ns *ns = &m->ns[p->ns];

	m->ops[SCOUT_OP_RESET]++;
	if (p->weights)
		p->weights = weights;
	if (weights == ns->weights)
		return SCOUT_WIRE_OK;
	ns->weights = weights;
	ns->era++;
	for (uint32_t i = 0; i < MODEL_SESSIONS; i++) {
		if (m->sessions[i].used && m->sessions[i].ns == p->ns)
			end_session(m, &m->sessions[i], false);
	}
	for (uint32_t i = 0; i < MODEL_CHUNKS; i++) {
		struct model_chunk *c = &m->chunks[i];

		if (c->serial && c->era != m->ns[0].era && !is_pinned(c))
			drop(c); /* what a hold pins is dropped when that ends */
	}
	return SCOUT_WIRE_OK;
}

/* ---- holds ---- */

static struct model_hold *
find_hold(struct model *m, uint32_t peer, uint64_t corr)
{
	for (uint32_t i = 0; i < MODEL_HOLDS; i++) {
		struct model_hold *h = &m->holds[i];

		if (h->used && h->peer == peer && h->corr == corr)
			return h;
	}
	return NULL;
}

static uint32_t
n_holds(const struct model *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MODEL_HOLDS; i++)
		n += m->holds[i].used;
	return n;
}

static void
begin_grants(struct model *m, uint32_t peer, uint64_t corr, bool write, struct model_hold *h, struct model_grants *g)
{
	*g = (struct model_grants){.id = 0};
	*h = (struct model_hold){
		.used = true,
		.write = write,
		.peer = peer,
		.corr = corr,
		.opened = m->number,
		.era = m->ns[0].era,
		.rank = (uint32_t)m->peers[peer].rank,
	};
}

static void
put_grant(struct model *m, struct model_hold *h, struct model_grants *g, uint16_t state, const struct model_chunk *c)
{
	g->states[g->n] = state;
	if (state == SCOUT_GRANT_GRANTED) {
		g->chunks[g->n] = (uint16_t)(c - m->chunks);
		h->serials[h->n++] = c->serial;
		g->n_granted++;
	}
	g->n++;
}

static void
end_grants(struct model *m, const struct model_hold *h, struct model_grants *g)
{
	uint32_t i = 0;

	if (h->n == 0)
		return;
	while (m->holds[i].used)
		MUST(++i < MODEL_HOLDS);
	m->holds[i] = *h;
	g->id = h->corr;
}

/* 0, or why this peer may neither store nor retrieve. */
static int
may_transfer(const struct model *m, uint32_t peer)
{
	const struct model_peer *p = &m->peers[peer];

	if (!p->worker)
		return SCOUT_WIRE_ROLE;
	if (!p->lease || p->rank < 0)
		return SCOUT_WIRE_STATE;
	return weights_fit(m, peer) ? 0 : SCOUT_WIRE_WEIGHTS;
}

/* What STORE of one chunk grants; *ret_c: the chunk, if there is one. @user: the session, 0: none. */
static uint16_t
reserve(struct model *m, uint32_t tenant, uint32_t key, uint32_t rank, uint64_t user, struct model_chunk **ret_c)
{
	struct model_chunk *c = find_key(m, tenant, key);

	if (!c)
		c = create(m, tenant, key, user);
	*ret_c = c;
	if (!c)
		return SCOUT_GRANT_NO_ROOM;
	if (c->shard[rank] != MODEL_ABSENT)
		return SCOUT_GRANT_PRESENT;
	c->shard[rank] = MODEL_WRITING;
	return SCOUT_GRANT_GRANTED;
}

int
model_store(struct model *m, uint32_t peer, uint64_t corr, uint64_t ticket, const struct model_run *run,
	    struct model_grants *ret)
{
	struct model_session *s = session_in_ns(m, peer, ticket);
	int refusal = may_transfer(m, peer);
	bool full = false;
	struct model_hold h;

	m->ops[SCOUT_OP_STORE]++;
	if (refusal)
		return refuse(m, refusal);
	m->ns[0].tenant_known[run->tenant] = true;
	if (find_hold(m, peer, corr))
		return refuse(m, SCOUT_WIRE_STATE);
	begin_grants(m, peer, corr, true, &h, ret);
	for (uint32_t i = 0; i < run->n; i++) {
		struct model_chunk *c = NULL;
		uint16_t state = SCOUT_GRANT_NO_ROOM;

		if (!full)
			state = reserve(m, run->tenant, run->keys[i], h.rank, s ? s->opened : 0, &c);
		full = state == SCOUT_GRANT_NO_ROOM;
		put_grant(m, &h, ret, state, c);
		if (s && c)
			c->used_by = s->opened;
		if (s && c && h.rank == 0) {
			MUST(s->n_stored < 2 * MODEL_STORED);
			s->stored[s->n_stored++] = c->serial;
		}
	}
	end_grants(m, &h, ret);
	return SCOUT_WIRE_OK;
}

/* The first @commit chunks are complete. Returns how many became readable as a whole. */
static uint32_t
end_write(struct model *m, struct model_hold *h, uint32_t commit)
{
	uint32_t readable = 0;

	for (uint32_t i = h->n; i-- > 0;) {
		struct model_chunk *c = find_serial(m, h->serials[i]);
		bool good = i < commit && h->era == m->ns[0].era;

		MUST(c && c->shard[h->rank] == MODEL_WRITING);
		c->shard[h->rank] = good ? MODEL_READABLE : MODEL_ABSENT;
		readable += good && !c->spoiled && shards(c, MODEL_READABLE) == m->ranks;
		let_go(m, c);
	}
	memset(h, 0, sizeof(*h));
	return readable;
}

static void
end_read(struct model *m, struct model_hold *h)
{
	for (uint32_t i = h->n; i-- > 0;) {
		struct model_chunk *c = find_serial(m, h->serials[i]);

		MUST(c && c->reads > 0);
		c->reads--;
		let_go(m, c);
	}
	memset(h, 0, sizeof(*h));
}

int
model_store_done(struct model *m, uint32_t peer, uint64_t id, uint32_t n, uint32_t committed, uint32_t *ret_readable)
{
	struct model_hold *h = find_hold(m, peer, id);

	m->ops[SCOUT_OP_STORE_DONE]++;
	if (committed > n)
		return refuse(m, SCOUT_WIRE_RANGE);
	if (!h || !h->write)
		return refuse(m, SCOUT_WIRE_NO_SESSION);
	if (n != h->n && n != 0)
		return refuse(m, SCOUT_WIRE_RANGE);
	*ret_readable = end_write(m, h, committed);
	return SCOUT_WIRE_OK;
}

int
model_retrieve(struct model *m, uint32_t peer, uint64_t corr, uint64_t ticket, uint32_t from, uint32_t to,
	       struct model_grants *ret)
{
	struct model_session *s = session_in_ns(m, peer, ticket);
	int refusal = may_transfer(m, peer);
	uint32_t unit = (uint32_t)m->peers[peer].rank * m->readers + m->peers[peer].reader;
	struct model_hold h;

	m->ops[SCOUT_OP_RETRIEVE]++;
	if (from > to)
		return refuse(m, SCOUT_WIRE_RANGE);
	if (refusal)
		return refuse(m, refusal);
	if (!s)
		return refuse(m, SCOUT_WIRE_NO_SESSION);
	if (to > s->n)
		return refuse(m, SCOUT_WIRE_RANGE);
	if (find_hold(m, peer, corr))
		return refuse(m, SCOUT_WIRE_STATE);
	begin_grants(m, peer, corr, false, &h, ret);
	for (uint32_t i = from; i < to; i++) {
		struct model_chunk *c = i < s->hit ? find_serial(m, s->serials[i]) : NULL;

		if (!c || c->spoiled || c->shard[h.rank] != MODEL_READABLE) {
			put_grant(m, &h, ret, SCOUT_GRANT_MISSING, NULL);
			continue;
		}
		c->reads++;
		c->used_by = s->opened;
		if (s->kept[i] && (s->units[i] >> unit & 1)) {
			s->units[i] &= ~(UINT32_C(1) << unit);
			c->promises--;
		}
		put_grant(m, &h, ret, SCOUT_GRANT_GRANTED, c);
	}
	end_grants(m, &h, ret);
	return SCOUT_WIRE_OK;
}

int
model_retrieve_done(struct model *m, uint32_t peer, uint64_t id, uint32_t mismatches)
{
	struct model_hold *h = find_hold(m, peer, id);

	m->ops[SCOUT_OP_RETRIEVE_DONE]++;
	if (!h || h->write)
		return refuse(m, SCOUT_WIRE_NO_SESSION);
	m->mismatches += mismatches;
	for (uint32_t i = 0; mismatches && i < h->n; i++) {
		struct model_chunk *c = find_serial(m, h->serials[i]);

		MUST(c);
		c->spoiled = true;
	}
	end_read(m, h);
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
		return refuse(m, SCOUT_WIRE_WEIGHTS);
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
		end_session(m, first, false);
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
			(void)end_write(m, first, 0);
		else
			end_read(m, first);
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
	const uint64_t chunks = ns == 0 ? n_chunks(m) : 0;
	const struct {
		const char *name;
		uint64_t value;
	} of_ns[] = {
		{"peers", n_peers(m, ns)},
		{"sessions", n_sessions(m, ns)},
		{"holds", ns == 0 ? n_holds(m) : 0},
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
	put(&items, "sessions", n_sessions(m, MODEL_NAMESPACES));
	put(&items, "holds", n_holds(m));
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
	put(&items, "l1.chunks", n_chunks(m));
	put(&items, "l1.bytes_used", n_chunks(m) * chunk_bytes);
	put(&items, "l1.bytes_promised", n_promised(m) * chunk_bytes);
	put(&items, "l1.bytes_held", n_held(m) * chunk_bytes);
	put(&items, "l1.evictions", m->evictions);
	put(&items, "l1.refusals", m->refusals);
	put(&items, "l1.promises_refused", m->promises_refused);
	put_ns(m, &items, 0, "test");
	put_ns(m, &items, 1, "other");
	return items.n;
}
