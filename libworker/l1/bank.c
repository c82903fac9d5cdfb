/* SPDX-License-Identifier: Apache-2.0 */
#include "bank.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bank_private.h"
#include "clock.h"

/*
 * DESIGN
 *
 * Purpose: the life of an entry: room for it, its shards' states, its end. The index is in bank_table.c, pins are in
 * bank_pins.c, slots and extents in bank_extents.c; what banks take from each other is in share.c.
 *
 * Memory: entries, table, states and generations are reserved for the largest number of chunks that l1_bytes can hold,
 * and cost nothing until they are touched; slots are used in order, so a pool that is half full has touched half of
 * them. So nothing is ever moved or rehashed, and no operation takes longer than the few cache lines that it touches.
 *
 * Rejected: huge pages for the index. They save 5 to 10 % of a lookup, but whoever touches one first waits 300 us
 * until the kernel has cleared it.
 *
 * Invariants: see scout__bank_check(), which checks all of them.
 *
 * Threads: loop.
 */

#define MAX_ENTRIES SCOUT__MAX_QUEUED
#define REGROW_US 1000000u
#define VICTIMS 64u /* in the extent that is on its way out, before a store waits for the rest to go */

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
	SCOUT_ASSERT(l1->promised_bytes == 0);
}

/* @n elements of zeroes that cost nothing until touched; NULL when there is no address space. */
static void *
reserve_array(uint64_t n, size_t size)
{
	uint64_t bytes;
	void *p;

	if (__builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX)
		return NULL;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

static void
release_array(void *p, uint64_t n, size_t size)
{
	if (p)
		(void)munmap(p, n * size);
}

static int
reserve_arrays(struct scout__bank *bank)
{
	uint64_t cells = scout__table_cells(bank->max_entries);
	uint64_t shards = (uint64_t)bank->max_entries * bank->n_ranks;

	bank->table_mask = cells - 1;
	bank->entries = reserve_array(bank->max_entries, sizeof(*bank->entries));
	bank->table = reserve_array(cells, sizeof(*bank->table));
	bank->shard_state = reserve_array(shards, sizeof(*bank->shard_state));
	bank->shard_gen = reserve_array(shards, sizeof(*bank->shard_gen));
	bank->used_by = reserve_array(bank->max_entries, sizeof(*bank->used_by));
	if (!bank->entries || !bank->table || !bank->shard_state || !bank->shard_gen || !bank->used_by)
		return SCOUT_ERR_NOMEM;
	return 0;
}

static void
release_arrays(struct scout__bank *bank)
{
	uint64_t shards = (uint64_t)bank->max_entries * bank->n_ranks;

	release_array(bank->entries, bank->max_entries, sizeof(*bank->entries));
	release_array(bank->table, bank->table_mask + 1, sizeof(*bank->table));
	release_array(bank->shard_state, shards, sizeof(*bank->shard_state));
	release_array(bank->shard_gen, shards, sizeof(*bank->shard_gen));
	release_array(bank->used_by, bank->max_entries, sizeof(*bank->used_by));
}

/* Sets strides, chunk_bytes and max_entries. */
static int
measure(struct scout__bank *bank, const uint64_t *shard_bytes)
{
	uint64_t l1_bytes = bank->l1->pool.l1_bytes;
	uint64_t max_entries;

	for (uint32_t rank = 0; rank < bank->n_ranks; rank++) {
		bank->strides[rank] = scout__slot_stride(shard_bytes[rank]);
		if (__builtin_add_overflow(bank->chunk_bytes, bank->strides[rank], &bank->chunk_bytes))
			return SCOUT_ERR_NO_ROOM;
	}
	max_entries = l1_bytes / bank->chunk_bytes;
	if (max_entries == 0)
		return SCOUT_ERR_NO_ROOM;
	bank->max_entries = (uint32_t)(max_entries < MAX_ENTRIES ? max_entries : MAX_ENTRIES);
	return 0;
}

int
scout__bank_new(struct scout__l1 *l1, const uint64_t *shard_bytes, uint32_t n_ranks, uint32_t readers,
		uint32_t hash_bytes, struct scout__bank **ret_bank)
{
	return scout__bank_new_on(l1, shard_bytes, NULL, n_ranks, readers, hash_bytes, ret_bank);
}

int
scout__bank_new_on(struct scout__l1 *l1, const uint64_t *shard_bytes, const uint16_t *nodes, uint32_t n_ranks,
		   uint32_t readers, uint32_t hash_bytes, struct scout__bank **ret_bank)
{
	struct scout__bank *bank;
	int code;

	SCOUT_ASSERT(n_ranks >= 1 && n_ranks <= SCOUT_MAX_RANKS && readers >= 1 && readers <= SCOUT_MAX_READERS);
	SCOUT_ASSERT(hash_bytes >= SCOUT_MIN_HASH && hash_bytes <= SCOUT_MAX_HASH);
	bank = calloc(1, sizeof(*bank));
	if (!bank)
		return SCOUT_ERR_NOMEM;
	bank->l1 = l1;
	bank->n_ranks = n_ranks;
	bank->readers = readers;
	bank->hash_bytes = hash_bytes;
	bank->free_head = SCOUT__NO_ENTRY;
	bank->strides = calloc(n_ranks, sizeof(*bank->strides));
	if (!bank->strides) {
		code = SCOUT_ERR_NOMEM;
		goto err_free_bank;
	}
	if (nodes)
		memcpy(bank->nodes, nodes, n_ranks * sizeof(nodes[0]));
	code = measure(bank, shard_bytes);
	if (code)
		goto err_free_strides;
	code = reserve_arrays(bank);
	if (code)
		goto err_release_arrays;
	code = l1->policy->open(&bank->policy_state, bank->entries, bank->max_entries, &l1->policy_args);
	if (code)
		goto err_release_arrays;
	code = scout__queues_init(&bank->temporary, &bank->entries[0].node, sizeof(bank->entries[0]),
				  bank->max_entries);
	if (code)
		goto err_close_policy;
	scout__share_join(bank);
	scout__bank_ask(bank);
	*ret_bank = bank;
	return 0;

err_close_policy:
	l1->policy->close(bank->policy_state);
err_release_arrays:
	release_arrays(bank);
err_free_strides:
	free(bank->strides);
err_free_bank:
	free(bank);
	return code;
}

void
scout__bank_free(struct scout__bank *bank)
{
	if (!bank)
		return;
	scout__share_leave(bank);
	scout__pool_disown(&bank->l1->pool, bank);
	for (uint32_t i = 0; i < bank->n_extents; i++)
		scout__extent_free(&bank->l1->pool, bank->extents[i]);
	bank->l1->promised_bytes -= bank->promised_bytes;
	scout__queues_fini(&bank->temporary);
	bank->l1->policy->close(bank->policy_state);
	release_arrays(bank);
	free(bank->extents);
	free(bank->by_age);
	free(bank->extent_first);
	free(bank->strides);
	free(bank);
}

void
scout__entry_discard(struct scout__bank *bank, uint32_t entry)
{
	struct scout__entry *e = &bank->entries[entry];

	SCOUT_ASSERT(e->in_use && e->promises == 0 && e->holds == 0 && e->saving == 0 && e->expected == 0);
	if (e->in_order)
		scout__order_remove(bank, entry, SCOUT__REMOVE_GONE);
	scout__table_remove(bank, entry);
	for (uint32_t rank = 0; rank < bank->n_ranks; rank++) {
		uint8_t *state = &bank->shard_state[scout__shard_at(bank, entry, rank)];

		if (*state == SCOUT__SHARD_ABSENT)
			continue;
		*state = SCOUT__SHARD_ABSENT;
		scout__shard_bump(bank, entry, rank);
	}
	e->in_use = 0;
	e->readable = 0;
	e->gen++;
	bank->n_entries--;
	scout__slot_put(bank, entry);
}

static SCOUT_ON_LOOP bool
is_own(const struct scout__bank *bank, uint32_t entry, const struct scout__user *user)
{
	return user && user->number && bank->used_by[entry].number == user->number && !bank->entries[entry].temporary;
}

/*
 * Let what @user has at the head of the order become the newest. 0: something else is at the head, or nothing; or why there
 * is no victim.
 */
static SCOUT_ON_LOOP enum scout__reserve
spare_own(struct scout__bank *bank, struct scout__user *user)
{
	uint32_t entry;

	while ((entry = scout__order_victim(bank)) != SCOUT__NO_ENTRY && is_own(bank, entry, user)) {
		/* One that became the newest in this turn, by whomever: nothing is left that should rather go. */
		if (bank->used_by[entry].turn >= user->turn)
			return SCOUT__RESERVE_NO_ROOM;
		if (user->spares == 0)
			return SCOUT__RESERVE_AGAIN;
		user->spares--;
		bank->used_by[entry].turn = bank->turn & ((UINT64_C(1) << SCOUT__TURN_BITS) - 1);
		scout__order_remove(bank, entry, SCOUT__REMOVE_PINNED);
		scout__order_insert(bank, entry);
	}
	return 0;
}

enum scout__reserve
scout__bank_make_room(struct scout__bank *bank, struct scout__user *user)
{
	unsigned tries = VICTIMS;
	enum scout__reserve refused;
	uint32_t victim;
	bool needy;

	if (bank->n_free > 0)
		return 0;
	scout__bank_ask(bank);
	/* An extent that comes after one failed may fail like that one; what can be evicted need not wait for it. */
	if (bank->growing && !bank->grown_out)
		return SCOUT__RESERVE_WAIT;
	needy = scout__share_ask(bank);
	do {
		refused = spare_own(bank, user);
		if (refused == SCOUT__RESERVE_AGAIN)
			return refused;
		victim = scout__order_victim(bank);
		if (refused || victim == SCOUT__NO_ENTRY)
			return bank->growing || needy || bank->n_saving ? SCOUT__RESERVE_WAIT : SCOUT__RESERVE_NO_ROOM;
		if (bank->entries[victim].saving) {
			/* It is back when it is written: see scout__bank_saved(). */
			scout__order_remove(bank, victim, SCOUT__REMOVE_PINNED);
			continue;
		}
		scout__entry_discard(bank, victim);
		scout__order_load_ahead(bank);
		bank->l1->evictions++;
		/* None came free when it lay in the extent that is on its way out. */
	} while (bank->n_free == 0 && --tries > 0);
	/* The rest of that extent goes soon, and the store is told. */
	return bank->n_free == 0 ? SCOUT__RESERVE_WAIT : 0;
}

uint32_t
scout__entry_create(struct scout__bank *bank, uint32_t space, const uint8_t *hash)
{
	uint32_t entry = scout__slot_take(bank);
	struct scout__entry *e = &bank->entries[entry];

	*e = (struct scout__entry){.space = space, .gen = e->gen + 1, .in_use = 1};
	bank->used_by[entry].number = 0;
	memcpy(e->hash, hash, bank->hash_bytes);
	scout__table_insert(bank, entry);
	bank->n_entries++;
	return entry;
}

/* The shard is absent or expected, its entry may be pinned once more. */
static SCOUT_ON_LOOP void
grant(struct scout__bank *bank, uint32_t entry, uint32_t rank)
{
	uint8_t *state = &bank->shard_state[scout__shard_at(bank, entry, rank)];

	scout__entry_pin(bank, entry);
	scout__entry_held(bank, entry);
	bank->entries[entry].expected -= *state == SCOUT__SHARD_EXPECTED;
	bank->entries[entry].temporary = 0;
	*state = SCOUT__SHARD_WRITING;
	scout__shard_bump(bank, entry, rank);
}

static bool
is_taken(uint8_t state)
{
	return state != SCOUT__SHARD_ABSENT && state != SCOUT__SHARD_EXPECTED;
}

enum scout__reserve
scout__bank_reserve(struct scout__bank *bank, uint32_t space, const uint8_t *hash, uint32_t rank, uint32_t *ret_entry)
{
	return scout__bank_reserve_for(bank, space, hash, rank, NULL, ret_entry);
}

enum scout__reserve
scout__bank_reserve_for(struct scout__bank *bank, uint32_t space, const uint8_t *hash, uint32_t rank,
			struct scout__user *user, uint32_t *ret_entry)
{
	uint32_t entry = scout__bank_find(bank, space, hash);
	enum scout__reserve refused;

	SCOUT_ASSERT(rank < bank->n_ranks);
	if (entry == SCOUT__NO_ENTRY) {
		refused = scout__bank_make_room(bank, user);
		if (refused) {
			bank->l1->refusals += refused == SCOUT__RESERVE_NO_ROOM;
			return refused;
		}
		entry = scout__entry_create(bank, space, hash);
	} else if (is_taken(bank->shard_state[scout__shard_at(bank, entry, rank)])) {
		*ret_entry = entry;
		return SCOUT__RESERVE_PRESENT;
	} else if (bank->entries[entry].holds == UINT16_MAX) {
		bank->l1->refusals++;
		return SCOUT__RESERVE_NO_ROOM;
	}
	grant(bank, entry, rank);
	*ret_entry = entry;
	return SCOUT__RESERVE_GRANTED;
}

bool
scout__bank_commit(struct scout__bank *bank, uint32_t entry, uint32_t rank)
{
	struct scout__entry *e = &bank->entries[entry];
	uint8_t *state = &bank->shard_state[scout__shard_at(bank, entry, rank)];

	SCOUT_ASSERT(e->in_use && e->holds > 0);
	SCOUT_ASSERT(*state == SCOUT__SHARD_WRITING || *state == SCOUT__SHARD_LOADING);
	e->expected -= *state == SCOUT__SHARD_LOADING;
	*state = SCOUT__SHARD_READABLE;
	e->readable++;
	scout__entry_unheld(bank, entry);
	scout__entry_unpin(bank, entry);
	return scout__bank_is_hit(bank, entry);
}

void
scout__bank_abort(struct scout__bank *bank, uint32_t entry, uint32_t rank)
{
	struct scout__entry *e = &bank->entries[entry];
	uint8_t *state = &bank->shard_state[scout__shard_at(bank, entry, rank)];

	SCOUT_ASSERT(e->in_use && e->holds > 0);
	SCOUT_ASSERT(*state == SCOUT__SHARD_WRITING || *state == SCOUT__SHARD_QUARANTINE ||
		     *state == SCOUT__SHARD_LOADING);
	e->expected -= *state == SCOUT__SHARD_LOADING;
	*state = SCOUT__SHARD_ABSENT;
	scout__shard_bump(bank, entry, rank);
	scout__entry_unheld(bank, entry);
	scout__entry_unpin(bank, entry);
}

void
scout__bank_quarantine(struct scout__bank *bank, uint32_t entry, uint32_t rank)
{
	uint8_t *state = &bank->shard_state[scout__shard_at(bank, entry, rank)];

	SCOUT_ASSERT(bank->entries[entry].in_use && *state == SCOUT__SHARD_WRITING);
	*state = SCOUT__SHARD_QUARANTINE;
}

uint64_t
scout__bank_used_bytes(const struct scout__bank *bank)
{
	return bank->n_entries * bank->chunk_bytes;
}

uint64_t
scout__bank_total_bytes(const struct scout__bank *bank)
{
	return bank->n_slots * bank->chunk_bytes;
}

uint64_t
scout__bank_index_bytes(const struct scout__bank *bank)
{
	uint64_t shard = sizeof(*bank->shard_state) + sizeof(*bank->shard_gen);

	return bank->max_entries * (sizeof(*bank->entries) + sizeof(*bank->used_by) + shard * bank->n_ranks) +
	       (bank->table_mask + 1) * sizeof(*bank->table) + bank->l1->policy->state_bytes(bank->policy_state);
}

/* The states of one entry's shards against its counts and the shared words. */
static SCOUT_ON_LOOP void
check_shards(const struct scout__bank *bank, uint32_t entry)
{
	const struct scout__entry *e = &bank->entries[entry];
	uint32_t readable = 0;
	uint32_t expected = 0;
	uint32_t writers = 0;

	for (uint32_t rank = 0; rank < bank->n_ranks; rank++) {
		uint64_t at = scout__shard_at(bank, entry, rank);
		uint8_t state = bank->shard_state[at];

		SCOUT_ASSERT(state <= SCOUT__SHARD_LOADING);
		readable += state == SCOUT__SHARD_READABLE;
		expected += state == SCOUT__SHARD_EXPECTED || state == SCOUT__SHARD_LOADING;
		writers += state == SCOUT__SHARD_WRITING || state == SCOUT__SHARD_QUARANTINE ||
			   state == SCOUT__SHARD_LOADING;
		SCOUT_ASSERT(!is_taken(state) || bank->shard_gen[at] != 0);
		SCOUT_ASSERT(scout__shard_word_is(bank, entry, rank, bank->shard_gen[at]));
	}
	SCOUT_ASSERT(readable == e->readable && expected == e->expected);
	SCOUT_ASSERT(writers <= e->holds || !e->in_use);
	SCOUT_ASSERT(e->in_use || (readable == 0 && writers == 0));
}

static SCOUT_ON_LOOP void
check_entry(const struct scout__bank *bank, uint32_t entry)
{
	const struct scout__entry *e = &bank->entries[entry];
	bool pinned = scout__entry_is_pinned(e);

	check_shards(bank, entry);
	if (!e->in_use) {
		SCOUT_ASSERT(!pinned && !e->in_order);
		return;
	}
	SCOUT_ASSERT(!e->is_free && scout__bank_find(bank, e->space, e->hash) == entry);
	SCOUT_ASSERT(pinned ? !e->in_order && (e->expected == 0 || e->tracked) : e->in_order || e->saving);
	SCOUT_ASSERT(pinned || (e->readable > 0 && e->expected == 0 && (e->stored || e->temporary)));
	SCOUT_ASSERT(pinned || e->saving || !e->spoiled);
}

void
scout__bank_check(const struct scout__bank *bank)
{
	uint64_t promised_bytes = 0;
	uint64_t held_bytes = 0;
	uint32_t in_use = 0;
	uint32_t in_order = 0;
	uint32_t saving = 0;
	uint32_t out = 0; /* of the extent that is on its way out: neither used nor free */

	scout__extents_check(bank);
	for (uint32_t i = 0; i < bank->n_extents; i++) {
		const struct scout__extent *extent = bank->extents[i];

		for (uint32_t entry = extent->first; entry < extent->first + extent->fresh; entry++) {
			const struct scout__entry *e = &bank->entries[entry];

			check_entry(bank, entry);
			promised_bytes += e->promises > 0 ? bank->chunk_bytes : 0;
			held_bytes += e->holds > 0 ? bank->chunk_bytes : 0;
			in_use += e->in_use;
			in_order += e->in_order;
			saving += e->saving > 0 && !e->stuck;
			out += !e->in_use && !e->is_free;
		}
		if (extent == bank->leaving)
			out += extent->slots - extent->fresh;
	}
	SCOUT_ASSERT(in_use == bank->n_entries && in_use + bank->n_free + out == bank->n_slots);
	SCOUT_ASSERT(out == 0 || bank->l1->retire.donor == bank);
	SCOUT_ASSERT(scout__table_check(bank) == in_use);
	SCOUT_ASSERT(promised_bytes == bank->promised_bytes && promised_bytes <= bank->l1->promised_bytes);
	SCOUT_ASSERT(bank->l1->promised_bytes <= bank->l1->max_promised);
	SCOUT_ASSERT(held_bytes == bank->held_bytes && saving == bank->n_saving);
	scout__queues_check(&bank->temporary);
	bank->l1->policy->check(bank->policy_state, in_order - bank->temporary.n[0]);
}
