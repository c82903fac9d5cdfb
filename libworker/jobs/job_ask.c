/* SPDX-License-Identifier: Apache-2.0 */
#include "job_internal.h"

#include "clock.h"

/*
 * DESIGN
 *
 * Purpose: what a job sends to the server (STORE or RETRIEVE, later DONE), and how the answers move the job on. The
 * rules are in job.c.
 *
 * Threads: the courier's.
 */

/* ---- asking ---- */

/* The job asks for nothing, but its events have to be recorded: go on as if all were granted. */
static void SCOUT_ON_COURIER
skip_asking(struct scout_worker *w, struct scout__job *job)
{
	scout__job_unqueue(w, job);
	job->stage = SCOUT__STAGE_GRANTED;
	TAILQ_INSERT_TAIL(&w->granted, job, queue_link);
	scout__job_start(w, job);
}

/* Insert in the order of the deadlines. A job usually comes last; one with a shorter time moves forward. */
static void SCOUT_ON_COURIER
add_timed(struct scout_worker *w, struct scout__job *job)
{
	struct scout__job *before = TAILQ_LAST(&w->timed, scout__job_list);

	while (before && before->data->deadline_us > job->data->deadline_us)
		before = TAILQ_PREV(before, scout__job_list, timed_link);
	if (before)
		TAILQ_INSERT_AFTER(&w->timed, before, job, timed_link);
	else
		TAILQ_INSERT_HEAD(&w->timed, job, timed_link);
	job->timed = true;
}

void
scout__job_accept(struct scout_worker *w, struct scout__job *job)
{
	job->record = NULL;
	job->stage = SCOUT__STAGE_ASK;
	TAILQ_INSERT_TAIL(&w->open, job, open_link);
	add_timed(w, job);
	TAILQ_INSERT_TAIL(&w->to_ask, job, queue_link);
	job->asked_before = w->adopt.n_asked;
	if (job->data->n_chunks == 0 && !scout__job_has_events(job->data))
		scout__job_end_early(w, job, 0);
	else if (atomic_load(&job->phase) == SCOUT__PHASE_DROPPED) /* a reset's word may have come first */
		scout__job_end_early(w, job, SCOUT_ERR_CANCELED);
	else if (w->closing)
		scout__job_end_early(w, job, SCOUT_ERR_CLOSED);
	else if (job->data->n_chunks == 0)
		skip_asking(w, job);
}

#define DESCRIPTIONS_MAX ((size_t)8 << 20) /* in one STORE, whose frame has a limit */

/* The descriptions of the @n chunks from part_first on, as they are sent. *ret_len 0: none. */
static const uint8_t *SCOUT_ON_COURIER
find_descriptions(const struct scout__job_data *data, uint32_t n, size_t *ret_len)
{
	const uint8_t *at = data->descriptions, *begin = at;

	*ret_len = 0;
	if (!at)
		return NULL;
	for (uint32_t i = 0; i < data->part_first + n; i++) {
		if (i == data->part_first)
			begin = at;
		at += 2 + scout__load_u16(at);
	}
	if ((size_t)(at - begin) <= DESCRIPTIONS_MAX)
		*ret_len = (size_t)(at - begin);
	return begin;
}

static void SCOUT_ON_COURIER
put_store(struct scout_worker *w, struct scout__writer *writer, const struct scout__job_data *data,
	  const uint8_t *descriptions, size_t len)
{
	struct scout__store_msg msg = {
		.ticket = data->ticket,
		.n = data->part_n,
		.group = data->groups[0].number,
		.tenant = {.p = data->tenant, .len = data->tenant_len},
		.hashes = data->hashes + (size_t)data->part_first * w->cfg.hash_bytes,
		.described = len > 0,
	};

	scout__put_store(writer, &msg, w->cfg.hash_bytes);
	scout__put_bytes(writer, descriptions, len);
}

static void SCOUT_ON_COURIER
put_retrieve(struct scout__writer *writer, const struct scout__job_data *data)
{
	struct scout__retrieve_msg msg = {.ticket = data->ticket, .n_parts = (uint16_t)data->n_groups};

	for (uint32_t g = 0; g < data->n_groups; g++) {
		const struct scout__job_group *group = &data->groups[g];

		msg.parts[g].group = group->number;
		msg.parts[g].from = group->first_chunk * group->hashes_per_chunk;
		msg.parts[g].to = (group->first_chunk + group->n) * group->hashes_per_chunk;
	}
	scout__put_retrieve(writer, &msg);
}

static uint32_t SCOUT_ON_COURIER
budget_of(const struct scout__job *job, uint64_t now_us)
{
	uint64_t left_us = job->data->deadline_us > now_us ? job->data->deadline_us - now_us : 1;

	if (!job->timed)
		return 0;
	return left_us < UINT32_MAX ? (uint32_t)left_us : UINT32_MAX;
}

/* Send the STORE or RETRIEVE of a job in to_ask. False: no credit, or no free grant record. */
static bool SCOUT_ON_COURIER
ask(struct scout_worker *w, struct scout__job *job, uint64_t now_us)
{
	struct scout__job_data *data = job->data;
	struct scout__grant_record *record = scout__grant_record_find_free(w);
	bool is_store = data->kind == SCOUT_JOB_STORE;
	uint32_t n = data->n_chunks - data->part_first;
	const uint8_t *descriptions = NULL;
	struct scout__writer *writer;
	uint64_t cookie;
	size_t bytes, described = 0;

	if (!record)
		return false;
	n = is_store && n > SCOUT__STORE_PART ? SCOUT__STORE_PART : n;
	if (is_store)
		descriptions = find_descriptions(data, n, &described);
	bytes = is_store ? 18u + data->tenant_len + (size_t)n * w->cfg.hash_bytes + described
			 : SCOUT__RETRIEVE_BYTES(data->n_groups);
	cookie = scout__grant_record_number(w, record) << SCOUT__COOKIE_BITS | SCOUT__COOKIE_GRANTS;
	writer = scout__link_op_begin(w->link, is_store ? SCOUT_OP_STORE : SCOUT_OP_RETRIEVE, budget_of(job, now_us),
				      cookie, bytes);
	if (!writer)
		return false;
	data->part_n = n;
	if (is_store)
		put_store(w, writer, data, descriptions, described);
	else
		put_retrieve(writer, data);
	scout__link_op_end(w->link);
	scout__job_unqueue(w, job);
	scout__job_enter(job, SCOUT__STAGE_ASKED);
	job->record = record;
	scout__grant_record_take(w, record);
	record->state = SCOUT__GRANT_ASKED;
	record->kind = data->kind;
	record->job = job;
	record->epoch = w->epoch;
	record->id = scout__link_last_corr(w->link);
	record->n = n;
	return true;
}

void
scout__jobs_pump(struct scout_worker *w, bool may_ask, uint64_t now_us)
{
	struct scout__job *job, *next;

	scout__jobs_send_dones(w);
	for (job = TAILQ_FIRST(&w->granted); job; job = next) {
		next = TAILQ_NEXT(job, queue_link);
		scout__job_start(w, job);
	}
	while (may_ask && w->up && (job = TAILQ_FIRST(&w->to_ask)) != NULL) {
		if (atomic_load(&job->phase) == SCOUT__PHASE_DROPPED)
			scout__job_end_early(w, job, SCOUT_ERR_CANCELED);
		else if (!ask(w, job, now_us))
			break;
	}
}

/* ---- replies ---- */

/* Take a reply of STORE or RETRIEVE apart; its grants go to the job, if there still is one. Returns 0 or SCOUT_ERR_*. */
static int SCOUT_ON_COURIER
read_grants(const struct scout__grant_record *record, const struct scout__op *op, struct scout__grants *ret,
	    uint32_t *ret_granted)
{
	const char *field;
	uint32_t granted = 0;

	/* The lookup did not ask for these chunks: the engine must treat them as missing. */
	if (op->status == SCOUT_WIRE_RANGE && record->kind != SCOUT_JOB_STORE)
		return SCOUT_ERR_MISSING;
	if (op->status != SCOUT_WIRE_OK)
		return scout__wire_error(op->status);
	if (scout__get_grants(op, ret, &field) != SCOUT_WIRE_OK || ret->n != record->n)
		return SCOUT_ERR_PROTOCOL;
	for (uint32_t i = 0; i < ret->n; i++) {
		struct scout__grant grant = scout__grant_at(ret, i);

		granted += grant.state == SCOUT_GRANT_GRANTED;
		if (record->job)
			record->job->data->grants[i] = grant;
	}
	if (ret->id != (granted > 0 ? record->id : 0))
		return SCOUT_ERR_PROTOCOL;
	*ret_granted = granted;
	return 0;
}

/* No grants: the connection was lost, or the server refused, or its reply makes no sense. */
static void SCOUT_ON_COURIER
refuse(struct scout_worker *w, struct scout__grant_record *record, const struct scout__op *op, int error)
{
	struct scout__job *job = record->job;

	if (job)
		scout__job_end_early(w, job, scout__job_error(error));
	if (op) {
		scout__grant_record_free(w, record);
	} else {
		/* The server may still have granted slots, and would hold them as long as we live: give them back unseen. */
		record->state = SCOUT__GRANT_HELD;
		record->n = 0;
		scout__grant_record_due(w, record, 0);
	}
	if (op && op->status == SCOUT_WIRE_CLEARED) {
		w->clear.looks = w->clear.generation != 0;
		scout__log_limited(
			&w->log, &w->clear_limit, scout__now_us(), 10000000, SCOUT_LOG_WARN,
			"the namespace was cleared: jobs end SCOUT_ERR_CLEARED until scout_worker_clear() is "
			"called on this worker");
	}
	if (op && op->status == SCOUT_WIRE_STATE)
		scout__worker_unregistered(w); /* the server does not know our registration: register again */
	if (op && op->status == SCOUT_WIRE_OK)
		scout__link_reset(w->link, SCOUT_ERR_PROTOCOL, "a reply with grants makes no sense");
}

void
scout__job_grants(struct scout_worker *w, uint64_t number, const struct scout__op *op, int error)
{
	struct scout__grant_record *record = &w->records[number];
	struct scout__job *job = record->job;
	struct scout__grants grants = {.n = 0};
	uint32_t granted = 0;
	int rc = op ? read_grants(record, op, &grants, &granted) : error;

	SCOUT_ASSERT(record->state == SCOUT__GRANT_ASKED);
	if (rc) {
		refuse(w, record, op, rc);
		return;
	}
	record->state = SCOUT__GRANT_HELD;
	record->id = grants.id;
	record->n = granted;
	if (!job) {
		scout__grant_record_due(w, record, 0);
		return;
	}
	scout__job_enter(job, SCOUT__STAGE_GRANTED);
	TAILQ_INSERT_TAIL(&w->granted, job, queue_link);
	scout__job_start(w, job);
}

void
scout__job_told(struct scout_worker *w, uint64_t number, const struct scout__op *op, int error)
{
	struct scout__grant_record *record = &w->records[number];
	struct scout__job *job = record->job;
	uint32_t readable = 0;
	const char *field;
	int rc = 0;

	SCOUT_ASSERT(record->state == SCOUT__GRANT_TOLD);
	w->n_told--;
	if (!op) {
		/* We do not know whether the server has read the DONE. A second one does no harm. */
		if (job) {
			scout__job_detach(job);
			scout__job_finish(w, job, scout__job_error(error));
		}
		record->state = SCOUT__GRANT_HELD;
		scout__grant_record_due(w, record, record->result);
		return;
	}
	if (op->status != SCOUT_WIRE_OK)
		rc = scout__wire_error(op->status);
	else if (record->kind == SCOUT_JOB_STORE && scout__get_store_done_reply(op, &readable, &field) != SCOUT_WIRE_OK)
		rc = SCOUT_ERR_PROTOCOL;
	scout__grant_record_free(w, record);
	if (!job)
		return;
	job->data->chunks += readable;
	if (rc)
		job->data->status = scout__job_error(rc);
	scout__job_next_part(w, job);
}
