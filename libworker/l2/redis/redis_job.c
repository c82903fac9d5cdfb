/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "l2.h"

/*
 * Operations of L2: taken apart into commands, put together again, ended when they make no progress.
 *
 * The clock of a job starts when the first of its commands is written. It starts anew with each further one, with each reply, and
 * with all that moves on a connection that owes it a reply: values come one after the other, and one of tens of megabytes in
 * front of another is no fault of the other. Before, a job waits for its turn, and only the failure of the node that it waits
 * for ends it. A connection that is being made, and the first slot map, are the store's: the clock runs.
 *
 * A job ends when all of its commands have ended, or when it is expired: then every link forgets it first, and only
 * afterwards it is completed, so that nothing writes into a slot of the pool, or reads from one, that is the server's again.
 *
 * Threads: the adapter's.
 */

static void
finish(struct redis *r, struct redis_job *job, enum scout__l2_result result, int detail)
{
	struct scout__l2_op *op = job->op;

	scout__list_del(&job->live);
	job->op = NULL;
	job->next = r->free_jobs;
	r->free_jobs = job;
	op->result = (uint8_t)result;
	op->detail = detail;
	scout__l2_complete(r->port, op);
}

static uint32_t
parts_of(const struct redis_job *job)
{
	return job->op->what == SCOUT__L2_EXISTS ? job->op->n : 1;
}

void
scout__redis_job_part(struct redis *r, struct redis_job *job, uint32_t index, bool found, enum scout__l2_result result,
		      int detail)
{
	SCOUT_ASSERT(!job->expired); /* it ends as a whole: its commands were taken from it */
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
	/* Where one server of a cluster is away, the others' answers are still good: what nobody knows is not there. */
	if (job->op->what == SCOUT__L2_EXISTS && job->answered > 0)
		finish(r, job, SCOUT__L2_OK, 0);
	else
		finish(r, job, job->result, job->detail);
}

static void
wait_in(struct redis_jobs *list, struct redis_job *job)
{
	job->next = NULL;
	*list->tail = job;
	list->tail = &job->next;
}

static struct redis_job *
leave(struct redis_jobs *list)
{
	struct redis_job *job = list->head;

	list->head = job->next;
	if (!list->head)
		list->tail = &list->head;
	return job;
}

static enum redis_kind
kind_of(const struct redis_job *job)
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
is_too_large(struct redis *r, const struct scout__l2_op *op)
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
	job->left = parts_of(job);
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
		finish(r, job, SCOUT__L2_OK, 0); /* Redis knows no pins */
		return;
	}
	if (is_too_large(r, op)) {
		finish(r, job, SCOUT__L2_FULL, EFBIG);
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
		wait_in(&r->hashing, job);
	else
		wait_in(&r->waiting[scout__redis_lane_of(kind_of(job))], job);
}

/* ---- commands ---- */

/* One more command of the head of @list. False: not now. */
static bool
issue_one(struct redis *r, struct redis_jobs *list) SCOUT_ON_REDIS
{
	struct redis_job *job = list->head;
	enum redis_kind kind = kind_of(job);
	struct redis_command *command;

	if (kind == REDIS_EXISTS && r->n_exists >= SCOUT__REDIS_MAX_COMMANDS)
		return false;
	command = scout__redis_command_new(r, kind, job);
	if (!command)
		return false;
	if (job->issued == 0)
		job->moved_us = 0; /* from here on it waits for us */
	command->index = job->issued++;
	if (job->issued == parts_of(job))
		(void)leave(list); /* before it is routed: the job may end by that */
	if (kind == REDIS_EXISTS) {
		char key[SCOUT__REDIS_KEY_BYTES + 1];

		scout__redis_key(job->op->digests[command->index], key);
		command->slot = scout__redis_slot(key, SCOUT__REDIS_KEY_BYTES);
	} else {
		command->slot = job->slot;
	}
	if (kind == REDIS_GET || kind == REDIS_SET)
		command->bytes = SCOUT__L2_HEADER_BYTES + job->op->bytes;
	scout__redis_command_route(r, command);
	return true;
}

void
scout__redis_jobs_issue(struct redis *r)
{
	if (r->mode == REDIS_UNKNOWN) {
		if (r->unreachable)
			scout__redis_jobs_fail_waiting(r, ENOTCONN);
		return;
	}
	for (int lane = 0; lane < REDIS_LANES; lane++)
		while (r->waiting[lane].head && issue_one(r, &r->waiting[lane]))
			;
}

void
scout__redis_jobs_fail_waiting(struct redis *r, int detail)
{
	for (int lane = 0; lane < REDIS_LANES; lane++) {
		while (r->waiting[lane].head) {
			struct redis_job *job = leave(&r->waiting[lane]);

			/* The parts that were not issued, all as one. */
			job->left -= parts_of(job) - job->issued - 1;
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
			(void)leave(&r->hashing);
			wait_in(&r->waiting[REDIS_STORE], job);
		}
	}
}

/* ---- clocks ---- */

static void
forget_waiting(struct redis_jobs *list)
{
	struct redis_job **at = &list->head;

	while (*at) {
		if ((*at)->expired)
			*at = (*at)->next;
		else
			at = &(*at)->next;
	}
	list->tail = at;
}

static void
forget_delayed(struct redis *r) SCOUT_ON_REDIS
{
	struct redis_queue kept;
	struct redis_command *command;

	scout__redis_queue_init(&kept);
	while ((command = scout__redis_queue_pop(&r->delayed))) {
		if (command->job->expired)
			scout__redis_command_free(r, command);
		else
			scout__redis_queue_push(&kept, command);
	}
	scout__redis_queue_init(&r->delayed);
	while ((command = scout__redis_queue_pop(&kept)))
		scout__redis_queue_push(&r->delayed, command);
}

static void
forget(struct redis *r) SCOUT_ON_REDIS
{
	struct redis_job *hashed = r->hashing.head;

	forget_delayed(r);
	for (int lane = 0; lane < REDIS_LANES; lane++)
		forget_waiting(&r->waiting[lane]);
	forget_waiting(&r->hashing);
	/* The sum was begun for the one that was first. */
	if (r->hashing.head && r->hashing.head != hashed)
		r->hashing.head->hashed = 0;
	for (uint32_t i = 0; i < r->n_nodes; i++)
		for (int lane = 0; r->nodes[i] && lane < REDIS_LANES; lane++)
			scout__redis_link_forget(r, &r->nodes[i]->links[lane]);
}

/* What moves on a connection counts for all whose replies it owes. */
static void
note_progress(struct redis *r) SCOUT_ON_REDIS
{
	for (uint32_t i = 0; i < r->n_nodes; i++) {
		for (int lane = 0; r->nodes[i] && lane < REDIS_LANES; lane++) {
			const struct redis_link *link = &r->nodes[i]->links[lane];

			for (struct redis_command *command = link->sent.head; command; command = command->next)
				if (command->job && command->job->moved_us < link->progress_us)
					command->job->moved_us = link->progress_us;
			/* The connection that it waited for is there: from here on it waits for its turn. */
			for (struct redis_command *command = link->queue.head; command && link->state == REDIS_READY;
			     command = command->next)
				if (command->job && command->job->op->what != SCOUT__L2_EXISTS)
					command->job->moved_us = 0;
		}
	}
}

void
scout__redis_jobs_expire(struct redis *r, bool all)
{
	struct scout__list *node = &r->live;
	uint64_t earliest_us = UINT64_MAX;
	bool any = false;

	if (!all && r->now_us < r->earliest_us)
		return;
	note_progress(r);
	while ((node = node->next) != &r->live) {
		struct redis_job *job = SCOUT__OWNER(node, struct redis_job, live);
		uint64_t due_us = (job->moved_us ? job->moved_us : r->now_us) + job->op->timeout_us;

		job->expired = all || due_us <= r->now_us;
		any |= job->expired;
		if (!job->expired && due_us < earliest_us)
			earliest_us = due_us;
	}
	r->earliest_us = earliest_us;
	if (!any)
		return;
	forget(r);
	for (node = r->live.next; node != &r->live;) {
		struct redis_job *job = SCOUT__OWNER(node, struct redis_job, live);

		node = node->next;
		if (job->expired)
			finish(r, job, all ? SCOUT__L2_CANCELLED : SCOUT__L2_TIMEOUT, all ? 0 : ETIMEDOUT);
	}
}
