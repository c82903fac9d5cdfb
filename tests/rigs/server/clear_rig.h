/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_CLEAR_RIG_H
#define KVSCOUT_TESTS_CLEAR_RIG_H

#include "nodes_rig.h"

/* A clear and what a second-tier store knows of it: the same for files and for Redis. */

#define CLEAR_X UINT64_C(0xc1ea0001)
#define CLEAR_Y UINT64_C(0xc1ea0002)

/* Carried out, and recorded in every store. */
static inline struct scout__clear_reply
clear_by(struct wire_peer *p, uint64_t generation)
{
	struct scout__clear_reply m;

	ck_assert_int_eq(wire_clear(p, generation, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.pending, 0);
	return m;
}

/* The hit of keys 1 to 4 and where it is; leaves nothing behind. */
static inline struct scout__lookup_reply
clear_look(struct wire_peer *p)
{
	static uint64_t ticket = UINT64_C(1) << 44;
	struct scout__lookup_reply m;

	ck_assert_int_eq(wire_lookup(p, ++ticket, 1, 4, 0, &m), SCOUT_WIRE_OK);
	rig_finish(p, ticket);
	return m;
}

static inline void
clear_write(struct node *node)
{
	for (uint64_t key = 1; key <= 4; key++)
		node_write(node, key);
}

/* Pool and store have all four; then a clear, and neither has any. */
static inline void
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

/* Peers that know nothing of it, on a server that knows nothing of it: only the store does. */
static inline void
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
	ck_assert_int_eq(wire_store(&node.rig.worker, 0, 9, 1, &g), SCOUT_WIRE_OK); /* it joined after the clear */
	free(g.grants);
	rig_down(&node.rig);
}

/* Until the other server has looked at the store again. */
static inline void
clear_wait_gone(struct wire_peer *p)
{
	uint64_t end_us = scout__now_us() + 20000000;
	static uint64_t ticket = UINT64_C(1) << 45;
	struct scout__lookup_reply m = {.hit = 1};

	while (m.hit != 0) {
		ck_assert_uint_lt(scout__now_us(), end_us);
		(void)wire_lookup(p, ++ticket, 1, 4, 0, &m); /* CLEARED when it comes in the middle */
		(void)wire_simple(p, SCOUT_OP_FINISH, ticket);
	}
}

static inline void
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
	ck_assert_int_eq(wire_store(&b.rig.worker, 0, 1, 4, &g), SCOUT_WIRE_CLEARED);
	(void)clear_by(&b.rig.worker, SCOUT_GENERATION_ANY);
	clear_write(&b);
	ck_assert_uint_eq(clear_look(&a.rig.client).l2, 4);
	/* The other way round. */
	(void)clear_by(&b.rig.client, CLEAR_Y);
	clear_wait_gone(&a.rig.client);
	rig_down(&a.rig);
	rig_down(&b.rig);
}

#endif
