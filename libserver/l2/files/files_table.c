/* SPDX-License-Identifier: Apache-2.0 */
#include "files_table.h"

#include <stdlib.h>

/*
 * DESIGN
 *
 * The table of the catalogue: digest -> entry. It owns cells and slabs of entries; the catalogue knows what an entry's
 * state means.
 *
 * Digests are uniform, so their low byte picks a shard and the next 32 bits are home cell and tag; cells carry the tag,
 * so that growing a shard reads no entries: 40,000 cells (of 10 million objects) move in a fraction of a millisecond,
 * and only one of 256 shards at a time. Entries live in slabs that never move: an index names an entry for as long as
 * the entry lives. An object takes about 75 bytes in all.
 *
 * Threads: any, under the catalogue's mutex.
 */

#define FIRST_CELLS 64u

/* ---- entries ---- */

static bool
add_slab(struct scout__cat *cat)
{
	struct scout__cat_entry *slab;

	if (cat->n_slabs == UINT32_MAX / SCOUT__CAT_SLAB)
		return false;
	if (cat->n_slabs == cat->slabs_cap) {
		uint32_t cap = cat->slabs_cap ? cat->slabs_cap * 2 : 16;
		struct scout__cat_entry **slabs = realloc(cat->slabs, cap * sizeof(struct scout__cat_entry *));

		if (!slabs)
			return false;
		cat->slabs = slabs;
		cat->slabs_cap = cap;
	}
	slab = calloc(SCOUT__CAT_SLAB, sizeof(*slab));
	if (!slab)
		return false;
	for (uint32_t i = 0; i < SCOUT__CAT_SLAB; i++)
		slab[i].older = i + 1 < SCOUT__CAT_SLAB ? cat->n_slabs * SCOUT__CAT_SLAB + i + 1 : cat->free;
	cat->slabs[cat->n_slabs] = slab;
	cat->free = cat->n_slabs * SCOUT__CAT_SLAB;
	cat->n_slabs++;
	return true;
}

/* ---- the table ---- */

static struct scout__cat_shard *
shard_of(struct scout__cat *cat, struct scout__l2_digest digest)
{
	return &cat->shards[digest.lo % SCOUT__CAT_SHARDS];
}

static uint32_t
tag_of(struct scout__l2_digest digest)
{
	return (uint32_t)(digest.lo >> 8);
}

static bool
is_of(const struct scout__cat_entry *entry, struct scout__l2_digest digest)
{
	return entry->digest.lo == digest.lo && entry->digest.hi == digest.hi;
}

/* The cell of @digest, or the free one where it would go. The shard has cells, and a free one. */
static uint32_t
cell_of(const struct scout__cat *cat, const struct scout__cat_shard *shard, struct scout__l2_digest digest)
{
	uint32_t tag = tag_of(digest);
	uint32_t i = tag & shard->mask;

	for (;; i = (i + 1) & shard->mask) {
		const struct scout__cat_cell *cell = &shard->cells[i];

		if (cell->entry_plus_1 == 0)
			return i;
		if (cell->tag == tag && is_of(scout__cat_entry_of(cat, cell->entry_plus_1 - 1), digest))
			return i;
	}
}

uint32_t
scout__cat_find(struct scout__cat *cat, struct scout__l2_digest digest)
{
	const struct scout__cat_shard *shard = shard_of(cat, digest);

	if (!shard->cells)
		return SCOUT__CAT_NONE;
	return shard->cells[cell_of(cat, shard, digest)].entry_plus_1 - 1;
}

static bool
grow(struct scout__cat_shard *shard)
{
	uint32_t size = shard->cells ? (shard->mask + 1) * 2 : FIRST_CELLS;
	struct scout__cat_cell *cells = size ? calloc(size, sizeof(*cells)) : NULL;

	if (!cells)
		return false;
	for (uint32_t i = 0; shard->cells && i <= shard->mask; i++) {
		uint32_t to = shard->cells[i].tag & (size - 1);

		if (shard->cells[i].entry_plus_1 == 0)
			continue;
		while (cells[to].entry_plus_1)
			to = (to + 1) & (size - 1);
		cells[to] = shard->cells[i];
	}
	free(shard->cells);
	shard->cells = cells;
	shard->mask = size - 1;
	return true;
}

uint32_t
scout__cat_insert(struct scout__cat *cat, struct scout__l2_digest digest)
{
	struct scout__cat_shard *shard = shard_of(cat, digest);
	struct scout__cat_entry *entry;
	uint32_t i, cell;

	/* Without memory to grow, a fuller table is better than none; one cell must stay free. */
	if ((!shard->cells || shard->n >= (shard->mask + 1) / 4 * 3) && !grow(shard) &&
	    (!shard->cells || shard->n >= shard->mask))
		return SCOUT__CAT_NONE;
	if (cat->free == SCOUT__CAT_NONE && !add_slab(cat))
		return SCOUT__CAT_NONE;
	i = cat->free;
	entry = scout__cat_entry_of(cat, i);
	cat->free = entry->older;
	*entry = (struct scout__cat_entry){.digest = digest,
					   .newer = SCOUT__CAT_NONE,
					   .older = SCOUT__CAT_NONE,
					   .after = SCOUT__CAT_NONE,
					   .state = CAT_BUSY};
	cell = cell_of(cat, shard, digest);
	shard->cells[cell] = (struct scout__cat_cell){.entry_plus_1 = i + 1, .tag = tag_of(digest)};
	shard->n++;
	return i;
}

/* Backward-shift deletion: no tombstones, so nothing gets slower with age. */
void
scout__cat_forget(struct scout__cat *cat, uint32_t i)
{
	struct scout__cat_entry *entry = scout__cat_entry_of(cat, i);
	struct scout__cat_shard *shard = shard_of(cat, entry->digest);
	uint32_t hole = cell_of(cat, shard, entry->digest);

	for (uint32_t at = (hole + 1) & shard->mask; shard->cells[at].entry_plus_1; at = (at + 1) & shard->mask) {
		uint32_t home = shard->cells[at].tag & shard->mask;

		if (((at - home) & shard->mask) < ((at - hole) & shard->mask))
			continue; /* its home lies after the hole */
		shard->cells[hole] = shard->cells[at];
		hole = at;
	}
	shard->cells[hole] = (struct scout__cat_cell){0};
	shard->n--;
	entry->state = CAT_FREE;
	entry->older = cat->free;
	cat->free = i;
}

void
scout__cat_table_fini(struct scout__cat *cat)
{
	for (uint32_t i = 0; i < SCOUT__CAT_SHARDS; i++)
		free(cat->shards[i].cells);
	for (uint32_t i = 0; i < cat->n_slabs; i++)
		free(cat->slabs[i]);
	free(cat->slabs);
}
