/* SPDX-License-Identifier: Apache-2.0 */
#include "files_internal.h"

/*
 * Counts the threads of an adapter, so that a stop can wait for all of them until a deadline: a thread that hangs in
 * the kernel cannot be joined.
 *
 * Threads: any. The count is under files->mu.
 */

int
scout__files_thread_start(struct scout__files *files, pthread_t *ret_thread, const char *name, void *(*main)(void *),
			  void *arg)
{
	int rc;

	/* Count the thread before it may end. */
	SCOUT_ASSERT(pthread_mutex_lock(&files->mu) == 0);
	files->alive++;
	SCOUT_ASSERT(pthread_mutex_unlock(&files->mu) == 0);
	rc = scout__thread_start(ret_thread, name, main, arg);
	if (rc)
		scout__files_thread_ends(files);
	return rc;
}

void
scout__files_thread_ends(struct scout__files *files)
{
	SCOUT_ASSERT(pthread_mutex_lock(&files->mu) == 0);
	files->alive--;
	(void)pthread_cond_broadcast(&files->ended);
	SCOUT_ASSERT(pthread_mutex_unlock(&files->mu) == 0);
}

bool
scout__files_threads_wait(struct scout__files *files, uint64_t deadline_us)
{
	struct timespec until = {.tv_sec = (time_t)(deadline_us / 1000000),
				 .tv_nsec = (long)(deadline_us % 1000000) * 1000};
	bool all;

	SCOUT_ASSERT(pthread_mutex_lock(&files->mu) == 0);
	while (files->alive && pthread_cond_timedwait(&files->ended, &files->mu, &until) == 0)
		;
	all = files->alive == 0;
	SCOUT_ASSERT(pthread_mutex_unlock(&files->mu) == 0);
	return all;
}
