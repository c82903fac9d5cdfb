/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>

#include "check_main.h"
#include "client_rig.h"
#include "link.h"

/* When a lookup ends that gets no answer, and what its server is told of that: deadlines, the time for late keys. */

/* ---- the time for late keys ---- */

static const struct {
	const char *timeout_ms, *interval_ms, *all;
	uint64_t expect_tokens;
	uint32_t expect, budget_ms; /* what the server is told; polled if expect > 0. The rig's own timeout is 60000 */
} polls[] = {
	/* An expectation alone is none: a lookup is one shot unless both times are set. */
	{"0", "0", "0", 8 * RIG_CHUNK, 0, 60000},
	{"90000", "0", "1", 8 * RIG_CHUNK, 0, 60000},
	{"0", "7", "1", 8 * RIG_CHUNK, 0, 60000},
	/* Those that expect something are waited for; rounded down to chunks, at most all. */
	{"90000", "7", "0", 0, 0, 60000},
	{"90000", "7", "0", 3 * RIG_CHUNK, 3, 90000},
	{"90000", "7", "0", 3 * RIG_CHUNK + 255, 3, 90000},
	{"90000", "7", "0", 100 * RIG_CHUNK, 8, 90000},
	{"200", "7", "0", 3 * RIG_CHUNK, 3, 60000},
	/* Or all of them. */
	{"90000", "7", "1", 0, 8, 90000},
	{"90000", "7", "1", 3 * RIG_CHUNK, 3, 90000},
};

CHECKED_FIXTURE(rig_up, rig_down);

START_LOOP_TEST(the_server_is_told_to_wait_for_late_keys_when_both_times_are_set, 0, (sizeof(polls) / sizeof(polls[0])))
{
	struct scout_client_config cfg;
	struct scout_query q = rig_question("r1", 8);
	struct fake_lookup seen;
	struct scout_hit hit;
	char err[256] = "";

	scout_client_free(client);
	scout_client_config_init(&cfg);
	cfg.endpoint = fake_endpoint(fake);
	cfg.lookup_timeout_ms = 60000;
	ck_assert_int_eq(
		scout_client_config_set(&cfg, "lookup_poll_key_timeout_ms", polls[_i].timeout_ms, err, sizeof(err)), 0);
	ck_assert_int_eq(
		scout_client_config_set(&cfg, "lookup_poll_key_intervals_ms", polls[_i].interval_ms, err, sizeof(err)),
		0);
	ck_assert_int_eq(scout_client_config_set(&cfg, "lookup_poll_key_all", polls[_i].all, err, sizeof(err)), 0);
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	scout_client_config_fini(&cfg);
	rig_ready();
	q.expect_tokens = polls[_i].expect_tokens;
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	seen = fake_last_lookup(fake);
	ck_assert_uint_eq(seen.expect, polls[_i].expect);
	ck_assert_uint_eq(seen.poll_timeout_ms, seen.expect ? strtoul(polls[_i].timeout_ms, NULL, 10) : 0);
	ck_assert_uint_eq(seen.poll_interval_ms, seen.expect ? strtoul(polls[_i].interval_ms, NULL, 10) : 0);
	ck_assert_uint_le(seen.budget_us, polls[_i].budget_ms * 1000);
	ck_assert_uint_gt(seen.budget_us, (polls[_i].budget_ms - 30000 + 1) * 1000);
}
END_TEST

/* ---- deadlines ---- */

/* The largest counts: a lookup's own timeout cannot end it before the client's. */
START_TEST(a_lookups_own_timeout_counts_where_it_is_the_largest)
{
	static const uint32_t own[] = {0, 1, 30000, 90000}, effective_ms[] = {60000, 60000, 60000, 90000};
	char id[32];

	for (unsigned i = 0; i < 4; i++) {
		struct scout_query q;
		struct scout_hit hit;

		(void)snprintf(id, sizeof(id), "r%u", i);
		q = rig_question(id, 8);
		q.timeout_ms = own[i];
		ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
		ck_assert_uint_le(fake_last_lookup(fake).budget_us, effective_ms[i] * 1000);
		ck_assert_uint_gt(fake_last_lookup(fake).budget_us, (effective_ms[i] - 30000 + 1) * 1000);
	}
}
END_TEST

START_TEST(a_timeout_that_is_too_long_is_refused)
{
	struct scout_query q = rig_question("r1", 8);
	struct scout_hit hit;

	q.timeout_ms = SCOUT_LOOKUP_TIMEOUT_MAX_MS + 1;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_INVALID);
	q.timeout_ms = SCOUT_LOOKUP_TIMEOUT_MAX_MS;
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_uint_gt(fake_last_lookup(fake).budget_us, 3500000000u);
}
END_TEST

/* ---- silence ---- */

/* Who looks as often as it should finds the end in time; a pause of its own counts as one look, however long it was. */
START_TEST(a_pause_of_our_own_is_no_silence)
{
	struct scout__patience p = {.looked_us = 1000000};
	uint64_t now_us = 1000000, next_us = 0;
	unsigned looks = 0;

	while (!scout__patience_look(&p, 300000, now_us, &next_us)) {
		ck_assert_uint_gt(next_us, now_us);
		now_us = next_us;
		looks++;
	}
	ck_assert_uint_ge(now_us, 1300000);
	ck_assert_uint_le(now_us, 1301000);
	ck_assert_uint_ge(looks, 5);
	p = (struct scout__patience){.looked_us = 1000000};
	now_us = 1000000 + 60000000;
	ck_assert(!scout__patience_look(&p, 300000, now_us, &next_us));
	ck_assert_uint_le(next_us, now_us + 51000);
	for (looks = 1; !scout__patience_look(&p, 300000, now_us, &next_us); looks++)
		now_us = next_us + 10000000;
	ck_assert_uint_ge(looks, 6);
	/* An earlier clock than that of the last look is no time. */
	p = (struct scout__patience){.looked_us = 1000000};
	ck_assert(!scout__patience_look(&p, 300000, 900000, &next_us));
	ck_assert_uint_eq(p.waited_us, 0);
}
END_TEST

/* ---- what is logged ---- */

static atomic_uint n_timeout_lines;
static char timeout_line[256]; /* before n_timeout_lines */

static void
note_timeouts(void *user, int level, const char *text)
{
	(void)user;
	if (!strstr(text, "no answer within"))
		return;
	ck_assert_int_eq(level, SCOUT_LOG_WARN);
	if (atomic_load(&n_timeout_lines) == 0)
		(void)snprintf(timeout_line, sizeof(timeout_line), "%s", text);
	atomic_fetch_add(&n_timeout_lines, 1);
}

/* Also where nobody waits for the answer; one line a second, however many they are. */
START_TEST(timeouts_are_logged_at_most_once_a_second)
{
	struct scout_client_config cfg;
	struct scout_hit hit;
	char id[32], err[256] = "";
	uint64_t begin_us;

	scout_client_free(client);
	scout_client_config_init(&cfg);
	cfg.endpoint = fake_endpoint(fake);
	cfg.lookup_timeout_ms = 300;
	cfg.log = note_timeouts;
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	rig_ready();
	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_DROP, 0);
	begin_us = scout__now_us();
	scout_step_begin(client);
	for (unsigned i = 0; i < 100; i++) {
		struct scout_query q;

		(void)snprintf(id, sizeof(id), "request-%u", i);
		q = rig_question(id, 2);
		ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	}
	scout_step_end(client);
	ck_assert_int_eq(rig_answer("request-99", 2).reason, SCOUT_REASON_TIMEOUT);
	ck_assert_uint_ge(atomic_load(&n_timeout_lines), 1);
	ck_assert_uint_le(atomic_load(&n_timeout_lines), 1 + (scout__now_us() - begin_us) / 1000000);
	ck_assert_msg(strstr(timeout_line, "request request-0: no answer within 300 ms") != NULL, "%s", timeout_line);
}
END_TEST

static atomic_uint n_refusal_lines;
static char refusal_line[256]; /* before n_refusal_lines */

static void
note_refusals(void *user, int level, const char *text)
{
	(void)user;
	if (!strstr(text, "refused"))
		return;
	ck_assert_int_eq(level, SCOUT_LOG_WARN);
	(void)snprintf(refusal_line, sizeof(refusal_line), "%s", text);
	atomic_fetch_add(&n_refusal_lines, 1);
}

START_TEST(a_refusal_is_logged_with_the_servers_sentence_at_most_once_in_ten_seconds)
{
	struct scout_client_config cfg;
	char id[32], err[256] = "", line[256];
	uint64_t begin_us = scout__now_us();

	scout_client_free(client);
	scout_client_config_init(&cfg);
	cfg.endpoint = fake_endpoint(fake);
	cfg.lookup_timeout_ms = 60000;
	cfg.log = note_refusals;
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	rig_ready();
	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_REFUSE, SCOUT_WIRE_RANGE);
	(void)rig_answer("request-0", 2);
	ck_assert_uint_eq(atomic_load(&n_refusal_lines), 1);
	(void)snprintf(
		line, sizeof(line),
		"client: request request-0: %s refused the lookup with SCOUT_ERR_PROTOCOL: refused by the script",
		fake_endpoint(fake));
	ck_assert_str_eq(refusal_line, line);
	for (unsigned i = 1; i < 100; i++) {
		(void)snprintf(id, sizeof(id), "request-%u", i);
		ck_assert_int_eq(rig_answer(id, 2).reason, SCOUT_REASON_REFUSED);
	}
	ck_assert_uint_le(atomic_load(&n_refusal_lines), 1 + (scout__now_us() - begin_us) / 10000000);
}
END_TEST

/* ---- what is counted ---- */

static void
check_sum(uint64_t pending)
{
	struct scout_client_counters s = rig_stats();

	ck_assert_uint_eq(s.lookups, s.answers + s.dropped + pending);
	ck_assert_uint_le(s.hits + s.timeouts + s.unreachable + s.refused, s.answers);
}

/* Whatever became of it: an answer, a finish before it, or one that this thread gave because the server was known to be away. */
START_TEST(each_lookup_is_counted_once_as_answered_or_dropped)
{
	struct scout_query q = rig_question("r1", 8);
	struct scout_hit hit;

	fake_set_hit(fake, 4);
	fake_script(fake, SCOUT_OP_LOOKUP, FAKE_HOLD, 0);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert_uint_eq(rig_stats().not_yet, 1);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert_uint_eq(rig_stats().not_yet, 2);
	ck_assert(fake_wait(fake, SCOUT_OP_LOOKUP, 1));
	check_sum(1);
	ck_assert_int_eq(scout_finish(client, "r1"), 0);
	(void)rig_answer("r2", 8); /* the courier has read the finish before it */
	check_sum(0);
	ck_assert_uint_eq(rig_stats().dropped, 1);
	ck_assert_uint_eq(rig_stats().answers, 1);
	ck_assert_uint_eq(rig_stats().hits, 1);
	/* An answer that is finished is no drop. */
	ck_assert_int_eq(scout_finish(client, "r2"), 0);
	fake_script(fake, SCOUT_OP_LOOKUP, FAKE_REFUSE, SCOUT_WIRE_LIMIT);
	(void)rig_answer("r3", 8);
	check_sum(0);
	ck_assert_uint_eq(rig_stats().dropped, 1);
	ck_assert_uint_eq(rig_stats().refused, 1);
	fake_unbind(fake);
	rig_wait_gone();
	q = rig_question("r4", 8);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_UNREACHABLE);
	check_sum(0);
	ck_assert_uint_eq(rig_stats().unreachable, 1);
	ck_assert_uint_eq(rig_stats().answers, 3);
}
END_TEST
