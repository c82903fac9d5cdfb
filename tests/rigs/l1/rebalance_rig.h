/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <stdlib.h>

#include "clock.h"
#include "l1_rig.h"

/* Several chunk indexes on one pool that give each other memory. */

#define SLICE 512u

#define MAX_BANKS 4u

#define MAX_TAKEN 64u

extern struct scout__l1 l1;
extern struct scout__chunk_index *indexes[MAX_BANKS];
extern struct scout__extent *taken[MAX_TAKEN];
extern uint32_t n_taken;
SCOUT_STARTS_LOOP void start_with(const char *policy, uint64_t l1_bytes, uint64_t extent_bytes);
/* With lru. */
SCOUT_STARTS_LOOP void start(uint64_t l1_bytes, uint64_t extent_bytes);
SCOUT_ON_LOOP struct scout__chunk_index *add_index(uint64_t shard_bytes, uint32_t ranks);
SCOUT_ON_LOOP void check_all(void);

/* Take what has been grown. */
SCOUT_ON_LOOP void take_grown(void);
SCOUT_ON_LOOP void free_taken(void);

/* Steps until there is nothing to do. Returns the last result but IDLE. */
SCOUT_ON_LOOP enum scout__rebalance_result run_steps(uint32_t entries);

/* Store key @i with all its shards, whatever has to happen for it. False: there is no room. */
SCOUT_ON_LOOP bool store(struct scout__chunk_index *index, uint32_t i);
SCOUT_ON_LOOP void fill(struct scout__chunk_index *index, uint32_t first, uint32_t n);

/* Store @n new keys in each of @n_of indexes, one key in each by turns. */
SCOUT_ON_LOOP void fill_by_turns(struct scout__chunk_index *const *of, uint32_t n_of, uint32_t n);

/* A pool of @chunks chunks that the first chunk index fills with keys from 0 on. */
SCOUT_STARTS_LOOP struct scout__chunk_index *full_index(uint32_t chunks, uint32_t extent_chunks);
SCOUT_ON_LOOP uint32_t count_present(const struct scout__chunk_index *index, uint32_t first, uint32_t n);
SCOUT_ON_LOOP void stop(void);
