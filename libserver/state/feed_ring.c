/* SPDX-License-Identifier: Apache-2.0 */
#include "feed_ring.h"

#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>

#define EVENT_BYTES 64u /* about the least that an event takes: of smaller ones fewer are kept than would fit */

int
scout__feed_ring_init(struct scout__feed_ring *ring, uint32_t size)
{
	*ring = (struct scout__feed_ring){.size = size, .n_ends = size / EVENT_BYTES, .first = 1, .next = 1};
	SCOUT_ASSERT(size >= SCOUT__FEED_RING_MIN);
	ring->bytes = malloc(size);
	ring->ends = calloc(ring->n_ends, sizeof(*ring->ends));
	if (ring->bytes && ring->ends)
		return 0;
	scout__feed_ring_fini(ring);
	return SCOUT_ERR_NOMEM;
}

void
scout__feed_ring_fini(struct scout__feed_ring *ring)
{
	free(ring->bytes);
	free(ring->ends);
	ring->bytes = NULL;
	ring->ends = NULL;
}

/* Where event @sequence begins: where the one before it ends. The one before the oldest still says so, see put. */
SCOUT_ON_LOOP static uint64_t
start_of(const struct scout__feed_ring *ring, uint64_t sequence)
{
	return ring->ends[(sequence - 1) % ring->n_ends];
}

void
scout__feed_ring_put(struct scout__feed_ring *ring, const void *event, size_t len)
{
	uint64_t from = start_of(ring, ring->next);
	uint32_t at = (uint32_t)(from % ring->size);
	size_t head = ring->size - at < len ? ring->size - at : len;

	SCOUT_ASSERT(len <= ring->size);
	/* One place of `ends` stays for the event before the oldest. */
	while (ring->next - ring->first >= ring->n_ends - 1 ||
	       (ring->first < ring->next && from + len - start_of(ring, ring->first) > ring->size))
		ring->first++;
	memcpy(ring->bytes + at, event, head);
	memcpy(ring->bytes, (const uint8_t *)event + head, len - head);
	ring->ends[ring->next % ring->n_ends] = from + len;
	ring->next++;
}

struct scout__feed_run
scout__feed_ring_get(const struct scout__feed_ring *ring, uint64_t sequence, size_t max_bytes)
{
	uint64_t from = start_of(ring, sequence);
	uint32_t at = (uint32_t)(from % ring->size);
	struct scout__feed_run run = {.n = 0};
	size_t len = 0;

	SCOUT_ASSERT(scout__feed_ring_has(ring, sequence));
	while (sequence + run.n < ring->next && start_of(ring, sequence + run.n + 1) - from <= max_bytes) {
		run.n++;
		len = (size_t)(start_of(ring, sequence + run.n) - from);
	}
	run.piece[0] = ring->bytes + at;
	run.len[0] = ring->size - at < len ? ring->size - at : len;
	run.piece[1] = ring->bytes;
	run.len[1] = len - run.len[0];
	return run;
}
