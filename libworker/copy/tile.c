/* SPDX-License-Identifier: Apache-2.0 */
#include "tile.h"

#include "copy.h"

/*
 * DESIGN
 *
 * Purpose: cut the tiles of a slot into launches.
 *
 * A launch has the ids of its blocks among its parameters, so nothing has to be sent to the GPU before. Chunks with
 * more blocks than fit (a chunk of 1024 tokens in blocks of one, say) are cut within planes instead of across them.
 *
 * Threads: any; no state.
 */

void
scout__tile_table(const struct scout__copy_layout *layout, struct scout__tile_plane *planes)
{
	uint64_t slot_at = 0, tile = 0;

	for (uint32_t p = 0; p < layout->n_planes; p++) {
		const struct scout__copy_plane *plane = &layout->planes[p];

		planes[p] = (struct scout__tile_plane){
			.base = (uintptr_t)plane->base,
			.stride = plane->stride,
			.block_bytes = plane->block_bytes,
			.slot_at = slot_at,
			.first_tile = tile,
			.tiles_per_block = (plane->block_bytes + SCOUT__TILE_BYTES - 1) / SCOUT__TILE_BYTES,
		};
		slot_at += layout->blocks_per_chunk * plane->block_bytes;
		tile += layout->blocks_per_chunk * planes[p].tiles_per_block;
	}
	planes[layout->n_planes] = (struct scout__tile_plane){
		.block_bytes = 1, .slot_at = slot_at, .first_tile = tile, .tiles_per_block = 1};
}

static uint64_t
slot_at(const struct scout__tile_plane *planes, uint32_t n_planes, uint64_t t)
{
	return scout__tile_slot_at(&planes[scout__tile_plane_of(planes, 0, n_planes + 1, t)], t);
}

uint64_t
scout__tile_cut(const struct scout__tile_plane *planes, uint32_t n_planes, uint32_t blocks_per_chunk,
		const int64_t *ids, uint64_t first, uint64_t limit, uint64_t max_bytes, struct scout__tile_span *span,
		uint64_t *ret_slot_at)
{
	uint32_t p = scout__tile_plane_of(planes, 0, n_planes, first);
	uint64_t begin = scout__tile_slot_at(&planes[p], first);
	uint64_t low = first + 1, n_ids = blocks_per_chunk, end;

	span->first_block = 0;
	if (blocks_per_chunk > SCOUT__TILE_IDS) {
		span->first_block = (uint32_t)((first - planes[p].first_tile) / planes[p].tiles_per_block);
		n_ids = blocks_per_chunk - span->first_block;
		n_ids = n_ids < SCOUT__TILE_IDS ? n_ids : SCOUT__TILE_IDS;
		end = planes[p].first_tile + (span->first_block + n_ids) * planes[p].tiles_per_block;
		limit = end < limit ? end : limit;
	}
	/* The last end within reach; one tile always fits. */
	for (uint64_t high = limit; low < high;) {
		uint64_t middle = low + (high - low + 1) / 2;

		if (slot_at(planes, n_planes, middle) - begin <= max_bytes)
			low = middle;
		else
			high = middle - 1;
	}
	span->planes = planes;
	span->first_tile = first;
	span->end_tile = low;
	span->first_plane = p;
	span->end_plane = scout__tile_plane_of(planes, 0, n_planes, low - 1) + 1;
	for (uint64_t i = 0; i < n_ids; i++)
		span->ids[i] = ids[span->first_block + i] < 0 ? -1 : (int32_t)ids[span->first_block + i];
	*ret_slot_at = begin;
	return slot_at(planes, n_planes, low) - begin;
}
