/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_COPY_TILE_H
#define SCOUT_COPY_TILE_H

/*
 * Where the bytes of a slot belong: the index arithmetic of the scatter and gather kernel, and of the engine
 * that launches it. The functions below run on the GPU and on the CPU alike, so a test can walk all of them
 * on a machine without a GPU. Read by C and by CUDA C++.
 *
 * A tile is a piece of at most SCOUT__TILE_BYTES of one block in one plane. The tiles of a slot are numbered
 * in the order of their bytes, so a range of tiles is a range of bytes:
 *
 *   slot     | plane 0: block 0 | block 1 | ... | plane 1: block 0 | ...
 *   tiles      0 1 2 3            4 5 6 7         ...
 *
 * A group of SCOUT__TILE_LANES threads moves one tile, 16 bytes each at a time: 256 neighbouring bytes in one
 * access, so that pieces of 256 bytes keep all lanes busy.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __NVPTX__
#define SCOUT__TILE_FN static inline __attribute__((always_inline))
#define SCOUT__TILE_GLOBAL __attribute__((address_space(1)))
#else
#define SCOUT__TILE_FN static inline
#define SCOUT__TILE_GLOBAL
#endif

#define SCOUT__TILE_BYTES 2048u
#define SCOUT__TILE_LANES 16u
#define SCOUT__TILE_VECTORS (SCOUT__TILE_BYTES / 16u / SCOUT__TILE_LANES) /* of one lane */
/* Block ids travel with the launch, in the 4 KiB that its parameters may have on any device. */
#define SCOUT__TILE_IDS 896u

struct scout__tile_plane {
	uint64_t base; /* address of block 0 */
	uint64_t stride;
	uint64_t block_bytes;
	uint64_t slot_at; /* where the plane begins in a slot */
	uint64_t first_tile;
	uint64_t tiles_per_block;
};

/* Some tiles of one slot: what one launch moves. */
struct scout__tile_span {
	const SCOUT__TILE_GLOBAL struct scout__tile_plane
		*planes; /* all planes; readable by the processor that works on the span */
	uint64_t slot;   /* address that byte 0 of the slot has or would have; may be no memory */
	uint64_t first_tile, end_tile;
	uint32_t first_plane, end_plane; /* the planes that these tiles are in */
	uint32_t first_block;            /* of ids[0] */
	uint32_t to_pages;               /* 1: slot to pages, 0: pages to slot */
	int32_t ids[SCOUT__TILE_IDS];    /* pages of the chunk's blocks from first_block on; negative: none */
};

struct scout__tile {
	uint64_t page;    /* address; 0: a null block */
	uint64_t slot_at; /* offset in the slot */
	uint32_t bytes;
};

/* The plane of tile @t, among planes [low, high). */
SCOUT__TILE_FN uint32_t
scout__tile_plane_of(const SCOUT__TILE_GLOBAL struct scout__tile_plane *planes, uint32_t low, uint32_t high, uint64_t t)
{
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (planes[middle].first_tile <= t)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* Offset in the slot of tile @t, which is in plane @p or just after it. */
SCOUT__TILE_FN uint64_t
scout__tile_slot_at(const SCOUT__TILE_GLOBAL struct scout__tile_plane *plane, uint64_t t)
{
	uint64_t in_plane = t - plane->first_tile;
	uint64_t block = in_plane / plane->tiles_per_block;
	uint64_t part = in_plane % plane->tiles_per_block;

	return plane->slot_at + block * plane->block_bytes + part * SCOUT__TILE_BYTES;
}

SCOUT__TILE_FN struct scout__tile
scout__tile_locate(const struct scout__tile_span *span, uint64_t t)
{
	const SCOUT__TILE_GLOBAL struct scout__tile_plane *plane =
		&span->planes[scout__tile_plane_of(span->planes, span->first_plane, span->end_plane, t)];
	uint64_t in_plane = t - plane->first_tile;
	uint64_t block = in_plane / plane->tiles_per_block;
	uint64_t in_block = in_plane % plane->tiles_per_block * SCOUT__TILE_BYTES;
	uint64_t left = plane->block_bytes - in_block;
	int32_t id = span->ids[block - span->first_block];
	struct scout__tile tile;

	tile.page = id < 0 ? 0 : plane->base + (uint64_t)id * plane->stride + in_block;
	tile.slot_at = plane->slot_at + block * plane->block_bytes + in_block;
	tile.bytes = left < SCOUT__TILE_BYTES ? (uint32_t)left : SCOUT__TILE_BYTES;
	return tile;
}

/* 16 bytes that move in one access. Other code sees this memory with other types. */
typedef uint64_t scout__tile_vector __attribute__((vector_size(16), may_alias));
typedef uint32_t scout__tile_word __attribute__((may_alias));

/* Addresses are numbers here, because some of them are not memory of this machine. NOLINTBEGIN(performance-no-int-to-ptr) */
SCOUT__TILE_FN SCOUT__TILE_GLOBAL scout__tile_vector *
scout__tile_vectors(uint64_t address)
{
	return (SCOUT__TILE_GLOBAL scout__tile_vector *)(uintptr_t)address;
}

SCOUT__TILE_FN SCOUT__TILE_GLOBAL scout__tile_word *
scout__tile_words(uint64_t address)
{
	return (SCOUT__TILE_GLOBAL scout__tile_word *)(uintptr_t)address;
}

SCOUT__TILE_FN SCOUT__TILE_GLOBAL uint8_t *
scout__tile_bytes(uint64_t address)
{
	return (SCOUT__TILE_GLOBAL uint8_t *)(uintptr_t)address;
}
/* NOLINTEND(performance-no-int-to-ptr) */

/* What lane @lane of a group does to move a tile; @bytes up to SCOUT__TILE_BYTES, source and destination do not overlap. */
SCOUT__TILE_FN void
scout__tile_move(uint64_t to, uint64_t from, uint32_t bytes, uint32_t lane)
{
	uint32_t done = 0;

	if (((to | from) & 15) == 0) {
		scout__tile_vector held[SCOUT__TILE_VECTORS];
		uint32_t n = bytes / 16;

		/* All loads are on their way before the first store waits for one. */
#ifdef __NVPTX__
#pragma unroll
#endif
		for (uint32_t k = 0; k < SCOUT__TILE_VECTORS; k++)
			if (lane + k * SCOUT__TILE_LANES < n)
				held[k] = scout__tile_vectors(from)[lane + k * SCOUT__TILE_LANES];
#ifdef __NVPTX__
#pragma unroll
#endif
		for (uint32_t k = 0; k < SCOUT__TILE_VECTORS; k++)
			if (lane + k * SCOUT__TILE_LANES < n)
				scout__tile_vectors(to)[lane + k * SCOUT__TILE_LANES] = held[k];
		done = n * 16;
	} else if (((to | from) & 3) == 0) {
		for (uint32_t i = lane; i < bytes / 4; i += SCOUT__TILE_LANES)
			scout__tile_words(to)[i] = scout__tile_words(from)[i];
		done = bytes / 4 * 4;
	}
	for (uint32_t i = done + lane; i < bytes; i += SCOUT__TILE_LANES)
		scout__tile_bytes(to)[i] = scout__tile_bytes(from)[i];
}

SCOUT__TILE_FN void
scout__tile_zero(uint64_t to, uint32_t bytes, uint32_t lane)
{
	for (uint32_t i = lane; i < bytes; i += SCOUT__TILE_LANES)
		scout__tile_bytes(to)[i] = 0;
}

/* Tile @t of a span, as lane @lane does it. */
SCOUT__TILE_FN void
scout__tile_do(const struct scout__tile_span *span, uint64_t t, uint32_t lane)
{
	struct scout__tile tile = scout__tile_locate(span, t);
	uint64_t slot = span->slot + tile.slot_at;

	if (tile.page != 0)
		scout__tile_move(span->to_pages ? tile.page : slot, span->to_pages ? slot : tile.page, tile.bytes,
				 lane);
	else if (!span->to_pages)
		/* A slot is compared as a whole, so it must hold no stale bytes of other chunks. Pages of null blocks stay as they are. */
		scout__tile_zero(slot, tile.bytes, lane);
}

#ifdef __cplusplus
extern "C" {
#endif

struct scout__copy_layout;

/* Fill @planes (n_planes + 1: the last one only marks the end). */
void scout__tile_table(const struct scout__copy_layout *layout, struct scout__tile_plane *planes);

/*
 * The longest range of tiles from @first on that ends by @limit, has at most @max_bytes (SCOUT__TILE_BYTES or
 * more) and fits one launch: fill the span's tiles, planes and ids. @ids are the chunk's. Returns the bytes
 * of the slot that it covers; the first of them is at *ret_slot_at.
 */
uint64_t scout__tile_cut(const struct scout__tile_plane *planes, uint32_t n_planes, uint32_t blocks_per_chunk,
			 const int64_t *ids, uint64_t first, uint64_t limit, uint64_t max_bytes,
			 struct scout__tile_span *span, uint64_t *ret_slot_at);

#ifdef __cplusplus
}
#endif

#endif
