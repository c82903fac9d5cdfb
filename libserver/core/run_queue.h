/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "list.h"
#include "thread.h"

struct scout_server;

/* Work in steps, and timers (run_queue.c). */

/* Polls of one peer that are due. Initialise both. */
struct scout__run_lane {
	struct scout__list node;  /* in server.lanes */
	struct scout__list items; /* run items */
};

#define SCOUT__SLICE_CHUNKS 512u   /* chunks that one step may touch */
#define SCOUT__INLINE_CHUNKS 4096u /* chunks that the operations of one turn may touch before they have to queue */
#define SCOUT__TURN_US 300u        /* after this long, answers go out before anything else is read or run */
#define SCOUT__POLLS_US 100u       /* for polls, in one turn */

/* Work that is done in steps. */
struct scout__run_item {
	struct scout__list node; /* in the run queue, if queued */
	void (*step)(struct scout_server *s, struct scout__run_item *item);
	bool queued;
	struct scout__run_lane *lane; /* where its timer queues it; NULL: in the run queue */
	uint64_t wake_us;             /* when its timer is due */
	size_t heap_pos;              /* 0: it has no timer */
};

SCOUT_ON_LOOP void scout__run_queue_add(struct scout_server *s, struct scout__run_item *item);
SCOUT_ON_LOOP void scout__run_queue_remove(struct scout__run_item *item);
/* One round of the run queue, or as much as fits into SCOUT__TURN_US; then polls for SCOUT__POLLS_US, at least one. */
SCOUT_ON_LOOP void scout__run_queue_run(struct scout_server *s);
SCOUT_ON_LOOP bool scout__run_queue_empty(const struct scout_server *s);
/* Whether a run item waits in the run queue, besides the one that runs now. */
SCOUT_ON_LOOP bool scout__run_queue_wait(const struct scout_server *s);
/* Run the step now if this turn may touch @chunks more, else queue it. */
SCOUT_ON_LOOP void scout__run_queue_start(struct scout_server *s, struct scout__run_item *item, uint32_t chunks);
/* Queue @item at @wake_us, or earlier if memory is short. UINT64_MAX: no timer. */
SCOUT_ON_LOOP void scout__timer_set(struct scout_server *s, struct scout__run_item *item, uint64_t wake_us);
/* The same for a look at something that may not have happened: it is queued in @lane. */
SCOUT_ON_LOOP void scout__timer_set_poll(struct scout_server *s, struct scout__run_item *item,
					 struct scout__run_lane *lane, uint64_t wake_us);
SCOUT_ON_LOOP void scout__timer_clear(struct scout_server *s, struct scout__run_item *item);
SCOUT_ON_LOOP uint64_t scout__timers_next(const struct scout_server *s);
SCOUT_ON_LOOP void scout__timers_run(struct scout_server *s);
