/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include <kvscout/protocol.h>

#include "latency.h"

struct scout__counters { /* monitor/stats.h lists what a new one needs */
	uint64_t frames_received, frames_sent, frames_dropped, frames_bad;
	uint64_t frames_received_shm, frames_sent_shm; /* of the frames above, through shared memory */
	uint64_t ops[SCOUT_OP_LAST + 1], ops_unknown, ops_expired, ops_refused;
	uint64_t refused[SCOUT_WIRE_LAST + 1];  /* the same as ops_refused, by status */
	uint64_t hints_likely, hints_unlikely;  /* sent with FINISH */
	uint64_t keeps[SCOUT_OUTCOME_LAST + 1]; /* keep_ms of FINISH, by outcome */
	uint64_t lookups_lost_chunks;           /* asked for and in the pool, but after a chunk that was not */
	uint64_t lookups_known_chunks;          /* asked for, and a hit or evicted lately */
	uint64_t lookups_asked_chunks, lookups_hit_chunks, lookups_limited, lookups_renewed;
	uint64_t
		lookups_kept_recent_chunks; /* of lookups ahead, beyond max_promised: made the newest of their queues */
	uint64_t lookups_full, lookups_partial, lookups_none; /* answered: all, some, nothing of what was asked for */
	uint64_t keys_hit, keys_miss, keys_later;             /* keys of KEYS, by answer */
	uint64_t replies_undone, out_of_memory;
	uint64_t bugs_mismatches, verify_mismatches;
	uint64_t clears;
	uint64_t connections_refused, curve_refused;
	uint64_t peers_joined, peers_left, peers_died, peers_forgotten, peers_dropped, leases_refused;
	uint64_t namespaces_reused;
	uint64_t loop_turns;
	uint64_t loop_steps;      /* run items, frames, and looks at what L2 has done */
	uint64_t loop_longest_us; /* the longest step */
	uint64_t loop_slow_steps; /* steps longer than SCOUT__STEP_US */
	/* From taking the frame of a LOOKUP to giving its answer to libzmq. */
	struct scout__latency lookup_time;
	/* How much longer a frame was on its way than the fastest frame of its peer. */
	struct scout__latency frame_wait;
};
