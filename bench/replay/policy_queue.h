/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "chunk_index.h"
#include "policy_load.h"

/*
 * The scheduler's queue in front of policy_sim: always the same number of requests wait, in the order of the trace, and
 * each is looked up ahead once, when it begins to wait. So a request is known that many requests before it is served, and
 * nothing behind the queue ever is. Main thread.
 */

enum policy_ahead {
	POLICY_AHEAD_NONE = 0, /* they are not looked up */
	POLICY_AHEAD_PROMISE,  /* what is there is promised, within max_promised */
	POLICY_AHEAD_TOUCH     /* and what is behind that limit is renewed */
};

struct policy_waiting {
	uint32_t *entries; /* promised */
	uint32_t n;
};

struct policy_queue {
	const struct policy_load *load;
	struct scout__chunk_index *index;
	struct policy_waiting *waiting; /* [request % length] */
	uint8_t *hashes;                /* of the longest request */
	uint32_t *found;
	uint64_t length, entered; /* requests before this one wait, or have been served */
	uint64_t promised, max_promised;
	enum policy_ahead ahead;
};

/* @length 0: no request waits. @max_promised: chunks. Ends the process without memory. */
void policy_queue_init(struct policy_queue *queue, const struct policy_load *load, struct scout__chunk_index *index,
		       uint64_t length, uint64_t max_promised, enum policy_ahead ahead);
void policy_queue_fini(struct policy_queue *queue);
/* Request @i is about to be served: it gives back what it was promised, and others begin to wait. */
SCOUT_ON_LOOP void policy_queue_serve(struct policy_queue *queue, uint64_t i);
