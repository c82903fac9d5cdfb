/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/*
 * Log-linear histogram of unsigned values (nanoseconds). Values below 2^(SUB_BITS + 1) are exact; above, each power of two is
 * cut into 2^SUB_BITS equal buckets and a percentile reports its bucket's upper end, so it is never too low, and too
 * high by at most 1 / 2^SUB_BITS = 0.79 %. min and max are exact. One thread writes; merge at the end.
 */
#define SCOUT__HIST_SUB_BITS 7
#define SCOUT__HIST_SUB (1u << SCOUT__HIST_SUB_BITS)
#define SCOUT__HIST_BUCKETS ((64 - SCOUT__HIST_SUB_BITS + 1) * SCOUT__HIST_SUB)

struct scout__hist {
	uint64_t n;
	uint64_t min; /* UINT64_MAX while empty */
	uint64_t max;
	double sum;
	uint64_t counts[SCOUT__HIST_BUCKETS];
};

void scout__hist_init(struct scout__hist *hist);
void scout__hist_add(struct scout__hist *hist, uint64_t value);
void scout__hist_merge(struct scout__hist *into, const struct scout__hist *from);

/*
 * The value that is not exceeded by the share @q (0..1) of all samples: that of the sample number ceil(q * n), at least the
 * first; 0 when empty; never above max.
 */
uint64_t scout__hist_quantile(const struct scout__hist *hist, double q);

/* Bounds of bucket @i, for export. */
uint64_t scout__hist_bucket_low(unsigned i);
uint64_t scout__hist_bucket_high(unsigned i);
