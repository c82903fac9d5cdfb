/* SPDX-License-Identifier: Apache-2.0 */
#include "feed_ring.h"

#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>

#define EVENT_BYTES 64u /* about the least that an event takes: of smaller ones fewer may be kept than would fit */

int
scout__feed_ring_init(struct scout__feed_ring *ring, uint32_t size, uint32_t largest)
{
	uint32_t n_ends = 1;

	SCOUT_ASSERT(size >= SCOUT__FEED_RING_MIN && largest >= EVENT_BYTES && largest <= size / 2);
	while (n_ends < size / EVENT_BYTES * 2)
		n_ends *= 2;
	*ring = (struct scout__feed_ring){.size = size, .largest = largest, .mask = n_ends - 1, .first = 1, .next = 1};
	ring->bytes = malloc(size);
	ring->ends = calloc(n_ends, sizeof(*ring->ends));
	if (ring->bytes && ring->ends)
		return 0;
	scout__feed_ring_fini(ring);
	return SCOUT_ERR_NOMEM;
}

void
scout__feed_ring_fini(struct scout__feed_ring *ring)
{
	if (ring->bytes)
		explicit_bzero(ring->bytes, ring->size); /* tenants, and tokens of prompts */
	free(ring->bytes);
	free(ring->ends);
	ring->bytes = NULL;
	ring->ends = NULL;
}

/* Where event @sequence begins: where the one before it ends, unless the largest would not fit there. */
SCOUT_ON_LOOP static uint32_t
start_of(const struct scout__feed_ring *ring, uint64_t sequence)
{
	uint32_t at = ring->ends[(sequence - 1) & ring->mask];

	return at > ring->size - ring->largest ? 0 : at;
}

void
scout__feed_ring_drop(struct scout__feed_ring *ring)
{
	uint32_t at = start_of(ring, ring->next), end = ring->size;

	/* Half of the ends are for events that are put until the next call. */
	if (ring->next - ring->first > ring->mask / 2)
		ring->first = ring->next - ring->mask / 2;
	/* An event before @at is far from it, as an unsigned number. */
	while (ring->first < ring->next && start_of(ring, ring->first) - at < ring->largest + ring->size / 64)
		ring->first++;
	if (ring->first < ring->next && start_of(ring, ring->first) > at)
		end = start_of(ring, ring->first);
	ring->at = at;
	ring->n_free = (end - at) / ring->largest;
}

struct scout__feed_run
scout__feed_ring_get(const struct scout__feed_ring *ring, uint64_t sequence, uint32_t max_bytes)
{
	uint32_t from = start_of(ring, sequence);
	struct scout__feed_run run = {.bytes = ring->bytes + from};

	SCOUT_ASSERT(scout__feed_ring_has(ring, sequence));
	for (; sequence + run.n < ring->next; run.n++) {
		uint32_t len = ring->ends[(sequence + run.n) & ring->mask] - from;

		/* At the end of the ring @len is far too large: the next event ends before @from. */
		if (len > max_bytes)
			break;
		run.len = len;
	}
	return run;
}
