/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "client_internal.h"
#include "client_rig.h"

/* Waits for the answers of a step, on a scripted server. */

#define LONG_US 60000000u

static int
ask(unsigned i)
{
	struct scout_query q;
	struct scout_hit hit;
	char id[16];

	snprintf(id, sizeof(id), "r%u", i);
	q = rig_question(id, 4);
	return scout_try_lookup(client, &q, &hit);
}

CHECKED_FIXTURE(rig_up, rig_down);

START_TEST(all_that_a_step_submitted_is_waited_for_once)
{
	uint64_t rings = rig_stats().rings;

	scout_step_begin(client);
	for (unsigned i = 0; i < 64; i++)
		ck_assert_int_eq(ask(i), SCOUT_NOT_YET);
	ck_assert_int_eq(scout_step_wait(client, LONG_US), 0);
	for (unsigned i = 0; i < 64; i++)
		ck_assert_int_eq(ask(i), 0);
	scout_step_end(client);
	ck_assert_uint_le(rig_stats().rings, rings + 1);
	ck_assert_uint_ge(fake_max_ops(fake), 64);
	/* Nothing is left to wait for, not even for a moment. */
	ck_assert_int_eq(scout_step_wait(client, 0), 0);
}
END_TEST

START_TEST(it_works_after_the_end_of_the_step_too)
{
	scout_step_begin(client);
	ck_assert_int_eq(ask(1), SCOUT_NOT_YET);
	scout_step_end(client);
	ck_assert_int_eq(scout_step_wait(client, LONG_US), 0);
	ck_assert_int_eq(ask(1), 0);
}
END_TEST

START_TEST(the_time_ends_it)
{
	uint64_t start;

	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_HOLD, 0);
	scout_step_begin(client);
	ck_assert_int_eq(ask(1), SCOUT_NOT_YET);
	start = scout__now_us();
	ck_assert_int_eq(scout_step_wait(client, 20000), SCOUT_NOT_YET);
	ck_assert_uint_ge(scout__now_us() - start, 20000);
	ck_assert_int_eq(ask(1), SCOUT_NOT_YET);
	ck_assert(fake_wait(fake, SCOUT_OP_LOOKUP, 1)); /* it was sent all the same */
	fake_release(fake);
	ck_assert_int_eq(scout_step_wait(client, LONG_US), 0);
	ck_assert_int_eq(ask(1), 0);
	scout_step_end(client);
}
END_TEST

START_TEST(what_is_finished_ahead_or_of_another_step_is_not_waited_for)
{
	struct scout_query q = rig_question("ahead", 4);

	ck_assert_int_eq(scout_step_wait(NULL, 0), SCOUT_ERR_INVALID);
	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_HOLD, 0);
	scout_step_begin(client);
	for (unsigned i = 1; i <= 3; i++)
		ck_assert_int_eq(ask(i), SCOUT_NOT_YET);
	ck_assert_int_eq(scout_finish(client, "r2"), 0);
	ck_assert_int_eq(scout_finish(client, "r3"), 0);
	ck_assert_int_eq(scout_finish(client, "r1"), 0);
	ck_assert_int_eq(scout_step_wait(client, LONG_US), 0);
	ck_assert_int_eq(ask(4), SCOUT_NOT_YET);
	scout_step_end(client);
	scout_step_begin(client);
	ck_assert_int_eq(scout_lookup_ahead(client, &q), 0);
	ck_assert_int_eq(scout_step_wait(client, LONG_US), 0);
	ck_assert_int_eq(scout_finish(client, "r4"), 0);
	scout_step_end(client);
	fake_release(fake);
}
END_TEST

static int
poll_ahead(void)
{
	struct scout_hit hit;

	return scout_poll_lookup(client, "ahead", 0, &hit);
}

START_TEST(a_lookup_ahead_is_waited_for_in_the_step_that_asks_first)
{
	struct scout_query q = rig_question("ahead", 4), other = rig_question("other", 4);
	struct scout_hit hit;

	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_HOLD, 0);
	ck_assert_int_eq(scout_lookup_ahead(client, &q), 0);
	ck_assert_int_eq(scout_lookup_ahead(client, &other), 0);
	scout_step_begin(client);
	ck_assert_int_eq(scout_step_wait(client, 1000), 0); /* nothing was asked for yet */
	ck_assert_int_eq(poll_ahead(), SCOUT_NOT_YET);
	ck_assert_int_eq(scout_step_wait(client, 1000), SCOUT_NOT_YET);
	scout_step_end(client);
	scout_step_begin(client);
	ck_assert_int_eq(poll_ahead(), SCOUT_NOT_YET);
	ck_assert_int_eq(scout_step_wait(client, LONG_US), 0); /* a step before had its turn to wait */
	ck_assert_int_eq(scout_try_lookup(client, &other, &hit), SCOUT_NOT_YET);
	ck_assert_int_eq(scout_step_wait(client, 1000), SCOUT_NOT_YET);
	ck_assert(fake_wait(fake, SCOUT_OP_LOOKUP, 2)); /* it lets go of what it has */
	fake_release(fake);
	ck_assert_int_eq(scout_step_wait(client, LONG_US), 0);
	ck_assert_int_eq(scout_try_lookup(client, &other, &hit), 0);
	ck_assert_int_eq(scout_step_wait(client, 0), 0);
	scout_step_end(client);
}
END_TEST

START_TEST(a_step_waits_once_for_all_that_was_asked_ahead)
{
	struct scout_hit hit;
	char id[16];

	fake_set_present(fake, 0x07, 0, 0);
	for (unsigned i = 0; i < 64; i++) {
		snprintf(id, sizeof(id), "r%u", i);
		struct scout_query q = rig_question(id, 4);
		ck_assert_int_eq(scout_lookup_ahead(client, &q), 0);
	}
	scout_step_begin(client);
	for (unsigned i = 0; i < 64; i++) {
		snprintf(id, sizeof(id), "r%u", i);
		int rc = scout_poll_lookup(client, id, 0, &hit);
		ck_assert(rc == 0 || rc == SCOUT_NOT_YET);
	}
	ck_assert_int_eq(scout_step_wait(client, LONG_US), 0);
	for (unsigned i = 0; i < 64; i++) {
		snprintf(id, sizeof(id), "r%u", i);
		ck_assert_int_eq(scout_poll_lookup(client, id, 0, &hit), 0);
		ck_assert_uint_eq(hit.chunks, 3);
	}
	scout_step_end(client);
	/* A finished one is in no list, pending or not. */
	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_HOLD, 0);
	struct scout_query q = rig_question("ahead", 4);
	ck_assert_int_eq(scout_lookup_ahead(client, &q), 0);
	scout_step_begin(client);
	ck_assert_int_eq(poll_ahead(), SCOUT_NOT_YET);
	ck_assert_int_eq(scout_finish(client, "ahead"), 0);
	ck_assert_int_eq(scout_step_wait(client, LONG_US), 0);
	scout_step_end(client);
	fake_release(fake);
}
END_TEST

START_TEST(a_step_has_one_budget_for_all_its_lookups)
{
	struct scout_query q = rig_question("r1", 4), other = rig_question("r2", 4);
	struct scout_hit hit;
	uint64_t start;

	rig_reopen("step_wait_us", "20000");
	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_HOLD, 0);
	for (unsigned step = 0; step < 2; step++) {
		scout_step_begin(client);
		ck_assert_uint_eq(client->step_left_us, 20000);
		ck_assert_int_eq(scout_try_lookup(client, &other, &hit), SCOUT_NOT_YET);
		ck_assert_uint_eq(client->step_left_us, 20000); /* which never waits */
		start = scout__now_us();
		ck_assert_int_eq(scout_lookup(client, &q, &hit), SCOUT_NOT_YET);
		ck_assert_uint_ge(scout__now_us() - start, 20000);
		ck_assert_uint_eq(client->step_left_us, 0);
		ck_assert_int_eq(scout_lookup(client, &other, &hit), SCOUT_NOT_YET);
		scout_step_end(client);
	}
	fake_release(fake);
}
END_TEST

START_TEST(within_the_budget_the_first_ask_is_answered)
{
	struct scout_query q = rig_question("r1", 4), other = rig_question("r2", 4);
	struct scout_hit hit;

	client->cfg.step_wait_us = LONG_US; /* more than the option takes */
	fake_set_hit(fake, 3);
	scout_step_begin(client);
	ck_assert_int_eq(scout_lookup(client, &q, &hit), 0);
	ck_assert_uint_eq(hit.chunks, 3);
	ck_assert_uint_gt(client->step_left_us, 0);
	ck_assert_uint_lt(client->step_left_us, LONG_US);
	scout_step_end(client);
	ck_assert_int_eq(scout_lookup(client, &other, &hit), 0);
}
END_TEST

/* ---- the end of a step is a mark: what lies before it travels, whatever is open ---- */

enum {
	ROUNDS = 30
};

/* What comes before the open step: a step without a gap, one whose lookup the server has already, a submit outside of steps. */
enum before {
	STEP,
	STEP_AND_PAUSE,
	NO_STEP
};

START_LOOP_TEST(what_came_before_a_step_does_not_wait_for_its_end, STEP, NO_STEP + 1)
{
	for (unsigned round = 0; round < ROUNDS; round++) {
		unsigned before = 2 * round, inside = 2 * round + 1;
		uint64_t rings = rig_stats().rings;

		if (_i != NO_STEP)
			scout_step_begin(client);
		ck_assert_int_eq(ask(before), SCOUT_NOT_YET);
		if (_i != NO_STEP)
			scout_step_end(client);
		if (_i == STEP_AND_PAUSE)
			ck_assert(fake_wait(fake, SCOUT_OP_LOOKUP, inside));
		scout_step_begin(client);
		ck_assert_int_eq(ask(inside), SCOUT_NOT_YET);
		wait_until(ask(before) == 0)
			;
		ck_assert_uint_eq(fake_count(fake, SCOUT_OP_LOOKUP), inside);
		ck_assert_uint_le(rig_stats().rings, rings + 1);
		scout_step_end(client);
		ck_assert_uint_le(rig_stats().rings, rings + 2);
		wait_until(ask(inside) == 0)
			;
	}
	/* A step without a submit leaves no mark, and rings nobody. */
	uint64_t rings = rig_stats().rings;
	for (unsigned round = 0; round < ROUNDS; round++) {
		scout_step_begin(client);
		ck_assert_int_eq(ask(0), 0);
		scout_step_end(client);
	}
	scout_step_end(client);
	ck_assert_uint_eq(rig_stats().rings, rings);
	/* The client's end is the end of an open step. */
	scout_step_begin(client);
	ck_assert_int_eq(ask(2 * ROUNDS), SCOUT_NOT_YET);
	ck_assert_int_eq(scout_finish(client, "r0"), 0);
	scout_client_free(client);
	client = NULL;
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1));
}
END_TEST

/* Two credits: most of the ended step, and what it finished, waits for answers that come while the next step is open. */
START_TEST(what_waited_for_credit_travels_while_the_next_step_is_open)
{
	fake_set_credits(fake, 2);
	rig_reopen(NULL, NULL);
	scout_step_begin(client);
	for (unsigned i = 0; i < 32; i++)
		ck_assert_int_eq(ask(i), SCOUT_NOT_YET);
	scout_step_end(client);
	scout_step_begin(client);
	ck_assert_int_eq(ask(32), SCOUT_NOT_YET);
	for (unsigned i = 0; i < 32; i++)
		wait_until(ask(i) == 0)
			;
	scout_step_end(client);
	wait_until(ask(32) == 0)
		;
	scout_step_begin(client);
	for (unsigned i = 0; i < 32; i++) {
		char id[16];

		snprintf(id, sizeof(id), "r%u", i);
		ck_assert_int_eq(scout_finish(client, id), 0);
	}
	scout_step_end(client);
	scout_step_begin(client);
	ck_assert_int_eq(scout_finish(client, "r32"), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 32));
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_FINISH), 32);
	scout_step_end(client);
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 33));
}
END_TEST

/* The courier looks at the ring all the time, so it meets the RESET within the step; what the RESET ends goes before it. */
START_TEST(a_reset_does_not_wait_for_the_end_of_a_step)
{
	rig_reopen("spin_us", "1000000");
	ck_assert_int_eq(ask(0), SCOUT_NOT_YET);
	wait_until(ask(0) == 0)
		;
	scout_step_begin(client);
	ck_assert_int_eq(ask(1), SCOUT_NOT_YET);
	ck_assert_int_eq(scout_reset(client, 7), 0);
	ck_assert_int_eq(ask(2), SCOUT_NOT_YET);
	ck_assert(fake_wait(fake, SCOUT_OP_RESET, 1));
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_FINISH), 1);
	ck_assert_uint_lt(fake_last_order(fake, SCOUT_OP_FINISH), fake_last_order(fake, SCOUT_OP_RESET));
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_LOOKUP), 1); /* r1 was over before it travelled */
	scout_step_end(client);
	wait_until(ask(2) == 0)
		;
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_LOOKUP), 2);
}
END_TEST
