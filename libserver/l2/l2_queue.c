/* SPDX-License-Identifier: Apache-2.0 */
#include "l2_queue.h"

#include <errno.h>

/*
 * DESIGN
 *
 * Purpose: see l2_queue.h.
 *
 * The pool kind counts what is in the ring by a semaphore: a post is an atomic addition, with a system call only if a
 * thread sleeps, and wakes exactly one. An eventfd would wake all that poll it.
 *
 * The pollable kind has a doorbell (doorbell.h).
 *
 * Rejected: a mutex and a condition variable. The loop would wait for a consumer that was preempted inside the lock.
 *
 * Threads: the loop pushes, threads of the adapter pop.
 */

int
scout__l2_queue_init(struct scout__l2_queue *queue, uint32_t max_ops, bool pollable)
{
	*queue = (struct scout__l2_queue){.bell.fd = -1};
	if (scout__ring_init(&queue->ring, max_ops) != 0)
		return SCOUT_ERR_NOMEM;
	if (pollable && !scout__doorbell_open(&queue->bell))
		goto err_free_ring;
	if (pthread_mutex_init(&queue->mu, NULL) != 0)
		goto err_close_fd;
	SCOUT_ASSERT(sem_init(&queue->ready, 0, 0) == 0); /* fails only for values out of range */
	return 0;

err_close_fd:
	scout__doorbell_close(&queue->bell);
err_free_ring:
	scout__ring_fini(&queue->ring);
	return SCOUT_ERR_SYSTEM;
}

void
scout__l2_queue_fini(struct scout__l2_queue *queue)
{
	(void)sem_destroy(&queue->ready);
	(void)pthread_mutex_destroy(&queue->mu);
	scout__doorbell_close(&queue->bell);
	scout__ring_fini(&queue->ring);
}

static void
wake(struct scout__l2_queue *queue)
{
	if (queue->bell.fd >= 0)
		(void)scout__doorbell_ring(&queue->bell);
	else
		/* A post fails only when the count overflows, beyond any ring's room. */
		SCOUT_ASSERT(sem_post(&queue->ready) == 0);
}

bool
scout__l2_queue_push(struct scout__l2_queue *queue, struct scout__l2_op *op)
{
	if (scout__l2_queue_is_closed(queue) || !scout__ring_push(&queue->ring, (uint64_t)(uintptr_t)op))
		return false;
	wake(queue);
	return true;
}

void
scout__l2_queue_close(struct scout__l2_queue *queue)
{
	if (!atomic_exchange_explicit(&queue->closed, true, memory_order_acq_rel))
		wake(queue);
}

static struct scout__l2_op *
pop(struct scout__l2_queue *queue)
{
	uint64_t word;

	(void)pthread_mutex_lock(&queue->mu);
	word = scout__ring_pop(&queue->ring);
	(void)pthread_mutex_unlock(&queue->mu);
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): pushed as a pointer */
	return (struct scout__l2_op *)(uintptr_t)word;
}

/* The operation for the semaphore's count that was taken. The count that a close posted goes on to the next thread. */
static struct scout__l2_op *
take(struct scout__l2_queue *queue)
{
	struct scout__l2_op *op = pop(queue);

	if (!op)
		SCOUT_ASSERT(sem_post(&queue->ready) == 0);
	return op;
}

struct scout__l2_op *
scout__l2_queue_try(struct scout__l2_queue *queue)
{
	if (queue->bell.fd >= 0)
		return pop(queue);
	while (sem_trywait(&queue->ready) != 0) {
		if (errno != EINTR)
			return NULL;
	}
	return take(queue);
}

struct scout__l2_op *
scout__l2_queue_wait(struct scout__l2_queue *queue)
{
	SCOUT_ASSERT(queue->bell.fd < 0);
	while (sem_wait(&queue->ready) != 0)
		SCOUT_ASSERT(errno == EINTR);
	return take(queue);
}

bool
scout__l2_queue_sleep(struct scout__l2_queue *queue)
{
	SCOUT_ASSERT(queue->bell.fd >= 0);
	scout__park(&queue->bell.parked);
	return scout__ring_empty(&queue->ring) && !scout__l2_queue_is_closed(queue);
}

void
scout__l2_queue_woke(struct scout__l2_queue *queue)
{
	scout__awake(&queue->bell.parked);
	(void)scout__eventfd_lower(queue->bell.fd); /* not raised: the timeout or a socket woke us */
}
