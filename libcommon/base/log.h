/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvscout/error.h>
#include <kvscout/types.h>

/* Lets the user withdraw the callback while threads log. Zero: open. */
struct scout__log_gate {
	atomic_uint word; /* any thread, a futex: how many calls of the callback are running, and whether it is shut */
};

/* Where one object logs to: the user's callback, or nowhere. Const after start. */
struct scout__log {
	scout_log_fn fn;
	void *user;
	const char *who;              /* prefix: "client", "worker 2", "server"; static or owned by the object */
	struct scout__log_gate *gate; /* gate of the same object; NULL: cannot be shut */
};

/*
 * Shut the gate: afterwards the callback is not running and is not called any more. Waits for running calls, unless it is
 * called from a callback itself: that callback then runs to its end, for the last time. Any thread.
 */
void scout__log_shut(struct scout__log_gate *gate);
bool scout__log_is_shut(const struct scout__log_gate *gate);

__attribute__((format(printf, 3, 4))) void scout__log(const struct scout__log *log, int level, const char *fmt, ...);

/*
 * One line at most every interval_us, for events that may storm, or 1 + `burst` lines. Owned by the thread that logs. The next
 * line says how many were dropped ("... (and 12 more)").
 */
struct scout__log_limit {
	uint64_t next_us; /* end of the interval */
	uint64_t dropped;
	uint32_t burst; /* const: lines that may follow the first of an interval */
	uint32_t left;  /* of these */
};

__attribute__((format(printf, 6, 7))) void scout__log_limited(const struct scout__log *log,
							      struct scout__log_limit *limit, uint64_t now_us,
							      uint64_t interval_us, int level, const char *fmt, ...);

/* What an errno value means, for texts: "No space left on device". Static, never NULL; errno itself is not changed. */
const char *scout__errno_text(int errnum);

/* snprintf into a caller's error buffer that may be NULL, with passwords masked; always terminates. Returns @code, so that callers can return it. */
__attribute__((format(printf, 4, 5))) int scout__fail(char *err, size_t err_len, int code, const char *fmt, ...);
/* The same for SCOUT_ERR_NOMEM. */
int scout__fail_no_memory(char *err, size_t err_len);
/* The same for SCOUT_ERR_SYSTEM, where @error kept a thread from starting. */
int scout__fail_thread(char *err, size_t err_len, int error);
