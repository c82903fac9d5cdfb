/* SPDX-License-Identifier: Apache-2.0 */
#include "files_table.h"

#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>

#include "blocking.h"
#include "clock.h"
#include "thread.h"

/*
 * DESIGN
 *
 * Purpose: say whether an object exists in well under a microsecond a key, whatever the disk does; decide which thread
 * may touch which name, and what is evicted. Owns the order of use and all pins and claims; the table below it is
 * files_table.c.
 *
 * One mutex is held for table work only, by the adapter's own threads; the server's loop never comes here. Long batches
 * release the mutex every SLICE keys. Rejected: a lock for each shard - the order of use is one list over all shards,
 * and a million answers a second are far beyond what lookups ask.
 *
 * Claims: a thread that changes a name on disk has claimed it, so two stores of one key, an eviction and a store, or
 * the scan and a store never meet in the folder. A thread that holds a claim never waits for another one: no deadlock.
 *
 * Pinned objects are not in the order of use: evicting is O(1), and an object that loses its last pin counts as used
 * last. In one batch the first key is used last, so that the head of a shared prefix is the last to be evicted.
 *
 * Threads: any.
 */

#define SLICE 256u
#define STALE_S 60u

/* ---- the order of use ---- */

static void
unlink_entry(struct scout__cat *cat, uint32_t i)
{
	struct scout__cat_entry *entry = scout__cat_entry_of(cat, i);

	if (entry->newer != SCOUT__CAT_NONE)
		scout__cat_entry_of(cat, entry->newer)->older = entry->older;
	else
		cat->newest = entry->older;
	if (entry->older != SCOUT__CAT_NONE)
		scout__cat_entry_of(cat, entry->older)->newer = entry->newer;
	else
		cat->oldest = entry->newer;
	entry->newer = entry->older = SCOUT__CAT_NONE;
}

static void
link_newest(struct scout__cat *cat, uint32_t i)
{
	struct scout__cat_entry *entry = scout__cat_entry_of(cat, i);

	entry->older = cat->newest;
	if (cat->newest != SCOUT__CAT_NONE)
		scout__cat_entry_of(cat, cat->newest)->newer = i;
	else
		cat->oldest = i;
	cat->newest = i;
}

static void
link_behind(struct scout__cat *cat, uint32_t i, uint32_t newer)
{
	struct scout__cat_entry *entry = scout__cat_entry_of(cat, i);
	struct scout__cat_entry *before = scout__cat_entry_of(cat, newer);

	entry->newer = newer;
	entry->older = before->older;
	if (before->older != SCOUT__CAT_NONE)
		scout__cat_entry_of(cat, before->older)->newer = i;
	else
		cat->oldest = i;
	before->older = i;
}

static void
link_oldest(struct scout__cat *cat, uint32_t i)
{
	if (cat->oldest != SCOUT__CAT_NONE)
		link_behind(cat, i, cat->oldest);
	else
		link_newest(cat, i);
}

/*
 * What @i comes just behind in the order: the last object before it in its prompt that is there, while others of it are
 * being written. NONE: nothing. CUT: something before it was there, or should have been, and is not.
 */
static uint32_t
place_of(const struct scout__cat *cat, uint32_t i)
{
	const struct scout__cat_entry *follower = scout__cat_entry_of(cat, i);
	uint32_t at = follower->after;

	for (unsigned n = 0; at < SCOUT__CAT_CUT && n < SCOUT__BLOCKING_THREADS_MAX; n++) {
		const struct scout__cat_entry *entry = scout__cat_entry_of(cat, at);

		if ((uint32_t)entry->digest.hi != follower->after_tag || entry->state == CAT_FREE ||
		    entry->state == CAT_GONE)
			return SCOUT__CAT_CUT;
		if (entry->state == CAT_PRESENT)
			return entry->pins ? SCOUT__CAT_NONE : at;
		at = entry->after;
		follower = entry;
	}
	return at == SCOUT__CAT_CUT ? at : SCOUT__CAT_NONE;
}

/* A PRESENT entry without pins, used now. @place: place_of() it. */
static void
link_at(struct scout__cat *cat, uint32_t i, uint32_t place)
{
	if (place < SCOUT__CAT_CUT)
		link_behind(cat, i, place);
	else
		link_newest(cat, i);
}

/* Make a PRESENT entry the most recently used, unless it is pinned. */
static void
touch(struct scout__cat *cat, uint32_t i)
{
	struct scout__cat_entry *entry = scout__cat_entry_of(cat, i);

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
	struct scout__cat_entry *entry = scout__cat_entry_of(cat, i);

	if (entry->pins == 0)
		unlink_entry(cat, i);
	entry->state = CAT_BUSY;
	count_objects(cat, UINT64_MAX);
}

static struct scout__cat_entry *
busy_to_present(struct scout__cat *cat, uint32_t i)
{
	struct scout__cat_entry *entry = scout__cat_entry_of(cat, i);

	SCOUT_ASSERT(entry->state == CAT_BUSY);
	entry->state = CAT_PRESENT;
	entry->version = ++cat->versions;
	count_objects(cat, 1);
	if (cat->waiters)
		(void)pthread_cond_broadcast(&cat->unclaimed);
	return entry;
}

static void
add_pin(struct scout__cat *cat, uint32_t i)
{
	struct scout__cat_entry *entry = scout__cat_entry_of(cat, i);

	entry->is_cold = false;
	if (entry->pins++ > 0)
		return;
	if (entry->state == CAT_PRESENT)
		unlink_entry(cat, i);
	count_pinned(cat, 1);
}

static void
take_pin(struct scout__cat *cat, uint32_t i)
{
	struct scout__cat_entry *entry = scout__cat_entry_of(cat, i);

	if (entry->pins == 0 || --entry->pins > 0)
		return;
	count_pinned(cat, UINT64_MAX);
	if (entry->state == CAT_PRESENT)
		link_newest(cat, i);
	else if (entry->state == CAT_GONE)
		scout__cat_forget(cat, i);
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
	memset(cat, 0, sizeof(*cat));
	cat->max_bytes = max_bytes;
	cat->free = cat->newest = cat->oldest = SCOUT__CAT_NONE;
	if (pthread_mutex_init(&cat->mu, NULL))
		return SCOUT_ERR_NOMEM;
	scout__cond_init(&cat->unclaimed);
	return 0;
}

void
scout__cat_fini(struct scout__cat *cat)
{
	scout__cat_table_fini(cat);
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
		uint32_t at = scout__cat_find(cat, digests[i]);
		bool is_there = at != SCOUT__CAT_NONE && scout__cat_entry_of(cat, at)->state == CAT_PRESENT;

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
		uint32_t at = scout__cat_find(cat, digests[i]);

		if (at == SCOUT__CAT_NONE) {
			at = scout__cat_insert(cat, digests[i]);
			if (at == SCOUT__CAT_NONE)
				break;
			scout__cat_entry_of(cat, at)->state = CAT_GONE;
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
		uint32_t at = only && only[i] ? SCOUT__CAT_NONE : scout__cat_find(cat, digests[i]);

		if (at != SCOUT__CAT_NONE)
			take_pin(cat, at);
		breathe(cat, i);
	}
	unlock(cat);
}

static bool
wait_unclaimed(struct scout__cat *cat, uint64_t deadline_us)
{
	int rc;

	cat->waiters++;
	rc = scout__cond_wait_until(&cat->unclaimed, &cat->mu, deadline_us);
	cat->waiters--;
	return rc == 0;
}

static enum scout__cat_claim
claim_locked(struct scout__cat *cat, struct scout__l2_digest digest, uint64_t deadline_us, uint32_t *ret_entry)
{
	bool in_time = true;

	for (;;) {
		uint32_t at = scout__cat_find(cat, digest);

		if (cat->stopping)
			return SCOUT__CAT_STOPPED;
		if (at == SCOUT__CAT_NONE) {
			at = scout__cat_insert(cat, digest);
			if (at == SCOUT__CAT_NONE)
				return SCOUT__CAT_NOMEM;
		} else if (scout__cat_entry_of(cat, at)->state == CAT_PRESENT) {
			scout__cat_entry_of(cat, at)->is_cold = false;
			if (scout__cat_entry_of(cat, at)->pins == 0) {
				unlink_entry(cat, at);
				link_at(cat, at, place_of(cat, at));
			}
			return SCOUT__CAT_PRESENT;
		} else if (scout__cat_entry_of(cat, at)->state == CAT_BUSY) {
			if (!in_time)
				return SCOUT__CAT_TIMEOUT;
			in_time = wait_unclaimed(cat, deadline_us);
			continue;
		}
		scout__cat_entry_of(cat, at)->state = CAT_BUSY;
		*ret_entry = at;
		return SCOUT__CAT_CLAIMED;
	}
}

enum scout__cat_claim
scout__cat_try_claim(struct scout__cat *cat, struct scout__l2_digest digest, uint64_t deadline_us, uint32_t *ret_entry)
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
	entry = scout__cat_entry_of(cat, ref.entry);
	is_it = entry->state == CAT_PRESENT && entry->version == ref.version;
	if (is_it)
		present_to_busy(cat, ref.entry);
	unlock(cat);
	return is_it;
}

void
scout__cat_await(struct scout__cat *cat, struct scout__l2_digest digest, struct scout__l2_digest before)
{
	bool follows = (before.lo | before.hi) != 0;
	struct scout__cat_entry *entry;
	uint32_t at;

	lock(cat);
	at = scout__cat_find(cat, digest);
	if (at == SCOUT__CAT_NONE) {
		at = scout__cat_insert(cat, digest);
		if (at != SCOUT__CAT_NONE)
			scout__cat_entry_of(cat, at)->state = CAT_AWAITED;
	}
	/* Without memory the order is a little worse. */
	if (at != SCOUT__CAT_NONE) {
		entry = scout__cat_entry_of(cat, at);
		entry->after = follows ? scout__cat_find(cat, before) : SCOUT__CAT_NONE;
		if (follows && entry->after == SCOUT__CAT_NONE)
			entry->after = SCOUT__CAT_CUT;
		entry->after_tag = (uint32_t)before.hi;
	}
	unlock(cat);
}

bool
scout__cat_is_cut(struct scout__cat *cat, uint32_t entry)
{
	bool is_cut;

	lock(cat);
	is_cut = place_of(cat, entry) == SCOUT__CAT_CUT;
	unlock(cat);
	return is_cut;
}

bool
scout__cat_reserve(struct scout__cat *cat, uint32_t entry, uint64_t bytes)
{
	if (bytes > cat->max_bytes)
		return false;
	lock(cat);
	set_bytes(cat, scout__cat_entry_of(cat, entry), bytes);
	unlock(cat);
	return true;
}

bool
scout__cat_publish(struct scout__cat *cat, uint32_t entry)
{
	struct scout__cat_entry *published;
	uint32_t place;
	bool is_of_use;

	lock(cat);
	place = place_of(cat, entry);
	is_of_use = place != SCOUT__CAT_CUT || scout__cat_entry_of(cat, entry)->after == SCOUT__CAT_CUT;
	if (is_of_use) {
		published = busy_to_present(cat, entry);
		published->stamped_s = (uint32_t)(scout__now_us() / 1000000);
		published->is_cold = false;
		if (published->pins == 0)
			link_at(cat, entry, place);
	}
	unlock(cat);
	return is_of_use;
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

static void
drop(struct scout__cat *cat, uint32_t i)
{
	struct scout__cat_entry *entry = scout__cat_entry_of(cat, i);

	SCOUT_ASSERT(entry->state == CAT_BUSY);
	set_bytes(cat, entry, 0);
	if (entry->pins)
		entry->state = CAT_GONE;
	else
		scout__cat_forget(cat, i);
	if (cat->waiters)
		(void)pthread_cond_broadcast(&cat->unclaimed);
}

void
scout__cat_drop(struct scout__cat *cat, uint32_t i)
{
	lock(cat);
	drop(cat, i);
	unlock(cat);
}

uint64_t
scout__cat_clear(struct scout__cat *cat)
{
	uint64_t n = 0;

	lock(cat);
	for (uint32_t i = 0; i < cat->n_slabs * SCOUT__CAT_SLAB; i++) {
		struct scout__cat_entry *entry;

		breathe(cat, i);
		entry = scout__cat_entry_of(cat, i);
		if (entry->state == CAT_PRESENT) {
			present_to_busy(cat, i);
			n++;
		} else if (entry->state == CAT_AWAITED) {
			entry->state = CAT_BUSY; /* who stores it finds it, or makes it anew */
		} else {
			continue;
		}
		drop(cat, i);
	}
	unlock(cat);
	return n;
}

enum scout__cat_room
scout__cat_evict(struct scout__cat *cat, bool even_if_it_fits, uint32_t for_entry, struct scout__cat_victim *ret_victim)
{
	enum scout__cat_room room = SCOUT__CAT_VICTIM;
	uint32_t place;

	lock(cat);
	place = for_entry == SCOUT__CAT_NONE ? SCOUT__CAT_NONE : place_of(cat, for_entry);
	/* What is left free where prompts are cut is for others, not for the rest of these. */
	if (cat->used <= cat->max_bytes - (place == SCOUT__CAT_CUT ? cat->max_bytes / 16 : 0) && !even_if_it_fits) {
		room = SCOUT__CAT_FITS;
	} else if (cat->oldest == SCOUT__CAT_NONE) {
		room = SCOUT__CAT_STUCK;
	} else if (place == SCOUT__CAT_CUT || place == cat->oldest) {
		room = SCOUT__CAT_IN_VAIN;
	} else {
		uint32_t i = cat->oldest;
		struct scout__cat_entry *entry = scout__cat_entry_of(cat, i);

		present_to_busy(cat, i);
		*ret_victim = (struct scout__cat_victim){.entry = i, .bytes = entry->bytes, .digest = entry->digest};
		set_bytes(cat, entry, 0);
	}
	unlock(cat);
	return room;
}

void
scout__cat_keep(struct scout__cat *cat, const struct scout__cat_victim *victim)
{
	lock(cat);
	set_bytes(cat, busy_to_present(cat, victim->entry), victim->bytes);
	if (scout__cat_entry_of(cat, victim->entry)->pins == 0)
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
	i = scout__cat_find(cat, digest);
	is_there = i != SCOUT__CAT_NONE && scout__cat_entry_of(cat, i)->state == CAT_PRESENT;
	if (is_there) {
		struct scout__cat_entry *entry = scout__cat_entry_of(cat, i);

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
		const struct scout__cat_entry *entry = scout__cat_entry_of(cat, entries[i]);

		if (entry->state == CAT_PRESENT && entry->is_cold && entry->pins == 0) {
			unlink_entry(cat, entries[i]);
			link_oldest(cat, entries[i]);
		}
		breathe(cat, (uint32_t)i);
	}
	unlock(cat);
}
