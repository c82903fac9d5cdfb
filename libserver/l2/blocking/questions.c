/* SPDX-License-Identifier: Apache-2.0 */
#include "blocking.h"

#include <errno.h>
#include <stdlib.h>

/*
 * DESIGN
 *
 * Purpose: say what exists in a store that alone can say, where each question is a round trip. So the keys of one
 * EXISTS are dealt out in slices to a pool of threads, which slow loads and stores never keep busy. The thread that
 * finishes the last slice answers.
 *
 * Threads: jobs and the queue of jobs with keys left are under pool->mu; the keys of a slice belong to the thread
 * that took it.
 */

struct open_question {
	struct scout__l2_op *op;
	uint32_t next_key; /* the first key that was not dealt out */
	uint32_t left;     /* keys that are not answered */
	int errnum;        /* of the first slice that failed */
	struct open_question *next;
};

struct scout__questions {
	pthread_mutex_t mu;
	pthread_cond_t more;
	struct open_question *jobs;
	/* mu */
	struct open_question *free;
	struct open_question *first, *last; /* jobs with keys to deal out */
	bool closed;                        /* no further question comes */
	/* const after start */
	uint32_t slice;
	pthread_t threads[SCOUT__BLOCKING_THREADS_MAX];
	uint32_t n_threads;
};

/* Returns 0 or an errno value: ECANCELED is ours. */
static int
ask(struct scout__blocking *blocking, struct scout__l2_op *op, uint32_t first, uint32_t n)
{
	int errnum = ECANCELED;

	scout__l2_moved(op);
	if (!scout__blocking_is_stopping(blocking))
		errnum = blocking->calls->ask(blocking->store, op, first, n);
	scout__l2_moved(op);
	return errnum;
}

static void
answer(struct scout__blocking *blocking, struct scout__l2_op *op, int errnum)
{
	if (errnum == 0)
		op->result = SCOUT__L2_OK;
	else if (errnum == ECANCELED)
		op->result = SCOUT__L2_CANCELLED;
	else if (errnum == ETIMEDOUT)
		op->result = SCOUT__L2_TIMEOUT;
	else
		op->result = SCOUT__L2_ERROR;
	op->detail = errnum == ECANCELED ? 0 : errnum;
	if (blocking->calls->asked)
		blocking->calls->asked(blocking->store, op);
	scout__l2_complete(blocking->port, op);
}

/* With pool->mu: the next slice. NULL: there is none. */
static struct open_question *
deal(struct scout__questions *pool, uint32_t *ret_first, uint32_t *ret_n)
{
	struct open_question *job = pool->first;
	uint32_t rest;

	if (!job)
		return NULL;
	rest = job->op->n - job->next_key;
	*ret_first = job->next_key;
	*ret_n = rest < pool->slice ? rest : pool->slice;
	job->next_key += *ret_n;
	if (rest <= pool->slice)
		pool->first = job->next;
	return job;
}

static void *
question_main(void *arg)
{
	struct scout__blocking *blocking = arg;
	struct scout__questions *pool = blocking->questions;
	uint32_t first, n;

	SCOUT_ASSERT(pthread_mutex_lock(&pool->mu) == 0);
	for (;;) {
		struct open_question *job = deal(pool, &first, &n);
		int errnum;

		if (!job && pool->closed)
			break;
		if (!job) {
			(void)pthread_cond_wait(&pool->more, &pool->mu);
			continue;
		}
		SCOUT_ASSERT(pthread_mutex_unlock(&pool->mu) == 0);
		errnum = ask(blocking, job->op, first, n);
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
			answer(blocking, op, errnum);
			SCOUT_ASSERT(pthread_mutex_lock(&pool->mu) == 0);
		}
	}
	SCOUT_ASSERT(pthread_mutex_unlock(&pool->mu) == 0);
	scout__blocking_thread_ends(blocking);
	return NULL;
}

int
scout__questions_start(struct scout__blocking *blocking)
{
	struct scout__questions *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return SCOUT_ERR_NOMEM;
	pool->jobs = calloc(blocking->max_ops, sizeof(*pool->jobs));
	if (!pool->jobs) {
		free(pool);
		return SCOUT_ERR_NOMEM;
	}
	for (uint32_t i = 0; i < blocking->max_ops; i++) {
		pool->jobs[i].next = pool->free;
		pool->free = &pool->jobs[i];
	}
	/* These do not fail on Linux. */
	SCOUT_ASSERT(pthread_mutex_init(&pool->mu, NULL) == 0);
	SCOUT_ASSERT(pthread_cond_init(&pool->more, NULL) == 0);
	pool->slice = blocking->calls->slice ? blocking->calls->slice : UINT32_MAX;
	blocking->questions = pool;
	while (pool->n_threads < blocking->n_threads) {
		if (scout__blocking_thread_start(blocking, &pool->threads[pool->n_threads], "scout-l2-stat",
						 question_main, blocking))
			return SCOUT_ERR_SYSTEM;
		pool->n_threads++;
	}
	return 0;
}

void
scout__questions_ask(struct scout__blocking *blocking, struct scout__l2_op *op)
{
	struct scout__questions *pool = blocking->questions;
	struct open_question *job;

	SCOUT_ASSERT(pthread_mutex_lock(&pool->mu) == 0);
	job = pool->free;
	SCOUT_ASSERT(job); /* there are as many jobs as operations */
	pool->free = job->next;
	*job = (struct open_question){.op = op, .left = op->n};
	if (pool->first)
		pool->last->next = job;
	else
		pool->first = job;
	pool->last = job;
	(void)pthread_cond_broadcast(&pool->more);
	SCOUT_ASSERT(pthread_mutex_unlock(&pool->mu) == 0);
}

void
scout__questions_stop(struct scout__blocking *blocking)
{
	SCOUT_ASSERT(pthread_mutex_lock(&blocking->questions->mu) == 0);
	blocking->questions->closed = true;
	(void)pthread_cond_broadcast(&blocking->questions->more);
	SCOUT_ASSERT(pthread_mutex_unlock(&blocking->questions->mu) == 0);
}

void
scout__questions_detach(struct scout__blocking *blocking)
{
	for (uint32_t i = 0; i < blocking->questions->n_threads; i++)
		(void)pthread_detach(blocking->questions->threads[i]);
}

void
scout__questions_free(struct scout__blocking *blocking)
{
	struct scout__questions *pool = blocking->questions;

	for (uint32_t i = 0; i < pool->n_threads; i++)
		(void)pthread_join(pool->threads[i], NULL);
	(void)pthread_cond_destroy(&pool->more);
	(void)pthread_mutex_destroy(&pool->mu);
	free(pool->jobs);
	free(pool);
	blocking->questions = NULL;
}
