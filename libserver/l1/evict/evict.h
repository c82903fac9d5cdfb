/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvscout/error.h>

struct scout__entry;

/*
 * An eviction policy orders the unpinned entries of one chunk index. The chunk index tells it every change; a policy
 * never walks. Entries are named by their index; each has a node and a byte for the policy (struct scout__entry: node,
 * policy_bits), both zero when the entry is created. An entry leaves the order while it is pinned, and comes back as
 * UNPINNED; node and byte stay meanwhile. From CREATED to GONE it counts as alive; GONE comes once, and always out of
 * the order. Loop thread only.
 *
 * UNPINNED makes an entry the newest of its queue, whatever it was before. A store relies on that: to skip a session's
 * own chunk at the head, it takes the chunk out of the order and puts it back (find_victim() in chunk_index.c).
 *
 * A policy is a file with a struct scout__evict_ops; lru.c is the shortest. A new one is declared below, and
 * named in the list of evict.c, in meson.build, and in the text of the key `eviction` (server_config.c;
 * `./dev test` names the generated page to renew). Tests: a line in tests/unit/l1/meson.build, the text in test_l1_lru.c, the
 * list in test_server_oom.c; tests/rigs/l1/policy_rig.h drives a policy without a chunk index. chunked_queue.h has orders that
 * grow at their end only.
 */

enum scout__insert {
	SCOUT__INSERT_CREATED = 1, /* first time readable */
	SCOUT__INSERT_UNPINNED = 2 /* was pinned meanwhile: a promise or hold just fell */
};

enum scout__remove {
	SCOUT__REMOVE_PINNED = 1, /* pinned: it will be back */
	SCOUT__REMOVE_GONE = 2    /* evicted or dropped; its key is still in the entry */
};

enum scout__access {
	SCOUT__ACCESS_READ = 1,  /* a session looked it up and is over */
	SCOUT__ACCESS_STORED = 2 /* a session stored it itself: recent, not reused */
};

#define SCOUT__KINDS 4u
#define SCOUT__HINTS 2u

/* The touch of a chunk by a session that is over. */
struct scout__touch {
	enum scout__access how;
	uint32_t kind;   /* kind of the session's request: scout__touch_kind() */
	uint32_t hinted; /* 1: the session's caller expects that nothing continues the request; else 0 */
	/*
	 * Set by the policy, 0 at first: the most touches of a chunk that the session has touched until now. Chunks are
	 * touched from the last to the first, so these are chunks after the next one, which counts as touched as often.
	 */
	uint32_t behind; /* at most 255 */
};

/*
 * The kind of a request by its new tokens: those after the leading run that was in the pool, in L2, or was evicted
 * lately. A short question, a turn of a conversation, a document, a repository: 3, 16 and 64 blocks of 512 tokens.
 */
static inline uint32_t
scout__touch_kind(uint64_t new_tokens)
{
	return (new_tokens >= 1536) + (new_tokens >= 8192) + (new_tokens >= 32768);
}

/* How right hints were, of the keys that a policy follows. */
struct scout__hint_counts {
	uint64_t returned; /* touched again after all */
	uint64_t gone;     /* not touched for so long that they count as gone */
};

/* What follows the name of a policy. */
struct scout__evict_args {
	uint32_t share; /* of the queue for chunks not used again yet, in percent of the entries */
};

struct scout__evict_ops {
	const char *name;
	const char *usage; /* name and arguments, for messages */
	uint32_t n_args;   /* how many of struct scout__evict_args it takes */
	struct scout__evict_args defaults;
	/* For a chunk index that will have @max_entries at most, and has none yet. Returns 0 or SCOUT_ERR_NOMEM. */
	int (*open)(void **ret_state, uint32_t max_entries, const struct scout__evict_args *args);
	/*
	 * The chunk index's array is @entries from now on, and has @n of them, no fewer than before. Returns 0, or
	 * SCOUT_ERR_NOMEM: then the policy has room for as many as before, in @entries too.
	 */
	int (*reserve)(void *state, struct scout__entry *entries, uint32_t n);
	void (*close)(void *state);
	/* NULL, or: a chunk is stored, and CREATED will come when it is readable. Prefetch for that; change nothing. */
	void (*expect)(const void *state, uint32_t entry);
	void (*insert)(void *state, uint32_t entry, enum scout__insert why);
	void (*remove)(void *state, uint32_t entry, enum scout__remove why);
	/* Only for entries that are in the order. */
	void (*accessed)(void *state, uint32_t entry, struct scout__touch *touch);
	/* NULL, or: a lookup asks for @n chunks. */
	void (*asked)(void *state, uint32_t n);
	/* NULL, or: the chunk index has @slots from now on, 1 to max_entries. */
	void (*resized)(void *state, uint32_t slots);
	/* NULL, or: add what was counted since the last call. */
	void (*count_hints)(void *state, struct scout__hint_counts *counts);
	/* NULL, or: was this key, SCOUT_MAX_HASH bytes, zero-padded, evicted lately? */
	bool (*remembers)(const void *state, uint32_t space, const uint8_t *hash);
	/* The entry to evict next; it stays in the order. SCOUT__NO_ENTRY when the order is empty. */
	uint32_t (*victim)(void *state);
	/* An entry that will probably be evicted soon, to prefetch for that; or SCOUT__NO_ENTRY. Changes nothing. */
	uint32_t (*soon)(const void *state);
	/* Debug and tests: abort unless the order is sound and has exactly @n entries. */
	void (*check)(void *state, uint32_t n);
	/* Bytes of the state, with @n entries. */
	uint64_t (*state_bytes)(const void *state, uint32_t n);
};

extern const struct scout__evict_ops scout__evict_hdc;
extern const struct scout__evict_ops scout__evict_lru;
extern const struct scout__evict_ops scout__evict_s3fifo;

/*
 * A policy from its text: "hdc", "lru", "s3fifo:10". NULL when there is none; @err then lists all. @ret_args has
 * defaults if there is no number.
 */
const struct scout__evict_ops *scout__evict_parse(const char *text, struct scout__evict_args *ret_args, char *err,
						  size_t err_len);
