/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "l1_rig.h"

/* One chunk index on a pool of its own, with keys named by numbers. */

#define SLOT UINT64_C(64)
#define LARGE_SLOT (UINT64_C(256) << 10) /* for extents that a limit can tell from Check's files */

extern struct scout__l1 l1;
extern struct scout__chunk_index *cache;
extern uint32_t n_ranks;

/* Both enter the loop. A pool of exactly @chunks chunks in extents of @extent, promises for at most @promised of them. */
SCOUT_STARTS_LOOP void start_slots(uint64_t slot, uint32_t ranks, uint32_t readers, uint32_t chunks, uint32_t extent,
				   uint32_t promised);
SCOUT_STARTS_LOOP void start(uint32_t ranks, uint32_t readers, uint32_t chunks, uint32_t extent, uint32_t promised);
SCOUT_ON_LOOP void stop(void);
SCOUT_ON_LOOP enum scout__reserve reserve(uint32_t i, uint32_t rank, uint32_t *ret_entry);

/* Store all shards of key @i. */
SCOUT_ON_LOOP uint32_t store(uint32_t i);
SCOUT_ON_LOOP uint32_t find(uint32_t i);
SCOUT_ON_LOOP uint64_t word(uint32_t entry, uint32_t rank);
