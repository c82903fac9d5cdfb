/* SPDX-License-Identifier: Apache-2.0 */
#include "policy_queue.h"

#include <stdlib.h>

#include "say.h"
#include "trace.h"

/* Waiting requests of a simulation, see policy_queue.h. Main thread, which is the loop. */

static size_t
longest_of(const struct policy_load *load)
{
	size_t longest = 1;

	for (size_t i = 0; i < load->n_requests; i++)
		if (load->first[i + 1] - load->first[i] > longest)
			longest = load->first[i + 1] - load->first[i];
	return longest;
}

void
policy_queue_init(struct policy_queue *queue, const struct policy_load *load, struct scout__chunk_index *index,
		  uint64_t length, uint64_t max_promised, enum policy_ahead ahead)
{
	size_t longest = longest_of(load);

	*queue = (struct policy_queue){
		.load = load, .index = index, .length = length, .max_promised = max_promised, .ahead = ahead};
	if (length == 0 || ahead == POLICY_AHEAD_NONE)
		return;
	queue->waiting = calloc(length, sizeof(*queue->waiting));
	queue->hashes = malloc(longest * TRACE_HASH_BYTES);
	queue->found = malloc(longest * sizeof(*queue->found));
	if (!queue->waiting || !queue->hashes || !queue->found)
		die("out of memory");
	for (uint64_t i = 0; i < length; i++) {
		queue->waiting[i].entries = malloc(longest * sizeof(uint32_t));
		if (!queue->waiting[i].entries)
			die("out of memory");
	}
}

void
policy_queue_fini(struct policy_queue *queue)
{
	for (uint64_t i = 0; queue->waiting && i < queue->length; i++)
		free(queue->waiting[i].entries);
	free(queue->waiting);
	free(queue->hashes);
	free(queue->found);
}

/* As the server renews it: in slices, from the end. */
static SCOUT_ON_LOOP void
renew(const struct policy_queue *queue, uint32_t from, uint32_t to)
{
	while (to > from) {
		uint32_t n = to - from < SCOUT__KEEP_RECENT ? to - from : SCOUT__KEEP_RECENT;

		to -= n;
		(void)scout__index_keep_recent(queue->index, 1, queue->hashes + (size_t)to * TRACE_HASH_BYTES, n);
	}
}

static SCOUT_ON_LOOP void
enter(struct policy_queue *queue, uint64_t i)
{
	const uint64_t *ids = queue->load->ids + queue->load->first[i];
	uint32_t n = (uint32_t)(queue->load->first[i + 1] - queue->load->first[i]);
	struct policy_waiting *waiting = &queue->waiting[i % queue->length];
	uint32_t found, at = 0;

	for (uint32_t j = 0; j < n; j++)
		trace_hash(ids[j], queue->hashes + (size_t)j * TRACE_HASH_BYTES);
	found = scout__index_find_run(queue->index, 1, queue->hashes, n, queue->found);
	while (at < found && queue->promised < queue->max_promised &&
	       scout__index_promise(queue->index, queue->found[at])) {
		waiting->entries[at] = queue->found[at];
		queue->promised++;
		at++;
	}
	waiting->n = at;
	if (queue->ahead == POLICY_AHEAD_TOUCH && at < found)
		renew(queue, at, n);
}

void
policy_queue_serve(struct policy_queue *queue, uint64_t i)
{
	struct policy_waiting *waiting;

	if (!queue->waiting)
		return;
	for (; queue->entered < queue->load->n_requests && queue->entered < i + queue->length; queue->entered++)
		enter(queue, queue->entered);
	waiting = &queue->waiting[i % queue->length];
	queue->promised -= waiting->n;
	while (waiting->n > 0)
		scout__index_unpromise(queue->index, waiting->entries[--waiting->n], 1);
}
