/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "files_catalogue.h"

/* The table under the catalogue, see files_table.c. All calls: any thread, with the catalogue's mutex. */

#define SCOUT__CAT_SLAB 4096u /* entries */

enum cat_state {
	CAT_FREE = 0,
	CAT_PRESENT,
	CAT_BUSY,
	CAT_AWAITED, /* a store of it has its turn, and will claim it */
	CAT_GONE
};

struct scout__cat_entry {
	struct scout__l2_digest digest;
	uint64_t bytes;   /* counted in cat->used */
	uint64_t version; /* new with each publish and adopt */
	uint32_t pins;
	uint32_t newer, older; /* NONE at the ends, and while not in the order */
	uint32_t after;        /* the object before it in its prompt: scout__cat_await() */
	uint32_t after_tag;    /* of that one's digest: the entry may be another's by now */
	uint32_t stamped_s;    /* when its recency was last written to disk */
	uint8_t state;
	bool is_cold; /* adopted and not used since */
};

struct scout__cat_cell {
	uint32_t entry_plus_1; /* 0: free */
	uint32_t tag;
};

static inline struct scout__cat_entry *
scout__cat_entry_of(const struct scout__cat *cat, uint32_t i)
{
	return &cat->slabs[i / SCOUT__CAT_SLAB][i % SCOUT__CAT_SLAB];
}

/* The entry of @digest, or SCOUT__CAT_NONE. */
uint32_t scout__cat_find(struct scout__cat *cat, struct scout__l2_digest digest);
/* A new entry for a digest that has none: BUSY, not pinned. NONE: no memory. */
uint32_t scout__cat_insert(struct scout__cat *cat, struct scout__l2_digest digest);
/* Take the entry's digest out of the table and free the entry, which is in no list. */
void scout__cat_forget(struct scout__cat *cat, uint32_t i);
void scout__cat_table_fini(struct scout__cat *cat);
