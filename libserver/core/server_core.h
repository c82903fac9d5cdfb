/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvscout/server.h>

#include "clock.h"
#include "counters.h"
#include "log.h"
#include "run_queue.h"
#include "thread.h"
#include "watch.h"

struct scout__fetch;
struct scout__metrics;
struct scout__state;
struct scout__stats;
struct scout__transport;

/*
 * What all rooms of the cache server share. One loop thread owns all of it, so nothing here has a lock; start and stop
 * touch it only before the thread exists and after it is joined. Fields are the loop's unless they say otherwise.
 *
 * Long work is done in slices by run items. A run item is in the run queue or it is not; its step does at most
 * SCOUT__SLICE_CHUNKS chunks and queues itself again while anything is left. Pending operations, ended sessions, ended
 * holds, leaving peers and the sweep of a namespace are run items. An ended object is unreachable at once (no map names
 * it); only giving back what it held takes several turns.
 */

#define SCOUT__SETTABLE 3u  /* keys that scout_server_set() takes */
#define SCOUT__STEP_US 200u /* no step and no handler is to take longer */
#define SCOUT__LOG_INTERVAL_US 1000000u
#define SCOUT__WARN_INTERVAL_US 10000000u /* for warnings of what lasts until an operator mends it */
#define SCOUT__LOG_BURST 31u              /* further lines in each SCOUT__LOG_INTERVAL_US, for peers that come and go */

struct scout_server {
	struct scout_server_config cfg; /* const after start */
	struct scout__log log;          /* const after start */
	struct scout__log_gate log_gate;
	uint64_t epoch;    /* const after start */
	uint64_t seed;     /* const after start: for hashes of what peers choose */
	uint64_t start_us; /* const after start */
	char *endpoint;    /* const after start */
	pthread_t thread;
	pid_t pid; /* const after start: the process that has the thread */

	uint64_t now_us;
	bool draining;
	uint64_t drain_end_us;
	int epoll_fd;
	struct scout__watch stop, timer, told;
	_Atomic(char *) set[SCOUT__SETTABLE]; /* any thread: new values for the loop, see server_set.c */
	int ended_fd;                         /* const after start: an eventfd, raised when the loop has ended */
	uint64_t idle_since_us;               /* when the last peer left, or the start; 0: there are peers */
	uint64_t timer_us;                    /* what the timer is set to; UINT64_MAX: off */
	uint32_t inline_left;                 /* chunks, this turn */
	struct scout__list queue;             /* of run items */
	struct scout__list lanes;             /* of peers with polls that are due */
	struct scout__run_item turn_mark;     /* no run item: after the last item of the turn that runs */
	struct scout__run_item **heap;        /* [1 .. heap_n], by wake_us */
	size_t heap_n, heap_cap;
	struct scout__log_limit limit_refused, limit_full, limit_mismatch, limit_bad, limit_memory, limit_undo,
		limit_conns, limit_curve, limit_lease, limit_shm, limit_bug, limit_names, limit_secret, limit_rights;
	struct scout__log_limit limit_join, limit_leave, limit_died, limit_ns, limit_clear; /* with SCOUT__LOG_BURST */
	struct scout__counters count;

	/* One for each room; only that room and those above know its fields. Const after start. */
	struct scout__transport *transport;
	struct scout__state *state;
	struct scout__fetch *fetch;     /* NULL: there is no L2 */
	struct scout__stats *stats;     /* room for STATUS */
	struct scout__metrics *metrics; /* NULL: there is no HTTP endpoint */

	bool hangs; /* a thread of L2 did not end and may still use this structure, so it is not freed */
	struct scout_server *next_hanging;
};

/* A step that began at @before_us is over: look at the clock, and remember how long it took. */
static inline void
scout__note_step(struct scout_server *s, uint64_t before_us)
{
	uint64_t took_us;

	s->now_us = scout__now_us();
	took_us = s->now_us - before_us;
	s->count.loop_steps++;
	if (took_us > s->count.loop_longest_us)
		s->count.loop_longest_us = took_us;
	s->count.loop_slow_steps += took_us > SCOUT__STEP_US;
}
