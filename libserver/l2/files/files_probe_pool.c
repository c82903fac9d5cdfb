/* SPDX-License-Identifier: Apache-2.0 */
#include "files_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "clock.h"

/*
 * DESIGN
 *
 * Purpose: say what exists in a folder that other nodes write too: only the file system can say, and on a parallel one
 * each question is a round trip. So the keys of one EXISTS are dealt out in slices to a pool of threads, which slow
 * loads and stores never keep busy. The thread that finishes the last slice answers.
 *
 * A file with the right name and length counts; only the load shows whether it is good. With eviction (max_bytes), the
 * keys are pinned before they are looked for, and missing keys are unpinned afterwards: nothing is evicted in between.
 *
 * Threads: jobs and the queue of jobs with keys left are under pool->mu; the keys of a slice belong to the thread
 * that took it.
 */

#define SLICE 16u

struct probe_job {
	struct scout__l2_op *op;
	uint32_t next_key; /* the first key that was not dealt out */
	uint32_t left;     /* keys that are not answered */
	int errnum;        /* of the first key that failed */
	struct probe_job *next;
};

struct scout__probe_pool {
	pthread_mutex_t mu;
	pthread_cond_t more;
	struct probe_job *jobs;
	/* mu */
	struct probe_job *free;
	struct probe_job *first, *last; /* jobs with keys to deal out */
	bool closed;                    /* no further question comes */
	/* const after start */
	pthread_t threads[SCOUT__FILES_THREADS_MAX];
	uint32_t n_threads;
};

static bool
is_file(const struct scout__files *files, struct scout__l2_digest digest, int *ret_errnum)
{
	char path[SCOUT__FILES_PATH];
	struct stat st;

	scout__files_object_path(digest, path);
	if (fstatat(files->root.fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return S_ISREG(st.st_mode) && st.st_size >= (off_t)SCOUT__FILES_PAYLOAD;
	if (errno != ENOENT && errno != ENOTDIR && errno != ESTALE)
		*ret_errnum = errno;
	return false;
}

/* Returns 0 or an errno value: ECANCELED is ours. */
static int
ask(const struct scout__files *files, struct scout__l2_op *op, uint32_t first, uint32_t n)
{
	int errnum = 0;

	for (uint32_t i = first; i < first + n; i++) {
		op->found[i] = 0;
		if (scout__files_is_stopping(files))
			errnum = ECANCELED;
		else
			op->found[i] = is_file(files, op->digests[i], &errnum);
	}
	return errnum;
}

static void
answer(struct scout__files *files, struct scout__l2_op *op, int errnum)
{
	bool pins = op->pin && scout__files_evicts(files);

	if (errnum == 0)
		op->result = SCOUT__L2_OK;
	else if (errnum == ECANCELED)
		op->result = SCOUT__L2_CANCELLED;
	else
		op->result = SCOUT__L2_ERROR;
	op->detail = errnum == ECANCELED ? 0 : errnum;
	/* Only the answer that an object is there gives a pin. */
	if (pins)
		scout__cat_unpin(&files->cat, op->digests, op->n, errnum ? NULL : op->found);
	scout__l2_complete(files->port, op);
}

/* With pool->mu: the next slice. NULL: there is none. */
static struct probe_job *
deal(struct scout__probe_pool *pool, uint32_t *ret_first, uint32_t *ret_n)
{
	struct probe_job *job = pool->first;
	uint32_t rest;

	if (!job)
		return NULL;
	rest = job->op->n - job->next_key;
	*ret_first = job->next_key;
	*ret_n = rest < SLICE ? rest : SLICE;
	job->next_key += *ret_n;
	if (rest <= SLICE)
		pool->first = job->next;
	return job;
}

static void *
probe_main(void *arg)
{
	struct scout__files *files = arg;
	struct scout__probe_pool *pool = files->probe_pool;
	uint32_t first, n;

	SCOUT_ASSERT(pthread_mutex_lock(&pool->mu) == 0);
	for (;;) {
		struct probe_job *job = deal(pool, &first, &n);
		int errnum;

		if (!job && pool->closed)
			break;
		if (!job) {
			(void)pthread_cond_wait(&pool->more, &pool->mu);
			continue;
		}
		SCOUT_ASSERT(pthread_mutex_unlock(&pool->mu) == 0);
		scout__l2_moved(job->op);
		errnum = ask(files, job->op, first, n);
		scout__l2_moved(job->op);
		SCOUT_ASSERT(pthread_mutex_lock(&pool->mu) == 0);
		if (errnum && !job->errnum)
			job->errnum = errnum;
		job->left -= n;
		if (job->left == 0) {
			struct scout__l2_op *op = job->op;

			errnum = job->errnum;
			job->next = pool->free;
			pool->free = job;
			SCOUT_ASSERT(pthread_mutex_unlock(&pool->mu) == 0);
			answer(files, op, errnum);
			SCOUT_ASSERT(pthread_mutex_lock(&pool->mu) == 0);
		}
	}
	SCOUT_ASSERT(pthread_mutex_unlock(&pool->mu) == 0);
	scout__files_thread_ends(files);
	return NULL;
}

int
scout__probe_pool_start(struct scout__files *files, uint32_t max_ops)
{
	struct scout__probe_pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return SCOUT_ERR_NOMEM;
	pool->jobs = calloc(max_ops, sizeof(*pool->jobs));
	if (!pool->jobs) {
		free(pool);
		return SCOUT_ERR_NOMEM;
	}
	for (uint32_t i = 0; i < max_ops; i++) {
		pool->jobs[i].next = pool->free;
		pool->free = &pool->jobs[i];
	}
	/* These do not fail on Linux. */
	SCOUT_ASSERT(pthread_mutex_init(&pool->mu, NULL) == 0);
	SCOUT_ASSERT(pthread_cond_init(&pool->more, NULL) == 0);
	files->probe_pool = pool;
	while (pool->n_threads < files->n_threads) {
		if (scout__files_thread_start(files, &pool->threads[pool->n_threads], "scout-l2-stat", probe_main,
					      files))
			return SCOUT_ERR_SYSTEM;
		pool->n_threads++;
	}
	return 0;
}

void
scout__probe_pool_ask(struct scout__files *files, struct scout__l2_op *op)
{
	struct scout__probe_pool *pool = files->probe_pool;
	struct probe_job *job;

	if (op->pin && scout__files_evicts(files)) {
		uint32_t n = scout__cat_pin(&files->cat, op->digests, op->n);

		if (n < op->n) {
			scout__cat_unpin(&files->cat, op->digests, n, NULL);
			op->result = SCOUT__L2_ERROR;
			op->detail = ENOMEM;
			scout__l2_complete(files->port, op);
			return;
		}
	}
	SCOUT_ASSERT(pthread_mutex_lock(&pool->mu) == 0);
	job = pool->free;
	SCOUT_ASSERT(job); /* there are as many jobs as operations */
	pool->free = job->next;
	*job = (struct probe_job){.op = op, .left = op->n};
	if (pool->first)
		pool->last->next = job;
	else
		pool->first = job;
	pool->last = job;
	(void)pthread_cond_broadcast(&pool->more);
	SCOUT_ASSERT(pthread_mutex_unlock(&pool->mu) == 0);
}

void
scout__probe_pool_stop(struct scout__files *files)
{
	SCOUT_ASSERT(pthread_mutex_lock(&files->probe_pool->mu) == 0);
	files->probe_pool->closed = true;
	(void)pthread_cond_broadcast(&files->probe_pool->more);
	SCOUT_ASSERT(pthread_mutex_unlock(&files->probe_pool->mu) == 0);
}

void
scout__probe_pool_free(struct scout__files *files)
{
	struct scout__probe_pool *pool = files->probe_pool;

	for (uint32_t i = 0; i < pool->n_threads; i++)
		(void)pthread_join(pool->threads[i], NULL);
	(void)pthread_cond_destroy(&pool->more);
	(void)pthread_mutex_destroy(&pool->mu);
	free(pool->jobs);
	free(pool);
	files->probe_pool = NULL;
}
