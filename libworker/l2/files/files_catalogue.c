/* SPDX-License-Identifier: Apache-2.0 */
#include "files_catalogue.h"

#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>

#include "clock.h"
#include "thread.h"

/*
 * DESIGN
 *
 * Purpose: answer existence in well under a microsecond a key whatever the disk does, and decide who may touch which name and
 * what is evicted.
 *
 * One mutex. It is held for table work only, by the adapter's own threads; the server's loop never comes here. Long batches
 * let it go every SLICE keys. Rejected: a lock for each shard - the order of use is one list over all of them, and a
 * million answers a second are far beyond what lookups ask.
 *
 * Digests are uniform, so their low byte picks a shard and the next 32 bits are home cell and tag; cells carry the tag, so that
 * growing a shard reads no entries: 40,000 cells (of 10 million objects) move in a fraction of a millisecond, and only
 * one of 256 shards at a time. Entries live in slabs that never move: an index is a name for as long as the entry
 * lives. About 75 bytes for each object in all.
 *
 * Claims: whoever changes a name on disk has claimed it, so two stores of one key, an eviction and a store, or the scan and
 * a store never meet in the folder. Whoever holds a claim never waits for another one: no deadlock.
 *
 * Pinned objects are not in the order of use: evicting is O(1), and one that loses its last pin was used last. Of one batch
 * that is the first key, so that the head of a shared prefix is the last to be evicted.
 *
 * Threads: any.
 */

#define SLAB 4096u
#define SLICE 256u
#define FIRST_CELLS 64u
#define STALE_S 60u

enum cat_state {
	FREE = 0,
	PRESENT,
	BUSY,
	GONE
};

struct scout__cat_entry {
	struct scout__l2_digest digest;
	uint64_t bytes;   /* counted in cat->used */
	uint64_t version; /* new with each publish and adopt */
	uint32_t pins;
	uint32_t newer, older; /* NONE at the ends, and while not in the order */
	uint32_t stamped_s;    /* when its recency was last written to disk */
	uint8_t state;
	bool is_cold; /* adopted and not used since */
};

struct scout__cat_cell {
	uint32_t entry_plus_1; /* 0: free */
	uint32_t tag;
};

/* ---- entries ---- */

static struct scout__cat_entry *
entry_of(const struct scout__cat *cat, uint32_t i)
{
	return &cat->slabs[i / SLAB][i % SLAB];
}

static bool
add_slab(struct scout__cat *cat)
{
	struct scout__cat_entry *slab;

	if (cat->n_slabs == UINT32_MAX / SLAB)
		return false;
	if (cat->n_slabs == cat->slabs_cap) {
		uint32_t cap = cat->slabs_cap ? cat->slabs_cap * 2 : 16;
		struct scout__cat_entry **slabs = realloc(cat->slabs, cap * sizeof(struct scout__cat_entry *));

		if (!slabs)
			return false;
		cat->slabs = slabs;
		cat->slabs_cap = cap;
	}
	slab = calloc(SLAB, sizeof(*slab));
	if (!slab)
		return false;
	for (uint32_t i = 0; i < SLAB; i++)
		slab[i].older = i + 1 < SLAB ? cat->n_slabs * SLAB + i + 1 : cat->free;
	cat->slabs[cat->n_slabs] = slab;
	cat->free = cat->n_slabs * SLAB;
	cat->n_slabs++;
	return true;
}

/* ---- the table ---- */

static struct scout__cat_shard *
shard_of(struct scout__cat *cat, struct scout__l2_digest digest)
{
	return &cat->shards[digest.lo % SCOUT__CAT_SHARDS];
}

static uint32_t
tag_of(struct scout__l2_digest digest)
{
	return (uint32_t)(digest.lo >> 8);
}

static bool
is_of(const struct scout__cat_entry *entry, struct scout__l2_digest digest)
{
	return entry->digest.lo == digest.lo && entry->digest.hi == digest.hi;
}

/* The cell of @digest, or the free one where it would go. The shard has cells, and a free one. */
static uint32_t
cell_of(const struct scout__cat *cat, const struct scout__cat_shard *shard, struct scout__l2_digest digest)
{
	uint32_t tag = tag_of(digest);
	uint32_t i = tag & shard->mask;

	for (;; i = (i + 1) & shard->mask) {
		const struct scout__cat_cell *cell = &shard->cells[i];

		if (cell->entry_plus_1 == 0)
			return i;
		if (cell->tag == tag && is_of(entry_of(cat, cell->entry_plus_1 - 1), digest))
			return i;
	}
}

static uint32_t
find(struct scout__cat *cat, struct scout__l2_digest digest)
{
	const struct scout__cat_shard *shard = shard_of(cat, digest);

	if (!shard->cells)
		return SCOUT__CAT_NONE;
	return shard->cells[cell_of(cat, shard, digest)].entry_plus_1 - 1;
}

static bool
grow(struct scout__cat_shard *shard)
{
	uint32_t size = shard->cells ? (shard->mask + 1) * 2 : FIRST_CELLS;
	struct scout__cat_cell *cells = size ? calloc(size, sizeof(*cells)) : NULL;

	if (!cells)
		return false;
	for (uint32_t i = 0; shard->cells && i <= shard->mask; i++) {
		uint32_t to = shard->cells[i].tag & (size - 1);

		if (shard->cells[i].entry_plus_1 == 0)
			continue;
		while (cells[to].entry_plus_1)
			to = (to + 1) & (size - 1);
		cells[to] = shard->cells[i];
	}
	free(shard->cells);
	shard->cells = cells;
	shard->mask = size - 1;
	return true;
}

/* A new entry for a digest that has none: BUSY, not pinned. NONE: no memory. */
static uint32_t
insert(struct scout__cat *cat, struct scout__l2_digest digest)
{
	struct scout__cat_shard *shard = shard_of(cat, digest);
	struct scout__cat_entry *entry;
	uint32_t i, cell;

	/* Where there is no memory to grow, a fuller table is better than none; one cell must stay free. */
	if ((!shard->cells || shard->n >= (shard->mask + 1) / 4 * 3) && !grow(shard) &&
	    (!shard->cells || shard->n >= shard->mask))
		return SCOUT__CAT_NONE;
	if (cat->free == SCOUT__CAT_NONE && !add_slab(cat))
		return SCOUT__CAT_NONE;
	i = cat->free;
	entry = entry_of(cat, i);
	cat->free = entry->older;
	*entry = (struct scout__cat_entry){
		.digest = digest, .newer = SCOUT__CAT_NONE, .older = SCOUT__CAT_NONE, .state = BUSY};
	cell = cell_of(cat, shard, digest);
	shard->cells[cell] = (struct scout__cat_cell){.entry_plus_1 = i + 1, .tag = tag_of(digest)};
	shard->n++;
	return i;
}

/* Backward-shift deletion: no tombstones, so nothing gets slower with age. */
static void
forget(struct scout__cat *cat, uint32_t i)
{
	struct scout__cat_entry *entry = entry_of(cat, i);
	struct scout__cat_shard *shard = shard_of(cat, entry->digest);
	uint32_t hole = cell_of(cat, shard, entry->digest);

	for (uint32_t at = (hole + 1) & shard->mask; shard->cells[at].entry_plus_1; at = (at + 1) & shard->mask) {
		uint32_t home = shard->cells[at].tag & shard->mask;

		if (((at - home) & shard->mask) < ((at - hole) & shard->mask))
			continue; /* its home lies behind the hole */
		shard->cells[hole] = shard->cells[at];
		hole = at;
	}
	shard->cells[hole] = (struct scout__cat_cell){0};
	shard->n--;
	entry->state = FREE;
	entry->older = cat->free;
	cat->free = i;
}

/* ---- the order of use ---- */

static void
unlink_entry(struct scout__cat *cat, uint32_t i)
{
	struct scout__cat_entry *entry = entry_of(cat, i);

	if (entry->newer != SCOUT__CAT_NONE)
		entry_of(cat, entry->newer)->older = entry->older;
	else
		cat->newest = entry->older;
	if (entry->older != SCOUT__CAT_NONE)
		entry_of(cat, entry->older)->newer = entry->newer;
	else
		cat->oldest = entry->newer;
	entry->newer = entry->older = SCOUT__CAT_NONE;
}

static void
link_newest(struct scout__cat *cat, uint32_t i)
{
	struct scout__cat_entry *entry = entry_of(cat, i);

	entry->older = cat->newest;
	if (cat->newest != SCOUT__CAT_NONE)
		entry_of(cat, cat->newest)->newer = i;
	else
		cat->oldest = i;
	cat->newest = i;
}

static void
link_oldest(struct scout__cat *cat, uint32_t i)
{
	struct scout__cat_entry *entry = entry_of(cat, i);

	entry->newer = cat->oldest;
	if (cat->oldest != SCOUT__CAT_NONE)
		entry_of(cat, cat->oldest)->older = i;
	else
		cat->newest = i;
	cat->oldest = i;
}

/* Of a PRESENT entry. */
static void
touch(struct scout__cat *cat, uint32_t i)
{
	struct scout__cat_entry *entry = entry_of(cat, i);

	entry->is_cold = false;
	if (entry->pins || cat->newest == i)
		return;
	unlink_entry(cat, i);
	link_newest(cat, i);
}

/* ---- states ---- */

static void
count_objects(struct scout__cat *cat, uint64_t change)
{
	/* One writer at a time: the mutex is held. */
	atomic_store_explicit(&cat->n_objects, atomic_load_explicit(&cat->n_objects, memory_order_relaxed) + change,
			      memory_order_relaxed);
}

static void
count_pinned(struct scout__cat *cat, uint64_t change)
{
	atomic_store_explicit(&cat->n_pinned, atomic_load_explicit(&cat->n_pinned, memory_order_relaxed) + change,
			      memory_order_relaxed);
}

static void
set_bytes(struct scout__cat *cat, struct scout__cat_entry *entry, uint64_t bytes)
{
	cat->used = cat->used - entry->bytes + bytes;
	entry->bytes = bytes;
	atomic_store_explicit(&cat->bytes, cat->used, memory_order_relaxed);
}

static void
present_to_busy(struct scout__cat *cat, uint32_t i)
{
	struct scout__cat_entry *entry = entry_of(cat, i);

	if (entry->pins == 0)
		unlink_entry(cat, i);
	entry->state = BUSY;
	count_objects(cat, UINT64_MAX);
}

static struct scout__cat_entry *
busy_to_present(struct scout__cat *cat, uint32_t i)
{
	struct scout__cat_entry *entry = entry_of(cat, i);

	SCOUT_ASSERT(entry->state == BUSY);
	entry->state = PRESENT;
	entry->version = ++cat->versions;
	count_objects(cat, 1);
	if (cat->waiters)
		(void)pthread_cond_broadcast(&cat->unclaimed);
	return entry;
}

static void
add_pin(struct scout__cat *cat, uint32_t i)
{
	struct scout__cat_entry *entry = entry_of(cat, i);

	entry->is_cold = false;
	if (entry->pins++ > 0)
		return;
	if (entry->state == PRESENT)
		unlink_entry(cat, i);
	count_pinned(cat, 1);
}

static void
take_pin(struct scout__cat *cat, uint32_t i)
{
	struct scout__cat_entry *entry = entry_of(cat, i);

	if (entry->pins == 0 || --entry->pins > 0)
		return;
	count_pinned(cat, UINT64_MAX);
	if (entry->state == PRESENT)
		link_newest(cat, i);
	else if (entry->state == GONE)
		forget(cat, i);
}

/* ---- the interface ---- */

static void
lock(struct scout__cat *cat)
{
	SCOUT_ASSERT(pthread_mutex_lock(&cat->mu) == 0);
}

static void
unlock(struct scout__cat *cat)
{
	SCOUT_ASSERT(pthread_mutex_unlock(&cat->mu) == 0);
}

/* In a long batch, let others have the mutex now and then. */
static void
breathe(struct scout__cat *cat, uint32_t i)
{
	if (i % SLICE == 0 && i > 0) {
		unlock(cat);
		lock(cat);
	}
}

int
scout__cat_init(struct scout__cat *cat, uint64_t max_bytes)
{
	pthread_condattr_t attr;

	memset(cat, 0, sizeof(*cat));
	cat->max_bytes = max_bytes;
	cat->free = cat->newest = cat->oldest = SCOUT__CAT_NONE;
	if (pthread_mutex_init(&cat->mu, NULL))
		return SCOUT_ERR_NOMEM;
	/* These do not fail on Linux. */
	SCOUT_ASSERT(pthread_condattr_init(&attr) == 0);
	SCOUT_ASSERT(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
	SCOUT_ASSERT(pthread_cond_init(&cat->unclaimed, &attr) == 0);
	SCOUT_ASSERT(pthread_condattr_destroy(&attr) == 0);
	return 0;
}

void
scout__cat_fini(struct scout__cat *cat)
{
	for (uint32_t i = 0; i < SCOUT__CAT_SHARDS; i++)
		free(cat->shards[i].cells);
	for (uint32_t i = 0; i < cat->n_slabs; i++)
		free(cat->slabs[i]);
	free(cat->slabs);
	(void)pthread_cond_destroy(&cat->unclaimed);
	(void)pthread_mutex_destroy(&cat->mu);
}

void
scout__cat_stop(struct scout__cat *cat)
{
	lock(cat);
	cat->stopping = true;
	(void)pthread_cond_broadcast(&cat->unclaimed);
	unlock(cat);
}

uint32_t
scout__cat_exists(struct scout__cat *cat, const struct scout__l2_digest *digests, uint32_t n, bool pin,
		  uint8_t *ret_found)
{
	uint32_t n_found = 0;

	lock(cat);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = find(cat, digests[i]);
		bool is_there = at != SCOUT__CAT_NONE && entry_of(cat, at)->state == PRESENT;

		if (is_there && pin)
			add_pin(cat, at);
		ret_found[i] = is_there;
		n_found += is_there;
		breathe(cat, i);
	}
	unlock(cat);
	return n_found;
}

uint32_t
scout__cat_pin(struct scout__cat *cat, const struct scout__l2_digest *digests, uint32_t n)
{
	uint32_t i;

	lock(cat);
	for (i = 0; i < n; i++) {
		uint32_t at = find(cat, digests[i]);

		if (at == SCOUT__CAT_NONE) {
			at = insert(cat, digests[i]);
			if (at == SCOUT__CAT_NONE)
				break;
			entry_of(cat, at)->state = GONE;
		}
		add_pin(cat, at);
		breathe(cat, i);
	}
	unlock(cat);
	return i;
}

void
scout__cat_unpin(struct scout__cat *cat, const struct scout__l2_digest *digests, uint32_t n, const uint8_t *only)
{
	lock(cat);
	for (uint32_t i = n; i-- > 0;) {
		uint32_t at = only && only[i] ? SCOUT__CAT_NONE : find(cat, digests[i]);

		if (at != SCOUT__CAT_NONE)
			take_pin(cat, at);
		breathe(cat, i);
	}
	unlock(cat);
}

static bool
wait_until(struct scout__cat *cat, uint64_t deadline_us)
{
	struct timespec until = {.tv_sec = (time_t)(deadline_us / 1000000),
				 .tv_nsec = (long)(deadline_us % 1000000) * 1000};
	int rc;

	cat->waiters++;
	rc = pthread_cond_timedwait(&cat->unclaimed, &cat->mu, &until);
	cat->waiters--;
	return rc == 0;
}

static enum scout__cat_claim
claim_locked(struct scout__cat *cat, struct scout__l2_digest digest, uint64_t deadline_us, uint32_t *ret_entry)
{
	bool in_time = true;

	for (;;) {
		uint32_t at = find(cat, digest);

		if (cat->stopping)
			return SCOUT__CAT_STOPPED;
		if (at == SCOUT__CAT_NONE) {
			at = insert(cat, digest);
			if (at == SCOUT__CAT_NONE)
				return SCOUT__CAT_NOMEM;
		} else if (entry_of(cat, at)->state == PRESENT) {
			touch(cat, at);
			return SCOUT__CAT_PRESENT;
		} else if (entry_of(cat, at)->state == BUSY) {
			if (!in_time)
				return SCOUT__CAT_TIMEOUT;
			in_time = wait_until(cat, deadline_us);
			continue;
		}
		entry_of(cat, at)->state = BUSY;
		*ret_entry = at;
		return SCOUT__CAT_CLAIMED;
	}
}

enum scout__cat_claim
scout__cat_claim(struct scout__cat *cat, struct scout__l2_digest digest, uint64_t deadline_us, uint32_t *ret_entry)
{
	enum scout__cat_claim got;

	lock(cat);
	got = claim_locked(cat, digest, deadline_us, ret_entry);
	unlock(cat);
	return got;
}

bool
scout__cat_claim_ref(struct scout__cat *cat, struct scout__cat_ref ref)
{
	const struct scout__cat_entry *entry;
	bool is_it;

	lock(cat);
	entry = entry_of(cat, ref.entry);
	is_it = entry->state == PRESENT && entry->version == ref.version;
	if (is_it)
		present_to_busy(cat, ref.entry);
	unlock(cat);
	return is_it;
}

bool
scout__cat_reserve(struct scout__cat *cat, uint32_t entry, uint64_t bytes)
{
	if (bytes > cat->max_bytes)
		return false;
	lock(cat);
	set_bytes(cat, entry_of(cat, entry), bytes);
	unlock(cat);
	return true;
}

void
scout__cat_publish(struct scout__cat *cat, uint32_t entry)
{
	struct scout__cat_entry *published;

	lock(cat);
	published = busy_to_present(cat, entry);
	published->stamped_s = (uint32_t)(scout__now_us() / 1000000);
	published->is_cold = false;
	if (published->pins == 0)
		link_newest(cat, entry);
	unlock(cat);
}

void
scout__cat_adopt(struct scout__cat *cat, uint32_t entry, uint64_t bytes)
{
	struct scout__cat_entry *adopted;

	lock(cat);
	adopted = busy_to_present(cat, entry);
	set_bytes(cat, adopted, bytes);
	adopted->stamped_s = 0;
	adopted->is_cold = true;
	if (adopted->pins == 0)
		link_oldest(cat, entry);
	unlock(cat);
}

void
scout__cat_drop(struct scout__cat *cat, uint32_t i)
{
	struct scout__cat_entry *entry;

	lock(cat);
	entry = entry_of(cat, i);
	SCOUT_ASSERT(entry->state == BUSY);
	set_bytes(cat, entry, 0);
	if (entry->pins)
		entry->state = GONE;
	else
		forget(cat, i);
	if (cat->waiters)
		(void)pthread_cond_broadcast(&cat->unclaimed);
	unlock(cat);
}

enum scout__cat_room
scout__cat_evict(struct scout__cat *cat, bool even_if_it_fits, struct scout__cat_victim *ret_victim)
{
	enum scout__cat_room room = SCOUT__CAT_VICTIM;

	lock(cat);
	if (cat->used <= cat->max_bytes && !even_if_it_fits) {
		room = SCOUT__CAT_FITS;
	} else if (cat->oldest == SCOUT__CAT_NONE) {
		room = SCOUT__CAT_STUCK;
	} else {
		uint32_t i = cat->oldest;
		struct scout__cat_entry *entry = entry_of(cat, i);

		present_to_busy(cat, i);
		*ret_victim = (struct scout__cat_victim){.entry = i, .bytes = entry->bytes, .digest = entry->digest};
		set_bytes(cat, entry, 0);
	}
	unlock(cat);
	return room;
}

void
scout__cat_spare(struct scout__cat *cat, const struct scout__cat_victim *victim)
{
	lock(cat);
	set_bytes(cat, busy_to_present(cat, victim->entry), victim->bytes);
	if (entry_of(cat, victim->entry)->pins == 0)
		link_newest(cat, victim->entry);
	unlock(cat);
}

bool
scout__cat_use(struct scout__cat *cat, struct scout__l2_digest digest, uint64_t now_us, struct scout__cat_ref *ret_ref,
	       bool *ret_is_stale)
{
	uint32_t i, now_s = (uint32_t)(now_us / 1000000);
	bool is_there;

	lock(cat);
	i = find(cat, digest);
	is_there = i != SCOUT__CAT_NONE && entry_of(cat, i)->state == PRESENT;
	if (is_there) {
		struct scout__cat_entry *entry = entry_of(cat, i);

		touch(cat, i);
		*ret_ref = (struct scout__cat_ref){.entry = i, .version = entry->version};
		*ret_is_stale = now_s - entry->stamped_s > STALE_S;
		if (*ret_is_stale)
			entry->stamped_s = now_s;
	}
	unlock(cat);
	return is_there;
}

void
scout__cat_order(struct scout__cat *cat, const uint32_t *entries, size_t n)
{
	lock(cat);
	for (size_t i = 0; i < n; i++) {
		const struct scout__cat_entry *entry = entry_of(cat, entries[i]);

		if (entry->state == PRESENT && entry->is_cold && entry->pins == 0) {
			unlink_entry(cat, entries[i]);
			link_oldest(cat, entries[i]);
		}
		breathe(cat, (uint32_t)i);
	}
	unlock(cat);
}
