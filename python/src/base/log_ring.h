/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Log lines on their way from the library's threads to Python: one ring for the process. Nothing here knows of Python.
 */

#define SCOUT__PY_LOG_LINES 512u
#define SCOUT__PY_LOG_TEXT 1024u /* bytes of a line, with its NUL: the library cuts there, too */

struct scout__py_log_line {
	uint64_t time_us; /* Unix time at which the library logged it */
	uint64_t lost;    /* lines that found the ring full, right before this one */
	int level;        /* enum scout_log_level; 0: no line, only @lost */
	char text[SCOUT__PY_LOG_TEXT];
};

/* A scout_log_fn. Any thread; waits for no one but another thread that copies a line. @user is not used. */
void scout__py_log_push(void *user, int level, const char *text);
/* The oldest line. False: there is none. Any thread. */
bool scout__py_log_pop(struct scout__py_log_line *ret_line);
/*
 * Sleep until there is a line; without the GIL. False: scout__py_log_stop() was called, which ends every wait from then on.
 */
bool scout__py_log_wait(void);
void scout__py_log_stop(void);
/* From now on a forked child begins with an empty ring: the lines in it are the parent's. */
void scout__py_log_guard_forks(void);
