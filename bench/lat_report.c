/* SPDX-License-Identifier: Apache-2.0 */
/* What kvscout-latency prints: a table for people, a JSON object for programs. Both say which build they come from. */
#include "lat.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <kvscout/version.h>

#include "json_env.h"

#define CELL 24

const char *const lat_mode_names[] = {"async", "polled", "sync", "floor", NULL};

const char *const lat_metric_names[LAT_N_METRICS] = {
	"submit_ns", "pending_ns", "landed_ns", "seen_ns", "stall_ns_per_step", "rtt_ns",
};

static bool
has_run(const struct lat *lat, unsigned int mode)
{
	return lat->opt->compare || lat->opt->mode == mode;
}

static const char *
show_ns(char buf[CELL], uint64_t ns)
{
	if (ns < 1000)
		(void)snprintf(buf, CELL, "%" PRIu64 " ns", ns);
	else if (ns < 1000000)
		(void)snprintf(buf, CELL, "%.2f us", (double)ns / 1e3);
	else if (ns < 1000000000)
		(void)snprintf(buf, CELL, "%.2f ms", (double)ns / 1e6);
	else
		(void)snprintf(buf, CELL, "%.2f s", (double)ns / 1e9);
	return buf;
}

static void
print_row(const char *mode, const char *metric, const struct scout__hist *hist, struct lat_ratio ratio)
{
	static const double quantiles[] = {0.5, 0.9, 0.99, 0.999};
	char cell[CELL];

	printf("%-7s %-18s %9" PRIu64, mode, metric, hist->n);
	if (!hist->n) {
		printf("  (nothing was measured)\n");
		return;
	}
	printf(" %10s", show_ns(cell, hist->min));
	for (size_t i = 0; i < sizeof(quantiles) / sizeof(quantiles[0]); i++)
		printf(" %10s", show_ns(cell, scout__hist_quantile(hist, quantiles[i])));
	printf(" %10s", show_ns(cell, hist->max));
	if (ratio.n)
		printf("  %8.3f (%.3f..%.3f)", ratio.p50, ratio.min, ratio.max);
	putchar('\n');
}

static void
print_mode(const struct lat *lat, unsigned int mode)
{
	const struct lat_result *result = &lat->results[mode];

	for (unsigned int m = 0; m < LAT_N_METRICS; m++) {
		if (lat_runners[mode]->metrics & 1u << m)
			print_row(lat_mode_names[mode], lat_metric_names[m], &result->metrics[m],
				  lat->opt->compare ? lat_ratio_to_floor(lat, mode, m) : (struct lat_ratio){0});
	}
}

static void
print_counts(const struct lat *lat, unsigned int mode)
{
	const struct lat_result *result = &lat->results[mode];

	printf("%s: %" PRIu64 " requests in %" PRIu64 " steps", lat_mode_names[mode], result->requests, result->steps);
	if (result->asked_chunks)
		printf(", %.1f %% of the chunks hit, %" PRIu64 " answers wrong",
		       100.0 * (double)result->hit_chunks / (double)result->asked_chunks, result->wrong);
	if (result->failed)
		printf(", %" PRIu64 " failed (the first: %s)", result->failed, result->first_failure);
	if (result->busy)
		printf(", %" PRIu64 " submits put off (busy)", result->busy);
	putchar('\n');
}

/*
 * What a reader of --compare wants first. A step that only hears "not yet" is cheap, so the whole time is compared,
 * too: else more steps would look like less waiting.
 */
static void
print_verdict(const struct lat *lat)
{
	const struct lat_result *ours = &lat->results[LAT_ASYNC], *theirs = &lat->results[LAT_SYNC];
	uint64_t a_ns = scout__hist_quantile(&ours->metrics[LAT_STALL], 0.5);
	uint64_t b_ns = scout__hist_quantile(&theirs->metrics[LAT_STALL], 0.5);
	char a[CELL], b[CELL];

	if (!a_ns || !b_ns || !ours->requests || !theirs->requests)
		return;
	printf("\nthe scheduler loop waits, in a step (p50):    %s async, %s sync: 1/%.0f\n", show_ns(a, a_ns),
	       show_ns(b, b_ns), (double)b_ns / (double)a_ns);
	a_ns = (uint64_t)(ours->metrics[LAT_STALL].sum / (double)ours->requests) + 1;
	b_ns = (uint64_t)(theirs->metrics[LAT_STALL].sum / (double)theirs->requests) + 1;
	printf("                 for a request (whole run): %s async, %s sync: 1/%.0f\n", show_ns(a, a_ns),
	       show_ns(b, b_ns), (double)b_ns / (double)a_ns);
}

static void
print_head(const struct lat *lat)
{
	const struct lat_options *opt = lat->opt;
	const char *why = NULL;

	printf("kvscout-latency %s: closed loop, %" PRIu64 " chunks in a lookup, %" PRIu64 " in flight, step %" PRIu64
	       " us, hit ratio %g\n",
	       SCOUT_VERSION_STRING, opt->chunks, opt->inflight, opt->step_us, opt->hit_ratio);
	if (opt->endpoint)
		printf("server at %s\n", opt->endpoint);
	else
		printf("embedded server, answers held back by %" PRIu64 " us\n", opt->server_delay_us);
	if (json_env_is_slow_build(&why))
		printf("THESE NUMBERS MEAN NOTHING: %s\n", why);
}

void
lat_print_table(const struct lat *lat, bool is_interrupted)
{
	print_head(lat);
	if (is_interrupted)
		printf("interrupted: what was measured until then\n");
	printf("\n%-7s %-18s %9s %10s %10s %10s %10s %10s %10s%s\n", "mode", "metric", "n", "min", "p50", "p90", "p99",
	       "p99.9", "max", lat->opt->compare ? "  p50 over floor's" : "");
	for (unsigned int mode = 0; mode < LAT_N_MODES; mode++) {
		if (has_run(lat, mode))
			print_mode(lat, mode);
	}
	print_row("clock", "in every time", &lat->clock, (struct lat_ratio){0});
	putchar('\n');
	for (unsigned int mode = 0; mode < LAT_N_MODES; mode++) {
		if (has_run(lat, mode))
			print_counts(lat, mode);
	}
	if (lat->opt->compare)
		print_verdict(lat);
	fflush(stdout);
}

static json_t *
options_json(const struct lat_options *opt)
{
	return json_pack("{s:s?, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:b, s:b}", "endpoint",
			 opt->endpoint, "namespace", opt->name_space, "requests", (json_int_t)opt->requests, "warmup",
			 (json_int_t)opt->warmup, "rounds", (json_int_t)opt->rounds, "chunks", (json_int_t)opt->chunks,
			 "inflight", (json_int_t)opt->inflight, "step_us", (json_int_t)opt->step_us, "hit_ratio",
			 opt->hit_ratio, "server_delay_us", (json_int_t)opt->server_delay_us, "spin_us",
			 (json_int_t)opt->spin_us, "seed", (json_int_t)opt->seed, "compare", opt->compare, "verify",
			 opt->verify);
}

static json_t *
metrics_json(const struct lat *lat, unsigned int mode)
{
	json_t *object = json_object();

	for (unsigned int m = 0; m < LAT_N_METRICS; m++) {
		if (lat_runners[mode]->metrics & 1u << m)
			(void)json_object_set_new(object, lat_metric_names[m],
						  json_hist(&lat->results[mode].metrics[m]));
	}
	return object;
}

static json_t *
counts_json(const struct lat *lat, unsigned int mode)
{
	const struct lat_result *result = &lat->results[mode];

	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "requests", (json_int_t)result->requests, "steps",
			 (json_int_t)result->steps, "hit_chunks", (json_int_t)result->hit_chunks, "asked_chunks",
			 (json_int_t)result->asked_chunks, "busy", (json_int_t)result->busy, "failed",
			 (json_int_t)result->failed, "wrong", (json_int_t)result->wrong);
}

static json_t *
ratios_json(const struct lat *lat, unsigned int mode)
{
	json_t *object = json_object();
	struct lat_ratio ratio;

	for (unsigned int m = 0; m < LAT_N_METRICS; m++) {
		ratio = lat_ratio_to_floor(lat, mode, m);
		if (ratio.n)
			(void)json_object_set_new(object, lat_metric_names[m],
						  json_pack("{s:I, s:f, s:f, s:f}", "n", (json_int_t)ratio.n, "min",
							    ratio.min, "p50", ratio.p50, "max", ratio.max));
	}
	return object;
}

static int
set(json_t *object, const char *key, json_t *value)
{
	return json_object_set_new(object, key, value); /* takes the reference, also when it fails; refuses NULL */
}

int
lat_write_json(struct lat *lat, const char *path, bool is_interrupted)
{
	json_t *root = json_object(), *modes = json_object(), *counts = json_object(), *ratios = json_object();
	char err[LAT_ERR_BYTES] = "";
	const char *name;
	int rc = 0;

	for (unsigned int mode = 0; mode < LAT_N_MODES; mode++) {
		if (!has_run(lat, mode))
			continue;
		name = lat_mode_names[mode];
		rc |= set(modes, name, metrics_json(lat, mode));
		rc |= set(counts, name, counts_json(lat, mode));
		if (lat->opt->compare)
			rc |= set(ratios, name, ratios_json(lat, mode));
	}
	rc |= set(root, "tool", json_string("kvscout-latency"));
	rc |= set(root, "loop", json_string("closed"));
	rc |= set(root, "interrupted", json_boolean(is_interrupted));
	rc |= set(root, "environment", json_env());
	rc |= set(root, "options", options_json(lat->opt));
	rc |= set(root, "clock_ns", json_hist(&lat->clock));
	rc |= set(root, "modes", modes);
	rc |= set(root, "counts", counts);
	rc |= set(root, "ratios_to_floor", ratios);
	if (rc) {
		json_decref(root);
		return lat_fail(lat, "cannot make the JSON: out of memory, or a text that is not UTF-8");
	}
	if (json_write_file(root, path, err, sizeof(err)))
		return lat_fail(lat, "%s", err);
	return 0;
}
