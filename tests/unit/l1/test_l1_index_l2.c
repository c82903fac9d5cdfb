/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "l1_index_rig.h"
#include "own_use.h"

/*
 * What L2 does with a chunk index: expected shards, loads, temporary chunks, slots that are being saved.
 */

static uint32_t n_let_go;
static bool stays_bare; /* memory comes when a case takes it, or not at all */

/* As the server does: nothing is expected any more. */
static SCOUT_ON_LOOP void
let_go(struct scout__chunk_index *of, uint32_t entry)
{
	for (uint32_t rank = 0; rank < of->n_ranks; rank++)
		if (scout__index_state(of, entry, rank) == SCOUT__SHARD_EXPECTED)
			scout__index_unexpect_shard(of, entry, rank);
	of->entries[entry].tracked = 0;
	n_let_go++;
}

static SCOUT_STARTS_LOOP void
begin(uint32_t ranks, uint32_t chunks, uint32_t promised)
{
	start(ranks, 1, chunks, chunks, promised);
	l1.let_go = let_go;
	n_let_go = 0;
}

static SCOUT_ON_LOOP enum scout__reserve
expect(uint32_t i, bool temporary, uint32_t *ret_entry)
{
	enum scout__reserve got;

	while ((got = scout__index_expect(cache, 0, key(i), temporary, ret_entry)) == SCOUT__RESERVE_WAIT &&
	       !stays_bare)
		ck_assert(wait_grown(cache));
	if (got == SCOUT__RESERVE_GRANTED)
		cache->entries[*ret_entry].tracked = 1;
	/* Most cases are about slots with memory. */
	while (!stays_bare && got == SCOUT__RESERVE_GRANTED && cache->growth.n)
		ck_assert(wait_grown(cache));
	return got;
}

/* Promise chunk @i with all its shards, as a lookup does; no extent is taken from the pool. */
static SCOUT_ON_LOOP uint32_t
promise(uint32_t i)
{
	uint32_t entry = SCOUT__NO_ENTRY;

	ck_assert_int_eq(scout__index_expect(cache, 0, key(i), false, &entry), SCOUT__RESERVE_GRANTED);
	cache->entries[entry].tracked = 1;
	for (uint32_t rank = 0; rank < cache->n_ranks; rank++)
		scout__index_expect_shard(cache, entry, rank);
	return entry;
}

static SCOUT_ON_LOOP void
unpromise(uint32_t entry)
{
	scout__index_unpromise(cache, entry, cache->n_ranks * cache->readers);
}

CHECKED_FIXTURE(NULL, stop);

START_TEST(an_expected_chunk_counts_is_no_hit_and_goes_with_its_promise)
{
	uint32_t entry = SCOUT__NO_ENTRY;

	begin(2, 4, 4);
	ck_assert_int_eq(expect(1, false, &entry), SCOUT__RESERVE_GRANTED);
	ck_assert(!scout__index_counts(cache, entry));
	scout__index_expect_shard(cache, entry, 0);
	ck_assert(!scout__index_counts(cache, entry));
	scout__index_expect_shard(cache, entry, 1);
	ck_assert(scout__index_counts(cache, entry));
	ck_assert(!scout__index_is_hit(cache, entry));
	ck_assert(!scout__index_hold(cache, entry, 0));
	scout__index_check(cache);
	ck_assert_uint_eq(l1.promised_bytes, 2 * SLOT);
	unpromise(entry);
	ck_assert_uint_eq(n_let_go, 1);
	ck_assert_uint_eq(cache->n_entries, 0);
}
END_TEST

START_TEST(an_expected_chunk_needs_room_and_a_promise)
{
	uint32_t a = 0, b = 0, c = 0;

	begin(1, 2, 1);
	ck_assert_int_eq(expect(1, false, &a), SCOUT__RESERVE_GRANTED);
	/* Nothing is evicted for what may not be promised. */
	b = store(2);
	ck_assert_int_eq(expect(3, false, &c), SCOUT__RESERVE_NO_ROOM);
	ck_assert_uint_eq(l1.promises_refused, 1);
	ck_assert(scout__index_is_hit(cache, b));
	unpromise(a);
	stop();
	begin(1, 2, 2);
	ck_assert_int_eq(expect(1, false, &a), SCOUT__RESERVE_GRANTED);
	ck_assert_int_eq(expect(2, false, &b), SCOUT__RESERVE_GRANTED);
	unpromise(a);
	unpromise(b);
}
END_TEST

START_TEST(a_load_holds_its_slot_and_bumps_its_word)
{
	uint32_t entry = 0;
	uint64_t generation;

	begin(1, 4, 4);
	(void)expect(1, false, &entry);
	scout__index_expect_shard(cache, entry, 0);
	generation = scout__index_place(cache, entry, 0).slot_gen;
	ck_assert(scout__index_load(cache, entry, 0));
	ck_assert_uint_ne(scout__index_place(cache, entry, 0).slot_gen, generation);
	ck_assert(scout__index_counts(cache, entry));
	unpromise(entry);
	ck_assert_uint_eq(n_let_go, 0);
	scout__index_check(cache);
	ck_assert(scout__index_commit(cache, entry, 0));
	ck_assert_uint_eq(n_let_go, 1);
	ck_assert(scout__index_is_hit(cache, entry));
}
END_TEST

START_TEST(a_late_load_does_not_count_and_keeps_its_slot)
{
	uint32_t entry = 0, other = 0;

	begin(1, 4, 4);
	(void)expect(1, false, &entry);
	scout__index_expect_shard(cache, entry, 0);
	ck_assert(scout__index_load(cache, entry, 0));
	scout__index_load_late(cache, entry, 0);
	ck_assert(!scout__index_counts(cache, entry));
	ck_assert_int_eq(reserve(1, 0, &other), SCOUT__RESERVE_PRESENT);
	unpromise(entry);
	scout__index_check(cache);
	ck_assert_uint_eq(cache->n_entries, 1);
	scout__index_abort(cache, entry, 0);
	ck_assert_uint_eq(cache->n_entries, 0);
}
END_TEST

START_TEST(a_store_takes_the_place_of_an_expected_shard)
{
	uint32_t entry = 0, other = 0;

	begin(2, 4, 4);
	(void)expect(1, true, &entry);
	scout__index_expect_shard(cache, entry, 0);
	scout__index_expect_shard(cache, entry, 1);
	ck_assert_int_eq(reserve(1, 0, &other), SCOUT__RESERVE_GRANTED);
	ck_assert_uint_eq(other, entry);
	ck_assert(!cache->entries[entry].temporary);
	ck_assert(!scout__index_counts(cache, entry));
	(void)scout__index_commit(cache, entry, 0);
	ck_assert(scout__index_counts(cache, entry));
	ck_assert(!scout__index_is_hit(cache, entry));
	/* Half of it is here: it stays, but nothing is expected of it. */
	unpromise(entry);
	ck_assert_uint_eq(cache->entries[entry].expected, 0);
	ck_assert(cache->entries[entry].in_order);
}
END_TEST

START_TEST(temporary_chunks_go_before_all_others_however_recent)
{
	uint32_t entry = 0;

	begin(1, 3, 3);
	(void)store(1);
	(void)store(2);
	(void)expect(3, true, &entry);
	scout__index_expect_shard(cache, entry, 0);
	ck_assert(scout__index_load(cache, entry, 0));
	(void)scout__index_commit(cache, entry, 0);
	unpromise(entry);
	scout__index_touch(cache, entry, &(struct scout__touch){.how = SCOUT__ACCESS_READ});
	scout__index_check(cache);
	(void)store(4);
	ck_assert_uint_eq(scout__index_find(cache, 0, key(3)), SCOUT__NO_ENTRY);
	ck_assert_uint_ne(scout__index_find(cache, 0, key(1)), SCOUT__NO_ENTRY);
}
END_TEST

START_TEST(what_is_being_saved_keeps_its_place_and_its_slot)
{
	uint32_t a, b, other = 0;

	begin(1, 3, 3);
	a = store(1);
	b = store(2);
	(void)store(3);
	ck_assert(scout__index_save(cache, a));
	ck_assert(!scout__index_drop(cache, a));
	/* It would be the next: now its neighbour is. */
	(void)store(4);
	ck_assert_uint_eq(scout__index_find(cache, 0, key(1)), a);
	ck_assert_uint_eq(scout__index_find(cache, 0, key(2)), SCOUT__NO_ENTRY);
	scout__index_check(cache);
	scout__index_saved(cache, a);
	scout__index_check(cache);
	/* Saved without having been in the way: it is where it was. */
	b = scout__index_find(cache, 0, key(3));
	ck_assert(scout__index_save(cache, b));
	scout__index_saved(cache, b);
	(void)store(5);
	ck_assert_uint_eq(scout__index_find(cache, 0, key(3)), SCOUT__NO_ENTRY);
	/* When all that could go is being saved, a store waits. */
	for (uint32_t i = 0; i < 3; i++)
		ck_assert(scout__index_save(cache, i));
	ck_assert_int_eq(scout__index_reserve(cache, 0, key(6), 0, NULL, &other), SCOUT__RESERVE_WAIT);
	for (uint32_t i = 0; i < 3; i++)
		scout__index_saved(cache, i);
	ck_assert_int_eq(scout__index_reserve(cache, 0, key(6), 0, NULL, &other), SCOUT__RESERVE_GRANTED);
	scout__index_abort(cache, other, 0);
}
END_TEST

START_TEST(what_is_spoiled_while_it_is_saved_goes_when_it_is_saved)
{
	uint32_t a;

	begin(1, 3, 3);
	a = store(1);
	ck_assert(scout__index_save(cache, a));
	ck_assert(scout__index_hold(cache, a, 0));
	scout__index_spoil(cache, a);
	scout__index_unhold(cache, a);
	ck_assert_uint_eq(cache->n_entries, 1);
	scout__index_check(cache);
	scout__index_saved(cache, a);
	ck_assert_uint_eq(cache->n_entries, 0);
}
END_TEST

static struct scout__evict_ops counting; /* lru, and counts what it is told */
static uint32_t n_created, n_gone;

static void
count_insert(void *state, uint32_t entry, enum scout__insert why)
{
	n_created += why == SCOUT__INSERT_CREATED;
	scout__evict_lru.insert(state, entry, why);
}

static void
count_remove(void *state, uint32_t entry, enum scout__remove why)
{
	n_gone += why == SCOUT__REMOVE_GONE;
	scout__evict_lru.remove(state, entry, why);
}

/* A policy that counts what is alive (hdc, s3fifo) drifts for ever otherwise. */
START_TEST(the_policy_hears_of_the_end_of_what_is_spoiled_while_it_is_pinned)
{
	uint32_t a;

	begin(1, 3, 3);
	counting = scout__evict_lru;
	counting.insert = count_insert;
	counting.remove = count_remove;
	l1.policy = &counting;
	a = store(1);
	ck_assert(scout__index_hold(cache, a, 0));
	scout__index_spoil(cache, a);
	scout__index_unhold(cache, a);
	ck_assert_uint_eq(cache->n_entries, 0);
	ck_assert_uint_eq(n_created, 1);
	ck_assert_uint_eq(n_gone, 1);
	scout__index_check(cache);
	/* Never stored: the policy has heard of neither. */
	ck_assert_int_eq(reserve(2, 0, &a), SCOUT__RESERVE_GRANTED);
	scout__index_abort(cache, a, 0);
	ck_assert_uint_eq(n_created, 1);
	ck_assert_uint_eq(n_gone, 1);
	l1.policy = &scout__evict_lru;
}
END_TEST

/* ---- at random ---- */

#define KEYS 12u

static struct {
	bool promised;
	uint32_t entry;
	uint32_t saves;
	uint8_t holder[2]; /* what this test has of each shard: 0, 'l'oad or 'w'rite */
} seen[KEYS];

static SCOUT_ON_LOOP void
step(uint32_t i, uint32_t rank, uint32_t what)
{
	uint32_t entry = scout__index_find(cache, 0, key(i));
	bool live = entry != SCOUT__NO_ENTRY;

	if (what == 0 && !seen[i].promised && expect(i, i % 2, &seen[i].entry) == SCOUT__RESERVE_GRANTED) {
		seen[i].promised = true;
	} else if (what == 1 && seen[i].promised && scout__index_state(cache, entry, rank) == SCOUT__SHARD_ABSENT) {
		if (!cache->entries[entry].spoiled)
			scout__index_expect_shard(cache, entry, rank);
	} else if (what == 2 && live && !cache->entries[entry].bare &&
		   scout__index_state(cache, entry, rank) == SCOUT__SHARD_EXPECTED) {
		ck_assert(scout__index_load(cache, entry, rank));
		seen[i].holder[rank] = 'l';
	} else if (what == 3 && live && scout__index_state(cache, entry, rank) == SCOUT__SHARD_LOADING) {
		scout__index_load_late(cache, entry, rank);
	} else if ((what == 4 || what == 5) && seen[i].holder[rank]) {
		seen[i].holder[rank] = 0;
		if (what == 4)
			(void)scout__index_commit(cache, entry, rank);
		else
			scout__index_abort(cache, entry, rank);
	} else if (what == 6 && seen[i].promised) {
		seen[i].promised = false;
		unpromise(entry);
	} else if (what == 7 && (stays_bare ? scout__index_reserve(cache, 0, key(i), rank, NULL, &entry)
					    : reserve(i, rank, &entry)) == SCOUT__RESERVE_GRANTED) {
		seen[i].holder[rank] = 'w';
	} else if (what == 8 && live && cache->entries[entry].readable && !seen[i].saves) {
		seen[i].saves++;
		ck_assert(scout__index_save(cache, entry));
	} else if (what == 9 && seen[i].saves) {
		seen[i].saves--;
		scout__index_saved(cache, entry);
	} else if (what == 10 && live) {
		scout__index_touch(cache, entry, &(struct scout__touch){.how = SCOUT__ACCESS_READ});
	}
}

static SCOUT_ON_LOOP void
end_all(void)
{
	for (uint32_t i = 0; i < KEYS; i++)
		for (uint32_t rank = 0; rank < 2; rank++)
			for (uint32_t what = 5; what < 10; what += 4)
				step(i, rank, what);
	for (uint32_t i = 0; i < KEYS; i++)
		step(i, 0, 6);
	ck_assert_uint_eq(l1.promised_bytes, 0);
}

START_TEST(everything_holds_whatever_happens)
{
	uint64_t random = 1;

	begin(2, KEYS + 4, 6);
	for (uint32_t n = 0; n < 60000; n++) {
		uint32_t draw;

		random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		draw = (uint32_t)(random >> 33);
		step(draw % KEYS, draw / KEYS % 2, draw / KEYS / 2 % 11);
		if (n % 4 == 0)
			scout__index_check(cache);
	}
	end_all();
	ck_assert_uint_gt(n_let_go, 1000);
}
END_TEST

/* The next extent, which counts as failed unless it @succeeds. */
static SCOUT_ON_LOOP bool
comes(bool succeeds)
{
	struct scout__extent *extent = wait_extent(&l1.pool);

	if (!succeeds)
		extent->error = SCOUT_ERR_NOMEM;
	return scout__index_grow(cache, extent);
}

/* Rounds of a pool of 12 chunks in extents of two that come when they come, or fail, each in the first steps of its life. */
START_TEST(everything_holds_while_the_pool_grows)
{
	uint64_t random = 7;
	uint32_t n_failed = 0, n_came = 0, most_bare = 0;

	stays_bare = true;
	for (uint32_t round = 0; round < 300; round++) {
		start(2, 1, KEYS, 2, KEYS);
		l1.let_go = let_go;
		for (uint32_t n = 0; n < 200; n++) {
			uint32_t draw;

			random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
			draw = (uint32_t)(random >> 33);
			step(draw % KEYS, draw / KEYS % 2, draw / KEYS / 2 % 11);
			if (draw % 11 == 0 && cache->growth.n) {
				bool came = comes(draw / 11 % 3 != 0);

				n_came += came;
				n_failed += !came;
				cache->growth.again_us = cache->growth.again_us ? 1 : 0;
			}
			most_bare = cache->slots.n_bare > most_bare ? cache->slots.n_bare : most_bare;
			scout__index_check(cache);
		}
		end_all();
		ck_assert_uint_eq(cache->slots.n_bare, 0);
		stop();
	}
	ck_assert_uint_gt(n_failed, 100);
	ck_assert_uint_gt(n_came, 300);
	ck_assert_uint_ge(most_bare, KEYS / 2);
}
END_TEST

/* A pool of 16 chunks of two ranks in extents of four, none of which has come, and @n promised chunks. */
static SCOUT_STARTS_LOOP void
begin_bare(uint32_t n, uint32_t promised, uint32_t *entries)
{
	start(2, 1, 16, 4, promised);
	l1.let_go = let_go;
	n_let_go = 0;
	for (uint32_t i = 0; i < n; i++)
		entries[i] = promise(i);
	scout__index_check(cache);
}

START_TEST(room_that_is_not_grown_yet_is_room)
{
	uint32_t entries[16], other = 0;

	begin_bare(16, 16, entries);
	ck_assert_uint_eq(cache->extents.n_slots, 0);
	ck_assert_uint_eq(cache->growth.n, 4);
	ck_assert_uint_eq(l1.promised_bytes, 16 * 2 * SLOT);
	ck_assert_uint_eq(l1.pool.used_bytes, l1.pool.l1_bytes);
	for (uint32_t i = 0; i < 16; i++) {
		ck_assert_uint_eq(find(i), entries[i]);
		ck_assert(scout__index_counts(cache, entries[i]));
		ck_assert(!scout__index_hold(cache, entries[i], 0));
	}
	/* Not more than may be promised, and a store waits for memory. */
	ck_assert_int_eq(scout__index_expect(cache, 0, key(99), false, &other), SCOUT__RESERVE_NO_ROOM);
	ck_assert_int_eq(scout__index_reserve(cache, 0, key(3), 0, NULL, &other), SCOUT__RESERVE_WAIT);
	ck_assert_int_eq(scout__index_reserve(cache, 0, key(99), 0, NULL, &other), SCOUT__RESERVE_WAIT);
	for (uint32_t n = 4; n <= 16; n += 4) {
		ck_assert(wait_grown(cache));
		scout__index_check(cache);
		ck_assert_uint_eq(cache->slots.n_bare, 16 - n);
		ck_assert_uint_eq(cache->slots.n_free, 0);
	}
	for (uint32_t i = 0; i < 16; i++) {
		for (uint32_t rank = 0; rank < 2; rank++) {
			ck_assert(scout__index_load(cache, entries[i], rank));
			ck_assert_uint_eq(word(entries[i], rank), scout__index_place(cache, entries[i], rank).slot_gen);
			(void)scout__index_commit(cache, entries[i], rank);
		}
		ck_assert(scout__index_is_hit(cache, entries[i]));
		unpromise(entries[i]);
	}
}
END_TEST

START_TEST(bare_slot_whose_promise_ends_is_free_when_its_memory_comes)
{
	uint32_t entries[6], other = 0;

	begin_bare(6, 16, entries);
	unpromise(entries[1]);
	unpromise(entries[4]);
	scout__index_check(cache);
	ck_assert_uint_eq(n_let_go, 2);
	ck_assert_uint_eq(cache->slots.n_bare, 4);
	ck_assert_uint_eq(find(1), SCOUT__NO_ENTRY);
	ck_assert(wait_grown(cache));
	ck_assert_uint_eq(cache->slots.n_free, 1);
	scout__index_check(cache);
	ck_assert(wait_grown(cache));
	ck_assert_uint_eq(cache->slots.n_free, 4);
	ck_assert_uint_eq(cache->slots.n_bare, 0);
	scout__index_check(cache);
	/* One is gone before its memory came, and is promised again. */
	(void)store(1);
	ck_assert_int_eq(scout__index_reserve(cache, 0, key(0), 0, NULL, &other), SCOUT__RESERVE_GRANTED);
	(void)scout__index_commit(cache, other, 0);
	for (uint32_t i = 0; i < 6; i++)
		if (i != 1 && i != 4)
			unpromise(entries[i]);
}
END_TEST

START_TEST(memory_that_does_not_come_leaves_nothing_expected)
{
	uint32_t entries[10], other = 0, n = 0;

	/* Slots of 256 KiB, extents of four chunks: the first comes, and the next two fail. */
	start_slots(256 << 10, 2, 1, 16, 4, 16);
	l1.let_go = let_go;
	n_let_go = 0;
	ck_assert(wait_grown(cache));
	limit_file_size(512 << 10);
	for (uint32_t i = 0; i < 10; i++)
		entries[i] = promise(i);
	ck_assert_uint_eq(cache->slots.n_bare, 6);
	while (cache->growth.n)
		ck_assert(!wait_grown(cache));
	scout__index_check(cache);
	ck_assert_uint_eq(n_let_go, 6);
	ck_assert_uint_eq(cache->slots.n_stranded, 6);
	for (uint32_t i = 0; i < 10; i++) {
		ck_assert_uint_eq(scout__index_counts(cache, entries[i]), i < 4);
		ck_assert(!scout__index_hold(cache, entries[i], 0));
	}
	/* Neither can be stored while it is promised; what has memory can be loaded. */
	ck_assert_int_eq(scout__index_reserve(cache, 0, key(5), 0, NULL, &other), SCOUT__RESERVE_NO_ROOM);
	ck_assert(scout__index_load(cache, entries[0], 0));
	scout__index_abort(cache, entries[0], 0);
	/* The memory is there again while five of them are promised: no new slot has a number of theirs. */
	limit_file_size(RLIM_INFINITY);
	unpromise(entries[5]);
	ck_assert_uint_eq(cache->slots.n_stranded, 5);
	cache->growth.again_us = 0;
	for (uint32_t i = 20; i < 26; i++) {
		(void)store(i);
		scout__index_check(cache);
	}
	for (uint32_t i = 4; i < 10; i++) {
		if (i == 5)
			continue;
		ck_assert_uint_eq(find(i), entries[i]);
		unpromise(entries[i]);
		ck_assert_uint_eq(find(i), SCOUT__NO_ENTRY);
	}
	ck_assert_uint_eq(cache->slots.n_bare, 0);
	ck_assert_uint_eq(cache->slots.n_stranded, 0);
	for (uint32_t i = 0; i < 4; i++)
		unpromise(entries[i]);
	/* And then all numbers can be used. */
	for (uint32_t i = 30; cache->extents.n_slots < 16; i++, n++) {
		ck_assert_uint_lt(n, 100);
		(void)store(i);
		scout__index_check(cache);
	}
}
END_TEST
