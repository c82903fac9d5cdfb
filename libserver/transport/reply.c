/* SPDX-License-Identifier: Apache-2.0 */
#include "reply.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server_core.h"
#include "shm.h"
#include "transport.h"

/*
 * DESIGN
 *
 * Answers are collected by destination and leave once a turn, or when they are FRAME_BYTES: no turn ends with a long
 * copy. A large answer (a list of grants) is a frame of its own, which its pending operation builds and libzmq takes.
 *
 * A send never waits. EAGAIN means that a peer does not read its answers, for which its connection ends (unsent.c,
 * shm.c); EHOSTUNREACH means that the peer is gone. In both cases the peer never learns what the frame granted, so all
 * of that is taken back: sessions of lookups end, stores and retrieves are given up. That is why each destination has a
 * list of what its frame grants.
 *
 * Threads: loop.
 */

#define REPLY_BYTES 1024u     /* room to begin with */
#define KEEP_BYTES 65536u     /* buffers up to this size are kept for the next turn */
#define FRAME_BYTES 131072u   /* and at most one answer more */
#define HANDOVER_BYTES 32768u /* larger frames are given to libzmq instead of copied */

SCOUT_ON_LOOP static void
no_memory(struct scout_server *s)
{
	s->count.out_of_memory++;
	scout__log_limited(&s->log, &s->limit_memory, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_ERROR,
			   "out of memory: a reply is lost");
}

/* Take back what a reply granted, because the reply did not leave. */
SCOUT_ON_LOOP static void
undo(struct scout_server *s, const struct scout__undo *what)
{
	s->count.replies_undone++;
	s->transport->hooks->take_back(s, what->opcode, what->id);
}

void
scout__dest_init(struct scout__dest *dest)
{
	memset(dest, 0, sizeof(*dest));
	scout__list_init(&dest->dirty_node);
	dest->fd = -1;
	scout__shm_init(dest);
}

SCOUT_ON_LOOP static void
undo_all(struct scout_server *s, struct scout__dest *dest)
{
	struct scout__undo *list = dest->undo;
	uint32_t n = dest->n_undo;

	dest->undo = NULL;
	dest->n_undo = 0;
	dest->cap_undo = 0;
	for (uint32_t i = 0; i < n; i++)
		undo(s, &list[i]);
	free(list);
}

SCOUT_ON_LOOP static void
clean(struct scout__dest *dest)
{
	scout__list_del(&dest->dirty_node);
	dest->dirty = false;
	dest->w.len = 0;
	dest->w.bad = false;
	dest->n_ops = 0;
	if (dest->w.cap > KEEP_BYTES) {
		free(dest->w.buf);
		dest->w.buf = NULL;
		dest->w.cap = 0;
	}
}

/* Takes @buf in every case. Returns 0 or the errno of the send. */
SCOUT_ON_LOOP static int
send_owned(struct scout_server *s, struct scout__dest *dest, uint8_t *buf, size_t len)
{
	int rc;

	if (!dest->shm.is_used)
		return scout__unsent_send(s, dest, NULL, buf, len);
	rc = scout__shm_send(s, dest, buf, len);
	free(buf);
	return rc;
}

SCOUT_ON_LOOP static int
send_copied(struct scout_server *s, struct scout__dest *dest, const uint8_t *buf, size_t len)
{
	return dest->shm.is_used ? scout__shm_send(s, dest, buf, len) : scout__unsent_send(s, dest, buf, NULL, len);
}

SCOUT_ON_LOOP static void
note_failure(struct scout_server *s, int error)
{
	s->count.frames_dropped++;
	scout__log_limited(&s->log, &s->limit_undo, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_INFO,
			   "a reply could not be sent (%s); what it granted is taken back",
			   error == EHOSTUNREACH ? "the peer is gone"
			   : error == EAGAIN     ? "the peer does not read"
						 : zmq_strerror(error));
}

/* A frame has left: note how long its lookups took. */
SCOUT_ON_LOOP static void
note_lookups(struct scout_server *s, const struct scout__dest *dest, uint64_t now_us)
{
	for (uint32_t i = 0; i < dest->n_undo; i++)
		if (dest->undo[i].arrived_us)
			scout__latency_add(&s->count.lookup_time, now_us - dest->undo[i].arrived_us);
}

void
scout__dest_flush(struct scout_server *s, struct scout__dest *dest)
{
	uint64_t now_us;
	int error;

	if (dest->w.len == 0)
		return;
	now_us = scout__now_us();
	scout__frame_end(&dest->w, dest->n_ops, s->epoch, now_us);
	SCOUT_ASSERT(!dest->w.bad);
	if (dest->w.len > HANDOVER_BYTES) {
		error = send_owned(s, dest, dest->w.buf, dest->w.len);
		dest->w.buf = NULL;
		dest->w.cap = 0;
	} else {
		error = send_copied(s, dest, dest->w.buf, dest->w.len);
	}
	clean(dest);
	if (error) {
		note_failure(s, error);
		undo_all(s, dest);
	} else {
		s->count.frames_sent++;
		note_lookups(s, dest, now_us);
		dest->n_undo = 0;
	}
}

void
scout__dest_drop(struct scout_server *s, struct scout__dest *dest)
{
	clean(dest);
	free(dest->w.buf);
	dest->w.buf = NULL;
	dest->w.cap = 0;
	undo_all(s, dest);
}

void
scout__flush_all(struct scout_server *s)
{
	/* Undoing may answer other operations, which makes destinations dirty again. */
	while (!scout__list_empty(&s->transport->dirty))
		scout__dest_flush(s, SCOUT__OWNER(s->transport->dirty.next, struct scout__dest, dirty_node));
}

struct scout__writer *
scout__reply_begin(struct scout_server *s, struct scout__dest *dest, uint8_t opcode, uint16_t status, uint64_t corr,
		   size_t body_bytes, size_t *ret_op)
{
	size_t need = SCOUT_OP_HEADER_BYTES + body_bytes;

	/* By what there is and not by what this one may need: STATUS may need 2 MiB, and has some 10 KiB. */
	if (dest->n_ops == SCOUT_MAX_OPS || dest->w.len >= FRAME_BYTES || dest->w.len + need > SCOUT_MAX_FRAME)
		scout__dest_flush(s, dest);
	if (!scout__writer_reserve(&dest->w, (dest->w.len ? dest->w.len : SCOUT_FRAME_HEADER_BYTES) + need,
				   REPLY_BYTES)) {
		no_memory(s);
		return NULL;
	}
	if (dest->w.len == 0)
		scout__frame_begin(&dest->w);
	if (!dest->dirty) {
		dest->dirty = true;
		scout__list_add(&s->transport->dirty, &dest->dirty_node);
	}
	*ret_op = scout__op_begin(&dest->w, opcode, SCOUT_KIND_REPLY, status, corr, 0);
	return &dest->w;
}

void
scout__reply_end(struct scout_server *s, struct scout__dest *dest, size_t op)
{
	(void)s;
	scout__op_end(&dest->w, op);
	SCOUT_ASSERT(!dest->w.bad);
	dest->n_ops++;
}

void
scout__reply_empty(struct scout_server *s, struct scout__dest *dest, uint8_t opcode, uint64_t corr)
{
	size_t op;

	if (scout__reply_begin(s, dest, opcode, SCOUT_WIRE_OK, corr, 0, &op))
		scout__reply_end(s, dest, op);
}

/* Whether only the operator can mend it: a limit that he set is reached, or peers are configured differently. */
SCOUT_ON_LOOP static bool
is_for_the_operator(uint8_t opcode, uint16_t status)
{
	switch (status) {
	case SCOUT_WIRE_LIMIT:
	case SCOUT_WIRE_NO_ROOM:
	case SCOUT_WIRE_NAMESPACE:
	case SCOUT_WIRE_SHARD_BYTES:
	case SCOUT_WIRE_RIGHTS:
		return true;
	case SCOUT_WIRE_WEIGHTS: /* other operations: a RESET ended them, as it should */
	case SCOUT_WIRE_RANGE:
	case SCOUT_WIRE_ROLE:
		return opcode == SCOUT_OP_HELLO || opcode == SCOUT_OP_REGISTER;
	default:
		return false;
	}
}

SCOUT_ON_LOOP static void
log_refusal(struct scout_server *s, struct scout__dest *dest, uint8_t opcode, uint16_t status, const char *text)
{
	bool full = status == SCOUT_WIRE_LIMIT || status == SCOUT_WIRE_NO_ROOM;
	char who[SCOUT__WHO_BYTES];

	if (!s->log.fn)
		return;
	s->transport->hooks->who(s, dest, who);
	if (!is_for_the_operator(opcode, status)) {
		scout__log_limited(&s->log, &s->limit_refused, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_DEBUG,
				   "%s of %s refused (%s): %s", scout__op_name(opcode), who, scout__wire_name(status),
				   text);
		return;
	}
	/* Peers retry as long as the cause lasts. None of the three kinds hides another. */
	scout__log_limited(&s->log,
			   full                          ? &s->limit_full
			   : status == SCOUT_WIRE_RIGHTS ? &s->limit_rights
							 : &s->limit_mismatch,
			   s->now_us, SCOUT__WARN_INTERVAL_US, SCOUT_LOG_WARN, "%s of %s refused (%s): %s",
			   scout__op_name(opcode), who, scout__wire_name(status), text);
}

void
scout__refuse(struct scout_server *s, struct scout__dest *dest, uint8_t opcode, uint64_t corr, uint16_t status,
	      const char *fmt, ...)
{
	char text[512];
	struct scout__writer *w;
	va_list args;
	size_t op;

	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	s->count.ops_refused++;
	log_refusal(s, dest, opcode, status, text);
	s->count.refused[status <= SCOUT_WIRE_LAST ? status : SCOUT_WIRE_OK]++;
	w = scout__reply_begin(s, dest, opcode, status, corr, sizeof(uint16_t) + strlen(text), &op);
	if (!w)
		return;
	scout__put_text(w, text);
	scout__reply_end(s, dest, op);
}

bool
scout__refuse_body(struct scout_server *s, struct scout__dest *dest, const struct scout__op *op, int status,
		   const char *field)
{
	const char *rule = scout__field_rule(op, field);

	scout__refuse(s, dest, op->opcode, op->corr, (uint16_t)status, "%s: %s %s", scout__op_name(op->opcode), field,
		      rule ? rule : "is not as protocol.h says");
	return true;
}

void
scout__reply_grants(struct scout_server *s, struct scout__dest *dest, uint8_t opcode, uint64_t id, uint64_t arrived_us)
{
	if (dest->n_undo == dest->cap_undo) {
		uint32_t cap = dest->cap_undo ? dest->cap_undo * 2 : 16;
		struct scout__undo *list = realloc(dest->undo, cap * sizeof(*list));

		if (!list) {
			/* It cannot be noted, so it leaves now: then there is nothing to note. */
			struct scout__undo last = {opcode, id, arrived_us};
			uint64_t sent = s->count.frames_sent;

			scout__dest_flush(s, dest);
			if (s->count.frames_sent == sent)
				undo(s, &last);
			return;
		}
		dest->undo = list;
		dest->cap_undo = cap;
	}
	dest->undo[dest->n_undo++] = (struct scout__undo){opcode, id, arrived_us};
}

void
scout__reply_frame(struct scout_server *s, struct scout__dest *dest, uint8_t *buf, size_t len, uint8_t opcode,
		   uint64_t id)
{
	int error = send_owned(s, dest, buf, len);

	if (!error) {
		s->count.frames_sent++;
		return;
	}
	note_failure(s, error);
	if (id)
		undo(s, &(struct scout__undo){opcode, id, 0});
}
