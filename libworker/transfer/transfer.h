/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_TRANSFER_H
#define SCOUT_TRANSFER_H

#include "worker_state.h"

/*
 * What becomes of a job on the courier's side. See the DESIGN comment of transfer.c.
 */

void scout__transfer_init(struct scout_worker *w);

/* A job has come through the ring. */
void scout__transfer_accept(struct scout_worker *w, struct scout__transfer *job) SCOUT_ON_COURIER;

/*
 * Send the DONEs that are due, then, if @may_ask, what jobs wait to ask; start what was granted and could not start
 * yet.
 */
void scout__transfer_pump(struct scout_worker *w, bool may_ask, uint64_t now_us) SCOUT_ON_COURIER;

/* A STORE, RETRIEVE or DONE has ended. */
void scout__transfer_grants(struct scout_worker *w, uint64_t record, const struct scout__op *op, int error)
	SCOUT_ON_COURIER;
void scout__transfer_told(struct scout_worker *w, uint64_t record, const struct scout__op *op, int error)
	SCOUT_ON_COURIER;

/* Take ended batches from the copy engine. */
void scout__transfer_collect(struct scout_worker *w) SCOUT_ON_COURIER;

/* End those jobs that the caller has dropped. */
void scout__transfer_sweep(struct scout_worker *w) SCOUT_ON_COURIER;

/* End every job that has no operation in flight and no copy running. */
void scout__transfer_fail_waiting(struct scout_worker *w, int error) SCOUT_ON_COURIER;
/* End those in to_ask that came before our version of the weights was asked for the @n_asked-th time. */
void scout__transfer_fail_asking(struct scout_worker *w, uint64_t n_asked, int error) SCOUT_ON_COURIER;
/* The connection is lost: end the stores whose DONE cannot be sent. */
void scout__transfer_fail_due(struct scout_worker *w, int error) SCOUT_ON_COURIER;
/* The worker closes: end every job without a running copy. */
void scout__transfer_close(struct scout_worker *w) SCOUT_ON_COURIER;

/* The server was restarted: what earlier ones granted needs no DONE. */
void scout__transfer_new_epoch(struct scout_worker *w) SCOUT_ON_COURIER;

/* End jobs whose time is over; when the next one's is. */
uint64_t scout__transfer_tick(struct scout_worker *w, uint64_t now_us) SCOUT_ON_COURIER;

/* ---- between the files of the transfer ---- */

/* A job whose events the copy engine records, also if it has nothing to copy. */
static inline bool
scout__transfer_has_events(const struct scout__work *work)
{
	return work->kind == SCOUT_JOB_RETRIEVE && (work->event || work->layer_events);
}

/* transfer.c: phases and the end of a job. */
bool scout__transfer_move_phase(struct scout__transfer *job, unsigned from, unsigned to) SCOUT_ON_ANY;
void scout__transfer_publish_phase(struct scout_worker *w, struct scout__transfer *job, unsigned phase)
	SCOUT_ON_COURIER;
void scout__transfer_name_missing(const struct scout_worker *w, struct scout__work *work) SCOUT_ON_ANY;
/* The time of its stage until now counts for that stage; the next one begins. */
void scout__transfer_enter(struct scout__transfer *job, enum scout__stage stage) SCOUT_ON_COURIER;
void scout__transfer_unqueue(struct scout_worker *w, struct scout__transfer *job) SCOUT_ON_COURIER;
void scout__transfer_untime(struct scout_worker *w, struct scout__transfer *job) SCOUT_ON_COURIER;
void scout__transfer_finish(struct scout_worker *w, struct scout__transfer *job, int status) SCOUT_ON_COURIER;
void scout__transfer_end_early(struct scout_worker *w, struct scout__transfer *job, int status) SCOUT_ON_COURIER;

/* transfer_copy.c: a job that is in `granted` starts its copy, if everything is here; the DONE of a part is over. */
void scout__transfer_start(struct scout_worker *w, struct scout__transfer *job) SCOUT_ON_COURIER;
void scout__transfer_next_part(struct scout_worker *w, struct scout__transfer *job) SCOUT_ON_COURIER;

/* transfer_grants.c */
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
