/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#include "model_parts.h"

/* The model: what is cached, and what is evicted for it. */

struct model_chunk *
model_find_key(struct model *m, uint32_t tenant, uint32_t key)
{
	for (uint32_t i = 0; i < MODEL_CHUNKS; i++) {
		struct model_chunk *c = &m->chunks[i];

		if (c->serial && c->tenant == tenant && c->key == key && c->era == m->ns[0].era)
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

uint32_t
model_n_promised(const struct model *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MODEL_CHUNKS; i++)
		n += m->chunks[i].promises != 0;
	return n;
}

uint32_t
model_n_held(const struct model *m)
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

static struct model_chunk *
oldest(struct model *m)
{
	struct model_chunk *found = NULL;

	for (uint32_t i = 0; i < MODEL_CHUNKS; i++) {
		struct model_chunk *c = &m->chunks[i];

		if (c->serial && !model_is_pinned(c) && (!found || c->time < found->time))
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

struct model_chunk *
model_create(struct model *m, uint32_t tenant, uint32_t key, uint64_t user)
{
	uint32_t i = 0;

	if (model_n_chunks(m) == m->capacity) {
		struct model_chunk *victim = next_victim(m, user);

		if (!victim) {
			m->refusals++;
			return NULL;
		}
		m->evictions++;
		m->evicted_tenant = victim->tenant;
		m->evicted_key = victim->key;
		model_drop(victim);
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
		n += m->chunks[i].serial && !model_is_pinned(&m->chunks[i]);
	return n;
}

bool
model_is_there(const struct model *m, uint32_t tenant, uint32_t key)
{
	struct model *unconst = (struct model *)(uintptr_t)m; /* only looked at */

	return model_find_key(unconst, tenant, key) != NULL;
}
