/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Frames from the server, by the socket or by the channel, and what each reply in them means to the link; courier thread only. A
 * reply is matched by its correlation id alone; a reply to nothing in flight is counted. A breach of the protocol ends the
 * connection after the frame, never in the middle: the caller may be walking the user's lists.
 */
#include "link.h"

#include <stdio.h>
#include <zmq.h>

#include "clock.h"
#include "ring.h"

/* ---- receiving ---- */

static void
text_of(const struct scout__op *op, char *buf, size_t len)
{
	struct scout__str text;

	/* A text that is cut still helps. */
	if (scout__get_text(op, &text) == SCOUT_WIRE_OK)
		(void)snprintf(buf, len, "%.*s", (int)text.len, text.p);
	else
		(void)snprintf(buf, len, "%s", scout__wire_name(op->status));
}

/* The server knows our token and told its secret in a reply that was lost: nobody can be that peer any more. */
static void SCOUT_ON_COURIER
become_new_peer(struct scout__link *link)
{
	scout__log(link->env->log, SCOUT_LOG_INFO,
		   "%s: the server's reply to an earlier HELLO was lost: we connect again as a new peer",
		   link->endpoint);
	(void)scout__draw_generation(&link->hello.token); /* without entropy, at boot, the next try draws it */
	link->hello.secret = (struct scout__secret){{0}};
	scout__link_lease_close(link);
	scout__link_lost(link, SCOUT_ERR_UNREACHABLE, "the server does not know this peer any more");
}

/*
 * Our stamps come from a server whose clock is, or was, ahead: the peer joins anew without them, and sends its last clear again.
 * False: there are none, so the refusal is for something else.
 */
static bool SCOUT_ON_COURIER
forget_stamps(struct scout__link *link, const char *text)
{
	if (link->hello.clear.joined == 0 && link->hello.clear.cleared == 0)
		return false;
	scout__log(link->env->log, SCOUT_LOG_WARN, "%s: joining anew, and clearing again: %s", link->endpoint, text);
	link->hello.clear = (struct scout__clear_state){.joined = 0};
	link->lost_stamps = true;
	scout__link_send_own(link, SCOUT_OP_HELLO);
	return true;
}

static void SCOUT_ON_COURIER
on_hello_reply(struct scout__link *link, const struct scout__op *op, uint64_t epoch)
{
	struct scout__hello_reply reply;
	const char *field;
	char text[512];

	if (op->status == SCOUT_WIRE_SECRET) {
		become_new_peer(link);
		return;
	}
	if (op->status != SCOUT_WIRE_OK) {
		text_of(op, text, sizeof(text));
		if (op->status == SCOUT_WIRE_RANGE && forget_stamps(link, text))
			return;
		scout__link_refused(link, scout__wire_error(op->status), text);
		return;
	}
	if (scout__get_hello_reply(op, &reply, &field) != SCOUT_WIRE_OK || epoch == 0 || reply.credits == 0) {
		scout__count(&link->env->stats->protocol_errors);
		scout__link_refused(
			link, SCOUT_ERR_PROTOCOL,
			"the server's HELLO reply breaks the protocol: are server and client of one release?");
		return;
	}
	link->credits = reply.credits < SCOUT__LINK_MAX_INFLIGHT ? reply.credits : SCOUT__LINK_MAX_INFLIGHT;
	link->epoch = epoch;
	link->hello.secret = reply.secret;
	link->peer_id = reply.id;
	scout__link_note_clear(link, &reply.clear);
	link->state = SCOUT__LINK_LEASING;
	link->state_since_us = scout__now_us();
	if (link->lease_bound && link->lease_epoch == epoch) {
		scout__link_bound(link);
		return;
	}
	scout__link_lease_close(link);
	if (reply.lease_path.len == 0 || !scout__link_lease_connect(link, &reply.lease_path))
		scout__link_leased(link);
}

static void SCOUT_ON_COURIER
on_internal(struct scout__link *link, uint8_t opcode, const struct scout__op *op, uint64_t epoch)
{
	if (opcode == SCOUT_OP_PING)
		link->ping_sent_us = 0;
	else if (opcode == SCOUT_OP_HELLO && link->state == SCOUT__LINK_GREETING)
		on_hello_reply(link, op, epoch);
}

/* Handle one reply. If the server says that it does not know us, the connection ends after this frame. */
static void SCOUT_ON_COURIER
on_reply(struct scout__link *link, const struct scout__op *op, uint64_t epoch)
{
	uint32_t i = scout__link_op_find(link, op->corr);

	if (i == SCOUT__LINK_NO_SLOT) {
		if (op->opcode == SCOUT_OP_ERROR && op->corr == 0) {
			text_of(op, link->reset_text, sizeof(link->reset_text));
			scout__log(link->env->log, SCOUT_LOG_ERROR, "%s: the server refused a frame: %s",
				   link->endpoint, link->reset_text);
			link->must_reset = true;
			link->reset_error = scout__wire_error(op->status);
		} else {
			scout__count(&link->env->stats->late_replies);
		}
		return;
	}
	struct scout__in_flight slot = link->in_flight[i];

	if (op->opcode != slot.opcode && op->opcode != SCOUT_OP_ERROR) {
		scout__count(&link->env->stats->protocol_errors);
		link->must_reset = true;
		link->reset_error = SCOUT_ERR_PROTOCOL;
		return; /* stays in flight: the reset ends it */
	}
	scout__link_op_drop(link, i);
	if (slot.internal) {
		on_internal(link, slot.opcode, op, epoch);
	} else if (op->status == SCOUT_WIRE_NO_HELLO || op->status == SCOUT_WIRE_STALE_EPOCH) {
		link->must_reset = true;
		link->reset_error = SCOUT_ERR_EPOCH;
		link->env->ops->ended(link->env->user, link, slot.cookie, NULL, SCOUT_ERR_EPOCH);
	} else {
		link->env->ops->ended(link->env->user, link, slot.cookie, op, 0);
	}
}

/*
 * As the answer to HELLO another version is a refusal: no later try will do better until server or library is replaced. Later
 * on it is a breach of the protocol, because HELLO was understood.
 */
static void SCOUT_ON_COURIER
other_version(struct scout__link *link, unsigned version)
{
	char text[160];

	(void)snprintf(text, sizeof(text),
		       "the server speaks protocol version %u, this library speaks version %d: upgrade %s", version,
		       SCOUT_WIRE_VERSION, version < SCOUT_WIRE_VERSION ? "the server" : "this library");
	if (link->state == SCOUT__LINK_GREETING)
		scout__link_refused(link, SCOUT_ERR_VERSION, text);
	else
		scout__link_lost(link, SCOUT_ERR_PROTOCOL, text);
}

/* Handle one frame, from socket or channel. May end the connection. */
static void SCOUT_ON_COURIER
on_frame(struct scout__link *link, const void *data, size_t len)
{
	struct scout__frame frame;
	struct scout__reader ops;
	struct scout__op op;
	int status;

	scout__count(&link->env->stats->frames_received);
	link->last_rx_us = scout__now_us();
	link->silence = (struct scout__patience){.looked_us = link->last_rx_us};
	status = scout__frame_check(data, len, false, &frame);
	if (status != SCOUT_WIRE_OK) {
		scout__count(&link->env->stats->protocol_errors);
		if (status == SCOUT_WIRE_BAD_VERSION)
			other_version(link, scout__frame_version(data));
		else
			scout__link_lost(link, SCOUT_ERR_PROTOCOL, "the server sent a malformed frame");
		return;
	}
	if (link->state > SCOUT__LINK_GREETING && frame.epoch != link->epoch) {
		scout__link_lost(link, SCOUT_ERR_EPOCH, "the server's epoch changed");
		return;
	}
	ops = scout__frame_ops(data, len);
	while (link->sock && scout__frame_next(&ops, &op))
		on_reply(link, &op, frame.epoch);
	scout__link_run_reset(link);
}

unsigned
scout__link_receive(struct scout__link *link, unsigned max)
{
	unsigned n = 0;
	zmq_msg_t msg;

	while (n < max && link->sock) {
		(void)zmq_msg_init(&msg);
		if (zmq_msg_recv(&msg, link->sock, ZMQ_DONTWAIT) < 0) {
			(void)zmq_msg_close(&msg);
			break;
		}
		n++;
		/* If the server is in this process, this is its memory, and only libzmq knows the order of accesses. */
		SCOUT__TSAN_ACQUIRE(zmq_msg_data(&msg));
		if (zmq_msg_more(&msg)) { /* the protocol has one part only */
			link->must_reset = true;
			link->reset_error = SCOUT_ERR_PROTOCOL;
		}
		on_frame(link, zmq_msg_data(&msg), zmq_msg_size(&msg));
		(void)zmq_msg_close(&msg);
	}
	return n;
}

unsigned
scout__link_channel_receive(struct scout__link *link, unsigned max)
{
	unsigned n = 0;

	scout__channel_push(&link->channel);
	while (n < max && scout__channel_is_open(&link->channel) && scout__link_channel_read(link)) {
		n++;
		on_frame(link, link->in_buf, link->channel.frame_len); /* may end the connection */
	}
	if (scout__channel_is_open(&link->channel) && link->channel.broken)
		scout__link_lost(link, SCOUT_ERR_PROTOCOL, "the channel through shared memory broke");
	return n;
}

void
scout__link_channel_rang(struct scout__link *link, unsigned max)
{
	bool lives = scout__channel_hear(&link->channel); /* before reading: what comes later rings again */

	(void)scout__link_channel_receive(link, max);
	if (!lives && scout__channel_is_open(&link->channel))
		scout__link_lost(link, SCOUT_ERR_UNREACHABLE, "the server closed the channel through shared memory");
}
