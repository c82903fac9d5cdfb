/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_internal.h"

#include <stdlib.h>
#include <unistd.h>

/*
 * DESIGN
 *
 * Purpose: what the caller does with jobs that were submitted: collect, ask after, drop.
 *
 * Slots are the caller's: taken at submit, free again when poll reports the job. The job's memory stays one poll
 * longer, because the list of missing blocks is lent out of it.
 *
 * Cancel and fence take a job away from the courier by WAITING -> DROPPED. If that succeeds, no copy of it will ever
 * start, at once and without waiting for the courier; the kick only makes it end soon. If not, its copy runs (or is
 * over), and fence waits on the condition until it does not.
 *
 * Nothing here walks the table of jobs: those that are live are in a list, and fence looks into the pages of such only
 * whose lowest and highest page leave it in doubt.
 *
 * Rejected: an index from block to jobs, for fence. It would cost every submit; walking the live jobs costs the
 * fence alone.
 */

/* ---- poll ---- */

static void
free_dead(struct scout_worker *w)
{
	while (w->dead) {
		struct scout__work *work = w->dead;

		w->dead = work->next_dead;
		free(work);
	}
}

/*
 * The ring looked empty: make the descriptor unreadable, unless something has come meanwhile. The courier raises it
 * and pushes under the lock, in this order, so whoever saw it readable finds the job here at the latest. Returns
 * whether there is one.
 */
static bool
lower_fd(struct scout_worker *w)
{
	uint64_t count;
	bool empty;

	if (!atomic_load_explicit(&w->fd_raised, memory_order_relaxed))
		return false;
	(void)pthread_mutex_lock(&w->mu);
	empty = scout__ring_empty(&w->done);
	if (empty && atomic_load_explicit(&w->fd_raised, memory_order_relaxed)) {
		(void)!read(w->done_fd, &count, sizeof(count)); /* cannot fail: it is raised */
		atomic_store_explicit(&w->fd_raised, false, memory_order_relaxed);
	}
	(void)pthread_mutex_unlock(&w->mu);
	return !empty;
}

static void
collect(struct scout_worker *w, uint64_t id, struct scout_done *done)
{
	uint32_t slot = (uint32_t)(id & SCOUT__SLOT_MASK);
	struct scout__transfer *job = &w->jobs[slot];
	struct scout__work *work = job->work;

	SCOUT_ASSERT(job->id == id);
	if (scout__worker_outdated(w, work))
		scout__worker_outdate(w, work);
	*done = (struct scout_done){
		.job = id,
		.ticket = work->ticket,
		.kind = work->kind,
		.status = work->status,
		.bytes = work->bytes,
		.chunks = work->chunks,
		.present = work->present,
		.no_room = work->no_room,
		.null_chunks = work->null_chunks,
		.n_missing = work->n_missing,
		.missing = work->n_missing ? work->missing : NULL,
		.queued_us = work->queued_us,
		.server_us = work->server_us,
		.copy_us = work->copy_us,
		.total_us = work->since_us - work->submitted_us,
	};
	scout__worker_count_end(w, work, done);
	scout__worker_uses_remove(w, work);
	work->next_dead = w->dead;
	w->dead = work;
	job->work = NULL;
	job->id = 0;
	TAILQ_REMOVE(&w->live_jobs, job, live_link);
	w->n_live--;
	w->free_slots[w->n_free++] = slot;
}

int
scout_worker_poll(struct scout_worker *w, struct scout_done *done, size_t max)
{
	uint64_t id;
	int n = 0;

	if (!w || (max > 0 && !done))
		return SCOUT_ERR_INVALID;
	if (scout__courier_forked(w->courier))
		return SCOUT_ERR_FORKED;
	free_dead(w);
	do {
		while ((size_t)n < max && (id = scout__ring_pop(&w->done)) != 0)
			collect(w, id, &done[n++]);
	} while (scout__ring_empty(&w->done) && lower_fd(w) && (size_t)n < max);
	return n;
}

int
scout_worker_fd(struct scout_worker *w)
{
	return w ? w->done_fd : SCOUT_ERR_INVALID;
}

struct scout__transfer *
scout__worker_find_job(struct scout_worker *w, uint64_t id)
{
	uint64_t slot = id & SCOUT__SLOT_MASK;

	return id != 0 && slot < w->n_used && w->jobs[slot].id == id ? &w->jobs[slot] : NULL;
}

/* ---- drop ---- */

/* True: no copy of it will start any more. */
static bool
drop(struct scout__transfer *job)
{
	unsigned waiting = SCOUT__PHASE_WAITING;

	return atomic_compare_exchange_strong(&job->phase, &waiting, SCOUT__PHASE_DROPPED);
}

/* Let the courier end what was dropped. One such word at most is in the ring. */
static void
kick(struct scout_worker *w)
{
	bool pushed;

	if (atomic_exchange(&w->kicked, true))
		return;
	pushed = scout__courier_push(w->courier, SCOUT__WORD_KICK);
	SCOUT_ASSERT(pushed);
	(void)scout__courier_ring(w->courier);
}

int
scout_worker_cancel(struct scout_worker *w, uint64_t id)
{
	struct scout__transfer *job;

	if (!w)
		return SCOUT_ERR_INVALID;
	if (scout__courier_forked(w->courier))
		return SCOUT_ERR_FORKED;
	job = scout__worker_find_job(w, id);
	if (!job)
		return SCOUT_ERR_STATE;
	atomic_store(&job->stop, true);
	if (drop(job))
		kick(w);
	return 0;
}

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

/* ---- which blocks live jobs name ---- */

static uint64_t
n_ids(const struct scout_worker *w, const struct scout__work *work)
{
	return (uint64_t)work->n_chunks * w->layout.blocks_per_chunk;
}

void
scout__worker_uses_add(struct scout_worker *w, const struct scout__work *work)
{
	uint64_t n = n_ids(w, work);

	for (uint64_t i = 0; i < n; i++)
		if (work->ids[i] >= 0)
			w->uses[work->ids[i]]++;
}

void
scout__worker_uses_remove(struct scout_worker *w, const struct scout__work *work)
{
	uint64_t n = n_ids(w, work);

	for (uint64_t i = 0; i < n; i++)
		if (work->ids[i] >= 0)
			w->uses[work->ids[i]]--;
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
	uint64_t n = n_ids(w, work);
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
	/* Between two parts of a long store it is WAITING again: then drop() takes the rest. */
	while (!drop(job) && atomic_load(&job->phase) == SCOUT__PHASE_ENQUEUED)
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
scout_worker_fence(struct scout_worker *w, const int64_t *block_ids, size_t n, void *stream)
{
	struct scout__transfer *job;
	struct pages pages;

	if (!w || (n > 0 && !block_ids))
		return SCOUT_ERR_INVALID;
	if (scout__courier_forked(w->courier))
		return SCOUT_ERR_FORKED;
	if (stream && scout__worker_is_host(w))
		return SCOUT_ERR_INVALID;
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
		atomic_store(&job->stop, true);
		if (drop(job))
			kick(w);
	}
	/* The engine has seen `stop` by this, and the stream waits; otherwise it is for us to wait. */
	if (!stream || w->copy->fence(w->engine, stream) != 0)
		wait_marked(w, &pages);
	mark(w, &pages, false);
	return 0;
}

/* ---- the end ---- */

void
scout__worker_free_jobs(struct scout_worker *w)
{
	struct scout__transfer *job;

	free_dead(w);
	if (!w->jobs)
		return; /* half built */
	TAILQ_FOREACH(job, &w->live_jobs, live_link)
	free(job->work);
}
