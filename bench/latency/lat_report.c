/* SPDX-License-Identifier: Apache-2.0 */
/* What kvscout-latency prints for people. It says which build it comes from. */
#include "lat.h"

#include <inttypes.h>
#include <stdio.h>

#include <kvscout/version.h>

#include "json_env.h"
#include "say.h"
#include "table.h"

static void
print_row(const char *mode, const char *metric, const struct scout__hist *hist, struct lat_ratio ratio)
{
	static const double quantiles[] = {0.5, 0.9, 0.99, 0.999};
	char cell[TABLE_TEXT];

	say("%-7s %-18s %9" PRIu64, mode, metric, hist->n);
	if (!hist->n) {
		say("  (nothing was measured)\n");
		return;
	}
	say(" %10s", table_ns(hist->min, cell));
	for (size_t i = 0; i < sizeof(quantiles) / sizeof(quantiles[0]); i++)
		say(" %10s", table_ns(scout__hist_quantile(hist, quantiles[i]), cell));
	say(" %10s", table_ns(hist->max, cell));
	if (ratio.n)
		say("  %8.3f (%.3f..%.3f)", ratio.p50, ratio.min, ratio.max);
	say("\n");
}

static void
print_mode(const struct lat *lat, unsigned int mode)
{
	const struct lat_result *result = &lat->results[mode];

	for (unsigned int m = 0; m < LAT_N_METRICS; m++) {
		if (lat_metrics(lat, mode) & 1u << m)
			print_row(lat_mode_names[mode], lat_metric_names[m], &result->metrics[m],
				  lat->opt->compare ? lat_ratio_to_floor(lat, mode, m) : (struct lat_ratio){0});
	}
}

static void
print_counts(const struct lat *lat, unsigned int mode)
{
	const struct lat_result *result = &lat->results[mode];

	say("%s: %" PRIu64 " requests in %" PRIu64 " steps", lat_mode_names[mode], result->requests, result->steps);
	if (result->asked_chunks)
		say(", %.1f %% of the chunks hit, %" PRIu64 " answers wrong",
		    100.0 * (double)result->hit_chunks / (double)result->asked_chunks, result->wrong);
	if (result->failed)
		say(", %" PRIu64 " failed (the first: %s)", result->failed, result->first_failure);
	if (result->busy)
		say(", %" PRIu64 " submits put off (busy)", result->busy);
	if (result->wall_ns)
		say(", %.0f lookups/s", lat_lookups_per_s(result));
	say("\n");
	if (result->asks.n)
		say("       steps until the answer: p50 %" PRIu64 ", p99 %" PRIu64 ", max %" PRIu64
		    "; %.1f %% were answered within the step that asked\n",
		    scout__hist_quantile(&result->asks, 0.5), scout__hist_quantile(&result->asks, 0.99),
		    result->asks.max, 100.0 * (double)result->landed_in_step / (double)result->asks.n);
}

/*
 * What a reader of --compare wants first. A step that only hears "not yet" is cheap, so the whole time is compared,
 * too: else more steps would look like less waiting.
 */
static void
print_verdict_against(const struct lat *lat, unsigned int mode)
{
	const struct lat_result *ours = &lat->results[LAT_ASYNC], *theirs = &lat->results[mode];
	const char *name = lat_mode_names[mode];
	uint64_t a_ns = scout__hist_quantile(&ours->metrics[LAT_STALL], 0.5);
	uint64_t b_ns = scout__hist_quantile(&theirs->metrics[LAT_STALL], 0.5);
	char a[TABLE_TEXT], b[TABLE_TEXT];

	if (!a_ns || !b_ns || !ours->requests || !theirs->requests)
		return;
	say("\nthe scheduler loop waits, in a step (p50):    %s async, %s %s: 1/%.1f\n", table_ns(a_ns, a),
	    table_ns(b_ns, b), name, (double)b_ns / (double)a_ns);
	a_ns = (uint64_t)lat_stall_per_request_ns(ours) + 1;
	b_ns = (uint64_t)lat_stall_per_request_ns(theirs) + 1;
	say("                 for a request (whole run): %s async, %s %s: 1/%.1f\n", table_ns(a_ns, a),
	    table_ns(b_ns, b), name, (double)b_ns / (double)a_ns);
}

static void
print_head(const struct lat *lat)
{
	const struct lat_options *opt = lat->opt;
	const char *why = NULL;
	char text[LAT_LINE_BYTES];

	json_env_line(text, sizeof(text));
	say("kvscout-latency %s: %s\n", SCOUT_VERSION_STRING, text);
	if (opt->rate)
		say("open loop, %" PRIu64 " arrivals/s", opt->rate);
	else
		say("closed loop");
	say(", %" PRIu64 " chunks in a lookup, %" PRIu64 " in flight, step %" PRIu64 " us, hit ratio %g\n", opt->chunks,
	    opt->inflight, opt->step_us, opt->hit_ratio);
	if (opt->clients > 1)
		say("%" PRIu64 " clients with as many in flight each (async, polled)\n", opt->clients);
	if (opt->pin)
		say("pinned: main thread and all others to CPU %s\n", opt->pin);
	if (opt->endpoint)
		say("server at %s%s; the floor is within this machine, on %s\n", opt->endpoint,
		    opt->keys.secret_file ? ", encrypted (CURVE)" : "", lat_floor_transport(opt));
	else
		say("embedded server on ipc, answers held back by %" PRIu64 " us\n", opt->server_delay_us);
	if (opt->spin_us || opt->server_spin_us)
		say("spinning before they sleep: client %" PRIu64 " us, server %" PRIu64 " us\n", opt->spin_us,
		    opt->server_spin_us);
	if (json_env_is_slow_build(&why))
		say("THESE NUMBERS MEAN NOTHING: %s\n", why);
}

void
lat_print_table(const struct lat *lat)
{
	char text[LAT_LINE_BYTES];
	const char *ended = lat_why_ended(lat, text);

	print_head(lat);
	if (ended)
		say("%s\n", ended);
	say("\n%-7s %-18s %9s %10s %10s %10s %10s %10s %10s%s\n", "mode", "metric", "n", "min", "p50", "p90", "p99",
	    "p99.9", "max", lat->opt->compare ? "  p50 over floor's" : "");
	for (unsigned int mode = 0; mode < LAT_N_MODES; mode++) {
		if (lat_is_chosen(lat->opt, mode))
			print_mode(lat, mode);
	}
	print_row("clock", "in every time", &lat->clock, (struct lat_ratio){0});
	say("\n");
	for (unsigned int mode = 0; mode < LAT_N_MODES; mode++) {
		if (lat_is_chosen(lat->opt, mode))
			print_counts(lat, mode);
	}
	if (lat->opt->compare) {
		print_verdict_against(lat, LAT_SYNC);
		if (lat->opt->peer)
			print_verdict_against(lat, LAT_PEER);
	}
	say_flush(); /* before what follows on standard error */
}
