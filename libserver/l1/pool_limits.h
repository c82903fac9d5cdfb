/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "thread.h"

/* What the process had left for a pool when it was read. UINT64_MAX: unknown or without limit. */
struct scout__pool_limits {
	uint64_t descriptors; /* one for each memfd; RLIMIT_NOFILE */
	uint64_t mappings;    /* one for each memfd; vm.max_map_count */
	uint64_t memory;      /* bytes; MemAvailable, the cgroups or the free huge pages */
};

/* What ends a pool first. */
enum scout__pool_end {
	SCOUT__POOL_END_L1_BYTES = 0,
	SCOUT__POOL_END_DESCRIPTORS,
	SCOUT__POOL_END_MAPPINGS,
	SCOUT__POOL_END_MEMORY
};

/* @root is put before /proc and /sys: "" but in tests. Reads files: tens of microseconds. */
SCOUT_ON_ANY void scout__pool_limits_read(const char *root, struct scout__pool_limits *ret_limits);

/* How many memfds a pool should have at most: half of what the limits leave, and no more than 8192; 1 or more. */
SCOUT_ON_ANY uint32_t scout__pool_max_segments(const struct scout__pool_limits *limits);

/* Where a pool of memfds that hold @segment_bytes of slots each ends: *ret_bytes, and by what. */
SCOUT_ON_ANY enum scout__pool_end scout__pool_end(const struct scout__pool_limits *limits, uint64_t l1_bytes,
						  uint64_t segment_bytes, uint64_t *ret_bytes);

/* The same as a sentence of up to 400 bytes for the log. */
SCOUT_ON_ANY enum scout__pool_end scout__pool_end_text(const struct scout__pool_limits *limits, uint64_t l1_bytes,
						       uint64_t segment_bytes, char *text, size_t len);
