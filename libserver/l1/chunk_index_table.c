/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "chunk_index_internal.h"
#include "lazy.h"

/*
 * DESIGN
 *
 * Purpose: key -> entry in two cache misses, the cell and the entry, both of which can be started ahead; and in a run
 * of keys that were used together before, in one.
 *
 * A cell is a word: the upper half of the key's hash (tag) and entry + 1; 0 is free. Linear probing from tag & mask.
 * Because the home position follows from the tag, deletion shifts the following cells back without looking at an
 * entry, so there are no tombstones, and a table that was churned for a year probes like a new one. A tag that matches
 * is checked against the whole key in the entry.
 *
 * The hash is not secret: a peer that may store may also pick keys that collide and slow down its own server.
 *
 * Rejected: cells with the key inside (40 bytes instead of 8 to hold the load factor down), buckets with control bytes
 * (no gain at two thirds full, when the entry has to be fetched anyway), ck_ht and ck_hs (4 times slower, and stop to
 * grow), guessing the entries of a run by the distance of the last two (chunks of one prompt lie in order only until
 * the pool is full), noting the next chunk instead of one further ahead (each miss waits for the one before).
 *
 * Threads: loop.
 */

/* Keys whose cache misses are in flight together: about as many as a core tracks. */
#define RUN UINT64_C(8)

/*
 * Start loading the line at @p, to be written. The empty asm is for gcc, which takes a function that only prefetches
 * for one without effect and drops the calls to it.
 */
static inline void
load_ahead(const void *p)
{
	__builtin_prefetch(p, 1);
	__asm__ volatile("");
}

static uint32_t
key_tag(const struct scout__chunk_index *index, uint32_t space, const uint8_t *hash)
{
	return (uint32_t)(XXH3_64bits_withSeed(hash, index->hash_bytes, space) >> 32);
}

/* hash_bytes is 16 to 32: two halves that may overlap cover it without a loop or a call. */
static bool
key_equal(const struct scout__chunk_index *index, const struct scout__entry *entry, uint32_t space, const uint8_t *hash)
{
	uint32_t tail = index->hash_bytes - 16;

	return memcmp(entry->hash, hash, 16) == 0 && memcmp(entry->hash + tail, hash + tail, 16) == 0 &&
	       entry->space == space;
}

/* For an entry that is a guess. */
static bool
is_entry_of(const struct scout__chunk_index *index, uint32_t entry, uint32_t space, const uint8_t *hash)
{
	const struct scout__entry *e = &index->entries[entry];

	return e->in_use && key_equal(index, e, space, hash);
}

static uint32_t
cell_tag(uint64_t cell)
{
	return (uint32_t)(cell >> 32);
}

static uint32_t
cell_entry(uint64_t cell)
{
	return (uint32_t)cell - 1;
}

static uint32_t
find_tagged(const struct scout__chunk_index *index, uint32_t tag, uint32_t space, const uint8_t *hash)
{
	uint64_t cell;

	for (uint64_t at = tag & index->table.mask; (cell = index->table.cells[at]); at = (at + 1) & index->table.mask)
		if (cell_tag(cell) == tag && key_equal(index, &index->entries[cell_entry(cell)], space, hash))
			return cell_entry(cell);
	return SCOUT__NO_ENTRY;
}

uint32_t
scout__index_find(const struct scout__chunk_index *index, uint32_t space, const uint8_t *hash)
{
	return find_tagged(index, key_tag(index, space, hash), space, hash);
}

void
scout__index_prefetch(const struct scout__chunk_index *index, uint32_t space, const uint8_t *hash)
{
	load_ahead(&index->table.cells[key_tag(index, space, hash) & index->table.mask]);
}

/* Start loading the entry that @tag probably leads to. */
static void
prefetch_entry(const struct scout__chunk_index *index, uint32_t tag)
{
	uint64_t cell;

	for (uint64_t at = tag & index->table.mask; (cell = index->table.cells[at]);
	     at = (at + 1) & index->table.mask) {
		if (cell_tag(cell) == tag) {
			load_ahead(&index->entries[cell_entry(cell)]);
			return;
		}
	}
}

/* ---- runs ---- */

/*
 * A run is looked for in stages. What the table has to tell comes in three of them, each RUN keys behind the one
 * before: load cells, load entries, compare. So up to 2 * RUN misses overlap and a key costs the work on it, not the
 * latency of memory.
 *
 * Better is not to ask the table. An entry notes which one was AHEAD chunks behind it, when that was stored or looked
 * up last: `ahead`. So where a run goes that was asked for before is known early enough to load it, and a key costs one
 * miss. It is a guess: the entry says whether it has the key. When it has not - the run leaves the one that was taken
 * last, or what followed was evicted - all guesses under way are given up, and the table is asked for the next AHEAD
 * keys, then for twice as many, and so on: keys that are no run at all cost little more than without guesses. What the
 * table says is noted anew.
 */

#define DEPTH (2 * RUN)
#define AHEAD SCOUT__AHEAD
#define RING 64u /* more than there are keys from the first in the stages to the last that is guessed */
#define MAX_WRONG 5u

_Static_assert(AHEAD >= DEPTH && DEPTH + AHEAD <= RING && (RING & (RING - 1)) == 0, "keys have a place each");

struct table_walk {
	const struct scout__chunk_index *index;
	uint32_t space;
	const uint8_t *hashes;
	uint32_t n;
	uint32_t *entries;    /* what was found */
	uint64_t first;       /* the stages have keys from here on */
	uint64_t guess_from;  /* keys before this one are looked for in the table */
	uint32_t wrong;       /* guesses */
	uint32_t tags[RING];  /* of keys that are looked for in the table */
	uint32_t guess[RING]; /* of the others; NO_ENTRY: look in the table */
};

static inline const uint8_t *
walk_key(const struct table_walk *w, uint64_t i)
{
	return w->hashes + i * w->index->hash_bytes;
}

static inline void
walk_load_cell(struct table_walk *w, uint64_t i)
{
	uint32_t tag;

	if (w->guess[i % RING] != SCOUT__NO_ENTRY)
		return;
	tag = key_tag(w->index, w->space, walk_key(w, i));
	w->tags[i % RING] = tag;
	load_ahead(&w->index->table.cells[tag & w->index->table.mask]);
}

static inline void
walk_load_entry(const struct table_walk *w, uint64_t i)
{
	if (w->guess[i % RING] == SCOUT__NO_ENTRY)
		prefetch_entry(w->index, w->tags[i % RING]);
}

/* Key @i has the entry @entry: that knows, maybe, the one of the key AHEAD further. */
static inline void
walk_found(struct table_walk *w, uint64_t i, uint32_t entry)
{
	uint64_t later = i + AHEAD;
	uint32_t guess = SCOUT__NO_ENTRY;

	w->entries[i] = entry;
	if (later >= w->n)
		return;
	if (later >= w->guess_from)
		guess = w->index->entries[entry].ahead - 1; /* 0 is none */
	w->guess[later % RING] = guess;
	if (guess != SCOUT__NO_ENTRY)
		load_ahead(&w->index->entries[guess]);
}

static void
walk_guessed_wrong(struct table_walk *w, uint64_t i)
{
	w->first = i;
	w->guess_from = i + ((uint64_t)AHEAD << w->wrong);
	w->wrong += w->wrong < MAX_WRONG;
	memset(w->guess, 0xff, sizeof(w->guess)); /* NO_ENTRY */
}

uint32_t
scout__index_find_run(const struct scout__chunk_index *index, uint32_t space, const uint8_t *hashes, uint32_t n,
		      uint32_t *ret_entries)
{
	struct table_walk w = {.index = index, .space = space, .hashes = hashes, .n = n, .entries = ret_entries};

	memset(w.guess, 0xff, sizeof(w.guess)); /* NO_ENTRY */
	for (uint64_t i = 0; i < (uint64_t)n + DEPTH; i++) {
		if (i >= w.first + DEPTH) {
			uint64_t done = i - DEPTH;
			uint32_t entry = w.guess[done % RING];

			if (entry == SCOUT__NO_ENTRY) {
				entry = find_tagged(index, w.tags[done % RING], space, walk_key(&w, done));
				if (entry == SCOUT__NO_ENTRY)
					return (uint32_t)done;
				if (done >= AHEAD)
					scout__index_follows(index, ret_entries[done - AHEAD], entry);
				walk_found(&w, done, entry);
			} else if (is_entry_of(index, entry, space, walk_key(&w, done))) {
				walk_found(&w, done, entry);
			} else {
				walk_guessed_wrong(&w, done);
				i = done;
			}
		}
		if (i < n)
			walk_load_cell(&w, i);
		if (i >= w.first + RUN && i - RUN < n)
			walk_load_entry(&w, i - RUN);
	}
	return n;
}

/* ---- the table ---- */

int
scout__table_open(struct scout__chunk_index *index)
{
	uint64_t cells = 8;

	/* At most two thirds full. */
	while (cells / 3 * 2 < index->max_entries)
		cells *= 2;
	index->table.mask = cells - 1;
	index->table.cells = scout__lazy_alloc(cells * sizeof(*index->table.cells));
	return index->table.cells ? 0 : SCOUT_ERR_NOMEM;
}

void
scout__table_close(struct scout__chunk_index *index)
{
	scout__lazy_free(index->table.cells, (index->table.mask + 1) * sizeof(*index->table.cells));
}

void
scout__table_insert(struct scout__chunk_index *index, uint32_t entry)
{
	const struct scout__entry *e = &index->entries[entry];
	uint32_t tag = key_tag(index, e->space, e->hash);
	uint64_t at = tag & index->table.mask;

	while (index->table.cells[at])
		at = (at + 1) & index->table.mask;
	index->table.cells[at] = (uint64_t)tag << 32 | (entry + 1);
}

/* Fill the hole at @hole with the next cell that may lie there, and so on until the end of the cluster. */
static void
shift_back(struct scout__chunk_index *index, uint64_t hole)
{
	uint64_t mask = index->table.mask;
	uint64_t cell;

	for (uint64_t at = (hole + 1) & mask; (cell = index->table.cells[at]); at = (at + 1) & mask) {
		uint64_t home = cell_tag(cell) & mask;

		/* It may move when its home is not between the hole and itself. */
		if (((at - home) & mask) >= ((at - hole) & mask)) {
			index->table.cells[hole] = cell;
			hole = at;
		}
	}
	index->table.cells[hole] = 0;
}

void
scout__table_remove(struct scout__chunk_index *index, uint32_t entry)
{
	const struct scout__entry *e = &index->entries[entry];
	uint64_t at = key_tag(index, e->space, e->hash) & index->table.mask;

	while (cell_entry(index->table.cells[at]) != entry) {
		SCOUT_ASSERT(index->table.cells[at]);
		at = (at + 1) & index->table.mask;
	}
	shift_back(index, at);
}

uint64_t
scout__table_check(const struct scout__chunk_index *index)
{
	uint64_t used = 0;

	for (uint64_t at = 0; at <= index->table.mask; at++) {
		uint32_t entry = cell_entry(index->table.cells[at]);
		const struct scout__entry *e;

		if (!index->table.cells[at])
			continue;
		used++;
		SCOUT_ASSERT(entry < index->slots.next_fresh);
		e = &index->entries[entry];
		SCOUT_ASSERT(e->in_use);
		SCOUT_ASSERT(cell_tag(index->table.cells[at]) == key_tag(index, e->space, e->hash));
		SCOUT_ASSERT(scout__index_find(index, e->space, e->hash) == entry);
	}
	return used;
}
