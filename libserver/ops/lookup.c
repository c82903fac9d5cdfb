/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "bits.h"
#include "fetch.h"
#include "group_walk.h"
#include "list.h"
#include "ns.h"
#include "ops_internal.h"
#include "packet.h"
#include "peer.h"
#include "lookup_op.h"
#include "peer_share.h"
#include "reply.h"
#include "run_queue.h"
#include "server_core.h"
#include "session.h"

#define STEP_US 100u

/*
 * DESIGN
 *
 * LOOKUP: how many leading chunks are readable by all ranks, or in L2? Each chunk is promised when it is counted, so
 * the answer is true when it is given. The walk looks into the pool; from the first chunk on that is not there, it also
 * looks into the answer to one question to L2 (l2_lookup.c). The walk stops at the first chunk that neither has, or
 * when max_promised is reached.
 *
 * The walk takes slices. FINISH, RESET or the end of the client may end the session meanwhile, and then
 * scout__session_end() answers the lookup too. If the budget ends first, the answer is the hit so far.
 *
 * Key polling: a lookup that expects more than it found sleeps and goes on where it stopped, at the next interval or
 * when that very chunk is stored here. reply_delay_us holds a finished answer back. Both are timers; nothing waits.
 *
 * prefetch=before_answer: the walk starts the loads; when the walk is over, the pending operation goes over its chunks
 * once more and waits for each. What has not arrived in time is given back and does not count.
 *
 * Chunks below `skip` are in the GPU already. Those that are cached, too, are remembered, so that the end of the
 * session can touch them; they are neither required nor promised.
 *
 * A lookup ahead keeps what is there by chunk: it notes a hole and goes on after it. The range that its session keeps
 * then has chunks without an entry, which count as nothing when they are given back.
 *
 * If max_promised ends it, the chunks after that count as used just now (lookup_keep_recent.c).
 *
 * This file is for a namespace of one group with policy all, whose objects are chunks; lookup_groups.c serves all
 * others.
 *
 * A renewal (renew.c) is a lookup whose walk begins after what its session promises.
 *
 * Threads: loop.
 */

/* What its session keeps, in a namespace with one group whose objects are chunks. */
static struct scout__kept *
kept_of(const struct scout__lookup_op *pending)
{
	return &pending->session->of[0];
}

static void
put_presence(struct scout__writer *w, const struct scout__lookup_op *pending, const struct scout__lookup_reply *m,
	     uint32_t known)
{
	const struct scout__ahead_reply reply = {
		.lookup = *m,
		.known = known,
		.present = pending->present,
		.in_l2 = pending->present + (pending->n + 7) / 8,
	};

	scout__put_ahead_reply(w, &reply);
}

/*
 * What the eviction policy learns from a lookup: how much is asked for, and how much of it is new. Once for each
 * session: a renewal asks for nothing that its lookup did not.
 */
SCOUT_ON_LOOP static void
tell_policy(struct scout_server *s, const struct scout__lookup_op *pending, uint32_t hit)
{
	struct scout__chunk_index *index = pending->group->index;
	struct scout__ns *ns = pending->op.ns;
	uint32_t known;

	if (!index || !pending->space || pending->renews)
		return;
	scout__index_asked(index, pending->space, pending->n);
	s->count.lookups_lost_chunks +=
		scout__index_behind_gap(index, pending->space, pending->hashes, hit, pending->n);
	known = scout__index_known_run(index, pending->space, pending->hashes, hit, pending->n);
	s->count.lookups_known_chunks += known - pending->skip;
	ns->count.known_chunks += known - pending->skip;
	ns->count.ceiling_chunks +=
		hit - pending->skip +
		scout__ceiling_seen(&ns->ceiling, pending->space, pending->hashes + (size_t)hit * ns->hash_bytes,
				    ns->hash_bytes, pending->n - hit);
	kept_of(pending)->kind = (uint8_t)scout__touch_kind((uint64_t)(pending->n - known) * ns->chunk_tokens);
}

SCOUT_ON_LOOP static void
answer(struct scout_server *s, struct scout__lookup_op *pending)
{
	struct scout__session *session = pending->session;
	struct scout__dest *dest = &pending->op.peer->dest;
	/* A renewal that was cut may have loads under way: what has not arrived does not count. */
	uint32_t known = pending->state == SCOUT__LOOKUP_WAITS_FOR_LOADS ? pending->load_next : kept_of(pending)->hit;
	uint32_t found = known < pending->first_hole ? known : pending->first_hole;
	/* The budget may end before the walk has passed the skipped chunks, which are a hit in any case. */
	uint32_t hit = found > pending->skip ? found : pending->skip;
	struct scout__lookup_reply m = {.hit = hit, .limited = pending->limited};
	bool renews = pending->renews;
	uint64_t ticket = session->ticket;
	uint64_t arrived_us = pending->op.arrived_us;
	struct scout__writer *w;
	size_t op;

	tell_policy(s, pending, hit);
	session->l2 += pending->ahead ? 0 : pending->l2;
	/* Chunks found in the pool before may have been admitted since: then the range is smaller than the count. */
	m.l2 = pending->ahead ? pending->l2 : session->l2;
	if (m.l2 > hit - pending->skip)
		m.l2 = hit - pending->skip;
	m.l1 = hit - pending->skip - m.l2;
	if (renews)
		s->count.lookups_renewed++;
	else
		scout__lookup_count(s, pending, &m, pending->n - pending->skip, m.l1 + m.l2);
	w = scout__reply_begin(s, dest, pending->op.opcode, SCOUT_WIRE_OK, pending->op.corr,
			       pending->ahead ? SCOUT__AHEAD_REPLY_BYTES(known) : SCOUT__LOOKUP_REPLY_BYTES, &op);
	if (!w) {
		scout__pending_op_cancel(s, &pending->op);
		return;
	}
	if (pending->ahead)
		put_presence(w, pending, &m, known);
	else
		scout__put_lookup_reply(w, &m);
	scout__reply_end(s, dest, op);
	/* A hit of a few chunks must not keep the room of a long prompt. */
	(void)scout__kept_resize(s, &session->of[0], session->of[0].hit);
	/* Free the lookup before its undoing is noted: that may send the frame, fail, and end this very session. */
	scout__pending_op_free(s, &pending->op);
	/*
	 * A renewal whose answer is lost leaves a session that promises more than its client knows, until it is
	 * admitted.
	 */
	if (!renews)
		scout__reply_grants(s, dest, SCOUT_OP_LOOKUP, ticket, arrived_us);
}

void
scout__renewal_cut(struct scout_server *s, struct scout__session *session)
{
	struct scout__lookup_op *pending =
		session->lookup ? SCOUT__OWNER(session->lookup, struct scout__lookup_op, op) : NULL;

	if (!pending || !pending->renews)
		return;
	if (pending->walk)
		scout__lookup_groups_cut(s, pending);
	else
		answer(s, pending);
}

/* The walk is over: answer now, or arrange to answer later. */
SCOUT_ON_LOOP static void
finish(struct scout_server *s, struct scout__lookup_op *pending)
{
	if (!scout__lookup_is_delayed(s, pending))
		answer(s, pending);
}

/* Chunk pending->next is not readable yet. True: it may still come, and @pending sleeps until the next look. */
SCOUT_ON_LOOP static bool
sleep_until_poll(struct scout_server *s, struct scout__lookup_op *pending)
{
	return pending->next < pending->expect &&
	       scout__lookup_sleep_until_poll(s, pending,
					      pending->hashes + (size_t)pending->next * pending->op.ns->hash_bytes);
}

/* The skipped chunks of this slice: remember those that are there. Returns how many it looked at. */
SCOUT_ON_LOOP static uint32_t
walk_skipped(struct scout__lookup_op *pending, const struct scout__chunk_index *index, uint32_t n)
{
	struct scout__kept *kept = kept_of(pending);
	uint32_t hash_bytes = pending->op.ns->hash_bytes;
	uint32_t end = pending->next + n;

	while (pending->next < end) {
		uint32_t entries[SCOUT__SLICE_CHUNKS];
		uint32_t found = 0;

		if (index && pending->space)
			found = scout__index_find_run(index, pending->space,
						      pending->hashes + (size_t)pending->next * hash_bytes,
						      end - pending->next, entries);
		for (uint32_t i = 0; i < found; i++)
			kept->handles[pending->next++] = scout__index_handle(index, entries[i]);
		if (pending->next < end)
			kept->handles[pending->next++] = (struct scout__handle){SCOUT__NO_ENTRY, 0};
		kept->hit = pending->next;
	}
	kept->kept_from = kept->kept_to = pending->next;
	return n;
}

/* Chunk @i counts: note where it is. */
SCOUT_ON_LOOP static void
note_tier(struct scout_server *s, struct scout__lookup_op *pending, uint32_t i, uint32_t entry)
{
	if (pending->ahead)
		scout__bit_set(pending->present, i);
	if (scout__index_is_hit(pending->group->index, entry))
		return;
	if (pending->ahead)
		scout__bit_set(pending->present + (pending->n + 7) / 8, i);
	pending->l2 += i < pending->first_hole;
	if (pending->loads)
		scout__load_want_all(s, pending->group, entry);
	if (pending->from_l2)
		scout__bit_set(pending->from_l2, i);
}

/* Chunk @i of a lookup ahead is not there, or did not arrive. */
SCOUT_ON_LOOP static void
note_hole(struct scout__lookup_op *pending, uint32_t i)
{
	scout__kept_hole(kept_of(pending), i);
	scout__bit_clear(pending->present, i);
	scout__bit_clear(pending->present + (pending->n + 7) / 8, i);
	if (pending->first_hole > i)
		pending->first_hole = i;
}

/* The walk goes on after a hole at pending_op.next. */
SCOUT_ON_LOOP static void
pass_hole(struct scout__lookup_op *pending)
{
	note_hole(pending, pending->next++);
	kept_of(pending)->hit = kept_of(pending)->kept_to = pending->next;
}

/*
 * Promise what the pool has, or expects, of the next @n chunks. Returns how many; if less than @n, the next chunk is
 * absent or its promise is refused.
 */
SCOUT_ON_LOOP static uint32_t
walk_pool(struct scout_server *s, struct scout__lookup_op *pending, uint32_t n)
{
	struct scout__kept *kept = kept_of(pending);
	struct scout__chunk_index *index = pending->group->index;
	const uint8_t *hashes = pending->hashes + (size_t)pending->next * pending->op.ns->hash_bytes;
	uint32_t entries[SCOUT__SLICE_CHUNKS];
	uint32_t found = 0;
	uint32_t i;

	if (!pending->space)
		pending->space = scout__ns_space(s, pending->op.ns, &pending->tenant, 0);
	if (index && pending->space)
		found = scout__index_find_run(index, pending->space, hashes, n, entries);
	for (i = 0; i < found; i++) {
		if (!scout__index_counts(index, entries[i]))
			break;
		if (!scout__index_promise(index, entries[i])) {
			pending->limited = 1;
			break;
		}
		scout__index_take_share(index);
		note_tier(s, pending, pending->next, entries[i]);
		kept->handles[pending->next++] = scout__index_handle(index, entries[i]);
		kept->hit = kept->kept_to = pending->next;
	}
	if (i > 0)
		scout__kept_promised(kept, (int)i);
	return i;
}

/* Walk the pool, and then L2. MORE: the slice is used up. TAKEN: up to the last chunk. */
SCOUT_ON_LOOP static enum scout__asked
walk(struct scout_server *s, struct scout__lookup_op *pending, uint32_t left)
{
	uint64_t end_us = 0;

	while (left > 0 && pending->next < pending->n) {
		uint32_t n = pending->n - pending->next < left ? pending->n - pending->next : left;
		enum scout__asked what;
		uint32_t done;

		/* Go through the answer of L2 chunk by chunk. */
		if (pending->ask)
			n = 1;
		done = walk_pool(s, pending, n);
		left -= done;
		if (done == n)
			continue;
		if (pending->limited)
			return SCOUT__ASKED_LIMITED;
		what = scout__l2_take_next(s, pending);
		if (what == SCOUT__ASKED_GAP && pending->ahead && pending->next >= pending->expect)
			pass_hole(pending);
		else if (what != SCOUT__ASKED_TAKEN)
			return what;
		else
			note_tier(s, pending, pending->next - 1, kept_of(pending)->handles[pending->next - 1].entry);
		left--;
		/* Room for a chunk may cost page faults. */
		if (end_us == 0)
			end_us = s->now_us + STEP_US;
		if (left % 16 == 0 && scout__now_us() >= end_us)
			break;
	}
	return pending->next < pending->n ? SCOUT__ASKED_MORE : SCOUT__ASKED_TAKEN;
}

/* ---- prefetch=before_answer ---- */

/* Chunk @i has not come: no chunk from it on counts. Give some of them back; true when all are given back. */
SCOUT_ON_LOOP static bool
cut(struct scout__lookup_op *pending, uint32_t at, uint32_t left)
{
	struct scout__kept *kept = kept_of(pending);

	for (; left > 0 && kept->kept_to > at; left--)
		scout__kept_drop_last(kept);
	kept->hit = pending->next = kept->kept_to;
	return kept->kept_to == at;
}

/* The walk is over: wait for the promised chunks, in order. */
SCOUT_ON_LOOP static void
arrive(struct scout_server *s, struct scout__lookup_op *pending)
{
	struct scout__chunk_index *index = pending->group->index;
	uint32_t left = SCOUT__SLICE_CHUNKS;

	for (; left > 0 && pending->load_next < pending->next; left--, pending->load_next++) {
		uint32_t i = pending->load_next;
		uint32_t entry = kept_of(pending)->handles[i].entry;

		if (entry == SCOUT__NO_ENTRY)
			continue;
		if (!scout__index_is_hit(index, entry) && scout__index_counts(index, entry) &&
		    s->now_us < pending->wait_end_us) {
			scout__chunk_wait(&pending->op, index->entries[entry].hash);
			scout__timer_set(s, &pending->op.run, pending->wait_end_us);
			return;
		}
		if (!scout__index_is_hit(index, entry) && pending->ahead) {
			note_hole(pending, i);
			continue;
		}
		if (!scout__index_is_hit(index, entry)) {
			if (!cut(pending, i, left))
				break;
			finish(s, pending);
			return;
		}
		pending->l2 += i < pending->first_hole && scout__bit(pending->from_l2, i);
	}
	if (pending->load_next < pending->next)
		scout__run_queue_add(s, &pending->op.run);
	else
		finish(s, pending);
}

/* The walk is over. */
SCOUT_ON_LOOP static void
walked(struct scout_server *s, struct scout__lookup_op *pending)
{
	scout__ask_drop(s, pending);
	if (!pending->from_l2) {
		finish(s, pending);
		return;
	}
	pending->state = SCOUT__LOOKUP_WAITS_FOR_LOADS;
	pending->load_next = pending->first;
	pending->l2 = 0;
	pending->wait_end_us = scout__pending_op_answer_by(&pending->op);
	arrive(s, pending);
}

/* Walk one slice. False: the walk goes on later. */
SCOUT_ON_LOOP static bool
walk_on(struct scout_server *s, struct scout__lookup_op *pending)
{
	uint32_t left = SCOUT__SLICE_CHUNKS;
	enum scout__asked what;

	if (pending->next < pending->skip)
		left -= walk_skipped(pending, pending->group->index,
				     pending->skip - pending->next < left ? pending->skip - pending->next : left);
	what = pending->next < pending->skip ? SCOUT__ASKED_MORE : walk(s, pending, left);
	switch (what) {
	case SCOUT__ASKED_WAIT:
		return false;
	case SCOUT__ASKED_MORE:
		if (s->now_us < scout__pending_op_answer_by(&pending->op)) {
			scout__run_queue_add(s, &pending->op.run);
			return false;
		}
		return true;
	case SCOUT__ASKED_GAP:
		if (sleep_until_poll(s, pending))
			return false;
		if (pending->ahead) { /* the chunk was expected, and is late */
			pass_hole(pending);
			scout__run_queue_add(s, &pending->op.run);
			return false;
		}
		return true;
	case SCOUT__ASKED_LIMITED:
		pending->limited = 1;
		pending->keep_recent_to = pending->ahead && pending->group->index && pending->space ? pending->n : 0;
		return true;
	default:
		return true;
	}
}

SCOUT_ON_LOOP static void
lookup_step(struct scout_server *s, struct scout__run_item *item)
{
	struct scout__lookup_op *pending = SCOUT__OWNER(item, struct scout__lookup_op, op.run);

	scout__list_del(&pending->op.waiting);
	scout__peer_share_promises(s, pending->op.peer);
	if (pending->op.weights_gen != pending->op.ns->weights_gen) {
		scout__pending_op_refuse(s, &pending->op, pending->op.ns->ended_by, "%s",
					 scout__ns_ended_text(pending->op.ns));
		return;
	}
	if (pending->state == SCOUT__LOOKUP_WAITS_TO_ANSWER) {
		answer(s, pending);
		return;
	}
	scout__timer_clear(s, &pending->op.run);
	if (pending->state == SCOUT__LOOKUP_WAITS_TO_RUN && scout__records_wait(s, &pending->op))
		return;
	if (pending->state == SCOUT__LOOKUP_WAITS_FOR_LOADS) {
		arrive(s, pending);
		return;
	}
	if (!pending->keep_recent_to && !walk_on(s, pending))
		return;
	if (pending->keep_recent_to > pending->next && scout__lookup_keep_recent(s, pending) &&
	    s->now_us < scout__pending_op_answer_by(&pending->op)) {
		scout__run_queue_add(s, item);
		return;
	}
	walked(s, pending);
}

SCOUT_ON_LOOP static struct scout__object
object_of(const struct scout__lookup_op *pending, uint32_t number)
{
	return (struct scout__object){
		.group = pending->group,
		.hash = pending->hashes + (size_t)number * pending->op.ns->hash_bytes,
		.space = pending->space,
		.is_asked_for = true,
	};
}

static const struct scout__pending_kind lookup_kind = {sizeof(struct scout__lookup_op), lookup_step,
						       scout__lookup_take_back, scout__lookup_end};

/* Whether the walk over a run answers @m: one group with policy all whose objects are chunks, from the start of the prompt. */
SCOUT_ON_LOOP static bool
is_run(const struct scout__ns *ns, const struct scout__lookup_msg *m)
{
	const struct scout__group *only = &ns->groups.group[0];

	return ns->groups.n == 1 && only->policy == SCOUT_POLICY_ALL && only->margin_tokens == 0 &&
	       ns->by_group[0].stride == 1 && m->first == 0 && m->beyond == 0 && m->more == 0;
}

/* Make room for what @pending knows of its objects. False: no memory. */
SCOUT_ON_LOOP static bool
make_bits(struct scout_server *s, struct scout__lookup_op *pending, const struct scout__lookup_msg *m)
{
	if (pending->op.kind != &lookup_kind) {
		pending->object = scout__group_walk_object;
		pending->walk = scout__group_walk_new(s, pending, m);
		if (pending->walk)
			scout__pending_op_count(s, &pending->op, pending->walk->bytes);
		return pending->walk;
	}
	pending->object = object_of;
	scout__pending_op_count(s, &pending->op, (m->n + 7) / 8 * UINT64_C(3));
	if (pending->ahead)
		pending->present = calloc((m->n + 7) / 8, 2);
	/* Without memory for this, the answer also counts what is on its way. */
	if (s->fetch && s->fetch->load_before_answer)
		pending->from_l2 = calloc((m->n + 7) / 8, 1);
	return !pending->ahead || pending->present;
}

/* The session that @m opens or renews. NULL and *ret_status, *ret_text when it is refused. */
SCOUT_ON_LOOP static struct scout__session *
session_of(struct scout_server *s, struct scout__lookup_op *pending, const struct scout__lookup_msg *m,
	   uint16_t *ret_status, const char **ret_text)
{
	struct scout__session *session;

	if (!(m->flags & SCOUT_LOOKUP_RENEW))
		session = scout__session_new(s, pending->op.peer, m->ticket, m->first + m->n, ret_status, ret_text);
	else
		session = scout__renew(s, pending, m->ticket, ret_status, ret_text);
	pending->session = session;
	if (!session)
		return NULL;
	session->lookup = &pending->op;
	if (!pending->walk) {
		pending->first = pending->next > m->skip ? pending->next : m->skip;
	} else if (!scout__group_walk_make_room(s, pending)) {
		*ret_status = SCOUT_WIRE_LIMIT;
		*ret_text = "the server has no memory for a longer session";
		return NULL; /* the refusal takes the session back, if it is new */
	}
	session->skip = m->skip;
	session->is_ahead = pending->ahead;
	return session;
}

void
scout__serve_lookup(struct scout_server *s, struct scout__request *req)
{
	struct scout__lookup_msg m;
	struct scout__lookup_op *pending;
	const char *text = "";
	uint16_t refusal;
	int status = scout__get_lookup(req->op, req->peer->ns->hash_bytes, &m, &text);

	if (status && scout__refuse_body(s, req->dest, req->op, status, text))
		return;
	if (!scout__require_weights(s, req->peer, req->op) || !scout__require_memory(s, req, m.first + m.n))
		return;
	pending = scout__pending_op_new(s, is_run(req->peer->ns, &m) ? &lookup_kind : &scout__lookup_groups_kind,
					req->peer, req->packet, req->op, req->deadline_us);
	if (!pending)
		return;
	pending->group = &req->peer->ns->by_group[0];
	pending->hashes = m.hashes;
	pending->tenant = m.tenant;
	pending->n = m.n;
	pending->skip = m.skip;
	pending->expect = m.expect;
	pending->space = scout__ns_space(s, req->peer->ns, &m.tenant, 0);
	pending->ahead = m.flags & SCOUT_LOOKUP_AHEAD;
	pending->loads = s->fetch && (s->fetch->load_at_lookup || m.flags & SCOUT_LOOKUP_LOAD);
	pending->first_hole = UINT32_MAX;
	/* Without an interval, the server asks L2 for the keys once. */
	pending->poll_end_us = m.poll_interval_ms ? s->now_us + (uint64_t)m.poll_timeout_ms * 1000 : 0;
	pending->poll_interval_us = m.poll_interval_ms * UINT64_C(1000);
	if (!make_bits(s, pending, &m)) {
		s->count.out_of_memory++;
		scout__pending_op_refuse(s, &pending->op, SCOUT_WIRE_LIMIT, "the server is out of memory");
		return;
	}
	if (!session_of(s, pending, &m, &refusal, &text)) {
		scout__pending_op_refuse(s, &pending->op, refusal, "%s", text);
		return;
	}
	scout__run_queue_start(s, &pending->op.run, pending->walk ? pending->walk->n_objects : m.n);
}
