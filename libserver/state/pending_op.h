/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_SERVER_PENDING_OP_H
#define SCOUT_SERVER_PENDING_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunk_index.h"
#include "list.h"
#include "msg.h"
#include "run_queue.h"
#include "thread.h"

struct scout_server;
struct scout__ask;
struct scout__hold;
struct scout__group_walk;
struct scout__ns;
struct scout__ns_group;
struct scout__packet;
struct scout__peer;
struct scout__pending_op;
struct scout__session;

enum scout__op_wait {
	SCOUT__OP_WAIT_RUN = 0,
	SCOUT__OP_WAIT_POOL,
	SCOUT__OP_WAIT_LEASE,
	SCOUT__OP_WAIT_ANSWER,
	SCOUT__OP_WAIT_LOADS /* LOOKUP: the walk is over, loads arrive */
};

#define SCOUT__ANSWER_MARGIN_US 5000u /* an answer leaves this long, or an eighth of its budget, before the end */

/* One object that a LOOKUP may need, and may ask L2 for. */
struct scout__object {
	struct scout__ns_group *group;
	const uint8_t *hash;
	uint32_t space;
	bool is_asked_for; /* false: known to be there, or not needed */
};

/* What an operation does with each of its pending operations. */
struct scout__pending_kind {
	void (*step)(struct scout_server *s, struct scout__run_item *item);
	/* Take back what was granted, since no answer has said so. NULL: nothing is granted. */
	void (*take_back)(struct scout_server *s, struct scout__pending_op *pending);
	/* LOOKUP: its object @number, as a question to L2 counts them. */
	struct scout__object (*object)(const struct scout__pending_op *pending, uint32_t number);
	/* Called before @pending is freed: free what only this kind has. NULL: nothing. */
	void (*end)(struct scout_server *s, struct scout__pending_op *pending);
};

/* An operation that is not answered yet. */
struct scout__pending_op {
	struct scout__run_item run;
	const struct scout__pending_kind *kind;
	struct scout__list of_peer;
	struct scout__list waiting; /* in ns.pool_waiters, ns.chunk_waiters, peer.lease_waiters or fetch.ask_waiters */
	struct scout__peer *peer;
	struct scout__ns *ns;
	struct scout__packet *packet;
	uint8_t opcode;
	uint8_t state; /* enum scout__op_wait: what it waits for */
	uint64_t corr;
	uint64_t weights_gen; /* of the namespace when the operation came */
	uint64_t arrived_us;
	uint64_t deadline_us;           /* UINT64_MAX: none */
	struct scout__session *session; /* LOOKUP: its own. Never NULL while the pending operation lives */
	uint64_t ticket;
	uint64_t serial; /* of the session that ADMIT and RETRIEVE name */
	const uint8_t *hashes;
	struct scout__str tenant;
	struct scout__ns_group *group; /* STORE and LOOKUP */
	uint32_t n, next, skip, expect;
	uint32_t first; /* LOOKUP: chunk that the walk begins with, after all that is skipped or promised already */
	uint32_t space;
	uint32_t from, to;
	uint32_t limited;
	bool renews;             /* LOOKUP: of a session that was answered before */
	bool ahead;              /* LOOKUP: goes on after what is not there */
	uint32_t keep_recent_to; /* LOOKUP ahead, limited: chunks before this one are yet to be renewed; 0: not so */
	uint32_t first_hole;     /* LOOKUP ahead: the first chunk that is not there; UINT32_MAX: none yet */
	uint8_t *present; /* LOOKUP ahead: a bit for each chunk that is there, then one for each that is in no pool */
	struct scout__user user; /* STORE: its session */
	uint64_t poll_end_us;
	uint64_t poll_interval_us;
	uint64_t poll_next_us;  /* when L2 is asked again */
	uint64_t wait_end_us;   /* RETRIEVE: when the wait for loads ends */
	uint32_t n_rounds;      /* LOOKUP: questions to L2 */
	uint32_t l2;            /* LOOKUP: chunks of the hit that were not in the pool */
	uint32_t load_part;     /* RETRIEVE: the part of its hold that has load_next */
	uint32_t load_next;     /* RETRIEVE: earlier chunks are being loaded. LOOKUP: earlier chunks have arrived */
	uint8_t *from_l2;       /* LOOKUP: a bit for each chunk, while loads come before the answer */
	struct scout__ask *ask; /* LOOKUP */
	struct scout__group_walk *walk;    /* LOOKUP: see lookup_groups.c; NULL: one group, whose hit is a run */
	uint8_t wait_hash[SCOUT_MAX_HASH]; /* hash of the chunk that it waits for */
	struct scout__hold *hold;          /* STORE and RETRIEVE: what was granted so far */
	struct scout__writer reply;        /* STORE and RETRIEVE: a frame of its own */
	size_t reply_op;
};

/* NULL: no memory, already answered. */
SCOUT_ON_LOOP struct scout__pending_op *scout__pending_op_new(struct scout_server *s,
							      const struct scout__pending_kind *kind,
							      struct scout__peer *peer, struct scout__packet *packet,
							      const struct scout__op *op, uint64_t deadline_us);
/* Free @pending without an answer; what it granted stays with its session and hold. */
SCOUT_ON_LOOP void scout__pending_op_free(struct scout_server *s, struct scout__pending_op *pending);
/* Refuse and free. */
SCOUT_ON_LOOP __attribute__((format(printf, 4, 5))) void scout__pending_op_refuse(struct scout_server *s,
										  struct scout__pending_op *pending,
										  uint16_t status, const char *fmt,
										  ...);
/* No answer is to be sent: take back what was granted, and free. */
SCOUT_ON_LOOP void scout__pending_op_cancel(struct scout_server *s, struct scout__pending_op *pending);
/* The peer's connection or the peer itself is gone: cancel all. */
SCOUT_ON_LOOP void scout__pending_ops_cancel(struct scout_server *s, struct scout__peer *peer);
#define SCOUT__STOPPING_TEXT "the server is stopping: reconnect when it is back"
/* The server stops: refuse what still waits, of all peers. */
SCOUT_ON_LOOP void scout__pending_ops_shut_down(struct scout_server *s);
/* Wake all pending operations of a list of waiters. */
SCOUT_ON_LOOP void scout__pending_ops_wake(struct scout_server *s, struct scout__list *waiters);

/* Let @pending wait for the chunk of @hash; scout__chunk_wake() wakes it once. */
SCOUT_ON_LOOP void scout__chunk_wait(struct scout__pending_op *pending, const uint8_t *hash);
/* The chunk of @hash became readable, or never will be: wake the operations that wait for it. */
SCOUT_ON_LOOP void scout__chunk_wake(struct scout_server *s, struct scout__ns *ns, const uint8_t *hash);
/* When an operation is to be answered: a little before its budget ends, for the way back. */
SCOUT_ON_LOOP uint64_t scout__pending_op_answer_by(const struct scout__pending_op *pending);

#endif
