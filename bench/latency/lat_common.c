/* SPDX-License-Identifier: Apache-2.0 */
/* What all modes of kvscout-latency share: names, pace, counts, progress. Main thread only. */
#include "lat.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "say.h"
#include "spread.h"

/* A run that ends sooner shows no progress. */
#define QUIET_NS UINT64_C(2000000000)
#define PROGRESS_NS UINT64_C(1000000000)

const char *const lat_mode_names[LAT_N_MODES] = {"async", "polled", "sync", "floor", "peer"};

const char *const lat_metric_names[LAT_N_METRICS] = {
	"submit_ns", "pending_ns", "landed_ns", "seen_ns", "service_ns", "stall_ns_per_step", "rtt_ns",
};

int
lat_fail(struct lat *lat, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(lat->err, sizeof(lat->err), fmt, ap);
	va_end(ap);
	return -1;
}

uint32_t
lat_timeout_ms(const struct lat_options *opt)
{
	return LAT_TIMEOUT_MS + (uint32_t)(2 * opt->server_delay_us / 1000);
}

bool
lat_is_chosen(const struct lat_options *opt, unsigned int mode)
{
	if (mode == LAT_PEER)
		return opt->peer;
	return opt->compare || opt->mode == mode;
}

static const unsigned int mode_metrics[LAT_N_MODES] = {
	[LAT_ASYNC] = 1u << LAT_SUBMIT | 1u << LAT_PENDING | 1u << LAT_SEEN | 1u << LAT_STALL,
	[LAT_POLLED] = 1u << LAT_LANDED | 1u << LAT_SEEN | 1u << LAT_STALL,
	[LAT_SYNC] = 1u << LAT_STALL | 1u << LAT_RTT,
	[LAT_FLOOR] = 1u << LAT_RTT,
	[LAT_PEER] = 1u << LAT_SUBMIT | 1u << LAT_PENDING | 1u << LAT_SEEN | 1u << LAT_STALL | 1u << LAT_RTT,
};

unsigned int
lat_metrics(const struct lat *lat, unsigned int mode)
{
	unsigned int metrics = mode_metrics[mode];

	if (!lat->opt->rate || mode == LAT_FLOOR)
		return metrics;
	/* A round trip is its own service time. */
	return mode == LAT_SYNC ? metrics | 1u << LAT_SEEN : metrics | 1u << LAT_SERVICE;
}

static double
draw_gap_ns(struct lat_arrivals *arrivals)
{
	uint64_t x = arrivals->state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	arrivals->state = x;
	/* (0, 1]: 53 bits, and never 0. */
	return -log(((double)(x >> 11) + 1) / 9007199254740992.0) * arrivals->mean_ns;
}

void
lat_arrivals_begin(struct lat_arrivals *arrivals, const struct lat *lat, uint64_t requests)
{
	*arrivals = (struct lat_arrivals){.left = requests, .state = (lat->opt->seed + lat->done) * 2 + 1};
	if (!lat->opt->rate)
		return;
	arrivals->mean_ns = 1e9 / (double)lat->opt->rate;
	for (int i = 0; i < 8; i++) /* small seeds start with many zero bits */
		(void)draw_gap_ns(arrivals);
	arrivals->next_ns = (double)scout__now_ns() + draw_gap_ns(arrivals);
}

bool
lat_arrivals_take(struct lat_arrivals *arrivals, uint64_t now_ns, uint64_t *ret_intended_ns)
{
	bool is_open = arrivals->mean_ns > 0;

	if (!arrivals->left || (is_open && (double)now_ns < arrivals->next_ns))
		return false;
	arrivals->left--;
	*ret_intended_ns = is_open ? (uint64_t)arrivals->next_ns : 0;
	if (is_open)
		arrivals->next_ns += draw_gap_ns(arrivals);
	return true;
}

static void
show_progress(struct lat *lat, uint64_t now_ns)
{
	if (now_ns < lat->progress_ns)
		return;
	complain("%" PRIu64 " of %" PRIu64 " requests, %.0f s", lat->done, lat->total,
		 (double)(now_ns - lat->start_ns) / 1e9);
	lat->progress_ns = now_ns + PROGRESS_NS;
}

void
lat_pace_begin(struct lat_pace *pace, struct lat *lat)
{
	uint64_t now_ns = scout__now_ns();

	if (!lat->start_ns) {
		lat->start_ns = now_ns;
		lat->progress_ns = now_ns + QUIET_NS;
	}
	pace->lat = lat;
	pace->step_ns = lat->opt->step_us * 1000;
	pace->next_ns = now_ns + pace->step_ns;
}

void
lat_pace_wait(struct lat_pace *pace)
{
	uint64_t now_ns = scout__now_ns();
	struct timespec until;

	show_progress(pace->lat, now_ns);
	if (now_ns >= pace->next_ns) {
		pace->next_ns = now_ns + pace->step_ns;
		return;
	}
	until.tv_sec = (time_t)(pace->next_ns / 1000000000u);
	until.tv_nsec = (long)(pace->next_ns % 1000000000u);
	/* Interrupted by a signal, it returns early; the caller looks at lat_is_stopped(). */
	(void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
	pace->next_ns += pace->step_ns;
}

void
lat_count_wrong(struct lat *lat, struct lat_result *result, uint64_t prompt, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (result->wrong++)
		return;
	n = snprintf(result->first_wrong, sizeof(result->first_wrong),
		     "prompt %" PRIu64 ": of %" PRIu64 " chunks the first %" PRIu32 " are cached, but the answer was ",
		     prompt, lat->keys.chunks, lat->keys.truth[prompt]);
	va_start(ap, fmt);
	(void)vsnprintf(result->first_wrong + n, sizeof(result->first_wrong) - (size_t)n, fmt, ap);
	va_end(ap);
}

void
lat_count_answer(struct lat *lat, struct lat_result *result, uint64_t prompt, uint64_t hit)
{
	result->requests++;
	lat->done++;
	result->hit_chunks += hit;
	result->asked_chunks += lat->keys.chunks;
	if (hit != lat->keys.truth[prompt])
		lat_count_wrong(lat, result, prompt, "%" PRIu64, hit);
}

void
lat_count_failure(struct lat *lat, struct lat_result *result, const char *fmt, ...)
{
	va_list ap;

	result->requests++;
	lat->done++;
	if (result->failed++)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(result->first_failure, sizeof(result->first_failure), fmt, ap);
	va_end(ap);
}

void
lat_end_round(struct lat *lat, uint64_t round, unsigned int mode)
{
	const struct lat_result *from = &lat->scratch;
	struct lat_result *into = &lat->results[mode];

	for (unsigned int m = 0; m < LAT_N_METRICS; m++) {
		lat->round_p50[round][mode][m] = scout__hist_quantile(&from->metrics[m], 0.5);
		scout__hist_merge(&into->metrics[m], &from->metrics[m]);
	}
	if (from->failed && !into->failed)
		memcpy(into->first_failure, from->first_failure, sizeof(into->first_failure));
	if (from->wrong && !into->wrong)
		memcpy(into->first_wrong, from->first_wrong, sizeof(into->first_wrong));
	scout__hist_merge(&into->asks, &from->asks);
	into->wall_ns += from->wall_ns;
	into->switches += from->switches;
	into->others_ns += from->others_ns;
	into->server_ns += from->server_ns;
	into->landed_in_step += from->landed_in_step;
	into->requests += from->requests;
	into->steps += from->steps;
	into->hit_chunks += from->hit_chunks;
	into->asked_chunks += from->asked_chunks;
	into->busy += from->busy;
	into->failed += from->failed;
	into->wrong += from->wrong;
}

double
lat_lookups_per_s(const struct lat_result *result)
{
	return result->wall_ns ? (double)(result->requests - result->failed) * 1e9 / (double)result->wall_ns : 0;
}

double
lat_stall_per_request_ns(const struct lat_result *result)
{
	const struct scout__hist *stall = &result->metrics[LAT_STALL];

	return stall->n && result->requests > result->failed ? stall->sum / (double)(result->requests - result->failed)
							     : 0;
}

const char *
lat_why_ended(const struct lat *lat, char buf[LAT_LINE_BYTES])
{
	if (lat->failure[0])
		(void)snprintf(buf, LAT_LINE_BYTES, "ended early, what was measured until then: %s", lat->failure);
	else if (lat_is_stopped())
		(void)snprintf(buf, LAT_LINE_BYTES, "interrupted: what was measured until then");
	else
		return NULL;
	return buf;
}

struct lat_ratio
lat_ratio_to_floor(const struct lat *lat, unsigned int mode, unsigned int metric)
{
	double ratios[LAT_MAX_ROUNDS];
	struct spread spread;
	size_t n = 0;

	for (uint64_t round = 0; round < lat->opt->rounds; round++) {
		uint64_t ours = lat->round_p50[round][mode][metric];
		uint64_t floor = lat->round_p50[round][LAT_FLOOR][LAT_RTT];

		if (ours && floor)
			ratios[n++] = (double)ours / (double)floor;
	}
	spread = spread_of(ratios, n);
	return (struct lat_ratio){.n = n, .min = spread.min, .p50 = spread.p50, .max = spread.max};
}
