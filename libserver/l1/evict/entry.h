/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include <kvscout/protocol.h>

/*
 * What the chunk index notes of one chunk, and the part of it that belongs to the eviction policy: `node` and
 * `policy_bits`. A policy reads the key and `in_order`, and nothing else. Entries are named by their numbers.
 * Loop thread.
 */

#define SCOUT__NO_ENTRY UINT32_MAX

#define SCOUT__STAMP_BITS 23
#define SCOUT__STAMP_MASK ((1u << SCOUT__STAMP_BITS) - 1)

/* Where an element of chunked_queue.h is, and what the policies that have several queues note. */
struct scout__node {
	uint32_t at;                        /* slot */
	uint32_t stamp : SCOUT__STAMP_BITS; /* when it was put where it is */
	uint32_t queue : 6;                 /* in which list */
	uint32_t level : 3;                 /* in how small a sample of all keys this one is */
};

struct scout__entry {
	uint8_t hash[SCOUT_MAX_HASH]; /* zero-padded */
	uint32_t space;
	uint32_t gen; /* bumped whenever the entry is created or dropped: handles name (entry, gen) */
	union {
		struct scout__node node; /* the policy's */
		uint32_t link[2];        /* the free list, while it is not in use */
	};
	uint32_t ahead : 30;    /* the entry of a later chunk, plus 1; 0: not known. See scout__index_follows() */
	uint32_t unneeded : 1;  /* evicted before what the policy orders, see scout__index_unneeded() */
	uint32_t set_aside : 1; /* out of the policy's order, see scout__order_set_aside() */
	uint32_t promises;
	uint16_t holds;
	uint8_t readable; /* ranks that are READABLE */
	uint8_t policy_bits;
	uint8_t expected; /* ranks that are EXPECTED, or LOADING in time */
	uint8_t saving;   /* shards that are being written to L2 */
	uint8_t in_use : 1;
	uint8_t in_order : 1;  /* in the policy's order, in the temporary ones' order, or set aside */
	uint8_t stored : 1;    /* SCOUT__INSERT_CREATED was told */
	uint8_t spoiled : 1;   /* its bytes cannot be trusted: no hit, and dropped with the last pin */
	uint8_t is_free : 1;   /* on the free list */
	uint8_t temporary : 1; /* loaded, and to be dropped when its readers are done */
	uint8_t tracked : 1;   /* the chunk index's owner is told when nothing pins it any more */
	uint8_t stuck : 1;     /* its writing takes too long: stores do not wait for the slot */
	uint8_t bare : 1;      /* its slot has no memory yet; spoiled too: nor will it get any */
	uint8_t described : 1; /* chunk_index.descriptions has what its STORE said of it */
	uint8_t unsaved : 1;   /* a shard of it was not written to L2 */
	uint8_t owed : 5; /* shards that no store has and that wait for L2 without the slot; SCOUT__OWED_MAX: for ever */
};

#define SCOUT__OWED_MAX 31u

_Static_assert(sizeof(struct scout__entry) == 64, "one cache line");
