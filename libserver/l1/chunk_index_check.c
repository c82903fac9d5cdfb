/* SPDX-License-Identifier: Apache-2.0 */
#include "chunk_index_internal.h"

/*
 * What must be true of a chunk index at any moment, by a full walk: for debugging and for tests. Loop thread.
 */

static SCOUT_ON_LOOP void
check_free_list(const struct scout__chunk_index *index)
{
	uint32_t n = index->slots.n_fresh;
	uint32_t prev = SCOUT__NO_ENTRY;

	for (uint32_t at = index->slots.head; at != SCOUT__NO_ENTRY; at = index->entries[at].link[SCOUT__FREE_NEXT]) {
		const struct scout__extent *extent = scout__index_extent_from(index, at);

		SCOUT_ASSERT(extent && at - extent->first < extent->fresh);
		SCOUT_ASSERT(index->entries[at].is_free && !index->entries[at].in_use);
		SCOUT_ASSERT(index->entries[at].link[SCOUT__FREE_PREV] == prev);
		SCOUT_ASSERT(n < index->slots.n_free);
		prev = at;
		n++;
	}
	SCOUT_ASSERT(n == index->slots.n_free);
}

static SCOUT_ON_LOOP void
check_extents(const struct scout__chunk_index *index)
{
	uint64_t slots = 0;
	uint64_t fresh = 0;
	uint64_t end = 0;

	for (uint32_t i = 0; i < index->extents.n; i++) {
		const struct scout__extent *extent = index->extents.by_slot[i];

		SCOUT_ASSERT(index->extents.first[i] == extent->first && extent->first >= end);
		SCOUT_ASSERT(extent->fresh <= extent->slots && extent->owner == index);
		SCOUT_ASSERT(i == 0 ||
			     index->extents.by_age[i - 1]->segments[0].id < index->extents.by_age[i]->segments[0].id);
		end = (uint64_t)extent->first + extent->slots;
		slots += extent->slots;
		fresh += extent == index->extents.leaving ? 0 : extent->slots - extent->fresh;
	}
	SCOUT_ASSERT(end <= index->max_entries && index->slots.next_fresh <= index->max_entries);
	SCOUT_ASSERT(slots == index->extents.n_slots && fresh == index->slots.n_fresh);
	SCOUT_ASSERT(index->slots.n_stranded <= index->slots.n_bare &&
		     (index->growth.n > 0) == (index->growth.filling != NULL));
	SCOUT_ASSERT(index->l1->pool.used_bytes <= index->l1->pool.l1_bytes);
	check_free_list(index);
}

/* The states of one entry's shards against its counts and the shared words. */
static SCOUT_ON_LOOP void
check_shards(const struct scout__chunk_index *index, uint32_t entry)
{
	const struct scout__entry *e = &index->entries[entry];
	uint32_t readable = 0;
	uint32_t expected = 0;
	uint32_t writers = 0;

	for (uint32_t rank = 0; rank < index->n_ranks; rank++) {
		uint64_t at = scout__shard_at(index, entry, rank);
		uint8_t state = index->shard_state[at];

		SCOUT_ASSERT(state <= SCOUT__SHARD_LOADING);
		readable += state == SCOUT__SHARD_READABLE;
		expected += state == SCOUT__SHARD_EXPECTED || state == SCOUT__SHARD_LOADING;
		writers += state == SCOUT__SHARD_WRITING || state == SCOUT__SHARD_QUARANTINE ||
			   state == SCOUT__SHARD_LOADING;
		SCOUT_ASSERT(state == SCOUT__SHARD_ABSENT || state == SCOUT__SHARD_EXPECTED ||
			     index->slot_gen[at] != 0);
		SCOUT_ASSERT(scout__shard_word_is(index, entry, rank, index->slot_gen[at]));
	}
	SCOUT_ASSERT(readable == e->readable && expected == e->expected);
	SCOUT_ASSERT(writers <= e->holds || !e->in_use);
	SCOUT_ASSERT(e->in_use || (readable == 0 && writers == 0));
}

static SCOUT_ON_LOOP void
check_entry(const struct scout__chunk_index *index, uint32_t entry)
{
	const struct scout__entry *e = &index->entries[entry];
	bool pinned = scout__entry_is_pinned(e);

	check_shards(index, entry);
	if (!e->in_use) {
		SCOUT_ASSERT(!pinned && !e->in_order);
		return;
	}
	SCOUT_ASSERT(!e->is_free && !e->bare && scout__index_find(index, e->space, e->hash) == entry);
	SCOUT_ASSERT(pinned ? !e->in_order && (e->expected == 0 || e->tracked) : e->in_order || e->saving);
	SCOUT_ASSERT(pinned || (e->readable > 0 && e->expected == 0 && (e->stored || e->temporary)));
	SCOUT_ASSERT(pinned || e->saving || !e->spoiled);
	SCOUT_ASSERT(!e->set_aside || (e->in_order && !e->temporary && !e->unneeded));
	SCOUT_ASSERT(!e->unneeded || !e->temporary);
}

void
scout__index_check(const struct scout__chunk_index *index)
{
	uint64_t promised_bytes = 0;
	uint64_t held_bytes = 0;
	uint64_t pinned_bytes = 0;
	uint32_t in_use = 0;
	uint32_t in_order = 0;
	uint32_t set_aside = 0;
	uint32_t unneeded = 0;
	uint32_t saving = 0;
	uint32_t out = 0; /* of the extent that is on its way out: neither used nor free */

	check_extents(index);
	for (uint32_t i = 0; i < index->extents.n; i++) {
		const struct scout__extent *extent = index->extents.by_slot[i];

		for (uint32_t entry = extent->first; entry < extent->first + extent->fresh; entry++) {
			const struct scout__entry *e = &index->entries[entry];

			check_entry(index, entry);
			promised_bytes += e->promises > 0 ? index->chunk_bytes : 0;
			held_bytes += e->holds > 0 ? index->chunk_bytes : 0;
			pinned_bytes += scout__entry_is_pinned(e) ? index->chunk_bytes : 0;
			in_use += e->in_use;
			in_order += e->in_order;
			set_aside += e->in_use && e->set_aside;
			unneeded += e->in_order && e->unneeded;
			saving += e->saving > 0 && !e->stuck;
			out += !e->in_use && !e->is_free;
		}
		if (extent == index->extents.leaving)
			out += extent->slots - extent->fresh;
	}
	/* What is bare lies in no extent, and is promised. */
	SCOUT_ASSERT(in_use + index->slots.n_bare == index->n_entries &&
		     in_use + index->slots.n_free + out == index->extents.n_slots);
	promised_bytes += index->slots.n_bare * index->chunk_bytes;
	pinned_bytes += index->slots.n_bare * index->chunk_bytes;
	SCOUT_ASSERT(out == 0 || index->l1->rebalance.giver == index);
	SCOUT_ASSERT(scout__table_check(index) == in_use + index->slots.n_bare);
	SCOUT_ASSERT(promised_bytes == index->pins.promised_bytes && promised_bytes <= index->l1->promised_bytes);
	SCOUT_ASSERT(index->l1->promised_bytes <= index->l1->max_promised + index->l1->promised_reserve);
	SCOUT_ASSERT(pinned_bytes == index->pins.pinned_bytes && pinned_bytes <= index->l1->pinned_bytes);
	SCOUT_ASSERT(held_bytes == index->pins.held_bytes && saving == index->l2.n_saving);
	scout__chunked_queue_check(&index->order.temporary);
	scout__chunked_queue_check(&index->order.set_aside);
	scout__chunked_queue_check(&index->unneeded.queues);
	SCOUT_ASSERT(set_aside == index->order.n_set_aside && unneeded == index->unneeded.n);
	index->l1->policy->check(index->order.policy, in_order - index->order.temporary.n[0] - set_aside - unneeded);
}
