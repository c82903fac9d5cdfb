/* SPDX-License-Identifier: Apache-2.0 */
#include "l1_index_rig.h"

struct scout__l1 l1;

struct scout__chunk_index *cache;

uint32_t n_ranks;

SCOUT_STARTS_LOOP void
start_slots(uint64_t slot, uint32_t ranks, uint32_t readers, uint32_t chunks, uint32_t extent, uint32_t promised)
{
	uint64_t shard_bytes[SCOUT_MAX_RANKS];
	uint64_t chunk = ranks * slot;
	char err[256] = "";

	scout__enter_loop();
	n_ranks = ranks;
	for (uint32_t rank = 0; rank < ranks; rank++)
		shard_bytes[rank] = slot - rank % 8;
	ck_assert_msg(scout__l1_init(&l1, chunks * chunk, extent * chunk, promised * chunk, "lru", &test_log, err,
				     sizeof(err)) == 0,
		      "%s", err);
	ck_assert_int_eq(scout__index_new(&l1, NULL, shard_bytes, NULL, ranks, readers, HASH, &cache), 0);
}

SCOUT_STARTS_LOOP void
start(uint32_t ranks, uint32_t readers, uint32_t chunks, uint32_t extent, uint32_t promised)
{
	start_slots(SLOT, ranks, readers, chunks, extent, promised);
}

SCOUT_ON_LOOP void
stop(void)
{
	if (!cache)
		return;
	scout__index_check(cache);
	scout__index_free(cache);
	scout__l1_fini(&l1);
	cache = NULL;
}

SCOUT_ON_LOOP enum scout__reserve
reserve(uint32_t i, uint32_t rank, uint32_t *ret_entry)
{
	enum scout__reserve got;

	while ((got = scout__index_reserve(cache, 0, key(i), rank, NULL, ret_entry)) == SCOUT__RESERVE_WAIT)
		ck_assert(wait_grown(cache));
	return got;
}

SCOUT_ON_LOOP uint32_t
store(uint32_t i)
{
	uint32_t entry = SCOUT__NO_ENTRY;

	for (uint32_t rank = 0; rank < n_ranks; rank++) {
		ck_assert_int_eq(reserve(i, rank, &entry), SCOUT__RESERVE_GRANTED);
		ck_assert_int_eq(scout__index_commit(cache, entry, rank), rank + 1 == n_ranks);
	}
	return entry;
}

SCOUT_ON_LOOP uint32_t
find(uint32_t i)
{
	return scout__index_find(cache, 0, key(i));
}

SCOUT_ON_LOOP uint64_t
word(uint32_t entry, uint32_t rank)
{
	struct scout__place place = scout__index_place(cache, entry, rank);

	for (uint32_t i = 0; i < cache->extents.n; i++) {
		const struct scout__segment *segment = &cache->extents.by_slot[i]->segments[rank];

		if (segment->id == place.segment)
			return atomic_load(&segment->words[(place.offset - segment->data_offset) / segment->stride]);
	}
	ck_abort_msg("no segment %u", place.segment);
	return 0;
}
