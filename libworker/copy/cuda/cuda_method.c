/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda_engine.h"

#include <string.h>

#include "log.h"

/*
 * DESIGN
 *
 * Purpose: the two ways to move parts of slots. One span has parts of as many items of a layer as fit its stage, one launch, or one
 * call.
 *
 *   staged   the slots' bytes, in one DMA for each run of neighbouring slots and one call for all, to (or from) a staging buffer on
 *            the GPU, and a kernel that scatters (or gathers) them at the speed of the GPU's own memory. Two streams: the DMA of the
 *            next span runs beside the kernel.
 *   batch    one DMA for each piece, all in one call (cudaMemcpyBatchAsync), or one call each where the driver cannot or
 *            has refused. No kernel at all, so nothing of the model's; but small pieces cost more than their bytes.
 *
 * `auto` decides by the mean size of the pieces of a batch, neighbouring pages merged, once per batch: then
 * all of it is done in one stream, in order, and one event behind it speaks for all.
 *
 * Null blocks of a save become zeroes in the slot: the kernel writes them, or this CPU where there is none.
 *
 * Addresses. The kernel and the batch call get a slot by the address that the GPU knows it by, single copies
 * by the host's. They differ where the device attribute CanUseHostPointerForRegisteredMem is 0; there a batch
 * of host addresses is refused, or faults.
 *
 * A batch call that is refused: its copies are then enqueued one by one. If that works, it was the call, and
 * it is not tried again. Some of its copies may have been enqueued: they write the same bytes to the same
 * places.
 */

/* A call of `batch` moves no more, so that a stop is seen soon. */
#define CALL_BYTES (UINT64_C(16) << 20)

/*
 * From which mean piece size on `auto` takes `batch`.
 *
 * On an H200 behind PCIe Gen5, batched DMA moves 18 GB/s in pieces of 8 KiB, 20 to 40 of 16 KiB, and 47 to 52 from 32 KiB on; a staged
 * copy 47 to 53 throughout, but its kernel waits for the model's, and theirs for it (docs/gpu.md). `./dev gpu` prints the table anew.
 */
#define BATCH_FROM (UINT64_C(32) << 10)
/* One call for each piece takes some 2 us of this CPU: at 512 KiB the link is slower than that by far. */
#define LOOP_FROM (UINT64_C(512) << 10)

/* Of so many items, spread over a batch, `auto` counts the pieces: the chunks of a job are alike. */
#define METHOD_ITEMS 64u

static const char *const names[] = {"auto", "batch", "staged"};

bool
scout__cuda_method_find(const char *name, enum scout__cuda_method *ret_method)
{
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(name, names[i]) == 0) {
			*ret_method = (enum scout__cuda_method)i;
			return true;
		}
	}
	return false;
}

const char *
scout__cuda_method_name(enum scout__cuda_method method)
{
	return names[method];
}

enum scout__cuda_method
scout__cuda_method_choose(uint64_t bytes, uint64_t n_pieces, bool has_batch)
{
	uint64_t mean = n_pieces ? bytes / n_pieces : 0;

	return mean < (has_batch ? BATCH_FROM : LOOP_FROM) ? SCOUT__CUDA_STAGED : SCOUT__CUDA_BATCH;
}

enum scout__cuda_method
scout__cuda_method_of(const struct scout__cuda *cuda, const struct scout__copy_batch *batch)
{
	uint64_t pieces = 0, bytes = 0;

	if (cuda->method != SCOUT__CUDA_AUTO)
		return cuda->method;
	for (uint32_t i = 0; i < batch->n; i += batch->n / METHOD_ITEMS + 1) {
		const struct scout__cuda_table *table = scout__cuda_table_of(cuda, batch, i);
		const struct scout__copy_plane dense = {.stride = 1, .block_bytes = 1};
		const int64_t *ids = batch->items[i].block_ids;
		uint32_t n_ids = table->layout.blocks_per_chunk, run;
		uint64_t blocks = 0, runs = 0;

		for (uint32_t b = 0; b < n_ids; b += run) {
			run = scout__copy_run(&dense, ids + b, n_ids - b);
			blocks += ids[b] < 0 ? 0 : run;
			runs += ids[b] >= 0;
		}
		pieces += table->n_dense * runs + (table->layout.n_planes - table->n_dense) * blocks;
		bytes += table->block_bytes * blocks;
	}
	return scout__cuda_method_choose(bytes, pieces, cuda->has_batch);
}

void *
scout__cuda_page_stream(const struct scout__cuda_lane *lane)
{
	return lane->method == SCOUT__CUDA_BATCH ? lane->dma : lane->kernel;
}

void *
scout__cuda_done_stream(const struct scout__cuda *cuda, const struct scout__cuda_lane *lane)
{
	if (lane->method == SCOUT__CUDA_STAGED && !scout__cuda_is_load(cuda, lane))
		return lane->dma;
	return scout__cuda_page_stream(lane);
}

/* The first plane that one item has in one layer. */
static uint32_t
first_plane(const struct scout__cuda *cuda, const struct scout__copy_batch *batch, uint32_t item, uint32_t layer)
{
	return scout__copy_table_plane(&scout__cuda_table_of(cuda, batch, item)->layout, batch, cuda->n_tables,
				       batch->items[item].table, layer);
}

uint64_t
scout__cuda_layer_tile(const struct scout__cuda *cuda, const struct scout__copy_batch *batch, uint32_t item,
		       uint32_t layer)
{
	return scout__cuda_table_of(cuda, batch, item)->planes[first_plane(cuda, batch, item, layer)].first_tile;
}

struct scout__cuda_place
scout__cuda_next_item(const struct scout__cuda *cuda, const struct scout__copy_batch *batch, uint32_t item,
		      uint32_t layer, uint32_t end_layer)
{
	while (item < batch->n && first_plane(cuda, batch, item, layer) == first_plane(cuda, batch, item, end_layer))
		item++;
	return (struct scout__cuda_place){
		.item = item, .tile = item < batch->n ? scout__cuda_layer_tile(cuda, batch, item, layer) : 0};
}

bool
scout__cuda_is_small(const struct scout__cuda *cuda, const struct scout__copy_batch *batch, uint32_t layer,
		     uint32_t end_layer, uint64_t most)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < batch->n && bytes <= most; i++) {
		const struct scout__tile_plane *planes = scout__cuda_table_of(cuda, batch, i)->planes;

		bytes += planes[first_plane(cuda, batch, i, end_layer)].slot_at -
			 planes[first_plane(cuda, batch, i, layer)].slot_at;
	}
	return bytes <= most;
}

/* Bytes that one item has in the lane's layers, null blocks not counted. */
static uint64_t
bytes_of(const struct scout__cuda *cuda, const struct scout__cuda_lane *lane, uint32_t item)
{
	const struct scout__copy_batch *batch = lane->first;
	const struct scout__copy_layout *layout = &scout__cuda_table_of(cuda, batch, item)->layout;
	uint32_t first = first_plane(cuda, batch, item, lane->layer);
	uint32_t end = first_plane(cuda, batch, item, lane->end_layer);
	uint64_t per_block = 0, blocks = 0;

	for (uint32_t p = first; p < end; p++)
		per_block += layout->planes[p].block_bytes;
	for (uint32_t b = 0; b < layout->blocks_per_chunk; b++)
		blocks += batch->items[item].block_ids[b] >= 0;
	return blocks * per_block;
}

bool
scout__cuda_lane_find(struct scout__cuda *cuda, const struct scout__cuda_lane *lane, const void *slot,
		      struct scout__cuda_found *found)
{
	scout__cuda_memory_find(&cuda->memory, slot, found);
	return found->state == SCOUT__CUDA_PINNED || (found->state == SCOUT__CUDA_PAGEABLE && lane->is_pageable);
}

/* ---- gathering ---- */

/* What one span will be enqueued as; its pieces are in the engine's arrays. */
struct gathered {
	struct scout__tile_span tiles; /* staged */
	size_t n;                      /* staged, batch: pieces */
	uint64_t bytes;                /* staged: of the stage that are taken, a multiple of 16; else of the call */
};

/* One item of the lane's batch, as it is gathered. */
struct source {
	const struct scout__cuda_table *table;
	const struct scout__copy_item *item;
	struct scout__cuda_found found; /* what its slot lies in */
	uint64_t limit;                 /* the first tile behind the layers */
};

/* A piece that lies @slot_at bytes into the slot, and at @on_gpu. */
static void SCOUT_ON_COPY_THREAD
add_piece(struct scout__cuda *cuda, struct gathered *gathered, const struct source *source, bool is_load, void *on_gpu,
	  uint64_t slot_at, uint64_t bytes)
{
	uint64_t at = source->found.device + (uint64_t)(source->item->slot - source->found.from) + slot_at;
	/* No memory of this CPU's, perhaps. NOLINTNEXTLINE(performance-no-int-to-ptr) */
	void *in_slot = (void *)(uintptr_t)at;

	cuda->piece_to[gathered->n] = is_load ? on_gpu : in_slot;
	cuda->piece_from[gathered->n] = is_load ? in_slot : on_gpu;
	cuda->piece_host[gathered->n] = source->item->slot + slot_at;
	cuda->piece_bytes[gathered->n] = bytes;
	gathered->n++;
}

/* The last piece goes on with @bytes more, which lie behind it in memory that was pinned by one call, and in the stage. */
static bool SCOUT_ON_COPY_THREAD
lengthen_piece(struct scout__cuda *cuda, const struct gathered *gathered, const struct source *source, bool is_load,
	       const uint8_t *stage, uint64_t slot_at, uint64_t bytes)
{
	const uint8_t *host, *on_gpu;
	size_t *last_bytes;

	if (gathered->n == 0)
		return false;
	host = cuda->piece_host[gathered->n - 1];
	on_gpu = is_load ? cuda->piece_to[gathered->n - 1] : cuda->piece_from[gathered->n - 1];
	last_bytes = &cuda->piece_bytes[gathered->n - 1];
	if (host < source->found.from || host + *last_bytes != source->item->slot + slot_at ||
	    on_gpu + *last_bytes != stage)
		return false;
	*last_bytes += bytes;
	return true;
}

/* A part for the kernel, from tile @tile on; *ret_at: where it begins in the slot. Returns its bytes; 0: there is no room. */
static uint64_t SCOUT_ON_COPY_THREAD
add_part(struct gathered *gathered, const struct source *source, uint64_t tile, uint64_t room, uint64_t *ret_at)
{
	const struct scout__cuda_table *table = source->table;
	uint64_t bytes;

	if (room < SCOUT__TILE_BYTES)
		return 0;
	bytes = scout__tile_add(&gathered->tiles, table->planes, &table->layout, source->item->block_ids, tile,
				source->limit, room, ret_at);
	if (bytes)
		gathered->tiles.parts[gathered->tiles.n_parts - 1].planes = table->planes_on_gpu;
	return bytes;
}

static void
set_slot(struct gathered *gathered, uint64_t slot)
{
	gathered->tiles.parts[gathered->tiles.n_parts - 1].slot = slot;
}

/* Each of these returns the tile that comes next: @tile where there is no room for more. */

static uint64_t SCOUT_ON_COPY_THREAD
gather_staged(struct scout__cuda *cuda, const struct scout__cuda_lane *lane, struct gathered *gathered,
	      const struct source *source, const struct scout__cuda_span *span, uint64_t tile)
{
	uint64_t room = gathered->bytes < cuda->stage_bytes ? cuda->stage_bytes - gathered->bytes : 0, at = 0, bytes;
	bool is_load = scout__cuda_is_load(cuda, lane);
	uint8_t *stage;

	bytes = add_part(gathered, source, tile, room, &at);
	if (bytes == 0)
		return tile;
	/* Bytes keep their place within 16, so that what is aligned in the slot is aligned in the buffer. */
	stage = span->stage + gathered->bytes + at % 16;
	set_slot(gathered, (uintptr_t)stage - at);
	if (!lengthen_piece(cuda, gathered, source, is_load, stage, at, bytes))
		add_piece(cuda, gathered, source, is_load, stage, at, bytes);
	gathered->bytes = (gathered->bytes + at % 16 + bytes + 15) / 16 * 16;
	return scout__tile_end(&gathered->tiles);
}

/* Runs of blocks of plane @p of the item's table from block @b on. Returns the block that comes next. */
static uint32_t SCOUT_ON_COPY_THREAD
gather_plane(struct scout__cuda *cuda, const struct scout__cuda_lane *lane, struct gathered *gathered,
	     const struct source *source, uint32_t p, uint32_t b)
{
	const struct scout__copy_plane *plane = &source->table->layout.planes[p];
	const int64_t *ids = source->item->block_ids;
	uint32_t n = source->table->layout.blocks_per_chunk, run;
	bool is_load = scout__cuda_is_load(cuda, lane);

	for (; b < n && gathered->n < SCOUT__CUDA_PIECES && gathered->bytes < CALL_BYTES; b += run) {
		uint64_t slot_at = source->table->planes[p].slot_at + b * plane->block_bytes;

		run = scout__copy_run(plane, ids + b, n - b);
		if (ids[b] >= 0) {
			add_piece(cuda, gathered, source, is_load, plane->base + (uint64_t)ids[b] * plane->stride,
				  slot_at, run * plane->block_bytes);
			gathered->bytes += run * plane->block_bytes;
		} else if (!is_load) {
			memset(source->item->slot + slot_at, 0, run * plane->block_bytes);
		}
	}
	return b;
}

static uint64_t SCOUT_ON_COPY_THREAD
gather_batch(struct scout__cuda *cuda, const struct scout__cuda_lane *lane, struct gathered *gathered,
	     const struct source *source, uint64_t tile)
{
	const struct scout__tile_plane *planes = source->table->planes;
	uint32_t n = source->table->layout.blocks_per_chunk;
	uint32_t p = scout__tile_plane_of(planes, 0, source->table->layout.n_planes, tile);
	/* This method moves whole blocks, so it always stands at the start of one. */
	uint32_t b = (uint32_t)((tile - planes[p].first_tile) / planes[p].tiles_per_block);

	while (planes[p].first_tile < source->limit) {
		b = gather_plane(cuda, lane, gathered, source, p, b);
		if (b < n)
			break;
		b = 0;
		p++;
	}
	return planes[p].first_tile + b * planes[p].tiles_per_block;
}

static uint64_t SCOUT_ON_COPY_THREAD
gather(struct scout__cuda *cuda, const struct scout__cuda_lane *lane, struct gathered *gathered,
       const struct source *source, const struct scout__cuda_span *span, uint64_t tile)
{
	if (lane->method == SCOUT__CUDA_BATCH)
		return gather_batch(cuda, lane, gathered, source, tile);
	return gather_staged(cuda, lane, gathered, source, span, tile);
}

/* Gather what fits from @at on, in the lane's layers. Returns the place that comes next; @span gets its bytes. */
static struct scout__cuda_place SCOUT_ON_COPY_THREAD
gather_items(struct scout__cuda *cuda, const struct scout__cuda_lane *lane, struct gathered *gathered,
	     struct scout__cuda_span *span, struct scout__cuda_place at)
{
	const struct scout__copy_batch *batch = lane->first;
	struct source source = {.found = {.bytes = 0}};

	while (at.item < batch->n) {
		source.table = scout__cuda_table_of(cuda, batch, at.item);
		source.item = &batch->items[at.item];
		source.limit = scout__cuda_layer_tile(cuda, batch, at.item, lane->end_layer);
		if (!scout__cuda_lane_find(cuda, lane, source.item->slot, &source.found))
			break;
		at.tile = gather(cuda, lane, gathered, &source, span, at.tile);
		if (at.tile < source.limit)
			break;
		span->bytes += bytes_of(cuda, lane, at.item);
		at = scout__cuda_next_item(cuda, batch, at.item + 1, lane->layer, lane->end_layer);
	}
	return at;
}

/* ---- enqueueing ---- */

/* A call for each of the pieces. Returns a CUDA error. */
static int SCOUT_ON_COPY_THREAD
copy_one_by_one(struct scout__cuda *cuda, const struct scout__cuda_lane *lane, size_t n)
{
	bool is_load = scout__cuda_is_load(cuda, lane);
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++)
		rc = scout__cuda_api_copy(is_load ? cuda->piece_to[i] : cuda->piece_host[i],
					  is_load ? cuda->piece_host[i] : cuda->piece_from[i], cuda->piece_bytes[i],
					  is_load, lane->dma);
	return rc;
}

static int SCOUT_ON_COPY_THREAD
copy_pieces(struct scout__cuda *cuda, const struct scout__cuda_lane *lane, size_t n)
{
	int refused, rc;

	if (!cuda->has_batch || n <= 1 || lane->is_pageable)
		return copy_one_by_one(cuda, lane, n);
	refused = scout__cuda_api_copy_batch(cuda->piece_to, cuda->piece_from, cuda->piece_bytes, n,
					     scout__cuda_is_load(cuda, lane), lane->dma);
	if (refused == 0)
		return 0;
	rc = copy_one_by_one(cuda, lane, n);
	if (rc)
		return rc;
	cuda->has_batch = false;
	if (cuda->log)
		scout__log(
			cuda->log, SCOUT_LOG_WARN,
			"CUDA device %d: the driver refuses a batch of %zu copies (%s): from now on each is a call of its own",
			cuda->device, n, scout__cuda_api_error_name(refused));
	return 0;
}

static int SCOUT_ON_COPY_THREAD
enqueue_staged(struct scout__cuda *cuda, const struct scout__cuda_lane *lane, struct scout__cuda_span *span,
	       const struct gathered *gathered)
{
	int rc;

	if (scout__cuda_is_load(cuda, lane)) {
		rc = copy_pieces(cuda, lane, gathered->n);
		rc = rc ? rc : scout__cuda_api_event_record(span->other, lane->dma);
		rc = rc ? rc : scout__cuda_api_stream_wait(lane->kernel, span->other);
		return rc ? rc : scout__cuda_api_launch(&cuda->kernel, &gathered->tiles, lane->kernel);
	}
	rc = scout__cuda_api_launch(&cuda->kernel, &gathered->tiles, lane->kernel);
	rc = rc ? rc : scout__cuda_api_event_record(span->other, lane->kernel);
	rc = rc ? rc : scout__cuda_api_stream_wait(lane->dma, span->other);
	return rc ? rc : copy_pieces(cuda, lane, gathered->n);
}

int
scout__cuda_enqueue(struct scout__cuda *cuda, struct scout__cuda_lane *lane, struct scout__cuda_span *span,
		    struct scout__cuda_place *ret_next)
{
	struct gathered gathered;

	scout__tile_begin(&gathered.tiles, scout__cuda_is_load(cuda, lane));
	gathered.n = 0;
	gathered.bytes = 0;
	span->bytes = 0;
	*ret_next = gather_items(cuda, lane, &gathered, span, lane->at);
	span->pieces = gathered.n ? (uint32_t)gathered.n : 1;
	if (lane->method == SCOUT__CUDA_BATCH)
		return copy_pieces(cuda, lane, gathered.n);
	return enqueue_staged(cuda, lane, span, &gathered);
}
