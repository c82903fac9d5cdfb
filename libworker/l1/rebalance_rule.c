/* SPDX-License-Identifier: Apache-2.0 */
#include "chunk_index_internal.h"
#include "clock.h"

/*
 * DESIGN
 *
 * Purpose: which chunk index may take an extent, and from which other one. What is then done is in rebalance.c.
 *
 * The rule. A chunk index's fair share is l1_bytes divided by the chunk indexes that hold or want memory and have
 * a peer to use it. When the pool is used up, a chunk index that one more extent would lift above its share evicts
 * its own; one below it takes an extent from the chunk index that is most above its share, and evicts its own or waits
 * while that is on its way. Chunk indexes that no peer uses have no share and lose first, and a chunk index that holds
 * nothing may take from any.
 *
 * Since taking needs room for a whole extent below the share, and lifts no index above it, two chunk indexes at their
 * share do not take from each other in turns.
 *
 * Rejected: a quota for each namespace (idle memory).
 *
 * Threads: loop.
 */

void
scout__rebalance_join(struct scout__chunk_index *index)
{
	index->serial = ++index->l1->last_serial;
	index->next = index->l1->indexes;
	index->l1->indexes = index;
}

void
scout__rebalance_settled(struct scout__chunk_index *index)
{
	index->l1->n_wanting -= index->wants_extent;
	index->wants_extent = false;
}

static uint64_t
held(const struct scout__chunk_index *index)
{
	return index->n_slots * index->chunk_bytes;
}

static uint64_t
extent_bytes(const struct scout__chunk_index *index)
{
	return scout__pool_extent_slots(&index->l1->pool, index->chunk_bytes) * index->chunk_bytes;
}

/* The fair share of a chunk index, @index counted in. */
static uint64_t
share(const struct scout__chunk_index *index)
{
	uint64_t n = 1;

	for (const struct scout__chunk_index *other = index->l1->indexes; other; other = other->next)
		n += other != index && !other->idle && (other->n_slots > 0 || other->growing || other->wants_extent);
	return index->l1->pool.l1_bytes / n;
}

static bool
has_room_below_share(const struct scout__chunk_index *index, uint64_t fair)
{
	return held(index) == 0 || held(index) + extent_bytes(index) <= fair;
}

bool
scout__rebalance_allows(const struct scout__chunk_index *index)
{
	if (index->l1->n_wanting == 0 || index->wants_extent)
		return true;
	return has_room_below_share(index, share(index));
}

/* Whether @taker may take from @other at all. */
static bool
may_give(const struct scout__chunk_index *other, const struct scout__chunk_index *taker, uint64_t fair)
{
	if (other == taker || other->n_extents == 0)
		return false;
	if (other->idle || held(taker) == 0)
		return true;
	return held(other) > fair && has_room_below_share(taker, fair);
}

/* Whether @a is to lose before @b. */
static bool
loses_first(const struct scout__chunk_index *a, const struct scout__chunk_index *b)
{
	if (a->idle != b->idle)
		return a->idle;
	return held(a) > held(b);
}

struct scout__chunk_index *
scout__rebalance_find_giver(const struct scout__chunk_index *taker, bool *ret_later)
{
	uint64_t fair = share(taker);
	struct scout__chunk_index *best = NULL;

	*ret_later = false;
	for (struct scout__chunk_index *other = taker->l1->indexes; other; other = other->next) {
		if (!may_give(other, taker, fair) || other->looked)
			continue;
		if (other->n_going > 0)
			*ret_later = true;
		else if (!best || loses_first(other, best))
			best = other;
	}
	return best;
}

bool
scout__rebalance_pool_has_room(const struct scout__chunk_index *index)
{
	const struct scout__pool *pool = &index->l1->pool;

	return pool->l1_bytes - pool->used_bytes >= index->chunk_bytes;
}

bool
scout__rebalance_ask(struct scout__chunk_index *index)
{
	bool later;

	if (index->wants_extent)
		return true;
	if (!index->l1->indexes->next || index->growing || !index->grown_out)
		return false;
	/* There is room, or was: it is tried again soon, or the machine has no memory but what others hold. */
	if (scout__rebalance_pool_has_room(index) && !index->regrow_us)
		return false;
	if (index->ask_again_us && scout__now_us() < index->ask_again_us)
		return false;
	if (!scout__rebalance_find_giver(index, &later) && !later)
		return false;
	index->wants_extent = true;
	index->l1->n_wanting++;
	return true;
}
