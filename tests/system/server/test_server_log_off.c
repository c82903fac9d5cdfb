/* SPDX-License-Identifier: Apache-2.0 */
/* The callback is taken back from a server, a client and a worker that go on living and have something to say. */
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include <kvscout/client.h>
#include <kvscout/server.h>
#include <kvscout/worker.h>

#include "check_main.h"
#include "waiting.h"

#define HASH 32u

static char err[512], endpoint[64];
static atomic_uint server_lines, client_lines, worker_lines;

static void
count(void *user, int level, const char *text)
{
	(void)level;
	(void)text;
	atomic_fetch_add((atomic_uint *)user, 1);
}

static struct scout_server *
make_server(void)
{
	struct scout_server_config cfg;
	struct scout_server *server;

	(void)snprintf(endpoint, sizeof(endpoint), "ipc:///tmp/kvscout-log-off-%d.sock", (int)getpid());
	scout_server_config_init(&cfg);
	cfg.listen = endpoint;
	cfg.l1_bytes = 1 << 20;
	cfg.log = count;
	cfg.log_user = &server_lines;
	ck_assert_msg(scout_server_start(&cfg, &server, err, sizeof(err)) == 0, "%s", err);
	return server;
}

static struct scout_client *
make_client(void)
{
	struct scout_client_config cfg;
	struct scout_client *client;

	scout_client_config_init(&cfg);
	cfg.endpoint = endpoint;
	cfg.log = count;
	cfg.log_user = &client_lines;
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	ck_assert_msg(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
	return client;
}

static struct scout_worker *
make_worker(void)
{
	static uint8_t pages[16 * 64];
	const struct scout_plane plane = {.base = pages, .stride = 64, .block_bytes = 64};
	const struct scout_table layout = {
		.block_tokens = 256, .n_planes = 1, .planes = &plane, .n_blocks = 16, .null_block = -1};
	struct scout_worker_config cfg;
	struct scout_worker *worker;

	scout_worker_config_init(&cfg);
	cfg.endpoint = endpoint;
	cfg.log = count;
	cfg.log_user = &worker_lines;
	ck_assert_msg(scout_worker_new(&cfg, &worker, err, sizeof(err)) == 0, "%s", err);
	ck_assert_msg(scout_worker_register(worker, &layout, 1, 10000, err, sizeof(err)) == 0, "%s", err);
	return worker;
}

static struct scout_hit
ask(struct scout_client *client, const char *id)
{
	static const uint8_t hashes[HASH] = {1};
	struct scout_query q = {.id = id, .hashes = hashes, .hash_len = HASH, .n = 1, .prompt_tokens = 257};
	struct scout_hit hit;

	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	return hit;
}

START_TEST(no_line_comes_after_the_callback_was_taken_back)
{
	struct scout_server *server = make_server();
	struct scout_client *client = make_client();
	struct scout_worker *worker = make_worker();
	unsigned of_client, of_worker;

	scout_server_log_off(NULL);
	scout_client_log_off(NULL);
	scout_worker_log_off(NULL);
	ck_assert_uint_gt(atomic_load(&server_lines), 0);
	ck_assert_uint_gt(atomic_load(&client_lines), 0);
	ck_assert_uint_gt(atomic_load(&worker_lines), 0);
	scout_server_log_off(server);
	scout_client_log_off(client);
	scout_worker_log_off(worker);
	scout_worker_log_off(worker); /* twice is once */
	of_client = atomic_load(&client_lines);
	of_worker = atomic_load(&worker_lines);
	(void)ask(client, "a");
	scout_server_stop(server); /* the server, its client and its worker would each have a line for that */
	while (ask(client, "b").reason != SCOUT_REASON_UNREACHABLE)
		ck_assert_int_eq(scout_finish(client, "b"), 0);
	server = make_server(); /* and for its return */
	ck_assert_msg(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
	scout_worker_free(worker);
	scout_client_free(client);
	scout_server_stop(server);
	ck_assert_uint_eq(atomic_load(&client_lines), of_client);
	ck_assert_uint_eq(atomic_load(&worker_lines), of_worker);
}
END_TEST

START_TEST(a_server_that_is_stopped_says_nothing_either)
{
	struct scout_server *server = make_server();
	unsigned lines;

	scout_server_log_off(server);
	lines = atomic_load(&server_lines);
	scout_server_stop(server);
	ck_assert_uint_eq(atomic_load(&server_lines), lines);
}
END_TEST
