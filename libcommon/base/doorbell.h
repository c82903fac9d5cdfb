/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

/*
 * DESIGN
 *
 * How a thread sleeps until another one has work for it, without a system call while awake, and with one for a burst of work.
 *
 *   sleeper                                   waker
 *   scout__park(parked)                       publish the work (a ring's push, a position, an answer word)
 *   look at the work again                    if (scout__unpark(parked))
 *     there is some: scout__awake(parked)             wake: eventfd, socket or futex
 *     there is none: sleep, scout__awake(parked)
 *
 * No wake is lost. This is the litmus test SB (store buffering): each side writes one word and reads the other's.
 *
 *   sleeper:  W parked = 1;  fence;  R work          waker:  W work = 1;  fence;  R parked
 *
 * The outcome that would lose a wake is "the sleeper reads no work and the waker reads parked = 0". Release and acquire allow
 * it on every processor, x86 too: both stores may still wait in store buffers when the loads are made. The two fences are
 * memory_order_seq_cst, so one of them comes first in the single order of such fences, and what is sequenced before the first one is
 * visible to what is sequenced after the second one. So at least one side sees the other, by the C11 memory model and therefore on
 * aarch64 (dmb ish) as on x86 (a locked instruction). tests/unit/base/test_base_doorbell.c runs the litmus test.
 *
 * The waker takes `parked` with an exchange, so one of several wakers, or the first push of a burst, makes the call. If the exchange
 * finds the 0 of scout__awake(), the sleeper is awake. It may miss the work now, but its next scout__park() comes later in the order
 * of writes to `parked`, so its fence comes after the waker's, and its look then finds the work.
 *
 * A waker's call may come when the sleeper is awake again: the next sleep then ends early, once.
 *
 * The words order no memory by themselves: the work is published and read with release and acquire, as rings do. ThreadSanitizer
 * does not understand fences, and with release and acquire it needs none here.
 *
 * Rejected: a read-modify-write of `parked` on both sides in place of the fences. It is as strong, but with each push the waker needs
 * the cache line of `parked` in exclusive state, even while the sleeper is awake.
 */

/* Sleeper: before its last look at the work. */
static inline void
scout__park(atomic_uint *parked)
{
	atomic_store_explicit(parked, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
}

/* Sleeper: it looks by itself from now on. */
static inline void
scout__awake(atomic_uint *parked)
{
	atomic_store_explicit(parked, 0, memory_order_relaxed);
}

/* Waker: after publishing. True for one waker: it makes the call that wakes. */
static inline bool
scout__unpark(atomic_uint *parked)
{
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(parked, memory_order_relaxed) != 0 &&
	       atomic_exchange_explicit(parked, 0, memory_order_relaxed) != 0;
}

/* ---- with an eventfd, between threads of one process ---- */

/* Make an eventfd readable. Any thread. It fails only if the count is full, and then the descriptor is readable as well. */
static inline void
scout__eventfd_raise(int fd)
{
	const uint64_t one = 1;

	while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* Make a non-blocking eventfd unreadable. False: it was so already. */
static inline bool
scout__eventfd_lower(int fd)
{
	uint64_t count;

	return read(fd, &count, sizeof(count)) == (ssize_t)sizeof(count);
}

/*
 * The sleeper polls its fd. A sleeper that has other descriptors in its poll set, or whose caller polls for it, may stay parked for
 * good: then the fd is readable while there may be work, and scout__doorbell_lower() is called when there seems to be none.
 */
struct scout__doorbell {
	int fd;             /* const after open: eventfd; -1: none */
	atomic_uint parked; /* atomic: 1 while a ring is wanted */
};

/* False: errno says why. */
static inline bool
scout__doorbell_open(struct scout__doorbell *bell)
{
	atomic_init(&bell->parked, 0);
	bell->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return bell->fd >= 0;
}

static inline void
scout__doorbell_close(struct scout__doorbell *bell)
{
	if (bell->fd >= 0)
		(void)close(bell->fd);
	bell->fd = -1;
}

/* Waker: after publishing. Returns whether a system call was made. */
static inline bool
scout__doorbell_ring(struct scout__doorbell *bell)
{
	if (!scout__unpark(&bell->parked))
		return false;
	scout__eventfd_raise(bell->fd);
	return true;
}

/* Sleeper that stays parked: before its last look at the work. False: a waker has taken the word and is about to raise the fd. */
static inline bool
scout__doorbell_lower(struct scout__doorbell *bell)
{
	if (!scout__eventfd_lower(bell->fd))
		return false;
	scout__park(&bell->parked);
	return true;
}
