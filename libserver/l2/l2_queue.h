/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "doorbell.h"
#include "l2.h"
#include "ring.h"

/*
 * Operations on their way from the server's loop to an adapter's threads. The loop is the only producer and takes no
 * lock: a push is a ring store and, at most, one wake. A mutex that the loop never touches serialises the consumers.
 * First in, first out.
 *
 * Two kinds, by their consumers:
 *
 *   pool      several threads that have nothing else to wait for; each sleeps in scout__l2_queue_wait(). A push wakes one of them.
 *   pollable  one thread that waits for sockets too. It has the bell's `fd` in its poll set, and sleeps like this:
 *
 *                 while ((op = scout__l2_queue_try(queue))) take(op);
 *                 if (scout__l2_queue_sleep(queue)) poll(fds, n, timeout);   (false: something came, go round again)
 *                 scout__l2_queue_woke(queue);
 *
 *             A push writes to the eventfd only if the thread said that it is about to sleep.
 *
 * After a close, what is still in the queue comes out before the NULL that means the end: the adapter completes these
 * operations as CANCELLED.
 */
struct scout__l2_queue {
	struct scout__ring ring;
	pthread_mutex_t mu;          /* consumers: popping */
	sem_t ready;                 /* pool: one for each operation in the ring, and one more after the close */
	struct scout__doorbell bell; /* pollable; else its fd is -1 */
	atomic_bool closed;
};

/* Room for @max_ops operations at least. Returns 0, SCOUT_ERR_NOMEM or SCOUT_ERR_SYSTEM. */
SCOUT_ON_ANY int scout__l2_queue_init(struct scout__l2_queue *queue, uint32_t max_ops, bool pollable);
/* No thread may use the queue any more. */
SCOUT_ON_ANY void scout__l2_queue_fini(struct scout__l2_queue *queue);

/* The producer. False when full or closed. An adapter's submit, which l2_submit calls on the loop, is the one caller. */
SCOUT_ON_LOOP bool scout__l2_queue_push(struct scout__l2_queue *queue, struct scout__l2_op *op);
/* No pushes from now on; wakes every consumer. Any thread; the pushing thread must not push at the same time. */
SCOUT_ON_ANY void scout__l2_queue_close(struct scout__l2_queue *queue);

/* Consumers, both kinds: the next operation, or NULL at once. */
SCOUT_ON_ANY struct scout__l2_op *scout__l2_queue_try(struct scout__l2_queue *queue);
/* Pool: the next operation, however long that takes; NULL when the queue is closed and empty. */
SCOUT_ON_ANY struct scout__l2_op *scout__l2_queue_wait(struct scout__l2_queue *queue);
/* Pollable: see above. False: do not sleep, there is something or the queue is closed. */
SCOUT_ON_ANY bool scout__l2_queue_sleep(struct scout__l2_queue *queue);
SCOUT_ON_ANY void scout__l2_queue_woke(struct scout__l2_queue *queue);

static inline bool
scout__l2_queue_is_closed(const struct scout__l2_queue *queue)
{
	return atomic_load_explicit(&queue->closed, memory_order_acquire);
}
