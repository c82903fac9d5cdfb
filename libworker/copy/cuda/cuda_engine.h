/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "copy.h"
#include "copy_queue.h"
#include "cuda_api.h"
#include "cuda_memory.h"
#include "tile.h"

/*
 * The insides of the CUDA backend, shared by cuda.c (life and thread), cuda_lane.c (what is in flight) and
 * cuda_method.c (how bytes move). It knows CUDA only through a table of functions: see cuda_api.h.
 */

/*
 * Lanes: to pages, to slots; and once more for batches whose event was late when they came, so that these hold up no other. And copies
 * in flight in each.
 */
#define SCOUT__CUDA_LANES 4u
#define SCOUT__CUDA_SPANS 8u
/*
 * Copies of one call of method `batch`, and how many of them may be outstanding in one direction. A stream's
 * queue has room for about a thousand, then a call waits for the GPU; and drivers of the 580 series hang, or
 * worse, with tens of thousands.
 */
#define SCOUT__CUDA_PIECES 128u
#define SCOUT__CUDA_OUTSTANDING 512u
/*
 * A model's large kernels let those of the copies in when one of them ends; what lies in the stage then is what moves until the next one
 * does. Beside a bf16 product of 1.4 ms a load reaches 11 GB/s with 32 MiB, 20 with 64, 25 with 128 and 30 with 256 (grid 16 x 512), and 40
 * with 128 MiB and this grid (an H200; docs/gpu.md).
 */
#define SCOUT__CUDA_STAGE_BYTES (UINT64_C(128) << 20) /* default, for each direction */
#define SCOUT__CUDA_STAGE_MIN (UINT64_C(32) << 10)    /* of one span */

enum scout__cuda_method {
	SCOUT__CUDA_AUTO = 0,
	SCOUT__CUDA_BATCH,
	SCOUT__CUDA_STAGED
};

/*
 * Parts of some slots that were enqueued. `done` is recorded behind its last step; `other` in the other stream where the
 * steps are in two.
 */
struct scout__cuda_span {
	struct scout__copy_batch *batch;
	void *done;     /* const after open: event */
	void *other;    /* const after open: event */
	uint8_t *stage; /* GPU memory, of the lane's stages */
	bool await_other;
	bool is_failed; /* it counts for nothing but its memory */
	bool ends_layer, ends_batch;
	uint32_t end_layer;            /* behind the last of its layers */
	uint32_t first_item, end_item; /* of the batch, whose pages it may touch */
	uint32_t n_done;               /* leading items that are complete when it is over */
	uint32_t pieces;               /* copies that it was enqueued as */
	uint64_t bytes;                /* of the items in these layers that end here */
};

/* How far a batch is enqueued in the layers that go together. */
struct scout__cuda_place {
	uint32_t item; /* batch->n: no item that is left has planes in them */
	uint64_t tile; /* of the item */
};

/* The pages of one table. All of it const after open. */
struct scout__cuda_table {
	struct scout__copy_layout layout;
	struct scout__tile_plane *planes;        /* n_planes + 1 */
	struct scout__tile_plane *planes_on_gpu; /* the same, where the kernel reads them */
	uint64_t block_bytes;                    /* of one block in all planes */
	uint32_t n_dense;                        /* planes without gaps between blocks */
};

/* One lane. Copy thread; what fence() looks at is G:mu of the engine as well. */
struct scout__cuda_lane {
	void *dma;       /* const after open: stream of the copies */
	void *kernel;    /* const after open: stream of the kernels */
	uint8_t *stages; /* one allocation; NULL in a late lane before its first staged batch */
	struct scout__cuda_span spans[SCOUT__CUDA_SPANS]; /* G:mu; a ring, oldest first */
	uint32_t head, n;                                 /* G:mu */
	uint32_t pieces;                                  /* outstanding: of all spans */
	struct scout__copy_batch *first, *last;           /* not completely enqueued */
	/* Where `first` stands. */
	bool begun;
	bool layer_begun;               /* what the layers wait for is enqueued */
	const void *after, *last_layer; /* that the last batch which has begun waits for */
	enum scout__cuda_method method;
	bool is_pageable;          /* of the first batch: some of its slots are not pinned */
	uint32_t layer, end_layer; /* these layers go together */
	struct scout__cuda_place at;
};

struct scout__cuda {
	struct scout__cuda_table *tables; /* const after open: n_tables */
	uint32_t n_tables;                /* const after open */
	const struct scout__log *log;     /* const after open; may be NULL */
	int device;                       /* const after open */
	enum scout__cuda_method method;   /* const after open */
	struct scout__cuda_kernel kernel; /* const after open; without a module: the driver cannot have it */
	bool has_batch;                   /* copy thread: one call takes many copies; false once it was refused */
	bool said_no_stage;               /* copy thread: the log says that there is no memory for late batches */
	uint64_t stage_bytes;             /* const after open: of one span */
	struct scout__tile_plane *planes; /* const after open: those of all tables, n_planes */
	struct scout__tile_plane *planes_on_gpu; /* const after open: likewise */
	size_t n_planes;                         /* const after open: with one for the end of each table */
	void **piece_to, **piece_from;           /* copy thread: SCOUT__CUDA_PIECES */
	uint8_t **piece_host;                    /* copy thread: the end in the slot, by the host's address */
	size_t *piece_bytes;                     /* copy thread */
	struct scout__cuda_memory memory;
	struct scout__copy_queue queue;
	pthread_t thread; /* const after open */

	pthread_mutex_t mu;
	pthread_cond_t cond; /* open waits for the thread, the thread for fences */
	atomic_uint fences;  /* atomic: that want the lock; the thread lets them have it between two spans */
	int opened;          /* G:mu: SCOUT_NOT_YET, 0 or SCOUT_ERR_* */
	char text[300];      /* G:mu: of an error in opened */
	bool failed;         /* G:mu: the device; for ever */
	struct scout__cuda_lane lanes[SCOUT__CUDA_LANES]; /* LOAD, SAVE, late LOAD, late SAVE */
};

/* ---- cuda.c: the vtable, on any table of functions ---- */

/* Whether the driver is there and new enough; initialises nothing. */
int scout__cuda_check_driver(char *err, size_t err_len);
int scout__cuda_probe(int32_t device, char *err, size_t err_len);
bool scout__cuda_claims(const struct scout__copy_layout *layout);
bool scout__cuda_bus_id(const struct scout__copy_layout *layout, char *ret_id, size_t len);
int scout__cuda_open(const struct scout__copy_config *cfg, void **ret_engine, char *err, size_t err_len);
void scout__cuda_close(void *engine);
int scout__cuda_add_memory(void *engine, const struct scout__copy_memory *memory);
void scout__cuda_remove_memory(void *engine, void *base);
int scout__cuda_start(void *engine, struct scout__copy_batch *batch) SCOUT_ON_COURIER;
bool scout__cuda_may_grow(void *engine) SCOUT_ON_COURIER;
void scout__cuda_grew(void *engine) SCOUT_ON_COURIER;
struct scout__copy_batch *scout__cuda_poll(void *engine) SCOUT_ON_COURIER;
int scout__cuda_fd(void *engine);
int scout__cuda_fence(void *engine, void *stream, const struct scout__copy_pages *pages);

/* ---- cuda_lane.c ---- */

/* How many bytes of staging memory a lane takes; and take them, which returns a CUDA error. */
uint64_t scout__cuda_stages_bytes(const struct scout__cuda *cuda);
int scout__cuda_take_stages(struct scout__cuda *cuda, struct scout__cuda_lane *lane);

static inline bool
scout__cuda_is_load(const struct scout__cuda *cuda, const struct scout__cuda_lane *lane)
{
	return (lane - cuda->lanes) % 2 == 0;
}

/* The table of item @item of a batch. */
static inline const struct scout__cuda_table *
scout__cuda_table_of(const struct scout__cuda *cuda, const struct scout__copy_batch *batch, uint32_t item)
{
	SCOUT_DASSERT(batch->items[item].table < cuda->n_tables);
	return &cuda->tables[batch->items[item].table];
}

/* A batch has come: append it to the others of its direction that are late, or not. */
void scout__cuda_lane_add(struct scout__cuda *cuda, struct scout__copy_batch *batch) SCOUT_ON_COPY_THREAD;
/*
 * Look at the late batches of a direction that have not begun: where the event has come, the batch moves to the lane of those that need not
 * wait; where the batch was stopped, it ends. True: something happened.
 */
bool scout__cuda_lane_let_pass(struct scout__cuda *cuda, enum scout__copy_direction direction) SCOUT_ON_COPY_THREAD;
/* Remove spans that are over, enqueue what fits. True: something happened. The lock is held, and dropped between two spans. */
bool scout__cuda_lane_step(struct scout__cuda *cuda, struct scout__cuda_lane *lane) SCOUT_ON_COPY_THREAD;
/* The engine closes: wait for what is enqueued; the rest ends as closed. The lock is held. */
void scout__cuda_lane_end(struct scout__cuda *cuda, struct scout__cuda_lane *lane) SCOUT_ON_COPY_THREAD;

/* ---- cuda_method.c ---- */

/* The first tile of item @item in layer @layer. */
uint64_t scout__cuda_layer_tile(const struct scout__cuda *cuda, const struct scout__copy_batch *batch, uint32_t item,
				uint32_t layer);
/* Where the first item from @item on that has planes in layers @layer to @end_layer - 1 begins. */
struct scout__cuda_place scout__cuda_next_item(const struct scout__cuda *cuda, const struct scout__copy_batch *batch,
					       uint32_t item, uint32_t layer, uint32_t end_layer);
/* Whether all items have together at most @most bytes in the layers. */
bool scout__cuda_is_small(const struct scout__cuda *cuda, const struct scout__copy_batch *batch, uint32_t layer,
			  uint32_t end_layer, uint64_t most);
/* Whether the slot is in memory that the first batch may be copied from or to; *found: as in scout__cuda_memory_find(). */
bool scout__cuda_lane_find(struct scout__cuda *cuda, const struct scout__cuda_lane *lane, const void *slot,
			   struct scout__cuda_found *found) SCOUT_ON_COPY_THREAD;
/* By name; false if there is none of it. */
bool scout__cuda_method_find(const char *name, enum scout__cuda_method *ret_method);
const char *scout__cuda_method_name(enum scout__cuda_method method);
/* What `auto` takes for so many pieces of together so many bytes. */
enum scout__cuda_method scout__cuda_method_choose(uint64_t bytes, uint64_t n_pieces, bool has_batch);
/* ... for a batch: neighbouring pages are one piece. */
enum scout__cuda_method scout__cuda_method_of(const struct scout__cuda *cuda, const struct scout__copy_batch *batch);

/* The stream in which a method touches pages, and that in which it is done. */
void *scout__cuda_page_stream(const struct scout__cuda_lane *lane);
void *scout__cuda_done_stream(const struct scout__cuda *cuda, const struct scout__cuda_lane *lane);

/*
 * Enqueue @span, which is what comes next of the lane's layers: of as many items as fit. The slot of the first one is pinned;
 * one whose slot is not ends the span before it. Returns a CUDA error, or 0 with the place that comes next, and the span's
 * bytes and pieces. After an error some of its steps may be enqueued.
 */
int scout__cuda_enqueue(struct scout__cuda *cuda, struct scout__cuda_lane *lane, struct scout__cuda_span *span,
			struct scout__cuda_place *ret_next) SCOUT_ON_COPY_THREAD;
