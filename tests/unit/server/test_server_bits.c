/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <stdlib.h>

#include "bits.h"

/* Maps that are read by words say the same as maps that are read bit by bit, for every range. */

#define N 150u

static uint8_t a[SCOUT__BITS_BYTES(N)], b[SCOUT__BITS_BYTES(N)];

/* About one bit in @rarity is set; 0: all are. */
static void
fill(uint8_t *bits, unsigned rarity)
{
	memset(bits, 0, SCOUT__BITS_BYTES(N));
	for (uint32_t i = 0; i < N; i++)
		if (rarity == 0 || rand() % (int)rarity == 0)
			scout__bit_set(bits, i);
}

static void
check_range(uint32_t from, uint32_t to)
{
	uint32_t next = to, next_but = to, next_clear = to, end = from, n = 0;

	for (uint32_t i = to; i-- > from;) {
		n += scout__bit(a, i);
		next = scout__bit(a, i) ? i : next;
		next_but = scout__bit(a, i) && !scout__bit(b, i) ? i : next_but;
		next_clear = scout__bit(a, i) ? next_clear : i;
		end = scout__bit(a, i) && end == from ? i + 1 : end;
	}
	ck_assert_uint_eq(scout__bits_next(a, NULL, from, to), next);
	ck_assert_uint_eq(scout__bits_next(a, b, from, to), next_but);
	ck_assert_uint_eq(scout__bits_next_clear(a, from, to), next_clear);
	ck_assert_uint_eq(scout__bits_end(a, from, to), end);
	ck_assert_uint_eq(scout__bits_count(a, from, to), n);
}

START_LOOP_TEST(words_say_what_bits_say, 0, 25)
{
	static const unsigned rarities[] = {0, 1, 2, 50, 1000};
	unsigned k = (unsigned)_i;

	srand(k);
	fill(a, rarities[k % 5]);
	fill(b, rarities[k / 5]);
	for (uint32_t from = 0; from <= N; from++)
		for (uint32_t to = from; to <= N; to++)
			check_range(from, to);
}
END_TEST

START_LOOP_TEST(a_range_is_filled_and_nothing_beside_it, 0, 2)
{
	for (uint32_t from = 0; from <= N; from++) {
		for (uint32_t to = from; to <= N; to += 7) {
			memset(a, _i ? 0xff : 0, sizeof(a));
			scout__bits_fill(a, from, to, _i ? 0 : 0xff);
			for (uint32_t i = 0; i < N; i++)
				ck_assert_int_eq(scout__bit(a, i), (i >= from && i < to) != (_i == 1));
		}
	}
}
END_TEST

START_TEST(maps_are_joined_bit_by_bit)
{
	uint8_t either[sizeof(a)], both[sizeof(a)];

	fill(a, 2);
	fill(b, 3);
	memcpy(either, a, sizeof(a));
	memcpy(both, a, sizeof(a));
	scout__bits_or(either, b, N);
	scout__bits_and(both, b, N);
	for (uint32_t i = 0; i < N; i++) {
		ck_assert_int_eq(scout__bit(either, i), scout__bit(a, i) || scout__bit(b, i));
		ck_assert_int_eq(scout__bit(both, i), scout__bit(a, i) && scout__bit(b, i));
	}
}
END_TEST
