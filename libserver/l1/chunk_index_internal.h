/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "chunk_index.h"

/*
 * Between the files of the chunk index. Each calls those behind it only: chunk_index_check.c, chunk_index_l2.c,
 * chunk_index_use.c, chunk_index.c, rebalance.c, chunk_index_pins.c, chunk_index_entry.c, chunk_index_growth.c,
 * rebalance_rule.c, chunk_index_order.c, chunk_index_unneeded.c, chunk_index_extents.c, chunk_index_slots.c,
 * chunk_index_table.c, chunk_index_arrays.c, shares.c.
 */

/* ---- chunk_index.c ---- */

/*
 * See that there is a free slot for a chunk of @space: grow, else take an extent of another chunk index, else evict what
 * is not @user's (NULL: no user's) and what no guarantee protects. 0, or why there is none.
 */
SCOUT_ON_LOOP enum scout__reserve scout__index_make_room(struct scout__chunk_index *index, uint32_t space,
							 struct scout__user *user);

/* ---- rebalance.c ---- */

/* @index ends: nothing is taken from it or for it any more, and it leaves the list of chunk indexes. */
SCOUT_ON_LOOP void scout__rebalance_leave(struct scout__chunk_index *index);

/* ---- chunk_index_pins.c ---- */

/* Something pins @entry from now on: out of the order. Before the count rises. */
SCOUT_ON_LOOP void scout__entry_pin(struct scout__chunk_index *index, uint32_t entry);
/* A count fell. When both are 0: into the order, or away when nothing in it is readable. */
SCOUT_ON_LOOP void scout__entry_unpin(struct scout__chunk_index *index, uint32_t entry);
/* One hold more, one less: counts the entry's bytes once. */
SCOUT_ON_LOOP void scout__entry_held(struct scout__chunk_index *index, uint32_t entry);
SCOUT_ON_LOOP void scout__entry_unheld(struct scout__chunk_index *index, uint32_t entry);

/* ---- chunk_index_entry.c ---- */

/* A new entry for a key that has none: there is a free slot. */
SCOUT_ON_LOOP uint32_t scout__entry_create(struct scout__chunk_index *index, uint32_t space, const uint8_t *hash);
/* Out of order, table and use; its slot goes to the free list. Nothing pins it. */
SCOUT_ON_LOOP void scout__entry_discard(struct scout__chunk_index *index, uint32_t entry);

/* ---- chunk_index_order.c ---- */

/* 0 or SCOUT_ERR_NOMEM. scout__order_close() in both cases. */
SCOUT_ON_LOOP int scout__order_open(struct scout__chunk_index *index);
SCOUT_ON_ANY void scout__order_close(struct scout__chunk_index *index);
/* The arrays have room for @n entries, and may have moved. 0 or SCOUT_ERR_NOMEM: then not for more than before. */
SCOUT_ON_LOOP int scout__order_reserve(struct scout__chunk_index *index, uint32_t n);
/* Into its order, and out of it. */
SCOUT_ON_LOOP void scout__order_insert(struct scout__chunk_index *index, uint32_t entry);
SCOUT_ON_LOOP void scout__order_remove(struct scout__chunk_index *index, uint32_t entry, enum scout__remove why);
/* The next to go, whatever its tenant is guaranteed, or SCOUT__NO_ENTRY. */
SCOUT_ON_LOOP uint32_t scout__order_victim(struct scout__chunk_index *index);
/*
 * The same for a chunk of @asker's tenant: what was set aside and is protected no more goes before what the policy
 * names. The caller sees whether that is protected.
 */
SCOUT_ON_LOOP uint32_t scout__order_victim_for(struct scout__chunk_index *index, uint32_t asker);
/* The guarantee of its tenant protects what the policy has named: the policy names another one from now on. */
SCOUT_ON_LOOP void scout__order_set_aside(struct scout__chunk_index *index, uint32_t entry);
/* It is touched, or leaves: the policy has it again, as the newest. */
SCOUT_ON_LOOP void scout__order_take_back(struct scout__chunk_index *index, uint32_t entry);
/* Its tenant's guarantee keeps an unpinned chunk from being evicted for one of @asker's. */
SCOUT_ON_LOOP bool scout__index_is_protected(const struct scout__chunk_index *index, uint32_t entry, uint32_t asker);
/* @entry is about to be evicted, whatever for. */
SCOUT_ON_LOOP void scout__order_count_eviction(struct scout__chunk_index *index, uint32_t entry);
/* Something was evicted: what the next eviction needs is loaded. */
SCOUT_ON_LOOP void scout__order_load_ahead(struct scout__chunk_index *index);

/* ---- chunk_index_unneeded.c ---- */

SCOUT_ON_LOOP void scout__unneeded_open(struct scout__chunk_index *index);
/* The arrays have room for @n entries, and may have moved. 0 or SCOUT_ERR_NOMEM: then not for more than before. */
SCOUT_ON_LOOP int scout__unneeded_reserve(struct scout__chunk_index *index, uint32_t n);
SCOUT_ON_ANY void scout__unneeded_close(struct scout__chunk_index *index);
/* An unneeded object leaves its queue, and counts as needed. If it is gone (@why), the policy hears of it: it remembers those. */
SCOUT_ON_LOOP void scout__unneeded_leave(struct scout__chunk_index *index, uint32_t entry, enum scout__remove why);
/* The policy has just got an unneeded object: it is taken from it. */
SCOUT_ON_LOOP void scout__unneeded_put(struct scout__chunk_index *index, uint32_t entry);
/* It is touched: the policy has it again, as the newest. */
SCOUT_ON_LOOP void scout__unneeded_take_back(struct scout__chunk_index *index, uint32_t entry);
/* The unneeded object to go next: there is one. */
SCOUT_ON_LOOP uint32_t scout__unneeded_victim(const struct scout__chunk_index *index);
/* An entry is about to be evicted to make room. */
SCOUT_ON_LOOP void scout__unneeded_evicted(struct scout__chunk_index *index);
/* An extent was taken from @index: what it could do without is to be seen anew. */
SCOUT_ON_LOOP void scout__unneeded_restart(struct scout__chunk_index *index);
/* For as many evictions as there are slots, unneeded objects would have filled an extent. */
SCOUT_ON_LOOP bool scout__unneeded_fill_extent(const struct scout__chunk_index *index);

/* ---- chunk_index_describe.c ---- */

/* Free the description of @entry, which has one. */
SCOUT_ON_LOOP void scout__index_undescribe(struct scout__chunk_index *index, uint32_t entry);
SCOUT_ON_ANY void scout__descriptions_close(struct scout__chunk_index *index);

/* ---- chunk_index_growth.c ---- */

/* Ask for an extent, unless one is coming or there is none to be had. */
SCOUT_ON_LOOP void scout__index_ask(struct scout__chunk_index *index);
/* A slot was taken: ask for the next extent when few are left, also of another chunk index. */
SCOUT_ON_LOOP void scout__index_ask_early(struct scout__chunk_index *index);
/*
 * No slot is free: whether an extent that is being grown has one for a bare entry. Asks for another extent if none has.
 */
SCOUT_ON_LOOP bool scout__slot_is_coming(struct scout__chunk_index *index);
/* That slot. */
SCOUT_ON_LOOP uint32_t scout__slot_take_coming(struct scout__chunk_index *index);

/* ---- chunk_index_extents.c ---- */

/* Make room for one more in the lists of extents. False: no memory. */
SCOUT_ON_LOOP bool scout__extents_fit(struct scout__chunk_index *index);
/* Into the lists, where there is room; its slots are the index's from now on. */
SCOUT_ON_LOOP void scout__index_extent_insert(struct scout__chunk_index *index, struct scout__extent *extent);
/* The extent that @entry lies in, or else the first one behind it; NULL: there is none. */
SCOUT_ON_LOOP struct scout__extent *scout__index_extent_from(const struct scout__chunk_index *index, uint32_t entry);
/* No slot of @extent is granted any more, until it is removed or stays. One at a time. */
SCOUT_ON_LOOP void scout__index_extent_leaves(struct scout__chunk_index *index, struct scout__extent *extent);
SCOUT_ON_LOOP void scout__index_extent_stays(struct scout__chunk_index *index);
/* Tell the namespace, if there is one, how many bytes the slots have. */
SCOUT_ON_LOOP void scout__extents_account(struct scout__chunk_index *index);
SCOUT_ON_LOOP void scout__extents_close(struct scout__chunk_index *index);
/* Out of the lists: no entry and no free slot is left in it. Its slot numbers are a hole. */
SCOUT_ON_LOOP void scout__index_extent_remove(struct scout__chunk_index *index, struct scout__extent *extent);
/* Make everything that readers know of the shard's bytes outdated. */
SCOUT_ON_LOOP void scout__shard_bump(struct scout__chunk_index *index, uint32_t entry, uint32_t rank);
/* Whether the generation word of the shard's slot holds @value. */
SCOUT_ON_LOOP bool scout__shard_word_is(const struct scout__chunk_index *index, uint32_t entry, uint32_t rank,
					uint64_t value);

/* ---- chunk_index_slots.c ---- */

/* The links of a slot on the free list. */
enum {
	SCOUT__FREE_NEXT = 0,
	SCOUT__FREE_PREV = 1
};
SCOUT_ON_LOOP void scout__slots_open(struct scout__chunk_index *index);
/* Those of @extent that were never used may be taken, or may not. */
SCOUT_ON_LOOP void scout__slots_put_fresh(struct scout__chunk_index *index, const struct scout__extent *extent);
SCOUT_ON_LOOP void scout__slots_take_fresh(struct scout__chunk_index *index, const struct scout__extent *extent);
/* @extent is out of the lists. */
SCOUT_ON_LOOP void scout__slots_forget(struct scout__chunk_index *index, const struct scout__extent *extent);
/* @entry is a bare one from now on. */
SCOUT_ON_LOOP void scout__slot_bare(struct scout__chunk_index *index, uint32_t entry);
/* The slots of @extent have memory, also those of its bare entries. */
SCOUT_ON_LOOP void scout__slots_dress(struct scout__chunk_index *index, const struct scout__extent *extent);
/* No memory comes for the bare @entry, which is in use. */
SCOUT_ON_LOOP void scout__slot_strand(struct scout__chunk_index *index, uint32_t entry);
/* Put a slot on the free list, unless its extent is on its way out. */
SCOUT_ON_LOOP void scout__slot_put(struct scout__chunk_index *index, uint32_t entry);
/* Take one off the list that is on it. */
SCOUT_ON_LOOP void scout__slot_unlist(struct scout__chunk_index *index, uint32_t entry);
/* A free slot: there is one. */
SCOUT_ON_LOOP uint32_t scout__slot_take(struct scout__chunk_index *index);

/* ---- rebalance_rule.c ---- */

/* Slots of an extent of @index, if the pool has room for them. */
SCOUT_ON_LOOP uint64_t scout__index_extent_slots(const struct scout__chunk_index *index);

/* @index is made: it takes part from now on. */
SCOUT_ON_LOOP void scout__rebalance_join(struct scout__chunk_index *index);
/* And from now on no more. */
SCOUT_ON_LOOP void scout__rebalance_unlist(struct scout__chunk_index *index);
/* Whether @index may grow: not when another one waits and this one has its share. */
SCOUT_ON_LOOP bool scout__rebalance_allows(const struct scout__chunk_index *index);
/* The pool is used up, @index needs room: let it wait for an extent of another one. False: there is none for it. */
SCOUT_ON_LOOP bool scout__rebalance_ask(struct scout__chunk_index *index);
/* @index got an extent, or gets none: it does not wait any more. */
SCOUT_ON_LOOP void scout__rebalance_settled(struct scout__chunk_index *index);
/* The index from which @taker takes; NULL: there is none, or none now (*ret_later). */
SCOUT_ON_LOOP struct scout__chunk_index *scout__rebalance_find_giver(struct scout__chunk_index *taker, bool *ret_later);
/* Of the indexes that may have one more extent without another one's having less: that with memory for the fewest tokens. */
SCOUT_ON_LOOP struct scout__chunk_index *scout__rebalance_poorest(struct scout__l1 *l1);
/* The pool has bytes for a chunk of @index that no extent uses. */
SCOUT_ON_LOOP bool scout__rebalance_pool_has_room(const struct scout__chunk_index *index);

/* ---- chunk_index_table.c ---- */

/* 0 or SCOUT_ERR_NOMEM. scout__table_close() in both cases. */
SCOUT_ON_LOOP int scout__table_open(struct scout__chunk_index *index);
SCOUT_ON_ANY void scout__table_close(struct scout__chunk_index *index);
/* The key of entry @entry, which is not in the table yet, and which has room. */
SCOUT_ON_LOOP void scout__table_insert(struct scout__chunk_index *index, uint32_t entry);
SCOUT_ON_LOOP void scout__table_remove(struct scout__chunk_index *index, uint32_t entry);
/* Every cell leads to its entry, and no key is behind a hole. Returns the number of used cells. */
SCOUT_ON_LOOP uint64_t scout__table_check(const struct scout__chunk_index *index);

/* ---- chunk_index_arrays.c ---- */

/* Room for @n entries, at most max_entries: the arrays may move. False: no memory, then there is room for as many as before. */
SCOUT_ON_LOOP bool scout__arrays_reserve(struct scout__chunk_index *index, uint64_t n);
SCOUT_ON_ANY void scout__arrays_close(struct scout__chunk_index *index);

/* ---- in place ---- */

/* Something uses its slot, or may at any moment. */
static inline bool
scout__entry_is_pinned(const struct scout__entry *e)
{
	return e->promises > 0 || e->holds > 0;
}

static inline uint64_t
scout__shard_at(const struct scout__chunk_index *index, uint32_t entry, uint32_t rank)
{
	return (uint64_t)entry * index->n_ranks + rank;
}

/* A STORE may pin one more chunk of @index: not in the reserve, or its worker holds little. */
static inline bool
scout__l1_may_store(const struct scout__chunk_index *index)
{
	const struct scout__l1 *l1 = index->l1;

	return l1->storer_holds_little || l1->pool.l1_bytes / SCOUT__PIN_RESERVE_FROM < index->chunk_bytes ||
	       l1->pinned_bytes + index->chunk_bytes <= l1->pool.l1_bytes - l1->store_reserve;
}

/* A promise may pin one: not in the reserve, or, within the asker's share, in its first half. */
static inline bool
scout__l1_may_pin_promise(const struct scout__chunk_index *index)
{
	const struct scout__l1 *l1 = index->l1;
	uint64_t all = l1->pinned_bytes + index->chunk_bytes;

	return !l1->pin_reserve || l1->pool.l1_bytes / SCOUT__PIN_RESERVE_FROM < index->chunk_bytes ||
	       all <= l1->pool.l1_bytes - l1->pin_reserve ||
	       (l1->promised_share >= index->chunk_bytes && all <= l1->pool.l1_bytes - l1->pin_reserve / 2);
}

/* max_promised allows one more chunk of @index, or the asker's share of the reserve does. */
static inline bool
scout__l1_may_promise(const struct scout__chunk_index *index)
{
	const struct scout__l1 *l1 = index->l1;

	uint64_t most = l1->max_promised + (l1->promised_share >= index->chunk_bytes ? l1->promised_reserve : 0);

	return l1->promised_bytes <= most && most - l1->promised_bytes >= index->chunk_bytes;
}

/* @entry has become a hit, or is about to be none: tell the owner, if anybody reads the feed of its namespace. */
static inline SCOUT_ON_LOOP void
scout__index_tell(struct scout__chunk_index *index, uint32_t entry, bool is_hit)
{
	if (index->l1_ns && index->l1_ns->watched)
		index->l1->hit_changed(index, entry, is_hit);
}
