/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle.h"

#include <stdlib.h>

#include "map.h"
#include "mix.h"
#include "say.h"

static void *
make(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);

	if (!p)
		die("out of memory");
	return p;
}

/* ---- hints ---- */

/* 0 to 100 */
static double
draw_percent(uint64_t *random)
{
	return 100 * (double)(mix_next(random) >> 11) / (double)(UINT64_C(1) << 53);
}

void
oracle_hints_make(const struct policy_load *load, double recall, double false_alarms, uint64_t seed,
		  struct oracle_hints *ret_hints)
{
	struct oracle_hints hints = {.n = load->n_requests};
	struct scout__map later; /* blocks of the requests behind the one that is looked at */
	uint64_t random = mix64(seed);

	hints.returns = make(hints.n, sizeof(*hints.returns));
	hints.flagged = make(hints.n, sizeof(*hints.flagged));
	if (scout__map_init(&later, load->n_ids))
		die("out of memory");
	for (size_t i = hints.n; i-- > 0;) {
		size_t end = load->first[i + 1];

		for (size_t at = end; at > load->first[i] && at + 2 > end; at--)
			hints.returns[i] |= scout__map_get(&later, load->ids[at - 1]) != SCOUT__MAP_NONE;
		for (size_t at = load->first[i]; at < end; at++)
			(void)scout__map_put(&later, load->ids[at], 0);
	}
	scout__map_fini(&later);
	for (size_t i = 0; i < hints.n; i++)
		hints.flagged[i] = draw_percent(&random) < (hints.returns[i] ? false_alarms : recall);
	*ret_hints = hints;
}

void
oracle_hints_free(struct oracle_hints *hints)
{
	free(hints->returns);
	free(hints->flagged);
	*hints = (struct oracle_hints){0};
}

static bool
take_percent(const char **text, double *ret_percent)
{
	char *end;
	double percent = strtod(*text, &end);

	if (end == *text || !(percent >= 0 && percent <= 100))
		return false;
	*text = end;
	*ret_percent = percent;
	return true;
}

bool
oracle_parse(const char *text, double *ret_recall, double *ret_false_alarms)
{
	static const char start[] = "oracle:";
	double recall, false_alarms;

	for (size_t i = 0; i + 1 < sizeof(start); i++)
		if (*text++ != start[i])
			return false;
	if (!take_percent(&text, &recall) || *text++ != ',' || !take_percent(&text, &false_alarms) || *text)
		return false;
	*ret_recall = recall;
	*ret_false_alarms = false_alarms;
	return true;
}

/* ---- the optimum ---- */

#define NEVER UINT32_MAX

/*
 * The cached blocks, the one that is used again latest at the top; of those that one request uses, the one that is
 * furthest behind. What was overtaken by a later use stays in the heap until it is at the top.
 */
struct far_use {
	uint64_t order; /* request that uses it again, and place in the prompt */
	uint32_t next;
	uint32_t block;
};

struct far_heap {
	struct far_use *uses;
	size_t n;
};

static void
heap_push(struct far_heap *heap, struct far_use use)
{
	size_t at = heap->n++;

	for (; at > 0 && heap->uses[(at - 1) / 2].order < use.order; at = (at - 1) / 2)
		heap->uses[at] = heap->uses[(at - 1) / 2];
	heap->uses[at] = use;
}

static struct far_use
heap_pop(struct far_heap *heap)
{
	struct far_use top = heap->uses[0], last = heap->uses[--heap->n];
	size_t at = 0, child;

	while ((child = 2 * at + 1) < heap->n) {
		child += child + 1 < heap->n && heap->uses[child + 1].order > heap->uses[child].order;
		if (heap->uses[child].order <= last.order)
			break;
		heap->uses[at] = heap->uses[child];
		at = child;
	}
	heap->uses[at] = last;
	return top;
}

struct optimum {
	uint32_t *blocks;  /* dense numbers, in the order of load.ids */
	uint32_t *next;    /* of each of them, the request that uses the block again */
	uint32_t *next_of; /* of each cached block, what is true now; 0: it is not cached */
	struct far_heap heap;
};

static void
number_blocks(const struct policy_load *load, struct optimum *o)
{
	struct scout__map numbers;
	uint32_t n = 0;
	uint32_t *seen;

	if (scout__map_init(&numbers, load->n_ids))
		die("out of memory");
	for (size_t i = 0; i < load->n_ids; i++) {
		uint32_t number = scout__map_get(&numbers, load->ids[i]);

		if (number == SCOUT__MAP_NONE)
			(void)scout__map_put(&numbers, load->ids[i], number = n++);
		o->blocks[i] = number;
	}
	scout__map_fini(&numbers);
	o->next_of = make(n, sizeof(*o->next_of));
	seen = make(n, sizeof(*seen));
	for (size_t request = load->n_requests; request-- > 0;) {
		for (size_t i = load->first[request]; i < load->first[request + 1]; i++)
			o->next[i] = seen[o->blocks[i]] ? seen[o->blocks[i]] : NEVER;
		for (size_t i = load->first[request]; i < load->first[request + 1]; i++)
			seen[o->blocks[i]] = (uint32_t)request + 1;
	}
	free(seen);
}

uint64_t
oracle_optimum(const struct policy_load *load, uint64_t blocks)
{
	struct optimum o = {.blocks = make(load->n_ids, sizeof(uint32_t)), .next = make(load->n_ids, sizeof(uint32_t))};
	uint64_t hits = 0, cached = 0;

	o.heap.uses = make(load->n_ids, sizeof(*o.heap.uses));
	number_blocks(load, &o);
	for (size_t request = 0; request < load->n_requests; request++) {
		bool leading = true;

		for (size_t i = load->first[request]; i < load->first[request + 1]; i++) {
			uint32_t block = o.blocks[i];

			leading = leading && o.next_of[block];
			hits += leading;
			cached += !o.next_of[block];
			o.next_of[block] = o.next[i];
			heap_push(&o.heap, (struct far_use){(uint64_t)o.next[i] << 32 | (i - load->first[request]),
							    o.next[i], block});
		}
		while (cached > blocks) {
			struct far_use far = heap_pop(&o.heap);

			if (o.next_of[far.block] != far.next)
				continue;
			o.next_of[far.block] = 0;
			cached--;
		}
	}
	free(o.blocks);
	free(o.next);
	free(o.next_of);
	free(o.heap.uses);
	return hits;
}
