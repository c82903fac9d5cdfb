/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "show.h"
#include "snapshot.h"

/*
 * Lines that `status` and `top` have in common. @before: an earlier snapshot, or an empty one: since the start. Each
 * returns how many lines it has written. Main thread.
 */

/* "lookups", "hit ratio", "latency" */
int sheet_lookups(const struct snapshot *s, const struct snapshot *before);
/* What a cache without end would have hit: "36.6 %", "~36.6 %" if it is estimated, "-" if it is not known. No line. */
const char *sheet_ceiling(char buf[SHOWN + 1], const struct snapshot *s, const struct snapshot *before, const char *ns);
/* "pool" */
int sheet_pool(const struct snapshot *s, const struct snapshot *before);
/* "L2 N", for each adapter */
int sheet_l2(const struct snapshot *s, const struct snapshot *before);
/* "attention": what needs an operator */
int sheet_attention(const struct snapshot *s, const struct snapshot *before);
/* The same by lines, a store's words in @width columns. */
void sheet_attention_lines(const struct snapshot *s, const struct snapshot *before, unsigned width,
			   void (*add)(void *user, const char *line), void *user);
