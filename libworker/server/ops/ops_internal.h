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

#endif
