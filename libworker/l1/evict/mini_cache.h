/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_L1_SHADOW_H
#define SCOUT_L1_SHADOW_H

#include <stdbool.h>
#include <stdint.h>

#include "evict.h"

/*
 * Miniature simulations: what would the hit ratio be with another share and cut? Every candidate is simulated on a
 * sample of the keys (1 in 2^shift, by fingerprint) in a cache that is smaller by as much. Loop thread.
 */
struct scout__shadow;

/* Returns 0 or SCOUT_ERR_NOMEM. */
int scout__shadow_new(uint32_t max_entries, struct scout__shadow **ret_shadow);
void scout__shadow_free(struct scout__shadow *shadow);

/* Is a key with this fingerprint in the sample? Only of those the others are told. */
bool scout__shadow_samples(const struct scout__shadow *shadow, uint64_t print);
void scout__shadow_created(struct scout__shadow *shadow, uint64_t print);
void scout__shadow_accessed(struct scout__shadow *shadow, uint64_t print, enum scout__access how, uint32_t depth);
/* Something had to go from the real chunk index while it had @live entries. */
void scout__shadow_full(struct scout__shadow *shadow, uint32_t live);

/* The best candidate so far; plain LRU unless another one is better by more than chance. */
struct scout__evict_args scout__shadow_choice(const struct scout__shadow *shadow);

uint64_t scout__shadow_bytes(const struct scout__shadow *shadow);
void scout__shadow_check(const struct scout__shadow *shadow);

#endif
