/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "l2_submit_rig.h"

/* When L2 switches a store off and on, and what deadlines have to do with it. */

/* ---- breakers ---- */

CHECKED_FIXTURE(setup, teardown);

START_TEST(failures_in_a_row_switch_reads_off)
{
	scout__enter_loop();
	for (unsigned i = 1; i < SCOUT__L2_FAILURES; i++)
		ck_assert_int_eq(one(SCOUT__L2_LOAD, i % 2 ? SCOUT__L2_ERROR : SCOUT__L2_TIMEOUT, 5, 0),
				 i % 2 ? SCOUT__L2_ERROR : SCOUT__L2_TIMEOUT);
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_CLOSED);
	/* That EXISTS works, from memory perhaps, says nothing about loads. */
	ck_assert_int_eq(one(SCOUT__L2_EXISTS, SCOUT__L2_OK, 0, 0), SCOUT__L2_OK);
	ck_assert(scout__l2_tries_reads(l2, 0));
	ck_assert_int_eq(one(SCOUT__L2_LOAD, SCOUT__L2_ERROR, 5, 0), SCOUT__L2_ERROR);
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_OPEN);
	ck_assert_int_eq(breaker(SCOUT__L2_WRITES), SCOUT__L2_CLOSED);
	ck_assert(!scout__l2_tries_reads(l2, 0));
	ck_assert_uint_eq(scout__l2_writes_at_us(l2, 0), 0);
	ck_assert_uint_eq(counters()->opened[SCOUT__L2_READS], 1);
	ck_assert_uint_eq(counters()->opened[SCOUT__L2_WRITES], 0);
	ck_assert_uint_eq(logged("L2 script:///a: reads off, next try in "), 1);
	ck_assert_uint_eq(logged(" ms: load: Input/output error\n"), 1);
	script->submits = 0;
	ck_assert_int_eq(one(SCOUT__L2_LOAD, SCOUT__L2_OK, 0, 0), SCOUT__L2_REFUSED);
	ck_assert_int_eq(one(SCOUT__L2_EXISTS, SCOUT__L2_OK, 0, 0), SCOUT__L2_REFUSED);
	ck_assert_uint_eq(script->submits, 0);
	ck_assert_int_eq(one(SCOUT__L2_STORE, SCOUT__L2_OK, 0, 0), SCOUT__L2_OK);
	ck_assert_int_eq(one(SCOUT__L2_REMOVE, SCOUT__L2_OK, 0, 0), SCOUT__L2_OK);
	ck_assert_int_eq(one(SCOUT__L2_UNPIN, SCOUT__L2_OK, 0, 0), SCOUT__L2_OK);
}
END_TEST

START_TEST(answers_that_are_no_failures_keep_it_closed)
{
	static const struct {
		enum scout__l2_what what;
		enum scout__l2_result result;
	} good[] = {
		{SCOUT__L2_LOAD, SCOUT__L2_ABSENT},   {SCOUT__L2_LOAD, SCOUT__L2_CORRUPT},
		{SCOUT__L2_STORE, SCOUT__L2_PRESENT}, {SCOUT__L2_STORE, SCOUT__L2_FULL},
		{SCOUT__L2_REMOVE, SCOUT__L2_OK},
	};

	for (unsigned i = 0; i < 4 * SCOUT__L2_FAILURES; i++) {
		for (size_t j = 0; j < sizeof(good) / sizeof(good[0]); j++)
			ck_assert_int_eq(one(good[j].what, good[j].result, 0, 0), good[j].result);
	}
	/* A limit of the adapter's own, by itself: nothing else begins the count anew. */
	for (unsigned i = 0; i < 4 * SCOUT__L2_FAILURES; i++)
		ck_assert_int_eq(one(SCOUT__L2_STORE, SCOUT__L2_FULL, 0, 0), SCOUT__L2_FULL);
	/* And each begins the count of its kind anew. */
	for (unsigned i = 1; i < 4 * SCOUT__L2_FAILURES; i++)
		one(SCOUT__L2_LOAD, i % SCOUT__L2_FAILURES ? SCOUT__L2_ERROR : SCOUT__L2_ABSENT, 0, 0);
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_CLOSED);
	ck_assert_int_eq(breaker(SCOUT__L2_WRITES), SCOUT__L2_CLOSED);
}
END_TEST

START_TEST(a_store_that_is_full_itself_is_not_written_for_a_while)
{
	for (unsigned i = 0; i < SCOUT__L2_FAILURES; i++)
		ck_assert_int_eq(one(SCOUT__L2_STORE, SCOUT__L2_FULL, 28, 0), SCOUT__L2_FULL);
	ck_assert_int_eq(breaker(SCOUT__L2_WRITES), SCOUT__L2_OPEN);
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_CLOSED);
	ck_assert_uint_eq(logged("L2 script:///a: writes off, next try in "), 1);
	ck_assert_uint_eq(logged(" ms: store: No space left on device\n"), 1);
	ck_assert_int_eq(one(SCOUT__L2_STORE, SCOUT__L2_OK, 0, 0), SCOUT__L2_REFUSED);
	ck_assert_int_eq(one(SCOUT__L2_REMOVE, SCOUT__L2_OK, 0, 0), SCOUT__L2_REFUSED);
	ck_assert_int_eq(one(SCOUT__L2_LOAD, SCOUT__L2_OK, 0, 0), SCOUT__L2_OK);
}
END_TEST

START_TEST(reads_are_tried_by_the_load_that_failed_last)
{
	scout__enter_loop();
	uint64_t now_us = 100;
	uint64_t retry_us;
	struct scout__l2_op *trial;

	open_breaker(SCOUT__L2_LOAD, now_us);
	retry_us = next_us();
	ck_assert_uint_ge(retry_us, now_us + 750000);
	ck_assert_uint_le(retry_us, now_us + 1000000);
	tick(retry_us - 1);
	ck_assert_uint_eq(script->n, 0);
	tick(retry_us);
	ck_assert_uint_eq(script->n, 1);
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_HALF_OPEN);
	trial = script->ops[0];
	ck_assert_int_eq(trial->what, SCOUT__L2_LOAD);
	ck_assert_mem_eq(&trial->key->digest, &keys[0].digest, sizeof(keys[0].digest));
	ck_assert_ptr_ne(trial->key, &keys[0]);
	ck_assert_ptr_ne(trial->data, data);
	ck_assert_uint_eq(trial->bytes, 7);
	memset(trial->data, 1, 7);
	/* One at a time, and nothing else passes meanwhile. */
	tick(retry_us + 1);
	ck_assert_uint_eq(script->n, 1);
	ck_assert(!scout__l2_tries_reads(l2, 0));
	submit(1, SCOUT__L2_EXISTS, retry_us + 1);
	reap(retry_us + 1);
	ck_assert_int_eq(ops[1].result, SCOUT__L2_REFUSED);
	script_end(script, 0, SCOUT__L2_ABSENT, 0);
	reap(retry_us + 2);
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_CLOSED);
	ck_assert_uint_eq(health(retry_us + 2).state, SCOUT__L2_WORKS);
	ck_assert_int_eq(one(SCOUT__L2_LOAD, SCOUT__L2_OK, 0, retry_us + 3), SCOUT__L2_OK);
	/* The trial is no operation of the server's. */
	ck_assert_uint_eq(counters()->submitted[SCOUT__L2_LOAD], SCOUT__L2_FAILURES + 1);
	ck_assert_uint_eq(counters()->results[SCOUT__L2_LOAD][SCOUT__L2_ABSENT], 0);
	ck_assert_uint_eq(scout__l2_store_of(l2, 0)->n_running, 0);
}
END_TEST

START_TEST(reads_are_tried_by_exists_where_that_failed)
{
	uint64_t now_us = 0;

	open_breaker(SCOUT__L2_EXISTS, now_us);
	for (uint64_t wait_us = S; wait_us < 40 * S; wait_us *= 2) {
		uint64_t wait = wait_us < 30 * S ? wait_us : 30 * S;

		ck_assert_uint_ge(next_us(), now_us + wait - wait / 4);
		ck_assert_uint_le(next_us(), now_us + wait);
		now_us = next_us();
		tick(now_us);
		ck_assert_uint_eq(script->n, 1);
		ck_assert_int_eq(script->ops[0]->what, SCOUT__L2_EXISTS);
		ck_assert_uint_eq(script->ops[0]->n, 1);
		ck_assert_mem_eq(&script->ops[0]->digests[0], &digests[0], sizeof(digests[0]));
		script_end(script, 0, SCOUT__L2_ERROR, 111);
		reap(now_us);
		ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_OPEN);
	}
	ck_assert_uint_eq(logged("reads off, next try in "), 1 + now_us / (60 * S));
	ck_assert_uint_eq(counters()->opened[SCOUT__L2_READS], 1);
	/* A trial that the adapter does not take is one that failed. */
	script->is_refusing = true;
	tick(next_us());
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_OPEN);
	script->is_refusing = false;
	tick(next_us());
	script_end(script, 0, SCOUT__L2_OK, 0);
	reap(now_us);
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_CLOSED);
}
END_TEST

START_TEST(questions_that_come_too_late_cost_one_request_at_a_time_and_less_and_less_often)
{
	uint64_t now_us = S;

	for (unsigned i = 0; i < SCOUT__L2_FAILURES; i++) {
		submit(i, SCOUT__L2_EXISTS, now_us);
		ops[i].timeout_us = S / 2;
	}
	tick(now_us += S);
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_OPEN);
	while (script->n)
		script_end(script, 0, SCOUT__L2_OK, 0);
	reap(now_us);
	for (uint64_t wait_us = S; wait_us < 40 * S; wait_us *= 2) {
		uint64_t wait = wait_us < 30 * S ? wait_us : 30 * S;

		/* The trial waits as long as a question, and no longer. */
		ck_assert_uint_ge(next_us(), now_us + wait - wait / 4);
		tick(now_us = next_us());
		ck_assert_uint_eq(script->ops[0]->timeout_us, S / 2);
		script_end(script, 0, SCOUT__L2_OK, 0);
		reap(now_us);
		ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_CLOSED);
		/* One question at a time; loads pass. */
		now_us += 60 * S;
		submit(5, SCOUT__L2_EXISTS, now_us);
		ops[5].timeout_us = S / 2;
		ck_assert_int_eq(one(SCOUT__L2_LOAD, SCOUT__L2_OK, 0, now_us), SCOUT__L2_OK);
		submit(1, SCOUT__L2_EXISTS, now_us);
		reap(now_us);
		ck_assert_int_eq(ops[1].result, SCOUT__L2_REFUSED);
		ck_assert_uint_eq(script->n, 1);
		script_end(script, 0, SCOUT__L2_TIMEOUT, 0);
		reap(now_us);
		ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_OPEN);
	}
	tick(now_us = next_us());
	script_end(script, 0, SCOUT__L2_OK, 0);
	reap(now_us);
	ck_assert_int_eq(one(SCOUT__L2_EXISTS, SCOUT__L2_OK, 0, now_us), SCOUT__L2_OK);
	submit(1, SCOUT__L2_EXISTS, now_us);
	submit(2, SCOUT__L2_EXISTS, now_us);
	ck_assert_uint_eq(script->n, 2);
}
END_TEST

/* With every place taken there is still one for the trial. */
START_TEST(a_trial_needs_no_room)
{
	for (unsigned i = 0; i < MAX_OPS; i++)
		submit(i, SCOUT__L2_STORE, 0);
	for (unsigned i = 0; i < SCOUT__L2_FAILURES; i++) {
		script_end(script, 0, SCOUT__L2_OK, 0);
		reap(0);
		submit(20, SCOUT__L2_LOAD, 0);
		script_end(script, script->n - 1, SCOUT__L2_ERROR, 5);
		reap(0);
		submit(i, SCOUT__L2_STORE, 0);
	}
	ck_assert_uint_eq(script->n, MAX_OPS);
	for (unsigned i = 0; i < MAX_OPS; i++)
		script->ops[i]->timeout_us = 0;
	tick(S);
	ck_assert_uint_eq(script->n, MAX_OPS + 1);
	while (script->n)
		script_end(script, 0, SCOUT__L2_OK, 0);
	reap(S);
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_CLOSED);
}
END_TEST

START_TEST(writes_are_tried_by_the_next_store)
{
	scout__enter_loop();
	uint64_t now_us = 50;

	open_breaker(SCOUT__L2_STORE, now_us);
	/* Nothing to do for a tick: it needs a store. */
	ck_assert_uint_eq(next_us(), UINT64_MAX);
	ck_assert_int_eq(one(SCOUT__L2_STORE, SCOUT__L2_OK, 0, now_us + 749999), SCOUT__L2_REFUSED);
	now_us += S;
	ck_assert_uint_le(scout__l2_writes_at_us(l2, 0), now_us);
	ck_assert_int_eq(one(SCOUT__L2_REMOVE, SCOUT__L2_OK, 0, now_us), SCOUT__L2_REFUSED);
	submit(1, SCOUT__L2_STORE, now_us);
	ck_assert_int_eq(breaker(SCOUT__L2_WRITES), SCOUT__L2_HALF_OPEN);
	ck_assert_uint_gt(scout__l2_writes_at_us(l2, 0), now_us);
	ck_assert_uint_eq(script->n, 1);
	submit(2, SCOUT__L2_STORE, now_us);
	submit(3, SCOUT__L2_REMOVE, now_us);
	ck_assert_uint_eq(script->n, 1);
	script_end(script, 0, SCOUT__L2_ERROR, 30);
	reap(now_us);
	ck_assert_int_eq(ops[1].result, SCOUT__L2_ERROR);
	ck_assert_int_eq(ops[2].result, SCOUT__L2_REFUSED);
	ck_assert_int_eq(ops[3].result, SCOUT__L2_REFUSED);
	ck_assert_int_eq(breaker(SCOUT__L2_WRITES), SCOUT__L2_OPEN);
	ck_assert_uint_gt(scout__l2_writes_at_us(l2, 0), now_us + 3 * S / 2 - 1);
	now_us += 2 * S;
	submit(1, SCOUT__L2_STORE, now_us);
	script_end(script, 0, SCOUT__L2_PRESENT, 0);
	reap(now_us);
	ck_assert_int_eq(breaker(SCOUT__L2_WRITES), SCOUT__L2_CLOSED);
	ck_assert_uint_eq(logged("L2 script:///a: works\n"), 1);
}
END_TEST

/* ---- deadlines ---- */

START_TEST(a_deadline_that_passes_is_a_failure_once)
{
	for (unsigned i = 0; i < 3; i++)
		submit(i, SCOUT__L2_LOAD, 100 + i);
	submit(3, SCOUT__L2_UNPIN, 0);
	ck_assert_uint_eq(next_us(), 100 + S);
	tick(99 + S);
	ck_assert_uint_eq(counters()->overdue[SCOUT__L2_LOAD], 0);
	tick(100 + S);
	ck_assert_uint_eq(counters()->overdue[SCOUT__L2_LOAD], 1);
	ck_assert(ops[0].is_late && !ops[1].is_late);
	ck_assert_uint_eq(next_us(), 101 + S);
	tick(200 + S);
	tick(300 + S);
	ck_assert_uint_eq(counters()->overdue[SCOUT__L2_LOAD], 3);
	ck_assert_uint_eq(next_us(), UINT64_MAX);
	ck_assert_uint_eq(n_ended, 0);
	ck_assert_uint_eq(logged("failing: load: no progress for 1000 ms"), 1);
	/* They come out when they end, and count no second time; but then the store may say why. */
	(void)snprintf(script->ops[0]->why, sizeof(script->ops[0]->why), "Connection refused");
	script_end(script, 0, SCOUT__L2_ERROR, 5);
	script_end(script, 0, SCOUT__L2_ERROR, 5);
	reap(400 + S);
	ck_assert_str_eq(health(400 + S).words, "Connection refused");
	ck_assert_uint_eq(counters()->late, 2);
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_CLOSED);
	/* Nor does a late success make them undone: two more open it. */
	script_end(script, 0, SCOUT__L2_OK, 0);
	reap(400 + S);
	ck_assert_uint_eq(counters()->late, 3);
	ck_assert_uint_eq(counters()->results[SCOUT__L2_LOAD][SCOUT__L2_OK], 1);
	ck_assert_int_eq(one(SCOUT__L2_LOAD, SCOUT__L2_ERROR, 5, 2 * S), SCOUT__L2_ERROR);
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_CLOSED);
	ck_assert_int_eq(one(SCOUT__L2_LOAD, SCOUT__L2_ERROR, 5, 2 * S), SCOUT__L2_ERROR);
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_OPEN);
}
END_TEST

START_TEST(what_has_ended_in_time_and_waits_is_not_overdue)
{
	submit(0, SCOUT__L2_LOAD, 0);
	script_end(script, 0, SCOUT__L2_OK, 0);
	tick(2 * S);
	ck_assert_uint_eq(counters()->overdue[SCOUT__L2_LOAD], 0);
	reap(2 * S);
	ck_assert_uint_eq(counters()->late, 0);
	tick(2 * S);
	ck_assert_uint_eq(next_us(), UINT64_MAX);
}
END_TEST

START_TEST(a_store_that_hangs_is_switched_off_and_its_late_ends_do_not_switch_it_on)
{
	uint64_t now_us = S + 1;

	for (unsigned i = 0; i < 6; i++)
		submit(i, SCOUT__L2_LOAD, 1);
	tick(now_us);
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_OPEN);
	script_end(script, 0, SCOUT__L2_OK, 0);
	reap(now_us);
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_OPEN);
	/* A trial that hangs too is the only one: its deadline passes, but no second begins. */
	now_us = next_us();
	tick(now_us);
	ck_assert_uint_eq(script->n, 6);
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_HALF_OPEN);
	moves(script->ops[5], now_us);
	now_us += S;
	ck_assert_uint_eq(next_us(), now_us);
	tick(now_us);
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_OPEN);
	ck_assert_uint_eq(next_us(), UINT64_MAX);
	now_us += 60 * S;
	tick(now_us);
	ck_assert_uint_eq(script->n, 6);
	/* It ends, late: that is no proof, but the next may begin. */
	script_end(script, 5, SCOUT__L2_OK, 0);
	reap(now_us);
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_OPEN);
	tick(now_us);
	ck_assert_uint_eq(script->n, 6);
	script_end(script, 5, SCOUT__L2_OK, 0);
	reap(now_us);
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_CLOSED);
	ck_assert_uint_eq(counters()->overdue[SCOUT__L2_LOAD], 6);
	ck_assert_uint_eq(counters()->late, 1);
}
END_TEST

START_TEST(a_write_trial_that_hangs_is_the_only_one)
{
	scout__enter_loop();
	open_breaker(SCOUT__L2_STORE, 0);
	submit(1, SCOUT__L2_STORE, S);
	tick(2 * S);
	ck_assert_int_eq(breaker(SCOUT__L2_WRITES), SCOUT__L2_OPEN);
	submit(2, SCOUT__L2_STORE, 60 * S);
	reap(60 * S);
	ck_assert_int_eq(ops[2].result, SCOUT__L2_REFUSED);
	ck_assert_uint_gt(scout__l2_writes_at_us(l2, 0), 60 * S);
	script_end(script, 0, SCOUT__L2_OK, 0);
	reap(60 * S);
	ck_assert_int_eq(breaker(SCOUT__L2_WRITES), SCOUT__L2_OPEN);
	ck_assert_uint_le(scout__l2_writes_at_us(l2, 0), 60 * S);
	ck_assert_int_eq(one(SCOUT__L2_STORE, SCOUT__L2_OK, 0, 60 * S), SCOUT__L2_OK);
	ck_assert_int_eq(breaker(SCOUT__L2_WRITES), SCOUT__L2_CLOSED);
}
END_TEST
