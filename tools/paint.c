/* SPDX-License-Identifier: Apache-2.0 */
#include "paint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "say.h"

#define STEPS 8u

bool
paint_is_on(void)
{
	const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");

	return isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") != 0 && !(no_color && *no_color);
}

void
paint(enum paint how)
{
	static const char *const codes[] = {"\033[0m", "\033[1m", "\033[1;33m"};

	if (paint_is_on())
		say("%s", codes[how]);
}

/* As POSIX finds the locale's character set, without a call of setlocale() for the whole program. */
static bool
is_utf8(void)
{
	static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};

	for (unsigned i = 0; i < 3; i++) {
		const char *value = getenv(names[i]);

		if (value && *value)
			return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
	}
	return false;
}

const char *
paint_bar(char buf[PAINTED], double share, unsigned width)
{
	const char *full = is_utf8() ? "\u2588" : "#", *rest = is_utf8() ? "\u2591" : ".";
	size_t at = 0;

	for (unsigned i = 0; i < width && at + 4 < PAINTED; i++)
		at += (size_t)snprintf(buf + at, PAINTED - at, "%s", i + 0.5 < share * width ? full : rest);
	buf[at] = '\0';
	return buf;
}

void
trend_add(struct trend *trend, double value)
{
	if (trend->n == TREND)
		memmove(trend->values, trend->values + 1, --trend->n * sizeof(trend->values[0]));
	trend->values[trend->n++] = value;
}

const char *
trend_paint(char buf[PAINTED], const struct trend *trend, double most)
{
	static const char *const blocks[] = {" ",      "\u2581", "\u2582", "\u2583", "\u2584",
					     "\u2585", "\u2586", "\u2587", "\u2588"};
	static const char *const letters[] = {" ", ".", ":", "-", "=", "+", "*", "%", "@"};
	const char *const *steps = is_utf8() ? blocks : letters;
	bool is_relative = most == 0;
	size_t at = (size_t)snprintf(buf, PAINTED, "%*s", (int)(TREND - trend->n), "");

	for (unsigned i = 0; i < trend->n && is_relative; i++)
		most = trend->values[i] > most ? trend->values[i] : most;
	for (unsigned i = 0; i < trend->n; i++) {
		double share = most > 0 ? trend->values[i] / most : 0;
		unsigned step = share <= 0 ? 0 : share >= 1 ? STEPS : 1 + (unsigned)(share * (STEPS - 1));

		at += (size_t)snprintf(buf + at, PAINTED - at, "%s", steps[step]);
	}
	return buf;
}
