/* SPDX-License-Identifier: Apache-2.0 */
#include <kvscout/client.h>

#include "check_main.h"
#include "groups_rig.h"
#include "oom.h"
#include "waiting.h"

/*
 * A client of two servers runs out of memory while it asks about a window: each of its allocations fails in turn. The servers have the
 * same run of the first group, and windows that end elsewhere, but for one: what is no hit of both is no answer.
 */

#define PAGE 16u
#define N 10u
#define MOST 100u

static const struct scout__groups groups = {
	2, {{SCOUT_POLICY_ALL, 1, PAGE, 0, 0}, {SCOUT_POLICY_WINDOW, 1, PAGE, PAGE + 1, 0}}};

struct node {
	struct scout_server *server;
	struct wire_peer worker;
};

/* A server of one of two ranks, which has the windows of 3 and of @length. */
static void
start(struct node *node, uint16_t rank, uint32_t length)
{
	struct scout_server_config cfg = rig_config(256);

	cfg.extent_bytes = 32 * SHARD_BYTES;
	node->server = rig_start(&cfg);
	scout_server_config_fini(&cfg);
	wire_open(&node->worker, scout_server_endpoint(node->server));
	node->worker.hello.role = SCOUT_ROLE_WORKER;
	node->worker.hello.rank_first = rank;
	node->worker.hello.rank_count = 1;
	node->worker.hello.kv_ranks = 2;
	groups_say(&node->worker, &groups, PAGE);
	ck_assert_msg(wire_hello(&node->worker) == SCOUT_WIRE_OK, "%s", node->worker.text);
	ck_assert_int_eq(wire_lease(&node->worker), SCOUT_LEASE_OK);
	ck_assert_int_eq(groups_register(&node->worker, rank, 0, 3, SHARD_BYTES), SCOUT_WIRE_OK);
	groups_store(&node->worker, 0, 0, N);
	groups_store(&node->worker, 1, 2, 3);
	groups_store(&node->worker, 1, length - 1, length);
}

static struct scout_client *
make_client(const struct node *nodes)
{
	struct scout_client_config cfg;
	struct scout_client *client;
	char endpoints[256], err[256] = "";

	(void)snprintf(endpoints, sizeof(endpoints), "%s %s", scout_server_endpoint(nodes[0].server),
		       scout_server_endpoint(nodes[1].server));
	scout_client_config_init(&cfg);
	cfg.endpoint = endpoints;
	cfg.name_space = "test";
	cfg.group = "all window:17";
	cfg.kv_ranks = 2;
	cfg.chunk_tokens = PAGE;
	cfg.hash_bytes = 16;
	cfg.lookup_timeout_ms = 60000;
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	ck_assert_msg(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
	return client;
}

/* The @n th allocation fails, if n > 0. Whether there was one. */
static bool
ask(struct scout_client *client, const char *id, unsigned n, bool ahead, struct scout_hit *ret_hit)
{
	uint8_t hashes[N * 16];
	uint64_t lengths[4];
	struct scout_query query = {
		.id = id, .hashes = hashes, .hash_len = 16, .n = N, .prompt_tokens = N * PAGE + 1, .want_lengths = 4};
	bool failed;
	int rc = 0, known;

	for (uint32_t i = 0; i < N; i++)
		wire_hash(hashes + (size_t)i * 16, 16, i + 1);
	oom_arm(n, OOM_NO_SERVER);
	if (ahead)
		rc = scout_lookup_ahead(client, &query);
	if (rc == 0)
		rc = scout_wait_lookup(client, &query, ret_hit);
	failed = oom_disarm();
	ck_assert_int_eq(rc, 0);
	known = scout_lookup_lengths(client, id, lengths, 4);
	ck_assert_int_eq(known, ret_hit->tokens > 0);
	ck_assert_int_eq(scout_admit(client, id, 0, SCOUT_TO_END), 0);
	(void)scout_finish(client, id);
	return failed;
}

static bool
ask_without(struct scout_client *client, unsigned n, bool ahead)
{
	struct scout_hit hit;
	char id[32];
	bool failed;

	(void)snprintf(id, sizeof(id), "%s%u", ahead ? "ahead" : "now", n);
	failed = ask(client, id, n, ahead, &hit);
	/* Without memory it may know of nothing; the servers did nothing wrong. */
	ck_assert_msg((hit.tokens == 3 * PAGE && hit.error == 0) ||
			      (failed && hit.tokens == 0 && hit.error != SCOUT_ERR_PROTOCOL),
		      "allocation %u%s: %u tokens, %s, %s", n, ahead ? " ahead" : "", (unsigned)hit.tokens,
		      scout_reason_name(hit.reason), scout_err_name(hit.error));
	return failed;
}

/* A connection that could not take a reply in is made anew. */
static void
works_again(struct scout_client *client)
{
	struct scout_hit hit = {0};
	char err[256];

	wait_until(hit.tokens == 3 * PAGE) {
		ck_assert_msg(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
		(void)ask(client, "again", 0, false, &hit);
	}
}

/* Of the two, the one has a window at 8, the other one at 6: without a map of either, the smaller one looks like a hit. */
START_TEST(a_client_of_two_servers_never_says_a_length_that_one_does_not_have)
{
	struct scout_client *client;
	struct node nodes[2];
	unsigned n[2] = {1, 1};

	start(&nodes[0], 0, 8);
	start(&nodes[1], 1, 6);
	client = make_client(nodes);
	for (int ahead = 0; ahead < 2; ahead++) {
		while (ask_without(client, n[ahead], ahead)) {
			works_again(client);
			ck_assert_uint_lt(++n[ahead], MOST);
		}
		ck_assert_uint_gt(n[ahead], 1);
	}
	for (int i = 0; i < 2; i++)
		wire_wait_status(&nodes[i].worker, "l1.bytes_promised", 0);
	scout_client_free(client);
	for (int i = 0; i < 2; i++) {
		wire_close(&nodes[i].worker);
		scout_server_stop(nodes[i].server);
	}
}
END_TEST
