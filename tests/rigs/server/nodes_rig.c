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
