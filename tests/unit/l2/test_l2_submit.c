/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "l2_submit_rig.h"

static bool
is_readable(void)
{
	struct pollfd fd = {.fd = scout__l2_fd(l2), .events = POLLIN};

	return poll(&fd, 1, 0) == 1;
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
		 "l2 = \"other:///a\": scheme \"other\": must be one of script, records"},
		{{"rediss://h"},
		 SCOUT_ERR_CONFIG_RANGE,
		 "l2 = \"rediss://h\": no TLS to Redis in this build: install OpenSSL 3 and hiredis (Debian: libssl-dev, "
		 "libhiredis-dev) and build with -Dtls=enabled, or run a tunnel on this host (stunnel, for example) and use "
		 "redis:// to it"},
		{{"script:///a?x"},
		 SCOUT_ERR_CONFIG_RANGE,
		 "l2 = \"script:///a?x\": option x has no value: must be NAME=VALUE"},
		{{"script:///a?timeout_ms=0"},
		 SCOUT_ERR_CONFIG_RANGE,
		 "l2 = \"script:///a?timeout_ms=0\": option 1: timeout_ms = \"0\": must be 1..600000"},
		{{"script://u:secret@h/broken"},
		 SCOUT_ERR_PERMISSION,
		 "l2 = \"script://u:***@h/broken\": it is broken"},
		{{"script://u:secret"},
		 SCOUT_ERR_CONFIG_RANGE,
		 "l2 = \"script://***\": the port of host 1 is not a number from 1 to 65535"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct scout__l2 *none = NULL;
		uint32_t n = 0;

		while (n < 5 && cases[i].urls[n])
			n++;
		n_scripts = 0;
		ck_assert_int_eq(scout__l2_new(script_adapters, cases[i].urls, n, 1000, MAX_OPS, &test_log, &none, err,
					       sizeof(err)),
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
	ck_assert_str_eq(scout__l2_store_of(l2, 0)->name, "script:///a");
	ck_assert_str_eq(scout__l2_store_of(l2, 1)->name, "script://u:***@h/b?x=1");
	submit(0, SCOUT__L2_LOAD, 0);
	scout__l2_gauges_of(l2, 0, &gauges);
	ck_assert_uint_eq(gauges.objects, 1);
	ck_assert_str_eq(scout__l2_what_name(SCOUT__L2_REMOVE), "remove");
	ck_assert_str_eq(scout__l2_what_name(SCOUT__L2_WHATS), "?");
	ck_assert_str_eq(scout__l2_result_name(SCOUT__L2_CANCELLED), "cancelled");
	ck_assert_str_eq(scout__l2_result_name(9), "?");
	teardown();
}
END_TEST

/* ---- operations ---- */

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
	ck_assert_uint_eq(scout__l2_store_of(l2, 0)->n_running, 1);
	ck_assert_uint_eq(logged("L2 script:///a hangs: 1 operations did not end within 20 ms"), 1);
	scout__l2_free(l2);
	ck_assert(!scripts[0].is_closed);
	ck_assert(scripts[1].is_closed);
	/* What its thread does later finds everything in its place. */
	script_end(script, 0, SCOUT__L2_OK, 0);
}
END_TEST

static void
end_probe(uint64_t now_us, enum scout__l2_result result, const char *why)
{
	tick(now_us);
	ck_assert_uint_eq(script->n, 1);
	ck_assert_int_eq(script->ops[0]->what, SCOUT__L2_RECORD_READ);
	(void)snprintf(script->ops[0]->why, sizeof(script->ops[0]->why), "%s", why);
	script_end(script, 0, result, 0);
	reap(now_us);
}

/* No engine is there, and it never worked: it is not said to work. */
START_TEST(a_store_is_asked_for_a_record_until_it_works)
{
	open_front("records:///a", NULL);
	ck_assert_int_eq(health(0).state, SCOUT__L2_STARTING);
	end_probe(S, SCOUT__L2_ERROR, "403 SignatureDoesNotMatch\033[2J");
	ck_assert_int_eq(health(S).state, SCOUT__L2_FAILING);
	ck_assert_str_eq(health(S).words, "403 SignatureDoesNotMatch?[2J");
	ck_assert_uint_gt(health(S).since_ms, UINT64_C(1700000000000));
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_HALF_OPEN);
	ck_assert_int_eq(breaker(SCOUT__L2_WRITES), SCOUT__L2_HALF_OPEN);
	tick(3 * S);
	ck_assert_uint_eq(script->n, 0);
	end_probe(7 * S, SCOUT__L2_OK, "");
	ck_assert_int_eq(breaker(SCOUT__L2_READS), SCOUT__L2_CLOSED);
	tick(9 * S);
	ck_assert_int_eq(health(9 * S).state, SCOUT__L2_WORKS);
	tick(60 * S);
	ck_assert_uint_eq(script->n, 0);
	/* The server's own records count, too. */
	ck_assert_int_eq(one(SCOUT__L2_RECORD_READ, SCOUT__L2_ERROR, 5, 61 * S), SCOUT__L2_ERROR);
	ck_assert_int_eq(health(61 * S).state, SCOUT__L2_FAILING);
	ck_assert_uint_eq(logged("failing: record_read: Input/output error\n"), 1);
	teardown();
}
END_TEST

CHECKED_FIXTURE(setup, teardown);

START_TEST(operations_come_out_once_in_the_order_of_their_end)
{
	scout__enter_loop();
	for (unsigned i = 0; i < 4; i++)
		submit(i, SCOUT__L2_LOAD, 10);
	ck_assert_uint_eq(scout__l2_store_of(l2, 0)->n_running, 4);
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
	ck_assert_uint_eq(scout__l2_store_of(l2, 0)->n_running, 2);
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
	ck_assert_uint_eq(logged("L2 script:///a: load: corrupt"), 1);
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
	ck_assert_uint_eq(scout__l2_store_of(l2, 0)->n_running, 0);
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
	ck_assert_uint_eq(scout__l2_store_of(l2, 0)->n_running, 0);
}
END_TEST

/* ---- the end ---- */

START_TEST(a_store_that_fails_is_one_line_and_one_a_minute_until_it_works)
{
	uint64_t now_us = S;

	one(SCOUT__L2_LOAD, SCOUT__L2_OK, 0, now_us);
	for (; now_us < 131 * S; now_us += S / 10) {
		one(SCOUT__L2_LOAD, SCOUT__L2_ERROR, now_us < 10 * S ? 5 : 6, now_us);
		one(SCOUT__L2_LOAD, SCOUT__L2_OK, 0, now_us);
		tick(now_us);
		ck_assert_int_eq(health(now_us).state, SCOUT__L2_FAILING);
	}
	ck_assert_uint_eq(logged("script:///a: failing: load: Input/output error\n"), 1);
	ck_assert_uint_eq(logged("script:///a: failing: "), 3);
	ck_assert_str_eq(health(now_us).words, "load: No such device or address");
	tick(now_us + 2 * S);
	ck_assert_int_eq(health(now_us).state, SCOUT__L2_WORKS);
	ck_assert_str_eq(health(now_us).words, "");
	ck_assert_uint_eq(logged("script:///a: works\n"), 2);
	/* A kind of operation that nobody asks for again counts for a minute. */
	one(SCOUT__L2_STORE, SCOUT__L2_FULL, 28, now_us += 10 * S);
	one(SCOUT__L2_EXISTS, SCOUT__L2_OK, 0, now_us + S);
	tick(now_us + 59 * S);
	ck_assert_int_eq(health(now_us).state, SCOUT__L2_FAILING);
	tick(now_us + 60 * S);
	ck_assert_int_eq(health(now_us).state, SCOUT__L2_WORKS);
}
END_TEST

CHECKED_FIXTURE(setup, NULL);

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
	ck_assert_uint_eq(scout__l2_store_of(l2, 0)->n_running, 0);
	scout__l2_free(l2);
	ck_assert(script->is_closed);
}
END_TEST
