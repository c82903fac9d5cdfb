/* SPDX-License-Identifier: Apache-2.0 */
/* Several groups over two tiers: only what a length needs is taken from L2, and what L2 does not have makes it shorter. */
#include "check_main.h"
#include "groups_rig.h"
#include "l2_memory.h"
#include "server_l2_rig.h"

#define PAGE 16u

/* Group 1 has a window of two objects. */
static const struct scout__groups groups = {
	2, {{SCOUT_POLICY_ALL, 1, PAGE, 0, 0}, {SCOUT_POLICY_WINDOW, 1, PAGE, 2 * PAGE + 1, 0}}};

/* Object @i of @group has bytes of its own. */
static uint64_t
bytes_of(uint32_t group, uint32_t i)
{
	return 1000 * group + i + 1;
}

/* Store objects [0, @n) of both groups one by one, group after group; wait until L2 has them. */
static void
store_both(struct groups_rig *rig, uint32_t n)
{
	for (uint32_t at = 0; at < 2 * n; at++) {
		struct wire_grants g;
		uint32_t readable;

		ck_assert_int_eq(groups_store_of(&rig->worker, 0, (uint16_t)(at / n), at % n, at % n + 1, &g),
				 SCOUT_WIRE_OK);
		ck_assert_uint_eq(g.n_granted, 1);
		l2_fill(wire_slot(&rig->worker, &g.grants[0]), bytes_of(at / n, at % n));
		ck_assert_int_eq(wire_store_done(&rig->worker, g.id, 1, 1, &readable), SCOUT_WIRE_OK);
		free(g.grants);
		wire_wait_status(&rig->worker, "l2.writes.waiting", 0);
	}
}

/* A server whose L2 has 10 objects of both groups, and whose pool is empty. */
static void
up_with_objects(struct groups_rig *rig, struct l2_rig *l2, uint8_t prefetch)
{
	*l2 = l2_rig_of(64);
	l2->cfg.extent_bytes = 16 * SHARD_BYTES;
	l2->cfg.prefetch = prefetch;
	groups_up_with(rig, &l2->cfg, &groups, PAGE);
	store_both(rig, 10);
	groups_down(rig);
	groups_up_with(rig, &l2->cfg, &groups, PAGE);
	ck_assert_uint_eq(l2_memory_objects(l2->m), 20);
}

static struct groups_answer
look(struct groups_rig *rig, uint64_t ticket, uint32_t n)
{
	const struct scout__lookup_msg m = {.ticket = ticket, .n = n};
	struct groups_answer answer;

	ck_assert_msg(groups_lookup(&rig->client, &m, &answer) == SCOUT_WIRE_OK, "%s", rig->client.text);
	return answer;
}

/* The session ends, and nothing is left of it. */
static void
end(struct groups_rig *rig, struct l2_rig *l2, uint64_t ticket)
{
	rig_finish(&rig->client, ticket);
	l2->rig.client = rig->client;
	l2_check_idle(l2);
	groups_down(rig);
}

START_TEST(a_length_takes_only_what_it_needs)
{
	const struct scout__retrieve_msg m = {.ticket = 9, .n_parts = 2, .parts = {{0, 0, 10}, {1, 8, 10}}};
	struct groups_answer answer;
	struct groups_rig rig;
	struct wire_grants g;
	struct l2_rig l2;
	uint8_t want[SHARD_BYTES];

	up_with_objects(&rig, &l2, SCOUT_PREFETCH_ON_LOOKUP);
	answer = look(&rig, 9, 12);
	ck_assert_uint_eq(l2_memory_asked(l2.m).chains, 0);
	ck_assert_uint_eq(answer.hit, 10);
	ck_assert_uint_eq(answer.l1, 0);
	ck_assert_uint_eq(answer.l2, 10 + 2);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 12 * SHARD_BYTES);
	ck_assert_int_eq(groups_retrieve(&rig.worker, &m, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, 12);
	for (uint32_t i = 0; i < 12; i++) {
		l2_fill(want, i < 10 ? bytes_of(0, i) : bytes_of(1, i - 2));
		ck_assert_mem_eq(wire_slot(&rig.worker, &g.grants[i]), want, SHARD_BYTES);
	}
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 0), SCOUT_WIRE_OK);
	free(g.grants);
	/* The eight objects of the window that no length of the answer needs stay where they are. */
	ck_assert_uint_eq(l2_memory_count(l2.m, SCOUT__L2_LOAD), 12);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.chunks"), 12);
	end(&rig, &l2, 9);
}
END_TEST

START_TEST(what_l2_does_not_have_makes_the_length_shorter)
{
	struct groups_answer answer;
	struct groups_rig rig;
	struct l2_rig l2;

	up_with_objects(&rig, &l2, SCOUT_PREFETCH_ON_LOOKUP);
	l2_memory_delete(l2.m, 10 + 9); /* the last of the window: 9 needs 7 and 8 */
	answer = look(&rig, 9, 10);
	ck_assert_uint_eq(answer.hit, 9);
	ck_assert_uint_eq(answer.l2, 9 + 2);
	rig_finish(&rig.client, 9);
	l2_memory_delete(l2.m, 4); /* of the run */
	groups_down(&rig);
	groups_up_with(&rig, &l2.cfg, &groups, PAGE);
	ck_assert_uint_eq(look(&rig, 10, 10).hit, 4);
	end(&rig, &l2, 10);
}
END_TEST

/*
 * The store loses an object after it said that it has it. The other loads take a while each: the lookup finds the object
 * gone while it waits for them.
 */
START_LOOP_TEST(what_fails_to_load_before_the_answer_makes_the_length_shorter, 0, 3)
{
	static const struct {
		unsigned object; /* in the order in which they were stored */
		uint32_t hit;
	} cases[] = {
		{10 + 8, 8}, /* of the window: 8 is the longest length that does not need it */
		{5, 5},      /* of the run */
		{9, 9},      /* its last */
	};
	const struct scout__lookup_msg m = {.ticket = 9, .n = 10};
	struct groups_answer answer;
	struct groups_rig rig;
	struct l2_rig l2;
	uint64_t corr;

	up_with_objects(&rig, &l2, SCOUT_PREFETCH_BEFORE_ANSWER);
	l2_memory_pause(l2.m, SCOUT__L2_LOAD);
	l2_memory_slow(l2.m, SCOUT__L2_LOAD, 5);
	corr = wire_add_lookup(&rig.client, &m, 1);
	wire_flush(&rig.client);
	l2_memory_wait(l2.m, SCOUT__L2_LOAD, 1);
	l2_memory_delete(l2.m, cases[_i].object);
	l2_memory_resume(l2.m, SCOUT__L2_LOAD);
	ck_assert_int_eq(groups_lookup_answer(&rig.client, corr, &answer), SCOUT_WIRE_OK);
	ck_assert_uint_eq(answer.hit, cases[_i].hit);
	ck_assert_uint_eq(answer.l1 + answer.l2, cases[_i].hit + 2);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), (cases[_i].hit + 2) * SHARD_BYTES);
	end(&rig, &l2, 9);
}
END_TEST

START_TEST(a_store_that_does_not_answer_leaves_what_the_pool_has)
{
	struct groups_answer answer;
	struct groups_rig rig;
	struct l2_rig l2;

	up_with_objects(&rig, &l2, SCOUT_PREFETCH_ON_LOOKUP);
	groups_store(&rig.worker, 0, 0, 6);
	groups_store(&rig.worker, 1, 3, 5);
	wire_wait_status(&rig.client, "l2.writes.waiting", 0);
	l2_memory_pause(l2.m, SCOUT__L2_EXISTS);
	rig.client.budget_us = 1000000;
	answer = look(&rig, 9, 10);
	rig.client.budget_us = 0;
	ck_assert_uint_eq(answer.hit, 5);
	ck_assert_uint_eq(answer.l1, 5 + 2);
	l2_memory_resume(l2.m, SCOUT__L2_EXISTS);
	end(&rig, &l2, 9);
}
END_TEST
