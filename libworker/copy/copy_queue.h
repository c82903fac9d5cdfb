/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "copy.h"
#include "doorbell.h"
#include "thread.h"

/*
 * Hands batches from the courier to the thread of a copy engine, and ended batches back; each side can wake the
 * other. See the DESIGN comment of copy_queue.c.
 */

/* The thread's role: declared only, see thread.h. */
extern struct scout__role scout__copy_role;
#define SCOUT_ON_COPY_THREAD SCOUT_TSA(requires_capability(scout__copy_role))

static inline void
scout__enter_copy_thread(void) SCOUT_TSA(assert_capability(scout__copy_role))
{
}

/* One producer, one consumer. */
struct scout__copy_ring {
	struct scout__copy_batch **slots; /* n + 1; the producer's until tail passes it, then the consumer's */
	uint32_t size;                    /* const after init */
	atomic_uint head;                 /* atomic: next to pop; written by the consumer */
	atomic_uint tail;                 /* atomic: next to push; written by the producer */
};

struct scout__copy_queue {
	uint32_t max_batches;          /* const after init */
	uint32_t in_flight;            /* courier: started, not yet polled */
	struct scout__copy_ring todo;  /* courier -> copy thread */
	struct scout__copy_ring ended; /* copy thread -> courier */
	struct scout__doorbell wake;   /* the copy thread sleeps on this bell */
	struct scout__doorbell over;   /* the courier stays parked: its fd is readable while `ended` has something */
	atomic_bool stop;              /* atomic: set once by close */
};

/* Returns 0, SCOUT_ERR_NOMEM or SCOUT_ERR_SYSTEM, with a sentence in @err. */
int scout__copy_queue_init(struct scout__copy_queue *q, uint32_t max_batches, char *err, size_t err_len);
void scout__copy_queue_fini(struct scout__copy_queue *q);

/* Hand a batch to the thread; its results are zeroed. Returns 0 or SCOUT_ERR_BUSY. */
int scout__copy_queue_start(struct scout__copy_queue *q, struct scout__copy_batch *batch) SCOUT_ON_COURIER;
/* The next ended batch or NULL, as in struct scout__copy_ops. */
struct scout__copy_batch *scout__copy_queue_poll(struct scout__copy_queue *q) SCOUT_ON_COURIER;

/* Make the fd of `over` readable once though no batch has ended: the courier should try again to start one. */
void scout__copy_queue_nudge(struct scout__copy_queue *q) SCOUT_ON_ANY;
/* Tell the thread to end. */
void scout__copy_queue_stop(struct scout__copy_queue *q) SCOUT_ON_ANY;

static inline bool
scout__copy_queue_stopped(struct scout__copy_queue *q)
{
	return atomic_load(&q->stop);
}

/* The next batch to copy, or NULL. Copy thread; after its end the thread that joined it. */
struct scout__copy_batch *scout__copy_queue_next(struct scout__copy_queue *q) SCOUT_ON_COPY_THREAD;
void scout__copy_queue_report(struct scout__copy_queue *q, struct scout__copy_batch *batch) SCOUT_ON_COPY_THREAD;
/* Sleep until there may be something to do, or @timeout_ns are over (negative: no limit). */
void scout__copy_queue_park(struct scout__copy_queue *q, int64_t timeout_ns) SCOUT_ON_COPY_THREAD;
