/* SPDX-License-Identifier: Apache-2.0 */
/* One SVG of GB/s over piece size: a panel for each course, a line for each way. By hand. Main thread only. */
#include <errno.h>
#include <inttypes.h>

#include "copy_report.h"
#include "say.h"

#define PANEL_WIDTH 300
#define PANEL_HEIGHT 240
#define LEFT 60
#define TOP 60
#define GAP 50
#define N_SIZES 14 /* 256 bytes to 2 MiB */

/* Distinct for all kinds of colour vision. */
static const char *const colours[COPY_N_WAYS] = {"#555555", "#0072b2", "#d55e00", "#cc79a7", "#009e73"};

static bool
is_plain(const struct copy_point *point)
{
	return !point->layered && point->load == COPY_NO_LOAD && point->slots == COPY_MEMFD && !point->only_auto;
}

/* GB/s of a plain point, or 0. */
static double
gbps_of(const struct copy_report *report, uint64_t piece, unsigned int course, unsigned int way)
{
	for (unsigned int i = 0; i < report->n_points; i++) {
		const struct copy_point *point = &report->points[i];

		if (is_plain(point) && point->piece_bytes == piece && (unsigned int)point->course == course &&
		    report->results[i].ways[way].ran)
			return report->results[i].ways[way].gbps.p50;
	}
	return 0;
}

static double
highest(const struct copy_report *report)
{
	double top = 1, gbps;

	for (uint64_t piece = COPY_SMALLEST_PIECE; piece <= COPY_LARGEST_PIECE; piece *= 2)
		for (unsigned int course = 0; course < COPY_N_COURSES; course++)
			for (unsigned int way = 0; way < COPY_N_WAYS; way++) {
				gbps = gbps_of(report, piece, course, way);
				top = gbps > top ? gbps : top;
			}
	return top * 1.05;
}

static double
x_of(unsigned int i)
{
	return (double)i * PANEL_WIDTH / (N_SIZES - 1);
}

static void
svg_panel(FILE *out, const struct copy_report *report, unsigned int course, double top)
{
	char size[32];
	double gbps;

	say_to(out, "<g transform=\"translate(%u,%u)\">\n<text x=\"%u\" y=\"-12\" text-anchor=\"middle\">%s</text>\n",
	       LEFT + course * (PANEL_WIDTH + GAP), TOP, PANEL_WIDTH / 2, copy_course_names[course]);
	say_to(out, "<rect width=\"%u\" height=\"%u\" fill=\"none\" stroke=\"#999\"/>\n", PANEL_WIDTH, PANEL_HEIGHT);
	for (int step = 0; step <= 4; step++)
		say_to(out, "<text x=\"-6\" y=\"%.1f\" text-anchor=\"end\">%.0f</text>\n",
		       PANEL_HEIGHT - step * PANEL_HEIGHT / 4.0 + 4, top * step / 4);
	for (unsigned int i = 0; i < N_SIZES; i += 3) {
		copy_size_text(size, sizeof(size), (uint64_t)COPY_SMALLEST_PIECE << i);
		say_to(out, "<text x=\"%.1f\" y=\"%u\" text-anchor=\"middle\">%s</text>\n", x_of(i), PANEL_HEIGHT + 18,
		       size);
	}
	for (unsigned int way = 0; way < COPY_N_WAYS; way++) {
		say_to(out, "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"%s\" points=\"", colours[way]);
		for (unsigned int i = 0; i < N_SIZES; i++) {
			gbps = gbps_of(report, (uint64_t)COPY_SMALLEST_PIECE << i, course, way);
			if (gbps > 0)
				say_to(out, "%.1f,%.1f ", x_of(i), PANEL_HEIGHT - gbps * PANEL_HEIGHT / top);
		}
		say_to(out, "\"/>\n");
	}
	say_to(out, "</g>\n");
}

void
copy_svg_write(const struct copy_report *report, const char *path)
{
	FILE *out = say_open(path);
	double top = highest(report);
	char why[SAY_ERROR];
	unsigned int x = LEFT;

	if (!out)
		copy_die(EXIT_WRONG, "cannot write %s: %s", path, say_error(why, errno));
	say_to(out,
	       "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" font-family=\"sans-serif\" "
	       "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
	       "<text x=\"%u\" y=\"20\">GB/s over the size of one piece, %s</text>\n",
	       LEFT + COPY_N_COURSES * (PANEL_WIDTH + GAP), TOP + PANEL_HEIGHT + 70, LEFT, report->info.name);
	for (unsigned int course = 0; course < COPY_N_COURSES; course++)
		svg_panel(out, report, course, top);
	for (unsigned int way = 0; way < COPY_N_WAYS; way++, x += 120)
		say_to(out, "<text x=\"%u\" y=\"%u\" fill=\"%s\">%s</text>\n", x, TOP + PANEL_HEIGHT + 50, colours[way],
		       copy_way_names[way]);
	say_to(out, "</svg>\n");
	copy_finish(out, path);
}
