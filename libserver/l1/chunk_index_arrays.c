/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/mman.h>

#include "chunk_index_internal.h"
#include "grow_array.h"
#include "lazy.h"

/*
 * DESIGN
 *
 * Memory: what there is of each entry is in arrays that grow with the extents, at least by doubling. They are mapped, and a
 * larger mapping moves whole pages by their page tables: half a microsecond for a megabyte. So an entry keeps its number, and
 * nothing is copied or hashed again. But its address changes: code that may ask for an extent keeps no pointer to an entry.
 * The table and the policies' records of evicted keys are found by hash. Memory for them is reserved for the largest number
 * of chunks that l1_bytes can hold, and costs nothing until it is touched.
 *
 * Rejected: all arrays for l1_bytes from the start (each namespace with objects of 64 bytes reserved three times the
 * pool), a directory of blocks (one more load for each entry of a lookup).
 *
 * Rejected: huge pages for the index. They save 5 to 10 % of a lookup, but the first access to each waits 300 us
 * until the kernel has cleared it.
 *
 * Threads: loop.
 */

#define N_ARRAYS 5u

/* The arrays, with the bytes for each entry. */
struct array {
	void **at;
	uint64_t each;
};

static void
list_arrays(struct scout__chunk_index *index, struct array arrays[N_ARRAYS])
{
	arrays[0] = (struct array){(void **)&index->entries, sizeof(*index->entries)};
	arrays[1] = (struct array){(void **)&index->shard_state, sizeof(*index->shard_state) * index->n_ranks};
	arrays[2] = (struct array){(void **)&index->slot_gen, sizeof(*index->slot_gen) * index->n_ranks};
	arrays[3] = (struct array){(void **)&index->used_by, sizeof(*index->used_by)};
	arrays[4] = (struct array){(void **)&index->owned, sizeof(*index->owned)};
}

/* Grow or shrink the first @n arrays from @from entries to @to. Returns how many it did. */
static uint32_t
resize(const struct array *arrays, uint32_t n, uint32_t from, uint32_t to)
{
	for (uint32_t i = 0; i < n; i++) {
		void *p = scout__grow_array(*arrays[i].at, from * arrays[i].each, to * arrays[i].each);

		if (!p)
			return i;
		*arrays[i].at = p;
	}
	return n;
}

bool
scout__arrays_reserve(struct scout__chunk_index *index, uint64_t n)
{
	uint64_t twice = (uint64_t)index->cap_entries * 2;
	struct array arrays[N_ARRAYS];
	uint32_t cap, done;

	if (n <= index->cap_entries)
		return true;
	n = n > twice ? n : twice;
	cap = n < index->max_entries ? (uint32_t)n : index->max_entries;
	list_arrays(index, arrays);
	done = resize(arrays, N_ARRAYS, index->cap_entries, cap);
	if (done == N_ARRAYS) {
		index->cap_entries = cap;
		return true;
	}
	for (uint32_t i = 0; index->cap_entries == 0 && i < done; i++) {
		(void)munmap(*arrays[i].at, cap * arrays[i].each);
		*arrays[i].at = NULL;
	}
	if (index->cap_entries > 0)
		(void)resize(arrays, done, cap, index->cap_entries); /* cannot fail */
	return false;
}

void
scout__arrays_close(struct scout__chunk_index *index)
{
	struct array arrays[N_ARRAYS];

	list_arrays(index, arrays);
	for (uint32_t i = 0; i < N_ARRAYS; i++)
		scout__lazy_free(*arrays[i].at, index->cap_entries * arrays[i].each);
}
