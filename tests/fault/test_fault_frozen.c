/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "fault_rig.h"
#include "worker_rig.h"

#include <stdio.h>

/*
 * C2: a scheduler or worker never learns later than half a second that a server is gone without a sign: stopped, or never there. Nothing
 * else ends these operations: their own timeouts are long, and a heartbeat is a minute.
 */

#define ROUNDS 3
/* The best of some rounds, and each of them, on a machine that does other things. */
#define BEST_US 1000000u
#define EACH_US 10000000u
#define HEARTBEAT_MS 60000u

static struct fault f;
static struct fault_actor *sched, *worker;

static void
setup(void)
{
	memset(&f, 0, sizeof(f));
	f.heartbeat_ms = HEARTBEAT_MS;
}

static void
freeze_server(void)
{
	int status;

	ck_assert_int_eq(kill(f.server, SIGSTOP), 0);
	ck_assert_int_eq(waitpid(f.server, &status, WUNTRACED), f.server);
}

static void
thaw_server(void)
{
	ck_assert_int_eq(kill(f.server, SIGCONT), 0);
}

static void
up(void)
{
	fault_up(&f);
	sched = fault_scheduler(&f);
	worker = fault_worker(&f);
	ck_assert_uint_eq(fault_store(worker, 0, 1, 4).chunks, 4);
}

/* The server is there again: a hit, by and by. */
static struct fault_hit
lookup_until_hit(const char *id)
{
	uint64_t end_us = scout__now_us() + FAULT_DEADLINE_MS * UINT64_C(1000);
	struct fault_hit hit;

	while ((hit = fault_lookup(sched, id, 1, 4)).reason != SCOUT_REASON_HIT) {
		ck_assert_msg(scout__now_us() < end_us, "lookups do not work again: %s", scout_reason_name(hit.reason));
		(void)fault_ask(sched, "finish %s", id);
	}
	return hit;
}

START_TEST(C2_a_lookup_at_a_frozen_server_ends_within_half_a_second)
{
	uint64_t best_us = UINT64_MAX;

	up();
	for (int i = 0; i < ROUNDS; i++) {
		struct fault_hit hit;

		(void)lookup_until_hit("before");
		(void)fault_ask(sched, "finish before");
		freeze_server();
		hit = fault_lookup(sched, "frozen", 1, 4);
		ck_assert_int_eq(hit.reason, SCOUT_REASON_UNREACHABLE);
		ck_assert_uint_lt(hit.us, EACH_US);
		best_us = hit.us < best_us ? hit.us : best_us;
		/* From now on at once. */
		ck_assert_int_eq(fault_lookup(sched, "next", 1, 4).reason, SCOUT_REASON_UNREACHABLE);
		(void)fault_ask(sched, "finish frozen");
		(void)fault_ask(sched, "finish next");
		thaw_server();
	}
	ck_assert_msg(best_us < BEST_US, "%u us", (unsigned)best_us);
	(void)lookup_until_hit("after");
	(void)fault_ask(sched, "finish after");
	fault_down(&f);
}
END_TEST

/* Before its first copy: what the server was asked for and does not grant. */
START_TEST(C2_a_retrieve_at_a_frozen_server_ends_within_half_a_second)
{
	uint64_t best_us = UINT64_MAX;

	up();
	for (int i = 0; i < ROUNDS; i++) {
		struct fault_hit hit = lookup_until_hit("r");
		struct fault_done done;
		uint64_t begin_us;

		freeze_server();
		begin_us = scout__now_us();
		done = fault_retrieve(worker, 0, hit.ticket, 0, 4);
		begin_us = scout__now_us() - begin_us;
		ck_assert_int_eq(done.status, SCOUT_ERR_UNREACHABLE);
		ck_assert_uint_eq(done.n_missing, 4);
		ck_assert_uint_lt(begin_us, EACH_US);
		best_us = begin_us < best_us ? begin_us : best_us;
		(void)fault_ask(sched, "finish r");
		thaw_server();
	}
	ck_assert_msg(best_us < BEST_US, "%u us", (unsigned)best_us);
	fault_down(&f);
}
END_TEST

/* With a client's defaults, from its first lookup on. @_i: there is no server, or one that is frozen. */
START_TEST(C2_a_first_lookup_without_a_server_ends_within_half_a_second)
{
	static const uint8_t hashes[4 * RIG_HASH] = {1};
	const struct scout_query q = {
		.id = "r", .hashes = hashes, .hash_len = RIG_HASH, .n = 4, .prompt_tokens = 2000, .timeout_ms = 20000};
	uint64_t best_us = UINT64_MAX;

	fault_up(&f);
	if (_i == 0)
		fault_server_kill(&f);
	else
		freeze_server();
	for (int i = 0; i < ROUNDS; i++) {
		struct scout_client_config cfg;
		struct scout_client *client;
		struct scout_hit hit;
		uint64_t us;

		scout_client_config_init(&cfg);
		cfg.endpoint = f.endpoint;
		ck_assert_int_eq(scout_client_new(&cfg, &client, NULL, 0), 0);
		us = scout__now_us();
		ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
		us = scout__now_us() - us;
		ck_assert_int_eq(hit.reason, SCOUT_REASON_UNREACHABLE);
		ck_assert_uint_lt(us, EACH_US);
		best_us = us < best_us ? us : best_us;
		scout_client_free(client);
	}
	ck_assert_msg(best_us < BEST_US, "%u us", (unsigned)best_us);
	if (_i == 0)
		fault_server_start(&f);
	else
		thaw_server();
	fault_down(&f);
}
END_TEST

/* Of a lookup that takes the server long, its loop's answers to PING are the sign of life. */
START_TEST(C2_a_server_that_takes_its_time_is_not_gone)
{
	struct fault_hit hit;

	f.reply_delay_us = 1500000;
	up();
	hit = lookup_until_hit("slow"); /* a loop that gets no CPU is taken for gone, but not each time */
	ck_assert_uint_ge(hit.us, f.reply_delay_us);
	(void)fault_ask(sched, "finish slow");
	fault_down(&f);
}
END_TEST

/* The scheduler's own process stands still while its lookup is in flight. */
START_TEST(C2_a_scheduler_that_was_frozen_itself_gets_its_answer)
{
	struct fault_hit hit;

	f.reply_delay_us = 300000;
	up();
	fault_send(sched, "lookup r 1 4 257");
	fault_wait(&f, "sessions", 1);
	fault_freeze(sched);
	/* Far longer than any silence; STATUS passes the time. */
	for (uint64_t end_us = scout__now_us() + 1500000; scout__now_us() < end_us;)
		(void)fault_status(&f, "sessions");
	fault_thaw(sched);
	hit = fault_hit_of(fault_hear(sched));
	ck_assert_int_eq(hit.reason, SCOUT_REASON_HIT);
	(void)fault_ask(sched, "finish r");
	fault_down(&f);
}
END_TEST

Suite *
suite_of_this_file(void)
{
	Suite *s = suite_create("fault_frozen");
	TCase *tc = tcase_create("frozen");

	fault_make_home();
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_set_timeout(tc, 90);
	tcase_add_test(tc, C2_a_lookup_at_a_frozen_server_ends_within_half_a_second);
	tcase_add_test(tc, C2_a_retrieve_at_a_frozen_server_ends_within_half_a_second);
	tcase_add_loop_test(tc, C2_a_first_lookup_without_a_server_ends_within_half_a_second, 0, 2);
	tcase_add_test(tc, C2_a_server_that_takes_its_time_is_not_gone);
	tcase_add_test(tc, C2_a_scheduler_that_was_frozen_itself_gets_its_answer);
	suite_add_tcase(s, tc);
	return s;
}
