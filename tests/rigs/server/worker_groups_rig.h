/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "worker_rig.h"

/*
 * Server, client and worker for a model with full attention, a sliding window and a recurrent state. Each group has pages of its own:
 * other numbers of planes, and blocks of another size. A prompt has GROUPS_UNITS units; of these a hit needs all of group 0, the last
 * two of group 1, the last one of group 2. Page 0 is the null block of each group.
 */

#define GROUPS 3u
#define GROUPS_TOKENS 64u /* of a hash, and of a unit */
#define GROUPS_UNITS 5u
#define GROUPS_MOST (GROUPS_UNITS * 4u) /* blocks of a prompt in one group, at most */
#define GROUPS_PAGES 64u
#define GROUPS_PLANES 4u /* at most */

/* Blocks of a unit, and planes. */
extern const uint32_t groups_bpc[GROUPS], groups_planes[GROUPS];

/* Three layers of all groups: the window has no planes in the first, the state none in the second. */
#define GROUPS_LAYERS 3u
extern const uint32_t groups_layers[GROUPS_LAYERS * GROUPS];
/* The first plane of layer @l of group @g. */
uint32_t groups_layer_begin(uint32_t l, uint32_t g);

struct groups_world {
	struct rig rig;
	struct rig_pages pages[GROUPS];
};

/* The pages of all groups for the whole prompt. */
struct groups_blocks {
	int64_t ids[GROUPS][GROUPS_MOST];
	struct scout_blocks blocks[GROUPS];
};

void groups_init(struct groups_world *w);
/* Server, client, and pages; then the worker. @backend and @method may be NULL. */
void groups_start(struct groups_world *w);
void groups_worker_start(struct groups_world *w, const char *backend, const char *method);
void groups_stop(struct groups_world *w);

void groups_tables(const struct groups_world *w, struct scout_table tables[GROUPS]);
/* Other pages of the same shape, or of @n_blocks blocks. */
void groups_pages_init(struct rig_pages pages[GROUPS], uint64_t n_blocks);
void groups_register(struct groups_world *w);

/* Whether a hit of the whole prompt needs unit @unit of the group. */
bool groups_needs(uint32_t g, uint64_t unit);
/* From page @first on; @needed_only: null ids for what the hit does without. */
void groups_blocks(struct groups_blocks *b, int64_t first, bool needed_only);
/* What layers [from, to) of the prompt hold, to the pages from @first on. */
void groups_fill(const struct groups_world *w, uint32_t prompt, int64_t first, uint32_t from, uint32_t to);

/* Start a store of the whole prompt from pages 1.., or a retrieve of what a hit needs to pages from @first on. */
uint64_t groups_store(struct groups_world *w, uint32_t prompt, struct scout_store store);
uint64_t groups_load(struct groups_world *w, uint32_t prompt, int64_t first, struct scout_retrieve retrieve);
void groups_store_all(struct groups_world *w, uint32_t prompt);

/* Layers below @n are in the pages that groups_load() names, and of the others, and in other pages, nothing is. */
void groups_assert_loaded(const struct groups_world *w, uint32_t prompt, int64_t first, uint32_t n);
void groups_assert_untouched(const struct groups_world *w);
void groups_wipe(struct groups_world *w);
