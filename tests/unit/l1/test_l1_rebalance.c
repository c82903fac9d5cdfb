/* SPDX-License-Identifier: Apache-2.0 */
#include "l1_rig.h"

#include <stdlib.h>

#include "check_main.h"
#include "clock.h"
#include "rebalance_rig.h"
#include "random.h"

/*
 * Extents that move between chunk indexes: who takes from whom, how much, and that nothing is lost, leaked or counted
 * wrongly on the way. The server's part (workers that have to unmap) is played by the test: it frees what was taken,
 * when it likes.
 */

CHECKED_FIXTURE(NULL, stop);

START_TEST(an_index_alone_gets_exactly_the_whole_pool)
{
	struct scout__chunk_index *a;

	/* 100 chunks in extents of 7: the last one is shorter. */
	a = full_index(100, 7);
	ck_assert_uint_eq(a->extents.n_slots, 100);
	ck_assert_uint_eq(count_present(a, 0, 100), 100);
	ck_assert_uint_eq(l1.evictions, 0);
	fill(a, 100, 1);
	ck_assert_uint_eq(l1.evictions, 1);
	ck_assert_uint_eq(l1.extents_withdrawn, 0);
}
END_TEST

START_TEST(an_index_below_its_share_takes_one_extent_for_each_that_it_fills)
{
	struct scout__chunk_index *a, *b;

	a = full_index(80, 10);
	b = add_index(64, 1);
	ck_assert_uint_eq(b->extents.n_slots, 0);
	for (uint32_t i = 0; i < 40; i++) {
		fill(b, 1000 + i, 1);
		/* No more than is needed: one that is filled, and the next when that is nearly full. */
		ck_assert_uint_eq(l1.extents_withdrawn, i < 38 ? (i + 2) / 10 + 1 : 4);
		ck_assert_uint_eq(l1.evictions, 10 * l1.extents_withdrawn);
		ck_assert_uint_eq(a->extents.n_slots + b->extents.n_slots, 80);
		check_all();
	}
	ck_assert_uint_eq(b->extents.n_slots, 40);
	ck_assert_uint_eq(count_present(b, 1000, 40), 40);
	ck_assert_uint_eq(count_present(a, 0, 80), 40);
}
END_TEST

START_TEST(indexes_at_their_share_evict_their_own)
{
	struct scout__chunk_index *a, *b;

	a = full_index(90, 10);
	b = add_index(64, 1);
	/* 4.5 extents each: b gets 4, and neither takes from the other again. */
	fill_by_turns((struct scout__chunk_index *[]){b, a}, 2, 1000);
	ck_assert_uint_eq(l1.extents_withdrawn, 4);
	ck_assert_uint_eq(a->extents.n_slots, 50);
	ck_assert_uint_eq(b->extents.n_slots, 40);
}
END_TEST

START_TEST(the_coldest_extent_goes)
{
	struct scout__chunk_index *a, *b;

	a = full_index(80, 10);
	b = add_index(64, 1);
	/* The first 30 are used again: 30 .. 39 are the oldest now. */
	for (uint32_t i = 0; i < 30; i++)
		scout__index_touch(a, scout__index_find(a, 0, key(i)),
				   &(struct scout__touch){.how = SCOUT__ACCESS_READ});
	fill(b, 1000, 1);
	ck_assert_uint_eq(count_present(a, 0, 30), 30);
	ck_assert_uint_eq(count_present(a, 30, 10), 0);
	ck_assert_uint_eq(count_present(a, 40, 40), 40);
}
END_TEST

START_TEST(an_extent_with_a_pinned_entry_stays)
{
	struct scout__chunk_index *a, *b;
	uint32_t pinned[8];

	a = full_index(80, 10);
	b = add_index(64, 1);
	/* One chunk of every extent but the seventh. */
	for (uint32_t i = 0; i < 8; i++) {
		pinned[i] = scout__index_find(a, 0, key(10 * i + 3));
		if (i != 6)
			ck_assert(scout__index_promise(a, pinned[i]));
	}
	fill(b, 1000, 10);
	ck_assert_uint_eq(count_present(a, 60, 10), 0);
	ck_assert_uint_eq(count_present(a, 0, 60), 60);
	/* Nothing else is to be had, so its own goes, below its share; it does not look again at each store. */
	ck_assert_uint_eq(l1.evictions, 10);
	ck_assert_uint_eq(l1.extents_pinned, 1);
	b->moves.ask_again_us = UINT64_MAX;
	fill(b, 1010, 5);
	ck_assert_uint_eq(l1.evictions, 15);
	ck_assert_uint_eq(l1.extents_pinned, 1);
	ck_assert_uint_eq(b->extents.n_slots, 10);
	check_all();
	for (uint32_t i = 0; i < 8; i++)
		if (i != 6)
			scout__index_unpromise(a, pinned[i], 1);
}
END_TEST

START_TEST(everything_pinned_is_no_room_and_counted)
{
	struct scout__chunk_index *a, *b;
	uint32_t entry;

	a = full_index(8, 1);
	b = add_index(64, 1);
	for (uint32_t i = 0; i < 8; i++)
		ck_assert(scout__index_hold(a, scout__index_find(a, 0, key(i)), 0));
	ck_assert_int_eq(scout__index_reserve(b, 0, key(100), 0, NULL, &entry), SCOUT__RESERVE_WAIT);
	ck_assert_int_eq(run_steps(SLICE), SCOUT__REBALANCE_NOTHING);
	ck_assert_int_eq(scout__index_reserve(b, 0, key(100), 0, NULL, &entry), SCOUT__RESERVE_NO_ROOM);
	ck_assert_uint_eq(l1.refusals, 1);
	ck_assert_uint_eq(l1.extents_pinned, 1);
	ck_assert_uint_eq(l1.evictions, 0);
	/* It looks again after a while, not at every store. */
	ck_assert_uint_gt(b->moves.ask_again_us, 0);
	b->moves.ask_again_us = 0;
	scout__index_unhold(a, scout__index_find(a, 0, key(5)));
	ck_assert(store(b, 100));
	ck_assert_uint_eq(count_present(a, 0, 8), 7);
	for (uint32_t i = 0; i < 8; i++)
		if (i != 5)
			scout__index_unhold(a, scout__index_find(a, 0, key(i)));
}
END_TEST

/* At every possible moment of it. */
START_LOOP_TEST(a_pin_while_an_extent_is_drained_keeps_it, 0, 7)
{
	struct scout__chunk_index *a, *b;
	struct scout__extent *extent = NULL;
	struct scout__chunk_index *index = NULL;
	uint32_t entry, seen, drained = 0;

	a = full_index(16, 8);
	b = add_index(64, 1);
	ck_assert_int_eq(scout__index_reserve(b, 0, key(100), 0, NULL, &entry), SCOUT__RESERVE_WAIT);
	for (seen = 0; seen < 200 && !a->extents.leaving; seen++)
		ck_assert_int_eq(scout__rebalance_step(&l1, 2, seen, &extent, &index), SCOUT__REBALANCE_MORE);
	ck_assert_ptr_nonnull(a->extents.leaving);
	for (int i = 0; i < _i; i++)
		ck_assert_int_eq(scout__rebalance_step(&l1, 2, seen, &extent, &index), SCOUT__REBALANCE_MORE);
	check_all();
	drained = 16 - count_present(a, 0, 16);
	ck_assert_uint_eq(drained, (unsigned)_i);
	ck_assert(scout__index_promise(a, scout__index_find(a, 0, key(7))));
	/* No slot of it is handed out, and none is lost. */
	ck_assert_uint_eq(a->slots.n_free, 0);
	(void)run_steps(2);
	check_all();
	ck_assert_ptr_null(a->extents.leaving);
	ck_assert_uint_eq(n_taken, 0);
	ck_assert_uint_eq(a->extents.n_slots, 16);
	ck_assert_uint_ge(a->slots.n_free, drained);
	scout__index_unpromise(a, scout__index_find(a, 0, key(7)), 1);
	fill(a, 200, 20);
	ck_assert_uint_eq(count_present(a, 200, 20), 16);
}
END_TEST

START_TEST(an_index_that_nobody_uses_loses_first)
{
	struct scout__chunk_index *a, *b, *c;

	start(80 * 64, 10 * 64);
	a = add_index(64, 1);
	b = add_index(64, 1);
	fill(b, 0, 18);
	fill(a, 1000, 58);
	ck_assert_uint_eq(a->extents.n_slots, 60);
	ck_assert_uint_eq(l1.extents_withdrawn, 0);
	b->idle = true;
	c = add_index(64, 1);
	/* a holds far more, but somebody is there to use it. */
	fill(c, 2000, 18);
	ck_assert_uint_eq(count_present(a, 1000, 58), 58);
	ck_assert_uint_eq(b->extents.n_slots, 0);
	ck_assert_uint_eq(c->extents.n_slots, 20);
	/* And the share of those that are used is half the pool, not a third. */
	fill(c, 2018, 22);
	ck_assert_uint_eq(c->extents.n_slots, 40);
	ck_assert_uint_eq(a->extents.n_slots, 40);
}
END_TEST

START_TEST(memory_that_is_not_back_yet_is_not_given_twice)
{
	struct scout__chunk_index *a, *b;
	uint32_t entry;

	a = full_index(80, 10);
	b = add_index(64, 1);
	ck_assert_int_eq(scout__index_reserve(b, 0, key(1000), 0, NULL, &entry), SCOUT__RESERVE_WAIT);
	ck_assert_int_eq(run_steps(SLICE), SCOUT__REBALANCE_TAKEN);
	ck_assert_uint_eq(n_taken, 1);
	ck_assert_uint_eq(l1.pool.used_bytes, l1.pool.l1_bytes);
	/* Its worker does not answer: nothing more is taken from that chunk index, however long it lasts. */
	for (int i = 0; i < 100; i++) {
		struct scout__extent *extent;
		struct scout__chunk_index *index;

		ck_assert_int_eq(scout__index_reserve(b, 0, key(1000), 0, NULL, &entry), SCOUT__RESERVE_WAIT);
		ck_assert_int_eq(
			scout__rebalance_step(&l1, SLICE, scout__now_us() + (uint64_t)i * 1000000, &extent, &index),
			SCOUT__REBALANCE_IDLE);
	}
	ck_assert_uint_eq(a->extents.n_slots, 70);
	/* The giver does not get it back either: it is for the one that waits. */
	fill(a, 500, 30);
	ck_assert_uint_eq(a->extents.n_slots, 70);
	check_all();
	free_taken();
	take_grown();
	ck_assert_uint_eq(b->extents.n_slots, 10);
	ck_assert(store(b, 1000));
}
END_TEST

START_TEST(another_index_is_asked_when_the_first_one_s_memory_is_late)
{
	struct scout__extent *extent = NULL;
	struct scout__chunk_index *a, *b, *c, *index = NULL;
	uint64_t now_us = 1000000;
	uint32_t entry;

	start(80 * 64, 10 * 64);
	a = add_index(64, 1);
	c = add_index(64, 1);
	fill(c, 2000, 28);
	fill(a, 0, 48);
	b = add_index(64, 1);
	ck_assert_int_eq(scout__index_reserve(b, 0, key(1000), 0, NULL, &entry), SCOUT__RESERVE_WAIT);
	while (scout__rebalance_step(&l1, SLICE, now_us, &extent, &index) != SCOUT__REBALANCE_TAKEN)
		;
	ck_assert_ptr_eq(index, a);
	taken[n_taken++] = extent;
	ck_assert_int_eq(scout__rebalance_step(&l1, SLICE, now_us + 999999, &extent, &index), SCOUT__REBALANCE_IDLE);
	now_us += 1000000;
	while (scout__rebalance_step(&l1, SLICE, now_us, &extent, &index) != SCOUT__REBALANCE_TAKEN)
		;
	ck_assert_ptr_eq(index, c);
	scout__rebalance_freed(&l1, extent);
	take_grown();
	ck_assert_uint_eq(b->extents.n_slots, 10);
}
END_TEST

START_TEST(a_large_chunk_gets_several_small_extents)
{
	struct scout__chunk_index *a, *b;

	/* b's only chunk is larger than four extents of a. */
	a = full_index(640, 10);
	b = add_index(45 * 64, 1);
	fill(b, 1000, 1);
	ck_assert_uint_eq(l1.extents_withdrawn, 5);
	ck_assert_uint_eq(a->extents.n_slots, 590);
	ck_assert_uint_eq(b->extents.n_slots, 1);
}
END_TEST

/* ---- anything in any order ---- */

static uint64_t seed;

static uint32_t
draw(uint32_t below)
{
	return (uint32_t)(xorshift(&seed) >> 16) % below;
}

struct pinned {
	uint32_t index;
	struct scout__handle handle;
};

static struct pinned pins[32];
static uint32_t n_pins;

static SCOUT_ON_LOOP void
unpin_one(uint32_t i)
{
	struct scout__chunk_index *index = indexes[pins[i].index];

	ck_assert(scout__index_valid(index, pins[i].handle));
	scout__index_unpromise(index, pins[i].handle.entry, index->n_ranks);
	pins[i] = pins[--n_pins];
}

static SCOUT_ON_LOOP void
replace_index(uint32_t b)
{
	for (uint32_t i = n_pins; i-- > 0;)
		if (pins[i].index == b)
			unpin_one(i);
	scout__index_free(indexes[b]);
	indexes[b] = add_index(64 * (1 + draw(5)), 1 + draw(2));
}

static SCOUT_ON_LOOP void
one_operation(void)
{
	uint32_t b = draw(MAX_BANKS);
	struct scout__chunk_index *index = indexes[b], *which = NULL;
	struct scout__extent *extent = NULL;
	uint32_t entry;

	switch (draw(16)) {
	case 0:
		if (n_taken > 0) {
			uint32_t i = draw(n_taken);

			extent = taken[i];
			taken[i] = taken[--n_taken];
			scout__rebalance_freed(&l1, extent);
		}
		break;
	case 1:
	case 2:
		/* Look before waiting: of two that came together the second is in the ring, and the bell was heard. */
		extent = scout__pool_ready(&l1.pool);
		if (!extent && draw(4) == 0 && l1.pool.growing) {
			wait_ready(&l1.pool);
			extent = scout__pool_ready(&l1.pool);
		}
		if (extent)
			(void)scout__index_grow(extent->owner, extent);
		break;
	case 3:
		if (draw(40) == 0)
			replace_index(b);
		index = indexes[b];
		index->idle = draw(8) == 0;
		break;
	case 4:
		entry = scout__index_find(index, 0, key(draw(300)));
		if (entry != SCOUT__NO_ENTRY && n_pins < 32 && scout__index_promise(index, entry))
			pins[n_pins++] = (struct pinned){b, scout__index_handle(index, entry)};
		break;
	case 5:
		if (n_pins > 0)
			unpin_one(draw(n_pins));
		break;
	case 6:
		entry = scout__index_find(index, 0, key(draw(300)));
		if (entry != SCOUT__NO_ENTRY)
			(void)scout__index_drop(index, entry);
		break;
	case 7:
	case 8:
	case 9:
		if (scout__rebalance_step(&l1, 2 + draw(12), scout__now_us() + draw(2000000), &extent, &which) ==
		    SCOUT__REBALANCE_TAKEN)
			taken[n_taken++] = extent;
		index->moves.ask_again_us = 0;
		break;
	default:
		for (uint32_t i = draw(300), rank = 0; rank < index->n_ranks; rank++)
			if (scout__index_reserve(index, 0, key(i), rank, NULL, &entry) == SCOUT__RESERVE_GRANTED)
				(void)scout__index_commit(index, entry, rank);
		break;
	}
}

START_LOOP_TEST(random_traffic_keeps_every_account, 0, 20)
{
	seed = UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)(_i + 1);
	start(64 * (60 + draw(100)), 64 * (1 + draw(20)));
	for (uint32_t b = 0; b < MAX_BANKS; b++)
		indexes[b] = add_index(64 * (1 + draw(5)), 1 + draw(2));
	for (uint32_t i = 0; i < 20000; i++) {
		one_operation();
		if (i % 16 == 0)
			check_all();
	}
	ck_assert_uint_gt(l1.extents_withdrawn, 10);
	while (n_pins > 0)
		unpin_one(0);
	/* Whatever happened: each chunk index can have its part, and one that is alone can have everything. */
	free_taken();
	for (uint32_t b = 1; b < MAX_BANKS; b++)
		scout__index_free(indexes[b]);
	take_grown();
	indexes[0]->idle = false;
	for (uint32_t i = 0; i < 1000; i++)
		ck_assert(store(indexes[0], 10000 + i));
	ck_assert_uint_eq(indexes[0]->extents.n_slots, indexes[0]->max_entries);
	ck_assert_uint_eq(count_present(indexes[0], 11000 - indexes[0]->max_entries, indexes[0]->max_entries),
			  indexes[0]->max_entries);
}
END_TEST
