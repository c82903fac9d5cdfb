/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "chunk_index_internal.h"

/*
 * DESIGN
 *
 * Purpose: what a STORE said of its objects, for readers of the feed. A description is opaque, lives as long as its entry, and
 * is never changed. The array of pointers is address space that costs nothing until it is used, and the bit in the entry spares
 * everybody else a look at it.
 *
 * All descriptions of a namespace together have at most l1_ns.max_described bytes: what comes later has none.
 *
 * Threads: loop.
 */

static uint64_t
bytes_of(uint16_t len)
{
	return sizeof(struct scout__description) + len;
}

bool
scout__index_describe(struct scout__chunk_index *index, uint32_t entry, const char *bytes, uint16_t len)
{
	struct scout__l1_ns *ns = index->l1_ns;
	struct scout__description *d;

	SCOUT_ASSERT(index->entries[entry].in_use);
	if (index->entries[entry].described)
		return true;
	if (!ns || ns->described + bytes_of(len) > ns->max_described)
		return false;
	if (!index->descriptions)
		index->descriptions = scout__reserve_array(index->max_entries, sizeof(*index->descriptions));
	d = index->descriptions ? malloc(bytes_of(len)) : NULL;
	if (!d)
		return false;
	d->len = len;
	memcpy(d->bytes, bytes, len);
	index->descriptions[entry] = d;
	index->entries[entry].described = 1;
	ns->described += bytes_of(len);
	return true;
}

void
scout__index_undescribe(struct scout__chunk_index *index, uint32_t entry)
{
	index->l1_ns->described -= bytes_of(index->descriptions[entry]->len);
	free(index->descriptions[entry]);
	index->entries[entry].described = 0;
}

void
scout__descriptions_close(struct scout__chunk_index *index)
{
	if (!index->descriptions)
		return;
	for (uint32_t entry = 0; entry < index->slots.next_fresh; entry++)
		if (index->entries[entry].in_use && index->entries[entry].described)
			scout__index_undescribe(index, entry);
	scout__release_array(index->descriptions, index->max_entries, sizeof(*index->descriptions));
}
