/* SPDX-License-Identifier: Apache-2.0 */
#include "copy.h"

#include <stdio.h>

#include "log.h"

/* The bytes of a shard in a layout of pages, and the check of a layout. Any thread. */

uint64_t
scout__copy_shard_bytes(const struct scout__copy_layout *layout)
{
	uint64_t per_block = 0, bytes;

	for (uint32_t i = 0; i < layout->n_planes; i++) {
		if (__builtin_add_overflow(per_block, layout->planes[i].block_bytes, &per_block))
			return 0;
	}
	if (__builtin_mul_overflow(per_block, (uint64_t)layout->blocks_per_chunk, &bytes))
		return 0;
	return bytes;
}

void
scout__copy_name_table(const struct scout__copy_layout *layout, uint32_t n_tables, char name[SCOUT__COPY_NAME_BYTES])
{
	name[0] = '\0';
	if (n_tables > 1)
		(void)snprintf(name, SCOUT__COPY_NAME_BYTES, "the table of group %u: ", (unsigned)layout->group);
}

int
scout__copy_check_layout(const struct scout__copy_layout *layout, char *err, size_t err_len)
{
	if (!layout->planes || layout->n_planes == 0)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "layout.n_planes = 0: must be 1 or more");
	if (layout->blocks_per_chunk == 0)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "blocks_per_chunk = 0: must be 1 or more");
	if (layout->n_blocks == 0 || layout->n_blocks > INT64_MAX)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "layout.n_blocks must be 1..2^63-1");
	for (uint32_t i = 0; i < layout->n_planes; i++) {
		const struct scout__copy_plane *plane = &layout->planes[i];
		uint64_t span;

		if (!plane->base || plane->block_bytes == 0 || plane->stride < plane->block_bytes)
			return scout__fail(err, err_len, SCOUT_ERR_INVALID,
					   "planes[%u]: base must be set, block_bytes not 0, stride not below it",
					   (unsigned)i);
		if (__builtin_mul_overflow(plane->stride, layout->n_blocks, &span) ||
		    span > UINTPTR_MAX - (uintptr_t)plane->base)
			return scout__fail(err, err_len, SCOUT_ERR_INVALID,
					   "planes[%u]: stride * n_blocks is beyond the address space", (unsigned)i);
	}
	if (scout__copy_shard_bytes(layout) == 0)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID,
				   "block_bytes of all planes, times the blocks of a chunk, must be below 2^64");
	return 0;
}
