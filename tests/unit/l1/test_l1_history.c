/* SPDX-License-Identifier: Apache-2.0 */
#include "history.h"

#include "policy_rig.h"

#include "check_main.h"

static struct scout__history history;

/* ---- a naive model: all touches of the sample, the newest last ---- */

#define MAX_TOUCHES 60000u

static struct {
	uint64_t print;
	uint32_t class;
	uint32_t time;
} touched[MAX_TOUCHES];
static uint32_t n_touched;

/* The last touch of @print; MAX_TOUCHES: none since @from. */
static uint32_t
last_of(uint64_t print, uint32_t from)
{
	for (uint32_t i = n_touched; i-- > from;)
		if (touched[i].print == print)
			return i;
	return MAX_TOUCHES;
}

/* How many other keys were touched after touch @i. */
static uint32_t
distinct_since(uint32_t i)
{
	uint32_t n = 0;

	for (uint32_t j = i + 1; j < n_touched; j++)
		n += last_of(touched[j].print, 0) == j;
	return n;
}

START_LOOP_TEST(history_knows_the_last_touch_and_what_lru_would_hold, 0, 6)
{
	uint32_t capacity = 20 + 13 * (uint32_t)_i;
	struct scout__past past, gone;

	rig_random = (uint64_t)_i;
	ck_assert_int_eq(scout__history_init(&history, capacity), 0);
	ck_assert_uint_eq(history.shift, 0);
	for (uint32_t n = 0; n < 3000; n++) {
		uint64_t print = rig_draw(4 * (uint64_t)capacity) * UINT64_C(0x9e3779b97f4a7c15);
		uint32_t class = (uint32_t)rig_draw(32);
		uint32_t last = last_of(print, 0);

		ck_assert(!scout__history_is_full(&history));
		scout__history_touch(&history, print, class, n * 3, &past);
		ck_assert_int_eq(past.known, last < MAX_TOUCHES);
		if (past.known) {
			ck_assert_uint_eq(past.class, touched[last].class);
			ck_assert_uint_eq(past.time, touched[last].time);
			ck_assert_int_eq(past.in_lru, distinct_since(last) < capacity);
		}
		touched[n_touched].print = print;
		touched[n_touched].class = class;
		touched[n_touched++].time = n * 3;
		if (n % 100 == 0)
			scout__history_check(&history);
	}
	/* From the oldest to the newest, and no more than asked for. */
	for (uint32_t i = 0; i < n_touched; i++) {
		if (last_of(touched[i].print, 0) != i)
			continue;
		ck_assert(!scout__history_expire(&history, 9000, 9000 - touched[i].time, false, &gone));
		ck_assert(scout__history_expire(&history, 9000, 9000 - touched[i].time - 1, false, &gone));
		ck_assert_uint_eq(gone.class, touched[i].class);
		ck_assert_uint_eq(gone.time, touched[i].time);
	}
	ck_assert(!scout__history_expire(&history, 9000, 0, true, &gone));
	scout__history_check(&history);
	scout__history_fini(&history);
}
END_TEST

START_TEST(history_is_bounded)
{
	struct scout__past past, gone;
	uint32_t n = 0;

	ck_assert_int_eq(scout__history_init(&history, 100), 0);
	for (; !scout__history_is_full(&history); n++)
		scout__history_touch(&history, (n + 1) * UINT64_C(0x9e3779b97f4a7c15), 1, n + 1, &past);
	ck_assert_uint_eq(n, history.max);
	for (uint32_t i = 0; i < 1000; i++, n++) {
		ck_assert(scout__history_expire(&history, n, UINT32_MAX, true, &gone));
		ck_assert_uint_eq(gone.time, i + 1);
		ck_assert(!scout__history_is_full(&history));
		scout__history_touch(&history, (n + 1) * UINT64_C(0x9e3779b97f4a7c15), 1, n + 1, &past);
	}
	scout__history_check(&history);
	scout__history_fini(&history);
}
END_TEST

START_TEST(history_costs_half_a_megabyte_or_twelve_bytes_an_entry)
{
	static const uint32_t sizes[] = {1, 100, 4095, 4096, 8191, 10000, 100000, 262143, 262144, 1000000, 1u << 30};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t limit = (uint64_t)sizes[i] * 12;

		ck_assert_int_eq(scout__history_init(&history, sizes[i]), 0);
		ck_assert_uint_le(scout__history_bytes(&history), limit > 1 << 19 ? limit : 1 << 19);
		scout__history_fini(&history);
	}
}
END_TEST

START_TEST(history_samples_fewer_keys_of_a_larger_index)
{
	static const struct {
		uint32_t capacity, shift;
	} cases[] = {{1, 0},      {4095, 0},   {4096, 1},   {8191, 1},       {8192, 2},
		     {131071, 5}, {131072, 6}, {262144, 6}, {1000000000, 6}, {3000, 0}};
	struct scout__past past;
	uint32_t seen = 0;

	ck_assert_int_eq(scout__history_init(&history, 1000000000), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t in = 0;

		scout__history_resize(&history, cases[i].capacity);
		ck_assert_uint_eq(history.shift, cases[i].shift);
		for (uint64_t print = 0; print < 1 << 12; print++)
			in += scout__history_samples(&history, print);
		ck_assert_uint_eq(in, (1 << 12) >> cases[i].shift);
	}
	/* Of the records of a small index, a large one keeps those that are in its sample. */
	for (uint32_t n = 0; n < 640; n++)
		scout__history_touch(&history, n, 1, n, &past);
	scout__history_resize(&history, 1000000000);
	for (uint32_t i = 0; i < history.n_ever; i++)
		seen += scout__history_at(&history, i, &past);
	ck_assert_uint_eq(seen, 10);
	ck_assert_uint_eq(history.n, 10);
	scout__history_check(&history);
	scout__history_fini(&history);
}
END_TEST
