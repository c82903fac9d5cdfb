/* SPDX-License-Identifier: Apache-2.0 */
#include "l2_internal.h"

#include <stdlib.h>
#include <string.h>

/*
 * DESIGN
 *
 * Purpose: take operations of the server, give them to adapters, and give them back when they have ended. An operation
 * is in one place at a time:
 *
 *   waiting   LOADs, STOREs and REMOVEs that the adapter has no thread free for: the loop's own list, so what is in it can
 *             end at once when the store is switched off, also if all threads of the adapter hang
 *   running   the adapter's, or in the ring of what has ended; in port->running for the sake of its clock
 *   unpins    UNPINs that wait for room: they give something back, so they are never refused
 *   ended     refused, or submitted after the stop: comes out of the next reap
 *
 * and leaves by done(), from reap only, so that a submit never calls back into the server in the middle of its work.
 *
 * A waiting operation starts when others of its side come back. An adapter asks for fewer writes at once than it has
 * threads, so that the next LOAD finds a free thread, however many writes there are.
 *
 * Waking the loop: a doorbell (doorbell.h). The loop stays parked, completing pushes and rings, and reap lowers the
 * bell before it looks at the rings.
 *
 * Rejected: one deadline for queue and store together: with objects of tens of megabytes, an operation that waits for
 * others in our own queue would be late before it begins, though the store is well.
 *
 * Threads: the loop.
 */

#define LOG_INTERVAL_US UINT64_C(1000000)
#define UNPIN_RETRY_US UINT64_C(10000)

/* ---- submit ---- */

/* Give the adapter waiting operations, as many as it wants. */
SCOUT_ON_LOOP static void
start_waiting(struct scout__l2_port *port, uint64_t now_us)
{
	for (unsigned side = SCOUT__L2_READS; side <= SCOUT__L2_WRITES; side++) {
		struct scout__list *list = &port->waiting[side];

		while (!scout__list_empty(list) && port->n_given[side] < port->store.at_once[side]) {
			struct scout__l2_op *op = scout__l2_pop(list);

			port->n_waiting--;
			if (!scout__l2_give(port, op, now_us))
				scout__l2_end(port->l2, op, SCOUT__L2_REFUSED);
		}
	}
}

/* Give the adapter the waiting UNPINs, as far as there is room. */
SCOUT_ON_LOOP static void
start_unpins(struct scout__l2_port *port, uint64_t now_us)
{
	port->unpins_us = UINT64_MAX;
	while (!scout__list_empty(&port->unpins) && port->store.n_running + port->n_waiting < port->l2->max_ops) {
		struct scout__l2_op *op = scout__l2_pop(&port->unpins);

		if (!scout__l2_give(port, op, now_us)) {
			scout__list_add_first(&port->unpins, &op->node);
			port->unpins_us = now_us + UNPIN_RETRY_US;
			return;
		}
	}
}

bool
scout__l2_tries_reads(const struct scout__l2 *l2, uint32_t adapter)
{
	return l2->ports[adapter].sides[SCOUT__L2_READS].state == SCOUT__L2_CLOSED;
}

uint64_t
scout__l2_writes_at_us(const struct scout__l2 *l2, uint32_t adapter)
{
	const struct scout__l2_port *port = &l2->ports[adapter];
	const struct scout__l2_switch *sw = &port->sides[SCOUT__L2_WRITES];

	if (sw->state == SCOUT__L2_CLOSED)
		return 0;
	return sw->state == SCOUT__L2_OPEN && !port->write_trial ? sw->retry_us : UINT64_MAX;
}

SCOUT_ON_LOOP static void
submit(struct scout__l2_port *port, struct scout__l2_op *op, uint64_t now_us)
{
	struct scout__l2 *l2 = port->l2;
	enum scout__l2_side side = scout__l2_side_of(op);
	bool is_closed = port->sides[side].state == SCOUT__L2_CLOSED || scout__l2_is_of_record(op);

	/* A REMOVE is no trial: it may succeed on a full disk. */
	if (!is_closed && (op->what != SCOUT__L2_STORE || scout__l2_writes_at_us(l2, op->adapter) > now_us)) {
		scout__l2_end(l2, op, SCOUT__L2_REFUSED);
		return;
	}
	if (port->doubts_questions && op->what == SCOUT__L2_EXISTS && port->question) {
		scout__l2_end(l2, op, SCOUT__L2_REFUSED);
		return;
	}
	if (port->store.n_running + port->n_waiting >= l2->max_ops) {
		scout__l2_end(l2, op, SCOUT__L2_REFUSED);
		return;
	}
	if (is_closed && scout__l2_needs_a_turn(op) && port->n_given[side] >= port->store.at_once[side]) {
		scout__list_add(&port->waiting[side], &op->node);
		port->n_waiting++;
		/* If threads hang, nothing else would make the next tick look. */
		if (port->n_late > 0)
			port->due_us = now_us;
		return;
	}
	if (!scout__l2_give(port, op, now_us)) {
		scout__l2_end(l2, op, SCOUT__L2_REFUSED);
		return;
	}
	if (port->doubts_questions && op->what == SCOUT__L2_EXISTS)
		port->question = op;
	if (!is_closed) {
		port->write_trial = op;
		scout__l2_begin_trial(port, SCOUT__L2_WRITES);
	}
}

void
scout__l2_submit(struct scout__l2 *l2, uint32_t adapter, struct scout__l2_op *op, uint64_t now_us)
{
	struct scout__l2_port *port = &l2->ports[adapter];

	SCOUT_ASSERT(adapter < l2->n && op->what >= SCOUT__L2_EXISTS && op->what < SCOUT__L2_WHATS);
	SCOUT_ASSERT(op->n <= SCOUT__L2_MAX_KEYS && op->done);
	op->adapter = (uint8_t)adapter;
	op->detail = 0;
	op->why[0] = '\0';
	op->is_late = false;
	op->submitted_us = now_us;
	atomic_store_explicit(&op->moved_us, 0, memory_order_relaxed);
	port->store.counters.submitted[op->what]++;
	if (op->what == SCOUT__L2_EXISTS)
		memset(op->found, 0, op->n);
	if (l2->is_stopped) {
		scout__l2_end(l2, op, SCOUT__L2_CANCELLED);
	} else if (op->what == SCOUT__L2_UNPIN) {
		op->timeout_us = 0;
		scout__list_add(&port->unpins, &op->node);
		start_unpins(port, now_us);
	} else {
		submit(port, op, now_us);
	}
}

/* ---- reap ---- */

static void
count(struct scout__l2_port *port, const struct scout__l2_op *op, uint64_t now_us)
{
	struct scout__l2_counters *counters = &port->store.counters;

	if (op->result >= SCOUT__L2_RESULTS)
		scout__assert_failed("an adapter's result is none", __FILE__, __LINE__);
	counters->results[op->what][op->result]++;
	counters->late += op->is_late;
	if (op->result != SCOUT__L2_REFUSED && op->result != SCOUT__L2_CANCELLED)
		scout__latency_add(&counters->took[op->what], now_us - op->submitted_us);
	if (op->what == SCOUT__L2_EXISTS && op->result != SCOUT__L2_REFUSED && op->result != SCOUT__L2_CANCELLED) {
		counters->keys_asked += op->n;
		for (uint32_t i = 0; i < op->n; i++)
			counters->keys_found += op->found[i];
	}
	if (op->result != SCOUT__L2_OK)
		return;
	if (op->what == SCOUT__L2_LOAD)
		counters->bytes_loaded += op->bytes;
	else if (op->what == SCOUT__L2_STORE)
		counters->bytes_stored += op->bytes;
}

/* Failures of the store are its state: store_state.c. */
static void
log_corrupt(struct scout__l2_port *port, const struct scout__l2_op *op, uint64_t now_us)
{
	if (op->result == SCOUT__L2_CORRUPT)
		scout__log_limited(port->l2->log, &port->limit, now_us, LOG_INTERVAL_US, SCOUT_LOG_WARN,
				   "L2 %s: %s: corrupt", port->url.shown, scout__l2_what_name(op->what));
}

/* @op came out of the adapter. */
SCOUT_ON_LOOP static void
take_back(struct scout__l2_port *port, struct scout__l2_op *op, uint64_t now_us)
{
	scout__list_del(&op->node);
	if (--port->store.n_running == 0)
		port->due_us = UINT64_MAX;
	port->n_given[scout__l2_side_of(op)] -= scout__l2_needs_a_turn(op);
	port->n_late -= op->is_late;
	port->ended_us[!scout__l2_is_question(op)] = now_us;
	log_corrupt(port, op, now_us);
	if (op->is_late && op->why[0] && scout__l2_verdict_of(op) == SCOUT__L2_FAILED)
		scout__l2_note(port, op, op->why, false, now_us); /* why it was late */
	if (!op->is_late && !port->l2->is_stopped)
		scout__l2_judge(port, op, scout__l2_verdict_of(op), now_us);
	if (op == port->write_trial)
		port->write_trial = NULL;
	start_waiting(port, now_us);
	start_unpins(port, now_us);
}

static struct scout__l2_op *
pop_done(struct scout__l2_port *port)
{
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): pushed as a pointer */
	return (struct scout__l2_op *)(uintptr_t)scout__ring_pop(&port->done);
}

/* The next ended operation, from the adapters by turns. */
SCOUT_ON_LOOP static struct scout__l2_op *
next_ended(struct scout__l2 *l2, uint64_t now_us)
{
	struct scout__l2_op *op = scout__l2_pop(&l2->ended);

	for (uint32_t i = 0; !op && i < l2->n; i++) {
		struct scout__l2_port *port = &l2->ports[l2->turn];

		l2->turn = (l2->turn + 1) % l2->n;
		op = pop_done(port);
		if (op)
			take_back(port, op, now_us);
	}
	return op;
}

static bool
has_ended(const struct scout__l2 *l2)
{
	bool any = !scout__list_empty(&l2->ended);

	for (uint32_t i = 0; !any && i < l2->n; i++)
		any = !scout__ring_empty(&l2->ports[i].done);
	return any;
}

bool
scout__l2_reap(struct scout__l2 *l2, uint32_t max, uint64_t now_us)
{
	(void)scout__doorbell_lower(&l2->bell); /* not raised: look at the rings all the same */
	for (uint32_t n = 0; n < max; n++) {
		struct scout__l2_op *op = next_ended(l2, now_us);

		if (!op)
			return false;
		if (op->done) {
			count(&l2->ports[op->adapter], op, now_us);
			op->done(op->user, op);
		} else {
			l2->ports[op->adapter].trial.is_running = false;
		}
	}
	if (!has_ended(l2))
		return false;
	(void)scout__doorbell_ring(&l2->bell);
	return true;
}

/* ---- tick ---- */

void
scout__l2_tick(struct scout__l2 *l2, uint64_t now_us)
{
	for (uint32_t i = 0; i < l2->n && !l2->is_stopped; i++) {
		struct scout__l2_port *port = &l2->ports[i];

		scout__l2_look_at_clocks(port, now_us);
		scout__l2_look_at_state(port, now_us);
		scout__l2_try_reads(port, now_us);
		if (now_us >= port->unpins_us)
			start_unpins(port, now_us);
	}
}

uint64_t
scout__l2_next_us(const struct scout__l2 *l2)
{
	uint64_t next_us = UINT64_MAX;

	for (uint32_t i = 0; i < l2->n && !l2->is_stopped; i++) {
		const struct scout__l2_port *port = &l2->ports[i];
		const struct scout__l2_switch *sw = &port->sides[SCOUT__L2_READS];

		if (port->due_us < next_us)
			next_us = port->due_us;
		if (port->unpins_us < next_us)
			next_us = port->unpins_us;
		if (sw->state == SCOUT__L2_OPEN && !port->trial.is_running && sw->retry_us < next_us)
			next_us = sw->retry_us;
	}
	return next_us;
}
