/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <string.h>

#include "server_rig.h"

static struct rig rig;

static void
teardown(void)
{
	if (rig.server)
		rig_down(&rig);
}

CHECKED_FIXTURE(NULL, teardown);

/* Lookups, and what they promise until it is given back, by raw operations over a real socket. */

START_TEST(what_was_stored_is_hit)
{
	struct scout__lookup_reply m;

	rig_up(&rig, 8);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 0);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 3), 3);
	ck_assert_int_eq(wire_lookup(&rig.client, 9, 1, 4, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, 3);
	ck_assert_uint_eq(m.l1, 3);
	ck_assert_uint_eq(m.limited, 0);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 3 * SHARD_BYTES);
	/* A hole: nothing behind it counts. */
	ck_assert_uint_eq(rig_peek(&rig.client, 0, 4), 0);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 0);
}
END_TEST

START_TEST(skipped_chunks_count_but_are_not_promised)
{
	struct scout__lookup_reply m;

	rig_up(&rig, 8);
	rig_store(&rig.worker, 0, 3, 2);
	/* Keys 1 and 2 were never stored. */
	ck_assert_int_eq(wire_lookup(&rig.client, 9, 1, 5, 2, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, 4);
	ck_assert_uint_eq(m.l1, 2);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 2 * SHARD_BYTES);
	ck_assert_int_eq(wire_lookup(&rig.client, 10, 1, 2, 2, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, 2);
	ck_assert_uint_eq(m.l1, 0);
	rig_finish(&rig.client, 9);
	rig_finish(&rig.client, 10);
}
END_TEST

START_TEST(tenants_do_not_see_each_other)
{
	struct scout__lookup_msg m = {.ticket = 50, .n = 2, .tenant = {"blue", 4}};
	struct scout__lookup_reply answer;
	struct wire_reply *reply;
	struct scout__op op;
	const char *field;
	uint64_t corr;

	rig_up(&rig, 8);
	rig_store(&rig.worker, 0, 1, 2);
	corr = wire_add_lookup(&rig.client, &m, 1);
	wire_flush(&rig.client);
	reply = wire_wait(&rig.client, corr);
	ck_assert_int_eq(reply->status, SCOUT_WIRE_OK);
	op = (struct scout__op){.length = reply->length, .body = reply->body};
	ck_assert_int_eq(scout__get_lookup_reply(&op, &answer, &field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(answer.hit, 0);
	wire_reply_free(reply);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 2), 2);
}
END_TEST

START_TEST(a_promise_protects_from_eviction)
{
	uint64_t id;

	rig_up(&rig, 8);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 8), 8);
	ck_assert_uint_eq(rig_hit(&rig.client, 9, 1, 4), 4);
	/* Only the four that nothing pins make room. */
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 101, 8, &id), 4);
	ck_assert_uint_eq(rig_hit(&rig.client, 10, 1, 8), 4);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(rig_hit(&rig.client, 11, 1, 4), 4);
	rig_finish(&rig.client, 10);
	rig_finish(&rig.client, 11);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 0);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 201, 8, &id), 4);
}
END_TEST

START_TEST(max_promised_cuts_the_hit)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout__lookup_reply m;

	cfg.max_promised = 3 * SHARD_BYTES;
	rig_up_with(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 6);
	ck_assert_int_eq(wire_lookup(&rig.client, 9, 1, 6, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, 3);
	ck_assert_uint_eq(m.limited, 1);
	/* What is promised already costs nothing more. */
	ck_assert_int_eq(wire_lookup(&rig.client, 10, 1, 3, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, 3);
	ck_assert_uint_eq(m.limited, 0);
	ck_assert_int_eq(wire_lookup(&rig.client, 11, 4, 3, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, 0);
	ck_assert_uint_eq(m.limited, 1);
	rig_finish(&rig.client, 9);
	rig_finish(&rig.client, 10);
	ck_assert_int_eq(wire_lookup(&rig.client, 12, 4, 3, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, 3);
}
END_TEST

START_TEST(admit_gives_back_what_is_outside_and_only_once)
{
	uint32_t kept;

	rig_up_promised(&rig, 8, 8);
	ck_assert_int_eq(wire_admit(&rig.client, 9, 2, 6, &kept), SCOUT_WIRE_OK);
	ck_assert_uint_eq(kept, 4);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 4 * SHARD_BYTES);
	/* Twice changes nothing, and what was given back does not come again. */
	ck_assert_int_eq(wire_admit(&rig.client, 9, 2, 6, &kept), SCOUT_WIRE_OK);
	ck_assert_uint_eq(kept, 4);
	ck_assert_int_eq(wire_admit(&rig.client, 9, 0, 5, &kept), SCOUT_WIRE_OK);
	ck_assert_uint_eq(kept, 3);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 3 * SHARD_BYTES);
	ck_assert_int_eq(wire_admit(&rig.client, 9, 4, 4, &kept), SCOUT_WIRE_OK);
	ck_assert_uint_eq(kept, 0);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 0);
	rig_finish(&rig.client, 9);
}
END_TEST

START_TEST(finish_twice_is_no_session)
{
	uint32_t kept;

	rig_up_promised(&rig, 8, 4);
	rig_hit(&rig.client, 10, 1, 4);
	rig_finish(&rig.client, 9);
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_FINISH, 9), SCOUT_WIRE_NO_SESSION);
	ck_assert_int_eq(wire_admit(&rig.client, 9, 0, 0, &kept), SCOUT_WIRE_NO_SESSION);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 4 * SHARD_BYTES);
	rig_finish(&rig.client, 10);
}
END_TEST

START_TEST(nobody_gives_back_the_promise_of_another)
{
	struct wire_peer other;
	uint32_t kept;

	rig_up_promised(&rig, 8, 4);
	rig_client(&other, rig.endpoint);
	ck_assert_int_eq(wire_simple(&other, SCOUT_OP_FINISH, 9), SCOUT_WIRE_NO_SESSION);
	ck_assert_int_eq(wire_simple(&rig.worker, SCOUT_OP_FINISH, 9), SCOUT_WIRE_NO_SESSION);
	ck_assert_int_eq(wire_admit(&other, 9, 0, 0, &kept), SCOUT_WIRE_NO_SESSION);
	ck_assert_uint_eq(wire_status(&other, "l1.bytes_promised"), 4 * SHARD_BYTES);
	rig_finish(&rig.client, 9);
	wire_close(&other);
}
END_TEST

START_TEST(a_ticket_in_use_is_refused)
{
	struct scout__lookup_reply m;

	rig_up(&rig, 8);
	rig_store(&rig.worker, 0, 1, 4);
	rig_hit(&rig.client, 9, 1, 2);
	ck_assert_int_eq(wire_lookup(&rig.client, 9, 1, 4, 0, &m), SCOUT_WIRE_STATE);
	/* The session that had it is untouched. */
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 2 * SHARD_BYTES);
	rig_finish(&rig.client, 9);
}
END_TEST

START_TEST(finish_before_the_answer_answers_the_lookup_too)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout__lookup_msg m = {.ticket = 9, .n = 4};
	struct wire_reply *reply;
	uint64_t corr;
	uint32_t kept;

	cfg.reply_delay_us = 20000000;
	rig_up_with(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 4);
	corr = wire_add_lookup(&rig.client, &m, 1);
	wire_flush(&rig.client);
	ck_assert_int_eq(wire_admit(&rig.client, 9, 0, 2, &kept), SCOUT_WIRE_STATE);
	rig_finish(&rig.client, 9);
	reply = wire_wait(&rig.client, corr);
	ck_assert_int_eq(reply->status, SCOUT_WIRE_NO_SESSION);
	wire_reply_free(reply);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "ops.waiting"), 0);
	ck_assert(!wire_has(&rig.client, corr));
}
END_TEST

START_TEST(finish_touches_the_tail_first)
{
	rig_up(&rig, 4);
	rig_hit(&rig.client, 9, 1, 4);
	ck_assert_uint_eq(rig_store(&rig.worker, 9, 1, 4), 4);
	rig_finish(&rig.client, 9);
	/* One more chunk takes the last of the four, not the head that other prompts share. */
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 101, 1), 1);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 3);
	rig_hit(&rig.client, 10, 1, 3);
	rig_finish(&rig.client, 10);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 102, 2), 2);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 2);
}
END_TEST

START_TEST(looked_up_chunks_outlive_those_stored_behind_them)
{
	rig_up(&rig, 4);
	rig_store(&rig.worker, 0, 1, 2);
	ck_assert_uint_eq(rig_hit(&rig.client, 9, 1, 4), 2);
	ck_assert_uint_eq(rig_store(&rig.worker, 9, 3, 2), 2);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 101, 2), 2);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 4), 2);
}
END_TEST

START_TEST(an_expected_key_that_comes_late_is_waited_for)
{
	struct scout__lookup_msg m = {.ticket = 9, .n = 3, .expect = 2, .poll_timeout_ms = 8000, .poll_interval_ms = 1};
	struct scout__lookup_reply answer;
	struct wire_reply *reply;
	struct scout__op op;
	const char *field;
	uint64_t corr;

	rig_up(&rig, 8);
	rig_store(&rig.worker, 0, 1, 1);
	corr = wire_add_lookup(&rig.client, &m, 1);
	wire_flush(&rig.client);
	ck_assert_int_eq(wire_ping(&rig.client), SCOUT_WIRE_OK);
	ck_assert(!wire_has(&rig.client, corr));
	rig_store(&rig.worker, 0, 2, 1);
	reply = wire_wait(&rig.client, corr);
	op = (struct scout__op){.length = reply->length, .body = reply->body};
	ck_assert_int_eq(scout__get_lookup_reply(&op, &answer, &field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(answer.hit, 2);
	wire_reply_free(reply);
	/* What never comes ends with the timeout. */
	m.ticket = 10;
	m.expect = 3;
	m.poll_timeout_ms = 30;
	corr = wire_add_lookup(&rig.client, &m, 1);
	wire_flush(&rig.client);
	reply = wire_wait(&rig.client, corr);
	op = (struct scout__op){.length = reply->length, .body = reply->body};
	ck_assert_int_eq(scout__get_lookup_reply(&op, &answer, &field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(answer.hit, 2);
	wire_reply_free(reply);
}
END_TEST

/* A pool of very small chunks, so that very many fit. */
static void
rig_up_many(uint32_t n)
{
	struct scout_server_config cfg = rig_config(0);

	cfg.l1_bytes = (uint64_t)n * 64;
	cfg.extent_bytes = cfg.l1_bytes;
	cfg.max_promised = cfg.l1_bytes;
	rig.server = rig_start(&cfg);
	rig.endpoint = scout_server_endpoint(rig.server);
	rig_client(&rig.client, rig.endpoint);
	rig_worker_unregistered(&rig.worker, rig.endpoint, 1, 1);
	ck_assert_int_eq(wire_register(&rig.worker, 0, 0, 64), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, n), n);
}

START_TEST(a_short_lookup_does_not_wait_for_a_long_one)
{
	enum {
		MANY = 100000
	};
	struct scout__lookup_msg longer = {.ticket = 9, .n = MANY}, shorter = {.ticket = 10, .n = 4};
	struct scout__lookup_reply answer;
	struct wire_reply *first, *second;
	struct scout__op op;
	const char *field;
	uint64_t corr[2];

	rig_up_many(MANY);
	corr[0] = wire_add_lookup(&rig.client, &longer, 1);
	corr[1] = wire_add_lookup(&rig.client, &shorter, 1);
	wire_flush(&rig.client);
	second = wire_wait(&rig.client, corr[1]);
	first = wire_wait(&rig.client, corr[0]);
	ck_assert_uint_lt(second->order, first->order);
	op = (struct scout__op){.length = first->length, .body = first->body};
	ck_assert_int_eq(scout__get_lookup_reply(&op, &answer, &field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(answer.hit, MANY);
	wire_reply_free(first);
	wire_reply_free(second);
	/* All of it is given back, in steps too, before the answer. */
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 4 * 64);
	rig_finish(&rig.client, 10);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 0);
}
END_TEST

START_TEST(finish_in_the_middle_of_a_long_lookup_leaves_nothing_promised)
{
	enum {
		MANY = 50000
	};
	struct scout__lookup_msg m = {.ticket = 9, .n = MANY};
	struct wire_reply *reply;
	uint64_t lookup, finish;

	rig_up_many(MANY);
	lookup = wire_add_lookup(&rig.client, &m, 1);
	scout__put_finish(wire_begin(&rig.client, SCOUT_OP_FINISH), &(struct scout__finish_msg){.ticket = 9});
	finish = wire_end(&rig.client);
	wire_flush(&rig.client);
	reply = wire_wait(&rig.client, lookup);
	ck_assert_int_eq(reply->status, SCOUT_WIRE_NO_SESSION);
	wire_reply_free(reply);
	reply = wire_wait(&rig.client, finish);
	ck_assert_int_eq(reply->status, SCOUT_WIRE_OK);
	wire_reply_free(reply);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "sessions"), 0);
}
END_TEST

/* FINISH of the first @n sessions and one more long lookup, in one frame. Returns how many FINISHes are answered before it. */
static uint32_t
finished_before_a_lookup(uint32_t n)
{
	enum {
		MANY = 20000,
		MOST = 4
	};
	/* Skipped chunks make a session long without being stored. */
	struct scout__lookup_msg m = {.ticket = 99, .n = MANY, .skip = MANY};
	struct scout__lookup_reply answer;
	uint64_t finish[MOST], lookup;
	uint32_t before = 0;
	struct wire_reply *reply;

	ck_assert_uint_le(n, MOST);
	rig_up(&rig, 8);
	for (uint32_t i = 0; i < n; i++)
		ck_assert_int_eq(wire_lookup(&rig.client, 1 + i, 1, MANY, MANY, &answer), SCOUT_WIRE_OK);
	for (uint32_t i = 0; i < n; i++) {
		scout__put_finish(wire_begin(&rig.client, SCOUT_OP_FINISH),
				  &(struct scout__finish_msg){.ticket = 1 + i});
		finish[i] = wire_end(&rig.client);
	}
	lookup = wire_add_lookup(&rig.client, &m, 1);
	wire_flush(&rig.client);
	reply = wire_wait(&rig.client, lookup);
	ck_assert_int_eq(reply->status, SCOUT_WIRE_OK);
	for (uint32_t i = 0; i < n; i++) {
		struct wire_reply *end = wire_wait(&rig.client, finish[i]);

		ck_assert_int_eq(end->status, SCOUT_WIRE_OK);
		before += end->order < reply->order;
		wire_reply_free(end);
	}
	wire_reply_free(reply);
	ck_assert_uint_eq(wire_status(&rig.client, "sessions"), 1);
	return before;
}

START_TEST(a_long_finish_steps_back_for_a_lookup)
{
	ck_assert_uint_eq(finished_before_a_lookup(1), 0);
}
END_TEST

START_TEST(what_many_finishes_give_back_does_not_pile_up_behind_lookups)
{
	ck_assert_uint_eq(finished_before_a_lookup(4), 4);
}
END_TEST

START_TEST(four_thousand_lookups_in_a_frame_each_get_one_reply)
{
	struct scout__lookup_msg m = {.n = 8};
	uint64_t corr[SCOUT_MAX_OPS];

	rig_up(&rig, 8);
	rig_store(&rig.worker, 0, 1, 8);
	for (unsigned i = 0; i < SCOUT_MAX_OPS; i++) {
		m.ticket = 1000 + i;
		corr[i] = wire_add_lookup(&rig.client, &m, 1);
	}
	wire_flush(&rig.client);
	for (unsigned i = 0; i < SCOUT_MAX_OPS; i++) {
		struct wire_reply *reply = wire_wait(&rig.client, corr[i]);

		ck_assert_int_eq(reply->status, SCOUT_WIRE_OK);
		wire_reply_free(reply);
	}
	ck_assert_ptr_null(rig.client.replies);
	ck_assert_uint_eq(wire_status(&rig.client, "sessions"), SCOUT_MAX_OPS);
}
END_TEST

/* ---- keeps: the pool of 32 chunks may keep 8, as all of it may be promised ---- */

#define KEEP_MS 600000u

/* FINISH @ticket and keep what it has: the outcome, and *ret_kept chunks. */
static uint32_t
keep(struct wire_peer *client, uint64_t ticket, uint32_t hint, uint32_t keep_ms, uint32_t *ret_kept)
{
	struct scout__finish_msg m = {ticket, hint, keep_ms};
	struct scout__finish_reply reply;

	ck_assert_int_eq(wire_finish(client, &m, &reply), SCOUT_WIRE_OK);
	*ret_kept = reply.kept;
	return reply.outcome;
}

/* A turn: look up @n keys, store what is missing, and keep all. Returns the number that is kept. */
static uint32_t
kept_turn(struct rig *r, uint64_t ticket, uint64_t first_key, uint32_t n, uint32_t expect)
{
	uint32_t hit = rig_hit(&r->client, ticket, first_key, n), kept;

	if (hit < n)
		ck_assert_uint_eq(rig_store(&r->worker, ticket, first_key + hit, n - hit), n - hit);
	ck_assert_uint_eq(keep(&r->client, ticket, SCOUT_FINISH_LIKELY, KEEP_MS, &kept), expect);
	return kept;
}

static uint64_t
kept_chunks(struct rig *r)
{
	return wire_status(&r->client, "ns.test.bytes_kept") / SHARD_BYTES;
}

/* Fill the pool with other chunks, several times. */
static void
flood(struct rig *r)
{
	static uint64_t next = 100000;

	for (uint32_t i = 0; i < 12; i++, next += 8)
		ck_assert_uint_eq(rig_store(&r->worker, 0, next, 8), 8);
}

START_TEST(what_a_session_found_and_stored_is_kept_after_it)
{
	rig_up(&rig, 32);
	rig_store(&rig.worker, 0, 1, 2);
	ck_assert_uint_eq(kept_turn(&rig, 9, 1, 6, SCOUT_OUTCOME_ACCEPTED), 6);
	ck_assert_uint_eq(kept_chunks(&rig), 6);
	ck_assert_uint_eq(rig_promised(&rig), 6);
	ck_assert_uint_eq(wire_status(&rig.client, "sessions"), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "keeps.accepted"), 1);
	flood(&rig);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 6), 6);
	/* Its ticket names nothing, and a prompt that was not kept is gone. */
	assert_wire(wire_simple(&rig.client, SCOUT_OP_FINISH, 9), SCOUT_WIRE_NO_SESSION);
	rig_store(&rig.worker, 0, 51, 6);
	flood(&rig);
	ck_assert_uint_eq(rig_peek(&rig.client, 51, 6), 0);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 6), 6);
}
END_TEST

START_TEST(a_keep_ends_with_its_time)
{
	uint32_t kept;

	rig_up(&rig, 32);
	rig_store(&rig.worker, 0, 1, 6);
	ck_assert_uint_eq(rig_hit(&rig.client, 9, 1, 6), 6);
	ck_assert_uint_eq(keep(&rig.client, 9, SCOUT_FINISH_UNKNOWN, 1, &kept), SCOUT_OUTCOME_ACCEPTED);
	ck_assert_uint_eq(kept, 6);
	wire_wait_status(&rig.client, "ns.test.bytes_kept", 0);
	wire_wait_status(&rig.client, "l1.bytes_promised", 0);
	wire_wait_status(&rig.client, "sessions.bytes", 0);
	flood(&rig);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 6), 0);
}
END_TEST

START_TEST(what_does_not_fit_is_not_kept)
{
	struct wire_peer other;
	uint32_t kept;

	rig_up(&rig, 32);
	ck_assert_uint_eq(kept_turn(&rig, 9, 1, 10, SCOUT_OUTCOME_CLIPPED), 8);
	ck_assert_uint_eq(kept_turn(&rig, 10, 21, 4, SCOUT_OUTCOME_REJECTED), 0);
	flood(&rig);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 10), 8);
	ck_assert_uint_eq(rig_peek(&rig.client, 21, 4), 0);
	/* A session that has nothing keeps nothing; nor is there one without an answer. */
	ck_assert_uint_eq(kept_turn(&rig, 11, 21, 0 + 1, SCOUT_OUTCOME_REJECTED), 0);
	ck_assert_uint_eq(rig_hit(&rig.client, 12, 90, 4), 0);
	ck_assert_uint_eq(keep(&rig.client, 12, SCOUT_FINISH_UNKNOWN, KEEP_MS, &kept), SCOUT_OUTCOME_MISSING);
	/* Two clients: each has half, from now on. */
	ck_assert_uint_eq(kept_turn(&rig, 13, 1, 3, SCOUT_OUTCOME_REJECTED), 0);
	rig_client(&other, rig.endpoint);
	ck_assert_uint_eq(rig_hit(&rig.client, 14, 1, 8), 8);
	ck_assert_uint_eq(keep(&rig.client, 14, SCOUT_FINISH_UNKNOWN, KEEP_MS, &kept), SCOUT_OUTCOME_CLIPPED);
	ck_assert_uint_eq(kept, 4);
	rig_store(&rig.worker, 0, 31, 6);
	ck_assert_uint_eq(rig_hit(&other, 15, 31, 6), 6);
	ck_assert_uint_eq(keep(&other, 15, SCOUT_FINISH_UNKNOWN, UINT32_MAX, &kept), SCOUT_OUTCOME_CLIPPED);
	ck_assert_uint_eq(kept, 4);
	ck_assert_uint_eq(kept_chunks(&rig), 8);
	wire_close(&other);
}
END_TEST

START_TEST(the_newest_word_about_a_prompt_counts)
{
	uint32_t kept;

	rig_up(&rig, 32);
	ck_assert_uint_eq(kept_turn(&rig, 9, 1, 4, SCOUT_OUTCOME_ACCEPTED), 4);
	/* The next turn, and the same again, take the older keep over. */
	ck_assert_uint_eq(kept_turn(&rig, 10, 1, 7, SCOUT_OUTCOME_ACCEPTED), 7);
	wire_wait_status(&rig.client, "ns.test.bytes_kept", 7 * SHARD_BYTES);
	ck_assert_uint_eq(kept_turn(&rig, 11, 1, 7, SCOUT_OUTCOME_ACCEPTED), 7);
	ck_assert_uint_eq(kept_chunks(&rig), 7);
	/* A finish that says nothing leaves it; one that says that nothing follows ends it. */
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 7), 7);
	ck_assert_uint_eq(kept_chunks(&rig), 7);
	ck_assert_uint_eq(rig_hit(&rig.client, 12, 1, 7), 7);
	ck_assert_uint_eq(keep(&rig.client, 12, SCOUT_FINISH_UNLIKELY, 0, &kept), SCOUT_OUTCOME_NONE);
	ck_assert_uint_eq(kept_chunks(&rig), 0);
	wire_wait_status(&rig.client, "l1.bytes_promised", 0);
}
END_TEST

#define PROMPTS 12u
#define PROMPT_MAX 10u
#define TURNS 200u

static uint32_t
draw(uint64_t *random, uint32_t below)
{
	*random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*random >> 33) % below;
}

/* Turns of conversations in any order, with keeps, endings and floods: what a reply says is kept is hit until it ends. */
START_LOOP_TEST(what_is_kept_is_there_until_its_end_whatever_else_happens, 0, 4)
{
	uint32_t kept[PROMPTS] = {0};
	uint64_t random = (uint64_t)_i + 1;
	struct scout__clear_reply cleared;

	rig_up(&rig, 64);
	for (uint64_t turn = 1; turn <= TURNS; turn++) {
		uint32_t prompt = draw(&random, PROMPTS), n = 1 + draw(&random, PROMPT_MAX), what = draw(&random, 4);
		uint64_t key = 1 + prompt * UINT64_C(100), sum = 0;
		uint32_t hit = rig_hit(&rig.client, turn, key, n), reply, outcome;

		ck_assert_uint_ge(hit, n < kept[prompt] ? n : kept[prompt]);
		if (hit < n)
			(void)rig_store(&rig.worker, turn, key + hit, n - hit); /* some are there already */
		outcome = keep(&rig.client, turn, what == 0 ? SCOUT_FINISH_UNLIKELY : SCOUT_FINISH_UNKNOWN,
			       what > 1 ? KEEP_MS : 0, &reply);
		ck_assert_uint_eq(outcome == SCOUT_OUTCOME_NONE, what <= 1);
		ck_assert_uint_le(reply, n);
		/* A shorter turn does not reach the last object of the keep, which stays. */
		if (what != 1 && n >= kept[prompt])
			kept[prompt] = reply;
		else if (reply > kept[prompt])
			kept[prompt] = reply;
		(void)rig_store(&rig.worker, 0, 1000000 + turn * 8, 8);
		for (uint32_t i = 0; i < PROMPTS; i++)
			sum += kept[i];
		ck_assert_uint_le(kept_chunks(&rig), 16);
		ck_assert_uint_ge(kept_chunks(&rig), sum);
	}
	assert_wire(wire_clear(&rig.client, 77, &cleared), SCOUT_WIRE_OK);
	wire_wait_status(&rig.client, "l1.chunks", 0);
	wire_wait_status(&rig.client, "sessions.bytes", 0);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 0);
	ck_assert_uint_eq(kept_chunks(&rig), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "sessions"), 0);
}
END_TEST

START_TEST(a_clear_new_weights_and_the_last_peer_end_keeps)
{
	struct scout__clear_reply cleared;
	struct wire_peer watcher;

	rig_up(&rig, 32);
	ck_assert_uint_eq(kept_turn(&rig, 9, 1, 4, SCOUT_OUTCOME_ACCEPTED), 4);
	assert_wire(wire_clear(&rig.client, 77, &cleared), SCOUT_WIRE_OK);
	wire_wait_status(&rig.client, "ns.test.bytes_kept", 0);
	wire_wait_status(&rig.client, "l1.bytes_promised", 0);
	wire_wait_status(&rig.client, "l1.chunks", 0);
	wire_close(&rig.worker);
	rig_worker(&rig.worker, rig.endpoint);
	ck_assert_uint_eq(kept_turn(&rig, 10, 1, 4, SCOUT_OUTCOME_ACCEPTED), 4);
	assert_wire(wire_simple(&rig.client, SCOUT_OP_RESET, 5), SCOUT_WIRE_OK);
	wire_wait_status(&rig.client, "ns.test.bytes_kept", 0);
	wire_wait_status(&rig.client, "l1.chunks", 0);
	wire_close(&rig.worker);
	rig_worker(&rig.worker, rig.endpoint);
	/* The client is gone: its keep stays while the worker is there. */
	ck_assert_int_eq(wire_lease(&rig.client), SCOUT_LEASE_OK);
	ck_assert_int_eq(wire_lease(&rig.worker), SCOUT_LEASE_OK);
	ck_assert_uint_eq(kept_turn(&rig, 11, 1, 4, SCOUT_OUTCOME_ACCEPTED), 4);
	wire_open(&watcher, rig.endpoint);
	wire_lease_bye(&rig.client);
	wire_close(&rig.client);
	wire_wait_status(&watcher, "ns.test.peers", 1);
	ck_assert_uint_eq(wire_status(&watcher, "ns.test.bytes_kept"), 4 * SHARD_BYTES);
	wire_lease_bye(&rig.worker);
	wire_close(&rig.worker);
	wire_wait_status(&watcher, "ns.test.bytes_kept", 0);
	wire_wait_status(&watcher, "l1.bytes_promised", 0);
	ck_assert_uint_eq(wire_status(&watcher, "sessions"), 0);
	wire_close(&watcher);
	scout_server_stop(rig.server);
	rig.server = NULL;
}
END_TEST
