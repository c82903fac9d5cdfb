/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "job.h"

/* What the files of the jobs share. Each calls only files after it in this list: job_ask.c, job_copy.c, job.c, job_grants.c. */

/* Whether the copy engine has to record events of the job, even if it has nothing to copy. */
static inline bool
scout__job_has_events(const struct scout__job_data *data)
{
	return data->kind == SCOUT_JOB_RETRIEVE && (data->event || data->layer_events);
}

/* The errors of the wire that mean nothing to an engine. */
static inline int
scout__job_error(int error)
{
	return error == SCOUT_ERR_STATE ? SCOUT_ERR_UNREACHABLE : error;
}

/* job.c: phases and the end of a job. */
void scout__job_publish_phase(struct scout_worker *w, struct scout__job *job, unsigned phase) SCOUT_ON_COURIER;
/* Add the time until now to the job's stage, and begin the next stage. */
void scout__job_enter(struct scout__job *job, enum scout__stage stage) SCOUT_ON_COURIER;
void scout__job_unqueue(struct scout_worker *w, struct scout__job *job) SCOUT_ON_COURIER;
void scout__job_untime(struct scout_worker *w, struct scout__job *job) SCOUT_ON_COURIER;
void scout__job_finish(struct scout_worker *w, struct scout__job *job, int status) SCOUT_ON_COURIER;
void scout__job_end_early(struct scout_worker *w, struct scout__job *job, int status) SCOUT_ON_COURIER;

/* job_copy.c: start the copy of a job in `granted`, if all its segments are here; go on after the DONE of a part. */
void scout__job_start(struct scout_worker *w, struct scout__job *job) SCOUT_ON_COURIER;
void scout__job_next_part(struct scout_worker *w, struct scout__job *job) SCOUT_ON_COURIER;

/* job_grants.c */
uint64_t scout__grant_record_number(const struct scout_worker *w, const struct scout__grant_record *record)
	SCOUT_ON_COURIER;
/* Find a free record, or NULL; mark it as used. */
struct scout__grant_record *scout__grant_record_find_free(struct scout_worker *w) SCOUT_ON_COURIER;
void scout__grant_record_take(struct scout_worker *w, struct scout__grant_record *record) SCOUT_ON_COURIER;
void scout__grant_record_free(struct scout_worker *w, struct scout__grant_record *record) SCOUT_ON_COURIER;
void scout__grant_record_due(struct scout_worker *w, struct scout__grant_record *record, uint32_t result)
	SCOUT_ON_COURIER;
void scout__job_detach(struct scout__job *job) SCOUT_ON_COURIER;
void scout__jobs_send_dones(struct scout_worker *w) SCOUT_ON_COURIER;
