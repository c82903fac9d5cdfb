/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "chunked_queue.h"
#include "entry.h"
#include "evict.h"
#include "thread.h"

/*
 * Least recently used: one queue, the next victim at its head. An entry that is created, unpinned or accessed becomes
 * the newest; reading and storing count alike. Loop thread.
 */

struct lru {
	struct scout__chunked_queues queues; /* only queue 0; first: a test walks it */
	struct scout__entry *entries;
};

static int
lru_open(void **ret_state, uint32_t max_entries, const struct scout__evict_args *args)
{
	struct lru *lru = calloc(1, sizeof(*lru));

	(void)max_entries;
	(void)args;
	if (!lru)
		return SCOUT_ERR_NOMEM;
	scout__chunked_queue_init(&lru->queues, sizeof(struct scout__entry));
	*ret_state = lru;
	return 0;
}

static int
lru_reserve(void *state, struct scout__entry *entries, uint32_t n)
{
	struct lru *lru = state;

	lru->entries = entries;
	return scout__chunked_queue_reserve(&lru->queues, &entries[0].node, n);
}

static void
lru_close(void *state)
{
	struct lru *lru = state;

	scout__chunked_queue_fini(&lru->queues);
	free(lru);
}

static void
lru_insert(void *state, uint32_t entry, enum scout__insert why)
{
	struct lru *lru = state;

	(void)why; /* new and unpinned are both the most recent */
	scout__chunked_queue_append(&lru->queues, 0, entry);
}

static void
lru_remove(void *state, uint32_t entry, enum scout__remove why)
{
	struct lru *lru = state;

	(void)why; /* it comes back as the most recent, or not at all */
	scout__chunked_queue_unlink(&lru->queues, entry);
}

static void
lru_accessed(void *state, uint32_t entry, struct scout__touch *touch)
{
	struct lru *lru = state;

	(void)touch; /* order of use, whatever the use */
	if (scout__chunked_queue_is_tail(&lru->queues, entry))
		return;
	scout__chunked_queue_unlink(&lru->queues, entry);
	scout__chunked_queue_append(&lru->queues, 0, entry);
}

static uint32_t
lru_soon(const void *state)
{
	const struct lru *lru = state;

	return scout__chunked_queue_head(&lru->queues, 0);
}

static uint32_t
lru_victim(void *state)
{
	const struct lru *lru = state;

	return lru_soon(lru);
}

static void
lru_check(void *state, uint32_t n)
{
	const struct lru *lru = state;

	scout__chunked_queue_check(&lru->queues);
	SCOUT_ASSERT(lru->queues.n[0] == n);
	for (uint32_t at = scout__chunked_queue_head(&lru->queues, 0); at != SCOUT__NO_ENTRY;
	     at = scout__chunked_queue_next(&lru->queues, at)) {
		SCOUT_ASSERT(lru->entries[at].in_order);
		n--;
	}
	SCOUT_ASSERT(n == 0);
}

static uint64_t
lru_bytes(const void *state, uint32_t n)
{
	const struct lru *lru = state;

	return sizeof(*lru) + scout__chunked_queue_bytes(n);
}

const struct scout__evict_ops scout__evict_lru = {
	.name = "lru",
	.usage = "lru",
	.open = lru_open,
	.reserve = lru_reserve,
	.close = lru_close,
	.insert = lru_insert,
	.remove = lru_remove,
	.accessed = lru_accessed,
	.victim = lru_victim,
	.soon = lru_soon,
	.check = lru_check,
	.state_bytes = lru_bytes,
};
