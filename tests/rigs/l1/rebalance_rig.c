/* SPDX-License-Identifier: Apache-2.0 */
#include "rebalance_rig.h"

struct scout__l1 l1;

struct scout__chunk_index *indexes[MAX_BANKS];

struct scout__extent *taken[MAX_TAKEN];

uint32_t n_taken;

SCOUT_STARTS_LOOP void
start_with(const char *policy, uint64_t l1_bytes, uint64_t extent_bytes)
{
	char err[256] = "";

	scout__enter_loop();
	ck_assert_msg(scout__l1_init(&l1, l1_bytes, extent_bytes, l1_bytes, policy, &test_log, err, sizeof(err)) == 0,
		      "%s", err);
}

SCOUT_STARTS_LOOP void
start(uint64_t l1_bytes, uint64_t extent_bytes)
{
	start_with("lru", l1_bytes, extent_bytes);
}

SCOUT_ON_LOOP struct scout__chunk_index *
add_index(uint64_t shard_bytes, uint32_t ranks)
{
	uint64_t bytes[SCOUT_MAX_RANKS];
	struct scout__chunk_index *index;

	for (uint32_t i = 0; i < ranks; i++)
		bytes[i] = shard_bytes;
	ck_assert_int_eq(scout__index_new(&l1, NULL, bytes, NULL, ranks, 1, HASH, &index), 0);
	return index;
}

SCOUT_ON_LOOP void
check_all(void)
{
	uint64_t held = 0;

	for (struct scout__chunk_index *index = l1.indexes; index; index = index->member.next) {
		scout__index_check(index);
		for (uint32_t i = 0; i < index->extents.n; i++)
			held += index->extents.by_slot[i]->slot_bytes;
	}
	for (uint32_t i = 0; i < n_taken; i++)
		held += taken[i]->slot_bytes;
	for (const struct scout__extent *extent = l1.pool.growing; extent; extent = extent->next)
		held += extent->slot_bytes;
	ck_assert_uint_eq(held, l1.pool.used_bytes);
	ck_assert_uint_le(held, l1.pool.l1_bytes);
}

SCOUT_ON_LOOP void
take_grown(void)
{
	while (l1.pool.growing) {
		struct scout__extent *extent = scout__pool_ready(&l1.pool);

		if (extent)
			(void)scout__index_grow(extent->owner, extent);
		else if (l1.pool.growing)
			wait_ready(&l1.pool);
	}
}

SCOUT_ON_LOOP void
free_taken(void)
{
	while (n_taken > 0)
		scout__rebalance_freed(&l1, taken[--n_taken]);
}

SCOUT_ON_LOOP enum scout__rebalance_result
run_steps(uint32_t entries)
{
	enum scout__rebalance_result got = SCOUT__REBALANCE_IDLE;

	for (;;) {
		struct scout__extent *extent = NULL;
		struct scout__chunk_index *index = NULL;
		enum scout__rebalance_result now =
			scout__rebalance_step(&l1, entries, scout__now_us(), &extent, &index);

		if (now == SCOUT__REBALANCE_IDLE)
			return got;
		got = now;
		if (now == SCOUT__REBALANCE_TAKEN) {
			ck_assert_uint_lt(n_taken, MAX_TAKEN);
			taken[n_taken++] = extent;
		}
	}
}

SCOUT_ON_LOOP bool
store(struct scout__chunk_index *index, uint32_t i)
{
	uint32_t entry = SCOUT__NO_ENTRY;

	for (uint32_t rank = 0; rank < index->n_ranks; rank++) {
		enum scout__reserve got;

		while ((got = scout__index_reserve(index, 0, key(i), rank, NULL, &entry)) == SCOUT__RESERVE_WAIT) {
			(void)run_steps(SLICE);
			free_taken();
			take_grown();
		}
		if (got == SCOUT__RESERVE_NO_ROOM)
			return false;
		if (got == SCOUT__RESERVE_GRANTED)
			(void)scout__index_commit(index, entry, rank);
	}
	(void)run_steps(SLICE);
	free_taken();
	take_grown();
	return true;
}

SCOUT_ON_LOOP void
fill(struct scout__chunk_index *index, uint32_t first, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		ck_assert(store(index, first + i));
}

SCOUT_ON_LOOP void
fill_by_turns(struct scout__chunk_index *const *of, uint32_t n_of, uint32_t n)
{
	static uint32_t next_key = 100000;

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < n_of; k++)
			fill(of[k], next_key++, 1);
}

SCOUT_STARTS_LOOP struct scout__chunk_index *
full_index(uint32_t chunks, uint32_t extent_chunks)
{
	struct scout__chunk_index *index;

	start(chunks * UINT64_C(64), extent_chunks * UINT64_C(64));
	index = add_index(64, 1);
	fill(index, 0, chunks);
	return index;
}

SCOUT_ON_LOOP uint32_t
count_present(const struct scout__chunk_index *index, uint32_t first, uint32_t n)
{
	uint32_t present = 0;

	for (uint32_t i = 0; i < n; i++)
		present += scout__index_find(index, 0, key(first + i)) != SCOUT__NO_ENTRY;
	return present;
}

SCOUT_ON_LOOP void
stop(void)
{
	check_all();
	free_taken();
	while (l1.indexes)
		scout__index_free(l1.indexes);
	scout__l1_fini(&l1);
}
