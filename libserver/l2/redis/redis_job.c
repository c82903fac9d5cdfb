/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "l2.h"

/*
 * The jobs, each one operation of L2: begin one, hash it, put it together from the answers to its commands, end it.
 * redis_route.c makes commands of jobs, and redis_expire.c ends jobs without progress.
 *
 * Threads: the adapter's, which owns all jobs.
 */

void
scout__redis_say(struct redis *r, const struct redis_node *node, int detail, const char *text, const char *more)
{
	(void)snprintf(r->words, sizeof(r->words), "%.80s%.40s (%.64s:%u)", text, more, node->host, node->port);
	r->words_of = detail;
}

void
scout__redis_job_finish(struct redis *r, struct redis_job *job, enum scout__l2_result result, int detail)
{
	struct scout__l2_op *op = job->op;

	scout__list_del(&job->live);
	job->op = NULL;
	job->next = r->free_jobs;
	r->free_jobs = job;
	op->result = (uint8_t)result;
	op->detail = detail;
	if (detail && (detail == r->words_of || detail == ENOTCONN))
		memcpy(op->why, r->words, sizeof(op->why));
	scout__l2_complete(r->port, op);
}

uint32_t
scout__redis_job_parts(const struct redis_job *job)
{
	return job->op->what == SCOUT__L2_EXISTS ? job->op->n : 1;
}

void
scout__redis_job_part(struct redis *r, struct redis_job *job, uint32_t index, bool found, enum scout__l2_result result,
		      int detail)
{
	SCOUT_ASSERT(!job->expired); /* such a job ends as a whole: its commands were taken from it */
	if (result == SCOUT__L2_OK)
		job->answered++;
	else if (job->result == SCOUT__L2_OK) {
		job->result = (uint8_t)result;
		job->detail = detail;
	}
	if (job->op->what == SCOUT__L2_EXISTS && found)
		job->op->found[index] = 1;
	if (--job->left > 0)
		return;
	/* If one server of a cluster is away, the others' answers still count: a key without an answer is not there. */
	if (job->op->what == SCOUT__L2_EXISTS && job->answered > 0)
		scout__redis_job_finish(r, job, SCOUT__L2_OK, 0);
	else
		scout__redis_job_finish(r, job, job->result, job->detail);
}

static void
jobs_push(struct redis_jobs *list, struct redis_job *job)
{
	job->next = NULL;
	*list->tail = job;
	list->tail = &job->next;
}

struct redis_job *
scout__redis_jobs_pop(struct redis_jobs *list)
{
	struct redis_job *job = list->head;

	list->head = job->next;
	if (!list->head)
		list->tail = &list->head;
	return job;
}

enum redis_kind
scout__redis_job_kind(const struct redis_job *job)
{
	switch (job->op->what) {
	case SCOUT__L2_EXISTS:
		return REDIS_EXISTS;
	case SCOUT__L2_LOAD:
		return REDIS_GET;
	case SCOUT__L2_STORE:
		return REDIS_SET;
	case SCOUT__L2_RECORD_READ:
		return REDIS_RECORD_GET;
	case SCOUT__L2_RECORD_WRITE:
		return REDIS_RECORD_SET;
	default:
		return REDIS_UNLINK;
	}
}

static bool
refuse_too_large(struct redis *r, const struct scout__l2_op *op)
{
	if (op->what != SCOUT__L2_STORE || op->bytes <= SCOUT__REDIS_MAX_VALUE - SCOUT__L2_HEADER_BYTES)
		return false;
	scout__log_limited(r->log, &r->too_large, r->now_us, 60000000, SCOUT_LOG_ERROR,
			   "%s: an object of %" PRIu64 " bytes is not stored: Redis takes values up to %" PRIu64
			   " bytes, of which %u are our header. Use smaller chunks, or files",
			   r->shown, op->bytes, (uint64_t)SCOUT__REDIS_MAX_VALUE, SCOUT__L2_HEADER_BYTES);
	return true;
}

static struct redis_job *
new_job(struct redis *r, struct scout__l2_op *op)
{
	struct redis_job *job = r->free_jobs;

	SCOUT_ASSERT(job); /* L2 never submits more than max_ops */
	r->free_jobs = job->next;
	job->op = op;
	job->next = NULL;
	scout__list_add_first(&r->live, &job->live);
	job->issued = job->answered = 0;
	job->left = scout__redis_job_parts(job);
	job->result = SCOUT__L2_OK;
	job->detail = 0;
	job->expired = false;
	job->moved_us = 0;
	job->hashed = 0;
	return job;
}

void
scout__redis_job_begin(struct redis *r, struct scout__l2_op *op)
{
	struct redis_job *job = new_job(r, op);

	if (op->what == SCOUT__L2_EXISTS && op->n > 0)
		memset(op->found, 0, op->n);
	if (op->what == SCOUT__L2_UNPIN || (op->what == SCOUT__L2_EXISTS && op->n == 0)) {
		scout__redis_job_finish(r, job, SCOUT__L2_OK, 0); /* Redis knows no pins */
		return;
	}
	if (refuse_too_large(r, op)) {
		scout__redis_job_finish(r, job, SCOUT__L2_FULL, EFBIG);
		return;
	}
	if (r->mode == REDIS_UNKNOWN)
		job->moved_us = r->now_us;
	if (r->now_us + op->timeout_us < r->earliest_us)
		r->earliest_us = r->now_us + op->timeout_us;
	if (op->what != SCOUT__L2_EXISTS) {
		if (op->key)
			scout__redis_key(op->key->digest, job->key);
		else
			scout__redis_record_key(op->digests[0], job->key);
		job->slot = scout__redis_slot(job->key, SCOUT__REDIS_KEY_BYTES);
	}
	if (op->what == SCOUT__L2_STORE)
		jobs_push(&r->hashing, job);
	else
		jobs_push(&r->waiting[scout__redis_lane_of(scout__redis_job_kind(job))], job);
}

void
scout__redis_jobs_fail_waiting(struct redis *r, int detail)
{
	for (int lane = 0; lane < REDIS_LANES; lane++) {
		while (r->waiting[lane].head) {
			struct redis_job *job = scout__redis_jobs_pop(&r->waiting[lane]);

			/* Count the parts that were not issued as one. */
			job->left -= scout__redis_job_parts(job) - job->issued - 1;
			scout__redis_job_part(r, job, 0, false, SCOUT__L2_ERROR, detail);
		}
	}
}

void
scout__redis_jobs_hash(struct redis *r)
{
	uint64_t slice = SCOUT__REDIS_SLICE_BYTES;

	while (r->hashing.head && slice > 0) {
		struct redis_job *job = r->hashing.head;
		uint64_t n = job->op->bytes - job->hashed;

		if (job->hashed == 0)
			(void)XXH3_128bits_reset(r->sum);
		if (n > slice)
			n = slice;
		(void)XXH3_128bits_update(r->sum, job->op->data + job->hashed, n);
		job->hashed += n;
		slice -= n;
		if (job->hashed == job->op->bytes) {
			XXH128_hash_t hash = XXH3_128bits_digest(r->sum);
			struct scout__l2_digest sum = {.lo = hash.low64, .hi = hash.high64};

			scout__l2_header_put(job->header, job->op->key, job->op->bytes, sum);
			(void)scout__redis_jobs_pop(&r->hashing);
			jobs_push(&r->waiting[REDIS_STORE], job);
		}
	}
}
