/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_POLICY_RIG_H
#define KVSCOUT_TESTS_POLICY_RIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "chunk_index.h"

/*
 * A policy without a chunk index: entries as the chunk index would have them, driven by hand, or as a cache of small
 * keys. One to a test: each is a process of its own (Check forks).
 */

#define RIG_MAX_ENTRIES 4096u
#define RIG_MAX_KEYS (1u << 20)

extern struct scout__entry rig_entries[RIG_MAX_ENTRIES];
extern const struct scout__evict_ops *rig_ops;
extern void *rig_state;
extern uint64_t rig_random;
void rig_open(const char *text, uint32_t n);
void rig_close(void);
uint64_t rig_draw(uint64_t below);
void rig_set_key(struct scout__entry *entry, uint32_t key);
void rig_create(uint32_t entry, uint32_t key);
void rig_pin(uint32_t entry);
void rig_unpin(uint32_t entry);
void rig_drop(uint32_t entry);
void rig_read(uint32_t entry);
void rig_stored(uint32_t entry);

/* Evict everything; the order must be @expected. */
void rig_expect(const uint32_t *expected, uint32_t n);

/* ---- as a cache ---- */

struct rig_cache {
	uint32_t n; /* entries */
	uint32_t used;
	uint64_t hits;
	uint32_t *entry; /* of a key, plus 1; 0: not there */
	uint32_t *key;   /* of an entry */
};

void rig_cache_init(struct rig_cache *cache, const char *text, uint32_t n);
void rig_cache_fini(struct rig_cache *cache);

/* A session with the one chunk @key. */
void rig_cache_use(struct rig_cache *cache, uint32_t key);

#endif
