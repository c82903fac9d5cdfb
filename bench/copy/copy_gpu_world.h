/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "copy.h"
#include "copy_gpu.h"
#include "copy_plan.h"

/*
 * The memory of a measurement on a GPU, and one copy in it: see the DESIGN comment of copy_gpu_world.c. In the
 * measuring process; its main thread only. What fails ends the process by copy_die(), and the process that reports
 * says which point it was.
 */

#define COPY_BLOCKS_PER_CHUNK 16u
#define COPY_MAX_PLANES 128u

struct copy_group {
	uint64_t piece, slot_bytes, n_items;
	uint64_t first_word; /* of item 0, among the words of all groups */
	uint64_t pool_at;    /* where its pages begin in the pool */
	struct scout__copy_layout layout;
	struct scout__copy_plane planes[COPY_MAX_PLANES];
	int64_t *ids; /* n_items * COPY_BLOCKS_PER_CHUNK */
	void *ids_on_gpu;
	struct copy_pages pages;
};

/* The slots of one way and one group. */
struct copy_region {
	uint8_t *base; /* NULL: none */
	uint64_t bytes, want;
	enum copy_slots kind;
	int64_t *slots; /* the slot of each item */
};

struct copy_world {
	const struct copy_options *opt;
	const struct copy_gpu *gpu;
	struct copy_gpu_info info;
	uint64_t total, pool_bytes;
	uint8_t *pool, *flat, *spoiled; /* GPU */
	uint64_t *wrong;                /* GPU */
	uint8_t *host_flat;             /* pinned */
	uint64_t *host_wrong;           /* pinned; two words: the count, and zero */
	void *up, *down, *work;         /* streams */
	void *mark_up, *mark_down;      /* events */
	void *layer_events[2][COPY_MAX_PLANES];

	/* Of the point that is set up. */
	struct copy_point point;
	struct copy_group groups[COPY_MAX_GROUPS];
	uint32_t n_groups;
	struct copy_region regions[COPY_N_WAYS][COPY_MAX_GROUPS];
	void *engines[COPY_N_WAYS];
	struct scout__copy_item *items[2]; /* of all groups: of the batch up and of that down */
	uint32_t n_layers;                 /* as a batch has them, of all groups */
	uint32_t first_plane[(COPY_MAX_PLANES + 1) * COPY_MAX_GROUPS];
};

void copy_world_open(struct copy_world *w, const struct copy_options *opt, const struct copy_gpu *gpu);
void copy_world_close(struct copy_world *w);

/* Layout, engines and slots for @point. False: the machine lacks something; @text says what. */
bool copy_world_set_up(struct copy_world *w, const struct copy_point *point, char *text, size_t len);
void copy_world_clear(struct copy_world *w);

/* copy_gpu_verify.c: sources are right and destinations wrong when this returns. */
void copy_world_prepare(struct copy_world *w, unsigned int way, enum copy_course course);
/* Copy; returns the bytes. */
uint64_t copy_world_copy(struct copy_world *w, unsigned int way, enum copy_course course, bool layered);
/* The wrong bytes at the destinations of the last copy; by the GPU, and by this CPU as well if @by_cpu. */
uint64_t copy_world_verify(struct copy_world *w, unsigned int way, enum copy_course course, bool by_cpu);
/* Bytes that a copy moves. */
uint64_t copy_world_bytes(const struct copy_world *w, enum copy_course course);

/* For what is enqueued in a stream; @mark is an event for it. */
void copy_world_wait(void *stream, void *mark);
void copy_check_cuda(int rc, const char *what);
#define CHECK(call) copy_check_cuda((call), #call)

/* Of a group's items, the first @up go to the GPU and the last @down come from it. */
struct copy_share {
	uint64_t up, down;
};
struct copy_share copy_world_share(const struct copy_world *w, uint32_t g, enum copy_course course);
/* Bytes that go up, and that come down, in all groups. */
struct copy_share copy_world_share_bytes(const struct copy_world *w, enum copy_course course);
uint8_t *copy_world_slot(const struct copy_world *w, unsigned int way, uint32_t g, uint64_t item);
