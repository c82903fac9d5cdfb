/* SPDX-License-Identifier: Apache-2.0 */
#include "msg.h"
#include "ns.h"
#include "ops_internal.h"
#include "peer.h"
#include "reply.h"
#include "session.h"

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
