/* SPDX-License-Identifier: Apache-2.0 */
#include "l1_rig.h"

#include "check_main.h"
#include "rebalance_rig.h"

/* Objects that nothing needs: they leave first, whatever the policy says, and a use takes them back. */

static const char *const policies[] = {"lru", "hdc", "s3fifo"};

static SCOUT_ON_LOOP uint32_t
entry_of(const struct scout__chunk_index *index, uint32_t i)
{
	return scout__index_find(index, 0, key(i));
}

static SCOUT_ON_LOOP void
unneeded(struct scout__chunk_index *index, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++)
		scout__index_unneeded(index, entry_of(index, i));
	scout__index_check(index);
}

/* An index of 20, full of keys 0 to 19. */
static SCOUT_STARTS_LOOP struct scout__chunk_index *
begin(const char *policy)
{
	struct scout__chunk_index *index;

	start_with(policy, 20 * UINT64_C(64), 20 * UINT64_C(64));
	index = add_index(64, 1);
	fill(index, 0, 20);
	return index;
}

CHECKED_FIXTURE(NULL, stop);

START_LOOP_TEST(unneeded_objects_leave_first_and_in_their_order, 0, 3)
{
	struct scout__chunk_index *index = begin(policies[_i]);

	unneeded(index, 15, 20);
	unneeded(index, 8, 11);
	ck_assert_uint_eq(index->unneeded.n, 8);
	for (uint32_t n = 0; n < 8; n++) {
		fill(index, 100 + n, 1);
		scout__index_check(index);
		ck_assert_uint_eq(entry_of(index, n < 5 ? 15 + n : 3 + n), SCOUT__NO_ENTRY);
	}
	ck_assert_uint_eq(index->unneeded.n, 0);
	ck_assert_uint_eq(l1.evictions, 8);
	ck_assert_uint_eq(l1.evictions_unneeded, 8);
	fill(index, 200, 1);
	ck_assert_uint_eq(l1.evictions_unneeded, 8);
}
END_TEST

START_LOOP_TEST(a_promise_a_hold_and_a_touch_take_it_back, 0, 3)
{
	struct scout__chunk_index *index = begin(policies[_i]);
	struct scout__touch touch = {.how = SCOUT__ACCESS_READ};

	unneeded(index, 0, 20);
	ck_assert(scout__index_promise(index, entry_of(index, 3)));
	scout__index_check(index);
	scout__index_unpromise(index, entry_of(index, 3), 1);
	ck_assert(scout__index_hold(index, entry_of(index, 5), 0));
	scout__index_unhold(index, entry_of(index, 5));
	scout__index_touch(index, entry_of(index, 7), &touch);
	scout__index_check(index);
	ck_assert_uint_eq(index->unneeded.n, 17);
	fill(index, 100, 17);
	for (uint32_t i = 0; i < 20; i++)
		ck_assert_int_eq(entry_of(index, i) != SCOUT__NO_ENTRY, i == 3 || i == 5 || i == 7);
}
END_TEST

START_LOOP_TEST(what_is_promised_is_needed_and_what_is_held_becomes_unneeded, 0, 3)
{
	struct scout__chunk_index *index = begin(policies[_i]);

	ck_assert(scout__index_promise(index, entry_of(index, 3)));
	ck_assert(scout__index_hold(index, entry_of(index, 5), 0));
	unneeded(index, 3, 4);
	unneeded(index, 5, 6);
	ck_assert_uint_eq(index->unneeded.n, 0);
	scout__index_unpromise(index, entry_of(index, 3), 1);
	ck_assert_uint_eq(index->unneeded.n, 0);
	scout__index_unhold(index, entry_of(index, 5));
	ck_assert_uint_eq(index->unneeded.n, 1);
	scout__index_check(index);
	ck_assert(scout__index_drop(index, entry_of(index, 5)));
	ck_assert_uint_eq(index->unneeded.n, 0);
	scout__index_check(index);
}
END_TEST

/* What became unneeded while a worker reads it is needed again as soon as anything else uses it. */
START_LOOP_TEST(what_became_unneeded_under_a_hold_is_taken_back_by_another_use, 0, 3)
{
	struct scout__chunk_index *index = begin(policies[_i]);
	struct scout__touch touch = {.how = SCOUT__ACCESS_READ};

	for (uint32_t i = 0; i < 4; i++)
		ck_assert(scout__index_hold(index, entry_of(index, i), 0));
	unneeded(index, 0, 4);
	ck_assert(scout__index_promise(index, entry_of(index, 0)));
	scout__index_unpromise(index, entry_of(index, 0), 1);
	ck_assert(scout__index_hold(index, entry_of(index, 1), 0));
	scout__index_unhold(index, entry_of(index, 1));
	scout__index_touch(index, entry_of(index, 2), &touch);
	for (uint32_t i = 0; i < 4; i++)
		scout__index_unhold(index, entry_of(index, i));
	scout__index_check(index);
	ck_assert_uint_eq(index->unneeded.n, 1);
	fill(index, 100, 1);
	ck_assert_uint_eq(entry_of(index, 3), SCOUT__NO_ENTRY);
	ck_assert_uint_eq(l1.evictions_unneeded, 1);
}
END_TEST

/* It goes after it was written to L2, and before all others. */
START_LOOP_TEST(what_is_saved_stays_unneeded, 0, 3)
{
	struct scout__chunk_index *index = begin(policies[_i]);
	uint32_t entry = entry_of(index, 9);

	unneeded(index, 9, 10);
	ck_assert(scout__index_save(index, entry));
	fill(index, 100, 1);
	ck_assert_uint_eq(l1.evictions, 1);
	ck_assert_uint_eq(l1.evictions_unneeded, 0);
	ck_assert_uint_eq(entry_of(index, 9), entry);
	scout__index_saved(index, entry);
	ck_assert_uint_eq(index->unneeded.n, 1);
	fill(index, 101, 1);
	ck_assert_uint_eq(entry_of(index, 9), SCOUT__NO_ENTRY);
	ck_assert_uint_eq(l1.evictions_unneeded, 1);
	scout__index_check(index);
}
END_TEST

/* What one of two groups does not need for a whole turn of evictions is the other one's. */
CHECKED_FIXTURE(NULL, NULL);

START_LOOP_TEST(what_stays_unneeded_gives_an_extent_away, 0, 3)
{
	struct scout__chunk_index *a, *b;
	static struct scout__l1_ns ns;

	start_with(policies[_i], 80 * UINT64_C(64), 10 * UINT64_C(64));
	scout__l1_ns_init(&ns, 1);
	a = add_index(64, 1);
	scout__index_belongs(a, &ns);
	b = add_index(64, 1);
	scout__index_belongs(b, &ns);
	for (uint32_t i = 0; i < 300; i++) {
		fill(a, i, 1);
		fill(b, 1000 + i, 1);
	}
	/* In equal parts, in which each loses its own. */
	ck_assert_uint_eq(a->extents.n_slots, 40);
	ck_assert_uint_eq(b->extents.n_slots, 40);
	/* A moment says nothing. */
	for (uint32_t i = 0, left = 20; i < 300 && left > 0; i++)
		if (entry_of(a, i) != SCOUT__NO_ENTRY && left-- > 0)
			unneeded(a, i, i + 1);
	fill(b, 2000, 45);
	ck_assert_uint_eq(b->extents.n_slots, 40);
	for (uint32_t i = 0; i < 90; i++) {
		fill(a, 3000 + i, 1);
		unneeded(a, 3000 + i, 3001 + i);
		fill(b, 4000 + i, 1);
	}
	ck_assert_uint_gt(b->extents.n_slots, 40);
	ck_assert_uint_ge(a->extents.n_slots, 20);
	/* It has nothing unneeded any more, and takes its part back. */
	fill_by_turns((struct scout__chunk_index *[]){a, b}, 2, 300);
	ck_assert_uint_eq(a->extents.n_slots, 40);
	ck_assert_uint_eq(b->extents.n_slots, 40);
	scout__index_check(a);
	scout__index_check(b);
	stop();
	scout__l1_ns_fini(&ns);
}
END_TEST
