/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define SCOUT__CEILING_BYTES (UINT32_C(1) << 20) /* of all namespaces */

/* Which chunks a namespace has ever stored, of a sample: what would a cache without end hit? Zeroed: it has none. Loop thread. */
struct scout__ceiling {
	uint32_t *cells; /* n_buckets * 16, from calloc() */
	uint32_t n_buckets;
	uint32_t mask; /* chunks whose hash has none of these bits are in the sample: one in mask + 1 */
};

/* Take memory from *@left. With too little left, there is no sample. */
void scout__ceiling_init(struct scout__ceiling *c, uint32_t *left);
/* Nothing was ever stored. */
void scout__ceiling_clear(struct scout__ceiling *c);
/* @n chunks are stored, or would be if there were room. */
void scout__ceiling_stored(struct scout__ceiling *c, uint32_t space, const uint8_t *hashes, uint32_t hash_bytes,
			   uint32_t n);
/* How many of the @n chunks come before the first one that was never stored: estimated. @apart: bytes between their hashes. */
uint64_t scout__ceiling_seen(const struct scout__ceiling *c, uint32_t space, const uint8_t *hashes, size_t apart,
			     uint32_t n);
