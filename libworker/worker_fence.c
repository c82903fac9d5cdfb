/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_internal.h"

/*
 * DESIGN
 *
 * Purpose: scout_worker_fence(): the engine may use its pages again.
 *
 * Jobs on these pages that have not started are dropped as by cancel (worker_live.c). Of those whose copy
 * runs, the caller's stream waits where the copy engine knows streams; else fence waits on the condition
 * until the copy does not run.
 *
 * Nothing here walks the table of jobs: those that are live are in a list, and fence looks into the pages of
 * such only whose lowest and highest page leave it in doubt. How many live jobs name a block is counted, so a
 * fence on pages that no job has is over at once.
 *
 * Rejected: an index from block to jobs. It would cost every submit; walking the live jobs costs the fence alone.
 *
 * Threads: caller.
 */

/* Pages that a fence is for. */
struct pages {
	const int64_t *ids;
	size_t n;
	int64_t low, high; /* of those that are no null blocks */
};

static void
mark(struct scout_worker *w, const struct pages *pages, bool on)
{
	for (size_t i = 0; i < pages->n; i++) {
		uint64_t id = (uint64_t)pages->ids[i];

		if (scout__worker_plain_id(w, pages->ids[i]) < 0)
			continue;
		if (on)
			w->marks[id / 64] |= (uint64_t)1 << (id % 64);
		else
			w->marks[id / 64] &= ~((uint64_t)1 << (id % 64));
	}
}

static bool
has_users(const struct scout_worker *w, const struct pages *pages)
{
	for (size_t i = 0; i < pages->n; i++) {
		int64_t id = scout__worker_plain_id(w, pages->ids[i]);

		if (id >= 0 && w->uses[id] > 0)
			return true;
	}
	return false;
}

static struct pages
pages_of(const struct scout_worker *w, const int64_t *ids, size_t n)
{
	struct pages pages = {.ids = ids, .n = n, .low = INT64_MAX, .high = -1};

	for (size_t i = 0; i < n; i++) {
		if (scout__worker_plain_id(w, ids[i]) < 0)
			continue;
		pages.low = ids[i] < pages.low ? ids[i] : pages.low;
		pages.high = ids[i] > pages.high ? ids[i] : pages.high;
	}
	return pages;
}

/* It may still touch one of the pages, which are marked. */
static bool
is_affected(const struct scout_worker *w, const struct scout__transfer *job, const struct pages *pages)
{
	const struct scout__work *work = job->work;
	uint64_t n = scout__work_ids(w, work);
	const int64_t *ids = work->ids;

	if (work->low_id > pages->high || work->high_id < pages->low)
		return false;
	if (atomic_load(&job->phase) == SCOUT__PHASE_OVER)
		return false;
	for (uint64_t i = 0; i < n; i++)
		if (ids[i] >= 0 && (w->marks[(uint64_t)ids[i] / 64] >> ((uint64_t)ids[i] % 64) & 1))
			return true;
	return false;
}

static void
wait_copy(struct scout_worker *w, struct scout__transfer *job)
{
	(void)pthread_mutex_lock(&w->mu);
	/* Between two parts of a long store it is WAITING again: then the rest is taken away. */
	while (!scout__transfer_move_phase(job, SCOUT__PHASE_WAITING, SCOUT__PHASE_DROPPED) &&
	       atomic_load(&job->phase) == SCOUT__PHASE_ENQUEUED)
		(void)pthread_cond_wait(&w->cond, &w->mu);
	(void)pthread_mutex_unlock(&w->mu);
}

static void
wait_marked(struct scout_worker *w, const struct pages *pages)
{
	struct scout__transfer *job;

	TAILQ_FOREACH(job, &w->live_jobs, live_link)
	{
		if (atomic_load(&job->stop) && is_affected(w, job, pages))
			wait_copy(w, job);
	}
}

int
scout_worker_fence(struct scout_worker *w, uint32_t group, const int64_t *block_ids, size_t n, void *stream)
{
	struct scout__transfer *job;
	struct pages pages;

	if (!w || (n > 0 && !block_ids))
		return SCOUT_ERR_INVALID;
	if (scout__courier_forked(w->courier))
		return SCOUT_ERR_FORKED;
	if (stream && scout__worker_is_host(w))
		return SCOUT_ERR_INVALID;
	if (group >= SCOUT__WORKER_GROUPS)
		return SCOUT_ERR_GROUP;
	if (!w->registered)
		return 0; /* no job, then */
	if (scout__worker_check_ids(w, block_ids, n) != 0)
		return SCOUT_ERR_INVALID;
	pages = pages_of(w, block_ids, n);
	if (!has_users(w, &pages))
		return 0; /* the usual case, and no walk over the jobs */
	mark(w, &pages, true);
	/* First take away all that has not started; a copy that must be waited for takes longer. */
	TAILQ_FOREACH(job, &w->live_jobs, live_link)
	{
		if (!is_affected(w, job, &pages))
			continue;
		scout__worker_drop(w, job);
	}
	/* The engine has seen `stop` by this, and the stream waits; otherwise it is for us to wait. */
	if (!stream || w->copy->fence(w->engine, stream) != 0)
		wait_marked(w, &pages);
	mark(w, &pages, false);
	return 0;
}
