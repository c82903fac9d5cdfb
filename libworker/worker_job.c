/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_internal.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"

/*
 * DESIGN
 *
 * Purpose: the memory of a job, and its way to the courier, on the caller's thread. worker_submit.c fills it.
 *
 * A job's memory is one allocation that is laid out in advance for its whole life, so no later step can run out of memory.
 */

#define ALIGN 16u

/* Sizes of the arrays of one job, added up with a check for overflow. */
struct plan {
	size_t bytes;
	bool overflow;
};

/* The offset of an array of @n elements. */
static size_t
place(struct plan *plan, size_t n, size_t size)
{
	size_t bytes, at = plan->bytes;

	if (__builtin_mul_overflow(n, size, &bytes) || __builtin_add_overflow(bytes, (size_t)ALIGN - 1, &bytes) ||
	    __builtin_add_overflow(at, bytes & ~(size_t)(ALIGN - 1), &plan->bytes))
		plan->overflow = true;
	return at;
}

static void *
at(struct scout__job_data *data, size_t offset)
{
	return (uint8_t *)data + offset;
}

struct scout__job_data *
scout__job_data_new(const struct scout_worker *w, const struct scout__job_shape *s)
{
	bool is_verify = s->kind == SCOUT_JOB_VERIFY, is_retrieve = s->kind == SCOUT_JOB_RETRIEVE || is_verify;
	struct plan plan = {.bytes = 0};
	struct scout__job_data *data;
	size_t n_planes = s->n_layers ? ((size_t)s->n_layers + 1) * w->n_tables : 0;
	size_t head = place(&plan, 1, sizeof(*data));
	size_t groups = place(&plan, s->n_groups, sizeof(*data->groups));
	size_t ids = place(&plan, s->n_ids, sizeof(*data->ids));
	size_t grants = place(&plan, s->n_grants, sizeof(*data->grants));
	size_t items = place(&plan, s->n_grants, sizeof(*data->items));
	size_t mappings = place(&plan, s->n_grants, sizeof(struct scout__mapping *));
	size_t item_chunk = place(&plan, s->n_grants, sizeof(*data->item_chunk));
	size_t filled = place(&plan, is_retrieve ? s->n_chunks : 0, sizeof(*data->filled));
	size_t missing = place(&plan, is_retrieve ? s->n_blocks : 0, sizeof(*data->missing));
	size_t verified = place(&plan, is_verify ? s->n_chunks : 0, sizeof(*data->verified));
	size_t hashes = place(&plan, s->hash_bytes, 1);
	size_t tenant = place(&plan, s->tenant_len, 1);
	size_t descriptions = place(&plan, s->description_bytes, 1);
	size_t first_plane = place(&plan, n_planes, sizeof(*data->first_plane));
	size_t layer_events = place(&plan, s->has_events ? s->n_layers : 0, sizeof(void *));

	if (plan.overflow)
		return NULL;
	data = malloc(plan.bytes);
	if (!data)
		return NULL;
	memset(data, 0, sizeof(*data));
	(void)head;
	data->kind = s->kind;
	data->n_chunks = s->n_chunks;
	data->n_groups = s->n_groups;
	data->groups = at(data, groups);
	data->ids = at(data, ids);
	data->grants = at(data, grants);
	data->items = at(data, items);
	data->mappings = at(data, mappings);
	data->item_chunk = at(data, item_chunk);
	data->filled = at(data, filled);
	data->missing = at(data, missing);
	data->verified = at(data, verified);
	data->hashes = at(data, hashes);
	data->tenant = at(data, tenant);
	data->descriptions = s->description_bytes ? at(data, descriptions) : NULL;
	data->n_layers = s->n_layers;
	data->first_plane = at(data, first_plane);
	data->layer_events = s->has_events ? at(data, layer_events) : NULL;
	atomic_init(&data->outcome, SCOUT_NOT_YET);
	if (is_retrieve)
		memset(data->filled, 0, s->n_chunks);
	return data;
}

static void
find_bounds(const struct scout__job_data *data, struct scout__job_group *group)
{
	const int64_t *ids = data->ids + group->ids_at;
	uint64_t n = (uint64_t)group->n * group->blocks_per_chunk;

	group->low_id = INT64_MAX;
	group->high_id = -1;
	for (uint64_t i = 0; i < n; i++) {
		if (ids[i] < 0)
			continue;
		group->low_id = ids[i] < group->low_id ? ids[i] : group->low_id;
		group->high_id = ids[i] > group->high_id ? ids[i] : group->high_id;
	}
}

struct scout__job *
scout__job_submit(struct scout_worker *w, struct scout__job_data *data, uint32_t timeout_ms)
{
	uint32_t slot = w->n_free > 0 ? w->free_slots[w->n_free - 1] : w->n_used;
	struct scout__job *job = &w->jobs[slot];
	uint64_t id = w->next_seq << SCOUT__SLOT_BITS | slot;

	data->submitted_us = scout__now_us();
	data->since_us = data->submitted_us;
	data->deadline_us =
		data->submitted_us + (uint64_t)(timeout_ms ? timeout_ms : w->cfg.transfer_timeout_ms) * 1000;
	data->weights_gen = atomic_load_explicit(&w->weights_gen, memory_order_relaxed);
	data->registration = w->registration;
	job->data = data;
	job->id = id;
	job->leader = job->next_group = 0;
	job->n_running = 1;
	atomic_store(&job->phase, SCOUT__PHASE_WAITING);
	atomic_store(&job->stop, false);
	if (!scout__courier_push(w->courier, id)) {
		job->id = 0;
		job->data = NULL;
		return NULL;
	}
	/* The courier asks the server while this thread looks at the blocks. */
	(void)scout__courier_ring(w->courier);
	for (uint32_t g = 0; g < data->n_groups; g++)
		find_bounds(data, &data->groups[g]);
	if (w->n_free > 0)
		w->n_free--;
	else
		w->n_used++;
	TAILQ_INSERT_TAIL(&w->live_jobs, job, live_link);
	scout__worker_count_uses(w, data, 1);
	w->n_live++;
	w->next_seq++;
	return job;
}
