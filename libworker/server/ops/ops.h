/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_SERVER_OPS_H
#define SCOUT_SERVER_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include "thread.h"

struct scout_server;
struct scout__clear_state;
struct scout__dest;
struct scout__ns;
struct scout__op;
struct scout__packet;
struct scout__peer;
struct scout__pending_op;
struct scout__session;

/* One handler for each operation. */

/* Returns the peer of the sender from now on: NULL when it was refused and was none. */
SCOUT_ON_LOOP struct scout__peer *scout__serve_hello(struct scout_server *s, struct scout__peer *peer,
						     const struct scout__op *op, uint64_t sent_us);
SCOUT_ON_LOOP void scout__serve_ping(struct scout_server *s, struct scout__dest *dest, const struct scout__op *op);
SCOUT_ON_LOOP void scout__serve_reset(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op);
SCOUT_ON_LOOP void scout__session_admit(struct scout_server *s, struct scout__peer *peer, struct scout__packet *packet,
					const struct scout__op *op, uint64_t deadline_us);

SCOUT_ON_LOOP void scout__session_finish(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op);

SCOUT_ON_LOOP void scout__lookup(struct scout_server *s, struct scout__peer *peer, struct scout__packet *packet,
				 const struct scout__op *op, uint64_t deadline_us);
/* Answer a renewal now, with what it has found so far. */
SCOUT_ON_LOOP void scout__lookup_cut(struct scout_server *s, struct scout__pending_op *pending);

/*
 * The session of @ticket, for @pending to go on with from pending_op.next, which is set. NULL and *ret_status,
 * *ret_text when it is refused: then the session is as it was.
 */
SCOUT_ON_LOOP struct scout__session *scout__renew(struct scout_server *s, struct scout__peer *peer,
						  struct scout__pending_op *pending, uint64_t ticket,
						  uint16_t *ret_status, const char **ret_text);

SCOUT_ON_LOOP void scout__store(struct scout_server *s, struct scout__peer *peer, struct scout__packet *packet,
				const struct scout__op *op, uint64_t deadline_us);
SCOUT_ON_LOOP void scout__retrieve(struct scout_server *s, struct scout__peer *peer, struct scout__packet *packet,
				   const struct scout__op *op, uint64_t deadline_us);

SCOUT_ON_LOOP void scout__store_done(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op);
SCOUT_ON_LOOP void scout__retrieve_done(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op);

SCOUT_ON_LOOP void scout__ns_register(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op);

SCOUT_ON_LOOP void scout__status(struct scout_server *s, struct scout__dest *dest, const struct scout__op *op);

/* ---- clear.c ---- */

SCOUT_ON_LOOP void scout__clear(struct scout_server *s, struct scout__peer *peer, struct scout__packet *packet,
				const struct scout__op *op, uint64_t deadline_us);
/*
 * There was a CLEAR: carry it out here if it is later than the last one. Returns whether it is. @older: the names
 * before it, SCOUT__OLD_GENERATIONS; NULL: not known.
 */
SCOUT_ON_LOOP bool scout__ns_learn(struct scout_server *s, struct scout__ns *ns, uint64_t generation, uint64_t cleared,
				   const uint64_t *older);
/*
 * The namespace was cleared just now, by another server, whose clock may be behind the one by which our workers joined:
 * all of them are out.
 */
SCOUT_ON_LOOP void scout__clear_all_out(struct scout_server *s, struct scout__ns *ns);
/* Whether @peer may store and load. */
SCOUT_ON_LOOP bool scout__clear_is_in(const struct scout__peer *peer);
/* @peer said HELLO with @m. */
SCOUT_ON_LOOP void scout__clear_hello(struct scout_server *s, struct scout__peer *peer,
				      const struct scout__clear_state *m);
SCOUT_ON_LOOP struct scout__clear_state scout__clear_state_of(const struct scout__peer *peer);

#endif
