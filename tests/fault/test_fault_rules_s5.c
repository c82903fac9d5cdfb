/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "fault_rig.h"

#include <stdio.h>

/*
 * S5: memory under a running copy is never reused. A peer that is alive - stopped, slow or idle - keeps its
 * holds; of one that died, promises and read holds are free at once, and what it was writing is set aside for
 * dead_writer_ms.
 */

static struct fault f;

static void
setup(void)
{
	memset(&f, 0, sizeof(f));
}

/* ---- death ---- */

/* Worker @a has a store of @n chunks of prompt 1 at its gate. */
static void
store_to_the_gate(struct fault_actor *a, uint32_t n)
{
	(void)fault_ask(a, "gate shut");
	fault_enqueued(a, 0, fault_store_begin(a, 0, 1, 1, n, 0));
}

UNCHECKED_FIXTURE(fault_make_home, NULL);
CHECKED_FIXTURE(setup, NULL);

START_TEST(S5_slots_that_a_killed_worker_was_writing_are_set_aside)
{
	struct fault_actor *sched, *writer, *other;
	struct fault_done done;

	f.dead_writer_ms = 600000;
	fault_up_with(&f, &sched, &writer, &other);
	store_to_the_gate(writer, 3);
	fault_kill(writer);
	fault_wait(&f, "quarantine", 1);
	/* Neither for other keys nor for these. */
	done = fault_store(other, 0, 2, 8);
	ck_assert_uint_eq(done.chunks, 5);
	ck_assert_uint_eq(done.no_room, 3);
	ck_assert_uint_eq(fault_store(other, 0, 1, 3).present, 3);
	ck_assert_uint_eq(fault_lookup(sched, "a", 1, 3).chunks, 0);
	(void)fault_ask(sched, "finish a");
	ck_assert_uint_eq(fault_status(&f, "quarantine"), 1);
	/* They are set aside for longer than this test waits: the next server knows nothing of them. */
	fault_server_kill(&f);
	fault_server_start(&f);
	fault_down(&f);
}
END_TEST

START_TEST(S5_slots_that_were_set_aside_are_free_after_dead_writer_ms)
{
	struct fault_actor *writer, *other;
	struct fault_done done;
	uint64_t killed_us;

	f.dead_writer_ms = 1000;
	fault_up(&f);
	writer = fault_worker(&f);
	other = fault_worker(&f);
	store_to_the_gate(writer, 3);
	killed_us = scout__now_us();
	fault_kill(writer);
	fault_wait(&f, "peers.died", 1);
	/* Not "quarantine": that is 0 also between the death and the step that sets the slots aside. */
	fault_wait(&f, "holds", 0);
	ck_assert_uint_ge(scout__now_us() - killed_us, 1000000);
	/* They are as any other. */
	done = fault_store(other, 0, 3, 8);
	ck_assert_uint_eq(done.chunks, 8);
	done = fault_store(other, 0, 1, 3);
	ck_assert_uint_eq(done.chunks, 3);
	fault_down(&f);
}
END_TEST

START_TEST(S5_slots_that_a_killed_worker_was_reading_are_free_at_once)
{
	struct fault_actor *sched, *reader, *other;
	struct fault_hit hit;

	f.dead_writer_ms = 600000;
	fault_up_with(&f, &sched, &reader, &other);
	ck_assert_uint_eq(fault_store(reader, 0, 1, 5).chunks, 5);
	hit = fault_lookup(sched, "a", 1, 5);
	(void)fault_ask(reader, "gate shut");
	fault_enqueued(reader, 0, fault_retrieve_begin(reader, 0, hit.ticket, 0, 20));
	(void)fault_ask(sched, "finish a");
	fault_wait(&f, "sessions", 0);
	ck_assert_uint_eq(fault_pressure(&f, other, 1), 5);
	fault_kill(reader);
	fault_wait(&f, "holds", 0);
	ck_assert_uint_eq(fault_status(&f, "quarantine"), 0);
	ck_assert_uint_eq(fault_pressure(&f, other, 1), 0);
	fault_down(&f);
}
END_TEST

START_TEST(S5_a_living_forked_child_of_a_killed_worker_keeps_nothing)
{
	struct fault_actor *sched, *worker, *other;
	struct fault_hit hit;
	int child, code;

	fault_up_with(&f, &sched, &worker, &other);
	ck_assert_uint_eq(fault_store(worker, 0, 1, 4).chunks, 4);
	hit = fault_lookup(sched, "a", 1, 4);
	(void)fault_ask(worker, "gate shut");
	fault_enqueued(worker, 0, fault_retrieve_begin(worker, 0, hit.ticket, 0, 16));
	fault_enqueued(worker, 0, fault_store_begin(worker, 0, 2, 2, 2, 0));
	ck_assert_int_eq(sscanf(fault_ask(worker, "fork"), "%d %d", &child, &code), 2);
	ck_assert_int_eq(code, SCOUT_ERR_FORKED);
	(void)fault_ask(sched, "finish a");
	/* The child is not the worker: as long as that lives, all is held. */
	ck_assert_uint_gt(fault_pressure(&f, other, 2), 0);
	ck_assert_uint_eq(fault_status(&f, "holds"), 2);
	fault_kill(worker);
	fault_wait(&f, "peers.died", 1);
	/* It has every descriptor of its parent, and lives. */
	fault_wait(&f, "holds", 0);
	ck_assert_int_eq(kill(child, 0), 0);
	ck_assert_uint_eq(fault_pressure(&f, other, 1), 0);
	fault_down(&f);
}
END_TEST

START_TEST(S5_promises_of_a_killed_scheduler_are_free_at_once)
{
	struct fault_actor *sched, *worker;

	fault_up_with(&f, &sched, &worker, NULL);
	ck_assert_uint_eq(fault_store(worker, 0, 1, 4).chunks, 4);
	ck_assert_uint_eq(fault_store(worker, 0, 2, 4).chunks, 4);
	ck_assert_uint_eq(fault_lookup(sched, "a", 1, 4).chunks, 4);
	ck_assert_uint_eq(fault_lookup(sched, "b", 2, 4).chunks, 4);
	(void)fault_ask(sched, "admit b 64 128");
	fault_wait(&f, "l1.bytes_promised", 5 * FAULT_SHARD_BYTES);
	ck_assert_uint_eq(fault_pressure(&f, worker, 1), 5);
	fault_kill(sched);
	fault_wait(&f, "l1.bytes_promised", 0);
	fault_wait(&f, "sessions", 0);
	ck_assert_uint_eq(fault_pressure(&f, worker, 1), 0);
	fault_down(&f);
}
END_TEST

START_TEST(S5_a_scheduler_with_a_living_forked_child_is_dead_when_it_is_killed)
{
	struct fault_actor *sched, *worker;
	int child, code;

	fault_up_with(&f, &sched, &worker, NULL);
	ck_assert_uint_eq(fault_store(worker, 0, 1, 4).chunks, 4);
	ck_assert_uint_eq(fault_lookup(sched, "a", 1, 4).chunks, 4);
	ck_assert_int_eq(sscanf(fault_ask(sched, "fork"), "%d %d", &child, &code), 2);
	fault_kill(sched);
	fault_wait(&f, "l1.bytes_promised", 0);
	ck_assert_int_eq(kill(child, 0), 0);
	fault_down(&f);
}
END_TEST

/* ---- life ---- */

START_TEST(S5_a_stopped_worker_keeps_its_holds_past_every_timer_and_reads_right_bytes)
{
	struct fault_actor *sched, *worker, *other;
	uint64_t load, save, end_us;
	struct fault_done done;
	struct fault_hit hit;

	/* All its timers are over while it stands still. */
	f.heartbeat_ms = FAULT_HEARTBEAT_MS;
	f.dead_writer_ms = 100;
	fault_up(&f);
	sched = fault_scheduler(&f);
	other = fault_worker(&f); /* its stores have all the time that they need */
	f.transfer_timeout_ms = 10 * FAULT_HEARTBEAT_MS;
	worker = fault_worker(&f);
	ck_assert_uint_eq(fault_store(worker, 0, 1, 3).chunks, 3);
	hit = fault_lookup(sched, "a", 1, 3);
	(void)fault_ask(worker, "gate shut");
	load = fault_retrieve_begin(worker, 0, hit.ticket, 0, 12);
	save = fault_store_begin(worker, 0, 2, 2, 2, 0);
	fault_enqueued(worker, 0, load);
	fault_enqueued(worker, 0, save);
	(void)fault_ask(sched, "finish a");
	fault_wait(&f, "sessions", 0);
	fault_freeze(worker);
	end_us = scout__now_us() + 2 * FAULT_FORGOTTEN_US;
	do {
		/* 3 slots are left to the others, each time. */
		ck_assert_uint_eq(fault_pressure(&f, other, 1), 5);
		ck_assert_uint_eq(fault_status(&f, "holds"), 2);
	} while (scout__now_us() < end_us);
	ck_assert_uint_eq(fault_status(&f, "quarantine"), 0);
	fault_thaw(worker);
	ck_assert_str_eq(fault_ask(worker, "ended 0"), "0");
	(void)fault_ask(worker, "gate open");
	for (int i = 0; i < 2; i++) {
		done = fault_wait_done(worker, 0);
		ck_assert_msg(done.status == 0, "%s", scout_err_name(done.status));
		if (done.job == load)
			fault_check_all(worker, 0, &done, 1, 0, 12);
		else
			ck_assert_uint_eq(done.chunks, 2);
	}
	/* What it wrote is there, and what it read is not held any more. */
	fault_wait(&f, "holds", 0);
	hit = fault_lookup(sched, "b", 2, 2);
	ck_assert_uint_eq(hit.chunks, 2);
	done = fault_retrieve(other, 0, hit.ticket, 0, 8);
	fault_check_all(other, 0, &done, 2, 0, 8);
	(void)fault_ask(sched, "finish b");
	ck_assert_uint_eq(fault_status(&f, "peers.died"), 0);
	ck_assert_uint_eq(fault_status(&f, "peers.forgotten"), 0);
	fault_down(&f);
}
END_TEST

START_TEST(S5_a_stopped_scheduler_keeps_its_promises)
{
	struct fault_actor *sched, *worker, *other;
	struct fault_done done;
	struct fault_hit hit;
	uint64_t end_us;

	f.heartbeat_ms = FAULT_HEARTBEAT_MS;
	fault_up_with(&f, &sched, &worker, &other);
	ck_assert_uint_eq(fault_store(worker, 0, 1, 4).chunks, 4);
	hit = fault_lookup(sched, "a", 1, 4);
	fault_freeze(sched);
	end_us = scout__now_us() + FAULT_FORGOTTEN_US;
	do
		ck_assert_uint_eq(fault_pressure(&f, other, 1), 4);
	while (scout__now_us() < end_us);
	fault_thaw(sched);
	done = fault_retrieve(worker, 0, hit.ticket, 0, 16);
	fault_check_all(worker, 0, &done, 1, 0, 16);
	(void)fault_ask(sched, "finish a");
	fault_down(&f);
}
END_TEST

START_TEST(S5_an_idle_worker_is_not_declared_dead)
{
	struct fault_actor *sched, *worker;
	uint64_t joined, until_ms;
	struct fault_done done;
	struct fault_hit hit;

	f.heartbeat_ms = FAULT_HEARTBEAT_MS;
	fault_up_with(&f, &sched, &worker, NULL);
	ck_assert_uint_eq(fault_store(worker, 0, 1, 4).chunks, 4);
	hit = fault_lookup(sched, "a", 1, 4);
	joined = fault_status(&f, "peers.joined");
	until_ms = fault_status(&f, "uptime_ms") + FAULT_FORGOTTEN_US / 1000;
	while (fault_status(&f, "uptime_ms") < until_ms)
		ck_assert_uint_eq(fault_status(&f, "peers"), 2);
	ck_assert_uint_eq(fault_status(&f, "peers.joined"), joined);
	ck_assert_uint_eq(fault_status(&f, "peers.left"), 0);
	/* Its first load after that works at once. */
	done = fault_retrieve(worker, 0, hit.ticket, 0, 16);
	fault_check_all(worker, 0, &done, 1, 0, 16);
	(void)fault_ask(sched, "finish a");
	fault_down(&f);
}
END_TEST

START_TEST(S5_a_lease_connection_that_ends_ends_no_hold_of_a_living_worker)
{
	struct fault_actor *sched, *other;
	struct wire_grants load, save;
	struct wire_peer bare;
	uint64_t until_ms;

	fault_up_with(&f, &sched, &other, NULL);
	fault_bare_worker(&f, &bare);
	ck_assert_uint_eq(fault_store(other, 0, 1, 4).chunks, 4);
	ck_assert_int_eq(wire_retrieve(&bare, fault_lookup(sched, "a", 1, 4).ticket, 0, 4, &load), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_store(&bare, 0, 1, 2, &save), SCOUT_WIRE_OK);
	(void)fault_ask(sched, "finish a");
	bare.hello.heartbeat_ms = 10;
	ck_assert_int_eq(wire_hello(&bare), SCOUT_WIRE_OK);
	wire_lease_close(&bare);
	fault_wait(&f, "leases", 2);
	until_ms = fault_status(&f, "uptime_ms") + FAULT_FORGOTTEN_US / 1000;
	while (fault_status(&f, "uptime_ms") < until_ms)
		ck_assert_uint_eq(fault_pressure(&f, other, 1), 6);
	ck_assert_uint_eq(fault_status(&f, "holds"), 2);
	/* With a new connection it says what became of them. */
	ck_assert_int_eq(wire_hello(&bare), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lease(&bare), SCOUT_LEASE_OK);
	ck_assert_int_eq(wire_retrieve_done(&bare, load.id, 0), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_store_done(&bare, save.id, 2, 0, &(uint32_t){0}), SCOUT_WIRE_OK);
	ck_assert_uint_eq(fault_pressure(&f, other, 1), 0);
	free(load.grants);
	free(save.grants);
	wire_lease_bye(&bare);
	wire_close(&bare);
	fault_down(&f);
}
END_TEST

START_TEST(S5_a_goodbye_is_heard_also_when_segments_were_not_read)
{
	struct fault_actor *other;
	struct wire_grants g;
	struct wire_peer bare;

	fault_up(&f);
	other = fault_worker(&f);
	ck_assert_uint_eq(fault_store(other, 0, 1, 4).chunks, 4);
	fault_bare_worker(&f, &bare);
	ck_assert_int_eq(wire_store(&bare, 0, 1, 4, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, 4);
	/* The segment lies in its socket when it closes. */
	wire_lease_bye(&bare);
	wire_close(&bare);
	fault_wait(&f, "holds", 0);
	ck_assert_uint_eq(fault_status(&f, "quarantine"), 0);
	ck_assert_uint_eq(fault_pressure(&f, other, 1), 0);
	free(g.grants);
	fault_down(&f);
}
END_TEST

START_TEST(S5_a_client_that_closes_and_opens_again_leaves_nothing_behind)
{
	struct fault_actor *sched, *worker, *other;
	struct fault_done done;
	struct fault_hit hit;

	fault_up_with(&f, &sched, &worker, &other);
	ck_assert_uint_eq(fault_store(worker, 0, 1, 4).chunks, 4);
	for (int i = 0; i < 10; i++) {
		/* The same id, a new client: never the old one's answer. */
		hit = fault_lookup(sched, "a", i % 2 ? 9 : 1, 4);
		ck_assert_uint_eq(hit.chunks, i % 2 ? 0 : 4);
		(void)fault_ask(sched, "client_close");
		fault_wait(&f, "sessions", 0);
		fault_wait(&f, "l1.bytes_promised", 0);
		(void)fault_ask(sched, "worker 0");
		ck_assert_uint_eq(fault_store(sched, 0, 1, 4).present, 4);
		(void)fault_ask(sched, "worker_close 0");
		(void)fault_ask(sched, "client");
		fault_wait(&f, "peers", 3);
	}
	hit = fault_lookup(sched, "a", 1, 4);
	done = fault_retrieve(worker, 0, hit.ticket, 0, 16);
	fault_check_all(worker, 0, &done, 1, 0, 16);
	(void)fault_ask(sched, "finish a");
	ck_assert_uint_eq(fault_pressure(&f, other, 1), 0);
	ck_assert_uint_eq(fault_status(&f, "peers.died"), 0);
	fault_down(&f);
}
END_TEST
