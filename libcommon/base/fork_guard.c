/* SPDX-License-Identifier: Apache-2.0 */
#include "fork_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

/*
 * DESIGN
 *
 * Owns a process-wide list of descriptors, because a fork is process-wide. Threads: any, under one lock. The fork handlers take the lock
 * before fork() and release it after, so the child's list matches its descriptors: removing and closing are one step, and no number in
 * the list can name a descriptor of another part of the program. The child only closes, which is async-signal-safe.
 *
 * A program that forks in a signal handler cannot deadlock on the lock: only threads that block signals (courier, server loop)
 * take the lock, or it is taken at start and stop.
 *
 * The list is bounded. A descriptor too many is not guarded, which only matters to a program that forks without exec.
 */

#define MAX_GUARDED 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int guarded[MAX_GUARDED]; /* G:lock */
static int n_guarded;            /* G:lock */

static void
before_fork(void)
{
	(void)pthread_mutex_lock(&lock);
}

static void
after_fork_in_parent(void)
{
	(void)pthread_mutex_unlock(&lock);
}

static void
after_fork_in_child(void)
{
	for (int i = 0; i < n_guarded; i++)
		(void)close(guarded[i]);
	n_guarded = 0;
	(void)pthread_mutex_unlock(&lock);
}

static void
install(void)
{
	/* Fails on ENOMEM only: then children keep their copies. */
	(void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void
scout__fork_guard_add(int fd)
{
	(void)pthread_once(&once, install);
	(void)pthread_mutex_lock(&lock);
	if (n_guarded < MAX_GUARDED)
		guarded[n_guarded++] = fd;
	(void)pthread_mutex_unlock(&lock);
}

int
scout__fork_guard_open(const char *path, int flags, mode_t mode, int lowest)
{
	int fd, high = -1, error;

	(void)pthread_once(&once, install);
	(void)pthread_mutex_lock(
		&lock); /* no fork meanwhile: a child's copy of this open file could not be closed any more */
	fd = open(path, flags | O_CLOEXEC, mode);
	if (fd >= 0)
		high = fd >= lowest ? fd : fcntl(fd, F_DUPFD_CLOEXEC, lowest);
	error = errno;
	if (fd >= 0 && fd != high)
		(void)close(fd);
	if (high >= 0 && n_guarded < MAX_GUARDED)
		guarded[n_guarded++] = high;
	(void)pthread_mutex_unlock(&lock);
	errno = error;
	return high;
}

void
scout__fork_guard_close(int fd)
{
	if (fd < 0)
		return;
	(void)pthread_mutex_lock(&lock);
	for (int i = 0; i < n_guarded; i++) {
		if (guarded[i] == fd) {
			guarded[i] = guarded[--n_guarded];
			break;
		}
	}
	(void)close(fd);
	(void)pthread_mutex_unlock(&lock);
}
