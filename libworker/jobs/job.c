/* SPDX-License-Identifier: Apache-2.0 */
#include "job_internal.h"

#include "clock.h"
#include "doorbell.h"

/*
 * DESIGN
 *
 * Purpose: one job from its arrival at the courier to the done ring. This file has its phases and every way in which
 * it ends. job_ask.c has its questions to the server, job_copy.c its copies, job_grants.c what it has to give back.
 *
 *   ASK ──STORE/RETRIEVE──▶ ASKED ──grants──▶ GRANTED ──batch──▶ COPYING ──┬─ retrieve: verified, reported, DONE sent
 *    ▲                                                                     └─ store: DONE ──▶ TOLD ──reply──┐
 *    └────────────────────────────── store: the next part ──────────────────────────────────────────────────┘
 *
 * A verification asks like a retrieve, and copies like a store, but into the verifier's scratch, chunk after chunk: from COPYING it
 * goes to COMPARING, where nothing of it uses its pages any more, and from there to GRANTED for its next chunk. It ends like a
 * retrieve.
 *
 * Invariants
 * - A job is reported exactly once: scout__job_finish() is the only way out, and takes the job off every list.
 * - Before its first copy a job ends by its deadline, by cancel, or with its connection; once a batch was started the job
 *   ends only when the engine has reported that batch. WAITING -> ENQUEUED is a compare-and-swap against the caller's
 *   drop.
 * - What was granted is given back: a grant record lives from before its STORE or RETRIEVE is sent until the reply to its
 *   DONE, whether its job lives or not. A DONE that was lost with its connection is sent again on the next connection of
 *   the same epoch. After a restart of the server no DONE is owed. Grant records are taken before an operation is sent:
 *   if none is free, jobs wait.
 * - Wrong bytes are never reported as good: the generation word is compared with the grant's before the engine gets the
 *   slot and again after it has reported the batch. That is so even if the server has died meanwhile: our mapping keeps the
 *   memory.
 * - A store that was copied but cannot be told to the server ends at once (unreachable, or epoch): its pages could be
 *   free, and waiting for a server that may never return would keep them. If the same server start comes back, it gets
 *   the DONE then.
 *
 * Skipped and null blocks have -1 in `ids`: they are neither written nor ever named as missing. Chunks at either end
 * that have only such blocks are not asked for. With several readers, chunks that another reader has to store are not
 * counted at all.
 *
 * Threads: the courier's only. A job shares only `phase`, `stop` and the done ring with the caller.
 *
 * Rejected: sending the next part of a long store before the reply to the last one's DONE. A part moves up to 4096
 * slots, which takes far longer than this round trip.
 */

void
scout__jobs_init(struct scout_worker *w)
{
	TAILQ_INIT(&w->open);
	TAILQ_INIT(&w->timed);
	TAILQ_INIT(&w->to_ask);
	TAILQ_INIT(&w->granted);
	TAILQ_INIT(&w->free_records);
	TAILQ_INIT(&w->due);
}

/* ---- phases and the end of a job ---- */

bool
scout__job_move_phase(struct scout__job *job, unsigned from, unsigned to)
{
	return atomic_compare_exchange_strong(&job->phase, &from, to);
}

/* A copy has ended: a thread that waits in scout_worker_fence() looks again. */
void
scout__job_publish_phase(struct scout_worker *w, struct scout__job *job, unsigned phase)
{
	(void)pthread_mutex_lock(&w->mu);
	atomic_store(&job->phase, phase);
	(void)pthread_cond_broadcast(&w->cond);
	(void)pthread_mutex_unlock(&w->mu);
}

/*
 * Push the job to the done ring. Poll lowers the descriptor under the same lock, so it is readable exactly while the
 * ring has a job.
 */
static void SCOUT_ON_COURIER
report(struct scout_worker *w, struct scout__job *job)
{
	bool pushed;

	(void)pthread_mutex_lock(&w->mu);
	atomic_store(&job->phase, SCOUT__PHASE_OVER);
	if (!atomic_load_explicit(&w->fd_raised, memory_order_relaxed)) {
		/* Set before the write and the push: after either, others must see it as raised. The write cannot fail. */
		atomic_store_explicit(&w->fd_raised, true, memory_order_relaxed);
		scout__eventfd_raise(w->done_fd);
	}
	pushed = scout__ring_push(&w->done, job->id);
	SCOUT_ASSERT(pushed); /* the ring has room for every slot */
	(void)pthread_cond_broadcast(&w->cond);
	(void)pthread_mutex_unlock(&w->mu);
}

/* List the blocks that the engine has to compute itself. Called by the courier, or by the caller when the job has ended. */
void
scout__job_name_missing(struct scout__job_data *data)
{
	uint32_t n = 0;

	for (uint32_t g = 0; g < data->n_groups; g++) {
		const struct scout__job_group *group = &data->groups[g];

		for (uint32_t c = 0; c < group->n; c++) {
			const int64_t *ids = scout__job_ids(data, group, group->at + c);
			uint64_t block = ((uint64_t)group->first_chunk + c) * group->blocks_per_chunk;

			for (uint32_t b = 0; b < group->blocks_per_chunk && !data->filled[group->at + c]; b++)
				if (ids[b] >= 0)
					data->missing[n++] =
						(uint32_t)(group->missing_at + (block + b - group->from_block));
		}
	}
	data->n_missing = n;
}

/* The sum that the job's present stage adds to: waiting in the worker, for the server, or being copied. */
static uint64_t *
clock_of(struct scout__job *job)
{
	switch (job->stage) {
	case SCOUT__STAGE_ASKED:
	case SCOUT__STAGE_TOLD:
		return &job->data->server_us;
	case SCOUT__STAGE_COPYING:
	case SCOUT__STAGE_COMPARING:
		return &job->data->copy_us;
	default:
		return &job->data->queued_us;
	}
}

void
scout__job_enter(struct scout__job *job, enum scout__stage stage)
{
	uint64_t now_us = scout__now_us();

	*clock_of(job) += now_us - job->data->since_us;
	job->data->since_us = now_us;
	job->stage = stage;
}

void
scout__job_unqueue(struct scout_worker *w, struct scout__job *job)
{
	if (job->stage == SCOUT__STAGE_ASK)
		TAILQ_REMOVE(&w->to_ask, job, queue_link);
	else if (job->stage == SCOUT__STAGE_GRANTED)
		TAILQ_REMOVE(&w->granted, job, queue_link);
}

void
scout__job_untime(struct scout_worker *w, struct scout__job *job)
{
	if (job->timed)
		TAILQ_REMOVE(&w->timed, job, timed_link);
	job->timed = false;
}

/*
 * The only way out. The job is in no queue, and no copy of it is running. Afterwards the slot is the caller's: the
 * courier may not touch it.
 */
void
scout__job_finish(struct scout_worker *w, struct scout__job *job, int status)
{
	static const char *const kinds[] = {"", "retrieve", "store", "verify"};
	struct scout__job_data *data = job->data;

	scout__job_enter(job, job->stage);
	data->status = status;
	atomic_store(&data->outcome, status);
	scout__copy_progress_wake(&data->progress);
	if (status)
		scout__log(&w->log, SCOUT_LOG_DEBUG, "%s %llu ended: %s (%u chunks done)", kinds[data->kind],
			   (unsigned long long)job->id, scout_err_name(status), (unsigned)data->chunks);
	if (w->verifier.job == job)
		w->verifier.job = NULL;
	scout__job_untime(w, job);
	TAILQ_REMOVE(&w->open, job, open_link);
	scout__job_detach(job);
	report(w, job);
}

/*
 * End a job that is not copying, at any earlier stage or between two parts. Grants that it has are given back; grants
 * still to come will be.
 */
void
scout__job_end_early(struct scout_worker *w, struct scout__job *job, int status)
{
	struct scout__grant_record *record = job->record;

	if (!scout__job_move_phase(job, SCOUT__PHASE_WAITING, SCOUT__PHASE_OVER) &&
	    atomic_load(&job->phase) == SCOUT__PHASE_DROPPED)
		status = SCOUT_ERR_CANCELED;
	scout__job_unqueue(w, job);
	scout__job_detach(job);
	if (record && record->state == SCOUT__GRANT_HELD)
		scout__grant_record_due(w, record, 0);
	if (job->data->kind != SCOUT_JOB_STORE)
		scout__job_name_missing(job->data);
	scout__job_finish(w, job, status);
}

/* ---- ends that come from outside ---- */

void
scout__jobs_sweep(struct scout_worker *w)
{
	struct scout__job *job, *next;

	for (job = TAILQ_FIRST(&w->open); job; job = next) {
		next = TAILQ_NEXT(job, open_link);
		if (job->stage <= SCOUT__STAGE_GRANTED && atomic_load(&job->phase) == SCOUT__PHASE_DROPPED)
			scout__job_end_early(w, job, SCOUT_ERR_CANCELED);
	}
}

void
scout__jobs_fail_waiting(struct scout_worker *w, int error)
{
	struct scout__job *job;

	while ((job = TAILQ_FIRST(&w->to_ask)) != NULL)
		scout__job_end_early(w, job, scout__job_error(error));
	while ((job = TAILQ_FIRST(&w->granted)) != NULL)
		scout__job_end_early(w, job, scout__job_error(error));
}

void
scout__jobs_close(struct scout_worker *w)
{
	struct scout__job *job, *next;

	for (job = TAILQ_FIRST(&w->open); job; job = next) {
		next = TAILQ_NEXT(job, open_link);
		if (job->stage <= SCOUT__STAGE_GRANTED)
			scout__job_end_early(w, job, SCOUT_ERR_CLOSED);
	}
}

void
scout__jobs_fail_asking(struct scout_worker *w, uint64_t n_asked, int error)
{
	struct scout__job *job, *next;

	for (job = TAILQ_FIRST(&w->to_ask); job; job = next) {
		next = TAILQ_NEXT(job, queue_link);
		if (job->asked_before < n_asked)
			scout__job_end_early(w, job, scout__job_error(error));
	}
}

void
scout__jobs_fail_due(struct scout_worker *w, int error)
{
	struct scout__grant_record *record;

	/* The bytes are copied, but DONE cannot be sent now. */
	TAILQ_FOREACH(record, &w->due, link)
	{
		struct scout__job *job = record->job;

		if (!job)
			continue;
		scout__job_detach(job);
		scout__job_finish(w, job, scout__job_error(error));
	}
}

uint64_t
scout__jobs_tick(struct scout_worker *w, uint64_t now_us)
{
	struct scout__job *job;

	while ((job = TAILQ_FIRST(&w->timed)) != NULL) {
		if (job->data->deadline_us > now_us)
			return job->data->deadline_us;
		if (job->stage > SCOUT__STAGE_GRANTED)
			scout__job_untime(w, job);
		else
			scout__job_end_early(w, job, SCOUT_ERR_TIMEOUT);
	}
	return UINT64_MAX;
}
