/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_L1_EVICT_H
#define SCOUT_L1_EVICT_H

#include <stdint.h>

#include <kvscout/error.h>

struct scout__entry;

#define SCOUT__NO_ENTRY UINT32_MAX

/*
 * An eviction policy orders the entries of one bank that nothing pins. It is told of every change; it never walks.
 * Entries are named by their index; each has two words and a byte for the policy (struct scout__entry: link,
 * policy_bits). Loop thread only.
 */
enum scout__insert {
	SCOUT__INSERT_CREATED = 1, /* first time readable */
	SCOUT__INSERT_UNPINNED = 2 /* was pinned meanwhile: a promise or hold just fell */
};

enum scout__access {
	SCOUT__ACCESS_READ = 1,  /* a session looked it up and is over */
	SCOUT__ACCESS_STORED = 2 /* a session stored it itself: recent, not reused */
};

struct scout__evict_ops {
	const char *name;
	/* @entries is the bank's array, fixed for its life. Returns 0 or SCOUT_ERR_NOMEM. */
	int (*open)(void **ret_state, struct scout__entry *entries, uint32_t max_entries);
	void (*close)(void *state);
	void (*insert)(void *state, uint32_t entry, enum scout__insert why);
	/* It was pinned or evicted: it leaves the order. */
	void (*remove)(void *state, uint32_t entry);
	/* Only for entries that are in the order. */
	void (*accessed)(void *state, uint32_t entry, enum scout__access how);
	/* The last reader of a shard is done (retrieve). Only told, the order need not change. */
	void (*read_finished)(void *state, uint32_t entry);
	/* The entry to go next; stays in the order. SCOUT__NO_ENTRY when the order is empty. */
	uint32_t (*victim)(void *state);
	/* Debug and tests: abort unless the order is sound and has exactly @n entries. */
	void (*check)(void *state, uint32_t n);
};

extern const struct scout__evict_ops scout__evict_lru;

/* By name ("lru"); NULL when there is none. */
const struct scout__evict_ops *scout__evict_find(const char *name);

#endif
