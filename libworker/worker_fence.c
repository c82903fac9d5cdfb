/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_internal.h"

/*
 * DESIGN
 *
 * Purpose: scout_worker_fence(): the engine may use its pages again.
 *
 * Jobs on these pages that have not started are dropped as by cancel (worker_live.c). If the copy engine knows
 * streams, the caller's stream waits for the parts of running copies on these pages; else fence waits on the condition until
 * the copies are over.
 *
 * Nothing here walks the table of jobs: live jobs are in a list, and fence checks a job's pages one by one only if
 * the range from its lowest to its highest page overlaps. Each block counts the live jobs that name it, so a fence on
 * pages that no job has is over at once.
 *
 * Rejected: an index from block to jobs. It would cost every submit; walking the live jobs costs the fence alone.
 *
 * Threads: caller.
 */

/* The pages of a fence. */
struct pages {
	const struct scout__table *table;
	const int64_t *ids;
	size_t n;
	int64_t low, high; /* range of the pages that are no null blocks */
};

static void
mark(const struct pages *pages, bool on)
{
	uint64_t *marks = pages->table->marks;

	for (size_t i = 0; i < pages->n; i++) {
		uint64_t id = (uint64_t)pages->ids[i];

		if (scout__worker_plain_id(pages->table, pages->ids[i]) < 0)
			continue;
		if (on)
			marks[id / 64] |= (uint64_t)1 << (id % 64);
		else
			marks[id / 64] &= ~((uint64_t)1 << (id % 64));
	}
}

static bool
has_users(const struct pages *pages)
{
	for (size_t i = 0; i < pages->n; i++) {
		int64_t id = scout__worker_plain_id(pages->table, pages->ids[i]);

		if (id >= 0 && pages->table->uses[id] > 0)
			return true;
	}
	return false;
}

static struct pages
pages_of(const struct scout__table *table, const int64_t *ids, size_t n)
{
	struct pages pages = {.table = table, .ids = ids, .n = n, .low = INT64_MAX, .high = -1};

	for (size_t i = 0; i < n; i++) {
		if (scout__worker_plain_id(table, ids[i]) < 0)
			continue;
		pages.low = ids[i] < pages.low ? ids[i] : pages.low;
		pages.high = ids[i] > pages.high ? ids[i] : pages.high;
	}
	return pages;
}

/* The job's part in the group of the pages, or NULL. */
static const struct scout__job_group *
group_of(const struct scout__job_data *data, const struct pages *pages)
{
	for (uint32_t g = 0; g < data->n_groups; g++)
		if (data->groups[g].number == pages->table->group)
			return &data->groups[g];
	return NULL;
}

/* Whether the job may still touch one of the pages, which are marked. */
static bool
is_affected(const struct scout_worker *w, const struct scout__job *job, const struct pages *pages)
{
	const struct scout__job_data *data = job->data;
	const struct scout__job_group *group = group_of(data, pages);
	const uint64_t *marks = pages->table->marks;
	const int64_t *ids;
	uint64_t n;

	if (!group || data->registration != w->registration || group->low_id > pages->high ||
	    group->high_id < pages->low)
		return false;
	if (atomic_load(&job->phase) == SCOUT__PHASE_OVER)
		return false;
	ids = data->ids + group->ids_at;
	n = (uint64_t)group->n * group->blocks_per_chunk;
	for (uint64_t i = 0; i < n; i++)
		if (ids[i] >= 0 && (marks[(uint64_t)ids[i] / 64] >> ((uint64_t)ids[i] % 64) & 1))
			return true;
	return false;
}

static void
wait_marked(struct scout_worker *w, const struct pages *pages)
{
	struct scout__job *job;

	TAILQ_FOREACH(job, &w->live_jobs, live_link)
	{
		if (atomic_load(&job->stop) && is_affected(w, job, pages))
			scout__worker_wait_copy(w, job);
	}
}

int
scout_worker_fence(struct scout_worker *w, uint32_t group, const int64_t *block_ids, size_t n, void *stream)
{
	const struct scout__table *table;
	struct scout__copy_pages in_copy;
	struct scout__job *job;
	struct pages pages;

	if (!w || (n > 0 && !block_ids))
		return SCOUT_ERR_INVALID;
	if (scout__courier_forked(w->courier))
		return SCOUT_ERR_FORKED;
	if (stream && scout__worker_is_host(w))
		return SCOUT_ERR_INVALID;
	if (group >= w->groups.n)
		return SCOUT_ERR_GROUP;
	if (!w->registered)
		return 0; /* so no copy uses them */
	table = scout__worker_table_of(w, group);
	if (!table)
		return SCOUT_ERR_GROUP;
	if (scout__worker_check_ids(table, block_ids, n) != 0)
		return SCOUT_ERR_INVALID;
	pages = pages_of(table, block_ids, n);
	if (!has_users(&pages))
		return 0; /* the usual case: no walk over the jobs */
	mark(&pages, true);
	/* First drop all jobs that have not started; to wait for a copy takes longer. */
	TAILQ_FOREACH(job, &w->live_jobs, live_link)
	{
		if (!is_affected(w, job, &pages))
			continue;
		scout__worker_drop(w, job);
	}
	/* After this the engine has seen `stop`, and the stream waits; if it cannot, we wait. */
	in_copy = (struct scout__copy_pages){.table = (uint32_t)(table - w->tables), .marks = table->marks};
	if (!stream || w->copy->fence(w->engine, stream, &in_copy) != 0)
		wait_marked(w, &pages);
	mark(&pages, false);
	return 0;
}
