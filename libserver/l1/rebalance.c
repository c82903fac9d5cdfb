/* SPDX-License-Identifier: Apache-2.0 */
#include "chunk_index_internal.h"
#include "clock.h"

/*
 * DESIGN
 *
 * Purpose: a namespace that filled the pool does not starve another one: extents move between chunk indexes.
 * Which one may take from which other one is in rebalance_rule.c.
 *
 * How. scout__rebalance_step() does it in slices: LOOK at the extents of the giver, from the one with its next victim on, for
 * FOUND of them without a pinned entry, and choose the one with the fewest entries in use; DRAIN it: drop its entries,
 * take its slots off the free list. If an entry was pinned meanwhile, UNDO: the slots are given back and another chunk
 * index is looked at. A drained extent is out of its chunk index; the server sees that the workers unmap it, then calls
 * scout__rebalance_freed(). Until then its bytes are in use: l1_bytes holds at every moment.
 *
 * A worker that does not answer delays the return of what it has mapped. Nothing more is taken from that giver
 * meanwhile, and after LATE_US another one is asked instead.
 *
 * Rejected: slots of a common size (a chunk of two megabytes and one of three would waste each other's memory), moving
 * entries to empty an extent (workers have their addresses).
 *
 * Threads: loop.
 */

#define FOUND 4u
#define LATE_US UINT64_C(1000000)
#define AGAIN_US UINT64_C(100000) /* at the soonest, after nothing was to be had */

enum {
	PHASE_NONE = 0,
	PHASE_LOOK,
	PHASE_DRAIN,
	PHASE_UNDO
};

static struct scout__chunk_index *
index_of(const struct scout__l1 *l1, uint64_t serial)
{
	struct scout__chunk_index *index = l1->indexes;

	while (index && index->member.serial != serial)
		index = index->member.next;
	return index;
}

/* The extent that is being drained stays: its slots may be used again. */
static SCOUT_ON_LOOP void
begin_to_undo(struct scout__l1 *l1)
{
	struct scout__chunk_index *giver = l1->rebalance.giver;

	l1->rebalance.best = giver->extents.leaving;
	l1->rebalance.look_at = giver->extents.leaving->first;
	l1->rebalance.phase = PHASE_UNDO;
	scout__index_extent_stays(giver);
	giver->moves.looked = true;
}

void
scout__rebalance_leave(struct scout__chunk_index *index)
{
	struct scout__l1 *l1 = index->l1;

	scout__rebalance_settled(index);
	if (l1->rebalance.phase != PHASE_NONE && l1->rebalance.giver == index)
		l1->rebalance.phase = PHASE_NONE;
	if (l1->rebalance.phase == PHASE_DRAIN && l1->rebalance.taker == index)
		begin_to_undo(l1);
	if (l1->rebalance.taker == index)
		l1->rebalance.taker = NULL;
	scout__rebalance_unlist(index);
}

/* An extent of @giver that was never used: at most the newest is one, as it came ahead of its use. */
static struct scout__extent *
find_unused(const struct scout__chunk_index *giver)
{
	struct scout__extent *newest = giver->extents.by_age[giver->extents.n - 1];

	return newest->fresh == 0 ? newest : NULL;
}

static SCOUT_ON_LOOP void
begin_to_drain(struct scout__l1 *l1, struct scout__extent *extent)
{
	scout__index_extent_leaves(l1->rebalance.giver, extent);
	l1->rebalance.look_at = extent->first;
	l1->rebalance.phase = PHASE_DRAIN;
}

static SCOUT_ON_LOOP void
begin_to_look(struct scout__l1 *l1, struct scout__chunk_index *taker, struct scout__chunk_index *giver)
{
	struct scout__rebalance *r = &l1->rebalance;
	uint32_t victim = scout__order_victim(giver);
	struct scout__extent *unused = find_unused(giver);

	*r = (struct scout__rebalance){.phase = PHASE_LOOK, .taker = taker, .giver = giver};
	if (unused) {
		begin_to_drain(l1, unused);
		return;
	}
	r->look_from = victim == SCOUT__NO_ENTRY ? 0 : scout__index_extent_from(giver, victim)->first;
	r->look_at = r->look_from;
}

/* Up to @entries of @extent from look_at on. Returns how many were looked at. */
static SCOUT_ON_LOOP uint32_t
look_at_extent(struct scout__rebalance *r, const struct scout__extent *extent, uint32_t entries)
{
	const struct scout__chunk_index *index = r->giver;
	uint32_t end = extent->first + extent->fresh;
	uint32_t seen = 0;

	if (r->look_at < extent->first)
		r->look_at = extent->first;
	for (; r->look_at < end && seen < entries && !r->pinned; r->look_at++) {
		const struct scout__entry *e = &index->entries[r->look_at];

		r->in_use += e->in_use;
		r->pinned = e->in_use && (scout__entry_is_pinned(e) || e->saving);
		seen++;
	}
	if (r->look_at < end && !r->pinned)
		return seen;
	if (!r->pinned) {
		r->n_found++;
		if (!r->best || r->in_use < r->best_in_use) {
			r->best = scout__index_extent_from(index, extent->first);
			r->best_in_use = r->in_use;
		}
	}
	r->look_at = extent->first + extent->slots;
	r->in_use = 0;
	r->pinned = false;
	return seen + 1;
}

static SCOUT_ON_LOOP void
look(struct scout__l1 *l1, uint32_t entries)
{
	struct scout__rebalance *r = &l1->rebalance;
	uint32_t seen = 0;

	while (seen < entries && r->n_found < FOUND && !(r->best && r->best_in_use == 0)) {
		const struct scout__extent *extent = scout__index_extent_from(r->giver, r->look_at);

		if (!extent && !r->wrapped) {
			r->wrapped = true;
			r->look_at = 0;
			continue;
		}
		if (!extent || (r->wrapped && extent->first >= r->look_from))
			break;
		seen += look_at_extent(r, extent, entries - seen);
	}
	if (seen >= entries && r->n_found < FOUND && !(r->best && r->best_in_use == 0))
		return;
	if (r->best) {
		begin_to_drain(l1, r->best);
		return;
	}
	r->giver->moves.looked = true;
	r->phase = PHASE_NONE;
}

/* True: the extent is out of its index. */
static SCOUT_ON_LOOP bool
drain(struct scout__l1 *l1, uint32_t entries)
{
	struct scout__rebalance *r = &l1->rebalance;
	struct scout__chunk_index *giver = r->giver;
	struct scout__extent *extent = giver->extents.leaving;
	uint32_t end = extent->first + extent->fresh;

	for (; r->look_at < end && entries > 0; r->look_at++, entries--) {
		const struct scout__entry *e = &giver->entries[r->look_at];

		if (e->is_free) {
			scout__slot_unlist(giver, r->look_at);
		} else if (e->in_use && (scout__entry_is_pinned(e) || e->saving)) {
			begin_to_undo(l1);
			return false;
		} else if (e->in_use) {
			scout__order_count_eviction(giver, r->look_at);
			scout__entry_discard(giver, r->look_at);
		}
	}
	if (r->look_at < end)
		return false;
	scout__index_extent_remove(giver, extent);
	scout__unneeded_restart(giver);
	return true;
}

static SCOUT_ON_LOOP void
undo(struct scout__l1 *l1, uint32_t entries)
{
	struct scout__rebalance *r = &l1->rebalance;
	uint32_t end = r->best->first + r->best->fresh;

	for (; r->look_at < end && entries > 0; r->look_at++, entries--) {
		const struct scout__entry *e = &r->giver->entries[r->look_at];

		if (!e->in_use && !e->is_free)
			scout__slot_put(r->giver, r->look_at);
	}
	if (r->look_at >= end)
		r->phase = PHASE_NONE;
}

static void
note_taken(struct scout__l1 *l1, struct scout__extent *extent, uint64_t now_us)
{
	struct scout__rebalance *r = &l1->rebalance;

	extent->taken_from = r->giver->member.serial;
	extent->taken_for = r->taker->member.serial;
	r->giver->moves.n_going++;
	r->taker->moves.n_coming++;
	r->taker->moves.coming_us = now_us;
	r->phase = PHASE_NONE;
	l1->extents_withdrawn++;
}

/* Nothing is being taken: begin, if a chunk index waits and there is a giver. */
static SCOUT_ON_LOOP enum scout__rebalance_result
begin(struct scout__l1 *l1, uint64_t now_us, struct scout__chunk_index **ret_taker)
{
	struct scout__chunk_index *taker, *giver;
	bool later;

	for (taker = l1->indexes; taker; taker = taker->member.next) {
		if (!taker->member.wants_extent || taker->growth.n)
			continue;
		if (taker->moves.n_coming > 0 && now_us - taker->moves.coming_us < LATE_US)
			continue;
		if (scout__rebalance_pool_has_room(taker) && !taker->growth.again_us) {
			scout__index_ask(taker);
			continue;
		}
		if (taker->moves.round_us == 0)
			taker->moves.round_us = now_us;
		giver = scout__rebalance_find_giver(taker, &later);
		if (giver) {
			begin_to_look(l1, taker, giver);
			return SCOUT__REBALANCE_MORE;
		}
		for (struct scout__chunk_index *index = l1->indexes; index; index = index->member.next)
			index->moves.looked = false;
		if (later || taker->moves.n_coming > 0) {
			taker->moves.round_us = 0;
			continue;
		}
		/* Looking at everything again takes its time: no more than a tenth of the loop's. */
		taker->moves.ask_again_us = now_us + AGAIN_US + 10 * (now_us - taker->moves.round_us);
		taker->moves.round_us = 0;
		scout__rebalance_settled(taker);
		l1->extents_pinned++;
		*ret_taker = taker;
		return SCOUT__REBALANCE_NOTHING;
	}
	return SCOUT__REBALANCE_IDLE;
}

enum scout__rebalance_result
scout__rebalance_step(struct scout__l1 *l1, uint32_t entries, uint64_t now_us, struct scout__extent **ret_extent,
		      struct scout__chunk_index **ret_index)
{
	struct scout__rebalance *r = &l1->rebalance;

	switch (r->phase) {
	case PHASE_LOOK:
		/* It may have got room elsewhere. */
		if (!r->taker || !r->taker->member.wants_extent)
			r->phase = PHASE_NONE;
		else
			look(l1, entries);
		return SCOUT__REBALANCE_MORE;
	case PHASE_DRAIN: {
		struct scout__extent *extent = r->giver->extents.leaving;

		if (!drain(l1, entries / 2))
			return SCOUT__REBALANCE_MORE;
		note_taken(l1, extent, now_us);
		*ret_extent = extent;
		*ret_index = r->giver;
		return SCOUT__REBALANCE_TAKEN;
	}
	case PHASE_UNDO:
		undo(l1, entries);
		return SCOUT__REBALANCE_MORE;
	default:
		return begin(l1, now_us, ret_index);
	}
}

void
scout__rebalance_freed(struct scout__l1 *l1, struct scout__extent *extent)
{
	struct scout__chunk_index *giver = index_of(l1, extent->taken_from);
	struct scout__chunk_index *taker = index_of(l1, extent->taken_for);

	if (giver)
		giver->moves.n_going--;
	if (taker)
		taker->moves.n_coming--;
	scout__extent_free(&l1->pool, extent);
	if (taker && taker->member.wants_extent)
		scout__index_ask(taker);
	for (struct scout__chunk_index *index = l1->indexes; index; index = index->member.next)
		if (index->member.wants_extent)
			scout__index_ask(index);
}
