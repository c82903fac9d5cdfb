/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "msg.h"
#include "shm.h"
#include "list.h"
#include "thread.h"

struct scout_server;
struct scout__conn;
struct scout__unsent;

/* Answers, and frames on their way out (reply.c). */

#define SCOUT__WHO_BYTES 64 /* "worker 0123456789abcdef (pid 12)" */

/* What a reply granted; the hook take_back takes it back if the reply does not leave. */
struct scout__undo {
	uint8_t opcode;
	uint64_t id;         /* of a session, store or retrieve */
	uint64_t arrived_us; /* when the LOOKUP came that is answered; 0: another operation */
};

/* Where replies go, and the replies of this turn. */
struct scout__dest {
	uint8_t identity[255];
	uint8_t identity_len;
	bool dirty; /* in transport.dirty */
	struct scout__list dirty_node;
	struct scout__writer w; /* frame in the making; len 0 when empty */
	uint32_t n_ops;
	struct scout__undo *undo;
	uint32_t n_undo, cap_undo;
	/* Of the ROUTER's connection, see unsent.c. */
	struct scout__unsent *unsent; /* NULL: nothing was sent yet */
	int fd;                       /* -1: unknown */
	uint64_t fd_inode;            /* of the socket that fd named when its first frame came */
	bool is_dropped;              /* it did not read, and its connection ends */
	struct scout__conn *conn;     /* its entry, see conns.c; NULL: none */
	struct scout__shm shm;
};

/*
 * Begin a reply of at most @body_bytes. Returns NULL when there is no memory for it (counted and logged): then nothing
 * is sent, and the caller takes back what the reply would have granted.
 */
SCOUT_ON_LOOP struct scout__writer *scout__reply_begin(struct scout_server *s, struct scout__dest *dest, uint8_t opcode,
						       uint16_t status, uint64_t corr, size_t body_bytes,
						       size_t *ret_op);
SCOUT_ON_LOOP void scout__reply_end(struct scout_server *s, struct scout__dest *dest, size_t op);
SCOUT_ON_LOOP void scout__reply_empty(struct scout_server *s, struct scout__dest *dest, uint8_t opcode, uint64_t corr);
/* A refusal. Counted, logged at debug. */
SCOUT_ON_LOOP __attribute__((format(printf, 6, 7))) void scout__refuse(struct scout_server *s, struct scout__dest *dest,
								       uint8_t opcode, uint64_t corr, uint16_t status,
								       const char *fmt, ...);
/* Refuse an operation: reading its body gave @status and @field. The text says what the field allows. True, for the condition that asks. */
SCOUT_ON_LOOP bool scout__refuse_body(struct scout_server *s, struct scout__dest *dest, const struct scout__op *op,
				      int status, const char *field);
/*
 * The reply just ended granted something: take the grant back if the frame cannot be sent. @arrived_us: when a LOOKUP
 * came, whose time is counted when the frame has left; else 0.
 */
SCOUT_ON_LOOP void scout__reply_grants(struct scout_server *s, struct scout__dest *dest, uint8_t opcode, uint64_t id,
				       uint64_t arrived_us);
/* Send a frame that was built apart; takes @buf (malloc). @id 0: it granted nothing. */
SCOUT_ON_LOOP void scout__reply_frame(struct scout_server *s, struct scout__dest *dest, uint8_t *buf, size_t len,
				      uint8_t opcode, uint64_t id);
SCOUT_ON_LOOP void scout__dest_init(struct scout__dest *dest);
SCOUT_ON_LOOP void scout__dest_flush(struct scout_server *s, struct scout__dest *dest);
SCOUT_ON_LOOP void scout__dest_drop(struct scout_server *s, struct scout__dest *dest);
SCOUT_ON_LOOP void scout__flush_all(struct scout_server *s);
