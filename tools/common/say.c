/* SPDX-License-Identifier: Apache-2.0 */
#include "say.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvscout/error.h>
#include <kvscout/types.h>

#include "utf8.h"

/* Const after say_begin(), which runs before there are threads. */
static const char *tool_name;
/* Why standard output failed first: the stream itself remembers only that. Main thread. */
static int stdout_error;

/* After main: the last moment at which buffered text can fail to be written. */
static void
check_standard_output(void)
{
	int error = say_close(stdout);
	char text[SAY_ERROR];

	if (!error)
		return;
	complain("standard output could not be written: %s", say_error(text, error));
	_exit(EXIT_FAILURE);
}

void
say_begin(const char *tool)
{
	if (!tool_name && atexit(check_standard_output) != 0) {
		tool_name = tool;
		complain("out of memory");
		_exit(EXIT_FAILURE);
	}
	tool_name = tool;
}

int
say_to(FILE *out, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vfprintf(out, fmt, ap); /* the stream remembers an error until say_close() */
	va_end(ap);
	return n < 0 ? 0 : n;
}

void
say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (vprintf(fmt, ap) < 0 && !stdout_error)
		stdout_error = errno;
	va_end(ap);
}

void
complain(const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap); /* a text that is cut is still a text */
	va_end(ap);
	scout__utf8_clean(text); /* parts of it may come from a server */
	(void)fprintf(stderr, "%s: %s\n", tool_name ? tool_name : "kvscout",
		      text); /* there is no other place to report it */
}

_Noreturn void
die(const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	complain("%s", text);
	exit(EXIT_FAILURE); // NOLINT(concurrency-mt-unsafe): the tools' other threads do not call it
}

void
complain_log(void *user, int level, const char *text)
{
	(void)user;
	if (level <= SCOUT_LOG_WARN)
		complain("%s", text);
}

FILE *
say_open(const char *path)
{
	return strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
}

const char *
say_error(char buf[SAY_ERROR], int error)
{
	return strerror_r(error, buf, SAY_ERROR); /* GNU's: a constant, or made in the buffer */
}

void
say_flush(void)
{
	if (fflush(stdout) != 0 && !stdout_error)
		stdout_error = errno;
}

int
say_close(FILE *out)
{
	int error = 0;

	errno = 0;
	if (fflush(out) != 0 || ferror(out))
		error = errno ? errno : EIO; /* an earlier write failed: its errno is gone */
	if (out == stdout && error) {
		stdout_error = stdout_error ? stdout_error : error;
		error = stdout_error;
	}
	if (out != stdout && fclose(out) != 0 && !error)
		error = errno;
	return error;
}
