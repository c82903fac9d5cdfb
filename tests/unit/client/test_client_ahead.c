/* SPDX-License-Identifier: Apache-2.0 */

#include "check_main.h"
#include "client_rig.h"

/* Lookups ahead, on a scripted server: what the first ask makes of what is there by chunk. */

#define N 8u

static void
ask_ahead(const char *id)
{
	struct scout_query q = rig_question(id, N);

	ck_assert_int_eq(scout_lookup_ahead(client, &q), 0);
}

/* The first ask: with so many tokens on the GPU. */
static struct scout_hit
first_ask(const char *id, uint64_t computed_tokens)
{
	struct scout_query q = rig_question(id, N);
	struct scout_hit hit;

	q.computed_tokens = computed_tokens;
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	return hit;
}

static void
check_admit(unsigned nth, uint32_t from, uint32_t to)
{
	uint32_t got_from, got_to;

	ck_assert(fake_wait(fake, SCOUT_OP_ADMIT, nth));
	fake_last_admit(fake, &got_from, &got_to);
	ck_assert_uint_eq(got_from, from);
	ck_assert_uint_eq(got_to, to);
}

CHECKED_FIXTURE(rig_up, rig_down);

START_TEST(a_head_that_only_the_gpu_has_is_no_miss)
{
	struct scout_hit hit;

	fake_set_present(fake, 0xbc, 0x08, 0); /* chunks 2 to 5, and 7; 3 is in L2 */
	ask_ahead("r1");
	hit = first_ask("r1", 2 * RIG_CHUNK + 5);
	ck_assert_uint_eq(hit.chunks, 6);
	ck_assert_uint_eq(hit.tokens, 6 * RIG_CHUNK);
	ck_assert_uint_eq(hit.l1_chunks, 3);
	ck_assert_uint_eq(hit.l2_chunks, 1);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_HIT);
	ck_assert_uint_eq(hit.ticket, fake_lookup_ticket(fake, 0));
	check_admit(1, 2, 6);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_LOOKUP), 1);
	ck_assert_uint_eq(fake_last_lookup(fake).flags, SCOUT_LOOKUP_AHEAD);
	ck_assert_uint_eq(fake_last_lookup(fake).skip, 0);
	ck_assert_uint_eq(rig_stats().hits, 1);
	ck_assert_uint_eq(rig_stats().hit_tokens, 6 * RIG_CHUNK);
	ck_assert_uint_eq(rig_stats().lookups, 1);
	/* From now on it is as any other. */
	ck_assert_uint_eq(first_ask("r1", 3 * RIG_CHUNK).chunks, 6);
	ck_assert_int_eq(scout_admit(client, "r1", 3 * RIG_CHUNK, 5 * RIG_CHUNK), 0);
	check_admit(2, 3, 5);
	ck_assert_int_eq(scout_finish(client, "r1"), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1));
	ck_assert_uint_eq(fake_open_sessions(fake), 0);
}
END_TEST

START_TEST(what_the_gpu_has_is_given_back)
{
	struct scout_hit hit;

	fake_set_present(fake, 0x3f, 0, 0);
	ask_ahead("r1");
	hit = first_ask("r1", 6 * RIG_CHUNK);
	ck_assert_uint_eq(hit.chunks, 6);
	ck_assert_uint_eq(hit.l1_chunks, 0);
	check_admit(1, 6, 6);
}
END_TEST

START_TEST(without_a_head_it_is_a_miss)
{
	fake_set_present(fake, 0xbc, 0, 0);
	ask_ahead("r1");
	ck_assert_int_eq(first_ask("r1", 0).reason, SCOUT_REASON_MISS);
	check_admit(1, 0, 0);
}
END_TEST

START_TEST(the_last_token_of_a_full_hit_is_computed)
{
	struct scout_query q = rig_question("r1", N);
	struct scout_hit hit;

	fake_set_present(fake, 0xff, 0, 0);
	q.prompt_tokens = N * RIG_CHUNK;
	ck_assert_int_eq(scout_lookup_ahead(client, &q), 0);
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_uint_eq(hit.chunks, N);
	ck_assert_uint_eq(hit.tokens, N * RIG_CHUNK - 1);
}
END_TEST

START_TEST(limited_is_told_where_the_run_was_cut)
{
	fake_set_limited(fake, true);
	fake_set_present(fake, 0x0e, 0, 4);
	ask_ahead("cut");
	ck_assert_int_eq(first_ask("cut", RIG_CHUNK).reason, SCOUT_REASON_LIMITED);
	ask_ahead("gap");
	ck_assert_int_eq(first_ask("gap", 0).reason, SCOUT_REASON_MISS);
	ask_ahead("behind");
	ck_assert_int_eq(first_ask("behind", 5 * RIG_CHUNK).reason, SCOUT_REASON_LIMITED);
}
END_TEST

START_TEST(an_admit_before_the_first_ask_is_a_state_error)
{
	ask_ahead("r1");
	ck_assert_int_eq(scout_admit(client, "r1", 0, SCOUT_TO_END), SCOUT_ERR_STATE);
	(void)first_ask("r1", 0);
	ck_assert_int_eq(scout_admit(client, "r1", 0, SCOUT_TO_END), 0);
}
END_TEST

START_TEST(what_is_never_asked_for_ends_with_finish)
{
	fake_set_present(fake, 0xbc, 0, 0);
	for (unsigned i = 1; i <= 3; i++) {
		ask_ahead("r1");
		ck_assert(fake_wait(fake, SCOUT_OP_LOOKUP, i));
		ck_assert_int_eq(scout_finish(client, "r1"), 0);
		ck_assert(fake_wait(fake, SCOUT_OP_FINISH, i));
	}
	ck_assert_uint_eq(fake_open_sessions(fake), 0);
	ck_assert_uint_eq(rig_stats().live, 0);
	ask_ahead("r2"); /* and what is left open ends with the client */
}
END_TEST

START_TEST(asked_ahead_twice_it_is_one_lookup)
{
	struct scout_query other = rig_question("r1", N - 1);
	struct scout_query none = rig_question("r2", 0);

	ask_ahead("r1");
	ask_ahead("r1");
	ck_assert_int_eq(scout_lookup_ahead(client, &other), SCOUT_ERR_STATE);
	ck_assert_int_eq(scout_lookup_ahead(client, &none), 0);
	ck_assert_int_eq(scout_lookup_ahead(client, NULL), SCOUT_ERR_INVALID);
	(void)first_ask("r1", 0);
	ask_ahead("r1");
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_LOOKUP), 1);
	ck_assert_uint_eq(rig_stats().live, 1);
}
END_TEST

START_TEST(nobody_is_asked_while_the_server_is_gone)
{
	fake_unbind(fake);
	rig_wait_gone();
	ask_ahead("r1");
	ck_assert_uint_eq(rig_stats().live, 0);
	ck_assert_int_eq(first_ask("r1", 0).reason, SCOUT_REASON_UNREACHABLE);
}
END_TEST

START_TEST(a_failed_one_is_that_failure)
{
	fake_script(fake, SCOUT_OP_LOOKUP, FAKE_REFUSE, SCOUT_WIRE_LIMIT);
	ask_ahead("r1");
	ck_assert_int_eq(first_ask("r1", 512).reason, SCOUT_REASON_REFUSED);
	fake_script(fake, SCOUT_OP_LOOKUP, FAKE_SHORT_BODY, 0);
	ask_ahead("r2");
	ck_assert_int_eq(first_ask("r2", 0).error, SCOUT_ERR_PROTOCOL);
	ck_assert_int_eq(scout_finish(client, "r2"), 0);
}
END_TEST

START_TEST(after_a_restart_it_is_asked_anew)
{
	struct scout_query q = rig_question("r1", N);
	struct scout_hit hit;

	fake_set_present(fake, 0xff, 0, 0);
	fake_set_hit(fake, 3);
	ask_ahead("r1");
	ck_assert(fake_wait(fake, SCOUT_OP_LOOKUP, 1));
	wait_until(rig_stats().answers != 0)
		;
	rig_restart();
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert_uint_eq(first_ask("r1", 0).chunks, 3);
	ck_assert_uint_eq(fake_last_lookup(fake).flags, 0);
}
END_TEST

START_TEST(it_is_renewed_from_where_it_was_settled)
{
	struct scout_hit hit;

	rig_reopen("lookup_refresh_ms", "5");
	fake_set_present(fake, 0x0c, 0x08, 0);
	ask_ahead("r1");
	hit = first_ask("r1", 2 * RIG_CHUNK);
	ck_assert_uint_eq(hit.chunks, 4);
	fake_set_hit(fake, 7);
	wait_until((hit = first_ask("r1", 2 * RIG_CHUNK)).chunks != 4)
		;
	ck_assert_uint_eq(hit.chunks, 7);
	ck_assert_uint_eq(hit.l2_chunks, 1);
	ck_assert_uint_eq(hit.l1_chunks, 4);
	ck_assert_uint_eq(fake_last_lookup(fake).flags, SCOUT_LOOKUP_RENEW);
	ck_assert_uint_eq(fake_last_lookup(fake).skip, 2);
	ck_assert_uint_eq(hit.ticket, fake_lookup_ticket(fake, 0));
}
END_TEST

START_TEST(a_gpu_that_lost_what_it_had_asks_anew)
{
	fake_set_present(fake, 0xff, 0, 0);
	ask_ahead("r1");
	(void)first_ask("r1", 4 * RIG_CHUNK);
	(void)first_ask("r1", RIG_CHUNK);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_LOOKUP), 2);
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1));
	ck_assert_uint_eq(fake_finish_ticket(fake, 0), fake_lookup_ticket(fake, 0));
}
END_TEST

START_TEST(of_several_servers_it_is_what_all_have)
{
	struct fake_server *other = fake_start();
	struct scout_client_config cfg;
	char list[300], err[256] = "";
	struct scout_hit hit;
	uint32_t from, to;

	scout_client_free(client);
	snprintf(list, sizeof(list), "%s %s", fake_endpoint(fake), fake_endpoint(other));
	scout_client_config_init(&cfg);
	cfg.endpoint = list;
	cfg.kv_ranks = 2;
	cfg.lookup_timeout_ms = 60000;
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	rig_ready();
	fake_set_present(fake, 0x7e, 0x02, 0);
	fake_set_present(other, 0xee, 0x08, 7);
	fake_set_limited(other, true);
	ask_ahead("r1");
	hit = first_ask("r1", RIG_CHUNK);
	ck_assert_uint_eq(hit.chunks, 4);
	ck_assert_uint_eq(hit.l1_chunks, 1);
	ck_assert_uint_eq(hit.l2_chunks, 2);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_HIT);
	check_admit(1, 1, 4);
	ck_assert(fake_wait(other, SCOUT_OP_ADMIT, 1));
	fake_last_admit(other, &from, &to);
	ck_assert_uint_eq(from, 1);
	ck_assert_uint_eq(to, 4);
	ask_ahead("r2");
	ck_assert_int_eq(first_ask("r2", 5 * RIG_CHUNK).reason, SCOUT_REASON_LIMITED);
	scout_client_free(client);
	client = NULL;
	fake_stop(other);
}
END_TEST

START_TEST(a_step_of_them_travels_in_one_frame)
{
	uint64_t rings;
	char id[16];

	(void)first_ask("warm", 0);
	rings = rig_stats().rings;
	scout_step_begin(client);
	for (unsigned i = 0; i < 64; i++) {
		snprintf(id, sizeof(id), "r%u", i);
		ask_ahead(id);
	}
	ck_assert_uint_eq(rig_stats().rings, rings);
	scout_step_end(client);
	ck_assert_uint_le(rig_stats().rings, rings + 1);
	ck_assert(fake_wait(fake, SCOUT_OP_LOOKUP, 65));
	ck_assert_uint_ge(fake_max_ops(fake), 64);
}
END_TEST
