/* SPDX-License-Identifier: Apache-2.0 */
#include "group_walk.h"
#include "msg.h"
#include "ns.h"
#include "ops_internal.h"
#include "peer.h"
#include "pending_op.h"
#include "reply.h"
#include "restorable.h"
#include "run_queue.h"
#include "session.h"

/*
 * ADMIT: the client says which range it will retrieve. Each group keeps the promises of the objects that a restore of
 * that range needs, and gives back the rest, from both ends and in steps. Loop thread.
 */

struct admit_op {
	struct scout__pending_op op;
	uint64_t ticket;
	uint64_t serial;   /* of the session */
	uint32_t from, to; /* in hashes; to = 0: the range is empty */
	uint32_t length;   /* that the session may promise afterwards */
};

SCOUT_ON_LOOP static void
admit_reply(struct scout_server *s, struct admit_op *pending, uint32_t kept)
{
	struct scout__writer *w;
	size_t op;

	w = scout__reply_begin(s, &pending->op.peer->dest, pending->op.opcode, SCOUT_WIRE_OK, pending->op.corr, 8, &op);
	if (w) {
		scout__put_admit_reply(w, kept);
		scout__reply_end(s, &pending->op.peer->dest, op);
	}
	scout__pending_op_free(s, &pending->op);
}

/* What a restore of the range needs from the group of @kept; nothing if the group has no such length. */
SCOUT_ON_LOOP static struct scout__need
need_of(const struct admit_op *pending, const struct scout__kept *kept)
{
	const struct scout__ns *ns = pending->op.ns;
	struct scout__need need = {0, 0};

	if (pending->to &&
	    !scout__need_of(&ns->groups.group[kept->group->number], ns->hash_tokens, pending->from, pending->to, &need))
		return (struct scout__need){0, 0};
	return need;
}

/* Give back from both ends until only the needed objects are left. Returns how many of @left objects are left. */
SCOUT_ON_LOOP static uint32_t
shrink(struct scout__kept *kept, const struct scout__need *need, uint32_t left)
{
	for (; left && kept->kept_to > need->to && kept->kept_to > kept->kept_from; left--) {
		scout__kept_drop_last(kept);
		scout__kept_forget(kept, kept->kept_to);
	}
	for (; left && kept->kept_from < need->from && kept->kept_from < kept->kept_to; left--) {
		scout__kept_drop_first(kept);
		scout__kept_forget(kept, kept->kept_from - 1);
	}
	return left;
}

/* Whether the session still promises all that a restore of @length hashes needs. */
SCOUT_ON_LOOP static bool
keeps_length(const struct scout__session *session, uint32_t length)
{
	const struct scout__ns *ns = session->ns;
	struct scout__need need;

	for (uint32_t g = 0; g < session->n_groups; g++) {
		const struct scout__kept *kept = &session->of[g];

		if (!scout__need_of(&ns->groups.group[g], ns->hash_tokens, session->skip, length, &need) ||
		    kept->n_holes)
			return false;
		if (need.from < need.to && !scout__group_is_vacant(kept->group) &&
		    (need.from < kept->kept_from || need.to > kept->kept_to))
			return false;
	}
	return true;
}

SCOUT_ON_LOOP static void
admit_step(struct scout_server *s, struct scout__run_item *item)
{
	struct admit_op *pending = SCOUT__OWNER(item, struct admit_op, op.run);
	struct scout__session *session = scout__session_find(s, pending->op.ns, pending->ticket);
	uint32_t left = SCOUT__SLICE_CHUNKS;
	uint32_t kept = 0;

	if (!session || session->serial != pending->serial) {
		scout__pending_op_refuse(s, &pending->op, SCOUT_WIRE_NO_SESSION, "the session ended meanwhile");
		return;
	}
	for (uint32_t g = 0; left && g < session->n_groups; g++) {
		struct scout__need need = need_of(pending, &session->of[g]);

		left = shrink(&session->of[g], &need, left);
		kept += session->of[g].kept_to - session->of[g].kept_from - session->of[g].n_holes;
	}
	if (left == 0) {
		scout__run_queue_add(s, item);
		return;
	}
	session->length = keeps_length(session, pending->length) ? pending->length : 0;
	admit_reply(s, pending, kept);
}

/* The ADMIT is over, answered or not: from now on its session may be renewed. */
SCOUT_ON_LOOP static void
admit_end(struct scout_server *s, struct scout__pending_op *op)
{
	const struct admit_op *pending = SCOUT__OWNER(op, struct admit_op, op);
	struct scout__session *session = scout__session_find(s, pending->op.ns, pending->ticket);

	if (session && session->serial == pending->serial)
		session->n_admits--;
}

static const struct scout__pending_kind admit_kind = {
	.size = sizeof(struct admit_op), .step = admit_step, .end = admit_end};

void
scout__serve_admit(struct scout_server *s, struct scout__request *req)
{
	struct scout__session *session;
	struct scout__admit_msg m;
	struct admit_op *pending;
	const char *field = "";
	uint32_t n = 0;
	int status = scout__get_admit(req->op, &m, &field);

	if (status && scout__refuse_body(s, req->dest, req->op, status, field))
		return;
	session = scout__require_session(s, req->peer, req->op, m.ticket);
	if (!session)
		return;
	if (session->by_key) {
		scout__refuse(s, req->dest, req->op->opcode, req->op->corr, SCOUT_WIRE_STATE,
			      "ADMIT of a session of KEYS: its promises last until FINISH");
		return;
	}
	scout__renewal_cut(s, session);
	if (session->lookup) {
		scout__refuse(s, req->dest, req->op->opcode, req->op->corr, SCOUT_WIRE_STATE,
			      "ADMIT before the reply to its LOOKUP: wait for that");
		return;
	}
	pending = scout__pending_op_new(s, &admit_kind, req->peer, req->packet, req->op, req->deadline_us);
	if (!pending)
		return;
	pending->ticket = m.ticket;
	pending->serial = session->serial;
	session->n_admits++;
	pending->from = m.from;
	pending->to = m.from < m.to ? m.to : 0; /* an empty range: give everything back, from the tail */
	session->is_ahead = false;
	/* Until it is known whether that length can still be restored, the session promises no length. */
	pending->length = session->length < pending->to ? session->length : pending->to;
	session->length = 0;
	if (pending->to)
		session->skip = pending->from;
	for (uint32_t g = 0; g < session->n_groups; g++)
		n += session->of[g].kept_to - session->of[g].kept_from;
	scout__run_queue_start(s, &pending->op.run, n);
}
