/* SPDX-License-Identifier: Apache-2.0 */
/* KEYS over two tiers: one question to L2, what it has is a hit, and what it has not said is no miss. */
#include "check_main.h"
#include "groups_rig.h"
#include "l2_memory.h"
#include "server_l2_rig.h"

#define PAGE 16u

static const struct scout__groups groups = {
	2, {{SCOUT_POLICY_ALL, 1, PAGE, 0, 0}, {SCOUT_POLICY_WINDOW, 1, PAGE, 2 * PAGE + 1, 0}}};
static const struct groups_key keys[] = {{0, 0}, {0, 7}, {0, 2}, {1, 1}, {1, 9}};

/* L2 has objects 0 to 3 of both groups, in this order; the pool has nothing. */
static void
up(struct groups_rig *rig, struct l2_rig *l2, uint8_t prefetch)
{
	*l2 = l2_rig_of(64);
	l2->cfg.extent_bytes = 16 * SHARD_BYTES;
	l2->cfg.prefetch = prefetch;
	groups_up_with(rig, &l2->cfg, &groups, PAGE);
	for (uint16_t g = 0; g < 2; g++)
		for (uint32_t i = 0; i < 4; i++) {
			groups_store(&rig->worker, g, i, i + 1);
			wire_wait_status(&rig->worker, "l2.writes.waiting", 0);
		}
	groups_down(rig);
	groups_up_with(rig, &l2->cfg, &groups, PAGE);
}

static struct groups_told
ask(struct groups_rig *rig, uint64_t ticket, uint32_t n)
{
	struct groups_told told;

	ck_assert_msg(groups_keys(&rig->client, ticket, keys, n, &told) == SCOUT_WIRE_OK, "%s", rig->client.text);
	return told;
}

static void
end(struct groups_rig *rig, struct l2_rig *l2, uint64_t ticket)
{
	rig_finish(&rig->client, ticket);
	l2->rig.client = rig->client;
	l2_check_idle(l2);
	groups_down(rig);
}

START_TEST(what_l2_has_is_a_hit_and_is_loaded_for_the_retrieve)
{
	static const uint8_t expected[] = {1, 0, 1, 1, 0};
	const struct scout__retrieve_msg m = {.ticket = 9, .n_parts = 2, .parts = {{0, 2, 3}, {1, 0, 1}}};
	struct groups_told told;
	struct groups_rig rig;
	struct wire_grants g;
	struct l2_rig l2;

	up(&rig, &l2, SCOUT_PREFETCH_ON_RETRIEVE);
	groups_store(&rig.worker, 0, 0, 1); /* one of them is in the pool */
	told = ask(&rig, 9, 5);
	ck_assert_mem_eq(told.what, expected, 5);
	ck_assert_uint_eq(told.l1, 1);
	ck_assert_uint_eq(told.l2, 2);
	ck_assert_uint_eq(l2_memory_asked(l2.m).questions, 1);
	ck_assert_uint_eq(l2_memory_asked(l2.m).chains, 0);
	ck_assert_int_eq(groups_retrieve(&rig.worker, &m, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, 2);
	ck_assert_uint_eq(l2_memory_count(l2.m, SCOUT__L2_LOAD), 2);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 0), SCOUT_WIRE_OK);
	free(g.grants);
	end(&rig, &l2, 9);
}
END_TEST

START_TEST(what_l2_has_not_said_in_time_is_no_miss)
{
	static const uint8_t expected[] = {1, 2, 2, 2, 2};
	struct groups_told told;
	struct groups_rig rig;
	struct l2_rig l2;

	up(&rig, &l2, SCOUT_PREFETCH_ON_RETRIEVE);
	groups_store(&rig.worker, 0, 0, 1);
	wire_wait_status(&rig.client, "l2.writes.waiting", 0);
	l2_memory_pause(l2.m, SCOUT__L2_EXISTS);
	rig.client.budget_us = 1000000;
	told = ask(&rig, 9, 5);
	rig.client.budget_us = 0;
	ck_assert_mem_eq(told.what, expected, 5);
	ck_assert_uint_eq(told.limited, 0);
	l2_memory_resume(l2.m, SCOUT__L2_EXISTS);
	end(&rig, &l2, 9);
}
END_TEST

START_TEST(what_fails_to_load_before_the_answer_is_a_miss)
{
	struct groups_told told;
	struct groups_rig rig;
	struct l2_rig l2;

	up(&rig, &l2, SCOUT_PREFETCH_BEFORE_ANSWER);
	l2_memory_fail(l2.m, SCOUT__L2_LOAD, 1, SCOUT__L2_ERROR);
	told = ask(&rig, 9, 5);
	ck_assert_uint_eq(told.l1 + told.l2, 2);
	ck_assert_uint_eq(told.what[0] + told.what[2] + told.what[3], 2);
	end(&rig, &l2, 9);
}
END_TEST

START_TEST(what_has_not_been_loaded_before_the_answer_is_no_miss)
{
	static const uint8_t expected[] = {2, 0, 2, 2, 0};
	struct groups_told told;
	struct groups_rig rig;
	struct l2_rig l2;

	up(&rig, &l2, SCOUT_PREFETCH_BEFORE_ANSWER);
	l2_memory_pause(l2.m, SCOUT__L2_LOAD);
	rig.client.budget_us = 1000000;
	told = ask(&rig, 9, 5);
	rig.client.budget_us = 0;
	ck_assert_mem_eq(told.what, expected, 5);
	ck_assert_uint_eq(told.l1 + told.l2, 0);
	l2_memory_resume(l2.m, SCOUT__L2_LOAD);
	end(&rig, &l2, 9);
}
END_TEST
