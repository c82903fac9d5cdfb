/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: how a thread sleeps until a batch is further.
 *
 * The engine stores the news, counts `turn` up, reads `waiters`, and wakes. A waiting thread sets `waiters`, reads
 * `turn`, looks at the news, and sleeps while `turn` is unchanged. All these accesses are sequentially consistent, so
 * either the waiting thread sees the news or its sleep is ended. Without a waiting thread, the engine makes no system
 * call.
 *
 * Rejected: the worker's mutex and condition. The engine's thread would take a lock for each layer, and it does not
 * know the worker.
 */
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "copy.h"

/* The kernel's futex word is 32 bits, and so is atomic_uint on every platform that we build for. */
_Static_assert(sizeof(atomic_uint) == 4, "a futex is 32 bits");

void
scout__copy_progress_wake(struct scout__copy_progress *progress)
{
	(void)atomic_fetch_add(&progress->turn, 1);
	if (atomic_load(&progress->waiters) > 0)
		(void)syscall(SYS_futex, &progress->turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void
scout__copy_progress_copied(struct scout__copy_progress *progress, uint32_t layers)
{
	atomic_store(&progress->copied, layers);
	scout__copy_progress_wake(progress);
}

void
scout__copy_progress_sleep(struct scout__copy_progress *progress, unsigned turn, uint64_t timeout_us)
{
	const struct timespec timeout = scout__timespec(timeout_us);

	/* The caller looks again, however the sleep ended. */
	(void)syscall(SYS_futex, &progress->turn, FUTEX_WAIT_PRIVATE, turn, &timeout, NULL, 0);
}
