/* SPDX-License-Identifier: Apache-2.0 */
#include "dispatch.h"

#include "hold.h"
#include "lease_messages.h"
#include "msg.h"
#include "ns.h"
#include "ops_internal.h"
#include "packet.h"
#include "peer.h"
#include "pending_op.h"
#include "reply.h"
#include "server_core.h"
#include "session.h"
#include "transport.h"
#include "unsent.h"

/*
 * DESIGN
 *
 * From message to operation. Everything that can be judged without knowing what the operation means is judged here, in
 * this order: is it a frame; is the opcode known; is the server draining; has the sender said HELLO, to this start of
 * the server; has it the right; did the operation expire on its way; has the peer credit left. The handler judges the rest.
 *
 * A frame of thousands of operations is executed over several turns, so that the first answers leave before the last
 * operation is read. Meanwhile no other message is taken, which keeps the order of each sender's operations.
 *
 * A sender without HELLO is served from one scratch destination, whose frame leaves before the next message is looked
 * at, so senders without HELLO cost no memory.
 *
 * libcommon/wire/msg.h lists all places that a new operation needs.
 *
 * Threads: loop.
 */

#define OPS_US 100u     /* for the operations of one frame in one turn */
#define OPS_PER_LOOK 4u /* operations between two looks at the clock: a HELLO or REGISTER may take 100 us */

/* From when on an answer is late; a little earlier than the sender's own deadline, for the way back. */
SCOUT_ON_LOOP static uint64_t
deadline_of(const struct scout_server *s, const struct scout__op *op, uint64_t waited_us)
{
	uint64_t left_us;

	if (op->budget_us == 0 || waited_us >= op->budget_us)
		return UINT64_MAX;
	left_us = op->budget_us - waited_us;
	return s->now_us + left_us - (left_us / 4 < 2000 ? left_us / 4 : 2000);
}

/* What must be so before an operation is executed; each asks for all before it. */
enum need {
	NOTHING,
	RUNNING, /* the server does not stop */
	PEER     /* the sender has said HELLO, in time and within its credit */
};

/* All that the server knows of an opcode, besides its name (msg.c). A row without a handler: no request has the opcode. */
static const struct {
	void (*serve)(struct scout_server *s, struct scout__request *req);
	enum need need;
	uint8_t once;    /* its kind, if a frame may have only one of that kind (it lists or drops much); or 0 */
	bool gives_back; /* what would stay pinned: it is executed however late it comes, and without rights */
	uint8_t right;   /* enum scout__right that it needs in any namespace; those of a peer: in the peer's */
	/* What its reply granted, if that cannot be sent. NULL: it grants nothing. @id: of the session or hold. */
	void (*take_back)(struct scout_server *s, uint64_t id);
} operations[SCOUT_OP_LAST + 1] = {
	[SCOUT_OP_HELLO] = {scout__serve_hello, RUNNING},
	[SCOUT_OP_PING] = {scout__serve_ping, NOTHING},
	[SCOUT_OP_LOOKUP] = {scout__serve_lookup, PEER, .take_back = scout__session_undo},
	[SCOUT_OP_ADMIT] = {scout__serve_admit, PEER},
	[SCOUT_OP_FINISH] = {scout__serve_finish, PEER, .gives_back = true},
	[SCOUT_OP_RESET] = {scout__serve_reset, PEER, .once = SCOUT_OP_RESET},
	[SCOUT_OP_REGISTER] = {scout__serve_register, PEER},
	[SCOUT_OP_STORE] = {scout__serve_store, PEER, .take_back = scout__hold_take_back},
	[SCOUT_OP_STORE_DONE] = {scout__serve_store_done, PEER, .gives_back = true},
	[SCOUT_OP_RETRIEVE] = {scout__serve_retrieve, PEER, .take_back = scout__hold_take_back},
	[SCOUT_OP_RETRIEVE_DONE] = {scout__serve_retrieve_done, PEER, .gives_back = true},
	[SCOUT_OP_STATUS] = {scout__serve_status, NOTHING, .once = SCOUT_OP_STATUS, .right = SCOUT__RIGHT_ENGINE},
	[SCOUT_OP_CLEAR] = {scout__serve_clear, PEER, .once = SCOUT_OP_CLEAR},
	[SCOUT_OP_PEERS] = {scout__serve_peers, NOTHING, .once = SCOUT_OP_STATUS, .right = SCOUT__RIGHT_OPERATOR},
	[SCOUT_OP_TENANTS] = {scout__serve_tenants, NOTHING, .once = SCOUT_OP_STATUS, .right = SCOUT__RIGHT_OPERATOR},
	[SCOUT_OP_DROP] = {scout__serve_drop, RUNNING, .once = SCOUT_OP_STATUS, .right = SCOUT__RIGHT_OPERATOR},
	[SCOUT_OP_FEED] = {scout__serve_feed, PEER, .once = SCOUT_OP_STATUS},
	[SCOUT_OP_KEYS] = {scout__serve_keys, PEER, .take_back = scout__session_undo},
};

/* Refuse an operation that needs a peer, if it cannot be executed for this sender. Returns whether it was refused. */
SCOUT_ON_LOOP static bool
refuse_unfit(struct scout_server *s, struct scout__request *req)
{
	const struct scout__op *op = req->op;

	if (!req->peer && (req->frame->epoch == 0 || req->frame->epoch == s->epoch)) {
		scout__refuse(s, req->dest, op->opcode, op->corr, SCOUT_WIRE_NO_HELLO,
			      "this sender is no peer: it must send HELLO first");
		return true;
	}
	if (req->frame->epoch != s->epoch) {
		scout__refuse(s, req->dest, op->opcode, op->corr, SCOUT_WIRE_STALE_EPOCH,
			      "the frame is for epoch %016llx, this server's is %016llx; HELLO again",
			      (unsigned long long)req->frame->epoch, (unsigned long long)s->epoch);
		return true;
	}
	if (req->peer->judged != s->transport->n_rights) {
		const struct scout__str name = {req->peer->ns->name, req->peer->ns->name_len};

		if (scout__right_of(s, &req->peer->sender, &name) != SCOUT__RIGHT_NONE)
			req->peer->judged = s->transport->n_rights;
		else if (!operations[op->opcode].gives_back)
			return !scout__require_right(s, req, SCOUT__RIGHT_ENGINE, &name);
	}
	if (op->budget_us && req->waited_us >= op->budget_us && !operations[op->opcode].gives_back) {
		s->count.ops_expired++;
		scout__refuse(s, req->dest, op->opcode, op->corr, SCOUT_WIRE_EXPIRED,
			      "waited %llu us on its way, its budget was %u us", (unsigned long long)req->waited_us,
			      (unsigned)op->budget_us);
		return true;
	}
	if (req->peer->unanswered >= s->cfg.credits) {
		scout__refuse(
			s, req->dest, op->opcode, op->corr, SCOUT_WIRE_LIMIT,
			"%u operations of this peer are unanswered, as many as its credits allow: it must wait for replies",
			(unsigned)req->peer->unanswered);
		return true;
	}
	return false;
}

/* Refuse what the frame has had already. Returns whether it was refused. */
SCOUT_ON_LOOP static bool
refuse_second(struct scout_server *s, const struct scout__request *req)
{
	uint32_t kind = (1u << operations[req->op->opcode].once) & ~1u, had = s->transport->inbox.had & kind;

	s->transport->inbox.had |= kind;
	if (had)
		scout__refuse(s, req->dest, req->op->opcode, req->op->corr, SCOUT_WIRE_LIMIT,
			      "a second one in its frame: a frame may have one RESET, one CLEAR, and one of STATUS, "
			      "PEERS, TENANTS, DROP and FEED");
	return had;
}

SCOUT_ON_LOOP static void
dispatch(struct scout_server *s, struct scout__request *req)
{
	const struct scout__op *op = req->op;

	req->dest = req->peer ? &req->peer->dest : &s->transport->unknown_sender;
	req->deadline_us = deadline_of(s, op, req->waited_us);
	if (op->opcode > SCOUT_OP_LAST || !operations[op->opcode].serve) {
		s->count.ops_unknown++;
		scout__refuse(s, req->dest, op->opcode, op->corr, SCOUT_WIRE_UNKNOWN_OP,
			      "opcode %u is unknown: requests have 1..%d, but not %d (ERROR)", (unsigned)op->opcode,
			      SCOUT_OP_LAST, SCOUT_OP_ERROR);
		return;
	}
	s->count.ops[op->opcode]++;
	if (operations[op->opcode].need >= RUNNING && s->draining)
		scout__refuse(s, req->dest, op->opcode, op->corr, SCOUT_WIRE_SHUTDOWN, SCOUT__STOPPING_TEXT);
	else if ((operations[op->opcode].need == PEER
			  ? !refuse_unfit(s, req)
			  : scout__require_right(s, req, operations[op->opcode].right, NULL)) &&
		 !refuse_second(s, req))
		operations[op->opcode].serve(s, req);
}

/* A peer of another release. Its own library reads the version in the header of the refusal, and says the same. */
SCOUT_ON_LOOP static void
refuse_version(struct scout_server *s, struct scout__dest *dest, unsigned version, const char *who)
{
	const char *side = version < SCOUT_WIRE_VERSION ? "the peer" : "this server";

	scout__log_limited(&s->log, &s->limit_bad, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_WARN,
			   "refused %s: it speaks protocol version %u, this server speaks version %d: upgrade %s", who,
			   version, SCOUT_WIRE_VERSION, side);
	scout__refuse(s, dest, SCOUT_OP_ERROR, 0, SCOUT_WIRE_BAD_VERSION,
		      "the frame is of protocol version %u, this server speaks version %d: upgrade %s", version,
		      SCOUT_WIRE_VERSION, side);
}

SCOUT_ON_LOOP static void
bad_frame(struct scout_server *s, struct scout__dest *dest, int status, const void *data, size_t len)
{
	char who[SCOUT__WHO_BYTES];

	scout__peer_who(s, dest, who);
	if (status < 0) {
		s->count.frames_dropped++;
		scout__log_limited(&s->log, &s->limit_bad, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_WARN,
				   "dropped a message of %zu bytes from %s that is not of this protocol", len, who);
		return;
	}
	s->count.frames_bad++;
	if (status == SCOUT_WIRE_BAD_VERSION) {
		refuse_version(s, dest, scout__frame_version(data), who);
		return;
	}
	scout__log_limited(&s->log, &s->limit_bad, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_WARN,
			   "refused a frame of %zu bytes from %s: %s", len, who, scout__wire_name((unsigned)status));
	scout__refuse(s, dest, SCOUT_OP_ERROR, 0, (uint16_t)status, "the frame of %zu bytes is refused: %s", len,
		      scout__wire_name((unsigned)status));
}

/*
 * Execute the frame in hand, for as long as this turn lasts. Its sender is asked for each time: it may have left
 * between two turns.
 */
SCOUT_ON_LOOP static void
run_inbox(struct scout_server *s)
{
	struct scout__inbox *in = &s->transport->inbox;
	uint64_t end_us = s->now_us + OPS_US;
	struct scout__op op;
	struct scout__request req = {
		.peer = scout__peer_by_identity(s, s->transport->unknown_sender.identity,
						s->transport->unknown_sender.identity_len),
		.packet = in->packet,
		.frame = &in->frame,
		.op = &op,
	};

	for (uint32_t n = 1; scout__frame_next(&in->ops, &op); n++) {
		req.waited_us = in->waited_us + (s->now_us - in->read_us);
		dispatch(s, &req);
		if (n % OPS_PER_LOOK)
			continue;
		s->now_us = scout__now_us();
		if (s->now_us >= end_us && in->ops.left) {
			scout__dest_flush(s, &s->transport->unknown_sender);
			return;
		}
	}
	scout__dest_flush(s, &s->transport->unknown_sender);
	scout__packet_unref(s, in->packet);
	in->packet = NULL;
}

/*
 * The peer that @sender is: @peer has its ZeroMQ identity. A client may choose an identity, and when its connection has
 * ended, so may another one choose the same.
 */
SCOUT_ON_LOOP static struct scout__peer *
owner_of(struct scout_server *s, struct scout__peer *peer, const struct scout__dest *sender)
{
	if (!peer || sender->fd < 0 || sender->fd_inode == peer->dest.fd_inode)
		return peer;
	scout__peer_lose_identity(s, peer);
	return NULL;
}

/* The hook of the transport: the sender is in the scratch destination. Takes the packet. */
SCOUT_ON_LOOP static void
frame(struct scout_server *s, struct scout__packet *packet)
{
	struct scout__peer *peer = scout__peer_by_identity(s, s->transport->unknown_sender.identity,
							   s->transport->unknown_sender.identity_len);
	const void *data = zmq_msg_data(&packet->msg);
	size_t len = zmq_msg_size(&packet->msg);
	struct scout__inbox *in = &s->transport->inbox;
	int status = scout__frame_check(data, len, true, &in->frame);

	s->count.frames_received++;
	if (!peer || peer->ended_us) {
		scout__unsent_note_fd(&s->transport->unknown_sender, zmq_msg_get(&packet->msg, ZMQ_SRCFD));
		scout__conns_heard(s, s->transport->unknown_sender.fd);
		peer = owner_of(s, peer, &s->transport->unknown_sender);
	} else { /* it may leave before the last operation of its frame is answered */
		s->transport->unknown_sender.fd = peer->dest.fd;
		s->transport->unknown_sender.fd_inode = peer->dest.fd_inode;
	}
	if (status) {
		bad_frame(s, peer ? &peer->dest : &s->transport->unknown_sender, status, data, len);
		scout__dest_flush(s, &s->transport->unknown_sender);
		scout__packet_unref(s, packet);
		return;
	}
	in->packet = packet;
	in->ops = scout__frame_ops(data, len);
	in->read_us = s->now_us;
	in->waited_us = 0;
	in->had = 0;
	if (peer) {
		in->waited_us = scout__peer_heard(s, peer, in->frame.sent_us);
		scout__latency_add(&s->count.frame_wait, in->waited_us);
	}
	run_inbox(s);
}

void
scout__dispatch_resume(struct scout_server *s)
{
	uint64_t before_us = s->now_us;

	if (!s->transport->inbox.packet)
		return;
	run_inbox(s);
	scout__note_step(s, before_us);
}

SCOUT_ON_LOOP static void
take_back(struct scout_server *s, uint8_t opcode, uint64_t id)
{
	operations[opcode].take_back(s, id);
}

const struct scout__transport_hooks scout__dispatch_hooks = {
	.take_back = take_back,
	.frame = frame,
	.channel_broken = scout__channel_broken,
	.lease_message = scout__lease_message,
	.lease_ended = scout__lease_ended,
	.conn_ended = scout__peer_conn_ended,
	.who = scout__peer_who,
};
