/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "list.h"
#include "msg.h"
#include "run_queue.h"
#include "thread.h"

struct scout_server;
struct scout__ns;
struct scout__packet;
struct scout__peer;
struct scout__pending_op;

#define SCOUT__ANSWER_MARGIN_US 5000u /* an answer leaves this long, or an eighth of its budget, before the end */

/* What an operation does with each of its pending operations. */
struct scout__pending_kind {
	size_t size; /* of its structure, whose first member is the scout__pending_op */
	void (*step)(struct scout_server *s, struct scout__run_item *item);
	/* Take back what was granted, since no answer has said so. NULL: nothing is granted. */
	void (*take_back)(struct scout_server *s, struct scout__pending_op *pending);
	/* Called before @pending is freed: free what only this kind has. NULL: nothing. */
	void (*end)(struct scout_server *s, struct scout__pending_op *pending);
};

/* What every operation has that is not answered yet. Each kind has a structure of its own that begins with this one. */
struct scout__pending_op {
	struct scout__run_item run;
	const struct scout__pending_kind *kind;
	struct scout__list of_peer;
	/* In ns.pool_waiters, ns.chunk_waiters, ns.record_waiters, peer.lease_waiters or fetch.ask_waiters. */
	struct scout__list waiting;
	struct scout__peer *peer;
	struct scout__ns *ns;
	struct scout__packet *packet;
	uint8_t opcode;
	uint32_t connection; /* of the peer, on which it came */
	uint64_t corr;
	uint64_t weights_gen; /* of the namespace when the operation came */
	uint64_t arrived_us;
	uint64_t deadline_us;              /* UINT64_MAX: none */
	uint64_t bytes;                    /* of memory, without those of the message; see request_bytes.h */
	uint8_t wait_hash[SCOUT_MAX_HASH]; /* hash of the chunk that it waits for */
};

/* The structure of @kind, zero after its scout__pending_op. NULL: no memory, already answered. */
SCOUT_ON_LOOP void *scout__pending_op_new(struct scout_server *s, const struct scout__pending_kind *kind,
					  struct scout__peer *peer, struct scout__packet *packet,
					  const struct scout__op *op, uint64_t deadline_us);
/* @bytes more were allocated for @pending, and will be freed with it. */
SCOUT_ON_LOOP void scout__pending_op_count(struct scout_server *s, struct scout__pending_op *pending, uint64_t bytes);
/* Free @pending without an answer; what it granted stays with its session and hold. */
SCOUT_ON_LOOP void scout__pending_op_free(struct scout_server *s, struct scout__pending_op *pending);
/* Refuse and free. */
SCOUT_ON_LOOP __attribute__((format(printf, 4, 5))) void scout__pending_op_refuse(struct scout_server *s,
										  struct scout__pending_op *pending,
										  uint16_t status, const char *fmt,
										  ...);
/* No answer is to be sent: take back what was granted, and free. */
SCOUT_ON_LOOP void scout__pending_op_cancel(struct scout_server *s, struct scout__pending_op *pending);
/* Cancel at most @n of the operations of @peer's earlier connections. Returns @n less their number; 0: there may be more. */
SCOUT_ON_LOOP uint32_t scout__pending_ops_cancel(struct scout_server *s, struct scout__peer *peer, uint32_t n);
#define SCOUT__STOPPING_TEXT "the server is stopping: reconnect when it is back"
/* The server stops: refuse what still waits, of all peers. */
SCOUT_ON_LOOP void scout__pending_ops_shut_down(struct scout_server *s);
/* Wake all pending operations of a list of waiters. */
SCOUT_ON_LOOP void scout__pending_ops_wake(struct scout_server *s, struct scout__list *waiters);
/* Wake at most @n pending operations of @ns from before the last RESET or CLEAR. Returns whether there are more. */
SCOUT_ON_LOOP bool scout__pending_ops_wake_outdated(struct scout_server *s, struct scout__ns *ns, uint32_t n);

/* Let @pending wait for the chunk of @hash; scout__chunk_wake() wakes it once. */
SCOUT_ON_LOOP void scout__chunk_wait(struct scout__pending_op *pending, const uint8_t *hash);
/* The chunk of @hash became readable, or never will be: wake the operations that wait for it. */
SCOUT_ON_LOOP void scout__chunk_wake(struct scout_server *s, struct scout__ns *ns, const uint8_t *hash);
/* When an operation is to be answered: a little before its budget ends, for the way back. */
SCOUT_ON_LOOP uint64_t scout__pending_op_answer_by(const struct scout__pending_op *pending);
