/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "entry.h"
#include "thread.h"

/*
 * Up to SCOUT__QUEUES queues over one array of elements that each have a node. An element is in at most one queue; its
 * node says in which, and where. The head is the oldest. Every call is O(1) except for a bounded number of moves, see
 * chunked_queue.c. Taking an element out, or putting it in, touches its node and a line or two that many elements
 * share, but no neighbour. Loop thread.
 */

#define SCOUT__QUEUES 33u
#define SCOUT__QUEUE_CHUNK_SLOTS 256u
#define SCOUT__MAX_QUEUED (1u << 30) /* slots must have numbers of 32 bits */

/* A part of a queue: slots in the order of their age, some of them empty. One cache line. */
struct scout__queue_chunk {
	uint64_t stays[SCOUT__QUEUE_CHUNK_SLOTS / 64]; /* a bit for each slot: what was put there was not taken out */
	uint32_t prev, next;                           /* in its queue; next: free chunks, too */
	uint32_t sparse_prev, sparse_next;
	uint16_t end;  /* slots from here on were not used yet */
	uint16_t live; /* elements in the slots before */
	uint8_t queue;
	uint8_t sparse; /* what it and the next chunk hold fits well into one */
} __attribute__((aligned(64)));

struct scout__chunked_queues {
	char *nodes;                       /* of element 0 */
	size_t stride;                     /* bytes from one element's node to the next */
	struct scout__queue_chunk *chunks; /* cap_chunks, mapped lazily; NULL: none */
	uint32_t *slots;                   /* elements, SCOUT__QUEUE_CHUNK_SLOTS for each chunk; mapped lazily */
	uint32_t max;                      /* elements */
	uint32_t cap_chunks;               /* enough for whatever order calls come in */
	uint32_t n_chunks;                 /* chunks that were ever used */
	uint32_t n_used;                   /* chunks in use */
	uint32_t free_chunk;               /* the first free chunk */
	uint32_t sparse;                   /* the first chunk that can be joined with the next one */
	uint32_t oldest[SCOUT__QUEUES];    /* chunks */
	uint32_t newest[SCOUT__QUEUES];
	uint32_t n[SCOUT__QUEUES]; /* elements */
};

static inline struct scout__node *
scout__node_at(const struct scout__chunked_queues *queues, uint32_t i)
{
	return (struct scout__node *)(void *)(queues->nodes + i * queues->stride);
}

/* Queues for no element yet, of nodes that lie @stride bytes apart. */
void scout__chunked_queue_init(struct scout__chunked_queues *queues, size_t stride);
/*
 * Room for @max elements, at most MAX_QUEUED and no fewer than before, whose nodes lie from @first on: they may have moved.
 * Returns 0, or SCOUT_ERR_NOMEM: then there is room for as many as before. Memory is used as it is touched.
 */
int scout__chunked_queue_reserve(struct scout__chunked_queues *queues, struct scout__node *first, uint32_t max);
void scout__chunked_queue_fini(struct scout__chunked_queues *queues);
/* Bytes of memory for @n elements, if all are in queues and none has left its queue. */
uint64_t scout__chunked_queue_bytes(uint32_t n);

/* The oldest element of a queue, and the next newer one of an element; or SCOUT__NO_ENTRY. */
uint32_t scout__chunked_queue_head(const struct scout__chunked_queues *queues, uint32_t queue);
uint32_t scout__chunked_queue_next(const struct scout__chunked_queues *queues, uint32_t i);

/* Whether @i is the newest element of its queue. */
static inline bool
scout__chunked_queue_is_tail(const struct scout__chunked_queues *queues, uint32_t i)
{
	const struct scout__node *node = scout__node_at(queues, i);
	uint32_t s = queues->newest[node->queue];

	/* Else it is in the same chunk, and all elements after it have been taken out. */
	return node->at == s * SCOUT__QUEUE_CHUNK_SLOTS + queues->chunks[s].end - 1 ||
	       (node->at / SCOUT__QUEUE_CHUNK_SLOTS == s && scout__chunked_queue_next(queues, i) == SCOUT__NO_ENTRY);
}

/* Debug and tests: every invariant of chunked_queue.c. */
void scout__chunked_queue_check(const struct scout__chunked_queues *queues);

/* In chunked_queue.c: make a new newest chunk; note that chunk @s has become empty, or thinner by a step. */
uint32_t scout__chunked_queue_extend(struct scout__chunked_queues *queues, uint32_t queue);
void scout__chunked_queue_thinned(struct scout__chunked_queues *queues, uint32_t s);

/* A chunk that has lost this many elements is checked for joining. */
#define SCOUT__QUEUE_CHUNK_STEP 32u

/* @i becomes the newest element of @queue; its node notes @stamp. */
static inline void
scout__chunked_queue_append_at(struct scout__chunked_queues *queues, uint32_t queue, uint32_t i, uint32_t stamp)
{
	struct scout__node *node = scout__node_at(queues, i);
	uint32_t s = queues->newest[queue];
	struct scout__queue_chunk *chunk;
	uint32_t slot;

	if (s == SCOUT__NO_ENTRY || queues->chunks[s].end == SCOUT__QUEUE_CHUNK_SLOTS)
		s = scout__chunked_queue_extend(queues, queue);
	chunk = &queues->chunks[s];
	slot = chunk->end++;
	chunk->live++;
	slot += s * SCOUT__QUEUE_CHUNK_SLOTS;
	/* In one store: a read of the whole word waits until stores to parts of it have reached the cache. */
	*node = (struct scout__node){
		.at = slot, .stamp = stamp & SCOUT__STAMP_MASK, .queue = queue & 63, .level = node->level};
	queues->slots[slot] = i;
	queues->n[queue]++;
}

static inline void
scout__chunked_queue_append(struct scout__chunked_queues *queues, uint32_t queue, uint32_t i)
{
	scout__chunked_queue_append_at(queues, queue, i, scout__node_at(queues, i)->stamp);
}

static inline void
scout__chunked_queue_unlink(struct scout__chunked_queues *queues, uint32_t i)
{
	const struct scout__node *node = scout__node_at(queues, i);
	uint32_t s = node->at / SCOUT__QUEUE_CHUNK_SLOTS;
	uint32_t slot = node->at % SCOUT__QUEUE_CHUNK_SLOTS;
	struct scout__queue_chunk *chunk = &queues->chunks[s];

	chunk->stays[slot / 64] &= ~(UINT64_C(1) << slot % 64);
	chunk->live--;
	queues->n[node->queue]--;
	if (chunk->live % SCOUT__QUEUE_CHUNK_STEP == 0)
		scout__chunked_queue_thinned(queues, s);
}
