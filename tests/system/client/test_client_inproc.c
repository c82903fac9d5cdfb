/* SPDX-License-Identifier: Apache-2.0 */
/* Server, clients and workers of one process on inproc://. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvscout/client.h>
#include <kvscout/server.h>
#include <kvscout/worker.h>

#include "check_main.h"
#include "clock.h"
#include "inproc.h"
#include "ring.h"
#include "waiting.h"

#define NAME "inproc://cache-1"
#define HASH 32u
#define CHUNK 16u
#define PAGE 64u
#define N 8u

static uint8_t hashes[N * HASH];
static char err[512];

static int
start_server(const char *listen, struct scout_server **ret_server)
{
	struct scout_server_config cfg;

	scout_server_config_init(&cfg);
	cfg.listen = listen;
	cfg.l1_bytes = 1 << 20;
	return scout_server_start(&cfg, ret_server, err, sizeof(err));
}

static struct scout_server *
server_on(const char *listen)
{
	struct scout_server *server;

	ck_assert_msg(start_server(listen, &server) == 0, "%s", err);
	return server;
}

static int
start_client(const char *endpoint, struct scout_client **ret_client)
{
	struct scout_client_config cfg;

	scout_client_config_init(&cfg);
	cfg.lookup_timeout_ms = 60000; /* a busy machine is no reason for a miss */
	cfg.endpoint = endpoint;
	cfg.chunk_tokens = CHUNK;
	if (strchr(endpoint, ' '))
		cfg.kv_ranks = 2;
	return scout_client_new(&cfg, ret_client, err, sizeof(err));
}

static struct scout_client *
client_on(const char *endpoint)
{
	struct scout_client *client;

	ck_assert_msg(start_client(endpoint, &client) == 0, "%s", err);
	ck_assert_msg(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
	return client;
}

static struct scout_hit
ask(struct scout_client *client, const char *id)
{
	struct scout_query q = {.id = id, .hashes = hashes, .hash_len = HASH, .n = N, .prompt_tokens = N * CHUNK + 1};
	struct scout_hit hit;

	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	return hit;
}

/* Until a lookup of this client ends like that, each a new one. */
static void
ask_until(struct scout_client *client, int reason)
{
	wait_until(ask(client, "again").reason == reason)
		ck_assert_int_eq(scout_finish(client, "again"), 0);
	ck_assert_int_eq(scout_finish(client, "again"), 0);
}

static void
store_all(const char *endpoint)
{
	static uint8_t pages[N * PAGE];
	static const int64_t block_ids[N] = {0, 1, 2, 3, 4, 5, 6, 7};
	struct scout_plane plane = {.base = pages, .stride = PAGE, .block_bytes = PAGE};
	struct scout_table layout = {
		.block_tokens = CHUNK, .n_planes = 1, .planes = &plane, .n_blocks = N, .null_block = -1};
	struct scout_store store = {.hashes = hashes,
				    .hash_len = HASH,
				    .n = N,
				    .blocks = &(struct scout_blocks){.ids = block_ids, .n = N},
				    .n_groups = 1};
	struct scout_worker_config cfg;
	struct scout_worker *worker;
	struct scout_done done;
	uint64_t job;

	scout_worker_config_init(&cfg);
	cfg.endpoint = endpoint;
	cfg.chunk_tokens = CHUNK;
	ck_assert_msg(scout_worker_new(&cfg, &worker, err, sizeof(err)) == 0, "%s", err);
	ck_assert_msg(scout_worker_register(worker, &layout, 1, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
	ck_assert_int_eq(scout_worker_store(worker, &store, &job), 0);
	wait_until(scout_worker_poll(worker, &done, 1) != 0) {
		struct pollfd pfd = {.fd = scout_worker_fd(worker), .events = POLLIN};

		(void)poll(&pfd, 1, 100);
	}
	ck_assert_int_eq(done.status, 0);
	scout_worker_free(worker);
}

START_TEST(worker_stores_and_client_finds)
{
	struct scout_server *server = server_on(NAME);
	struct scout_client *client = client_on(NAME), *other = client_on(NAME);
	struct scout_hit hit;

	ck_assert_str_eq(scout_server_endpoint(server), NAME);
	ck_assert_int_eq(ask(client, "a").reason, SCOUT_REASON_MISS);
	store_all(NAME);
	hit = ask(other, "b");
	ck_assert_int_eq(hit.reason, SCOUT_REASON_HIT);
	ck_assert_uint_eq(hit.chunks, N);
	ck_assert_int_eq(scout_admit(other, "b", 0, SCOUT_TO_END), 0);
	scout_client_free(client);
	scout_client_free(other);
	scout_server_stop(server);
}
END_TEST

START_TEST(unknown_and_malformed_names_are_typed_errors)
{
	static const char too_long[] =
		"inproc://0123456789012345678901234567890123456789012345678901234567890123456789";
	static const char *const bad[] = {"inproc://", "inproc://a:b", "inproc://a/b", too_long};
	struct scout_worker_config worker_cfg;
	struct scout_worker *worker = NULL;
	struct scout_server *server = NULL;
	struct scout_client *client = NULL;

	ck_assert_int_eq(start_client("inproc://nobody", &client), SCOUT_ERR_UNREACHABLE);
	ck_assert_ptr_nonnull(strstr(err, "inproc://nobody"));
	scout_worker_config_init(&worker_cfg);
	worker_cfg.endpoint = "inproc://nobody";
	ck_assert_int_eq(scout_worker_new(&worker_cfg, &worker, err, sizeof(err)), SCOUT_ERR_UNREACHABLE);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_int_eq(start_server(bad[i], &server), SCOUT_ERR_BIND);
		ck_assert_ptr_nonnull(strstr(err, bad[i]));
		ck_assert_int_eq(start_client(bad[i], &client), SCOUT_ERR_UNREACHABLE);
	}
	ck_assert_ptr_null(client);
	ck_assert_ptr_null(server);
	ck_assert_ptr_null(worker);
}
END_TEST

START_TEST(name_has_one_server_at_a_time)
{
	struct scout_server *server = server_on(NAME), *second = NULL, *other = server_on("inproc://cache-2");

	ck_assert_int_eq(start_server(NAME, &second), SCOUT_ERR_IN_USE);
	ck_assert_ptr_nonnull(strstr(err, NAME));
	ck_assert_ptr_null(second);
	ask_until(client_on("inproc://cache-2"), SCOUT_REASON_MISS); /* freed by the end of the process */
	scout_server_stop(server);
	second = server_on(NAME);
	scout_server_stop(second);
	scout_server_stop(other);
}
END_TEST

START_TEST(two_names_in_one_client_are_refused_but_ipc_beside_one_is_not)
{
	struct scout_server *server = server_on(NAME), *other = server_on("inproc://cache-2"), *ipc = server_on(NULL);
	struct scout_client *client = NULL;
	char both[256];

	ck_assert_int_eq(start_client(NAME " inproc://cache-2", &client), SCOUT_ERR_UNSUPPORTED);
	ck_assert_ptr_null(client);
	(void)snprintf(both, sizeof(both), NAME " %s", scout_server_endpoint(ipc));
	client = client_on(both);
	ck_assert_int_eq(ask(client, "a").reason, SCOUT_REASON_MISS);
	scout_client_free(client);
	scout_server_stop(server);
	scout_server_stop(other);
	scout_server_stop(ipc);
}
END_TEST

START_TEST(server_that_stops_before_its_clients_is_unreachable_and_found_again)
{
	struct scout_server *server = server_on(NAME);
	struct scout_client *client = client_on(NAME), *late = NULL;

	ask_until(client, SCOUT_REASON_MISS);
	for (int restart = 0; restart < 3; restart++) {
		scout_server_stop(server);
		ask_until(client, SCOUT_REASON_UNREACHABLE);
		ck_assert_int_eq(start_client(NAME, &late), SCOUT_ERR_UNREACHABLE);
		server = server_on(NAME);
		ask_until(client, SCOUT_REASON_MISS);
		store_all(NAME);
		ask_until(client, SCOUT_REASON_HIT);
	}
	scout_server_stop(server);
	scout_client_free(client);
	/* Nothing is left of the name. */
	ck_assert_int_eq(start_client(NAME, &client), SCOUT_ERR_UNREACHABLE);
	server = server_on(NAME);
	scout_server_stop(server);
}
END_TEST

START_TEST(lookup_in_flight_ends_when_the_server_stops)
{
	struct scout_server_config cfg;
	struct scout_server *server;
	struct scout_client *client;
	struct scout_query q = {
		.id = "slow", .hashes = hashes, .hash_len = HASH, .n = N, .prompt_tokens = N * CHUNK + 1};
	struct scout_hit hit;

	scout_server_config_init(&cfg);
	cfg.listen = NAME;
	cfg.l1_bytes = 1 << 20;
	cfg.reply_delay_us = 60000000;
	ck_assert_msg(scout_server_start(&cfg, &server, err, sizeof(err)) == 0, "%s", err);
	client = client_on(NAME);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	scout_server_stop(server);
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_uint_eq(hit.tokens, 0);
	ck_assert_int_ne(hit.reason, SCOUT_REASON_TIMEOUT); /* nor did it wait for its deadline */
	scout_client_free(client);
}
END_TEST

/* ThreadSanitizer ends a forked child of a process with threads that starts threads of its own, and gcc 12's AddressSanitizer takes no
   lock of its allocator before fork(), so that a child that allocates may hang. */
#if !defined(SCOUT__TSAN) && !defined(__SANITIZE_ADDRESS__)
START_TEST(forked_child_finds_no_server_of_its_parent)
{
	struct scout_server *server = server_on(NAME);
	struct scout_client *client = client_on(NAME);
	int status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		struct scout_client *own;
		struct scout_server *own_server;
		int rc = start_client(NAME, &own);

		if (rc != SCOUT_ERR_UNREACHABLE)
			_exit(1);
		if (start_server(NAME, &own_server) != 0)
			_exit(2);
		if (start_client(NAME, &own) != 0 ||
		    scout_client_wait_ready(own, wait_limit_ms(), err, sizeof(err)) != 0)
			_exit(3);
		scout_client_free(own);
		scout_server_stop(own_server);
		scout_client_free(client); /* the parent's: nothing happens */
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	ask_until(client, SCOUT_REASON_MISS);
	scout_client_free(client);
	scout_server_stop(server);
}
END_TEST
#endif

START_TEST(spinning_server_and_client_answer)
{
	struct scout_server_config cfg;
	struct scout_client_config client_cfg;
	struct scout_server *server;
	struct scout_client *client;

	scout_server_config_init(&cfg);
	cfg.listen = NAME;
	cfg.l1_bytes = 1 << 20;
	cfg.spin_us = 200;
	ck_assert_msg(scout_server_start(&cfg, &server, err, sizeof(err)) == 0, "%s", err);
	scout_client_config_init(&client_cfg);
	client_cfg.lookup_timeout_ms = 60000; /* a busy machine is no reason for a miss */
	client_cfg.endpoint = NAME;
	client_cfg.chunk_tokens = CHUNK;
	client_cfg.spin_us = 200;
	ck_assert_msg(scout_client_new(&client_cfg, &client, err, sizeof(err)) == 0, "%s", err);
	ck_assert_int_eq(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)), 0);
	for (int i = 0; i < 300; i++) {
		ck_assert_int_eq(ask(client, "a").reason, SCOUT_REASON_MISS);
		ck_assert_int_eq(scout_finish(client, "a"), 0);
	}
	scout_client_free(client);
	scout_server_stop(server);
}
END_TEST

/* The list itself: shares, and who terminates the context. */

static int n_contexts;
static char contexts[4];

static void *
new_context(void)
{
	return &contexts[n_contexts++];
}

START_TEST(last_to_leave_gets_the_context)
{
	struct scout__inproc *server, *again, *client;
	char address[SCOUT__INPROC_ADDRESS_BYTES], second[SCOUT__INPROC_ADDRESS_BYTES];

	ck_assert_int_eq(scout__inproc_listen("inproc://x", new_context, &server, err, sizeof(err)), 0);
	ck_assert_ptr_null(scout__inproc_join("inproc://x")); /* not bound yet */
	scout__inproc_serve(server);
	client = scout__inproc_join("inproc://x");
	ck_assert_ptr_eq(scout__inproc_zmq(client), &contexts[0]);
	scout__inproc_address(client, address, sizeof(address));
	ck_assert_int_eq(scout__inproc_listen("inproc://x", new_context, &again, err, sizeof(err)), SCOUT_ERR_IN_USE);
	scout__inproc_unlisten(server);
	ck_assert(!scout__inproc_is_served(client));
	ck_assert_ptr_null(scout__inproc_leave(server));
	/* A client still has it: the next server takes the same, with another address. */
	ck_assert_int_eq(scout__inproc_listen("inproc://x", new_context, &again, err, sizeof(err)), 0);
	ck_assert_int_eq(n_contexts, 1);
	scout__inproc_serve(again);
	ck_assert(scout__inproc_is_served(client));
	scout__inproc_address(client, second, sizeof(second));
	ck_assert_str_ne(address, second);
	ck_assert_ptr_null(scout__inproc_leave(client));
	scout__inproc_unlisten(again);
	ck_assert_ptr_eq(scout__inproc_leave(again), &contexts[0]);
	ck_assert_ptr_null(scout__inproc_join("inproc://x"));
}
END_TEST

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("client_inproc");
	TCase *tc = tcase_create("inproc");

	for (size_t i = 0; i < sizeof(hashes); i++)
		hashes[i] = (uint8_t)(i * 37 + 11);
	tcase_add_test(tc, worker_stores_and_client_finds);
	tcase_add_test(tc, unknown_and_malformed_names_are_typed_errors);
	tcase_add_test(tc, name_has_one_server_at_a_time);
	tcase_add_test(tc, two_names_in_one_client_are_refused_but_ipc_beside_one_is_not);
	tcase_add_test(tc, server_that_stops_before_its_clients_is_unreachable_and_found_again);
	tcase_add_test(tc, lookup_in_flight_ends_when_the_server_stops);
#if !defined(SCOUT__TSAN) && !defined(__SANITIZE_ADDRESS__)
	tcase_add_test(tc, forked_child_finds_no_server_of_its_parent);
#endif
	tcase_add_test(tc, spinning_server_and_client_answer);
	tcase_add_test(tc, last_to_leave_gets_the_context);
	suite_add_tcase(suite, tc);
	return suite;
}
