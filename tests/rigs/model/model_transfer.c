/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#include "model_parts.h"

/* The model: STORE and RETRIEVE, and what they hold. */

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

uint32_t
model_n_holds(const struct model *m)
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
	return model_weights_fit(m, peer) ? 0 : SCOUT_WIRE_WEIGHTS;
}

/* What STORE of one chunk grants; *ret_c: the chunk, if there is one. @user: the session, 0: none. */
static uint16_t
reserve(struct model *m, uint32_t group, uint32_t tenant, uint32_t key, uint32_t rank, uint64_t user,
	struct model_chunk **ret_c)
{
	struct model_chunk *c = model_find_key(m, group, tenant, key);

	if (!c)
		c = model_create(m, group, tenant, key, user);
	*ret_c = c;
	if (!c)
		return SCOUT_GRANT_NO_ROOM;
	if (c->shard[rank] != MODEL_ABSENT)
		return SCOUT_GRANT_PRESENT;
	c->shard[rank] = MODEL_WRITING;
	model_use(c);
	return SCOUT_GRANT_GRANTED;
}

int
model_store(struct model *m, uint32_t peer, uint64_t corr, uint64_t ticket, uint32_t group, const struct model_run *run,
	    struct model_grants *ret)
{
	struct model_session *s = model_session_in_ns(m, peer, ticket);
	int refusal = may_transfer(m, peer);
	bool full = false;
	struct model_hold h;

	m->ops[SCOUT_OP_STORE]++;
	if (refusal)
		return model_refuse(m, refusal);
	if (group >= m->n_groups || m->groups[group].vacant)
		return model_refuse(m, SCOUT_WIRE_GROUP);
	m->ns[0].tenant_known[run->tenant] = true;
	if (find_hold(m, peer, corr))
		return model_refuse(m, SCOUT_WIRE_STATE);
	begin_grants(m, peer, corr, true, &h, ret);
	for (uint32_t i = 0; i < run->n; i++) {
		struct model_chunk *c = NULL;
		uint16_t state = SCOUT_GRANT_NO_ROOM;

		if (!full)
			state = reserve(m, group, run->tenant, run->keys[i], h.rank, s ? s->opened : 0, &c);
		full = state == SCOUT_GRANT_NO_ROOM;
		put_grant(m, &h, ret, state, c);
		if (s && c)
			c->used_by = s->opened;
		if (s && c && h.rank == 0) {
			MUST(s->n_stored < 2 * MODEL_STORED);
			s->stored[s->n_stored].group = group;
			s->stored[s->n_stored].key = c->key;
			s->stored[s->n_stored].present = state == SCOUT_GRANT_PRESENT;
			s->stored[s->n_stored++].serial = c->serial;
		}
	}
	end_grants(m, &h, ret);
	return SCOUT_WIRE_OK;
}

uint32_t
model_end_write(struct model *m, struct model_hold *h, uint32_t commit)
{
	uint32_t readable = 0;

	for (uint32_t i = h->n; i-- > 0;) {
		struct model_chunk *c = model_find_serial(m, h->serials[i]);
		bool good = i < commit && h->era == m->ns[0].era;

		MUST(c && c->shard[h->rank] == MODEL_WRITING);
		c->shard[h->rank] = good ? MODEL_READABLE : MODEL_ABSENT;
		readable += good && !c->spoiled && model_shards(c, MODEL_READABLE) == m->ranks;
		model_let_go(m, c);
	}
	memset(h, 0, sizeof(*h));
	return readable;
}

void
model_end_read(struct model *m, struct model_hold *h)
{
	for (uint32_t i = h->n; i-- > 0;) {
		struct model_chunk *c = model_find_serial(m, h->serials[i]);

		MUST(c && c->reads > 0);
		c->reads--;
		model_let_go(m, c);
	}
	memset(h, 0, sizeof(*h));
}

int
model_store_done(struct model *m, uint32_t peer, uint64_t id, uint32_t n, uint32_t committed, uint32_t *ret_readable)
{
	struct model_hold *h = find_hold(m, peer, id);

	m->ops[SCOUT_OP_STORE_DONE]++;
	if (committed > n)
		return model_refuse(m, SCOUT_WIRE_RANGE);
	if (!h || !h->write)
		return model_refuse(m, SCOUT_WIRE_NO_SESSION);
	if (n != h->n && n != 0)
		return model_refuse(m, SCOUT_WIRE_RANGE);
	*ret_readable = model_end_write(m, h, committed);
	return SCOUT_WIRE_OK;
}

/* Why the parts cannot be retrieved by @peer from @s; 0: they can. */
static int
may_retrieve(const struct model *m, uint32_t peer, const struct model_session *s, const struct model_parts *parts)
{
	int refusal = may_transfer(m, peer);

	for (uint32_t i = 0; i < parts->n; i++) {
		if (parts->of[i].from > parts->of[i].to)
			return SCOUT_WIRE_RANGE;
	}
	for (uint32_t i = 0; !refusal && i < parts->n; i++) {
		if (parts->of[i].group >= m->n_groups || m->groups[parts->of[i].group].vacant)
			refusal = SCOUT_WIRE_GROUP;
	}
	if (refusal)
		return refusal;
	if (!s)
		return SCOUT_WIRE_NO_SESSION;
	for (uint32_t i = 0; i < parts->n; i++) {
		uint32_t stride = m->groups[parts->of[i].group].stride;

		if (parts->of[i].to > s->n || parts->of[i].from % stride || parts->of[i].to % stride)
			return SCOUT_WIRE_RANGE;
	}
	return 0;
}

static void
retrieve_one(struct model *m, struct model_session *s, struct model_hold *h, uint32_t group, uint32_t i,
	     struct model_grants *ret)
{
	struct model_kept *k = &s->of[group];
	struct model_chunk *c = i < k->n ? model_find_serial(m, k->serials[i]) : NULL;
	uint32_t unit = h->rank * m->readers + m->peers[h->peer].reader;

	if (!c || c->spoiled || c->shard[h->rank] != MODEL_READABLE) {
		put_grant(m, h, ret, SCOUT_GRANT_MISSING, NULL);
		return;
	}
	c->reads++;
	model_use(c);
	c->used_by = s->opened;
	s->retrieved |= k->kept[i];
	if (k->kept[i] && (k->units[i] >> unit & 1)) {
		k->units[i] &= ~(UINT32_C(1) << unit);
		c->promises--;
	}
	put_grant(m, h, ret, SCOUT_GRANT_GRANTED, c);
}

int
model_retrieve(struct model *m, uint32_t peer, uint64_t corr, uint64_t ticket, const struct model_parts *parts,
	       struct model_grants *ret)
{
	struct model_session *s = model_session_in_ns(m, peer, ticket);
	int refusal = may_retrieve(m, peer, s, parts);
	struct model_hold h;

	m->ops[SCOUT_OP_RETRIEVE]++;
	if (refusal)
		return model_refuse(m, refusal);
	if (find_hold(m, peer, corr))
		return model_refuse(m, SCOUT_WIRE_STATE);
	begin_grants(m, peer, corr, false, &h, ret);
	for (uint32_t at = 0; at < parts->n; at++) {
		uint32_t group = parts->of[at].group, stride = m->groups[group].stride;

		for (uint32_t i = parts->of[at].from / stride; i < parts->of[at].to / stride; i++)
			retrieve_one(m, s, &h, group, i, ret);
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
		return model_refuse(m, SCOUT_WIRE_NO_SESSION);
	m->mismatches += mismatches;
	for (uint32_t i = 0; mismatches && i < h->n; i++) {
		struct model_chunk *c = model_find_serial(m, h->serials[i]);

		MUST(c);
		c->spoiled = true;
	}
	model_end_read(m, h);
	return SCOUT_WIRE_OK;
}
