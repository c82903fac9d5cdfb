/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: how the courier and the thread of a copy engine hand batches to each other.
 *
 * Batches go to the thread through one ring and come back through another. Both rings have room for max_batches and
 * start() counts what is in flight, so no push can fail and nothing is allocated after init.
 *
 * Waking the thread. It parks by: parked = 1, look at the ring again, wait on the eventfd. start() does: push, take
 * parked, write the eventfd if it was 1. Both sides touch `parked` with a read-modify-write, so one of the two comes
 * first: if it is the thread's, start() sees 1 and writes; if it is start()'s, the thread has synchronized with it
 * and its second look finds the batch. That is what a full fence on both sides gives, in a form that ThreadSanitizer
 * understands. Whoever takes the 1 writes, so there is one write for each time the thread parks, and none while it is
 * busy.
 *
 * Waking the courier. `signalled` says that ended_fd is readable or is about to be. The thread does: push, set
 * signalled, write if it was 0. poll() that finds the ring empty does: read the eventfd, clear signalled, look again.
 * Three cases:
 *   - The read finds nothing (EAGAIN): the thread stands between setting and writing. signalled stays 1 and the
 *     write is still to come; the descriptor is then readable once for nothing, and the next poll() clears it.
 *     Clearing signalled here would leave a readable descriptor that no poll() clears: a caller's event loop would
 *     spin.
 *   - A batch was pushed between the read and the clearing: nobody wrote for it, but the second look finds it, for
 *     the same reason as above. If there are more behind it, poll() makes the descriptor readable again itself.
 *   - Pushed after the clearing: the thread sees 0 and writes.
 * So the descriptor is readable while the ring has something, and at rest it is not. A poll() with nothing to do
 * makes no system call.
 *
 * The bytes: they are written before the push (release) and whoever polls has popped (acquire).
 *
 * Rejected: concurrencykit's ring, as everywhere else here. The copy engine is also built on bare GPU machines, which
 * have a compiler and the CUDA toolkit and nothing else; one producer and one consumer need two indices.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "queue.h"

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
	q->ended_fd = -1;
	q->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (q->wake_fd >= 0)
		q->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (q->ended_fd < 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "copy engine: eventfd fails (%s)",
				   scout__errno_text(errno));
	if (ring_init(&q->todo, max_batches) || ring_init(&q->ended, max_batches))
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "copy engine: out of memory");
	return 0;
}

void
scout__copy_queue_fini(struct scout__copy_queue *q)
{
	if (q->ended_fd >= 0)
		(void)close(q->ended_fd);
	if (q->wake_fd >= 0)
		(void)close(q->wake_fd);
	free(q->ended.slots);
	free(q->todo.slots);
}

static void
signal_fd(int fd)
{
	const uint64_t one = 1;

	/* It fails otherwise only where the counter is full, and a full one is readable as well. */
	while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void
scout__copy_queue_stop(struct scout__copy_queue *q)
{
	atomic_store(&q->stop, true);
	signal_fd(q->wake_fd);
}

void
scout__copy_queue_nudge(struct scout__copy_queue *q)
{
	if (!atomic_exchange(&q->signalled, true))
		signal_fd(q->ended_fd);
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
	batch->bytes = 0;
	push(&q->todo, batch);
	if (atomic_exchange(&q->parked, false))
		signal_fd(q->wake_fd);
	return 0;
}

/* The ring looked empty: make ended_fd say so. Returns a batch that came in between, or NULL. */
SCOUT_ON_COURIER static struct scout__copy_batch *
clear_and_look_again(struct scout__copy_queue *q)
{
	struct scout__copy_batch *batch;
	uint64_t count;

	if (!atomic_load(&q->signalled))
		return NULL;
	if (read(q->ended_fd, &count, sizeof(count)) < 0)
		return NULL;
	(void)atomic_exchange(&q->signalled, false);
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

bool
scout__copy_queue_idle(struct scout__copy_queue *q)
{
	return is_empty(&q->todo);
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
	struct pollfd pfd = {.fd = q->wake_fd, .events = POLLIN};
	uint64_t count;

	/* Not a plain store: see "Waking the thread". */
	(void)atomic_exchange(&q->parked, true);
	if (is_empty(&q->todo) && !atomic_load(&q->stop)) {
		/* A failed wait is a spurious wakeup, and so is one for a batch that the second look had found. */
		(void)ppoll(&pfd, 1, timeout_ns < 0 ? NULL : &limit, NULL);
		(void)!read(q->wake_fd, &count, sizeof(count));
	}
	atomic_store(&q->parked, false);
}
