/* SPDX-License-Identifier: Apache-2.0 */
#include "blocking.h"

/*
 * Counts the threads of an adapter, so that a stop can wait for all of them until a deadline: a thread that hangs in
 * the kernel cannot be joined.
 *
 * Threads: any. The count is under mu.
 */

int
scout__blocking_thread_start(struct scout__blocking *blocking, pthread_t *ret_thread, const char *name,
			     void *(*main)(void *), void *arg)
{
	int rc;

	/* Count the thread before it may end. */
	SCOUT_ASSERT(pthread_mutex_lock(&blocking->mu) == 0);
	blocking->alive++;
	SCOUT_ASSERT(pthread_mutex_unlock(&blocking->mu) == 0);
	rc = scout__thread_start(ret_thread, name, main, arg);
	if (rc)
		scout__blocking_thread_ends(blocking);
	return rc;
}

void
scout__blocking_thread_ends(struct scout__blocking *blocking)
{
	SCOUT_ASSERT(pthread_mutex_lock(&blocking->mu) == 0);
	blocking->alive--;
	(void)pthread_cond_broadcast(&blocking->ended);
	SCOUT_ASSERT(pthread_mutex_unlock(&blocking->mu) == 0);
}

bool
scout__blocking_threads_wait(struct scout__blocking *blocking, uint64_t deadline_us)
{
	bool all;

	SCOUT_ASSERT(pthread_mutex_lock(&blocking->mu) == 0);
	while (blocking->alive && scout__cond_wait_until(&blocking->ended, &blocking->mu, deadline_us) == 0)
		;
	all = blocking->alive == 0;
	SCOUT_ASSERT(pthread_mutex_unlock(&blocking->mu) == 0);
	return all;
}
