/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "thread.h"

/*
 * The newest events of a feed, in the form in which replies carry them: a ring of bytes, and where each event ends. An event lies in
 * one piece, and is written where it stays. A new one takes the place of the oldest, so memory is bounded and putting never
 * fails. Loop thread.
 */

struct scout__feed_ring {
	uint8_t *bytes;
	uint32_t *ends; /* of event i at [i & mask]: where it ends in bytes */
	uint32_t size;  /* of bytes */
	uint32_t largest;
	uint32_t mask;   /* ends has mask + 1 places, a power of two */
	uint32_t at;     /* where the last event ends */
	uint64_t first;  /* number of the oldest event; the first of all has 1 */
	uint64_t next;   /* of the next one */
	uint32_t n_free; /* so many events may be put before the oldest ones have to go */
};

/* A run of events. */
struct scout__feed_run {
	uint32_t n;
	uint32_t len;
	const uint8_t *bytes;
};

#define SCOUT__FEED_RING_MIN 16384u

/* For at most @size bytes, of SCOUT__FEED_RING_MIN or more, and events of at most @largest. 0 or SCOUT_ERR_NOMEM. */
SCOUT_ON_LOOP int scout__feed_ring_init(struct scout__feed_ring *ring, uint32_t size, uint32_t largest);
SCOUT_ON_ANY void scout__feed_ring_fini(struct scout__feed_ring *ring);
/* The oldest events go, until there is room for the largest and for some more: most puts then drop none. */
SCOUT_ON_LOOP void scout__feed_ring_drop(struct scout__feed_ring *ring);
/* Room for the largest event: the next one is to be written there, and then put. */
static inline SCOUT_ON_LOOP uint8_t *
scout__feed_ring_room(struct scout__feed_ring *ring)
{
	if (ring->n_free == 0)
		scout__feed_ring_drop(ring);
	return ring->bytes + ring->at;
}
/* The room has the next event, of @len bytes. */
static inline SCOUT_ON_LOOP void
scout__feed_ring_put(struct scout__feed_ring *ring, size_t len)
{
	ring->n_free--;
	ring->at += (uint32_t)len;
	ring->ends[ring->next++ & ring->mask] = ring->at;
}
static inline SCOUT_ON_LOOP uint64_t
scout__feed_ring_bytes(const struct scout__feed_ring *ring)
{
	return ring->size + (uint64_t)(ring->mask + 1) * sizeof(*ring->ends);
}
/* Whether all events from @sequence on are there; also when there is none yet. */
static inline SCOUT_ON_LOOP bool
scout__feed_ring_has(const struct scout__feed_ring *ring, uint64_t sequence)
{
	return sequence >= ring->first && sequence <= ring->next;
}
/* The events from @sequence on, which are there, up to @max_bytes or the end of the bytes. Valid until the next put. */
SCOUT_ON_LOOP struct scout__feed_run scout__feed_ring_get(const struct scout__feed_ring *ring, uint64_t sequence,
							  uint32_t max_bytes);
