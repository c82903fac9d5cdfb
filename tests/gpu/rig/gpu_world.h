/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

#include <kvscout/error.h>

#include "clock.h"
#include "copy.h"
#include "copy_backends.h"
#include "gpu_driver.h"
#include "gpu_test.h"

/*
 * Pages in a GPU's memory, slots in this process's, the CUDA backend between them, and a model of what both should hold. Nothing is
 * given back: each case has a process of its own.
 */

#define MAX_PLANES 122
#define MAX_ITEMS 6
#define WAIT_MS 60000

extern const struct scout__copy_ops *const ops;
extern const char *const methods[];
extern const struct scout__log engine_log;

struct world {
	uint64_t seed;
	struct scout__copy_plane planes[MAX_PLANES];
	struct scout__copy_layout layout;
	uint8_t *host[MAX_PLANES]; /* what the planes should hold */
	uint8_t *slots, *model;    /* slots, and what they should hold */
	uint64_t shard, stride, bytes;
	uint32_t n_items;
	void *engine;
	void *(*alloc)(uint64_t bytes); /* GPU memory for a plane; NULL: plain_alloc */
	int slots_fd;                   /* of a memfd for the slots; 0: anonymous memory */
};

/* Blocks of each plane: those of plane p have bytes[p % 3], and as much more is between them. */
struct shape {
	uint32_t n_planes, blocks_per_chunk, n_items;
	uint64_t bytes[3], padding[3];
};

uint64_t below(struct world *w, uint64_t n);
void fill_random(struct world *w, uint8_t *p, uint64_t n);
uint64_t span_of(const struct world *w, uint32_t p);
void wait_readable(const struct world *w);
struct scout__copy_batch *next_ended(struct world *w);

/* Planes and slots with random bytes. */
void world_init(struct world *w, const struct shape *shape);

/* The engine, with the slots pinned. */
void world_open(struct world *w, const char *method);
void world_make(struct world *w, const struct shape *shape, const char *method);
uint64_t slot_at(const struct world *w, uint32_t i);
void model_copy(struct world *w, enum scout__copy_direction direction, uint32_t item, const int64_t *ids);
void require_as_model(const struct world *w);

/* Different pages for all items, some of them neighbours, some null. */
void random_ids(struct world *w, int64_t *ids);
void items_of(const struct world *w, struct scout__copy_item *items, const int64_t *ids);
void copy_and_check(struct world *w, enum scout__copy_direction direction, const int64_t *ids);

/* Both directions, and all of both memories, some times over. */
void round_trips(struct world *w, int n);

/* A batch of all slots with pages of its own choice. */
struct job {
	int64_t ids[2000];
	struct scout__copy_item items[MAX_ITEMS];
	struct scout__copy_batch batch;
	struct scout__copy_progress progress;
	atomic_bool stop;
};

void job_init(struct world *w, struct job *job, enum scout__copy_direction direction);
/* With the pages one after the other. */
void job_in_order(struct world *w, struct job *job, enum scout__copy_direction direction);
/* What it does, in the model. */
void job_model(struct world *w, const struct job *job);
void job_start(const struct world *w, struct job *job);
void job_end(struct world *w, const struct job *job, int status);
/* All of the three. */
void job_run(struct world *w, struct job *job);
/* Until the events of @layer stand for this job. */
void job_await_layer(const struct job *job, uint32_t layer);

/* Some 20 ms of work, and then @value over all of plane @p. */
void busy_then_fill(const struct world *w, CUstream stream, uint32_t p, int value);

/* @copy, in GPU memory, is when @stream comes to it what plane @p should hold, gaps and neighbours too. */
void require_plane_is(const struct world *w, uint32_t p, const void *copy, CUstream stream);

/* Run the cases, or say of each why it cannot run. */
int world_main(int argc, char **argv, const struct gpu_case *cases, int n);
