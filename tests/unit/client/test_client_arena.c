/* SPDX-License-Identifier: Apache-2.0 */
/* The hash arena, caller and courier in one thread: regions never overlap, whatever order they are given back in. */
#include <string.h>

#include "arena.h"
#include "check_main.h"
#include "random.h"

#define SIZE 4096u
#define MAX_REGIONS 256u

struct region {
	uint64_t pos, len;
	uint8_t mark;
};

static struct scout__arena arena;
static struct region regions[MAX_REGIONS];
static uint32_t n_regions;
static uint32_t n_seen; /* of them; the others' jobs are still in the ring */

static void
up(void)
{
	ck_assert_int_eq(scout__arena_init(&arena, SIZE), 0);
	n_regions = n_seen = 0;
}

static void
down(void)
{
	scout__arena_fini(&arena);
}

static bool
take(uint64_t len, uint8_t mark)
{
	uint64_t pos = scout__arena_take(&arena, len);

	if (pos == UINT64_MAX)
		return false;
	ck_assert_uint_le(pos % SIZE + sizeof(struct scout__arena_header) + len, SIZE);
	memset(scout__arena_at(&arena, pos), mark, len);
	regions[n_regions++] = (struct region){pos, len, mark};
	return true;
}

static void
see(void)
{
	scout__arena_see(&arena, regions[n_seen++].pos);
}

static void
see_all(void)
{
	while (n_seen < n_regions)
		see();
}

/* What was written into region @i is still there; then it goes. */
static void
give(uint32_t i)
{
	static uint8_t want[SIZE];

	memset(want, regions[i].mark, regions[i].len);
	ck_assert(memcmp(scout__arena_at(&arena, regions[i].pos), want, regions[i].len) == 0);
	ck_assert_uint_lt(i, n_seen--);
	scout__arena_give(&arena, regions[i].pos);
	memmove(&regions[i], &regions[i + 1], (--n_regions - i) * sizeof(regions[0]));
}

CHECKED_FIXTURE(up, down);

START_LOOP_TEST(regions_never_overlap, 0, 4)
{
	uint64_t state = 88172645463325252u + (uint64_t)_i, refused = 0;

	for (uint32_t n = 0; n < 100000; n++) {
		(void)xorshift(&state);
		if ((state >> 8) % 8 < 4 && n_regions < MAX_REGIONS)
			refused += !take(1 + (state >> 16) % 700, (uint8_t)n);
		else if ((state >> 8) % 8 < 6 && n_seen < n_regions)
			see();
		else if (n_seen > 0)
			give((uint32_t)((state >> 16) % n_seen));
		if (n % 64 == 0) { /* now and then it is empty */
			see_all();
			while (n_seen > 0)
				give(n_seen - 1);
		}
	}
	ck_assert_uint_gt(refused, 0);
}
END_TEST

START_TEST(empty_arena_starts_over)
{
	for (uint32_t i = 0; i < 1000; i++) {
		ck_assert(take(100, (uint8_t)i));
		ck_assert(take(300, (uint8_t)(i + 1)));
		ck_assert_uint_eq(regions[0].pos % SIZE, 0);
		see_all();
		give(i % 2);
		give(0);
	}
}
END_TEST

START_TEST(full_arena_refuses_and_takes_again_when_the_oldest_is_given)
{
	for (uint32_t used = 0; used < 3; used++) {
		ck_assert(take(500, 6)); /* wherever it starts, an empty one has all its room */
		see_all();
		give(0);
		while (take(1000, 7))
			;
		ck_assert_uint_eq(n_regions, 4);
		see_all();
		while (used < 2 && n_regions)
			give(0);
	}
	give(1);
	ck_assert(!take(1000, 8));
	give(0);
	ck_assert(take(1000, 9));
	ck_assert(take(1000, 10));
	ck_assert(!take(1000, 11));
	see_all();
	while (n_regions)
		give(0);
}
END_TEST

START_TEST(half_of_it_always_fits_an_empty_one)
{
	uint64_t most = SIZE / 2 - 2 * sizeof(struct scout__arena_header);

	ck_assert(scout__arena_can_hold(&arena, most));
	ck_assert(!scout__arena_can_hold(&arena, most + 1));
	for (uint64_t len = 0; len < most; len += 48) {
		ck_assert(take(len, 1));
		see_all();
		give(0);
		ck_assert(take(most, 2));
		see_all();
		give(0);
	}
}
END_TEST
