/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "fault_rig.h"
#include "l2.h"

/* kvscoutd with its L2 on one store, a scheduler and a worker: what was stored, looked up and loaded is checked here. */

#define CHUNKS 16u /* of a prompt */
#define BLOCKS (CHUNKS * FAULT_BPC)
/* l2_timeout_ms and l2_lookup_timeout_ms where the store is to be missed, and where nothing is to be missed on a busy machine. */
#define SHORT "300"
#define LONG "10000"

/* f.more[10] and [11] are the test's. */
extern struct fault f;
extern struct fault_actor *sched, *worker;

/* @url stays the caller's, until the last start. */
void up(const char *url, const char *timeout_ms);
/* What starts next misses the store after @timeout_ms, and forgets soon what it could not load. */
void be_impatient(const char *timeout_ms);
/* Another start of the server: its pool is empty. */
void start_anew(void);
struct fault_hit lookup(uint32_t prompt);
void finish(void);
/* Look up and load; what is not named is right, and who insists gets all of the hit. Returns the chunks that came. */
uint32_t use(uint32_t prompt, bool insist);
void store(uint32_t prompt);
/* Stored, and in the store too. */
void store_through(uint32_t prompt);
/* In the pool: whatever the store does. */
void check_pool(uint32_t prompt);
/* A new start of the server, impatient, that has promised prompt 1, which the store has. */
struct fault_hit promise_impatiently(const char *timeout_ms);
/* The store was frozen after that promise: it does not come in time, reads are switched off, and the pool works. */
void check_frozen(const struct fault_hit *hit);
/* New prompts until one of them is in the store; then it is found by a server that knows nothing else. */
void check_healed(uint32_t prompt);
/* Its state becomes `failing` over these words; what the breakers and `ready` say agrees. */
void check_failing(const char *words);
void wait_at_least(const char *name, uint64_t value);
/*
 * A store that never said what was cleared last is neither asked nor written, so its breakers have nothing to open
 * over.
 */
void is_not_used(void);
