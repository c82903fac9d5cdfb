/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "fault_rig.h"
#include "given_time.h"

#include <fcntl.h>
#include <unistd.h>

/* What schedulers and kvscoutd, in processes of their own, do in time when one of them fails. C2 is in fault_frozen. */

#define LOOKUPS 20

static struct fault f;

static void
setup(void)
{
	memset(&f, 0, sizeof(f));
}

UNCHECKED_FIXTURE(fault_make_home, NULL);
CHECKED_FIXTURE(setup, NULL);

START_TEST(C5_while_the_server_is_down_lookups_answer_unreachable_at_once)
{
	struct fault_actor *sched;
	struct given_time t;

	f.heartbeat_ms = FAULT_HEARTBEAT_MS;
	fault_up(&f);
	sched = fault_scheduler(&f);
	fault_server_kill(&f);
	/* This one may find out. */
	ck_assert_int_eq(fault_look(sched, "first", 1, 4).reason, SCOUT_REASON_UNREACHABLE);
	(void)fault_ask(sched, "finish first");
	given_time_begin(&t);
	given_time_of(&t, sched->pid);
	for (int i = 0; i < LOOKUPS; i++) {
		ck_assert_int_eq(fault_look(sched, "down", 1, 4).reason, SCOUT_REASON_UNREACHABLE);
		(void)fault_ask(sched, "finish down");
	}
	(void)given_time_within(&t, LOOKUPS * UINT64_C(20000), "twenty lookups without a server");
	fault_server_start(&f);
	fault_wait(&f, "peers", 1);
	fault_down(&f);
}
END_TEST

START_TEST(C2_a_lookup_in_flight_ends_at_once_when_the_server_is_killed)
{
	struct fault_actor *sched;
	struct given_time t;

	f.reply_delay_us = 60000000;
	fault_up(&f);
	sched = fault_scheduler(&f);
	fault_send(sched, "lookup a 1 4 257");
	fault_wait(&f, "ops.lookup", 1);
	given_time_begin(&t);
	given_time_of(&t, sched->pid);
	fault_server_kill(&f);
	ck_assert_int_eq(fault_hit_of(fault_hear(sched)).reason, SCOUT_REASON_UNREACHABLE);
	(void)given_time_within(&t, 700000, "a lookup at a server that is killed");
	(void)fault_ask(sched, "finish a");
	fault_server_start(&f);
	fault_wait(&f, "peers", 1);
	fault_down(&f);
}
END_TEST

START_TEST(S7_a_log_that_nobody_reads_does_not_hold_up_the_end)
{
	struct wire_peer peer;
	struct given_time t;
	int log_pipe[2];

	ck_assert_int_eq(pipe2(log_pipe, O_CLOEXEC), 0);
	ck_assert_int_eq(fcntl(log_pipe[1], F_SETPIPE_SZ, 4096), 4096);
	f.log_fd = log_pipe[1];
	fault_up(&f);
	/* Peers that come and go have lines; so many fill the pipe. */
	wire_open(&peer, f.endpoint);
	for (unsigned i = 0; i < 200; i++) {
		peer.hello.token++;
		ck_assert_int_eq(wire_hello(&peer), SCOUT_WIRE_OK);
		ck_assert_int_eq(wire_lease(&peer), SCOUT_LEASE_OK);
		wire_lease_bye(&peer);
	}
	wire_close(&peer);
	fault_wait(&f, "peers", 0);
	given_time_begin(&t);
	fault_down(&f);
	(void)given_time_within(&t, 10000000, "the end of kvscoutd");
	(void)close(log_pipe[0]);
	(void)close(log_pipe[1]);
}
END_TEST
