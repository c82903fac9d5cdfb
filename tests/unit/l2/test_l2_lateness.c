/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "l2_submit_rig.h"

/* The clocks of operations: what waits, what makes progress, what is late, and when a whole store hangs. */

/* L2 whose adapter wants so many at once. */
static void
open_with(uint32_t reads, uint32_t writes)
{
	script_wants[SCOUT__L2_READS] = reads;
	script_wants[SCOUT__L2_WRITES] = writes;
	open_front("script:///a", NULL);
}

/* As submit(), but the adapter has no thread free for it. */
static void
submit_behind(unsigned i, enum scout__l2_what what, uint64_t now_us)
{
	submit(i, what, now_us);
	atomic_store(&ops[i].moved_us, 0);
}

static uint64_t
overdue(void)
{
	uint64_t n = 0;

	for (unsigned what = 0; what < 6; what++)
		n += counters()->overdue[what];
	return n;
}

static void
check_switched(enum scout__l2_breaker reads, enum scout__l2_breaker writes)
{
	ck_assert_int_eq(breaker(SCOUT__L2_READS), reads);
	ck_assert_int_eq(breaker(SCOUT__L2_WRITES), writes);
}

static void
end_all(uint64_t now_us)
{
	while (script->n) {
		script_end(script, 0, SCOUT__L2_OK, 0);
		reap(now_us);
	}
}

CHECKED_FIXTURE(NULL, teardown);

START_TEST(what_moves_is_not_late_however_long_it_takes)
{
	uint64_t now_us = 100;

	open_with(2, 1);
	submit(0, SCOUT__L2_LOAD, now_us);
	submit(1, SCOUT__L2_STORE, now_us);
	for (unsigned i = 0; i < 100; i++) {
		now_us += S - 1;
		tick(now_us);
		moves(&ops[0], now_us);
		moves(&ops[1], now_us);
	}
	ck_assert_uint_eq(overdue(), 0);
	/* Its time is over a second after its last move, and not when somebody looked. */
	tick(now_us + S / 2);
	ck_assert_uint_eq(next_us(), now_us + S);
	tick(now_us + S - 1);
	ck_assert_uint_eq(overdue(), 0);
	tick(now_us + S);
	ck_assert_uint_eq(overdue(), 2);
	ck_assert_uint_eq(n_late[0], 1);
	ck_assert_uint_eq(n_late[1], 1);
	tick(now_us + 10 * S);
	ck_assert_uint_eq(n_late[0], 1);
	ck_assert_uint_eq(logged("no progress for 1000 ms"), 1);
}
END_TEST

/* One after the other, each within its time, all together far beyond it. */
START_TEST(waiting_for_a_slow_store_counts_against_nothing)
{
	uint64_t now_us = 100;

	open_with(1, 1);
	for (unsigned i = 0; i < 4; i++) {
		submit_behind(i, SCOUT__L2_LOAD, now_us);
		submit_behind(4 + i, SCOUT__L2_STORE, now_us);
	}
	ck_assert_uint_eq(script->n, 2);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_ptr_eq(script->ops[0], &ops[i]);
		ck_assert_ptr_eq(script->ops[1], &ops[4 + i]);
		for (unsigned step = 0; step < 8; step++) {
			moves(&ops[i], now_us);
			moves(&ops[4 + i], now_us);
			now_us += S / 2;
			tick(now_us);
		}
		script_end(script, 0, SCOUT__L2_OK, 0);
		script_end(script, 0, SCOUT__L2_OK, 0);
		reap(now_us);
	}
	for (unsigned i = 0; i < 8; i++)
		ck_assert_int_eq(ops[i].result, SCOUT__L2_OK);
	ck_assert_uint_eq(n_ended, 8);
	ck_assert_uint_eq(overdue(), 0);
	ck_assert_uint_eq(counters()->late, 0);
	check_switched(SCOUT__L2_CLOSED, SCOUT__L2_CLOSED);
	ck_assert_str_eq(log_text, "test: L2 script:///a: works\n");
}
END_TEST

/* A question is the adapter's at once, whatever waits. */
START_TEST(a_question_waits_for_no_load)
{
	open_with(1, 1);
	for (unsigned i = 0; i < 3; i++) {
		submit(i, SCOUT__L2_LOAD, 100);
		submit(3 + i, SCOUT__L2_STORE, 100);
	}
	submit(6, SCOUT__L2_EXISTS, 100);
	ck_assert_uint_eq(script->n, 3);
	ck_assert_ptr_eq(script->ops[2], &ops[6]);
	end_all(200);
}
END_TEST

/* Writes that all hang: what waits behind them ends at once, and loads go on. */
START_TEST(what_waits_for_hanging_writes_is_refused)
{
	open_with(2, 1);
	submit(0, SCOUT__L2_STORE, 100);
	for (unsigned i = 1; i < 4; i++)
		submit_behind(i, SCOUT__L2_STORE, 100);
	submit(4, SCOUT__L2_LOAD, 100);
	for (uint64_t now_us = 100; now_us < 100 + S; now_us += S / 4) {
		moves(&ops[4], now_us);
		tick(now_us);
	}
	ck_assert_uint_eq(n_ended, 0);
	moves(&ops[4], 100 + S);
	tick(100 + S);
	reap(100 + S);
	ck_assert_uint_eq(n_ended, 3);
	for (unsigned i = 1; i < 4; i++) {
		ck_assert_int_eq(ops[i].result, SCOUT__L2_REFUSED);
		ck_assert_uint_eq(n_late[i], 0);
	}
	ck_assert_uint_eq(n_late[0], 1);
	check_switched(SCOUT__L2_CLOSED, SCOUT__L2_OPEN);
	ck_assert_uint_eq(logged("writes off, next try in "), 1);
	ck_assert_uint_eq(logged(" ms: it hangs: nothing that it has begun makes progress\n"), 1);
	ck_assert_uint_eq(overdue(), 1);
}
END_TEST

/* A write of this store may be silent for three seconds. Its silence does not hide for as long that loads hang. */
START_TEST(a_write_has_the_time_that_its_url_gives)
{
	open_front("script:///a?timeout_ms=3000", NULL);
	submit(0, SCOUT__L2_STORE, 100);
	tick(100 + S);
	submit(1, SCOUT__L2_LOAD, 100 + S);
	submit_behind(2, SCOUT__L2_LOAD, 100 + S);
	tick(100 + 2 * S);
	ck_assert_uint_eq(n_late[0], 0);
	ck_assert_uint_eq(n_late[1] + n_late[2], 2);
	check_switched(SCOUT__L2_OPEN, SCOUT__L2_CLOSED);
	tick(99 + 3 * S);
	ck_assert_uint_eq(n_late[0], 0);
	tick(100 + 3 * S);
	ck_assert_uint_eq(n_late[0], 1);
	end_all(100 + 3 * S);
}
END_TEST

/* Threads that hang in two of four loads never begin the other two; more wait in l2_submit. */
START_TEST(what_is_stuck_behind_hanging_loads_is_given_up_without_a_failure)
{
	scout__enter_loop();
	open_with(4, 1);
	submit(0, SCOUT__L2_LOAD, 100);
	submit(1, SCOUT__L2_LOAD, 100);
	for (unsigned i = 2; i < 7; i++)
		submit_behind(i, SCOUT__L2_LOAD, 100);
	ck_assert_uint_eq(script->n, 4);
	tick(99 + S);
	ck_assert_uint_eq(overdue(), 0);
	tick(100 + S);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_uint_eq(n_late[i], 1);
	for (unsigned i = 2; i < 4; i++)
		ck_assert(!scout__l2_has_begun(&ops[i]));
	reap(100 + S);
	ck_assert_uint_eq(n_ended, 3);
	for (unsigned i = 4; i < 7; i++)
		ck_assert_int_eq(ops[i].result, SCOUT__L2_REFUSED);
	check_switched(SCOUT__L2_OPEN, SCOUT__L2_CLOSED);
	ck_assert_uint_eq(counters()->opened[SCOUT__L2_READS], 1);
	/* Late or not, what comes back is taken, and room is room again. */
	end_all(101 + S);
	ck_assert_uint_eq(n_ended, 7);
	ck_assert_uint_eq(counters()->late, 4);
	ck_assert_uint_eq(scout__l2_store_of(l2, 0)->n_running, 0);
}
END_TEST

/* One thread hangs, others work: what was given just now is begun soon. */
START_TEST(one_that_hangs_says_nothing_about_those_behind_it)
{
	uint64_t now_us = 100;

	open_with(4, 1);
	submit(0, SCOUT__L2_LOAD, now_us);
	now_us += 2 * S;
	tick(now_us);
	ck_assert_uint_eq(overdue(), 1);
	for (unsigned i = 1; i < 20; i++) {
		submit_behind(i, SCOUT__L2_LOAD, now_us);
		now_us += S - 1;
		tick(now_us);
		moves(&ops[i], now_us);
		now_us += S - 1;
		tick(now_us);
		script_end(script, 1, SCOUT__L2_OK, 0);
		reap(now_us);
	}
	ck_assert_uint_eq(overdue(), 1);
	check_switched(SCOUT__L2_CLOSED, SCOUT__L2_CLOSED);
	end_all(now_us);
}
END_TEST

/* The one thread is late with a store: loads that come then do not wait for ever. */
START_TEST(what_comes_behind_what_is_late_is_looked_at)
{
	open_with(2, 1);
	submit(0, SCOUT__L2_STORE, 100);
	tick(100 + S);
	ck_assert_uint_eq(overdue(), 1);
	submit_behind(1, SCOUT__L2_STORE, 101 + S);
	ck_assert_uint_le(next_us(), 101 + S);
	tick(101 + S);
	reap(101 + S);
	ck_assert_int_eq(ops[1].result, SCOUT__L2_REFUSED);
	submit_behind(2, SCOUT__L2_LOAD, 102 + S);
	submit_behind(3, SCOUT__L2_LOAD, 102 + S);
	submit_behind(4, SCOUT__L2_LOAD, 102 + S);
	for (uint64_t now_us = 102 + S; now_us < 102 + 2 * S; now_us += S / 8)
		tick(now_us);
	check_switched(SCOUT__L2_CLOSED, SCOUT__L2_OPEN);
	tick(102 + 2 * S);
	reap(102 + 2 * S);
	ck_assert_uint_eq(n_late[2] + n_late[3], 2);
	ck_assert_int_eq(ops[4].result, SCOUT__L2_REFUSED);
	check_switched(SCOUT__L2_OPEN, SCOUT__L2_OPEN);
	end_all(102 + 2 * S);
}
END_TEST

/* Questions have threads of their own: that the disk hangs is not their fault, nor the other way round. */
START_TEST(questions_and_the_disk_hang_each_by_itself)
{
	open_with(2, 1);
	submit(0, SCOUT__L2_EXISTS, 100);
	submit_behind(1, SCOUT__L2_EXISTS, 100);
	submit(2, SCOUT__L2_STORE, 100);
	for (uint64_t now_us = 100; now_us <= 100 + S; now_us += S / 4) {
		moves(&ops[2], now_us);
		tick(now_us);
	}
	ck_assert_uint_eq(n_late[0] + n_late[1], 2);
	ck_assert_uint_eq(n_late[2], 0);
	check_switched(SCOUT__L2_OPEN, SCOUT__L2_CLOSED);
	end_all(200 + S);
}
END_TEST

START_TEST(a_stop_ends_what_waits)
{
	open_with(1, 1);
	for (unsigned i = 0; i < 3; i++) {
		submit(i, SCOUT__L2_LOAD, 100);
		submit(3 + i, SCOUT__L2_STORE, 100);
	}
	teardown();
	ck_assert_uint_eq(n_ended, 6);
	for (unsigned i = 0; i < 6; i++)
		ck_assert_int_eq(ops[i].result, SCOUT__L2_CANCELLED);
}
END_TEST

/* An adapter that says nothing of what it begins is never late here: it ends operations itself. */
START_TEST(an_adapter_that_never_says_that_it_begins_is_not_judged)
{
	open_with(UINT32_MAX, UINT32_MAX);
	for (unsigned i = 0; i < 4; i++)
		submit_behind(i, SCOUT__L2_LOAD, 100);
	for (uint64_t now_us = 100; now_us < 100 * S; now_us += S)
		tick(now_us);
	ck_assert_uint_eq(overdue(), 0);
	end_all(100 * S);
}
END_TEST
