/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Purpose: the percentile curves of a run as one SVG file without scripts, readable in a browser and in a README. Two
 * panels: how long an answer takes (seen, or the round trip), and what a step of the scheduler spends asking (stall);
 * a line for each mode. Both axes are logarithmic: x counts nines (0, 90, 99, 99.9 %), y is time.
 *
 * A curve ends where fewer than one sample is left above. Text is drawn by the viewer; all of it is ours or escaped.
 *
 * Threads: main only. Rejected: gnuplot (not where the tool runs), one panel (the two differ by a factor of 1000).
 */
#include "lat.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <kvscout/version.h>

#include "json_env.h"
#include "say.h"
#include "table.h"

#define WIDTH 1000
#define HEIGHT 490
#define PANEL_WIDTH 390
#define PANEL_HEIGHT 310
#define PANEL_TOP 100
#define N_PANELS 2
#define WARNING_LETTERS 120
#define WARNING_STYLE "fill=\"#c00\" font-weight=\"bold\""
#define POINTS_PER_NINE 40
#define MAX_NINES 5

/* Distinct for all kinds of colour vision, and in print by their dashes. */
static const struct {
	const char *colour, *dash;
} looks[LAT_N_MODES] = {
	[LAT_ASYNC] = {"#0072b2", "none"}, [LAT_POLLED] = {"#009e73", "8 3"},    [LAT_SYNC] = {"#d55e00", "2 3"},
	[LAT_FLOOR] = {"#555555", "1 2"},  [LAT_PEER] = {"#cc79a7", "10 3 2 3"},
};

struct lat_panel {
	const char *title;
	double left;      /* in the picture */
	double low, high; /* powers of ten of y */
	int nines;
	const struct scout__hist *hists[LAT_N_MODES]; /* NULL: no curve */
};

static const struct scout__hist *
answer_hist(const struct lat *lat, unsigned int mode)
{
	unsigned int metric = lat_metrics(lat, mode) & 1u << LAT_SEEN ? LAT_SEEN : LAT_RTT;

	return &lat->results[mode].metrics[metric];
}

static void
fill_panel(const struct lat *lat, struct lat_panel *panel, bool is_stall)
{
	double low = 1e18, high = 1;
	uint64_t most = 0;

	for (unsigned int mode = 0; mode < LAT_N_MODES; mode++) {
		const struct scout__hist *hist;

		if (!lat_is_chosen(lat->opt, mode) || (is_stall && !(lat_metrics(lat, mode) & 1u << LAT_STALL)))
			continue;
		hist = is_stall ? &lat->results[mode].metrics[LAT_STALL] : answer_hist(lat, mode);
		if (!hist->n)
			continue;
		panel->hists[mode] = hist;
		low = fmin(low, fmax(1, (double)hist->min));
		high = fmax(high, (double)hist->max);
		most = hist->n > most ? hist->n : most;
	}
	if (!most)
		low = high = 1;
	panel->low = floor(log10(low));
	panel->high = fmax(ceil(log10(high)), panel->low + 1);
	panel->nines = 1;
	while (panel->nines < MAX_NINES && pow(10, panel->nines) < (double)most)
		panel->nines++;
}

static double
x_of(const struct lat_panel *panel, double nines)
{
	return panel->left + PANEL_WIDTH * nines / panel->nines;
}

static double
y_of(const struct lat_panel *panel, double value)
{
	double share = (log10(fmax(1, value)) - panel->low) / (panel->high - panel->low);

	return PANEL_TOP + PANEL_HEIGHT * (1 - fmax(0, share));
}

static void
put_text(FILE *out, double x, double y, const char *anchor, const char *style, const char *text)
{
	say_to(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" %s>", x, y, anchor, style);
	for (const char *at = text; *at; at++) {
		if (*at == '<' || *at == '>' || *at == '&')
			say_to(out, "&#%d;", *at);
		else if ((unsigned char)*at >= ' ' && (unsigned char)*at < 127)
			say_to(out, "%c", *at);
		else
			say_to(out, "?");
	}
	say_to(out, "</text>\n");
}

static void
put_grid(FILE *out, const struct lat_panel *panel)
{
	static const char *const shares[MAX_NINES + 1] = {"0", "90", "99", "99.9", "99.99", "99.999"};
	static const char *const powers[] = {"1 ns", "10 ns", "100 ns", "1 us", "10 us", "100 us",
					     "1 ms", "10 ms", "100 ms", "1 s",  "10 s",  "100 s"};
	const unsigned int last = sizeof(powers) / sizeof(powers[0]) - 1;
	double at;

	put_text(out, panel->left, PANEL_TOP - 12, "start", "font-weight=\"bold\"", panel->title);
	for (int i = 0; i <= panel->nines; i++) {
		at = x_of(panel, i);
		say_to(out, "<path d=\"M%.1f %dV%d\" stroke=\"#ddd\"/>\n", at, PANEL_TOP, PANEL_TOP + PANEL_HEIGHT);
		put_text(out, at, PANEL_TOP + PANEL_HEIGHT + 18, "middle", "", shares[i]);
	}
	for (unsigned int i = (unsigned int)panel->low; i <= (unsigned int)panel->high; i++) {
		at = y_of(panel, pow(10, i));
		say_to(out, "<path d=\"M%.1f %.1fh%d\" stroke=\"#ddd\"/>\n", panel->left, at, PANEL_WIDTH);
		put_text(out, panel->left - 6, at + 4, "end", "", powers[i < last ? i : last]);
	}
	put_text(out, panel->left + PANEL_WIDTH / 2.0, PANEL_TOP + PANEL_HEIGHT + 38, "middle", "",
		 "percentile (%, each nine as wide)");
}

static void
put_curve(FILE *out, const struct lat_panel *panel, unsigned int mode)
{
	const struct scout__hist *hist = panel->hists[mode];
	double nines, q;

	say_to(out, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-dasharray=\"%s\" d=\"",
	       looks[mode].colour, looks[mode].dash);
	for (int i = 0; i <= panel->nines * POINTS_PER_NINE; i++) {
		nines = (double)i / POINTS_PER_NINE;
		q = 1 - pow(10, -nines);
		if (i && (1 - q) * (double)hist->n < 1)
			break;
		say_to(out, "%s%.1f %.1f", i ? "L" : "M", x_of(panel, nines),
		       y_of(panel, (double)scout__hist_quantile(hist, q)));
	}
	say_to(out, "\"/>\n");
}

/* Of both panels: a line, the mode's name, and the two medians. */
static void
put_legend(FILE *out, const struct lat_panel *panels)
{
	char text[LAT_TEXT_BYTES], cell[TABLE_TEXT];
	double x = panels[0].left;

	for (unsigned int mode = 0; mode < LAT_N_MODES; mode++) {
		if (!panels[0].hists[mode])
			continue;
		say_to(out, "<path d=\"M%.1f %dh26\" stroke=\"%s\" stroke-width=\"3\" stroke-dasharray=\"%s\"/>\n", x,
		       HEIGHT - 22, looks[mode].colour, looks[mode].dash);
		(void)snprintf(text, sizeof(text), "%s (p50 %s)", lat_mode_names[mode],
			       table_ns(scout__hist_quantile(panels[0].hists[mode], 0.5), cell));
		put_text(out, x + 32, HEIGHT - 18, "start", "", text);
		x += 180;
	}
}

static void
put_head(FILE *out, const struct lat *lat)
{
	const struct lat_options *opt = lat->opt;
	char text[2 * LAT_LINE_BYTES], ended_text[LAT_LINE_BYTES];
	const char *why = NULL, *ended = lat_why_ended(lat, ended_text);
	int n;

	say_to(out,
	       "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
	       "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
	       WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
	n = snprintf(text, sizeof(text), "kvscout-latency %s: %s loop", SCOUT_VERSION_STRING,
		     opt->rate ? "open" : "closed");
	if (opt->rate)
		n += snprintf(text + n, sizeof(text) - (size_t)n, " (%" PRIu64 "/s)", opt->rate);
	n += snprintf(text + n, sizeof(text) - (size_t)n,
		      ", %" PRIu64 " chunks in a lookup, %" PRIu64 " in flight, step %" PRIu64 " us", opt->chunks,
		      opt->inflight, opt->step_us);
	if (!opt->endpoint)
		(void)snprintf(text + n, sizeof(text) - (size_t)n, ", server delay %" PRIu64 " us",
			       opt->server_delay_us);
	put_text(out, WIDTH / 2.0, 24, "middle", "font-size=\"15\"", text);
	json_env_line(text, sizeof(text));
	put_text(out, WIDTH / 2.0, 42, "middle", "fill=\"#555\"", text);
	/* Cut, because the picture is as wide as it is. */
	if (json_env_is_slow_build(&why)) {
		(void)snprintf(text, sizeof(text), "THESE NUMBERS MEAN NOTHING: %.*s", WARNING_LETTERS, why);
		put_text(out, WIDTH / 2.0, 58, "middle", WARNING_STYLE, text);
	}
	if (ended) {
		(void)snprintf(text, sizeof(text), "%.*s", WARNING_LETTERS, ended);
		put_text(out, WIDTH / 2.0, 73, "middle", WARNING_STYLE, text);
	}
}

int
lat_write_plot(struct lat *lat, const char *path)
{
	struct lat_panel panels[N_PANELS] = {
		{.title = "time to the answer (seen, or the round trip)", .left = 80},
		{.title = "time that one step of the scheduler spends asking", .left = 80 + PANEL_WIDTH + 100},
	};
	FILE *out = say_open(path);
	int error = errno;
	char text[SAY_ERROR];

	if (!out)
		return lat_fail(lat, "cannot write %s: %s", path, say_error(text, error));
	put_head(out, lat);
	for (int i = 0; i < N_PANELS; i++) {
		fill_panel(lat, &panels[i], i > 0);
		put_grid(out, &panels[i]);
		for (unsigned int mode = 0; mode < LAT_N_MODES; mode++) {
			if (panels[i].hists[mode])
				put_curve(out, &panels[i], mode);
		}
	}
	put_legend(out, panels);
	say_to(out, "</svg>\n");
	error = say_close(out);
	return error ? lat_fail(lat, "cannot write %s: %s", path, say_error(text, error)) : 0;
}
