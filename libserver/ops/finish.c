/* SPDX-License-Identifier: Apache-2.0 */
#include "deferred_reply.h"
#include "keep.h"
#include "msg.h"
#include "ops_internal.h"
#include "peer.h"
#include "reply.h"
#include "server_core.h"
#include "session.h"
#include "state.h"

/*
 * FINISH: the request is over. Its session ends, and the reply leaves when the last chunk is given back. Loop thread.
 */

SCOUT_ON_LOOP static void
finish_reply(struct scout_server *s, struct scout__peer *peer, uint64_t corr, uint32_t n)
{
	struct scout__writer *w;
	size_t op;

	w = scout__reply_begin(s, &peer->dest, SCOUT_OP_FINISH, SCOUT_WIRE_OK, corr, SCOUT__FINISH_REPLY_BYTES, &op);
	if (!w)
		return;
	scout__put_finish_reply(w,
				&(struct scout__finish_reply){n & (SCOUT__OUTCOME_UNIT - 1), n / SCOUT__OUTCOME_UNIT});
	scout__reply_end(s, &peer->dest, op);
}

void
scout__serve_finish(struct scout_server *s, struct scout__request *req)
{
	struct scout__session *session;
	struct scout__finish_msg m;
	const char *field = "";
	int status = scout__get_finish(req->op, &m, &field);

	if (status && scout__refuse_body(s, req->dest, req->op, status, field))
		return;
	session = scout__require_session(s, req->peer, req->op, m.ticket);
	if (!session)
		return;
	session->hinted = m.hint == SCOUT_FINISH_UNLIKELY;
	s->count.hints_likely += m.hint == SCOUT_FINISH_LIKELY;
	s->count.hints_unlikely += m.hint == SCOUT_FINISH_UNLIKELY;
	if (s->state->keeps.n && (m.keep_ms || session->hinted))
		scout__session_end_older(s, session);
	if (m.keep_ms)
		scout__keep_begin(s, session, m.keep_ms);
	scout__deferred_reply_note(&session->deferred, req->peer, finish_reply, req->op->corr);
	scout__session_end(s, session, true);
}
