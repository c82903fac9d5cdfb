/* SPDX-License-Identifier: Apache-2.0 */
#include "breaker.h"

#include "check_main.h"

static struct scout__l2_switch sw;

static void
setup(void)
{
	scout__l2_switch_init(&sw, 42);
}

static void
fail_until_open(uint8_t what, uint64_t now_us)
{
	for (unsigned i = 1; i < SCOUT__L2_FAILURES; i++) {
		ck_assert(!scout__l2_switch_failed(&sw, what, now_us));
		ck_assert_int_eq(sw.state, SCOUT__L2_CLOSED);
	}
	ck_assert(scout__l2_switch_failed(&sw, what, now_us));
	ck_assert_int_eq(sw.state, SCOUT__L2_OPEN);
}

/* The wait is @wait_us, less up to a quarter. */
static void
check_wait(uint64_t now_us, uint64_t wait_us)
{
	ck_assert_uint_eq(sw.wait_us, wait_us);
	ck_assert_uint_le(sw.retry_us, now_us + wait_us);
	ck_assert_uint_ge(sw.retry_us, now_us + wait_us - wait_us / 4);
	ck_assert(!scout__l2_switch_is_due(&sw, sw.retry_us - 1));
	ck_assert(scout__l2_switch_is_due(&sw, sw.retry_us));
}

CHECKED_FIXTURE(setup, NULL);

START_TEST(failures_of_one_kind_in_a_row_open_it)
{
	ck_assert_int_eq(sw.state, SCOUT__L2_CLOSED);
	ck_assert(!scout__l2_switch_is_due(&sw, UINT64_MAX));
	fail_until_open(SCOUT__L2_LOAD, 1000);
	check_wait(1000, 1000000);
}
END_TEST

START_TEST(a_success_begins_the_count_of_its_kind_anew)
{
	for (unsigned i = 1; i < SCOUT__L2_FAILURES; i++)
		ck_assert(!scout__l2_switch_failed(&sw, SCOUT__L2_LOAD, 1));
	/* Not of another kind. */
	for (unsigned i = 1; i < SCOUT__L2_FAILURES; i++)
		ck_assert(!scout__l2_switch_failed(&sw, SCOUT__L2_EXISTS, 1));
	scout__l2_switch_worked(&sw, SCOUT__L2_LOAD);
	for (unsigned i = 1; i < SCOUT__L2_FAILURES; i++)
		ck_assert(!scout__l2_switch_failed(&sw, SCOUT__L2_LOAD, 1));
	scout__l2_switch_worked(&sw, SCOUT__L2_LOAD);
	ck_assert(scout__l2_switch_failed(&sw, SCOUT__L2_EXISTS, 1));
}
END_TEST

START_TEST(what_fails_or_works_while_open_changes_nothing)
{
	uint64_t retry_us;

	fail_until_open(SCOUT__L2_LOAD, 1000);
	retry_us = sw.retry_us;
	for (unsigned i = 0; i < 100; i++) {
		ck_assert(!scout__l2_switch_failed(&sw, SCOUT__L2_LOAD, 2000));
		scout__l2_switch_worked(&sw, SCOUT__L2_LOAD);
	}
	ck_assert_int_eq(sw.state, SCOUT__L2_OPEN);
	ck_assert_uint_eq(sw.retry_us, retry_us);
	scout__l2_switch_begin(&sw);
	ck_assert(!scout__l2_switch_failed(&sw, SCOUT__L2_LOAD, 2000));
	scout__l2_switch_worked(&sw, SCOUT__L2_LOAD);
	ck_assert_int_eq(sw.state, SCOUT__L2_HALF_OPEN);
	ck_assert(!scout__l2_switch_is_due(&sw, UINT64_MAX));
}
END_TEST

START_TEST(the_wait_doubles_to_half_a_minute_and_ends_with_a_trial_that_works)
{
	static const uint64_t waits_s[] = {1, 2, 4, 8, 16, 30, 30, 30};
	uint64_t now_us = 5;

	fail_until_open(SCOUT__L2_STORE, now_us);
	for (unsigned i = 0; i < sizeof(waits_s) / sizeof(waits_s[0]); i++) {
		check_wait(now_us, waits_s[i] * 1000000);
		now_us = sw.retry_us;
		scout__l2_switch_begin(&sw);
		ck_assert_int_eq(sw.state, SCOUT__L2_HALF_OPEN);
		scout__l2_switch_end(&sw, false, now_us);
		ck_assert_int_eq(sw.state, SCOUT__L2_OPEN);
	}
	scout__l2_switch_begin(&sw);
	scout__l2_switch_end(&sw, true, now_us);
	ck_assert_int_eq(sw.state, SCOUT__L2_CLOSED);
	/* The count begins anew, too. */
	fail_until_open(SCOUT__L2_STORE, now_us);
}
END_TEST

START_TEST(a_store_that_fails_right_after_its_trial_waits_longer)
{
	uint64_t now_us;

	fail_until_open(SCOUT__L2_LOAD, 0);
	now_us = sw.retry_us;
	scout__l2_switch_begin(&sw);
	scout__l2_switch_end(&sw, true, now_us);
	fail_until_open(SCOUT__L2_LOAD, now_us + 999999);
	check_wait(now_us + 999999, 2000000);
	now_us = sw.retry_us;
	scout__l2_switch_begin(&sw);
	scout__l2_switch_end(&sw, true, now_us);
	fail_until_open(SCOUT__L2_LOAD, now_us + 2000000);
	check_wait(now_us + 2000000, 1000000);
}
END_TEST

START_TEST(many_servers_do_not_come_back_at_once)
{
	unsigned early = 0;

	for (uint64_t seed = 0; seed < 1000; seed++) {
		scout__l2_switch_init(&sw, seed << 32 | seed);
		fail_until_open(SCOUT__L2_LOAD, 0);
		early += sw.retry_us < 875000;
	}
	ck_assert_uint_gt(early, 400);
	ck_assert_uint_lt(early, 600);
}
END_TEST
