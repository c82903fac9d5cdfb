/* SPDX-License-Identifier: Apache-2.0 */
#include "pool_share.h"

#include <inttypes.h>
#include <stdio.h>

/*
 * DESIGN
 *
 * The size of a pool if no operator has chosen one. A quarter of what the machine has available, because the engine's
 * own pinned buffers, the page cache and other tenants need memory, too. Half of what the cgroup leaves, because the
 * engine is usually alone there. Rounded down to whole MiB, so that the lines of two starts are comparable.
 *
 * The pool grows extent by extent as it fills, so a machine that is short of memory later refuses the next extent
 * (l1/pool.c), and no process is killed.
 *
 * Threads: main.
 */

#define MIB (UINT64_C(1) << 20)

uint64_t
scout__pool_share(const struct scout__memory *memory, char *text, size_t len)
{
	uint64_t of_machine = memory->machine_available == UINT64_MAX ? UINT64_MAX : memory->machine_available / 4;
	uint64_t of_cgroup = memory->cgroup_available == UINT64_MAX ? UINT64_MAX : memory->cgroup_available / 2;
	uint64_t share = of_machine < of_cgroup ? of_machine : of_cgroup;

	if (share == UINT64_MAX || share < SCOUT__POOL_SHARE_MIN) {
		(void)snprintf(text, len, "a pool of %" PRIu64 " MiB, the least: %s; l1_bytes sets another",
			       SCOUT__POOL_SHARE_MIN / MIB,
			       share == UINT64_MAX ? "the kernel does not say how much memory is available"
						   : "this machine or cgroup has little memory left");
		return SCOUT__POOL_SHARE_MIN;
	}
	share -= share % MIB;
	if (of_machine <= of_cgroup)
		(void)snprintf(text, len,
			       "a pool of %" PRIu64 " MiB: 25 %% of the %" PRIu64
			       " MiB that this machine has available; l1_bytes sets another",
			       share / MIB, memory->machine_available / MIB);
	else
		(void)snprintf(text, len,
			       "a pool of %" PRIu64 " MiB: 50 %% of the %" PRIu64
			       " MiB that the memory limit of this cgroup leaves; l1_bytes sets another",
			       share / MIB, memory->cgroup_available / MIB);
	return share;
}
