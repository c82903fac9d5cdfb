/* SPDX-License-Identifier: Apache-2.0 */
#include "chunk_index.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "chunk_index_internal.h"
#include "clock.h"

/*
 * DESIGN
 *
 * Purpose: the life of a chunk index, and storing in it: room for a chunk, its shards' states. What has a file of its
 * own is listed in chunk_index_internal.h.
 *
 * Invariants: see scout__index_check() (chunk_index_check.c), which checks all of them.
 *
 * Threads: loop.
 */

#define MAX_ENTRIES SCOUT__MAX_QUEUED
#define REGROW_US 1000000u
#define SET_ASIDE_MAX 512u /* protected chunks that a search for a victim passes over */
#define VICTIMS 64u        /* in the extent that is on its way out, before a store waits for the rest to go */

int
scout__l1_init(struct scout__l1 *l1, uint64_t l1_bytes, uint64_t extent_bytes, uint64_t max_promised,
	       const char *eviction, const struct scout__log *log, char *err, size_t err_len)
{
	struct scout__evict_args args;
	const struct scout__evict_ops *policy = scout__evict_parse(eviction, &args, err, err_len);

	if (!policy)
		return SCOUT_ERR_CONFIG_RANGE;
	memset(l1, 0, sizeof(*l1));
	l1->policy = policy;
	l1->policy_args = args;
	l1->max_promised = max_promised;
	l1->regrow_us = REGROW_US;
	return scout__pool_init(&l1->pool, l1_bytes, extent_bytes, log, err, err_len);
}

void
scout__l1_fini(struct scout__l1 *l1)
{
	scout__pool_fini(&l1->pool);
	SCOUT_ASSERT(l1->promised_bytes == 0 && l1->pinned_bytes == 0);
}

/* Sets strides, chunk_bytes and max_entries. */
static int
measure(struct scout__chunk_index *index, const uint64_t *shard_bytes)
{
	uint64_t max_entries;

	index->strides = calloc(index->n_ranks, sizeof(*index->strides));
	if (!index->strides)
		return SCOUT_ERR_NOMEM;
	for (uint32_t rank = 0; rank < index->n_ranks; rank++) {
		index->strides[rank] = scout__slot_stride(shard_bytes[rank]);
		if (__builtin_add_overflow(index->chunk_bytes, index->strides[rank], &index->chunk_bytes))
			return SCOUT_ERR_NO_ROOM;
	}
	index->token_bytes = index->chunk_bytes;
	max_entries = index->l1->pool.l1_bytes / index->chunk_bytes;
	index->max_entries = (uint32_t)(max_entries < MAX_ENTRIES ? max_entries : MAX_ENTRIES);
	return max_entries > 0 ? 0 : SCOUT_ERR_NO_ROOM;
}

static SCOUT_ON_LOOP int
open_parts(struct scout__chunk_index *index, const uint64_t *shard_bytes)
{
	int code = measure(index, shard_bytes);

	if (code == 0)
		code = scout__table_open(index);
	if (code == 0)
		code = scout__order_open(index);
	scout__unneeded_open(index);
	scout__slots_open(index);
	return code;
}

/* Any thread. Frees a chunk index that nobody knows any more, also when only some of its parts are open. */
static void
close_parts(struct scout__pool *pool, struct scout__chore *chore)
{
	struct scout__chunk_index *index = (struct scout__chunk_index *)chore;

	(void)pool;
	scout__descriptions_close(index);
	scout__unneeded_close(index);
	scout__order_close(index);
	scout__table_close(index);
	scout__arrays_close(index);
	free(index->strides);
	free(index);
}

int
scout__index_new(struct scout__l1 *l1, struct scout__l1_ns *ns, const uint64_t *shard_bytes, const uint16_t *nodes,
		 uint32_t n_ranks, uint32_t readers, uint32_t hash_bytes, struct scout__chunk_index **ret_index)
{
	struct scout__chunk_index *index = calloc(1, sizeof(*index));
	int code;

	SCOUT_ASSERT(n_ranks >= 1 && n_ranks <= SCOUT_MAX_RANKS && readers >= 1 && readers <= SCOUT_MAX_READERS);
	SCOUT_ASSERT(hash_bytes >= SCOUT_MIN_HASH && hash_bytes <= SCOUT_MAX_HASH);
	if (!index)
		return SCOUT_ERR_NOMEM;
	index->l1 = l1;
	index->n_ranks = n_ranks;
	index->readers = readers;
	index->hash_bytes = hash_bytes;
	if (nodes)
		memcpy(index->nodes, nodes, n_ranks * sizeof(nodes[0]));
	code = open_parts(index, shard_bytes);
	if (code) {
		close_parts(&l1->pool, &index->chore);
		return code;
	}
	if (ns)
		scout__index_belongs(index, ns);
	scout__rebalance_join(index);
	scout__index_ask(index);
	*ret_index = index;
	return 0;
}

void
scout__index_belongs(struct scout__chunk_index *index, struct scout__l1_ns *ns)
{
	SCOUT_ASSERT(!index->l1_ns && index->n_entries == 0);
	index->l1_ns = ns;
	scout__extents_account(index);
	ns->n_indexes++;
}

/* A namespace frees its chunk indexes together: with the last one, no account has a chunk. */
static SCOUT_ON_LOOP void
leave_l1_ns(struct scout__l1_ns *ns, const struct scout__chunk_index *index)
{
	ns->slot_bytes -= index->extents.accounted_bytes;
	if (--ns->n_indexes > 0)
		return;
	ns->n_others = ns->n_set_aside = 0;
	index->l1->described -= ns->described;
	ns->described = 0;
	for (uint32_t i = 0; i < ns->n_accounts; i++)
		ns->accounts[i].bytes = ns->accounts[i].n_set_aside = 0;
}

void
scout__index_free(struct scout__chunk_index *index)
{
	if (!index)
		return;
	scout__index_count_hints(index);
	scout__rebalance_leave(index);
	scout__pool_disown(&index->l1->pool, index);
	index->l1->promised_bytes -= index->pins.promised_bytes;
	index->l1->pinned_bytes -= index->pins.pinned_bytes;
	if (index->l1_ns)
		leave_l1_ns(index->l1_ns, index);
	scout__extents_close(index);
	scout__pool_do(&index->l1->pool, &index->chore, close_parts);
}

static SCOUT_ON_LOOP bool
is_own(const struct scout__chunk_index *index, uint32_t entry, const struct scout__user *user)
{
	return user && user->number && index->used_by[entry].number == user->number && !index->entries[entry].temporary;
}

/* @entry is @user's own and the next to go: it becomes the newest instead. 0, or why the search ends. */
static SCOUT_ON_LOOP enum scout__reserve
pass_own(struct scout__chunk_index *index, uint32_t entry, struct scout__user *user)
{
	/* It became the newest in this turn, for this user or another: nothing should rather go. */
	if (index->used_by[entry].turn >= user->turn)
		return SCOUT__RESERVE_NO_ROOM;
	if (user->skips == 0)
		return SCOUT__RESERVE_AGAIN;
	user->skips--;
	index->used_by[entry].turn = index->turn & ((UINT64_C(1) << SCOUT__TURN_BITS) - 1);
	scout__order_remove(index, entry, SCOUT__REMOVE_PINNED);
	scout__order_insert(index, entry);
	return 0;
}

/*
 * The next to go for a chunk of @space, *ret_victim; SCOUT__NO_ENTRY: nothing can go. What @user has at the head of the
 * order becomes the newest, and what a guarantee protects is set aside. Otherwise why there is no victim.
 */
static SCOUT_ON_LOOP enum scout__reserve
find_victim(struct scout__chunk_index *index, uint32_t space, struct scout__user *user, uint32_t *ret_victim)
{
	uint32_t left = SET_ASIDE_MAX;

	for (;;) {
		uint32_t entry = *ret_victim = scout__order_victim_for(index, space);
		enum scout__reserve refused = 0;

		if (entry == SCOUT__NO_ENTRY)
			return 0;
		if (is_own(index, entry, user))
			refused = pass_own(index, entry, user);
		/* When all that is left is set aside, the rest is pinned: then a guarantee does not hold. */
		else if (index->entries[entry].set_aside || !scout__index_is_protected(index, entry, space))
			return 0;
		else if (left-- > 0)
			scout__order_set_aside(index, entry);
		else
			return user ? SCOUT__RESERVE_AGAIN : 0;
		if (refused)
			return refused;
	}
}

/* @victim is about to go for a chunk of @space. */
static SCOUT_ON_LOOP void
count_eviction(struct scout__chunk_index *index, uint32_t victim)
{
	struct scout__l1_ns *ns = index->l1_ns;
	struct scout__account *account;

	index->l1->evictions_unneeded += index->entries[victim].unneeded;
	scout__unneeded_evicted(index);
	scout__order_count_eviction(index, victim);
	if (!ns || ns->n_guaranteed == 0)
		return;
	account = scout__account_at(ns, index->entries[victim].space);
	if (account->percent > 0 && account->bytes <= scout__account_bytes_guaranteed(ns, account))
		account->evicted_under++;
	else
		account->evicted_over++;
}

enum scout__reserve
scout__index_make_room(struct scout__chunk_index *index, uint32_t space, struct scout__user *user)
{
	unsigned tries = VICTIMS;
	enum scout__reserve refused;
	uint32_t victim = SCOUT__NO_ENTRY;
	bool waits;

	if (index->slots.n_free > 0)
		return 0;
	scout__index_ask(index);
	/* An extent that comes after one failed may fail like that one; what can be evicted need not wait for it. */
	if (index->growth.n && !index->growth.is_out)
		return SCOUT__RESERVE_WAIT;
	waits = scout__rebalance_ask(index);
	do {
		refused = find_victim(index, space, user, &victim);
		if (refused == SCOUT__RESERVE_AGAIN)
			return refused;
		if (refused || victim == SCOUT__NO_ENTRY)
			return index->growth.n || waits || index->l2.n_saving ? SCOUT__RESERVE_WAIT
									      : SCOUT__RESERVE_NO_ROOM;
		if (index->entries[victim].saving) {
			bool unneeded = index->entries[victim].unneeded;

			/* It is back when it is written, as what it is: see scout__index_saved(). */
			scout__order_remove(index, victim, SCOUT__REMOVE_PINNED);
			index->entries[victim].unneeded = unneeded;
			continue;
		}
		count_eviction(index, victim);
		scout__entry_discard(index, victim);
		scout__order_load_ahead(index);
		/* None came free when it lay in the extent that is on its way out. */
	} while (index->slots.n_free == 0 && --tries > 0);
	/* The rest of that extent goes soon, and the store is told. */
	return index->slots.n_free == 0 ? SCOUT__RESERVE_WAIT : 0;
}

/* The shard is absent or expected, its entry may be pinned once more. */
static SCOUT_ON_LOOP void
grant(struct scout__chunk_index *index, uint32_t entry, uint32_t rank)
{
	uint8_t *state = &index->shard_state[scout__shard_at(index, entry, rank)];

	scout__entry_pin(index, entry);
	scout__entry_held(index, entry);
	index->entries[entry].expected -= *state == SCOUT__SHARD_EXPECTED;
	index->entries[entry].temporary = 0;
	*state = SCOUT__SHARD_WRITING;
	scout__shard_bump(index, entry, rank);
}

static bool
is_taken(uint8_t state)
{
	return state != SCOUT__SHARD_ABSENT && state != SCOUT__SHARD_EXPECTED;
}

enum scout__reserve
scout__index_reserve(struct scout__chunk_index *index, uint32_t space, const uint8_t *hash, uint32_t rank,
		     struct scout__user *user, uint32_t *ret_entry)
{
	uint32_t entry = scout__index_find(index, space, hash);
	enum scout__reserve refused;

	SCOUT_ASSERT(rank < index->n_ranks);
	if (entry == SCOUT__NO_ENTRY) {
		refused = scout__l1_may_store(index) ? scout__index_make_room(index, space, user)
						     : SCOUT__RESERVE_NO_ROOM;
		if (refused) {
			index->l1->refusals += refused == SCOUT__RESERVE_NO_ROOM;
			return refused;
		}
		entry = scout__entry_create(index, space, hash);
	} else if (is_taken(index->shard_state[scout__shard_at(index, entry, rank)])) {
		*ret_entry = entry;
		return SCOUT__RESERVE_PRESENT;
	} else if (index->entries[entry].bare && !index->entries[entry].spoiled) {
		return SCOUT__RESERVE_WAIT;
	} else if (index->entries[entry].bare || index->entries[entry].holds == UINT16_MAX) {
		index->l1->refusals++;
		return SCOUT__RESERVE_NO_ROOM;
	}
	grant(index, entry, rank);
	*ret_entry = entry;
	return SCOUT__RESERVE_GRANTED;
}

bool
scout__index_commit(struct scout__chunk_index *index, uint32_t entry, uint32_t rank)
{
	struct scout__entry *e = &index->entries[entry];
	uint8_t *state = &index->shard_state[scout__shard_at(index, entry, rank)];
	bool is_hit;

	SCOUT_ASSERT(e->in_use && e->holds > 0);
	SCOUT_ASSERT(*state == SCOUT__SHARD_WRITING || *state == SCOUT__SHARD_LOADING);
	e->expected -= *state == SCOUT__SHARD_LOADING;
	*state = SCOUT__SHARD_READABLE;
	e->readable++;
	is_hit = scout__index_is_hit(index, entry);
	if (is_hit)
		scout__index_tell(index, entry, true);
	scout__entry_unheld(index, entry);
	scout__entry_unpin(index, entry);
	return is_hit;
}

void
scout__index_abort(struct scout__chunk_index *index, uint32_t entry, uint32_t rank)
{
	struct scout__entry *e = &index->entries[entry];
	uint8_t *state = &index->shard_state[scout__shard_at(index, entry, rank)];

	SCOUT_ASSERT(e->in_use && e->holds > 0);
	SCOUT_ASSERT(*state == SCOUT__SHARD_WRITING || *state == SCOUT__SHARD_QUARANTINE ||
		     *state == SCOUT__SHARD_LOADING);
	e->expected -= *state == SCOUT__SHARD_LOADING;
	*state = SCOUT__SHARD_ABSENT;
	scout__shard_bump(index, entry, rank);
	scout__entry_unheld(index, entry);
	scout__entry_unpin(index, entry);
}

void
scout__index_quarantine(struct scout__chunk_index *index, uint32_t entry, uint32_t rank)
{
	uint8_t *state = &index->shard_state[scout__shard_at(index, entry, rank)];

	SCOUT_ASSERT(index->entries[entry].in_use && *state == SCOUT__SHARD_WRITING);
	*state = SCOUT__SHARD_QUARANTINE;
}

uint64_t
scout__index_used_bytes(const struct scout__chunk_index *index)
{
	return (uint64_t)(index->n_entries - index->slots.n_bare) * index->chunk_bytes;
}

uint64_t
scout__index_total_bytes(const struct scout__chunk_index *index)
{
	return index->extents.n_slots * index->chunk_bytes;
}

uint64_t
scout__index_own_bytes(const struct scout__chunk_index *index)
{
	uint64_t shard = sizeof(*index->shard_state) + sizeof(*index->slot_gen);

	return index->max_entries * (sizeof(*index->entries) + sizeof(*index->used_by) + shard * index->n_ranks) +
	       (index->table.mask + 1) * sizeof(*index->table.cells) +
	       index->l1->policy->state_bytes(index->order.policy, index->max_entries);
}
