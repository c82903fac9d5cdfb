/* SPDX-License-Identifier: Apache-2.0 */
#include "msg.h"
#include "ops_internal.h"
#include "owed.h"
#include "peer.h"
#include "reply.h"
#include "session.h"

/*
 * FINISH: the request is over. Its session ends, and the reply leaves when the last chunk is given back. Loop thread.
 */

SCOUT_ON_LOOP static void
finish_reply(struct scout_server *s, struct scout__peer *peer, uint64_t corr, uint32_t n)
{
	(void)n;
	scout__reply_empty(s, &peer->dest, SCOUT_OP_FINISH, corr);
}

void
scout__serve_finish(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op)
{
	struct scout__session *session;
	const char *field = "";
	uint64_t ticket;
	int status = scout__get_one_u64(op, &ticket, &field);

	if (status) {
		scout__refuse_body(s, &peer->dest, op, status, field);
		return;
	}
	session = scout__require_session(s, peer, op, ticket);
	if (!session)
		return;
	scout__owed_note(&session->owed, peer, finish_reply, op->corr);
	scout__session_end(s, session, true);
}
