/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "chunk_index.h"
#include "policy_load.h"

/*
 * Keeps in front of policy_sim: a request of a trace whose next turn comes POLICY_KEEP_MIN_MS to POLICY_KEEP_MAX_MS later, as
 * after a tool call, keeps its blocks until that time, as far as the blocks that may be kept allow. Main thread.
 */

#define POLICY_KEEP_MIN_MS 1000
#define POLICY_KEEP_MAX_MS 60000

struct policy_keep;

/* NULL: @most, blocks that may be kept, is 0. Ends the process without memory. */
struct policy_keep *policy_keep_new(const struct policy_load *load, struct scout__chunk_index *index, uint64_t most);
void policy_keep_free(struct policy_keep *keep);
/* The request @i begins: keeps whose time is over end. */
SCOUT_ON_LOOP void policy_keep_begin(struct policy_keep *keep, size_t i);
/* It ends, with these hashes: it takes over the keep of the turn before it, and keeps what it has. */
SCOUT_ON_LOOP void policy_keep_end(struct policy_keep *keep, size_t i, const uint8_t *hashes, uint32_t n);
