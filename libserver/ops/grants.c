/* SPDX-License-Identifier: Apache-2.0 */
#include "grants.h"

#include <stdlib.h>

#include "clears.h"
#include "fetch.h"
#include "hold.h"
#include "list.h"
#include "msg.h"
#include "ns.h"
#include "ops_internal.h"
#include "peer.h"
#include "pending_op.h"
#include "reply.h"
#include "segments.h"
#include "server_core.h"
#include "session.h"
#include "state.h"

/*
 * DESIGN
 *
 * What STORE and RETRIEVE have in common: grants of slots, built slice by slice into a reply that becomes a frame of its
 * own when it is long. Each grant is noted in a hold at once, so taking back needs nothing but the hold.
 *
 * The answer may leave only when the worker has the memory: every segment is sent first, on the lease connection. If
 * that socket is full, the finished reply waits (peer.lease_waiters).
 *
 * Threads: loop.
 */

#define HEAD_BYTES (SCOUT_FRAME_HEADER_BYTES + SCOUT_OP_HEADER_BYTES + 16)
#define SMALL_BYTES 16384u /* shorter replies travel with others */

void
scout__grants_take_back(struct scout_server *s, struct scout__pending_op *op)
{
	struct scout__grants_op *pending = SCOUT__OWNER(op, struct scout__grants_op, op);

	if (pending->hold)
		scout__hold_undo(s, pending->hold);
	pending->hold = NULL;
}

void
scout__grants_end(struct scout_server *s, struct scout__pending_op *op)
{
	struct scout__grants_op *pending = SCOUT__OWNER(op, struct scout__grants_op, op);

	s->state->grant_bytes -= pending->reply.cap;
	free(pending->reply.buf);
}

bool
scout__grants_begin(struct scout_server *s, struct scout__grants_op *pending, uint8_t kind, uint32_t n_parts)
{
	size_t bytes = HEAD_BYTES + (size_t)pending->n * SCOUT_GRANT_BYTES;

	if (scout__hold_name_taken(s, pending->op.peer, pending->op.corr)) {
		scout__pending_op_refuse(
			s, &pending->op, SCOUT_WIRE_STATE,
			"this correlation id names a transfer that is not done: each transfer needs its own");
		return false;
	}
	if (s->state->grant_bytes + bytes > SCOUT__MAX_GRANT_BYTES) {
		scout__pending_op_refuse(
			s, &pending->op, SCOUT_WIRE_LIMIT,
			"grants for too many chunks are being made: try again when others are answered");
		return false;
	}
	pending->reply.buf = malloc(bytes);
	if (!pending->reply.buf) {
		scout__pending_op_refuse(s, &pending->op, SCOUT_WIRE_LIMIT, "the server is out of memory");
		return false;
	}
	pending->reply.cap = bytes;
	s->state->grant_bytes += bytes;
	pending->hold = scout__hold_new(s, pending->op.peer, kind, pending->n, n_parts, pending->op.corr);
	if (!pending->hold) {
		scout__pending_op_refuse(
			s, &pending->op, SCOUT_WIRE_LIMIT,
			"too many stores and retrieves are not done: send STORE_DONE or RETRIEVE_DONE for some first");
		return false;
	}
	scout__frame_begin(&pending->reply);
	pending->reply_op = scout__op_begin(&pending->reply, pending->op.opcode, SCOUT_KIND_REPLY, SCOUT_WIRE_OK,
					    pending->op.corr, 0);
	scout__put_grants_head(&pending->reply, 0, pending->n);
	return true;
}

void
scout__grants_put(struct scout__grants_op *pending, uint32_t entry)
{
	const struct scout__hold_part *part = scout__hold_now(pending->hold);
	struct scout__place place = scout__index_place(part->group->index, entry, part->rank);
	uint64_t bytes = part->group->index->chunk_bytes / part->group->index->n_ranks;
	struct scout__grant grant = {
		.segment = place.segment,
		.state = SCOUT_GRANT_GRANTED,
		.offset = place.offset,
		.generation = place.slot_gen,
	};

	if (pending->stored_s)
		scout__place_note_writer(&place, pending->op.peer->id, pending->stored_s);
	scout__hold_put(pending->hold, entry);
	pending->hold->bytes += bytes;
	pending->op.peer->held_bytes += bytes;
	scout__put_grant(&pending->reply, &grant);
}

void
scout__grants_put_state(struct scout__grants_op *pending, uint16_t state)
{
	struct scout__grant grant = {.state = state};

	scout__put_grant(&pending->reply, &grant);
}

/* A short reply leaves with the other replies of this turn, a long one as its own frame. */
SCOUT_ON_LOOP static void
send_reply(struct scout_server *s, struct scout__grants_op *pending, uint64_t id)
{
	struct scout__dest *dest = &pending->op.peer->dest;
	struct scout__writer reply = pending->reply;
	size_t head = SCOUT_FRAME_HEADER_BYTES + SCOUT_OP_HEADER_BYTES;
	uint8_t opcode = pending->op.opcode;
	uint64_t corr = pending->op.corr;
	struct scout__writer *w;
	size_t op;

	/* From here on the hold belongs to the worker, and is taken back by its id. */
	s->state->grant_bytes -= reply.cap;
	pending->reply = (struct scout__writer){.buf = NULL};
	scout__pending_op_free(s, &pending->op);
	if (reply.len > SMALL_BYTES) {
		scout__frame_end(&reply, 1, s->epoch, scout__now_us());
		SCOUT_ASSERT(!reply.bad);
		scout__reply_frame(s, dest, reply.buf, reply.len, opcode, id);
		return;
	}
	w = scout__reply_begin(s, dest, opcode, SCOUT_WIRE_OK, corr, reply.len - head, &op);
	if (w) {
		scout__put_bytes(w, reply.buf + head, reply.len - head);
		scout__reply_end(s, dest, op);
		if (id)
			scout__reply_grants(s, dest, opcode, id, 0);
	} else if (id) {
		scout__hold_undo(s, s->state->holds[scout__map_get(&s->state->by_hold, id)]);
	}
	free(reply.buf);
}

void
scout__grants_answer(struct scout_server *s, struct scout__grants_op *pending)
{
	struct scout__hold *hold = pending->hold;
	uint64_t id = 0;

	if (hold->n) {
		if (!pending->op.peer->lease) {
			scout__pending_op_refuse(
				s, &pending->op, SCOUT_WIRE_STATE,
				"this worker's lease connection has ended: it must HELLO and REGISTER again");
			return;
		}
		if (!scout__segments_deliver(s, pending->op.peer)) {
			scout__list_add(&pending->op.peer->lease_waiters, &pending->op.waiting);
			return;
		}
		id = hold->id;
		hold->told = true;
	} else {
		scout__hold_undo(s, hold);
	}
	pending->hold = NULL;
	scout__patch_u64(&pending->reply, pending->reply_op + SCOUT_OP_HEADER_BYTES, id ? pending->op.corr : 0);
	scout__op_end(&pending->reply, pending->reply_op);
	SCOUT_ASSERT(!pending->reply.bad);
	send_reply(s, pending, id);
}

static const char not_in[] =
	"the namespace was cleared after this worker joined it: the worker neither stores nor loads "
	"until it sends CLEAR itself";

bool
scout__grants_go_on(struct scout_server *s, struct scout__grants_op *pending)
{
	if (pending->op.weights_gen != pending->op.ns->weights_gen)
		scout__pending_op_refuse(s, &pending->op, pending->op.ns->ended_by, "%s",
					 scout__ns_ended_text(pending->op.ns));
	else if (!scout__peer_is_in(pending->op.peer))
		scout__pending_op_refuse(s, &pending->op, SCOUT_WIRE_CLEARED, "%s", not_in);
	else
		return true;
	return false;
}

bool
scout__require_transfer(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op)
{
	const char *name = scout__op_name(op->opcode);

	if (peer->role != SCOUT_ROLE_WORKER)
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_ROLE,
			      "%s is for workers: HELLO must say role 2", name);
	else if (!peer->lease)
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_STATE,
			      "%s before the lease connection: LEASE_HELLO on the path of the HELLO reply comes first",
			      name);
	else if (peer->rank < 0)
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_STATE,
			      "%s before REGISTER: REGISTER comes first", name);
	else if (!scout__require_weights(s, peer, op))
		return false; /* checked before peer_is_in: the right weights make a worker in */
	else if (!scout__peer_is_in(peer))
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_CLEARED, "%s", not_in);
	else
		return true;
	return false;
}
