/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "bank_private.h"

/*
 * DESIGN
 *
 * Purpose: key -> entry in two cache misses, the cell and the entry, both of which can be started ahead.
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
 * grow).
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
key_tag(const struct scout__bank *bank, uint32_t space, const uint8_t *hash)
{
	return (uint32_t)(XXH3_64bits_withSeed(hash, bank->hash_bytes, space) >> 32);
}

/* hash_bytes is 16 to 32: two halves that may overlap cover it without a loop or a call. */
static bool
key_equal(const struct scout__bank *bank, const struct scout__entry *entry, uint32_t space, const uint8_t *hash)
{
	uint32_t tail = bank->hash_bytes - 16;

	return memcmp(entry->hash, hash, 16) == 0 && memcmp(entry->hash + tail, hash + tail, 16) == 0 &&
	       entry->space == space;
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
find_tagged(const struct scout__bank *bank, uint32_t tag, uint32_t space, const uint8_t *hash)
{
	uint64_t cell;

	for (uint64_t at = tag & bank->table_mask; (cell = bank->table[at]); at = (at + 1) & bank->table_mask)
		if (cell_tag(cell) == tag && key_equal(bank, &bank->entries[cell_entry(cell)], space, hash))
			return cell_entry(cell);
	return SCOUT__NO_ENTRY;
}

uint32_t
scout__bank_find(const struct scout__bank *bank, uint32_t space, const uint8_t *hash)
{
	return find_tagged(bank, key_tag(bank, space, hash), space, hash);
}

void
scout__bank_prefetch(const struct scout__bank *bank, uint32_t space, const uint8_t *hash)
{
	load_ahead(&bank->table[key_tag(bank, space, hash) & bank->table_mask]);
}

/* Start loading the entry that @tag probably leads to. */
static void
prefetch_entry(const struct scout__bank *bank, uint32_t tag)
{
	uint64_t cell;

	for (uint64_t at = tag & bank->table_mask; (cell = bank->table[at]); at = (at + 1) & bank->table_mask) {
		if (cell_tag(cell) == tag) {
			load_ahead(&bank->entries[cell_entry(cell)]);
			return;
		}
	}
}

/*
 * Three stages, each a run behind the one before: load cells, load entries, compare. So up to 2 * RUN misses overlap
 * and a key costs the work on it, not the latency of memory.
 */
uint32_t
scout__bank_find_run(const struct scout__bank *bank, uint32_t space, const uint8_t *hashes, uint32_t n,
		     uint32_t *ret_entries)
{
	uint32_t tags[4 * RUN];
	uint64_t hash_bytes = bank->hash_bytes;

	for (uint64_t i = 0; i < (uint64_t)n + 2 * RUN; i++) {
		if (i < n) {
			uint32_t tag = key_tag(bank, space, hashes + i * hash_bytes);

			tags[i % (4 * RUN)] = tag;
			load_ahead(&bank->table[tag & bank->table_mask]);
		}
		if (i >= RUN && i - RUN < n)
			prefetch_entry(bank, tags[(i - RUN) % (4 * RUN)]);
		if (i >= 2 * RUN) {
			uint64_t done = i - 2 * RUN;
			uint32_t entry;

			entry = find_tagged(bank, tags[done % (4 * RUN)], space, hashes + done * hash_bytes);
			if (entry == SCOUT__NO_ENTRY)
				return (uint32_t)done;
			ret_entries[done] = entry;
		}
	}
	return n;
}

uint64_t
scout__table_cells(uint32_t max_entries)
{
	uint64_t cells = 8;

	while (cells / 3 * 2 < max_entries)
		cells *= 2;
	return cells;
}

void
scout__table_insert(struct scout__bank *bank, uint32_t entry)
{
	const struct scout__entry *e = &bank->entries[entry];
	uint32_t tag = key_tag(bank, e->space, e->hash);
	uint64_t at = tag & bank->table_mask;

	while (bank->table[at])
		at = (at + 1) & bank->table_mask;
	bank->table[at] = (uint64_t)tag << 32 | (entry + 1);
}

/* Fill the hole at @hole with the next cell that may lie there, and so on until the end of the cluster. */
static void
shift_back(struct scout__bank *bank, uint64_t hole)
{
	uint64_t mask = bank->table_mask;
	uint64_t cell;

	for (uint64_t at = (hole + 1) & mask; (cell = bank->table[at]); at = (at + 1) & mask) {
		uint64_t home = cell_tag(cell) & mask;

		/* It may move when its home is not between the hole and itself. */
		if (((at - home) & mask) >= ((at - hole) & mask)) {
			bank->table[hole] = cell;
			hole = at;
		}
	}
	bank->table[hole] = 0;
}

void
scout__table_remove(struct scout__bank *bank, uint32_t entry)
{
	const struct scout__entry *e = &bank->entries[entry];
	uint64_t at = key_tag(bank, e->space, e->hash) & bank->table_mask;

	while (cell_entry(bank->table[at]) != entry) {
		SCOUT_ASSERT(bank->table[at]);
		at = (at + 1) & bank->table_mask;
	}
	shift_back(bank, at);
}

uint64_t
scout__table_check(const struct scout__bank *bank)
{
	uint64_t used = 0;

	for (uint64_t at = 0; at <= bank->table_mask; at++) {
		uint32_t entry = cell_entry(bank->table[at]);
		const struct scout__entry *e;

		if (!bank->table[at])
			continue;
		used++;
		SCOUT_ASSERT(entry < bank->next_fresh);
		e = &bank->entries[entry];
		SCOUT_ASSERT(e->in_use);
		SCOUT_ASSERT(cell_tag(bank->table[at]) == key_tag(bank, e->space, e->hash));
		SCOUT_ASSERT(scout__bank_find(bank, e->space, e->hash) == entry);
	}
	return used;
}
