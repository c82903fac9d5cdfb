/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch.h"

#include <time.h>

#include "grants.h"
#include "hold.h"
#include "list.h"
#include "msg.h"
#include "ns.h"
#include "ops_internal.h"
#include "peer.h"
#include "peer_share.h"
#include "pending_op.h"
#include "reply.h"
#include "run_queue.h"
#include "server_core.h"
#include "session.h"
#include "stale_tickets.h"
#include "state.h"

/*
 * DESIGN
 *
 * STORE: slots for chunks that a worker has computed, granted in order. STORE waits for an extent that is being grown
 * (ns.pool_waiters); when its budget ends, it grants what it has and the rest gets no room. No store evicts what its
 * own session stored or retrieved: a prompt longer than the pool keeps its head.
 *
 * Threads: loop.
 */

#define STORE_STEP_US 100u /* a slot that is used for the first time costs several page faults: look at the clock */
#define LOOK_CHUNKS 16u    /* between two looks at the clock; a step takes at least this many */
#define STORE_SKIPS 256u   /* chunks of its own that a step may pass over when it looks for one to evict */

struct store_op {
	struct scout__grants_op grants;
	const uint8_t *hashes;
	struct scout__ns_group *group;
	uint32_t space;
	uint32_t limited;        /* 1: there was no room for a chunk, so the ones after it get none */
	struct scout__user user; /* its session */
	struct scout__reader descriptions;
	bool described;
};

/* @entry is the newest of grants_op.hold: later lookups will meet these entries in the same order. */
SCOUT_ON_LOOP static void
note_order(const struct store_op *pending, uint32_t entry)
{
	const struct scout__hold *hold = pending->grants.hold;

	/* The hold has no entries that were there already: then the distance differs. */
	if (hold->n > SCOUT__AHEAD && hold->n == pending->grants.next + 1)
		scout__index_follows(pending->group->index, hold->entries[hold->n - 1 - SCOUT__AHEAD], entry);
}

/* The hash of the object that @session stored last, or else found last. NULL: not known. */
SCOUT_ON_LOOP static const uint8_t *
last_of(const struct store_op *pending, const struct scout__session *session)
{
	const struct scout__kept *kept = session ? &session->of[pending->group->number] : NULL;
	const struct scout__chunk_index *index = pending->group->index;
	struct scout__handle last = {.entry = SCOUT__NO_ENTRY};

	/* Several readers store each a part of the objects. */
	if (kept && !session->by_key && pending->group->readers == 1 && kept->n_stored + kept->hit > 0)
		last = kept->n_stored ? kept->stored[kept->n_stored - 1] : kept->handles[kept->hit - 1];
	if (last.entry == SCOUT__NO_ENTRY)
		return NULL;
	last.entry &= ~SCOUT__STORED_PRESENT;
	return scout__index_valid(index, last) ? index->entries[last.entry].hash : NULL;
}

/* Keep the description that the STORE has for the chunk. @entry may be SCOUT__NO_ENTRY. */
SCOUT_ON_LOOP static void
describe(struct store_op *pending, const struct scout__session *session, uint32_t entry, const uint8_t *hash)
{
	uint16_t len;
	const char *bytes = scout__get_str(&pending->descriptions, &len);
	const uint8_t *before;

	if (len == 0 || entry == SCOUT__NO_ENTRY)
		return;
	before = pending->grants.next > 0 ? hash - pending->grants.op.ns->hash_bytes : last_of(pending, session);
	/* Beyond feed_bytes an object has none: readers know of it by its hash. */
	(void)scout__index_describe(pending->group->index, entry, before, bytes, len);
}

/* Store one chunk. GRANTED, PRESENT and NO_ROOM are in the reply. */
SCOUT_ON_LOOP static enum scout__reserve
store_one(struct scout_server *s, struct store_op *pending, struct scout__session *session)
{
	struct scout__chunk_index *index = pending->group->index;
	uint32_t rank = scout__hold_now(pending->grants.hold)->rank;
	const uint8_t *hash = pending->hashes + (size_t)pending->grants.next * pending->grants.op.ns->hash_bytes;
	enum scout__reserve what = SCOUT__RESERVE_NO_ROOM;
	uint32_t entry = SCOUT__NO_ENTRY;

	scout__peer_share_holds(s, pending->grants.op.peer, index ? index->n_ranks : 1);
	if (index && !pending->limited)
		what = scout__index_reserve(index, pending->space, hash, rank, &pending->user, &entry);
	if (what == SCOUT__RESERVE_WAIT || what == SCOUT__RESERVE_AGAIN) {
		if (s->now_us < pending->grants.op.deadline_us)
			return what;
		what = SCOUT__RESERVE_NO_ROOM;
	}
	if (what == SCOUT__RESERVE_GRANTED) {
		scout__expected_replaced(s, pending->group, entry, rank);
		scout__grants_put(&pending->grants, entry);
		note_order(pending, entry);
	} else if (what == SCOUT__RESERVE_PRESENT) {
		scout__grants_put_state(&pending->grants, SCOUT_GRANT_PRESENT);
	} else {
		/* Only leading chunks: a chunk without the chunks before it is of no use. */
		pending->limited = 1;
		scout__grants_put_state(&pending->grants, SCOUT_GRANT_NO_ROOM);
	}
	if (pending->described)
		describe(pending, session, entry, hash);
	/* Every rank stores the same keys, so one of them speaks for all. */
	if (session && entry != SCOUT__NO_ENTRY && rank == 0)
		scout__kept_stored(s, &session->of[pending->group->number], scout__index_handle(index, entry),
				   what == SCOUT__RESERVE_PRESENT);
	/* What this session stores next must not take this chunk's slot. */
	if (session && entry != SCOUT__NO_ENTRY)
		scout__index_used(index, entry, session->serial);
	pending->grants.next++;
	return what;
}

SCOUT_ON_LOOP static void
store_step(struct scout_server *s, struct scout__run_item *item)
{
	struct store_op *pending = SCOUT__OWNER(item, struct store_op, grants.op.run);
	struct scout__session *session = scout__session_find(s, pending->grants.op.ns, pending->grants.ticket);
	uint64_t end_us = scout__now_us() + STORE_STEP_US;
	uint32_t left = SCOUT__SLICE_CHUNKS, first = pending->grants.next;
	enum scout__reserve what = SCOUT__RESERVE_GRANTED;
	struct scout__ns *ns = pending->grants.op.ns;

	scout__list_del(&pending->grants.op.waiting);
	scout__timer_clear(s, &pending->grants.op.run);
	if (scout__records_wait(s, &pending->grants.op) || !scout__grants_go_on(s, &pending->grants))
		return;
	/* The chunk index may have been made since the last step. */
	if (pending->group->index)
		pending->grants.hold->parts[0].rank =
			(uint32_t)scout__ns_group_rank(pending->group, pending->grants.op.peer);
	if (session && pending->group->index && pending->user.turn == 0)
		pending->user = scout__index_user(pending->group->index, session->serial);
	pending->user.skips = STORE_SKIPS;
	pending->grants.stored_s = (uint64_t)time(NULL);
	for (; left && pending->grants.next < pending->grants.n; left--) {
		if (left % LOOK_CHUNKS == 0 && left < SCOUT__SLICE_CHUNKS && scout__now_us() >= end_us)
			break;
		what = store_one(s, pending, session);
		if (what == SCOUT__RESERVE_AGAIN || what == SCOUT__RESERVE_WAIT)
			break;
	}
	/* Windows and states know no run, and every rank stores the same keys. */
	if (pending->grants.hold->parts[0].rank == 0 &&
	    ns->groups.group[pending->group->number].policy == SCOUT_POLICY_ALL)
		scout__ceiling_stored(&ns->ceiling, pending->space, pending->hashes + (size_t)first * ns->hash_bytes,
				      ns->hash_bytes, pending->grants.next - first);
	if (what == SCOUT__RESERVE_WAIT) {
		scout__list_add(&ns->pool_waiters, &pending->grants.op.waiting);
		scout__timer_set(s, &pending->grants.op.run, pending->grants.op.deadline_us);
		return;
	}
	if (pending->grants.next < pending->grants.n)
		scout__run_queue_add(s, item);
	else
		scout__grants_answer(s, &pending->grants);
}

static const struct scout__pending_kind store_kind = {sizeof(struct store_op), store_step, scout__grants_take_back,
						      scout__grants_end};

void
scout__serve_store(struct scout_server *s, struct scout__request *req)
{
	struct scout__store_msg m;
	struct store_op *pending;
	const char *field = "";
	struct scout__ns_group *group;
	uint16_t refusal;
	uint32_t space;
	int status = scout__get_store(req->op, req->peer->ns->hash_bytes, &m, &field);

	if (status && scout__refuse_body(s, req->dest, req->op, status, field))
		return;
	if (!scout__require_transfer(s, req->peer, req->op) || !scout__require_memory(s, req, m.n))
		return;
	group = scout__require_group(s, req->peer, req->op, m.group);
	if (!group)
		return;
	refusal = m.ticket ? scout__stale_tickets_find(s, req->peer->ns, m.ticket) : SCOUT_WIRE_OK;
	if (refusal) {
		scout__refuse(
			s, req->dest, req->op->opcode, req->op->corr, refusal,
			refusal == SCOUT_WIRE_CLEARED
				? "a clear ended the session of this ticket: KV computed before the clear is not stored"
				: "the session of this ticket has older weights: KV computed with them is not stored");
		return;
	}
	space = scout__ns_space_make(s, req->peer->ns, &m.tenant, m.group);
	if (!space) {
		scout__refuse(
			s, req->dest, req->op->opcode, req->op->corr, SCOUT_WIRE_LIMIT,
			"%u pairs of tenant and group are in this namespace, and there is no room for one more (at most %u, less without memory)",
			(unsigned)req->peer->ns->tenants->n_spaces, SCOUT__MAX_SPACES);
		return;
	}
	pending = scout__pending_op_new(s, &store_kind, req->peer, req->packet, req->op, req->deadline_us);
	if (!pending)
		return;
	pending->grants.ticket = m.ticket;
	pending->hashes = m.hashes;
	pending->descriptions = m.descriptions;
	pending->described = m.described;
	pending->grants.n = m.n;
	pending->space = space;
	pending->group = group;
	if (!scout__grants_begin(s, &pending->grants, SCOUT__HOLD_WRITE, 1))
		return;
	pending->grants.hold->parts[0].group = group;
	pending->grants.hold->ticket = m.ticket ? m.ticket : pending->grants.hold->id;
	scout__run_queue_start(s, &pending->grants.op.run, pending->grants.n);
}
