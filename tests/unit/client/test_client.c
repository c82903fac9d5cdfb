/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check_main.h"
#include "client_internal.h"
#include "client_rig.h"
#include "waiting.h"

/* ---- answers ---- */

CHECKED_FIXTURE(rig_up, rig_down);

START_TEST(first_call_is_not_yet_then_the_hit)
{
	struct scout_query q = rig_question("r1", 8);
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
	struct scout_query q = rig_question("r1", 8);
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
	struct scout_query q = rig_question("r1", 0);
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
	struct scout_query q = rig_question("r1", 8);
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
	struct scout_query q = rig_question("r1", 8);
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
	struct scout_query q = rig_question("r1", 8);
	struct scout_hit hit;

	ck_assert_int_eq(scout_lookup(client, &q, &hit), SCOUT_NOT_YET);
}
END_TEST

START_TEST(try_then_wait_is_one_lookup)
{
	struct scout_query q = rig_question("r1", 8);
	struct scout_hit hit;

	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_LOOKUP), 1);
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

/* A retrieve reads from the block that it starts at: the chunk of that block keeps its promise. */
START_TEST(admit_rounds_down_counts_from_the_end_and_clamps)
{
	fake_set_hit(fake, 8);
	check_admit(256, 1024, 1, 4);
	check_admit(1, 1023, 0, 3);
	check_admit(304, SCOUT_TO_END, 1, 8);
	check_admit(0, 300, 0, 1);
	check_admit(-512, SCOUT_TO_END, 6, 8);
	check_admit(0, -256, 0, 7);
	check_admit(-300, -1, 6, 7);
	check_admit(300, 400, 1, 1); /* no whole chunk ends in it */
	check_admit(400, 300, 1, 1); /* empty */
	check_admit(600, 300, 2, 1); /* empty */
	check_admit(INT64_MIN, 512, 0, 2);
	check_admit(4096, 9999, 8, 8); /* empty: beyond the hit */
}
END_TEST

START_TEST(admitting_the_reported_tokens_keeps_the_last_chunk)
{
	struct scout_query q = rig_question("r1", 8);
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
	struct scout_query q = rig_question("r1", 8);
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

/* A server that is away makes no reset BUSY: it is told the latest one when it is back, before any lookup. */
START_TEST(the_latest_of_several_resets_reaches_a_server_that_was_away)
{
	(void)rig_answer("r1", 2);
	fake_unbind(fake);
	for (uint64_t version = 7; version < 10; version++)
		ck_assert_int_eq(scout_reset(client, version), 0);
	fake_bind(fake, true);
	ck_assert(fake_wait(fake, SCOUT_OP_RESET, 1));
	ck_assert_uint_eq(fake_last_word(fake, SCOUT_OP_RESET), 9);
	rig_ready();
	(void)rig_answer("r2", 2);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_RESET), 1);
	ck_assert_uint_lt(fake_last_order(fake, SCOUT_OP_RESET), fake_last_order(fake, SCOUT_OP_LOOKUP));
}
END_TEST

/* One that is on its way, and not answered, is overtaken, too. */
START_TEST(resets_that_are_not_waited_for_are_all_taken)
{
	fake_script(fake, SCOUT_OP_RESET, FAKE_HOLD, 0);
	for (uint64_t version = 1; version <= 100; version++)
		ck_assert_int_eq(scout_reset(client, version), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_RESET, 1));
	ck_assert_int_eq(scout_reset(client, 101), 0);
	fake_release(fake);
	wait_until(fake_last_word(fake, SCOUT_OP_RESET) == 101)
		;
	(void)rig_answer("r1", 2);
	ck_assert_uint_eq(fake_last_word(fake, SCOUT_OP_RESET), 101);
}
END_TEST

START_TEST(a_clear_ends_live_requests_and_reaches_the_server)
{
	uint64_t first = 0, second = 0;

	(void)rig_answer("r1", 2);
	ck_assert_int_eq(scout_clear(client, 0, &first), 0);
	ck_assert_uint_ne(first, 0);
	ck_assert_uint_eq(rig_stats().live, 0);
	ck_assert(fake_wait(fake, SCOUT_OP_CLEAR, 1));
	ck_assert_uint_eq(fake_last_word(fake, SCOUT_OP_CLEAR), first);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_FINISH), 1);
	(void)rig_answer("r2", 2);
	ck_assert_int_eq(scout_clear(client, 0, &second), 0);
	ck_assert_uint_ne(second, first);
	/* One that another call has returned. */
	ck_assert_int_eq(scout_clear(client, first, NULL), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_CLEAR, 2));
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_RESET), 0);
}
END_TEST

/* No server is BUSY: the latest clear is told when it is back, before any lookup, and later HELLOs say what it was. */
START_TEST(the_latest_of_several_clears_reaches_a_server_that_was_away)
{
	uint64_t last = 0;

	(void)rig_answer("r1", 2);
	fake_unbind(fake);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(scout_clear(client, 0, &last), 0);
	ck_assert_int_eq(scout_reset(client, 7), 0);
	fake_bind(fake, true);
	ck_assert(fake_wait(fake, SCOUT_OP_CLEAR, 1));
	ck_assert_uint_eq(fake_last_word(fake, SCOUT_OP_CLEAR), last);
	rig_ready();
	(void)rig_answer("r2", 2);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_CLEAR), 1);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_RESET), 1);
	ck_assert_uint_lt(fake_last_order(fake, SCOUT_OP_CLEAR), fake_last_order(fake, SCOUT_OP_LOOKUP));
	ck_assert_uint_eq(fake_said_generation(fake), 0);
	fake_unbind(fake);
	fake_bind(fake, true);
	ck_assert(fake_wait(fake, SCOUT_OP_HELLO, 3));
	ck_assert_uint_eq(fake_said_generation(fake), last);
	ck_assert_uint_eq(fake_said_joined(fake), 0);
}
END_TEST

START_LOOP_TEST(a_clear_that_was_lost_is_said_again, 0, 2)
{
	uint64_t generation = 0;

	(void)rig_answer("r1", 2);
	fake_script(fake, SCOUT_OP_CLEAR, FAKE_DROP, 0);
	ck_assert_int_eq(scout_clear(client, 0, &generation), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_CLEAR, 1));
	fake_unbind(fake);
	fake_bind(fake, _i != 0);
	ck_assert(fake_wait(fake, SCOUT_OP_CLEAR, 2));
	ck_assert_uint_eq(fake_last_word(fake, SCOUT_OP_CLEAR), generation);
}
END_TEST

/* ---- steps ---- */

/* A server that is stopping answers SHUTDOWN to everything, one without room LIMIT: neither carries out what it was told. */
START_LOOP_TEST(a_reset_or_clear_that_is_put_off_is_said_again_before_any_lookup, 0, 4)
{
	unsigned opcode = _i < 2 ? SCOUT_OP_RESET : SCOUT_OP_CLEAR;
	uint64_t number = 7;

	(void)rig_answer("r1", 2);
	fake_script(fake, opcode, FAKE_REFUSE, _i % 2 == 0 ? SCOUT_WIRE_SHUTDOWN : SCOUT_WIRE_LIMIT);
	if (opcode == SCOUT_OP_RESET)
		ck_assert_int_eq(scout_reset(client, number), 0);
	else
		ck_assert_int_eq(scout_clear(client, 0, &number), 0);
	ck_assert(fake_wait(fake, opcode, 1));
	wait_until(rig_stats().servers_up == 0)
		;
	fake_unbind(fake);
	fake_bind(fake, true);
	ck_assert(fake_wait(fake, opcode, 2));
	ck_assert_uint_eq(fake_last_word(fake, opcode), number);
	rig_ready();
	(void)rig_answer("r2", 2);
	ck_assert_uint_eq(fake_count(fake, opcode), 2);
	ck_assert_uint_lt(fake_last_order(fake, opcode), fake_last_order(fake, SCOUT_OP_LOOKUP));
}
END_TEST

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
		struct scout_query q = rig_question(id, 4);

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
	struct scout_query q = rig_question("r1", 8);
	struct scout_hit hit;

	scout_step_begin(client);
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_MISS);
	scout_step_end(client);
}
END_TEST

START_TEST(submit_outside_a_step_is_sent_at_once)
{
	struct scout_query q = rig_question("r1", 8);
	struct scout_hit hit;

	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert(fake_wait(fake, SCOUT_OP_LOOKUP, 1));
}
END_TEST

/* ---- life ---- */

START_TEST(forked_child_gets_an_error_and_the_parent_goes_on)
{
	struct scout_query q = rig_question("r1", 8);
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
	struct scout_query q = rig_question("r1", 8);
	struct pollfd p = {.events = POLLIN};
	struct scout_hit hit;

	p.fd = scout_client_fd(client);
	scout_client_fd_clear(client);
	ck_assert_int_eq(poll(&p, 1, 0), 0);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert_int_eq(poll(&p, 1, wait_limit_ms()), 1);
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
	snprintf(list, sizeof(list), "%s %s", fake_endpoint(fake), fake_endpoint(other));
	scout_client_config_init(&cfg);
	cfg.lookup_timeout_ms = 60000; /* a busy machine is no reason for a miss */
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
START_SIGNAL_TEST(two_threads_in_one_client_abort_a_debug_build, SIGABRT)
{
	fake_remove_files(fake);
	atomic_store(&client->busy_check, 1); /* as if another thread were inside a call */
	(void)scout_finish(client, "r1");
}
END_TEST
#endif
