/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda_engine.h"

#include <string.h>

#include "log.h"

/*
 * DESIGN
 *
 * Purpose: the three ways to move a part of a slot.
 *
 *   staged   the slot's bytes in one DMA to (or from) a staging buffer on the GPU, and a kernel that scatters (or gathers)
 *            them at the speed of the GPU's own memory. Two streams: the DMA of the next span runs while the kernel does.
 *   batch    one DMA for each piece, all in one call (cudaMemcpyBatchAsync), or one call each if the driver cannot or has
 *            refused. No kernel, so it takes no multiprocessor from the model; but small pieces cost more than their bytes.
 *   direct   the same kernel as staged, reading or writing the pinned slot over the link itself.
 *
 * `auto` decides by the mean size of the pieces of a batch, neighbouring pages merged, once per batch: then all of a
 * batch runs in one stream, in order, and one event at the end stands for all.
 *
 * Null blocks of a save become zeroes in the slot: the kernel writes them, or this CPU if no kernel runs.
 *
 * Addresses. The kernel and the batch call get the GPU's address of a slot, single copies the host's. The two differ
 * if the device attribute CanUseHostPointerForRegisteredMem is 0; then a batch of host addresses is refused, or
 * faults.
 *
 * If a batch call is refused, its copies are enqueued one by one. If that works, the call was the fault, and it is
 * not tried again. Some of its copies may have been enqueued: they write the same bytes to the same places.
 */

/* Groups of 16 lanes that share a span's tiles: 16 blocks of 512 threads at most. */
#define GROUPS 512u
/* One call of `batch` or `direct` moves at most so much, so that a stop is seen soon. */
#define CALL_BYTES (UINT64_C(16) << 20)

/*
 * From which mean piece size on `auto` takes which method.
 *
 * Not measured on a GPU yet. The steps follow public numbers: on an H100 with PCIe Gen5, batched DMA moves 4 to 7
 * GB/s in pieces of 4 to 16 KiB and 52 in pieces of 64 KiB; one piece moves at about 55. `kvscout-copy --backend cuda
 * --sweep` prints the table anew.
 */
struct copy_step {
	uint64_t from_bytes;
	enum scout__cuda_method method;
};

static const struct copy_step load_steps[] = {{0, SCOUT__CUDA_STAGED}, {128 << 10, SCOUT__CUDA_BATCH}};
static const struct copy_step save_steps[] = {{0, SCOUT__CUDA_STAGED}, {128 << 10, SCOUT__CUDA_BATCH}};
/* One call for each piece takes some 2 us of this CPU: a piece of 512 KiB takes the link far longer than that. */
static const struct copy_step loop_steps[] = {{0, SCOUT__CUDA_STAGED}, {512 << 10, SCOUT__CUDA_BATCH}};

static const char *const names[] = {"auto", "batch", "staged", "direct"};

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
scout__cuda_method_choose(enum scout__copy_direction direction, uint64_t bytes, uint64_t n_pieces, bool has_batch)
{
	const struct copy_step *steps = direction == SCOUT__COPY_LOAD ? load_steps : save_steps;
	size_t n = direction == SCOUT__COPY_LOAD ? sizeof(load_steps) / sizeof(load_steps[0])
						 : sizeof(save_steps) / sizeof(save_steps[0]);
	uint64_t mean = n_pieces ? bytes / n_pieces : 0;

	if (!has_batch) {
		steps = loop_steps;
		n = sizeof(loop_steps) / sizeof(loop_steps[0]);
	}
	while (n > 1 && steps[n - 1].from_bytes > mean)
		n--;
	return steps[n - 1].method;
}

enum scout__cuda_method
scout__cuda_method_of(const struct scout__cuda *cuda, const struct scout__copy_batch *batch)
{
	uint64_t pieces = 0, bytes = 0;

	if (cuda->method != SCOUT__CUDA_AUTO)
		return cuda->method;
	for (uint32_t i = 0; i < batch->n; i++) {
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
	return scout__cuda_method_choose(batch->direction, bytes, pieces, cuda->has_batch);
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

/* ---- staged ---- */

static int SCOUT_ON_COPY_THREAD
enqueue_staged(struct scout__cuda *cuda, struct scout__cuda_lane *lane, struct scout__cuda_span *span, uint64_t limit,
	       uint64_t *ret_next)
{
	const struct scout__cuda_table *table = scout__cuda_table_of(cuda, lane->first, lane->item);
	const struct scout__copy_item *item = &lane->first->items[lane->item];
	const struct scout__cuda_api *api = cuda->api;
	struct scout__tile_span tiles;
	uint64_t at, bytes;
	uint8_t *stage;
	int rc;

	bytes = scout__tile_cut(table->planes, table->layout.n_planes, table->layout.blocks_per_chunk, item->block_ids,
				lane->tile, limit, cuda->stage_bytes, &tiles, &at);
	/* Bytes keep their offset modulo 16, so that data aligned in the slot is aligned in the buffer. */
	stage = span->stage + at % 16;
	tiles.planes = table->planes_on_gpu;
	tiles.slot = (uintptr_t)stage - at;
	tiles.to_pages = scout__cuda_is_load(cuda, lane);
	*ret_next = tiles.end_tile;
	if (tiles.to_pages) {
		rc = api->copy(stage, item->slot + at, bytes, true, lane->dma);
		rc = rc ? rc : api->event_record(span->other, lane->dma);
		rc = rc ? rc : api->stream_wait(lane->kernel, span->other);
		return rc ? rc : api->launch(&cuda->kernel, &tiles, GROUPS, lane->kernel);
	}
	rc = api->launch(&cuda->kernel, &tiles, GROUPS, lane->kernel);
	rc = rc ? rc : api->event_record(span->other, lane->kernel);
	rc = rc ? rc : api->stream_wait(lane->dma, span->other);
	return rc ? rc : api->copy(item->slot + at, stage, bytes, false, lane->dma);
}

/* ---- direct ---- */

static int SCOUT_ON_COPY_THREAD
enqueue_direct(struct scout__cuda *cuda, struct scout__cuda_lane *lane, uint64_t device_slot, uint64_t limit,
	       uint64_t *ret_next)
{
	const struct scout__cuda_table *table = scout__cuda_table_of(cuda, lane->first, lane->item);
	const struct scout__copy_item *item = &lane->first->items[lane->item];
	struct scout__tile_span tiles;
	uint64_t at;

	(void)scout__tile_cut(table->planes, table->layout.n_planes, table->layout.blocks_per_chunk, item->block_ids,
			      lane->tile, limit, CALL_BYTES, &tiles, &at);
	tiles.planes = table->planes_on_gpu;
	tiles.slot = device_slot;
	tiles.to_pages = scout__cuda_is_load(cuda, lane);
	*ret_next = tiles.end_tile;
	return cuda->api->launch(&cuda->kernel, &tiles, GROUPS, lane->kernel);
}

/* ---- batch ---- */

/* Pieces that are gathered for one call; slots by the GPU's address of them. */
struct pieces {
	size_t n;
	uint64_t bytes;
	uint64_t device_slot;
};

static void SCOUT_ON_COPY_THREAD
add_piece(struct scout__cuda *cuda, struct pieces *pieces, bool is_load, void *page, uint64_t slot_at, uint64_t bytes)
{
	/* No memory of this CPU's, perhaps. NOLINTNEXTLINE(performance-no-int-to-ptr) */
	void *in_slot = (void *)(uintptr_t)(pieces->device_slot + slot_at);

	cuda->piece_to[pieces->n] = is_load ? page : in_slot;
	cuda->piece_from[pieces->n] = is_load ? in_slot : page;
	cuda->piece_bytes[pieces->n] = bytes;
	pieces->n++;
	pieces->bytes += bytes;
}

/* Gather runs of blocks of plane @p of the item's table from block @b on. Returns the block that comes next. */
static uint32_t SCOUT_ON_COPY_THREAD
gather_plane(struct scout__cuda *cuda, const struct scout__cuda_lane *lane, uint32_t p, uint32_t b,
	     struct pieces *pieces)
{
	const struct scout__cuda_table *table = scout__cuda_table_of(cuda, lane->first, lane->item);
	const struct scout__copy_item *item = &lane->first->items[lane->item];
	const struct scout__copy_plane *plane = &table->layout.planes[p];
	uint32_t n = table->layout.blocks_per_chunk, run;
	bool is_load = scout__cuda_is_load(cuda, lane);

	for (; b < n && pieces->n < SCOUT__CUDA_PIECES && pieces->bytes < CALL_BYTES; b += run) {
		uint64_t slot_at = table->planes[p].slot_at + b * plane->block_bytes;
		int64_t id = item->block_ids[b];

		run = scout__copy_run(plane, item->block_ids + b, n - b);
		if (id >= 0)
			add_piece(cuda, pieces, is_load, plane->base + (uint64_t)id * plane->stride, slot_at,
				  run * plane->block_bytes);
		else if (!is_load)
			memset(item->slot + slot_at, 0, run * plane->block_bytes);
	}
	return b;
}

/* Make one call for each piece. Returns a CUDA error. */
static int SCOUT_ON_COPY_THREAD
copy_one_by_one(struct scout__cuda *cuda, const struct scout__cuda_lane *lane, const struct pieces *pieces)
{
	uint8_t *slot = lane->first->items[lane->item].slot;
	bool is_load = scout__cuda_is_load(cuda, lane);
	int rc = 0;

	for (size_t i = 0; i < pieces->n && rc == 0; i++) {
		void *to = cuda->piece_to[i], *from = cuda->piece_from[i];

		if (is_load)
			from = slot + ((uintptr_t)from - pieces->device_slot);
		else
			to = slot + ((uintptr_t)to - pieces->device_slot);
		rc = cuda->api->copy(to, from, cuda->piece_bytes[i], is_load, lane->dma);
	}
	return rc;
}

static int SCOUT_ON_COPY_THREAD
copy_pieces(struct scout__cuda *cuda, const struct scout__cuda_lane *lane, const struct pieces *pieces)
{
	int refused, rc;

	if (!cuda->has_batch || pieces->n <= 1)
		return copy_one_by_one(cuda, lane, pieces);
	refused = cuda->api->copy_batch(cuda->piece_to, cuda->piece_from, cuda->piece_bytes, pieces->n,
					scout__cuda_is_load(cuda, lane), lane->dma);
	if (refused == 0)
		return 0;
	rc = copy_one_by_one(cuda, lane, pieces);
	if (rc)
		return rc;
	cuda->has_batch = false;
	if (cuda->log)
		scout__log(
			cuda->log, SCOUT_LOG_WARN,
			"CUDA device %d: the driver refuses a batch of %zu copies (%s): from now on each is a call of its own",
			cuda->device, pieces->n, cuda->api->error_name(refused));
	return 0;
}

static int SCOUT_ON_COPY_THREAD
enqueue_batch(struct scout__cuda *cuda, struct scout__cuda_lane *lane, struct scout__cuda_span *span,
	      uint64_t device_slot, uint64_t limit, uint64_t *ret_next)
{
	const struct scout__cuda_table *table = scout__cuda_table_of(cuda, lane->first, lane->item);
	const struct scout__tile_plane *planes = table->planes;
	struct pieces pieces = {.device_slot = device_slot};
	uint32_t n = table->layout.blocks_per_chunk;
	uint32_t p = scout__tile_plane_of(planes, 0, table->layout.n_planes, lane->tile);
	/* This method moves whole blocks, so it always stands at the start of one. */
	uint32_t b = (uint32_t)((lane->tile - planes[p].first_tile) / planes[p].tiles_per_block);

	while (planes[p].first_tile < limit) {
		b = gather_plane(cuda, lane, p, b, &pieces);
		if (b < n)
			break;
		b = 0;
		p++;
	}
	*ret_next = planes[p].first_tile + b * planes[p].tiles_per_block;
	span->pieces = (uint32_t)pieces.n;
	return copy_pieces(cuda, lane, &pieces);
}

int
scout__cuda_enqueue(struct scout__cuda *cuda, struct scout__cuda_lane *lane, struct scout__cuda_span *span,
		    uint64_t device_slot, uint64_t limit, uint64_t *ret_next)
{
	span->pieces = 1;
	switch (lane->method) {
	case SCOUT__CUDA_BATCH:
		return enqueue_batch(cuda, lane, span, device_slot, limit, ret_next);
	case SCOUT__CUDA_DIRECT:
		return enqueue_direct(cuda, lane, device_slot, limit, ret_next);
	default:
		return enqueue_staged(cuda, lane, span, limit, ret_next);
	}
}
