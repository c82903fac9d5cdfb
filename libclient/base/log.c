/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <stdio.h>
#include <string.h>

/*
 * DESIGN
 *
 * Purpose: lines for the user's callback. A line is built on the stack and cut at LINE_BYTES: no lock, no memory.
 * Texts may come from a peer, so control characters become '?': one event is one line.
 *
 * Threads: any; a struct scout__log_limit belongs to the thread that logs with it.
 */

#define LINE_BYTES 1024

static void
clean(char *text)
{
	for (; *text; text++) {
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = '?';
	}
}

/* vsnprintf behind the text that is there. */
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
	clean(line);
	log->fn(log->user, level, line);
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

/* What was dropped must be said even behind a text that fills the line. */
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
	const char *text = strerrordesc_np(errnum);

	return text ? text : "unknown error";
}

int
scout__fail(char *err, size_t err_len, int code, const char *fmt, ...)
{
	va_list args;

	if (!err || !err_len)
		return code;
	va_start(args, fmt);
	(void)vsnprintf(err, err_len, fmt, args);
	va_end(args);
	return code;
}
