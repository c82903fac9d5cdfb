/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch.h"
#include "msg.h"
#include "ns.h"
#include "ops_internal.h"
#include "peer.h"
#include "reply.h"
#include "server_core.h"

/*
 * DESIGN
 *
 * The weights version of a namespace, and RESET, which changes it. Everything that an older version has cached is
 * unreachable from that moment on (scout__ns_outdate); sessions and pending operations of the older version end. A peer
 * that has said a version is refused with SCOUT_WIRE_WEIGHTS until that version is the namespace's.
 *
 * Threads: loop.
 */

void
scout__weights_change(struct scout_server *s, struct scout__ns *ns, uint64_t weights)
{
	if (weights == ns->weights)
		return;
	scout__log_limited(&s->log, &s->limit_ns, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_INFO,
			   "namespace \"%s\": weights version %llu, was %llu", ns->name, (unsigned long long)weights,
			   (unsigned long long)ns->weights);
	if (s->fetch && !ns->weights)
		scout__log_limited(
			&s->log, &s->limit_ns, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_WARN,
			"namespace \"%s\": what was written to L2 before has no version, and can be hit "
			"after a restart by a peer that says none; set weights_version in every client and worker",
			ns->name);
	ns->weights = weights;
	scout__ns_outdate(s, ns, SCOUT_WIRE_WEIGHTS);
}

bool
scout__require_weights(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op)
{
	if (peer->weights == 0 || peer->weights == peer->ns->weights)
		return true;
	scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_WEIGHTS,
		      "this peer said weights version %llu, the namespace has %llu; HELLO again",
		      (unsigned long long)peer->weights, (unsigned long long)peer->ns->weights);
	return false;
}

void
scout__serve_reset(struct scout_server *s, struct scout__request *req)
{
	const char *field = "";
	uint64_t weights;
	int status = scout__get_one_u64(req->op, &weights, &field);

	if (status && scout__refuse_body(s, req->dest, req->op, status, field))
		return;
	/* A client decides. A worker only moves on from the version that it was in: a late one takes no peer back. */
	if (req->peer->role == SCOUT_ROLE_WORKER && !scout__require_weights(s, req->peer, req->op))
		return;
	scout__weights_change(s, req->peer->ns, weights);
	/* Our client says HELLO without a version until its reset is settled. From then on it has a version of its own. */
	if (req->peer->weights || req->peer->role == SCOUT_ROLE_CLIENT)
		req->peer->weights = weights;
	scout__reply_empty(s, req->dest, req->op->opcode, req->op->corr);
}
