/* SPDX-License-Identifier: Apache-2.0 */
#include "chunk_index.h"

#include "l1_index_rig.h"

#include "check_main.h"

/* Lookups of runs: whatever an entry guesses of later ones, the answer is that of one key after the other. */

#define N 200u
#define KEYS 400u

static uint8_t hashes[N * HASH];
static uint32_t entries[N];
static uint64_t seed;

static uint32_t
draw(uint32_t below)
{
	seed += UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t)((((seed ^ seed >> 30) * UINT64_C(0xbf58476d1ce4e5b9)) >> 33) % below);
}

static void
set_key(uint32_t at, uint32_t i)
{
	memcpy(hashes + (size_t)at * HASH, key(i), HASH);
}

/* Look up @n keys; the same as one by one. */
static SCOUT_ON_LOOP uint32_t
look_up(uint32_t space, uint32_t n)
{
	uint32_t found = scout__index_find_run(cache, space, hashes, n, entries);

	for (uint32_t i = 0; i < found; i++)
		ck_assert_uint_eq(entries[i], scout__index_find(cache, space, hashes + (size_t)i * HASH));
	if (found < n)
		ck_assert_uint_eq(scout__index_find(cache, space, hashes + (size_t)found * HASH), SCOUT__NO_ENTRY);
	return found;
}

START_TEST(run_that_was_looked_up_is_found_without_the_table)
{
	uint64_t cells;

	start(1, 1, N, N, N);
	for (uint32_t i = 0; i < N; i++)
		(void)store(i * 77 % N);
	for (uint32_t i = 0; i < N; i++)
		set_key(i, i);
	ck_assert_uint_eq(look_up(0, N), N);
	cells = cache->table.mask + 1;
	/* The first ones are asked of the table in any case. */
	for (uint32_t i = SCOUT__AHEAD; i < N; i++)
		for (uint64_t at = 0; at < cells; at++)
			if ((uint32_t)cache->table.cells[at] == entries[i] + 1)
				cache->table.cells[at] |= UINT64_C(0xffffffff) << 32; /* another key's tag */
	ck_assert_uint_eq(scout__index_find_run(cache, 0, hashes, N, entries), N);
	for (uint32_t i = 0; i < N; i++)
		ck_assert_uint_eq(memcmp(cache->entries[entries[i]].hash, hashes + (size_t)i * HASH, HASH), 0);
	/* No check at the end: the table is broken. */
	scout__index_free(cache);
	scout__l1_fini(&l1);
}
END_TEST

START_TEST(runs_with_one_beginning_and_two_ends_are_both_found)
{
	start(1, 1, KEYS, KEYS, KEYS);
	for (uint32_t i = 0; i < KEYS; i++)
		(void)store(i);
	for (uint32_t round = 0; round < 6; round++) {
		for (uint32_t i = 0; i < N; i++)
			set_key(i, i < 90 || round % 2 == 0 ? i : N + i);
		ck_assert_uint_eq(look_up(0, N), N);
	}
	stop();
}
END_TEST

START_TEST(run_ends_where_a_chunk_was_dropped_or_its_entry_has_another_key)
{
	uint32_t entry;

	start(1, 1, N, N, N);
	for (uint32_t i = 0; i < N; i++) {
		(void)store(i);
		set_key(i, i);
	}
	ck_assert_uint_eq(look_up(0, N), N);
	ck_assert_uint_eq(look_up(0, N), N);
	entry = entries[100];
	ck_assert(scout__index_drop(cache, entry));
	ck_assert_uint_eq(look_up(0, N), 100);
	ck_assert_uint_eq(store(5000), entry);
	ck_assert_uint_eq(cache->entries[entry].ahead, 0);
	ck_assert_uint_eq(look_up(0, N), 100);
	/* Stored again, elsewhere: what was noted before is wrong, and what is found is noted anew. */
	ck_assert(scout__index_drop(cache, entries[50]));
	ck_assert_uint_eq(store(100), entries[50]);
	ck_assert(scout__index_drop(cache, entry));
	ck_assert_uint_eq(store(50), entry);
	ck_assert_uint_eq(look_up(0, N), N);
	ck_assert_uint_eq(cache->entries[entries[100 - SCOUT__AHEAD]].ahead, entries[100] + 1);
	/* The same hashes in another space are other keys. */
	ck_assert_uint_eq(look_up(1, N), 0);
	stop();
}
END_TEST

START_LOOP_TEST(run_is_the_same_whatever_is_guessed, 0, 12)
{
	seed = (uint64_t)_i;
	start(1, 1, KEYS / 2, KEYS / 2, KEYS / 2);
	for (uint32_t step = 0; step < 400; step++) {
		uint32_t n = 1 + draw(N);
		uint32_t first = draw(KEYS);
		uint32_t jump = draw(3) ? 0 : draw(20);

		for (uint32_t i = 0; i < n; i++) {
			uint32_t k = jump && draw(jump) == 0 ? draw(KEYS) : (first + i) % KEYS;
			uint32_t entry = find(k);

			if (entry == SCOUT__NO_ENTRY && draw(20))
				entry = store(k);
			if (entry != SCOUT__NO_ENTRY && draw(50) == 0)
				cache->entries[entry].ahead = draw(KEYS / 2 + 1);
			if (entry != SCOUT__NO_ENTRY && draw(400) == 0)
				(void)scout__index_drop(cache, entry);
			set_key(i, k);
		}
		(void)look_up(0, n);
		(void)look_up(0, n);
	}
	stop();
}
END_TEST

/* ---- what is pinned is out of the order, and costs eviction nothing ---- */

START_TEST(eviction_takes_what_is_let_go_in_that_order_while_all_others_are_pinned)
{
	uint32_t kept[KEYS];
	uint32_t entry;

	start(1, 1, KEYS, KEYS, KEYS);
	for (uint32_t i = 0; i < KEYS; i++) {
		kept[i] = store(i);
		ck_assert(scout__index_promise(cache, kept[i]));
	}
	ck_assert_int_eq(reserve(KEYS, 0, &entry), SCOUT__RESERVE_NO_ROOM);
	for (uint32_t i = 0; i < KEYS; i++) {
		uint32_t k = i * 77 % KEYS;

		scout__index_unpromise(cache, kept[k], 1);
		ck_assert_int_eq(reserve(1000 + i, 0, &entry), SCOUT__RESERVE_GRANTED);
		ck_assert_uint_eq(entry, kept[k]);
		ck_assert_uint_eq(find(k), SCOUT__NO_ENTRY);
		(void)scout__index_commit(cache, entry, 0);
		/* In turns: what was just stored is pinned again, or goes next. */
		if (i % 2) {
			ck_assert_int_eq(reserve(2000 + i, 0, &entry), SCOUT__RESERVE_GRANTED);
			ck_assert_uint_eq(entry, kept[k]);
			(void)scout__index_commit(cache, entry, 0);
		}
		ck_assert(scout__index_promise(cache, entry));
		ck_assert_int_eq(reserve(KEYS, 0, &entry), SCOUT__RESERVE_NO_ROOM);
		if (i % 50 == 0)
			scout__index_check(cache);
	}
	for (uint32_t i = 0; i < KEYS; i++)
		scout__index_unpromise(cache, kept[i], 1);
	for (uint32_t i = 0; i < KEYS; i++) {
		ck_assert_int_eq(reserve(3000 + i, 0, &entry), SCOUT__RESERVE_GRANTED);
		ck_assert_uint_eq(entry, kept[i]);
	}
	stop();
}
END_TEST
