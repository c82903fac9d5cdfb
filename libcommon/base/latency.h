/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_BASE_LATENCY_H
#define SCOUT_BASE_LATENCY_H

#include <stdint.h>

/*
 * How long something took, in few fixed buckets: what a monitoring system can add up over servers and time, in 160 bytes that
 * are cheap to copy. Short times are found first. One thread writes.
 */
#define SCOUT__LATENCY_BOUNDS 19u

/* Upper ends of the buckets, inclusive, in microseconds; one more bucket has what is longer. */
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

#endif
