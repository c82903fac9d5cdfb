/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* What a terminal shows beyond text: colours, bars, and how a number went. Main thread. */

/* Standard output is a terminal that can (TERM is not `dumb`), and the user has not set NO_COLOR (no-color.org). */
bool paint_is_on(void);

enum paint {
	PAINT_NONE,
	PAINT_HEAD,
	PAINT_ALARM
};
/* What follows looks so; nothing where painting is off. */
void paint(enum paint how);

#define PAINTED 512 /* bytes of a bar or a trend */

/* @share of @width columns. Blocks where the locale is UTF-8, else letters of ASCII; as what follows. */
const char *paint_bar(char buf[PAINTED], double share, unsigned width);

/* The last so many values, the oldest first: a minute of screens, one every 2 s. */
#define TREND 30u
struct trend {
	double values[TREND];
	unsigned n;
};
void trend_add(struct trend *trend, double value);
/* Columns as high as the values are, of @most; where @most is 0, of the largest one. TREND columns. */
const char *trend_paint(char buf[PAINTED], const struct trend *trend, double most);
