/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_internal.h"

#include <stdlib.h>
#include <unistd.h>

#include "doorbell.h"
#include "sized.h"

/*
 * DESIGN
 *
 * Purpose: collect jobs that have ended, and cancel a job that has not.
 *
 * Slots are the caller's: taken at submit, free again when poll reports the job. The job's memory stays one poll longer, because
 * the caller still reads its list of missing blocks. A store of several groups is one job for each of them (see worker_submit.c):
 * the store is reported when its last job has ended, as the sum of all, with the times of the job that took longest.
 *
 * Threads: caller.
 */

static void
free_dead(struct scout_worker *w)
{
	while (w->dead) {
		struct scout__job_data *data = w->dead;

		w->dead = data->next_dead;
		free(data);
	}
}

/*
 * The ring looked empty: make the descriptor unreadable, unless something has come meanwhile. The courier raises the
 * descriptor and then pushes, both under the lock, so a caller that saw it readable finds the job here at the latest.
 * Returns whether there is a job.
 */
static bool
lower_fd(struct scout_worker *w)
{
	bool empty;

	if (!atomic_load_explicit(&w->fd_raised, memory_order_relaxed))
		return false;
	(void)pthread_mutex_lock(&w->mu);
	empty = scout__ring_empty(&w->done);
	if (empty && atomic_load_explicit(&w->fd_raised, memory_order_relaxed)) {
		(void)scout__eventfd_lower(w->done_fd); /* cannot fail: the descriptor is raised */
		atomic_store_explicit(&w->fd_raised, false, memory_order_relaxed);
	}
	(void)pthread_mutex_unlock(&w->mu);
	return !empty;
}

/* Add one job's result to the results of the other groups of the same store. */
static void
add_end(struct scout_worker *w, struct scout__job_data *data, struct scout_done *done)
{
	uint64_t total_us = data->since_us - data->submitted_us;

	if (scout__worker_outdated(w, data))
		scout__worker_outdate(w, data);
	done->status = done->status ? done->status : data->status;
	done->bytes += data->bytes;
	done->chunks += data->chunks;
	done->present += data->present;
	done->no_room += data->no_room;
	done->null_chunks += data->null_chunks;
	done->n_missing = data->n_missing; /* only a retrieve has missing blocks, and it is one job */
	done->missing = data->n_missing ? data->missing : NULL;
	done->mismatched = data->mismatched; /* as missing */
	done->n_verified = data->n_verified;
	done->verified = data->n_verified ? data->verified : NULL;
	if (total_us < done->total_us)
		return; /* another job took longer */
	done->queued_us = data->queued_us;
	done->server_us = data->server_us;
	done->copy_us = data->copy_us;
	done->total_us = total_us;
}

/* Free the job's slot; its memory stays until the next poll. */
static void
bury(struct scout_worker *w, struct scout__job *job)
{
	scout__worker_count_uses(w, job->data, -1);
	job->data->next_dead = w->dead;
	w->dead = job->data;
	w->n_led -= job->leader != 0;
	job->data = NULL;
	job->id = 0;
	TAILQ_REMOVE(&w->live_jobs, job, live_link);
	w->n_live--;
	w->free_slots[w->n_free++] = (uint32_t)(job - w->jobs);
}

/* Job @id has ended. False: other jobs of the same store have not. */
static bool
collect(struct scout_worker *w, uint64_t id, struct scout_done *done)
{
	struct scout__job *job = &w->jobs[id & SCOUT__SLOT_MASK], *first, *next;

	SCOUT_ASSERT(job->id == id);
	first = job->leader ? &w->jobs[job->leader - 1] : job;
	if (--first->n_running > 0)
		return false;
	*done = (struct scout_done){.job = first->id, .ticket = first->data->ticket, .kind = first->data->kind};
	for (job = first; job; job = scout__worker_next_group(w, job))
		add_end(w, job->data, done);
	scout__worker_count_end(w, first->data, done);
	for (job = first; job; job = next) {
		next = scout__worker_next_group(w, job);
		bury(w, job);
	}
	return true;
}

int
scout_worker_poll_sized(struct scout_worker *w, struct scout_done *done, size_t done_size, size_t max)
{
	struct scout_done own;
	uint64_t id;
	int n = 0, rc;

	if (!w || (max > 0 && !done))
		return SCOUT_ERR_INVALID;
	rc = scout__sized_check(SCOUT__SIZE_UP_TO(struct scout_done, total_us), done_size);
	if (rc)
		return rc;
	if (scout__courier_forked(w->courier))
		return SCOUT_ERR_FORKED;
	free_dead(w);
	do {
		while ((size_t)n < max && (id = scout__ring_pop(&w->done)) != 0) {
			if (collect(w, id, &own))
				scout__sized_write((uint8_t *)done + (size_t)n++ * done_size, done_size, &own,
						   sizeof(own));
		}
	} while (scout__ring_empty(&w->done) && lower_fd(w) && (size_t)n < max);
	return n;
}

int
scout_worker_fd(struct scout_worker *w)
{
	return w ? w->done_fd : SCOUT_ERR_INVALID;
}

int
scout_worker_cancel(struct scout_worker *w, uint64_t id)
{
	struct scout__job *job;

	if (!w)
		return SCOUT_ERR_INVALID;
	if (scout__courier_forked(w->courier))
		return SCOUT_ERR_FORKED;
	job = scout__worker_find_job(w, id);
	if (!job)
		return SCOUT_ERR_STATE;
	for (; job; job = scout__worker_next_group(w, job))
		scout__worker_drop(w, job);
	return 0;
}

void
scout__worker_free_jobs(struct scout_worker *w)
{
	struct scout__job *job;

	free_dead(w);
	if (!w->jobs)
		return; /* half built */
	TAILQ_FOREACH(job, &w->live_jobs, live_link)
	free(job->data);
}
