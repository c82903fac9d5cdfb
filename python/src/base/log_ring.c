/* SPDX-License-Identifier: Apache-2.0 */
#include "log_ring.h"

#include <pthread.h>
#include <string.h>

#include <kvscout/types.h>

#include "clock.h"

/*
 * DESIGN
 *
 * Purpose: threads of the library must never run Python, and never wait for the GIL. So they copy a line into this ring and go on.
 *
 * Bounded: when the ring is full, the newest line is dropped and counted, because the first lines of a storm say how it began. The
 * count travels with the next line that finds room, or alone if none follows, so the reader learns where lines are missing.
 *
 * A lock, held while one line is copied (about 50 ns). A line is rare, several threads write, and a ring without locks for several
 * writers would let the reader wait for a writer that was preempted between its two steps.
 *
 * Fork: the thread that forks takes the lock first, so the child finds it free. Threads: any.
 */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct scout__py_log_line lines[SCOUT__PY_LOG_LINES]; /* G:lock */
static unsigned first, n_lines;                              /* G:lock */
static uint64_t lost;                                        /* G:lock; behind the last line */
static bool stopped;                                         /* G:lock */
static pthread_once_t once = PTHREAD_ONCE_INIT;

void
scout__py_log_push(void *user, int level, const char *text)
{
	uint64_t time_us = scout__wall_us();
	size_t len = strnlen(text, SCOUT__PY_LOG_TEXT - 1);
	struct scout__py_log_line *line;

	(void)user;
	(void)pthread_mutex_lock(&lock);
	if (n_lines < SCOUT__PY_LOG_LINES) {
		line = &lines[(first + n_lines++) % SCOUT__PY_LOG_LINES];
		line->time_us = time_us;
		line->lost = lost;
		line->level = level;
		memcpy(line->text, text, len);
		line->text[len] = '\0';
		lost = 0;
	} else {
		lost++;
	}
	(void)pthread_cond_signal(&changed);
	(void)pthread_mutex_unlock(&lock);
}

bool
scout__py_log_pop(struct scout__py_log_line *ret_line)
{
	bool found = true;

	(void)pthread_mutex_lock(&lock);
	if (n_lines > 0) {
		*ret_line = lines[first];
		first = (first + 1) % SCOUT__PY_LOG_LINES;
		n_lines--;
	} else if (lost > 0) {
		*ret_line = (struct scout__py_log_line){.time_us = scout__wall_us(), .lost = lost};
		lost = 0;
	} else {
		found = false;
	}
	(void)pthread_mutex_unlock(&lock);
	return found;
}

bool
scout__py_log_wait(void)
{
	bool was_stopped;

	(void)pthread_mutex_lock(&lock);
	while (n_lines == 0 && lost == 0 && !stopped)
		(void)pthread_cond_wait(&changed, &lock);
	was_stopped = stopped;
	(void)pthread_mutex_unlock(&lock);
	return !was_stopped;
}

void
scout__py_log_stop(void)
{
	(void)pthread_mutex_lock(&lock);
	stopped = true;
	(void)pthread_cond_broadcast(&changed);
	(void)pthread_mutex_unlock(&lock);
}

/* ---- fork ---- */

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
	first = 0;
	n_lines = 0;
	lost = 0;
	stopped = false;
	(void)pthread_cond_init(&changed, NULL); /* the parent's reader sleeps on the copy */
	(void)pthread_mutex_unlock(&lock);
}

static void
install(void)
{
	/* Fails on ENOMEM only: then a child reports what its parent had not reported yet. */
	(void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void
scout__py_log_guard_forks(void)
{
	(void)pthread_once(&once, install);
}
