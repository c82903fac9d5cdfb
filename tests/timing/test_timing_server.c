/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "given_time.h"
#include "server_rig.h"

/* What the server promises to do in time. It runs in this process, so the delays of its threads count out, too. */

/* S6, S1: the budget of a lookup bounds its answer, whatever else the server waits for. */
START_TEST(a_lookup_is_answered_when_its_budget_ends)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout__lookup_reply m;
	struct given_time t;
	struct rig rig;

	cfg.reply_delay_us = 60000000;
	rig_up_with(&rig, &cfg);
	rig.client.budget_us = 50000;
	given_time_begin(&t);
	ck_assert_int_eq(wire_lookup(&rig.client, 1, 1, 1, 0, &m), SCOUT_WIRE_OK);
	(void)given_time_within(&t, 500000, "the answer to a lookup of 50 ms");
	rig_down(&rig);
}
END_TEST

START_TEST(stop_with_running_operations_is_bounded)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout__lookup_msg m = {.ticket = 9, .n = 4};
	struct given_time t;
	struct rig rig;
	uint64_t id;

	cfg.reply_delay_us = 60000000;
	rig_up_with(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 4);
	rig_granted(&rig.worker, 0, 11, 4, &id);
	(void)wire_add_lookup(&rig.client, &m, 1);
	wire_flush(&rig.client);
	ck_assert_int_eq(wire_ping(&rig.client), SCOUT_WIRE_OK);
	given_time_begin(&t);
	scout_server_stop(rig.server);
	(void)given_time_within(&t, 5000000, "the stop of a server with a lookup, a store and a hold");
	wire_close(&rig.client);
	wire_close(&rig.worker);
}
END_TEST

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("timing_server");
	TCase *tc = tcase_create("timing");

	tcase_add_test(tc, a_lookup_is_answered_when_its_budget_ends);
	tcase_add_test(tc, stop_with_running_operations_is_bounded);
	suite_add_tcase(suite, tc);
	return suite;
}
