/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "chunked_queue.h"
#include "entry.h"
#include "evict.h"
#include "ghost.h"

/*
 * DESIGN
 *
 * S3-FIFO (Yang and others, SOSP 2023): an entry that is stored enters a small queue. At the end of that queue, an
 * entry that was read meanwhile goes on to the main queue; any other is evicted and remembered in a ghost list. An
 * entry that comes back while it is remembered enters the main queue at once. At the end of the main queue, an entry
 * that was read goes round again, with one read less on its account. An entry's account (policy_bits) is 3 at most.
 *
 * Here an entry leaves its queue while it is pinned, and every read pins: it comes back as the queue's newest. So the
 * queues are in the order of the last pin, not of entering; the accounts decide as in the paper.
 *
 * The main queue has the share that the small queue has not; pinned entries count as small, because nearly all of them
 * are just being stored.
 *
 * The search for a victim covers at most MAX_MOVES entries, so that no call is long when a large cache was read
 * completely; then the next entry is evicted whatever its account. Asking twice gives the same victim.
 *
 * Threads: loop.
 */

#define MAX_MOVES 64u
#define MAX_READS 3u

enum {
	SMALL = 0,
	MAIN = 1
};

struct s3fifo {
	struct scout__chunked_queues queues;
	struct scout__entry *entries;
	struct scout__ghost ghost;
	uint32_t share;
	uint32_t live; /* entries that exist, pinned or not */
};

static int
s3fifo_open(void **ret_state, uint32_t max_entries, const struct scout__evict_args *args)
{
	struct s3fifo *s = calloc(1, sizeof(*s));
	int code;

	if (!s)
		return SCOUT_ERR_NOMEM;
	code = scout__ghost_init(&s->ghost, max_entries);
	if (code) {
		free(s);
		return code;
	}
	scout__chunked_queue_init(&s->queues, sizeof(struct scout__entry));
	s->share = args->share;
	*ret_state = s;
	return 0;
}

static int
s3fifo_reserve(void *state, struct scout__entry *entries, uint32_t n)
{
	struct s3fifo *s = state;

	s->entries = entries;
	return scout__chunked_queue_reserve(&s->queues, &entries[0].node, n);
}

static void
s3fifo_close(void *state)
{
	struct s3fifo *s = state;

	scout__chunked_queue_fini(&s->queues);
	scout__ghost_fini(&s->ghost);
	free(s);
}

static void
s3fifo_insert(void *state, uint32_t entry, enum scout__insert why)
{
	struct s3fifo *s = state;
	struct scout__entry *e = &s->entries[entry];
	uint32_t touches;

	if (why == SCOUT__INSERT_CREATED) {
		s->live++;
		e->policy_bits = 0;
		e->node.queue = scout__ghost_take(&s->ghost, scout__fingerprint(e), (uint64_t)s->live * 3 / 2, &touches)
					? MAIN
					: SMALL;
	}
	scout__chunked_queue_append(&s->queues, e->node.queue, entry);
}

static void
s3fifo_remove(void *state, uint32_t entry, enum scout__remove why)
{
	struct s3fifo *s = state;
	const struct scout__entry *e = &s->entries[entry];

	scout__chunked_queue_unlink(&s->queues, entry);
	if (why != SCOUT__REMOVE_GONE)
		return;
	s->live--;
	if (e->node.queue == SMALL)
		scout__ghost_add(&s->ghost, scout__fingerprint(e), 0);
}

static void
s3fifo_accessed(void *state, uint32_t entry, struct scout__touch *touch)
{
	struct s3fifo *s = state;
	struct scout__entry *e = &s->entries[entry];

	if (touch->how == SCOUT__ACCESS_READ && e->policy_bits < MAX_READS)
		e->policy_bits++;
}

static void
move_to_main(struct s3fifo *s, uint32_t entry)
{
	scout__chunked_queue_unlink(&s->queues, entry);
	scout__chunked_queue_append(&s->queues, MAIN, entry);
}

/* The head of the queue whose turn it is; SCOUT__NO_ENTRY when both are empty. */
static uint32_t
next_head(const struct s3fifo *s)
{
	bool main_full = (uint64_t)s->queues.n[MAIN] * 100 > (uint64_t)(100 - s->share) * s->live;

	return scout__chunked_queue_head(&s->queues, main_full || s->queues.n[SMALL] == 0 ? MAIN : SMALL);
}

static uint32_t
s3fifo_soon(const void *state)
{
	return next_head(state);
}

static uint32_t
s3fifo_victim(void *state)
{
	struct s3fifo *s = state;
	uint32_t entry;

	for (uint32_t moves = 0;; moves++) {
		struct scout__entry *e;

		entry = next_head(s);
		if (entry == SCOUT__NO_ENTRY)
			return entry;
		e = &s->entries[entry];
		if (moves == MAX_MOVES)
			e->policy_bits = 0;
		if (e->policy_bits == 0)
			return entry;
		e->policy_bits = e->node.queue == SMALL ? 0 : e->policy_bits - 1;
		move_to_main(s, entry);
	}
}

static void
s3fifo_check(void *state, uint32_t n)
{
	const struct s3fifo *s = state;

	scout__chunked_queue_check(&s->queues);
	SCOUT_ASSERT(s->queues.n[SMALL] + s->queues.n[MAIN] == n && s->live >= n);
	for (uint32_t queue = 0; queue < 2; queue++)
		for (uint32_t at = scout__chunked_queue_head(&s->queues, queue); at != SCOUT__NO_ENTRY;
		     at = scout__chunked_queue_next(&s->queues, at))
			SCOUT_ASSERT(s->entries[at].in_order);
}

static uint64_t
s3fifo_bytes(const void *state, uint32_t n)
{
	const struct s3fifo *s = state;

	return sizeof(*s) + scout__chunked_queue_bytes(n) + scout__ghost_bytes(&s->ghost);
}

const struct scout__evict_ops scout__evict_s3fifo = {
	.name = "s3fifo",
	.usage = "s3fifo[:SHARE]",
	.n_args = 1,
	.defaults = {.share = 10},
	.open = s3fifo_open,
	.reserve = s3fifo_reserve,
	.close = s3fifo_close,
	.insert = s3fifo_insert,
	.remove = s3fifo_remove,
	.accessed = s3fifo_accessed,
	.victim = s3fifo_victim,
	.soon = s3fifo_soon,
	.check = s3fifo_check,
	.state_bytes = s3fifo_bytes,
};
