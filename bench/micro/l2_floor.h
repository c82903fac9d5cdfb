/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_BENCH_L2_FLOOR_H
#define SCOUT_BENCH_L2_FLOOR_H

#include <stdint.h>

#include "url.h"

/*
 * What the store behind a URL needs at the least for the same objects, for micro_l2: plain files and XXH3 beside the files
 * adapter, another client beside Redis. Objects lie one after the other in one buffer. A call does the whole of one
 * round, and is timed from outside. On an error they say what it was and exit.
 */
struct l2_floor {
	const char *scheme;
	const char *what; /* "write + rename, read + XXH3-128", for the table's head */
	void (*begin)(const struct scout__l2_url *url, uint32_t n, uint64_t bytes);
	/* A round has objects of its own: @round tells them apart. */
	void (*store)(uint32_t round, const uint8_t *data);
	void (*load)(uint32_t round, uint8_t *data);
	void (*end)(void);
};

extern const struct l2_floor l2_floor_fs; /* l2_floor_fs.c */

/* Up to a NULL. */
extern const struct l2_floor *const l2_floors[];

#endif
