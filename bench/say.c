/* SPDX-License-Identifier: Apache-2.0 */
#include "say.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Const after say_begin(), which runs before there are threads. */
static const char *tool_name;

/* After main: the last moment at which buffered text can fail to be written. */
static void
check_standard_output(void)
{
	int error = say_close(stdout);

	if (!error)
		return;
	complain("standard output could not be written (errno %d)", error);
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
	(void)vprintf(fmt, ap); /* as above */
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
	(void)fprintf(stderr, "%s: %s\n", tool_name ? tool_name : "kvscout", text); /* nobody left to tell */
}

FILE *
say_open(const char *path)
{
	return strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
}

int
say_close(FILE *out)
{
	int error = 0;

	errno = 0;
	if (fflush(out) != 0 || ferror(out))
		error = errno ? errno : EIO; /* an earlier write failed: its errno is gone */
	if (out != stdout && fclose(out) != 0 && !error)
		error = errno;
	return error;
}
