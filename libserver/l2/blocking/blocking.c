/* SPDX-License-Identifier: Apache-2.0 */
#include "blocking.h"

#include <stdio.h>

#include "url.h"

/*
 * DESIGN
 *
 * Purpose: see blocking.h. Two queues come from the loop. The names thread never blocks, so a store that hangs delays
 * no answer that is known already; questions that only the store can answer go on to threads of their own.
 *
 * A thread that hangs in the kernel is left alone at a stop, and what it uses stays allocated.
 *
 * Clocks (l2.h): a transfer thread begins an operation when it takes it; a question begins with its first slice, and
 * moves with each slice.
 *
 * Threads: init, start, stop and fini run on the server's starter; submit on its loop.
 */

static void
cancel(struct scout__blocking *blocking, struct scout__l2_op *op)
{
	op->result = SCOUT__L2_CANCELLED;
	op->detail = 0;
	scout__l2_complete(blocking->port, op);
}

/* ---- what they do ---- */

/* False: the question threads answer. */
static bool
answer(struct scout__blocking *blocking, struct scout__l2_op *op)
{
	op->detail = 0;
	op->result = SCOUT__L2_OK;
	if (blocking->calls->answer)
		return blocking->calls->answer(blocking->store, op);
	return op->what == SCOUT__L2_UNPIN || op->n == 0;
}

static void *
names_main(void *arg)
{
	struct scout__blocking *blocking = arg;
	struct scout__l2_op *op;

	while ((op = scout__l2_queue_wait(&blocking->names))) {
		if (op->what == SCOUT__L2_EXISTS && scout__blocking_is_stopping(blocking))
			cancel(blocking, op);
		else if (answer(blocking, op))
			scout__l2_complete(blocking->port, op);
		else
			scout__questions_ask(blocking, op);
	}
	if (blocking->questions)
		scout__questions_stop(blocking);
	scout__blocking_thread_ends(blocking);
	return NULL;
}

/* One thread waits for the queue, others for their turn. */
static struct scout__l2_op *
next_transfer(struct scout__blocking *blocking)
{
	struct scout__l2_op *op;

	(void)pthread_mutex_lock(&blocking->turn);
	op = scout__l2_queue_wait(&blocking->transfers);
	if (op && blocking->calls->begin)
		blocking->calls->begin(blocking->store, op);
	(void)pthread_mutex_unlock(&blocking->turn);
	return op;
}

static void *
transfer_main(void *arg)
{
	struct scout__blocking_hand *hand = arg;
	struct scout__blocking *blocking = hand->blocking;
	struct scout__l2_op *op;

	while ((op = next_transfer(blocking))) {
		scout__l2_moved(op);
		if (scout__blocking_is_stopping(blocking)) {
			cancel(blocking, op);
			continue;
		}
		blocking->calls->transfer(blocking->store, hand->number, op);
		scout__l2_complete(blocking->port, op);
	}
	scout__blocking_thread_ends(blocking);
	return NULL;
}

/* ---- start and stop ---- */

int
scout__blocking_init(struct scout__blocking *blocking, const struct scout__blocking_calls *calls, void *store,
		     const struct scout__l2_open *args, uint32_t threads)
{
	int rc;

	*blocking = (struct scout__blocking){
		.calls = calls, .store = store, .port = args->port, .n_threads = threads, .max_ops = args->max_ops};
	(void)snprintf(blocking->thread_name, sizeof(blocking->thread_name), "scout-l2-%s", args->url->scheme);
	rc = scout__l2_queue_init(&blocking->names, args->max_ops, false);
	if (rc)
		return rc;
	rc = scout__l2_queue_init(&blocking->transfers, args->max_ops, false);
	if (rc) {
		scout__l2_queue_fini(&blocking->names);
		return rc;
	}
	SCOUT_ASSERT(pthread_mutex_init(&blocking->mu, NULL) == 0); /* does not fail on Linux */
	SCOUT_ASSERT(pthread_mutex_init(&blocking->turn, NULL) == 0);
	scout__cond_init(&blocking->ended);
	return 0;
}

int
scout__blocking_start(struct scout__blocking *blocking, bool asks)
{
	int rc = asks ? scout__questions_start(blocking) : 0;

	if (rc)
		return rc;
	while (blocking->n_hands < blocking->n_threads) {
		struct scout__blocking_hand *hand = &blocking->hands[blocking->n_hands];

		*hand = (struct scout__blocking_hand){.blocking = blocking, .number = blocking->n_hands};
		if (scout__blocking_thread_start(blocking, &hand->thread, blocking->thread_name, transfer_main, hand))
			return SCOUT_ERR_SYSTEM;
		blocking->n_hands++;
	}
	if (scout__blocking_thread_start(blocking, &blocking->names_thread, "scout-l2-names", names_main, blocking))
		return SCOUT_ERR_SYSTEM;
	blocking->has_names_thread = true;
	return 0;
}

void
scout__blocking_cancel(struct scout__blocking *blocking)
{
	atomic_store_explicit(&blocking->stopping, true, memory_order_relaxed);
	scout__l2_queue_close(&blocking->names);
	scout__l2_queue_close(&blocking->transfers);
	if (blocking->questions && !blocking->has_names_thread)
		scout__questions_stop(blocking); /* otherwise that thread does so, when it has asked all */
}

/* Nobody joins them: what a thread has of the system goes when it ends. */
static void
detach(struct scout__blocking *blocking)
{
	for (uint32_t i = 0; i < blocking->n_hands; i++)
		(void)pthread_detach(blocking->hands[i].thread);
	if (blocking->questions)
		scout__questions_detach(blocking);
	if (blocking->has_names_thread)
		(void)pthread_detach(blocking->names_thread);
}

bool
scout__blocking_stop(struct scout__blocking *blocking, uint64_t deadline_us)
{
	struct scout__l2_op *op;

	scout__blocking_cancel(blocking);
	if (scout__blocking_threads_wait(blocking, deadline_us))
		return true;
	/* If all threads hang, no thread would end these. */
	while ((op = scout__l2_queue_try(&blocking->names)))
		cancel(blocking, op);
	while ((op = scout__l2_queue_try(&blocking->transfers)))
		cancel(blocking, op);
	detach(blocking);
	return false;
}

void
scout__blocking_fini(struct scout__blocking *blocking)
{
	for (uint32_t i = 0; i < blocking->n_hands; i++)
		(void)pthread_join(blocking->hands[i].thread, NULL);
	if (blocking->questions)
		scout__questions_free(blocking);
	if (blocking->has_names_thread)
		(void)pthread_join(blocking->names_thread, NULL);
	scout__l2_queue_fini(&blocking->names);
	scout__l2_queue_fini(&blocking->transfers);
	(void)pthread_cond_destroy(&blocking->ended);
	(void)pthread_mutex_destroy(&blocking->mu);
	(void)pthread_mutex_destroy(&blocking->turn);
}

bool
scout__blocking_submit(void *store, struct scout__l2_op *op)
{
	struct scout__blocking *blocking = store;
	bool of_names = op->what == SCOUT__L2_EXISTS || op->what == SCOUT__L2_UNPIN;

	return scout__l2_queue_push(of_names ? &blocking->names : &blocking->transfers, op);
}

uint32_t
scout__blocking_at_once(const void *store, enum scout__l2_side side)
{
	const struct scout__blocking *blocking = store;

	if (side == SCOUT__L2_READS)
		return 2 * blocking->n_threads;
	return blocking->n_threads > 1 ? blocking->n_threads - 1 : 1;
}
