/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch.h"
#include "group_walk.h"
#include "msg.h"
#include "ns.h"
#include "ops_internal.h"
#include "peer.h"
#include "lookup_op.h"
#include "reply.h"
#include "run_queue.h"
#include "server_core.h"
#include "session.h"

/*
 * DESIGN
 *
 * KEYS: which of these objects are there, each by itself? The steps are those of a lookup of several groups
 * (lookup_groups.c), without lengths: look into the pool, promise what is there, ask L2 once about the rest, promise
 * what L2 has. A promised key is a hit. The other keys are of two kinds, which the client must not confuse: not there,
 * or not known. A key is not known if the budget left it unasked, if the session could not promise it, or, with
 * prefetch=before_answer, if it has not arrived.
 *
 * A key whose STORE is under way is not waited for, and is not "not known": its writer may be gone, and then its slot
 * is set aside for dead_writer_ms.
 *
 * For each group the session keeps the objects of its part, in the order of the request, so RETRIEVE names them by
 * their place there.
 *
 * Threads: loop.
 */

/* Whether each part names a group of the namespace, and RETRIEVE can name all of it. False: @op was refused. */
SCOUT_ON_LOOP static bool
require_parts(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op,
	      const struct scout__keys_msg *m)
{
	for (uint32_t i = 0; i < m->n_parts; i++) {
		uint32_t stride;

		if (m->parts[i].group >= peer->ns->groups.n) {
			scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_GROUP,
				      "group = %u: this namespace has %u, and their numbers count from 0",
				      (unsigned)m->parts[i].group, (unsigned)peer->ns->groups.n);
			return false;
		}
		stride = peer->ns->by_group[m->parts[i].group].stride;
		if (m->parts[i].n <= SCOUT_MAX_CHUNKS / stride)
			continue;
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_RANGE,
			      "n = %u of group %u: must be at most %u, because an object of the group has %u hashes",
			      (unsigned)m->parts[i].n, (unsigned)m->parts[i].group, SCOUT_MAX_CHUNKS / stride,
			      (unsigned)stride);
		return false;
	}
	return true;
}

/* The session that @m opens. NULL: refused, the pending operation is gone. */
SCOUT_ON_LOOP static struct scout__session *
open_session(struct scout_server *s, struct scout__lookup_op *pending, const struct scout__keys_msg *m)
{
	const char *text = "";
	uint16_t refusal;
	struct scout__session *session = scout__session_new(s, pending->op.peer, m->ticket, 0, &refusal, &text);

	if (!session) {
		scout__pending_op_refuse(s, &pending->op, refusal, "%s", text);
		return NULL;
	}
	pending->session = session;
	session->lookup = &pending->op;
	session->by_key = true;
	for (uint32_t g = 0; g < session->n_groups; g++)
		session->of[g].needs = UINT32_MAX;      /* no prompt goes on after any of them */
	if (!scout__group_walk_make_room(s, pending)) { /* the refusal takes the session back */
		scout__pending_op_refuse(s, &pending->op, SCOUT_WIRE_LIMIT,
					 "the server has no memory for a longer session");
		return NULL;
	}
	for (uint32_t i = 0; i < m->n_parts; i++) {
		uint32_t reach = m->parts[i].n * pending->op.ns->by_group[m->parts[i].group].stride;

		session->n = session->n > reach ? session->n : reach;
	}
	return session;
}

void
scout__serve_keys(struct scout_server *s, struct scout__request *req)
{
	struct scout__keys_msg m;
	struct scout__lookup_op *pending;
	const char *field = "";
	int status = scout__get_keys(req->op, req->peer->ns->hash_bytes, &m, &field);

	if (status && scout__refuse_body(s, req->dest, req->op, status, field))
		return;
	if (!scout__require_weights(s, req->peer, req->op) || !require_parts(s, req->peer, req->op, &m) ||
	    !scout__require_memory(s, req, m.n))
		return;
	pending =
		scout__pending_op_new(s, &scout__lookup_groups_kind, req->peer, req->packet, req->op, req->deadline_us);
	if (!pending)
		return;
	pending->hashes = m.hashes;
	pending->tenant = m.tenant;
	pending->loads = s->fetch && s->fetch->load_at_lookup;
	pending->object = scout__group_walk_object;
	pending->walk = scout__group_walk_new_keys(s, pending, &m);
	if (!pending->walk) {
		s->count.out_of_memory++;
		scout__pending_op_refuse(s, &pending->op, SCOUT_WIRE_LIMIT, "the server is out of memory");
		return;
	}
	scout__pending_op_count(s, &pending->op, pending->walk->bytes);
	if (open_session(s, pending, &m))
		scout__run_queue_start(s, &pending->op.run, m.n);
}
