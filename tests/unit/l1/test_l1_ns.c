/* SPDX-License-Identifier: Apache-2.0 */
#include "l1_rig.h"

#include "check_main.h"
#include "rebalance_rig.h"

/*
 * The chunk indexes of one namespace, one for each group: together they have one share of the pool, which may be
 * another one than an equal part, and each group has room for the same number of tokens.
 */

static struct scout__l1_ns ns[3];

static SCOUT_ON_LOOP struct scout__chunk_index *
add_to(uint32_t i, uint64_t shard_bytes)
{
	struct scout__chunk_index *index = add_index(shard_bytes, 1);

	scout__index_belongs(index, &ns[i]);
	return index;
}

static SCOUT_STARTS_LOOP void
begin(const char *policy, uint32_t chunks)
{
	start_with(policy, chunks * UINT64_C(64), UINT64_C(64) * 10);
	for (uint32_t i = 0; i < 3; i++)
		scout__l1_ns_init(&ns[i], 1);
}

static SCOUT_ON_LOOP void
end(void)
{
	stop();
	for (uint32_t i = 0; i < 3; i++) {
		ck_assert_uint_eq(ns[i].slot_bytes, 0);
		scout__l1_ns_fini(&ns[i]);
	}
}

CHECKED_FIXTURE(NULL, end);

START_TEST(a_namespace_with_two_groups_has_one_share)
{
	struct scout__chunk_index *a, *b, *c;

	begin("lru", 80);
	a = add_to(0, 64);
	b = add_to(0, 64);
	fill(a, 0, 40);
	fill(b, 1000, 40);
	ck_assert_uint_eq(a->extents.n_slots + b->extents.n_slots, 80);
	c = add_to(1, 64);
	fill_by_turns((struct scout__chunk_index *[]){c, a, b}, 3, 300);
	ck_assert_uint_eq(c->extents.n_slots, 40);
	ck_assert_uint_eq(a->extents.n_slots + b->extents.n_slots, 40);
	ck_assert(a->extents.n_slots > 0 && b->extents.n_slots > 0);
	ck_assert_uint_eq(ns[0].slot_bytes, 40 * 64);
}
END_TEST

START_TEST(a_namespace_gets_what_its_share_says)
{
	struct scout__chunk_index *a, *b, *c;

	begin("lru", 100);
	ns[0].pool_percent = 20;
	a = add_to(0, 64);
	fill(a, 0, 100);
	/* Idle memory of others is used. */
	ck_assert_uint_eq(a->extents.n_slots, 100);
	b = add_to(1, 64);
	c = add_to(2, 64);
	fill_by_turns((struct scout__chunk_index *[]){b, c, a}, 3, 600);
	ck_assert_uint_eq(a->extents.n_slots, 20);
	ck_assert_uint_eq(b->extents.n_slots, 40);
	ck_assert_uint_eq(c->extents.n_slots, 40);
	/* A larger share is there as it is asked for. */
	ns[0].pool_percent = 60;
	for (uint32_t i = 0; i < 600; i++)
		fill(a, 40000 + i, 1);
	ck_assert_uint_eq(a->extents.n_slots, 60);
	ck_assert_uint_eq(b->extents.n_slots + c->extents.n_slots, 40);
}
END_TEST

START_TEST(when_all_have_their_own_they_share_all_of_it_in_proportion)
{
	struct scout__chunk_index *a, *b;

	begin("lru", 90);
	ns[0].pool_percent = 20;
	ns[1].pool_percent = 10;
	a = add_to(0, 64);
	b = add_to(1, 64);
	fill(b, 0, 90);
	fill_by_turns((struct scout__chunk_index *[]){a, b}, 2, 600);
	/* 60 and 30, as 20 to 10. */
	ck_assert_uint_eq(a->extents.n_slots, 60);
	ck_assert_uint_eq(b->extents.n_slots, 30);
}
END_TEST

/* As a server with prealloc that nobody uses. */
static SCOUT_ON_LOOP void
grow_ahead(void)
{
	take_grown();
	for (;;) {
		scout__l1_grow_ahead(&l1);
		if (l1.pool.n_growing == 0)
			return;
		ck_assert_uint_eq(l1.pool.n_growing, 1);
		take_grown();
		check_all();
	}
}

START_TEST(a_pool_that_grows_ahead_has_memory_for_the_same_tokens_in_each_group)
{
	struct scout__chunk_index *small, *large;

	begin("lru", 200);
	small = add_to(0, 64);
	large = add_to(0, 192);
	small->token_bytes = 64;
	large->token_bytes = 192;
	grow_ahead();
	/* The rest is less than a chunk of the large one. */
	ck_assert_uint_lt(l1.pool.l1_bytes - l1.pool.used_bytes, 192);
	/* Extents have 10 slots of the small one, and 3 of the large one. */
	ck_assert_uint_ge(small->extents.n_slots, 40);
	ck_assert_uint_le(small->extents.n_slots, 60);
	ck_assert_uint_ge(large->extents.n_slots, 44);
	ck_assert_uint_le(large->extents.n_slots, 54);
}
END_TEST

START_TEST(a_pool_that_grows_ahead_gives_each_namespace_its_share)
{
	struct scout__chunk_index *a, *b, *c;

	begin("lru", 100);
	ns[0].pool_percent = 20;
	a = add_to(0, 64);
	b = add_to(1, 64);
	grow_ahead();
	ck_assert_uint_eq(a->extents.n_slots, 20);
	ck_assert_uint_eq(b->extents.n_slots, 80);
	/* One that comes later takes its share as it needs it. */
	c = add_to(2, 64);
	fill(c, 0, 40);
	ck_assert_uint_eq(c->extents.n_slots, 40);
	grow_ahead();
	ck_assert_uint_eq(a->extents.n_slots, 20);
	ck_assert_uint_eq(b->extents.n_slots, 40);
}
END_TEST

START_TEST(a_pool_does_not_grow_ahead_for_a_namespace_without_peers)
{
	struct scout__chunk_index *a, *b;

	begin("lru", 100);
	a = add_to(0, 64);
	b = add_to(1, 64);
	b->idle = true;
	grow_ahead();
	/* Its first extent it asked for itself. */
	ck_assert_uint_eq(b->extents.n_slots, 10);
	ck_assert_uint_eq(a->extents.n_slots, 90);
	a->idle = true;
}
END_TEST

START_TEST(equal_groups_have_equal_parts)
{
	struct scout__chunk_index *a, *b;

	begin("lru", 80);
	a = add_to(0, 64);
	fill(a, 0, 80);
	ck_assert_uint_eq(a->extents.n_slots, 80);
	b = add_to(0, 64);
	fill_by_turns((struct scout__chunk_index *[]){b, a}, 2, 300);
	ck_assert_uint_eq(a->extents.n_slots, 40);
	ck_assert_uint_eq(b->extents.n_slots, 40);
}
END_TEST

/* A prompt of one chunk: asked for, stored if it is not there, touched. Returns whether it was. */
static SCOUT_ON_LOOP bool
request(struct scout__chunk_index *index, uint32_t i)
{
	struct scout__touch touch = {.how = SCOUT__ACCESS_READ};
	uint32_t entry = scout__index_find(index, 0, key(i));
	bool hit = entry != SCOUT__NO_ENTRY;

	scout__index_asked(index, 0, 1);
	if (!hit) {
		fill(index, i, 1);
		entry = scout__index_find(index, 0, key(i));
		touch.how = SCOUT__ACCESS_STORED;
	}
	scout__index_touch(index, entry, &touch);
	return hit;
}

/* Two groups whose objects are of 64 and of 192 bytes for the same tokens: there is room for as many of both. */
START_TEST(groups_have_room_for_the_same_tokens)
{
	struct scout__chunk_index *a, *b;

	begin("hdc", 160);
	a = add_to(0, 64);
	fill(a, 0, 160);
	b = add_to(0, 192);
	fill_by_turns((struct scout__chunk_index *[]){b, a}, 2, 1000);
	ck_assert_uint_ge(b->extents.n_slots, 36);
	ck_assert_uint_le(a->extents.n_slots, 52);
}
END_TEST

START_TEST(equal_groups_do_not_take_from_each_other_in_turns)
{
	struct scout__chunk_index *a, *b;
	uint64_t moved;

	begin("hdc", 160);
	a = add_to(0, 64);
	b = add_to(0, 64);
	for (uint32_t i = 0; i < 5000; i++) {
		(void)request(a, i * 7919 % 300);
		(void)request(b, i * 7919 % 300);
	}
	moved = l1.extents_withdrawn;
	for (uint32_t i = 0; i < 20000; i++) {
		(void)request(a, i * 7919 % 300);
		(void)request(b, i * 7919 % 300);
	}
	ck_assert_uint_le(l1.extents_withdrawn - moved, 4);
}
END_TEST
