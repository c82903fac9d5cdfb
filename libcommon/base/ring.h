/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <ck_ring.h>

#include <kvscout/error.h>

#include "lazy.h"

#if defined(__SANITIZE_THREAD__)
#define SCOUT__TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SCOUT__TSAN 1
#endif
#endif

#ifdef SCOUT__TSAN
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
#define SCOUT__TSAN_ACQUIRE(p) __tsan_acquire(p)
#define SCOUT__TSAN_RELEASE(p) __tsan_release(p)
#else
#define SCOUT__TSAN_ACQUIRE(p) ((void)(p))
#define SCOUT__TSAN_RELEASE(p) ((void)(p))
#endif

/*
 * A ring of 64-bit words between one producer and one consumer, on concurrencykit's ck_ring. Words travel as pointers; only
 * the memory that they name changes hands. ThreadSanitizer does not know concurrencykit's fences: the annotations tell it.
 */
struct scout__ring {
	struct ck_ring ring;
	struct ck_ring_buffer *buffer;
	uint32_t capacity; /* words that fit: a power of two less one */
};
_Static_assert(sizeof(struct ck_ring_buffer) == sizeof(uint64_t), "one word, one cell");

/* Room for at least @n words; what was never used costs no memory. Returns 0 or SCOUT_ERR_NOMEM. */
static inline int
scout__ring_init(struct scout__ring *ring, uint32_t n)
{
	uint32_t size = 4;

	while (size < n + 1)
		size *= 2;
	ring->buffer = scout__lazy_alloc(size * sizeof(*ring->buffer));
	if (!ring->buffer)
		return SCOUT_ERR_NOMEM;
	ck_ring_init(&ring->ring, size);
	ring->capacity = size - 1;
	return 0;
}

static inline void
scout__ring_fini(struct scout__ring *ring)
{
	scout__lazy_free(ring->buffer, ((size_t)ring->capacity + 1) * sizeof(*ring->buffer));
	ring->buffer = NULL;
}

/* Producer. @word must not be 0. False when full. */
static inline bool
scout__ring_push(struct scout__ring *ring, uint64_t word)
{
	SCOUT__TSAN_RELEASE(ring);
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): a word, not an address */
	return ck_ring_enqueue_spsc(&ring->ring, ring->buffer, (void *)(uintptr_t)word);
}

/* Consumer. 0 when empty. */
static inline uint64_t
scout__ring_pop(struct scout__ring *ring)
{
	void *word;

	if (!ck_ring_dequeue_spsc(&ring->ring, ring->buffer, &word))
		return 0;
	SCOUT__TSAN_ACQUIRE(ring);
	return (uint64_t)(uintptr_t)word;
}

/* Consumer. */
static inline bool
scout__ring_empty(const struct scout__ring *ring)
{
	return ck_ring_size(&ring->ring) == 0;
}
