/* SPDX-License-Identifier: Apache-2.0 */
#include "hist.h"

#include <string.h>

#include "thread.h"

/*
 * DESIGN
 *
 * Purpose: percentiles of millions of samples in fixed memory, without a branch that depends on the distribution.
 *
 * A value below 2 * SUB is its own bucket. Above, with s so that SUB <= value >> s < 2 * SUB, the bucket is s * SUB
 * + (value >> s): the row s holds the SUB buckets of one power of two, each 2^s wide, directly behind row s - 1.
 *
 *   value   0 ......... 255 | 256,257 | 258,259 | ... 510,511 | 512..515 | ...
 *   bucket  0 ......... 255 |   256   |   257   | ...   383   |   384    | ...
 *
 * Invariants: a bucket's width is at most low / SUB, which is the error bound in hist.h; the buckets cover
 * 0..UINT64_MAX without gap; sum of counts == n.
 *
 * Threads: one at a time. Rejected: atomic counters (a histogram for each thread and a merge is cheaper and simpler).
 */

static unsigned
bucket_of(uint64_t value)
{
	unsigned msb;
	unsigned shift;

	if (value < (uint64_t)2 * SCOUT__HIST_SUB)
		return (unsigned)value;
	msb = 63u - (unsigned)__builtin_clzll(value);
	shift = msb - SCOUT__HIST_SUB_BITS;
	return shift * SCOUT__HIST_SUB + (unsigned)(value >> shift);
}

static unsigned
shift_of(unsigned i)
{
	return i < 2 * SCOUT__HIST_SUB ? 0 : i / SCOUT__HIST_SUB - 1;
}

uint64_t
scout__hist_bucket_low(unsigned i)
{
	unsigned shift = shift_of(i);

	SCOUT_ASSERT(i < SCOUT__HIST_BUCKETS);
	return (uint64_t)(i - shift * SCOUT__HIST_SUB) << shift;
}

uint64_t
scout__hist_bucket_high(unsigned i)
{
	return scout__hist_bucket_low(i) + ((UINT64_C(1) << shift_of(i)) - 1);
}

void
scout__hist_init(struct scout__hist *hist)
{
	memset(hist, 0, sizeof(*hist));
	hist->min = UINT64_MAX;
}

void
scout__hist_add(struct scout__hist *hist, uint64_t value)
{
	hist->n++;
	hist->sum += (double)value;
	if (value < hist->min)
		hist->min = value;
	if (value > hist->max)
		hist->max = value;
	hist->counts[bucket_of(value)]++;
}

void
scout__hist_merge(struct scout__hist *into, const struct scout__hist *from)
{
	into->n += from->n;
	into->sum += from->sum;
	if (from->min < into->min)
		into->min = from->min;
	if (from->max > into->max)
		into->max = from->max;
	for (unsigned i = 0; i < SCOUT__HIST_BUCKETS; i++)
		into->counts[i] += from->counts[i];
}

/* ceil(q * n) within 1..n; a q that is no number counts as 0. */
static uint64_t
rank_of(double q, uint64_t n)
{
	double exact = q * (double)n;
	uint64_t rank;

	if (!(exact > 1))
		return 1;
	if (exact >= (double)n)
		return n;
	rank = (uint64_t)exact;
	if ((double)rank < exact)
		rank++;
	return rank < n ? rank : n;
}

uint64_t
scout__hist_quantile(const struct scout__hist *hist, double q)
{
	uint64_t seen = 0;
	uint64_t high;
	uint64_t rank;

	if (!hist->n)
		return 0;
	rank = rank_of(q, hist->n);
	for (unsigned i = 0; i < SCOUT__HIST_BUCKETS; i++) {
		seen += hist->counts[i];
		if (seen >= rank) {
			high = scout__hist_bucket_high(i);
			return high < hist->max ? high : hist->max;
		}
	}
	return hist->max;
}
