/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "chunk_index_internal.h"

/*
 * What the eviction policy learns from: how many chunks are asked for, which of them it knew, and what a session
 * touched. Loop thread.
 */

#define LOOKS 16u /* for chunks behind a gap, in each lookup */

void
scout__index_asked(struct scout__chunk_index *index, uint32_t space, uint32_t n)
{
	scout__share_asked(index->l1_ns, space, n * index->chunk_bytes);
	if (index->l1->policy->asked)
		index->l1->policy->asked(index->order.policy, n);
}

void
scout__index_count_hints(struct scout__chunk_index *index)
{
	if (index->l1->policy->count_hints)
		index->l1->policy->count_hints(index->order.policy, &index->l1->hinted);
}

/* Whether the chunk is cached, readable or not, or was evicted lately. */
static SCOUT_ON_LOOP bool
is_known(const struct scout__chunk_index *index, uint32_t space, const uint8_t *hash)
{
	const struct scout__evict_ops *policy = index->l1->policy;
	uint8_t padded[SCOUT_MAX_HASH] = {0};

	if (scout__index_find(index, space, hash) != SCOUT__NO_ENTRY)
		return true;
	memcpy(padded, hash, index->hash_bytes);
	return policy->remembers(index->order.policy, space, padded);
}

uint32_t
scout__index_known_apart(const struct scout__chunk_index *index, uint32_t space, const uint8_t *hashes, size_t apart,
			 uint32_t from, uint32_t n)
{
	uint32_t known = from; /* the run is at least as long */
	uint32_t step = 1;

	if (!index->l1->policy->remembers)
		return from;
	while (known < n && step <= n - known && is_known(index, space, hashes + (size_t)(known + step - 1) * apart)) {
		known += step;
		step *= 2;
	}
	for (; step > 0; step /= 2)
		if (step <= n - known && is_known(index, space, hashes + (size_t)(known + step - 1) * apart))
			known += step;
	return known;
}

uint32_t
scout__index_known_run(const struct scout__chunk_index *index, uint32_t space, const uint8_t *hashes, uint32_t from,
		       uint32_t n)
{
	return scout__index_known_apart(index, space, hashes, index->hash_bytes, from, n);
}

uint32_t
scout__index_behind_gap(const struct scout__chunk_index *index, uint32_t space, const uint8_t *hashes, uint32_t from,
			uint32_t n)
{
	uint32_t behind = from < n ? n - from - 1 : 0;
	uint32_t step = (behind + LOOKS - 1) / LOOKS;
	uint32_t cached = 0;
	uint32_t first;

	if (behind == 0 ||
	    scout__index_find(index, space, hashes + (size_t)from * index->hash_bytes) != SCOUT__NO_ENTRY)
		return 0;
	/* Where the first look is depends on the key, so that no place in a prompt is left out always. */
	first = from + 1 + hashes[(size_t)from * index->hash_bytes] % step;
	for (uint32_t i = first; i < n; i += step)
		cached += scout__index_find(index, space, hashes + (size_t)i * index->hash_bytes) != SCOUT__NO_ENTRY;
	return cached * step < behind ? cached * step : behind;
}

void
scout__index_touch(struct scout__chunk_index *index, uint32_t entry, struct scout__touch *touch)
{
	struct scout__entry *e = &index->entries[entry];

	if (!e->in_order)
		e->unneeded = 0;
	if (!e->in_order || e->temporary)
		return;
	if (e->unneeded)
		scout__unneeded_take_back(index, entry);
	if (e->set_aside)
		scout__order_take_back(index, entry);
	index->l1->policy->accessed(index->order.policy, entry, touch);
}

bool
scout__index_keep_recent_entry(struct scout__chunk_index *index, uint32_t entry)
{
	const struct scout__entry *e = &index->entries[entry];

	if (!e->in_order || e->temporary)
		return false;
	/* As a promise would that is given back. */
	scout__order_remove(index, entry, SCOUT__REMOVE_PINNED);
	scout__order_insert(index, entry);
	return true;
}

uint32_t
scout__index_keep_recent(struct scout__chunk_index *index, uint32_t space, const uint8_t *hashes, uint32_t n)
{
	uint32_t entries[SCOUT__KEEP_RECENT];
	uint32_t found, renewed = 0;

	SCOUT_ASSERT(n <= SCOUT__KEEP_RECENT);
	found = scout__index_find_run(index, space, hashes, n, entries);
	for (uint32_t i = found; i-- > 0;)
		renewed += scout__index_keep_recent_entry(index, entries[i]);
	return renewed;
}
