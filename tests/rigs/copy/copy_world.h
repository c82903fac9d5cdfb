/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Pages and slots for the tests of the copy engine, and a model that is as simple as can be (one block at a time, no
 * merging). After each step all memory is compared with the model's, guards and gaps between blocks included.
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>

#include "clock.h"
#include "copy.h"
#include "waiting.h"

#define GUARD 64u
#define MAX_PLANES 122u
#define MAX_ITEMS 8u

/* The backend: the host's, unless a test says otherwise before it opens a world. */
extern const struct scout__copy_ops *ops;

/* Pages and slots, and what the model says they hold. */
struct world {
	uint64_t seed;
	struct scout__copy_plane planes[MAX_PLANES];
	struct scout__copy_layout layout;
	uint8_t *pages[MAX_PLANES]; /* with a guard at each end; planes[i].base points behind the first one */
	uint8_t *model_pages[MAX_PLANES];
	uint8_t *slots; /* n_slots slots, each with guards */
	uint8_t *model_slots;
	uint32_t n_slots;
	uint64_t shard_bytes;
	void *engine;
};

uint64_t next_random(uint64_t *seed);
uint64_t random_below(uint64_t *seed, uint64_t n);
void *must_alloc(size_t bytes);
size_t plane_span(const struct world *w, uint32_t p);
size_t slots_span(const struct world *w);
uint8_t *slot_in(const struct world *w, uint8_t *slots, uint32_t i);

/* Strides and block sizes are in w->planes. */
void world_fill(struct world *w, uint32_t n_planes, uint32_t blocks_per_chunk, uint64_t n_blocks, uint32_t n_slots);
void world_open(struct world *w, uint32_t max_batches);
void world_fini(struct world *w);

/* Two planes, one without gaps and one with; for the tests that are not about layouts. */
void world_small(struct world *w, uint32_t n_slots, uint32_t max_batches);
void model_copy(struct world *w, enum scout__copy_direction direction, uint32_t slot, const int64_t *ids);
void assert_as_model(const struct world *w, const char *when);
bool readable(int fd, int timeout_ms);

/* The next batch that ends, waiting by the descriptor alone. */
struct scout__copy_batch *next_ended(void *engine);

/* Start it, and wait for its end. */
void run_batch(void *engine, struct scout__copy_batch *batch);

/* Distinct ids for all slots: shuffled, or in runs (the merge path), some of them null. */
void random_ids(struct world *w, int64_t *ids);
/* One batch over all slots, through the engine and through the model. */
void copy_all(struct world *w, enum scout__copy_direction direction, const int64_t *ids);

/* With nothing in flight the descriptor goes quiet, at the latest when a report that was under way is through. */
void assert_goes_quiet(void *engine);

/* One batch for one slot with the ids slot * 4 .. slot * 4 + 3 of world_small(). */
struct single {
	struct scout__copy_batch batch;
	struct scout__copy_item item;
	int64_t ids[4];
};

void single_init(struct single *s, struct world *w, enum scout__copy_direction direction, uint32_t slot);
void assert_copied(const struct single *s, const struct world *w);

/* A gate with a handle, and a count of who looked at it. */
struct gate {
	atomic_bool shut;
	atomic_uint looks;
};

bool gate_is_shut(void *user);
void gate_shut(struct gate *gate, bool reverse);
void wait_looks(struct gate *gate, unsigned int n);
unsigned int count_dir(const char *path);
