/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>

#include <kvscout/error.h>

#include "check_main.h"
#include "map.h"
#include "random.h"

START_TEST(a_new_map_is_empty)
{
	struct scout__map map;

	ck_assert_int_eq(scout__map_init(&map, 10), 0);
	ck_assert_uint_eq(map.n, 0);
	ck_assert_uint_eq(scout__map_get(&map, 0), SCOUT__MAP_NONE);
	ck_assert_uint_eq(scout__map_get(&map, UINT64_MAX), SCOUT__MAP_NONE);
	ck_assert(!scout__map_del(&map, 0));
	scout__map_fini(&map);
}
END_TEST

START_TEST(zero_and_all_ones_are_ordinary_keys)
{
	struct scout__map map;

	ck_assert_int_eq(scout__map_init(&map, 3), 0);
	ck_assert(scout__map_put(&map, 0, 0));
	ck_assert(scout__map_put(&map, UINT64_MAX, UINT32_MAX - 1));
	ck_assert_uint_eq(scout__map_get(&map, 0), 0);
	ck_assert_uint_eq(scout__map_get(&map, UINT64_MAX), UINT32_MAX - 1);
	ck_assert(scout__map_del(&map, 0));
	ck_assert_uint_eq(scout__map_get(&map, 0), SCOUT__MAP_NONE);
	ck_assert_uint_eq(scout__map_get(&map, UINT64_MAX), UINT32_MAX - 1);
	scout__map_fini(&map);
}
END_TEST

/* Each size around the powers of two, where the cells are fullest. */
START_LOOP_TEST(exactly_max_entries_fit, 0, 100)
{
	size_t max = (size_t)_i;
	struct scout__map map;

	ck_assert_int_eq(scout__map_init(&map, max), 0);
	ck_assert_uint_le(max * 4, (map.mask + 1) * 3);
	for (size_t i = 0; i < max; i++)
		ck_assert(scout__map_put(&map, i * 7919, (uint32_t)i));
	ck_assert(!scout__map_put(&map, UINT64_MAX, 1));
	ck_assert_uint_eq(scout__map_get(&map, UINT64_MAX), SCOUT__MAP_NONE);
	ck_assert_uint_eq(map.n, max);
	for (size_t i = 0; i < max; i++)
		ck_assert_uint_eq(scout__map_get(&map, i * 7919), i);
	if (max) {
		/* A full map still replaces, and takes a new key for an old one. */
		ck_assert(scout__map_put(&map, 0, 5));
		ck_assert_uint_eq(scout__map_get(&map, 0), 5);
		ck_assert(scout__map_del(&map, 0));
		ck_assert(scout__map_put(&map, UINT64_MAX, 1));
		ck_assert(!scout__map_put(&map, 0, 1));
	}
	scout__map_fini(&map);
}
END_TEST

START_TEST(a_map_too_large_to_count_is_refused)
{
	struct scout__map map;

	ck_assert_int_eq(scout__map_init(&map, SIZE_MAX), SCOUT_ERR_NOMEM);
	ck_assert_int_eq(scout__map_init(&map, SIZE_MAX / 2), SCOUT_ERR_NOMEM);
	scout__map_fini(&map);
}
END_TEST

START_TEST(fini_is_legal_twice)
{
	struct scout__map map;

	ck_assert_int_eq(scout__map_init(&map, 10), 0);
	scout__map_fini(&map);
	scout__map_fini(&map);
}
END_TEST

START_SIGNAL_TEST(the_value_that_means_none_cannot_be_stored, SIGABRT)
{
	struct scout__map map;

	ck_assert_int_eq(scout__map_init(&map, 10), 0);
	(void)scout__map_put(&map, 1, SCOUT__MAP_NONE);
}
END_TEST

#define MODEL_KEYS 96

struct model {
	uint64_t keys[MODEL_KEYS];
	uint32_t values[MODEL_KEYS]; /* SCOUT__MAP_NONE: not there */
	size_t n;
};

static void
check_against(const struct scout__map *map, const struct model *model)
{
	size_t used = 0;

	ck_assert_uint_eq(map->n, model->n);
	for (size_t i = 0; i < MODEL_KEYS; i++)
		ck_assert_uint_eq(scout__map_get(map, model->keys[i]), model->values[i]);
	for (size_t i = 0; i <= map->mask; i++)
		used += map->used[i];
	ck_assert_uint_eq(used, model->n);
}

static void
random_step(struct scout__map *map, struct model *model, size_t max, uint64_t *seed)
{
	size_t i = (size_t)(xorshift(seed) % MODEL_KEYS);
	bool was_there = model->values[i] != SCOUT__MAP_NONE;
	uint32_t value = (uint32_t)(xorshift(seed) >> 33);
	bool fits = was_there || model->n < max;

	if (xorshift(seed) % 5 < 2) {
		ck_assert(scout__map_del(map, model->keys[i]) == was_there);
		model->values[i] = SCOUT__MAP_NONE;
		model->n -= was_there ? 1 : 0;
		return;
	}
	ck_assert(scout__map_put(map, model->keys[i], value) == fits);
	if (!fits)
		return;
	model->values[i] = value;
	model->n += was_there ? 0 : 1;
}

/* 48 of 64 cells: runs are long and wrap around the end, so deletion has much to move. */
START_LOOP_TEST(random_operations_agree_with_a_naive_model, 0, 8)
{
	uint64_t seed = 0x9e3779b97f4a7c15u * ((uint64_t)_i + 1);
	const size_t max = 48;
	struct model model = {.n = 0};
	struct scout__map map;

	for (size_t i = 0; i < MODEL_KEYS; i++) {
		model.keys[i] = _i % 2 ? xorshift(&seed) : i << (_i / 2);
		model.values[i] = SCOUT__MAP_NONE;
	}
	ck_assert_int_eq(scout__map_init(&map, max), 0);
	ck_assert_uint_eq(map.mask, 63);
	for (int step = 0; step < 4000; step++) {
		random_step(&map, &model, max, &seed);
		check_against(&map, &model);
	}
	ck_assert_uint_gt(model.n, 0);
	scout__map_fini(&map);
}
END_TEST

/* Keys that all want the same cell, found by asking a map of one entry where it put them. */
static void
find_colliding(uint64_t *keys, size_t n, size_t cell, size_t max)
{
	struct scout__map map;
	uint64_t key = 1;

	ck_assert_int_eq(scout__map_init(&map, max), 0);
	for (size_t found = 0; found < n; key++) {
		ck_assert(scout__map_put(&map, key, 1));
		if (map.used[cell])
			keys[found++] = key;
		ck_assert(scout__map_del(&map, key));
	}
	scout__map_fini(&map);
}

/* One cluster over the end of the cells, emptied from each of its places in turn. */
START_TEST(deleting_from_a_cluster_keeps_the_others)
{
	enum {
		N = 12
	};
	uint64_t keys[N + 3];
	struct scout__map map;

	/* The cells are 32: the first run starts in 28 and wraps, the second wants cell 1, inside the first. */
	find_colliding(keys, N, 28, 24);
	find_colliding(keys + N, 3, 1, 24);
	for (int first = 0; first < N + 3; first++) {
		ck_assert_int_eq(scout__map_init(&map, 24), 0);
		ck_assert_uint_eq(map.mask, 31);
		for (uint32_t i = 0; i < N + 3; i++)
			ck_assert(scout__map_put(&map, keys[i], i));
		for (int gone = 0; gone < N + 3; gone++) {
			ck_assert(scout__map_del(&map, keys[(first + gone) % (N + 3)]));
			ck_assert(!scout__map_del(&map, keys[(first + gone) % (N + 3)]));
			for (int left = gone + 1; left < N + 3; left++) {
				int i = (first + left) % (N + 3);

				ck_assert_uint_eq(scout__map_get(&map, keys[i]), (unsigned)i);
			}
		}
		ck_assert_uint_eq(map.n, 0);
		scout__map_fini(&map);
	}
}
END_TEST
