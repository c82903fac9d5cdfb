/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_internal.h"

#include "clock.h"
#include "sized.h"

/*
 * DESIGN
 *
 * Purpose: jobs that are copied layer by layer, on the caller's side: ask how far a job is, wait for a layer,
 * announce a layer.
 *
 * Waiting sleeps on the job's progress (copy/progress.c): the copy engine reports each layer, the courier the end.
 * The job's memory stays meanwhile, because only the caller's poll frees it.
 *
 * Announcing. A store with `announced` reserves its slots at once and copies the layers that are computed, in as many
 * batches as it takes. Between two batches it stays in `granted`, like a job whose segment has not come, and cancel,
 * fence or a lost connection end it there. A word tells the courier of new layers; at most one is in the ring.
 *
 * Rejected: letting the host engine's thread wait inside a batch, as CUDA's streams do. A store that waits for the
 * forward pass would then block the retrieves that this pass waits for.
 */

/* How far the job of one group is. */
static int
progress_of_one(struct scout_worker *w, struct scout__job *job, struct scout_progress *ret_progress)
{
	struct scout__job_data *data = job->data;
	int outcome = atomic_load(&data->outcome);
	uint32_t layers = data->n_layers ? data->n_layers : 1;

	if (outcome < 0)
		return outcome;
	if (scout__worker_outdated(w, data))
		return scout__worker_outdated_by(w, data);
	/* A job that ended well may have had nothing to copy. */
	ret_progress->enqueued = outcome == 0 ? layers : atomic_load(&data->progress.enqueued);
	ret_progress->copied = outcome == 0 ? layers : atomic_load(&data->progress.copied);
	ret_progress->layers = layers;
	return 0;
}

static int
progress_of(struct scout_worker *w, uint64_t id, struct scout_progress *ret_progress)
{
	struct scout_progress one = {0};
	struct scout__job *job;
	int rc;

	if (scout__courier_forked(w->courier))
		return SCOUT_ERR_FORKED;
	job = scout__worker_find_job(w, id);
	if (!job)
		return SCOUT_ERR_STATE;
	rc = progress_of_one(w, job, ret_progress);
	while (rc == 0 && (job = scout__worker_next_group(w, job)) != NULL) {
		rc = progress_of_one(w, job, &one);
		if (rc == 0 && one.enqueued < ret_progress->enqueued)
			ret_progress->enqueued = one.enqueued;
		if (rc == 0 && one.copied < ret_progress->copied)
			ret_progress->copied = one.copied;
	}
	return rc;
}

int
scout_worker_progress_sized(struct scout_worker *w, uint64_t id, struct scout_progress *ret_progress, size_t size)
{
	struct scout_progress own;
	int rc;

	if (!w || !ret_progress)
		return SCOUT_ERR_INVALID;
	rc = scout__sized_check(SCOUT__SIZE_UP_TO(struct scout_progress, copied), size);
	if (rc == 0)
		rc = progress_of(w, id, &own);
	if (rc == 0)
		scout__sized_write(ret_progress, size, &own, sizeof(own));
	return rc;
}

static uint64_t
left_until(uint64_t end_us)
{
	uint64_t now_us = scout__now_us();

	return now_us < end_us ? end_us - now_us : 0;
}

/* Wait for the job of one group. */
static int
wait_one(struct scout_worker *w, struct scout__job *job, uint32_t layers, uint64_t end_us)
{
	struct scout__copy_progress *progress = &job->data->progress;
	struct scout_progress now = {0};
	uint64_t left_us = 1;
	int rc = 0;

	atomic_store(&progress->waiters, 1);
	while (left_us > 0) {
		unsigned turn = atomic_load(&progress->turn);

		rc = progress_of_one(w, job, &now);
		if (rc || now.copied >= layers)
			break;
		left_us = left_until(end_us);
		if (left_us > 0)
			scout__copy_progress_sleep(progress, turn, left_us);
		else
			rc = SCOUT_ERR_TIMEOUT;
	}
	atomic_store(&progress->waiters, 0);
	return rc;
}

int
scout_worker_wait_layer(struct scout_worker *w, uint64_t id, uint32_t layers, uint32_t timeout_ms)
{
	struct scout_progress now = {0};
	uint64_t end_us = scout__now_us() + (uint64_t)timeout_ms * 1000;
	int rc = w ? progress_of(w, id, &now) : SCOUT_ERR_INVALID;
	struct scout__job *job;

	if (rc)
		return rc;
	if (layers > now.layers)
		return SCOUT_ERR_INVALID;
	if (now.copied >= layers)
		return 0;
	for (job = scout__worker_find_job(w, id); job && rc == 0; job = scout__worker_next_group(w, job))
		rc = wait_one(w, job, layers, end_us);
	return rc;
}

int
scout_worker_layer_ready(struct scout_worker *w, uint64_t id, uint32_t layers)
{
	struct scout__job *job;

	if (!w)
		return SCOUT_ERR_INVALID;
	if (scout__courier_forked(w->courier))
		return SCOUT_ERR_FORKED;
	job = scout__worker_find_job(w, id);
	if (!job)
		return SCOUT_ERR_STATE;
	if (!job->data->announced || layers > job->data->n_layers)
		return SCOUT_ERR_INVALID;
	if (layers <= atomic_load_explicit(&job->data->ready, memory_order_relaxed))
		return 0;
	/* Before the flag: if the word is queued already, the courier has not read the layers yet. */
	for (; job; job = scout__worker_next_group(w, job))
		atomic_store(&job->data->ready, layers);
	scout__worker_post_once(w, &w->layer_queued, SCOUT__WORD_LAYER);
	return 0;
}
