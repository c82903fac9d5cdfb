/* SPDX-License-Identifier: Apache-2.0 */
#include "chunk_index_internal.h"

/*
 * DESIGN
 *
 * Purpose: the order of eviction.
 *
 * The order is the policy's, but for three kinds of entries. Temporary ones go first, then those that nothing
 * needs (chunk_index_unneeded.c). What the policy named although the
 * guarantee of its tenant protects it is set aside: it keeps the queue number and the age that the policy noted, and
 * for the policy it is as if it were pinned. One queue's head is looked at for each victim, and when it is still
 * protected it moves to the tail if other tenants have something set aside: so what is protected no more is found soon,
 * at a cost that does not depend on how much is set aside.
 *
 * Threads: loop.
 */

int
scout__order_open(struct scout__chunk_index *index)
{
	scout__chunked_queue_init(&index->order.temporary, sizeof(index->entries[0]));
	scout__chunked_queue_init(&index->order.set_aside, sizeof(index->entries[0]));
	return index->l1->policy->open(&index->order.policy, index->max_entries, &index->l1->policy_args);
}

int
scout__order_reserve(struct scout__chunk_index *index, uint32_t n)
{
	struct scout__node *first = &index->entries[0].node;
	int code = index->l1->policy->reserve(index->order.policy, index->entries, n);
	int temporary = scout__chunked_queue_reserve(&index->order.temporary, first, n);
	int set_aside = scout__chunked_queue_reserve(&index->order.set_aside, first, n);

	return code ? code : temporary ? temporary : set_aside;
}

void
scout__order_close(struct scout__chunk_index *index)
{
	scout__chunked_queue_fini(&index->order.set_aside);
	scout__chunked_queue_fini(&index->order.temporary);
	if (index->order.policy)
		index->l1->policy->close(index->order.policy);
}

void
scout__order_insert(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__entry *e = &index->entries[entry];

	e->in_order = 1;
	if (e->temporary) {
		scout__chunked_queue_append(&index->order.temporary, 0, entry);
		return;
	}
	index->l1->policy->insert(index->order.policy, entry,
				  e->stored ? SCOUT__INSERT_UNPINNED : SCOUT__INSERT_CREATED);
	e->stored = 1;
	if (e->unneeded)
		scout__unneeded_put(index, entry);
}

static SCOUT_ON_LOOP void
leave_set_aside(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__entry *e = &index->entries[entry];
	uint32_t queue = e->node.queue;

	scout__chunked_queue_unlink(&index->order.set_aside, entry);
	if (index->order.set_aside.n[queue] == 0)
		index->order.set_aside_used &= ~(UINT64_C(1) << queue);
	index->order.n_set_aside--;
	scout__share_set_aside(index->l1_ns, e->space, -1);
	e->set_aside = 0;
}

/* The queue of what is set aside whose turn it is: there is one. */
static uint32_t
next_set_aside(const struct scout__chunk_index *index)
{
	uint64_t later = index->order.set_aside_used & ~((UINT64_C(1) << index->order.set_aside_turn) - 1);

	return (uint32_t)__builtin_ctzll(later ? later : index->order.set_aside_used);
}

void
scout__order_remove(struct scout__chunk_index *index, uint32_t entry, enum scout__remove why)
{
	struct scout__entry *e = &index->entries[entry];

	e->in_order = 0;
	if (e->temporary) {
		scout__chunked_queue_unlink(&index->order.temporary, entry);
		return;
	}
	if (e->unneeded) {
		scout__unneeded_leave(index, entry, why);
		return;
	}
	if (e->set_aside && why == SCOUT__REMOVE_PINNED) {
		leave_set_aside(index, entry);
		return;
	}
	if (e->set_aside)
		scout__order_take_back(index, entry);
	index->l1->policy->remove(index->order.policy, entry, why);
}

uint32_t
scout__order_victim(struct scout__chunk_index *index)
{
	uint32_t entry = scout__chunked_queue_head(&index->order.temporary, 0);

	if (entry == SCOUT__NO_ENTRY && index->unneeded.n > 0)
		entry = scout__unneeded_victim(index);
	if (entry == SCOUT__NO_ENTRY)
		entry = index->l1->policy->victim(index->order.policy);
	if (entry == SCOUT__NO_ENTRY && index->order.n_set_aside > 0)
		entry = scout__chunked_queue_head(&index->order.set_aside, next_set_aside(index));
	return entry;
}

bool
scout__index_is_protected(const struct scout__chunk_index *index, uint32_t entry, uint32_t asker)
{
	const struct scout__l1_ns *ns = index->l1_ns;
	const struct scout__entry *e = &index->entries[entry];

	return ns && ns->n_guaranteed > 0 && !e->temporary && !e->unneeded &&
	       scout__share_protects(ns, e->space, asker, index->chunk_bytes);
}

uint32_t
scout__order_victim_for(struct scout__chunk_index *index, uint32_t asker)
{
	uint32_t queue, entry;

	if (index->order.n_set_aside == 0 || index->unneeded.n > 0 || index->order.temporary.n[0] > 0)
		return scout__order_victim(index);
	queue = next_set_aside(index);
	entry = scout__chunked_queue_head(&index->order.set_aside, queue);
	index->order.set_aside_turn = queue + 1;
	if (!scout__index_is_protected(index, entry, asker))
		return entry;
	/* Chunks of other tenants may be behind it. */
	if (scout__account_at(index->l1_ns, index->entries[entry].space)->n_set_aside < index->l1_ns->n_set_aside) {
		scout__chunked_queue_unlink(&index->order.set_aside, entry);
		scout__chunked_queue_append(&index->order.set_aside, queue, entry);
	}
	return scout__order_victim(index);
}

void
scout__order_set_aside(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__entry *e = &index->entries[entry];
	uint32_t queue = e->node.queue;

	SCOUT_ASSERT(e->in_order && !e->temporary && !e->set_aside);
	index->l1->policy->remove(index->order.policy, entry, SCOUT__REMOVE_PINNED);
	scout__chunked_queue_append(&index->order.set_aside, queue, entry);
	index->order.set_aside_used |= UINT64_C(1) << queue;
	index->order.n_set_aside++;
	scout__share_set_aside(index->l1_ns, e->space, 1);
	e->set_aside = 1;
}

void
scout__order_take_back(struct scout__chunk_index *index, uint32_t entry)
{
	leave_set_aside(index, entry);
	index->l1->policy->insert(index->order.policy, entry, SCOUT__INSERT_UNPINNED);
}

void
scout__index_unneeded(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__entry *e = &index->entries[entry];

	SCOUT_ASSERT(e->in_use);
	if (e->unneeded || e->temporary || e->spoiled || e->promises > 0)
		return;
	if (e->set_aside)
		scout__order_take_back(index, entry);
	e->unneeded = 1;
	if (e->in_order)
		scout__unneeded_put(index, entry);
}

void
scout__order_count_eviction(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__l1 *l1 = index->l1;

	l1->evictions++;
	index->order.evictions++;
	if (l1->evicted && index->l1_ns && index->l1_ns->n_groups > 1)
		l1->evicted(index, entry);
}

void
scout__order_load_ahead(struct scout__chunk_index *index)
{
	uint32_t entry = scout__chunked_queue_head(&index->order.temporary, 0);

	if (entry == SCOUT__NO_ENTRY)
		entry = index->l1->policy->soon(index->order.policy);
	/* The queues have loaded the entry itself. */
	if (entry != SCOUT__NO_ENTRY)
		scout__index_prefetch(index, index->entries[entry].space, index->entries[entry].hash);
}
