/* SPDX-License-Identifier: Apache-2.0 */
#include "entry.h"
#include "evict.h"
#include "hdc_internal.h"

/*
 * What the policy hdc (hdc.c) learns from the keys of its sample: how each touch ends a record, and the relearning in
 * slices. Loop thread.
 */

#define HISTORY_CAPACITIES 16u /* a record older than this many capacities of the clock no longer counts */
#define SLICE_RECORDS 64u

static bool
is_hinted(uint32_t class)
{
	return class >= SCOUT__KINDS * SCOUT__TOUCH_CLASSES;
}

uint64_t
scout__hdc_relearn_period(const struct scout__hdc *h)
{
	uint32_t parts = h->clock < h->started + UINT64_C(4) * h->capacity ? 4 : 2;

	return h->capacity / parts + 1;
}

void
scout__hdc_relearn(struct scout__hdc *h)
{
	h->next_relearning = h->clock + scout__hdc_relearn_period(h);
	if (h->relearning != SCOUT__RELEARN_IDLE)
		return;
	scout__density_begin(h->density);
	h->relearning = SCOUT__RELEARN_RECORDS;
	h->relearn_at = 0;
	h->relearn_now = h->now;
}

static void
relearn_records(struct scout__hdc *h)
{
	struct scout__past past;

	for (uint32_t n = 0; n < SLICE_RECORDS; n++) {
		uint32_t age;

		if (h->relearn_at == h->history.n_ever) {
			h->relearning = SCOUT__RELEARN_POOL;
			return;
		}
		if (!scout__history_at(&h->history, h->relearn_at++, &past))
			continue;
		age = (h->relearn_now - past.time) & SCOUT__STAMP_MASK;
		/* Touched since this relearning began: its time until then has been counted as ended. */
		if (age <= SCOUT__STAMP_MASK / 2)
			scout__density_open(h->density, past.class, (float)age * h->units_per_tick);
	}
}

void
scout__hdc_slice(struct scout__hdc *h)
{
	switch (h->relearning) {
	case SCOUT__RELEARN_RECORDS:
		relearn_records(h);
		break;
	case SCOUT__RELEARN_POOL:
		scout__density_pool(h->density);
		h->relearning = SCOUT__RELEARN_CLASSES;
		h->relearn_at = 0;
		break;
	case SCOUT__RELEARN_CLASSES:
		scout__density_learn(h->density, h->relearn_at++);
		if (h->relearn_at == SCOUT__CLASSES)
			h->relearning = SCOUT__RELEARN_IDLE;
		scout__hdc_forget_heads(h);
		break;
	default:
		break;
	}
}

/* A key that was not seen for too long counts as time without a touch. */
static void
expire(struct scout__hdc *h)
{
	uint32_t limit = (uint32_t)((uint64_t)h->capacity * HISTORY_CAPACITIES / h->tick);
	struct scout__past past;

	/* Records come one at a time, so dropping two at a time catches up. */
	for (uint32_t n = 0; n < 2; n++) {
		bool force = scout__history_is_full(&h->history);

		if (!scout__history_expire(&h->history, h->now, limit, force, &past))
			return;
		h->hints.gone += is_hinted(past.class);
		scout__density_ended(h->density, past.class,
				     (float)(scout__hdc_ticks_since(h, past.time) < limit
						     ? scout__hdc_ticks_since(h, past.time)
						     : limit) *
					     h->units_per_tick,
				     false);
	}
}

static void
guard_count(struct scout__hdc *h, bool lru_hits, bool hits)
{
	h->guard.all += 1;
	h->guard.lru_only += lru_hits && !hits;
	h->guard.own_only += hits && !lru_hits;
}

/* A key of the sample is touched. */
void
scout__hdc_learn(struct scout__hdc *h, const struct scout__entry *entry, uint32_t class, bool hits)
{
	uint32_t limit = (uint32_t)((uint64_t)h->capacity * HISTORY_CAPACITIES / h->tick);
	struct scout__past past;

	expire(h);
	scout__history_touch(&h->history, scout__fingerprint(entry), class, h->now, &past);
	if (past.known) {
		uint32_t age = scout__hdc_ticks_since(h, past.time);

		h->hints.returned += is_hinted(past.class) && age <= limit;
		h->hints.gone += is_hinted(past.class) && age > limit;
		scout__density_ended(h->density, past.class, (float)(age < limit ? age : limit) * h->units_per_tick,
				     age <= limit);
	}
	guard_count(h, past.in_lru, hits);
}
