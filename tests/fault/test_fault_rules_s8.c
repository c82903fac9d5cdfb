/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "fault_rig.h"

#include <stdio.h>

/*
 * S8: after a restart of the server everybody finds it again by himself, and nothing of before is served. A
 * weights update makes everything older unreadable at once, what is in flight too.
 */

static struct fault f;
static struct fault_actor *sched, *worker, *other;

static void
setup(void)
{
	memset(&f, 0, sizeof(f));
}

/* A scheduler and two workers; prompt 1 is stored. */
static void
up_with_prompt(void)
{
	fault_up_with(&f, &sched, &worker, &other);
	ck_assert_uint_eq(fault_store(worker, 0, 1, 4).chunks, 4);
}

/* Look prompt 1 up until the new server says that it does not have it; nobody may say anything else. */
static void
look_until_miss(void)
{
	struct fault_hit hit = fault_lookup(sched, "again", 1, 4);

	ck_assert_uint_eq(hit.tokens, 0);
	ck_assert_msg(hit.reason == SCOUT_REASON_MISS, "%s, %s", scout_reason_name(hit.reason),
		      scout_err_name(hit.error));
	(void)fault_ask(sched, "finish again");
}

/* Store until it is a hit: the worker registers anew by itself. */
static void
store_until_good(struct fault_actor *a, uint32_t prompt)
{
	struct fault_done done;

	wait_until((done = fault_store(a, 0, prompt, 4)).status == 0)
		ck_assert_msg(done.status == SCOUT_ERR_UNREACHABLE || done.status == SCOUT_ERR_EPOCH, "%s",
			      scout_err_name(done.status));
	ck_assert_uint_eq(done.chunks, 4);
}

static void
check_served(uint32_t prompt)
{
	struct fault_hit hit = fault_lookup(sched, "served", prompt, 4);
	struct fault_done done;

	ck_assert_uint_eq(hit.chunks, 4);
	done = fault_retrieve(other, 0, hit.ticket, 0, 16);
	fault_check_all(other, 0, &done, prompt, 0, 16);
	(void)fault_ask(sched, "finish served");
}

static void
all_works_again(void)
{
	look_until_miss();
	store_until_good(worker, 1);
	store_until_good(other, 2);
	check_served(1);
	check_served(2);
}

/* ---- restart ---- */

UNCHECKED_FIXTURE(fault_make_home, NULL);
CHECKED_FIXTURE(setup, NULL);

START_TEST(S8_a_restart_faster_than_a_heartbeat_is_noticed_by_its_epoch)
{
	struct fault_hit hit;
	struct fault_done done;
	unsigned up, epochs;

	f.heartbeat_ms = 10000;
	up_with_prompt();
	hit = fault_lookup(sched, "old", 1, 4);
	ck_assert_uint_eq(hit.chunks, 4);
	fault_server_kill(&f);
	fault_server_start(&f);
	all_works_again();
	ck_assert_int_eq(sscanf(fault_ask(sched, "stats"), "%u %u", &up, &epochs), 2);
	ck_assert_uint_eq(up, 1);
	ck_assert_uint_eq(epochs, 1);
	/* A ticket of before names nothing, though its keys are there again. */
	done = fault_retrieve(worker, 0, hit.ticket, 0, 16);
	assert_rc(done.status, SCOUT_ERR_NO_SESSION);
	ck_assert_uint_eq(done.n_missing, 16);
	(void)fault_ask(sched, "finish old");
	fault_down(&f);
}
END_TEST

START_TEST(S8_while_the_server_is_down_lookups_answer_unreachable)
{
	uint64_t end_us;
	uint32_t n = 0;

	f.heartbeat_ms = FAULT_HEARTBEAT_MS;
	up_with_prompt();
	fault_server_kill(&f);
	/* For many heartbeats and attempts to connect. */
	end_us = scout__now_us() + FAULT_FORGOTTEN_US;
	do {
		struct fault_hit hit = fault_look(sched, "down", 1, 4);

		ck_assert_uint_eq(hit.tokens, 0);
		assert_reason(hit.reason, SCOUT_REASON_UNREACHABLE);
		(void)fault_ask(sched, "finish down");
		n++;
	} while (n < 100 || scout__now_us() < end_us);
	assert_rc(fault_store(worker, 0, 3, 4).status, SCOUT_ERR_UNREACHABLE);
	fault_server_start(&f);
	all_works_again();
	fault_down(&f);
}
END_TEST

START_TEST(S8_a_lookup_in_flight_ends_when_the_server_is_killed)
{
	struct fault_hit hit;

	f.reply_delay_us = 60000000;
	fault_up(&f);
	sched = fault_scheduler(&f);
	fault_send(sched, "lookup a 1 4 257");
	fault_wait(&f, "ops.lookup", 1);
	fault_server_kill(&f);
	hit = fault_hit_of(fault_hear(sched));
	ck_assert_uint_eq(hit.tokens, 0);
	assert_reason(hit.reason, SCOUT_REASON_UNREACHABLE);
	(void)fault_ask(sched, "finish a");
	fault_server_start(&f);
	fault_wait(&f, "peers", 1);
	fault_down(&f);
}
END_TEST

START_TEST(S8_a_retrieve_over_a_restart_ends_with_right_bytes_or_names_its_blocks)
{
	struct fault_done done;
	struct fault_hit hit;

	up_with_prompt();
	hit = fault_lookup(sched, "a", 1, 4);
	(void)fault_ask(worker, "gate shut");
	fault_enqueued(worker, 0, fault_retrieve_begin(worker, 0, hit.ticket, 0, 16));
	fault_server_kill(&f);
	fault_server_start(&f);
	look_until_miss();
	store_until_good(other, 2);
	(void)fault_pressure(&f, other, 4);
	(void)fault_ask(worker, "gate open");
	done = fault_wait_done(worker, 0);
	ck_assert_msg(done.status == 0 || done.status == SCOUT_ERR_EPOCH, "%s", scout_err_name(done.status));
	if (done.status == 0)
		fault_check_all(worker, 0, &done, 1, 0, 16);
	else
		ck_assert_uint_eq(done.n_missing, 16);
	store_until_good(worker, 1);
	check_served(1);
	(void)fault_ask(sched, "finish a");
	ck_assert_uint_eq(fault_status(&f, "bugs.mismatches"), 0);
	fault_down(&f);
}
END_TEST

START_TEST(S8_a_store_over_a_restart_is_not_readable_afterwards)
{
	struct fault_done done;

	up_with_prompt();
	(void)fault_ask(worker, "gate shut");
	fault_enqueued(worker, 0, fault_store_begin(worker, 0, 3, 3, 4, 0));
	fault_server_kill(&f);
	fault_server_start(&f);
	look_until_miss();
	store_until_good(other, 2);
	(void)fault_ask(worker, "gate open");
	done = fault_wait_done(worker, 0);
	ck_assert_msg(done.status == SCOUT_ERR_EPOCH || done.status == SCOUT_ERR_UNREACHABLE, "%s",
		      scout_err_name(done.status));
	ck_assert_uint_eq(done.chunks, 0);
	ck_assert_uint_eq(fault_lookup(sched, "a", 3, 4).chunks, 0);
	(void)fault_ask(sched, "finish a");
	store_until_good(worker, 3);
	check_served(3);
	fault_down(&f);
}
END_TEST

START_TEST(S8_many_restarts_in_a_row_lose_nobody)
{
	fault_up_with(&f, &sched, &worker, &other);
	for (int i = 0; i < 5; i++) {
		fault_server_kill(&f);
		fault_server_start(&f);
		if (i % 2 == 0)
			all_works_again();
	}
	fault_wait(&f, "peers", 3);
	fault_wait(&f, "leases", 3);
	fault_down(&f);
}
END_TEST

/* ---- weights ---- */

START_TEST(S8_reset_between_reserve_and_commit_is_not_readable_after)
{
	struct fault_done done;

	fault_up_with(&f, &sched, &worker, &other);
	(void)fault_ask(worker, "gate shut");
	fault_enqueued(worker, 0, fault_store_begin(worker, 0, 1, 1, 4, 0));
	(void)fault_ask(sched, "reset 7");
	fault_wait(&f, "ns.rig.weights", 7);
	/* The same keys under the new weights are others, and may be stored meanwhile. */
	(void)fault_store_begin(other, 0, 1, 51, 2, 0);
	ck_assert_uint_eq(fault_wait_done(other, 0).chunks, 2);
	(void)fault_ask(worker, "gate open");
	done = fault_wait_done(worker, 0);
	ck_assert(done.status == 0 || done.status == SCOUT_ERR_WEIGHTS);
	ck_assert_uint_eq(done.chunks, 0);
	fault_wait(&f, "holds", 0);
	/* Only those two, with the bytes of the new weights. */
	ck_assert_uint_eq(fault_status(&f, "l1.chunks"), 2);
	ck_assert_uint_eq(fault_pressure(&f, worker, 1), 0);
	(void)fault_store_begin(other, 0, 1, 51, 4, 0);
	(void)fault_wait_done(other, 0);
	done = fault_retrieve(other, 0, fault_lookup(sched, "a", 1, 4).ticket, 0, 16);
	fault_check_all(other, 0, &done, 51, 0, 16);
	(void)fault_ask(sched, "finish a");
	fault_down(&f);
}
END_TEST

START_TEST(S8_reset_makes_everything_older_unreadable_at_once)
{
	struct wire_peer bare;
	struct fault_done done;
	struct fault_hit hit;

	up_with_prompt();
	fault_bare_client(&f, &bare);
	hit = fault_lookup(sched, "a", 1, 4);
	ck_assert_uint_eq(fault_bare_lookup(&bare, 1, 1, 4), 4);
	ck_assert_int_eq(wire_simple(&bare, SCOUT_OP_RESET, 7), SCOUT_WIRE_OK);
	/* From the reply on. */
	ck_assert_uint_eq(fault_bare_lookup(&bare, 2, 1, 4), 0);
	done = fault_retrieve(worker, 0, hit.ticket, 0, 16);
	ck_assert(done.status == SCOUT_ERR_NO_SESSION || done.status == SCOUT_ERR_WEIGHTS);
	ck_assert_uint_eq(done.n_missing, 16);
	fault_check_pages(worker, 0, &done, 1, 0, 16);
	fault_wait(&f, "l1.bytes_promised", 0);
	fault_wait(&f, "l1.chunks", 0);
	fault_wait(&f, "sessions", 1); /* the last lookup's */
	/* The answer that the scheduler has is worth nothing, and its end is harmless. */
	(void)fault_try(sched, "admit a 0 64");
	(void)fault_ask(sched, "finish a");
	ck_assert_uint_eq(fault_store(worker, 0, 1, 4).chunks, 4);
	check_served(1);
	ck_assert_int_eq(wire_simple(&bare, SCOUT_OP_FINISH, 2), SCOUT_WIRE_OK);
	wire_lease_bye(&bare);
	wire_close(&bare);
	fault_down(&f);
}
END_TEST

START_TEST(S8_a_store_of_a_session_of_the_old_weights_is_refused_however_late)
{
	struct wire_peer bare;
	struct fault_done done;
	struct fault_hit hit;

	fault_up_with(&f, &sched, &worker, NULL);
	fault_bare_client(&f, &bare);
	hit = fault_lookup(sched, "a", 1, 4);
	ck_assert_uint_ne(hit.ticket, 0);
	ck_assert_int_eq(wire_simple(&bare, SCOUT_OP_RESET, 7), SCOUT_WIRE_OK);
	/* Twice: before the old session is swept away, if it can be, and after that. The worker has no version of its own. */
	for (int i = 0; i < 2; i++) {
		(void)fault_store_begin(worker, 0, 1, 1, 4, hit.ticket);
		done = fault_wait_done(worker, 0);
		ck_assert_msg(done.status == SCOUT_ERR_WEIGHTS, "%s", scout_err_name(done.status));
		ck_assert_uint_eq(done.chunks, 0);
		fault_wait(&f, "sessions", 0);
	}
	ck_assert_uint_eq(fault_status(&f, "l1.chunks"), 0);
	(void)fault_ask(sched, "finish a");
	/* Of a request of the new weights it is good. */
	hit = fault_lookup(sched, "b", 1, 4);
	(void)fault_store_begin(worker, 0, 1, 51, 4, hit.ticket);
	ck_assert_uint_eq(fault_wait_done(worker, 0).chunks, 4);
	(void)fault_ask(sched, "finish b");
	wire_lease_bye(&bare);
	wire_close(&bare);
	fault_down(&f);
}
END_TEST

START_TEST(S8_an_answer_of_the_old_weights_is_not_served)
{
	struct wire_peer bare;
	struct fault_hit hit;

	f.reply_delay_us = 60000000;
	up_with_prompt();
	fault_bare_client(&f, &bare);
	fault_send(sched, "lookup a 1 4 257");
	fault_wait(&f, "l1.bytes_promised", 4 * FAULT_SHARD_BYTES);
	ck_assert_int_eq(wire_simple(&bare, SCOUT_OP_RESET, 7), SCOUT_WIRE_OK);
	hit = fault_hit_of(fault_hear(sched));
	ck_assert_uint_eq(hit.tokens, 0);
	assert_reason(hit.reason, SCOUT_REASON_REFUSED);
	assert_rc(hit.error, SCOUT_ERR_WEIGHTS);
	fault_wait(&f, "l1.bytes_promised", 0);
	(void)fault_ask(sched, "finish a");
	wire_lease_bye(&bare);
	wire_close(&bare);
	fault_down(&f);
}
END_TEST

START_TEST(S8_peers_of_an_older_weights_version_neither_read_nor_write)
{
	struct fault_actor *late, *new_sched, *new_worker;
	struct wire_peer bare;
	struct fault_done done;
	struct fault_hit hit;

	fault_up(&f);
	sched = fault_actor_of(&f, 1);
	worker = fault_actor_of(&f, 1);
	(void)fault_ask(sched, "client");
	(void)fault_ask(worker, "worker 0");
	ck_assert_uint_eq(fault_store(worker, 0, 1, 4).chunks, 4);
	ck_assert_uint_eq(fault_lookup(sched, "a", 1, 4).chunks, 4);
	(void)fault_ask(sched, "finish a");
	fault_bare_client(&f, &bare);
	ck_assert_int_eq(wire_simple(&bare, SCOUT_OP_RESET, 2), SCOUT_WIRE_OK);
	/* A store of the old bytes, which nobody may read under the new weights. */
	done = fault_store(worker, 0, 1, 4);
	ck_assert_msg(done.status == SCOUT_ERR_WEIGHTS, "%s", scout_err_name(done.status));
	ck_assert_uint_eq(done.chunks, 0);
	hit = fault_lookup(sched, "b", 1, 4);
	ck_assert_uint_eq(hit.tokens, 0);
	assert_rc(hit.error, SCOUT_ERR_WEIGHTS);
	(void)fault_ask(sched, "finish b");
	late = fault_actor_of(&f, 1);
	ck_assert_ptr_nonnull(strstr(fault_try(late, "client"), "SCOUT_ERR_WEIGHTS"));
	new_sched = fault_actor_of(&f, 2);
	new_worker = fault_actor_of(&f, 2);
	(void)fault_ask(new_sched, "client");
	(void)fault_ask(new_worker, "worker 0");
	ck_assert_uint_eq(fault_lookup(new_sched, "c", 1, 4).chunks, 0);
	(void)fault_ask(new_sched, "finish c");
	(void)fault_store_begin(new_worker, 0, 1, 51, 4, 0);
	ck_assert_uint_eq(fault_wait_done(new_worker, 0).chunks, 4);
	done = fault_retrieve(new_worker, 0, fault_lookup(new_sched, "d", 1, 4).ticket, 0, 16);
	fault_check_all(new_worker, 0, &done, 51, 0, 16);
	(void)fault_ask(new_sched, "finish d");
	wire_lease_bye(&bare);
	wire_close(&bare);
	fault_down(&f);
}
END_TEST

START_TEST(S8_a_peer_of_another_protocol_version_is_told_so)
{
	uint8_t frame[128];
	struct scout__writer w = {.buf = frame, .cap = sizeof(frame)};
	struct wire_reply *reply;
	struct wire_peer old;
	size_t op;

	fault_up(&f);
	wire_open(&old, f.endpoint);
	scout__frame_begin(&w);
	op = scout__op_begin(&w, SCOUT_OP_PING, SCOUT_KIND_REQUEST, 0, 1, 0);
	scout__op_end(&w, op);
	scout__frame_end(&w, 1, 0, scout__now_us());
	frame[4]--; /* the version's low byte: the release before */
	wire_raw(&old, frame, w.len, false);
	reply = wire_wait(&old, 0);
	ck_assert_uint_eq(reply->opcode, SCOUT_OP_ERROR);
	ck_assert_uint_eq(reply->status, SCOUT_WIRE_BAD_VERSION);
	ck_assert_ptr_nonnull(strstr(old.text, "protocol version 2"));
	ck_assert_ptr_nonnull(strstr(old.text, "speaks version 3: upgrade the peer"));
	wire_reply_free(reply);
	ck_assert_uint_eq(fault_status(&f, "frames.bad"), 1);
	wire_close(&old);
	fault_down(&f);
}
END_TEST
