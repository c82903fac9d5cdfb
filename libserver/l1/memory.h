/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "thread.h"

/* What the kernel says about memory, for checks and texts. UINT64_MAX: unknown or without limit. */
struct scout__memory {
	uint64_t total;             /* MemTotal */
	uint64_t available;         /* the smaller of the next two */
	uint64_t machine_available; /* MemAvailable */
	uint64_t cgroup_available;  /* what our cgroup and those above it leave */
	uint64_t cgroup_limit;      /* the lowest limit of our cgroup and those above it */
	uint64_t huge_page;         /* bytes of a huge page, 0 when there are none */
	uint64_t huge_available;    /* bytes of huge pages that are free and not reserved */
};

/* @root is put before /proc and /sys: "" but in tests. What cannot be read is unknown; that is no error. */
SCOUT_ON_ANY void scout__memory_read(const char *root, struct scout__memory *ret_memory);
