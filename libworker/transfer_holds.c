/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer.h"

#include <string.h>

/*
 * DESIGN
 *
 * Purpose: what the server has granted and is owed a DONE for. The rules are in transfer.c. A hold that is due
 * stands in `due` until a connection of its epoch takes its DONE; `result` says what that DONE reports.
 *
 * Threads: the courier's.
 */

uint64_t
scout__transfer_number_of(const struct scout_worker *w, const struct scout__hold *hold)
{
	return (uint64_t)(hold - w->holds);
}

/* Those that were used before come first: a page of the table is touched when it is needed. */
struct scout__hold *
scout__transfer_free_hold(struct scout_worker *w)
{
	struct scout__hold *hold = TAILQ_FIRST(&w->free_holds);

	if (!hold && w->n_used_holds < 2 * w->cfg.max_jobs)
		hold = &w->holds[w->n_used_holds];
	return hold;
}

void
scout__transfer_take_hold(struct scout_worker *w, struct scout__hold *hold)
{
	if (hold == &w->holds[w->n_used_holds])
		w->n_used_holds++;
	else
		TAILQ_REMOVE(&w->free_holds, hold, link);
}

void
scout__transfer_hold_free(struct scout_worker *w, struct scout__hold *hold)
{
	if (hold->state == SCOUT__HOLD_DUE)
		TAILQ_REMOVE(&w->due, hold, link);
	if (hold->job)
		hold->job->hold = NULL;
	memset(hold, 0, sizeof(*hold));
	TAILQ_INSERT_HEAD(&w->free_holds, hold, link);
}

void
scout__transfer_detach(struct scout__job *job)
{
	if (job->hold)
		job->hold->job = NULL;
	job->hold = NULL;
}

/* DONE is to be sent, with this @result. */
void
scout__transfer_hold_due(struct scout_worker *w, struct scout__hold *hold, uint32_t result)
{
	if (hold->id == 0 || (w->up && hold->epoch != w->epoch)) {
		scout__transfer_hold_free(w, hold);
		return;
	}
	hold->state = SCOUT__HOLD_DUE;
	hold->result = result;
	TAILQ_INSERT_TAIL(&w->due, hold, link);
}

static bool send_done(struct scout_worker *w, struct scout__hold *hold) SCOUT_ON_COURIER;
static bool
send_done(struct scout_worker *w, struct scout__hold *hold)
{
	uint64_t cookie = scout__transfer_number_of(w, hold) << SCOUT__COOKIE_BITS | SCOUT__COOKIE_DONE;
	bool is_store = hold->kind == SCOUT_JOB_STORE;
	struct scout__writer *writer =
		scout__link_op_begin(w->link, is_store ? SCOUT_OP_STORE_DONE : SCOUT_OP_RETRIEVE_DONE, 0, cookie, 16);

	if (!writer)
		return false;
	if (is_store) {
		struct scout__store_done_msg msg = {.store_id = hold->id, .n = hold->n, .committed = hold->result};

		scout__put_store_done(writer, &msg);
	} else {
		struct scout__retrieve_done_msg msg = {.retrieve_id = hold->id, .mismatches = hold->result};

		scout__put_retrieve_done(writer, &msg);
	}
	scout__link_op_end(w->link);
	TAILQ_REMOVE(&w->due, hold, link);
	hold->state = SCOUT__HOLD_TOLD;
	w->n_told++;
	return true;
}

/*
 * Beginning an operation may find out that the connection is gone, and end others in flight: lists may have changed.
 */
void
scout__transfer_send_dones(struct scout_worker *w)
{
	struct scout__hold *hold;

	while (w->up && (hold = TAILQ_FIRST(&w->due)) != NULL && send_done(w, hold))
		;
}

void
scout__transfer_new_epoch(struct scout_worker *w)
{
	struct scout__hold *hold, *next;

	for (hold = TAILQ_FIRST(&w->due); hold; hold = next) {
		next = TAILQ_NEXT(hold, link);
		if (hold->epoch != w->epoch)
			scout__transfer_hold_free(w, hold);
	}
}
