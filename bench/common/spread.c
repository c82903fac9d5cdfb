/* SPDX-License-Identifier: Apache-2.0 */
#include "spread.h"

#include <stdlib.h>
#include <string.h>

static int
compare_doubles(const void *a, const void *b)
{
	double x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	return (x > y) - (x < y);
}

struct spread
spread_of(const double *values, size_t n)
{
	double sorted[SPREAD_MAX];

	if (n == 0)
		return (struct spread){0};
	if (n > SPREAD_MAX)
		abort();
	memcpy(sorted, values, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), compare_doubles);
	return (struct spread){sorted[0], n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2,
			       sorted[n - 1]};
}
