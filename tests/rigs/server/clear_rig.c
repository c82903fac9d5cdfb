/* SPDX-License-Identifier: Apache-2.0 */
#include "clear_rig.h"

struct scout__clear_reply
clear_by(struct wire_peer *p, uint64_t generation)
{
	struct scout__clear_reply m;

	assert_wire(wire_clear(p, generation, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.pending, 0);
	return m;
}

struct scout__lookup_reply
clear_look(struct wire_peer *p)
{
	static uint64_t ticket = UINT64_C(1) << 44;
	struct scout__lookup_reply m;

	assert_wire(wire_lookup(p, ++ticket, 1, 4, 0, &m), SCOUT_WIRE_OK);
	rig_finish(p, ticket);
	return m;
}

void
clear_write(struct node *node)
{
	for (uint64_t key = 1; key <= 4; key++)
		node_write(node, key);
}

void
clear_drops_both_tiers(const char *url)
{
	struct node node;

	node_up(&node, url);
	clear_write(&node);
	ck_assert_uint_eq(clear_look(&node.rig.client).hit, 4);
	(void)clear_by(&node.rig.client, CLEAR_X);
	ck_assert_uint_eq(clear_look(&node.rig.client).hit, 0);
	(void)clear_by(&node.rig.worker, CLEAR_X);
	clear_write(&node);
	ck_assert_uint_eq(clear_look(&node.rig.client).hit, 4);
	rig_down(&node.rig);
}

void
clear_outlives_the_server(const char *url)
{
	struct node node;
	struct wire_grants g;

	node_up(&node, url);
	clear_write(&node);
	rig_down(&node.rig);
	node_up(&node, url);
	ck_assert_uint_eq(clear_look(&node.rig.client).l2, 4); /* without a clear they come back */
	(void)clear_by(&node.rig.client, CLEAR_X);
	rig_down(&node.rig);
	for (int i = 0; i < 2; i++) {
		node_up(&node, url);
		ck_assert_uint_eq(clear_look(&node.rig.client).hit, 0);
		rig_down(&node.rig);
	}
	/* What is stored now outlives it, too; the same name clears nothing again. */
	node_up(&node, url);
	clear_write(&node);
	rig_down(&node.rig);
	node_up(&node, url);
	(void)clear_by(&node.rig.client, CLEAR_X);
	ck_assert_uint_eq(clear_look(&node.rig.client).l2, 4);
	assert_wire(wire_store(&node.rig.worker, 0, 9, 1, &g), SCOUT_WIRE_OK); /* it joined after the clear */
	free(g.grants);
	rig_down(&node.rig);
}

void
clear_wait_gone(struct wire_peer *p)
{
	static uint64_t ticket = UINT64_C(1) << 45;
	struct scout__lookup_reply m = {.hit = 1};

	wait_until(m.hit == 0) {
		(void)wire_lookup(p, ++ticket, 1, 4, 0, &m); /* CLEARED when it comes in the middle */
		(void)wire_simple(p, SCOUT_OP_FINISH, ticket);
	}
}

void
clear_reaches_another_server(const char *url)
{
	struct node a, b;
	struct wire_grants g;

	node_up(&a, url);
	node_up(&b, url);
	clear_write(&a);
	ck_assert_uint_eq(clear_look(&b.rig.client).l2, 4);
	for (uint64_t key = 1; key <= 4; key++)
		node_write(&b, key); /* in its pool, too */
	ck_assert_uint_eq(clear_look(&b.rig.client).l1, 4);
	(void)clear_by(&a.rig.client, CLEAR_X);
	ck_assert_uint_eq(clear_look(&a.rig.client).hit, 0);
	clear_wait_gone(&b.rig.client);
	/* Its worker computes what it computed before; one that is asked to joins, and both share again. */
	assert_wire(wire_store(&b.rig.worker, 0, 1, 4, &g), SCOUT_WIRE_CLEARED);
	(void)clear_by(&b.rig.worker, SCOUT_GENERATION_ANY);
	clear_write(&b);
	ck_assert_uint_eq(clear_look(&a.rig.client).l2, 4);
	/* The other way round. */
	(void)clear_by(&b.rig.client, CLEAR_Y);
	clear_wait_gone(&a.rig.client);
	rig_down(&a.rig);
	rig_down(&b.rig);
}
