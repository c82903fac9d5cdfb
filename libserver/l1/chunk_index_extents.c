/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "chunk_index_internal.h"
#include "clock.h"

/*
 * DESIGN
 *
 * Purpose: which slot numbers have memory behind them, which of those are free, and when to ask for more.
 *
 * An extent takes a run of slot numbers. One that is given back (rebalance.c) leaves a hole, and a later
 * extent is made no larger than the hole that it goes into; so max_entries numbers are always enough, however
 * often extents come and go. Extents are sorted twice: by their first slot, to find the one that an entry
 * lies in, and by age, which is the order of their segment ids, to tell workers of new ones.
 *
 * Free slots: those of an extent from `fresh` on were never used and are on no list, so an extent of a million slots
 * costs nothing when it comes. The others are on a list, last in, first out (what was just evicted is still in the
 * cache), linked both ways so that a slot of an extent that leaves can be taken out of its middle.
 *
 * An extent that is being grown has its run of numbers already, behind those of the ones that are being grown before
 * it, and its first `fresh` slots may be those of bare entries. What of these is not in use any more when the extent
 * comes goes on the list. When it fails, its run is a hole again, but for the numbers of entries that are still promised:
 * as long as there are such, new extents go behind all numbers that were ever used.
 *
 * What an extent's slot number held before says nothing about its new memory: an entry's gen and a shard's slot_gen
 * go on counting, so old handles stay old.
 *
 * Threads: loop.
 */

#define MAX_AHEAD 512u      /* extents of a chunk index that are being grown at once */
#define POOL_MAX_AHEAD 768u /* and of all: a chunk index without memory finds the pool ready for its own */
#define MAX_BARE 1024u      /* slots of each of them for bare entries: they are looked at when it comes */

/* The links of a slot on the free list. */
enum {
	NEXT = 0,
	PREV = 1
};

/* No extent for now: the pool is used up (@regrow_us 0), or getting one failed and is tried again at @regrow_us. */
static void
note_grown_out(struct scout__chunk_index *index, uint64_t regrow_us)
{
	index->grown_out = true;
	index->grown_returns = index->l1->pool.returns;
	index->regrow_us = regrow_us;
}

/* The first number that a new extent may have. */
static uint32_t
first_allowed(const struct scout__chunk_index *index)
{
	uint32_t first = index->filling ? index->filling->first + index->filling->slots : 0;

	return index->n_stranded > 0 && index->next_fresh > first ? index->next_fresh : first;
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

	for (uint32_t i = 0; i <= index->n_extents && longest < want; i++) {
		uint32_t end = i < index->n_extents ? index->extent_first[i] : index->max_entries;

		if (end > at && end - at > longest) {
			longest = end - at;
			*ret_first = at;
		}
		if (i < index->n_extents && end + index->extents[i]->slots > at)
			at = end + index->extents[i]->slots;
	}
	return longest < want ? longest : want;
}

/* Ask for an extent, whether one is coming or not. */
static SCOUT_ON_LOOP void
ask(struct scout__chunk_index *index)
{
	struct scout__pool *pool = &index->l1->pool;
	bool returned = index->grown_returns != pool->returns;
	uint32_t first = 0, room;
	int asked;

	if (index->n_slots == index->max_entries) {
		index->grown_out = true;
		return;
	}
	if (index->grown_out && index->regrow_us && !returned && scout__now_us() < index->regrow_us)
		return;
	/* What comes back from another chunk index is for the one that waits for it. */
	if (!scout__rebalance_allows(index)) {
		index->grown_out = true;
		index->regrow_us = 0;
		return;
	}
	room = find_hole(index, (uint32_t)scout__index_extent_slots(index), &first);
	asked = scout__pool_want(pool, index, index->strides, index->nodes, index->n_ranks, room);
	if (asked > 0) {
		index->growing++;
		index->filling = pool->growing;
		index->filling->first = first;
		/* What is merely tried again may fail again: grown_out stays, so that stores need not wait for it. */
		if (returned || index->regrow_us == 0)
			index->grown_out = false;
	} else if (index->growing) {
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
	if (!index->growing)
		ask(index);
}

void
scout__l1_grow_ahead(struct scout__l1 *l1)
{
	struct scout__chunk_index *index = l1->pool.n_growing == 0 ? scout__rebalance_poorest(l1) : NULL;

	if (index)
		scout__index_ask(index);
}

/* Room for one more in the lists of extents. */
static bool
extents_fit(struct scout__chunk_index *index)
{
	uint32_t cap = index->cap_extents ? index->cap_extents * 2 : 16;
	struct scout__extent **extents;
	uint32_t *first;

	if (index->n_extents < index->cap_extents)
		return true;
	extents = realloc(index->extents, cap * sizeof(struct scout__extent *));
	if (!extents)
		return false;
	index->extents = extents;
	extents = realloc(index->by_age, cap * sizeof(struct scout__extent *));
	if (!extents)
		return false;
	index->by_age = extents;
	first = realloc(index->extent_first, cap * sizeof(*first));
	if (!first)
		return false;
	index->extent_first = first;
	index->cap_extents = cap;
	return true;
}

/* The first place in the list of extents whose slots begin at @first or behind it. */
static uint32_t
place_of(const struct scout__chunk_index *index, uint32_t first)
{
	uint32_t low = 0;
	uint32_t high = index->n_extents;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (index->extent_first[middle] < first)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The extent that @entry lies in: it has memory. */
static struct scout__extent *
extent_of(const struct scout__chunk_index *index, uint32_t entry)
{
	uint32_t at = place_of(index, entry);

	if (at == index->n_extents || index->extent_first[at] != entry)
		at--;
	return index->extents[at];
}

struct scout__extent *
scout__index_extent_from(const struct scout__chunk_index *index, uint32_t entry)
{
	uint32_t at = place_of(index, entry);

	if (at > 0 && entry - index->extent_first[at - 1] < index->extents[at - 1]->slots)
		at--;
	return at < index->n_extents ? index->extents[at] : NULL;
}

static void
extent_insert(struct scout__chunk_index *index, struct scout__extent *extent)
{
	uint32_t at = place_of(index, extent->first);
	uint32_t behind = index->n_extents - at;

	memmove(index->extents + at + 1, index->extents + at, behind * sizeof(struct scout__extent *));
	memmove(index->extent_first + at + 1, index->extent_first + at, behind * sizeof(*index->extent_first));
	index->extents[at] = extent;
	index->extent_first[at] = extent->first;
	index->by_age[index->n_extents++] = extent;
}

static SCOUT_ON_LOOP void
tell_slots(struct scout__chunk_index *index)
{
	if (index->l1->policy->resized)
		index->l1->policy->resized(index->policy_state, index->n_slots);
	if (index->l1_ns) {
		index->l1_ns->slot_bytes += index->n_slots * index->chunk_bytes - index->accounted_bytes;
		index->accounted_bytes = index->n_slots * index->chunk_bytes;
	}
}

void
scout__index_extent_remove(struct scout__chunk_index *index, struct scout__extent *extent)
{
	uint32_t at = place_of(index, extent->first);
	uint32_t age = 0;
	uint32_t behind;

	SCOUT_ASSERT(at < index->n_extents && index->extents[at] == extent);
	while (index->by_age[age] != extent)
		age++;
	index->n_extents--;
	behind = index->n_extents - at;
	memmove(index->extents + at, index->extents + at + 1, behind * sizeof(struct scout__extent *));
	memmove(index->extent_first + at, index->extent_first + at + 1, behind * sizeof(*index->extent_first));
	behind = index->n_extents - age;
	memmove(index->by_age + age, index->by_age + age + 1, behind * sizeof(struct scout__extent *));
	index->n_slots -= extent->slots;
	tell_slots(index);
	if (index->fresh_from == extent)
		index->fresh_from = NULL;
	extent->owner = NULL;
}

struct scout__extent *
scout__index_surrender(struct scout__chunk_index *index)
{
	struct scout__extent *extent;

	if (index->n_extents == 0)
		return NULL;
	extent = index->extents[index->n_extents - 1];
	scout__index_extent_remove(index, extent);
	extent->taken_from = extent->taken_for = 0;
	return extent;
}

/* No memory comes for @extent: nothing is expected of its bare entries any more. What still promises them finds that. */
static SCOUT_ON_LOOP void
strand(struct scout__chunk_index *index, const struct scout__extent *extent)
{
	for (uint32_t entry = extent->first; entry < extent->first + extent->fresh; entry++) {
		struct scout__entry *e = &index->entries[entry];

		if (!e->in_use)
			continue;
		e->spoiled = 1;
		index->n_stranded++;
		if (e->tracked)
			index->l1->let_go(index, entry);
	}
}

/* The slots of @extent are there, with memory. */
static SCOUT_ON_LOOP void
dress(struct scout__chunk_index *index, const struct scout__extent *extent)
{
	index->n_fresh += extent->slots - extent->fresh;
	index->n_free += extent->slots - extent->fresh;
	for (uint32_t entry = extent->first; entry < extent->first + extent->fresh; entry++) {
		struct scout__entry *e = &index->entries[entry];

		e->bare = 0;
		index->n_bare -= e->in_use;
		if (!e->in_use)
			scout__slot_put(index, entry);
	}
}

bool
scout__index_grow(struct scout__chunk_index *index, struct scout__extent *extent)
{
	SCOUT_ASSERT(index->growing && extent->owner == index);
	index->growing--;
	/* They come in the order in which they were asked for. */
	if (extent == index->filling)
		index->filling = NULL;
	if (extent->error || !extents_fit(index)) {
		strand(index, extent);
		scout__extent_free(&index->l1->pool, extent);
		note_grown_out(index, scout__now_us() + index->l1->regrow_us);
		scout__rebalance_settled(index);
		return false;
	}
	index->grown_out = false;
	scout__rebalance_settled(index);
	extent_insert(index, extent);
	index->n_slots += extent->slots;
	tell_slots(index);
	dress(index, extent);
	index->last_slots = extent->slots;
	return true;
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

/* Where the generation word of a shard lies. */
static _Atomic uint64_t *
shard_word(const struct scout__chunk_index *index, uint32_t entry, uint32_t rank)
{
	const struct scout__extent *extent = extent_of(index, entry);

	return &extent->segments[rank].words[entry - extent->first];
}

void
scout__shard_bump(struct scout__chunk_index *index, uint32_t entry, uint32_t rank)
{
	uint32_t *gen = &index->slot_gen[scout__shard_at(index, entry, rank)];

	if (++*gen == 0)
		*gen = 1;
	/*
	 * A worker learns that it may write by a message, which is sent after this: that orders this before its first
	 * byte.
	 */
	atomic_store_explicit(shard_word(index, entry, rank), *gen, memory_order_release);
}

bool
scout__shard_word_is(const struct scout__chunk_index *index, uint32_t entry, uint32_t rank, uint64_t value)
{
	return atomic_load_explicit(shard_word(index, entry, rank), memory_order_relaxed) == value;
}

/* ---- free slots ---- */

void
scout__slot_put(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__entry *e = &index->entries[entry];

	if (e->bare) {
		index->n_bare--;
		index->n_stranded -= e->spoiled;
		return;
	}
	if (index->leaving && entry - index->leaving->first < index->leaving->slots)
		return;
	e->is_free = 1;
	e->link[NEXT] = index->free_head;
	e->link[PREV] = SCOUT__NO_ENTRY;
	if (index->free_head != SCOUT__NO_ENTRY)
		index->entries[index->free_head].link[PREV] = entry;
	index->free_head = entry;
	index->n_free++;
}

void
scout__slot_unlist(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__entry *e = &index->entries[entry];
	const uint32_t *link = e->link;

	if (link[PREV] == SCOUT__NO_ENTRY)
		index->free_head = link[NEXT];
	else
		index->entries[link[PREV]].link[NEXT] = link[NEXT];
	if (link[NEXT] != SCOUT__NO_ENTRY)
		index->entries[link[NEXT]].link[PREV] = link[PREV];
	e->is_free = 0;
	index->n_free--;
}

/* No bare entry more goes into @extent, which is being grown; NULL: there is none. */
static bool
is_filled(const struct scout__extent *extent)
{
	return !extent || extent->fresh == extent->slots || extent->fresh == MAX_BARE;
}

static bool
has_fresh(const struct scout__chunk_index *index, const struct scout__extent *extent)
{
	return extent->fresh < extent->slots && extent != index->leaving;
}

/*
 * The next slot that was never used: there is one. One extent after the other, the oldest first: what is stored
 * together lies together, and is old together when an extent has to go.
 */
static uint32_t
fresh_take(struct scout__chunk_index *index)
{
	struct scout__extent *extent = index->fresh_from;
	uint32_t entry;

	if (!extent || !has_fresh(index, extent)) {
		uint32_t age = 0;

		while (!has_fresh(index, index->by_age[age]))
			age++;
		extent = index->by_age[age];
		index->fresh_from = extent;
	}
	entry = extent->first + extent->fresh++;
	index->n_fresh--;
	index->n_free--;
	if (entry >= index->next_fresh)
		index->next_fresh = entry + 1;
	return entry;
}

uint32_t
scout__slot_take(struct scout__chunk_index *index)
{
	uint32_t entry;

	if (index->n_fresh > 0) {
		entry = fresh_take(index);
	} else {
		entry = index->free_head;
		scout__slot_unlist(index, entry);
	}
	if (index->n_free < index->last_slots / 4) {
		scout__index_ask(index);
		(void)scout__rebalance_ask(index);
	}
	return entry;
}

bool
scout__slot_is_coming(struct scout__chunk_index *index)
{
	const struct scout__pool *pool = &index->l1->pool;

	/* What is tried again after it failed may fail again: what can be evicted need not wait for it. */
	if (index->n_free > 0 || index->grown_out)
		return false;
	if (is_filled(index->filling) && index->growing < MAX_AHEAD && pool->n_growing < POOL_MAX_AHEAD &&
	    index->l1->n_wanting == 0)
		ask(index);
	return !index->grown_out && !is_filled(index->filling);
}

uint32_t
scout__slot_take_coming(struct scout__chunk_index *index)
{
	struct scout__extent *extent = index->filling;
	uint32_t entry = extent->first + extent->fresh++;

	if (entry >= index->next_fresh)
		index->next_fresh = entry + 1;
	return entry;
}

/* ---- check ---- */

static SCOUT_ON_LOOP void
check_free_list(const struct scout__chunk_index *index)
{
	uint32_t n = index->n_fresh;
	uint32_t prev = SCOUT__NO_ENTRY;

	for (uint32_t at = index->free_head; at != SCOUT__NO_ENTRY; at = index->entries[at].link[NEXT]) {
		const struct scout__extent *extent = scout__index_extent_from(index, at);

		SCOUT_ASSERT(extent && at - extent->first < extent->fresh);
		SCOUT_ASSERT(index->entries[at].is_free && !index->entries[at].in_use);
		SCOUT_ASSERT(index->entries[at].link[PREV] == prev);
		SCOUT_ASSERT(n < index->n_free);
		prev = at;
		n++;
	}
	SCOUT_ASSERT(n == index->n_free);
}

void
scout__extents_check(const struct scout__chunk_index *index)
{
	uint64_t slots = 0;
	uint64_t fresh = 0;
	uint64_t end = 0;

	for (uint32_t i = 0; i < index->n_extents; i++) {
		const struct scout__extent *extent = index->extents[i];

		SCOUT_ASSERT(index->extent_first[i] == extent->first && extent->first >= end);
		SCOUT_ASSERT(extent->fresh <= extent->slots && extent->owner == index);
		SCOUT_ASSERT(i == 0 || index->by_age[i - 1]->segments[0].id < index->by_age[i]->segments[0].id);
		end = (uint64_t)extent->first + extent->slots;
		slots += extent->slots;
		fresh += extent == index->leaving ? 0 : extent->slots - extent->fresh;
	}
	SCOUT_ASSERT(end <= index->max_entries && index->next_fresh <= index->max_entries);
	SCOUT_ASSERT(slots == index->n_slots && fresh == index->n_fresh);
	SCOUT_ASSERT(index->n_stranded <= index->n_bare && (index->growing > 0) == (index->filling != NULL));
	SCOUT_ASSERT(index->l1->pool.used_bytes <= index->l1->pool.l1_bytes);
	check_free_list(index);
}
