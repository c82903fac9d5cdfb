/* SPDX-License-Identifier: Apache-2.0 */
#include "kv_compare.h"

#include <float.h>
#include <math.h>
#include <string.h>

/*
 * DESIGN
 *
 * Purpose: says how far the numbers of two runs of KV differ.
 *
 * A tile of numbers of each run becomes floats; sums over tiles are doubles. Sums are vectors of the compiler, since it may not
 * reorder additions by itself. The second measure needs the root mean square of the whole run, so there are two passes; equal bytes
 * need none. The bits of exponent and mantissa of a small float, moved to where a float has them, are the number times a power of
 * two, subnormal or not.
 *
 * Threads: any.
 */

#define TILE 256 /* numbers */
#define LANES 4
#define FOLDED static inline __attribute__((always_inline)) /* compiled for each form: more than twice as fast */

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef uint32_t word __attribute__((vector_size(4 * LANES)));
typedef int32_t mask __attribute__((vector_size(4 * LANES))); /* of a comparison: -1 where it is true */

/* How a number lies in memory: a float has a sign bit, and below it exponent and mantissa, which from @limit on are not finite. */
static const struct form {
	uint32_t bytes, sign, limit;
	unsigned shift;
	float scale;
} forms[SCOUT_DTYPE_LAST + 1] = {
	[SCOUT_DTYPE_F16] = {2, 0x8000, 0x7c00, 13, 0x1p112F}, [SCOUT_DTYPE_BF16] = {2, 0x8000, 0x7f80, 16, 1},
	[SCOUT_DTYPE_F32] = {4, 0x80000000, 0x7f800000, 0, 1}, [SCOUT_DTYPE_F8_E4M3] = {1, 0x80, 0x7f, 20, 0x1p120F},
	[SCOUT_DTYPE_F8_E5M2] = {1, 0x80, 0x7c, 21, 0x1p112F}, [SCOUT_DTYPE_I8] = {.bytes = 1},
};

static inline vec
size_of(vec v)
{
	return (vec)((mask)v & INT32_MAX);
}

/* What is not finite becomes NaN. @bits has more than the number in higher bits. */
FOLDED vec
decode(const struct form *form, word bits)
{
	word em = bits & (form->sign - 1);
	vec size = (vec)(em << form->shift) * form->scale;

	if (!form->sign)
		return __builtin_convertvector((mask)(bits << 24) >> 24, vec);
	return (vec)((word)size | (bits & form->sign) * (0x80000000U / form->sign) |
		     ((word)(em >= form->limit) & INT32_MAX));
}

/* The next tile of a run of @bytes from @at on, in an order of its own; numbers beyond its end are 0. */
FOLDED void
load(const struct form *form, const uint8_t *run, size_t at, size_t bytes, vec *ret)
{
	size_t n = (size_t)TILE * form->bytes;
	word raw[TILE / LANES];

	if (bytes - at < n) {
		n = bytes - at;
		memset(raw, 0, sizeof(raw));
	}
	memcpy(raw, run + at, n);
	for (size_t i = 0; i < TILE / LANES * form->bytes / 4; i++)
		for (unsigned bit = 0; bit < 32; bit += 8 * form->bytes)
			*ret++ = decode(form, raw[i] >> bit);
}

struct sums {
	double squares, off_squares; /* of the pages, of the difference */
	uint64_t odd;                /* numbers that are not finite on one side only */
};

/* Add a tile. Numbers that are not finite become 0 on both sides. */
static void
add_tile(const vec *x, const vec *y, struct sums *sums)
{
	vec squares = {0}, off = {0};
	mask odd = {0};

	for (int i = 0; i < TILE / LANES; i++) {
		mask x_is = size_of(x[i]) <= FLT_MAX, y_is = size_of(y[i]) <= FLT_MAX, both = x_is & y_is;
		vec a = (vec)((mask)x[i] & both), d = a - (vec)((mask)y[i] & both);

		odd -= x_is ^ y_is;
		squares += a * a;
		off += d * d;
	}
	for (int k = 0; k < LANES; k++) {
		sums->squares += (double)squares[k];
		sums->off_squares += (double)off[k];
		sums->odd += (uint64_t)odd[k];
	}
}

static uint64_t
count_off(const vec *x, const vec *y, float limit)
{
	mask n = {0};

	for (int i = 0; i < TILE / LANES; i++)
		n -= size_of(x[i] - y[i]) > limit;
	return (uint64_t)n[0] + (uint64_t)n[1] + (uint64_t)n[2] + (uint64_t)n[3];
}

FOLDED struct scout__kv_measure
measure(const struct form *form, float element, const uint8_t *pages, const uint8_t *slot, size_t bytes)
{
	size_t step = (size_t)TILE * form->bytes, n_off = 0;
	double n = (double)(bytes / form->bytes), error;
	vec x[TILE / LANES], y[TILE / LANES];
	struct sums sums = {0};

	for (size_t at = 0; at < bytes; at += step) {
		load(form, pages, at, bytes, x);
		load(form, slot, at, bytes, y);
		add_tile(x, y, &sums);
	}
	for (size_t at = 0; at < bytes && sums.off_squares > 0; at += step) {
		load(form, pages, at, bytes, x);
		load(form, slot, at, bytes, y);
		n_off += count_off(x, y, element * (float)sqrt(sums.squares / n));
	}
	error = sums.off_squares > 0 ? sqrt(sums.off_squares / sums.squares) : 0;
	return (struct scout__kv_measure){.norm_error = isnan(error) ? INFINITY : (float)error,
					  .share = sums.odd ? 1 : (float)((double)n_off / n)};
}

struct scout__kv_measure
scout__kv_compare(uint32_t dtype, const uint8_t *pages, const uint8_t *slot, size_t bytes)
{
	const struct form *form = &forms[dtype <= SCOUT_DTYPE_LAST ? dtype : SCOUT_DTYPE_OPAQUE];
	const struct scout__kv_bounds *bounds = &scout__kv_bounds[form - forms];
	struct scout__kv_measure m = {1, 1, true};

	if (memcmp(pages, slot, bytes) == 0)
		return (struct scout__kv_measure){0, 0, false};
	if (form->bytes == 0 || bytes % form->bytes != 0)
		return m;
	switch (dtype) {
#define CASE(name)                                                                                                     \
	case name:                                                                                                     \
		m = measure(&forms[name], bounds->element, pages, slot, bytes);                                        \
		break
		CASE(SCOUT_DTYPE_F16);
		CASE(SCOUT_DTYPE_BF16);
		CASE(SCOUT_DTYPE_F32);
		CASE(SCOUT_DTYPE_F8_E4M3);
		CASE(SCOUT_DTYPE_F8_E5M2);
		CASE(SCOUT_DTYPE_I8);
	default:
		break;
	}
	m.differs = m.norm_error > bounds->norm || m.share > bounds->share;
	return m;
}
