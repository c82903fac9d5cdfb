/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "entry.h"
#include "evict.h"
#include "hdc_internal.h"
#include "thread.h"

/*
 * DESIGN
 *
 * Hit-density classes. Each chunk is in a class: how often it was touched, how much was new in the request that touched
 * it last, and the hint of that request. There is an LRU queue for each class. What the classes are worth is learned
 * from a sample of keys (history.h), as an index of class and age (density.h); the victim is the queue head with the
 * least index. That is all: only its own touch moves a chunk, and a class that turns out to be worthless is drained
 * from its oldest end.
 *
 * Clock: it counts the chunks that lookups ask for. With wall time, an idle hour would age what the next hour needs.
 * Ages are learned in units of a 256th of the capacity, and noted in ticks of a 16384th of the largest capacity.
 *
 * Touches count while the chunk is cached, and while it is in the list of chunks that were evicted lately. All chunks
 * of a request have its kind: if few tokens of a long prompt were new, a conversation goes on.
 *
 * Hint: a caller that expects no continuation of a request says so. The hint is one bit of the class of all its chunks,
 * until the next touch, so its worth is learned for each number of touches: a shared beginning that others touch soon
 * keeps a high index in spite of the hint. A wrong hint costs next to nothing.
 *
 * SPARE: a queue for chunks that would have less than half of the least index of all heads as soon as they are touched:
 * a scan, or a loop that is longer than the cache. Evicting the heads for these would trade better chunks for worse. In
 * SPARE, the oldest is evicted first, and the head competes by the index of its own class; the next touch decides anew.
 *
 * Guard: the newest part of the sample is what LRU would hold. While LRU would hit significantly more than this policy,
 * plain LRU order is in force: for one capacity of the clock, then for two, and so on up to 64.
 *
 * A parent is rarely evicted before its child, because it is touched at least as often and as late, in the same kind of
 * request, and the index never falls with touches at one age. Chunks that are cached after a gap are lost: below 0.5 %
 * of what is asked for, except with pools of a few requests and loads that change altogether (docs/eviction.md).
 *
 * Cost: a touch moves an entry between queues, and looks for its record if the key is in the sample; choosing a victim
 * looks at the heads, of which one has changed since the last victim. Relearning takes slices of at most SLICE_RECORDS
 * records or one class, every SLICE_TOUCHES touches.
 *
 * Rejected: hints only for chunks with fewer than five touches (up to 2.1 points less in small pools, and no gain on
 * agentic loads), evicting only chunks without a cached child (17 % hits where 23 are possible: the parents block the head of
 * their queue), evicting hinted chunks at once (loses up to 2.7 points where the hint is wrong).
 *
 * Threads: loop.
 */

#define MAX_TOUCHES 5u
#define UNITS_PER_CAPACITY 256.0f
#define TICKS_PER_CAPACITY 16384u
#define GHOST_CAPACITIES 3u
#define SLICE_TOUCHES 4u
#define SPARE_FACTOR 2.0f
#define GUARD_DOUBT 6.0   /* standard deviations that LRU's lead must exceed */
#define GUARD_LEAD 0.003  /* part of all sampled touches that it must exceed, too */
#define GUARD_FORGET 0.93 /* factor for the counts, at each look */
#define GUARD_LONGEST 64u /* capacities */

_Static_assert(SCOUT__HDC_QUEUES <= SCOUT__QUEUES, "each class has a queue");
_Static_assert(SCOUT__CLASSES <= 1u << SCOUT__HISTORY_CLASS_BITS, "a record has room for the class");
_Static_assert(SCOUT__CLASSES == SCOUT__TOUCH_CLASSES * SCOUT__KINDS * SCOUT__HINTS, "touches, kinds, hints");

/* What policy_bits of an entry hold. */
#define BITS_TOUCHES 0x07u
#define BITS_KIND_SHIFT 3u
#define BITS_KIND 0x18u
#define BITS_HINTED 0x20u

static uint32_t
class_of(uint8_t bits)
{
	static const uint8_t of_touches[MAX_TOUCHES + 1] = {0, 0, 1, 2, 2, 3};
	uint32_t kind = (bits & BITS_KIND) >> BITS_KIND_SHIFT;
	uint32_t hinted = (bits & BITS_HINTED) != 0;

	return (hinted * SCOUT__KINDS + kind) * SCOUT__TOUCH_CLASSES + of_touches[bits & BITS_TOUCHES];
}

static float
units_since(const struct scout__hdc *h, uint32_t stamp)
{
	return (float)scout__hdc_ticks_since(h, stamp) * h->units_per_tick;
}

static bool
guard_holds(const struct scout__hdc *h)
{
	return h->guard.holds_until != 0;
}

/* ---- queues and their heads ---- */

/* While the guard holds, older is less; else the index of class and age. */
static float
index_of(const struct scout__hdc *h, uint32_t entry)
{
	const struct scout__entry *e = &h->entries[entry];

	if (guard_holds(h))
		return -(float)scout__hdc_ticks_since(h, e->node.stamp);
	return h->density->index[class_of(e->policy_bits)][scout__density_age(units_since(h, e->node.stamp))];
}

static void
forget_head(struct scout__hdc *h, uint32_t queue)
{
	h->fresh &= ~(UINT64_C(1) << queue);
	h->least_known = false;
}

static inline void
put(struct scout__hdc *h, uint32_t queue, uint32_t entry)
{
	if (h->queues.n[queue] == 0)
		forget_head(h, queue);
	scout__chunked_queue_append_at(&h->queues, queue, entry, h->now);
	h->used |= UINT64_C(1) << queue;
}

static inline void
take_out(struct scout__hdc *h, uint32_t entry)
{
	uint32_t queue = h->entries[entry].node.queue;

	if (h->head[queue] == entry)
		forget_head(h, queue);
	scout__chunked_queue_unlink(&h->queues, entry);
	if (h->queues.n[queue] == 0)
		h->used &= ~(UINT64_C(1) << queue);
}

static void
refresh_heads(struct scout__hdc *h)
{
	for (uint64_t left = h->used & ~h->fresh; left; left &= left - 1) {
		uint32_t queue = (uint32_t)__builtin_ctzll(left);

		h->head[queue] = scout__chunked_queue_head(&h->queues, queue);
		h->head_index[queue] = index_of(h, h->head[queue]);
	}
	h->fresh |= h->used;
}

/* Whether the head of queue @a is evicted before the head of @b: with equal index, the older one. */
static bool
goes_before(const struct scout__hdc *h, uint32_t a, uint32_t b)
{
	if (h->head_index[a] != h->head_index[b])
		return h->head_index[a] < h->head_index[b];
	return scout__hdc_ticks_since(h, h->entries[h->head[a]].node.stamp) >
	       scout__hdc_ticks_since(h, h->entries[h->head[b]].node.stamp);
}

/* Sets least_queue and least_index. False: nothing is in the order. */
static bool
find_least(struct scout__hdc *h)
{
	if (h->least_known || !h->used)
		return h->used != 0;
	refresh_heads(h);
	h->least_queue = (uint32_t)__builtin_ctzll(h->used);
	for (uint64_t left = h->used & (h->used - 1); left; left &= left - 1) {
		uint32_t queue = (uint32_t)__builtin_ctzll(left);

		if (goes_before(h, queue, h->least_queue))
			h->least_queue = queue;
	}
	h->least_index = h->head_index[h->least_queue];
	h->least_known = true;
	return true;
}

/* ---- the guard ---- */

static void
guard_restart(struct scout__hdc *h)
{
	h->guard =
		(struct scout__hdc_guard){.look_at = h->clock + UINT64_C(2) * h->capacity, .length = h->guard.length};
	if (h->guard.length == 0)
		h->guard.length = 1;
	scout__hdc_forget_heads(h);
}

static void
guard_look(struct scout__hdc *h)
{
	struct scout__hdc_guard *g = &h->guard;
	double lead = g->lru_only - g->own_only;

	if (g->holds_until) {
		if (h->clock < g->holds_until)
			return;
		guard_restart(h);
		g->look_at = h->clock + h->capacity / 4 + 1;
		return;
	}
	if (h->clock < g->look_at)
		return;
	g->look_at = h->clock + h->capacity / 4 + 1;
	if (lead > GUARD_DOUBT * sqrt(g->lru_only + g->own_only) && lead > GUARD_LEAD * g->all) {
		g->holds_until = h->clock + (uint64_t)h->capacity * g->length;
		if (g->length < GUARD_LONGEST)
			g->length *= 2;
		scout__hdc_forget_heads(h);
	}
	g->lru_only *= GUARD_FORGET;
	g->own_only *= GUARD_FORGET;
	g->all *= GUARD_FORGET;
}

/* ---- the capacity ---- */

static float
unit_of(uint32_t capacity)
{
	return capacity > (uint32_t)UNITS_PER_CAPACITY ? (float)capacity / UNITS_PER_CAPACITY : 1;
}

static void
set_capacity(struct scout__hdc *h, uint32_t capacity)
{
	h->capacity = capacity;
	h->units_per_tick = (float)h->tick / unit_of(capacity);
	h->started = h->clock;
	h->next_relearning = h->clock + scout__hdc_relearn_period(h);
	h->relearning = SCOUT__RELEARN_IDLE;
	scout__history_resize(&h->history, capacity);
	guard_restart(h);
}

static void
hdc_resized(void *state, uint32_t slots)
{
	struct scout__hdc *h = state;
	uint64_t least_new = (uint64_t)h->capacity * 3 / 4, most_new = (uint64_t)h->capacity * 5 / 4;

	h->slots = slots;
	if (slots == 0 || (slots >= least_new && slots <= most_new))
		return;
	scout__density_rescale(h->density, (int)lrintf(4 * log2f(unit_of(slots) / unit_of(h->capacity))));
	set_capacity(h, slots);
}

/* ---- the policy ---- */

static int
hdc_open(void **ret_state, uint32_t max_entries, const struct scout__evict_args *args)
{
	struct scout__hdc *h = calloc(1, sizeof(*h));
	int code = SCOUT_ERR_NOMEM;

	(void)args;
	if (!h)
		return code;
	h->density = malloc(sizeof(*h->density));
	if (!h->density)
		goto err_free;
	code = scout__ghost_init(&h->ghost, max_entries);
	if (code)
		goto err_free_density;
	code = scout__history_init(&h->history, max_entries);
	if (code)
		goto err_free_ghost;
	scout__chunked_queue_init(&h->queues, sizeof(struct scout__entry));
	scout__density_init(h->density);
	h->max_entries = max_entries;
	h->tick = max_entries / TICKS_PER_CAPACITY + 1;
	h->slots = max_entries;
	set_capacity(h, max_entries);
	*ret_state = h;
	return 0;

err_free_ghost:
	scout__ghost_fini(&h->ghost);
err_free_density:
	free(h->density);
err_free:
	free(h);
	return code;
}

static int
hdc_reserve(void *state, struct scout__entry *entries, uint32_t n)
{
	struct scout__hdc *h = state;

	h->entries = entries;
	return scout__chunked_queue_reserve(&h->queues, &entries[0].node, n);
}

static void
hdc_close(void *state)
{
	struct scout__hdc *h = state;

	scout__chunked_queue_fini(&h->queues);
	scout__history_fini(&h->history);
	scout__ghost_fini(&h->ghost);
	free(h->density);
	free(h);
}

static void
hdc_asked(void *state, uint32_t n)
{
	struct scout__hdc *h = state;
	uint32_t now;

	h->clock += n;
	now = (uint32_t)(h->clock / h->tick) & SCOUT__STAMP_MASK;
	if (now != h->now)
		scout__hdc_forget_heads(h); /* all heads have aged */
	h->now = now;
	if (h->clock >= h->next_relearning)
		scout__hdc_relearn(h);
	guard_look(h);
}

static uint64_t
ghost_window(const struct scout__hdc *h)
{
	return (uint64_t)h->slots * GHOST_CAPACITIES;
}

static bool
hdc_remembers(const void *state, uint32_t space, const uint8_t *hash)
{
	const struct scout__hdc *h = state;

	return scout__ghost_has(&h->ghost, scout__fingerprint_of(space, hash), ghost_window(h));
}

static void
hdc_expect(const void *state, uint32_t entry)
{
	const struct scout__hdc *h = state;

	scout__ghost_load(&h->ghost, scout__fingerprint(&h->entries[entry]));
}

static void
hdc_insert(void *state, uint32_t entry, enum scout__insert why)
{
	struct scout__hdc *h = state;
	struct scout__entry *e = &h->entries[entry];
	uint32_t touches = 0;

	if (why == SCOUT__INSERT_CREATED) {
		uint64_t print = scout__fingerprint(e);

		h->live++;
		(void)scout__ghost_take(&h->ghost, print, ghost_window(h), &touches);
		e->node.level = scout__history_level(print);
		e->policy_bits = (uint8_t)touches;
		put(h, class_of(e->policy_bits), entry);
	} else {
		put(h, e->node.queue, entry);
	}
}

static void
hdc_remove(void *state, uint32_t entry, enum scout__remove why)
{
	struct scout__hdc *h = state;
	const struct scout__entry *e = &h->entries[entry];

	take_out(h, entry);
	if (why != SCOUT__REMOVE_GONE)
		return;
	scout__ghost_add(&h->ghost, scout__fingerprint(e), e->policy_bits & BITS_TOUCHES);
	h->live--;
}

/* Whether an entry of @class that is touched now is worth less than everything that could be evicted instead. */
static bool
is_spare(struct scout__hdc *h, uint32_t class)
{
	if (guard_holds(h) || h->live < h->slots - h->slots / 16)
		return false;
	return find_least(h) && SPARE_FACTOR * h->density->index[class][0] < h->least_index;
}

static void
hdc_accessed(void *state, uint32_t entry, struct scout__touch *touch)
{
	struct scout__hdc *h = state;
	struct scout__entry *e = &h->entries[entry];
	uint32_t touches = e->policy_bits & BITS_TOUCHES;
	uint32_t from = e->node.queue;
	uint32_t class, queue;

	touches += touches < MAX_TOUCHES;
	if (touches < touch->behind)
		touches = touch->behind; /* it was gone for a while, and the chunks after it were not */
	touch->behind = touches;
	e->policy_bits = (uint8_t)(touches | touch->kind << BITS_KIND_SHIFT | (touch->hinted ? BITS_HINTED : 0));
	class = class_of(e->policy_bits);
	if (h->head[from] == entry)
		forget_head(h, from); /* its class has changed */
	if (e->node.level >= h->history.shift)
		scout__hdc_learn(h, e, class, touch->how == SCOUT__ACCESS_READ);
	if (h->relearning != SCOUT__RELEARN_IDLE && ++h->touches % SLICE_TOUCHES == 0)
		scout__hdc_slice(h);
	queue = is_spare(h, class) ? SCOUT__SPARE_QUEUE : class;
	/* As after most unpins: the entry is the newest there already. */
	if (queue == from && e->node.stamp == (h->now & SCOUT__STAMP_MASK) &&
	    scout__chunked_queue_is_tail(&h->queues, entry))
		return;
	take_out(h, entry);
	put(h, queue, entry);
}

static void
hdc_count_hints(void *state, struct scout__hint_counts *counts)
{
	struct scout__hdc *h = state;

	counts->returned += h->hints.returned;
	counts->gone += h->hints.gone;
	h->hints = (struct scout__hint_counts){0};
}

static uint32_t
hdc_victim(void *state)
{
	struct scout__hdc *h = state;

	return find_least(h) ? h->head[h->least_queue] : SCOUT__NO_ENTRY;
}

static uint32_t
hdc_soon(const void *state)
{
	const struct scout__hdc *h = state;

	uint32_t entry;

	/* A class is drained for a while before it is another one's turn. */
	if (!(h->used >> h->least_queue & 1))
		return SCOUT__NO_ENTRY;
	entry = scout__chunked_queue_head(&h->queues, h->least_queue);
	scout__ghost_load(&h->ghost, scout__fingerprint(&h->entries[entry]));
	return entry;
}

static void
hdc_check(void *state, uint32_t n)
{
	const struct scout__hdc *h = state;
	uint32_t found = 0;

	scout__chunked_queue_check(&h->queues);
	scout__history_check(&h->history);
	for (uint32_t queue = 0; queue < SCOUT__QUEUES; queue++) {
		SCOUT_ASSERT((h->used >> queue & 1) == (h->queues.n[queue] > 0));
		if (h->used & h->fresh & UINT64_C(1) << queue)
			SCOUT_ASSERT(h->head[queue] == scout__chunked_queue_head(&h->queues, queue));
		for (uint32_t at = scout__chunked_queue_head(&h->queues, queue); at != SCOUT__NO_ENTRY;
		     at = scout__chunked_queue_next(&h->queues, at)) {
			SCOUT_ASSERT(h->entries[at].in_order && h->entries[at].node.queue == queue);
			found++;
		}
	}
	SCOUT_ASSERT(found == n && h->live >= n);
}

static uint64_t
hdc_bytes(const void *state, uint32_t n)
{
	const struct scout__hdc *h = state;

	return sizeof(*h) + sizeof(*h->density) + scout__chunked_queue_bytes(n) + scout__ghost_bytes(&h->ghost) +
	       scout__history_bytes(&h->history);
}

const struct scout__evict_ops scout__evict_hdc = {
	.name = "hdc",
	.usage = "hdc",
	.open = hdc_open,
	.reserve = hdc_reserve,
	.close = hdc_close,
	.expect = hdc_expect,
	.insert = hdc_insert,
	.remove = hdc_remove,
	.accessed = hdc_accessed,
	.asked = hdc_asked,
	.resized = hdc_resized,
	.remembers = hdc_remembers,
	.count_hints = hdc_count_hints,
	.victim = hdc_victim,
	.soon = hdc_soon,
	.check = hdc_check,
	.state_bytes = hdc_bytes,
};
