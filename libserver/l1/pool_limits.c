/* SPDX-License-Identifier: Apache-2.0 */
#include "pool_limits.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "memory.h"
#include "number.h"

/*
 * DESIGN
 *
 * Purpose: which limit of the system ends a pool, and where, before a pool reaches the limit under load.
 *
 * The server holds a descriptor and a mapping for each memfd of its pool, as long as the memfd lives; a worker maps the
 * memfds of its own KV rank and closes their descriptors. So the server's limits are the lower ones. The memory of a
 * memfd counts to the cgroup and to the machine; the size of /dev/shm does not bound it. Workers with CUDA pin what they
 * map: what bounds that is a limit of their process, which the server does not see.
 *
 * The limits are read at the start of the server, on the starting thread: counting mappings is nothing for the loop.
 * Descriptors of peers and of L2 come on top, so the pool's extents are made so large that half of them is enough.
 *
 * Threads: any; no state.
 */

#define MAX_SEGMENTS 8192u
#define GIB ((double)(UINT64_C(1) << 30))

static uint64_t
less(uint64_t from, uint64_t what)
{
	if (from == UINT64_MAX)
		return from;
	return from > what ? from - what : 0;
}

static uint64_t
read_descriptors(const char *root)
{
	struct rlimit limit;
	char path[PATH_MAX];
	uint64_t used = 0;
	DIR *dir;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
		return UINT64_MAX;
	(void)snprintf(path, sizeof(path), "%s/proc/self/fd", root);
	dir = opendir(path);
	if (!dir)
		return limit.rlim_cur;
	while (readdir(dir)) // NOLINT(concurrency-mt-unsafe): a stream of our own
		used++;
	(void)closedir(dir);
	return less(limit.rlim_cur, used);
}

static uint64_t
read_mappings(const char *root)
{
	uint64_t limit = UINT64_MAX, used = 0;
	char text[4096];
	FILE *file;

	(void)snprintf(text, sizeof(text), "%s/proc/sys/vm/max_map_count", root);
	file = fopen(text, "re");
	if (!file)
		return UINT64_MAX;
	if (fgets(text, sizeof(text), file))
		limit = strtoull(text, NULL, 10);
	(void)fclose(file); /* only read */
	(void)snprintf(text, sizeof(text), "%s/proc/self/maps", root);
	file = fopen(text, "re");
	if (!file)
		return limit;
	while (fgets(text, sizeof(text), file))
		used++;
	(void)fclose(file); /* only read */
	return less(limit, used);
}

void
scout__pool_limits_read(const char *root, struct scout__pool_limits *ret_limits)
{
	struct scout__memory memory;

	scout__memory_read(root, &memory);
	*ret_limits = (struct scout__pool_limits){
		.descriptors = read_descriptors(root),
		.mappings = read_mappings(root),
		.memory = memory.available > memory.huge_available ? memory.available : memory.huge_available,
	};
}

uint32_t
scout__pool_max_segments(const struct scout__pool_limits *limits)
{
	uint64_t half = scout__min(limits->descriptors, limits->mappings) / 2;

	return half > 0 ? (uint32_t)scout__min(half, MAX_SEGMENTS) : 1;
}

/* The bytes of @n memfds; UINT64_MAX: without limit. */
static uint64_t
bytes_of(uint64_t n, uint64_t segment_bytes)
{
	uint64_t bytes;

	if (n == UINT64_MAX || __builtin_mul_overflow(n, segment_bytes, &bytes))
		return UINT64_MAX;
	return bytes;
}

enum scout__pool_end
scout__pool_end(const struct scout__pool_limits *limits, uint64_t l1_bytes, uint64_t segment_bytes, uint64_t *ret_bytes)
{
	const uint64_t ends[] = {
		[SCOUT__POOL_END_L1_BYTES] = l1_bytes,
		[SCOUT__POOL_END_DESCRIPTORS] = bytes_of(limits->descriptors, segment_bytes),
		[SCOUT__POOL_END_MAPPINGS] = bytes_of(limits->mappings, segment_bytes),
		[SCOUT__POOL_END_MEMORY] = limits->memory,
	};
	enum scout__pool_end first = SCOUT__POOL_END_L1_BYTES;

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (ends[i] < ends[first])
			first = (enum scout__pool_end)i;
	*ret_bytes = ends[first];
	return first;
}

/* In GiB, or "any number of". */
static const char *
gib(uint64_t bytes, char text[32])
{
	if (bytes == UINT64_MAX)
		(void)snprintf(text, 32, "any number of");
	else
		(void)snprintf(text, 32, "%.2f", (double)bytes / GIB);
	return text;
}

enum scout__pool_end
scout__pool_end_text(const struct scout__pool_limits *limits, uint64_t l1_bytes, uint64_t segment_bytes, char *text,
		     size_t len)
{
	static const char *const what[] = {
		[SCOUT__POOL_END_L1_BYTES] = "l1_bytes ends",
		[SCOUT__POOL_END_DESCRIPTORS] = "descriptors (RLIMIT_NOFILE) end",
		[SCOUT__POOL_END_MAPPINGS] = "mappings (vm.max_map_count) end",
		[SCOUT__POOL_END_MEMORY] = "available memory ends",
	};
	char descriptors[32], mappings[32], memory[32];
	uint64_t bytes;
	enum scout__pool_end end = scout__pool_end(limits, l1_bytes, segment_bytes, &bytes);

	(void)snprintf(text, len,
		       "%s the pool first, at %" PRIu64 " bytes (%.2f GiB) of l1_bytes = %" PRIu64
		       "; at the start there were descriptors for %s GiB, mappings for %s GiB and memory for %s GiB, "
		       "with %" PRIu64 " bytes in a memfd",
		       what[end], bytes, (double)bytes / GIB, l1_bytes,
		       gib(bytes_of(limits->descriptors, segment_bytes), descriptors),
		       gib(bytes_of(limits->mappings, segment_bytes), mappings), gib(limits->memory, memory),
		       segment_bytes);
	return end;
}
