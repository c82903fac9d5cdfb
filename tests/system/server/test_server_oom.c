/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <kvscout/client.h>
#include <kvscout/hash.h>
#include <kvscout/server.h>
#include <kvscout/worker.h>

#include "chunk_index.h"
#include "check_main.h"
#include "clock.h"
#include "oom.h"
#include "wire_peer.h"
#include "own_use.h"

/*
 * What is made, made again with each allocation failing in turn, until none fails: each time the code says so, nothing
 * was given out, and nothing is left behind - no block, no descriptor.
 */

#define MOST 2000u /* allocations of one thing */

/* libzmq closes its descriptors on a thread of its own. */
static void
wait_fds(int most)
{
	wait_until(count_fds() <= most)
		;
}

struct made {
	void *thing;
	char err[512];
};

/* Returns what the call returned; on success @made->thing is to be freed by @drop. */
typedef int (*make_fn)(struct made *made);
typedef void (*drop_fn)(void *thing);

static void
sweep(const char *what, make_fn make, drop_fn drop, enum oom_threads threads)
{
	struct made made;
	unsigned n = 0;
	bool failed;
	int fds, rc;

	/* Once without: what is made once and stays. */
	oom_arm(0, threads);
	made = (struct made){0};
	rc = make(&made);
	ck_assert_msg(rc == 0, "%s: %s", what, made.err);
	drop(made.thing);
	fds = count_fds();
	do {
		long live = oom_live();

		ck_assert_uint_lt(n, MOST);
		made = (struct made){.thing = &made};
		oom_arm(++n, threads);
		rc = make(&made);
		failed = oom_disarm();
		if (rc == 0) {
			/* Something that it can do without. */
			drop(made.thing);
		} else {
			ck_assert_msg(failed, "%s: %s", what, made.err);
			ck_assert_msg(made.thing == &made, "%s, allocation %u: written on failure", what, n);
			ck_assert_msg(rc == SCOUT_ERR_NOMEM, "%s, allocation %u: %s (%s)", what, n, scout_err_name(rc),
				      made.err);
		}
		ck_assert_msg(oom_live() == live, "%s, allocation %u: %ld blocks are left", what, n, oom_live() - live);
		wait_fds(fds);
	} while (failed);
	ck_assert_uint_gt(n, 1);
}

/* ---- client ---- */

static int
make_client(struct made *made)
{
	struct scout_client *client = made->thing;
	struct scout_client_config cfg;
	int rc;

	scout_client_config_init(&cfg);
	cfg.endpoint = "ipc:///tmp/kvscout-oom-nobody ipc:///tmp/kvscout-oom-none";
	cfg.kv_ranks = 2;
	cfg.connect_timeout_ms = 1;
	rc = scout_client_new(&cfg, &client, made->err, sizeof(made->err));
	made->thing = client;
	return rc;
}

static void
drop_client(void *client)
{
	scout_client_free(client);
}

START_TEST(a_client)
{
	sweep("client", make_client, drop_client, OOM_ALL);
}
END_TEST

/* ---- configurations ---- */

static char config_path[64];

static void
write_config(const char *text)
{
	FILE *file;

	(void)snprintf(config_path, sizeof(config_path), "/tmp/kvscout-oom-%d.conf", (int)getpid());
	file = fopen(config_path, "we");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
}

static int
load_client(struct made *made)
{
	struct scout_client_config cfg;
	int rc;

	scout_client_config_init(&cfg);
	rc = scout_client_config_load(&cfg, config_path, made->err, sizeof(made->err));
	if (rc == 0)
		rc = scout_client_config_set(&cfg, "endpoint", "ipc:///tmp/b", made->err, sizeof(made->err));
	scout_client_config_fini(&cfg);
	return rc;
}

static void
drop_nothing(void *thing)
{
	(void)thing;
}

START_TEST(a_clients_configuration)
{
	write_config("endpoint = ipc:///tmp/a\nnamespace = weights-of-a-long-name\nkv_ranks = 2\n");
	sweep("client configuration", load_client, drop_nothing, OOM_ALL);
	(void)remove(config_path);
}
END_TEST

static int
load_server(struct made *made)
{
	struct scout_server_config cfg;
	int rc;

	scout_server_config_init(&cfg);
	rc = scout_server_config_load(&cfg, config_path, made->err, sizeof(made->err));
	if (rc == 0)
		rc = scout_server_config_set(&cfg, "l2", "fs:///tmp/three", made->err, sizeof(made->err));
	scout_server_config_fini(&cfg);
	return rc;
}

START_TEST(a_servers_configuration)
{
	write_config("listen = ipc:///tmp/a\neviction = lru\nl2 = fs:///tmp/one\nl2 = fs:///tmp/two\n");
	sweep("server configuration", load_server, drop_nothing, OOM_ALL);
	(void)remove(config_path);
}
END_TEST

/* ---- hashing ---- */

static int
make_hashes(struct made *made)
{
	static uint32_t tokens[1024];
	struct scout_hasher *hasher = made->thing;
	int rc = scout_hasher_new(NULL, &hasher);

	(void)tokens;
	made->thing = hasher;
	return rc;
}

static void
drop_hasher(void *hasher)
{
	scout_hasher_free(hasher);
}

START_TEST(a_hasher)
{
	sweep("hasher", make_hashes, drop_hasher, OOM_ALL);
}
END_TEST

/* ---- pool, chunk index, policy ---- */

static const char *const policies[] = {"lru", "s3fifo:10", "hdc"};
static const char *policy;
static const struct scout__log no_log;

struct l1_thing {
	struct scout__l1 l1;
	struct scout__chunk_index *index;
};

static SCOUT_ON_LOOP void
index_fini(struct l1_thing *t)
{
	scout__index_free(t->index);
	scout__l1_fini(&t->l1);
}

static void
drop_index(void *thing)
{
	scout__enter_loop();
	index_fini(thing);
}

static int
make_index(struct made *made)
{
	static struct l1_thing t;
	const uint64_t bytes[2] = {4096, 4096};
	int rc;

	scout__enter_loop();
	rc = scout__l1_init(&t.l1, 1 << 20, 1 << 18, 1 << 19, policy, &no_log, made->err, sizeof(made->err));
	if (rc)
		return rc;
	rc = scout__index_new(&t.l1, NULL, bytes, NULL, 2, 1, 32, &t.index);
	if (rc)
		scout__l1_fini(&t.l1);
	else
		made->thing = &t;
	return rc;
}

START_LOOP_TEST(a_pool_and_an_index, 0, (sizeof(policies) / sizeof(policies[0])))
{
	policy = policies[_i];
	sweep(policy, make_index, drop_index, OOM_NO_SERVER);
}
END_TEST

/* ---- server ---- */

static int
make_server(struct made *made)
{
	struct scout_server *server = made->thing;
	struct scout_server_config cfg;
	int rc;

	scout_server_config_init(&cfg);
	cfg.l1_bytes = 1 << 20;
	cfg.max_sessions = 64;
	cfg.max_peers = 16;
#ifdef HAVE_MICROHTTPD
	cfg.metrics = "127.0.0.1:0";
#endif
	rc = scout_server_start(&cfg, &server, made->err, sizeof(made->err));
	made->thing = server;
	return rc;
}

static void
drop_server(void *server)
{
	scout_server_stop(server);
}

START_TEST(a_server)
{
	sweep("server", make_server, drop_server, OOM_ALL);
}
END_TEST

/* ---- worker ---- */

static struct scout_server *server;
static uint8_t pages[16][4096];

static int
make_worker(struct made *made)
{
	const struct scout_plane plane = {.base = pages, .stride = sizeof(pages[0]), .block_bytes = sizeof(pages[0])};
	struct scout_table layout = {.block_tokens = 16, .n_blocks = 16, .n_planes = 1, .planes = &plane};
	struct scout_worker *worker = made->thing;
	struct scout_worker_config cfg;
	int rc;

	scout_worker_config_init(&cfg);
	cfg.endpoint = scout_server_endpoint(server);
	cfg.chunk_tokens = 16;
	cfg.max_jobs = 16;
	rc = scout_worker_new(&cfg, &worker, made->err, sizeof(made->err));
	if (rc)
		return rc;
	rc = scout_worker_register(worker, &layout, 1, 5000, made->err, sizeof(made->err));
	if (rc)
		scout_worker_free(worker);
	else
		made->thing = worker;
	return rc;
}

static void
drop_worker(void *worker)
{
	scout_worker_free(worker);
}

/*
 * One worker, until the server has made the first extent for it: a thread of the pool does so after the register was
 * answered.
 */
static void
have_extent_made(void)
{
	struct made first = {0};
	struct wire_peer p;

	ck_assert_int_eq(make_worker(&first), 0);
	wire_open(&p, scout_server_endpoint(server));
	wire_wait_status(&p, "l1.extents", 1);
	wire_close(&p);
	drop_worker(first.thing);
}

START_TEST(a_worker)
{
	struct made made = {0};

	oom_arm(0, OOM_NO_SERVER); /* what the server has is its own, from the start */
	ck_assert_int_eq(make_server(&made), 0);
	server = made.thing;
	have_extent_made();
	sweep("worker", make_worker, drop_worker, OOM_NO_SERVER);
	scout_server_stop(server);
}
END_TEST
