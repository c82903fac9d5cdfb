/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvscout/client.h>

#include "check_main.h"
#include "checked_fork.h"
#include "fault_rig.h"
#include "groups_rig.h"

/*
 * The faults of the matrix where groups make a difference: kvscoutd is killed or stopped while a lookup of several groups is open; a
 * worker is killed while it stores or retrieves objects of several groups; half of the groups are there. Each lookup ends by its deadline, what
 * it says can be restored, and afterwards nothing is left and lookups work again.
 */

#define PAGE 16u
#define N 8u
#define LENGTH (N * PAGE)

static const struct scout__groups groups = {
	2, {{SCOUT_POLICY_ALL, 1, PAGE, 0, 0}, {SCOUT_POLICY_WINDOW, 1, PAGE, 2 * PAGE + 1, 0}}};
static struct fault f;
static struct scout_client *client;
static unsigned next_id;

static void
setup(void)
{
	memset(&f, 0, sizeof(f));
	f.pool_chunks = 64;
}

static void
start_client(void)
{
	struct scout_client_config cfg;
	char err[256] = "";

	scout_client_config_init(&cfg);
	cfg.endpoint = f.endpoint;
	cfg.name_space = "test";
	cfg.group = "all window:33";
	cfg.chunk_tokens = PAGE;
	cfg.hash_bytes = 16;
	cfg.heartbeat_ms = FAULT_HEARTBEAT_MS;
	cfg.lookup_timeout_ms = 30000;
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	ck_assert_msg(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
}

static void
join(struct wire_peer *p)
{
	wire_open(p, f.endpoint);
	p->hello.role = SCOUT_ROLE_WORKER;
	p->hello.heartbeat_ms = 600000;
	groups_say(p, &groups, PAGE);
	ck_assert_msg(wire_hello(p) == SCOUT_WIRE_OK, "%s", p->text);
	ck_assert_int_eq(wire_lease(p), SCOUT_LEASE_OK);
	ck_assert_int_eq(groups_register(p, 0, 0, 3, FAULT_SHARD_BYTES), SCOUT_WIRE_OK);
}

static void
store_all(struct wire_peer *p)
{
	groups_store(p, 0, 0, N);
	groups_store(p, 1, 0, N);
}

static struct scout_query
question(char id[32], uint8_t hashes[N * 16])
{
	(void)snprintf(id, 32, "r%u", next_id++);
	for (uint32_t i = 0; i < N; i++)
		wire_hash(hashes + (size_t)i * 16, 16, i + 1);
	return (struct scout_query){.id = id, .hashes = hashes, .hash_len = 16, .n = N, .prompt_tokens = LENGTH + 1};
}

/* A lookup that is given back. */
static struct scout_hit
look(void)
{
	uint8_t hashes[N * 16];
	char id[32];
	struct scout_query q = question(id, hashes);
	struct scout_hit hit;

	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	(void)scout_finish(client, id);
	return hit;
}

static void
look_until(uint64_t tokens)
{
	wait_until(look().tokens == tokens)
		;
}

/* A worker in a process of its own, which is killed when it has begun to store or to retrieve with @ticket (0: to store). */
static void
kill_a_worker(uint64_t ticket)
{
	struct scout__retrieve_msg parts = {.ticket = ticket, .n_parts = 2, .parts = {{0, 0, N}, {1, N - 2, N}}};
	struct wire_grants g;
	struct wire_peer p;
	int ready[2], status;
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe(ready), 0);
	pid = checked_fork();
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		join(&p);
		if (ticket) {
			if (groups_retrieve(&p, &parts, &g) != SCOUT_WIRE_OK || g.n_granted != N + 2)
				_exit(1);
		} else {
			for (uint16_t group = 0; group < 2; group++)
				if (groups_store_of(&p, 0, group, 0, N, &g) != SCOUT_WIRE_OK || g.n_granted != N)
					_exit(1);
		}
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			(void)pause();
	}
	(void)close(ready[1]);
	ck_assert_msg(read(ready[0], &byte, 1) == 1, "the worker failed");
	(void)close(ready[0]);
	fault_wait(&f, "holds", ticket ? 1 : 2);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
}

static void
stop_all(struct wire_peer *worker)
{
	scout_client_free(client);
	wire_lease_bye(worker);
	wire_close(worker);
	fault_down(&f);
}

UNCHECKED_FIXTURE(fault_make_home, NULL);
CHECKED_FIXTURE(setup, NULL);

START_TEST(groups_the_server_is_killed_in_a_lookup)
{
	uint8_t hashes[N * 16];
	struct wire_peer worker;
	struct scout_hit hit;
	struct scout_query q;
	char id[32];

	f.reply_delay_us = 60000000; /* so it dies before it answers */
	fault_up(&f);
	join(&worker);
	store_all(&worker);
	start_client();
	q = question(id, hashes);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	fault_wait(&f, "sessions", 1);
	fault_server_kill(&f);
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_uint_eq(hit.tokens, 0);
	assert_reason(hit.reason, SCOUT_REASON_UNREACHABLE);
	(void)scout_finish(client, id);
	wire_close(&worker);
	f.reply_delay_us = 0;
	fault_server_start(&f);
	join(&worker);
	look_until(0);
	store_all(&worker);
	look_until(LENGTH);
	stop_all(&worker);
}
END_TEST

START_TEST(groups_the_server_is_stopped_in_a_lookup)
{
	uint8_t hashes[N * 16];
	struct wire_peer worker;
	struct scout_hit hit;
	struct scout_query q;
	int status;
	char id[32];

	fault_up(&f);
	join(&worker);
	store_all(&worker);
	start_client();
	look_until(LENGTH);
	ck_assert_int_eq(kill(f.server, SIGSTOP), 0);
	ck_assert_int_eq(waitpid(f.server, &status, WUNTRACED), f.server);
	q = question(id, hashes);
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_uint_eq(hit.tokens, 0);
	assert_reason(hit.reason, SCOUT_REASON_UNREACHABLE); /* and not by its own deadline */
	(void)scout_finish(client, id);
	ck_assert_int_eq(kill(f.server, SIGCONT), 0);
	look_until(LENGTH);
	fault_wait(&f, "l1.bytes_promised", 0);
	stop_all(&worker);
}
END_TEST

/* What it was writing of both groups is nobody's hit, is set aside, and is stored again by another worker. */
START_TEST(groups_a_worker_is_killed_in_a_store)
{
	struct wire_peer worker;

	fault_up(&f);
	join(&worker);
	start_client();
	kill_a_worker(0);
	ck_assert_uint_eq(look().tokens, 0);
	fault_wait(&f, "holds", 0);
	fault_wait(&f, "l1.chunks", 0);
	store_all(&worker);
	look_until(LENGTH);
	stop_all(&worker);
}
END_TEST

/* Its hold over both groups is free at once, and what it read is there. */
START_TEST(groups_a_worker_is_killed_in_a_retrieve)
{
	uint8_t hashes[N * 16];
	struct wire_peer worker;
	struct scout_hit hit;
	struct scout_query q;
	char id[32];

	fault_up(&f);
	join(&worker);
	store_all(&worker);
	start_client();
	q = question(id, hashes);
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_uint_eq(hit.tokens, LENGTH);
	kill_a_worker(hit.ticket);
	fault_wait(&f, "holds", 0);
	fault_wait(&f, "l1.bytes_held", 0);
	fault_wait(&f, "quarantine", 0);
	(void)scout_finish(client, id);
	look_until(LENGTH);
	stop_all(&worker);
}
END_TEST

START_TEST(groups_half_of_them_are_there)
{
	struct wire_peer worker;

	fault_up(&f);
	join(&worker);
	start_client();
	groups_store(&worker, 0, 0, N);
	ck_assert_uint_eq(look().tokens, 0);
	fault_wait(&f, "l1.bytes_promised", 0);
	groups_store(&worker, 1, 3, 5);
	look_until(5 * PAGE);
	/* A server that was restarted has neither, then one of them. */
	fault_server_kill(&f);
	wire_close(&worker);
	fault_server_start(&f);
	join(&worker);
	groups_store(&worker, 1, 0, N);
	look_until(0);
	groups_store(&worker, 0, 0, N);
	look_until(LENGTH);
	fault_wait(&f, "l1.bytes_promised", 0);
	stop_all(&worker);
}
END_TEST
