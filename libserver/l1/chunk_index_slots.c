/* SPDX-License-Identifier: Apache-2.0 */
#include "chunk_index_internal.h"

/*
 * DESIGN
 *
 * Purpose: which slots are free.
 *
 * Free slots: those of an extent from `fresh` on were never used and are on no list, so an extent of a million slots
 * costs nothing when it comes. The others are on a list, last in, first out (what was just evicted is still in the
 * cache), linked both ways so that a slot of an extent that leaves can be taken out of its middle.
 *
 * Threads: loop.
 */

void
scout__slot_put(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__entry *e = &index->entries[entry];

	if (e->bare) {
		index->slots.n_bare--;
		index->slots.n_stranded -= e->spoiled;
		return;
	}
	if (index->extents.leaving && entry - index->extents.leaving->first < index->extents.leaving->slots)
		return;
	e->is_free = 1;
	e->link[SCOUT__FREE_NEXT] = index->slots.head;
	e->link[SCOUT__FREE_PREV] = SCOUT__NO_ENTRY;
	if (index->slots.head != SCOUT__NO_ENTRY)
		index->entries[index->slots.head].link[SCOUT__FREE_PREV] = entry;
	index->slots.head = entry;
	index->slots.n_free++;
}

void
scout__slots_put_fresh(struct scout__chunk_index *index, const struct scout__extent *extent)
{
	index->slots.n_fresh += extent->slots - extent->fresh;
	index->slots.n_free += extent->slots - extent->fresh;
}

void
scout__slots_take_fresh(struct scout__chunk_index *index, const struct scout__extent *extent)
{
	index->slots.n_fresh -= extent->slots - extent->fresh;
	index->slots.n_free -= extent->slots - extent->fresh;
}

void
scout__slot_bare(struct scout__chunk_index *index, uint32_t entry)
{
	if (entry >= index->slots.next_fresh)
		index->slots.next_fresh = entry + 1;
	index->slots.n_bare++;
}

void
scout__slots_dress(struct scout__chunk_index *index, const struct scout__extent *extent)
{
	scout__slots_put_fresh(index, extent);
	for (uint32_t entry = extent->first; entry < extent->first + extent->fresh; entry++) {
		struct scout__entry *e = &index->entries[entry];

		e->bare = 0;
		index->slots.n_bare -= e->in_use;
		if (!e->in_use)
			scout__slot_put(index, entry);
	}
}

void
scout__slot_strand(struct scout__chunk_index *index, uint32_t entry)
{
	index->entries[entry].spoiled = 1;
	index->slots.n_stranded++;
}

void
scout__slots_forget(struct scout__chunk_index *index, const struct scout__extent *extent)
{
	if (index->slots.fresh_from == extent)
		index->slots.fresh_from = NULL;
}

void
scout__slots_open(struct scout__chunk_index *index)
{
	index->slots.head = SCOUT__NO_ENTRY;
}

void
scout__slot_unlist(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__entry *e = &index->entries[entry];
	const uint32_t *link = e->link;

	if (link[SCOUT__FREE_PREV] == SCOUT__NO_ENTRY)
		index->slots.head = link[SCOUT__FREE_NEXT];
	else
		index->entries[link[SCOUT__FREE_PREV]].link[SCOUT__FREE_NEXT] = link[SCOUT__FREE_NEXT];
	if (link[SCOUT__FREE_NEXT] != SCOUT__NO_ENTRY)
		index->entries[link[SCOUT__FREE_NEXT]].link[SCOUT__FREE_PREV] = link[SCOUT__FREE_PREV];
	e->is_free = 0;
	index->slots.n_free--;
}

static bool
has_fresh(const struct scout__chunk_index *index, const struct scout__extent *extent)
{
	return extent->fresh < extent->slots && extent != index->extents.leaving;
}

/*
 * The next slot that was never used: there is one. One extent after the other, the oldest first: what is stored
 * together lies together, and is old together when an extent has to go.
 */
static uint32_t
fresh_take(struct scout__chunk_index *index)
{
	struct scout__extent *extent = index->slots.fresh_from;
	uint32_t entry;

	if (!extent || !has_fresh(index, extent)) {
		uint32_t age = 0;

		while (!has_fresh(index, index->extents.by_age[age]))
			age++;
		extent = index->extents.by_age[age];
		index->slots.fresh_from = extent;
	}
	entry = extent->first + extent->fresh++;
	index->slots.n_fresh--;
	index->slots.n_free--;
	if (entry >= index->slots.next_fresh)
		index->slots.next_fresh = entry + 1;
	return entry;
}

uint32_t
scout__slot_take(struct scout__chunk_index *index)
{
	uint32_t entry;

	if (index->slots.n_fresh > 0) {
		entry = fresh_take(index);
	} else {
		entry = index->slots.head;
		scout__slot_unlist(index, entry);
	}
	return entry;
}
