/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "entry.h"

/*
 * Which keys were evicted lately, and how often each was touched before: up to three times as many as there are
 * entries. 16 bytes for each entry of the chunk index; a key is a fingerprint, and one in 8,000 questions gets a false
 * yes. Each call touches 32 bytes. Loop thread.
 */
struct scout__ghost {
	uint32_t *cells; /* n_buckets * 8: fingerprint, time, touches; 0 = free */
	uint32_t n_buckets;
	uint32_t tick;   /* evictions to one unit of time */
	uint32_t now;    /* units; a cell holds their low bits */
	uint32_t in_now; /* evictions in the current unit */
};

#define SCOUT__GHOST_TOUCHES 7u /* more touches are noted as this many */

/* Returns 0 or SCOUT_ERR_NOMEM. Memory is used as it is touched. */
int scout__ghost_init(struct scout__ghost *ghost, uint32_t max_entries);
void scout__ghost_fini(struct scout__ghost *ghost);
void scout__ghost_add(struct scout__ghost *ghost, uint64_t print, uint32_t touches);
/* Was @print among the last @window additions? Changes nothing. @window <= 3 * max_entries. */
bool scout__ghost_has(const struct scout__ghost *ghost, uint64_t print, uint64_t window);
/* The same; if so, @print is forgotten, and *ret_touches is what was noted with it. */
bool scout__ghost_take(struct scout__ghost *ghost, uint64_t print, uint64_t window, uint32_t *ret_touches);
/* Start loading what the calls above need for @print. Changes nothing. */
void scout__ghost_load(const struct scout__ghost *ghost, uint64_t print);
uint64_t scout__ghost_bytes(const struct scout__ghost *ghost);

static inline uint64_t
scout__fingerprint_step(uint64_t x, const uint8_t *word)
{
	uint64_t w;

	memcpy(&w, word, sizeof(w));
	x = (x ^ w) * UINT64_C(0xbf58476d1ce4e5b9);
	return x ^ x >> 29;
}

/* A well-mixed number for a key; @hash is SCOUT_MAX_HASH bytes, zero-padded. */
static inline uint64_t
scout__fingerprint_of(uint32_t space, const uint8_t *hash)
{
	uint64_t x = space * UINT64_C(0x9e3779b97f4a7c15);

	_Static_assert(SCOUT_MAX_HASH == 4 * sizeof(x), "four words");
	x = scout__fingerprint_step(x, hash);
	x = scout__fingerprint_step(x, hash + 8);
	x = scout__fingerprint_step(x, hash + 16);
	x = scout__fingerprint_step(x, hash + 24);
	x *= UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 32;
}

static inline uint64_t
scout__fingerprint(const struct scout__entry *entry)
{
	return scout__fingerprint_of(entry->space, entry->hash);
}
