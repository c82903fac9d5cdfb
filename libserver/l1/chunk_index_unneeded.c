/* SPDX-License-Identifier: Apache-2.0 */
#include "chunk_index_internal.h"

/*
 * DESIGN
 *
 * Purpose: objects that nothing needs leave first. Which ones these are, the owner knows (session_touch.c of the server): a
 * policy sees one object at a time, and not that a window has moved on, or that a state lies where no request will go on.
 *
 * For the policy an unneeded object is as if it were pinned; it keeps the queue number that the policy noted, as what is set
 * aside does. Of the queues that are not empty the first one goes first, and in it the object that has been unneeded for longest.
 *
 * An unneeded object is no worse than before: a lookup finds it, and its promise, a hold or a touch gives it back to the policy.
 * `unneeded` is a mark: an object that is pinned when it is marked is unneeded as soon as nothing pins it.
 *
 * Rejected: the policy's own queue for what leaves soon (SPARE of hdc). Its head competes with those of all classes, and only
 * one policy has it. To drop the object at once: while the pool has room, it may still serve a prompt that ends there.
 *
 * Threads: loop.
 */

#define NEEDED_MAX ((1u << SCOUT__NEEDED_BITS) - 1)

void
scout__unneeded_open(struct scout__chunk_index *index)
{
	scout__chunked_queue_init(&index->unneeded.queues, sizeof(index->entries[0]));
}

int
scout__unneeded_reserve(struct scout__chunk_index *index, uint32_t n)
{
	return scout__chunked_queue_reserve(&index->unneeded.queues, &index->entries[0].node, n);
}

void
scout__unneeded_close(struct scout__chunk_index *index)
{
	scout__chunked_queue_fini(&index->unneeded.queues);
}

void
scout__unneeded_put(struct scout__chunk_index *index, uint32_t entry)
{
	uint32_t queue = index->entries[entry].node.queue;

	index->l1->policy->remove(index->order.policy, entry, SCOUT__REMOVE_PINNED);
	scout__chunked_queue_append(&index->unneeded.queues, queue, entry);
	index->unneeded.used |= UINT64_C(1) << queue;
	index->unneeded.n++;
}

/* Out of its queue, and unneeded no more; the policy does not have it yet. */
static SCOUT_ON_LOOP void
take_out(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__entry *e = &index->entries[entry];
	uint32_t queue = e->node.queue;

	scout__chunked_queue_unlink(&index->unneeded.queues, entry);
	if (index->unneeded.queues.n[queue] == 0)
		index->unneeded.used &= ~(UINT64_C(1) << queue);
	index->unneeded.n--;
	e->unneeded = 0;
}

void
scout__unneeded_leave(struct scout__chunk_index *index, uint32_t entry, enum scout__remove why)
{
	take_out(index, entry);
	if (why == SCOUT__REMOVE_PINNED)
		return;
	index->l1->policy->insert(index->order.policy, entry, SCOUT__INSERT_UNPINNED);
	index->l1->policy->remove(index->order.policy, entry, why);
}

void
scout__unneeded_take_back(struct scout__chunk_index *index, uint32_t entry)
{
	take_out(index, entry);
	index->l1->policy->insert(index->order.policy, entry, SCOUT__INSERT_UNPINNED);
}

uint32_t
scout__unneeded_victim(const struct scout__chunk_index *index)
{
	return scout__chunked_queue_head(&index->unneeded.queues, (uint32_t)__builtin_ctzll(index->unneeded.used));
}

void
scout__unneeded_evicted(struct scout__chunk_index *index)
{
	if (index->unneeded.n < index->unneeded.low)
		index->unneeded.low = index->unneeded.n;
	if (index->unneeded.left-- > 0)
		return;
	index->unneeded.surplus = index->unneeded.low;
	index->unneeded.low = index->unneeded.n;
	index->unneeded.left = index->extents.n_slots;
}

void
scout__unneeded_restart(struct scout__chunk_index *index)
{
	index->unneeded.surplus = index->unneeded.low = 0;
	index->unneeded.left = index->extents.n_slots;
}

bool
scout__unneeded_fill_extent(const struct scout__chunk_index *index)
{
	return index->extents.n > 0 && index->unneeded.n > 0 &&
	       index->unneeded.surplus >= index->extents.by_slot[0]->slots;
}

uint32_t
scout__index_needed(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__used *used = &index->used_by[entry];

	used->needed += used->needed < NEEDED_MAX;
	return used->needed;
}
