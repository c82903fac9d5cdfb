/* SPDX-License-Identifier: Apache-2.0 */
#include "l2_internal.h"

#include <stdlib.h>

/*
 * DESIGN
 *
 * Purpose: decide which store is worth asking: the two breakers of each adapter (breaker.c has their states, l2.h the
 * rules). What an operation says about its store is judged once: when it ends, or when it is late (lateness.c),
 * whichever is first.
 *
 * When a breaker opens, what waits for the adapter ends as REFUSED in the next reap: the server goes on with the next
 * adapter, or without L2. Reads are tried again by the operation that failed last, once more, into memory of its own, and with its own
 * deadline. After that, questions that had them switched off are in doubt: one at a time, until one works; one that fails switches reads
 * off at once, for twice as long. So a store whose answers come too late costs one request its wait, and less and less often.
 *
 * Threads: the loop.
 */

enum scout__l2_verdict
scout__l2_verdict_of(const struct scout__l2_op *op)
{
	switch ((enum scout__l2_result)op->result) {
	case SCOUT__L2_OK:
	case SCOUT__L2_ABSENT:
	case SCOUT__L2_PRESENT:
	case SCOUT__L2_CORRUPT:
		return SCOUT__L2_WORKED;
	case SCOUT__L2_FULL:
		return op->detail ? SCOUT__L2_FAILED : SCOUT__L2_WORKED;
	case SCOUT__L2_TIMEOUT:
	case SCOUT__L2_ERROR:
		return SCOUT__L2_FAILED;
	case SCOUT__L2_REFUSED:
	case SCOUT__L2_CANCELLED:
		break;
	}
	return SCOUT__L2_NOTHING;
}

/* Keep what is needed to try reads again: @op itself is the server's. */
static void
remember_trial(struct scout__l2_trial *trial, const struct scout__l2_op *op)
{
	if (trial->is_running)
		return;
	trial->what = op->what;
	trial->timeout_us = op->timeout_us;
	trial->digest = (struct scout__l2_digest){0, 0};
	if (op->what == SCOUT__L2_LOAD) {
		trial->key = *op->key;
		trial->digest = op->key->digest;
		trial->bytes = op->bytes;
	} else if (op->n) {
		trial->digest = op->digests[0];
	}
}

/* The breaker of @side has opened over @op. */
SCOUT_ON_LOOP static void
switched_off(struct scout__l2_port *port, enum scout__l2_side side, const struct scout__l2_op *op)
{
	port->store.counters.opened[side]++;
	if (side == SCOUT__L2_READS) {
		remember_trial(&port->trial, op);
		port->question = NULL;
	}
	scout__l2_end_waiting(port, side, SCOUT__L2_REFUSED);
}

SCOUT_ON_LOOP static void
count_failure(struct scout__l2_port *port, const struct scout__l2_op *op, uint64_t now_us)
{
	enum scout__l2_side side = scout__l2_side_of(op);
	struct scout__l2_switch *sw = &port->sides[side];

	if (op->what == SCOUT__L2_EXISTS && port->doubts_questions)
		scout__l2_switch_distrust(sw, op->what, now_us);
	if (!scout__l2_switch_failed(sw, op->what, now_us))
		return;
	switched_off(port, side, op);
}

void
scout__l2_hangs(struct scout__l2_port *port, enum scout__l2_side side, const struct scout__l2_op *op, uint64_t now_us)
{
	struct scout__l2_switch *sw = &port->sides[side];

	if (sw->state != SCOUT__L2_CLOSED)
		return;
	scout__l2_switch_open(sw, now_us);
	scout__l2_note(port, op, "it hangs: nothing that it has begun makes progress", false, now_us);
	switched_off(port, side, op);
	scout__l2_look_at_state(port, now_us);
}

void
scout__l2_begin_trial(struct scout__l2_port *port, enum scout__l2_side side)
{
	scout__l2_switch_begin(&port->sides[side]);
}

SCOUT_ON_LOOP static void
end_trial(struct scout__l2_port *port, enum scout__l2_side side, bool worked, uint64_t now_us)
{
	scout__l2_switch_end(&port->sides[side], worked, now_us);
	if (!worked)
		return;
	scout__l2_side_works(port, side);
	/* A trial has one key: what is slow with many is slow again. */
	if (side == SCOUT__L2_READS && port->trial.op.what == SCOUT__L2_EXISTS)
		port->doubts_questions = true;
}

static bool
is_trial(const struct scout__l2_port *port, const struct scout__l2_op *op)
{
	return op == &port->trial.op || op == port->write_trial;
}

/* What it says about the breaker of its side. */
SCOUT_ON_LOOP static void
judge_side(struct scout__l2_port *port, const struct scout__l2_op *op, enum scout__l2_verdict verdict, uint64_t now_us)
{
	if (op == port->question)
		port->question = NULL;
	if (op->what == SCOUT__L2_EXISTS && verdict == SCOUT__L2_WORKED && !is_trial(port, op))
		port->doubts_questions = false;
	if (is_trial(port, op))
		end_trial(port, scout__l2_side_of(op), verdict == SCOUT__L2_WORKED, now_us);
	else if (verdict == SCOUT__L2_WORKED)
		scout__l2_switch_worked(&port->sides[scout__l2_side_of(op)], op->what);
	else if (verdict == SCOUT__L2_FAILED)
		count_failure(port, op, now_us);
}

void
scout__l2_judge(struct scout__l2_port *port, const struct scout__l2_op *op, enum scout__l2_verdict verdict,
		uint64_t now_us)
{
	if (verdict != SCOUT__L2_NOTHING && op->what != SCOUT__L2_UNPIN)
		scout__l2_note(port, op, NULL, verdict == SCOUT__L2_WORKED, now_us);
	if (!scout__l2_is_of_record(op))
		judge_side(port, op, verdict, now_us);
	if (verdict == SCOUT__L2_FAILED || port->seen.state != SCOUT__L2_WORKS)
		scout__l2_look_at_state(port, now_us);
}

/* ---- trying reads again ---- */

static bool
ensure_buffer(struct scout__l2_trial *trial)
{
	void *buffer;

	if (trial->buffer_bytes >= trial->bytes)
		return true;
	/* Aligned like slots of the pool, for adapters that bypass the page cache. */
	if (posix_memalign(&buffer, 4096, trial->bytes) != 0)
		return false;
	free(trial->buffer);
	trial->buffer = buffer;
	trial->buffer_bytes = trial->bytes;
	return true;
}

void
scout__l2_try_reads(struct scout__l2_port *port, uint64_t now_us)
{
	struct scout__l2_switch *sw = &port->sides[SCOUT__L2_READS];
	struct scout__l2_trial *trial = &port->trial;

	bool is_due = scout__l2_switch_is_due(sw, now_us);

	if (trial->is_running || (!is_due && !scout__l2_wants_probe(port, now_us)))
		return;
	trial->op = (struct scout__l2_op){
		.what = SCOUT__L2_EXISTS,
		.adapter = (uint8_t)(port - port->l2->ports),
		/* As long as who asks would wait. */
		.timeout_us = trial->timeout_us && is_due ? trial->timeout_us : port->l2->timeout_us,
		.submitted_us = now_us,
		.n = 1,
		.digests = &trial->digest,
		.found = &trial->found,
	};
	if (!is_due) {
		trial->op.what = SCOUT__L2_RECORD_READ;
		trial->op.digests = &trial->nothing;
		trial->op.data = trial->record;
		trial->op.bytes = sizeof(trial->record);
		trial->is_running = scout__l2_give(port, &trial->op, now_us);
		return;
	}
	/* Without memory for a LOAD, it must do to see whether the store answers at all. */
	if (trial->what == SCOUT__L2_LOAD && ensure_buffer(trial)) {
		trial->op.what = SCOUT__L2_LOAD;
		trial->op.key = &trial->key;
		trial->op.data = trial->buffer;
		trial->op.bytes = trial->bytes;
		trial->op.n = 0;
	}
	scout__l2_begin_trial(port, SCOUT__L2_READS);
	trial->is_running = scout__l2_give(port, &trial->op, now_us);
	if (!trial->is_running)
		end_trial(port, SCOUT__L2_READS, false, now_us);
}
