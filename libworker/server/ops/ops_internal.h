/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_SERVER_OPS_INTERNAL_H
#define SCOUT_SERVER_OPS_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "thread.h"

struct scout_server;
struct scout__ns;
struct scout__op;
struct scout__peer;
struct scout__pending_op;
struct scout__session;

/* What the files of this room call of each other. */

/* ---- require.c: false or NULL when @op was refused ---- */

/* The session of @ticket belongs to @peer: workers know tickets, too, and must not end the session. */
SCOUT_ON_LOOP struct scout__session *scout__require_session(struct scout_server *s, struct scout__peer *peer,
							    const struct scout__op *op, uint64_t ticket);

/* ---- weights.c ---- */

/* The weights version that @peer has said is its namespace's, or it has said none. False: @op was refused. */
SCOUT_ON_LOOP bool scout__require_weights(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op);
/* The namespace has another weights version from now on; no-op if it is the same. */
SCOUT_ON_LOOP void scout__weights_change(struct scout_server *s, struct scout__ns *ns, uint64_t weights);

/* ---- grants.c: what STORE and RETRIEVE have in common ---- */

/* What both require of a worker. False: @op was refused. */
SCOUT_ON_LOOP bool scout__require_transfer(struct scout_server *s, struct scout__peer *peer,
					   const struct scout__op *op);
/* Make the reply and the hold. False: refused, the pending operation is gone. */
SCOUT_ON_LOOP bool scout__grants_begin(struct scout_server *s, struct scout__pending_op *pending, uint8_t kind);
/* False: a new weights version or a clear has ended the operation: refused, the pending operation is gone. */
SCOUT_ON_LOOP bool scout__grants_go_on(struct scout_server *s, struct scout__pending_op *pending);
/* Grant the slot of @entry for the next chunk. */
SCOUT_ON_LOOP void scout__grants_put(struct scout__pending_op *pending, uint32_t entry);
/* The next chunk has no slot; @state says why. */
SCOUT_ON_LOOP void scout__grants_put_state(struct scout__pending_op *pending, uint16_t state);
/* The last chunk is in the reply: send it, as soon as the worker has all segments. */
SCOUT_ON_LOOP void scout__grants_answer(struct scout_server *s, struct scout__pending_op *pending);
/* Of a pending operation's kind. */
SCOUT_ON_LOOP void scout__grants_take_back(struct scout_server *s, struct scout__pending_op *pending);
SCOUT_ON_LOOP void scout__grants_end(struct scout_server *s, struct scout__pending_op *pending);

#endif
