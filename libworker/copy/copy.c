/* SPDX-License-Identifier: Apache-2.0 */
#include "copy.h"

/* What a layout of pages comes to, and what is wrong with one. Any thread. */

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

const char *
scout__copy_layout_fault(const struct scout__copy_layout *layout)
{
	const struct scout__copy_plane *plane;
	uint64_t span;

	if (!layout->planes || layout->n_planes == 0)
		return "the layout has no planes";
	if (layout->blocks_per_chunk == 0)
		return "blocks_per_chunk is 0";
	if (layout->n_blocks == 0 || layout->n_blocks > INT64_MAX)
		return "n_blocks is outside 1..2^63-1";
	for (uint32_t i = 0; i < layout->n_planes; i++) {
		plane = &layout->planes[i];
		if (!plane->base || plane->block_bytes == 0)
			return "a plane has no base or no bytes";
		if (plane->stride < plane->block_bytes)
			return "a plane's stride is smaller than its block";
		if (__builtin_mul_overflow(plane->stride, layout->n_blocks, &span) ||
		    span > UINTPTR_MAX - (uintptr_t)plane->base)
			return "a plane ends beyond the address space";
	}
	if (scout__copy_shard_bytes(layout) == 0)
		return "a shard does not fit 64 bits";
	return NULL;
}
