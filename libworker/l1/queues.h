/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_L1_QUEUES_H
#define SCOUT_L1_QUEUES_H

#include <stddef.h>
#include <stdint.h>

#include "evict.h"
#include "thread.h"

/*
 * Up to four lists over one array of elements that each have a node. An element is in at most one of them; its node
 * says in which. The head is the oldest. Loop thread.
 */

#define SCOUT__QUEUES 4u

enum {
	SCOUT__PREV = 0,
	SCOUT__NEXT = 1
};

struct scout__queues {
	char *nodes;   /* of element 0 */
	size_t stride; /* bytes from one element's node to the next */
	uint32_t head[SCOUT__QUEUES];
	uint32_t tail[SCOUT__QUEUES];
	uint32_t n[SCOUT__QUEUES];
};

static inline struct scout__node *
scout__node_at(const struct scout__queues *queues, uint32_t i)
{
	return (struct scout__node *)(void *)(queues->nodes + i * queues->stride);
}

static inline void
scout__queues_init(struct scout__queues *queues, struct scout__node *first, size_t stride)
{
	*queues = (struct scout__queues){.nodes = (char *)first, .stride = stride};
	for (uint32_t i = 0; i < SCOUT__QUEUES; i++)
		queues->head[i] = queues->tail[i] = SCOUT__NO_ENTRY;
}

static inline void
scout__queues_append(struct scout__queues *queues, uint32_t queue, uint32_t i)
{
	struct scout__node *node = scout__node_at(queues, i);
	uint32_t tail = queues->tail[queue];

	node->link[SCOUT__PREV] = tail;
	node->link[SCOUT__NEXT] = SCOUT__NO_ENTRY;
	node->queue = queue & 3;
	if (tail == SCOUT__NO_ENTRY)
		queues->head[queue] = i;
	else
		scout__node_at(queues, tail)->link[SCOUT__NEXT] = i;
	queues->tail[queue] = i;
	queues->n[queue]++;
}

static inline void
scout__queues_unlink(struct scout__queues *queues, uint32_t i)
{
	const struct scout__node *node = scout__node_at(queues, i);
	uint32_t prev = node->link[SCOUT__PREV];
	uint32_t next = node->link[SCOUT__NEXT];

	if (prev == SCOUT__NO_ENTRY)
		queues->head[node->queue] = next;
	else
		scout__node_at(queues, prev)->link[SCOUT__NEXT] = next;
	if (next == SCOUT__NO_ENTRY)
		queues->tail[node->queue] = prev;
	else
		scout__node_at(queues, next)->link[SCOUT__PREV] = prev;
	queues->n[node->queue]--;
}

/* Debug and tests: links, queue numbers and counts. */
static inline void
scout__queues_check(const struct scout__queues *queues)
{
	for (uint32_t queue = 0; queue < SCOUT__QUEUES; queue++) {
		uint32_t prev = SCOUT__NO_ENTRY;
		uint32_t seen = 0;

		for (uint32_t at = queues->head[queue]; at != SCOUT__NO_ENTRY;) {
			const struct scout__node *node = scout__node_at(queues, at);

			SCOUT_ASSERT(node->queue == queue && node->link[SCOUT__PREV] == prev);
			SCOUT_ASSERT(seen < queues->n[queue]);
			seen++;
			prev = at;
			at = node->link[SCOUT__NEXT];
		}
		SCOUT_ASSERT(queues->tail[queue] == prev && seen == queues->n[queue]);
	}
}

#endif
