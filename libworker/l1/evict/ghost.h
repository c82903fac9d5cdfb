/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_GHOST_H
#define SCOUT_GHOST_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "entry.h"

/*
 * Which keys were evicted lately: one and a half times as many as there are entries. 8 bytes for each entry of the
 * chunk index; a key is a fingerprint, one in 8,000 questions is answered with yes by mistake. Each call touches 32
 * bytes. Loop thread.
 */
struct scout__ghost {
	uint32_t *cells; /* n_buckets * 8: upper half fingerprint, lower half time; 0 = free */
	uint32_t n_buckets;
	uint32_t tick; /* evictions to one unit of time */
	uint64_t added;
};

/* Returns 0 or SCOUT_ERR_NOMEM. Memory is used as it is touched. */
int scout__ghost_init(struct scout__ghost *ghost, uint32_t max_entries);
void scout__ghost_fini(struct scout__ghost *ghost);
void scout__ghost_add(struct scout__ghost *ghost, uint64_t print);
/* Was @print among the last 1.5 * @entries additions? Then it is forgotten. @entries <= max_entries. */
bool scout__ghost_take(struct scout__ghost *ghost, uint64_t print, uint32_t entries);
uint64_t scout__ghost_bytes(const struct scout__ghost *ghost);

/* A well-mixed number for a key: hash and space. */
static inline uint64_t
scout__fingerprint(const struct scout__entry *entry)
{
	uint64_t word[SCOUT_MAX_HASH / 8];
	uint64_t x = entry->space * UINT64_C(0x9e3779b97f4a7c15);

	memcpy(word, entry->hash, sizeof(word));
	for (unsigned i = 0; i < SCOUT_MAX_HASH / 8; i++) {
		x = (x ^ word[i]) * UINT64_C(0xbf58476d1ce4e5b9);
		x ^= x >> 29;
	}
	x *= UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 32;
}

#endif
