/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "list.h"
#include "msg.h"
#include "pending_op.h"

struct scout__ask;
struct scout__group_walk;
struct scout__lookup_op;
struct scout__ns_group;
struct scout__session;

/* A LOOKUP or KEYS that is not answered yet. It is in this room because questions to L2 (l2_lookup.c) read and move it. */

/* One object that a LOOKUP may need, and may ask L2 for. */
struct scout__object {
	struct scout__ns_group *group;
	const uint8_t *hash;
	uint32_t space;
	bool is_asked_for; /* false: known to be there, or not needed */
};

/* What the walk over a run (lookup.c) waits for. */
enum scout__lookup_wait {
	SCOUT__LOOKUP_WAITS_TO_RUN = 0,
	SCOUT__LOOKUP_WAITS_FOR_LOADS, /* the walk is over, loads arrive */
	SCOUT__LOOKUP_WAITS_TO_ANSWER
};

struct scout__lookup_op {
	struct scout__pending_op op;
	struct scout__session *session; /* its own. Never NULL while the pending operation lives */
	const uint8_t *hashes;
	struct scout__str tenant;
	uint32_t n, skip, expect;
	uint8_t state;    /* enum scout__lookup_wait */
	bool renews;      /* a session that was answered before */
	bool ahead;       /* goes on after what is not there */
	bool loads;       /* what L2 has begins to load as soon as it is promised */
	uint32_t limited; /* 1: by max_promised */
	uint64_t poll_end_us;
	uint64_t poll_interval_us;

	/* ---- its questions to L2 ---- */

	/* Its object @number, as a question counts them. */
	struct scout__object (*object)(const struct scout__lookup_op *pending, uint32_t number);
	struct scout__ask *ask;
	uint64_t poll_next_us; /* when L2 is asked again */
	uint32_t n_rounds;     /* questions so far */

	/* ---- several groups ---- */

	struct scout__group_walk *walk; /* see lookup_groups.c; NULL: one group, whose hit is a run */

	/* ---- one group (lookup.c) ---- */

	struct scout__ns_group *group;
	uint32_t space;
	uint32_t next;
	uint32_t first;          /* chunk that the walk begins with, after all that is skipped or promised already */
	uint32_t keep_recent_to; /* ahead, limited: chunks before this one are yet to be renewed; 0: not so */
	uint32_t first_hole;     /* ahead: the first chunk that is not there; UINT32_MAX: none yet */
	uint8_t *present;        /* ahead: a bit for each chunk that is there, then one for each that is in no pool */
	uint32_t l2;             /* chunks of the hit that were not in the pool */
	uint8_t *from_l2;        /* a bit for each chunk, while loads come before the answer */
	uint32_t load_next;      /* earlier chunks have arrived */
	uint64_t wait_end_us;    /* when the wait for loads ends */
};
