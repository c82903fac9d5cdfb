/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "worker_internal.h"

/* A request for a job, while it is checked: worker_request.c has the checks of both kinds, worker_submit.c the rest. */

/* A job's part in one group. */
struct scout__named {
	struct scout_blocks blocks;
	const struct scout__table *table;
	uint32_t number; /* number of the table in the worker */
	/* The caller's pages for the blocks [first, end) of the prompt. */
	const int64_t *ids; /* the ids from block `first` on */
	uint64_t first, end;
	/* The job handles the chunks [from, to) of the prompt. */
	uint64_t from, to;
};

/* All groups of a job, ascending. */
struct scout__all_named {
	const char *call; /* "retrieve", "store" or "verify" */
	uint32_t n;
	struct scout__named of[SCOUT__GROUPS_MAX];
};

/*
 * Returns @code. Logs what is wrong with the request, because a caller gets no text. At most one line in ten seconds, with the
 * number of suppressed lines.
 */
__attribute__((format(printf, 4, 5))) int scout__request_refuse(struct scout_worker *w,
								const struct scout__all_named *all, int code,
								const char *fmt, ...) SCOUT_ON_CALLER;

/* Each of these returns 0, or the code of the refusal. */

/* Read the entries of a job's @blocks, each @size bytes in the caller's version of the headers. */
int scout__request_take_blocks(struct scout_worker *w, const struct scout_blocks *blocks, size_t n_groups, size_t size,
			       struct scout__all_named *ret) SCOUT_ON_CALLER;
/* Check that the layers take exactly the planes of each table, and that there are events only if the backend knows any. */
int scout__request_check_layers(struct scout_worker *w, const struct scout__all_named *all, uint32_t n,
				const uint32_t *layer_planes, const void *events) SCOUT_ON_CALLER;
/* Find the caller's pages of the blocks [first, end) of the prompt. All must be there, and be registered pages. */
int scout__request_find_pages(struct scout_worker *w, const struct scout__all_named *all, struct scout__named *named,
			      uint64_t first, uint64_t end) SCOUT_ON_CALLER;
