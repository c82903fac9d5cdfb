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
clear_wait_gone(struct wire_peer *p)
{
	static uint64_t ticket = UINT64_C(1) << 45;
	struct scout__lookup_reply m = {.hit = 1};

	wait_until(m.hit == 0) {
		(void)wire_lookup(p, ++ticket, 1, 4, 0, &m); /* CLEARED when it comes in the middle */
		(void)wire_simple(p, SCOUT_OP_FINISH, ticket);
	}
}
