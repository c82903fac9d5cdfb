/* SPDX-License-Identifier: Apache-2.0 */

#include "check_main.h"
#include "client_rig.h"

/* Asking again by the id alone, on a scripted server: it answers as scout_try_lookup() does, and says when it needs the hashes. */

#define N 8u

static int
poll_for(const char *id, uint64_t computed_tokens, struct scout_hit *ret_hit)
{
	return scout_poll_lookup(client, id, computed_tokens, ret_hit);
}

/* Poll until the answer is there; it must not grow old meanwhile. */
static struct scout_hit
polled(const char *id)
{
	struct scout_hit hit;
	int rc;

	wait_until((rc = poll_for(id, 0, &hit)) != SCOUT_NOT_YET)
		;
	ck_assert_int_eq(rc, 0);
	return hit;
}

static int
ask(const char *id, struct scout_hit *ret_hit)
{
	struct scout_query q = rig_question(id, N);

	return scout_try_lookup(client, &q, ret_hit);
}

CHECKED_FIXTURE(rig_up, rig_down);

START_TEST(a_poll_reads_the_answer_of_the_lookup)
{
	struct scout_hit hit, again;

	fake_set_hit(fake, 3);
	ck_assert_int_eq(ask("r1", &hit), SCOUT_NOT_YET);
	hit = polled("r1");
	ck_assert_uint_eq(hit.chunks, 3);
	ck_assert_uint_eq(hit.tokens, 3 * RIG_CHUNK);
	ck_assert_int_eq(ask("r1", &again), 0);
	ck_assert_int_eq(memcmp(&hit, &again, sizeof(hit)), 0);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_LOOKUP), 1);
	ck_assert_int_eq(scout_admit(client, "r1", 0, SCOUT_TO_END), 0);
}
END_TEST

START_TEST(a_poll_of_a_pending_lookup_is_not_yet)
{
	struct scout_hit hit;

	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_DROP, 0);
	ck_assert_int_eq(ask("r1", &hit), SCOUT_NOT_YET);
	ck_assert_int_eq(ask("r2", &hit), SCOUT_NOT_YET);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(poll_for("r1", 0, &hit), SCOUT_NOT_YET);
		ck_assert_int_eq(poll_for("r2", 0, &hit), SCOUT_NOT_YET);
	}
	ck_assert_uint_eq(rig_stats().not_yet, 8);
	ck_assert_uint_eq(rig_stats().lookups, 2);
}
END_TEST

START_TEST(what_was_never_asked_finished_or_admitted_needs_the_query)
{
	struct scout_hit hit;

	fake_set_hit(fake, 3);
	ck_assert_int_eq(poll_for("r1", 0, &hit), SCOUT_NEED_QUERY);
	ck_assert_int_eq(ask("r1", &hit), SCOUT_NOT_YET);
	(void)polled("r1");
	ck_assert_int_eq(scout_admit(client, "r1", 0, SCOUT_TO_END), 0);
	ck_assert_int_eq(poll_for("r1", 0, &hit), SCOUT_NEED_QUERY);
	ck_assert_int_eq(scout_finish(client, "r1"), 0);
	ck_assert_int_eq(poll_for("r1", 0, &hit), SCOUT_NEED_QUERY);
	ck_assert_int_eq(ask("r1", &hit), SCOUT_NOT_YET);
	ck_assert_int_eq(scout_reset(client, 7), 0);
	ck_assert_int_eq(poll_for("r1", 0, &hit), SCOUT_NEED_QUERY);
}
END_TEST

START_TEST(fewer_computed_tokens_need_the_query_and_start_a_new_lookup)
{
	struct scout_query q = rig_question("r1", N);
	struct scout_hit hit;

	fake_set_hit(fake, 6);
	q.computed_tokens = 2 * RIG_CHUNK;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	wait_until(poll_for("r1", 2 * RIG_CHUNK, &hit) != SCOUT_NOT_YET)
		;
	ck_assert_uint_eq(hit.chunks, 6);
	ck_assert_int_eq(poll_for("r1", 3 * RIG_CHUNK, &hit), 0);
	ck_assert_int_eq(poll_for("r1", 2 * RIG_CHUNK - 1, &hit), SCOUT_NEED_QUERY);
	ck_assert_int_eq(poll_for("r1", 2 * RIG_CHUNK, &hit), 0); /* the poll has changed nothing */
	q.computed_tokens = 0;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	(void)polled("r1");
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_LOOKUP), 2);
}
END_TEST

START_TEST(the_first_ask_after_a_lookup_ahead_may_be_a_poll)
{
	struct scout_query q = rig_question("r1", N);
	struct scout_hit hit;
	int rc;

	fake_set_present(fake, 0xbc, 0x08, 0); /* chunks 2 to 5, and 7; 3 is in L2 */
	ck_assert_int_eq(scout_lookup_ahead(client, &q), 0);
	wait_until((rc = poll_for("r1", 2 * RIG_CHUNK, &hit)) != SCOUT_NOT_YET)
		;
	ck_assert_int_eq(rc, 0);
	ck_assert_uint_eq(hit.chunks, 6);
	ck_assert_uint_eq(hit.l2_chunks, 1);
	ck_assert(fake_wait(fake, SCOUT_OP_ADMIT, 1));
}
END_TEST

START_TEST(an_old_answer_needs_the_query_and_is_renewed_by_it)
{
	struct scout_hit hit, renewed = {0};
	uint64_t before;
	int rc;

	rig_reopen("lookup_refresh_ms", "5");
	(void)rig_answer("r1", N); /* read late it is asked anew: that is over when a poll needs the query */
	wait_until((rc = poll_for("r1", 0, &hit)) != 0)
		;
	ck_assert_int_eq(rc, SCOUT_NEED_QUERY);
	before = rig_stats().renewals;
	fake_set_hit(fake, 7);
	ck_assert_int_eq(ask("r1", &hit), 0); /* the old one; and it is asked anew */
	ck_assert_uint_eq(hit.chunks, 0);
	ck_assert_uint_eq(rig_stats().renewals, before + 1);
	wait_until(renewed.chunks == 7) { /* a poll takes over what came */
		rc = poll_for("r1", 0, &renewed);
		ck_assert(rc == 0 || rc == SCOUT_NEED_QUERY);
	}
	ck_assert_uint_eq(renewed.ticket, hit.ticket);
	ck_assert_uint_eq(rig_stats().renewed, 1);
}
END_TEST

START_TEST(while_a_renewal_is_under_way_polls_give_the_old_answer)
{
	struct scout_hit hit;
	uint64_t before;

	rig_reopen("lookup_refresh_ms", "5");
	(void)rig_answer("r1", N); /* read late it is asked anew: that is over when a poll needs the query */
	wait_until(poll_for("r1", 0, &hit) != 0)
		;
	before = rig_stats().renewals;
	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_HOLD, 0);
	ck_assert_int_eq(ask("r1", &hit), 0);
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(poll_for("r1", 0, &hit), 0);
	ck_assert_uint_eq(rig_stats().renewals, before + 1);
}
END_TEST

START_TEST(after_a_restart_of_the_server_a_poll_needs_the_query)
{
	struct scout_hit hit;
	int rc;

	fake_set_hit(fake, 3);
	(void)rig_answer("r1", N);
	fake_unbind(fake);
	fake_bind(fake, true);
	wait_until((rc = poll_for("r1", 0, &hit)) != 0)
		;
	ck_assert_int_eq(rc, SCOUT_NEED_QUERY);
	ck_assert_int_eq(ask("r1", &hit), SCOUT_NOT_YET);
	ck_assert_uint_eq(polled("r1").chunks, 3);
}
END_TEST

START_TEST(wrong_arguments_are_told)
{
	struct scout_hit hit;
	char hits[2 * sizeof(hit)];
	char id[258];

	memset(id, 'a', sizeof(id) - 1);
	id[256] = '\0';
	ck_assert_int_eq(poll_for(NULL, 0, &hit), SCOUT_ERR_REQUEST_ID);
	ck_assert_int_eq(poll_for("", 0, &hit), SCOUT_ERR_REQUEST_ID);
	ck_assert_int_eq(poll_for(id, 0, &hit), SCOUT_ERR_REQUEST_ID);
	ck_assert_int_eq(poll_for("r1", 0, NULL), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_poll_lookup(NULL, "r1", 0, &hit), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_poll_lookup_sized(client, "r1", 0, &hit, 8), SCOUT_ERR_UNSUPPORTED);
	/* A structure of a later version: what this one does not know becomes 0. */
	fake_set_hit(fake, 3);
	(void)rig_answer("r1", N);
	memset(hits, 0xff, sizeof(hits));
	ck_assert_int_eq(scout_poll_lookup_sized(client, "r1", 0, (void *)hits, sizeof(hits)), 0);
	memcpy(&hit, hits, sizeof(hit));
	ck_assert_uint_eq(hit.chunks, 3);
	for (size_t i = sizeof(hit); i < sizeof(hits); i++)
		ck_assert_int_eq(hits[i], 0);
}
END_TEST
