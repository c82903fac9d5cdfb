/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "msg.h"
#include "pending_op.h"
#include "thread.h"

struct scout_server;
struct scout__hold;
struct scout__peer;

/* What STORE and RETRIEVE have in common (grants.c). */

/* A STORE or RETRIEVE that is not answered yet: the first member of the structure of each. */
struct scout__grants_op {
	struct scout__pending_op op;
	uint64_t ticket;
	uint64_t stored_s;          /* STORE: Unix time, for readers of the slots; RETRIEVE: 0 */
	uint32_t n, next;           /* objects; RETRIEVE: next counts from the start of the prompt */
	struct scout__hold *hold;   /* what was granted so far */
	struct scout__writer reply; /* a frame of its own */
	size_t reply_op;
};

/* Whether a worker meets what both require. False: @op was refused. */
SCOUT_ON_LOOP bool scout__require_transfer(struct scout_server *s, struct scout__peer *peer,
					   const struct scout__op *op);
/* Make the reply and the hold, with @n_parts for the caller to fill in. False: refused, the pending operation is gone. */
SCOUT_ON_LOOP bool scout__grants_begin(struct scout_server *s, struct scout__grants_op *pending, uint8_t kind,
				       uint32_t n_parts);
/* False: a new weights version or a clear has ended the operation: refused, the pending operation is gone. */
SCOUT_ON_LOOP bool scout__grants_go_on(struct scout_server *s, struct scout__grants_op *pending);
/* Grant the slot of @entry for the next chunk. */
SCOUT_ON_LOOP void scout__grants_put(struct scout__grants_op *pending, uint32_t entry);
/* The next chunk has no slot; @state says why. */
SCOUT_ON_LOOP void scout__grants_put_state(struct scout__grants_op *pending, uint16_t state);
/* The last chunk is in the reply: send it, as soon as the worker has all segments. */
SCOUT_ON_LOOP void scout__grants_answer(struct scout_server *s, struct scout__grants_op *pending);
/* Of a pending operation's kind. */
SCOUT_ON_LOOP void scout__grants_take_back(struct scout_server *s, struct scout__pending_op *pending);
SCOUT_ON_LOOP void scout__grants_end(struct scout_server *s, struct scout__pending_op *pending);
