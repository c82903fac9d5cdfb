/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "l2.h"
#include "l2_queue.h"

/*
 * The threads of a store whose calls block: a file system, a library. An adapter embeds a struct scout__blocking, and
 * writes a struct scout__blocking_calls that answers questions and moves objects; files.c is the one to read.
 *
 *   loop ── submit ──▶ names ─────▶ names thread ── answer(): from memory, or ──▶ question threads: ask() ──▶ complete
 *                 └──▶ transfers ─▶ `threads` transfer threads: transfer() ─────────────────────────────────▶ complete
 *
 * So questions never wait for a load or a store, and neither of them holds up the loop.
 *
 * Recipe for a store:
 *   1. open()    check the URL; scout__blocking_init(); all that the calls use; scout__blocking_start(); the way back is
 *                scout__blocking_cancel(), then scout__blocking_fini()
 *   2. submit, at_once   the functions of the same names here: struct scout__blocking is the first field of the store
 *   3. stop()    scout__blocking_stop(); if it returns false, say so in the log and free nothing
 *   4. close()   scout__blocking_fini(), before what the calls use is freed
 *   5. calls     transfer() calls scout__l2_moved() after each part that has moved: at least every l2_timeout_ms, else
 *                the operation is late. Work that can take long asks scout__blocking_is_stopping() as often
 *
 * What the store need not do: deadlines, breakers and lateness are l2_submit's; the header of an object and its sum are
 * object.h's.
 */

#define SCOUT__BLOCKING_THREADS_MAX 64u

struct scout__blocking_calls {
	/*
	 * EXISTS or UNPIN, on the names thread: true with op->result set, at once and from memory; false: ask() is to
	 * answer this EXISTS. Never blocks. NULL: ask() answers each EXISTS, and UNPIN does nothing.
	 */
	bool (*answer)(void *store, struct scout__l2_op *op);
	/*
	 * Write op->found[@first] to [@first + @n - 1]. Returns 0, or an errno value: ECANCELED ends @op as CANCELLED,
	 * any other as an ERROR. On a question thread; several may ask for the same @op at once.
	 */
	int (*ask)(void *store, struct scout__l2_op *op, uint32_t first, uint32_t n);
	/* All slices of @op are answered and op->result is set. On the last slice's thread; or NULL. */
	void (*asked)(void *store, struct scout__l2_op *op);
	/* The same operations in the order in which they were submitted, one at a time, before transfer(). Or NULL. Never blocks. */
	void (*begin)(void *store, const struct scout__l2_op *op);
	/* Any other operation, on transfer thread @hand (from 0): do it, set op->result and op->detail. */
	void (*transfer)(void *store, uint32_t hand, struct scout__l2_op *op);
	uint32_t slice; /* keys of one ask() at most; 0: all of an EXISTS in one call */
};

struct scout__questions;

struct scout__blocking_hand {
	struct scout__blocking *blocking;
	uint32_t number;
	pthread_t thread;
};

struct scout__blocking {
	/* Const after start. */
	const struct scout__blocking_calls *calls;
	void *store;
	struct scout__l2_port *port;
	uint32_t n_threads, n_hands, max_ops;
	char thread_name[16];                                           /* of the transfer threads: "scout-l2-fs" */
	struct scout__blocking_hand hands[SCOUT__BLOCKING_THREADS_MAX]; /* n_hands have been started */
	struct scout__questions *questions;                             /* NULL: answer() answers all */
	pthread_t names_thread;
	bool has_names_thread;
	/* Any thread. */
	struct scout__l2_queue names;     /* EXISTS, UNPIN */
	struct scout__l2_queue transfers; /* the others */
	pthread_mutex_t turn;             /* to take the next of them */
	atomic_bool stopping;
	/* mu */
	pthread_mutex_t mu;
	pthread_cond_t ended;
	uint32_t alive; /* threads */
};

/*
 * Nothing runs yet. @threads: transfers at once, 1 to SCOUT__BLOCKING_THREADS_MAX, and as many question threads. @calls
 * and @store outlive @blocking. Returns 0, SCOUT_ERR_NOMEM or SCOUT_ERR_SYSTEM.
 */
SCOUT_ON_ANY int scout__blocking_init(struct scout__blocking *blocking, const struct scout__blocking_calls *calls,
				      void *store, const struct scout__l2_open *args, uint32_t threads);
/*
 * Start the threads, those for questions only if the store @asks. Returns 0, SCOUT_ERR_NOMEM or SCOUT_ERR_SYSTEM; then
 * some may run.
 */
SCOUT_ON_ANY int scout__blocking_start(struct scout__blocking *blocking, bool asks);
/* Start a thread of the store's own. It calls scout__blocking_thread_ends() last, and the store joins it. */
SCOUT_ON_ANY int scout__blocking_thread_start(struct scout__blocking *blocking, pthread_t *ret_thread, const char *name,
					      void *(*main)(void *), void *arg);
SCOUT_ON_ANY void scout__blocking_thread_ends(struct scout__blocking *blocking);

/* See struct scout__l2_adapter. */
SCOUT_ON_LOOP bool scout__blocking_submit(void *store, struct scout__l2_op *op);
/*
 * Twice as many loads as threads, so that no thread waits for the loop between two loads; one write less than threads
 * (or one), so that writes never hold all threads.
 */
SCOUT_ON_ANY uint32_t scout__blocking_at_once(const void *store, enum scout__l2_side side);

/* Take no more; what was not begun ends as CANCELLED. Does not wait. */
SCOUT_ON_ANY void scout__blocking_cancel(struct scout__blocking *blocking);
/*
 * Cancel, and wait until every thread has ended, those of the store's own too. False: some still run at @deadline_us.
 * What is in the queues has been cancelled; nothing of the adapter may be freed.
 */
SCOUT_ON_ANY bool scout__blocking_stop(struct scout__blocking *blocking, uint64_t deadline_us);
/* After a cancel, or a stop that returned true: join the threads, free what init and start made. */
SCOUT_ON_ANY void scout__blocking_fini(struct scout__blocking *blocking);

static inline bool
scout__blocking_is_stopping(const struct scout__blocking *blocking)
{
	return atomic_load_explicit(&blocking->stopping, memory_order_relaxed);
}

/* ---- counted_threads.c, for this room ---- */

/* Whether all threads have ended by @deadline_us. */
SCOUT_ON_ANY bool scout__blocking_threads_wait(struct scout__blocking *blocking, uint64_t deadline_us);

/* ---- questions.c, for this room ---- */

/* Returns 0, SCOUT_ERR_NOMEM or SCOUT_ERR_SYSTEM. */
SCOUT_ON_ANY int scout__questions_start(struct scout__blocking *blocking);
/* On the names thread: answer this EXISTS, later, from another thread. */
SCOUT_ON_ANY void scout__questions_ask(struct scout__blocking *blocking, struct scout__l2_op *op);
/* No further question comes: the threads end when all are answered. */
SCOUT_ON_ANY void scout__questions_stop(struct scout__blocking *blocking);
/* The threads are never joined: one hangs. */
SCOUT_ON_ANY void scout__questions_detach(struct scout__blocking *blocking);
/* Join the threads. */
SCOUT_ON_ANY void scout__questions_free(struct scout__blocking *blocking);
