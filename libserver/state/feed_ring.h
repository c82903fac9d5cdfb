/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_SERVER_FEED_RING_H
#define SCOUT_SERVER_FEED_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "thread.h"

/*
 * The newest events of a feed, in the form in which replies carry them: a ring of bytes, and where each event ends. A new event
 * takes the place of the oldest, so memory is bounded and putting never fails. Loop thread.
 */

struct scout__feed_ring {
	uint8_t *bytes;
	uint64_t *ends; /* of event i at [i % n_ends], in bytes since the start */
	uint32_t size;  /* of bytes */
	uint32_t n_ends;
	uint64_t first; /* number of the oldest event; the first of all has 1 */
	uint64_t next;  /* of the next one */
};

/* A run of events. It may have two pieces, because it may pass the end of the ring. */
struct scout__feed_run {
	uint32_t n;
	const uint8_t *piece[2];
	size_t len[2];
};

#define SCOUT__FEED_RING_MIN 16384u

/* For at most @size bytes, of SCOUT__FEED_RING_MIN or more. 0 or SCOUT_ERR_NOMEM. */
SCOUT_ON_LOOP int scout__feed_ring_init(struct scout__feed_ring *ring, uint32_t size);
SCOUT_ON_LOOP void scout__feed_ring_fini(struct scout__feed_ring *ring);
/* @len is at most the size of the ring. */
SCOUT_ON_LOOP void scout__feed_ring_put(struct scout__feed_ring *ring, const void *event, size_t len);
/* Whether all events from @sequence on are there; also when there is none yet. */
static inline SCOUT_ON_LOOP bool
scout__feed_ring_has(const struct scout__feed_ring *ring, uint64_t sequence)
{
	return sequence >= ring->first && sequence <= ring->next;
}
/* The events from @sequence on, which are there, up to @max_bytes. Valid until the next put. */
SCOUT_ON_LOOP struct scout__feed_run scout__feed_ring_get(const struct scout__feed_ring *ring, uint64_t sequence,
							  size_t max_bytes);

#endif
