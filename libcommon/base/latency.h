/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/*
 * How long something took, in few fixed buckets: a monitoring system can add them up over servers and time, and their 160
 * bytes are cheap to copy. The search starts at short times. One thread writes.
 */
#define SCOUT__LATENCY_BOUNDS 19u

/* Upper ends of the buckets, inclusive, in microseconds; one more bucket counts longer times. */
static const uint32_t scout__latency_bounds_us[SCOUT__LATENCY_BOUNDS] = {
	10,    25,    50,     100,    250,    500,     1000,    2500,    5000,     10000,
	25000, 50000, 100000, 250000, 500000, 1000000, 2500000, 5000000, 10000000,
};

struct scout__latency {
	uint64_t counts[SCOUT__LATENCY_BOUNDS + 1];
	uint64_t sum_us;
};

static inline void
scout__latency_add(struct scout__latency *latency, uint64_t us)
{
	unsigned i = 0;

	while (i < SCOUT__LATENCY_BOUNDS && us > scout__latency_bounds_us[i])
		i++;
	latency->counts[i]++;
	latency->sum_us += us;
}
