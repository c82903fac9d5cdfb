/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: how the courier and the thread of a copy engine hand batches to each other.
 *
 * Batches go to the thread through one ring and come back through another. Both rings have room for max_batches, and
 * start() counts the batches in flight, so no push can fail and nothing is allocated after init.
 *
 * Each side has a doorbell (doorbell.h). The copy thread parks when it has nothing to copy.
 *
 * The courier stays parked; the event loop of its caller watches the fd of `over`. A poll() that finds the ring empty lowers the
 * bell and looks again. Three cases:
 *   - The bell was not raised: the thread has taken the word and is about to write. The word stays taken; the descriptor is then
 *     readable once without a batch, and the next poll() lowers it. Parking here would leave a readable descriptor that no
 *     poll() lowers: a caller's event loop would spin.
 *   - A batch was pushed before the courier parked again: the thread did not ring, but the second look finds the batch. If there
 *     are more batches after it, poll() rings the bell itself.
 *   - A batch was pushed after that: the thread rings.
 * So the descriptor is readable while the ring has something, and at rest it is not. A poll() with nothing to do
 * makes no system call.
 *
 * The copied bytes are written before the push (release), and poll() pops after that (acquire).
 *
 * Rejected: concurrencykit's ring, as everywhere else here. The copy engine is also built on bare GPU machines, which
 * have a compiler and the CUDA toolkit and nothing else; one producer and one consumer need two indices.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>

#include "log.h"
#include "copy_queue.h"

/* ---- rings ---- */

static int
ring_init(struct scout__copy_ring *ring, uint32_t n)
{
	ring->slots = calloc((size_t)n + 1, sizeof(struct scout__copy_batch *));
	ring->size = n + 1;
	return ring->slots ? 0 : SCOUT_ERR_NOMEM;
}

static void
push(struct scout__copy_ring *ring, struct scout__copy_batch *batch)
{
	uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
	uint32_t next = tail + 1 == ring->size ? 0 : tail + 1;

	SCOUT_ASSERT(next != atomic_load_explicit(&ring->head, memory_order_acquire));
	ring->slots[tail] = batch;
	atomic_store_explicit(&ring->tail, next, memory_order_release);
}

static struct scout__copy_batch *
pop(struct scout__copy_ring *ring)
{
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	struct scout__copy_batch *batch;

	if (head == atomic_load_explicit(&ring->tail, memory_order_acquire))
		return NULL;
	batch = ring->slots[head];
	atomic_store_explicit(&ring->head, head + 1 == ring->size ? 0 : head + 1, memory_order_release);
	return batch;
}

static bool
is_empty(struct scout__copy_ring *ring)
{
	return atomic_load_explicit(&ring->head, memory_order_relaxed) ==
	       atomic_load_explicit(&ring->tail, memory_order_acquire);
}

/* ---- life ---- */

int
scout__copy_queue_init(struct scout__copy_queue *q, uint32_t max_batches, char *err, size_t err_len)
{
	q->max_batches = max_batches;
	q->over.fd = -1;
	if (!scout__doorbell_open(&q->wake) || !scout__doorbell_open(&q->over))
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "copy engine: eventfd fails (%s)",
				   scout__errno_text(errno));
	scout__park(&q->over.parked);
	if (ring_init(&q->todo, max_batches) || ring_init(&q->ended, max_batches))
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "copy engine: out of memory");
	return 0;
}

void
scout__copy_queue_fini(struct scout__copy_queue *q)
{
	scout__doorbell_close(&q->over);
	scout__doorbell_close(&q->wake);
	free(q->ended.slots);
	free(q->todo.slots);
}

void
scout__copy_queue_stop(struct scout__copy_queue *q)
{
	atomic_store(&q->stop, true);
	scout__eventfd_raise(q->wake.fd);
}

void
scout__copy_queue_nudge(struct scout__copy_queue *q)
{
	(void)scout__doorbell_ring(&q->over);
}

/* ---- the courier's side ---- */

int
scout__copy_queue_start(struct scout__copy_queue *q, struct scout__copy_batch *batch)
{
	if (q->in_flight == q->max_batches)
		return SCOUT_ERR_BUSY;
	q->in_flight++;
	batch->status = 0;
	batch->n_done = 0;
	batch->may_write_on = false;
	batch->bytes = 0;
	push(&q->todo, batch);
	(void)scout__doorbell_ring(&q->wake);
	return 0;
}

/* The ring looked empty: make the descriptor unreadable. Returns a batch that came in between, or NULL. */
SCOUT_ON_COURIER static struct scout__copy_batch *
clear_and_look_again(struct scout__copy_queue *q)
{
	struct scout__copy_batch *batch;

	if (atomic_load_explicit(&q->over.parked, memory_order_relaxed) || !scout__doorbell_lower(&q->over))
		return NULL;
	batch = pop(&q->ended);
	if (batch && !is_empty(&q->ended))
		scout__copy_queue_nudge(q);
	return batch;
}

struct scout__copy_batch *
scout__copy_queue_poll(struct scout__copy_queue *q)
{
	struct scout__copy_batch *batch = pop(&q->ended);

	if (!batch)
		batch = clear_and_look_again(q);
	if (batch)
		q->in_flight--;
	return batch;
}

/* ---- the thread's side ---- */

struct scout__copy_batch *
scout__copy_queue_next(struct scout__copy_queue *q)
{
	return pop(&q->todo);
}

void
scout__copy_queue_report(struct scout__copy_queue *q, struct scout__copy_batch *batch)
{
	push(&q->ended, batch);
	scout__copy_queue_nudge(q);
}

void
scout__copy_queue_park(struct scout__copy_queue *q, int64_t timeout_ns)
{
	const struct timespec limit = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
	struct pollfd pfd = {.fd = q->wake.fd, .events = POLLIN};

	scout__park(&q->wake.parked);
	if (is_empty(&q->todo) && !atomic_load(&q->stop)) {
		/* A failed wait counts as a spurious wakeup; so does a ring for a batch that the second look had found. */
		(void)ppoll(&pfd, 1, timeout_ns < 0 ? NULL : &limit, NULL);
		(void)scout__eventfd_lower(q->wake.fd);
	}
	scout__awake(&q->wake.parked);
}
