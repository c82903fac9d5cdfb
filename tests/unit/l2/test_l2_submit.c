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
		 "l2 = \"other:///a\": scheme \"other\": must be one of script"},
		{{"rediss://h"},
		 SCOUT_ERR_CONFIG_RANGE,
		 "l2 = \"rediss://h\": no TLS to Redis in this build: install OpenSSL 3 and hiredis (Debian: libssl-dev, "
		 "libhiredis-dev) and build with -Dtls=enabled, or run a tunnel on this host (stunnel, for example) and use "
		 "redis:// to it"},
		{{"script:///a?x"},
		 SCOUT_ERR_CONFIG_RANGE,
		 "l2 = \"script:///a?x\": option x has no value: must be NAME=VALUE"},
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
	ck_assert_str_eq(scout__l2_name_of(l2, 0), "script:///a");
	ck_assert_str_eq(scout__l2_name_of(l2, 1), "script://u:***@h/b?x=1");
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
	Suite *suite = suite_create("l2_submit");
	TCase *bare = tcase_create("l2_submit_bare");
	TCase *tc = tcase_create("l2_submit");

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
	tcase_add_test(tc, failures_that_storm_are_logged_once_a_second);
	suite_add_tcase(suite, bare);
	suite_add_tcase(suite, tc);
	tc = tcase_create("l2_submit_stop");
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, a_stop_ends_everything);
	suite_add_tcase(suite, tc);
	return suite;
}
