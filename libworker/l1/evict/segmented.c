/* SPDX-License-Identifier: Apache-2.0 */
#include "segmented.h"

#include <stdlib.h>

#include "entry.h"
#include "ghost.h"
#include "mini_cache.h"

/*
 * DESIGN
 *
 * Purpose: the policies `slru` (share and cut are given) and `adaptive` (simulations choose them while running), one
 * order for both: segmented.h.
 *
 * Why a depth cut: the leading chunks of many prompts serve longer than all chunks of few, because a hit ends at the
 * first chunk that is missing; and a prompt that comes back is worth as much a chunk at its head as at its tail. Depth
 * counts from the first chunk that was not there, so prompts with the same long beginning are not all deep.
 *
 * The ghost list is as long as there are entries. What comes back from it is protected at once: it was used twice
 * within twice the life of an entry, only too late for probation.
 *
 * An entry keeps its queue while it is pinned and comes back as its newest; one that was deeper than the cut comes
 * back on probation, and goes to where it belongs with the touch of the session that pinned it.
 *
 * Threads: loop.
 */

struct segmented {
	struct scout__segmented order;
	struct scout__entry *entries;
	struct scout__ghost ghost;
	struct scout__mini_caches *minis; /* NULL: share and cut are fixed */
};

static int
open_fixed(void **ret_state, struct scout__entry *entries, uint32_t max_entries, const struct scout__evict_args *args)
{
	struct segmented *s = calloc(1, sizeof(*s));
	int code;

	if (!s)
		return SCOUT_ERR_NOMEM;
	code = scout__ghost_init(&s->ghost, max_entries);
	if (code)
		goto err_free;
	code = scout__chunked_queue_init(&s->order.queues, &entries[0].node, sizeof(entries[0]), max_entries);
	if (code)
		goto err_free_ghost;
	s->order.args = *args;
	s->entries = entries;
	*ret_state = s;
	return 0;

err_free_ghost:
	scout__ghost_fini(&s->ghost);
err_free:
	free(s);
	return code;
}

static void
segmented_close(void *state)
{
	struct segmented *s = state;

	scout__mini_cache_free(s->minis);
	scout__chunked_queue_fini(&s->order.queues);
	scout__ghost_fini(&s->ghost);
	free(s);
}

static int
open_adaptive(void **ret_state, struct scout__entry *entries, uint32_t max_entries,
	      const struct scout__evict_args *args)
{
	struct segmented *s;
	void *state;
	int code = open_fixed(&state, entries, max_entries, args);

	if (code)
		return code;
	s = state;
	code = scout__mini_cache_new(max_entries, &s->minis);
	if (code) {
		segmented_close(state);
		return code;
	}
	*ret_state = state;
	return 0;
}

static void
created(struct segmented *s, uint32_t entry)
{
	uint64_t print = scout__fingerprint(&s->entries[entry]);
	struct scout__node *node = &s->entries[entry].node;

	s->order.live++;
	node->queue = scout__ghost_take(&s->ghost, print, s->order.live) ? SCOUT__PROTECTED : SCOUT__PROBATION;
	node->sampled = s->minis && scout__mini_cache_samples(s->minis, print);
	if (node->sampled)
		scout__mini_cache_created(s->minis, print);
}

static void
segmented_insert(void *state, uint32_t entry, enum scout__insert why)
{
	struct segmented *s = state;
	const struct scout__node *node = &s->entries[entry].node;

	if (why == SCOUT__INSERT_CREATED)
		created(s, entry);
	scout__segmented_put(&s->order, node->queue == SCOUT__SPARE ? SCOUT__PROBATION : node->queue, entry);
}

static void
segmented_remove(void *state, uint32_t entry, enum scout__remove why)
{
	struct segmented *s = state;

	scout__chunked_queue_unlink(&s->order.queues, entry);
	if (why != SCOUT__REMOVE_GONE)
		return;
	scout__ghost_add(&s->ghost, scout__fingerprint(&s->entries[entry]));
	if (s->minis)
		scout__mini_cache_full(s->minis, s->order.live);
	s->order.live--;
}

static void
segmented_accessed(void *state, uint32_t entry, enum scout__access how, uint32_t depth)
{
	struct segmented *s = state;
	struct scout__entry *e = &s->entries[entry];

	scout__segmented_accessed(&s->order, entry, how, depth);
	/* For the simulations in which it is not there when it is read: as deep as last time. */
	if (how == SCOUT__ACCESS_STORED)
		e->policy_bits = depth < UINT8_MAX ? (uint8_t)depth : UINT8_MAX;
	if (!e->node.sampled)
		return;
	scout__mini_cache_accessed(s->minis, scout__fingerprint(e), how, e->policy_bits);
	s->order.args = scout__mini_cache_choice(s->minis);
}

static void
segmented_read_finished(void *state, uint32_t entry)
{
	(void)state; /* the insert that follows, or the session's end, moves it */
	(void)entry;
}

static uint32_t
segmented_soon(const void *state)
{
	const struct segmented *s = state;

	return scout__segmented_victim(&s->order);
}

static uint32_t
segmented_victim(void *state)
{
	return segmented_soon(state);
}

static void
segmented_check(void *state, uint32_t n)
{
	const struct segmented *s = state;
	const struct scout__chunked_queues *queues = &s->order.queues;

	scout__chunked_queue_check(queues);
	SCOUT_ASSERT(queues->n[SCOUT__SPARE] + queues->n[SCOUT__PROBATION] + queues->n[SCOUT__PROTECTED] == n);
	SCOUT_ASSERT(queues->n[SCOUT__GHOST] == 0 && s->order.live >= n);
	for (uint32_t queue = 0; queue < SCOUT__QUEUES; queue++)
		for (uint32_t at = scout__chunked_queue_head(queues, queue); at != SCOUT__NO_ENTRY;
		     at = scout__chunked_queue_next(queues, at))
			SCOUT_ASSERT(s->entries[at].in_order);
	if (s->minis)
		scout__mini_cache_check(s->minis);
}

static uint64_t
segmented_bytes(const void *state)
{
	const struct segmented *s = state;

	return sizeof(*s) + scout__chunked_queue_bytes(&s->order.queues) + scout__ghost_bytes(&s->ghost) +
	       (s->minis ? scout__mini_cache_bytes(s->minis) : 0);
}

const struct scout__evict_ops scout__evict_slru = {
	.name = "slru",
	.usage = "slru[:SHARE[:CUT]]",
	.n_args = 2,
	.defaults = {.share = 50},
	.open = open_fixed,
	.close = segmented_close,
	.insert = segmented_insert,
	.remove = segmented_remove,
	.accessed = segmented_accessed,
	.read_finished = segmented_read_finished,
	.victim = segmented_victim,
	.soon = segmented_soon,
	.check = segmented_check,
	.state_bytes = segmented_bytes,
};

const struct scout__evict_ops scout__evict_adaptive = {
	.name = "adaptive",
	.usage = "adaptive",
	.defaults = {.share = 100},
	.open = open_adaptive,
	.close = segmented_close,
	.insert = segmented_insert,
	.remove = segmented_remove,
	.accessed = segmented_accessed,
	.read_finished = segmented_read_finished,
	.victim = segmented_victim,
	.soon = segmented_soon,
	.check = segmented_check,
	.state_bytes = segmented_bytes,
};
