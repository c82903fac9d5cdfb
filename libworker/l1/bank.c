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
 * bank_pins.c.
 *
 * Memory: entries, table, states and generations are reserved for the largest number of chunks that l1_bytes can hold,
 * and cost nothing until they are touched; slots are used in order, so a pool that is half full has touched half of
 * them. So nothing is ever moved or rehashed, and no operation takes longer than the few cache lines that it touches.
 *
 * Rejected: huge pages for the index. They save 5 to 10 % of a lookup, but whoever touches one first waits 300 us
 * until the kernel has cleared it.
 *
 * Slots: 0 .. n_slots - 1 have memory. From next_fresh on they were never used and are on no list, so an extent of a
 * million slots costs nothing when it comes. The free list is last in, first out: what was just evicted is still in
 * the cache.
 *
 * Invariants: see scout__bank_check(), which checks all of them.
 *
 * Threads: loop.
 */

#define MAX_ENTRIES (1u << 31)
#define REGROW_US 1000000u

int
scout__l1_init(struct scout__l1 *l1, uint64_t l1_bytes, uint64_t extent_bytes, uint64_t max_promised,
	       const char *eviction, const struct scout__log *log, char *err, size_t err_len)
{
	const struct scout__evict_ops *policy = scout__evict_find(eviction);

	if (!policy)
		return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE, "eviction: there is no policy \"%s\"",
				   eviction);
	memset(l1, 0, sizeof(*l1));
	l1->policy = policy;
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
	if (!bank->entries || !bank->table || !bank->shard_state || !bank->shard_gen)
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

/* No extent for now: the pool is used up (@regrow_us 0), or getting one failed and is tried again at @regrow_us. */
static void
note_grown_out(struct scout__bank *bank, uint64_t regrow_us)
{
	bank->grown_out = true;
	bank->grown_returns = bank->l1->pool.returns;
	bank->regrow_us = regrow_us;
}

/* Ask for an extent, unless one is coming or there is none to be had. */
static SCOUT_ON_LOOP void
ask_for_room(struct scout__bank *bank)
{
	struct scout__pool *pool = &bank->l1->pool;
	bool returned = bank->grown_returns != pool->returns;
	int asked;

	if (bank->growing)
		return;
	if (bank->n_slots == bank->max_entries) {
		bank->grown_out = true;
		return;
	}
	if (bank->grown_out && bank->regrow_us && !returned && scout__now_us() < bank->regrow_us)
		return;
	asked = scout__pool_want(pool, bank, bank->strides, bank->n_ranks);
	if (asked > 0) {
		bank->growing = true;
		/* What is merely tried again may fail again: grown_out stays, so that stores need not wait for it. */
		if (returned || bank->regrow_us == 0)
			bank->grown_out = false;
	} else if (asked == 0) {
		note_grown_out(bank, 0);
	} else {
		note_grown_out(bank, scout__now_us() + bank->l1->regrow_us);
	}
}

int
scout__bank_new(struct scout__l1 *l1, const uint64_t *shard_bytes, uint32_t n_ranks, uint32_t readers,
		uint32_t hash_bytes, struct scout__bank **ret_bank)
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
	code = measure(bank, shard_bytes);
	if (code)
		goto err_free_strides;
	code = reserve_arrays(bank);
	if (code)
		goto err_release_arrays;
	code = l1->policy->open(&bank->policy_state, bank->entries, bank->max_entries);
	if (code)
		goto err_release_arrays;
	ask_for_room(bank);
	*ret_bank = bank;
	return 0;

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
	scout__pool_disown(&bank->l1->pool, bank);
	for (uint32_t i = 0; i < bank->n_extents; i++)
		scout__extent_free(&bank->l1->pool, bank->extents[i]);
	bank->l1->promised_bytes -= bank->promised_bytes;
	bank->l1->policy->close(bank->policy_state);
	release_arrays(bank);
	free(bank->extents);
	free(bank->extent_first);
	free(bank->strides);
	free(bank);
}

/* Room for one more in the list of extents. */
static bool
extents_fit(struct scout__bank *bank)
{
	uint32_t cap = bank->cap_extents ? bank->cap_extents * 2 : 16;
	struct scout__extent **extents;
	uint32_t *first;

	if (bank->n_extents < bank->cap_extents)
		return true;
	extents = realloc(bank->extents, cap * sizeof(void *));
	if (!extents)
		return false;
	bank->extents = extents;
	first = realloc(bank->extent_first, cap * sizeof(*first));
	if (!first)
		return false;
	bank->extent_first = first;
	bank->cap_extents = cap;
	return true;
}

bool
scout__bank_grow(struct scout__bank *bank, struct scout__extent *extent)
{
	uint32_t slots = extent->slots;

	SCOUT_ASSERT(bank->growing && extent->owner == bank);
	bank->growing = false;
	if (extent->error || !extents_fit(bank)) {
		scout__extent_free(&bank->l1->pool, extent);
		note_grown_out(bank, scout__now_us() + bank->l1->regrow_us);
		return false;
	}
	bank->grown_out = false;
	bank->extents[bank->n_extents] = extent;
	bank->extent_first[bank->n_extents] = bank->n_slots;
	bank->n_extents++;
	/* More than max_entries only where that was cut at MAX_ENTRIES. */
	if (slots > bank->max_entries - bank->n_slots)
		slots = bank->max_entries - bank->n_slots;
	bank->n_slots += slots;
	bank->n_free += slots;
	return true;
}

/* The number of the extent that @entry lies in. */
static uint32_t
extent_of(const struct scout__bank *bank, uint32_t entry)
{
	uint32_t low = 0;
	uint32_t high = bank->n_extents;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (bank->extent_first[middle] <= entry)
			low = middle;
		else
			high = middle;
	}
	return low;
}

struct scout__place
scout__bank_place(const struct scout__bank *bank, uint32_t entry, uint32_t rank)
{
	uint32_t i = extent_of(bank, entry);
	const struct scout__segment *segment = &bank->extents[i]->segments[rank];

	return (struct scout__place){
		.segment = segment->id,
		.offset = segment->data_offset + (entry - bank->extent_first[i]) * segment->stride,
		.generation = bank->shard_gen[scout__shard_at(bank, entry, rank)],
	};
}

/* Where the generation word of a shard lies. */
static _Atomic uint64_t *
shard_word(const struct scout__bank *bank, uint32_t entry, uint32_t rank)
{
	uint32_t i = extent_of(bank, entry);

	return &bank->extents[i]->segments[rank].words[entry - bank->extent_first[i]];
}

void
scout__shard_bump(struct scout__bank *bank, uint32_t entry, uint32_t rank)
{
	uint32_t *gen = &bank->shard_gen[scout__shard_at(bank, entry, rank)];

	if (++*gen == 0)
		*gen = 1;
	/*
	 * Whoever is told afterwards that it may write, is told by a message: that orders this before its first
	 * byte.
	 */
	atomic_store_explicit(shard_word(bank, entry, rank), *gen, memory_order_release);
}

static void
slot_put(struct scout__bank *bank, uint32_t entry)
{
	bank->entries[entry].link[0] = bank->free_head;
	bank->free_head = entry;
	bank->n_free++;
}

static SCOUT_ON_LOOP uint32_t
slot_take(struct scout__bank *bank)
{
	uint32_t entry;
	uint32_t last_slots;

	if (bank->next_fresh < bank->n_slots) {
		entry = bank->next_fresh++;
	} else {
		entry = bank->free_head;
		bank->free_head = bank->entries[entry].link[0];
	}
	bank->n_free--;
	last_slots = bank->n_slots - bank->extent_first[bank->n_extents - 1];
	if (bank->n_free < last_slots / 4)
		ask_for_room(bank);
	return entry;
}

void
scout__entry_discard(struct scout__bank *bank, uint32_t entry)
{
	struct scout__entry *e = &bank->entries[entry];

	SCOUT_ASSERT(e->in_use && e->promises == 0 && e->holds == 0);
	scout__entry_pin(bank, entry);
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
	slot_put(bank, entry);
}

/* See that there is a free slot: grow, else evict. 0, or why there is none. */
static SCOUT_ON_LOOP enum scout__reserve
make_room(struct scout__bank *bank)
{
	uint32_t victim;

	if (bank->n_free > 0)
		return 0;
	ask_for_room(bank);
	/* An extent that comes after one failed may fail like that one; what can be evicted need not wait for it. */
	if (bank->growing && !bank->grown_out)
		return SCOUT__RESERVE_WAIT;
	victim = bank->l1->policy->victim(bank->policy_state);
	if (victim == SCOUT__NO_ENTRY)
		return bank->growing ? SCOUT__RESERVE_WAIT : SCOUT__RESERVE_NO_ROOM;
	scout__entry_discard(bank, victim);
	bank->l1->evictions++;
	return 0;
}

static SCOUT_ON_LOOP uint32_t
entry_create(struct scout__bank *bank, uint32_t space, const uint8_t *hash)
{
	uint32_t entry = slot_take(bank);
	struct scout__entry *e = &bank->entries[entry];

	*e = (struct scout__entry){.space = space, .gen = e->gen + 1, .in_use = 1};
	memcpy(e->hash, hash, bank->hash_bytes);
	scout__table_insert(bank, entry);
	bank->n_entries++;
	return entry;
}

/* The shard is absent, its entry may be pinned once more. */
static SCOUT_ON_LOOP void
grant(struct scout__bank *bank, uint32_t entry, uint32_t rank)
{
	scout__entry_pin(bank, entry);
	bank->entries[entry].holds++;
	bank->shard_state[scout__shard_at(bank, entry, rank)] = SCOUT__SHARD_WRITING;
	scout__shard_bump(bank, entry, rank);
}

enum scout__reserve
scout__bank_reserve(struct scout__bank *bank, uint32_t space, const uint8_t *hash, uint32_t rank, uint32_t *ret_entry)
{
	uint32_t entry = scout__bank_find(bank, space, hash);
	enum scout__reserve refused;

	SCOUT_ASSERT(rank < bank->n_ranks);
	if (entry == SCOUT__NO_ENTRY) {
		refused = make_room(bank);
		if (refused) {
			bank->l1->refusals += refused == SCOUT__RESERVE_NO_ROOM;
			return refused;
		}
		entry = entry_create(bank, space, hash);
	} else if (bank->shard_state[scout__shard_at(bank, entry, rank)] != SCOUT__SHARD_ABSENT) {
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

	SCOUT_ASSERT(e->in_use && e->holds > 0 && *state == SCOUT__SHARD_WRITING);
	*state = SCOUT__SHARD_READABLE;
	e->readable++;
	e->holds--;
	scout__entry_unpin(bank, entry);
	return e->readable == bank->n_ranks;
}

void
scout__bank_abort(struct scout__bank *bank, uint32_t entry, uint32_t rank)
{
	struct scout__entry *e = &bank->entries[entry];
	uint8_t *state = &bank->shard_state[scout__shard_at(bank, entry, rank)];

	SCOUT_ASSERT(e->in_use && e->holds > 0);
	SCOUT_ASSERT(*state == SCOUT__SHARD_WRITING || *state == SCOUT__SHARD_QUARANTINE);
	*state = SCOUT__SHARD_ABSENT;
	scout__shard_bump(bank, entry, rank);
	e->holds--;
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

	return bank->max_entries * (sizeof(*bank->entries) + shard * bank->n_ranks) +
	       (bank->table_mask + 1) * sizeof(*bank->table);
}

/* The states of one entry's shards against its counts and the shared words. */
static SCOUT_ON_LOOP void
check_shards(const struct scout__bank *bank, uint32_t entry)
{
	const struct scout__entry *e = &bank->entries[entry];
	uint32_t readable = 0;
	uint32_t writers = 0;

	for (uint32_t rank = 0; rank < bank->n_ranks; rank++) {
		uint64_t at = scout__shard_at(bank, entry, rank);
		uint8_t state = bank->shard_state[at];

		SCOUT_ASSERT(state <= SCOUT__SHARD_QUARANTINE);
		readable += state == SCOUT__SHARD_READABLE;
		writers += state == SCOUT__SHARD_WRITING || state == SCOUT__SHARD_QUARANTINE;
		SCOUT_ASSERT(state == SCOUT__SHARD_ABSENT || bank->shard_gen[at] != 0);
		SCOUT_ASSERT(atomic_load_explicit(shard_word(bank, entry, rank), memory_order_relaxed) ==
			     bank->shard_gen[at]);
	}
	SCOUT_ASSERT(readable == e->readable);
	SCOUT_ASSERT(writers <= e->holds || !e->in_use);
	SCOUT_ASSERT(e->in_use || (readable == 0 && writers == 0));
}

static void
check_free_list(const struct scout__bank *bank)
{
	uint32_t n = bank->n_slots - bank->next_fresh;

	for (uint32_t at = bank->free_head; at != SCOUT__NO_ENTRY; at = bank->entries[at].link[0]) {
		SCOUT_ASSERT(at < bank->next_fresh && !bank->entries[at].in_use);
		SCOUT_ASSERT(n < bank->n_free);
		n++;
	}
	SCOUT_ASSERT(n == bank->n_free);
}

static void
check_extents(const struct scout__bank *bank)
{
	uint64_t slots = 0;

	for (uint32_t i = 0; i < bank->n_extents; i++) {
		SCOUT_ASSERT(bank->extent_first[i] == slots);
		slots += bank->extents[i]->slots;
	}
	SCOUT_ASSERT(slots == bank->n_slots || bank->n_slots == bank->max_entries);
	SCOUT_ASSERT(bank->l1->pool.used_bytes <= bank->l1->pool.l1_bytes);
}

void
scout__bank_check(const struct scout__bank *bank)
{
	uint64_t promised_bytes = 0;
	uint32_t in_use = 0;
	uint32_t in_order = 0;

	check_extents(bank);
	SCOUT_ASSERT(bank->next_fresh <= bank->n_slots && bank->n_slots <= bank->max_entries);
	for (uint32_t entry = 0; entry < bank->n_slots; entry++) {
		const struct scout__entry *e = &bank->entries[entry];
		bool pinned = e->promises > 0 || e->holds > 0;

		check_shards(bank, entry);
		SCOUT_ASSERT(entry < bank->next_fresh || !e->in_use);
		if (!e->in_use) {
			SCOUT_ASSERT(!pinned && !e->in_order);
			continue;
		}
		SCOUT_ASSERT(scout__bank_find(bank, e->space, e->hash) == entry);
		SCOUT_ASSERT(e->in_order == !pinned && (pinned || (e->readable > 0 && e->stored)));
		promised_bytes += e->promises > 0 ? bank->chunk_bytes : 0;
		in_use++;
		in_order += e->in_order;
	}
	SCOUT_ASSERT(in_use == bank->n_entries && in_use + bank->n_free == bank->n_slots);
	SCOUT_ASSERT(scout__table_check(bank) == in_use);
	SCOUT_ASSERT(promised_bytes == bank->promised_bytes && promised_bytes <= bank->l1->promised_bytes);
	SCOUT_ASSERT(bank->l1->promised_bytes <= bank->l1->max_promised);
	check_free_list(bank);
	bank->l1->policy->check(bank->policy_state, in_order);
}
