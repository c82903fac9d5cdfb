/* SPDX-License-Identifier: Apache-2.0 */
#include "map.h"

#include <string.h>

#include <kvscout/error.h>

#include "lazy.h"
#include "thread.h"

/*
 * DESIGN
 *
 * Purpose: find a slot by a 64-bit name, thousands of times a step, with all memory taken at init.
 *
 * Invariants: an entry lies at its home cell or after it, with no free cell between, cyclically. At least a quarter
 * of the cells are free, so each probe ends. Deletion keeps the first invariant by moving later entries of the run
 * into the hole, so the map never gets slower with age.
 *
 * The cells are three arrays: a probe reads keys and used, and the values only once. Cells cost nothing until touched.
 *
 * Threads: one. Rejected: tombstones (they need rehashing, which is a stall at a bad moment); chaining (a cache
 * miss for each link); 0 as the free key (peers draw names, and 0 is one).
 */

#define CELL_BYTES (sizeof(uint64_t) + sizeof(uint32_t) + sizeof(uint8_t))

/* The finalizer of splitmix64, a bijection: neighbouring names do not become runs of cells. */
static uint64_t
mix(uint64_t key)
{
	key ^= key >> 30;
	key *= UINT64_C(0xbf58476d1ce4e5b9);
	key ^= key >> 27;
	key *= UINT64_C(0x94d049bb133111eb);
	key ^= key >> 31;
	return key;
}

static size_t
home_of(const struct scout__map *map, uint64_t key)
{
	return (size_t)mix(key) & map->mask;
}

/* The cell that holds @key, or the free cell where it would go. */
static size_t
cell_of(const struct scout__map *map, uint64_t key)
{
	size_t i = home_of(map, key);

	while (map->used[i] && map->keys[i] != key)
		i = (i + 1) & map->mask;
	return i;
}

int
scout__map_init(struct scout__map *map, size_t max_entries)
{
	size_t cells = 4;

	memset(map, 0, sizeof(*map));
	if (max_entries > SIZE_MAX / 4 / CELL_BYTES)
		return SCOUT_ERR_NOMEM;
	while (cells / 4 * 3 < max_entries)
		cells *= 2;
	map->keys = scout__lazy_alloc(cells * CELL_BYTES);
	if (!map->keys)
		return SCOUT_ERR_NOMEM;
	map->values = (uint32_t *)(map->keys + cells);
	map->used = (uint8_t *)(map->values + cells);
	map->mask = cells - 1;
	map->max = max_entries;
	return 0;
}

void
scout__map_fini(struct scout__map *map)
{
	scout__lazy_free(map->keys, (map->mask + 1) * CELL_BYTES);
	memset(map, 0, sizeof(*map));
}

uint32_t
scout__map_get(const struct scout__map *map, uint64_t key)
{
	size_t i = cell_of(map, key);

	return map->used[i] ? map->values[i] : SCOUT__MAP_NONE;
}

bool
scout__map_put(struct scout__map *map, uint64_t key, uint32_t value)
{
	size_t i = cell_of(map, key);

	SCOUT_ASSERT(value != SCOUT__MAP_NONE);
	if (!map->used[i]) {
		if (map->n >= map->max)
			return false;
		map->used[i] = 1;
		map->keys[i] = key;
		map->n++;
	}
	map->values[i] = value;
	return true;
}

bool
scout__map_del(struct scout__map *map, uint64_t key)
{
	size_t hole = cell_of(map, key);
	size_t i = hole;

	if (!map->used[hole])
		return false;
	for (;;) {
		i = (i + 1) & map->mask;
		if (!map->used[i])
			break;
		/* An entry may move back to the hole unless its home lies after the hole, in (hole, i]. */
		if (((i - home_of(map, map->keys[i])) & map->mask) < ((i - hole) & map->mask))
			continue;
		map->keys[hole] = map->keys[i];
		map->values[hole] = map->values[i];
		hole = i;
	}
	map->used[hole] = 0;
	map->n--;
	return true;
}
