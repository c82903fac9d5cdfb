/* SPDX-License-Identifier: Apache-2.0 */
/* Tables for other programs: CSV, and the percentile text that plotters of HdrHistogram read. */
#include "lat.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "json_env.h"
#include "say.h"

#define PATH_BYTES 4096
/* Lines of percentiles for each halving of the share that is left above, as HdrHistogram's own tools print them. */
#define TICKS_PER_HALF 5

static FILE *
open_out(struct lat *lat, const char *path)
{
	FILE *out = say_open(path);
	char text[SAY_ERROR];

	if (!out)
		(void)lat_fail(lat, "cannot write %s: %s", path, say_error(text, errno));
	return out;
}

static int
close_out(struct lat *lat, const char *path, FILE *out)
{
	int error = say_close(out);
	char text[SAY_ERROR];

	return error ? lat_fail(lat, "cannot write %s: %s", path, say_error(text, error)) : 0;
}

/* A text that stays on its line. */
static void
put_plain(FILE *out, const char *text)
{
	for (; *text; text++)
		say_to(out, "%c", (unsigned char)*text < ' ' ? '?' : *text);
}

/* "# key: value" for each member that has a value. Takes the reference. */
static void
put_members(FILE *out, json_t *object)
{
	const char *key;
	json_t *value;

	json_object_foreach(object, key, value)
	{
		if (json_is_null(value))
			continue;
		say_to(out, "# %s: ", key);
		if (json_is_string(value))
			put_plain(out, json_string_value(value));
		else if (json_is_number(value))
			say_to(out, "%.12g", json_number_value(value));
		else
			say_to(out, "%s", json_is_true(value) ? "true" : "false");
		say_to(out, "\n");
	}
	json_decref(object);
}

/* As comments: each output says what it depends on. */
static void
put_environment(FILE *out, const struct lat *lat)
{
	const char *why = NULL, *ended;
	char text[LAT_LINE_BYTES];

	if (json_env_is_slow_build(&why))
		say_to(out, "# THESE NUMBERS MEAN NOTHING: %s\n", why);
	ended = lat_why_ended(lat, text);
	if (ended) {
		say_to(out, "# ");
		put_plain(out, ended);
		say_to(out, "\n");
	}
	put_members(out, json_env());
	say_to(out, "# loop: %s\n", lat->opt->rate ? "open" : "closed");
	put_members(out, lat_options_json(lat->opt));
}

static void
put_csv_row(FILE *out, const char *mode, const char *metric, const struct scout__hist *hist)
{
	static const double quantiles[] = {0.5, 0.9, 0.99, 0.999};

	say_to(out, "%s,%s,%" PRIu64, mode, metric, hist->n);
	if (hist->n) {
		say_to(out, ",%" PRIu64, hist->min);
		for (size_t i = 0; i < sizeof(quantiles) / sizeof(quantiles[0]); i++)
			say_to(out, ",%" PRIu64, scout__hist_quantile(hist, quantiles[i]));
		say_to(out, ",%" PRIu64 "\n", hist->max);
	} else {
		say_to(out, ",,,,,,\n");
	}
}

int
lat_write_csv(struct lat *lat, const char *path)
{
	FILE *out = open_out(lat, path);

	if (!out)
		return -1;
	put_environment(out, lat);
	say_to(out, "mode,metric,n,min,p50,p90,p99,p999,max\n");
	for (unsigned int mode = 0; mode < LAT_N_MODES; mode++) {
		for (unsigned int m = 0; lat_is_chosen(lat->opt, mode) && m < LAT_N_METRICS; m++) {
			if (lat_metrics(lat, mode) & 1u << m)
				put_csv_row(out, lat_mode_names[mode], lat_metric_names[m],
					    &lat->results[mode].metrics[m]);
		}
	}
	put_csv_row(out, "clock", "reading_ns", &lat->clock);
	return close_out(lat, path, out);
}

static uint64_t
count_up_to(const struct scout__hist *hist, uint64_t value)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < SCOUT__HIST_BUCKETS && scout__hist_bucket_low(i) <= value; i++)
		n += hist->counts[i];
	return n;
}

/* By the middle of each bucket. */
static double
deviation(const struct scout__hist *hist, double mean)
{
	double sum = 0, off;

	for (unsigned i = 0; i < SCOUT__HIST_BUCKETS; i++) {
		if (!hist->counts[i])
			continue;
		off = ((double)scout__hist_bucket_low(i) + (double)scout__hist_bucket_high(i)) / 2 - mean;
		sum += off * off * (double)hist->counts[i];
	}
	return sqrt(sum / (double)hist->n);
}

/* The row of quantile @q. False: nothing is above it, which is the last row's to say. */
static bool
put_hgrm_row(FILE *out, const struct scout__hist *hist, double q)
{
	uint64_t value = scout__hist_quantile(hist, q);
	uint64_t seen = count_up_to(hist, value);

	if (seen < hist->n)
		say_to(out, "%12" PRIu64 ".000 %2.12f %10" PRIu64 " %14.2f\n", value, q, seen, 1 / (1 - q));
	return seen < hist->n;
}

/* HdrHistogram's ticks, and between them the quantiles that the other outputs have: a reader finds the same numbers. */
static void
put_hgrm(FILE *out, const struct scout__hist *hist)
{
	static const double reported[] = {0.9, 0.99, 0.999};
	const size_t n_reported = sizeof(reported) / sizeof(reported[0]);
	double mean = hist->n ? hist->sum / (double)hist->n : 0, q;
	bool is_more = hist->n > 0;
	size_t next = 0;

	say_to(out, "%12s %14s %10s %14s\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
	/* Of n samples fewer than one is above after 64 halvings, whatever n is. */
	for (int tick = 0; tick < 64 * TICKS_PER_HALF && is_more; tick++) {
		/* Not by adding: sums miss 0.9 by one rounding, and so its sample by one. */
		q = 1 - (2.0 * TICKS_PER_HALF - tick % TICKS_PER_HALF) /
				(2.0 * TICKS_PER_HALF * ldexp(1, tick / TICKS_PER_HALF));
		for (; is_more && next < n_reported && reported[next] <= q; next++)
			is_more = put_hgrm_row(out, hist, reported[next]);
		if (is_more && (!next || reported[next - 1] < q))
			is_more = put_hgrm_row(out, hist, q);
	}
	if (hist->n)
		say_to(out, "%12" PRIu64 ".000 %2.12f %10" PRIu64 "\n", hist->max, 1.0, hist->n);
	say_to(out, "#[Mean    = %12.3f, StdDeviation   = %12.3f]\n", mean, hist->n ? deviation(hist, mean) : 0);
	say_to(out, "#[Max     = %12.3f, Total count    = %12" PRIu64 "]\n", (double)hist->max, hist->n);
	say_to(out, "#[Buckets = %12d, SubBuckets     = %12u]\n", 64 - SCOUT__HIST_SUB_BITS + 1, SCOUT__HIST_SUB);
}

static int
write_one_hgrm(struct lat *lat, const char *path, unsigned int mode, unsigned int metric)
{
	char name[PATH_BYTES];
	size_t stem = strlen(path);
	FILE *out;
	int n;

	if (stem > 5 && strcmp(path + stem - 5, ".hgrm") == 0)
		stem -= 5;
	n = snprintf(name, sizeof(name), "%.*s.%s.%s.hgrm", (int)stem, path, lat_mode_names[mode],
		     lat_metric_names[metric]);
	if (n < 0 || (size_t)n >= sizeof(name))
		return lat_fail(lat, "--hgrm: the name is too long");
	out = open_out(lat, name);
	if (!out)
		return -1;
	put_environment(out, lat);
	put_hgrm(out, &lat->results[mode].metrics[metric]);
	return close_out(lat, name, out);
}

int
lat_write_hgrm(struct lat *lat, const char *path)
{
	for (unsigned int mode = 0; mode < LAT_N_MODES; mode++) {
		for (unsigned int m = 0; lat_is_chosen(lat->opt, mode) && m < LAT_N_METRICS; m++) {
			if ((lat_metrics(lat, mode) & 1u << m) && write_one_hgrm(lat, path, mode, m))
				return -1;
		}
	}
	return 0;
}
