/* SPDX-License-Identifier: Apache-2.0 */
#include "ghost.h"

#include <kvscout/error.h>

#include "lazy.h"

/*
 * DESIGN
 *
 * Purpose: the list of evicted keys, in little memory and in two cache lines a call. Threads: loop.
 *
 * A key has two buckets of 8 cells and may lie in either; a new one goes into the emptier one, or takes the place of
 * the oldest in both. There are four cells for each entry of the chunk index. With two choices this is room for a
 * window of three times the entries, and not one key in thousands is lost too early; with one bucket for a key, one in
 * ten would be. That matters: a chunk whose parent is forgotten looks as if it was touched more often than its parent,
 * outlives the parent, and is then of no use (up to 1 point of hit ratio).
 *
 * Time is the number of additions, in units of a thousandth of the chunk index: the 13 bits of a cell last for 8 times
 * the index. A cell that is neither overwritten nor asked about for that long counts as new again; like any false yes,
 * this costs a little room in the wrong queue.
 *
 * Rejected: a list with an index (24 bytes and more for each entry), a Bloom filter (cannot forget in order), a window
 * of one and a half times the entries (small pools lose up to 1.8 points of hit ratio).
 */

#define CELLS 8u
#define WINDOW 3u         /* times the entries: the longest window */
#define TIME_UNITS 1024u  /* units in as many additions as the chunk index has entries */
#define TIME_MASK 0x1fffu /* of a unit's number */
#define TIME_SHIFT 3u
#define PRINT_MASK 0xffff0000u
#define FREE_AGE (TIME_MASK + 1)

static uint32_t
age_of(const struct scout__ghost *ghost, uint32_t cell)
{
	return (ghost->now - (cell >> TIME_SHIFT)) & TIME_MASK;
}

/* Never 0, so no cell in use is. */
static uint32_t
print_part(uint64_t print)
{
	uint32_t part = (uint32_t)print & PRINT_MASK;

	return part ? part : 0x10000u;
}

/* The first cell of the bucket that @half of a print, 32 bits, selects. */
static uint32_t *
bucket_of(const struct scout__ghost *ghost, uint32_t half)
{
	return &ghost->cells[(((uint64_t)half * ghost->n_buckets) >> 32) * CELLS];
}

static uint32_t *
first_bucket(const struct scout__ghost *ghost, uint64_t print)
{
	return bucket_of(ghost, (uint32_t)(print >> 32));
}

/* The other bucket depends on the fingerprint's bits, but the cell does not hold them all: they are mixed anew. */
static uint32_t *
second_bucket(const struct scout__ghost *ghost, uint64_t print)
{
	return bucket_of(ghost, (uint32_t)(print * UINT64_C(0x9e3779b97f4a7c15) >> 32));
}

uint64_t
scout__ghost_bytes(const struct scout__ghost *ghost)
{
	return (uint64_t)ghost->n_buckets * CELLS * sizeof(*ghost->cells);
}

int
scout__ghost_init(struct scout__ghost *ghost, uint32_t max_entries)
{
	uint64_t cells = (uint64_t)max_entries * (WINDOW + 1);

	ghost->n_buckets = (uint32_t)(cells / CELLS + 1);
	ghost->tick = max_entries / TIME_UNITS + 1;
	ghost->now = 0;
	ghost->in_now = 0;
	ghost->cells = scout__lazy_alloc(scout__ghost_bytes(ghost));
	return ghost->cells ? 0 : SCOUT_ERR_NOMEM;
}

void
scout__ghost_fini(struct scout__ghost *ghost)
{
	scout__lazy_free(ghost->cells, scout__ghost_bytes(ghost));
}

/* A bucket's place for a new key: a cell that is free or out of every window, else the oldest one. */
struct ghost_place {
	uint32_t *cell;
	uint32_t age;    /* of the key in it; FREE_AGE: it is free */
	uint32_t n_free; /* in the bucket */
};

static struct ghost_place
place_in(const struct scout__ghost *ghost, uint32_t *bucket)
{
	uint32_t best = 0; /* age, and the cell's number */
	uint32_t n_free = 0;

	/* Without branches: ages are in no order that a processor could guess. */
	for (uint32_t i = 0; i < CELLS; i++) {
		uint32_t age = age_of(ghost, bucket[i]);
		uint32_t is_free = (bucket[i] == 0) | (age > WINDOW * TIME_UNITS);
		uint32_t rank = (is_free ? FREE_AGE : age) * CELLS + i;

		n_free += is_free;
		best = rank > best ? rank : best;
	}
	return (struct ghost_place){.cell = &bucket[best % CELLS], .age = best / CELLS, .n_free = n_free};
}

void
scout__ghost_add(struct scout__ghost *ghost, uint64_t print, uint32_t touches)
{
	struct ghost_place first = place_in(ghost, first_bucket(ghost, print));
	struct ghost_place second = place_in(ghost, second_bucket(ghost, print));
	bool takes_second = second.n_free > first.n_free || (first.n_free == 0 && second.age > first.age);

	if (touches > SCOUT__GHOST_TOUCHES)
		touches = SCOUT__GHOST_TOUCHES;
	*(takes_second ? second.cell : first.cell) =
		print_part(print) | (ghost->now & TIME_MASK) << TIME_SHIFT | touches;
	if (++ghost->in_now == ghost->tick) {
		ghost->in_now = 0;
		ghost->now++;
	}
}

/* The cell of @print in a bucket, if it was added within @window; NULL. */
static uint32_t *
find_in(const struct scout__ghost *ghost, uint32_t *bucket, uint64_t print, uint64_t window)
{
	for (uint32_t i = 0; i < CELLS; i++)
		if ((bucket[i] & PRINT_MASK) == print_part(print) && age_of(ghost, bucket[i]) <= window / ghost->tick)
			return &bucket[i];
	return NULL;
}

/* Nothing was ever added. Until a pool is full for the first time, its stores touch none of this memory. */
static bool
is_unused(const struct scout__ghost *ghost)
{
	return ghost->now == 0 && ghost->in_now == 0;
}

static uint32_t *
find(const struct scout__ghost *ghost, uint64_t print, uint64_t window)
{
	uint32_t *second = second_bucket(ghost, print);
	uint32_t *cell;

	if (is_unused(ghost))
		return NULL;
	__builtin_prefetch(second);
	cell = find_in(ghost, first_bucket(ghost, print), print, window);
	return cell ? cell : find_in(ghost, second, print, window);
}

void
scout__ghost_load(const struct scout__ghost *ghost, uint64_t print)
{
	if (is_unused(ghost))
		return;
	__builtin_prefetch(first_bucket(ghost, print), 1);
	__builtin_prefetch(second_bucket(ghost, print), 1);
	__asm__ volatile(""); /* gcc believes that a function that only prefetches has no effect */
}

bool
scout__ghost_has(const struct scout__ghost *ghost, uint64_t print, uint64_t window)
{
	return find(ghost, print, window) != NULL;
}

bool
scout__ghost_take(struct scout__ghost *ghost, uint64_t print, uint64_t window, uint32_t *ret_touches)
{
	uint32_t *cell = find(ghost, print, window);

	if (!cell)
		return false;
	*ret_touches = *cell & SCOUT__GHOST_TOUCHES;
	*cell = 0;
	return true;
}
