/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "chunk_index_internal.h"

/*
 * The beginning and the end of an entry. Loop thread.
 */

uint32_t
scout__entry_create(struct scout__chunk_index *index, uint32_t space, const uint8_t *hash)
{
	bool bare = index->slots.n_free == 0;
	uint32_t entry = bare ? scout__slot_take_coming(index) : scout__slot_take(index);
	struct scout__entry *e;

	if (!bare)
		scout__index_ask_early(index); /* may move the entries */
	e = &index->entries[entry];
	*e = (struct scout__entry){.space = space, .gen = e->gen + 1, .in_use = 1, .bare = bare};
	index->used_by[entry].number = index->used_by[entry].needed = 0;
	memcpy(e->hash, hash, index->hash_bytes);
	scout__table_insert(index, entry);
	scout__share_add(index->l1_ns, space, index->chunk_bytes);
	if (index->l1->policy->expect)
		index->l1->policy->expect(index->order.policy, entry);
	index->n_entries++;
	return entry;
}

/* Readers of the feed want to know, or the entry has a description. */
static SCOUT_ON_LOOP __attribute__((noinline)) void
tell_end(struct scout__chunk_index *index, uint32_t entry)
{
	if (scout__index_is_hit(index, entry))
		scout__index_tell(index, entry, false);
	if (index->entries[entry].described)
		scout__index_undescribe(index, entry);
}

void
scout__entry_discard(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__entry *e = &index->entries[entry];

	SCOUT_ASSERT(e->in_use && e->promises == 0 && e->holds == 0 && e->saving == 0 && e->expected == 0);
	if (index->l1_ns && (index->l1_ns->watched || e->described))
		tell_end(index, entry);
	/*
	 * A spoiled entry goes with its last pin, while it is out of the order. The policy counts what is alive, so it
	 * hears of the end.
	 */
	if (!e->in_order && e->stored)
		scout__order_insert(index, entry);
	if (e->in_order)
		scout__order_remove(index, entry, SCOUT__REMOVE_GONE);
	scout__table_remove(index, entry);
	for (uint32_t rank = 0; rank < index->n_ranks; rank++) {
		uint8_t *state = &index->shard_state[scout__shard_at(index, entry, rank)];

		if (*state == SCOUT__SHARD_ABSENT)
			continue;
		*state = SCOUT__SHARD_ABSENT;
		scout__shard_bump(index, entry, rank);
	}
	e->in_use = 0;
	e->readable = 0;
	e->gen++;
	index->n_entries--;
	scout__share_sub(index->l1_ns, e->space, index->chunk_bytes);
	scout__slot_put(index, entry);
}
