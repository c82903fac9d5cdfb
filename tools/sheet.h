/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "snapshot.h"

/*
 * Lines that `status` and `top` have in common. @before: an earlier snapshot, or an empty one: since the start. Each
 * returns how many lines it has written. Main thread.
 */

/* "lookups", "hit ratio", "latency" */
int sheet_lookups(const struct snapshot *s, const struct snapshot *before);
/* "pool" */
int sheet_pool(const struct snapshot *s, const struct snapshot *before);
/* "L2 N", for each adapter */
int sheet_l2(const struct snapshot *s, const struct snapshot *before);
/* "attention": what needs an operator */
int sheet_attention(const struct snapshot *s, const struct snapshot *before);
