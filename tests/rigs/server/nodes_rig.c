/* SPDX-License-Identifier: Apache-2.0 */
#include "nodes_rig.h"

void
node_start(struct node *node, const char *url, uint32_t l2_timeout_ms)
{
	node->cfg = rig_config(64);
	node->cfg.l2 = url;
	node->cfg.l2_timeout_ms = l2_timeout_ms;
	node->cfg.l2_lookup_timeout_ms = l2_timeout_ms;
	rig_up_with(&node->rig, &node->cfg);
}

void
node_up(struct node *node, const char *url)
{
	node_start(node, url, 20000);
	wire_wait_status(&node->rig.client, "l2.0.ready", 1);
}

static void
node_fill(uint8_t *slot, uint64_t key)
{
	for (uint32_t i = 0; i < SHARD_BYTES; i++)
		slot[i] = (uint8_t)(key * 59 + i * 3 + (i >> 9));
}

void
node_write(struct node *node, uint64_t key)
{
	struct wire_peer *p = &node->rig.worker;
	struct wire_grants g;
	uint32_t readable;

	assert_wire(wire_store(p, 0, key, 1, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, 1);
	node_fill(wire_slot(p, &g.grants[0]), key);
	assert_wire(wire_store_done(p, g.id, 1, 1, &readable), SCOUT_WIRE_OK);
	free(g.grants);
	wire_wait_status(&node->rig.client, "l2.writes.bytes", 0);
}

void
node_read(struct node *node, uint64_t ticket, uint64_t first_key, uint32_t n)
{
	struct wire_peer *p = &node->rig.worker;
	struct wire_grants g;

	assert_wire(wire_retrieve(p, ticket, 0, n, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, n);
	for (uint32_t i = 0; i < n; i++) {
		uint8_t expected[SHARD_BYTES];

		node_fill(expected, first_key + i);
		ck_assert_mem_eq(wire_slot(p, &g.grants[i]), expected, SHARD_BYTES);
	}
	assert_wire(wire_retrieve_done(p, g.id, 0), SCOUT_WIRE_OK);
	free(g.grants);
}

/* A scheduler of the decode node: what a proxy says of the prompt, or everything, is waited for. */
static struct scout_client *
node_scheduler(const struct node *node, bool waits_for_all)
{
	struct scout_client *client = NULL;
	struct scout_client_config cfg;
	char err[256] = "";

	scout_client_config_init(&cfg);
	cfg.endpoint = node->rig.endpoint;
	cfg.name_space = "test";
	cfg.chunk_tokens = NODE_CHUNK_TOKENS;
	cfg.hash_bytes = NODE_HASH;
	cfg.lookup_timeout_ms = 50; /* the time for late keys counts */
	cfg.lookup_poll_key_timeout_ms = 20000;
	cfg.lookup_poll_key_intervals_ms = 5;
	cfg.lookup_poll_key_all = waits_for_all;
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	ck_assert_msg(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
	return client;
}

void
nodes_wait_for_late_keys(const char *url, bool waits_for_all)
{
	static const uint64_t order[NODE_CHUNKS] = {6, 2, 8, 1, 4, 3, 7, 5};
	uint8_t hashes[NODE_CHUNKS * NODE_HASH];
	struct scout_query q = {.id = "decode-1",
				.hashes = hashes,
				.hash_len = NODE_HASH,
				.n = NODE_CHUNKS,
				.prompt_tokens = NODE_CHUNKS * NODE_CHUNK_TOKENS + 5,
				.expect_tokens = waits_for_all ? 0 : NODE_CHUNKS * NODE_CHUNK_TOKENS + 5};
	struct node prefill, decode;
	struct scout_client *client;
	struct scout_hit hit;

	for (uint32_t i = 0; i < NODE_CHUNKS; i++)
		wire_hash(hashes + (size_t)i * NODE_HASH, NODE_HASH, i + 1);
	node_up(&prefill, url);
	node_up(&decode, url);
	client = node_scheduler(&decode, waits_for_all);
	ck_assert_int_eq(scout_lookup(client, &q, &hit), SCOUT_NOT_YET);
	for (uint32_t i = 0; i < NODE_CHUNKS; i++) {
		ck_assert_int_eq(scout_lookup(client, &q, &hit), SCOUT_NOT_YET);
		node_write(&prefill, order[i]);
	}
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_HIT);
	ck_assert_uint_eq(hit.chunks, NODE_CHUNKS);
	ck_assert_uint_eq(hit.l2_chunks, NODE_CHUNKS);
	node_read(&decode, hit.ticket, 1, NODE_CHUNKS);
	ck_assert_int_eq(scout_finish(client, q.id), 0);
	scout_client_free(client);
	rig_down(&decode.rig);
	rig_down(&prefill.rig);
}
