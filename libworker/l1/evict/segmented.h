/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_SEGMENTED_H
#define SCOUT_SEGMENTED_H

#include "chunked_queue.h"
#include "evict.h"

/*
 * Segmented LRU with a depth cut: the order that `slru` and `adaptive` keep, and that the simulations keep in small:
 *
 *   What was stored is on probation; what is read, or comes back soon after it was evicted, is protected.
 *   Probation has its share of the entries, the rest are protected: while more are, their oldest goes, else the oldest
 *   on probation. (What is pinned counts as probation: nearly all of it is just being stored.)
 *   What lies deeper in what its session stored than the cut goes before all others, until it is read.
 *
 * Share 100 without a cut is plain LRU: the lists are each in the order of use, and the older of their heads goes,
 * whatever share and cut were before. So both may be changed at any time.
 */

enum {
	SCOUT__SPARE = 0, /* deeper than the cut, and not read yet */
	SCOUT__PROBATION = 1,
	SCOUT__PROTECTED = 2,
	SCOUT__GHOST = 3 /* the simulations' */
};

struct scout__segmented {
	struct scout__chunked_queues queues;
	struct scout__evict_args args; /* share 100: as LRU */
	uint32_t live;                 /* elements that exist, pinned or not: the share is of them */
	uint64_t moves;
};

/* Moves to one unit of a stamp: its 29 bits must not wrap within the life of an entry. */
#define SCOUT__MOVES_PER_STAMP 32u

static inline void
scout__segmented_put(struct scout__segmented *s, uint32_t queue, uint32_t i)
{
	scout__chunked_queue_append(&s->queues, queue, i);
	scout__node_at(&s->queues, i)->stamp = (s->moves++ / SCOUT__MOVES_PER_STAMP) & 0x1fffffff;
}

static inline void
scout__segmented_accessed(struct scout__segmented *s, uint32_t i, enum scout__access how, uint32_t depth)
{
	uint32_t from = scout__node_at(&s->queues, i)->queue;
	uint32_t queue = from;

	if (how == SCOUT__ACCESS_READ)
		queue = SCOUT__PROTECTED;
	else if (queue != SCOUT__PROTECTED)
		queue = s->args.cut && depth >= s->args.cut ? SCOUT__SPARE : SCOUT__PROBATION;
	/* As after every unpin: it is the newest there already. */
	if (queue == from && scout__chunked_queue_is_tail(&s->queues, i))
		return;
	scout__chunked_queue_unlink(&s->queues, i);
	scout__segmented_put(s, queue, i);
}

/* Of two heads the one that was put there first; either may be SCOUT__NO_ENTRY. In one unit of time: @a. */
static inline uint32_t
scout__segmented_older(const struct scout__segmented *s, uint32_t a, uint32_t b)
{
	uint32_t difference;

	if (a == SCOUT__NO_ENTRY || b == SCOUT__NO_ENTRY)
		return a == SCOUT__NO_ENTRY ? b : a;
	difference = scout__node_at(&s->queues, a)->stamp - scout__node_at(&s->queues, b)->stamp;
	return difference == 0 || (difference & 0x10000000) ? a : b;
}

static inline uint32_t
scout__segmented_victim(const struct scout__segmented *s)
{
	const struct scout__chunked_queues *q = &s->queues;
	uint32_t spare = scout__chunked_queue_head(q, SCOUT__SPARE);
	uint32_t young = scout__segmented_older(s, spare, scout__chunked_queue_head(q, SCOUT__PROBATION));
	uint32_t n_protected = q->n[SCOUT__PROTECTED];

	if (s->args.cut && spare != SCOUT__NO_ENTRY)
		return spare;
	if (s->args.share >= 100)
		return scout__segmented_older(s, young, scout__chunked_queue_head(q, SCOUT__PROTECTED));
	if ((uint64_t)n_protected * 100 > (uint64_t)(100 - s->args.share) * s->live || young == SCOUT__NO_ENTRY)
		return scout__chunked_queue_head(q, SCOUT__PROTECTED);
	return young;
}

#endif
