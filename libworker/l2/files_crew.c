/* SPDX-License-Identifier: Apache-2.0 */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "clock.h"

/*
 * DESIGN
 *
 * What exists in a folder that other nodes write too: only the file system can say, and on a parallel one each question is a
 * round trip. So the keys of one EXISTS are dealt out in slices to a crew of threads of their own; loads and stores, which
 * take their time, keep none of them busy. Who finishes the last slice answers.
 *
 * A file that is there by name and length counts; whether it is good shows the load. With eviction (max_bytes), the keys are pinned
 * before they are looked for, and those that are not there unpinned afterwards: nothing can go in between.
 *
 * Threads: jobs and the queue of those that have keys left are under crew->mu; the keys of a slice belong to who took it.
 */

#define SLICE 16u

struct job {
	struct scout__l2_op *op;
	uint32_t next_key; /* the first that was not dealt out */
	uint32_t left;     /* keys that are not answered */
	int errnum;        /* of the first key that failed */
	struct job *next;
};

struct scout__files_crew {
	pthread_mutex_t mu;
	pthread_cond_t more;
	struct job *jobs;
	/* mu */
	struct job *free;
	struct job *first, *last; /* with keys to deal out */
	bool closed;              /* nobody asks any more */
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
	/* A pin is given with the answer that it is there, and with no other. */
	if (pins)
		scout__cat_unpin(&files->cat, op->digests, op->n, errnum ? NULL : op->found);
	scout__l2_complete(files->port, op);
}

/* With crew->mu: the next slice. NULL: there is none. */
static struct job *
deal(struct scout__files_crew *crew, uint32_t *ret_first, uint32_t *ret_n)
{
	struct job *job = crew->first;
	uint32_t rest;

	if (!job)
		return NULL;
	rest = job->op->n - job->next_key;
	*ret_first = job->next_key;
	*ret_n = rest < SLICE ? rest : SLICE;
	job->next_key += *ret_n;
	if (rest <= SLICE)
		crew->first = job->next;
	return job;
}

static void *
crew_main(void *arg)
{
	struct scout__files *files = arg;
	struct scout__files_crew *crew = files->crew;
	uint32_t first, n;

	SCOUT_ASSERT(pthread_mutex_lock(&crew->mu) == 0);
	for (;;) {
		struct job *job = deal(crew, &first, &n);
		int errnum;

		if (!job && crew->closed)
			break;
		if (!job) {
			(void)pthread_cond_wait(&crew->more, &crew->mu);
			continue;
		}
		SCOUT_ASSERT(pthread_mutex_unlock(&crew->mu) == 0);
		scout__l2_moved(job->op);
		errnum = ask(files, job->op, first, n);
		scout__l2_moved(job->op);
		SCOUT_ASSERT(pthread_mutex_lock(&crew->mu) == 0);
		if (errnum && !job->errnum)
			job->errnum = errnum;
		job->left -= n;
		if (job->left == 0) {
			struct scout__l2_op *op = job->op;

			errnum = job->errnum;
			job->next = crew->free;
			crew->free = job;
			SCOUT_ASSERT(pthread_mutex_unlock(&crew->mu) == 0);
			answer(files, op, errnum);
			SCOUT_ASSERT(pthread_mutex_lock(&crew->mu) == 0);
		}
	}
	SCOUT_ASSERT(pthread_mutex_unlock(&crew->mu) == 0);
	scout__files_thread_ends(files);
	return NULL;
}

int
scout__files_crew_start(struct scout__files *files, uint32_t max_ops)
{
	struct scout__files_crew *crew = calloc(1, sizeof(*crew));

	if (!crew)
		return SCOUT_ERR_NOMEM;
	crew->jobs = calloc(max_ops, sizeof(*crew->jobs));
	if (!crew->jobs) {
		free(crew);
		return SCOUT_ERR_NOMEM;
	}
	for (uint32_t i = 0; i < max_ops; i++) {
		crew->jobs[i].next = crew->free;
		crew->free = &crew->jobs[i];
	}
	/* These do not fail on Linux. */
	SCOUT_ASSERT(pthread_mutex_init(&crew->mu, NULL) == 0);
	SCOUT_ASSERT(pthread_cond_init(&crew->more, NULL) == 0);
	files->crew = crew;
	while (crew->n_threads < files->n_threads) {
		if (scout__files_thread_start(files, &crew->threads[crew->n_threads], "scout-l2-stat", crew_main,
					      files))
			return SCOUT_ERR_SYSTEM;
		crew->n_threads++;
	}
	return 0;
}

void
scout__files_crew_ask(struct scout__files *files, struct scout__l2_op *op)
{
	struct scout__files_crew *crew = files->crew;
	struct job *job;

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
	SCOUT_ASSERT(pthread_mutex_lock(&crew->mu) == 0);
	job = crew->free;
	SCOUT_ASSERT(job); /* as many as operations */
	crew->free = job->next;
	*job = (struct job){.op = op, .left = op->n};
	if (crew->first)
		crew->last->next = job;
	else
		crew->first = job;
	crew->last = job;
	(void)pthread_cond_broadcast(&crew->more);
	SCOUT_ASSERT(pthread_mutex_unlock(&crew->mu) == 0);
}

void
scout__files_crew_stop(struct scout__files *files)
{
	SCOUT_ASSERT(pthread_mutex_lock(&files->crew->mu) == 0);
	files->crew->closed = true;
	(void)pthread_cond_broadcast(&files->crew->more);
	SCOUT_ASSERT(pthread_mutex_unlock(&files->crew->mu) == 0);
}

void
scout__files_crew_free(struct scout__files *files)
{
	struct scout__files_crew *crew = files->crew;

	for (uint32_t i = 0; i < crew->n_threads; i++)
		(void)pthread_join(crew->threads[i], NULL);
	(void)pthread_cond_destroy(&crew->more);
	(void)pthread_mutex_destroy(&crew->mu);
	free(crew->jobs);
	free(crew);
	files->crew = NULL;
}
