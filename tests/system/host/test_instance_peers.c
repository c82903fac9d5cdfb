/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients and workers with endpoint=auto: they start the server and join it on their background threads, and lookups never wait
 * for that.
 */
#include "check_main.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvscout/client.h>
#include <kvscout/protocol.h>
#include <kvscout/worker.h>

#include "clock.h"
#include "instance_rig.h"
#include "waiting.h"

#define JOINERS 12

static struct place place;

static void
teardown(void)
{
	if (place.folder[0])
		place_down(&place);
}

static int
new_client(const char *keys, struct scout_client **ret_client, char *err, size_t err_len)
{
	struct scout_client_config cfg;

	scout_client_config_init(&cfg);
	cfg.lookup_timeout_ms = 20000; /* a loaded machine is no reason for a miss */
	cfg.endpoint = place.endpoint;
	cfg.server_program = place.program;
	cfg.server_keys = keys;
	cfg.log = place_log;
	cfg.log_user = &place;
	return scout_client_new(&cfg, ret_client, err, err_len);
}

static struct scout_client *
client_of(const char *keys)
{
	struct scout_client *client = NULL;
	char err[1024] = "";

	ck_assert_msg(new_client(keys, &client, err, sizeof(err)) == 0, "%s", err);
	return client;
}

static void
wait_ready(struct scout_client *client)
{
	char err[1024] = "";

	ck_assert_msg(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
}

/* The answer to a new lookup, asked for until it is there. */
static struct scout_hit
look_up(struct scout_client *client, const char *id)
{
	static const uint8_t hash[32] = {1};
	const struct scout_query query = {.id = id, .hashes = hash, .hash_len = 32, .n = 1, .prompt_tokens = 257};
	struct scout_hit hit;
	int rc;

	wait_until((rc = scout_try_lookup(client, &query, &hit)) != SCOUT_NOT_YET)
		;
	ck_assert_int_eq(rc, 0);
	scout_finish(client, id);
	return hit;
}

static uint64_t
status_of(const char *name)
{
	char command[512], line[256], want[64];
	uint64_t value = UINT64_MAX;
	FILE *out;

	(void)snprintf(command, sizeof(command), "%s --status %s 2>/dev/null", place.program, place.endpoint);
	(void)snprintf(want, sizeof(want), "%s ", name);
	out = popen(command, "r");
	ck_assert_ptr_nonnull(out);
	while (fgets(line, sizeof(line), out))
		if (strncmp(line, want, strlen(want)) == 0)
			value = strtoull(line + strlen(want), NULL, 10);
	(void)pclose(out);
	return value;
}

CHECKED_FIXTURE(NULL, teardown);

START_TEST(a_client_starts_the_server_and_finds_the_next_one)
{
	struct scout_client_counters counters;
	struct scout_client *client;
	pid_t first;

	place_up(&place);
	client = client_of(NULL);
	wait_ready(client);
	ck_assert_int_eq(look_up(client, "a").reason, SCOUT_REASON_MISS);
	first = place_server(&place);
	place_kill(&place);
	/* Nothing is asked: the background thread starts the next one. */
	wait_until(scout_client_stats(client, &counters) == 0 && counters.epochs == 1 && counters.servers_up == 1)
		;
	ck_assert_int_eq(look_up(client, "b").reason, SCOUT_REASON_MISS);
	ck_assert_int_ne(place_server(&place), first);
	scout_client_free(client);
}
END_TEST

static struct scout_worker *
worker_of(void)
{
	struct scout_worker *worker = NULL;
	struct scout_worker_config cfg;
	char err[1024] = "";

	scout_worker_config_init(&cfg);
	cfg.endpoint = place.endpoint;
	cfg.server_program = place.program;
	ck_assert_msg(scout_worker_new(&cfg, &worker, err, sizeof(err)) == 0, "%s", err);
	return worker;
}

/* A client, or a worker, in a process of its own, until @gate ends. */
static pid_t
joiner(int i, const int gate[2], const int joined[2])
{
	pid_t pid = fork();
	struct scout_client *client = NULL;
	struct scout_worker *worker = NULL;
	char byte = 0;

	if (pid != 0)
		return pid;
	(void)close(gate[1]);
	if (i % 2)
		client = client_of(NULL);
	else
		worker = worker_of();
	(void)!write(joined[1], &byte, 1);
	(void)!read(gate[0], &byte, 1);
	scout_client_free(client);
	scout_worker_free(worker);
	_exit(0);
}

START_TEST(all_peers_of_the_host_join_one_server)
{
	pid_t pids[JOINERS];
	int gate[2], joined[2], status;
	char byte;

	place_up(&place);
	ck_assert_int_eq(pipe(gate), 0);
	ck_assert_int_eq(pipe(joined), 0);
	for (int i = 0; i < JOINERS; i++)
		pids[i] = joiner(i, gate, joined);
	for (int i = 0; i < JOINERS; i++)
		ck_assert_int_eq(read(joined[0], &byte, 1), 1);
	wait_until(status_of("peers") == JOINERS)
		;
	ck_assert_uint_eq(count_words(place_server_log(&place), "ready on"), 1);
	(void)close(gate[0]);
	(void)close(gate[1]);
	for (int i = 0; i < JOINERS; i++) {
		ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
		ck_assert_int_eq(status, 0);
	}
}
END_TEST

/*
 * Peers that come when the server ends for want of peers: a moment before it decides, while it stops, and after. The moments are
 * chosen by the clock, since no one can see that decision from outside. Each peer ends up with a server.
 */
START_TEST(a_peer_that_joins_a_server_that_ends_gets_the_next_one)
{
	for (int round = 0; round < 7; round++) {
		struct scout_client *client;

		place_up(&place);
		client = client_of("idle_exit_s=1");
		wait_ready(client);
		scout_client_free(client);
		(void)poll(NULL, 0, 992 + 2 * round);
		client = client_of("idle_exit_s=1");
		wait_ready(client);
		ck_assert_int_eq(look_up(client, "a").reason, SCOUT_REASON_MISS);
		(void)place_server(&place);
		scout_client_free(client);
		place_down(&place);
	}
}
END_TEST

/* The list of processes, the server's log, and the log of an engine that wanted another password. */
START_TEST(no_password_of_a_store_is_shown)
{
	struct scout_client *client, *other;
	const char *words;
	char err[1024] = "";

	place_up(&place);
	client = client_of("l1_bytes=8Mi l2=redis://me:hunter2@127.0.0.1:1");
	wait_ready(client);
	words = proc_text(place_server(&place), "cmdline");
	ck_assert_msg(strstr(words, "l2=redis://me:***@127.0.0.1:1") && !strstr(words, "hunter"), "%s", words);
	other = client_of("l1_bytes=8Mi l2=redis://me:hunter3@127.0.0.1:1");
	wait_ready(other);
	place_wait_warned(
		&place,
		"was started with other keys: l2 is redis://me:***@127.0.0.1:1, wanted redis://me:***@127.0.0.1:1");
	ck_assert_int_lt(place_ensure(&place, "l2=fs:///x redis://me:hunter2@h", err, sizeof(err)), 0);
	scout_client_free(other);
	scout_client_free(client);
	words = place_server_log(&place);
	ck_assert_msg(strstr(words, "redis://me:***@") && !strstr(words, "hunter"), "%s", words);
	ck_assert_msg(!strstr(place.warnings, "hunter") && !strstr(err, "hunter"), "%s %s", place.warnings, err);
}
END_TEST

/* ---- without a server ---- */

START_TEST(without_kvscoutd_lookups_end_and_one_warning_says_why)
{
	struct scout_client *client;
	char err[1024] = "";
	struct scout_hit hit;

	place_up(&place);
	place.program = "/nonexistent/kvscoutd";
	client = client_of(NULL);
	place_wait_warned(&place, place.program);
	ck_assert_int_eq(scout_client_wait_ready(client, 100, err, sizeof(err)), SCOUT_ERR_TIMEOUT);
	ck_assert_msg(strstr(err, "/nonexistent/kvscoutd"), "%s", err);
	for (int i = 0; i < 20; i++) {
		hit = look_up(client, "a");
		ck_assert_int_eq(hit.reason, SCOUT_REASON_UNREACHABLE);
		ck_assert_int_eq(hit.error, SCOUT_ERR_UNREACHABLE);
		ck_assert_uint_eq(hit.tokens, 0);
	}
	scout_client_free(client);
	ck_assert_msg(place.n_warnings == 1, "%s", place.warnings);
}
END_TEST

START_TEST(a_server_that_cannot_start_is_one_warning_with_its_words)
{
	struct scout_client *client;
	struct scout_hit hit;
	char err[1024] = "";
	uint64_t begin_us = scout__now_us();

	place_up(&place);
	client = client_of("eviction=nonsense");
	wait_until(look_up(client, "a").reason == SCOUT_REASON_UNREACHABLE)
		;
	hit = look_up(client, "b");
	ck_assert_int_eq(hit.error, SCOUT_ERR_UNREACHABLE);
	place_wait_warned(&place, "nonsense");
	/* It is tried again. */
	wait_until(count_words(place_server_log(&place), "kvscoutd: eviction") >= 2)
		;
	ck_assert_int_eq(scout_client_wait_ready(client, 300, err, sizeof(err)), SCOUT_ERR_TIMEOUT);
	scout_client_free(client);
	ck_assert_uint_eq(count_words(place.warnings, "nonsense"), 1);
	ck_assert_uint_le(count_words(place_server_log(&place), "kvscoutd: eviction"), place_most_starts(begin_us));
}
END_TEST

START_TEST(beside_a_server_of_another_version_it_runs_without_a_cache_until_that_has_ended)
{
	struct scout__instance_record record = {
		.state = SCOUT__INSTANCE_SERVING,
		.pid = 4711,
		.wire = SCOUT_WIRE_VERSION,
		.version = "9.9.9",
	};
	struct scout_client *client;
	char err[1024] = "";
	int fd;

	place_up(&place);
	record.since_ms = scout__boot_ms();
	fd = place_lock(&place);
	ck_assert(scout__record_write(fd, &record));
	client = client_of(NULL);
	ck_assert_int_eq(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)), SCOUT_ERR_VERSION);
	ck_assert_int_eq(look_up(client, "a").reason, SCOUT_REASON_REFUSED);
	ck_assert_int_eq(look_up(client, "b").error, SCOUT_ERR_VERSION);
	(void)close(fd);
	wait_until(look_up(client, "c").reason == SCOUT_REASON_MISS)
		;
	(void)place_server(&place);
	scout_client_free(client);
	ck_assert_msg(place.n_warnings == 1 && strstr(place.warnings, "9.9.9"), "%s", place.warnings);
}
END_TEST

/* What the library and kvscoutd --status say of a server that is stopped: which it is, that it is stopped, what to do. */
START_TEST(a_stopped_server_is_named_with_what_to_do)
{
	struct scout_client *client, *late;
	char command[512], text[4096], todo[64], err[1024] = "";
	FILE *out;
	pid_t pid;

	place_up(&place);
	client = client_of(NULL);
	wait_ready(client);
	pid = place_server(&place);
	(void)snprintf(todo, sizeof(todo), "kill -CONT %d", (int)pid);
	ck_assert_int_eq(kill(pid, SIGSTOP), 0);
	wait_until(look_up(client, "a").reason == SCOUT_REASON_UNREACHABLE)
		;
	place_wait_warned(&place, todo);
	late = client_of(NULL);
	wait_until(scout_client_wait_ready(late, 100, err, sizeof(err)) == SCOUT_ERR_TIMEOUT && strstr(err, todo))
		;
	ck_assert_msg(strstr(err, place.paths.socket) != NULL, "%s", err);
	(void)snprintf(command, sizeof(command), "%s --status %s 2>&1", place.program, place.endpoint);
	out = popen(command, "r");
	ck_assert_ptr_nonnull(out);
	text[fread(text, 1, sizeof(text) - 1, out)] = '\0';
	ck_assert_int_ne(pclose(out), 0);
	ck_assert_msg(strstr(text, todo) != NULL, "%s", text);
	ck_assert_int_eq(kill(pid, SIGCONT), 0);
	wait_ready(late);
	scout_client_free(late);
	scout_client_free(client);
}
END_TEST

/* ---- configuration ---- */

START_TEST(auto_is_the_only_endpoint_and_of_one_node)
{
	struct scout_client_config client_cfg;
	struct scout_worker_config worker_cfg;
	struct scout_client *client = NULL;
	struct scout_worker *worker = NULL;
	char err[1024] = "";

	place_up(&place);
	scout_client_config_init(&client_cfg);
	client_cfg.endpoint = "ipc:///tmp/x auto";
	client_cfg.kv_ranks = 2;
	ck_assert_int_eq(scout_client_new(&client_cfg, &client, err, sizeof(err)), SCOUT_ERR_CONFIG_SYNTAX);
	ck_assert_msg(strstr(err, "one of several"), "%s", err);
	scout_worker_config_init(&worker_cfg);
	worker_cfg.kv_ranks = 4;
	worker_cfg.rank_count = 2;
	worker_cfg.server_program = "/nonexistent/kvscoutd";
	ck_assert_int_eq(scout_worker_new(&worker_cfg, &worker, err, sizeof(err)), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_msg(strstr(err, "other nodes") && strstr(err, "set endpoint"), "%s", err);
	ck_assert_int_eq(new_client("listen=tcp://127.0.0.1:1", &client, err, sizeof(err)), SCOUT_ERR_CONFIG_KEY);
	ck_assert_ptr_null(client);
	ck_assert_ptr_null(worker);
}
END_TEST
