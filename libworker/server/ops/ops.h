/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_SERVER_OPS_H
#define SCOUT_SERVER_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include "thread.h"

struct scout_server;
struct scout__dest;
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

SCOUT_ON_LOOP void scout__clear(struct scout_server *s, struct scout__peer *peer, struct scout__packet *packet,
				const struct scout__op *op, uint64_t deadline_us);

#endif
