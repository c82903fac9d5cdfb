/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/mman.h>

#include "chunk_index_internal.h"

/*
 * DESIGN
 *
 * Memory: entries, table, states and generations are reserved for the largest number of chunks that l1_bytes can hold,
 * and cost nothing until they are touched; slots are used in order, so a pool that is half full has touched half of
 * them. So nothing is ever moved or rehashed, and no operation takes longer than the few cache lines that it touches.
 *
 * Rejected: huge pages for the index. They save 5 to 10 % of a lookup, but the first access to each waits 300 us
 * until the kernel has cleared it.
 *
 * Threads: loop.
 */

void *
scout__reserve_array(uint64_t n, size_t size)
{
	uint64_t bytes;
	void *p;

	if (__builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX)
		return NULL;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

void
scout__release_array(void *p, uint64_t n, size_t size)
{
	if (p)
		(void)munmap(p, n * size);
}

int
scout__arrays_open(struct scout__chunk_index *index)
{
	uint64_t shards = (uint64_t)index->max_entries * index->n_ranks;

	index->entries = scout__reserve_array(index->max_entries, sizeof(*index->entries));
	index->shard_state = scout__reserve_array(shards, sizeof(*index->shard_state));
	index->slot_gen = scout__reserve_array(shards, sizeof(*index->slot_gen));
	index->used_by = scout__reserve_array(index->max_entries, sizeof(*index->used_by));
	return index->entries && index->shard_state && index->slot_gen && index->used_by ? 0 : SCOUT_ERR_NOMEM;
}

void
scout__arrays_close(struct scout__chunk_index *index)
{
	uint64_t shards = (uint64_t)index->max_entries * index->n_ranks;

	scout__release_array(index->entries, index->max_entries, sizeof(*index->entries));
	scout__release_array(index->shard_state, shards, sizeof(*index->shard_state));
	scout__release_array(index->slot_gen, shards, sizeof(*index->slot_gen));
	scout__release_array(index->used_by, index->max_entries, sizeof(*index->used_by));
}
