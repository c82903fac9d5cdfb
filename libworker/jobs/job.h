/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "worker_state.h"

/*
 * The courier's side of a job. See the DESIGN comment of job.c.
 */

void scout__jobs_init(struct scout_worker *w);

/* A job has come through the ring. */
void scout__job_accept(struct scout_worker *w, struct scout__job *job) SCOUT_ON_COURIER;

/*
 * Send the DONEs that are due, then, if @may_ask, the STOREs and RETRIEVEs of waiting jobs; start granted jobs that
 * could not start yet.
 */
void scout__jobs_pump(struct scout_worker *w, bool may_ask, uint64_t now_us) SCOUT_ON_COURIER;

/* A STORE, RETRIEVE or DONE has ended. */
void scout__job_grants(struct scout_worker *w, uint64_t record, const struct scout__op *op, int error) SCOUT_ON_COURIER;
void scout__job_told(struct scout_worker *w, uint64_t record, const struct scout__op *op, int error) SCOUT_ON_COURIER;

/* Take ended batches from the copy engine. */
void scout__jobs_collect(struct scout_worker *w) SCOUT_ON_COURIER;
/* Take the result of the comparison that runs, if it is over, or @wait for it. */
void scout__jobs_collect_compared(struct scout_worker *w, bool wait) SCOUT_ON_COURIER;

/* End those jobs that the caller has dropped. */
void scout__jobs_sweep(struct scout_worker *w) SCOUT_ON_COURIER;

/* End every job that has no operation in flight and no copy running. */
void scout__jobs_fail_waiting(struct scout_worker *w, int error) SCOUT_ON_COURIER;
/* End jobs in to_ask that came before we asked for our version of the weights the @n_asked-th time. */
void scout__jobs_fail_asking(struct scout_worker *w, uint64_t n_asked, int error) SCOUT_ON_COURIER;
/* The connection is lost: end the stores whose DONE cannot be sent. */
void scout__jobs_fail_due(struct scout_worker *w, int error) SCOUT_ON_COURIER;
/* The worker closes: end every job without a running copy. */
void scout__jobs_close(struct scout_worker *w) SCOUT_ON_COURIER;

/* The server was restarted: grants of earlier starts need no DONE. */
void scout__jobs_new_epoch(struct scout_worker *w) SCOUT_ON_COURIER;

/* End jobs whose time is over; returns when the next job's time ends. */
uint64_t scout__jobs_tick(struct scout_worker *w, uint64_t now_us) SCOUT_ON_COURIER;

/* True: the phase was @from, and is now @to. */
bool scout__job_move_phase(struct scout__job *job, unsigned from, unsigned to) SCOUT_ON_ANY;
/* Write down which blocks of a retrieve were not filled. Called by the courier, or by the caller when the job has ended. */
void scout__job_name_missing(struct scout__job_data *data) SCOUT_ON_ANY;
