/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "l2_script.h"

#include "../../libworker/l2/breaker.h"

#define MAX_OPS 8u
#define N 64u
#define S UINT64_C(1000000)

static struct scout__l2 *l2;
static struct script *script = &scripts[0];
static struct scout__l2_op ops[N];
static struct scout__l2_key keys[N];
static struct scout__l2_digest digests[N];
static uint8_t found[N];
static uint8_t data[16];
static unsigned ended[N]; /* times */
static struct scout__l2_op *order[4 * N];
static unsigned n_ended;
static char err[512];

static void
on_done(void *user, struct scout__l2_op *op)
{
	ck_assert_ptr_eq(user, &ended[op - ops]);
	ended[op - ops]++;
	order[n_ended++ % (4 * N)] = op;
}

static void
open_front(const char *a, const char *b)
{
	const char *const urls[] = {a, b};

	scout__enter_loop();
	n_scripts = 0;
	n_ended = 0;
	log_text[0] = '\0';
	ck_assert_int_eq(scout__l2_new(urls, b ? 2 : 1, 1000, MAX_OPS, &test_log, &l2, err, sizeof(err)), 0);
}

static void
setup(void)
{
	open_front("script:///a", NULL);
}

static void
teardown(void)
{
	scout__enter_loop();
	ck_assert(scout__l2_stop(l2, 1000));
	scout__l2_free(l2);
	ck_assert(scripts[0].is_closed);
}

/* Operation @i on adapter 0, due in a second. */
static void
submit(unsigned i, enum scout__l2_what what, uint64_t now_us)
{
	scout__enter_loop();
	keys[i].digest = digests[i] = (struct scout__l2_digest){i + 1, i + 2};
	keys[i].len = 1;
	ended[i] = 0;
	ops[i] = (struct scout__l2_op){
		.what = (uint8_t)what,
		.deadline_us = now_us + S,
		.n = what <= SCOUT__L2_UNPIN ? 1 : 0,
		.digests = &digests[i],
		.found = &found[i],
		.key = &keys[i],
		.data = data,
		.bytes = 7,
		.done = on_done,
		.user = &ended[i],
	};
	scout__l2_submit(l2, 0, &ops[i], now_us);
	ck_assert_uint_eq(ended[i], 0);
}

static void
reap(uint64_t now_us)
{
	scout__enter_loop();
	ck_assert(!scout__l2_reap(l2, 1000, now_us));
}

static bool
is_readable(void)
{
	struct pollfd fd = {.fd = scout__l2_fd(l2), .events = POLLIN};

	return poll(&fd, 1, 0) == 1;
}

/* Submit one and have it end; returns the result that came out. */
static enum scout__l2_result
one(enum scout__l2_what what, enum scout__l2_result result, int detail, uint64_t now_us)
{
	submit(0, what, now_us);
	if (script->n)
		script_end(script, script->n - 1, result, detail);
	reap(now_us);
	ck_assert_uint_eq(ended[0], 1);
	return (enum scout__l2_result)ops[0].result;
}

static const struct scout__l2_counters *
counters(void)
{
	scout__enter_loop();
	return scout__l2_counters_of(l2, 0);
}

static enum scout__l2_breaker
breaker(enum scout__l2_side side)
{
	scout__enter_loop();
	return scout__l2_breaker_of(l2, 0, side);
}

static void
tick(uint64_t now_us)
{
	scout__enter_loop();
	scout__l2_tick(l2, now_us);
}

static uint64_t
next_us(void)
{
	scout__enter_loop();
	return scout__l2_next_us(l2);
}

/* ---- opening ---- */

START_TEST(a_url_that_cannot_be_is_refused_with_its_reason)
{
	static const struct {
		const char *urls[5];
		int code;
		const char *message;
	} cases[] = {
		{{NULL}, SCOUT_ERR_CONFIG_RANGE, "l2 has 0 URLs: must be 1..4"},
		{{"script:///a", "script:///b", "script:///c", "script:///d", "script:///e"},
		 SCOUT_ERR_CONFIG_RANGE,
		 "l2 has 5 URLs: must be 1..4"},
		{{"script:///a", "other:///a"},
		 SCOUT_ERR_CONFIG_RANGE,
		 "l2 = \"other:///a\": scheme \"other\": must be one of script"},
		{{"script:///a?x"},
		 SCOUT_ERR_CONFIG_RANGE,
		 "l2 = \"script:///a?x\": option x has no value: must be NAME=VALUE"},
		{{"script://u:secret@h/broken"},
		 SCOUT_ERR_PERMISSION,
		 "l2 = \"script://u:***@h/broken\": it is broken"},
		{{"script://u:secret"},
		 SCOUT_ERR_CONFIG_RANGE,
		 "l2 = \"script://u:***\": the port of host 1 is not a number from 1 to 65535"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct scout__l2 *none = NULL;
		uint32_t n = 0;

		while (n < 5 && cases[i].urls[n])
			n++;
		n_scripts = 0;
		ck_assert_int_eq(scout__l2_new(cases[i].urls, n, 1000, MAX_OPS, &test_log, &none, err, sizeof(err)),
				 cases[i].code);
		ck_assert_str_eq(err, cases[i].message);
		ck_assert_ptr_null(none);
		for (unsigned j = 0; j < n_scripts; j++)
			ck_assert(scripts[j].is_closed);
	}
	ck_assert_uint_eq(logged("secret"), 0);
}
END_TEST

START_TEST(a_front_says_what_it_has)
{
	struct scout__l2_gauges gauges;

	open_front("script:///a", "script://u:secret@h/b?x=1");
	ck_assert_uint_eq(scout__l2_count(l2), 2);
	ck_assert_str_eq(scout__l2_name_of(l2, 0), "script:///a");
	ck_assert_str_eq(scout__l2_name_of(l2, 1), "script://u:***@h/b?x=1");
	submit(0, SCOUT__L2_LOAD, 0);
	scout__l2_gauges_of(l2, 0, &gauges);
	ck_assert_uint_eq(gauges.objects, 1);
	ck_assert_str_eq(scout__l2_what_name(SCOUT__L2_REMOVE), "remove");
	ck_assert_str_eq(scout__l2_what_name(6), "?");
	ck_assert_str_eq(scout__l2_result_name(SCOUT__L2_CANCELLED), "cancelled");
	ck_assert_str_eq(scout__l2_result_name(9), "?");
	teardown();
}
END_TEST

/* ---- operations ---- */

START_TEST(operations_come_out_once_in_the_order_of_their_end)
{
	scout__enter_loop();
	for (unsigned i = 0; i < 4; i++)
		submit(i, SCOUT__L2_LOAD, 10);
	ck_assert_uint_eq(scout__l2_running(l2), 4);
	ck_assert(!is_readable());
	script_end(script, 2, SCOUT__L2_OK, 0);
	script_end(script, 0, SCOUT__L2_ABSENT, 0);
	ck_assert(is_readable());
	ck_assert_uint_eq(n_ended, 0);
	reap(20);
	ck_assert_uint_eq(n_ended, 2);
	ck_assert_ptr_eq(order[0], &ops[2]);
	ck_assert_ptr_eq(order[1], &ops[0]);
	ck_assert(!is_readable());
	ck_assert_uint_eq(scout__l2_running(l2), 2);
	script_end(script, 0, SCOUT__L2_CORRUPT, 0);
	script_end(script, 0, SCOUT__L2_OK, 0);
	reap(20);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_uint_eq(ended[i], 1);
	ck_assert_uint_eq(counters()->submitted[SCOUT__L2_LOAD], 4);
	ck_assert_uint_eq(counters()->results[SCOUT__L2_LOAD][SCOUT__L2_OK], 2);
	ck_assert_uint_eq(counters()->results[SCOUT__L2_LOAD][SCOUT__L2_ABSENT], 1);
	ck_assert_uint_eq(counters()->results[SCOUT__L2_LOAD][SCOUT__L2_CORRUPT], 1);
	ck_assert_uint_eq(counters()->bytes_loaded, 14);
	ck_assert_uint_eq(logged("L2 script:///a: load: corrupt (detail 0)"), 1);
}
END_TEST

START_TEST(keys_and_bytes_are_counted)
{
	struct scout__l2_op *op = &ops[0];
	uint8_t some[5] = {9, 9, 9, 9, 9};

	scout__enter_loop();
	submit(0, SCOUT__L2_EXISTS, 0);
	script_end(script, 0, SCOUT__L2_OK, 0);
	reap(0);
	*op = (struct scout__l2_op){
		.what = SCOUT__L2_EXISTS, .n = 5, .digests = digests, .found = some, .done = on_done, .user = ended};
	scout__l2_submit(l2, 0, op, 0);
	/* What the adapter does not write is not there. */
	for (unsigned i = 0; i < 5; i++)
		ck_assert_uint_eq(some[i], 0);
	some[0] = some[3] = 1;
	script_end(script, 0, SCOUT__L2_TIMEOUT, 0);
	reap(0);
	ck_assert_uint_eq(counters()->keys_asked, 6);
	ck_assert_uint_eq(counters()->keys_found, 2);
	ck_assert_int_eq(one(SCOUT__L2_STORE, SCOUT__L2_OK, 0, 0), SCOUT__L2_OK);
	ck_assert_int_eq(one(SCOUT__L2_STORE, SCOUT__L2_PRESENT, 0, 0), SCOUT__L2_PRESENT);
	ck_assert_uint_eq(counters()->bytes_stored, 7);
	ck_assert_uint_eq(counters()->bytes_loaded, 0);
}
END_TEST

START_TEST(a_reap_in_parts_stays_readable)
{
	scout__enter_loop();
	for (unsigned i = 0; i < 5; i++)
		submit(i, SCOUT__L2_LOAD, 0);
	while (script->n)
		script_end(script, 0, SCOUT__L2_OK, 0);
	ck_assert(scout__l2_reap(l2, 2, 0));
	ck_assert_uint_eq(n_ended, 2);
	ck_assert(is_readable());
	ck_assert(scout__l2_reap(l2, 2, 0));
	ck_assert(!scout__l2_reap(l2, 2, 0));
	ck_assert_uint_eq(n_ended, 5);
	ck_assert(!is_readable());
}
END_TEST

START_TEST(two_adapters_come_out_by_turns)
{
	scout__enter_loop();
	open_front("script:///a", "script:///b");
	for (unsigned i = 0; i < 6; i++) {
		submit(i, SCOUT__L2_LOAD, 0);
		if (i < 3)
			continue;
		/* The last three on the other. */
		script_end(&scripts[0], scripts[0].n - 1, SCOUT__L2_OK, 0);
		reap(0);
		scout__l2_submit(l2, 1, &ops[i], 0);
	}
	n_ended = 0;
	while (scripts[0].n)
		script_end(&scripts[0], 0, SCOUT__L2_OK, 0);
	while (scripts[1].n)
		script_end(&scripts[1], 0, SCOUT__L2_OK, 0);
	reap(0);
	ck_assert_uint_eq(n_ended, 6);
	for (unsigned i = 1; i < 6; i++)
		ck_assert_uint_ne(order[i]->adapter, order[i - 1]->adapter);
	teardown();
	ck_assert(scripts[1].is_closed);
}
END_TEST

START_TEST(what_has_no_room_is_refused_by_the_reap)
{
	scout__enter_loop();
	for (unsigned i = 0; i < MAX_OPS + 3; i++)
		submit(i, SCOUT__L2_LOAD, 0);
	ck_assert_uint_eq(script->n, MAX_OPS);
	ck_assert(is_readable());
	reap(0);
	ck_assert_uint_eq(n_ended, 3);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_ptr_eq(order[i], &ops[MAX_OPS + i]);
		ck_assert_int_eq(order[i]->result, SCOUT__L2_REFUSED);
	}
	ck_assert_uint_eq(counters()->results[SCOUT__L2_LOAD][SCOUT__L2_REFUSED], 3);
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_CLOSED);
	script->is_refusing = true;
	script_end(script, 0, SCOUT__L2_OK, 0);
	reap(0);
	ck_assert_int_eq(one(SCOUT__L2_STORE, SCOUT__L2_OK, 0, 0), SCOUT__L2_REFUSED);
	while (script->n)
		script_end(script, 0, SCOUT__L2_OK, 0);
	reap(0);
	ck_assert_uint_eq(scout__l2_running(l2), 0);
}
END_TEST

START_TEST(an_unpin_waits_for_room)
{
	for (unsigned i = 0; i < MAX_OPS; i++)
		submit(i, SCOUT__L2_LOAD, 0);
	for (unsigned i = MAX_OPS; i < MAX_OPS + 3; i++)
		submit(i, SCOUT__L2_UNPIN, 0);
	reap(0);
	ck_assert_uint_eq(n_ended, 0);
	ck_assert_uint_eq(script->n, MAX_OPS);
	/* In order, as room comes. */
	for (unsigned i = 0; i < 3; i++) {
		script_end(script, 0, SCOUT__L2_OK, 0);
		reap(0);
		ck_assert_ptr_eq(script->ops[MAX_OPS - 1], &ops[MAX_OPS + i]);
	}
	/* An adapter that takes none for a while is asked again. */
	script->is_refusing = true;
	while (script->n)
		script_end(script, 0, SCOUT__L2_OK, 0);
	submit(20, SCOUT__L2_UNPIN, 100);
	submit(21, SCOUT__L2_UNPIN, 100);
	reap(100);
	ck_assert_uint_eq(script->n, 0);
	script->is_refusing = false;
	ck_assert_uint_gt(next_us(), 100);
	ck_assert_uint_lt(next_us(), 100 + S);
	tick(next_us() - 1);
	ck_assert_uint_eq(script->n, 0);
	tick(next_us());
	ck_assert_uint_eq(script->n, 2);
	ck_assert_ptr_eq(script->ops[0], &ops[20]);
	ck_assert_ptr_eq(script->ops[1], &ops[21]);
	ck_assert_uint_eq(next_us(), UINT64_MAX);
	ck_assert_uint_eq(counters()->results[SCOUT__L2_UNPIN][SCOUT__L2_REFUSED], 0);
}
END_TEST

static unsigned again;

static void
on_done_submit_again(void *user, struct scout__l2_op *op)
{
	scout__enter_loop();
	on_done(user, op);
	if (again-- > 0)
		scout__l2_submit(l2, 0, op, 0);
}

START_TEST(done_may_submit_again)
{
	scout__enter_loop();
	submit(0, SCOUT__L2_LOAD, 0);
	ops[0].done = on_done_submit_again;
	again = 3;
	for (unsigned i = 1; i <= 4; i++) {
		ck_assert_uint_eq(script->n, 1);
		script_end(script, 0, SCOUT__L2_OK, 0);
		reap(0);
		ck_assert_uint_eq(ended[0], i);
	}
	ck_assert_uint_eq(scout__l2_running(l2), 0);
}
END_TEST

/* ---- breakers ---- */

static void
open_breaker(enum scout__l2_what what, uint64_t now_us)
{
	for (unsigned i = 0; i < SCOUT__L2_FAILURES; i++)
		ck_assert_int_eq(one(what, SCOUT__L2_ERROR, 5, now_us), SCOUT__L2_ERROR);
}

START_TEST(failures_in_a_row_switch_reads_off)
{
	scout__enter_loop();
	for (unsigned i = 1; i < SCOUT__L2_FAILURES; i++)
		ck_assert_int_eq(one(SCOUT__L2_LOAD, i % 2 ? SCOUT__L2_ERROR : SCOUT__L2_TIMEOUT, 5, 0),
				 i % 2 ? SCOUT__L2_ERROR : SCOUT__L2_TIMEOUT);
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_CLOSED);
	/* That EXISTS works, from memory perhaps, says nothing about loads. */
	ck_assert_int_eq(one(SCOUT__L2_EXISTS, SCOUT__L2_OK, 0, 0), SCOUT__L2_OK);
	ck_assert(scout__l2_usable(l2, 0, SCOUT__L2_READS, 0));
	ck_assert_int_eq(one(SCOUT__L2_LOAD, SCOUT__L2_ERROR, 5, 0), SCOUT__L2_ERROR);
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_OPEN);
	ck_assert_int_eq(breaker(SCOUT__L2_WRITES), SCOUT__L2_CLOSED);
	ck_assert(!scout__l2_usable(l2, 0, SCOUT__L2_READS, 0));
	ck_assert(scout__l2_usable(l2, 0, SCOUT__L2_WRITES, 0));
	ck_assert_uint_eq(counters()->opened[SCOUT__L2_READS], 1);
	ck_assert_uint_eq(counters()->opened[SCOUT__L2_WRITES], 0);
	ck_assert_uint_eq(logged("reads are switched off after 5 failures of load in a row"), 1);
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
	ck_assert_uint_eq(logged("writes are switched off after 5 failures of store in a row"), 1);
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
	ck_assert(!scout__l2_usable(l2, 0, SCOUT__L2_READS, retry_us + 1));
	submit(1, SCOUT__L2_EXISTS, retry_us + 1);
	reap(retry_us + 1);
	ck_assert_int_eq(ops[1].result, SCOUT__L2_REFUSED);
	script_end(script, 0, SCOUT__L2_ABSENT, 0);
	reap(retry_us + 2);
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_CLOSED);
	ck_assert_uint_eq(logged("reads are tried again"), 1);
	ck_assert_uint_eq(logged("reads work again"), 1);
	ck_assert_int_eq(one(SCOUT__L2_LOAD, SCOUT__L2_OK, 0, retry_us + 3), SCOUT__L2_OK);
	/* The trial is no operation of the server's. */
	ck_assert_uint_eq(counters()->submitted[SCOUT__L2_LOAD], SCOUT__L2_FAILURES + 1);
	ck_assert_uint_eq(counters()->results[SCOUT__L2_LOAD][SCOUT__L2_ABSENT], 0);
	ck_assert_uint_eq(scout__l2_running(l2), 0);
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
	ck_assert_uint_eq(logged("reads still fail"), 6);
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
		script->ops[i]->deadline_us = 0;
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
	ck_assert(scout__l2_usable(l2, 0, SCOUT__L2_WRITES, now_us));
	ck_assert_int_eq(one(SCOUT__L2_REMOVE, SCOUT__L2_OK, 0, now_us), SCOUT__L2_REFUSED);
	submit(1, SCOUT__L2_STORE, now_us);
	ck_assert_int_eq(breaker(SCOUT__L2_WRITES), SCOUT__L2_HALF_OPEN);
	ck_assert(!scout__l2_usable(l2, 0, SCOUT__L2_WRITES, now_us));
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
	ck_assert(!scout__l2_usable(l2, 0, SCOUT__L2_WRITES, now_us + 3 * S / 2 - 1));
	now_us += 2 * S;
	submit(1, SCOUT__L2_STORE, now_us);
	script_end(script, 0, SCOUT__L2_PRESENT, 0);
	reap(now_us);
	ck_assert_int_eq(breaker(SCOUT__L2_WRITES), SCOUT__L2_CLOSED);
	ck_assert_uint_eq(logged("writes work again"), 1);
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
	ck_assert(ops[0].timed_out && !ops[1].timed_out);
	ck_assert_uint_eq(next_us(), 101 + S);
	tick(200 + S);
	tick(300 + S);
	ck_assert_uint_eq(counters()->overdue[SCOUT__L2_LOAD], 3);
	ck_assert_uint_eq(next_us(), UINT64_MAX);
	ck_assert_uint_eq(n_ended, 0);
	ck_assert_uint_eq(logged("load: not done after 1000 ms"), 1);
	/* They come out when they end, and count no second time. */
	script_end(script, 0, SCOUT__L2_ERROR, 5);
	script_end(script, 0, SCOUT__L2_ERROR, 5);
	reap(400 + S);
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
	uint64_t now_us = S;

	for (unsigned i = 0; i < 6; i++)
		submit(i, SCOUT__L2_LOAD, 0);
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
	ck_assert(!scout__l2_usable(l2, 0, SCOUT__L2_WRITES, 60 * S));
	script_end(script, 0, SCOUT__L2_OK, 0);
	reap(60 * S);
	ck_assert_int_eq(breaker(SCOUT__L2_WRITES), SCOUT__L2_OPEN);
	ck_assert(scout__l2_usable(l2, 0, SCOUT__L2_WRITES, 60 * S));
	ck_assert_int_eq(one(SCOUT__L2_STORE, SCOUT__L2_OK, 0, 60 * S), SCOUT__L2_OK);
	ck_assert_int_eq(breaker(SCOUT__L2_WRITES), SCOUT__L2_CLOSED);
}
END_TEST

/* ---- the end ---- */

START_TEST(a_stop_ends_everything)
{
	scout__enter_loop();
	open_breaker(SCOUT__L2_EXISTS, 0);
	tick(next_us());
	ck_assert_uint_eq(script->n, 1);
	for (unsigned i = 0; i < MAX_OPS - 1; i++)
		submit(i, SCOUT__L2_STORE, 0);
	for (unsigned i = 10; i < 13; i++)
		submit(i, SCOUT__L2_UNPIN, 0);
	submit(13, SCOUT__L2_LOAD, 0);
	n_ended = 0;
	ck_assert(scout__l2_stop(l2, 1000));
	ck_assert_uint_eq(n_ended, MAX_OPS - 1 + 4);
	for (unsigned i = 0; i < 14; i++) {
		if (i < MAX_OPS - 1 || i >= 10)
			ck_assert_uint_eq(ended[i], 1);
	}
	ck_assert_int_eq(ops[0].result, SCOUT__L2_CANCELLED);
	ck_assert_int_eq(ops[12].result, SCOUT__L2_CANCELLED);
	ck_assert_int_eq(ops[13].result, SCOUT__L2_REFUSED);
	/* From now on nothing is tried, and still everything comes out. */
	submit(20, SCOUT__L2_UNPIN, 0);
	submit(21, SCOUT__L2_EXISTS, 0);
	tick(100 * S);
	ck_assert_uint_eq(next_us(), UINT64_MAX);
	reap(0);
	ck_assert_int_eq(ops[20].result, SCOUT__L2_CANCELLED);
	ck_assert_int_eq(ops[21].result, SCOUT__L2_CANCELLED);
	ck_assert_uint_eq(scout__l2_running(l2), 0);
	scout__l2_free(l2);
	ck_assert(script->is_closed);
}
END_TEST

START_TEST(an_adapter_that_hangs_is_left_alone)
{
	scout__enter_loop();
	open_front("script:///a", "script:///b");
	submit(0, SCOUT__L2_LOAD, 0);
	submit(1, SCOUT__L2_LOAD, 0);
	script_end(script, 1, SCOUT__L2_OK, 0);
	reap(0);
	scout__l2_submit(l2, 1, &ops[1], 0);
	n_ended = 0;
	scripts[0].hangs = true;
	ck_assert(!scout__l2_stop(l2, 20));
	ck_assert_uint_eq(n_ended, 1);
	ck_assert_ptr_eq(order[0], &ops[1]);
	ck_assert_uint_eq(scout__l2_running(l2), 1);
	ck_assert_uint_eq(logged("L2 script:///a hangs: 1 operations did not end within 20 ms"), 1);
	scout__l2_free(l2);
	ck_assert(!scripts[0].is_closed);
	ck_assert(scripts[1].is_closed);
	/* What its thread does later finds everything in its place. */
	script_end(script, 0, SCOUT__L2_OK, 0);
}
END_TEST

START_TEST(failures_that_storm_are_logged_once_a_second)
{
	for (unsigned i = 0; i < 100; i++)
		one(SCOUT__L2_LOAD, i % 4 ? SCOUT__L2_ERROR : SCOUT__L2_OK, 5, i * 1000);
	ck_assert_uint_eq(logged("load: error (detail 5)"), 1);
	one(SCOUT__L2_LOAD, SCOUT__L2_ERROR, 6, 2 * S);
	ck_assert_uint_eq(logged("load: error (detail 6) (and 74 more)"), 1);
}
END_TEST

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("l2_front");
	TCase *bare = tcase_create("l2_front_bare");
	TCase *tc = tcase_create("l2_front");

	tcase_add_test(bare, a_url_that_cannot_be_is_refused_with_its_reason);
	tcase_add_test(bare, a_front_says_what_it_has);
	tcase_add_test(bare, two_adapters_come_out_by_turns);
	tcase_add_test(bare, an_adapter_that_hangs_is_left_alone);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, operations_come_out_once_in_the_order_of_their_end);
	tcase_add_test(tc, keys_and_bytes_are_counted);
	tcase_add_test(tc, a_reap_in_parts_stays_readable);
	tcase_add_test(tc, what_has_no_room_is_refused_by_the_reap);
	tcase_add_test(tc, an_unpin_waits_for_room);
	tcase_add_test(tc, done_may_submit_again);
	tcase_add_test(tc, failures_in_a_row_switch_reads_off);
	tcase_add_test(tc, answers_that_are_no_failures_keep_it_closed);
	tcase_add_test(tc, a_store_that_is_full_itself_is_not_written_for_a_while);
	tcase_add_test(tc, reads_are_tried_by_the_load_that_failed_last);
	tcase_add_test(tc, reads_are_tried_by_exists_where_that_failed);
	tcase_add_test(tc, a_trial_needs_no_room);
	tcase_add_test(tc, writes_are_tried_by_the_next_store);
	tcase_add_test(tc, a_deadline_that_passes_is_a_failure_once);
	tcase_add_test(tc, what_has_ended_in_time_and_waits_is_not_overdue);
	tcase_add_test(tc, a_store_that_hangs_is_switched_off_and_its_late_ends_do_not_switch_it_on);
	tcase_add_test(tc, a_write_trial_that_hangs_is_the_only_one);
	tcase_add_test(tc, failures_that_storm_are_logged_once_a_second);
	suite_add_tcase(suite, bare);
	suite_add_tcase(suite, tc);
	tc = tcase_create("l2_front_stop");
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, a_stop_ends_everything);
	suite_add_tcase(suite, tc);
	return suite;
}
