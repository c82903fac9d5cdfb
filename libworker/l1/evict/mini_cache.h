/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_L1_SHADOW_H
#define SCOUT_L1_SHADOW_H

#include <stdbool.h>
#include <stdint.h>

#include "evict.h"

/*
 * Simulations in miniature: what would the hit ratio be with another share and cut? Every candidate has a
 * mini cache: it sees a sample of the keys (1 in 2^shift, by fingerprint) and is smaller than the chunk index
 * by as much. Loop thread.
 */
struct scout__mini_caches;

/* Returns 0 or SCOUT_ERR_NOMEM. */
int scout__mini_cache_new(uint32_t max_entries, struct scout__mini_caches **ret_minis);
void scout__mini_cache_free(struct scout__mini_caches *minis);

/* Is a key with this fingerprint in the sample? Only of those the others are told. */
bool scout__mini_cache_samples(const struct scout__mini_caches *minis, uint64_t print);
void scout__mini_cache_created(struct scout__mini_caches *minis, uint64_t print);
void scout__mini_cache_accessed(struct scout__mini_caches *minis, uint64_t print, enum scout__access how,
				uint32_t depth);
/* Something had to go from the real chunk index while it had @live entries. */
void scout__mini_cache_full(struct scout__mini_caches *minis, uint32_t live);

/* The best candidate so far; plain LRU unless another one is better by more than chance. */
struct scout__evict_args scout__mini_cache_choice(const struct scout__mini_caches *minis);

uint64_t scout__mini_cache_bytes(const struct scout__mini_caches *minis);
void scout__mini_cache_check(const struct scout__mini_caches *minis);

#endif
