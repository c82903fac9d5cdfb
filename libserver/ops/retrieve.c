/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch.h"
#include "grants.h"
#include "hold.h"
#include "list.h"
#include "msg.h"
#include "ns.h"
#include "ops_internal.h"
#include "peer.h"
#include "pending_op.h"
#include "reply.h"
#include "run_queue.h"
#include "server_core.h"
#include "session.h"
#include "state.h"

/*
 * DESIGN
 *
 * RETRIEVE holds what is there, and waits for what L2 has: it starts the loads of its whole range, then grants in
 * order, part by part, each object as it arrives. It waits as long as its budget allows (the worker's
 * transfer_timeout_ms): each load ends by itself, since L2 gives up a load that makes no progress. What has not come
 * when the budget ends is missing. The hold comes before the promise is given back, so nothing can be evicted in
 * between.
 *
 * Threads: loop.
 */

#define COPY_MARGIN_US UINT64_C(100000) /* a RETRIEVE is answered this long, or an eighth of its budget, early */

struct retrieve_op {
	struct scout__grants_op grants;
	uint64_t serial;      /* of the session */
	uint64_t wait_end_us; /* when the wait for loads ends */
	uint32_t load_part;   /* the part of its hold that has load_next */
	uint32_t load_next;   /* earlier objects are being loaded */
};

/* The session's handle of object @i of the group of @part, if the object is still there; else entry NO_ENTRY. */
SCOUT_ON_LOOP static struct scout__handle
handle_of(const struct scout__hold_part *part, const struct scout__session *session, uint32_t i)
{
	struct scout__handle handle = {SCOUT__NO_ENTRY, 0};
	const struct scout__kept *kept;

	if (!session)
		return handle;
	kept = &session->of[part->group->number];
	if (i < kept->hit)
		handle = kept->handles[i];
	if (handle.entry != SCOUT__NO_ENTRY && !scout__index_valid(part->group->index, handle))
		handle.entry = SCOUT__NO_ENTRY;
	return handle;
}

/*
 * Whether @entry may soon be readable: it is being loaded, or stored by a worker after the lookup found it elsewhere.
 */
SCOUT_ON_LOOP static bool
may_come(const struct scout__hold_part *part, uint32_t entry)
{
	const struct scout__expected *x = scout__expected_of(part->group, entry);
	uint32_t rank = part->rank;

	if (!x || part->group->index->entries[entry].spoiled)
		return false;
	switch (scout__index_state(part->group->index, entry, rank)) {
	case SCOUT__SHARD_EXPECTED:
		return x->shards[rank].load;
	case SCOUT__SHARD_LOADING:
		return true;
	case SCOUT__SHARD_WRITING:
		return !x->shards[rank].load; /* else the load is late */
	default:
		return false;
	}
}

/* Retrieve one object of @part, which is being granted. False: it has to wait. */
SCOUT_ON_LOOP static bool
retrieve_one(struct scout_server *s, struct retrieve_op *pending, struct scout__session *session,
	     const struct scout__hold_part *part)
{
	struct scout__chunk_index *index = part->group->index;
	struct scout__handle handle = handle_of(part, session, pending->grants.next);

	if (handle.entry == SCOUT__NO_ENTRY || !scout__index_hold(index, handle.entry, part->rank)) {
		if (handle.entry != SCOUT__NO_ENTRY && s->now_us < pending->wait_end_us &&
		    may_come(part, handle.entry)) {
			scout__chunk_wait(&pending->grants.op, index->entries[handle.entry].hash);
			scout__timer_set(s, &pending->grants.op.run, pending->wait_end_us);
			return false;
		}
		scout__grants_put_state(&pending->grants, SCOUT_GRANT_MISSING);
		pending->grants.next++;
		return true;
	}
	scout__kept_use(s, &session->of[part->group->number], pending->grants.next++, part->row);
	scout__index_used(index, handle.entry, session->serial);
	scout__grants_put(&pending->grants, handle.entry);
	return true;
}

/* Start the loads of at most @n more objects, of all parts. Returns how many objects it looked at. */
SCOUT_ON_LOOP static uint32_t
start_loads(struct scout_server *s, struct retrieve_op *pending, const struct scout__session *session, uint32_t n)
{
	const struct scout__hold *hold = pending->grants.hold;
	uint32_t i = 0;

	while (pending->load_part < hold->n_parts) {
		const struct scout__hold_part *part = &hold->parts[pending->load_part];

		for (; i < n && pending->load_next < part->to; i++, pending->load_next++) {
			struct scout__handle handle = handle_of(part, session, pending->load_next);

			if (handle.entry != SCOUT__NO_ENTRY)
				scout__load_want(s, part->group, handle.entry, part->rank);
		}
		if (pending->load_next < part->to)
			break;
		if (++pending->load_part < hold->n_parts)
			pending->load_next = part[1].from;
	}
	return i;
}

/* At the end of a part, the next one begins. False: it was the last one. */
SCOUT_ON_LOOP static bool
has_more(struct retrieve_op *pending)
{
	struct scout__hold *hold = pending->grants.hold;

	while (pending->grants.next == scout__hold_now(hold)->to) {
		if (hold->part + 1 == hold->n_parts)
			return false;
		hold->part++;
		pending->grants.next = scout__hold_now(hold)->from;
	}
	return true;
}

SCOUT_ON_LOOP static void
retrieve_step(struct scout_server *s, struct scout__run_item *item)
{
	struct retrieve_op *pending = SCOUT__OWNER(item, struct retrieve_op, grants.op.run);
	struct scout__session *session = scout__session_find(s, pending->grants.op.ns, pending->grants.ticket);
	uint32_t left = SCOUT__SLICE_CHUNKS;

	scout__list_del(&pending->grants.op.waiting);
	scout__timer_clear(s, &pending->grants.op.run);
	if (scout__records_wait(s, &pending->grants.op) || !scout__grants_go_on(s, &pending->grants))
		return;
	/* A session that ends meanwhile takes its list with it: the rest is missing. */
	if (session && session->serial != pending->serial)
		session = NULL;
	if (s->fetch)
		left -= start_loads(s, pending, session, left);
	while (left && has_more(pending)) {
		const struct scout__hold_part *part = scout__hold_now(pending->grants.hold);

		for (; left && pending->grants.next < part->to; left--)
			if (!retrieve_one(s, pending, session, part))
				return;
	}
	if (has_more(pending))
		scout__run_queue_add(s, item);
	else
		scout__grants_answer(s, &pending->grants);
}

/* When RETRIEVE stops waiting for loads: the worker needs the rest of its budget to copy. */
static uint64_t
load_wait_end(const struct retrieve_op *pending)
{
	uint64_t margin_us = (pending->grants.op.deadline_us - pending->grants.op.arrived_us) / 8;

	if (pending->grants.op.deadline_us == UINT64_MAX)
		return UINT64_MAX;
	return pending->grants.op.deadline_us - (margin_us < COPY_MARGIN_US ? margin_us : COPY_MARGIN_US);
}

/* The session that @m names, if it may be retrieved from. */
SCOUT_ON_LOOP static struct scout__session *
session_of(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op,
	   const struct scout__retrieve_msg *m)
{
	struct scout__session *session = scout__session_find(s, peer->ns, m->ticket);

	if (session)
		scout__renewal_cut(s, session);
	if (!session)
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_NO_SESSION,
			      "no session has this ticket: it has ended, or no LOOKUP was sent with it");
	else if (session->lookup)
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_STATE,
			      "RETRIEVE before the reply to its LOOKUP: wait for that reply");
	else
		return session;
	return NULL;
}

/* Whether each part names a group that this worker has, and lies within the session. False: @op was refused. */
SCOUT_ON_LOOP static bool
require_parts(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op,
	      const struct scout__session *session, const struct scout__retrieve_msg *m)
{
	for (uint32_t i = 0; i < m->n_parts; i++) {
		uint32_t stride = peer->ns->by_group[m->parts[i].group].stride;

		if (m->parts[i].to > session->n) {
			scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_RANGE,
				      "hashes %u to %u of group %u: the lookup of this ticket has %u",
				      (unsigned)m->parts[i].from, (unsigned)m->parts[i].to, (unsigned)m->parts[i].group,
				      (unsigned)session->n);
			return false;
		}
		if (m->parts[i].from % stride || m->parts[i].to % stride) {
			scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_RANGE,
				      "hashes %u to %u of group %u: must be multiples of %u, an object of the group",
				      (unsigned)m->parts[i].from, (unsigned)m->parts[i].to, (unsigned)m->parts[i].group,
				      (unsigned)stride);
			return false;
		}
	}
	return true;
}

/* Fill in the parts of the hold. */
SCOUT_ON_LOOP static void
set_parts(struct retrieve_op *pending, const struct scout__retrieve_msg *m)
{
	for (uint32_t i = 0; i < m->n_parts; i++) {
		struct scout__ns_group *group = &pending->grants.op.ns->by_group[m->parts[i].group];
		struct scout__hold_part *part = &pending->grants.hold->parts[i];
		int32_t rank = scout__ns_group_rank(group, pending->grants.op.peer);

		part->group = group;
		part->rank = rank < 0 ? 0 : (uint32_t)rank; /* no chunk index, and nothing has a handle */
		part->row = part->rank * group->readers + scout__ns_group_reader(group, pending->grants.op.peer);
		part->from = m->parts[i].from / group->stride;
		part->to = m->parts[i].to / group->stride;
	}
	pending->grants.next = pending->load_next = pending->grants.hold->parts[0].from;
}

static const struct scout__pending_kind retrieve_kind = {sizeof(struct retrieve_op), retrieve_step,
							 scout__grants_take_back, scout__grants_end};

void
scout__serve_retrieve(struct scout_server *s, struct scout__request *req)
{
	struct scout__session *session;
	struct scout__retrieve_msg m;
	struct retrieve_op *pending;
	const char *field = "";
	int status = scout__get_retrieve(req->op, &m, &field);

	if (status && scout__refuse_body(s, req->dest, req->op, status, field))
		return;
	if (!scout__require_transfer(s, req->peer, req->op))
		return;
	for (uint32_t i = 0; i < m.n_parts; i++)
		if (!scout__require_group(s, req->peer, req->op, m.parts[i].group))
			return;
	session = session_of(s, req->peer, req->op, &m);
	if (!session || !require_parts(s, req->peer, req->op, session, &m))
		return;
	pending = scout__pending_op_new(s, &retrieve_kind, req->peer, req->packet, req->op, req->deadline_us);
	if (!pending)
		return;
	pending->grants.ticket = m.ticket;
	pending->serial = session->serial;
	for (uint32_t i = 0; i < m.n_parts; i++)
		pending->grants.n +=
			(m.parts[i].to - m.parts[i].from) / req->peer->ns->by_group[m.parts[i].group].stride;
	pending->wait_end_us = load_wait_end(pending);
	if (!scout__grants_begin(s, &pending->grants, SCOUT__HOLD_READ, m.n_parts))
		return;
	set_parts(pending, &m);
	scout__run_queue_start(s, &pending->grants.op.run, pending->grants.n);
}
