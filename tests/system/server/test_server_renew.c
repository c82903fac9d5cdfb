/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <string.h>

#include "server_rig.h"

/* Lookups that are asked anew in their session: what they find, promise, refuse and leave behind. */

static struct rig rig;

static void
teardown(void)
{
	if (rig.server)
		rig_down(&rig);
}

/* Renew ticket 9, whose keys begin at 1. */
static struct scout__lookup_reply
renewed(uint32_t n, uint32_t skip)
{
	struct scout__lookup_reply m;

	ck_assert_int_eq(wire_renew(&rig.client, 9, 1, n, skip, &m), SCOUT_WIRE_OK);
	return m;
}

CHECKED_FIXTURE(NULL, teardown);

START_TEST(a_miss_becomes_a_hit_in_its_session)
{
	struct scout__lookup_reply m;

	rig_up(&rig, 8);
	ck_assert_uint_eq(rig_hit(&rig.client, 9, 1, 4), 0);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 3), 3);
	m = renewed(4, 0);
	ck_assert_uint_eq(m.hit, 3);
	ck_assert_uint_eq(m.l1, 3);
	ck_assert_uint_eq(m.l2, 0);
	ck_assert_uint_eq(m.limited, 0);
	ck_assert_uint_eq(rig_promised(&rig), 3);
	/* Once more: nothing new, and nothing is promised twice. */
	ck_assert_uint_eq(renewed(4, 0).hit, 3);
	ck_assert_uint_eq(wire_status(&rig.client, "sessions"), 1);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(rig_promised(&rig), 0);
}
END_TEST

START_TEST(a_renewal_counts_as_no_second_lookup)
{
	rig_up(&rig, 8);
	ck_assert_uint_eq(rig_hit(&rig.client, 9, 1, 4), 0);
	rig_store(&rig.worker, 0, 1, 4);
	ck_assert_uint_eq(renewed(4, 0).hit, 4);
	ck_assert_uint_eq(wire_status(&rig.client, "lookups.none"), 1);
	ck_assert_uint_eq(wire_status(&rig.client, "lookups.full"), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "lookups.asked_chunks"), 4);
	ck_assert_uint_eq(wire_status(&rig.client, "lookups.renewed"), 1);
}
END_TEST

START_TEST(a_cut_hit_becomes_whole_when_others_finish)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout__lookup_reply m;

	cfg.max_promised = 4 * SHARD_BYTES;
	rig_up_with(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 4);
	rig_store(&rig.worker, 0, 101, 3);
	ck_assert_uint_eq(rig_hit(&rig.client, 10, 101, 3), 3);
	ck_assert_int_eq(wire_lookup(&rig.client, 9, 1, 4, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, 1);
	ck_assert_uint_eq(m.limited, 1);
	m = renewed(4, 0);
	ck_assert_uint_eq(m.hit, 1);
	ck_assert_uint_eq(m.limited, 1);
	rig_finish(&rig.client, 10);
	m = renewed(4, 0);
	ck_assert_uint_eq(m.hit, 4);
	ck_assert_uint_eq(m.limited, 0);
	ck_assert_uint_eq(rig_promised(&rig), 4);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(rig_promised(&rig), 0);
}
END_TEST

START_TEST(skipped_chunks_stay_skipped)
{
	struct scout__lookup_reply m;

	rig_up(&rig, 8);
	ck_assert_int_eq(wire_lookup(&rig.client, 9, 1, 6, 2, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, 2);
	rig_store(&rig.worker, 0, 3, 2);
	m = renewed(6, 2);
	ck_assert_uint_eq(m.hit, 4);
	ck_assert_uint_eq(m.l1, 2);
	ck_assert_uint_eq(rig_promised(&rig), 2);
	rig_store(&rig.worker, 0, 5, 1);
	ck_assert_uint_eq(renewed(6, 2).hit, 5);
	ck_assert_uint_eq(rig_promised(&rig), 3);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(rig_promised(&rig), 0);
}
END_TEST

START_TEST(what_was_admitted_away_is_found_again)
{
	uint32_t kept;

	rig_up_promised(&rig, 8, 6);
	ck_assert_int_eq(wire_admit(&rig.client, 9, 0, 4, &kept), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_promised(&rig), 4);
	ck_assert_uint_eq(renewed(6, 0).hit, 6);
	ck_assert_uint_eq(rig_promised(&rig), 6);
	/* All of it: then from skip on. */
	ck_assert_int_eq(wire_admit(&rig.client, 9, 0, 0, &kept), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_promised(&rig), 0);
	ck_assert_uint_eq(renewed(6, 3).hit, 6);
	ck_assert_uint_eq(rig_promised(&rig), 3);
	/* The head: skip is within what is left. */
	ck_assert_int_eq(wire_admit(&rig.client, 9, 4, 5, &kept), SCOUT_WIRE_OK);
	ck_assert_uint_eq(kept, 1);
	ck_assert_uint_eq(renewed(6, 4).hit, 6);
	ck_assert_uint_eq(rig_promised(&rig), 2);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(rig_promised(&rig), 0);
}
END_TEST

/* The status of a renewal of ticket 9. */
static int
refused(uint64_t first_key, uint32_t n, uint32_t skip)
{
	struct scout__lookup_reply m;

	return wire_renew(&rig.client, 9, first_key, n, skip, &m);
}

START_TEST(another_question_is_refused_and_changes_nothing)
{
	struct scout__lookup_msg blue = {.ticket = 9, .n = 4, .flags = SCOUT_LOOKUP_RENEW, .tenant = {"blue", 4}};
	struct scout__lookup_reply m;
	struct wire_peer other;
	struct wire_reply *reply;
	uint32_t kept;
	uint64_t corr;

	rig_up_promised(&rig, 8, 4);
	ck_assert_int_eq(refused(1, 5, 0), SCOUT_WIRE_RANGE);
	ck_assert_int_eq(refused(2, 4, 0), SCOUT_WIRE_RANGE);
	corr = wire_add_lookup(&rig.client, &blue, 1);
	wire_flush(&rig.client);
	reply = wire_wait(&rig.client, corr);
	ck_assert_uint_eq(reply->status, SCOUT_WIRE_RANGE);
	wire_reply_free(reply);
	ck_assert_int_eq(wire_admit(&rig.client, 9, 1, 3, &kept), SCOUT_WIRE_OK);
	ck_assert_int_eq(refused(1, 4, 0), SCOUT_WIRE_RANGE);
	ck_assert_int_eq(refused(1, 4, 4), SCOUT_WIRE_RANGE);
	ck_assert_int_eq(wire_renew(&rig.client, 8, 1, 4, 0, &m), SCOUT_WIRE_NO_SESSION);
	rig_client(&other, rig.endpoint);
	ck_assert_int_eq(wire_renew(&other, 9, 1, 4, 1, &m), SCOUT_WIRE_NO_SESSION);
	wire_close(&other);
	ck_assert_uint_eq(rig_promised(&rig), 2);
	rig_finish(&rig.client, 9);
	ck_assert_int_eq(refused(1, 4, 0), SCOUT_WIRE_NO_SESSION);
	ck_assert_uint_eq(rig_promised(&rig), 0);
}
END_TEST

START_TEST(a_session_that_was_retrieved_from_is_not_renewed)
{
	struct wire_grants g;

	rig_up_promised(&rig, 8, 4);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 2, &g), SCOUT_WIRE_OK);
	ck_assert_int_eq(refused(1, 4, 0), SCOUT_WIRE_STATE);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 0), SCOUT_WIRE_OK);
	free(g.grants);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(rig_promised(&rig), 0);
}
END_TEST

/* A server that holds answers back for longer than any test: only those whose budget ends come. */
static void
up_with_slow_answers(void)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout__lookup_reply m;

	cfg.reply_delay_us = 60000000;
	rig_up_with(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 2);
	rig.client.budget_us = 20000;
	rig.client.sent_us_shift = 10000000; /* a short budget, but however late it is read, it has not waited */
	ck_assert_int_eq(wire_lookup(&rig.client, 9, 1, 6, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, 2);
	rig.client.sent_us_shift = 0;
	rig.client.budget_us = 0;
	rig_store(&rig.worker, 0, 3, 2);
}

/* A renewal of ticket 9 that waits in the server. */
static uint64_t
begin_renewal(void)
{
	const struct scout__lookup_msg m = {.ticket = 9, .n = 6, .flags = SCOUT_LOOKUP_RENEW};
	uint64_t corr = wire_add_lookup(&rig.client, &m, 1);

	wire_flush(&rig.client);
	wire_wait_status(&rig.worker, "ops.waiting", 1);
	return corr;
}

static uint32_t
hit_of(uint64_t corr)
{
	struct wire_reply *reply = wire_wait(&rig.client, corr);
	struct scout__op op = {.length = reply->length, .body = reply->body};
	struct scout__lookup_reply m;
	const char *field;

	ck_assert_uint_eq(reply->status, SCOUT_WIRE_OK);
	ck_assert_int_eq(scout__get_lookup_reply(&op, &m, &field), SCOUT_WIRE_OK);
	wire_reply_free(reply);
	return m.hit;
}

START_TEST(an_admit_ends_the_renewal_that_is_under_way)
{
	uint32_t kept;
	uint64_t corr;

	up_with_slow_answers();
	corr = begin_renewal();
	ck_assert_int_eq(refused(1, 6, 0), SCOUT_WIRE_STATE); /* one at a time */
	ck_assert_int_eq(wire_admit(&rig.client, 9, 0, 2, &kept), SCOUT_WIRE_OK);
	ck_assert_uint_eq(kept, 2);
	ck_assert_uint_eq(hit_of(corr), 4);
	ck_assert_uint_eq(rig_promised(&rig), 2);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(rig_promised(&rig), 0);
}
END_TEST

START_TEST(a_retrieve_ends_the_renewal_that_is_under_way)
{
	struct wire_grants g;
	uint64_t corr;

	up_with_slow_answers();
	corr = begin_renewal();
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 4, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, 4);
	ck_assert_uint_eq(hit_of(corr), 4);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 0), SCOUT_WIRE_OK);
	free(g.grants);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(rig_promised(&rig), 0);
}
END_TEST

START_TEST(a_finish_ends_it_with_all_that_it_promised)
{
	struct wire_reply *reply;
	uint64_t corr;

	up_with_slow_answers();
	corr = begin_renewal();
	ck_assert_uint_eq(rig_promised(&rig), 4);
	rig_finish(&rig.client, 9);
	reply = wire_wait(&rig.client, corr);
	ck_assert_uint_eq(reply->status, SCOUT_WIRE_NO_SESSION);
	wire_reply_free(reply);
	ck_assert_uint_eq(rig_promised(&rig), 0);
}
END_TEST

START_TEST(a_new_connection_keeps_what_a_lost_renewal_promised)
{
	up_with_slow_answers();
	(void)begin_renewal();
	/* The same token from a new identity: what was not answered never will be. */
	struct wire_peer again;

	wire_open(&again, rig.endpoint);
	wire_as(&again, &rig.client.hello);
	ck_assert_int_eq(wire_hello(&again), SCOUT_WIRE_OK);
	wire_wait_status(&again, "ops.waiting", 0);
	ck_assert_uint_eq(wire_status(&again, "l1.bytes_promised"), 4 * SHARD_BYTES);
	rig_finish(&again, 9);
	ck_assert_uint_eq(wire_status(&again, "l1.bytes_promised"), 0);
	wire_close(&again);
}
END_TEST

START_TEST(a_renewal_waits_for_nothing_that_is_expected)
{
	const struct scout__lookup_msg m = {.ticket = 9, .n = 4, .expect = 2, .flags = SCOUT_LOOKUP_RENEW};
	struct wire_reply *reply;
	uint64_t corr;

	rig_up_promised(&rig, 8, 4);
	corr = wire_add_lookup(&rig.client, &m, 1);
	wire_flush(&rig.client);
	reply = wire_wait(&rig.client, corr);
	ck_assert_uint_eq(reply->status, SCOUT_WIRE_RANGE);
	wire_reply_free(reply);
}
END_TEST
