/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

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

#include <stdbool.h>
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
/* Parts and block ids travel with the launch, in the 4 KiB that its parameters may have on any device. */
#define SCOUT__TILE_PARTS 32u
#define SCOUT__TILE_IDS 632u

struct scout__tile_plane {
	uint64_t base; /* address of block 0 */
	uint64_t stride;
	uint64_t block_bytes;
	uint64_t slot_at; /* where the plane begins in a slot */
	uint64_t first_tile;
	uint64_t tiles_per_block;
};

/* Some tiles of one slot. */
struct scout__tile_part {
	const SCOUT__TILE_GLOBAL struct scout__tile_plane
		*planes;                 /* all of its table; readable where the span is worked on */
	uint64_t slot;                   /* address that byte 0 of the slot has or would have; may be no memory */
	uint64_t first_tile;             /* of the slot */
	uint64_t begin;                  /* tiles of the parts before it: its first tile, among those of the span */
	uint32_t first_plane, end_plane; /* that its tiles are in */
	uint32_t first_block;            /* of ids[ids_at] */
	uint32_t ids_at;
};

/* What one launch moves: parts of some slots. */
struct scout__tile_span {
	uint64_t n_tiles; /* of all parts */
	uint32_t n_parts;
	uint32_t n_ids;
	uint32_t to_pages; /* 1: slot to pages, 0: pages to slot */
	struct scout__tile_part parts[SCOUT__TILE_PARTS];
	int32_t ids[SCOUT__TILE_IDS]; /* pages of the chunks' blocks; negative: none */
};

struct scout__tile {
	uint64_t page; /* address; 0: a null block */
	uint64_t slot; /* address */
	uint32_t bytes;
};

/* The plane that tile @t is in, among planes [low, high). */
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

/* Offset in the slot of tile @t, which is in plane @p or just behind it. */
SCOUT__TILE_FN uint64_t
scout__tile_slot_at(const SCOUT__TILE_GLOBAL struct scout__tile_plane *plane, uint64_t t)
{
	uint64_t in_plane = t - plane->first_tile;
	uint64_t block = in_plane / plane->tiles_per_block;
	uint64_t part = in_plane % plane->tiles_per_block;

	return plane->slot_at + block * plane->block_bytes + part * SCOUT__TILE_BYTES;
}

/* The part that tile @t of a span is in. */
SCOUT__TILE_FN const struct scout__tile_part *
scout__tile_part_of(const struct scout__tile_span *span, uint64_t t)
{
	uint32_t low = 0, high = span->n_parts;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (span->parts[middle].begin <= t)
			low = middle;
		else
			high = middle;
	}
	return &span->parts[low];
}

/* Tile @t of a span, which has n_tiles. */
SCOUT__TILE_FN struct scout__tile
scout__tile_locate(const struct scout__tile_span *span, uint64_t t)
{
	const struct scout__tile_part *part = scout__tile_part_of(span, t);
	uint64_t in_slot = part->first_tile + (t - part->begin);
	const SCOUT__TILE_GLOBAL struct scout__tile_plane *plane =
		&part->planes[scout__tile_plane_of(part->planes, part->first_plane, part->end_plane, in_slot)];
	uint64_t in_plane = in_slot - plane->first_tile;
	uint64_t block = in_plane / plane->tiles_per_block;
	uint64_t in_block = in_plane % plane->tiles_per_block * SCOUT__TILE_BYTES;
	uint64_t left = plane->block_bytes - in_block;
	int32_t id = span->ids[part->ids_at + block - part->first_block];
	struct scout__tile tile;

	tile.page = id < 0 ? 0 : plane->base + (uint64_t)id * plane->stride + in_block;
	tile.slot = part->slot + plane->slot_at + block * plane->block_bytes + in_block;
	tile.bytes = left < SCOUT__TILE_BYTES ? (uint32_t)left : SCOUT__TILE_BYTES;
	return tile;
}

/* 16 bytes that move in one access. The memory has a type of its own elsewhere. */
typedef uint64_t scout__tile_vector __attribute__((vector_size(16), may_alias));
typedef uint32_t scout__tile_word __attribute__((may_alias));

/* Addresses are numbers here, because some of them are no memory of this machine's. NOLINTBEGIN(performance-no-int-to-ptr) */
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

	if (tile.page != 0)
		scout__tile_move(span->to_pages ? tile.page : tile.slot, span->to_pages ? tile.slot : tile.page,
				 tile.bytes, lane);
	else if (!span->to_pages)
		/* A slot is compared as a whole: no stale bytes of other chunks in it. Pages of null blocks stay as they are. */
		scout__tile_zero(tile.slot, tile.bytes, lane);
}

#ifdef __cplusplus
extern "C" {
#endif

struct scout__copy_layout;

/* Fill @planes (n_planes + 1: the last one only says where all ends). */
void scout__tile_table(const struct scout__copy_layout *layout, struct scout__tile_plane *planes);

/* A span without parts. */
void scout__tile_begin(struct scout__tile_span *span, bool to_pages);

/*
 * One more part of a span: the longest range of tiles of one slot from @first on that ends by @limit, has at most @max_bytes
 * (SCOUT__TILE_BYTES or more) and fits the launch. @ids are the chunk's. The part lacks its `slot`, and its `planes` are
 * @planes. Returns the bytes of the slot that it covers, the first of them at *ret_slot_at; 0: there is no room for it.
 */
uint64_t scout__tile_add(struct scout__tile_span *span, const struct scout__tile_plane *planes,
			 const struct scout__copy_layout *layout, const int64_t *ids, uint64_t first, uint64_t limit,
			 uint64_t max_bytes, uint64_t *ret_slot_at);

/* The tile of its slot behind the last part of a span. */
static inline uint64_t
scout__tile_end(const struct scout__tile_span *span)
{
	const struct scout__tile_part *part = &span->parts[span->n_parts - 1];

	return part->first_tile + (span->n_tiles - part->begin);
}

#ifdef __cplusplus
}
#endif
