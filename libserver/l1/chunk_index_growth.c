/* SPDX-License-Identifier: Apache-2.0 */
#include "chunk_index_internal.h"
#include "clock.h"

/*
 * DESIGN
 *
 * Purpose: when to ask for more memory, and what waits for it.
 *
 * An extent that is being grown has its run of numbers already, behind those of the ones that are being grown before
 * it, and its first `fresh` slots may be those of bare entries. What of these is not in use any more when the extent
 * comes goes on the list. When it fails, its run is a hole again, but for the numbers of entries that are still promised:
 * as long as there are such, new extents go behind all numbers that were ever used.
 *
 * Threads: loop.
 */

#define MAX_AHEAD 512u      /* extents of a chunk index that are being grown at once */
#define POOL_MAX_AHEAD 768u /* and of all: a chunk index without memory finds the pool ready for its own */
#define MAX_BARE 1024u      /* slots of each of them for bare entries: they are looked at when it comes */

/* No extent for now: the pool is used up (@regrow_us 0), or getting one failed and is tried again at @regrow_us. */
static void
note_grown_out(struct scout__chunk_index *index, uint64_t regrow_us)
{
	index->growth.is_out = true;
	index->growth.returns = index->l1->pool.returns;
	index->growth.again_us = regrow_us;
}

/* The first number that a new extent may have. */
static uint32_t
first_allowed(const struct scout__chunk_index *index)
{
	uint32_t first = index->growth.filling ? index->growth.filling->first + index->growth.filling->slots : 0;

	return index->slots.n_stranded > 0 && index->slots.next_fresh > first ? index->slots.next_fresh : first;
}

/*
 * Where the next extent goes: the first run of numbers without memory that takes @want slots, else the longest one.
 * Returns its length, at most @want; 0: there is none.
 */
static uint32_t
find_hole(const struct scout__chunk_index *index, uint32_t want, uint32_t *ret_first)
{
	uint32_t longest = 0;
	uint32_t at = first_allowed(index);

	for (uint32_t i = 0; i <= index->extents.n && longest < want; i++) {
		uint32_t end = i < index->extents.n ? index->extents.first[i] : index->max_entries;

		if (end > at && end - at > longest) {
			longest = end - at;
			*ret_first = at;
		}
		if (i < index->extents.n && end + index->extents.by_slot[i]->slots > at)
			at = end + index->extents.by_slot[i]->slots;
	}
	return longest < want ? longest : want;
}

/* Room for what there is of each of @n entries from @first on. */
static SCOUT_ON_LOOP bool
reserve(struct scout__chunk_index *index, uint32_t first, uint32_t n)
{
	bool has_room;

	if ((uint64_t)first + n <= index->growth.n_reserved)
		return true;
	has_room = scout__arrays_reserve(index, (uint64_t)first + n);
	/* Also without room: the arrays may have moved. */
	if (index->cap_entries == 0 || scout__order_reserve(index, index->cap_entries) ||
	    scout__unneeded_reserve(index, index->cap_entries))
		return false;
	index->growth.n_reserved = index->cap_entries;
	return has_room;
}

/* Ask for an extent, whether one is coming or not. */
static SCOUT_ON_LOOP void
ask(struct scout__chunk_index *index)
{
	struct scout__pool *pool = &index->l1->pool;
	bool returned = index->growth.returns != pool->returns;
	uint32_t first = 0, room;
	int asked;

	if (index->extents.n_slots == index->max_entries) {
		index->growth.is_out = true;
		return;
	}
	if (index->growth.is_out && index->growth.again_us && !returned && scout__now_us() < index->growth.again_us)
		return;
	/* What comes back from another chunk index is for the one that waits for it. */
	if (!scout__rebalance_allows(index)) {
		index->growth.is_out = true;
		index->growth.again_us = 0;
		return;
	}
	room = find_hole(index, (uint32_t)scout__index_extent_slots(index), &first);
	if (!reserve(index, first, room)) {
		if (!index->growth.n)
			note_grown_out(index, scout__now_us() + index->l1->regrow_us);
		return;
	}
	asked = scout__pool_want(pool, index, index->strides, index->nodes, index->n_ranks, room);
	if (asked > 0) {
		index->growth.n++;
		index->growth.filling = pool->growing;
		index->growth.filling->first = first;
		/* What is merely tried again may fail again: grown_out stays, so that stores need not wait for it. */
		if (returned || index->growth.again_us == 0)
			index->growth.is_out = false;
	} else if (index->growth.n) {
		return; /* what is coming is waited for */
	} else if (asked == 0) {
		note_grown_out(index, 0);
	} else {
		note_grown_out(index, scout__now_us() + index->l1->regrow_us);
	}
}

void
scout__index_ask(struct scout__chunk_index *index)
{
	if (!index->growth.n)
		ask(index);
}

void
scout__index_ask_early(struct scout__chunk_index *index)
{
	if (index->slots.n_free >= index->growth.last_slots / 4)
		return;
	scout__index_ask(index);
	(void)scout__rebalance_ask(index);
}

void
scout__l1_grow_ahead(struct scout__l1 *l1)
{
	struct scout__chunk_index *index = l1->pool.n_growing == 0 ? scout__rebalance_poorest(l1) : NULL;

	if (index)
		scout__index_ask(index);
}

/* No memory comes for @extent: nothing is expected of its bare entries any more. What still promises them finds that. */
static SCOUT_ON_LOOP void
strand(struct scout__chunk_index *index, const struct scout__extent *extent)
{
	for (uint32_t entry = extent->first; entry < extent->first + extent->fresh; entry++) {
		const struct scout__entry *e = &index->entries[entry];

		if (!e->in_use)
			continue;
		scout__slot_strand(index, entry);
		if (e->tracked)
			index->l1->let_go(index, entry);
	}
}

bool
scout__index_grow(struct scout__chunk_index *index, struct scout__extent *extent)
{
	SCOUT_ASSERT(index->growth.n && extent->owner == index);
	index->growth.n--;
	/* They come in the order in which they were asked for. */
	if (extent == index->growth.filling)
		index->growth.filling = NULL;
	if (extent->error || !scout__extents_fit(index)) {
		strand(index, extent);
		scout__extent_free(&index->l1->pool, extent);
		note_grown_out(index, scout__now_us() + index->l1->regrow_us);
		scout__rebalance_settled(index);
		return false;
	}
	index->growth.is_out = false;
	scout__rebalance_settled(index);
	scout__index_extent_insert(index, extent);
	scout__slots_dress(index, extent);
	index->growth.last_slots = extent->slots;
	return true;
}

/* No bare entry more goes into @extent, which is being grown; NULL: there is none. */
static bool
is_filled(const struct scout__extent *extent)
{
	return !extent || extent->fresh == extent->slots || extent->fresh == MAX_BARE;
}

bool
scout__slot_is_coming(struct scout__chunk_index *index)
{
	const struct scout__pool *pool = &index->l1->pool;

	/* What is tried again after it failed may fail again: what can be evicted need not wait for it. */
	if (index->slots.n_free > 0 || index->growth.is_out)
		return false;
	if (is_filled(index->growth.filling) && index->growth.n < MAX_AHEAD && pool->n_growing < POOL_MAX_AHEAD &&
	    index->l1->n_wanting == 0)
		ask(index);
	return !index->growth.is_out && !is_filled(index->growth.filling);
}

uint32_t
scout__slot_take_coming(struct scout__chunk_index *index)
{
	struct scout__extent *extent = index->growth.filling;
	uint32_t entry = extent->first + extent->fresh++;

	scout__slot_bare(index, entry);
	return entry;
}
