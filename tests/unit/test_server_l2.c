/* SPDX-License-Identifier: Apache-2.0 */
#include "server_l2_rig.h"

#include "check_main.h"

/* The server over two tiers: what is found, promised, loaded and written, and what becomes of it when somebody goes. */

START_TEST(what_was_stored_is_hit_after_a_restart)
{
	struct l2_rig r = l2_rig_of(64);

	l2_up(&r);
	l2_store(&r.rig.worker, 1, 8);
	ck_assert_uint_eq(l2_memory_objects(r.m), 8);
	l2_lookup(&r.rig.client, 1, 1, 8, 8, 0);
	l2_restart(&r);
	l2_lookup(&r.rig.client, 2, 1, 12, 0, 8);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.bytes_promised"), 8 * SHARD_BYTES);
	ck_assert_uint_eq(l2_memory_count(r.m, SCOUT__L2_LOAD), 0);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 2, 1, 0, 8), 8);
	ck_assert_uint_eq(l2_memory_count(r.m, SCOUT__L2_LOAD), 8);
	rig_finish(&r.rig.client, 2);
	/* It is in the pool now, and nothing of it was written back. */
	l2_lookup(&r.rig.client, 3, 1, 8, 8, 0);
	rig_finish(&r.rig.client, 3);
	ck_assert_uint_eq(l2_memory_count(r.m, SCOUT__L2_STORE), 8);
	l2_check_idle(&r);
	l2_down(&r);
}
END_TEST

START_TEST(the_pool_s_part_comes_first_and_one_question_asks_for_the_rest)
{
	struct l2_rig r = l2_rig_of(64);

	l2_up(&r);
	l2_store(&r.rig.worker, 1, 16);
	l2_restart(&r);
	l2_store(&r.rig.worker, 1, 4);
	l2_store(&r.rig.worker, 8, 2);
	l2_lookup(&r.rig.client, 1, 1, 20, 6, 10);
	ck_assert_uint_eq(l2_memory_count(r.m, SCOUT__L2_EXISTS), 1);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.0.keys_asked"), 14);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 1, 1, 0, 16), 16);
	rig_finish(&r.rig.client, 1);
	l2_check_idle(&r);
	l2_down(&r);
}
END_TEST

START_TEST(a_second_lookup_finds_what_the_first_expects)
{
	struct l2_rig r = l2_rig_of(64);

	l2_up(&r);
	l2_store(&r.rig.worker, 1, 4);
	l2_restart(&r);
	l2_lookup(&r.rig.client, 1, 1, 4, 0, 4);
	l2_lookup(&r.rig.client, 2, 1, 4, 0, 4);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.bytes_promised"), 4 * SHARD_BYTES);
	rig_finish(&r.rig.client, 1);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 2, 1, 0, 4), 4);
	rig_finish(&r.rig.client, 2);
	l2_check_idle(&r);
	l2_down(&r);
}
END_TEST

START_TEST(one_load_serves_all_who_ask)
{
	struct l2_rig r = l2_rig_of(64);
	uint64_t corr[3];

	l2_up(&r);
	l2_store(&r.rig.worker, 1, 1);
	l2_restart(&r);
	l2_memory_pause(r.m, SCOUT__L2_LOAD);
	for (uint64_t i = 0; i < 3; i++) {
		l2_lookup(&r.rig.client, i + 1, 1, 1, 0, 1);
		corr[i] = 0;
	}
	for (uint64_t i = 0; i < 3; i++) {
		const struct scout__retrieve_msg m = {.ticket = i + 1, .from = 0, .to = 1};

		scout__put_retrieve(wire_begin(&r.rig.worker, SCOUT_OP_RETRIEVE), &m);
		corr[i] = wire_end(&r.rig.worker);
	}
	wire_flush(&r.rig.worker);
	l2_memory_wait(r.m, SCOUT__L2_LOAD, 1);
	wire_wait_status(&r.rig.client, "ops.waiting", 3);
	l2_memory_resume(r.m, SCOUT__L2_LOAD);
	for (uint64_t i = 0; i < 3; i++) {
		struct wire_reply *reply = wire_wait(&r.rig.worker, corr[i]);

		ck_assert_uint_eq(reply->status, SCOUT_WIRE_OK);
		wire_reply_free(reply);
		ck_assert_int_eq(wire_retrieve_done(&r.rig.worker, corr[i], 0), SCOUT_WIRE_OK);
		rig_finish(&r.rig.client, i + 1);
	}
	ck_assert_uint_eq(l2_memory_count(r.m, SCOUT__L2_LOAD), 1);
	l2_check_idle(&r);
	l2_down(&r);
}
END_TEST

START_TEST(what_nobody_retrieves_leaves_nothing_behind)
{
	struct l2_rig r = l2_rig_of(64);

	l2_up(&r);
	l2_store(&r.rig.worker, 1, 8);
	l2_restart(&r);
	l2_lookup(&r.rig.client, 1, 1, 8, 0, 8);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.chunks"), 8);
	rig_finish(&r.rig.client, 1);
	l2_check_idle(&r);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.chunks"), 0);
	l2_down(&r);
}
END_TEST

START_TEST(it_counts_only_as_far_as_room_is_promised)
{
	struct l2_rig r = l2_rig_of(64);

	r.cfg.max_promised = 5 * SHARD_BYTES;
	l2_up(&r);
	l2_store(&r.rig.worker, 1, 8);
	l2_restart(&r);
	l2_lookup(&r.rig.client, 1, 1, 8, 0, 5);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.bytes_promised"), 5 * SHARD_BYTES);
	ck_assert_uint_eq(wire_status(&r.rig.client, "lookups.limited"), 1);
	rig_finish(&r.rig.client, 1);
	l2_check_idle(&r);
	l2_down(&r);
}
END_TEST

START_TEST(a_slow_store_costs_only_its_part)
{
	struct l2_rig r = l2_rig_of(64);

	r.cfg.l2_timeout_ms = 50;
	l2_up(&r);
	l2_store(&r.rig.worker, 1, 8);
	l2_restart(&r);
	l2_store(&r.rig.worker, 1, 3);
	l2_memory_pause(r.m, SCOUT__L2_EXISTS);
	l2_lookup(&r.rig.client, 1, 1, 8, 3, 0);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.lookups.late"), 1);
	l2_memory_resume(r.m, SCOUT__L2_EXISTS);
	rig_finish(&r.rig.client, 1);
	l2_check_idle(&r);
	l2_down(&r);
}
END_TEST

START_TEST(a_client_that_goes_while_it_is_asked_leaves_no_pin)
{
	struct l2_rig r = l2_rig_of(64);
	const struct scout__lookup_msg m = {.ticket = 1, .n = 8};
	struct wire_peer other;

	l2_up(&r);
	l2_store(&r.rig.worker, 1, 8);
	l2_restart(&r);
	l2_memory_pause(r.m, SCOUT__L2_EXISTS);
	rig_client(&other, r.rig.endpoint);
	ck_assert_int_eq(wire_lease(&other), SCOUT_LEASE_OK);
	(void)wire_add_lookup(&other, &m, 1);
	wire_flush(&other);
	l2_memory_wait(r.m, SCOUT__L2_EXISTS, 1);
	wire_lease_bye(&other);
	wire_wait_status(&r.rig.client, "ops.waiting", 0);
	l2_memory_resume(r.m, SCOUT__L2_EXISTS);
	l2_memory_wait(r.m, SCOUT__L2_UNPIN, 1);
	l2_check_idle(&r);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.chunks"), 0);
	wire_close(&other);
	l2_down(&r);
}
END_TEST

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("server_l2");
	TCase *tc = tcase_create("two tiers");

	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, what_was_stored_is_hit_after_a_restart);
	tcase_add_test(tc, the_pool_s_part_comes_first_and_one_question_asks_for_the_rest);
	tcase_add_test(tc, a_second_lookup_finds_what_the_first_expects);
	tcase_add_test(tc, one_load_serves_all_who_ask);
	tcase_add_test(tc, what_nobody_retrieves_leaves_nothing_behind);
	tcase_add_test(tc, it_counts_only_as_far_as_room_is_promised);
	tcase_add_test(tc, a_slow_store_costs_only_its_part);
	tcase_add_test(tc, a_client_that_goes_while_it_is_asked_leaves_no_pin);
	suite_add_tcase(suite, tc);
	return suite;
}
