/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Purpose: what the sweep on a GPU has measured: a table for the README, JSON, and one SVG of GB/s over piece size (a panel
 * for each course, a line for each way). By hand, because the tool needs nothing but libc. Main thread only.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "copy_tool.h"
#include "say.h"

#define PANEL_WIDTH 300
#define PANEL_HEIGHT 240
#define LEFT 60
#define TOP 60
#define GAP 50

const char *const copy_way_names[COPY_N_WAYS] = {"contiguous", "staged", "batch", "direct", "auto"};
const char *const copy_course_names[COPY_N_COURSES] = {"h2d", "d2h", "both"};

/* Distinct for all kinds of colour vision. */
static const char *const colours[COPY_N_WAYS] = {"#555555", "#0072b2", "#d55e00", "#cc79a7", "#009e73"};

static void
size_text(char *buf, size_t len, uint64_t bytes)
{
	if (bytes >= 1 << 20 && bytes % (1 << 20) == 0)
		(void)snprintf(buf, len, "%" PRIu64 " MiB", bytes >> 20);
	else if (bytes >= 1024 && bytes % 1024 == 0)
		(void)snprintf(buf, len, "%" PRIu64 " KiB", bytes >> 10);
	else
		(void)snprintf(buf, len, "%" PRIu64 " B", bytes);
}

/* ---- table ---- */

static void
table_course(const struct copy_sweep *sweep, unsigned int course)
{
	char size[32];

	say("\n%s: GB/s, median of %" PRIu64
	    " rounds (%% of the contiguous copy in the same round)\n\n| piece | contiguous |",
	    copy_course_names[course], sweep->opt->repeat);
	for (unsigned int w = COPY_STAGED; w < COPY_N_WAYS; w++)
		if (sweep->points[0].ran[w])
			say(" %s |", copy_way_names[w]);
	say("\n|---|---|");
	for (unsigned int w = COPY_STAGED; w < COPY_N_WAYS; w++)
		say("%s", sweep->points[0].ran[w] ? "---|" : "");
	say("\n");
	for (unsigned int i = 0; i < sweep->n_points; i++) {
		const struct copy_point *point = &sweep->points[i];

		size_text(size, sizeof(size), point->piece_bytes);
		say("| %s | %.1f |", size, point->gbps[course][COPY_CONTIGUOUS].p50);
		for (unsigned int w = COPY_STAGED; w < COPY_N_WAYS; w++)
			if (point->ran[w])
				say(" %.1f (%.0f %%) |", point->gbps[course][w].p50, point->ratio[course][w].p50 * 100);
		say("\n");
	}
}

static void
table_product(const struct copy_sweep *sweep)
{
	char size[32];

	say("\nA matrix product (%.2f ms alone) is slower by, beside copies both ways\n\n|piece|", sweep->product_ms);
	for (unsigned int w = 0; w < COPY_N_WAYS; w++)
		if (sweep->points[0].ran[w])
			say(" %s |", copy_way_names[w]);
	say("\n|---|");
	for (unsigned int w = 0; w < COPY_N_WAYS; w++)
		say("%s", sweep->points[0].ran[w] ? "---|" : "");
	say("\n");
	for (unsigned int i = 0; i < sweep->n_points; i++) {
		size_text(size, sizeof(size), sweep->points[i].piece_bytes);
		say("| %s |", size);
		for (unsigned int w = 0; w < COPY_N_WAYS; w++)
			if (sweep->points[i].ran[w])
				say(" %.1f %% |", sweep->points[i].slower[w]);
		say("\n");
	}
}

void
copy_report_table(const struct copy_sweep *sweep)
{
	say("kvscout-copy: %s, driver %d.%d, runtime %d.%d, batch copies %s, %" PRIu64 " MiB in each copy\n",
	    sweep->gpu, sweep->driver / 1000, sweep->driver % 1000 / 10, sweep->runtime / 1000,
	    sweep->runtime % 1000 / 10, sweep->has_batch ? "in one call" : "one by one", sweep->total_bytes >> 20);
	for (unsigned int course = 0; course < COPY_N_COURSES; course++)
		table_course(sweep, course);
	table_product(sweep);
	say("\n%" PRIu64 " bytes verified, %" PRIu64 " wrong\n", sweep->verified_bytes, sweep->wrong_bytes);
}

/* ---- JSON ---- */

static void
json_point(FILE *out, const struct copy_sweep *sweep, const struct copy_point *point)
{
	uint64_t n = sweep->opt->repeat;

	say_to(out, "    {\"piece_bytes\": %" PRIu64 ", \"pieces\": %" PRIu64, point->piece_bytes, point->pieces);
	for (unsigned int course = 0; course < COPY_N_COURSES; course++) {
		say_to(out, ",\n      \"%s\": {\"gbps\": {", copy_course_names[course]);
		for (unsigned int w = 0, any = 0; w < COPY_N_WAYS; w++) {
			if (!point->ran[w])
				continue;
			say_to(out, "%s", any++ ? ", " : "");
			copy_json_summary(out, copy_way_names[w], point->gbps[course][w], n);
		}
		say_to(out, "}, \"ratio\": {");
		for (unsigned int w = COPY_STAGED, any = 0; w < COPY_N_WAYS; w++) {
			if (!point->ran[w])
				continue;
			say_to(out, "%s", any++ ? ", " : "");
			copy_json_summary(out, copy_way_names[w], point->ratio[course][w], n);
		}
		say_to(out, "}}");
	}
	say_to(out, ",\n      \"product_slower_percent\": {");
	for (unsigned int w = 0, any = 0; w < COPY_N_WAYS; w++)
		if (point->ran[w])
			say_to(out, "%s\"%s\": %.3f", any++ ? ", " : "", copy_way_names[w], point->slower[w]);
	say_to(out, "}}");
}

static void
finish(FILE *out, const char *path)
{
	int error = say_close(out);
	char text[SAY_ERROR];

	if (error)
		copy_die(EXIT_WRONG, "cannot write %s: %s", path, say_error(text, error));
}

void
copy_report_json(const struct copy_sweep *sweep, const char *path)
{
	FILE *out = say_open(path);
	char why[SAY_ERROR];

	if (!out)
		copy_die(EXIT_WRONG, "cannot write %s: %s", path, say_error(why, errno));
	say_to(out, "{\n  \"tool\": \"kvscout-copy\",\n");
	copy_json_environment(out);
	say_to(out, "  \"backend\": \"cuda\", \"gpu\": ");
	copy_json_string(out, sweep->gpu);
	say_to(out,
	       ", \"driver\": %d, \"runtime\": %d, \"has_batch\": %s,\n  \"total_bytes\": %" PRIu64
	       ", \"seed\": %" PRIu64 ", \"repeat\": %" PRIu64 ", \"product_ms\": %.4f,\n  \"points\": [\n",
	       sweep->driver, sweep->runtime, sweep->has_batch ? "true" : "false", sweep->total_bytes, sweep->opt->seed,
	       sweep->opt->repeat, sweep->product_ms);
	for (unsigned int i = 0; i < sweep->n_points; i++) {
		say_to(out, "%s", i ? ",\n" : "");
		json_point(out, sweep, &sweep->points[i]);
	}
	say_to(out, "\n  ],\n  \"verified_bytes\": %" PRIu64 ", \"wrong_bytes\": %" PRIu64 "\n}\n",
	       sweep->verified_bytes, sweep->wrong_bytes);
	finish(out, path);
}

/* ---- SVG ---- */

static double
highest(const struct copy_sweep *sweep)
{
	double top = 1;

	for (unsigned int i = 0; i < sweep->n_points; i++)
		for (unsigned int course = 0; course < COPY_N_COURSES; course++)
			for (unsigned int w = 0; w < COPY_N_WAYS; w++)
				if (sweep->points[i].ran[w] && sweep->points[i].gbps[course][w].p50 > top)
					top = sweep->points[i].gbps[course][w].p50;
	return top * 1.05;
}

static double
x_of(const struct copy_sweep *sweep, unsigned int i)
{
	return sweep->n_points > 1 ? (double)i * PANEL_WIDTH / (sweep->n_points - 1) : PANEL_WIDTH / 2.0;
}

static void
svg_panel(FILE *out, const struct copy_sweep *sweep, unsigned int course, double top)
{
	char size[32];

	say_to(out, "<g transform=\"translate(%u,%u)\">\n<text x=\"%u\" y=\"-12\" text-anchor=\"middle\">%s</text>\n",
	       LEFT + course * (PANEL_WIDTH + GAP), TOP, PANEL_WIDTH / 2, copy_course_names[course]);
	say_to(out, "<rect width=\"%u\" height=\"%u\" fill=\"none\" stroke=\"#999\"/>\n", PANEL_WIDTH, PANEL_HEIGHT);
	for (int step = 0; step <= 4; step++)
		say_to(out, "<text x=\"-6\" y=\"%.1f\" text-anchor=\"end\">%.0f</text>\n",
		       PANEL_HEIGHT - step * PANEL_HEIGHT / 4.0 + 4, top * step / 4);
	for (unsigned int i = 0; i < sweep->n_points; i += 3) {
		size_text(size, sizeof(size), sweep->points[i].piece_bytes);
		say_to(out, "<text x=\"%.1f\" y=\"%u\" text-anchor=\"middle\">%s</text>\n", x_of(sweep, i),
		       PANEL_HEIGHT + 18, size);
	}
	for (unsigned int w = 0; w < COPY_N_WAYS; w++) {
		if (!sweep->points[0].ran[w])
			continue;
		say_to(out, "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"%s\" points=\"", colours[w]);
		for (unsigned int i = 0; i < sweep->n_points; i++)
			say_to(out, "%.1f,%.1f ", x_of(sweep, i),
			       PANEL_HEIGHT - sweep->points[i].gbps[course][w].p50 * PANEL_HEIGHT / top);
		say_to(out, "\"/>\n");
	}
	say_to(out, "</g>\n");
}

void
copy_report_svg(const struct copy_sweep *sweep, const char *path)
{
	FILE *out = say_open(path);
	double top = highest(sweep);
	char why[SAY_ERROR];
	unsigned int x = LEFT;

	if (!out)
		copy_die(EXIT_WRONG, "cannot write %s: %s", path, say_error(why, errno));
	say_to(out,
	       "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" font-family=\"sans-serif\" "
	       "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
	       "<text x=\"%u\" y=\"20\">GB/s over the size of one piece, %s</text>\n",
	       LEFT + COPY_N_COURSES * (PANEL_WIDTH + GAP), TOP + PANEL_HEIGHT + 70, LEFT, sweep->gpu);
	for (unsigned int course = 0; course < COPY_N_COURSES; course++)
		svg_panel(out, sweep, course, top);
	for (unsigned int w = 0; w < COPY_N_WAYS; w++, x += 120)
		if (sweep->points[0].ran[w])
			say_to(out, "<text x=\"%u\" y=\"%u\" fill=\"%s\">%s</text>\n", x, TOP + PANEL_HEIGHT + 50,
			       colours[w], copy_way_names[w]);
	say_to(out, "</svg>\n");
	finish(out, path);
}
