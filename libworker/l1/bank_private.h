/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_L1_BANK_PRIVATE_H
#define SCOUT_L1_BANK_PRIVATE_H

#include "bank.h"

/* Between bank.c, bank_table.c and bank_pins.c only. */

/* How many cells an index of @max_entries has: a power of two, at most two thirds full. */
SCOUT_ON_ANY uint64_t scout__table_cells(uint32_t max_entries);
/* The key of entry @entry, which is not in the table yet, and which has room. */
SCOUT_ON_LOOP void scout__table_insert(struct scout__bank *bank, uint32_t entry);
SCOUT_ON_LOOP void scout__table_remove(struct scout__bank *bank, uint32_t entry);
/* Every cell leads to its entry, and no key is behind a hole. Returns the number of used cells. */
SCOUT_ON_LOOP uint64_t scout__table_check(const struct scout__bank *bank);

/* Something pins @entry from now on: out of the order. Before the count rises. */
SCOUT_ON_LOOP void scout__entry_pin(struct scout__bank *bank, uint32_t entry);
/* A count fell. When both are 0: into the order, or away when nothing in it is readable. */
SCOUT_ON_LOOP void scout__entry_unpin(struct scout__bank *bank, uint32_t entry);
/* Out of order, table and use; its slot goes to the free list. Nothing pins it. */
SCOUT_ON_LOOP void scout__entry_discard(struct scout__bank *bank, uint32_t entry);
/* Make everything that readers know of the shard's bytes outdated. */
SCOUT_ON_LOOP void scout__shard_bump(struct scout__bank *bank, uint32_t entry, uint32_t rank);

static inline uint64_t
scout__shard_at(const struct scout__bank *bank, uint32_t entry, uint32_t rank)
{
	return (uint64_t)entry * bank->n_ranks + rank;
}

#endif
