/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "checked_fork.h"
#include "fault_rig.h"
#include "given_time.h"
#include "worker_rig.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>

/*
 * C2: a scheduler or worker never learns later than half a second that a server is gone without a sign: stopped, or never there. Nothing
 * else ends these operations: their own timeouts are long, and a heartbeat is a minute.
 */

#define ROUNDS 3
/* The best of some rounds, and each of them. */
#define BEST_US 700000u
#define EACH_US 3000000u
#define HEARTBEAT_MS 60000u
#define STARVED_ROUNDS 20
#define SILENCE_US 450000u

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
	fault_up_with(&f, &sched, &worker, NULL);
	ck_assert_uint_eq(fault_store(worker, 0, 1, 4).chunks, 4);
}

/* The server is there again: a hit, by and by. */
static struct fault_hit
lookup_until_hit(const char *id)
{
	struct fault_hit hit;

	wait_until((hit = fault_look(sched, id, 1, 4)).reason == SCOUT_REASON_HIT) {
		(void)fault_ask(sched, "finish %s", id);
	}
	return hit;
}

/* The worker finds the server again by itself, too. */
static void
worker_works(void)
{
	wait_until(fault_store(worker, 0, 1, 4).status == 0)
		;
}

/* One round has ended. */
static void
judge_round(struct given_time_result *best, const struct given_time *t)
{
	struct given_time_result r = given_time_end(t);

	(void)given_time_judge(r, EACH_US, "one of some rounds");
	if (best->elapsed_us == 0 || r.elapsed_us < best->elapsed_us)
		*best = r;
}

UNCHECKED_FIXTURE(fault_make_home, NULL);
CHECKED_FIXTURE(setup, NULL);

START_TEST(C2_a_lookup_at_a_frozen_server_ends_within_half_a_second)
{
	struct given_time_result best = {0};
	struct given_time t;

	up();
	for (int i = 0; i < ROUNDS; i++) {
		struct fault_hit hit;

		(void)lookup_until_hit("before");
		(void)fault_ask(sched, "finish before");
		freeze_server();
		given_time_begin(&t);
		given_time_of(&t, sched->pid);
		hit = fault_look(sched, "frozen", 1, 4);
		judge_round(&best, &t);
		assert_reason(hit.reason, SCOUT_REASON_UNREACHABLE);
		/* From now on at once. */
		assert_reason(fault_look(sched, "next", 1, 4).reason, SCOUT_REASON_UNREACHABLE);
		(void)fault_ask(sched, "finish frozen");
		(void)fault_ask(sched, "finish next");
		thaw_server();
	}
	(void)given_time_judge(best, BEST_US, "a lookup at a frozen server");
	(void)lookup_until_hit("after");
	(void)fault_ask(sched, "finish after");
	fault_down(&f);
}
END_TEST

/* Before its first copy: what the server was asked for and does not grant. */
START_TEST(C2_a_retrieve_at_a_frozen_server_ends_within_half_a_second)
{
	struct given_time_result best = {0};
	struct given_time t;

	up();
	for (int i = 0; i < ROUNDS; i++) {
		struct fault_hit hit = lookup_until_hit("r");
		struct fault_done done;

		worker_works();
		freeze_server();
		given_time_begin(&t);
		given_time_of(&t, worker->pid);
		done = fault_retrieve(worker, 0, hit.ticket, 0, 4);
		judge_round(&best, &t);
		ck_assert_msg(done.status == SCOUT_ERR_UNREACHABLE, "%s", scout_err_name(done.status));
		ck_assert_uint_eq(done.n_missing, 4);
		(void)fault_ask(sched, "finish r");
		thaw_server();
	}
	(void)given_time_judge(best, BEST_US, "a retrieve at a frozen server");
	worker_works();
	fault_down(&f);
}
END_TEST

/* With a client's defaults, from its first lookup on. @_i: there is no server, or one that is frozen. */
START_LOOP_TEST(C2_a_first_lookup_without_a_server_ends_within_half_a_second, 0, 2)
{
	static const uint8_t hashes[4 * RIG_HASH] = {1};
	const struct scout_query q = {
		.id = "r", .hashes = hashes, .hash_len = RIG_HASH, .n = 4, .prompt_tokens = 2000, .timeout_ms = 20000};
	struct given_time_result best = {0};
	struct given_time t;

	fault_up(&f);
	if (_i == 0)
		fault_server_kill(&f);
	else
		freeze_server();
	for (int i = 0; i < ROUNDS; i++) {
		struct scout_client_config cfg;
		struct scout_client *client;
		struct scout_hit hit;

		scout_client_config_init(&cfg);
		cfg.endpoint = f.endpoint;
		ck_assert_int_eq(scout_client_new(&cfg, &client, NULL, 0), 0);
		given_time_begin(&t);
		ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
		judge_round(&best, &t);
		assert_reason(hit.reason, SCOUT_REASON_UNREACHABLE);
		scout_client_free(client);
	}
	(void)given_time_judge(best, BEST_US, "a first lookup");
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
	assert_reason(hit.reason, SCOUT_REASON_HIT);
	(void)fault_ask(sched, "finish r");
	fault_down(&f);
}
END_TEST

#define SPINNERS 2

static pid_t spinners[SPINNERS];

static void
run_on_one_cpu(pid_t tid)
{
	cpu_set_t mine, one;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(mine), &mine), 0);
	CPU_ZERO(&one);
	for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
		if (CPU_ISSET(cpu, &mine))
			CPU_SET(cpu, &one);
	ck_assert_int_eq(sched_setaffinity(tid, sizeof(one), &one), 0);
}

/* All threads of the server get what others leave over on a CPU where nothing is left over. */
static void
starve_server(void)
{
	const struct sched_param none = {.sched_priority = 0};
	struct dirent *entry;
	char path[64];
	DIR *dir;

	(void)snprintf(path, sizeof(path), "/proc/%d/task", (int)f.server);
	dir = opendir(path);
	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir))) {
		pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (tid == 0)
			continue;
		run_on_one_cpu(tid);
		ck_assert_int_eq(sched_setscheduler(tid, SCHED_IDLE, &none), 0);
	}
	(void)closedir(dir);
	for (int i = 0; i < SPINNERS; i++) {
		spinners[i] = checked_fork();
		if (spinners[i] == 0) {
			(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
			run_on_one_cpu(0);
			for (;;)
				;
		}
	}
}

static void
end_spinners(void)
{
	for (int i = 0; i < SPINNERS; i++) {
		ck_assert_int_eq(kill(spinners[i], SIGKILL), 0);
		ck_assert_int_eq(waitpid(spinners[i], NULL, 0), spinners[i]);
	}
}

/* It is not silent of its own will: it has no CPU. */
START_TEST(C2_a_server_that_gets_no_cpu_is_not_gone)
{
	uint64_t longest_us = 0;

	up();
	(void)lookup_until_hit("before");
	(void)fault_ask(sched, "finish before");
	starve_server();
	for (int i = 0; i < STARVED_ROUNDS && longest_us < SILENCE_US; i++) {
		struct fault_hit hit = fault_look(sched, "starved", 1, 4);

		/* On a busy machine its own deadline may end it. */
		ck_assert_msg(hit.reason == SCOUT_REASON_HIT || hit.reason == SCOUT_REASON_TIMEOUT,
			      "round %d: %s after %u us", i, scout_reason_name(hit.reason), (unsigned)hit.us);
		longest_us = hit.us > longest_us ? hit.us : longest_us;
		(void)fault_ask(sched, "finish starved");
	}
	end_spinners();
	if (longest_us < SILENCE_US)
		dprintf(STDOUT_FILENO, "# SKIP the server got a CPU within %u us each time\n", (unsigned)longest_us);
	fault_down(&f);
}
END_TEST
