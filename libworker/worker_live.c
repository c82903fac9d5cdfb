/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_internal.h"

/*
 * DESIGN
 *
 * Purpose: the jobs that were submitted and not reported yet, as the public calls see them: find one, drop
 * one, wait for its copy, count the blocks that they name.
 *
 * Dropping (for cancel, fence, reset and clear) takes a job from the courier by WAITING -> DROPPED. If that succeeds,
 * no copy of the job can start from then on, without any wait for the courier; the kick only makes the job end soon.
 * If not, its copy runs, or is over.
 *
 * Threads: caller.
 */

struct scout__job *
scout__worker_find_job(struct scout_worker *w, uint64_t id)
{
	uint64_t slot = id & SCOUT__SLOT_MASK;

	return id != 0 && slot < w->n_used && w->jobs[slot].id == id ? &w->jobs[slot] : NULL;
}

struct scout__job *
scout__worker_next_group(const struct scout_worker *w, const struct scout__job *job)
{
	return job->next_group ? &w->jobs[job->next_group - 1] : NULL;
}

void
scout__worker_drop(struct scout_worker *w, struct scout__job *job)
{
	atomic_store(&job->stop, true);
	if (scout__job_move_phase(job, SCOUT__PHASE_WAITING, SCOUT__PHASE_DROPPED))
		scout__worker_post_once(w, &w->kicked, SCOUT__WORD_KICK);
}

void
scout__worker_wait_copy(struct scout_worker *w, struct scout__job *job)
{
	(void)pthread_mutex_lock(&w->mu);
	/* Between two parts of a long store the job is WAITING again: then the rest is dropped. */
	while (!scout__job_move_phase(job, SCOUT__PHASE_WAITING, SCOUT__PHASE_DROPPED) &&
	       atomic_load(&job->phase) == SCOUT__PHASE_ENQUEUED)
		(void)pthread_cond_wait(&w->cond, &w->mu);
	(void)pthread_mutex_unlock(&w->mu);
}

void
scout__worker_drop_all(struct scout_worker *w)
{
	struct scout__job *job;

	TAILQ_FOREACH(job, &w->live_jobs, live_link)
	{
		atomic_store(&job->stop, true);
		(void)scout__job_move_phase(job, SCOUT__PHASE_WAITING, SCOUT__PHASE_DROPPED);
	}
}

int
scout__worker_check_ids(const struct scout__table *table, const int64_t *ids, size_t n)
{
	if (n > 0 && !ids)
		return SCOUT_ERR_INVALID;
	for (size_t i = 0; i < n; i++)
		if (ids[i] >= 0 && (uint64_t)ids[i] >= table->layout.n_blocks)
			return SCOUT_ERR_BLOCK_ID;
	return 0;
}

struct scout__table *
scout__worker_table_of(const struct scout_worker *w, uint32_t group)
{
	for (uint32_t t = 0; t < w->n_tables; t++)
		if (w->tables[t].group == group)
			return &w->tables[t];
	return NULL;
}

void
scout__worker_count_uses(struct scout_worker *w, const struct scout__job_data *data, int32_t by)
{
	if (data->registration != w->registration)
		return; /* of pages that were given back */
	for (uint32_t g = 0; g < data->n_groups; g++) {
		const struct scout__job_group *group = &data->groups[g];
		const int64_t *ids = data->ids + group->ids_at;
		uint64_t n = (uint64_t)group->n * group->blocks_per_chunk;
		uint32_t *uses = w->tables[group->table].uses;

		for (uint64_t i = 0; i < n; i++)
			if (ids[i] >= 0)
				uses[ids[i]] += (uint32_t)by;
	}
}
