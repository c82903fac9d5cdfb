/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_request.h"

#include <stdarg.h>
#include <stdio.h>

#include "clock.h"
#include "sized.h"

/*
 * DESIGN
 *
 * Purpose: checks the groups, pages and layers of a request, and writes the sentence that says what is wrong.
 *
 * The calls for jobs have no buffer for a text: an engine makes them for each request, and a refusal is a mistake in the engine,
 * not in the request. So the sentence goes to the log, where the engine's developer looks next.
 *
 * Threads: caller.
 */

#define REFUSAL_LOG_US 10000000u

int
scout__request_refuse(struct scout_worker *w, const struct scout__all_named *all, int code, const char *fmt, ...)
{
	char text[300];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	scout__log_limited(&w->log, &w->refusal_limit, scout__now_us(), REFUSAL_LOG_US, SCOUT_LOG_WARN,
			   "a %s is refused with %s: %s", all->call, scout_err_name(code), text);
	return code;
}

/* ---- layers ---- */

/* Check that the planes of group @g in all layers are the planes of its table. */
static int
check_planes(struct scout_worker *w, const struct scout__all_named *all, uint32_t n, const uint32_t *layer_planes,
	     uint32_t g)
{
	const struct scout__table *table = all->of[g].table;
	uint64_t sum = 0;

	for (uint32_t l = 0; l < n; l++)
		sum += layer_planes[(size_t)l * all->n + g];
	if (sum == table->layout.n_planes)
		return 0;
	return scout__request_refuse(w, all, SCOUT_ERR_INVALID,
				     "layer_planes: the layers take %llu of the planes of group %u, its table has %u",
				     (unsigned long long)sum, (unsigned)table->group, (unsigned)table->layout.n_planes);
}

int
scout__request_check_layers(struct scout_worker *w, const struct scout__all_named *all, uint32_t n,
			    const uint32_t *layer_planes, const void *events)
{
	int rc = 0;

	if (events && scout__worker_is_host(w))
		return scout__request_refuse(w, all, SCOUT_ERR_UNSUPPORTED,
					     "layer_events: the host backend knows no events");
	if (n == 0 && !events && !layer_planes)
		return 0;
	if (n == 0 || !layer_planes || n > SCOUT_MAX_PLANES)
		return scout__request_refuse(w, all, SCOUT_ERR_INVALID,
					     "n_layers = %u: must be 1..%u with layer_planes, and 0 without",
					     (unsigned)n, (unsigned)SCOUT_MAX_PLANES);
	for (uint32_t l = 0; l < n; l++) {
		uint64_t of_layer = 0;

		for (uint32_t g = 0; g < all->n; g++)
			of_layer += layer_planes[(size_t)l * all->n + g];
		if (of_layer == 0)
			return scout__request_refuse(w, all, SCOUT_ERR_INVALID,
						     "layer_planes: layer %u takes no plane of any group", (unsigned)l);
	}
	for (uint32_t g = 0; g < all->n && rc == 0; g++)
		rc = check_planes(w, all, n, layer_planes, g);
	return rc;
}

/* ---- groups and pages ---- */

/* Check entry @g: its group has a table, and is above the group of the entry before. */
static int
find_table(struct scout_worker *w, struct scout__all_named *all, uint32_t g)
{
	struct scout__named *named = &all->of[g];
	uint32_t group = named->blocks.group;

	named->table = scout__worker_table_of(w, group);
	if (!named->table)
		return scout__request_refuse(w, all, SCOUT_ERR_GROUP,
					     "blocks[%u].group = %u: this worker has registered no table of it",
					     (unsigned)g, (unsigned)group);
	if (g > 0 && group <= all->of[g - 1].blocks.group)
		return scout__request_refuse(
			w, all, SCOUT_ERR_GROUP,
			"blocks[%u].group = %u: must be above the group of the entry before, which is %u", (unsigned)g,
			(unsigned)group, (unsigned)all->of[g - 1].blocks.group);
	named->number = (uint32_t)(named->table - w->tables);
	return 0;
}

int
scout__request_take_blocks(struct scout_worker *w, const struct scout_blocks *blocks, size_t n_groups, size_t size,
			   struct scout__all_named *ret)
{
	int rc = 0;

	if (!blocks || n_groups == 0)
		return scout__request_refuse(w, ret, SCOUT_ERR_INVALID, "%s: must be the pages of one group at least",
					     blocks ? "n_groups = 0" : "blocks = NULL");
	if (n_groups > w->n_tables)
		return scout__request_refuse(w, ret, SCOUT_ERR_GROUP,
					     "n_groups = %zu: this worker has registered the tables of %u groups",
					     n_groups, (unsigned)w->n_tables);
	ret->n = (uint32_t)n_groups;
	for (uint32_t g = 0; g < ret->n && rc == 0; g++) {
		struct scout__named *named = &ret->of[g];

		rc = scout__sized_read(&named->blocks, sizeof(named->blocks), SCOUT__SIZE_UP_TO(struct scout_blocks, n),
				       (const uint8_t *)blocks + g * size, size);
		rc = rc ? rc : find_table(w, ret, g);
	}
	return rc;
}

/* Refuse: the pages of an entry do not cover the tokens of the job. */
static int
refuse_reach(struct scout_worker *w, const struct scout__all_named *all, const struct scout__named *named,
	     uint64_t first, uint64_t end)
{
	const struct scout_blocks *blocks = &named->blocks;
	uint64_t block_tokens = named->table->block_tokens;

	return scout__request_refuse(
		w, all, SCOUT_ERR_INVALID,
		"the %zu ids%s of group %u cover tokens from %llu on, %llu each: must cover tokens %llu to %llu",
		blocks->n, blocks->ids ? "" : " (NULL)", (unsigned)blocks->group,
		(unsigned long long)blocks->first_token, (unsigned long long)block_tokens,
		(unsigned long long)(first * block_tokens), (unsigned long long)(end * block_tokens));
}

static int
refuse_id(struct scout_worker *w, const struct scout__all_named *all, const struct scout__named *named)
{
	uint64_t n_blocks = named->table->layout.n_blocks, i = 0;

	while (named->ids[i] < 0 || (uint64_t)named->ids[i] < n_blocks)
		i++;
	return scout__request_refuse(
		w, all, SCOUT_ERR_BLOCK_ID, "block id %lld of group %u: must be below n_blocks = %llu, or negative",
		(long long)named->ids[i], (unsigned)named->blocks.group, (unsigned long long)n_blocks);
}

int
scout__request_find_pages(struct scout_worker *w, const struct scout__all_named *all, struct scout__named *named,
			  uint64_t first, uint64_t end)
{
	const struct scout_blocks *blocks = &named->blocks;
	uint64_t base = blocks->first_token / named->table->block_tokens;

	if (blocks->first_token % named->table->block_tokens != 0)
		return scout__request_refuse(
			w, all, SCOUT_ERR_INVALID,
			"first_token = %llu of group %u: must be a multiple of its block_tokens = %u",
			(unsigned long long)blocks->first_token, (unsigned)blocks->group,
			(unsigned)named->table->block_tokens);
	if (base > first || end - base > blocks->n || (end > first && !blocks->ids))
		return refuse_reach(w, all, named, first, end);
	named->ids = blocks->ids ? blocks->ids + (first - base) : NULL;
	named->first = first;
	named->end = end;
	if (scout__worker_check_ids(named->table, named->ids, (size_t)(end - first)) == SCOUT_ERR_BLOCK_ID)
		return refuse_id(w, all, named);
	return 0;
}
