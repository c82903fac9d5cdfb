/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "chunk_index_internal.h"
#include "lazy.h"

/*
 * DESIGN
 *
 * Purpose: what a STORE said of its objects, for readers of the feed. A description is opaque, lives as long as its entry, and
 * is never changed. The array of pointers is address space that costs nothing until it is used, and the bit in the entry spares
 * everybody else a look at it.
 *
 * All descriptions together have at most l1.max_described bytes, and those of a namespace seven eighths of what the others
 * leave, so that there is room for one more. What comes later has none.
 *
 * Threads: loop.
 */

#define TOLD_BYTES(index) (SCOUT__TOLD_WORDS(index) * SCOUT__TOLD_WALKS * sizeof(*(index)->told))

static uint64_t
bytes_of(uint16_t len)
{
	return sizeof(struct scout__description) + len;
}

bool
scout__index_describe(struct scout__chunk_index *index, uint32_t entry, const uint8_t *before, const char *bytes,
		      uint16_t len)
{
	uint64_t mine = index->l1_ns ? index->l1_ns->described : 0, others = index->l1->described - mine;
	struct scout__description *d;

	SCOUT_ASSERT(index->entries[entry].in_use);
	if (index->entries[entry].described)
		return true;
	if (!index->l1_ns || mine + bytes_of(len) > (index->l1->max_described - others) / 8 * 7)
		return false;
	if (!index->descriptions)
		index->descriptions = scout__lazy_alloc(index->max_entries * sizeof(*index->descriptions));
	if (!index->told)
		index->told = scout__lazy_alloc(TOLD_BYTES(index));
	d = index->descriptions && index->told ? calloc(1, bytes_of(len)) : NULL;
	if (!d)
		return false;
	if (before)
		memcpy(d->before, before, index->hash_bytes);
	d->len = len;
	memcpy(d->bytes, bytes, len);
	index->descriptions[entry] = d;
	index->entries[entry].described = 1;
	index->l1_ns->described += bytes_of(len);
	index->l1->described += bytes_of(len);
	return true;
}

void
scout__index_undescribe(struct scout__chunk_index *index, uint32_t entry)
{
	uint64_t bytes = bytes_of(index->descriptions[entry]->len);

	index->l1_ns->described -= bytes;
	index->l1->described -= bytes;
	free(index->descriptions[entry]);
	index->entries[entry].described = 0;
}

void
scout__descriptions_close(struct scout__chunk_index *index)
{
	for (uint32_t entry = 0; index->descriptions && entry < index->slots.next_fresh; entry++)
		if (index->entries[entry].in_use && index->entries[entry].described)
			free(index->descriptions[entry]);
	scout__lazy_free(index->descriptions, index->max_entries * sizeof(*index->descriptions));
	scout__lazy_free(index->told, TOLD_BYTES(index));
}
