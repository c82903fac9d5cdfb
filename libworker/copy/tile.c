/* SPDX-License-Identifier: Apache-2.0 */
#include "tile.h"

#include "copy.h"

/*
 * DESIGN
 *
 * Purpose: cut the tiles of slots into launches.
 *
 * A launch carries its parts and the ids of their blocks among its parameters, so nothing has to be sent to the GPU before
 * it. Chunks with more blocks than fit (a chunk of 1024 tokens in blocks of one, say) are cut within planes
 * instead of across them.
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

void
scout__tile_begin(struct scout__tile_span *span, bool to_pages)
{
	span->n_tiles = 0;
	span->n_parts = 0;
	span->n_ids = 0;
	span->to_pages = to_pages;
}

/* The last end in [first + 1, limit] that is near enough; one tile always is. */
static uint64_t
find_end(const struct scout__tile_plane *planes, uint32_t n_planes, uint64_t first, uint64_t limit, uint64_t max_bytes)
{
	uint64_t begin = slot_at(planes, n_planes, first), low = first + 1;

	for (uint64_t high = limit; low < high;) {
		uint64_t middle = low + (high - low + 1) / 2;

		if (slot_at(planes, n_planes, middle) - begin <= max_bytes)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

uint64_t
scout__tile_add(struct scout__tile_span *span, const struct scout__tile_plane *planes,
		const struct scout__copy_layout *layout, const int64_t *ids, uint64_t first, uint64_t limit,
		uint64_t max_bytes, uint64_t *ret_slot_at)
{
	uint32_t n_planes = layout->n_planes, p = scout__tile_plane_of(planes, 0, n_planes, first);
	uint32_t first_block = 0, n_ids = layout->blocks_per_chunk, room = SCOUT__TILE_IDS - span->n_ids;
	struct scout__tile_part *part = &span->parts[span->n_parts];
	uint64_t end;

	if (n_ids > SCOUT__TILE_IDS) {
		first_block = (uint32_t)((first - planes[p].first_tile) / planes[p].tiles_per_block);
		n_ids = n_ids - first_block < room ? n_ids - first_block : room;
		end = planes[p].first_tile + (uint64_t)(first_block + n_ids) * planes[p].tiles_per_block;
		limit = end < limit ? end : limit;
	}
	if (span->n_parts == SCOUT__TILE_PARTS || n_ids == 0 || n_ids > room)
		return 0;
	end = find_end(planes, n_planes, first, limit, max_bytes);
	*part = (struct scout__tile_part){
		.planes = planes,
		.first_tile = first,
		.begin = span->n_tiles,
		.first_plane = p,
		.end_plane = scout__tile_plane_of(planes, 0, n_planes, end - 1) + 1,
		.first_block = first_block,
		.ids_at = span->n_ids,
	};
	for (uint32_t i = 0; i < n_ids; i++)
		span->ids[span->n_ids + i] = ids[first_block + i] < 0 ? -1 : (int32_t)ids[first_block + i];
	span->n_parts++;
	span->n_ids += n_ids;
	span->n_tiles += end - first;
	*ret_slot_at = scout__tile_slot_at(&planes[p], first);
	return slot_at(planes, n_planes, end) - *ret_slot_at;
}
