/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "bank.h"
#include "evict.h"
#include "thread.h"

/*
 * Least recently used: a doubly linked list through the entries' two words, the next to go at its head. What was
 * created, unpinned or accessed goes to the tail; reading and storing count alike. Loop thread.
 */

enum {
	PREV = 0,
	NEXT = 1
};

struct lru {
	struct scout__entry *entries;
	uint32_t head;
	uint32_t tail;
};

static int
lru_open(void **ret_state, struct scout__entry *entries, uint32_t max_entries, const struct scout__evict_args *args)
{
	struct lru *lru = malloc(sizeof(*lru));

	(void)max_entries; /* the list needs no room of its own */
	(void)args;
	if (!lru)
		return SCOUT_ERR_NOMEM;
	*lru = (struct lru){.entries = entries, .head = SCOUT__NO_ENTRY, .tail = SCOUT__NO_ENTRY};
	*ret_state = lru;
	return 0;
}

static void
lru_close(void *state)
{
	free(state);
}

static void
append(struct lru *lru, uint32_t entry)
{
	uint32_t *link = lru->entries[entry].node.link;

	link[PREV] = lru->tail;
	link[NEXT] = SCOUT__NO_ENTRY;
	if (lru->tail == SCOUT__NO_ENTRY)
		lru->head = entry;
	else
		lru->entries[lru->tail].node.link[NEXT] = entry;
	lru->tail = entry;
}

static void
unlink_entry(struct lru *lru, uint32_t entry)
{
	const uint32_t *link = lru->entries[entry].node.link;

	if (link[PREV] == SCOUT__NO_ENTRY)
		lru->head = link[NEXT];
	else
		lru->entries[link[PREV]].node.link[NEXT] = link[NEXT];
	if (link[NEXT] == SCOUT__NO_ENTRY)
		lru->tail = link[PREV];
	else
		lru->entries[link[NEXT]].node.link[PREV] = link[PREV];
}

static void
lru_insert(void *state, uint32_t entry, enum scout__insert why)
{
	(void)why; /* new and unpinned are both the most recent */
	append(state, entry);
}

static void
lru_remove(void *state, uint32_t entry, enum scout__remove why)
{
	(void)why; /* it comes back as the most recent, or not at all */
	unlink_entry(state, entry);
}

static void
lru_accessed(void *state, uint32_t entry, enum scout__access how, uint32_t depth)
{
	struct lru *lru = state;

	(void)how; /* order of use, whatever the use */
	(void)depth;
	if (lru->tail == entry)
		return;
	unlink_entry(lru, entry);
	append(lru, entry);
}

static void
lru_read_finished(void *state, uint32_t entry)
{
	(void)state; /* the insert that follows, or the session's end, moves it */
	(void)entry;
}

static uint32_t
lru_victim(void *state)
{
	const struct lru *lru = state;

	return lru->head;
}

static void
lru_check(void *state, uint32_t n)
{
	const struct lru *lru = state;
	uint32_t prev = SCOUT__NO_ENTRY;
	uint32_t seen = 0;

	for (uint32_t at = lru->head; at != SCOUT__NO_ENTRY; at = lru->entries[at].node.link[NEXT]) {
		SCOUT_ASSERT(lru->entries[at].node.link[PREV] == prev);
		SCOUT_ASSERT(lru->entries[at].in_order);
		SCOUT_ASSERT(seen < n);
		prev = at;
		seen++;
	}
	SCOUT_ASSERT(lru->tail == prev);
	SCOUT_ASSERT(seen == n);
}

static uint64_t
lru_bytes(const void *state)
{
	const struct lru *lru = state;

	return sizeof(*lru);
}

const struct scout__evict_ops scout__evict_lru = {
	.name = "lru",
	.usage = "lru",
	.open = lru_open,
	.close = lru_close,
	.insert = lru_insert,
	.remove = lru_remove,
	.accessed = lru_accessed,
	.read_finished = lru_read_finished,
	.victim = lru_victim,
	.check = lru_check,
	.state_bytes = lru_bytes,
};
