/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "bank_private.h"
#include "clock.h"

/*
 * DESIGN
 *
 * Purpose: which slot numbers have memory behind them, which of those are free, and when to ask for more.
 *
 * An extent takes a run of slot numbers. One that is given back (share.c) leaves a hole, and a later extent is made no
 * larger than the hole that it goes into; so max_entries numbers are always enough, however often extents come and go.
 * Extents are sorted twice: by their first slot, to find the one that an entry lies in, and by age, which is the order
 * of their segment ids, to tell workers of new ones.
 *
 * Free slots: those of an extent from `fresh` on were never used and are on no list, so an extent of a million slots
 * costs nothing when it comes. The others are on a list, last in, first out (what was just evicted is still in the
 * cache), linked both ways so that a slot of an extent that leaves can be taken out of its middle.
 *
 * What an extent's slot number held before says nothing about its new memory: an entry's gen and a shard's generation go
 * on counting, so old handles stay old.
 *
 * Threads: loop.
 */

/* The links of a slot on the free list. */
enum {
	NEXT = 0,
	PREV = 1
};

/* No extent for now: the pool is used up (@regrow_us 0), or getting one failed and is tried again at @regrow_us. */
static void
note_grown_out(struct scout__bank *bank, uint64_t regrow_us)
{
	bank->grown_out = true;
	bank->grown_returns = bank->l1->pool.returns;
	bank->regrow_us = regrow_us;
}

/*
 * Where the next extent goes: the first run of numbers without memory that takes @want slots, else the longest one.
 * Returns its length, at most @want; 0: there is none.
 */
static uint32_t
find_hole(const struct scout__bank *bank, uint32_t want, uint32_t *ret_first)
{
	uint32_t longest = 0;
	uint32_t at = 0;

	for (uint32_t i = 0; i <= bank->n_extents && longest < want; i++) {
		uint32_t end = i < bank->n_extents ? bank->extent_first[i] : bank->max_entries;

		if (end - at > longest) {
			longest = end - at;
			*ret_first = at;
		}
		if (i < bank->n_extents)
			at = end + bank->extents[i]->slots;
	}
	return longest < want ? longest : want;
}

void
scout__bank_ask(struct scout__bank *bank)
{
	struct scout__pool *pool = &bank->l1->pool;
	bool returned = bank->grown_returns != pool->returns;
	uint32_t room;
	int asked;

	if (bank->growing)
		return;
	if (bank->n_slots == bank->max_entries) {
		bank->grown_out = true;
		return;
	}
	if (bank->grown_out && bank->regrow_us && !returned && scout__now_us() < bank->regrow_us)
		return;
	/* What comes back from another bank is for the one that waits for it. */
	if (!scout__share_allows(bank)) {
		bank->grown_out = true;
		bank->regrow_us = 0;
		return;
	}
	room = find_hole(bank, (uint32_t)scout__pool_extent_slots(pool, bank->chunk_bytes), &bank->grow_first);
	asked = scout__pool_want(pool, bank, bank->strides, bank->nodes, bank->n_ranks, room);
	if (asked > 0) {
		bank->growing = true;
		/* What is merely tried again may fail again: grown_out stays, so that stores need not wait for it. */
		if (returned || bank->regrow_us == 0)
			bank->grown_out = false;
	} else if (asked == 0) {
		note_grown_out(bank, 0);
	} else {
		note_grown_out(bank, scout__now_us() + bank->l1->regrow_us);
	}
}

/* Room for one more in the lists of extents. */
static bool
extents_fit(struct scout__bank *bank)
{
	uint32_t cap = bank->cap_extents ? bank->cap_extents * 2 : 16;
	struct scout__extent **extents;
	uint32_t *first;

	if (bank->n_extents < bank->cap_extents)
		return true;
	extents = realloc(bank->extents, cap * sizeof(struct scout__extent *));
	if (!extents)
		return false;
	bank->extents = extents;
	extents = realloc(bank->by_age, cap * sizeof(struct scout__extent *));
	if (!extents)
		return false;
	bank->by_age = extents;
	first = realloc(bank->extent_first, cap * sizeof(*first));
	if (!first)
		return false;
	bank->extent_first = first;
	bank->cap_extents = cap;
	return true;
}

/* The first place in the list of extents whose slots begin at @first or behind it. */
static uint32_t
place_of(const struct scout__bank *bank, uint32_t first)
{
	uint32_t low = 0;
	uint32_t high = bank->n_extents;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (bank->extent_first[middle] < first)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The extent that @entry lies in: it has memory. */
static struct scout__extent *
extent_of(const struct scout__bank *bank, uint32_t entry)
{
	uint32_t at = place_of(bank, entry);

	if (at == bank->n_extents || bank->extent_first[at] != entry)
		at--;
	return bank->extents[at];
}

struct scout__extent *
scout__bank_extent_from(const struct scout__bank *bank, uint32_t entry)
{
	uint32_t at = place_of(bank, entry);

	if (at > 0 && entry - bank->extent_first[at - 1] < bank->extents[at - 1]->slots)
		at--;
	return at < bank->n_extents ? bank->extents[at] : NULL;
}

static void
extent_insert(struct scout__bank *bank, struct scout__extent *extent)
{
	uint32_t at = place_of(bank, extent->first);
	uint32_t behind = bank->n_extents - at;

	memmove(bank->extents + at + 1, bank->extents + at, behind * sizeof(struct scout__extent *));
	memmove(bank->extent_first + at + 1, bank->extent_first + at, behind * sizeof(*bank->extent_first));
	bank->extents[at] = extent;
	bank->extent_first[at] = extent->first;
	bank->by_age[bank->n_extents++] = extent;
}

void
scout__bank_extent_remove(struct scout__bank *bank, struct scout__extent *extent)
{
	uint32_t at = place_of(bank, extent->first);
	uint32_t age = 0;
	uint32_t behind;

	SCOUT_ASSERT(at < bank->n_extents && bank->extents[at] == extent);
	while (bank->by_age[age] != extent)
		age++;
	bank->n_extents--;
	behind = bank->n_extents - at;
	memmove(bank->extents + at, bank->extents + at + 1, behind * sizeof(struct scout__extent *));
	memmove(bank->extent_first + at, bank->extent_first + at + 1, behind * sizeof(*bank->extent_first));
	behind = bank->n_extents - age;
	memmove(bank->by_age + age, bank->by_age + age + 1, behind * sizeof(struct scout__extent *));
	bank->n_slots -= extent->slots;
	if (bank->fresh_from == extent)
		bank->fresh_from = NULL;
	extent->owner = NULL;
}

struct scout__extent *
scout__bank_surrender(struct scout__bank *bank)
{
	struct scout__extent *extent;

	if (bank->n_extents == 0)
		return NULL;
	extent = bank->extents[bank->n_extents - 1];
	scout__bank_extent_remove(bank, extent);
	extent->taken_from = extent->taken_for = 0;
	return extent;
}

bool
scout__bank_grow(struct scout__bank *bank, struct scout__extent *extent)
{
	SCOUT_ASSERT(bank->growing && extent->owner == bank);
	bank->growing = false;
	if (extent->error || !extents_fit(bank)) {
		scout__extent_free(&bank->l1->pool, extent);
		note_grown_out(bank, scout__now_us() + bank->l1->regrow_us);
		scout__share_settled(bank);
		return false;
	}
	bank->grown_out = false;
	scout__share_settled(bank);
	extent->first = bank->grow_first;
	extent->fresh = 0;
	extent_insert(bank, extent);
	bank->n_slots += extent->slots;
	bank->n_fresh += extent->slots;
	bank->n_free += extent->slots;
	bank->last_slots = extent->slots;
	return true;
}

struct scout__place
scout__bank_place(const struct scout__bank *bank, uint32_t entry, uint32_t rank)
{
	const struct scout__extent *extent = extent_of(bank, entry);
	const struct scout__segment *segment = &extent->segments[rank];

	return (struct scout__place){
		.segment = segment->id,
		.offset = segment->data_offset + (entry - extent->first) * segment->stride,
		.generation = bank->shard_gen[scout__shard_at(bank, entry, rank)],
	};
}

uint8_t *
scout__bank_data(const struct scout__bank *bank, uint32_t entry, uint32_t rank)
{
	const struct scout__extent *extent = extent_of(bank, entry);
	const struct scout__segment *segment = &extent->segments[rank];

	SCOUT_ASSERT(segment->slots);
	return segment->slots + (entry - extent->first) * segment->stride;
}

/* Where the generation word of a shard lies. */
static _Atomic uint64_t *
shard_word(const struct scout__bank *bank, uint32_t entry, uint32_t rank)
{
	const struct scout__extent *extent = extent_of(bank, entry);

	return &extent->segments[rank].words[entry - extent->first];
}

void
scout__shard_bump(struct scout__bank *bank, uint32_t entry, uint32_t rank)
{
	uint32_t *gen = &bank->shard_gen[scout__shard_at(bank, entry, rank)];

	if (++*gen == 0)
		*gen = 1;
	/*
	 * Whoever is told afterwards that it may write, is told by a message: that orders this before its first
	 * byte.
	 */
	atomic_store_explicit(shard_word(bank, entry, rank), *gen, memory_order_release);
}

bool
scout__shard_word_is(const struct scout__bank *bank, uint32_t entry, uint32_t rank, uint64_t value)
{
	return atomic_load_explicit(shard_word(bank, entry, rank), memory_order_relaxed) == value;
}

/* ---- free slots ---- */

void
scout__slot_put(struct scout__bank *bank, uint32_t entry)
{
	struct scout__entry *e = &bank->entries[entry];

	if (bank->leaving && entry - bank->leaving->first < bank->leaving->slots)
		return;
	e->is_free = 1;
	e->link[NEXT] = bank->free_head;
	e->link[PREV] = SCOUT__NO_ENTRY;
	if (bank->free_head != SCOUT__NO_ENTRY)
		bank->entries[bank->free_head].link[PREV] = entry;
	bank->free_head = entry;
	bank->n_free++;
}

void
scout__slot_unlist(struct scout__bank *bank, uint32_t entry)
{
	struct scout__entry *e = &bank->entries[entry];
	const uint32_t *link = e->link;

	if (link[PREV] == SCOUT__NO_ENTRY)
		bank->free_head = link[NEXT];
	else
		bank->entries[link[PREV]].link[NEXT] = link[NEXT];
	if (link[NEXT] != SCOUT__NO_ENTRY)
		bank->entries[link[NEXT]].link[PREV] = link[PREV];
	e->is_free = 0;
	bank->n_free--;
}

static bool
has_fresh(const struct scout__bank *bank, const struct scout__extent *extent)
{
	return extent->fresh < extent->slots && extent != bank->leaving;
}

/*
 * The next slot that was never used: there is one. One extent after the other, the oldest first: what is stored together
 * lies together, and is old together when an extent has to go.
 */
static uint32_t
fresh_take(struct scout__bank *bank)
{
	struct scout__extent *extent = bank->fresh_from;
	uint32_t entry;

	if (!extent || !has_fresh(bank, extent)) {
		uint32_t age = 0;

		while (!has_fresh(bank, bank->by_age[age]))
			age++;
		extent = bank->by_age[age];
		bank->fresh_from = extent;
	}
	entry = extent->first + extent->fresh++;
	bank->n_fresh--;
	bank->n_free--;
	if (entry >= bank->next_fresh)
		bank->next_fresh = entry + 1;
	return entry;
}

uint32_t
scout__slot_take(struct scout__bank *bank)
{
	uint32_t entry;

	if (bank->n_fresh > 0) {
		entry = fresh_take(bank);
	} else {
		entry = bank->free_head;
		scout__slot_unlist(bank, entry);
	}
	if (bank->n_free < bank->last_slots / 4) {
		scout__bank_ask(bank);
		(void)scout__share_ask(bank);
	}
	return entry;
}

/* ---- check ---- */

static SCOUT_ON_LOOP void
check_free_list(const struct scout__bank *bank)
{
	uint32_t n = bank->n_fresh;
	uint32_t prev = SCOUT__NO_ENTRY;

	for (uint32_t at = bank->free_head; at != SCOUT__NO_ENTRY; at = bank->entries[at].link[NEXT]) {
		const struct scout__extent *extent = scout__bank_extent_from(bank, at);

		SCOUT_ASSERT(extent && at - extent->first < extent->fresh);
		SCOUT_ASSERT(bank->entries[at].is_free && !bank->entries[at].in_use);
		SCOUT_ASSERT(bank->entries[at].link[PREV] == prev);
		SCOUT_ASSERT(n < bank->n_free);
		prev = at;
		n++;
	}
	SCOUT_ASSERT(n == bank->n_free);
}

void
scout__extents_check(const struct scout__bank *bank)
{
	uint64_t slots = 0;
	uint64_t fresh = 0;
	uint64_t end = 0;

	for (uint32_t i = 0; i < bank->n_extents; i++) {
		const struct scout__extent *extent = bank->extents[i];

		SCOUT_ASSERT(bank->extent_first[i] == extent->first && extent->first >= end);
		SCOUT_ASSERT(extent->fresh <= extent->slots && extent->owner == bank);
		SCOUT_ASSERT(i == 0 || bank->by_age[i - 1]->segments[0].id < bank->by_age[i]->segments[0].id);
		end = (uint64_t)extent->first + extent->slots;
		slots += extent->slots;
		fresh += extent == bank->leaving ? 0 : extent->slots - extent->fresh;
	}
	SCOUT_ASSERT(end <= bank->max_entries && bank->next_fresh <= bank->max_entries);
	SCOUT_ASSERT(slots == bank->n_slots && fresh == bank->n_fresh);
	SCOUT_ASSERT(bank->l1->pool.used_bytes <= bank->l1->pool.l1_bytes);
	check_free_list(bank);
}
