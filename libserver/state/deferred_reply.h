/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "thread.h"

struct scout_server;
struct scout__peer;

/* The reply to an operation that is answered when the last chunk is given back (deferred_reply.c). */
struct scout__deferred_reply {
	/* NULL: no reply is owed. @n: chunks that became readable. */
	void (*reply)(struct scout_server *s, struct scout__peer *peer, uint64_t corr, uint32_t n);
	uint64_t corr;
	uint32_t connection; /* of the peer, when the operation came */
};

/* The operation @corr of @peer is to be answered by @reply. */
SCOUT_ON_LOOP void scout__deferred_reply_note(struct scout__deferred_reply *deferred, struct scout__peer *peer,
					      void (*reply)(struct scout_server *s, struct scout__peer *peer,
							    uint64_t corr, uint32_t n),
					      uint64_t corr);
/* Send the reply, if one is owed and the peer still has the connection that it asked on. */
SCOUT_ON_LOOP void scout__deferred_reply_send(struct scout_server *s, const struct scout__deferred_reply *deferred,
					      struct scout__peer *peer, uint32_t n);
