/* SPDX-License-Identifier: Apache-2.0 */
#include "l2_internal.h"

/*
 * One port: how an operation gets to its adapter and into the ring or list that the next reap looks at. It decides
 * nothing: l2_submit.c, lateness.c and switching.c do.
 *
 * Threads: the loop; scout__l2_complete() is any thread's, and the names of operations and results are constants.
 */

static const char *const what_names[] = {"?",     "exists", "unpin",       "load",
					 "store", "remove", "record_read", "record_write"};
static const char *const result_names[SCOUT__L2_RESULTS] = {
	"ok", "absent", "present", "corrupt", "full", "timeout", "error", "refused", "cancelled",
};

const char *
scout__l2_what_name(uint8_t what)
{
	return what < sizeof(what_names) / sizeof(what_names[0]) ? what_names[what] : "?";
}

const char *
scout__l2_result_name(uint8_t result)
{
	return result < SCOUT__L2_RESULTS ? result_names[result] : "?";
}

void
scout__l2_complete(struct scout__l2_port *port, struct scout__l2_op *op)
{
	bool ok;

	(void)pthread_mutex_lock(&port->mu);
	ok = scout__ring_push(&port->done, (uint64_t)(uintptr_t)op);
	(void)pthread_mutex_unlock(&port->mu);
	/* There is room for all that was submitted: on failure, @op was completed twice. */
	SCOUT_ASSERT(ok);
	(void)scout__doorbell_ring(&port->l2->bell);
}

void
scout__l2_end(struct scout__l2 *l2, struct scout__l2_op *op, enum scout__l2_result result)
{
	op->result = (uint8_t)result;
	scout__list_add(&l2->ended, &op->node);
	(void)scout__doorbell_ring(&l2->bell);
}

void
scout__l2_end_waiting(struct scout__l2_port *port, enum scout__l2_side side, enum scout__l2_result result)
{
	struct scout__l2_op *op;

	while ((op = scout__l2_pop(&port->waiting[side]))) {
		port->n_waiting--;
		scout__l2_end(port->l2, op, result);
	}
}

bool
scout__l2_give(struct scout__l2_port *port, struct scout__l2_op *op, uint64_t now_us)
{
	op->given_us = now_us;
	if (!port->ops->submit(port->adapter, op))
		return false;
	scout__list_add_first(&port->running, &op->node);
	port->store.n_running++;
	port->n_given[scout__l2_side_of(op)] += scout__l2_needs_a_turn(op);
	if (op->timeout_us && now_us + op->timeout_us < port->due_us)
		port->due_us = now_us + op->timeout_us;
	return true;
}
