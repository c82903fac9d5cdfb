/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "clears.h"
#include "fetch.h"
#include "hold.h"
#include "msg.h"
#include "ns.h"
#include "ops.h"
#include "ops_internal.h"
#include "packet.h"
#include "peer.h"
#include "pending_op.h"
#include "reply.h"
#include "run_queue.h"
#include "segments.h"
#include "server_core.h"
#include "list.h"
#include "session.h"
#include "stale_tickets.h"
#include "state.h"

/*
 * DESIGN
 *
 * STORE and RETRIEVE: grants of slots, built slice by slice into a reply that becomes a frame of its own when it is
 * long. What is granted is noted in a hold as it is granted, so cancelling needs nothing but the hold.
 *
 * A grant may be answered only when the worker has the memory: every segment goes out on the lease connection before.
 * Where that socket is full, the finished reply waits (peer.lease_waiters).
 *
 * STORE waits for an extent that is being grown (ns.pool_waiters); when its budget ends, what it has is granted and the
 * rest gets no room. No store evicts what its own session stored or retrieved: a prompt longer than the pool keeps its
 * head.
 *
 * RETRIEVE holds what is there, and waits for what L2 has: it starts the loads of its whole range, then grants in
 * order, each chunk as it arrives. It waits as long as its budget allows (the worker's transfer_timeout_ms): each load
 * ends by itself, for one that does not get on is late. What has not come when the budget ends is missing. Its hold
 * comes before its promise unit goes, so that nothing can be evicted in between.
 *
 * Threads: loop.
 */

#define HEAD_BYTES (SCOUT_FRAME_HEADER_BYTES + SCOUT_OP_HEADER_BYTES + 16)
#define STORE_STEP_US 100u /* a slot that is used for the first time costs several page faults: look at the clock */
#define STORE_SPARES 256u  /* chunks of its own that a step may pass over when it looks for one to evict */
#define SMALL_BYTES 16384u /* shorter replies travel with others */
#define COPY_MARGIN_US UINT64_C(100000) /* a RETRIEVE is answered so long before its budget ends, or an eighth of it */

SCOUT_ON_LOOP static void
grants_take_back(struct scout_server *s, struct scout__pending_op *pending)
{
	if (pending->hold)
		scout__hold_undo(s, pending->hold);
	pending->hold = NULL;
}

SCOUT_ON_LOOP static void
grants_end(struct scout_server *s, struct scout__pending_op *pending)
{
	s->state->grant_bytes -= pending->reply.cap;
	free(pending->reply.buf);
}

/* The reply's buffer, and where its slots are noted. False: refused, the pending operation is gone. */
SCOUT_ON_LOOP static bool
begin(struct scout_server *s, struct scout__pending_op *pending, uint8_t kind)
{
	size_t bytes = HEAD_BYTES + (size_t)pending->n * SCOUT_GRANT_BYTES;

	if (scout__hold_name_taken(s, pending->peer, pending->corr)) {
		scout__pending_op_refuse(s, pending, SCOUT_WIRE_STATE,
					 "this correlation id names a transfer that is not done");
		return false;
	}
	if (s->state->grant_bytes + bytes > SCOUT__MAX_GRANT_BYTES) {
		scout__pending_op_refuse(s, pending, SCOUT_WIRE_LIMIT, "too many chunks are being granted at once");
		return false;
	}
	pending->reply.buf = malloc(bytes);
	if (!pending->reply.buf) {
		scout__pending_op_refuse(s, pending, SCOUT_WIRE_LIMIT, "the server is out of memory");
		return false;
	}
	pending->reply.cap = bytes;
	s->state->grant_bytes += bytes;
	pending->hold = scout__hold_new(s, pending->peer, kind, pending->n, pending->corr);
	if (!pending->hold) {
		scout__pending_op_refuse(s, pending, SCOUT_WIRE_LIMIT, "too many stores and retrieves are not done");
		return false;
	}
	scout__frame_begin(&pending->reply);
	pending->reply_op =
		scout__op_begin(&pending->reply, pending->opcode, SCOUT_KIND_REPLY, SCOUT_WIRE_OK, pending->corr, 0);
	scout__put_grants_head(&pending->reply, 0, pending->n);
	return true;
}

SCOUT_ON_LOOP static void
put_granted(struct scout__pending_op *pending, uint32_t entry)
{
	struct scout__hold *hold = pending->hold;
	struct scout__place place = scout__index_place(pending->ns->index, entry, hold->rank);
	struct scout__grant grant = {
		.segment = place.segment,
		.state = SCOUT_GRANT_GRANTED,
		.offset = place.offset,
		.generation = place.slot_gen,
	};

	hold->entries[hold->n++] = entry;
	scout__put_grant(&pending->reply, &grant);
}

SCOUT_ON_LOOP static void
put_state(struct scout__pending_op *pending, uint16_t state)
{
	struct scout__grant grant = {.state = state};

	scout__put_grant(&pending->reply, &grant);
}

/* Short: with the other replies of this turn. Long: as it is. */
SCOUT_ON_LOOP static void
send_reply(struct scout_server *s, struct scout__pending_op *pending, uint64_t id)
{
	struct scout__dest *dest = &pending->peer->dest;
	struct scout__writer reply = pending->reply;
	size_t head = SCOUT_FRAME_HEADER_BYTES + SCOUT_OP_HEADER_BYTES;
	uint8_t opcode = pending->opcode;
	uint64_t corr = pending->corr;
	struct scout__writer *w;
	size_t op;

	/* From here on the hold is the worker's, and taken back through its id. */
	s->state->grant_bytes -= reply.cap;
	pending->reply = (struct scout__writer){.buf = NULL};
	scout__pending_op_free(s, pending);
	if (reply.len > SMALL_BYTES) {
		scout__frame_end(&reply, 1, s->epoch, scout__now_us());
		SCOUT_ASSERT(!reply.bad);
		scout__reply_frame(s, dest, reply.buf, reply.len, id ? scout__hold_take_back : NULL, id);
		return;
	}
	w = scout__reply_begin(s, dest, opcode, SCOUT_WIRE_OK, corr, reply.len - head, &op);
	if (w) {
		scout__put_bytes(w, reply.buf + head, reply.len - head);
		scout__reply_end(s, dest, op);
		if (id)
			scout__reply_grants(s, dest, scout__hold_take_back, id, 0);
	} else if (id) {
		scout__hold_undo(s, s->state->holds[scout__map_get(&s->state->by_hold, id)]);
	}
	free(reply.buf);
}

SCOUT_ON_LOOP static void
answer(struct scout_server *s, struct scout__pending_op *pending)
{
	struct scout__hold *hold = pending->hold;
	uint64_t id = 0;

	if (hold->n) {
		if (!pending->peer->lease) {
			scout__pending_op_refuse(s, pending, SCOUT_WIRE_STATE, "the lease connection is gone");
			return;
		}
		if (!scout__segments_deliver(s, pending->peer)) {
			pending->state = SCOUT__OP_WAIT_LEASE;
			scout__list_add(&pending->peer->lease_waiters, &pending->waiting);
			return;
		}
		id = hold->id;
		hold->told = true;
	} else {
		scout__hold_undo(s, hold);
	}
	pending->hold = NULL;
	scout__patch_u64(&pending->reply, pending->reply_op + SCOUT_OP_HEADER_BYTES, id ? pending->corr : 0);
	scout__op_end(&pending->reply, pending->reply_op);
	SCOUT_ASSERT(!pending->reply.bad);
	send_reply(s, pending, id);
}

static const char not_in[] =
	"the namespace was cleared after this worker joined it: the worker neither stores nor loads "
	"until it sends CLEAR itself";

/* What a new weights version or a clear has done to the pending_op. True: it is refused. */
SCOUT_ON_LOOP static bool
is_outdated(struct scout_server *s, struct scout__pending_op *pending)
{
	if (pending->weights_gen != pending->ns->weights_gen)
		scout__pending_op_refuse(s, pending, pending->ns->ended_by, "%s", scout__ns_ended_text(pending->ns));
	else if (!scout__peer_is_in(pending->peer))
		scout__pending_op_refuse(s, pending, SCOUT_WIRE_CLEARED, "%s", not_in);
	else
		return false;
	return true;
}

/* ---- STORE ---- */

/* @entry is the newest of pending_op.hold: lookups of what is stored here will go the same way. */
SCOUT_ON_LOOP static void
note_order(const struct scout__pending_op *pending, uint32_t entry)
{
	const struct scout__hold *hold = pending->hold;

	/* Of what was there already, the hold has nothing: then the distance is another one. */
	if (hold->n > SCOUT__AHEAD && hold->n == pending->next + 1)
		scout__index_follows(pending->ns->index, hold->entries[hold->n - 1 - SCOUT__AHEAD], entry);
}

/* One chunk. GRANTED, PRESENT and NO_ROOM are in the reply. */
SCOUT_ON_LOOP static enum scout__reserve
store_one(struct scout_server *s, struct scout__pending_op *pending, struct scout__session *session)
{
	struct scout__chunk_index *index = pending->ns->index;
	const uint8_t *hash = pending->hashes + (size_t)pending->next * pending->ns->hash_bytes;
	enum scout__reserve what = SCOUT__RESERVE_NO_ROOM;
	uint32_t entry = SCOUT__NO_ENTRY;

	if (index && !pending->limited)
		what = scout__index_reserve_for(index, pending->space, hash, (uint32_t)pending->peer->rank,
						&pending->user, &entry);
	if (what == SCOUT__RESERVE_WAIT || what == SCOUT__RESERVE_AGAIN) {
		if (s->now_us < pending->deadline_us)
			return what;
		what = SCOUT__RESERVE_NO_ROOM;
	}
	if (what == SCOUT__RESERVE_GRANTED) {
		scout__expected_replaced(s, pending->ns, entry, pending->hold->rank);
		put_granted(pending, entry);
		note_order(pending, entry);
	} else if (what == SCOUT__RESERVE_PRESENT) {
		put_state(pending, SCOUT_GRANT_PRESENT);
	} else {
		/* The leading ones or none: a chunk without those before it is of no use. */
		pending->limited = 1;
		put_state(pending, SCOUT_GRANT_NO_ROOM);
	}
	/* Every rank stores the same keys, so one of them speaks for all. */
	if (session && entry != SCOUT__NO_ENTRY && pending->peer->rank == 0)
		scout__session_stored(s, session, scout__index_handle(index, entry), what == SCOUT__RESERVE_PRESENT);
	/* What this session stores next does not take its slot. */
	if (session && entry != SCOUT__NO_ENTRY)
		scout__index_used(index, entry, session->serial);
	pending->next++;
	return what;
}

SCOUT_ON_LOOP static void
store_step(struct scout_server *s, struct scout__run_item *item)
{
	struct scout__pending_op *pending = SCOUT__OWNER(item, struct scout__pending_op, run);
	struct scout__session *session = scout__session_find(s, pending->ns, pending->ticket);
	uint64_t end_us = scout__now_us() + STORE_STEP_US;
	uint32_t left = SCOUT__SLICE_CHUNKS;

	scout__list_del(&pending->waiting);
	scout__timer_clear(s, &pending->run);
	if (scout__records_wait(s, pending) || is_outdated(s, pending))
		return;
	pending->user.spares = STORE_SPARES;
	for (; left && pending->next < pending->n; left--) {
		enum scout__reserve what;

		if (left % 16 == 0 && scout__now_us() >= end_us)
			break;
		what = store_one(s, pending, session);
		if (what == SCOUT__RESERVE_AGAIN)
			break;
		if (what != SCOUT__RESERVE_WAIT)
			continue;
		pending->state = SCOUT__OP_WAIT_POOL;
		scout__list_add(&pending->ns->pool_waiters, &pending->waiting);
		scout__timer_set(s, &pending->run, pending->deadline_us);
		return;
	}
	if (pending->next < pending->n)
		scout__run_queue_add(s, item);
	else
		answer(s, pending);
}

/* What both operations need. */
SCOUT_ON_LOOP static bool
may_transfer(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op)
{
	const char *name = scout__op_name(op->opcode);

	if (peer->role != SCOUT_ROLE_WORKER)
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_ROLE, "%s is for workers", name);
	else if (!peer->lease)
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_STATE, "%s: no lease connection", name);
	else if (peer->rank < 0)
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_STATE, "%s: REGISTER first", name);
	else if (!scout__require_weights(s, peer, op))
		return false; /* before what a CLEAR ended: with the right weights it is in */
	else if (!scout__peer_is_in(peer))
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_CLEARED, "%s", not_in);
	else
		return true;
	return false;
}

static const struct scout__pending_kind store_kind = {
	.step = store_step, .take_back = grants_take_back, .end = grants_end};

void
scout__store(struct scout_server *s, struct scout__peer *peer, struct scout__packet *packet, const struct scout__op *op,
	     uint64_t deadline_us)
{
	struct scout__session *session;
	struct scout__store_msg m;
	struct scout__pending_op *pending;
	const char *field = "";
	uint16_t refusal;
	uint32_t space;
	int status = scout__get_store(op, peer->ns->hash_bytes, &m, &field);

	if (status) {
		scout__refuse(s, &peer->dest, op->opcode, op->corr, (uint16_t)status, "STORE: %s is wrong", field);
		return;
	}
	if (!may_transfer(s, peer, op))
		return;
	refusal = m.ticket ? scout__stale_tickets_find(s, peer->ns, m.ticket) : SCOUT_WIRE_OK;
	if (refusal) {
		scout__refuse(s, &peer->dest, op->opcode, op->corr, refusal,
			      refusal == SCOUT_WIRE_CLEARED
				      ? "a clear ended the session of this ticket: what it computed is of before"
				      : "the session of this ticket was of older weights: what it computed is, too");
		return;
	}
	space = scout__ns_space_make(s, peer->ns, &m.tenant, m.group);
	if (!space) {
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_LIMIT,
			      "no room for one more tenant, there are %u", (unsigned)peer->ns->n_spaces);
		return;
	}
	pending = scout__pending_op_new(s, &store_kind, peer, packet, op, deadline_us);
	if (!pending)
		return;
	pending->ticket = m.ticket;
	pending->hashes = m.hashes;
	pending->n = m.n;
	pending->space = space;
	session = scout__session_find(s, peer->ns, m.ticket);
	if (session && peer->ns->index)
		pending->user = scout__index_user(peer->ns->index, session->serial);
	if (begin(s, pending, SCOUT__HOLD_WRITE))
		scout__run_queue_start(s, &pending->run, pending->n);
}

/* ---- RETRIEVE ---- */

/* What the session has of chunk @i, if it is still there; else entry NO_ENTRY. */
SCOUT_ON_LOOP static struct scout__handle
handle_of(const struct scout__pending_op *pending, const struct scout__session *session, uint32_t i)
{
	struct scout__handle handle = {SCOUT__NO_ENTRY, 0};

	if (session && i < session->hit)
		handle = session->handles[i];
	if (handle.entry != SCOUT__NO_ENTRY && !scout__index_valid(pending->ns->index, handle))
		handle.entry = SCOUT__NO_ENTRY;
	return handle;
}

/*
 * It is not readable. Whether it may be soon: it is loaded, or stored by a worker after the lookup found it elsewhere.
 */
SCOUT_ON_LOOP static bool
may_come(const struct scout__pending_op *pending, uint32_t entry)
{
	const struct scout__expected *x = scout__expected_of(pending->ns, entry);
	uint32_t rank = pending->hold->rank;

	if (!x || pending->ns->index->entries[entry].spoiled)
		return false;
	switch (scout__index_state(pending->ns->index, entry, rank)) {
	case SCOUT__SHARD_EXPECTED:
		return x->shards[rank].load;
	case SCOUT__SHARD_LOADING:
		return true;
	case SCOUT__SHARD_WRITING:
		return !x->shards[rank].load; /* else it is late */
	default:
		return false;
	}
}

/* One chunk. False: it has to wait. */
SCOUT_ON_LOOP static bool
retrieve_one(struct scout_server *s, struct scout__pending_op *pending, struct scout__session *session)
{
	struct scout__chunk_index *index = pending->ns->index;
	struct scout__handle handle = handle_of(pending, session, pending->next);
	uint32_t rank = pending->hold->rank;

	if (handle.entry == SCOUT__NO_ENTRY || !scout__index_hold(index, handle.entry, rank)) {
		if (handle.entry != SCOUT__NO_ENTRY && s->now_us < pending->wait_end_us &&
		    may_come(pending, handle.entry)) {
			scout__chunk_wait(pending, index->entries[handle.entry].hash);
			scout__timer_set(s, &pending->run, pending->wait_end_us);
			return false;
		}
		put_state(pending, SCOUT_GRANT_MISSING);
		pending->next++;
		return true;
	}
	scout__session_use(s, session, pending->next++, rank * index->readers + pending->peer->reader);
	scout__index_used(index, handle.entry, session->serial);
	put_granted(pending, handle.entry);
	return true;
}

/* See that the chunks of the range are loaded. Returns how many it looked at. */
SCOUT_ON_LOOP static uint32_t
start_loads(struct scout_server *s, struct scout__pending_op *pending, const struct scout__session *session, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n && pending->load_next < pending->to; i++, pending->load_next++) {
		struct scout__handle handle = handle_of(pending, session, pending->load_next);

		if (handle.entry != SCOUT__NO_ENTRY)
			scout__load_want(s, pending->ns, handle.entry, pending->hold->rank);
	}
	return i;
}

SCOUT_ON_LOOP static void
retrieve_step(struct scout_server *s, struct scout__run_item *item)
{
	struct scout__pending_op *pending = SCOUT__OWNER(item, struct scout__pending_op, run);
	struct scout__session *session = scout__session_find(s, pending->ns, pending->ticket);
	uint32_t left = SCOUT__SLICE_CHUNKS;

	scout__list_del(&pending->waiting);
	scout__timer_clear(s, &pending->run);
	if (scout__records_wait(s, pending) || is_outdated(s, pending))
		return;
	/* A session that ends meanwhile takes its list with it: the rest is missing. */
	if (session && session->serial != pending->serial)
		session = NULL;
	if (pending->ns->expected)
		left -= start_loads(s, pending, session, left);
	for (; left && pending->next < pending->to; left--)
		if (!retrieve_one(s, pending, session))
			return;
	if (pending->next < pending->to)
		scout__run_queue_add(s, item);
	else
		answer(s, pending);
}

/* Until when loads are waited for: what has come by then is to be copied before the run item's time is over. */
static uint64_t
load_wait_end(const struct scout__pending_op *pending)
{
	uint64_t margin_us = (pending->deadline_us - pending->arrived_us) / 8;

	if (pending->deadline_us == UINT64_MAX)
		return UINT64_MAX;
	return pending->deadline_us - (margin_us < COPY_MARGIN_US ? margin_us : COPY_MARGIN_US);
}

/* The session that @m names, if it may be retrieved from. */
SCOUT_ON_LOOP static struct scout__session *
session_of(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op,
	   const struct scout__retrieve_msg *m)
{
	struct scout__session *session = scout__session_find(s, peer->ns, m->ticket);

	if (session && session->lookup && session->lookup->renews)
		scout__lookup_cut(s, session->lookup);
	if (!session)
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_NO_SESSION,
			      "no session has this ticket");
	else if (session->lookup)
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_STATE, "the lookup is not answered yet");
	else if (m->to > session->n)
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_RANGE,
			      "chunks %u to %u of a lookup of %u", (unsigned)m->from, (unsigned)m->to,
			      (unsigned)session->n);
	else
		return session;
	return NULL;
}

static const struct scout__pending_kind retrieve_kind = {
	.step = retrieve_step, .take_back = grants_take_back, .end = grants_end};

void
scout__retrieve(struct scout_server *s, struct scout__peer *peer, struct scout__packet *packet,
		const struct scout__op *op, uint64_t deadline_us)
{
	struct scout__session *session;
	struct scout__retrieve_msg m;
	struct scout__pending_op *pending;
	const char *field = "";
	int status = scout__get_retrieve(op, &m, &field);

	if (status) {
		scout__refuse(s, &peer->dest, op->opcode, op->corr, (uint16_t)status, "RETRIEVE: %s is wrong", field);
		return;
	}
	if (!may_transfer(s, peer, op))
		return;
	session = session_of(s, peer, op, &m);
	if (!session)
		return;
	pending = scout__pending_op_new(s, &retrieve_kind, peer, packet, op, deadline_us);
	if (!pending)
		return;
	pending->ticket = m.ticket;
	pending->serial = session->serial;
	pending->next = pending->load_next = m.from;
	pending->to = m.to;
	pending->n = m.to - m.from;
	pending->wait_end_us = load_wait_end(pending);
	if (begin(s, pending, SCOUT__HOLD_READ))
		scout__run_queue_start(s, &pending->run, pending->n);
}
