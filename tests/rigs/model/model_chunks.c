/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#include "model_parts.h"

/* The model: what is cached, and what is evicted for it. */

struct model_chunk *
model_find_key(struct model *m, uint32_t group, uint32_t tenant, uint32_t key)
{
	for (uint32_t i = 0; i < MODEL_CHUNKS; i++) {
		struct model_chunk *c = &m->chunks[i];

		if (c->serial && c->group == group && c->tenant == tenant && c->key == key && c->era == m->ns[0].era)
			return c;
	}
	return NULL;
}

struct model_chunk *
model_find_serial(struct model *m, uint32_t serial)
{
	for (uint32_t i = 0; serial && i < MODEL_CHUNKS; i++) {
		if (m->chunks[i].serial == serial)
			return &m->chunks[i];
	}
	return NULL;
}

uint32_t
model_shards(const struct model_chunk *c, enum model_shard state)
{
	uint32_t n = 0;

	for (uint32_t rank = 0; rank < MODEL_RANKS; rank++)
		n += c->shard[rank] == state;
	return n;
}

bool
model_is_pinned(const struct model_chunk *c)
{
	return c->promises || c->reads || model_shards(c, MODEL_WRITING);
}

uint32_t
model_n_chunks(const struct model *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MODEL_CHUNKS; i++)
		n += m->chunks[i].serial != 0;
	return n;
}

uint64_t
model_chunk_bytes(const struct model *m, uint32_t group)
{
	return (uint64_t)m->ranks * m->groups[group].shard_bytes;
}

uint64_t
model_bytes_used(const struct model *m)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < MODEL_CHUNKS; i++)
		bytes += m->chunks[i].serial ? model_chunk_bytes(m, m->chunks[i].group) : 0;
	return bytes;
}

uint64_t
model_bytes_promised(const struct model *m)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < MODEL_CHUNKS; i++)
		bytes += m->chunks[i].promises ? model_chunk_bytes(m, m->chunks[i].group) : 0;
	return bytes;
}

uint64_t
model_bytes_held(const struct model *m)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < MODEL_CHUNKS; i++) {
		const struct model_chunk *c = &m->chunks[i];

		if (c->reads || model_shards(c, MODEL_WRITING))
			bytes += model_chunk_bytes(m, c->group);
	}
	return bytes;
}

void
model_drop(struct model_chunk *c)
{
	memset(c, 0, sizeof(*c));
}

void
model_let_go(struct model *m, struct model_chunk *c)
{
	if (model_is_pinned(c))
		return;
	if (model_shards(c, MODEL_READABLE) == 0 || c->spoiled || c->era != m->ns[0].era)
		model_drop(c);
	else
		c->time = ++m->clock;
}

void
model_use(struct model_chunk *c)
{
	c->unneeded = false;
}

static bool
goes_before(const struct model_chunk *a, const struct model_chunk *b)
{
	return a->unneeded != b->unneeded ? a->unneeded : a->time < b->time;
}

/* The next of @group to go, if it is nobody's own. */
static struct model_chunk *
oldest(struct model *m, uint32_t group)
{
	struct model_chunk *found = NULL;

	for (uint32_t i = 0; i < MODEL_CHUNKS; i++) {
		struct model_chunk *c = &m->chunks[i];

		if (c->serial && c->group == group && !model_is_pinned(c) && (!found || goes_before(c, found)))
			found = c;
	}
	return found;
}

/* The next to go for @user (0: nobody in particular). NULL: all the others are pinned. */
static struct model_chunk *
next_victim(struct model *m, uint32_t group, uint64_t user)
{
	struct model_chunk *c;

	while ((c = oldest(m, group)) && user && c->used_by == user) {
		if (c->skipped == m->number)
			return NULL;
		c->skipped = m->number;
		c->unneeded = false;
		c->time = ++m->clock;
	}
	return c;
}

/* Without an object of a group with policy all, no length needs those of other groups that end there. */
static void
keep_others(struct model *m, const struct model_chunk *victim)
{
	if (m->groups[victim->group].policy != SCOUT_POLICY_ALL || victim->era != m->ns[0].era)
		return;
	for (uint32_t g = 0; g < m->n_groups; g++) {
		struct model_chunk *c = model_find_key(m, g, victim->tenant, victim->key);

		if (c && m->groups[g].policy != SCOUT_POLICY_ALL)
			model_unneeded(m, c);
	}
}

static uint32_t
n_of_group(const struct model *m, uint32_t group)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MODEL_CHUNKS; i++)
		n += m->chunks[i].serial && m->chunks[i].group == group;
	return n;
}

struct model_chunk *
model_create(struct model *m, uint32_t group, uint32_t tenant, uint32_t key, uint64_t user)
{
	uint32_t i = 0;

	if (n_of_group(m, group) == m->groups[group].capacity) {
		struct model_chunk *victim = next_victim(m, group, user);

		if (!victim) {
			m->refusals++;
			return NULL;
		}
		m->evictions++;
		m->evictions_unneeded += victim->unneeded;
		m->evicted[group]++;
		m->evicted_tenant[group] = victim->tenant;
		m->evicted_key[group] = victim->key;
		keep_others(m, victim);
		model_drop(victim);
	}
	while (m->chunks[i].serial)
		MUST(++i < MODEL_CHUNKS);
	m->chunks[i] = (struct model_chunk){
		.serial = ++m->last_serial, .group = group, .tenant = tenant, .key = key, .era = m->ns[0].era};
	return &m->chunks[i];
}

uint32_t
model_evictable(const struct model *m, uint32_t group)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MODEL_CHUNKS; i++) {
		const struct model_chunk *c = &m->chunks[i];

		n += c->serial && c->group == group && !model_is_pinned(c);
	}
	return n;
}
