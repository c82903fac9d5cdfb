/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "chunked_queue.h"
#include "density.h"
#include "evict.h"
#include "ghost.h"
#include "history.h"

/*
 * The state of the policy `hdc`: for hdc.c, hdc_learn.c, and the tests, which compare it with a naive model. Loop
 * thread.
 */

#define SCOUT__SPARE_QUEUE SCOUT__CLASSES
#define SCOUT__HDC_QUEUES (SCOUT__CLASSES + 1)

enum scout__relearning {
	SCOUT__RELEARN_IDLE = 0,
	SCOUT__RELEARN_RECORDS, /* the open ones are counted */
	SCOUT__RELEARN_POOL,
	SCOUT__RELEARN_CLASSES
};

struct scout__hdc_guard {
	double lru_only, own_only, all; /* sampled touches that only one of the two would have hit; all of them */
	uint64_t look_at;               /* clock */
	uint64_t holds_until;           /* clock; 0: the guard does not hold */
	uint32_t length;                /* capacities that the next hold lasts */
};

struct scout__hdc {
	struct scout__chunked_queues queues;
	struct scout__entry *entries;
	struct scout__ghost ghost;
	struct scout__history history;
	struct scout__density *density;
	uint32_t max_entries;
	uint32_t slots;    /* of the chunk index */
	uint32_t capacity; /* slots when the unit was chosen */
	uint32_t live;     /* entries that exist, pinned or not */
	uint32_t tick;     /* chunks of the clock */
	float units_per_tick;
	uint64_t clock;
	uint32_t now;     /* in ticks, SCOUT__STAMP_BITS of them */
	uint64_t started; /* clock when the capacity was chosen: the guard counts from there */
	enum scout__relearning relearning;
	uint32_t relearn_at; /* record or class that is next */
	uint32_t relearn_now;
	uint32_t touches;         /* until the next slice */
	uint64_t next_relearning; /* clock */
	struct scout__hdc_guard guard;
	struct scout__hint_counts hints; /* since the last count_hints() */
	/* The queues' heads, as far as they are known: the indexes are of this moment of the clock. */
	uint64_t used;  /* a bit for each queue that is not empty */
	uint64_t fresh; /* a bit for each queue whose head is known */
	uint32_t head[SCOUT__HDC_QUEUES];
	float head_index[SCOUT__HDC_QUEUES];
	bool least_known; /* the fields below are known, over all heads: until a head changes, or time passes */
	uint32_t least_queue;
	float least_index;
};

static inline uint32_t
scout__hdc_ticks_since(const struct scout__hdc *h, uint32_t stamp)
{
	return (h->now - stamp) & SCOUT__STAMP_MASK;
}

/* All indexes have changed. */
static inline void
scout__hdc_forget_heads(struct scout__hdc *h)
{
	h->fresh = 0;
	h->least_known = false;
}

/* ---- hdc_learn.c ---- */

/* How much of the clock passes until the next relearning. */
uint64_t scout__hdc_relearn_period(const struct scout__hdc *h);
/* It is time to relearn: begin, unless a relearning runs. */
void scout__hdc_relearn(struct scout__hdc *h);
/* A key of the sample is touched; @class is its new class. @hits: it was cached. */
void scout__hdc_learn(struct scout__hdc *h, const struct scout__entry *entry, uint32_t class, bool hits);
/* One slice of the relearning that runs; without one, nothing. */
void scout__hdc_slice(struct scout__hdc *h);
