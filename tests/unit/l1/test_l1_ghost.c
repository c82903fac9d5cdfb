/* SPDX-License-Identifier: Apache-2.0 */
#include "ghost.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "policy_rig.h"

#include "check_main.h"

static uint64_t
print_of(uint32_t key)
{
	struct scout__entry entry;

	rig_set_key(&entry, key);
	return scout__fingerprint(&entry);
}

START_TEST(ghost_remembers_the_latest_evictions_and_forgets_the_others)
{
	enum {
		N = 10000
	};
	struct scout__ghost ghost;
	uint32_t touches;
	uint32_t recent = 0;
	uint32_t old = 0;
	uint32_t never = 0;

	ck_assert_int_eq(scout__ghost_init(&ghost, N), 0);
	for (uint32_t key = 0; key < 8 * N; key++)
		scout__ghost_add(&ghost, print_of(key), key % 6);
	for (uint32_t key = 0; key < 8 * N; key++) {
		uint32_t window = key < 5 * N ? 3 * N : 8 * N - key;

		never += scout__ghost_has(&ghost, print_of(key + 10 * N), 3 * N);
		if (key < 5 * N - N / 100)
			old += scout__ghost_has(&ghost, print_of(key), window);
		else if (key >= 5 * N)
			recent += scout__ghost_take(&ghost, print_of(key), 3 * N, &touches) && touches == key % 6;
	}
	/* Three times as many as there are entries, and but for a thousandth none is lost early. */
	ck_assert_uint_ge(recent, 3 * N - 3 * N / 1000);
	ck_assert_uint_le(old, 40);
	ck_assert_uint_le(never, 60);
	/* Taken is forgotten. */
	ck_assert(!scout__ghost_take(&ghost, print_of(8 * N - 1), 3 * N, &touches));
	scout__ghost_fini(&ghost);
}
END_TEST

START_TEST(ghost_window_counts_evictions)
{
	struct scout__ghost ghost;
	uint32_t touches = 77;

	ck_assert_int_eq(scout__ghost_init(&ghost, 100), 0);
	for (uint32_t key = 0; key < 50; key++)
		scout__ghost_add(&ghost, print_of(key), 2);
	ck_assert(scout__ghost_has(&ghost, print_of(20), 30));
	ck_assert(!scout__ghost_has(&ghost, print_of(20), 29));
	ck_assert(!scout__ghost_take(&ghost, print_of(20), 29, &touches));
	ck_assert_uint_eq(touches, 77);
	ck_assert(scout__ghost_take(&ghost, print_of(20), 30, &touches));
	ck_assert_uint_eq(touches, 2);
	/* More touches than a cell has room for. */
	scout__ghost_add(&ghost, print_of(99), 1000);
	ck_assert(scout__ghost_take(&ghost, print_of(99), 30, &touches));
	ck_assert_uint_eq(touches, SCOUT__GHOST_TOUCHES);
	scout__ghost_fini(&ghost);
}
END_TEST

START_TEST(ghost_fingerprints_depend_on_every_byte_of_the_key)
{
	struct scout__entry entry = {.space = 1};
	uint64_t first = scout__fingerprint(&entry);

	entry.space = 2;
	ck_assert(scout__fingerprint(&entry) != first);
	entry.space = 1;
	for (uint32_t i = 0; i < SCOUT_MAX_HASH; i++) {
		entry.hash[i] = 1;
		ck_assert(scout__fingerprint(&entry) >> 32 != first >> 32);
		ck_assert((uint32_t)scout__fingerprint(&entry) >> 16 != (uint32_t)first >> 16);
		entry.hash[i] = 0;
	}
}
END_TEST

/* Pages of its memory that have been read or written. */
static uint64_t
pages_touched(const struct scout__ghost *ghost)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), n = (scout__ghost_bytes(ghost) + page - 1) / page, touched = 0;
	unsigned char *is_there = calloc(n, 1);

	ck_assert_ptr_nonnull(is_there);
	ck_assert_int_eq(mincore(ghost->cells, scout__ghost_bytes(ghost), is_there), 0);
	for (uint64_t i = 0; i < n; i++)
		touched += is_there[i] & 1;
	free(is_there);
	return touched;
}

START_TEST(ghost_memory_is_not_touched_before_the_first_eviction)
{
	enum {
		N = 100000
	};
	struct scout__ghost ghost;
	uint32_t touches;

	ck_assert_int_eq(scout__ghost_init(&ghost, N), 0);
	for (uint32_t key = 0; key < 1000; key++) {
		scout__ghost_load(&ghost, print_of(key));
		ck_assert(!scout__ghost_has(&ghost, print_of(key), 3 * N));
		ck_assert(!scout__ghost_take(&ghost, print_of(key), 3 * N, &touches));
	}
	ck_assert_uint_eq(pages_touched(&ghost), 0);
	scout__ghost_add(&ghost, print_of(1), 2);
	ck_assert(scout__ghost_take(&ghost, print_of(1), 3 * N, &touches));
	ck_assert_uint_eq(touches, 2);
	ck_assert_uint_ge(pages_touched(&ghost), 1);
	scout__ghost_fini(&ghost);
}
END_TEST
