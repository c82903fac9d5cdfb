/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "msg.h"
#include "ns.h"
#include "ops_internal.h"
#include "packet.h"
#include "peer.h"
#include "reply.h"
#include "request_bytes.h"
#include "server_core.h"
#include "session.h"
#include "transport.h"
#include "state.h"

/*
 * What several operations require of their sender. Each function refuses the operation when the sender does not meet
 * the requirement; the caller then returns and does nothing more. Loop thread.
 */

struct scout__ns_group *
scout__require_group(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op, uint16_t group)
{
	if (group >= peer->ns->groups.n)
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_GROUP,
			      "group = %u: must be below %u, the number of groups of the namespace", (unsigned)group,
			      (unsigned)peer->ns->groups.n);
	else if (!(peer->tables >> group & 1))
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_GROUP,
			      "group = %u: this worker has registered no table of it", (unsigned)group);
	else
		return &peer->ns->by_group[group];
	return NULL;
}

struct scout__session *
scout__require_session(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op, uint64_t ticket)
{
	struct scout__session *session = scout__session_find(s, peer->ns, ticket);

	if (session && session->peer == peer)
		return session;
	scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_NO_SESSION,
		      "no session of this client has this ticket: it has ended, or no LOOKUP was sent with it");
	return NULL;
}

bool
scout__require_right(struct scout_server *s, struct scout__request *req, enum scout__right need,
		     const struct scout__str *name_space)
{
	bool is_drop = req->op->opcode == SCOUT_OP_DROP;
	const char *who = req->sender.who;
	enum scout__right right;

	/* What comes through a channel has no properties. */
	req->sender = req->peer ? req->peer->sender : scout__sender_of(s, &req->packet->msg);
	right = scout__right_of(s, &req->sender, name_space);
	if (right < need && right == SCOUT__RIGHT_ENGINE)
		scout__refuse(s, req->dest, req->op->opcode, req->op->corr, SCOUT_WIRE_RIGHTS,
			      "this %.3s is an engine's: %s is the operator's (%s)", who,
			      is_drop ? "dropping by name" : "listing peers and tenants", who);
	else if (right < need)
		scout__refuse(s, req->dest, req->op->opcode, req->op->corr, SCOUT_WIRE_RIGHTS,
			      "%s has no rights in namespace \"%.*s\"", who, name_space ? (int)name_space->len : 1,
			      name_space ? name_space->p : "*");
	return right >= need;
}

struct scout__ns *
scout__require_namespace(struct scout_server *s, const struct scout__request *req, const struct scout__str *name)
{
	struct scout__ns *ns = scout__ns_find(s, name);

	if (!ns)
		scout__refuse(s, req->dest, req->op->opcode, req->op->corr, SCOUT_WIRE_STATE,
			      "this server has no namespace \"%.*s\"", (int)name->len, name->p);
	return ns;
}

bool
scout__require_memory(struct scout_server *s, const struct scout__request *req, uint32_t n)
{
	uint64_t bytes = n * sizeof(struct scout__handle);

	/* Other operations of the same message may have counted it. */
	if (req->packet->n_pending == 0)
		bytes += scout__packet_bytes(req->packet);
	if (scout__request_bytes_fit(s, req->peer, bytes))
		return true;
	scout__refuse(s, req->dest, req->op->opcode, req->op->corr, SCOUT_WIRE_LIMIT,
		      "max_request_bytes = %" PRIu64 ": live requests take %" PRIu64 " bytes, %" PRIu64
		      " of them for operations of this peer that wait, and this one needs %" PRIu64,
		      s->cfg.max_request_bytes, s->state->request_bytes, req->peer->waiting_bytes, bytes);
	return false;
}
