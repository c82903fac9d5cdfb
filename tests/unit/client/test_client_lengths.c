/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "client_rig.h"

/* scout_lookup_lengths(), and how many lengths, from which token on, a question may ask for. */

CHECKED_FIXTURE(rig_up, rig_down);

START_TEST(the_one_length_is_the_hit)
{
	uint64_t tokens[2] = {1, 2};
	struct scout_hit hit;

	fake_set_hit(fake, 2);
	ck_assert_int_eq(scout_lookup_lengths(client, "r1", tokens, 2), SCOUT_ERR_STATE);
	hit = rig_answer("r1", 3);
	ck_assert_uint_eq(hit.tokens, 2 * RIG_CHUNK);
	ck_assert_int_eq(scout_lookup_lengths(client, "r1", tokens, 2), 1);
	ck_assert_uint_eq(tokens[0], hit.tokens);
	ck_assert_uint_eq(tokens[1], 2);
	ck_assert_int_eq(scout_lookup_lengths(client, "r1", NULL, 0), 0);
	/* It is readable until the admit, as the answer is. */
	ck_assert_int_eq(scout_admit(client, "r1", 0, SCOUT_TO_END), 0);
	ck_assert_int_eq(scout_lookup_lengths(client, "r1", tokens, 2), SCOUT_ERR_STATE);
}
END_TEST

START_TEST(nothing_cached_is_no_length)
{
	uint64_t tokens = 7;

	fake_set_hit(fake, 0);
	(void)rig_answer("r1", 3);
	ck_assert_int_eq(scout_lookup_lengths(client, "r1", &tokens, 1), 0);
	ck_assert_uint_eq(tokens, 7);
}
END_TEST

START_TEST(an_answer_that_has_not_come_has_no_lengths)
{
	struct scout_query q = rig_question("r1", 2);
	struct scout_hit hit;
	uint64_t tokens = 7;

	fake_script(fake, SCOUT_OP_LOOKUP, FAKE_HOLD, 0);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert_int_eq(scout_lookup_lengths(client, "r1", &tokens, 1), SCOUT_ERR_STATE);
	fake_release(fake);
	ck_assert_uint_eq(tokens, 7);
}
END_TEST

START_TEST(wrong_arguments_are_told)
{
	uint64_t tokens = 7;

	ck_assert_int_eq(scout_lookup_lengths(NULL, "r1", &tokens, 1), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_lookup_lengths(client, "r1", NULL, 1), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_lookup_lengths(client, NULL, &tokens, 1), SCOUT_ERR_REQUEST_ID);
	ck_assert_int_eq(scout_lookup_lengths(client, "", &tokens, 1), SCOUT_ERR_REQUEST_ID);
}
END_TEST

START_TEST(a_hit_can_be_cut_at_each_chunk)
{
	struct scout_query q = rig_question("r1", 4);
	uint64_t tokens[4] = {0};
	struct scout_hit hit;

	fake_set_hit(fake, 3);
	q.want_lengths = 2;
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_int_eq(scout_lookup_lengths(client, "r1", tokens, 4), 2);
	ck_assert_uint_eq(tokens[0], 3 * RIG_CHUNK);
	ck_assert_uint_eq(tokens[1], 2 * RIG_CHUNK);
	ck_assert_int_eq(scout_lookup_lengths(client, "r1", tokens, 1), 1);
	q.id = "r2";
	q.want_lengths = 64;
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_int_eq(scout_lookup_lengths(client, "r2", tokens, 4), 3);
	ck_assert_uint_eq(tokens[2], RIG_CHUNK);
	ck_assert_int_eq(scout_admit(client, "r2", 0, (int64_t)tokens[1] + 5), 0);
}
END_TEST

START_TEST(lengths_and_first_tokens_out_of_range_are_refused)
{
	struct scout_query q = rig_question("r1", 2), asked = q;
	struct scout_hit hit;

	q.want_lengths = 65;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_lookup_ahead(client, &q), SCOUT_ERR_INVALID);
	q = asked;
	q.from_token = RIG_CHUNK; /* not computed */
	q.prompt_tokens += RIG_CHUNK;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_INVALID);
	q.from_token = q.computed_tokens = RIG_CHUNK - 1;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_INVALID);
	q.from_token = q.computed_tokens = RIG_CHUNK;
	q.prompt_tokens = 3 * RIG_CHUNK - 1; /* the hashes do not fit behind it */
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_INVALID);
	/* Also when the id is live, and the answer is there. */
	ck_assert_int_eq(scout_wait_lookup(client, &asked, &hit), 0);
	q = asked;
	q.want_lengths = 65;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_try_lookup(client, &asked, &hit), 0);
}
END_TEST
