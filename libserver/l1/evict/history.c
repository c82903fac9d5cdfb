/* SPDX-License-Identifier: Apache-2.0 */
#include "history.h"

#include <kvscout/error.h>

#include "lazy.h"

#include "thread.h"

/*
 * DESIGN
 *
 * Purpose: know what happened to a touched key, whether it stayed cached or not; and what LRU would have hit.
 *
 * Keys are sampled by their fingerprint, not requests: each key of the sample is seen at all its touches, and many
 * requests are in the sample with a part of their chunks. The records are a list in the order of the last touch, so the
 * first lru_size of them are exactly what an LRU cache of that size holds; one pointer says where that cache ends. This
 * costs one bit and one pointer; a second simulation would cost a table.
 *
 * Memory: RECORDS for each entry of the sample, 20 bytes and a table of 2 to 4 each; but half a megabyte, or 12 bytes
 * for each entry of the chunk index, is the limit. When there are no more records, the oldest is dropped; to the caller
 * it looks like a key that was not seen for long.
 *
 * A record is found by 32 bits, of which a sample leaves 26 to 32: with 32768 records one key in 2000 is mistaken for
 * another, which adds that much noise to what is learned.
 *
 * Rejected: buckets of 8 cells as in the list of evicted keys (no order, so no LRU and no oldest one).
 *
 * Threads: loop.
 */

#define MAX_SHIFT 6u
#define MIN_SAMPLE 2048u   /* entries */
#define RECORDS 8u         /* for each entry of the sample */
#define FEW_RECORDS 18432u /* half a megabyte with their table */

static uint32_t
shift_of(uint32_t capacity)
{
	uint32_t shift = 0;

	while (shift < MAX_SHIFT && capacity >> (shift + 1) >= MIN_SAMPLE)
		shift++;
	return shift;
}

/* The most entries that a sample of up to @max_entries has. */
static uint32_t
max_sample(uint32_t max_entries)
{
	uint32_t at_shift = max_entries >> shift_of(max_entries);
	uint32_t below = max_entries < 2 * MIN_SAMPLE ? max_entries : 2 * MIN_SAMPLE;

	return (at_shift > below ? at_shift : below) + 1;
}

static uint32_t
max_records(uint32_t max_entries)
{
	uint32_t most = max_entries / 2 > FEW_RECORDS ? max_entries / 2 : FEW_RECORDS;
	uint32_t wanted = max_sample(max_entries) * RECORDS;

	return wanted < most ? wanted : most;
}

uint64_t
scout__history_bytes(const struct scout__history *history)
{
	return (uint64_t)history->max * sizeof(struct scout__record) +
	       ((uint64_t)history->bucket_mask + 1) * sizeof(uint32_t);
}

int
scout__history_init(struct scout__history *history, uint32_t max_entries)
{
	uint32_t buckets = 16;

	*history = (struct scout__history){.newest = SCOUT__NO_ENTRY, .oldest = SCOUT__NO_ENTRY};
	history->lru_oldest = SCOUT__NO_ENTRY;
	history->max = max_records(max_entries);
	while (buckets < history->max / 2)
		buckets *= 2;
	history->bucket_mask = buckets - 1;
	history->records = scout__lazy_alloc(scout__history_bytes(history));
	if (!history->records)
		return SCOUT_ERR_NOMEM;
	history->buckets = (uint32_t *)(void *)(history->records + history->max);
	scout__history_resize(history, max_entries);
	return 0;
}

void
scout__history_fini(struct scout__history *history)
{
	scout__lazy_free(history->records, scout__history_bytes(history));
}

void
scout__history_resize(struct scout__history *history, uint32_t capacity)
{
	history->shift = shift_of(capacity);
	history->lru_size = capacity >> history->shift;
	if (history->lru_size == 0)
		history->lru_size = 1;
}

static uint32_t
key_of(uint64_t print)
{
	return (uint32_t)print;
}

/* The word that leads to the record of @key, or the 0 at the end of its chain. */
static uint32_t *
find(const struct scout__history *history, uint32_t key)
{
	uint32_t *at = &history->buckets[(key >> MAX_SHIFT) & history->bucket_mask]; /* below: alike in a sample */

	while (*at && history->records[*at - 1].print != key)
		at = &history->records[*at - 1].chain;
	return at;
}

/* ---- the list, and the part of it that is the LRU cache ---- */

static void
lru_shrink(struct scout__history *history)
{
	struct scout__record *r = &history->records[history->lru_oldest];

	r->in_lru = 0;
	history->lru_oldest = --history->n_lru ? r->newer : SCOUT__NO_ENTRY;
}

static void
unlink_record(struct scout__history *history, uint32_t i)
{
	struct scout__record *r = &history->records[i];

	if (r->in_lru) {
		if (history->lru_oldest == i)
			history->lru_oldest = r->newer;
		history->n_lru--;
	}
	*(r->newer == SCOUT__NO_ENTRY ? &history->newest : &history->records[r->newer].older) = r->older;
	*(r->older == SCOUT__NO_ENTRY ? &history->oldest : &history->records[r->older].newer) = r->newer;
}

static void
link_newest(struct scout__history *history, uint32_t i)
{
	struct scout__record *r = &history->records[i];

	r->newer = SCOUT__NO_ENTRY;
	r->older = history->newest;
	*(r->older == SCOUT__NO_ENTRY ? &history->oldest : &history->records[r->older].newer) = i;
	history->newest = i;
	r->in_lru = 1;
	history->n_lru++;
	if (history->lru_oldest == SCOUT__NO_ENTRY)
		history->lru_oldest = i;
	/* Two at most: when the chunk index has become smaller, the rest leaves little by little. */
	for (uint32_t n = 0; n < 2 && history->n_lru > history->lru_size; n++)
		lru_shrink(history);
}

static uint32_t
record_take(struct scout__history *history)
{
	uint32_t i = history->free - 1;

	if (!history->free) {
		SCOUT_ASSERT(history->n_ever < history->max);
		return history->n_ever++;
	}
	history->free = history->records[i].chain;
	return i;
}

void
scout__history_touch(struct scout__history *history, uint64_t print, uint32_t class, uint32_t time,
		     struct scout__past *ret_past)
{
	uint32_t *at = find(history, key_of(print));
	struct scout__record *r;
	uint32_t i = *at - 1;

	if (*at) {
		r = &history->records[i];
		*ret_past =
			(struct scout__past){.known = true, .in_lru = r->in_lru, .class = r->class, .time = r->time};
		unlink_record(history, i);
	} else {
		*ret_past = (struct scout__past){0};
		i = record_take(history);
		r = &history->records[i];
		*at = i + 1;
		r->print = key_of(print);
		r->chain = 0;
		r->is_open = 1;
		history->n++;
	}
	r->class = class & ((1u << SCOUT__HISTORY_CLASS_BITS) - 1);
	r->time = time & SCOUT__STAMP_MASK;
	link_newest(history, i);
}

bool
scout__history_is_full(const struct scout__history *history)
{
	return history->n == history->max;
}

static void
drop(struct scout__history *history, uint32_t i)
{
	struct scout__record *r = &history->records[i];
	uint32_t *at = find(history, r->print);

	SCOUT_ASSERT(*at == i + 1);
	unlink_record(history, i);
	*at = r->chain;
	r->is_open = 0;
	r->in_lru = 0;
	r->chain = history->free;
	history->free = i + 1;
	history->n--;
}

bool
scout__history_expire(struct scout__history *history, uint32_t now, uint32_t age, bool force,
		      struct scout__past *ret_past)
{
	const struct scout__record *r;

	if (history->oldest == SCOUT__NO_ENTRY)
		return false;
	r = &history->records[history->oldest];
	if (!force && ((now - r->time) & SCOUT__STAMP_MASK) <= age)
		return false;
	*ret_past = (struct scout__past){.known = true, .class = r->class, .time = r->time};
	drop(history, history->oldest);
	return true;
}

bool
scout__history_at(struct scout__history *history, uint32_t i, struct scout__past *ret_past)
{
	const struct scout__record *r = &history->records[i];

	if (!r->is_open)
		return false;
	if (!scout__history_samples(history, r->print)) {
		drop(history, i);
		return false;
	}
	*ret_past = (struct scout__past){.known = true, .in_lru = r->in_lru, .class = r->class, .time = r->time};
	return true;
}

void
scout__history_check(const struct scout__history *history)
{
	uint32_t n = 0, n_lru = 0;

	for (uint32_t at = history->oldest; at != SCOUT__NO_ENTRY; at = history->records[at].newer) {
		const struct scout__record *r = &history->records[at];

		SCOUT_ASSERT(r->is_open && *find(history, r->print) == at + 1);
		SCOUT_ASSERT(r->newer == SCOUT__NO_ENTRY ? history->newest == at
							 : history->records[r->newer].older == at);
		/* The newest ones, without a gap. */
		SCOUT_ASSERT(n_lru == 0 ? !r->in_lru || history->lru_oldest == at : r->in_lru);
		n_lru += r->in_lru;
		n++;
	}
	SCOUT_ASSERT(n == history->n && n_lru == history->n_lru && n <= history->n_ever);
	SCOUT_ASSERT(n_lru > 0 || history->lru_oldest == SCOUT__NO_ENTRY);
	for (uint32_t at = history->free; at; at = history->records[at - 1].chain) {
		SCOUT_ASSERT(!history->records[at - 1].is_open);
		n++;
	}
	SCOUT_ASSERT(n == history->n_ever && n <= history->max);
}
