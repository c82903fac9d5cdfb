/* SPDX-License-Identifier: Apache-2.0 */
#include "msg.h"
#include "ns.h"
#include "ops_internal.h"
#include "peer.h"
#include "reply.h"
#include "server_core.h"
#include "session.h"
#include "transport.h"

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
scout__require_only_report(struct scout_server *s, const struct scout__request *req)
{
	bool *has_report = &s->transport->inbox.has_report;

	if (*has_report)
		scout__refuse(s, req->dest, req->op->opcode, req->op->corr, SCOUT_WIRE_LIMIT,
			      "this is the second STATUS, PEERS or TENANTS of its frame: must be one for each frame");
	else
		return *has_report = true;
	return false;
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
