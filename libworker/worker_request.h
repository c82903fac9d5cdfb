/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_WORKER_REQUEST_H
#define SCOUT_WORKER_REQUEST_H

#include "worker_internal.h"

/* A request for a job, while it is checked: worker_request.c has the checks that both kinds share, worker_submit.c the rest. */

/* What a job has of one group. */
struct scout__named {
	struct scout_blocks blocks;
	const struct scout__table *table;
	uint32_t number; /* of the table, among the worker's */
	/* The caller's pages for the blocks [first, end) of the prompt. */
	const int64_t *ids; /* of block `first` on */
	uint64_t first, end;
	/* The chunks [from, to) of the prompt that the job is about. */
	uint64_t from, to;
};

/* All of them, by ascending group. */
struct scout__all_named {
	const char *call; /* "retrieve" or "store" */
	uint32_t n;
	struct scout__named of[SCOUT__GROUPS_MAX];
};

/*
 * Returns @code. Says in the log what is wrong with the request: a caller gets no text. At most one line in ten seconds, with the
 * number of those that were not shown.
 */
__attribute__((format(printf, 4, 5))) int scout__request_refuse(struct scout_worker *w,
								const struct scout__all_named *all, int code,
								const char *fmt, ...) SCOUT_ON_CALLER;

/* Each of these returns 0, or the code of the refusal. */

/* The entries of a job's @blocks, @size bytes each in the caller's version of the headers. */
int scout__request_take_blocks(struct scout_worker *w, const struct scout_blocks *blocks, size_t n_groups, size_t size,
			       struct scout__all_named *ret) SCOUT_ON_CALLER;
/* Layers that take the planes of each table exactly, and events where the backend knows any. */
int scout__request_check_layers(struct scout_worker *w, const struct scout__all_named *all, uint32_t n,
				const uint32_t *layer_planes, const void *events) SCOUT_ON_CALLER;
/* The caller's pages of the blocks [first, end) of the prompt. All of them must be there, and be pages of ours. */
int scout__request_find_pages(struct scout_worker *w, const struct scout__all_named *all, struct scout__named *named,
			      uint64_t first, uint64_t end) SCOUT_ON_CALLER;

#endif
