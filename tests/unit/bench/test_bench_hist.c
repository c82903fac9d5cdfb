/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>

#include "check_main.h"
#include "hist.h"
#include "random.h"

/* Large: the histogram alone is 60 KiB. */
static struct scout__hist hist;
static struct scout__hist other;

static unsigned
bucket_that_counts(uint64_t value)
{
	unsigned found = SCOUT__HIST_BUCKETS;

	scout__hist_init(&hist);
	scout__hist_add(&hist, value);
	for (unsigned i = 0; i < SCOUT__HIST_BUCKETS; i++) {
		if (!hist.counts[i])
			continue;
		ck_assert_uint_eq(hist.counts[i], 1);
		ck_assert_uint_eq(found, SCOUT__HIST_BUCKETS);
		found = i;
	}
	ck_assert_uint_lt(found, SCOUT__HIST_BUCKETS);
	return found;
}

START_TEST(an_empty_histogram_has_no_percentile)
{
	scout__hist_init(&hist);
	ck_assert_uint_eq(hist.n, 0);
	ck_assert_uint_eq(hist.min, UINT64_MAX);
	ck_assert_uint_eq(hist.max, 0);
	ck_assert_uint_eq(scout__hist_quantile(&hist, 0.5), 0);
	ck_assert_uint_eq(scout__hist_quantile(&hist, 1), 0);
}
END_TEST

START_TEST(buckets_cover_all_values_without_gap)
{
	ck_assert_uint_eq(scout__hist_bucket_low(0), 0);
	for (unsigned i = 0; i + 1 < SCOUT__HIST_BUCKETS; i++) {
		ck_assert_uint_le(scout__hist_bucket_low(i), scout__hist_bucket_high(i));
		ck_assert_uint_eq(scout__hist_bucket_high(i) + 1, scout__hist_bucket_low(i + 1));
	}
	ck_assert_uint_eq(scout__hist_bucket_high(SCOUT__HIST_BUCKETS - 1), UINT64_MAX);
}
END_TEST

START_TEST(bounds_of_a_bucket_are_counted_in_it)
{
	for (unsigned i = 0; i < SCOUT__HIST_BUCKETS; i += i < 600 ? 1 : 37) {
		ck_assert_uint_eq(bucket_that_counts(scout__hist_bucket_low(i)), i);
		ck_assert_uint_eq(bucket_that_counts(scout__hist_bucket_high(i)), i);
	}
	ck_assert_uint_eq(bucket_that_counts(UINT64_MAX), SCOUT__HIST_BUCKETS - 1);
}
END_TEST

START_TEST(small_values_are_exact)
{
	for (uint64_t value = 0; value < 2 * SCOUT__HIST_SUB; value++) {
		unsigned i = bucket_that_counts(value);

		ck_assert_uint_eq(scout__hist_bucket_low(i), value);
		ck_assert_uint_eq(scout__hist_bucket_high(i), value);
	}
}
END_TEST

START_TEST(no_bucket_is_wider_than_the_error_bound)
{
	for (unsigned i = 2 * SCOUT__HIST_SUB; i < SCOUT__HIST_BUCKETS; i++) {
		uint64_t low = scout__hist_bucket_low(i);

		ck_assert_uint_le(scout__hist_bucket_high(i) - low, low / SCOUT__HIST_SUB);
	}
}
END_TEST

/* A median of three equal samples with a larger one behind, so that max does not hide the rounding. */
START_TEST(the_error_bound_holds_over_the_full_range)
{
	uint64_t seed = 88172645463325252u;

	for (int step = 0; step < 3000; step++) {
		uint64_t value = xorshift(&seed) >> (step % 64);
		uint64_t seen;

		scout__hist_init(&hist);
		scout__hist_add(&hist, value);
		scout__hist_add(&hist, value);
		scout__hist_add(&hist, UINT64_MAX);
		seen = scout__hist_quantile(&hist, 0.5);
		ck_assert_uint_ge(seen, value);
		ck_assert_uint_le(seen - value, value / SCOUT__HIST_SUB);
	}
}
END_TEST

START_SIGNAL_TEST(a_bucket_that_is_none_aborts, SIGABRT)
{
	(void)scout__hist_bucket_low(SCOUT__HIST_BUCKETS);
}
END_TEST

#define N_SAMPLES 20000

static int
compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a;
	uint64_t y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static uint64_t
exact_quantile(const uint64_t *sorted, size_t n, double q)
{
	size_t rank = (size_t)ceil(q * (double)n);

	return sorted[rank ? rank - 1 : 0];
}

static const double quantiles[] = {0, 0.0001, 0.1, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999, 1};

static void
check_quantiles(const struct scout__hist *h, const uint64_t *sorted, size_t n)
{
	for (size_t i = 0; i < sizeof(quantiles) / sizeof(quantiles[0]); i++) {
		uint64_t exact = exact_quantile(sorted, n, quantiles[i]);
		uint64_t seen = scout__hist_quantile(h, quantiles[i]);

		ck_assert_uint_ge(seen, exact);
		ck_assert_uint_le(seen - exact, exact / SCOUT__HIST_SUB);
		ck_assert_uint_le(seen, h->max);
	}
	ck_assert_uint_eq(scout__hist_quantile(h, 1), sorted[n - 1]);
}

/* Shapes of data: full range, latencies with a tail, all equal, only small values. */
static uint64_t
sample(int shape, uint64_t *seed)
{
	uint64_t x = xorshift(seed);

	switch (shape) {
	case 0:
		return x >> (x % 61);
	case 1:
		return 900 + x % 300 + (x % 97 == 0 ? (x >> 20) % 5000000 : 0);
	case 2:
		return 123456789;
	default:
		return x % 200;
	}
}

START_LOOP_TEST(quantiles_agree_with_sorted_data, 0, 4)
{
	uint64_t *data = calloc(N_SAMPLES, sizeof(*data));
	uint64_t seed = 0x2545f4914f6cdd1du + (uint64_t)_i;
	double sum = 0;

	ck_assert_ptr_nonnull(data);
	scout__hist_init(&hist);
	for (size_t i = 0; i < N_SAMPLES; i++) {
		data[i] = sample(_i, &seed);
		sum += (double)data[i];
		scout__hist_add(&hist, data[i]);
	}
	qsort(data, N_SAMPLES, sizeof(*data), compare);
	ck_assert_uint_eq(hist.n, N_SAMPLES);
	ck_assert_uint_eq(hist.min, data[0]);
	ck_assert_uint_eq(hist.max, data[N_SAMPLES - 1]);
	ck_assert_double_eq(hist.sum, sum);
	check_quantiles(&hist, data, N_SAMPLES);
	free(data);
}
END_TEST

START_TEST(few_samples_follow_the_rank_rule)
{
	scout__hist_init(&hist);
	for (uint64_t value = 1; value <= 10; value++)
		scout__hist_add(&hist, value);
	ck_assert_uint_eq(scout__hist_quantile(&hist, 0), 1);
	ck_assert_uint_eq(scout__hist_quantile(&hist, 0.1), 1);
	ck_assert_uint_eq(scout__hist_quantile(&hist, 0.11), 2);
	ck_assert_uint_eq(scout__hist_quantile(&hist, 0.5), 5);
	ck_assert_uint_eq(scout__hist_quantile(&hist, 0.51), 6);
	ck_assert_uint_eq(scout__hist_quantile(&hist, 0.91), 10);
	ck_assert_uint_eq(scout__hist_quantile(&hist, 1), 10);
}
END_TEST

START_TEST(shares_outside_0_to_1_are_clamped)
{
	scout__hist_init(&hist);
	scout__hist_add(&hist, 3);
	scout__hist_add(&hist, 7);
	ck_assert_uint_eq(scout__hist_quantile(&hist, -1), 3);
	ck_assert_uint_eq(scout__hist_quantile(&hist, (double)NAN), 3);
	ck_assert_uint_eq(scout__hist_quantile(&hist, 2), 7);
	ck_assert_uint_eq(scout__hist_quantile(&hist, (double)INFINITY), 7);
}
END_TEST

/* 1000001 lies inside a bucket: its upper end must not be reported when nothing that large was seen. */
START_TEST(no_quantile_is_above_max)
{
	scout__hist_init(&hist);
	scout__hist_add(&hist, 1000001);
	ck_assert_uint_eq(scout__hist_quantile(&hist, 0.5), 1000001);
}
END_TEST

START_TEST(merged_parts_equal_the_whole)
{
	static struct scout__hist whole;
	uint64_t seed = 42424242;

	scout__hist_init(&hist);
	scout__hist_init(&other);
	scout__hist_init(&whole);
	for (int i = 0; i < 5000; i++) {
		uint64_t value = xorshift(&seed) >> (20 + i % 30);

		scout__hist_add(i % 3 ? &hist : &other, value);
		scout__hist_add(&whole, value);
	}
	scout__hist_merge(&hist, &other);
	ck_assert_uint_eq(hist.n, whole.n);
	ck_assert_uint_eq(hist.min, whole.min);
	ck_assert_uint_eq(hist.max, whole.max);
	ck_assert_double_eq_tol(hist.sum / whole.sum, 1, 1e-12);
	for (unsigned i = 0; i < SCOUT__HIST_BUCKETS; i++)
		ck_assert_uint_eq(hist.counts[i], whole.counts[i]);
}
END_TEST

START_TEST(merging_an_empty_histogram_changes_nothing)
{
	scout__hist_init(&hist);
	scout__hist_init(&other);
	scout__hist_add(&hist, 5);
	scout__hist_merge(&hist, &other);
	ck_assert_uint_eq(hist.n, 1);
	ck_assert_uint_eq(hist.min, 5);
	ck_assert_uint_eq(hist.max, 5);
	scout__hist_merge(&other, &hist);
	ck_assert_uint_eq(other.min, 5);
	ck_assert_uint_eq(scout__hist_quantile(&other, 0.5), 5);
}
END_TEST
