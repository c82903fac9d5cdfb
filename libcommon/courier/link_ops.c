/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The operations of a link that are in flight, and the frame that collects the next ones; courier thread only. A correlation id is
 * (generation, slot) XOR corr_key: the table has room for the credits and for the link's own HELLO and PING, so taking a slot cannot fail.
 */
#include "link.h"

#include <stdlib.h>
#include <zmq.h>

#include "clock.h"

#define OVERDUE_HEARTBEATS 10u
#define OVERDUE_MIN_MS 1000u
#define HELLO_BYTES (512u + SCOUT_MAX_GROUPS * 16u) /* of a body: more than any */
#define HAND_OVER_BYTES SCOUT__LINK_OUT_INITIAL

/* ---- operations in flight ---- */

void
scout__link_ops_init(struct scout__link *link)
{
	for (uint32_t i = 0; i < SCOUT__LINK_SLOTS; i++)
		link->in_flight[i] = (struct scout__in_flight){
			.gen = 1, .next = i + 1 < SCOUT__LINK_SLOTS ? i + 1 : SCOUT__LINK_NO_SLOT};
	link->free_head = 0;
}

static uint64_t SCOUT_ON_COURIER
overdue_after_us(const struct scout__link *link)
{
	uint64_t ms = (uint64_t)link->env->heartbeat_ms * OVERDUE_HEARTBEATS;

	return (ms > OVERDUE_MIN_MS ? ms : OVERDUE_MIN_MS) * 1000;
}

static uint64_t SCOUT_ON_COURIER
take_slot(struct scout__link *link, uint8_t opcode, uint64_t cookie, bool internal)
{
	uint32_t i = link->free_head;
	struct scout__in_flight *slot = &link->in_flight[i];

	SCOUT_ASSERT(i != SCOUT__LINK_NO_SLOT); /* credits and SPARE bound the operations in flight */
	link->free_head = slot->next;
	slot->used = true;
	slot->internal = internal;
	slot->opcode = opcode;
	slot->cookie = cookie;
	slot->answer_by_us = UINT64_MAX;
	if (!internal && link->n_in_flight++ == 0)
		link->busy_since_us = scout__now_us();
	return ((uint64_t)slot->gen << 32 | (i + 1)) ^ link->corr_key;
}

void
scout__link_op_drop(struct scout__link *link, uint32_t i)
{
	struct scout__in_flight *slot = &link->in_flight[i];

	slot->used = false;
	slot->gen++;
	slot->next = link->free_head;
	link->free_head = i;
	if (!slot->internal)
		link->n_in_flight--;
}

/* The slot that a reply belongs to, or SCOUT__LINK_NO_SLOT. */
uint32_t
scout__link_op_find(const struct scout__link *link, uint64_t corr)
{
	uint64_t plain = corr ^ link->corr_key;
	uint32_t i = (uint32_t)plain - 1, gen = (uint32_t)(plain >> 32);

	if (i >= SCOUT__LINK_SLOTS || !link->in_flight[i].used || link->in_flight[i].gen != gen)
		return SCOUT__LINK_NO_SLOT;
	return i;
}

void
scout__link_ops_end(struct scout__link *link, int error)
{
	for (uint32_t i = 0; i < SCOUT__LINK_SLOTS; i++) {
		struct scout__in_flight *slot = &link->in_flight[i];
		uint64_t cookie = slot->cookie;

		if (!slot->used)
			continue;
		bool internal = slot->internal;

		scout__link_op_drop(link, i);
		if (!internal)
			link->env->ops->ended(link->env->user, link, cookie, NULL, error);
	}
}

/* This walks over all operations, so only once in a while: an operation without an answer is rare. */
bool
scout__link_find_overdue(struct scout__link *link, uint64_t now_us)
{
	if (link->n_in_flight == 0 || now_us < link->next_scan_us)
		return false;
	link->next_scan_us = now_us + overdue_after_us(link) / 4;
	for (uint32_t i = 0; i < SCOUT__LINK_SLOTS; i++)
		if (link->in_flight[i].used && link->in_flight[i].answer_by_us < now_us)
			return true;
	return false;
}

/* ---- sending ---- */

static void
free_frame(void *data, void *hint)
{
	(void)hint;
	free(data);
}

/*
 * A frame of many hashes is sent with its buffer, and the next frame gets a new one: a copy would cost as much as the encoding
 * did. A small frame is copied, and its buffer stays in the cache.
 */
static int SCOUT_ON_COURIER
send_socket(struct scout__link *link, size_t len)
{
	zmq_msg_t msg;
	int rc;

	if (len < HAND_OVER_BYTES || zmq_msg_init_data(&msg, link->out.buf, len, free_frame, NULL) != 0)
		return zmq_send(link->sock, link->out.buf, len, ZMQ_DONTWAIT);
	link->out.buf = NULL;
	link->out.cap = 0;
	rc = zmq_msg_send(&msg, link->sock, ZMQ_DONTWAIT);
	if (rc < 0)
		(void)zmq_msg_close(&msg);
	return rc;
}

static bool SCOUT_ON_COURIER
send_frame(struct scout__link *link, size_t len)
{
	if (scout__channel_is_open(&link->channel))
		return scout__channel_send(&link->channel, link->out.buf, len) == 0;
	/* Credits keep us below the high-water mark: only a connection that is closing can refuse. */
	return send_socket(link, len) >= 0;
}

void
scout__link_send(struct scout__link *link)
{
	size_t len = link->out.len;

	if (link->out_ops == 0 || !link->sock)
		return;
	scout__frame_end(&link->out, link->out_ops, link->epoch, scout__now_us());
	link->out.len = 0;
	link->out_ops = 0;
	SCOUT_ASSERT(!link->out.bad); /* room was made before each operation */
	if (!send_frame(link, len)) {
		link->must_reset = true; /* carried out by the next tick, because a user may be walking its lists now */
		return;
	}
	scout__count(&link->env->stats->frames_sent);
}

static struct scout__writer *SCOUT_ON_COURIER
begin_op(struct scout__link *link, uint8_t opcode, uint32_t budget_us, uint64_t corr)
{
	if (link->out_ops == 0) {
		link->out.len = 0;
		link->out.bad = false;
		scout__frame_begin(&link->out);
	}
	link->op_corr = corr;
	link->op_offset = scout__op_begin(&link->out, opcode, SCOUT_KIND_REQUEST, 0, corr, budget_us);
	link->op_open = true;
	return &link->out;
}

/* Whether so much waits in the channel that no operation may follow. */
static bool SCOUT_ON_COURIER
channel_is_full(const struct scout__link *link)
{
	return link->channel.backlog_bytes > SCOUT__LINK_BACKLOG;
}

bool
scout__link_has_room(const struct scout__link *link)
{
	return link->state == SCOUT__LINK_UP && link->n_in_flight < link->credits && !link->must_reset &&
	       !channel_is_full(link);
}

struct scout__writer *
scout__link_op_begin(struct scout__link *link, uint8_t opcode, uint32_t budget_us, uint64_t cookie, size_t body_bytes)
{
	size_t whole = SCOUT_FRAME_HEADER_BYTES + SCOUT_OP_HEADER_BYTES + body_bytes;

	SCOUT_DASSERT(!link->op_open);
	if (!scout__link_has_room(link) || whole > SCOUT_MAX_FRAME)
		return NULL;
	if (link->out_ops >= SCOUT_MAX_OPS || link->out.len + whole > SCOUT_MAX_FRAME)
		scout__link_send(link);
	if (link->must_reset || channel_is_full(link) ||
	    !scout__writer_reserve(&link->out, link->out.len + whole, SCOUT__LINK_OUT_INITIAL))
		return NULL;
	uint64_t corr = take_slot(link, opcode, cookie, false);

	if (link->hello.role == SCOUT_ROLE_CLIENT)
		link->in_flight[(uint32_t)(corr ^ link->corr_key) - 1].answer_by_us =
			scout__now_us() + budget_us + overdue_after_us(link);
	return begin_op(link, opcode, budget_us, corr);
}

uint64_t
scout__link_last_corr(const struct scout__link *link)
{
	return link->op_corr;
}

void
scout__link_op_end(struct scout__link *link)
{
	SCOUT_DASSERT(link->op_open);
	scout__op_end(&link->out, link->op_offset);
	link->op_open = false;
	link->out_ops++;
}

bool
scout__link_hello_again(struct scout__link *link, uint64_t weights, uint64_t cookie)
{
	struct scout__hello hello = link->hello;
	struct scout__writer *w = scout__link_op_begin(link, SCOUT_OP_HELLO, 0, cookie, HELLO_BYTES);

	if (!w)
		return false;
	hello.weights = weights;
	scout__put_hello(w, &hello);
	scout__link_op_end(link);
	return true;
}

void
scout__link_send_own(struct scout__link *link, uint8_t opcode)
{
	if (!scout__writer_reserve(&link->out,
				   link->out.len + SCOUT_FRAME_HEADER_BYTES + SCOUT_OP_HEADER_BYTES + HELLO_BYTES,
				   SCOUT__LINK_OUT_INITIAL))
		return; /* out of memory: the next heartbeat tries again */
	struct scout__writer *w = begin_op(link, opcode, 0, take_slot(link, opcode, 0, true));

	if (opcode == SCOUT_OP_HELLO)
		scout__put_hello(w, &link->hello);
	scout__link_op_end(link);
	scout__link_send(link);
}
