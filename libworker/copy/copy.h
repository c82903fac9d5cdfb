/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log.h"

/*
 * The copy engine: moves shards between the engine's scattered pages and contiguous slots of the pool. One
 * vtable, several backends: `host` copies plain memory with a thread of its own, `cuda` moves between GPU and
 * pinned memory. The worker's courier is the only caller of start and poll.
 *
 * A batch is the unit of work: some slots, each with the blocks of its chunk. After start() the batch, its items, the
 * slots and the pages belong to the engine until poll() has reported the batch or close() has returned, whatever
 * happens to the job.
 *
 * The caller has checked a batch that it starts: block ids are below n_blocks, slots have
 * scout__copy_shard_bytes() bytes. Debug builds assert what they can.
 */

struct scout__copy_plane {
	uint8_t *base;
	uint64_t stride;
	uint64_t block_bytes;
};

/*
 * The pages of one table, fixed after open. A slot holds plane after plane, each with all blocks of the chunk in token order. If
 * groups of layers have pages of their own, each group has a table, and a slot belongs to one table.
 */
struct scout__copy_layout {
	const struct scout__copy_plane *planes; /* owned by the worker, outlives the engine */
	uint32_t n_planes;
	uint32_t blocks_per_chunk;
	uint64_t n_blocks;
	uint32_t group; /* if there are several tables, sentences name the table by its group */
};

enum scout__copy_direction {
	SCOUT__COPY_LOAD = 1, /* slot -> pages */
	SCOUT__COPY_SAVE = 2  /* pages -> slot */
};

/* One slot. */
struct scout__copy_item {
	uint8_t *slot;
	const int64_t *block_ids; /* blocks_per_chunk; negative: not copied (SAVE: its bytes in the slot are zeroed) */
	uint32_t table;           /* the table of the blocks; 0 if there is only one */
};

/*
 * How far a running batch is: leading layers that are completely enqueued (their events, if any, are recorded), and
 * leading layers that are completely copied. Written by the engine.
 */
struct scout__copy_progress {
	atomic_uint enqueued; /* atomic */
	atomic_uint copied;   /* atomic; release: a thread that sees the count sees the bytes */
	atomic_uint turn;     /* atomic: counts the news; a futex */
	atomic_uint waiters;  /* atomic: threads in scout__copy_progress_sleep(), or about to be */
};

/* Any thread. @progress has news: wake the threads that sleep until there are some. */
void scout__copy_progress_wake(struct scout__copy_progress *progress);
/* Store `copied`, and wake the sleeping threads. */
void scout__copy_progress_copied(struct scout__copy_progress *progress, uint32_t layers);
/*
 * Sleep until there are news after @turn, at most @timeout_us; may return early. Before the call: set `waiters`, read
 * `turn`, then look at the news.
 */
void scout__copy_progress_sleep(struct scout__copy_progress *progress, unsigned turn, uint64_t timeout_us);

/*
 * Layers: layer l is the planes first_plane[l] to first_plane[l + 1] - 1 of all items; with n tables, of the items of table t
 * first_plane[l * n + t] to first_plane[(l + 1) * n + t] - 1, which may be none. No part of a layer is copied before all
 * earlier layers are enqueued. Without layers all planes are one layer.
 *
 * Events are the backend's (cuda: cudaEvent_t); the host backend has none. A batch without items only records its
 * events.
 *
 * A batch may start before all of its items are there, if the backend's may_grow() says so: `grows` is set, and `n` is how many are there. The
 * caller adds the others after these, counts them in `n_there`, sets `is_whole` after the last one, and calls grew().
 */
struct scout__copy_batch {
	enum scout__copy_direction direction;
	uint32_t n;
	struct scout__copy_item *items;
	uint32_t n_layers;           /* 0: one layer of all planes */
	const uint32_t *first_plane; /* n_layers + 1 for each table, from 0 to its n_planes */
	void *after;                 /* nothing is copied before this event; NULL: at once */
	void *event;                 /* LOAD: recorded after the last copy; NULL */
	void *const *layer_events;   /* n_layers, or NULL. LOAD: recorded after each layer. SAVE: awaited before each */
	const atomic_bool *stop;     /* once true, enqueue nothing more (status: SCOUT_ERR_CANCELED); NULL: never */
	struct scout__copy_progress *progress; /* NULL: not wanted */
	uint64_t cookie;                       /* the caller's */
	bool grows;           /* from start() on it and `n` are the engine's, which follows what comes next */
	atomic_uint n_there;  /* atomic: leading items that may be read */
	atomic_bool is_whole; /* atomic: there will be no more */
	bool is_pinned;       /* the engine's */
	/* Set by the engine before poll reports the batch. */
	int status;      /* 0, SCOUT_ERR_DEVICE, _CANCELED by stop; SCOUT_ERR_CLOSED only if close() left it undone */
	uint32_t n_done; /* leading items that are completely copied; later items may be half copied */
	uint64_t bytes;  /* copied between slots and pages; zeroed bytes do not count */
	/* A SAVE that failed with its device: enqueued copies may write into the slots as long as this process lives. */
	bool may_write_on;
	struct scout__copy_batch *next; /* the engine's */
};

/* Some pages of one table. */
struct scout__copy_pages {
	uint32_t table;
	const uint64_t *marks; /* one bit for each block, the lowest first; the caller's, unchanged during the call */
};

/* A segment of the pool that was mapped: @slots slots of @stride bytes from @first_slot on. */
struct scout__copy_memory {
	uint8_t *base; /* start of the mapping */
	uint64_t bytes;
	uint64_t first_slot;
	uint64_t stride;
};

struct scout__copy_config {
	struct scout__copy_layout layout;      /* of table 0 */
	const struct scout__copy_layout *more; /* of tables 1 .. n_more; borrowed for the call */
	uint32_t n_more;
	uint32_t max_batches;         /* at once */
	const char *method;           /* cuda: "auto" (NULL too), "batch" or "staged" */
	uint64_t stage_bytes;         /* cuda: staging memory on the GPU for each direction; 0: the default */
	uint32_t n_pinning;           /* cuda: workers that pin the pool on this host; 0: this one */
	const struct scout__log *log; /* may be NULL */
};

struct scout__copy_ops {
	const char *name;
	/* Whether this machine has what the backend needs; @device -1: any device will do. Returns 0 or
	   SCOUT_ERR_DEVICE with a sentence. Any thread. */
	int (*probe)(int32_t device, char *err, size_t err_len);
	/* Whether these pages lie in memory of this backend's kind. Initialises nothing, unlike probe(). Any thread. */
	bool (*claims)(const struct scout__copy_layout *layout);
	/* The PCI address of the device on which claimed pages lie, as the kernel writes it. False: not known. NULL:
	   the backend's memory is not on such a device. Any thread. */
	bool (*bus_id)(const struct scout__copy_layout *layout, char *ret_id, size_t len);
	/* Returns 0 or SCOUT_ERR_* with a sentence in @err. */
	int (*open)(const struct scout__copy_config *cfg, void **ret_engine, char *err, size_t err_len);
	/*
	 * Stops and waits, at most for the item that is being copied. Batches that poll has not reported are the
	 * caller's again when it returns: status is 0 if all was copied, else SCOUT_ERR_CLOSED, and n_done says how
	 * far. A caller that needs all batches done polls first.
	 */
	void (*close)(void *engine);
	/*
	 * A segment of the pool was mapped or is about to be unmapped (no batch uses it). add_memory() may
	 * work on in the background: until it has ended, batches that need the memory are refused as busy.
	 * remove_memory() waits until the engine has let go of the memory; any thread.
	 */
	int (*add_memory)(void *engine, const struct scout__copy_memory *memory);
	void (*remove_memory)(void *engine, void *base);
	/*
	 * Never blocks. Returns 0 or SCOUT_ERR_BUSY (max_batches, or memory that is not ready; fd() says when
	 * to try again). The batch stays the engine's until polled.
	 */
	int (*start)(void *engine, struct scout__copy_batch *batch);
	/* Whether a batch that starts now may grow. NULL: batches do not. */
	bool (*may_grow)(void *engine);
	/* One that grows has new items, or is whole. */
	void (*grew)(void *engine);
	/* The next batch that has ended, or NULL. */
	struct scout__copy_batch *(*poll)(void *engine);
	/*
	 * Readable while poll() has something. A poll() that returns NULL makes it unreadable. Rarely it is readable
	 * without a batch; then the next poll() clears it. Owned by the engine.
	 */
	int (*fd)(void *engine);
	/*
	 * When this returns, batches whose stop is true enqueue nothing more, and @stream waits for all on @pages that is
	 * enqueued by then (NULL: on any). Any thread; waits for no copy, and for the engine at most while it enqueues one part
	 * of a batch. Returns 0, or SCOUT_ERR_DEVICE: the stream cannot wait (because it is being captured, say), so the caller
	 * must wait. NULL: the backend has no streams.
	 */
	int (*fence)(void *engine, void *stream, const struct scout__copy_pages *pages);
};

extern const struct scout__copy_ops scout__copy_host;

/* Bytes of one shard in a slot; 0 if they do not fit 64 bits. */
uint64_t scout__copy_shard_bytes(const struct scout__copy_layout *layout);

/* The layout of table @t of @cfg. */
static inline const struct scout__copy_layout *
scout__copy_layout_of(const struct scout__copy_config *cfg, uint32_t t)
{
	return t == 0 ? &cfg->layout : &cfg->more[t - 1];
}

/* How a sentence about a layout begins: "" if it is the only table, else "the table of group N: ". */
#define SCOUT__COPY_NAME_BYTES 40
void scout__copy_name_table(const struct scout__copy_layout *layout, uint32_t n_tables,
			    char name[SCOUT__COPY_NAME_BYTES]);

/* Check whether a layout can be copied: 0, or SCOUT_ERR_INVALID with a sentence. Nothing else checks planes. */
int scout__copy_check_layout(const struct scout__copy_layout *layout, char *err, size_t err_len);

/* Layers of a batch, one at least. */
static inline uint32_t
scout__copy_layers(const struct scout__copy_batch *batch)
{
	return batch->n_layers ? batch->n_layers : 1;
}

/* The first plane of layer @l (n_planes after the last layer) in the items of table @t, of @n_tables; its pages are @layout. */
static inline uint32_t
scout__copy_table_plane(const struct scout__copy_layout *layout, const struct scout__copy_batch *batch,
			uint32_t n_tables, uint32_t t, uint32_t l)
{
	if (batch->n_layers)
		return batch->first_plane[(uint64_t)l * n_tables + t];
	return l ? layout->n_planes : 0;
}

/* How many blocks from ids[0] on move in one copy: neighbours in a plane without gaps, or a row of null blocks. */
static inline uint32_t
scout__copy_run(const struct scout__copy_plane *plane, const int64_t *ids, uint32_t n)
{
	uint32_t run = 1;

	if (ids[0] < 0) {
		while (run < n && ids[run] < 0)
			run++;
	} else if (plane->stride == plane->block_bytes) {
		while (run < n && ids[run] == ids[0] + run)
			run++;
	}
	return run;
}

/*
 * Test aid of the host backend: what happens to batches that start from now on. Process-wide, for tests only; NULL
 * switches it off. Set it while no batch is in flight: copy threads read it as they run, and may stay in the gate a
 * moment longer.
 */
struct scout__copy_faults {
	uint64_t fail_item; /* the n-th item from now on fails uncopied (1 = the next), 0 = none */
	/*
	 * Hold back ended batches until the copy thread has nothing to do or meets a shut gate, then report them in
	 * reverse order of their start. (Start several at a shut gate and open it: the last one is reported first.)
	 */
	bool reverse;
	/* While true, batches wait before their first byte and between items. On the copy thread, no locks held. */
	bool (*gate)(void *user);
	void *user;
};
void scout__copy_host_faults(const struct scout__copy_faults *faults);
