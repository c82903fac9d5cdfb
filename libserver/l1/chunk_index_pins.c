/* SPDX-License-Identifier: Apache-2.0 */
#include "chunk_index_internal.h"

/*
 * DESIGN
 *
 * Purpose: what keeps a chunk in memory, the order of eviction when nothing does, and the end of its entry.
 *
 * Everything that pins goes through scout__entry_pin(), everything that lets go through scout__entry_unpin(); so an
 * entry is in the order exactly when it is in use and both counts are 0. Counts never wrap: what would overflow is
 * refused.
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

void
scout__entry_held(struct scout__chunk_index *index, uint32_t entry)
{
	if (index->entries[entry].holds++ == 0)
		index->held_bytes += index->chunk_bytes;
}

void
scout__entry_unheld(struct scout__chunk_index *index, uint32_t entry)
{
	if (--index->entries[entry].holds == 0)
		index->held_bytes -= index->chunk_bytes;
}

/*
 * ---- the order of eviction: what is temporary first, then what nothing needs, then what a guarantee protects no more, then
 * what the policy says ----
 */

void
scout__order_insert(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__entry *e = &index->entries[entry];

	e->in_order = 1;
	if (e->temporary) {
		scout__chunked_queue_append(&index->temporary, 0, entry);
		return;
	}
	index->l1->policy->insert(index->policy_state, entry,
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

	scout__chunked_queue_unlink(&index->set_aside, entry);
	if (index->set_aside.n[queue] == 0)
		index->set_aside_used &= ~(UINT64_C(1) << queue);
	index->n_set_aside--;
	scout__share_set_aside(index->l1_ns, e->space, -1);
	e->set_aside = 0;
}

/* The queue of what is set aside whose turn it is: there is one. */
static uint32_t
next_set_aside(const struct scout__chunk_index *index)
{
	uint64_t later = index->set_aside_used & ~((UINT64_C(1) << index->set_aside_turn) - 1);

	return (uint32_t)__builtin_ctzll(later ? later : index->set_aside_used);
}

void
scout__order_remove(struct scout__chunk_index *index, uint32_t entry, enum scout__remove why)
{
	struct scout__entry *e = &index->entries[entry];

	e->in_order = 0;
	if (e->temporary) {
		scout__chunked_queue_unlink(&index->temporary, entry);
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
	index->l1->policy->remove(index->policy_state, entry, why);
}

uint32_t
scout__order_victim(struct scout__chunk_index *index)
{
	uint32_t entry = scout__chunked_queue_head(&index->temporary, 0);

	if (entry == SCOUT__NO_ENTRY && index->n_unneeded > 0)
		entry = scout__unneeded_victim(index);
	if (entry == SCOUT__NO_ENTRY)
		entry = index->l1->policy->victim(index->policy_state);
	if (entry == SCOUT__NO_ENTRY && index->n_set_aside > 0)
		entry = scout__chunked_queue_head(&index->set_aside, next_set_aside(index));
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

	if (index->n_set_aside == 0 || index->n_unneeded > 0 || index->temporary.n[0] > 0)
		return scout__order_victim(index);
	queue = next_set_aside(index);
	entry = scout__chunked_queue_head(&index->set_aside, queue);
	index->set_aside_turn = queue + 1;
	if (!scout__index_is_protected(index, entry, asker))
		return entry;
	/* Chunks of other tenants may be behind it. */
	if (scout__account_at(index->l1_ns, index->entries[entry].space)->n_set_aside < index->l1_ns->n_set_aside) {
		scout__chunked_queue_unlink(&index->set_aside, entry);
		scout__chunked_queue_append(&index->set_aside, queue, entry);
	}
	return scout__order_victim(index);
}

void
scout__order_set_aside(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__entry *e = &index->entries[entry];
	uint32_t queue = e->node.queue;

	SCOUT_ASSERT(e->in_order && !e->temporary && !e->set_aside);
	index->l1->policy->remove(index->policy_state, entry, SCOUT__REMOVE_PINNED);
	scout__chunked_queue_append(&index->set_aside, queue, entry);
	index->set_aside_used |= UINT64_C(1) << queue;
	index->n_set_aside++;
	scout__share_set_aside(index->l1_ns, e->space, 1);
	e->set_aside = 1;
}

void
scout__order_take_back(struct scout__chunk_index *index, uint32_t entry)
{
	leave_set_aside(index, entry);
	index->l1->policy->insert(index->policy_state, entry, SCOUT__INSERT_UNPINNED);
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
scout__order_load_ahead(struct scout__chunk_index *index)
{
	uint32_t entry = scout__chunked_queue_head(&index->temporary, 0);

	if (entry == SCOUT__NO_ENTRY)
		entry = index->l1->policy->soon(index->policy_state);
	/* The queues have loaded the entry itself. */
	if (entry != SCOUT__NO_ENTRY)
		scout__index_prefetch(index, index->entries[entry].space, index->entries[entry].hash);
}

/* ---- the end of an entry, and pins ---- */

void
scout__entry_discard(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__entry *e = &index->entries[entry];

	SCOUT_ASSERT(e->in_use && e->promises == 0 && e->holds == 0 && e->saving == 0 && e->expected == 0);
	/*
	 * A spoiled entry goes with its last pin, while it is out of the order. The policy counts what is alive, so it
	 * hears of the end.
	 */
	if (!e->in_order && e->stored)
		scout__order_insert(index, entry);
	if (e->in_order)
		scout__order_remove(index, entry, SCOUT__REMOVE_GONE);
	scout__table_remove(index, entry);
	for (uint32_t rank = 0; rank < index->n_ranks; rank++) {
		uint8_t *state = &index->shard_state[scout__shard_at(index, entry, rank)];

		if (*state == SCOUT__SHARD_ABSENT)
			continue;
		*state = SCOUT__SHARD_ABSENT;
		scout__shard_bump(index, entry, rank);
	}
	e->in_use = 0;
	e->readable = 0;
	e->gen++;
	index->n_entries--;
	scout__share_sub(index->l1_ns, e->space, index->chunk_bytes);
	scout__slot_put(index, entry);
}

void
scout__entry_pin(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__entry *e = &index->entries[entry];

	if (e->in_order)
		scout__order_remove(index, entry, SCOUT__REMOVE_PINNED);
	e->unneeded = 0; /* also what became unneeded while another pin kept it out of the order */
}

void
scout__entry_unpin(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__entry *e = &index->entries[entry];

	if (scout__entry_is_pinned(e))
		return;
	if (e->tracked)
		index->l1->let_go(index, entry);
	SCOUT_ASSERT(e->expected == 0);
	if (e->spoiled && e->saving)
		return; /* until it is saved */
	if (e->readable == 0 || e->spoiled)
		scout__entry_discard(index, entry);
	else
		scout__order_insert(index, entry);
}

bool
scout__index_promise(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__entry *e = &index->entries[entry];
	struct scout__l1 *l1 = index->l1;
	uint32_t units = index->n_ranks * index->readers;

	SCOUT_ASSERT(e->in_use);
	if (e->promises > UINT32_MAX - units)
		goto refused;
	if (e->promises == 0) {
		if (!scout__l1_may_promise(index))
			goto refused;
		l1->promised_bytes += index->chunk_bytes;
		index->promised_bytes += index->chunk_bytes;
		scout__entry_pin(index, entry);
	}
	e->promises += units;
	return true;

refused:
	l1->promises_refused++;
	return false;
}

void
scout__index_unpromise(struct scout__chunk_index *index, uint32_t entry, uint32_t units)
{
	struct scout__entry *e = &index->entries[entry];

	SCOUT_ASSERT(e->in_use && units <= e->promises);
	if (units == 0)
		return;
	e->promises -= units;
	if (e->promises > 0)
		return;
	index->l1->promised_bytes -= index->chunk_bytes;
	index->promised_bytes -= index->chunk_bytes;
	scout__entry_unpin(index, entry);
}

bool
scout__index_hold(struct scout__chunk_index *index, uint32_t entry, uint32_t rank)
{
	struct scout__entry *e = &index->entries[entry];

	SCOUT_ASSERT(rank < index->n_ranks);
	if (!e->in_use || e->spoiled ||
	    index->shard_state[scout__shard_at(index, entry, rank)] != SCOUT__SHARD_READABLE)
		return false;
	if (e->holds == UINT16_MAX)
		return false;
	scout__entry_pin(index, entry);
	scout__entry_held(index, entry);
	return true;
}

void
scout__index_unhold(struct scout__chunk_index *index, uint32_t entry, bool last_reader)
{
	struct scout__entry *e = &index->entries[entry];

	SCOUT_ASSERT(e->in_use && e->holds > 0);
	if (last_reader && !e->temporary)
		index->l1->policy->read_finished(index->policy_state, entry);
	scout__entry_unheld(index, entry);
	scout__entry_unpin(index, entry);
}

bool
scout__index_drop(struct scout__chunk_index *index, uint32_t entry)
{
	const struct scout__entry *e = &index->entries[entry];

	SCOUT_ASSERT(e->in_use);
	if (scout__entry_is_pinned(e) || e->saving)
		return false;
	scout__entry_discard(index, entry);
	return true;
}

void
scout__index_spoil(struct scout__chunk_index *index, uint32_t entry)
{
	if (!scout__index_drop(index, entry))
		index->entries[entry].spoiled = 1;
}
