/* SPDX-License-Identifier: Apache-2.0 */
#include "policy_keep.h"

#include <stdlib.h>

#include "map.h"
#include "say.h"

/* See policy_keep.h. Each request has a place for what it keeps; those that keep something are in a list. Main thread. */

struct kept {
	size_t next; /* the turn after it; SIZE_MAX: none */
	uint32_t *entries;
	uint32_t n;
	size_t later; /* in the list; SIZE_MAX: the last */
};

struct policy_keep {
	const struct policy_load *load;
	struct scout__chunk_index *index;
	struct kept *of; /* of each request */
	size_t *before;  /* the turn that this one goes on from; SIZE_MAX: none */
	size_t first;    /* of the list */
	uint64_t most, n;
};

/* Say of each request which one is its next turn: the first later one that has its last block, or the one before that. */
static void
find_turns(struct policy_keep *keep)
{
	const struct policy_load *load = keep->load;
	struct scout__map later;

	if (scout__map_init(&later, load->n_ids))
		die("out of memory");
	for (size_t i = 0; i < load->n_requests; i++)
		keep->before[i] = SIZE_MAX;
	for (size_t i = load->n_requests; i-- > 0;) {
		size_t end = load->first[i + 1];
		uint32_t next = SCOUT__MAP_NONE;

		for (size_t at = end; at > load->first[i] && at + 2 > end && next == SCOUT__MAP_NONE; at--)
			next = scout__map_get(&later, load->ids[at - 1]);
		keep->of[i].next = next == SCOUT__MAP_NONE ? SIZE_MAX : next;
		if (next != SCOUT__MAP_NONE)
			keep->before[next] = i;
		for (size_t at = load->first[i]; at < end; at++)
			(void)scout__map_put(&later, load->ids[at], (uint32_t)i);
	}
	scout__map_fini(&later);
}

struct policy_keep *
policy_keep_new(const struct policy_load *load, struct scout__chunk_index *index, uint64_t most)
{
	struct policy_keep *keep;

	if (most == 0)
		return NULL;
	keep = calloc(1, sizeof(*keep));
	if (!keep)
		die("out of memory");
	*keep = (struct policy_keep){.load = load, .index = index, .first = SIZE_MAX, .most = most};
	keep->of = calloc(load->n_requests, sizeof(*keep->of));
	keep->before = calloc(load->n_requests, sizeof(*keep->before));
	if (!keep->of || !keep->before)
		die("out of memory");
	find_turns(keep);
	return keep;
}

void
policy_keep_free(struct policy_keep *keep)
{
	for (size_t i = 0; keep && i < keep->load->n_requests; i++)
		free(keep->of[i].entries);
	if (keep) {
		free(keep->of);
		free(keep->before);
	}
	free(keep);
}

static SCOUT_ON_LOOP void
give_back(struct policy_keep *keep, struct kept *kept)
{
	keep->n -= kept->n;
	while (kept->n > 0)
		scout__index_unpromise(keep->index, kept->entries[--kept->n], 1);
}

void
policy_keep_begin(struct policy_keep *keep, size_t i)
{
	size_t *link = keep ? &keep->first : NULL;

	while (keep && *link != SIZE_MAX) {
		struct kept *kept = &keep->of[*link];

		if (kept->n > 0 && keep->load->ms[kept->next] >= keep->load->ms[i]) {
			link = &kept->later;
			continue;
		}
		give_back(keep, kept);
		*link = kept->later;
	}
}

void
policy_keep_end(struct policy_keep *keep, size_t i, const uint8_t *hashes, uint32_t n)
{
	struct kept *kept = keep ? &keep->of[i] : NULL;
	double gap;
	uint32_t found;

	if (!keep)
		return;
	if (keep->before[i] != SIZE_MAX)
		give_back(keep, &keep->of[keep->before[i]]);
	gap = kept->next == SIZE_MAX ? 0 : keep->load->ms[kept->next] - keep->load->ms[i];
	if (gap < POLICY_KEEP_MIN_MS || gap > POLICY_KEEP_MAX_MS)
		return;
	kept->entries = malloc((n + 1) * sizeof(*kept->entries));
	if (!kept->entries)
		die("out of memory");
	found = scout__index_find_run(keep->index, 1, hashes, n, kept->entries);
	while (kept->n < found && keep->n < keep->most && scout__index_promise(keep->index, kept->entries[kept->n])) {
		kept->n++;
		keep->n++;
	}
	kept->later = keep->first;
	keep->first = i;
}
