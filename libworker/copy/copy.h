/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_COPY_COPY_H
#define SCOUT_COPY_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log.h"

/*
 * The copy engine: moves shards between the engine's scattered pages and contiguous slots of the pool. One vtable,
 * several backends; `host` copies plain memory with a thread of its own. The worker's courier is the only caller of
 * start and poll.
 *
 * A batch is the unit of work: some slots, each with the blocks of its chunk. After start() the batch, its items, the
 * slots and the pages belong to the engine until poll() has reported the batch or close() has returned, whatever
 * happens to the job.
 *
 * Whoever starts a batch has checked it: block ids are below n_blocks, slots have scout__copy_shard_bytes() bytes.
 * Debug builds assert what they can.
 */

struct scout__copy_plane {
	uint8_t *base;
	uint64_t stride;
	uint64_t block_bytes;
};

/* The pages, fixed after open. A slot holds plane after plane, in each all blocks of the chunk in token order. */
struct scout__copy_layout {
	const struct scout__copy_plane *planes; /* owned by the worker, outlives the engine */
	uint32_t n_planes;
	uint32_t blocks_per_chunk;
	uint64_t n_blocks;
};

enum scout__copy_direction {
	SCOUT__COPY_LOAD = 1, /* slot -> pages */
	SCOUT__COPY_SAVE = 2  /* pages -> slot */
};

/* One slot. */
struct scout__copy_item {
	uint8_t *slot;
	const int64_t *block_ids; /* blocks_per_chunk; negative: not copied (SAVE: its bytes in the slot are zeroed) */
};

struct scout__copy_batch {
	enum scout__copy_direction direction;
	uint32_t n;
	struct scout__copy_item *items;
	void *event;     /* SAVE: copy only after this; NULL for the host backend */
	uint64_t cookie; /* the caller's */
	/* Set by the engine before poll reports the batch. */
	int status;      /* 0 or SCOUT_ERR_DEVICE; SCOUT_ERR_CLOSED only where close() left it undone */
	uint32_t n_done; /* leading items that are completely copied; the one behind them may be half copied */
	uint64_t bytes;  /* copied between slots and pages; zeroed bytes do not count */
};

struct scout__copy_config {
	struct scout__copy_layout layout;
	uint32_t max_batches; /* at once */
	int32_t device;
	const struct scout__log *log;
};

struct scout__copy_ops {
	const char *name;
	/* Returns 0 or SCOUT_ERR_* with a sentence in @err. */
	int (*open)(const struct scout__copy_config *cfg, void **ret_engine, char *err, size_t err_len);
	/*
	 * Stops and waits, at most for the item that is being copied. Batches that poll has not reported are the
	 * caller's again when it returns: status is 0 where all was copied, else SCOUT_ERR_CLOSED, and n_done says
	 * how far. Who wants them done polls them first.
	 */
	void (*close)(void *engine);
	/* A segment of the pool was mapped or is about to be unmapped (no batch uses it). */
	int (*add_memory)(void *engine, void *base, uint64_t bytes);
	void (*remove_memory)(void *engine, void *base, uint64_t bytes);
	/* Never blocks. Returns 0 or SCOUT_ERR_BUSY (max_batches). The batch stays the engine's until polled. */
	int (*start)(void *engine, struct scout__copy_batch *batch);
	/* The next batch that has ended, or NULL. */
	struct scout__copy_batch *(*poll)(void *engine);
	/*
	 * Readable while poll() has something. It goes quiet by poll() returning NULL; rarely it is readable for
	 * nothing, and then the next poll() clears it. Owned by the engine.
	 */
	int (*fd)(void *engine);
};

extern const struct scout__copy_ops scout__copy_host;

/* By name; NULL when this build does not have it. */
const struct scout__copy_ops *scout__copy_find(const char *name);

/* Bytes of one shard in a slot; 0 if they do not fit 64 bits. */
uint64_t scout__copy_shard_bytes(const struct scout__copy_layout *layout);

/*
 * Test aid of the host backend: what happens to the batches that start from now on. Process-wide, for tests only;
 * NULL switches it off. Set it while no batch is in flight: copy threads read it as they go, and may be in the gate a
 * moment longer.
 */
struct scout__copy_faults {
	uint64_t fail_item; /* the n-th item from now on fails uncopied (1 = the next), 0 = none */
	/*
	 * Report in reverse order of their start what ends before the copy thread has nothing more to do or meets a
	 * shut gate. (Start several behind a shut gate and open it: they are reported last one first.)
	 */
	bool reverse;
	/* While true, batches wait before their first byte and between items. On the copy thread, no locks held. */
	bool (*gate)(void *user);
	void *user;
};
void scout__copy_host_faults(const struct scout__copy_faults *faults);

#endif
