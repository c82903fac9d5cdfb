/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "entry.h"

/*
 * The last touch of each key in a sample, cached or not, in the order of those touches. The newest of them are the
 * content of an LRU cache that is smaller than the chunk index by as much as the sample is smaller than all keys. Times
 * are those of the caller, SCOUT__STAMP_BITS long, and wrap. Loop thread.
 */

#define SCOUT__HISTORY_CLASS_BITS 5

struct scout__record {
	uint32_t print;
	uint32_t chain; /* the next one in its bucket, or on the free list, plus 1 */
	uint32_t older, newer;
	uint32_t time : SCOUT__STAMP_BITS;
	uint32_t class : SCOUT__HISTORY_CLASS_BITS;
	uint32_t is_open : 1;
	uint32_t in_lru : 1;
};

struct scout__history {
	struct scout__record *records; /* max, mapped lazily */
	uint32_t *buckets;             /* first record, plus 1 */
	uint32_t bucket_mask;
	uint32_t max;
	uint32_t n_ever; /* records that were ever used */
	uint32_t n;      /* records that are open */
	uint32_t free;   /* the first free record, plus 1 */
	uint32_t newest, oldest;
	uint32_t shift; /* the sample is one key in 2^shift */
	uint32_t lru_size;
	uint32_t n_lru;
	uint32_t lru_oldest; /* SCOUT__NO_ENTRY: none */
};

/* What a touch found. */
struct scout__past {
	bool known;  /* there was a record */
	bool in_lru; /* the small LRU cache held it */
	uint32_t class;
	uint32_t time;
};

/* For a chunk index of up to @max_entries. Returns 0 or SCOUT_ERR_NOMEM. Memory is used as it is touched. */
int scout__history_init(struct scout__history *history, uint32_t max_entries);
void scout__history_fini(struct scout__history *history);
uint64_t scout__history_bytes(const struct scout__history *history);
/* The chunk index has @capacity entries from now on: the sample has at least 2048 of them, if there are as many. */
void scout__history_resize(struct scout__history *history, uint32_t capacity);

static inline bool
scout__history_samples(const struct scout__history *history, uint64_t print)
{
	return (print & ((UINT64_C(1) << history->shift) - 1)) == 0;
}

/* 0 to 7: a key is in the samples of one key in 2^shift up to shift = level. */
static inline uint32_t
scout__history_level(uint64_t print)
{
	return (uint32_t)__builtin_ctzll(print | 1u << 7);
}

/* A key of the sample is touched. There must be room: see scout__history_expire(). *ret_past is the past of the key. */
void scout__history_touch(struct scout__history *history, uint64_t print, uint32_t class, uint32_t time,
			  struct scout__past *ret_past);
/* Whether the record table is full. */
bool scout__history_is_full(const struct scout__history *history);
/* Drop the oldest record, if there is one and it is older than @age or @force; *ret_past says what it held. */
bool scout__history_expire(struct scout__history *history, uint32_t now, uint32_t age, bool force,
			   struct scout__past *ret_past);
/*
 * Record @i < n_ever, for a walk over all. False: there is none. A record that has left the sample, because the chunk
 * index has grown, is dropped.
 */
bool scout__history_at(struct scout__history *history, uint32_t i, struct scout__past *ret_past);
/* Debug and tests: every invariant. */
void scout__history_check(const struct scout__history *history);
