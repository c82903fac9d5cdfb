/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "fault_rig.h"

#include <inttypes.h>

/*
 * S2: a promise belongs to (session, reader) and is withdrawn by admit, finish, the session's end or the death
 * of its client. RETRIEVE turns it into a hold; only that worker's DONE or its death ends a hold.
 */

static struct fault f;

static void
setup(void)
{
	memset(&f, 0, sizeof(f));
}

static void
store_whole(struct fault_actor *a, uint32_t prompt, uint32_t n)
{
	struct fault_done done = fault_store(a, 0, prompt, n);

	assert_ok(done.status);
	ck_assert_uint_eq(done.chunks + done.present, n);
}

/* ---- readers ---- */

UNCHECKED_FIXTURE(fault_make_home, NULL);
CHECKED_FIXTURE(setup, NULL);

START_TEST(S2_readers_8_each_reader_has_its_own_promise)
{
	struct fault_actor *sched, *half[2], *other;
	struct fault_done done;
	struct fault_hit hit;

	f.readers = 8;
	f.pool_chunks = 16;
	fault_up_with(&f, &sched, &other, NULL);
	for (uint32_t i = 0; i < 2; i++) {
		half[i] = fault_actor(&f);
		for (uint32_t r = 0; r < 4; r++)
			(void)fault_ask(half[i], "worker %u", (unsigned)(4 * i + r));
	}
	/* Reader r stores the chunks whose index mod 8 is r. */
	for (uint32_t r = 0; r < 8; r++) {
		done = fault_store(half[r / 4], r, 1, 8);
		assert_ok(done.status);
		ck_assert_uint_eq(done.chunks, 1);
	}
	hit = fault_lookup(sched, "a", 1, 8);
	ck_assert_uint_eq(hit.chunks, 8);
	/* Seven readers read at once, and one of them again and again. */
	for (uint32_t i = 0; i < 2; i++)
		(void)fault_ask(half[i], "gate shut");
	for (uint32_t r = 0; r < 7; r++)
		fault_enqueued(half[r / 4], r, fault_retrieve_begin(half[r / 4], r, hit.ticket, 0, 32));
	ck_assert_uint_eq(fault_status(&f, "holds"), 7);
	for (uint32_t i = 0; i < 2; i++)
		(void)fault_ask(half[i], "gate open");
	for (uint32_t r = 0; r < 7; r++) {
		done = fault_wait_done(half[r / 4], r);
		fault_check_all(half[r / 4], r, &done, 1, 0, 32);
	}
	for (uint32_t i = 0; i < 3; i++) {
		done = fault_retrieve(half[0], 0, hit.ticket, 0, 32);
		fault_check_all(half[0], 0, &done, 1, 0, 32);
	}
	/* The eighth has not come yet: its promise stands against every pressure. */
	fault_wait(&f, "holds", 0);
	ck_assert_uint_eq(fault_status(&f, "l1.bytes_promised"), 8 * FAULT_SHARD_BYTES);
	(void)fault_pressure(&f, other, 24);
	done = fault_retrieve(half[1], 7, hit.ticket, 0, 32);
	fault_check_all(half[1], 7, &done, 1, 0, 32);
	/* It was the last: now the chunks may go, though the session is open. */
	fault_wait(&f, "l1.bytes_promised", 0);
	(void)fault_ask(sched, "finish a");
	fault_down(&f);
}
END_TEST

/* ---- admit ---- */

static const struct {
	int64_t from, to;
	uint32_t first, end; /* chunks of 8 that keep their promise */
} admits[] = {
	{0, SCOUT_TO_END, 0, 8},
	{0, 512, 0, 8},
	{64, 128, 1, 2},
	/* Unaligned: both ends are rounded down to a chunk, for a retrieve starts at a block and needs that block's chunk. */
	{1, 129, 0, 2},
	{63, 257, 0, 4},
	{80, SCOUT_TO_END, 1, 8},
	{65, 447, 1, 6},
	{100, 120, 0, 0},
	{65, 127, 0, 0},
	/* Negative: from the end of the hit. */
	{-64, SCOUT_TO_END, 7, 8},
	{-128, -64, 6, 7},
	{-130, -1, 5, 7},
	{0, -448, 0, 1},
	{0, -449, 0, 0},
	/* Beyond the hit: clamped. */
	{-100000, 64, 0, 1},
	{448, 100000, 7, 8},
	{512, SCOUT_TO_END, 0, 0},
	/* Empty. */
	{0, 0, 0, 0},
	{300, 200, 0, 0},
};

START_TEST(S2_admit_keeps_the_promise_of_its_range_and_gives_back_the_rest)
{
	struct fault_actor *sched, *worker, *other;

	f.pool_chunks = 12;
	fault_up_with(&f, &sched, &worker, &other);
	for (size_t i = 0; i < sizeof(admits) / sizeof(admits[0]); i++) {
		uint32_t kept = admits[i].end - admits[i].first;
		uint32_t prompt = 10 + (uint32_t)i;
		struct fault_done done;
		struct fault_hit hit;

		store_whole(worker, prompt, 8);
		hit = fault_lookup(sched, "a", prompt, 8);
		ck_assert_uint_eq(hit.tokens, 512);
		ck_assert_uint_eq(fault_status(&f, "l1.bytes_promised"), 8 * FAULT_SHARD_BYTES);
		(void)fault_ask(sched, "admit a %" PRId64 " %" PRId64, admits[i].from, admits[i].to);
		fault_wait(&f, "l1.bytes_promised", (uint64_t)kept * FAULT_SHARD_BYTES);
		(void)fault_pressure(&f, other, 3);
		done = fault_retrieve(worker, 0, hit.ticket, 0, 32);
		fault_check_pages(worker, 0, &done, prompt, 0, 32);
		/* What was given back went under the pressure; what was kept did not. */
		for (uint32_t b = 0; b < 32; b++) {
			bool named = b < strlen(done.missing) && done.missing[b] == 'M';
			bool was_kept = b / 4 >= admits[i].first && b / 4 < admits[i].end;

			ck_assert_msg(named != was_kept, "range %u: block %u", (unsigned)i, (unsigned)b);
		}
		fault_wait(&f, "l1.bytes_promised", 0);
		(void)fault_ask(sched, "finish a");
	}
	fault_down(&f);
}
END_TEST

START_TEST(S2_admit_of_the_last_token_less_one_keeps_the_last_chunk)
{
	struct fault_actor *sched, *worker;
	const char *reply;

	fault_up_with(&f, &sched, &worker, NULL);
	store_whole(worker, 1, 8);
	/* A prompt that is cached as a whole: the last token is always computed. */
	reply = fault_ask(sched, "lookup a 1 8 512");
	ck_assert_uint_eq(fault_number(reply), 511);
	(void)fault_ask(sched, "admit a 448 511");
	fault_wait(&f, "l1.bytes_promised", FAULT_SHARD_BYTES);
	/* Once only. */
	ck_assert_str_eq(fault_try(sched, "admit a 0 511"), "err SCOUT_ERR_STATE ");
	ck_assert_uint_eq(fault_status(&f, "l1.bytes_promised"), FAULT_SHARD_BYTES);
	(void)fault_ask(sched, "finish a");
	fault_down(&f);
}
END_TEST

START_TEST(S2_a_retrieve_after_a_withdrawal_gets_what_is_still_there_and_the_rest_named)
{
	struct fault_actor *sched, *worker, *other;
	struct fault_done done;
	struct fault_hit hit;

	fault_up_with(&f, &sched, &worker, &other);
	store_whole(worker, 1, 4);
	hit = fault_lookup(sched, "a", 1, 4);
	(void)fault_ask(sched, "admit a 0 0");
	fault_wait(&f, "l1.bytes_promised", 0);
	/* Room for 4 of these 6, so 2 chunks have to go. */
	store_whole(other, 2, 6);
	done = fault_retrieve(worker, 0, hit.ticket, 0, 16);
	assert_rc(done.status, SCOUT_ERR_MISSING);
	ck_assert_uint_eq(done.chunks, 2);
	ck_assert_uint_eq(done.n_missing, 8);
	fault_check_pages(worker, 0, &done, 1, 0, 16);
	(void)fault_ask(sched, "finish a");
	fault_down(&f);
}
END_TEST

/* ---- giving back twice, and what is another's ---- */

START_TEST(S2_done_twice_changes_nothing)
{
	struct fault_actor *sched, *worker, *other;
	struct fault_done done;
	struct wire_grants g;
	struct wire_peer bare;
	struct fault_hit hit;
	uint64_t job;

	fault_up_with(&f, &sched, &worker, &other);
	fault_bare_worker(&f, &bare);
	store_whole(worker, 1, 4);
	hit = fault_lookup(sched, "a", 1, 4);
	ck_assert_int_eq(wire_retrieve(&bare, hit.ticket, 0, 4, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, 4);
	(void)fault_ask(worker, "gate shut");
	job = fault_retrieve_begin(worker, 0, hit.ticket, 0, 16);
	fault_enqueued(worker, 0, job);
	ck_assert_uint_eq(fault_status(&f, "holds"), 2);
	ck_assert_int_eq(wire_retrieve_done(&bare, g.id, 0), SCOUT_WIRE_OK);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(wire_retrieve_done(&bare, g.id, 0), SCOUT_WIRE_NO_SESSION);
	ck_assert_uint_eq(fault_status(&f, "holds"), 1);
	/* A second giving back would have freed what the worker reads. */
	(void)fault_ask(sched, "finish a");
	ck_assert_uint_gt(fault_pressure(&f, other, 4), 0);
	(void)fault_ask(worker, "gate open");
	done = fault_wait_done(worker, 0);
	fault_check_all(worker, 0, &done, 1, 0, 16);
	free(g.grants);
	wire_lease_bye(&bare);
	wire_close(&bare);
	fault_down(&f);
}
END_TEST

START_TEST(S2_store_done_twice_changes_nothing)
{
	struct fault_actor *sched;
	struct wire_grants g, again;
	struct wire_peer bare;
	uint32_t readable;

	fault_up(&f);
	sched = fault_scheduler(&f);
	fault_bare_worker(&f, &bare);
	ck_assert_int_eq(wire_store(&bare, 0, 1, 4, &g), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_store(&bare, 0, 11, 4, &again), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_store_done(&bare, g.id, 4, 4, &readable), SCOUT_WIRE_OK);
	ck_assert_uint_eq(readable, 4);
	ck_assert_int_eq(wire_store_done(&bare, g.id, 4, 4, &readable), SCOUT_WIRE_NO_SESSION);
	/* Nor does it commit the other store. */
	ck_assert_uint_eq(fault_status(&f, "holds"), 1);
	ck_assert_int_eq(wire_store_done(&bare, again.id, 4, 0, &readable), SCOUT_WIRE_OK);
	ck_assert_uint_eq(readable, 0);
	ck_assert_uint_eq(fault_status(&f, "l1.chunks"), 4);
	ck_assert_uint_eq(fault_lookup(sched, "a", 1, 4).chunks, 0); /* those keys are not prompt 1's */
	(void)fault_ask(sched, "finish a");
	free(g.grants);
	free(again.grants);
	wire_lease_bye(&bare);
	wire_close(&bare);
	fault_down(&f);
}
END_TEST

START_TEST(S2_nobody_can_give_back_anothers)
{
	struct fault_actor *sched, *worker, *other;
	struct wire_peer thief, stranger;
	struct fault_done done;
	struct fault_hit hit, waiting;
	uint32_t kept;
	uint64_t job;

	fault_up_with(&f, &sched, &worker, &other);
	fault_bare_worker(&f, &thief);
	fault_bare_client(&f, &stranger);
	store_whole(worker, 1, 3);
	store_whole(worker, 2, 3);
	hit = fault_lookup(sched, "a", 1, 3);
	waiting = fault_lookup(sched, "b", 2, 3);
	(void)fault_ask(worker, "gate shut");
	job = fault_retrieve_begin(worker, 0, hit.ticket, 0, 12);
	fault_enqueued(worker, 0, job);
	/* Whatever the server names a hold by, the names of others are refused. */
	for (uint64_t id = 1; id < 200; id++) {
		ck_assert_int_eq(wire_retrieve_done(&thief, id, 0), SCOUT_WIRE_NO_SESSION);
		ck_assert_int_eq(wire_store_done(&thief, id, 3, 3, &kept), SCOUT_WIRE_NO_SESSION);
	}
	/* And the tickets: workers know them, other clients may guess. */
	ck_assert_int_eq(wire_simple(&thief, SCOUT_OP_FINISH, waiting.ticket), SCOUT_WIRE_NO_SESSION);
	ck_assert_int_eq(wire_simple(&stranger, SCOUT_OP_FINISH, waiting.ticket), SCOUT_WIRE_NO_SESSION);
	ck_assert_int_eq(wire_admit(&stranger, waiting.ticket, 0, 0, &kept), SCOUT_WIRE_NO_SESSION);
	ck_assert_uint_eq(fault_status(&f, "holds"), 1);
	ck_assert_uint_gt(fault_pressure(&f, other, 4), 0);
	(void)fault_ask(worker, "gate open");
	done = fault_wait_done(worker, 0);
	fault_check_all(worker, 0, &done, 1, 0, 12);
	done = fault_retrieve(worker, 0, waiting.ticket, 0, 12);
	fault_check_all(worker, 0, &done, 2, 0, 12);
	(void)fault_ask(sched, "finish a");
	(void)fault_ask(sched, "finish b");
	wire_lease_bye(&thief);
	wire_lease_bye(&stranger);
	wire_close(&thief);
	wire_close(&stranger);
	fault_down(&f);
}
END_TEST

START_TEST(S2_finish_twice_changes_nothing)
{
	struct fault_actor *sched, *worker, *other;
	struct wire_peer bare;
	struct fault_done done;
	struct fault_hit hit;

	fault_up_with(&f, &sched, &worker, &other);
	fault_bare_client(&f, &bare);
	store_whole(worker, 1, 4);
	/* Two sessions promise the same chunks; one of them is given back as often as one likes. */
	hit = fault_lookup(sched, "a", 1, 4);
	(void)fault_lookup(sched, "b", 1, 4);
	for (int i = 0; i < 3; i++)
		(void)fault_ask(sched, "finish b");
	ck_assert_uint_eq(fault_bare_lookup(&bare, 77, 1, 4), 4);
	ck_assert_int_eq(wire_simple(&bare, SCOUT_OP_FINISH, 77), SCOUT_WIRE_OK);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(wire_simple(&bare, SCOUT_OP_FINISH, 77), SCOUT_WIRE_NO_SESSION);
	fault_wait(&f, "sessions", 1);
	ck_assert_uint_eq(fault_status(&f, "l1.bytes_promised"), 4 * FAULT_SHARD_BYTES);
	ck_assert_uint_gt(fault_pressure(&f, other, 4), 0);
	done = fault_retrieve(worker, 0, hit.ticket, 0, 16);
	fault_check_all(worker, 0, &done, 1, 0, 16);
	(void)fault_ask(sched, "finish a");
	wire_lease_bye(&bare);
	wire_close(&bare);
	fault_down(&f);
}
END_TEST

/* ---- the end of a session during a retrieve ---- */

enum end {
	END_FINISH,
	END_ADMIT_NOTHING,
	END_RESET,
	END_DEATH,
	END_CLOSE
};

/* A retrieve's copy stands at the gate; its session ends; others want the memory; the copy goes on. */
static void
end_session_during_a_retrieve(enum end how)
{
	struct fault_actor *sched, *worker, *other;
	struct fault_done done;
	struct fault_hit hit;
	uint64_t job;

	fault_up_with(&f, &sched, &worker, &other);
	store_whole(worker, 1, 5);
	hit = fault_lookup(sched, "a", 1, 5);
	(void)fault_ask(worker, "gate shut");
	job = fault_retrieve_begin(worker, 0, hit.ticket, 0, 20);
	fault_enqueued(worker, 0, job);
	if (how == END_FINISH)
		(void)fault_ask(sched, "finish a");
	else if (how == END_ADMIT_NOTHING)
		(void)fault_ask(sched, "admit a 0 0");
	else if (how == END_RESET)
		(void)fault_ask(sched, "reset 7");
	else if (how == END_DEATH)
		fault_kill(sched);
	else
		(void)fault_ask(sched, "client_close");
	fault_wait(&f, "sessions", how == END_ADMIT_NOTHING ? 1 : 0);
	ck_assert_uint_eq(fault_status(&f, "holds"), 1);
	/* 3 of 8 slots are free for others, never more. */
	for (uint32_t round = 0; round < 4; round++)
		ck_assert_uint_eq(fault_pressure(&f, other, 1), 5);
	ck_assert_str_eq(fault_ask(worker, "ended 0"), "0");
	(void)fault_ask(worker, "gate open");
	done = fault_wait_done(worker, 0);
	fault_check_all(worker, 0, &done, 1, 0, 20);
	/* The hold ended with DONE and with nothing else: all is there again. */
	fault_wait(&f, "holds", 0);
	ck_assert_uint_eq(fault_pressure(&f, other, 1), 0);
	ck_assert_uint_eq(fault_status(&f, "bugs.mismatches"), 0);
	if (how == END_ADMIT_NOTHING)
		(void)fault_ask(sched, "finish a");
	fault_down(&f);
}

START_TEST(S2_finish_during_a_retrieve_leaves_the_copys_slots)
{
	end_session_during_a_retrieve(END_FINISH);
}
END_TEST

START_TEST(S2_an_empty_admit_during_a_retrieve_leaves_the_copys_slots)
{
	end_session_during_a_retrieve(END_ADMIT_NOTHING);
}
END_TEST

START_TEST(S2_reset_during_a_retrieve_leaves_the_copys_slots)
{
	end_session_during_a_retrieve(END_RESET);
}
END_TEST

START_TEST(S2_the_schedulers_death_during_a_retrieve_leaves_the_copys_slots)
{
	end_session_during_a_retrieve(END_DEATH);
}
END_TEST

START_TEST(S2_a_closed_client_during_a_retrieve_leaves_the_copys_slots)
{
	end_session_during_a_retrieve(END_CLOSE);
}
END_TEST

/* ---- after the end ---- */

START_TEST(S2_a_store_after_the_end_of_its_session_is_still_good)
{
	struct fault_actor *sched, *worker, *killed;
	struct fault_done done;
	struct fault_hit hit;

	fault_up(&f);
	sched = fault_scheduler(&f);
	killed = fault_scheduler(&f);
	worker = fault_worker(&f);
	hit = fault_lookup(sched, "a", 1, 2);
	ck_assert_uint_eq(hit.chunks, 0);
	(void)fault_ask(sched, "finish a");
	fault_wait(&f, "sessions", 0);
	(void)fault_store_begin(worker, 0, 1, 1, 2, hit.ticket);
	done = fault_wait_done(worker, 0);
	assert_ok(done.status);
	ck_assert_uint_eq(done.chunks, 2);
	hit = fault_lookup(killed, "k", 2, 2);
	fault_kill(killed);
	fault_wait(&f, "sessions", 0);
	(void)fault_store_begin(worker, 0, 2, 2, 2, hit.ticket);
	done = fault_wait_done(worker, 0);
	assert_ok(done.status);
	ck_assert_uint_eq(done.chunks, 2);
	/* A ticket that nobody ever drew. */
	(void)fault_store_begin(worker, 0, 3, 3, 2, UINT64_C(0x1234567890abcdef));
	done = fault_wait_done(worker, 0);
	assert_ok(done.status);
	for (uint32_t prompt = 1; prompt <= 3; prompt++) {
		hit = fault_lookup(sched, "b", prompt, 2);
		ck_assert_uint_eq(hit.chunks, 2);
		done = fault_retrieve(worker, 0, hit.ticket, 0, 8);
		fault_check_all(worker, 0, &done, prompt, 0, 8);
		(void)fault_ask(sched, "finish b");
	}
	fault_down(&f);
}
END_TEST

/* Ended, with all blocks named and none written. */
static void
check_refused(struct fault_actor *worker, uint64_t ticket)
{
	struct fault_done done = fault_retrieve(worker, 0, ticket, 0, 16);

	assert_rc(done.status, SCOUT_ERR_NO_SESSION);
	ck_assert_uint_eq(done.chunks, 0);
	ck_assert_uint_eq(done.n_missing, 16);
	fault_check_pages(worker, 0, &done, 1, 0, 16);
}

START_TEST(S2_an_unknown_ticket_gets_a_typed_answer)
{
	struct fault_actor *sched, *worker;

	fault_up_with(&f, &sched, &worker, NULL);
	store_whole(worker, 1, 4);
	check_refused(worker, UINT64_C(0x1234567890abcdef));
	ck_assert_str_eq(fault_try(worker, "retrieve 0 0 0 16 256"), "err SCOUT_ERR_INVALID ");
	ck_assert_uint_eq(fault_lookup(sched, "a", 1, 4).chunks, 4);
	(void)fault_ask(sched, "finish a");
	(void)fault_ask(sched, "finish never-seen");
	fault_down(&f);
}
END_TEST

START_TEST(S2_a_retrieve_after_finish_gets_a_typed_answer)
{
	struct fault_actor *sched, *worker;
	struct fault_hit hit;

	fault_up_with(&f, &sched, &worker, NULL);
	store_whole(worker, 1, 4);
	hit = fault_lookup(sched, "a", 1, 4);
	(void)fault_ask(sched, "finish a");
	fault_wait(&f, "sessions", 0);
	check_refused(worker, hit.ticket);
	ck_assert_uint_eq(fault_status(&f, "holds"), 0);
	fault_down(&f);
}
END_TEST
