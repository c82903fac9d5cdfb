/* SPDX-License-Identifier: Apache-2.0 */
#include "job_internal.h"

#include <string.h>

/*
 * DESIGN
 *
 * Purpose: what the server has granted, until it got a DONE. The rules are in job.c. A grant record that is due stays
 * in `due` until its DONE is sent on a connection of its epoch; `result` is what that DONE reports.
 *
 * Threads: the courier's.
 */

uint64_t
scout__grant_record_number(const struct scout_worker *w, const struct scout__grant_record *record)
{
	return (uint64_t)(record - w->records);
}

/* Used records come first: so a page of the table is touched only when it is needed. */
struct scout__grant_record *
scout__grant_record_find_free(struct scout_worker *w)
{
	struct scout__grant_record *record = TAILQ_FIRST(&w->free_records);

	if (!record && w->n_used_records < 2 * w->cfg.max_jobs)
		record = &w->records[w->n_used_records];
	return record;
}

void
scout__grant_record_take(struct scout_worker *w, struct scout__grant_record *record)
{
	if (record == &w->records[w->n_used_records])
		w->n_used_records++;
	else
		TAILQ_REMOVE(&w->free_records, record, link);
}

void
scout__grant_record_free(struct scout_worker *w, struct scout__grant_record *record)
{
	if (record->state == SCOUT__GRANT_DUE)
		TAILQ_REMOVE(&w->due, record, link);
	if (record->job)
		record->job->record = NULL;
	memset(record, 0, sizeof(*record));
	TAILQ_INSERT_HEAD(&w->free_records, record, link);
}

void
scout__job_detach(struct scout__job *job)
{
	if (job->record)
		job->record->job = NULL;
	job->record = NULL;
}

/* DONE has to be sent, with this @result. */
void
scout__grant_record_due(struct scout_worker *w, struct scout__grant_record *record, uint32_t result)
{
	if (record->id == 0 || (w->up && record->epoch != w->epoch)) {
		scout__grant_record_free(w, record);
		return;
	}
	record->state = SCOUT__GRANT_DUE;
	record->result = result;
	TAILQ_INSERT_TAIL(&w->due, record, link);
}

static bool SCOUT_ON_COURIER
send_done(struct scout_worker *w, struct scout__grant_record *record)
{
	uint64_t cookie = scout__grant_record_number(w, record) << SCOUT__COOKIE_BITS | SCOUT__COOKIE_DONE;
	bool is_store = record->kind == SCOUT_JOB_STORE;
	struct scout__writer *writer =
		scout__link_op_begin(w->link, is_store ? SCOUT_OP_STORE_DONE : SCOUT_OP_RETRIEVE_DONE, 0, cookie,
				     16 + (record->found ? (size_t)record->n : 0));

	if (!writer)
		return false;
	if (is_store) {
		struct scout__store_done_msg msg = {
			.store_id = record->id, .n = record->n, .committed = record->result};

		scout__put_store_done(writer, &msg);
	} else {
		struct scout__retrieve_done_msg msg = {record->id, record->result, record->found ? record->n : 0,
						       record->found};

		scout__put_retrieve_done(writer, &msg);
	}
	scout__link_op_end(w->link);
	TAILQ_REMOVE(&w->due, record, link);
	record->state = SCOUT__GRANT_TOLD;
	w->n_told++;
	return true;
}

/*
 * To begin an operation may reveal that the connection is lost, and end others in flight: lists may have changed.
 */
void
scout__jobs_send_dones(struct scout_worker *w)
{
	struct scout__grant_record *record;

	while (w->up && (record = TAILQ_FIRST(&w->due)) != NULL && send_done(w, record))
		;
}

void
scout__jobs_new_epoch(struct scout_worker *w)
{
	struct scout__grant_record *record, *next;

	for (record = TAILQ_FIRST(&w->due); record; record = next) {
		next = TAILQ_NEXT(record, link);
		if (record->epoch != w->epoch)
			scout__grant_record_free(w, record);
	}
}
