/* SPDX-License-Identifier: Apache-2.0 */
#include "ghost.h"

#include <sys/mman.h>

#include <kvscout/error.h>

/*
 * DESIGN
 *
 * Purpose: the list of evicted keys, in little memory and in two cache lines a call. Threads: loop.
 *
 * A key falls into one of n_buckets buckets of 8 cells; a new one takes a free cell or the oldest. With twice
 * as many cells as entries few buckets overflow before what is in them is out of the window anyway, so this is a list
 * in the order of eviction but for some of its oldest part, without links and without a table over it.
 *
 * Time is the number of additions, in units of an eighth of a thousandth of the chunk index: the 16 bits of a cell last
 * for 8 times the index. A cell that is neither overwritten nor asked for that long (once in thousands) counts as new
 * again; like any false yes it costs a little room in the wrong queue.
 *
 * Rejected: a list with an index (24 bytes and more for each entry), a Bloom filter (cannot forget in order).
 */

#define CELLS 8u
#define TIME_UNITS 8192u /* in a window of the size of the chunk index */

static uint32_t
now(const struct scout__ghost *ghost)
{
	return (uint32_t)(ghost->added / ghost->tick) & 0xffff;
}

/* Never 0 as a whole: the print's part is not. */
static uint32_t
print_part(uint64_t print)
{
	uint32_t part = (uint32_t)print & 0xffff0000u;

	return part ? part : 0x10000u;
}

static uint32_t *
bucket_of(const struct scout__ghost *ghost, uint64_t print)
{
	uint64_t bucket = ((print >> 32) * ghost->n_buckets) >> 32;

	return &ghost->cells[bucket * CELLS];
}

uint64_t
scout__ghost_bytes(const struct scout__ghost *ghost)
{
	return (uint64_t)ghost->n_buckets * CELLS * sizeof(*ghost->cells);
}

int
scout__ghost_init(struct scout__ghost *ghost, uint32_t max_entries)
{
	uint64_t cells = (uint64_t)max_entries * 2;
	void *p;

	ghost->n_buckets = (uint32_t)(cells / CELLS + 1);
	ghost->tick = max_entries / TIME_UNITS + 1;
	ghost->added = 0;
	p = mmap(NULL, scout__ghost_bytes(ghost), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		 -1, 0);
	if (p == MAP_FAILED)
		return SCOUT_ERR_NOMEM;
	ghost->cells = p;
	return 0;
}

void
scout__ghost_fini(struct scout__ghost *ghost)
{
	(void)munmap(ghost->cells, scout__ghost_bytes(ghost));
}

void
scout__ghost_add(struct scout__ghost *ghost, uint64_t print)
{
	uint32_t *cell = bucket_of(ghost, print);
	uint32_t oldest_age = 0;
	uint32_t at = 0;

	for (uint32_t i = 0; i < CELLS; i++) {
		uint32_t age = (now(ghost) - cell[i]) & 0xffff;

		if (!cell[i] || (cell[i] & 0xffff0000u) == print_part(print)) {
			at = i;
			break;
		}
		if (age >= oldest_age) {
			oldest_age = age;
			at = i;
		}
	}
	cell[at] = print_part(print) | now(ghost);
	ghost->added++;
}

bool
scout__ghost_take(struct scout__ghost *ghost, uint64_t print, uint32_t entries)
{
	uint64_t window = (uint64_t)entries + entries / 2;
	uint32_t *cell = bucket_of(ghost, print);

	for (uint32_t i = 0; i < CELLS; i++) {
		if ((cell[i] & 0xffff0000u) != print_part(print))
			continue;
		if (((now(ghost) - cell[i]) & 0xffff) > window / ghost->tick)
			return false;
		cell[i] = 0;
		return true;
	}
	return false;
}
