/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "client_internal.h"
#include "client_rig.h"

/* Answers that grow old, on a scripted server: when they are asked anew, what becomes of it, and what is left behind. */

#define CROWD 2000u

/* Another client on the same server, whose answers are old after 5 ms. */
static void
reopen_impatient(const char *key, const char *value)
{
	struct scout_client_config cfg;
	char err[256] = "";

	scout_client_free(client);
	scout_client_config_init(&cfg);
	cfg.endpoint = fake_endpoint(fake);
	cfg.lookup_refresh_ms = 5;
	cfg.lookup_timeout_ms = 60000;
	ck_assert_int_eq(scout_client_config_set(&cfg, key, value, err, sizeof(err)), 0);
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	scout_client_config_fini(&cfg);
	rig_ready();
}

static void
renew_up(void)
{
	rig_up();
	rig_reopen("lookup_refresh_ms", "5");
}

/* Ask until the answer has @chunks; until then it must be @old. The answer that it had at last. */
static struct scout_hit
ask_until(const char *id, uint32_t old, uint32_t chunks)
{
	struct scout_query q = rig_question(id, 8);
	struct scout_hit hit = {.chunks = old};

	wait_until(hit.chunks == chunks) {
		ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
		ck_assert(hit.chunks == old || hit.chunks == chunks);
	}
	return hit;
}

/* Ask until that many were asked anew in all; the answer stays @chunks. */
static void
ask_until_renewals(const char *id, uint32_t chunks, uint64_t n)
{
	struct scout_query q = rig_question(id, 8);
	struct scout_hit hit;

	wait_until(rig_stats().renewals >= n) {
		ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
		ck_assert_uint_eq(hit.chunks, chunks);
	}
}

/* Ask until that many LOOKUPs have arrived; a renewal waits until all that was in flight for the old answer is over. */
static void
ask_until_lookups(const char *id, uint32_t chunks, unsigned n)
{
	struct scout_query q = rig_question(id, 8);
	struct scout_hit hit;

	wait_until(fake_count(fake, SCOUT_OP_LOOKUP) >= n) {
		ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
		ck_assert_uint_eq(hit.chunks, chunks);
	}
}

/* All that was promised is given back. */
static void
wait_no_session(struct fake_server *f)
{
	wait_until(!fake_open_sessions(f))
		;
}

/* The answer is old, and nothing is under way that would make it younger: a late first read has it asked anew at once. */
static void
let_grow_old(const char *id)
{
	struct scout_hit hit;
	int rc;

	wait_until((rc = scout_poll_lookup(client, id, 0, &hit)) != 0)
		;
	ck_assert_int_eq(rc, SCOUT_NEED_QUERY);
}

static bool
has_newer(void)
{
	for (uint32_t i = 0; i < client->n_slots; i++)
		if (atomic_load(&client->slots[i].answer) == SCOUT__RENEWED)
			return true;
	return false;
}

/* Until a newer answer is here, which was not asked for yet. */
static void
wait_newer(void)
{
	wait_until(has_newer())
		;
}

CHECKED_FIXTURE(renew_up, rig_down);

START_TEST(an_old_answer_is_asked_anew_in_its_session)
{
	struct scout_hit first, hit;

	first = rig_answer("r1", 8);
	ck_assert_int_eq(first.reason, SCOUT_REASON_MISS);
	fake_set_hit(fake, 7);
	hit = ask_until("r1", 0, 7);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_HIT);
	ck_assert_uint_eq(hit.tokens, 7 * RIG_CHUNK);
	ck_assert_uint_eq(hit.ticket, first.ticket);
	ck_assert_uint_eq(fake_lookup_ticket(fake, 1), first.ticket);
	ck_assert_uint_eq(fake_last_lookup(fake).flags, SCOUT_LOOKUP_RENEW);
	ck_assert_uint_gt(fake_last_lookup(fake).budget_us, 0);
	ck_assert_uint_eq(rig_stats().lookups, 1);
	ck_assert_uint_eq(rig_stats().answers, 1);
	ck_assert_uint_eq(rig_stats().renewed, 1);
	ck_assert_uint_ge(rig_stats().renewals, 1);
}
END_TEST

START_TEST(never_means_never)
{
	struct scout_query q = rig_question("r1", 8);
	uint64_t end;
	struct scout_hit hit;

	rig_reopen("lookup_refresh_ms", "never");
	(void)rig_answer("r1", 8);
	fake_set_hit(fake, 7);
	end = scout__now_us() + 100000;
	while (scout__now_us() < end) {
		ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
		ck_assert_uint_eq(hit.chunks, 0);
	}
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_LOOKUP), 1);
}
END_TEST

START_TEST(by_default_an_answer_is_young_for_a_second)
{
	struct scout_query q = rig_question("r1", 8);
	struct scout_client_config cfg;
	struct scout_hit hit;
	uint64_t start;

	scout_client_config_init(&cfg);
	ck_assert_uint_eq(cfg.lookup_refresh_ms, 1000);
	rig_reopen("lookup_refresh_ms", "1000");
	start = scout__now_us();
	(void)rig_answer("r1", 8);
	wait_until(rig_stats().renewals > 0)
		ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
	ck_assert_uint_ge(scout__now_us(), start + 1000000);
	ck_assert(fake_wait(fake, SCOUT_OP_LOOKUP, 2));
}
END_TEST

START_TEST(tokens_never_decrease)
{
	fake_set_hit(fake, 5);
	(void)rig_answer("r1", 8);
	fake_set_hit(fake, 2);
	ask_until_renewals("r1", 5, 3);
	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_REFUSE, SCOUT_WIRE_LIMIT);
	ask_until_renewals("r1", 5, 6);
	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_SHORT_BODY, 0);
	ask_until_renewals("r1", 5, 8);
	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_ANSWER, 0);
	fake_set_hit(fake, 6);
	ck_assert_int_eq(ask_until("r1", 5, 6).reason, SCOUT_REASON_HIT);
}
END_TEST

/* r1, whose answer is @old, is asked anew; the server has @newer and holds it back. */
static void
begin_held_renewal(uint32_t old, uint32_t newer)
{
	unsigned lookups;

	let_grow_old("r1");
	lookups = fake_count(fake, SCOUT_OP_LOOKUP);
	fake_set_hit(fake, newer);
	fake_script(fake, SCOUT_OP_LOOKUP, FAKE_HOLD, 0);
	ask_until_renewals("r1", old, rig_stats().renewals + 1);
	ck_assert(fake_wait(fake, SCOUT_OP_LOOKUP, lookups + 1));
}

START_TEST(an_answer_does_not_change_between_an_ask_and_its_admit)
{
	uint32_t from, to;

	fake_set_hit(fake, 3);
	(void)rig_answer("r1", 8);
	begin_held_renewal(3, 7);
	fake_release(fake);
	wait_newer();
	/* The newer answer is here and was not asked for: what is admitted is the old one, and all beyond it goes back. */
	ck_assert_int_eq(scout_admit(client, "r1", 0, SCOUT_TO_END), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_ADMIT, 1));
	fake_last_admit(fake, &from, &to);
	ck_assert_uint_eq(from, 0);
	ck_assert_uint_eq(to, 3);
}
END_TEST

START_TEST(an_admit_while_it_is_under_way_gives_back_what_comes)
{
	uint32_t from, to;

	fake_set_hit(fake, 3);
	(void)rig_answer("r1", 8);
	begin_held_renewal(3, 3);
	ck_assert_int_eq(scout_admit(client, "r1", 0, SCOUT_TO_END), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_ADMIT, 1));
	fake_last_admit(fake, &from, &to);
	ck_assert_uint_eq(to, 3);
	fake_release(fake);
	ck_assert_int_eq(scout_finish(client, "r1"), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1));
	wait_no_session(fake);
}
END_TEST

START_TEST(a_finish_while_it_is_under_way_leaves_nothing)
{
	struct scout_hit hit;

	fake_set_hit(fake, 3);
	for (unsigned i = 1; i <= 20; i++) {
		(void)rig_answer("r1", 8);
		begin_held_renewal(3, 3); /* the server has it: else FINISH may overtake it, and nothing is held */
		ck_assert_int_eq(scout_finish(client, "r1"), 0);
		ck_assert(fake_wait(fake, SCOUT_OP_FINISH, i));
		fake_release(fake);
	}
	wait_no_session(fake);
	ck_assert_uint_eq(rig_stats().live, 0);
	hit = rig_answer("r1", 8);
	ck_assert_uint_eq(hit.chunks, 3);
}
END_TEST

/* r1 ends by its deadline, and the server answers from then on. */
static struct scout_hit
time_out(void)
{
	struct scout_hit hit;

	/* Once more if the server's thread stood still, or the answer was read late and is asked anew already. */
	do {
		rig_down();
		rig_up();
		reopen_impatient("lookup_timeout_ms", "700");
		fake_script(fake, SCOUT_OP_LOOKUP, FAKE_HOLD, 0);
		hit = rig_answer("r1", 8);
	} while (hit.reason == SCOUT_REASON_UNREACHABLE || rig_stats().renewals > 0);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_TIMEOUT);
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1));
	fake_release(fake);
	ck_assert_uint_eq(fake_finish_ticket(fake, 0), hit.ticket);
	fake_set_hit(fake, 4);
	return hit;
}

START_TEST(a_timeout_is_asked_again_under_another_ticket)
{
	struct scout_hit old = time_out(), hit;

	hit = ask_until("r1", 0, 4);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_HIT);
	ck_assert_uint_ne(hit.ticket, old.ticket);
	ck_assert_uint_eq(fake_last_lookup(fake).flags, 0);
	ck_assert_int_eq(scout_finish(client, "r1"), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 2));
	wait_no_session(fake);
}
END_TEST

START_TEST(an_admit_of_a_timeout_ends_what_asks_again)
{
	(void)time_out();
	fake_script(fake, SCOUT_OP_LOOKUP, FAKE_HOLD, 0);
	ask_until_lookups("r1", 0, 2);
	ck_assert_int_eq(scout_admit(client, "r1", 0, SCOUT_TO_END), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 2));
	wait_no_session(fake);
	fake_release(fake);
	ck_assert_int_eq(scout_finish(client, "r1"), 0);
	ck_assert_uint_eq(rig_stats().live, 0);
}
END_TEST

START_TEST(an_admit_of_a_timeout_gives_back_what_was_found_again)
{
	uint32_t from, to;

	(void)time_out();
	fake_script(fake, SCOUT_OP_LOOKUP, FAKE_HOLD, 0);
	ask_until_lookups("r1", 0, 2);
	fake_release(fake);
	wait_newer();
	ck_assert_int_eq(scout_admit(client, "r1", 0, SCOUT_TO_END), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_ADMIT, 1));
	fake_last_admit(fake, &from, &to);
	ck_assert_uint_ge(from, to);
}
END_TEST

START_TEST(limited_is_told)
{
	struct scout_hit hit;

	fake_set_limited(fake, true);
	fake_set_hit(fake, 3);
	hit = rig_answer("r2", 8);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_LIMITED);
	ck_assert_uint_eq(hit.tokens, 3 * RIG_CHUNK);
	ck_assert_uint_eq(rig_stats().hits, 1);
	ck_assert_uint_eq(rig_stats().hit_tokens, 3 * RIG_CHUNK);
	ck_assert_str_eq(scout_reason_name(hit.reason), "limited");
	fake_set_hit(fake, 0);
	hit = rig_answer("r1", 8);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_LIMITED);
	ck_assert_uint_eq(hit.tokens, 0);
	ck_assert_int_eq(hit.error, 0);
	fake_set_limited(fake, false); /* first: a late first read is asked anew at once */
	fake_set_hit(fake, 3);
	hit = ask_until("r1", 0, 3);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_HIT);
}
END_TEST

START_TEST(a_crowd_that_waits_does_not_flood_the_server)
{
	static char ids[CROWD][16];
	struct scout_hit hit;
	uint64_t start, end, before, most;

	for (unsigned i = 0; i < CROWD; i++) {
		snprintf(ids[i], sizeof(ids[i]), "r%u", i);
		struct scout_query q = rig_question(ids[i], 4);

		ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	}
	for (unsigned i = 0; i < CROWD; i++)
		(void)rig_answer(ids[i], 4);
	before = rig_stats().renewals; /* of answers that were read late */
	start = scout__now_us();
	end = start + 500000;
	wait_until(scout__now_us() >= end && rig_stats().renewals > before + 32) {
		scout_step_begin(client);
		for (unsigned i = 0; i < CROWD; i++) {
			struct scout_query q = rig_question(ids[i], 4);

			ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
		}
		scout_step_end(client);
	}
	/* 256 a second, and what was saved up before: 32. */
	most = before + 256 * (scout__now_us() - start) / 1000000 + 33;
	ck_assert_uint_le(rig_stats().renewals, most);
	ck_assert_uint_le(fake_count(fake, SCOUT_OP_LOOKUP), CROWD + most);
	ck_assert_uint_eq(rig_stats().lookups, CROWD);
}
END_TEST

START_TEST(a_full_arena_means_later_not_busy)
{
	struct scout_query q = rig_question("r1", 8), more;
	struct scout_hit hit;
	uint64_t before;
	char id[16];

	reopen_impatient("arena_bytes", "64Ki");
	fake_set_hit(fake, 3);
	(void)rig_answer("r1", 8);
	let_grow_old("r1");
	before = rig_stats().renewals;
	scout_step_begin(client); /* nothing leaves before its end, so the arena stays full */
	for (unsigned i = 0;; i++) {
		snprintf(id, sizeof(id), "more%u", i);
		more = rig_question(id, i < 64 ? RIG_MAX : 1);
		if (scout_try_lookup(client, &more, &hit) == SCOUT_ERR_BUSY && more.n == 1)
			break;
	}
	fake_set_hit(fake, 5);
	for (uint64_t until = scout__now_us() + 50000; scout__now_us() < until;) {
		ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
		ck_assert_uint_eq(hit.chunks, 3);
	}
	ck_assert_uint_eq(rig_stats().renewals, before);
	scout_step_end(client);
	(void)ask_until("r1", 3, 5);
}
END_TEST

START_TEST(of_several_servers_the_minimum_is_renewed)
{
	struct fake_server *other = fake_start();
	struct scout_client_config cfg;
	char list[300], err[256] = "";
	uint32_t from, to;

	scout_client_free(client);
	snprintf(list, sizeof(list), "%s %s", fake_endpoint(fake), fake_endpoint(other));
	scout_client_config_init(&cfg);
	cfg.endpoint = list;
	cfg.kv_ranks = 2;
	cfg.lookup_refresh_ms = 5;
	cfg.lookup_timeout_ms = 60000;
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	rig_ready();
	fake_set_hit(fake, 2);
	fake_set_hit(other, 2);
	(void)rig_answer("r1", 8);
	let_grow_old("r1");
	fake_set_hit(fake, 8);
	fake_set_hit(other, 5);
	ck_assert_uint_eq(ask_until("r1", 2, 5).chunks, 5);
	ck_assert(fake_wait(fake, SCOUT_OP_ADMIT, 1));
	fake_last_admit(fake, &from, &to);
	ck_assert_uint_eq(from, 0);
	ck_assert_uint_eq(to, 5);
	/* One of them refuses from now on: the other one's news change nothing. */
	fake_always(other, SCOUT_OP_LOOKUP, FAKE_REFUSE, SCOUT_WIRE_STATE);
	ask_until_renewals("r1", 5, rig_stats().renewals + 3);
	/* One of them was restarted: all is asked anew. */
	fake_always(other, SCOUT_OP_LOOKUP, FAKE_ANSWER, 0);
	fake_unbind(other);
	fake_bind(other, true);
	wait_until(rig_stats().epochs != 0)
		;
	rig_ready();
	ck_assert_uint_eq(rig_answer("r1", 8).chunks, 5);
	ck_assert_int_eq(scout_finish(client, "r1"), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 2));
	ck_assert(fake_wait(other, SCOUT_OP_FINISH, 1));
	wait_no_session(fake);
	wait_no_session(other);
	fake_stop(other);
}
END_TEST

START_TEST(after_a_restart_an_answer_is_not_yet)
{
	struct scout_query q = rig_question("r1", 8);
	struct scout_hit old, hit;

	rig_reopen("lookup_refresh_ms", "never"); /* which does not matter here */
	fake_set_hit(fake, 5);
	old = rig_answer("r1", 8);
	fake_set_hit(fake, 2);
	rig_restart();
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	hit = rig_answer("r1", 8);
	ck_assert_uint_eq(hit.chunks, 2);
	ck_assert_uint_ne(hit.ticket, old.ticket);
	ck_assert_uint_eq(fake_last_lookup(fake).flags, 0);
	ck_assert_int_eq(scout_finish(client, "r1"), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1));
	ck_assert_uint_eq(fake_finish_ticket(fake, 0), hit.ticket); /* what the old server had is not asked for */
}
END_TEST

START_TEST(an_admit_of_an_answer_of_before_promises_nothing)
{
	struct scout_hit hit;

	fake_set_hit(fake, 5);
	(void)rig_answer("r1", 8);
	rig_restart();
	ck_assert_int_eq(scout_admit(client, "r1", 0, 512), 0);
	ck_assert_int_eq(scout_admit(client, "r1", 0, 512), SCOUT_ERR_STATE);
	ck_assert_int_eq(scout_finish(client, "r1"), 0);
	hit = rig_answer("r2", 8);
	ck_assert_uint_eq(hit.chunks, 5);
	ck_assert_int_eq(scout_finish(client, "r2"), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1));
	ck_assert_uint_eq(fake_finish_ticket(fake, 0), hit.ticket);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_ADMIT), 0);
}
END_TEST

START_TEST(a_lost_connection_ends_a_renewal_and_the_next_one_works)
{
	struct scout_query q = rig_question("r1", 8);
	struct scout_hit hit;
	unsigned lookups;

	fake_set_hit(fake, 3);
	(void)rig_answer("r1", 8);
	let_grow_old("r1");
	lookups = fake_count(fake, SCOUT_OP_LOOKUP);
	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_DROP, 0);
	ask_until_renewals("r1", 3, rig_stats().renewals + 1);
	ck_assert(fake_wait(fake, SCOUT_OP_LOOKUP, lookups + 1));
	fake_unbind(fake);
	wait_until(rig_stats().servers_up == 0)
		ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_ANSWER, 0);
	fake_set_hit(fake, 6);
	fake_bind(fake, false);
	rig_ready();
	hit = ask_until("r1", 3, 6); /* the same server start: it is the session of before */
	ck_assert_uint_eq(hit.ticket, fake_lookup_ticket(fake, 0));
}
END_TEST
