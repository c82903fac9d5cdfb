/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_JOB_H
#define SCOUT_JOB_H

#include "worker_state.h"

/*
 * What becomes of a job on the courier's side. See the DESIGN comment of job.c.
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

/* True: the phase was @from, and is @to. */
bool scout__transfer_move_phase(struct scout__transfer *job, unsigned from, unsigned to) SCOUT_ON_ANY;
/* Write down which blocks of a retrieve were not filled. By the courier, or by the caller when the job has ended. */
void scout__transfer_name_missing(struct scout__work *work) SCOUT_ON_ANY;

#endif
