/* SPDX-License-Identifier: Apache-2.0 */
#include "chunk_index.h"

#include <stdlib.h>

#include "l1_index_rig.h"

#include "check_main.h"
#include "random.h"

/*
 * DESIGN
 *
 * The chunk index against a model that knows nothing of slots, tables and lists: arrays, searched from one end to the
 * other. Every step does one random operation on both and compares what a caller can see of that chunk, all counters,
 * and the whole eviction order. A failure names the seed and the step; the seed is the number of the loop, so it
 * replays.
 */

#define MODEL_KEYS 96u
#define MODEL_RANKS 3u
#define MODEL_STEPS 20000u

struct model_chunk {
	bool present;
	uint32_t state[MODEL_RANKS];
	uint32_t reads[MODEL_RANKS]; /* holds by retrieves */
	uint32_t promises;
	struct scout__handle handle;
};

struct model {
	struct model_chunk chunks[MODEL_KEYS];
	uint32_t order[MODEL_KEYS]; /* keys, the next to be evicted first */
	uint32_t n_order;
	uint32_t n_present;
	uint32_t ranks;
	uint32_t readers;
	uint32_t capacity;
	uint32_t max_promised; /* chunks */
	uint64_t evictions;
	uint64_t refusals;
	uint64_t limited;
	uint64_t random;
	uint32_t seed;
	uint32_t step;
};

static struct model m;

/* Check tells its parent of every ck_assert(), a system call each: too much for some millions. */
#define model_assert(x)                                                                                                \
	do {                                                                                                           \
		if (!(x))                                                                                              \
			ck_abort_msg("seed %u, step %u: %s", m.seed, m.step, #x);                                      \
	} while (0)

static uint32_t
draw(uint32_t below)
{
	return (uint32_t)((xorshift(&m.random) >> 16) % below);
}

static uint32_t
model_space(uint32_t i)
{
	return i % 3;
}

/* Keys come in threes that differ in their space only. */
static const uint8_t *
model_hash(uint32_t i)
{
	return key(i / 3);
}

static SCOUT_ON_LOOP uint32_t
model_entry(uint32_t i)
{
	return scout__index_find(cache, model_space(i), model_hash(i));
}

static uint32_t
model_count(uint32_t i, uint32_t state)
{
	uint32_t n = 0;

	for (uint32_t rank = 0; rank < m.ranks; rank++)
		n += m.chunks[i].state[rank] == state;
	return n;
}

static uint32_t
model_holds(uint32_t i)
{
	uint32_t n = model_count(i, SCOUT__SHARD_WRITING) + model_count(i, SCOUT__SHARD_QUARANTINE);

	for (uint32_t rank = 0; rank < m.ranks; rank++)
		n += m.chunks[i].reads[rank];
	return n;
}

static bool
model_pinned(uint32_t i)
{
	return m.chunks[i].promises > 0 || model_holds(i) > 0;
}

static void
model_order_remove(uint32_t i)
{
	uint32_t to = 0;

	for (uint32_t from = 0; from < m.n_order; from++)
		if (m.order[from] != i)
			m.order[to++] = m.order[from];
	m.n_order = to;
}

static void
model_gone(uint32_t i)
{
	model_order_remove(i);
	m.chunks[i].present = false;
	for (uint32_t rank = 0; rank < m.ranks; rank++)
		m.chunks[i].state[rank] = SCOUT__SHARD_ABSENT;
	m.n_present--;
}

/* A pin of @i fell. */
static void
model_let_go(uint32_t i)
{
	if (model_pinned(i))
		return;
	if (model_count(i, SCOUT__SHARD_READABLE) == 0)
		model_gone(i);
	else
		m.order[m.n_order++] = i;
}

static uint32_t
model_promised(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MODEL_KEYS; i++)
		n += m.chunks[i].promises > 0;
	return n;
}

/* What a reserve of rank @rank of @i must answer, and its effect. */
static SCOUT_ON_LOOP enum scout__reserve
model_reserve(uint32_t i, uint32_t rank)
{
	struct model_chunk *c = &m.chunks[i];

	if (c->present && c->state[rank] != SCOUT__SHARD_ABSENT)
		return SCOUT__RESERVE_PRESENT;
	if (!c->present) {
		if (m.n_present == cache->extents.n_slots && cache->extents.n_slots < m.capacity)
			return SCOUT__RESERVE_WAIT;
		if (m.n_present == m.capacity && m.n_order == 0) {
			m.refusals++;
			return SCOUT__RESERVE_NO_ROOM;
		}
		if (m.n_present == m.capacity) {
			model_gone(m.order[0]);
			m.evictions++;
		}
		c->present = true;
		m.n_present++;
	}
	model_order_remove(i);
	c->state[rank] = SCOUT__SHARD_WRITING;
	return SCOUT__RESERVE_GRANTED;
}

static SCOUT_ON_LOOP void
step_reserve(uint32_t i, uint32_t rank)
{
	struct model_chunk *c = &m.chunks[i];
	bool was_present = c->present;
	uint32_t entry = SCOUT__NO_ENTRY;
	enum scout__reserve expected = model_reserve(i, rank);
	enum scout__reserve got = scout__index_reserve(cache, model_space(i), model_hash(i), rank, NULL, &entry);

	model_assert(got == expected);
	if (got == SCOUT__RESERVE_WAIT || (cache->growth.n && draw(4) == 0)) {
		model_assert(wait_grown(cache));
	}
	if (got != SCOUT__RESERVE_GRANTED && got != SCOUT__RESERVE_PRESENT) {
		model_assert(entry == SCOUT__NO_ENTRY);
		return;
	}
	model_assert(entry == model_entry(i));
	if (was_present) {
		model_assert(scout__index_valid(cache, c->handle) && c->handle.entry == entry);
	} else {
		model_assert(!scout__index_valid(cache, c->handle));
		c->handle = scout__index_handle(cache, entry);
	}
}

/* End a write of @i, one way or another. */
static SCOUT_ON_LOOP void
step_end_write(uint32_t i, uint32_t rank, uint32_t entry)
{
	struct model_chunk *c = &m.chunks[i];

	if (c->state[rank] != SCOUT__SHARD_WRITING && c->state[rank] != SCOUT__SHARD_QUARANTINE)
		return;
	if (c->state[rank] == SCOUT__SHARD_WRITING && draw(8) == 0) {
		scout__index_quarantine(cache, entry, rank);
		c->state[rank] = SCOUT__SHARD_QUARANTINE;
	} else if (c->state[rank] == SCOUT__SHARD_QUARANTINE || draw(4) == 0) {
		scout__index_abort(cache, entry, rank);
		c->state[rank] = SCOUT__SHARD_ABSENT;
		model_let_go(i);
	} else {
		bool whole = scout__index_commit(cache, entry, rank);

		c->state[rank] = SCOUT__SHARD_READABLE;
		model_assert(whole == (model_count(i, SCOUT__SHARD_READABLE) == m.ranks));
		model_let_go(i);
	}
}

static SCOUT_ON_LOOP void
step_promise(uint32_t i, uint32_t entry)
{
	struct model_chunk *c = &m.chunks[i];
	bool may = c->promises > 0 || model_promised() < m.max_promised;

	model_assert(scout__index_promise(cache, entry) == may);
	m.limited += !may;
	if (!may)
		return;
	model_order_remove(i);
	c->promises += m.ranks * m.readers;
}

static SCOUT_ON_LOOP void
step_unpromise(uint32_t i, uint32_t entry)
{
	struct model_chunk *c = &m.chunks[i];
	uint32_t units = draw(c->promises + 1);

	if (draw(2))
		units = c->promises;
	scout__index_unpromise(cache, entry, units);
	if (units == 0)
		return;
	c->promises -= units;
	if (c->promises == 0)
		model_let_go(i);
}

static SCOUT_ON_LOOP void
step_hold(uint32_t i, uint32_t rank, uint32_t entry)
{
	bool may = m.chunks[i].state[rank] == SCOUT__SHARD_READABLE;

	model_assert(scout__index_hold(cache, entry, rank) == may);
	if (!may)
		return;
	model_order_remove(i);
	m.chunks[i].reads[rank]++;
}

static SCOUT_ON_LOOP void
step_unhold(uint32_t i, uint32_t rank, uint32_t entry)
{
	if (m.chunks[i].reads[rank] == 0)
		return;
	scout__index_unhold(cache, entry);
	m.chunks[i].reads[rank]--;
	model_let_go(i);
}

static SCOUT_ON_LOOP void
step_touch(uint32_t i, uint32_t entry)
{
	scout__index_touch(cache, entry,
			   &(struct scout__touch){.how = draw(2) ? SCOUT__ACCESS_READ : SCOUT__ACCESS_STORED});
	if (model_pinned(i))
		return;
	model_order_remove(i);
	m.order[m.n_order++] = i;
}

static SCOUT_ON_LOOP void
step_drop(uint32_t i, uint32_t entry)
{
	bool may = !model_pinned(i);

	model_assert(scout__index_drop(cache, entry) == may);
	if (may)
		model_gone(i);
}

static SCOUT_ON_LOOP void
compare_chunk(uint32_t i)
{
	const struct model_chunk *c = &m.chunks[i];
	uint32_t entry = model_entry(i);
	const struct scout__entry *e;

	model_assert((entry != SCOUT__NO_ENTRY) == c->present);
	model_assert(scout__index_valid(cache, c->handle) == c->present);
	if (!c->present)
		return;
	e = &cache->entries[entry];
	model_assert(scout__index_is_hit(cache, entry) == (model_count(i, SCOUT__SHARD_READABLE) == m.ranks));
	model_assert(e->promises == c->promises);
	model_assert(e->holds == model_holds(i));
	for (uint32_t rank = 0; rank < m.ranks; rank++) {
		model_assert(cache->shard_state[(uint64_t)entry * m.ranks + rank] == c->state[rank]);
		model_assert(word(entry, rank) == scout__index_place(cache, entry, rank).slot_gen);
	}
}

/* Counters, and the whole order: LRU's state begins with the queue. */
static SCOUT_ON_LOOP void
compare_all(void)
{
	const struct scout__chunked_queues *queues = cache->order.policy;
	uint32_t at = l1.policy->victim(cache->order.policy);

	model_assert(l1.promised_bytes == model_promised() * cache->chunk_bytes);
	model_assert(l1.evictions == m.evictions);
	model_assert(l1.refusals == m.refusals);
	model_assert(l1.promises_refused == m.limited);
	model_assert(scout__index_used_bytes(cache) == m.n_present * cache->chunk_bytes);
	model_assert(cache->extents.n_slots <= m.capacity);
	for (uint32_t n = 0; n < m.n_order; n++) {
		model_assert(at != SCOUT__NO_ENTRY);
		model_assert(at == m.chunks[m.order[n]].handle.entry);
		at = scout__chunked_queue_next(queues, at);
	}
	model_assert(at == SCOUT__NO_ENTRY);
}

static SCOUT_ON_LOOP void
one_step(void)
{
	uint32_t i = draw(MODEL_KEYS);
	uint32_t rank = draw(m.ranks);
	uint32_t what = draw(16);
	uint32_t entry = model_entry(i);

	if (entry == SCOUT__NO_ENTRY || what < 3)
		step_reserve(i, rank);
	else if (what < 8)
		step_end_write(i, rank, entry);
	else if (what < 9)
		step_promise(i, entry);
	else if (what < 11)
		step_unpromise(i, entry);
	else if (what < 12)
		step_hold(i, rank, entry);
	else if (what < 14)
		step_unhold(i, rank, entry);
	else if (what < 15)
		step_touch(i, entry);
	else if (draw(4) == 0)
		step_drop(i, entry);
	compare_chunk(i);
	compare_all();
}

/* The loop's number is the seed. */
START_LOOP_TEST(index_agrees_with_the_model, 1, 51)
{
	memset(&m, 0, sizeof(m));
	m.seed = (uint32_t)_i;
	m.random = UINT64_C(0x9e3779b97f4a7c15) * (m.seed + 1);
	m.ranks = 1 + draw(MODEL_RANKS);
	m.readers = 1 + draw(4);
	m.capacity = 1 + draw(MODEL_KEYS);
	m.max_promised = draw(m.capacity + 1);
	start(m.ranks, m.readers, m.capacity, 1 + draw(24), m.max_promised);
	ck_assert(wait_grown(cache));
	for (uint32_t i = 0; i < MODEL_KEYS; i++)
		m.chunks[i].handle = (struct scout__handle){0, UINT32_MAX};
	for (m.step = 0; m.step < MODEL_STEPS; m.step++) {
		one_step();
		if (m.step % 64 == 0) {
			for (uint32_t i = 0; i < MODEL_KEYS; i++)
				compare_chunk(i);
			scout__index_check(cache);
		}
	}
	/* The run was worth something. */
	model_assert(m.refusals + m.evictions > 0 || m.capacity >= MODEL_KEYS / 2);
	stop();
}
END_TEST
