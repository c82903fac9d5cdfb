/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/*
 * A few values of the same thing, one for each round: where they lie. Of an even number the median is between the
 * middle two.
 */

#define SPREAD_MAX 1000u

struct spread {
	double min, p50, max;
};

/* Of 1 to SPREAD_MAX values; all 0 without any. */
struct spread spread_of(const double *values, size_t n);
