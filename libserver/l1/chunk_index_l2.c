/* SPDX-License-Identifier: Apache-2.0 */
#include "chunk_index_internal.h"

/*
 * DESIGN
 *
 * Purpose: what L2 needs of a chunk index: room for what is to be loaded, and slots that stay while they
 * are saved.
 *
 * A chunk of L2 that counts for a hit has an entry, with slots, from its lookup on: so it counts only as
 * far as there is room, and max_promised bounds it as it bounds everything that is promised. A lookup does not wait for
 * the pool to grow: the slots may be those of an extent that is on its way. Which stores have it,
 * under which digests, and what is being loaded, is the server's side table; the chunk index tells it (let_go) when
 * nothing pins a tracked entry any more.
 *
 * Saving is no pin: a pin takes an entry out of the order of eviction and brings it back as the newest, and the order
 * in which a store happens to finish its writes says nothing about the use of chunks.
 *
 * Threads: loop.
 */

static uint8_t *
state_of(const struct scout__chunk_index *index, uint32_t entry, uint32_t rank)
{
	SCOUT_ASSERT(rank < index->n_ranks);
	return &index->shard_state[scout__shard_at(index, entry, rank)];
}

enum scout__reserve
scout__index_expect(struct scout__chunk_index *index, uint32_t space, const uint8_t *hash, bool temporary,
		    uint32_t *ret_entry)
{
	uint32_t entry = scout__index_find(index, space, hash);
	enum scout__reserve refused;

	if (entry == SCOUT__NO_ENTRY) {
		/* Before anything is evicted for it. */
		if (!scout__l1_may_promise(index) || !scout__l1_may_pin_promise(index)) {
			index->l1->promises_refused++;
			return SCOUT__RESERVE_NO_ROOM;
		}
		refused = scout__slot_is_coming(index) ? 0 : scout__index_make_room(index, space, NULL);
		/* The extent that it has just asked for. */
		if (refused == SCOUT__RESERVE_WAIT && scout__slot_is_coming(index))
			refused = 0;
		if (refused)
			return refused;
		entry = scout__entry_create(index, space, hash);
		index->entries[entry].temporary = temporary;
	}
	if (!scout__index_promise(index, entry))
		return SCOUT__RESERVE_NO_ROOM;
	*ret_entry = entry;
	return SCOUT__RESERVE_GRANTED;
}

void
scout__index_expect_shard(struct scout__chunk_index *index, uint32_t entry, uint32_t rank)
{
	struct scout__entry *e = &index->entries[entry];
	uint8_t *state = state_of(index, entry, rank);

	SCOUT_ASSERT(e->promises > 0 && e->tracked && *state == SCOUT__SHARD_ABSENT);
	*state = SCOUT__SHARD_EXPECTED;
	e->expected++;
}

void
scout__index_unexpect_shard(struct scout__chunk_index *index, uint32_t entry, uint32_t rank)
{
	uint8_t *state = state_of(index, entry, rank);

	SCOUT_ASSERT(*state == SCOUT__SHARD_EXPECTED);
	*state = SCOUT__SHARD_ABSENT;
	index->entries[entry].expected--;
}

bool
scout__index_load(struct scout__chunk_index *index, uint32_t entry, uint32_t rank)
{
	struct scout__entry *e = &index->entries[entry];
	uint8_t *state = state_of(index, entry, rank);
	struct scout__place place;

	SCOUT_ASSERT(*state == SCOUT__SHARD_EXPECTED && !e->in_order && !e->bare);
	if (e->holds == UINT16_MAX)
		return false;
	scout__entry_held(index, entry);
	*state = SCOUT__SHARD_LOADING;
	scout__shard_bump(index, entry, rank);
	place = scout__index_place(index, entry, rank);
	scout__place_note_writer(&place, 0, 0);
	return true;
}

void
scout__index_load_late(struct scout__chunk_index *index, uint32_t entry, uint32_t rank)
{
	uint8_t *state = state_of(index, entry, rank);

	SCOUT_ASSERT(*state == SCOUT__SHARD_LOADING);
	*state = SCOUT__SHARD_WRITING;
	index->entries[entry].expected--;
}

bool
scout__index_save(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__entry *e = &index->entries[entry];

	SCOUT_ASSERT(e->in_use && e->readable > 0);
	if (e->saving == UINT8_MAX)
		return false;
	index->l2.n_saving += e->saving++ == 0;
	return true;
}

void
scout__index_save_late(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__entry *e = &index->entries[entry];

	SCOUT_ASSERT(e->in_use && e->saving > 0);
	index->l2.n_saving -= !e->stuck;
	e->stuck = 1;
}

void
scout__index_saved(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout__entry *e = &index->entries[entry];

	SCOUT_ASSERT(e->in_use && e->saving > 0);
	/* It would have been evicted or dropped meanwhile, and was only taken out of the order. */
	if (--e->saving > 0)
		return;
	index->l2.n_saving -= !e->stuck;
	e->stuck = 0;
	if (!e->in_order || e->spoiled)
		scout__entry_unpin(index, entry);
}
