/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvscout/error.h>

#include "lazy.h"

/*
 * The hash arena: a ring of bytes in which the caller leaves a copy of a lookup's hashes for the courier. The caller takes
 * regions in order, and the courier gives them back in any order; the head moves over regions that are done. Neither side
 * waits: a full arena is SCOUT_ERR_BUSY.
 *
 * Positions count bytes since the start and never wrap (2^64). A region is [header | bytes], both 16-byte aligned, and does not
 * wrap around the end: the rest of the ring is then a region of its own that is done from the start.
 *
 * When nothing is in use, the caller goes on at the start of the ring. So if a scheduler's hashes are freed before its next step,
 * each step writes to the same memory, which is still in the caches, and pages that no burst ever needed are never touched: the
 * arena is as large as a step of the whole queue may need, and takes only as much memory as the largest step did need. The courier
 * notices at the next region: if all regions that it was told of are done, its head moves there.
 */
struct scout__arena {
	uint8_t *bytes;
	uint64_t size;     /* const; multiple of 16 */
	uint64_t tail;     /* caller: next free position */
	uint64_t empty_at; /* caller: the head's position when the caller last started over */
	uint64_t start;    /* caller: where the head will go from there */
	/* In a cache line of its own, so that a region that is given back does not take the caller's line away. */
	_Alignas(64) atomic_uint_fast64_t head; /* courier writes, caller reads: start of the oldest region not done */
	uint64_t seen;                          /* courier: end of the last region it was told of */
};

struct scout__arena_header {
	uint64_t total; /* bytes of the region with this header */
	uint64_t done;  /* filler: set by the caller before the region after it is published; else courier */
};

#define SCOUT__ARENA_ALIGN 16u

static inline int
scout__arena_init(struct scout__arena *arena, uint64_t size)
{
	arena->size = size / SCOUT__ARENA_ALIGN * SCOUT__ARENA_ALIGN;
	arena->bytes = scout__lazy_alloc(arena->size);
	arena->tail = 0;
	arena->empty_at = 0;
	arena->start = 0;
	arena->seen = 0;
	atomic_init(&arena->head, 0);
	return arena->bytes ? 0 : SCOUT_ERR_NOMEM;
}

static inline void
scout__arena_fini(struct scout__arena *arena)
{
	scout__lazy_free(arena->bytes, arena->size);
	arena->bytes = NULL;
}

static inline struct scout__arena_header *
scout__arena_header_at(const struct scout__arena *arena, uint64_t pos)
{
	return (struct scout__arena_header *)(void *)(arena->bytes + pos % arena->size);
}

/* Whether @len bytes could ever fit. */
static inline bool
scout__arena_can_hold(const struct scout__arena *arena, uint64_t len)
{
	/* Half the ring: a region that does not wrap finds room in an empty ring wherever the tail stands. */
	return len + 2 * sizeof(struct scout__arena_header) <= arena->size / 2;
}

/* Caller: room for @len bytes. Returns the position of the region, or UINT64_MAX when full. */
static inline uint64_t
scout__arena_take(struct scout__arena *arena, uint64_t len)
{
	uint64_t need = sizeof(struct scout__arena_header) +
			(len + SCOUT__ARENA_ALIGN - 1) / SCOUT__ARENA_ALIGN * SCOUT__ARENA_ALIGN;
	uint64_t head = atomic_load_explicit(&arena->head, memory_order_acquire);
	uint64_t to_end, filler, pos;

	if (head == arena->tail) {
		arena->empty_at = head;
		arena->tail = arena->start = (head + arena->size - 1) / arena->size * arena->size;
	}
	if (head == arena->empty_at)
		head = arena->start;
	to_end = arena->size - arena->tail % arena->size;
	filler = to_end < need ? to_end : 0;
	pos = arena->tail + filler;
	if (pos + need - head > arena->size)
		return UINT64_MAX;
	if (filler)
		*scout__arena_header_at(arena, arena->tail) = (struct scout__arena_header){filler, 1};
	*scout__arena_header_at(arena, pos) = (struct scout__arena_header){need, 0};
	arena->tail = pos + need;
	return pos;
}

static inline uint8_t *
scout__arena_at(const struct scout__arena *arena, uint64_t pos)
{
	return arena->bytes + pos % arena->size + sizeof(struct scout__arena_header);
}

/* Courier: a word named this region; everything up to its end is allocated. Call in the order in which regions were taken. */
static inline void
scout__arena_see(struct scout__arena *arena, uint64_t pos)
{
	if (atomic_load_explicit(&arena->head, memory_order_relaxed) == arena->seen)
		atomic_store_explicit(&arena->head, pos, memory_order_release);
	arena->seen = pos + scout__arena_header_at(arena, pos)->total;
}

/* Courier: the bytes are not needed any more. */
static inline void
scout__arena_give(struct scout__arena *arena, uint64_t pos)
{
	uint64_t head = atomic_load_explicit(&arena->head, memory_order_relaxed);

	scout__arena_header_at(arena, pos)->done = 1;
	while (head < arena->seen && scout__arena_header_at(arena, head)->done)
		head += scout__arena_header_at(arena, head)->total;
	atomic_store_explicit(&arena->head, head, memory_order_release);
}
