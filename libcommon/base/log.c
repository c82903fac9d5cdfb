/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <linux/futex.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "mask.h"
#include "utf8.h"
#include <sys/syscall.h>
#include <unistd.h>

/*
 * DESIGN
 *
 * Purpose: lines for the user's callback. A line is built on the stack and cut at LINE_BYTES: no lock, no memory.
 * Texts may come from a peer, so control characters and invalid UTF-8 become '?': one event is one line.
 *
 * Threads: any; a struct scout__log_limit belongs to the thread that logs with it.
 *
 * One word of the gate counts the running calls and says whether the gate is shut, so one atomic operation enters and learns whether
 * that is allowed. The thread that shuts the gate sleeps on that word until the count is 0; the last call to leave wakes it.
 */

#define LINE_BYTES 1024
#define SENTENCE_BYTES 4608 /* room for a whole value of 4096 bytes: a mask needs the end of the password */
#define GATE_SHUT 0x80000000u

static _Thread_local unsigned in_callback; /* how many calls of callbacks this thread is in */

/* ---- the gate ---- */

static bool
gate_enter(struct scout__log_gate *gate)
{
	if (!gate)
		return true;
	if (!(atomic_fetch_add(&gate->word, 1) & GATE_SHUT))
		return true;
	atomic_fetch_sub(&gate->word, 1);
	return false;
}

static void
gate_leave(struct scout__log_gate *gate)
{
	if (gate && atomic_fetch_sub(&gate->word, 1) == (GATE_SHUT | 1))
		(void)syscall(SYS_futex, &gate->word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void
scout__log_shut(struct scout__log_gate *gate)
{
	unsigned word = atomic_fetch_or(&gate->word, GATE_SHUT) | GATE_SHUT;

	if (in_callback > 0)
		return;
	while (word != GATE_SHUT) {
		(void)syscall(SYS_futex, &gate->word, FUTEX_WAIT_PRIVATE, word, NULL, NULL, 0);
		word = atomic_load(&gate->word);
	}
}

bool
scout__log_is_shut(const struct scout__log_gate *gate)
{
	return (atomic_load(&gate->word) & GATE_SHUT) != 0;
}

/* ---- lines ---- */

/* Append with vsnprintf(). */
__attribute__((format(printf, 2, 0))) static void
append(char line[LINE_BYTES], const char *fmt, va_list args)
{
	size_t n = strlen(line);

	(void)vsnprintf(line + n, LINE_BYTES - n, fmt, args);
}

__attribute__((format(printf, 2, 3))) static void
appendf(char line[LINE_BYTES], const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	append(line, fmt, args);
	va_end(args);
}

static void
begin(const struct scout__log *log, char line[LINE_BYTES])
{
	line[0] = '\0';
	if (log->who)
		appendf(line, "%s: ", log->who);
}

static void
emit(const struct scout__log *log, int level, char line[LINE_BYTES])
{
	if (!gate_enter(log->gate))
		return;
	scout__utf8_clean(line);
	in_callback++;
	log->fn(log->user, level, line);
	in_callback--;
	gate_leave(log->gate);
}

void
scout__log(const struct scout__log *log, int level, const char *fmt, ...)
{
	char line[LINE_BYTES];
	va_list args;

	if (!log || !log->fn)
		return;
	begin(log, line);
	va_start(args, fmt);
	append(line, fmt, args);
	va_end(args);
	emit(log, level, line);
}

/* The count of dropped lines must appear even if the text fills the line. */
static void
append_dropped(char line[LINE_BYTES], uint64_t dropped)
{
	char tail[48];
	int n = snprintf(tail, sizeof(tail), " (and %llu more)", (unsigned long long)dropped);

	if (strlen(line) + (size_t)n >= LINE_BYTES)
		line[LINE_BYTES - 1 - (size_t)n] = '\0';
	appendf(line, "%s", tail);
}

void
scout__log_limited(const struct scout__log *log, struct scout__log_limit *limit, uint64_t now_us, uint64_t interval_us,
		   int level, const char *fmt, ...)
{
	char line[LINE_BYTES];
	va_list args;

	if (!log || !log->fn)
		return;
	if (now_us >= limit->next_us) {
		limit->next_us = now_us + interval_us;
		limit->left = limit->burst + 1;
	}
	if (limit->left == 0) {
		limit->dropped++;
		return;
	}
	limit->left--;
	begin(log, line);
	va_start(args, fmt);
	append(line, fmt, args);
	va_end(args);
	if (limit->dropped)
		append_dropped(line, limit->dropped);
	limit->dropped = 0;
	emit(log, level, line);
}

const char *
scout__errno_text(int errnum)
{
	/* strerrordesc_np() needs glibc 2.32. In the C locale, which newlocale() gives without allocating, the texts of
	   strerror_l() are static; for unknown numbers it writes into a buffer of the thread. */
	const char *text = strerror_l(errnum, newlocale(LC_ALL_MASK, "C", (locale_t)0));

	return text && strncmp(text, "Unknown error", strlen("Unknown error")) != 0 ? text : "unknown error";
}

int
scout__fail(char *err, size_t err_len, int code, const char *fmt, ...)
{
	char text[SENTENCE_BYTES];
	va_list args;

	if (!err || !err_len)
		return code;
	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	scout__mask(text, err, err_len);
	return code;
}

int
scout__fail_no_memory(char *err, size_t err_len)
{
	return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "out of memory");
}

int
scout__fail_thread(char *err, size_t err_len, int error)
{
	return scout__fail(
		err, err_len, SCOUT_ERR_SYSTEM,
		"cannot start a background thread (errno %d): the limits of threads (ulimit -u, pids.max) and of "
		"memory are the usual causes",
		error);
}
