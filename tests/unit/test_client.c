/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check_main.h"
#include "client_priv.h"
#include "client_rig.h"

/* ---- answers ---- */

START_TEST(first_call_is_not_yet_then_the_hit)
{
	struct scout_lookup q = rig_question("r1", 8);
	struct scout_hit hit;

	fake_set_hit(fake, 5);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	hit = rig_answer("r1", 8);
	ck_assert_uint_eq(hit.tokens, 5 * RIG_CHUNK);
	ck_assert_uint_eq(hit.chunks, 5);
	ck_assert_uint_eq(hit.l1_chunks, 5);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_HIT);
	ck_assert_int_eq(hit.error, 0);
	ck_assert_uint_eq(hit.ticket, fake_lookup_ticket(fake, 0));
	ck_assert_uint_ne(hit.ticket, 0);
}
END_TEST

START_TEST(asking_twice_gives_the_same_answer_and_one_lookup)
{
	struct scout_hit a, b;

	fake_set_hit(fake, 3);
	a = rig_answer("r1", 8);
	fake_set_hit(fake, 7);
	b = rig_answer("r1", 8);
	ck_assert_mem_eq(&a, &b, sizeof(a));
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_LOOKUP), 1);
	ck_assert_uint_eq(rig_stats().lookups, 1);
}
END_TEST

START_TEST(last_prompt_token_is_never_part_of_the_hit)
{
	struct scout_lookup q = rig_question("r1", 8);
	struct scout_hit hit;

	fake_set_hit(fake, 8);
	q.prompt_tokens = 8 * RIG_CHUNK;
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_uint_eq(hit.tokens, 8 * RIG_CHUNK - 1);
	ck_assert_uint_eq(hit.chunks, 8);
}
END_TEST

START_TEST(no_full_chunk_is_a_miss_at_once_without_a_lookup)
{
	struct scout_lookup q = rig_question("r1", 0);
	struct scout_hit hit = {0};

	q.hashes = NULL;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
	ck_assert_uint_eq(hit.tokens, 0);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_MISS);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_LOOKUP), 0);
	ck_assert_uint_eq(rig_stats().live, 0);
}
END_TEST

START_TEST(smaller_computed_tokens_starts_a_new_lookup)
{
	struct scout_lookup q = rig_question("r1", 8);
	struct scout_hit hit;

	q.computed_tokens = 2 * RIG_CHUNK;
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	q.computed_tokens = 3 * RIG_CHUNK;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_LOOKUP), 1);
	q.computed_tokens = RIG_CHUNK;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1));
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_LOOKUP), 2);
	ck_assert_uint_eq(fake_finish_ticket(fake, 0), fake_lookup_ticket(fake, 0));
	ck_assert_uint_ne(fake_lookup_ticket(fake, 1), fake_lookup_ticket(fake, 0));
}
END_TEST

START_TEST(polled_mode_waits_for_the_answer)
{
	struct scout_lookup q = rig_question("r1", 8);
	struct scout_hit hit;

	scout_client_free(client);
	rig_client("lookup_mode", "polled");
	fake_set_hit(fake, 2);
	ck_assert_int_eq(scout_lookup(client, &q, &hit), 0);
	ck_assert_uint_eq(hit.chunks, 2);
}
END_TEST

START_TEST(async_mode_does_not_wait)
{
	struct scout_lookup q = rig_question("r1", 8);
	struct scout_hit hit;

	ck_assert_int_eq(scout_lookup(client, &q, &hit), SCOUT_NOT_YET);
}
END_TEST

START_TEST(try_then_wait_is_one_lookup)
{
	struct scout_lookup q = rig_question("r1", 8);
	struct scout_hit hit;

	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_LOOKUP), 1);
}
END_TEST

/* ---- ends that are no answer ---- */

START_TEST(silent_server_is_a_timeout_that_stays_readable)
{
	struct scout_lookup q = rig_question("r1", 8);
	struct scout_hit hit, again;
	uint64_t start, took;

	rig_reopen("lookup_timeout_ms", "300");
	start = scout__now_us();
	fake_script(fake, SCOUT_OP_LOOKUP, FAKE_DROP, 0);
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	took = scout__now_us() - start;
	ck_assert_uint_ge(took, 300000);
	ck_assert_uint_lt(took, 1300000);
	ck_assert_uint_eq(hit.tokens, 0);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_TIMEOUT);
	ck_assert_int_eq(hit.error, SCOUT_ERR_TIMEOUT);
	ck_assert_int_eq(scout_try_lookup(client, &q, &again), 0);
	ck_assert_mem_eq(&hit, &again, sizeof(hit));
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1)); /* what may still be promised is given back */
	ck_assert_uint_eq(fake_finish_ticket(fake, 0), hit.ticket);
}
END_TEST

START_TEST(late_answer_is_dropped_and_given_back)
{
	struct scout_lookup q = rig_question("r1", 8);
	struct scout_hit hit;

	rig_reopen("lookup_timeout_ms", "300");
	fake_set_hit(fake, 8);
	fake_script(fake, SCOUT_OP_LOOKUP, FAKE_HOLD, 0);
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_TIMEOUT);
	fake_release(fake);
	ck_assert_int_eq(scout_finish(client, "r1"), 0);
	hit = rig_answer("r2", 4); /* behind the late one on the same connection */
	ck_assert_uint_eq(hit.chunks, 4);
	ck_assert_uint_eq(rig_stats().late, 1);
	ck_assert_uint_eq(rig_stats().answers, 2);
}
END_TEST

START_TEST(finish_while_pending_then_the_same_id_is_a_new_request)
{
	struct scout_lookup q = rig_question("r1", 8);
	struct scout_hit hit;

	fake_set_hit(fake, 8);
	fake_script(fake, SCOUT_OP_LOOKUP, FAKE_HOLD, 0);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert(fake_wait(fake, SCOUT_OP_LOOKUP, 1));
	ck_assert_int_eq(scout_finish(client, "r1"), 0);
	ck_assert_int_eq(scout_finish(client, "r1"), 0);
	fake_set_hit(fake, 1);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	fake_release(fake);
	hit = rig_answer("r1", 8);
	ck_assert_uint_eq(hit.chunks, 1); /* not the 8 of the first generation */
	ck_assert_uint_eq(hit.ticket, fake_lookup_ticket(fake, 1));
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1));
	ck_assert_uint_eq(fake_finish_ticket(fake, 0), fake_lookup_ticket(fake, 0));
}
END_TEST

START_TEST(refusal_is_an_answer_with_the_servers_error)
{
	struct scout_hit hit;

	fake_script(fake, SCOUT_OP_LOOKUP, FAKE_REFUSE, SCOUT_WIRE_LIMIT);
	hit = rig_answer("r1", 8);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_REFUSED);
	ck_assert_int_eq(hit.error, SCOUT_ERR_LIMIT);
	ck_assert_int_eq(hit.endpoint, 0);
	ck_assert_uint_eq(hit.tokens, 0);
	ck_assert_uint_eq(rig_stats().refused, 1);
}
END_TEST

START_TEST(lost_connection_ends_lookups_at_once_and_it_works_again)
{
	struct scout_lookup q = rig_question("r1", 8);
	struct scout_hit hit;

	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_DROP, 0);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert(fake_wait(fake, SCOUT_OP_LOOKUP, 1));
	fake_unbind(fake);
	hit = rig_answer("r1", 8);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_UNREACHABLE);
	/* While it is gone: at once, without the courier. */
	q = rig_question("r2", 8);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_UNREACHABLE);
	ck_assert_uint_eq(hit.ticket, 0);
	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_ANSWER, 0);
	fake_set_hit(fake, 4);
	fake_bind(fake, true);
	rig_ready();
	/* An answer that was given stays (C3); a new request sees the server. */
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_UNREACHABLE);
	hit = rig_answer("r3", 8);
	ck_assert_uint_eq(hit.chunks, 4);
	ck_assert_uint_eq(rig_stats().epochs, 1);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_LOOKUP), 2); /* nothing was sent again */
}
END_TEST

START_TEST(same_server_start_gets_back_what_a_lost_connection_left)
{
	struct scout_lookup q = rig_question("r1", 8);
	struct scout_hit hit;

	fake_set_hit(fake, 8);
	hit = rig_answer("r1", 8);
	fake_unbind(fake);
	while (rig_stats().servers_up)
		(void)sched_yield();
	ck_assert_int_eq(scout_finish(client, "r1"), 0);
	fake_bind(fake, false);
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1));
	ck_assert_uint_eq(fake_finish_ticket(fake, 0), hit.ticket);
	(void)q;
}
END_TEST

static const enum fake_action broken[] = {FAKE_GARBAGE, FAKE_BAD_EPOCH, FAKE_BAD_VERSION, FAKE_SHORT_BODY,
					  FAKE_BIG_HIT};

START_TEST(broken_reply_never_counts_and_the_next_lookup_works)
{
	struct scout_hit hit;

	fake_set_hit(fake, 8);
	fake_script(fake, SCOUT_OP_LOOKUP, broken[_i], 0);
	hit = rig_answer("r1", 8);
	ck_assert_uint_eq(hit.tokens, 0);
	ck_assert_int_ne(hit.error, 0);
	rig_ready();
	hit = rig_answer("r2", 8);
	ck_assert_uint_eq(hit.chunks, 8);
}
END_TEST

START_TEST(answer_that_comes_twice_is_counted_and_dropped)
{
	struct scout_hit hit;

	fake_set_hit(fake, 8);
	fake_script(fake, SCOUT_OP_LOOKUP, FAKE_TWICE, 0);
	hit = rig_answer("r1", 8);
	ck_assert_uint_eq(hit.chunks, 8);
	hit = rig_answer("r2", 8);
	ck_assert_uint_eq(hit.chunks, 8);
	ck_assert_uint_eq(rig_stats().late, 1);
}
END_TEST

START_TEST(silent_server_is_noticed_by_heartbeat)
{
	struct scout_hit hit;

	rig_reopen("heartbeat_ms", "50");
	fake_always(fake, SCOUT_OP_PING, FAKE_DROP, 0);
	while (rig_stats().servers_up) /* heartbeat 50 ms: some 200 ms */
		(void)sched_yield();
	fake_always(fake, SCOUT_OP_PING, FAKE_ANSWER, 0);
	rig_ready();
	hit = rig_answer("r1", 2);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_MISS);
}
END_TEST

START_TEST(refused_hello_is_a_refused_answer_and_named_by_wait_ready)
{
	char err[256] = "";
	struct scout_hit hit;

	scout_client_free(client);
	fake_script(fake, SCOUT_OP_HELLO, FAKE_REFUSE, SCOUT_WIRE_NAMESPACE);
	rig_client(NULL, NULL);
	ck_assert_int_eq(scout_client_wait_ready(client, 10000, err, sizeof(err)), SCOUT_ERR_NAMESPACE);
	ck_assert_str_eq(err, "refused by the script");
	hit = rig_answer("r1", 2);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_REFUSED);
	ck_assert_int_eq(hit.error, SCOUT_ERR_NAMESPACE);
}
END_TEST

/* ---- admit and finish ---- */

static void
check_admit(int64_t from, int64_t to, uint32_t want_from, uint32_t want_to)
{
	uint32_t got_from = 0, got_to = 0;
	unsigned before = fake_count(fake, SCOUT_OP_ADMIT);

	(void)rig_answer("r1", 8);
	ck_assert_int_eq(scout_admit(client, "r1", from, to), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_ADMIT, before + 1));
	fake_last_admit(fake, &got_from, &got_to);
	if (want_from < want_to) {
		ck_assert_uint_eq(got_from, want_from);
		ck_assert_uint_eq(got_to, want_to);
	} else {
		ck_assert_uint_ge(got_from, got_to);
	}
	ck_assert_int_eq(scout_finish(client, "r1"), 0);
}

START_TEST(admit_rounds_inwards_counts_from_the_end_and_clamps)
{
	fake_set_hit(fake, 8);
	check_admit(256, 1024, 1, 4);
	check_admit(1, 1023, 1, 3);
	check_admit(0, 300, 0, 1);
	check_admit(-512, SCOUT_TO_END, 6, 8);
	check_admit(0, -256, 0, 7);
	check_admit(-300, -1, 7, 7); /* empty */
	check_admit(300, 400, 2, 1); /* empty */
	check_admit(INT64_MIN, 512, 0, 2);
	check_admit(4096, 9999, 8, 8); /* empty: beyond the hit */
}
END_TEST

START_TEST(admitting_the_reported_tokens_keeps_the_last_chunk)
{
	struct scout_lookup q = rig_question("r1", 8);
	struct scout_hit hit;
	uint32_t from, to;

	fake_set_hit(fake, 8);
	q.prompt_tokens = 8 * RIG_CHUNK; /* the hit is one token short of its last chunk */
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_int_eq(scout_admit(client, "r1", 256, (int64_t)hit.tokens), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_ADMIT, 1));
	fake_last_admit(fake, &from, &to);
	ck_assert_uint_eq(from, 1);
	ck_assert_uint_eq(to, 8);
}
END_TEST

START_TEST(admit_before_the_answer_twice_or_of_an_unknown_id_is_a_state_error)
{
	struct scout_lookup q = rig_question("r1", 8);
	struct scout_hit hit;

	ck_assert_int_eq(scout_admit(client, "r1", 0, SCOUT_TO_END), SCOUT_ERR_STATE);
	fake_script(fake, SCOUT_OP_LOOKUP, FAKE_HOLD, 0);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert(fake_wait(fake, SCOUT_OP_LOOKUP, 1));
	ck_assert_int_eq(scout_admit(client, "r1", 0, SCOUT_TO_END), SCOUT_ERR_STATE);
	fake_release(fake);
	(void)rig_answer("r1", 8);
	ck_assert_int_eq(scout_admit(client, "r1", 0, SCOUT_TO_END), 0);
	ck_assert_int_eq(scout_admit(client, "r1", 0, SCOUT_TO_END), SCOUT_ERR_STATE);
}
END_TEST

START_TEST(asking_after_admit_is_a_new_generation)
{
	struct scout_hit a, b;

	fake_set_hit(fake, 4);
	a = rig_answer("r1", 8);
	ck_assert_int_eq(scout_admit(client, "r1", 0, SCOUT_TO_END), 0);
	b = rig_answer("r1", 8);
	ck_assert_uint_ne(a.ticket, b.ticket);
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1));
	ck_assert_uint_eq(fake_finish_ticket(fake, 0), a.ticket);
}
END_TEST

START_TEST(finish_of_an_unknown_id_is_no_error)
{
	ck_assert_int_eq(scout_finish(client, "never seen"), 0);
}
END_TEST

START_TEST(slots_come_back_after_finish)
{
	char id[32];

	for (int i = 0; i < 5000; i++) { /* max_lookups is 1024 */
		snprintf(id, sizeof(id), "r%d", i);
		(void)rig_answer(id, 2);
		ck_assert_int_eq(scout_finish(client, id), 0);
	}
	ck_assert_uint_eq(rig_stats().live, 0);
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 5000));
}
END_TEST

START_TEST(reset_ends_live_requests_and_reaches_the_server)
{
	struct scout_hit hit;

	(void)rig_answer("r1", 2);
	ck_assert_int_eq(scout_reset(client, 0), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_reset(client, 7), 0);
	ck_assert_uint_eq(rig_stats().live, 0);
	ck_assert(fake_wait(fake, SCOUT_OP_RESET, 1));
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_FINISH), 1);
	hit = rig_answer("r2", 2);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_MISS);
	ck_assert_int_eq(scout_reset(client, 8), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_RESET, 2));
}
END_TEST

/* ---- steps ---- */

START_TEST(step_travels_in_one_frame_and_rings_at_most_once)
{
	struct scout_hit hit;
	unsigned frames;
	char id[32];

	(void)rig_answer("warm", 2);
	ck_assert_int_eq(scout_finish(client, "warm"), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1));
	frames = fake_frames(fake);
	uint64_t rings = rig_stats().rings;

	scout_step_begin(client);
	for (int i = 0; i < 64; i++) {
		struct scout_lookup q = rig_question(id, 4);

		snprintf(id, sizeof(id), "r%d", i);
		ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
		/* Long enough for the courier to act on each, if anything woke it. */
		for (uint64_t until = scout__now_us() + 5; scout__now_us() < until;)
			;
	}
	ck_assert_uint_eq(rig_stats().rings, rings);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_LOOKUP), 1);
	scout_step_end(client);
	ck_assert_uint_le(rig_stats().rings, rings + 1);
	ck_assert(fake_wait(fake, SCOUT_OP_LOOKUP, 65));
	ck_assert_uint_ge(fake_max_ops(fake), 64);
	ck_assert_uint_le(fake_frames(fake), frames + 3); /* one, and heartbeats */
}
END_TEST

START_TEST(waiting_inside_a_step_sends_what_is_queued)
{
	struct scout_lookup q = rig_question("r1", 8);
	struct scout_hit hit;

	scout_step_begin(client);
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_MISS);
	scout_step_end(client);
}
END_TEST

START_TEST(submit_outside_a_step_is_sent_at_once)
{
	struct scout_lookup q = rig_question("r1", 8);
	struct scout_hit hit;

	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert(fake_wait(fake, SCOUT_OP_LOOKUP, 1));
}
END_TEST

/* ---- bounds ---- */

START_TEST(more_live_requests_than_max_lookups_is_busy)
{
	struct scout_hit hit;
	char id[32];
	int i, rc = 0;

	scout_client_free(client);
	rig_client("max_lookups", "8");
	rig_ready();
	for (i = 0; i < 9; i++) {
		struct scout_lookup q = rig_question(id, 2);

		snprintf(id, sizeof(id), "r%d", i);
		rc = scout_try_lookup(client, &q, &hit);
		if (i < 8)
			ck_assert_int_eq(rc, SCOUT_NOT_YET);
	}
	ck_assert_int_eq(rc, SCOUT_ERR_BUSY);
	ck_assert_uint_eq(rig_stats().busy, 1);
	ck_assert_int_eq(scout_finish(client, "r3"), 0); /* never refused */
	(void)rig_answer("r8", 2);
}
END_TEST

START_TEST(full_hash_arena_is_busy_and_drains)
{
	struct scout_lookup q;
	struct scout_hit hit;
	char id[32];
	int rc = SCOUT_NOT_YET, n = 0;

	scout_client_free(client);
	rig_client("arena_bytes", "65536");
	rig_ready();
	scout_step_begin(client); /* nothing is sent, so nothing comes back */
	while (rc == SCOUT_NOT_YET) {
		snprintf(id, sizeof(id), "r%d", n++);
		q = rig_question(id, 64); /* 2 KiB */
		rc = scout_try_lookup(client, &q, &hit);
	}
	ck_assert_int_eq(rc, SCOUT_ERR_BUSY);
	ck_assert_int_ge(n, 16);
	ck_assert_int_le(n, 33);
	scout_step_end(client);
	(void)rig_answer("r0", 64);
	(void)rig_answer(id, 64);
}
END_TEST

START_TEST(few_credits_delay_lookups_but_lose_none)
{
	struct scout_hit hit;
	char id[32];

	scout_client_free(client);
	fake_set_credits(fake, 2);
	fake_set_hit(fake, 2);
	rig_client("lookup_timeout_ms", "10000");
	rig_ready();
	for (int i = 0; i < 200; i++) {
		struct scout_lookup q = rig_question(id, 2);

		snprintf(id, sizeof(id), "r%d", i);
		ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	}
	for (int i = 0; i < 200; i++) {
		snprintf(id, sizeof(id), "r%d", i);
		ck_assert_uint_eq(rig_answer(id, 2).chunks, 2);
		ck_assert_int_eq(scout_finish(client, id), 0);
	}
	ck_assert_uint_le(fake_max_ops(fake), 2);
}
END_TEST

START_TEST(queued_lookups_end_at_their_deadline_too)
{
	struct scout_hit hit;
	char id[32];

	scout_client_free(client);
	fake_set_credits(fake, 1);
	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_DROP, 0);
	rig_client("lookup_timeout_ms", "300");
	rig_ready();
	for (int i = 0; i < 20; i++) {
		struct scout_lookup q = rig_question(id, 2);

		snprintf(id, sizeof(id), "r%d", i);
		ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	}
	for (int i = 0; i < 20; i++) {
		snprintf(id, sizeof(id), "r%d", i);
		ck_assert_int_eq(rig_answer(id, 2).reason, SCOUT_REASON_TIMEOUT);
	}
}
END_TEST

/* ---- bad input: each its own code, and nothing changes ---- */

START_TEST(bad_request_ids)
{
	char long_id[SCOUT_MAX_NAME + 2];
	struct scout_lookup q = rig_question("", 2);
	struct scout_hit hit = {.tokens = 77};

	memset(long_id, 'x', sizeof(long_id));
	long_id[sizeof(long_id) - 1] = '\0';
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_REQUEST_ID);
	q.id = NULL;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_REQUEST_ID);
	q.id = long_id;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_REQUEST_ID);
	ck_assert_int_eq(scout_finish(client, ""), SCOUT_ERR_REQUEST_ID);
	ck_assert_int_eq(scout_admit(client, long_id, 0, 1), SCOUT_ERR_REQUEST_ID);
	long_id[SCOUT_MAX_NAME] = '\0'; /* 255 bytes */
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert_uint_eq(hit.tokens, 77);
}
END_TEST

START_TEST(bad_hash_lengths)
{
	struct scout_lookup q = rig_question("r1", 2);
	struct scout_hit hit;

	for (size_t len = 0; len < 70; len++) {
		q.hash_len = len;
		if (len != RIG_HASH)
			ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_HASH_LEN);
	}
	ck_assert_ptr_nonnull(strstr(scout_strerror(SCOUT_ERR_HASH_LEN), "hash_len"));
	ck_assert_uint_eq(rig_stats().live, 0);
}
END_TEST

START_TEST(other_hashes_for_a_live_id)
{
	struct scout_lookup q = rig_question("r1", 8);
	struct scout_hit hit;

	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	q.n = 7;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_STATE);
	q.n = 8;
	q.hashes = rig_hashes + 8; /* other bytes */
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_STATE);
	q.hashes = rig_hashes;
	q.tenant = "other";
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_STATE);
	q.tenant = "";
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
	q.n = 0;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_STATE);
}
END_TEST

START_TEST(bad_arguments)
{
	struct scout_lookup q = rig_question("r1", 8);
	struct scout_client_stats stats = {.size = 4};
	struct scout_hit hit;
	char tenant[300];

	ck_assert_int_eq(scout_try_lookup(NULL, &q, &hit), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_try_lookup(client, NULL, &hit), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_try_lookup(client, &q, NULL), SCOUT_ERR_INVALID);
	q.hashes = NULL;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_INVALID);
	q = rig_question("r1", 8);
	q.prompt_tokens = 8 * RIG_CHUNK - 1; /* the chunks are longer than the prompt */
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_INVALID);
	q = rig_question("r1", 8);
	q.n = SCOUT_MAX_CHUNKS + 1;
	q.prompt_tokens = UINT64_MAX;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_INVALID);
	q = rig_question("r1", 8);
	memset(tenant, 't', sizeof(tenant));
	tenant[256] = '\0';
	q.tenant = tenant;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_TENANT);
	q.tenant = NULL;
	q.size = 8;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_UNSUPPORTED);
	ck_assert_int_eq(scout_client_stats(client, &stats), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_finish(NULL, "x"), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_admit(NULL, "x", 0, 1), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_reset(NULL, 1), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_client_fd(NULL), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_lookup(NULL, &q, &hit), SCOUT_ERR_INVALID);
	ck_assert_uint_eq(rig_stats().live, 0);
}
END_TEST

START_TEST(bad_configurations_name_the_field)
{
	static const struct {
		const char *endpoint;
		uint32_t kv_ranks;
		int rc;
		const char *text;
	} rows[] = {
		{NULL, 1, SCOUT_ERR_INVALID, "endpoint"},
		{"", 1, SCOUT_ERR_CONFIG_RANGE, "endpoint"},
		{"ipc:///tmp/a,", 1, SCOUT_ERR_INVALID, "endpoint"},
		{"nonsense", 1, SCOUT_ERR_INVALID, "nonsense"},
		{"http://x", 1, SCOUT_ERR_INVALID, "http://x"},
		{"ipc:///tmp/a,ipc:///tmp/b", 3, SCOUT_ERR_CONFIG_RANGE, "kv_ranks"},
		{"ipc:///tmp/a", 65, SCOUT_ERR_CONFIG_RANGE, "kv_ranks"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct scout_client *other = (void *)1;
		struct scout_client_config cfg;
		char err[256] = "";

		scout_client_config_init(&cfg);
		cfg.endpoint = rows[i].endpoint;
		cfg.kv_ranks = rows[i].kv_ranks;
		ck_assert_msg(scout_client_new(&cfg, &other, err, sizeof(err)) == rows[i].rc, "row %zu: %s", i, err);
		ck_assert_msg(strstr(err, rows[i].text) != NULL, "row %zu: %s", i, err);
		ck_assert_ptr_eq(other, (void *)1);
	}
}
END_TEST

/* ---- life ---- */

START_TEST(free_with_lookups_in_flight_is_bounded)
{
	struct scout_lookup q = rig_question("r1", 8);
	struct scout_hit hit;
	uint64_t start;

	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_DROP, 0);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert(fake_wait(fake, SCOUT_OP_LOOKUP, 1));
	start = scout__now_us();
	scout_client_free(client);
	ck_assert_uint_lt(scout__now_us() - start, 2000000);
	/* Without a lease, what was asked is given back on the way out. */
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1));
	rig_client(NULL, NULL);
}
END_TEST

START_TEST(forked_child_gets_an_error_and_the_parent_goes_on)
{
	struct scout_lookup q = rig_question("r1", 8);
	struct scout_hit hit;
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		bool ok = scout_try_lookup(client, &q, &hit) == SCOUT_ERR_FORKED &&
			  scout_wait_lookup(client, &q, &hit) == SCOUT_ERR_FORKED &&
			  scout_finish(client, "r1") == SCOUT_ERR_FORKED &&
			  scout_admit(client, "r1", 0, 1) == SCOUT_ERR_FORKED &&
			  scout_reset(client, 1) == SCOUT_ERR_FORKED && scout_client_fd(client) == SCOUT_ERR_FORKED;

		scout_step_begin(client);
		scout_step_end(client);
		scout_client_free(client);
		_exit(ok ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	fake_set_hit(fake, 3);
	ck_assert_uint_eq(rig_answer("r1", 8).chunks, 3);
}
END_TEST

START_TEST(client_fd_is_readable_when_an_answer_lands)
{
	struct scout_lookup q = rig_question("r1", 8);
	struct pollfd p = {.events = POLLIN};
	struct scout_hit hit;

	p.fd = scout_client_fd(client);
	scout_client_fd_clear(client);
	ck_assert_int_eq(poll(&p, 1, 0), 0);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert_int_eq(poll(&p, 1, 10000), 1);
	scout_client_fd_clear(client);
	ck_assert_int_eq(poll(&p, 1, 0), 0);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
}
END_TEST

START_TEST(several_servers_the_hit_is_the_minimum_and_longer_tails_are_given_back)
{
	struct fake_server *other = fake_start();
	struct scout_client_config cfg;
	char list[300], err[256] = "";
	struct scout_hit hit;
	uint32_t from, to;

	scout_client_free(client);
	snprintf(list, sizeof(list), "%s,%s", fake_endpoint(fake), fake_endpoint(other));
	scout_client_config_init(&cfg);
	cfg.endpoint = list;
	cfg.kv_ranks = 2;
	cfg.heartbeat_ms = 1000;
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	rig_ready();
	fake_set_hit(fake, 8);
	fake_set_hit(other, 5);
	hit = rig_answer("r1", 8);
	ck_assert_uint_eq(hit.chunks, 5);
	ck_assert(fake_wait(fake, SCOUT_OP_ADMIT, 1));
	fake_last_admit(fake, &from, &to);
	ck_assert_uint_eq(from, 0);
	ck_assert_uint_eq(to, 5);
	ck_assert_uint_eq(fake_count(other, SCOUT_OP_ADMIT), 0);
	/* One that refuses: 0, its name, and the other's promise is given back. */
	fake_script(other, SCOUT_OP_LOOKUP, FAKE_REFUSE, SCOUT_WIRE_LIMIT);
	hit = rig_answer("r2", 8);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_REFUSED);
	ck_assert_int_eq(hit.endpoint, 1);
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1));
	ck_assert_uint_eq(fake_finish_ticket(fake, 0), hit.ticket);
	fake_unbind(other);
	hit = rig_answer("r3", 8);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_UNREACHABLE);
	ck_assert_int_eq(hit.endpoint, 1);
	fake_stop(other);
}
END_TEST

#ifdef SCOUT_DEBUG
START_TEST(two_threads_in_one_client_abort_a_debug_build)
{
	fake_remove_files(fake);
	atomic_store(&client->busy_check, 1); /* as if another thread were inside a call */
	(void)scout_finish(client, "r1");
}
END_TEST
#endif

Suite *
suite_of_this_file(void)
{
	Suite *s = suite_create("client");
	TCase *tc = tcase_create("client");

	tcase_add_checked_fixture(tc, rig_up, rig_down);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, first_call_is_not_yet_then_the_hit);
	tcase_add_test(tc, asking_twice_gives_the_same_answer_and_one_lookup);
	tcase_add_test(tc, last_prompt_token_is_never_part_of_the_hit);
	tcase_add_test(tc, no_full_chunk_is_a_miss_at_once_without_a_lookup);
	tcase_add_test(tc, smaller_computed_tokens_starts_a_new_lookup);
	tcase_add_test(tc, polled_mode_waits_for_the_answer);
	tcase_add_test(tc, async_mode_does_not_wait);
	tcase_add_test(tc, try_then_wait_is_one_lookup);
	tcase_add_test(tc, silent_server_is_a_timeout_that_stays_readable);
	tcase_add_test(tc, late_answer_is_dropped_and_given_back);
	tcase_add_test(tc, finish_while_pending_then_the_same_id_is_a_new_request);
	tcase_add_test(tc, refusal_is_an_answer_with_the_servers_error);
	tcase_add_test(tc, lost_connection_ends_lookups_at_once_and_it_works_again);
	tcase_add_test(tc, same_server_start_gets_back_what_a_lost_connection_left);
	tcase_add_loop_test(tc, broken_reply_never_counts_and_the_next_lookup_works, 0,
			    (int)(sizeof(broken) / sizeof(broken[0])));
	tcase_add_test(tc, answer_that_comes_twice_is_counted_and_dropped);
	tcase_add_test(tc, silent_server_is_noticed_by_heartbeat);
	tcase_add_test(tc, refused_hello_is_a_refused_answer_and_named_by_wait_ready);
	tcase_add_test(tc, admit_rounds_inwards_counts_from_the_end_and_clamps);
	tcase_add_test(tc, admitting_the_reported_tokens_keeps_the_last_chunk);
	tcase_add_test(tc, admit_before_the_answer_twice_or_of_an_unknown_id_is_a_state_error);
	tcase_add_test(tc, asking_after_admit_is_a_new_generation);
	tcase_add_test(tc, finish_of_an_unknown_id_is_no_error);
	tcase_add_test(tc, slots_come_back_after_finish);
	tcase_add_test(tc, reset_ends_live_requests_and_reaches_the_server);
	tcase_add_test(tc, step_travels_in_one_frame_and_rings_at_most_once);
	tcase_add_test(tc, waiting_inside_a_step_sends_what_is_queued);
	tcase_add_test(tc, submit_outside_a_step_is_sent_at_once);
	tcase_add_test(tc, more_live_requests_than_max_lookups_is_busy);
	tcase_add_test(tc, full_hash_arena_is_busy_and_drains);
	tcase_add_test(tc, few_credits_delay_lookups_but_lose_none);
	tcase_add_test(tc, queued_lookups_end_at_their_deadline_too);
	tcase_add_test(tc, bad_request_ids);
	tcase_add_test(tc, bad_hash_lengths);
	tcase_add_test(tc, other_hashes_for_a_live_id);
	tcase_add_test(tc, bad_arguments);
	tcase_add_test(tc, bad_configurations_name_the_field);
	tcase_add_test(tc, free_with_lookups_in_flight_is_bounded);
	tcase_add_test(tc, forked_child_gets_an_error_and_the_parent_goes_on);
	tcase_add_test(tc, client_fd_is_readable_when_an_answer_lands);
	tcase_add_test(tc, several_servers_the_hit_is_the_minimum_and_longer_tails_are_given_back);
#ifdef SCOUT_DEBUG
	tcase_add_test_raise_signal(tc, two_threads_in_one_client_abort_a_debug_build, SIGABRT);
#endif
	suite_add_tcase(s, tc);
	return s;
}
