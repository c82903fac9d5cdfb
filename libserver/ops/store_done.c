/* SPDX-License-Identifier: Apache-2.0 */
#include "deferred_reply.h"
#include "hold.h"
#include "msg.h"
#include "ops_internal.h"
#include "peer.h"
#include "reply.h"
#include "server_core.h"
#include "transport.h"

/*
 * STORE_DONE: the worker has copied what a STORE granted it. The reply says how many chunks became readable, and leaves
 * when the last slot is committed or given up. Loop thread.
 */

SCOUT_ON_LOOP static void
store_done_reply(struct scout_server *s, struct scout__peer *peer, uint64_t corr, uint32_t n)
{
	struct scout__writer *w;
	size_t op;

	w = scout__reply_begin(s, &peer->dest, SCOUT_OP_STORE_DONE, SCOUT_WIRE_OK, corr, 8, &op);
	if (!w)
		return;
	scout__put_store_done_reply(w, n);
	scout__reply_end(s, &peer->dest, op);
}

void
scout__serve_store_done(struct scout_server *s, struct scout__request *req)
{
	struct scout__store_done_msg m;
	struct scout__hold *hold;
	const char *field = "";
	int status = scout__get_store_done(req->op, &m, &field);

	if (status && scout__refuse_body(s, req->dest, req->op, status, field))
		return;
	hold = scout__hold_find(s, req->peer, m.store_id, SCOUT__HOLD_WRITE);
	if (!hold) {
		scout__refuse(s, req->dest, req->op->opcode, req->op->corr, SCOUT_WIRE_NO_SESSION,
			      "this worker has no store %llu", (unsigned long long)m.store_id);
		return;
	}
	if (m.n != hold->n && m.n != 0) { /* 0: it never saw the grants, and gives them up */
		scout__refuse(s, req->dest, req->op->opcode, req->op->corr, SCOUT_WIRE_RANGE,
			      "STORE_DONE: n = %u, but %u slots were granted", (unsigned)m.n, (unsigned)hold->n);
		return;
	}
	scout__deferred_reply_note(&hold->deferred, req->peer, store_done_reply, req->op->corr);
	/* Without rights, a worker may only give its slots back. */
	scout__hold_end(s, hold, SCOUT__END_COMMIT, req->peer->judged == s->transport->n_rights ? m.committed : 0);
}
