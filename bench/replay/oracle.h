/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy_load.h"

/*
 * What only the future tells about a load: which requests are continued, and what the best choice of victims would hit.
 * What runs out of memory ends the process. One thread.
 */

/* A guess at the end of each request: will a later one go on where it ended? */
struct oracle_hints {
	bool *returns; /* the truth, by request */
	bool *flagged; /* the hint: it will not */
	size_t n;
};

/*
 * Of the requests that nothing continues, @recall percent are flagged, of the others @false_alarms percent. A request is
 * continued when a later one has its last block or the one before it (the last one may be partly filled).
 */
void oracle_hints_make(const struct policy_load *load, double recall, double false_alarms, uint64_t seed,
		       struct oracle_hints *ret_hints);
void oracle_hints_free(struct oracle_hints *hints);
/* "oracle:RECALL,FALSE_ALARMS", both in percent. False: it is not of that form. */
bool oracle_parse(const char *text, double *ret_recall, double *ret_false_alarms);

/*
 * Hits of the leading runs with @blocks, if what is used again latest, or never, is never kept (Belady). Blocks of a
 * prompt are used at least as often and as soon as those behind them, so what is kept are leading runs.
 */
uint64_t oracle_optimum(const struct policy_load *load, uint64_t blocks);
