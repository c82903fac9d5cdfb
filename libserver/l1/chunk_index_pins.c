/* SPDX-License-Identifier: Apache-2.0 */
#include "chunk_index_internal.h"

/*
 * DESIGN
 *
 * Purpose: what keeps a chunk in memory.
 *
 * Everything that pins goes through scout__entry_pin(), everything that lets go through scout__entry_unpin(); so an
 * entry is in the order exactly when it is in use and both counts are 0. Counts never wrap: what would overflow is
 * refused.
 *
 * Threads: loop.
 */

/* @entry got its first pin (1), or lost its last one (-1). */
static SCOUT_ON_LOOP void
count_pinned(struct scout__chunk_index *index, int change)
{
	uint64_t bytes = (uint64_t)(int64_t)change * index->chunk_bytes;

	index->pins.pinned_bytes += bytes;
	index->l1->pinned_bytes += bytes;
}

void
scout__entry_held(struct scout__chunk_index *index, uint32_t entry)
{
	if (!scout__entry_is_pinned(&index->entries[entry]))
		count_pinned(index, 1);
	if (index->entries[entry].holds++ == 0)
		index->pins.held_bytes += index->chunk_bytes;
}

void
scout__entry_unheld(struct scout__chunk_index *index, uint32_t entry)
{
	if (--index->entries[entry].holds == 0)
		index->pins.held_bytes -= index->chunk_bytes;
	if (!scout__entry_is_pinned(&index->entries[entry]))
		count_pinned(index, -1);
}

void
scout__entry_pin(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__entry *e = &index->entries[entry];

	if (e->in_order)
		scout__order_remove(index, entry, SCOUT__REMOVE_PINNED);
	e->unneeded = 0; /* also what became unneeded while another pin kept it out of the order */
}

void
scout__entry_unpin(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__entry *e = &index->entries[entry];

	if (scout__entry_is_pinned(e))
		return;
	if (e->tracked)
		index->l1->let_go(index, entry);
	SCOUT_ASSERT(e->expected == 0);
	if (e->spoiled && e->saving)
		return; /* until it is saved */
	if (e->readable == 0 || e->spoiled)
		scout__entry_discard(index, entry);
	else
		scout__order_insert(index, entry);
}

bool
scout__index_promise(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__entry *e = &index->entries[entry];
	struct scout__l1 *l1 = index->l1;
	uint32_t units = index->n_ranks * index->readers;

	SCOUT_ASSERT(e->in_use);
	if (e->promises > UINT32_MAX - units)
		goto refused;
	if (e->promises == 0) {
		if (!scout__l1_may_promise(index) || (e->holds == 0 && !scout__l1_may_pin_promise(index)))
			goto refused;
		if (e->holds == 0)
			count_pinned(index, 1);
		l1->promised_bytes += index->chunk_bytes;
		index->pins.promised_bytes += index->chunk_bytes;
		scout__entry_pin(index, entry);
	}
	e->promises += units;
	return true;

refused:
	l1->promises_refused++;
	return false;
}

void
scout__index_unpromise(struct scout__chunk_index *index, uint32_t entry, uint32_t units)
{
	struct scout__entry *e = &index->entries[entry];

	SCOUT_ASSERT(e->in_use && units <= e->promises);
	if (units == 0)
		return;
	e->promises -= units;
	if (e->promises > 0)
		return;
	index->l1->promised_bytes -= index->chunk_bytes;
	index->pins.promised_bytes -= index->chunk_bytes;
	if (e->holds == 0)
		count_pinned(index, -1);
	scout__entry_unpin(index, entry);
}

bool
scout__index_hold(struct scout__chunk_index *index, uint32_t entry, uint32_t rank)
{
	struct scout__entry *e = &index->entries[entry];

	SCOUT_ASSERT(rank < index->n_ranks);
	if (!e->in_use || e->spoiled ||
	    index->shard_state[scout__shard_at(index, entry, rank)] != SCOUT__SHARD_READABLE)
		return false;
	if (e->holds == UINT16_MAX)
		return false;
	scout__entry_pin(index, entry);
	scout__entry_held(index, entry);
	return true;
}

void
scout__index_unhold(struct scout__chunk_index *index, uint32_t entry)
{
	SCOUT_ASSERT(index->entries[entry].in_use && index->entries[entry].holds > 0);
	scout__entry_unheld(index, entry);
	scout__entry_unpin(index, entry);
}

bool
scout__index_drop(struct scout__chunk_index *index, uint32_t entry)
{
	const struct scout__entry *e = &index->entries[entry];

	SCOUT_ASSERT(e->in_use);
	if (scout__entry_is_pinned(e) || e->saving)
		return false;
	scout__entry_discard(index, entry);
	return true;
}

void
scout__index_spoil(struct scout__chunk_index *index, uint32_t entry)
{
	if (scout__index_drop(index, entry))
		return;
	if (scout__index_is_hit(index, entry))
		scout__index_tell(index, entry, false);
	index->entries[entry].spoiled = 1;
}
