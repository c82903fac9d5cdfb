/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_JOB_INTERNAL_H
#define SCOUT_JOB_INTERNAL_H

#include "job.h"

/* Between the files of the transfers. Each calls those below it only: ask, copy, transfer, grants. */

/* A job whose events the copy engine records, also if it has nothing to copy. */
static inline bool
scout__transfer_has_events(const struct scout__work *work)
{
	return work->kind == SCOUT_JOB_RETRIEVE && (work->event || work->layer_events);
}

/* The errors of the wire that mean nothing to an engine. */
static inline int
scout__transfer_error(int error)
{
	return error == SCOUT_ERR_STATE ? SCOUT_ERR_UNREACHABLE : error;
}

/* job.c: phases and the end of a job. */
void scout__transfer_publish_phase(struct scout_worker *w, struct scout__transfer *job, unsigned phase)
	SCOUT_ON_COURIER;
/* The time of its stage until now counts for that stage; the next one begins. */
void scout__transfer_enter(struct scout__transfer *job, enum scout__stage stage) SCOUT_ON_COURIER;
void scout__transfer_unqueue(struct scout_worker *w, struct scout__transfer *job) SCOUT_ON_COURIER;
void scout__transfer_untime(struct scout_worker *w, struct scout__transfer *job) SCOUT_ON_COURIER;
void scout__transfer_finish(struct scout_worker *w, struct scout__transfer *job, int status) SCOUT_ON_COURIER;
void scout__transfer_end_early(struct scout_worker *w, struct scout__transfer *job, int status) SCOUT_ON_COURIER;

/* job_copy.c: a job that is in `granted` starts its copy, if everything is here; the DONE of a part is over. */
void scout__transfer_start(struct scout_worker *w, struct scout__transfer *job) SCOUT_ON_COURIER;
void scout__transfer_next_part(struct scout_worker *w, struct scout__transfer *job) SCOUT_ON_COURIER;

/* job_grants.c */
uint64_t scout__transfer_number_of(const struct scout_worker *w, const struct scout__grant_record *record)
	SCOUT_ON_COURIER;
/* One that is free, or NULL; and: it is in use now. */
struct scout__grant_record *scout__transfer_free_grant(struct scout_worker *w) SCOUT_ON_COURIER;
void scout__transfer_take_grant(struct scout_worker *w, struct scout__grant_record *record) SCOUT_ON_COURIER;
void scout__transfer_grant_free(struct scout_worker *w, struct scout__grant_record *record) SCOUT_ON_COURIER;
void scout__transfer_grant_due(struct scout_worker *w, struct scout__grant_record *record, uint32_t result)
	SCOUT_ON_COURIER;
void scout__transfer_detach(struct scout__transfer *job) SCOUT_ON_COURIER;
void scout__transfer_send_dones(struct scout_worker *w) SCOUT_ON_COURIER;

#endif
