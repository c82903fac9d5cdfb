/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "chunk_index_internal.h"

/*
 * DESIGN
 *
 * Purpose: which slot numbers have memory behind them, and where it lies.
 *
 * An extent takes a run of slot numbers. One that is given back (rebalance.c) leaves a hole, and a later
 * extent is made no larger than the hole that it goes into; so max_entries numbers are always enough, however
 * often extents come and go. Extents are sorted twice: by their first slot, to find the one that an entry
 * lies in, and by age, which is the order of their segment ids, to tell workers of new ones.
 *
 * What an extent's slot number held before says nothing about its new memory: an entry's gen and a shard's slot_gen
 * go on counting, so old handles stay old.
 *
 * Threads: loop.
 */

bool
scout__extents_fit(struct scout__chunk_index *index)
{
	uint32_t cap = index->extents.cap ? index->extents.cap * 2 : 16;
	struct scout__extent **extents;
	uint32_t *first;

	if (index->extents.n < index->extents.cap)
		return true;
	extents = realloc(index->extents.by_slot, cap * sizeof(struct scout__extent *));
	if (!extents)
		return false;
	index->extents.by_slot = extents;
	extents = realloc(index->extents.by_age, cap * sizeof(struct scout__extent *));
	if (!extents)
		return false;
	index->extents.by_age = extents;
	first = realloc(index->extents.first, cap * sizeof(*first));
	if (!first)
		return false;
	index->extents.first = first;
	index->extents.cap = cap;
	return true;
}

/* The first place in the list of extents whose slots begin at @first or behind it. */
static uint32_t
place_of(const struct scout__chunk_index *index, uint32_t first)
{
	uint32_t low = 0;
	uint32_t high = index->extents.n;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (index->extents.first[middle] < first)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The place of the extent that @entry lies in: it has memory. A store's slots mostly come from one extent. */
static uint32_t
place_around(const struct scout__chunk_index *index, uint32_t entry)
{
	const struct scout__index_extents *extents = &index->extents;
	uint32_t at = extents->recent;

	if (at < extents->n && entry - extents->first[at] < extents->by_slot[at]->slots)
		return at;
	at = place_of(index, entry);
	return at == extents->n || extents->first[at] != entry ? at - 1 : at;
}

static struct scout__extent *
extent_of(const struct scout__chunk_index *index, uint32_t entry)
{
	return index->extents.by_slot[place_around(index, entry)];
}

struct scout__extent *
scout__index_extent_from(const struct scout__chunk_index *index, uint32_t entry)
{
	uint32_t at = place_of(index, entry);

	if (at > 0 && entry - index->extents.first[at - 1] < index->extents.by_slot[at - 1]->slots)
		at--;
	return at < index->extents.n ? index->extents.by_slot[at] : NULL;
}

void
scout__extents_account(struct scout__chunk_index *index)
{
	uint64_t bytes = index->extents.n_slots * index->chunk_bytes;

	if (!index->l1_ns)
		return;
	index->l1_ns->slot_bytes += bytes - index->extents.accounted_bytes;
	index->extents.accounted_bytes = bytes;
}

static SCOUT_ON_LOOP void
tell_slots(struct scout__chunk_index *index)
{
	if (index->l1->policy->resized)
		index->l1->policy->resized(index->order.policy, index->extents.n_slots);
	scout__extents_account(index);
}

void
scout__index_extent_insert(struct scout__chunk_index *index, struct scout__extent *extent)
{
	uint32_t at = place_of(index, extent->first);
	uint32_t behind = index->extents.n - at;

	memmove(index->extents.by_slot + at + 1, index->extents.by_slot + at, behind * sizeof(struct scout__extent *));
	memmove(index->extents.first + at + 1, index->extents.first + at, behind * sizeof(*index->extents.first));
	index->extents.by_slot[at] = extent;
	index->extents.first[at] = extent->first;
	index->extents.by_age[index->extents.n++] = extent;
	index->extents.n_slots += extent->slots;
	tell_slots(index);
}

void
scout__index_extent_remove(struct scout__chunk_index *index, struct scout__extent *extent)
{
	uint32_t at = place_of(index, extent->first);
	uint32_t age = 0;
	uint32_t behind;

	SCOUT_ASSERT(at < index->extents.n && index->extents.by_slot[at] == extent);
	while (index->extents.by_age[age] != extent)
		age++;
	index->extents.n--;
	behind = index->extents.n - at;
	memmove(index->extents.by_slot + at, index->extents.by_slot + at + 1, behind * sizeof(struct scout__extent *));
	memmove(index->extents.first + at, index->extents.first + at + 1, behind * sizeof(*index->extents.first));
	behind = index->extents.n - age;
	memmove(index->extents.by_age + age, index->extents.by_age + age + 1, behind * sizeof(struct scout__extent *));
	index->extents.n_slots -= extent->slots;
	tell_slots(index);
	if (index->extents.leaving == extent)
		index->extents.leaving = NULL;
	scout__slots_forget(index, extent);
	extent->owner = NULL;
}

void
scout__index_extent_leaves(struct scout__chunk_index *index, struct scout__extent *extent)
{
	index->extents.leaving = extent;
	scout__slots_take_fresh(index, extent);
}

void
scout__index_extent_stays(struct scout__chunk_index *index)
{
	scout__slots_put_fresh(index, index->extents.leaving);
	index->extents.leaving = NULL;
}

void
scout__extents_close(struct scout__chunk_index *index)
{
	for (uint32_t i = 0; i < index->extents.n; i++)
		scout__extent_free(&index->l1->pool, index->extents.by_slot[i]);
	free(index->extents.by_slot);
	free(index->extents.by_age);
	free(index->extents.first);
}

struct scout__extent *
scout__index_surrender(struct scout__chunk_index *index)
{
	struct scout__extent *extent;

	if (index->extents.n == 0)
		return NULL;
	extent = index->extents.by_slot[--index->extents.n];
	extent->owner = NULL;
	extent->taken_from = extent->taken_for = 0;
	return extent;
}

struct scout__place
scout__index_place(const struct scout__chunk_index *index, uint32_t entry, uint32_t rank)
{
	const struct scout__extent *extent = extent_of(index, entry);
	const struct scout__segment *segment = &extent->segments[rank];

	return (struct scout__place){
		.segment = segment->id,
		.offset = segment->data_offset + (entry - extent->first) * segment->stride,
		.slot_gen = index->slot_gen[scout__shard_at(index, entry, rank)],
		.writer = &segment->words[extent->slots + 2 * (size_t)(entry - extent->first)],
	};
}

uint8_t *
scout__index_data(const struct scout__chunk_index *index, uint32_t entry, uint32_t rank)
{
	const struct scout__extent *extent = extent_of(index, entry);
	const struct scout__segment *segment = &extent->segments[rank];

	SCOUT_ASSERT(segment->slots);
	return segment->slots + (entry - extent->first) * segment->stride;
}

/* Where the generation word of a shard of @extent lies. */
static _Atomic uint64_t *
shard_word(const struct scout__extent *extent, uint32_t entry, uint32_t rank)
{
	return &extent->segments[rank].words[entry - extent->first];
}

void
scout__shard_bump(struct scout__chunk_index *index, uint32_t entry, uint32_t rank)
{
	uint32_t *gen = &index->slot_gen[scout__shard_at(index, entry, rank)];

	if (++*gen == 0)
		*gen = 1;
	index->extents.recent = place_around(index, entry);
	/*
	 * A worker learns that it may write by a message, which is sent after this: that orders this before its first
	 * byte.
	 */
	atomic_store_explicit(shard_word(index->extents.by_slot[index->extents.recent], entry, rank), *gen,
			      memory_order_release);
}

bool
scout__shard_word_is(const struct scout__chunk_index *index, uint32_t entry, uint32_t rank, uint64_t value)
{
	return atomic_load_explicit(shard_word(extent_of(index, entry), entry, rank), memory_order_relaxed) == value;
}
