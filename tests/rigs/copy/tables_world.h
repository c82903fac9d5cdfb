/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Several page tables of random shape behind one copy engine, slots of them, and a model of what all memory holds. For any backend:
 * `ops` of copy_world.h says which.
 */
#include "copy_world.h"

#define TABLES_MAX 4u
#define TABLE_PLANES 5u
#define TABLE_BLOCKS 40u /* pages of each table */
#define TABLE_BPC 6u     /* blocks of a slot, at most */
#define TABLES_SLOTS 8u
#define TABLES_LAYERS 7u

struct table_pages {
	struct scout__copy_plane planes[TABLE_PLANES];
	uint8_t *pages[TABLE_PLANES], *model[TABLE_PLANES]; /* with guards, as in struct world */
	uint64_t shard_bytes;
};

/* Layers as a batch has them, and a batch of all slots. */
struct tables_world {
	uint64_t seed;
	uint32_t n_tables;
	struct table_pages tables[TABLES_MAX];
	struct scout__copy_layout layouts[TABLES_MAX];
	uint8_t *slots, *model_slots;
	uint64_t slot_stride; /* of all slots, with guards */
	uint32_t n_layers;
	uint32_t first_plane[(TABLES_LAYERS + 1) * TABLES_MAX];
	struct scout__copy_item items[TABLES_SLOTS];
	int64_t ids[TABLES_SLOTS][TABLE_BPC];
	void *engine;
};

/* Tables with random planes, and slots with random bytes. */
void tables_fill(struct tables_world *w, uint64_t seed);
void tables_config(struct tables_world *w, struct scout__copy_config *cfg);
void tables_fini(struct tables_world *w);

/* Cut the planes into layers at random; some take no plane of some tables, and some none of those that items are of. */
void tables_random_layers(struct tables_world *w);
/* @n slots of random tables, each with pages of its own, some null. @n_of: of the tables below that only. */
void tables_random_items(struct tables_world *w, uint32_t n, uint32_t n_of);

/* Whether an item of the first @n has planes in the layer. */
bool tables_layer_has_planes(const struct tables_world *w, uint32_t n, uint32_t layer);
/* Bytes of the first @n items that are copied in layers [from, to). */
uint64_t tables_bytes(const struct tables_world *w, uint32_t n, uint32_t from, uint32_t to);
/* Move the first @n items in the model, in layers [from, to). */
void tables_model_copy(struct tables_world *w, enum scout__copy_direction direction, uint32_t n, uint32_t from,
		       uint32_t to);
/* The bytes of layer @layer are where the model has them: in pages (a load) or in slots. */
bool tables_layer_is(const struct tables_world *w, enum scout__copy_direction direction, uint32_t n, uint32_t layer);
void tables_assert_as_model(const struct tables_world *w, const char *when);

/* A random batch in each direction, with layers and without; all memory is compared after each. */
void tables_round_trip(struct tables_world *w);
