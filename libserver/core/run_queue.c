/* SPDX-License-Identifier: Apache-2.0 */
#include "run_queue.h"

#include <stdlib.h>

#include "server_core.h"

/*
 * DESIGN
 *
 * The run queue: a list of run items. A turn runs once each item that was queued when the turn began, so an item of a
 * million chunks and one of ten take turns, and the small one is answered first. Operations that are short run at once
 * when they arrive, without queueing, until the turn has touched SCOUT__INLINE_CHUNKS chunks.
 *
 * Polls: a peer may have tens of thousands of lookups that look again each millisecond. A poll that is due waits in the
 * lane of its peer. A turn gives SCOUT__POLLS_US to polls, after all else, and takes the peers by turns: so a poll costs
 * other operations no more than that, and a peer with many polls delays its own. With nothing else to do, turns follow
 * each other at once, and polls have the whole loop.
 *
 * Timers: a binary heap of run items, from index 1. An item has at most one timer. When there is no memory for a larger
 * heap, the item is queued at once, which costs time but loses nothing.
 *
 * Threads: loop.
 */

void
scout__run_queue_add(struct scout_server *s, struct scout__run_item *item)
{
	if (item->queued)
		return;
	item->queued = true;
	scout__list_add(&s->queue, &item->node);
}

void
scout__run_queue_remove(struct scout__run_item *item)
{
	if (!item->queued)
		return;
	item->queued = false;
	scout__list_del(&item->node);
}

bool
scout__run_queue_empty(const struct scout_server *s)
{
	return scout__list_empty(&s->queue) && scout__list_empty(&s->lanes);
}

bool
scout__run_queue_wait(const struct scout_server *s)
{
	const struct scout__list *mark = &s->turn_mark.node;
	const struct scout__list *first = s->queue.next == mark ? mark->next : s->queue.next;

	return first != &s->queue;
}

SCOUT_ON_LOOP static void
run_one(struct scout_server *s, struct scout__run_item *item)
{
	uint64_t before = s->now_us;

	item->step(s, item);
	scout__note_step(s, before);
}

SCOUT_ON_LOOP static void
run_polls(struct scout_server *s)
{
	uint64_t end_us = s->now_us + SCOUT__POLLS_US;

	while (!scout__list_empty(&s->lanes) && s->now_us < end_us) {
		struct scout__run_lane *lane = SCOUT__OWNER(scout__list_pop(&s->lanes), struct scout__run_lane, node);
		struct scout__run_item *item;

		if (scout__list_empty(&lane->items))
			continue; /* its polls were cancelled, or came otherwise */
		item = SCOUT__OWNER(lane->items.next, struct scout__run_item, node);
		scout__run_queue_remove(item);
		if (!scout__list_empty(&lane->items))
			scout__list_add(&s->lanes, &lane->node);
		run_one(s, item);
	}
}

SCOUT_ON_LOOP static void
run_round(struct scout_server *s)
{
	uint64_t end_us = s->now_us + SCOUT__TURN_US;
	struct scout__run_item *mark = &s->turn_mark;

	if (scout__list_empty(&s->queue))
		return;
	/* Items queued from here on run in the next turn. */
	scout__run_queue_add(s, mark);
	while (s->queue.next != &mark->node && s->now_us < end_us) {
		struct scout__run_item *item = SCOUT__OWNER(s->queue.next, struct scout__run_item, node);

		scout__run_queue_remove(item);
		run_one(s, item);
	}
	scout__run_queue_remove(mark);
}

void
scout__run_queue_run(struct scout_server *s)
{
	run_round(s);
	run_polls(s);
}

void
scout__run_queue_start(struct scout_server *s, struct scout__run_item *item, uint32_t chunks)
{
	if (chunks > SCOUT__SLICE_CHUNKS)
		chunks = SCOUT__SLICE_CHUNKS;
	if (s->inline_left < chunks) {
		scout__run_queue_add(s, item);
		return;
	}
	s->inline_left -= chunks;
	item->step(s, item);
}

SCOUT_ON_LOOP static void
place(struct scout_server *s, size_t i, struct scout__run_item *item)
{
	s->heap[i] = item;
	item->heap_pos = i;
}

SCOUT_ON_LOOP static void
sift_up(struct scout_server *s, size_t i)
{
	struct scout__run_item *item = s->heap[i];

	while (i > 1 && s->heap[i / 2]->wake_us > item->wake_us) {
		place(s, i, s->heap[i / 2]);
		i /= 2;
	}
	place(s, i, item);
}

SCOUT_ON_LOOP static void
sift_down(struct scout_server *s, size_t i)
{
	struct scout__run_item *item = s->heap[i];

	for (;;) {
		size_t child = 2 * i;

		if (child > s->heap_n)
			break;
		if (child < s->heap_n && s->heap[child + 1]->wake_us < s->heap[child]->wake_us)
			child++;
		if (s->heap[child]->wake_us >= item->wake_us)
			break;
		place(s, i, s->heap[child]);
		i = child;
	}
	place(s, i, item);
}

SCOUT_ON_LOOP static bool
heap_room(struct scout_server *s)
{
	size_t cap = s->heap_cap ? s->heap_cap * 2 : 64;
	struct scout__run_item **heap;

	if (s->heap_n + 1 < s->heap_cap)
		return true;
	heap = reallocarray(s->heap, cap, sizeof(struct scout__run_item *));
	if (!heap)
		return false;
	s->heap = heap;
	s->heap_cap = cap;
	return true;
}

void
scout__timer_set(struct scout_server *s, struct scout__run_item *item, uint64_t wake_us)
{
	scout__timer_clear(s, item);
	item->lane = NULL;
	if (wake_us == UINT64_MAX)
		return;
	item->wake_us = wake_us;
	if (!heap_room(s)) {
		scout__run_queue_add(s, item);
		return;
	}
	s->heap[++s->heap_n] = item;
	sift_up(s, s->heap_n);
}

void
scout__timer_set_poll(struct scout_server *s, struct scout__run_item *item, struct scout__run_lane *lane,
		      uint64_t wake_us)
{
	scout__timer_set(s, item, wake_us);
	item->lane = lane;
}

void
scout__timer_clear(struct scout_server *s, struct scout__run_item *item)
{
	size_t i = item->heap_pos;
	struct scout__run_item *last;

	if (i == 0)
		return;
	item->heap_pos = 0;
	last = s->heap[s->heap_n--];
	if (last == item)
		return;
	place(s, i, last);
	sift_up(s, i);
	sift_down(s, last->heap_pos);
}

uint64_t
scout__timers_next(const struct scout_server *s)
{
	return s->heap_n ? s->heap[1]->wake_us : UINT64_MAX;
}

/* The poll @item is due. */
SCOUT_ON_LOOP static void
add_poll(struct scout_server *s, struct scout__run_item *item)
{
	if (item->queued)
		return;
	item->queued = true;
	scout__list_add(&item->lane->items, &item->node);
	if (scout__list_empty(&item->lane->node))
		scout__list_add(&s->lanes, &item->lane->node);
}

void
scout__timers_run(struct scout_server *s)
{
	while (s->heap_n && s->heap[1]->wake_us <= s->now_us) {
		struct scout__run_item *item = s->heap[1];

		scout__timer_clear(s, item);
		if (item->lane)
			add_poll(s, item);
		else
			scout__run_queue_add(s, item);
	}
}
