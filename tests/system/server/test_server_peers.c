/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that are strangers, leave, fall silent or do not read. */
#include "check_main.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "server_rig.h"

START_TEST(a_lease_of_an_unknown_token_is_refused)
{
	struct rig rig;
	struct wire_peer p;

	rig_up(&rig, 8);
	wire_open(&p, rig.endpoint);
	memcpy(p.lease_path, rig.client.lease_path, sizeof(p.lease_path));
	ck_assert_int_eq(wire_lease(&p), SCOUT_LEASE_GONE);
	wire_close(&p);
	rig_down(&rig);
}
END_TEST

START_TEST(garbage_on_the_lease_connection_ends_it)
{
	struct rig rig;
	char byte;

	rig_up(&rig, 8);
	ck_assert_int_eq(wire_lease(&rig.client), SCOUT_LEASE_OK);
	ck_assert_int_eq(send(rig.client.lease_fd, "nonsense", 8, MSG_NOSIGNAL), 8);
	ck_assert_int_eq(recv(rig.client.lease_fd, &byte, 1, 0), 0);
	ck_assert_int_eq(wire_ping(&rig.client), SCOUT_WIRE_OK);
	rig_down(&rig);
}
END_TEST

START_TEST(goodbye_frees_sessions_and_holds_at_once)
{
	struct rig rig;
	struct wire_peer watcher;
	struct wire_grants g;
	uint64_t id;

	rig_up(&rig, 8);
	wire_open(&watcher, rig.endpoint);
	rig_store(&rig.worker, 0, 1, 4);
	ck_assert_int_eq(wire_lease(&rig.client), SCOUT_LEASE_OK);
	rig_hit(&rig.client, 9, 1, 4);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 2, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 101, 2, &id), 2);
	wire_lease_bye(&rig.client);
	wire_wait_status(&watcher, "l1.bytes_promised", 0);
	ck_assert_uint_eq(wire_status(&watcher, "holds"), 2);
	wire_lease_bye(&rig.worker);
	wire_wait_status(&watcher, "holds", 0);
	ck_assert_uint_eq(wire_status(&watcher, "quarantine"), 0);
	wire_wait_status(&watcher, "peers", 0);
	ck_assert_uint_eq(wire_status(&watcher, "l1.chunks"), 4);
	free(g.grants);
	wire_close(&watcher);
	rig_down(&rig);
}
END_TEST

START_TEST(a_living_process_keeps_its_holds_without_a_connection)
{
	struct scout_server_config cfg = rig_config(4);
	struct rig rig;
	struct wire_peer other, again;
	struct wire_grants g;
	uint64_t id, token;

	cfg.peer_timeout_ms = 100;
	rig_up_with(&rig, &cfg);
	rig.worker.hello.heartbeat_ms = 10;
	ck_assert_int_eq(wire_hello(&rig.worker), SCOUT_WIRE_OK);
	token = rig.worker.hello.token;
	rig_store(&rig.worker, 0, 1, 4);
	rig_hit(&rig.client, 9, 1, 4);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 4, &g), SCOUT_WIRE_OK);
	rig_finish(&rig.client, 9);
	wire_close(&rig.worker);
	/* A client of the same heartbeat, silent since later, is forgotten: so the worker would have been too. */
	wire_open(&other, rig.endpoint);
	other.hello.heartbeat_ms = 10;
	ck_assert_int_eq(wire_hello(&other), SCOUT_WIRE_OK);
	wire_wait_status(&rig.client, "peers.forgotten", 1);
	wire_close(&other);
	ck_assert_uint_eq(wire_status(&rig.client, "holds"), 1);
	rig_worker(&other, rig.endpoint);
	ck_assert_uint_eq(rig_granted(&other, 0, 101, 4, &id), 0);
	/* It comes back and ends its retrieve itself; its segments are sent anew. */
	wire_open(&again, rig.endpoint);
	again.hello.role = SCOUT_ROLE_WORKER;
	again.hello.token = token;
	ck_assert_int_eq(wire_hello(&again), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lease(&again), SCOUT_LEASE_OK);
	ck_assert_uint_eq(wire_generation(&again, &g.grants[0]), g.grants[0].generation);
	ck_assert_int_eq(wire_retrieve_done(&again, g.id, 0), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_granted(&other, 0, 101, 4, &id), 4);
	free(g.grants);
	wire_close(&again);
	wire_close(&other);
	wire_close(&rig.client);
	scout_server_stop(rig.server);
}
END_TEST

START_TEST(what_an_unsendable_answer_promised_is_taken_back)
{
	struct scout__lookup_msg m = {
		.ticket = 9, .n = 5, .expect = 5, .poll_timeout_ms = 60000, .poll_interval_ms = 60000};
	struct wire_peer gone, watcher;
	struct rig rig;

	rig_up(&rig, 8);
	rig_store(&rig.worker, 0, 1, 4);
	wire_open(&watcher, rig.endpoint);
	wire_open(&gone, rig.endpoint);
	gone.hello.heartbeat_ms = 600000; /* silence will not end it */
	ck_assert_int_eq(wire_hello(&gone), SCOUT_WIRE_OK);
	(void)wire_add_lookup(&gone, &m, 1);
	wire_flush(&gone);
	wire_wait_status(&watcher, "ops.waiting", 1);
	wire_wait_status(&watcher, "connections", 4);
	wire_close(&gone);
	wire_wait_status(&watcher, "connections", 3);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 5, 1), 1); /* what it waits for: now it is answered */
	wire_wait_status(&watcher, "replies.undone", 1);
	ck_assert_uint_eq(wire_status(&watcher, "l1.bytes_promised"), 0);
	ck_assert_uint_eq(wire_status(&watcher, "sessions"), 0);
	ck_assert_uint_eq(wire_status(&watcher, "peers"), 3);
	wire_close(&watcher);
	rig_down(&rig);
}
END_TEST

static uint64_t
refused_strangers(struct wire_peer *watcher)
{
	uint64_t n = wire_status(watcher, "refused.no_hello");

	return n == UINT64_MAX ? 0 : n; /* what has not happened is not listed */
}

START_TEST(a_peer_that_does_not_read_loses_what_it_was_not_told)
{
	enum {
		BATCH = 200,
		MOST = 20000
	};
	struct scout_server_config cfg = rig_config(4);
	struct wire_peer deaf, watcher;
	struct rig rig;
	uint64_t ticket = 0;
	uint32_t frames = 0;

	/* Few replies fit into its queue, so many of its lookups cannot be answered. */
	cfg.credits = 1;
	rig_up_with(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 4);
	wire_open(&watcher, rig.endpoint);
	wire_open_hwm(&deaf, rig.endpoint, 1);
	ck_assert_int_eq(wire_hello(&deaf), SCOUT_WIRE_OK);
	/* Answers as large as they get, until no buffer on the way takes any more: then its connection ends. */
	do {
		for (uint32_t i = 0; i < BATCH; i++) {
			(void)wire_begin(&deaf, SCOUT_OP_STATUS);
			(void)wire_end(&deaf);
			(void)wire_add_lookup(&deaf, &(struct scout__lookup_msg){.ticket = ++ticket, .n = 4}, 1);
			wire_flush(&deaf);
		}
		frames += BATCH;
		wait_until(wire_status(&watcher, "ops.lookup") >= frames || wire_status(&watcher, "peers.dropped") > 0)
			;
	} while (wire_status(&watcher, "peers.dropped") == 0 && frames < MOST);
	ck_assert_uint_gt(wire_status(&watcher, "replies.undone"), 0);
	/*
	 * Exactly the sessions whose answers are on their way are left, once the loop has come to undo the others. What came later
	 * came over a new connection, which has not said HELLO.
	 */
	wait_until(wire_status(&watcher, "sessions") + wire_status(&watcher, "replies.undone") +
			   refused_strangers(&watcher) ==
		   wire_status(&watcher, "ops.lookup"))
		;
	wire_close(&deaf);
	wire_close(&watcher);
	rig_down(&rig);
}
END_TEST

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("server_peers");
	TCase *lease = tcase_create("lease");

	tcase_add_test(lease, a_lease_of_an_unknown_token_is_refused);
	tcase_add_test(lease, garbage_on_the_lease_connection_ends_it);
	tcase_add_test(lease, goodbye_frees_sessions_and_holds_at_once);
	tcase_add_test(lease, a_living_process_keeps_its_holds_without_a_connection);
	tcase_add_test(lease, what_an_unsendable_answer_promised_is_taken_back);
	tcase_add_test(lease, a_peer_that_does_not_read_loses_what_it_was_not_told);
	suite_add_tcase(suite, lease);
	return suite;
}
