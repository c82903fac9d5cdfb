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
 * keys. Each test is a process of its own (Check forks), so this is static.
 */

#define RIG_MAX_ENTRIES 4096u
#define RIG_MAX_KEYS (1u << 20)

static struct scout__entry rig_entries[RIG_MAX_ENTRIES];
static const struct scout__evict_ops *rig_ops;
static void *rig_state;
static uint64_t rig_random;

static inline void
rig_open(const char *text, uint32_t n)
{
	struct scout__evict_args args;
	char err[512];

	rig_ops = scout__evict_parse(text, &args, err, sizeof(err));
	ck_assert_msg(rig_ops != NULL, "%s", err);
	memset(rig_entries, 0, sizeof(rig_entries));
	ck_assert_int_eq(rig_ops->open(&rig_state, rig_entries, n, &args), 0);
}

static inline void
rig_close(void)
{
	rig_ops->close(rig_state);
}

static inline uint64_t
rig_draw(uint64_t below)
{
	uint64_t x;

	rig_random += UINT64_C(0x9e3779b97f4a7c15);
	x = rig_random;
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return (x ^ x >> 31) % below;
}

static inline void
rig_set_key(struct scout__entry *entry, uint32_t key)
{
	*entry = (struct scout__entry){.space = 1, .in_use = 1};
	memcpy(entry->hash, &key, sizeof(key));
}

static inline void
rig_create(uint32_t entry, uint32_t key)
{
	rig_set_key(&rig_entries[entry], key);
	rig_entries[entry].in_order = 1;
	rig_ops->insert(rig_state, entry, SCOUT__INSERT_CREATED);
}

static inline void
rig_pin(uint32_t entry)
{
	rig_ops->remove(rig_state, entry, SCOUT__REMOVE_PINNED);
	rig_entries[entry].in_order = 0;
}

static inline void
rig_unpin(uint32_t entry)
{
	rig_entries[entry].in_order = 1;
	rig_ops->insert(rig_state, entry, SCOUT__INSERT_UNPINNED);
}

static inline void
rig_drop(uint32_t entry)
{
	rig_ops->remove(rig_state, entry, SCOUT__REMOVE_GONE);
	rig_entries[entry].in_order = 0;
	rig_entries[entry].in_use = 0;
}

static inline void
rig_read(uint32_t entry)
{
	rig_ops->accessed(rig_state, entry, SCOUT__ACCESS_READ, 0);
}

static inline void
rig_stored(uint32_t entry, uint32_t depth)
{
	rig_ops->accessed(rig_state, entry, SCOUT__ACCESS_STORED, depth);
}

/* Evict everything; the order must be @expected. */
static inline void
rig_expect(const uint32_t *expected, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		rig_ops->check(rig_state, n - i);
		ck_assert_uint_eq(rig_ops->victim(rig_state), expected[i]);
		ck_assert_uint_eq(rig_ops->victim(rig_state), expected[i]);
		rig_drop(expected[i]);
	}
	rig_ops->check(rig_state, 0);
	ck_assert_uint_eq(rig_ops->victim(rig_state), SCOUT__NO_ENTRY);
}

/* ---- as a cache ---- */

struct rig_cache {
	uint32_t n; /* entries */
	uint32_t used;
	uint64_t hits;
	uint32_t *entry; /* of a key, plus 1; 0: not there */
	uint32_t *key;   /* of an entry */
};

static inline void
rig_cache_init(struct rig_cache *cache, const char *text, uint32_t n)
{
	*cache = (struct rig_cache){.n = n};
	cache->entry = calloc(RIG_MAX_KEYS, sizeof(*cache->entry));
	cache->key = calloc(n, sizeof(*cache->key));
	ck_assert(cache->entry && cache->key);
	rig_open(text, n);
}

static inline void
rig_cache_fini(struct rig_cache *cache)
{
	rig_ops->check(rig_state, cache->used);
	rig_close();
	free(cache->entry);
	free(cache->key);
}

/* A session with the one chunk @key, @depth deep. */
static inline void
rig_cache_use(struct rig_cache *cache, uint32_t key, uint32_t depth)
{
	uint32_t entry = cache->entry[key] - 1;

	if (cache->entry[key]) {
		cache->hits++;
		rig_pin(entry);
		rig_unpin(entry);
		rig_ops->accessed(rig_state, entry, SCOUT__ACCESS_READ, depth);
		return;
	}
	if (cache->used < cache->n) {
		entry = cache->used++;
	} else {
		entry = rig_ops->victim(rig_state);
		rig_drop(entry);
		cache->entry[cache->key[entry]] = 0;
	}
	rig_create(entry, key);
	cache->entry[key] = entry + 1;
	cache->key[entry] = key;
	rig_stored(entry, depth);
}

#endif
