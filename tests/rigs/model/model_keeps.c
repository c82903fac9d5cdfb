/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#include "model_parts.h"

/*
 * The model: keeps (docs/eviction.md). A session that FINISH ended with keep_ms promises its last objects again, each right after its
 * touch, and stays as a keep until its time, a RESET, or a newer word about the same prompt ends it.
 */

static uint32_t
n_stored(const struct model_session *s, uint32_t group)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n_stored; i++)
		n += s->stored[i].group == group;
	return n;
}

/* What @s found of @group, then what it stored. 0: it is not there. */
static uint32_t
serial_at(const struct model_session *s, uint32_t group, uint32_t at)
{
	const struct model_kept *k = &s->of[group];
	uint32_t i = 0;

	if (at < k->n)
		return k->serials[at];
	for (at -= k->n; s->stored[i].group != group || at-- > 0;)
		i++;
	return s->stored[i].serial;
}

uint64_t
model_bytes_kept(const struct model *m, uint32_t ns, uint32_t peer)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < MODEL_SESSIONS; i++) {
		const struct model_session *s = &m->sessions[i];

		if (s->used && s->is_kept && (ns == MODEL_NAMESPACES || s->ns == ns) &&
		    (peer == MODEL_PEERS || s->keep.peer == peer))
			bytes += s->keep.bytes;
	}
	return bytes;
}

static uint64_t
less(uint64_t most, uint64_t used)
{
	return most > used ? most - used : 0;
}

/* What @s promises itself, its chunks of which a worker has not yet retrieved all. */
static uint64_t
own_promises(const struct model *m, const struct model_session *s)
{
	uint64_t bytes = 0;

	for (uint32_t group = 0; group < m->n_groups; group++)
		for (uint32_t i = 0; i < MODEL_RUN; i++)
			bytes += s->of[group].kept[i] && s->of[group].units[i] ? model_chunk_bytes(m, group) : 0;
	return bytes;
}

static uint64_t
room(const struct model *m, const struct model_session *s)
{
	uint64_t most = m->max_promised / MODEL_KEEP_PART, bytes, own, unpromised;
	uint32_t n_clients = 0, n_keeps = 0;

	for (uint32_t i = 0; i < MODEL_PEERS; i++)
		n_clients += m->peers[i].used && !m->peers[i].worker;
	for (uint32_t i = 0; i < MODEL_SESSIONS; i++)
		n_keeps += m->sessions[i].used && m->sessions[i].is_kept;
	bytes = less(most, model_bytes_kept(m, MODEL_NAMESPACES, MODEL_PEERS));
	own = less(most / n_clients, model_bytes_kept(m, MODEL_NAMESPACES, s->peer));
	unpromised = less(m->max_promised, model_bytes_promised(m)) + own_promises(m, s);
	bytes = bytes < own ? bytes : own;
	return n_keeps > m->max_sessions / MODEL_KEEP_PART ? 0 : bytes < unpromised ? bytes : unpromised;
}

/* The keep whose last object is the last one of these that @s has, too. */
static struct model_session *
older(struct model *m, const struct model_session *s)
{
	for (uint32_t at = s->of[0].n + n_stored(s, 0); at-- > 0;) {
		uint32_t serial = serial_at(s, 0, at);

		for (uint32_t i = 0; serial && i < MODEL_SESSIONS; i++) {
			struct model_session *other = &m->sessions[i];

			if (other->used && other->is_kept && other->ns == s->ns && other->keep.tail == serial)
				return other;
		}
	}
	return NULL;
}

void
model_keep_one(struct model *m, struct model_session *s, uint32_t group, uint32_t at)
{
	struct model_keep *keep = &s->keep;
	struct model_chunk *c = model_find_serial(m, serial_at(s, group, at));

	if (keep->bytes == 0 || at < keep->of[group].from || at >= keep->of[group].end)
		return;
	if (c && (c->promises || model_bytes_promised(m) + model_chunk_bytes(m, group) <= m->max_promised)) {
		model_use(c);
		c->promises += m->ranks * m->readers;
		keep->of[group].kept[at] = true;
		keep->n++;
		return;
	}
	m->promises_refused += c != NULL;
	if (m->groups[group].policy == SCOUT_POLICY_ALL)
		keep->of[group].to = at;
}

void
model_unkeep(struct model *m, struct model_session *s)
{
	for (uint32_t group = 0; group < m->n_groups; group++) {
		for (uint32_t at = s->keep.of[group].end; at-- > s->keep.of[group].from;) {
			struct model_chunk *c =
				s->keep.of[group].kept[at] ? model_find_serial(m, serial_at(s, group, at)) : NULL;

			if (!c)
				continue;
			MUST(c->promises >= m->ranks * m->readers);
			c->promises -= m->ranks * m->readers;
			model_let_go(m, c);
		}
	}
	memset(s, 0, sizeof(*s));
}

/* Choose what to keep of @s, as far as there is room. Returns what became of the wish. */
static uint32_t
begin(struct model *m, struct model_session *s, uint32_t keep_ms)
{
	uint64_t bytes = 0, have = room(m, s);
	struct model_keep *keep = &s->keep;

	for (uint32_t group = 0; group < m->n_groups; group++) {
		uint32_t n = m->groups[group].vacant || s->ns != 0 ? 0 : s->of[group].n + n_stored(s, group);
		uint32_t needs = model_end_of(m, s, group).needs,
			 last = needs == MODEL_ALL || 2 * needs > n ? n : 2 * needs;

		keep->of[group].from = n - last;
		keep->of[group].to = keep->of[group].end = n;
		bytes += last * model_chunk_bytes(m, group);
	}
	if (bytes == 0)
		return SCOUT_OUTCOME_MISSING;
	keep->bytes = bytes;
	keep->is_short = keep_ms < 1000;
	if (have >= bytes)
		return keep_ms > SCOUT_MAX_KEEP_MS ? SCOUT_OUTCOME_CLIPPED : SCOUT_OUTCOME_ACCEPTED;
	keep->bytes = 0;
	if (m->n_groups == 1 && m->groups[0].policy == SCOUT_POLICY_ALL) {
		keep->of[0].to = keep->of[0].end = (uint32_t)((double)have / (double)bytes * keep->of[0].to);
		keep->bytes = keep->of[0].to * model_chunk_bytes(m, 0);
	}
	return keep->bytes ? SCOUT_OUTCOME_CLIPPED : SCOUT_OUTCOME_REJECTED;
}

/* Of what the groups with policy all have, or all objects where none has. */
static uint32_t
length(const struct model *m, const struct model_session *s)
{
	uint32_t n = UINT32_MAX;

	for (uint32_t group = 0; group < m->n_groups; group++) {
		const struct model_group *g = &m->groups[group];

		if (g->policy == SCOUT_POLICY_ALL && !g->vacant && s->keep.of[group].to * g->stride < n)
			n = s->keep.of[group].to * g->stride;
	}
	return n == UINT32_MAX ? s->keep.n : n;
}

struct model_wish
model_end_with_wish(struct model *m, struct model_session *s, const struct model_wish *wish)
{
	struct model_session *ended[MODEL_SESSIONS], *before;
	struct model_wish done = {.keep_ms = 0};
	struct model_keep *keep = &s->keep;
	uint32_t n = 0;

	while ((wish->keep_ms || wish->over) && (before = older(m, s))) {
		ended[n++] = before;
		before->keep.bytes = before->keep.tail = 0;
		before->is_kept = false;
	}
	if (wish->keep_ms)
		done.outcome = begin(m, s, wish->keep_ms);
	s->is_kept = keep->bytes != 0;
	keep->peer = s->peer;
	if (!s->is_kept) {
		model_end_session(m, s, true);
	} else {
		model_end_parts(m, s, true);
		for (uint32_t at = keep->of[0].end; at-- > keep->of[0].from && !keep->tail;)
			keep->tail = keep->of[0].kept[at] ? serial_at(s, 0, at) : 0;
		done.kept = length(m, s);
		if (keep->n == 0) {
			done.outcome = SCOUT_OUTCOME_MISSING;
			model_unkeep(m, s);
		}
	}
	for (uint32_t i = 0; i < n; i++)
		model_unkeep(m, ended[i]);
	m->keeps[done.outcome]++;
	return done;
}

void
model_time_passes(struct model *m)
{
	for (uint32_t i = 0; i < MODEL_SESSIONS; i++)
		if (m->sessions[i].used && m->sessions[i].is_kept && m->sessions[i].keep.is_short)
			model_unkeep(m, &m->sessions[i]);
}
