/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "chunked_queue.h"

struct scout__chunk_index;
struct scout__extent;

/*
 * The parts of a chunk index. Only the file that is named above a part writes it, and any file reads it. Loop thread.
 */

/* chunk_index_table.c */
struct scout__index_table {
	uint64_t *cells; /* tag << 32 | entry + 1; 0 = free */
	uint64_t mask;
};

/* chunk_index_slots.c */
struct scout__index_slots {
	uint32_t head;                    /* free list through entry link[0] */
	uint32_t n_free;                  /* fresh ones and those on the free list */
	uint32_t n_fresh;                 /* never used since their extent came */
	struct scout__extent *fresh_from; /* from where fresh ones are taken, NULL: to be found */
	uint32_t next_fresh;              /* slots from here on were never used at all */
	uint32_t n_bare;                  /* bare entries in use */
	uint32_t n_stranded;              /* of these, those whose extent failed */
};

/* chunk_index_extents.c */
struct scout__index_extents {
	struct scout__extent **by_slot; /* by their first slot */
	uint32_t *first;                /* first entry of each of them */
	struct scout__extent **by_age;  /* by segment id */
	uint32_t n, cap;
	uint32_t recent;               /* place in by_slot of the extent that was granted from last; or beyond n */
	uint32_t n_slots;              /* of all extents */
	struct scout__extent *leaving; /* is being taken out: no slot of it is granted */
	uint64_t accounted_bytes;      /* of the slots, that `l1_ns` counts */
};

/* chunk_index_growth.c */
struct scout__index_growth {
	uint32_t n;                    /* extents that were asked for and have not come */
	struct scout__extent *filling; /* the last of them, for bare entries; NULL: none is growing */
	uint32_t last_slots;           /* of the newest extent */
	uint32_t n_reserved;           /* entries that the orders have room for; cap_entries, unless memory was short */
	bool is_out;                   /* the pool allows no further extent, or the last one failed */
	uint64_t returns;              /* pool.returns when is_out was set */
	uint64_t again_us; /* an extent failed: time to try again, sooner when pool.returns moves; 0 = used up */
};

/* chunk_index_order.c */
struct scout__index_order {
	void *policy;                           /* the policy's state */
	struct scout__chunked_queues temporary; /* in queue 0, the first to go at its head */
	/* What the guarantee of its tenant keeps from eviction, in the queues that the policy had it in. */
	struct scout__chunked_queues set_aside;
	uint64_t set_aside_used; /* a bit for each queue that is not empty */
	uint32_t n_set_aside;    /* in all of them */
	uint32_t set_aside_turn; /* queue that is looked at next */
	uint64_t evictions;      /* its part of the l1's */
};

/* chunk_index_unneeded.c: objects that nothing needs */
struct scout__index_unneeded {
	struct scout__chunked_queues queues; /* those that the policy had them in */
	uint64_t used;                       /* a bit for each queue that is not empty */
	uint32_t n;                          /* in all of them */
	uint32_t low;                        /* the least of that in this period */
	uint32_t left;                       /* evictions until the period ends */
	uint32_t surplus;                    /* `low` of the period before: so many it could do without */
};

/* chunk_index_pins.c */
struct scout__index_pins {
	uint64_t promised_bytes; /* this chunk index's part of the l1's */
	uint64_t pinned_bytes;   /* likewise */
	uint64_t held_bytes;     /* of chunks that a running retrieve or store holds, each counted once */
};

/* chunk_index_l2.c */
struct scout__index_l2 {
	uint32_t n_saving; /* entries that are being written to L2, and not stuck */
};

/* rebalance_rule.c */
struct scout__index_member {
	struct scout__chunk_index *next; /* of all chunk indexes */
	uint64_t serial;                 /* names it */
	bool wants_extent;               /* waits for an extent of another chunk index */
};

/* rebalance.c */
struct scout__index_moves {
	uint32_t n_coming;     /* extents that were taken for it and that are not back in the pool */
	uint64_t coming_us;    /* when the last of them was taken */
	uint32_t n_going;      /* extents that were taken from it and that are not back in the pool */
	bool looked;           /* everything in it was pinned, in this round */
	uint64_t round_us;     /* start of this round of looking for a giver; 0: none */
	uint64_t ask_again_us; /* nothing was to be had: time to look again */
};
