/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Finds the pending lookup with the nearest deadline; courier thread only. Most lookups have the client's own timeout: their
 * deadlines come in the order of their submits, so they are in a list, and adding and removing cost a few stores. Lookups with
 * another timeout (their own timeout_ms, or the time for late keys) are in a pairing heap: in a list sorted by deadline each of
 * them would walk past all that wait longer.
 *
 * The heap's links are in the slots, so the heap needs no memory of its own. `deadline_prev` of a node is its left sibling, or its
 * parent if it is the first child; `deadline_next` is its right sibling.
 *
 * Rejected: one array heap for all. Each removal would write the positions of a dozen other slots, in cache lines that nothing else
 * touches.
 */
#include "lookup_internal.h"

/* ---- the list: lookups with the client's own timeout ---- */

static bool SCOUT_ON_COURIER
in_list(const struct scout_client *c, const struct scout__lookup_slot *slot)
{
	return slot->terms.timeout_ms == c->cfg.lookup_timeout_ms;
}

static void SCOUT_ON_COURIER
list_add(struct scout_client *c, uint32_t i)
{
	struct scout__lookup_slot *slot = &c->slots[i];

	slot->work.deadline_prev = c->deadline_tail;
	slot->work.deadline_next = SCOUT__NO_SLOT;
	if (c->deadline_tail == SCOUT__NO_SLOT)
		c->deadline_head = i;
	else
		c->slots[c->deadline_tail].work.deadline_next = i;
	c->deadline_tail = i;
}

static void SCOUT_ON_COURIER
list_remove(struct scout_client *c, const struct scout__lookup_slot *slot)
{
	if (slot->work.deadline_prev == SCOUT__NO_SLOT)
		c->deadline_head = slot->work.deadline_next;
	else
		c->slots[slot->work.deadline_prev].work.deadline_next = slot->work.deadline_next;
	if (slot->work.deadline_next == SCOUT__NO_SLOT)
		c->deadline_tail = slot->work.deadline_prev;
	else
		c->slots[slot->work.deadline_next].work.deadline_prev = slot->work.deadline_prev;
}

/* ---- the heap: all others ---- */

/* Make one heap of two; either may be empty. Returns the root. */
static uint32_t SCOUT_ON_COURIER
meld(struct scout_client *c, uint32_t a, uint32_t b)
{
	struct scout__lookup_slot *parent, *child;

	if (a == SCOUT__NO_SLOT || b == SCOUT__NO_SLOT)
		return a == SCOUT__NO_SLOT ? b : a;
	if (c->slots[b].ask.deadline_us < c->slots[a].ask.deadline_us) {
		uint32_t t = a;

		a = b;
		b = t;
	}
	parent = &c->slots[a];
	child = &c->slots[b];
	child->work.deadline_prev = a;
	child->work.deadline_next = parent->work.deadline_child;
	if (child->work.deadline_next != SCOUT__NO_SLOT)
		c->slots[child->work.deadline_next].work.deadline_prev = b;
	parent->work.deadline_child = b;
	return a;
}

/* Make one heap of the siblings from @first on: meld pairs, then the pairs from the last to the first. Returns the root. */
static uint32_t SCOUT_ON_COURIER
meld_siblings(struct scout_client *c, uint32_t first)
{
	uint32_t pairs = SCOUT__NO_SLOT, root = SCOUT__NO_SLOT;

	while (first != SCOUT__NO_SLOT) {
		uint32_t a = first, b = c->slots[a].work.deadline_next;

		first = b == SCOUT__NO_SLOT ? b : c->slots[b].work.deadline_next;
		a = meld(c, a, b);
		c->slots[a].work.deadline_next = pairs;
		pairs = a;
	}
	while (pairs != SCOUT__NO_SLOT) {
		uint32_t next = c->slots[pairs].work.deadline_next;

		root = meld(c, root, pairs);
		pairs = next;
	}
	return root;
}

static void SCOUT_ON_COURIER
heap_add(struct scout_client *c, uint32_t i)
{
	c->slots[i].work.deadline_child = SCOUT__NO_SLOT;
	c->slots[i].work.deadline_prev = c->slots[i].work.deadline_next = SCOUT__NO_SLOT;
	c->deadline_root = meld(c, c->deadline_root, i);
}

static void SCOUT_ON_COURIER
heap_remove(struct scout_client *c, uint32_t i)
{
	struct scout__lookup_slot *slot = &c->slots[i];
	uint32_t below = meld_siblings(c, slot->work.deadline_child);

	if (i == c->deadline_root) {
		c->deadline_root = below;
		return;
	}
	if (c->slots[slot->work.deadline_prev].work.deadline_child == i)
		c->slots[slot->work.deadline_prev].work.deadline_child = slot->work.deadline_next;
	else
		c->slots[slot->work.deadline_prev].work.deadline_next = slot->work.deadline_next;
	if (slot->work.deadline_next != SCOUT__NO_SLOT)
		c->slots[slot->work.deadline_next].work.deadline_prev = slot->work.deadline_prev;
	c->deadline_root = meld(c, c->deadline_root, below);
}

/* ---- both ---- */

void
scout__deadlines_init(struct scout_client *c)
{
	c->deadline_head = c->deadline_tail = c->deadline_root = SCOUT__NO_SLOT;
}

void
scout__deadlines_add(struct scout_client *c, uint32_t i)
{
	c->slots[i].work.in_deadlines = true;
	if (in_list(c, &c->slots[i]))
		list_add(c, i);
	else
		heap_add(c, i);
}

void
scout__deadlines_remove(struct scout_client *c, uint32_t i)
{
	struct scout__lookup_slot *slot = &c->slots[i];

	if (!slot->work.in_deadlines)
		return;
	slot->work.in_deadlines = false;
	if (in_list(c, slot))
		list_remove(c, slot);
	else
		heap_remove(c, i);
}

uint32_t
scout__deadlines_first(const struct scout_client *c)
{
	if (c->deadline_head == SCOUT__NO_SLOT || c->deadline_root == SCOUT__NO_SLOT)
		return c->deadline_head == SCOUT__NO_SLOT ? c->deadline_root : c->deadline_head;
	return c->slots[c->deadline_root].ask.deadline_us < c->slots[c->deadline_head].ask.deadline_us
		       ? c->deadline_root
		       : c->deadline_head;
}
