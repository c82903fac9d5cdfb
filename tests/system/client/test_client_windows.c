/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include <kvscout/client.h>

#include "check_main.h"
#include "clock.h"
#include "groups_rig.h"
#include "waiting.h"

/* A scheduler whose model has a window beside full attention, on one real server or on two that hold a KV rank each. */

#define PAGE 16u
#define HASH 16u
#define SERVERS 2u
#define KEYS 10u

static const struct scout__groups groups = {
	2, {{SCOUT_POLICY_ALL, 1, PAGE, 0, 0}, {SCOUT_POLICY_WINDOW, 1, PAGE, 2 * PAGE + 1, 0}}};

struct node {
	struct scout_server *server;
	struct wire_peer peer, worker;
	char path[64];
};

static struct node nodes[SERVERS];
static struct scout_client *client;

static void
say(struct wire_peer *p, const struct node *node, uint32_t rank, uint32_t n)
{
	wire_open(p, node->path);
	groups_say(p, &groups, PAGE);
	p->hello.hash_bytes = HASH;
	p->hello.rank_first = (uint16_t)rank;
	p->hello.rank_count = 1;
	p->hello.kv_ranks = (uint16_t)n;
}

static void
node_up(uint32_t rank, uint32_t n)
{
	struct node *node = &nodes[rank];
	struct scout_server_config cfg = rig_config(64);

	(void)snprintf(node->path, sizeof(node->path), "ipc:///tmp/kvscout-windows-%d-%u", (int)getpid(),
		       (unsigned)rank);
	cfg.listen = node->path;
	cfg.extent_bytes = 32 * SHARD_BYTES;
	node->server = rig_start(&cfg);
	say(&node->worker, node, rank, n);
	node->worker.hello.role = SCOUT_ROLE_WORKER;
	ck_assert_msg(wire_hello(&node->worker) == SCOUT_WIRE_OK, "%s", node->worker.text);
	ck_assert_int_eq(wire_lease(&node->worker), SCOUT_LEASE_OK);
	ck_assert_msg(groups_register(&node->worker, (uint16_t)rank, 0, UINT32_MAX, SHARD_BYTES) == SCOUT_WIRE_OK, "%s",
		      node->worker.text);
	say(&node->peer, node, rank, n);
	ck_assert_int_eq(wire_hello(&node->peer), SCOUT_WIRE_OK);
}

/* @n servers, and a client whose answers grow old soon. */
static void
up(uint32_t n)
{
	struct scout_client_config cfg;
	char endpoint[160], err[256] = "";

	for (uint32_t rank = 0; rank < n; rank++)
		node_up(rank, n);
	(void)snprintf(endpoint, sizeof(endpoint), "%s%s%s", nodes[0].path, n > 1 ? " " : "",
		       n > 1 ? nodes[1].path : "");
	scout_client_config_init(&cfg);
	cfg.endpoint = endpoint;
	cfg.name_space = "test";
	cfg.chunk_tokens = PAGE;
	cfg.hash_bytes = HASH;
	cfg.kv_ranks = n;
	cfg.group = "all window:33";
	cfg.lookup_timeout_ms = 60000;
	cfg.lookup_refresh_ms = 5;
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	scout_client_config_fini(&cfg);
	ck_assert_msg(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
}

static void
down(uint32_t n)
{
	scout_client_free(client);
	for (uint32_t rank = 0; rank < n; rank++) {
		wire_close(&nodes[rank].peer);
		wire_close(&nodes[rank].worker);
		scout_server_stop(nodes[rank].server);
	}
}

static uint64_t
promised(uint32_t rank)
{
	return wire_status(&nodes[rank].peer, "l1.bytes_promised") / SHARD_BYTES;
}

static struct scout_query
question(const char *id, uint64_t computed, uint32_t want)
{
	static uint8_t hashes[KEYS * HASH];

	for (uint32_t i = 0; i < KEYS; i++)
		wire_hash(hashes + (size_t)i * HASH, HASH, 1 + i);
	return (struct scout_query){.id = id,
				    .hashes = hashes,
				    .hash_len = HASH,
				    .n = KEYS,
				    .prompt_tokens = KEYS * PAGE + 1,
				    .computed_tokens = computed * PAGE,
				    .want_lengths = want};
}

/* Ask until the answer is @hashes long. It is never shorter than before. */
static void
ask_until(const struct scout_query *q, uint32_t hashes)
{
	struct scout_hit hit = {0};
	uint64_t before = 0;
	int rc = SCOUT_NOT_YET;

	wait_until(rc == 0 && hit.tokens == (uint64_t)hashes * PAGE) {
		rc = scout_try_lookup(client, q, &hit);
		ck_assert(rc == 0 || (rc == SCOUT_NOT_YET && before == 0));
		if (rc == 0) {
			ck_assert_uint_ge(hit.tokens, before);
			before = hit.tokens;
		}
	}
}

START_TEST(an_answer_of_several_lengths_is_renewed)
{
	struct scout_query q = question("waits", 0, 4);
	uint64_t tokens[4];

	up(1);
	groups_store(&nodes[0].worker, 0, 0, 5);
	groups_store(&nodes[0].worker, 1, 1, 3);
	ask_until(&q, 3);
	ck_assert_int_eq(scout_lookup_lengths(client, "waits", tokens, 4), 1);
	groups_store(&nodes[0].worker, 1, 3, 4);
	ask_until(&q, 4);
	ck_assert_int_eq(scout_lookup_lengths(client, "waits", tokens, 4), 2);
	ck_assert_uint_eq(tokens[0], 4 * PAGE);
	ck_assert_uint_eq(tokens[1], 3 * PAGE);
	groups_store(&nodes[0].worker, 0, 5, 10);
	groups_store(&nodes[0].worker, 1, 8, 10);
	ask_until(&q, 10);
	ck_assert_int_eq(scout_lookup_lengths(client, "waits", tokens, 4), 3);
	ck_assert_uint_eq(tokens[0], 10 * PAGE);
	ck_assert_uint_eq(tokens[1], 4 * PAGE);
	ck_assert_uint_eq(tokens[2], 3 * PAGE);
	ck_assert_uint_eq(promised(0), 10 + 5);
	/* A length that a renewal has found is one to admit, and the others go back. */
	ck_assert_int_eq(scout_admit(client, "waits", 0, 5 * PAGE), SCOUT_ERR_NOT_RESTORABLE);
	ck_assert_int_eq(scout_admit(client, "waits", 0, 4 * PAGE), 0);
	wire_wait_status(&nodes[0].peer, "l1.bytes_promised", (4 + 2) * SHARD_BYTES);
	ck_assert_int_eq(scout_finish(client, "waits"), 0);
	wire_wait_status(&nodes[0].peer, "l1.bytes_promised", 0);
	down(1);
}
END_TEST

/* The first server could go on at 4 and at 8 since, the second one at 6: the length of before is what both have. */
START_TEST(a_renewal_takes_no_length_that_one_server_cannot_restore)
{
	struct scout_query q = question("waits", 0, 0);
	struct scout_hit hit;
	struct scout_client_counters counters;
	uint64_t renewals;

	up(2);
	for (uint32_t rank = 0; rank < 2; rank++) {
		groups_store(&nodes[rank].worker, 0, 0, 10);
		groups_store(&nodes[rank].worker, 1, 2, 4);
	}
	ask_until(&q, 4);
	groups_store(&nodes[0].worker, 1, 6, 8);
	groups_store(&nodes[1].worker, 1, 4, 6);
	ck_assert_int_eq(scout_client_stats(client, &counters), 0);
	renewals = counters.renewals;
	wait_until(counters.renewals >= renewals + 4) {
		ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
		ck_assert_uint_eq(hit.tokens, 4 * PAGE);
		ck_assert_int_eq(scout_client_stats(client, &counters), 0);
	}
	/* What both have is news. */
	groups_store(&nodes[1].worker, 1, 6, 8);
	ask_until(&q, 8);
	ck_assert_int_eq(scout_admit(client, "waits", 0, SCOUT_TO_END), 0);
	for (uint32_t rank = 0; rank < 2; rank++)
		wire_wait_status(&nodes[rank].peer, "l1.bytes_promised", (8 + 2) * SHARD_BYTES);
	ck_assert_int_eq(scout_finish(client, "waits"), 0);
	down(2);
}
END_TEST

static void
wait_promised(uint32_t n, uint32_t objects)
{
	for (uint32_t rank = 0; rank < n; rank++)
		wire_wait_status(&nodes[rank].peer, "l1.bytes_promised", objects * SHARD_BYTES);
}

/* A lookup ahead, and then the ask that says what the GPU has: it needs no unit of that, and what it has is given back. */
START_LOOP_TEST(presence_serves_any_head_that_the_gpu_has, 1, 3)
{
	struct scout_query q = question("ahead", 0, 0);
	uint32_t n = (uint32_t)_i;

	up(n);
	for (uint32_t rank = 0; rank < n; rank++) {
		groups_store(&nodes[rank].worker, 0, 4, 10);
		groups_store(&nodes[rank].worker, 1, 5, 7);
		groups_store(&nodes[rank].worker, 1, 9, 10);
	}
	/* The head of 4 is on the GPU only. At 10 the window needs 8 and 9, at 7 it needs 5 and 6. */
	ck_assert_int_eq(scout_lookup_ahead(client, &q), 0);
	wait_promised(n, 6 + 3);
	/* Counted when it is answered, and no further question is asked. */
	wire_wait_status(&nodes[0].peer, "lookups.asked_chunks", KEYS);
	q.computed_tokens = 4 * PAGE;
	ask_until(&q, 7);
	wait_promised(n, 3 + 2);
	ck_assert_int_eq(scout_finish(client, "ahead"), 0);
	wait_promised(n, 0);
	ck_assert_uint_eq(wire_status(&nodes[0].peer, "lookups.asked_chunks"), KEYS);
	/* 8 is on the GPU too: what is left of the window is 9. */
	q.id = "further";
	q.computed_tokens = 0;
	ck_assert_int_eq(scout_lookup_ahead(client, &q), 0);
	wait_promised(n, 6 + 3);
	q.computed_tokens = 9 * PAGE;
	ask_until(&q, 10);
	wait_promised(n, 1 + 1);
	ck_assert_int_eq(scout_finish(client, "further"), 0);
	wait_promised(n, 0);
	/* Without a head it is a miss, and all is given back. */
	q.id = "miss";
	q.computed_tokens = 0;
	ck_assert_int_eq(scout_lookup_ahead(client, &q), 0);
	wait_promised(n, 6 + 3);
	ask_until(&q, 0);
	wait_promised(n, 0);
	ck_assert_int_eq(scout_finish(client, "miss"), 0);
	down(n);
}
END_TEST
