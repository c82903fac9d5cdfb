/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "policy_load.h"
#include "thread.h"

/*
 * policy_sim for a model of two groups: full attention, and a window of some blocks. One request after the other, as in
 * policy_sim. Main thread.
 */

struct policy_window {
	uint32_t blocks; /* that a length needs of the window; 0: there is none */
	bool unneeded;   /* what the end of a request leaves behind goes first, as in the server (session_touch.c) */
};

/* A pool of @objects blocks, of either group. Percent of the blocks asked for that were a hit. */
SCOUT_ON_LOOP double policy_window_run(const struct policy_load *load, const char *eviction, uint64_t objects,
				       const struct policy_window *window);
