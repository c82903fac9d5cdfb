/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * u64 -> u32 map: flat, open addressing, linear probing, backward-shift deletion (no tombstones). Capacity is fixed at init, so
 * that it never grows while serving. Peers draw keys at random, but the map still mixes them. One thread.
 */
struct scout__map {
	uint64_t *keys;
	uint32_t *values;
	uint8_t *used;
	size_t mask;
	size_t n;
	size_t max; /* entries, at most 3/4 of the cells */
};

#define SCOUT__MAP_NONE UINT32_MAX

/* Room for max_entries. Returns 0 or SCOUT_ERR_NOMEM. */
int scout__map_init(struct scout__map *map, size_t max_entries);
void scout__map_fini(struct scout__map *map);

/* The value of @key, or SCOUT__MAP_NONE. */
uint32_t scout__map_get(const struct scout__map *map, uint64_t key);

/* Set @key to @value (not SCOUT__MAP_NONE); false when full. */
bool scout__map_put(struct scout__map *map, uint64_t key, uint32_t value);

/* Returns whether @key was there. */
bool scout__map_del(struct scout__map *map, uint64_t key);
