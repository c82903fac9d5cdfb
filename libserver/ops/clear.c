/* SPDX-License-Identifier: Apache-2.0 */
#include "clears.h"
#include "fetch.h"
#include "list.h"
#include "msg.h"
#include "ns.h"
#include "ops_internal.h"
#include "peer.h"
#include "pending_op.h"
#include "reply.h"
#include "run_queue.h"
#include "server_core.h"

/*
 * DESIGN
 *
 * CLEAR drops everything that a namespace has cached, without a version of the weights. See clears.c for its name and
 * its stamp.
 *
 * The order of events: a clear takes effect in the turn in which it is read, by the weights_gen of the namespace (see
 * ns.c), so lookups after it on the same connection see the new generation. Its answer waits until every store has a
 * record of it (l2_records.c), or has failed, or l2_timeout_ms have passed. Until the records were read, nothing is
 * cached here, and a CLEAR waits as LOOKUP, STORE and RETRIEVE do: a name that a store knows already must not clear
 * again.
 *
 * Threads: loop.
 */

struct clear_op {
	struct scout__pending_op op;
	uint64_t generation;
	uint64_t wait_end_us; /* when the wait for the records of stores ends */
	bool is_carried_out;
};

SCOUT_ON_LOOP static void
answer(struct scout_server *s, struct clear_op *pending)
{
	struct scout__clear_reply m = {
		.clear = scout__clears_state_of(pending->op.peer),
		.stores = s->fetch ? s->fetch->n : 0,
		.pending = scout__records_pending(s, pending->op.ns),
	};
	struct scout__writer *w;
	size_t op;

	if (m.pending)
		scout__log_limited(
			&s->log, &s->limit_clear, s->now_us, SCOUT__WARN_INTERVAL_US, SCOUT_LOG_WARN,
			"namespace \"%s\": %u of %u L2 stores have not recorded its last clear: they are not "
			"used for it until they have; if this server ends before that, their content comes back",
			pending->op.ns->name, (unsigned)m.pending, (unsigned)m.stores);
	w = scout__reply_begin(s, &pending->op.peer->dest, pending->op.opcode, SCOUT_WIRE_OK, pending->op.corr, 32,
			       &op);
	if (w) {
		scout__put_clear_reply(w, &m);
		scout__reply_end(s, &pending->op.peer->dest, op);
	}
	scout__pending_op_free(s, &pending->op);
}

SCOUT_ON_LOOP static void
carry_out(struct scout_server *s, struct clear_op *pending)
{
	struct scout__peer *peer = pending->op.peer;
	uint64_t generation = pending->generation;

	if (generation != SCOUT_GENERATION_ANY)
		scout__clears_add(s, peer, generation);
	else
		peer->joined = scout__clears_draw_stamp(peer->ns);
}

SCOUT_ON_LOOP static void
clear_step(struct scout_server *s, struct scout__run_item *item)
{
	struct clear_op *pending = SCOUT__OWNER(item, struct clear_op, op.run);

	scout__list_del(&pending->op.waiting);
	scout__timer_clear(s, &pending->op.run);
	if (!pending->is_carried_out && scout__records_wait(s, &pending->op))
		return;
	if (!pending->is_carried_out) {
		pending->is_carried_out = true;
		carry_out(s, pending);
	}
	if (s->now_us < pending->wait_end_us && scout__records_are_written_now(pending->op.ns)) {
		scout__list_add(&pending->op.ns->record_waiters, &pending->op.waiting);
		scout__timer_set(s, &pending->op.run, pending->wait_end_us);
		return;
	}
	answer(s, pending);
}

static const struct scout__pending_kind clear_kind = {.size = sizeof(struct clear_op), .step = clear_step};

void
scout__serve_clear(struct scout_server *s, struct scout__request *req)
{
	const char *field = "";
	uint64_t generation;
	struct clear_op *pending;
	int status = scout__get_one_u64(req->op, &generation, &field);

	if (status == SCOUT_WIRE_OK && generation == SCOUT_GENERATION_ANY && req->peer->role != SCOUT_ROLE_WORKER) {
		status = SCOUT_WIRE_RANGE;
		field = "generation";
	}
	if (status && scout__refuse_body(s, req->dest, req->op, status, field))
		return;
	/* A client decides. A worker of another version has nothing here that it could want dropped. */
	if (req->peer->role == SCOUT_ROLE_WORKER && !scout__require_weights(s, req->peer, req->op))
		return;
	pending = scout__pending_op_new(s, &clear_kind, req->peer, req->packet, req->op, req->deadline_us);
	if (!pending)
		return;
	pending->generation = generation;
	pending->wait_end_us = scout__pending_op_answer_by(&pending->op);
	if (s->fetch && pending->wait_end_us > s->now_us + s->fetch->timeout_us)
		pending->wait_end_us = s->now_us + s->fetch->timeout_us;
	clear_step(s, &pending->op.run);
}
