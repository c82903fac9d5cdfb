/* SPDX-License-Identifier: Apache-2.0 */
#include "chunk_index.h"

#include <stdlib.h>

#include "l1_index_rig.h"

#include "check_main.h"

/* One test for each rule of chunk_index.h. test_l1_index_model.c has the random operations. */

CHECKED_FIXTURE(NULL, stop);

START_TEST(index_chunk_is_a_hit_when_all_ranks_are_readable)
{
	uint32_t entry;
	uint32_t again = 77;

	start(3, 1, 8, 8, 8);
	ck_assert_uint_eq(find(1), SCOUT__NO_ENTRY);
	for (uint32_t rank = 0; rank < 3; rank++) {
		ck_assert_int_eq(reserve(1, rank, &entry), SCOUT__RESERVE_GRANTED);
		ck_assert_uint_eq(find(1), entry);
		ck_assert(!scout__index_is_hit(cache, entry));
	}
	ck_assert(!scout__index_commit(cache, entry, 2));
	ck_assert(!scout__index_commit(cache, entry, 0));
	ck_assert(!scout__index_is_hit(cache, entry));
	ck_assert(!scout__index_hold(cache, entry, 1));
	ck_assert(scout__index_commit(cache, entry, 1));
	ck_assert(scout__index_is_hit(cache, entry));
	ck_assert_uint_eq(scout__index_find(cache, 1, key(1)), SCOUT__NO_ENTRY);
	ck_assert_int_eq(reserve(1, 0, &again), SCOUT__RESERVE_PRESENT);
	ck_assert_uint_eq(again, entry);
}
END_TEST

START_TEST(index_first_writer_wins_until_it_gives_up)
{
	uint32_t entry;
	uint32_t other;

	start(2, 1, 8, 8, 8);
	ck_assert_int_eq(reserve(1, 0, &entry), SCOUT__RESERVE_GRANTED);
	ck_assert_int_eq(reserve(1, 0, &other), SCOUT__RESERVE_PRESENT);
	ck_assert_int_eq(reserve(1, 1, &other), SCOUT__RESERVE_GRANTED);
	ck_assert_uint_eq(other, entry);
	scout__index_abort(cache, entry, 0);
	/* The other writer keeps the entry; the shard that was given up may be written by anybody, in the same slot. */
	ck_assert_uint_eq(find(1), entry);
	ck_assert_int_eq(reserve(1, 0, &other), SCOUT__RESERVE_GRANTED);
	ck_assert_uint_eq(other, entry);
	ck_assert(!scout__index_commit(cache, entry, 0));
	ck_assert(scout__index_commit(cache, entry, 1));
}
END_TEST

START_TEST(index_entry_whose_only_store_was_given_up_goes_at_once)
{
	struct scout__handle handle;
	uint32_t entry;

	start(2, 1, 8, 8, 8);
	ck_assert_int_eq(reserve(1, 0, &entry), SCOUT__RESERVE_GRANTED);
	handle = scout__index_handle(cache, entry);
	ck_assert(scout__index_valid(cache, handle));
	scout__index_abort(cache, entry, 0);
	ck_assert_uint_eq(find(1), SCOUT__NO_ENTRY);
	ck_assert(!scout__index_valid(cache, handle));
	ck_assert_uint_eq(scout__index_used_bytes(cache), 0);
	/* With one readable shard it stays, and may be evicted. */
	ck_assert_int_eq(reserve(1, 0, &entry), SCOUT__RESERVE_GRANTED);
	(void)scout__index_commit(cache, entry, 0);
	ck_assert_int_eq(reserve(1, 1, &entry), SCOUT__RESERVE_GRANTED);
	ck_assert(!scout__index_drop(cache, entry));
	scout__index_abort(cache, entry, 1);
	ck_assert_uint_eq(find(1), entry);
	ck_assert_uint_eq(l1.policy->victim(cache->order.policy), entry);
}
END_TEST

START_TEST(index_quarantine_keeps_the_slot_from_everybody)
{
	uint32_t entry;
	uint32_t other;

	start(1, 1, 1, 1, 1);
	ck_assert_int_eq(reserve(1, 0, &entry), SCOUT__RESERVE_GRANTED);
	scout__index_quarantine(cache, entry, 0);
	ck_assert_int_eq(reserve(1, 0, &other), SCOUT__RESERVE_PRESENT);
	ck_assert_int_eq(reserve(2, 0, &other), SCOUT__RESERVE_NO_ROOM);
	ck_assert(!scout__index_drop(cache, entry));
	ck_assert(!scout__index_hold(cache, entry, 0));
	ck_assert(!scout__index_is_hit(cache, entry));
	scout__index_abort(cache, entry, 0);
	ck_assert_uint_eq(find(1), SCOUT__NO_ENTRY);
	ck_assert_int_eq(reserve(2, 0, &other), SCOUT__RESERVE_GRANTED);
}
END_TEST

START_TEST(index_generation_is_bumped_before_a_grant_and_when_a_shard_is_discarded)
{
	uint32_t entry;
	uint32_t other;
	uint64_t seen;

	start(2, 1, 1, 1, 1);
	ck_assert_int_eq(reserve(1, 0, &entry), SCOUT__RESERVE_GRANTED);
	seen = word(entry, 0);
	ck_assert_uint_ne(seen, 0);
	ck_assert_uint_eq(seen, scout__index_place(cache, entry, 0).slot_gen);
	ck_assert_uint_eq(word(entry, 1), 0);
	(void)scout__index_commit(cache, entry, 0);
	ck_assert_uint_eq(word(entry, 0), seen);
	ck_assert_int_eq(reserve(1, 1, &entry), SCOUT__RESERVE_GRANTED);
	seen = word(entry, 1);
	scout__index_abort(cache, entry, 1);
	ck_assert_uint_ne(word(entry, 1), seen);
	seen = word(entry, 0);
	ck_assert(scout__index_drop(cache, entry));
	ck_assert_uint_ne(word(entry, 0), seen);
	/* Evicted: bumped as the old chunk goes, and again as the new one is granted the slot. */
	other = store(2);
	ck_assert_uint_eq(other, entry);
	seen = word(entry, 0);
	ck_assert_int_eq(reserve(3, 0, &other), SCOUT__RESERVE_GRANTED);
	ck_assert_uint_eq(other, entry);
	ck_assert_uint_ge(word(entry, 0), seen + 2);
}
END_TEST

START_TEST(index_generation_skips_0_when_it_wraps)
{
	uint32_t entry;

	start(1, 1, 1, 1, 1);
	ck_assert(wait_grown(cache));
	cache->slot_gen[0] = UINT32_MAX;
	ck_assert_int_eq(reserve(1, 0, &entry), SCOUT__RESERVE_GRANTED);
	ck_assert_uint_eq(word(entry, 0), 1);
}
END_TEST

START_TEST(index_handle_of_a_dropped_entry_is_not_valid_for_its_successor)
{
	struct scout__handle handle;
	uint32_t entry;

	start(1, 1, 1, 1, 1);
	entry = store(1);
	handle = scout__index_handle(cache, entry);
	ck_assert(scout__index_drop(cache, entry));
	ck_assert(!scout__index_valid(cache, handle));
	ck_assert_uint_eq(store(1), entry);
	ck_assert(!scout__index_valid(cache, handle));
	ck_assert(scout__index_valid(cache, scout__index_handle(cache, entry)));
}
END_TEST

START_TEST(index_promise_counts_bytes_once_and_units_for_each_rank_and_reader)
{
	uint32_t entry;

	start(2, 3, 4, 4, 4);
	entry = store(1);
	ck_assert(scout__index_promise(cache, entry));
	ck_assert_uint_eq(cache->entries[entry].promises, 6);
	ck_assert(scout__index_promise(cache, entry));
	ck_assert_uint_eq(cache->entries[entry].promises, 12);
	ck_assert_uint_eq(l1.promised_bytes, cache->chunk_bytes);
	scout__index_unpromise(cache, entry, 11);
	ck_assert(!scout__index_drop(cache, entry));
	ck_assert_uint_eq(l1.promised_bytes, cache->chunk_bytes);
	scout__index_unpromise(cache, entry, 1);
	ck_assert_uint_eq(l1.promised_bytes, 0);
	scout__index_unpromise(cache, entry, 0);
	ck_assert(scout__index_drop(cache, entry));
}
END_TEST

START_TEST(index_promised_bytes_never_exceed_max_promised)
{
	uint32_t entries[4];

	start(1, 1, 4, 4, 2);
	for (uint32_t i = 0; i < 4; i++)
		entries[i] = store(i);
	ck_assert(scout__index_promise(cache, entries[0]));
	ck_assert(scout__index_promise(cache, entries[1]));
	ck_assert(!scout__index_promise(cache, entries[2]));
	ck_assert_uint_eq(l1.promises_refused, 1);
	ck_assert_uint_eq(l1.promised_bytes, 2 * cache->chunk_bytes);
	/* What is promised already costs nothing more. */
	ck_assert(scout__index_promise(cache, entries[1]));
	scout__index_unpromise(cache, entries[1], 2);
	ck_assert(scout__index_promise(cache, entries[2]));
	/* One byte less than a chunk is not enough. */
	scout__index_unpromise(cache, entries[2], 1);
	l1.max_promised--;
	ck_assert(!scout__index_promise(cache, entries[2]));
	l1.max_promised++;
}
END_TEST

START_TEST(index_promise_units_that_would_overflow_are_refused)
{
	uint32_t entry;

	start(1, 2, 1, 1, 1);
	entry = store(1);
	ck_assert(scout__index_promise(cache, entry));
	cache->entries[entry].promises = UINT32_MAX - 1;
	ck_assert(!scout__index_promise(cache, entry));
	cache->entries[entry].promises = UINT32_MAX - 2;
	ck_assert(scout__index_promise(cache, entry));
	scout__index_unpromise(cache, entry, UINT32_MAX);
	ck_assert_uint_eq(l1.promised_bytes, 0);
}
END_TEST

START_TEST(index_holds_that_would_overflow_are_refused)
{
	uint32_t entry;
	uint32_t other;

	start(2, 1, 1, 1, 1);
	ck_assert_int_eq(reserve(1, 0, &entry), SCOUT__RESERVE_GRANTED);
	(void)scout__index_commit(cache, entry, 0);
	for (uint32_t i = 0; i < UINT16_MAX; i++)
		ck_assert(scout__index_hold(cache, entry, 0));
	ck_assert(!scout__index_hold(cache, entry, 0));
	ck_assert_int_eq(reserve(1, 1, &other), SCOUT__RESERVE_NO_ROOM);
	ck_assert_uint_eq(l1.refusals, 1);
	for (uint32_t i = 0; i < UINT16_MAX; i++) {
		ck_assert(!scout__index_drop(cache, entry));
		scout__index_unhold(cache, entry);
	}
	ck_assert(scout__index_drop(cache, entry));
}
END_TEST

START_TEST(index_pinned_entries_are_never_evicted)
{
	uint32_t entries[3];
	uint32_t entry;

	start(1, 1, 3, 3, 3);
	for (uint32_t i = 0; i < 3; i++)
		entries[i] = store(i);
	ck_assert(scout__index_promise(cache, entries[0]));
	ck_assert(scout__index_hold(cache, entries[1], 0));
	ck_assert_int_eq(reserve(3, 0, &entry), SCOUT__RESERVE_GRANTED);
	ck_assert_uint_eq(entry, entries[2]);
	ck_assert_uint_eq(find(2), SCOUT__NO_ENTRY);
	ck_assert_uint_eq(l1.evictions, 1);
	ck_assert_int_eq(reserve(4, 0, &entry), SCOUT__RESERVE_NO_ROOM);
	ck_assert_uint_eq(l1.refusals, 1);
	ck_assert_uint_eq(find(0), entries[0]);
	ck_assert_uint_eq(find(1), entries[1]);
	scout__index_unhold(cache, entries[1]);
	ck_assert_int_eq(reserve(4, 0, &entry), SCOUT__RESERVE_GRANTED);
	ck_assert_uint_eq(entry, entries[1]);
	ck_assert_uint_eq(find(0), entries[0]);
}
END_TEST

START_TEST(index_touch_tail_first_leaves_the_head_of_a_prefix_for_last)
{
	uint32_t entries[4];
	uint32_t entry;

	start(1, 1, 4, 4, 4);
	for (uint32_t i = 0; i < 4; i++)
		entries[i] = store(i);
	for (uint32_t i = 4; i-- > 0;)
		scout__index_touch(cache, entries[i], &(struct scout__touch){.how = SCOUT__ACCESS_READ});
	for (uint32_t i = 4; i-- > 0;) {
		ck_assert_int_eq(reserve(10 + i, 0, &entry), SCOUT__RESERVE_GRANTED);
		ck_assert_uint_eq(find(i), SCOUT__NO_ENTRY);
		ck_assert_uint_eq(entry, entries[i]);
	}
}
END_TEST

START_TEST(index_touch_of_a_pinned_or_dropped_entry_changes_nothing)
{
	uint32_t first;
	uint32_t second;

	start(1, 1, 4, 4, 4);
	first = store(1);
	second = store(2);
	ck_assert(scout__index_promise(cache, first));
	scout__index_touch(cache, first, &(struct scout__touch){.how = SCOUT__ACCESS_READ});
	ck_assert_uint_eq(l1.policy->victim(cache->order.policy), second);
	ck_assert(scout__index_drop(cache, second));
	scout__index_touch(cache, second, &(struct scout__touch){.how = SCOUT__ACCESS_STORED});
	scout__index_check(cache);
	scout__index_unpromise(cache, first, 1);
}
END_TEST

START_TEST(index_places_never_overlap)
{
	enum {
		CHUNKS = 23
	};
	struct scout__place places[CHUNKS * 2];
	uint32_t n = 0;

	start(2, 1, CHUNKS, 5, CHUNKS);
	for (uint32_t i = 0; i < CHUNKS; i++) {
		uint32_t entry = store(i);

		for (uint32_t rank = 0; rank < 2; rank++)
			places[n++] = scout__index_place(cache, entry, rank);
	}
	for (uint32_t i = 0; i < n; i++) {
		ck_assert_uint_ne(places[i].segment, 0);
		ck_assert_uint_eq(places[i].offset % SLOT, 0);
		for (uint32_t j = 0; j < i; j++)
			ck_assert(places[i].segment != places[j].segment || places[i].offset != places[j].offset);
	}
}
END_TEST

START_TEST(index_keys_are_compared_in_full)
{
	scout__enter_loop();
	for (uint32_t hash_bytes = SCOUT_MIN_HASH; hash_bytes <= SCOUT_MAX_HASH; hash_bytes++) {
		const uint64_t shard_bytes = SLOT;
		/* Exactly as long as a key is, so that a sanitizer sees one byte too many being read. */
		uint8_t *hash = calloc(1, hash_bytes);
		char err[256];
		uint32_t entry;
		uint32_t other;

		ck_assert_ptr_nonnull(hash);
		ck_assert_int_eq(scout__l1_init(&l1, 64 * SLOT, 64 * SLOT, 0, "lru", &test_log, err, sizeof(err)), 0);
		ck_assert_int_eq(scout__index_new(&l1, NULL, &shard_bytes, NULL, 1, 1, hash_bytes, &cache), 0);
		ck_assert(wait_grown(cache));
		ck_assert_int_eq(scout__index_reserve(cache, 5, hash, 0, NULL, &entry), SCOUT__RESERVE_GRANTED);
		ck_assert_uint_eq(scout__index_find(cache, 5, hash), entry);
		ck_assert_uint_eq(scout__index_find_run(cache, 5, hash, 1, &other), 1);
		ck_assert_uint_eq(other, entry);
		/* The cell leads to an entry whose key differs in one bit: as if two keys had the same tag. */
		for (uint32_t bit = 0; bit < hash_bytes * 8; bit++) {
			cache->entries[entry].hash[bit / 8] ^= (uint8_t)(1u << bit % 8);
			ck_assert_uint_eq(scout__index_find(cache, 5, hash), SCOUT__NO_ENTRY);
			ck_assert_uint_eq(scout__index_find_run(cache, 5, hash, 1, &other), 0);
			cache->entries[entry].hash[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
		cache->entries[entry].space ^= 1;
		ck_assert_uint_eq(scout__index_find(cache, 5, hash), SCOUT__NO_ENTRY);
		cache->entries[entry].space ^= 1;
		ck_assert_uint_eq(scout__index_find(cache, 5, hash), entry);
		stop();
		free(hash);
	}
}
END_TEST

START_TEST(index_run_ends_at_the_first_key_that_is_not_there)
{
	enum {
		N = 200
	};
	uint8_t *hashes = malloc((size_t)N * HASH);
	uint32_t found[N];

	ck_assert_ptr_nonnull(hashes);
	start(1, 1, N, N, N);
	for (uint32_t i = 0; i < N; i++) {
		memcpy(hashes + (size_t)i * HASH, key(i), HASH);
		(void)store(i);
	}
	for (uint32_t missing = 0; missing <= N; missing += 7) {
		for (uint32_t n = 0; n <= N; n += 13) {
			uint32_t expected = missing < n ? missing : n;

			if (missing < N)
				(void)scout__index_drop(cache, find(missing));
			memset(found, 0xee, sizeof(found));
			ck_assert_uint_eq(scout__index_find_run(cache, 0, hashes, n, found), expected);
			for (uint32_t i = 0; i < N; i++)
				ck_assert_uint_eq(found[i], i < expected ? find(i) : 0xeeeeeeeeu);
			if (missing < N)
				(void)store(missing);
		}
	}
	scout__index_prefetch(cache, 0, hashes);
	free(hashes);
}
END_TEST
