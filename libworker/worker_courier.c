/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_internal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"

/*
 * DESIGN
 *
 * Purpose: what the worker does on its courier, except for the jobs: connection and closing. worker_register.c has
 * the registration.
 *
 * on_link_down() only notes a lost connection, and on_flush() acts on it: the courier may notice the loss while we
 * send, with our lists half walked.
 *
 * The weights. worker_weights.c decides what each HELLO says, and when jobs may ask.
 *
 * Closing. Jobs without a running copy end as closed. We wait for running copies without limit, since they use memory
 * that is not ours; then for the replies to the last DONEs, at most DRAIN_US: the lease connection's BYE must not
 * overtake a STORE_DONE.
 */

#define DRAIN_US 100000u

/* ---- the courier's callbacks ---- */

static void SCOUT_ON_COURIER
on_word(void *user, uint64_t word, uint64_t now_us)
{
	struct scout_worker *w = user;

	(void)now_us;
	if (word == SCOUT__WORD_REGISTER) {
		scout__worker_on_register(w);
	} else if (word == SCOUT__WORD_FORGET) {
		scout__worker_on_forget(w);
	} else if (word == SCOUT__WORD_CLEAR) {
		scout__worker_on_clear(w);
	} else if (word == SCOUT__WORD_RESET) {
		scout__worker_on_reset(w);
	} else if (word == SCOUT__WORD_LAYER) {
		/* Cleared before the flush that follows, which reads how many layers are ready. */
		atomic_store(&w->layer_queued, false);
	} else if (word == SCOUT__WORD_KICK) {
		/* Cleared before the sweep: a drop that comes later kicks again. */
		atomic_store(&w->kicked, false);
		scout__jobs_sweep(w);
	} else {
		struct scout__job *job = &w->jobs[word & SCOUT__SLOT_MASK];

		SCOUT_ASSERT(job->id == word);
		scout__job_accept(w, job);
	}
}

static void SCOUT_ON_COURIER
tell_jobs_down(struct scout_worker *w)
{
	int error = w->down_pending;

	w->down_pending = 0;
	if (!error)
		return;
	if (!scout__worker_adopt_mends(w, error))
		scout__jobs_fail_waiting(w, error);
	scout__jobs_fail_due(w, error);
}

/* No connection is in sight: tell the jobs that the server is away, or why it refuses us. */
static void SCOUT_ON_COURIER
tell_jobs_unreachable(struct scout_worker *w)
{
	int error = scout__link_error(w->link);

	if (scout_err_is_retriable(error))
		error = SCOUT_ERR_UNREACHABLE;
	if (!scout__worker_adopt_mends(w, error))
		scout__jobs_fail_waiting(w, error);
}

/* Tell the server what has been unmapped; what does not fit into the socket waits for the next turn. */
static void SCOUT_ON_COURIER
tell_released(struct scout_worker *w)
{
	uint32_t id;

	while (w->link && (id = scout__mappings_released(&w->mappings)) != 0 && scout__link_released(w->link, id))
		scout__mappings_told(&w->mappings);
}

static void SCOUT_ON_COURIER
on_flush(void *user, uint64_t now_us)
{
	struct scout_worker *w = user;

	if (!w->link)
		return; /* the link was neither up nor down yet: nothing to do */
	scout__jobs_collect(w);
	tell_released(w);
	tell_jobs_down(w);
	if (!w->up && scout__link_is_unreachable(w->link))
		tell_jobs_unreachable(w);
	scout__worker_register_pump(w, now_us);
	scout__worker_adopt(w);
	scout__worker_clear_pump(w);
	scout__jobs_pump(w, scout__worker_is_registered(w) && !w->adopt.pending && !w->clear.pending, now_us);
}

static void SCOUT_ON_COURIER
on_link_up(void *user, struct scout__link *link, bool new_epoch)
{
	struct scout_worker *w = user;

	w->link = link;
	tell_jobs_down(w);
	w->up = true;
	w->epoch = scout__link_epoch(link);
	atomic_store(&w->is_up, true);
	atomic_store(&w->is_registered, scout__worker_is_registered(w));
	w->reg_retry_us = 0;
	w->reg_error = 0;
	(void)pthread_mutex_lock(&w->mu);
	w->down_code = 0;
	(void)pthread_mutex_unlock(&w->mu);
	scout__worker_adopt_up(w);
	scout__worker_clear_up(w);
	if (!new_epoch)
		return;
	scout__mappings_make_stale(&w->mappings);
	scout__jobs_new_epoch(w);
}

static void SCOUT_ON_COURIER
on_link_down(void *user, struct scout__link *link, int error, const char *text)
{
	struct scout_worker *w = user;

	w->link = link;
	w->up = false;
	atomic_store(&w->is_up, false);
	atomic_store(&w->is_registered, false);
	w->reg_in_flight = false;
	w->down_pending = error;
	(void)pthread_mutex_lock(&w->mu);
	w->down_code = error;
	(void)snprintf(w->down_text, sizeof(w->down_text), "%s", text);
	(void)pthread_mutex_unlock(&w->mu);
	if (scout__worker_adopt_mends(w, error))
		scout__link_try_now(link); /* the refused HELLO was on its way when the weights changed */
	else
		scout__worker_register_down(w, error, text);
}

static void SCOUT_ON_COURIER
on_ended(void *user, struct scout__link *link, uint64_t cookie, const struct scout__op *op, int error)
{
	struct scout_worker *w = user;
	uint64_t number = cookie >> SCOUT__COOKIE_BITS;

	(void)link;
	switch (cookie & ((1u << SCOUT__COOKIE_BITS) - 1)) {
	case SCOUT__COOKIE_REGISTER:
		scout__worker_on_registered(w, number, op);
		break;
	case SCOUT__COOKIE_GRANTS:
		scout__job_grants(w, number, op, error);
		break;
	case SCOUT__COOKIE_ADOPT:
		scout__worker_adopt_answer(w, op);
		break;
	case SCOUT__COOKIE_CLEAR:
		scout__worker_clear_answer(w, op);
		break;
	case SCOUT__COOKIE_LOOK:
		scout__worker_clear_looked(w, op);
		break;
	default:
		scout__job_told(w, number, op, error);
		break;
	}
}

static void SCOUT_ON_COURIER
on_segment(void *user, struct scout__link *link, const struct scout__lease_msg *msg, int fd)
{
	struct scout_worker *w = user;

	(void)link;
	/* The lease connection ends with its server: segments that come on it belong to the epoch that we know. */
	(void)scout__mappings_add(&w->mappings, w->epoch, msg, fd); /* has been logged; kept as unusable */
}

static void SCOUT_ON_COURIER
on_withdraw(void *user, struct scout__link *link, uint32_t segment)
{
	struct scout_worker *w = user;

	/* A full socket here means that the server stands still; the segment is in our list of released ones, or was never mapped. */
	if (!scout__mappings_withdraw(&w->mappings, segment))
		(void)scout__link_released(link, segment);
	tell_released(w);
}

static void SCOUT_ON_COURIER
on_lease_new(void *user, struct scout__link *link)
{
	struct scout_worker *w = user;

	(void)link;
	scout__mappings_make_stale(&w->mappings);
}

static void SCOUT_ON_COURIER
on_user_ready(void *user)
{
	struct scout_worker *w = user;

	scout__mappings_collect(&w->mappings);
	scout__jobs_collect(w);
}

static uint64_t SCOUT_ON_COURIER
on_tick(void *user, uint64_t now_us)
{
	struct scout_worker *w = user;
	uint64_t next_us = scout__jobs_tick(w, now_us);
	uint64_t register_us = scout__worker_register_next(w);

	return register_us < next_us ? register_us : next_us;
}

static void SCOUT_ON_COURIER
on_closing(void *user)
{
	struct scout_worker *w = user;

	w->closing = true;
	w->reg_wanted = false;
	scout__jobs_close(w);
}

static bool SCOUT_ON_COURIER
drain(void *user)
{
	struct scout_worker *w = user;
	uint64_t now_us = scout__now_us();

	if (w->n_copying > 0)
		return false;
	if (!w->drain_until_us)
		w->drain_until_us = now_us + DRAIN_US;
	return !w->up || (w->n_told == 0 && TAILQ_EMPTY(&w->due)) || now_us >= w->drain_until_us;
}

const struct scout__courier_ops scout__worker_courier_ops = {
	.word = on_word,
	.flush = on_flush,
	.link_up = on_link_up,
	.link_down = on_link_down,
	.ended = on_ended,
	.segment = on_segment,
	.withdraw = on_withdraw,
	.lease_new = on_lease_new,
	.user_ready = on_user_ready,
	.tick = on_tick,
	.closing = on_closing,
	.drained = drain,
};
