/* SPDX-License-Identifier: Apache-2.0 */
#include "ceiling.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/*
 * DESIGN
 *
 * After the hit of a lookup, a cache without end would hit the leading chunks that were ever stored. A chunk's hash
 * decides whether it is in the sample, at each store and each lookup alike (Waldspurger et al., SHARDS, FAST 2015). At
 * first all are, and the count is exact. When a bucket is full, mask gets one more bit: half of the sample leaves, and
 * its cells are free. A cell knows how many low bits of its hash are 0, so no walk over the table is needed.
 *
 * The last chunk of a lookup that is found counts with all before it, for these were stored too, and with the mask
 * chunks after it that are, on average, not in the sample.
 *
 * Each namespace takes a sixteenth of the memory that is left: a lone one 64 KiB, for 4,000 to 8,000 chunks, the 64th 2
 * KiB. In a table of its own, so that a clear starts a new count.
 *
 * Rejected: mask + 1 for each chunk that is found (a few that many prompts begin with decide the error); counting chunks
 * that are stored again (they are others than those that the hit ratio counts).
 */

#define CELLS 16u   /* of a bucket: a cache line */
#define LEVEL 31u   /* of a cell: zero bits of the hash. The rest is a fingerprint */
#define LOOKS 4096u /* for chunks, in one lookup */
#define LEAST 2048u /* bytes */

void
scout__ceiling_init(struct scout__ceiling *c, uint32_t *left)
{
	uint32_t bytes = *left / 16 > LEAST ? *left / 16 : LEAST;

	c->n_buckets = bytes / (CELLS * sizeof(*c->cells));
	c->cells = bytes <= *left ? calloc(c->n_buckets, CELLS * sizeof(*c->cells)) : NULL;
	*left -= c->cells ? bytes : 0;
}

void
scout__ceiling_clear(struct scout__ceiling *c)
{
	if (c->cells)
		memset(c->cells, 0, (size_t)c->n_buckets * CELLS * sizeof(*c->cells));
	c->mask = 0;
}

static uint64_t
word_of(const uint8_t *hash)
{
	uint64_t word;

	memcpy(&word, hash, sizeof(word));
	return word;
}

/* The bucket and, in *ret_cell, what is in it if the chunk was stored. */
static uint32_t *
bucket_of(const struct scout__ceiling *c, uint32_t space, const uint8_t *hash, uint32_t *ret_cell)
{
	uint64_t word = word_of(hash), print = word_of(hash + 8) + space;

	print = (word ^ print * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9);
	print ^= print >> 32;
	*ret_cell = ((uint32_t)print & ~LEVEL) | (LEVEL + 1) | /* never 0 */
		    (uint32_t)__builtin_ctz((uint32_t)word | UINT32_C(1) << LEVEL);
	return &c->cells[((print >> 32) * c->n_buckets >> 32) * CELLS];
}

static bool
has(const uint32_t *bucket, uint32_t cell)
{
	uint32_t found = 0;

#pragma GCC unroll 4
	for (uint32_t i = 0; i < CELLS; i++)
		found |= bucket[i] == cell;
	return found;
}

/* Out of line, so that the loop over what is stored stays small. */
static __attribute__((noinline)) void
add(struct scout__ceiling *c, uint32_t space, const uint8_t *hash)
{
	uint32_t cell;
	uint32_t *bucket = bucket_of(c, space, hash, &cell);

	if (has(bucket, cell))
		return;
	for (; !(c->mask >> (cell & LEVEL) & 1); c->mask = c->mask * 2 + 1) {
		for (uint32_t i = 0; i < CELLS; i++) {
			uint32_t *place = &bucket[(cell / (2 * LEVEL + 2) + i) % CELLS];

			if (*place && !(c->mask >> (*place & LEVEL) & 1))
				continue;
			*place = cell;
			return;
		}
		if (c->mask == UINT32_MAX >> 1)
			return;
	}
}

void
scout__ceiling_stored(struct scout__ceiling *c, uint32_t space, const uint8_t *hashes, uint32_t hash_bytes, uint32_t n)
{
	uint32_t mask = c->mask; /* in a register */

#pragma GCC unroll 4
	for (uint32_t i = c->cells ? 0 : n; i < n; i++, hashes += hash_bytes) {
		if ((uint32_t)word_of(hashes) & mask)
			continue;
		add(c, space, hashes);
		mask = c->mask;
	}
}

uint64_t
scout__ceiling_seen(const struct scout__ceiling *c, uint32_t space, const uint8_t *hashes, size_t apart, uint32_t n)
{
	uint32_t step = n / LOOKS + 1, cell;
	uint64_t end = 0; /* after the last one that was found */

	/* Where the first look is depends on the key, so that no place in a prompt is left out always. */
	for (uint32_t i = n && c->cells ? hashes[8] % step : n; i < n; i += step) {
		const uint8_t *hash = hashes + i * apart;
		const uint32_t *bucket;

		if ((uint32_t)word_of(hash) & c->mask)
			continue;
		bucket = bucket_of(c, space, hash, &cell);
		if (!has(bucket, cell))
			break;
		end = i + step * (c->mask + UINT64_C(1));
	}
	return end;
}
