/* SPDX-License-Identifier: Apache-2.0 */
#include "kv_compare.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/types.h>

#include "check_main.h"

/* Which KV is equal, by dtype. */

#define N 1003u /* numbers: no whole number of tiles */

/* How numbers of a dtype are written down. */
static const struct form {
	uint32_t dtype;
	unsigned width;
	uint32_t one, one_and_half;  /* or twice and three times something */
	uint32_t smallest, nan, inf; /* 0: there is none */
	uint32_t high_bit;           /* of the exponent */
} forms[] = {
	{SCOUT_DTYPE_F16, 2, 0x3c00, 0x3e00, 0x0001, 0x7e00, 0x7c00, 0x4000},
	{SCOUT_DTYPE_BF16, 2, 0x3f80, 0x3fc0, 0x3080, 0x7fc0, 0x7f80, 0x4000},
	{SCOUT_DTYPE_F32, 4, 0x3f800000, 0x3fc00000, 0x30000000, 0x7fc00000, 0x7f800000, 0x40000000},
	{SCOUT_DTYPE_F8_E4M3, 1, 0x38, 0x3c, 0x01, 0x7f, 0, 0x40},
	{SCOUT_DTYPE_F8_E5M2, 1, 0x3c, 0x3e, 0x01, 0x7e, 0x7c, 0x40},
	{SCOUT_DTYPE_I8, 1, 2, 3, 1, 0, 0, 0},
};
#define FORMS ((int)(sizeof(forms) / sizeof(forms[0])))

static uint8_t pages_at[N * 4 + 1], slot_at[N * 4 + 1];
/* Not aligned: planes begin anywhere. */
static uint8_t *const pages = pages_at + 1, *const slot = slot_at + 1;

static void
put(const struct form *form, uint8_t *run, size_t i, uint32_t bits)
{
	memcpy(run + i * form->width, &bits, form->width); /* little-endian, as all machines that this runs on */
}

static void
fill(const struct form *form, uint32_t a, uint32_t b)
{
	for (size_t i = 0; i < N; i++) {
		put(form, pages, i, a);
		put(form, slot, i, b);
	}
}

static struct scout__kv_measure
measure(const struct form *form)
{
	return scout__kv_compare(form->dtype, pages, slot, (size_t)N * form->width);
}

static bool
are_equal(const struct form *form)
{
	return !measure(form).differs;
}

START_LOOP_TEST(a_norm_is_that_of_the_numbers, 0, FORMS)
{
	const struct form *form = &forms[_i];
	struct scout__kv_measure m;

	fill(form, form->one, form->one);
	m = measure(form);
	ck_assert(m.norm_error == 0 && m.share == 0);
	put(form, slot, N - 1, form->one_and_half); /* the last of a tile that is not full */
	m = measure(form);
	ck_assert_float_eq_tol(m.norm_error, 0.5F / sqrtf(N), 1e-6F);
	fill(form, form->one, form->one_and_half);
	m = measure(form);
	ck_assert_float_eq_tol(m.norm_error, 0.5F, 1e-6F);
	ck_assert(m.share == (scout__kv_bounds[form->dtype].element < 0.5F ? 1 : 0));
	ck_assert(!are_equal(form));
	fill(form, form->one_and_half, form->one);
	ck_assert_float_eq_tol(measure(form).norm_error, 1.0F / 3, 1e-6F);
	/* Subnormal where the dtype has a number that small: twice as much is an error of one. */
	fill(form, form->smallest, form->width == 4 ? form->smallest + 0x800000 : form->smallest << 1);
	if (form->dtype != SCOUT_DTYPE_BF16)
		ck_assert_float_eq_tol(measure(form).norm_error, 1, 1e-6F);
	fill(form, 0, 0);
	put(form, slot, 5, form->one);
	ck_assert(isinf(measure(form).norm_error));
	ck_assert(!are_equal(form));
}
END_TEST

/* The last bit of every fourth number: what another order of sums changes. */
START_LOOP_TEST(noise_is_equal_and_other_numbers_are_not, 0, FORMS)
{
	const struct form *form = &forms[_i];

	srand(7);
	for (size_t i = 0; i < N; i++) {
		uint32_t bits = form->dtype == SCOUT_DTYPE_I8
					? (uint32_t)(rand() % 199 - 99)
					: form->one + (uint32_t)(rand() % 7 - 3) * (form->one_and_half - form->one);

		put(form, pages, i, bits);
		put(form, slot, i, i % 4 == 0 ? bits ^ 1 : bits);
	}
	ck_assert(are_equal(form));
	ck_assert_float_gt(measure(form).norm_error, 0);
	/* The same numbers in another order. */
	memmove(slot, slot + form->width, (size_t)(N - 1) * form->width);
	ck_assert(!are_equal(form));
}
END_TEST

/* That makes a number huge, or none. */
START_LOOP_TEST(one_high_bit_of_an_exponent_that_flips_up_differs, 0, FORMS)
{
	const struct form *form = &forms[_i];

	if (!form->high_bit)
		return; /* int8 has none: the largest error of one of many numbers is noise */
	fill(form, form->one_and_half, form->one_and_half);
	put(form, slot, 77, form->one_and_half ^ form->high_bit);
	ck_assert(!are_equal(form));
}
END_TEST

START_LOOP_TEST(what_is_not_finite_on_one_side_only_differs, 0, FORMS)
{
	const struct form *form = &forms[_i];
	const uint32_t odd[2] = {form->nan, form->inf};

	for (int k = 0; k < 2; k++) {
		if (!odd[k])
			continue;
		fill(form, form->one, form->one);
		put(form, slot, 100, odd[k]);
		ck_assert(measure(form).share == 1);
		put(form, pages, 100, odd[k]);
		put(form, slot, 100, form->one);
		ck_assert(!are_equal(form));
		put(form, slot, 100, odd[k]);
		put(form, slot, 3, form->one ^ 1); /* else equal bytes would do */
		ck_assert(are_equal(form));
	}
}
END_TEST

START_TEST(opaque_bytes_are_equal_or_not)
{
	struct scout__kv_measure m;

	memset(slot, 1, 64);
	memset(pages, 1, 64);
	m = scout__kv_compare(SCOUT_DTYPE_OPAQUE, pages, slot, 64);
	ck_assert(!m.differs);
	slot[63] ^= 1;
	m = scout__kv_compare(SCOUT_DTYPE_OPAQUE, pages, slot, 64);
	ck_assert(m.differs);
	/* A block of no whole number of numbers. */
	m = scout__kv_compare(SCOUT_DTYPE_F32, pages + 1, slot + 1, 63);
	ck_assert(m.differs);
}
END_TEST
