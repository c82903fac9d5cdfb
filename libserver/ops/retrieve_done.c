/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "deferred_reply.h"
#include "hold.h"
#include "msg.h"
#include "ns.h"
#include "ops_internal.h"
#include "peer.h"
#include "reply.h"
#include "server_core.h"

/*
 * RETRIEVE_DONE: the worker reads no more of what a RETRIEVE granted it. The reply leaves when the last chunk is given
 * back. Loop thread.
 */

SCOUT_ON_LOOP static void
retrieve_done_reply(struct scout_server *s, struct scout__peer *peer, uint64_t corr, uint32_t n)
{
	(void)n;
	scout__reply_empty(s, &peer->dest, SCOUT_OP_RETRIEVE_DONE, corr);
}

void
scout__serve_retrieve_done(struct scout_server *s, struct scout__request *req)
{
	struct scout__retrieve_done_msg m;
	struct scout__hold *hold;
	const char *field = "";
	int status = scout__get_retrieve_done(req->op, &m, &field);

	if (status && scout__refuse_body(s, req->dest, req->op, status, field))
		return;
	hold = scout__hold_find(s, req->peer, m.retrieve_id, SCOUT__HOLD_READ);
	if (!hold) {
		scout__refuse(s, req->dest, req->op->opcode, req->op->corr, SCOUT_WIRE_NO_SESSION,
			      "this worker has no retrieve %llu", (unsigned long long)m.retrieve_id);
		return;
	}
	if (m.mismatches > hold->n || (m.n && m.n != hold->n)) {
		scout__refuse(s, req->dest, req->op->opcode, req->op->corr, SCOUT_WIRE_RANGE,
			      "RETRIEVE_DONE: mismatches = %u, n = %u, but %u slots were granted",
			      (unsigned)m.mismatches, (unsigned)m.n, (unsigned)hold->n);
		return;
	}
	hold->ns->count.verified_hits += m.n > 0;
	hold->found = m.n ? malloc(m.n) : NULL; /* NULL: its chunks are not counted */
	if (hold->found)
		memcpy(hold->found, m.found, m.n);
	if (m.mismatches) {
		s->count.bugs_mismatches += m.mismatches;
		scout__log_limited(&s->log, &s->limit_bug, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_ERROR,
				   "BUG: worker %016llx saw %u slots change under retrieve %llu, which held them",
				   (unsigned long long)req->peer->id, (unsigned)m.mismatches,
				   (unsigned long long)m.retrieve_id);
		hold->spoiled = true;
	}
	scout__deferred_reply_note(&hold->deferred, req->peer, retrieve_done_reply, req->op->corr);
	scout__hold_end(s, hold, SCOUT__END_RELEASE, 0);
}
