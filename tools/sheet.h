/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TOOLS_SHEET_H
#define KVSCOUT_TOOLS_SHEET_H

#include "snapshot.h"

/* Lines that `status` and `top` have in common. @before: an earlier snapshot, or an empty one: since the start. Main thread. */

/* "lookups", "hit ratio", "latency" */
void sheet_lookups(const struct snapshot *s, const struct snapshot *before);
/* "pool" */
void sheet_pool(const struct snapshot *s, const struct snapshot *before);
/* "L2 N", for each adapter */
void sheet_l2(const struct snapshot *s, const struct snapshot *before);
/* "attention": what needs an operator */
void sheet_attention(const struct snapshot *s, const struct snapshot *before);

#endif
