/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <time.h>

#include "fetch.h"
#include "ns.h"
#include "ops.h"
#include "ops_internal.h"
#include "packet.h"
#include "peer.h"
#include "pending_op.h"
#include "reply.h"
#include "run_queue.h"
#include "server_core.h"
#include "list.h"
#include "state.h"

/*
 * DESIGN
 *
 * CLEAR drops everything that a namespace has cached, without a version of the weights. A clear has two numbers:
 *
 *   generation   its name: random, drawn by the client library, part of the fingerprint of every object in L2. So
 *                what was stored before a clear and what is stored after it never have the same key, in any store, on any
 *                server. 0: the namespace was never cleared.
 *   cleared      its stamp: microseconds since 1970, drawn by the server that carries it out. Of two clears the one with the
 *                larger stamp is the later one, wherever they are compared: in a store's record, in a HELLO, here.
 *
 * Names make a clear idempotent: client and workers of one engine send the same name in any order and after lost
 * replies, and the first one that arrives clears. The last names are remembered and recorded, so that a late one does
 * not take a namespace back to a generation that was left. Without names, two calls of one engine would drop what was
 * stored between them.
 *
 * Stamps order clears and say which workers are in. A worker is in since it joined, by its first HELLO or by a CLEAR of
 * its own; one that joined before the last clear is out: what it computes may be of what that clear was to drop. The
 * worker remembers when it joined, and every peer which clear it knows of, and says so in each HELLO. So a server that
 * was restarted without a L2 learns of the last clear from the first peer that knows it, before that peer can do
 * anything, and whoever was out stays out. A worker whose version of the weights is the namespace's is always in: its
 * version says what it computes.
 *
 * Each stamp is larger than any that this server has drawn or heard of, and not behind the wall clock: a clock that is
 * set back cannot make a clear older than a worker that it is to put out.
 *
 * The order of events: a clear takes effect in the turn in which it is read, by the weights_gen of the namespace (see
 * ns.c), so lookups behind it in the same connection see the new generation. Its answer waits until every store has a
 * record of it (l2_records.c), or has failed, or l2_timeout_ms have passed. Until the records were read, nothing is
 * cached here, and a CLEAR waits as LOOKUP, STORE and RETRIEVE do: a name that a store knows already must not clear
 * again.
 *
 * Rejected: a name that says where it comes from ("leave generation G"), compared and exchanged. It needs no id in the
 * engine's metadata, but the clear of a second engine, that had not joined the first one's, would drop nothing.
 * Rejected: clients that have to join, too. They see no KV bytes; a router that only asks has no hook to call.
 *
 * Threads: loop.
 */

/* ---- stamps ---- */

static uint64_t
wall_us(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_REALTIME, &ts); /* cannot fail */
	return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

SCOUT_ON_LOOP static uint64_t
draw_stamp(struct scout_server *s)
{
	uint64_t now_us = wall_us();

	s->state->last_stamp = s->state->last_stamp < now_us ? now_us : s->state->last_stamp + 1;
	return s->state->last_stamp;
}

SCOUT_ON_LOOP static void
hear_stamp(struct scout_server *s, uint64_t stamp)
{
	if (stamp > s->state->last_stamp)
		s->state->last_stamp = stamp;
}

/* ---- generations ---- */

static bool
is_later(uint64_t cleared, uint64_t generation, const struct scout__ns *ns)
{
	/* Two servers may have drawn one stamp: both must choose the same. */
	return cleared != ns->cleared ? cleared > ns->cleared : generation > ns->generation;
}

SCOUT_ON_LOOP static bool
is_known(const struct scout__ns *ns, uint64_t generation)
{
	bool known = ns->generation == generation;

	for (uint32_t i = 0; i < SCOUT__OLD_GENERATIONS; i++)
		known |= ns->older[i] == generation;
	return known;
}

SCOUT_ON_LOOP static void
push_older(struct scout__ns *ns)
{
	if (ns->generation == 0)
		return;
	memmove(ns->older + 1, ns->older, sizeof(ns->older) - sizeof(ns->older[0]));
	ns->older[0] = ns->generation;
}

/* Nothing is cached, and no question to a store is under way: there is nothing to drop. */
SCOUT_ON_LOOP static bool
is_empty(const struct scout_server *s, const struct scout__ns *ns)
{
	bool may_ask = s->fetch && scout__records_known(ns);

	return !may_ask && (!ns->index || ns->index->n_entries == 0);
}

SCOUT_ON_LOOP static void
change(struct scout_server *s, struct scout__ns *ns, uint64_t generation, uint64_t cleared, bool drops)
{
	ns->generation = generation;
	ns->cleared = ns->in_since = cleared;
	hear_stamp(s, cleared);
	if (drops)
		scout__ns_outdate(s, ns, SCOUT_WIRE_CLEARED);
	s->state->hooks->cleared(s, ns);
}

bool
scout__ns_learn(struct scout_server *s, struct scout__ns *ns, uint64_t generation, uint64_t cleared,
		const uint64_t *older)
{
	if (!is_later(cleared, generation, ns))
		return false;
	if (older)
		memcpy(ns->older, older, sizeof(ns->older));
	else
		push_older(ns);
	scout__log_limited(&s->log, &s->limit_ns, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_INFO,
			   "namespace \"%s\": it was cleared %s: what is older is dropped", ns->name,
			   older ? "as a second-tier store says" : "before this server met it, as a peer says");
	change(s, ns, generation, cleared, !is_empty(s, ns));
	return true;
}

void
scout__clear_all_out(struct scout_server *s, struct scout__ns *ns)
{
	ns->in_since = draw_stamp(s);
}

SCOUT_ON_LOOP static void
clear(struct scout_server *s, struct scout__ns *ns, uint64_t generation)
{
	push_older(ns);
	s->count.clears++;
	scout__log_limited(&s->log, &s->limit_ns, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_INFO,
			   "namespace \"%s\" is cleared: generation %016llx", ns->name, (unsigned long long)generation);
	change(s, ns, generation, draw_stamp(s), true);
}

/* ---- who is in ---- */

bool
scout__clear_is_in(const struct scout__peer *peer)
{
	return (peer->weights && peer->weights == peer->ns->weights) || peer->joined >= peer->ns->in_since;
}

void
scout__clear_hello(struct scout_server *s, struct scout__peer *peer, const struct scout__clear_state *m)
{
	hear_stamp(s, m->joined);
	hear_stamp(s, m->cleared);
	if (m->generation)
		(void)scout__ns_learn(s, peer->ns, m->generation, m->cleared, NULL);
	if (peer->role == SCOUT_ROLE_WORKER) {
		if (peer->joined < m->joined)
			peer->joined = m->joined;
		if (peer->joined == 0)
			peer->joined = draw_stamp(s);
	}
	scout__records_look(s, peer->ns);
}

struct scout__clear_state
scout__clear_state_of(const struct scout__peer *peer)
{
	return (struct scout__clear_state){
		.joined = peer->joined, .generation = peer->ns->generation, .cleared = peer->ns->cleared};
}

/* ---- CLEAR ---- */

SCOUT_ON_LOOP static void
answer(struct scout_server *s, struct scout__pending_op *pending)
{
	struct scout__clear_reply m = {
		.clear = scout__clear_state_of(pending->peer),
		.stores = s->fetch ? s->fetch->n : 0,
		.pending = scout__records_pending(s, pending->ns),
	};
	struct scout__writer *w;
	size_t op;

	if (m.pending)
		scout__log_limited(
			&s->log, &s->limit_clear, s->now_us, SCOUT__WARN_INTERVAL_US, SCOUT_LOG_WARN,
			"namespace \"%s\": %u of %u second-tier stores have not recorded its last clear: they are not "
			"used for it until they have; if this server ends before, what they have comes back",
			pending->ns->name, (unsigned)m.pending, (unsigned)m.stores);
	w = scout__reply_begin(s, &pending->peer->dest, pending->opcode, SCOUT_WIRE_OK, pending->corr, 32, &op);
	if (w) {
		scout__put_clear_reply(w, &m);
		scout__reply_end(s, &pending->peer->dest, op);
	}
	scout__pending_op_free(s, pending);
}

SCOUT_ON_LOOP static void
carry_out(struct scout_server *s, struct scout__pending_op *pending)
{
	struct scout__peer *peer = pending->peer;
	uint64_t generation = pending->ticket;

	if (generation != SCOUT_GENERATION_ANY && !is_known(pending->ns, generation))
		clear(s, pending->ns, generation);
	if (peer->role == SCOUT_ROLE_WORKER &&
	    (generation == SCOUT_GENERATION_ANY || generation == pending->ns->generation))
		peer->joined = draw_stamp(s);
}

SCOUT_ON_LOOP static void
clear_step(struct scout_server *s, struct scout__run_item *item)
{
	struct scout__pending_op *pending = SCOUT__OWNER(item, struct scout__pending_op, run);

	scout__list_del(&pending->waiting);
	scout__timer_clear(s, &pending->run);
	if (pending->state == SCOUT__OP_WAIT_RUN && scout__records_wait(s, pending))
		return;
	if (pending->state == SCOUT__OP_WAIT_RUN) {
		pending->state = SCOUT__OP_WAIT_ANSWER;
		carry_out(s, pending);
	}
	if (s->now_us < pending->wait_end_us && scout__records_are_written_now(pending->ns)) {
		scout__list_add(&pending->ns->record_waiters, &pending->waiting);
		scout__timer_set(s, &pending->run, pending->wait_end_us);
		return;
	}
	answer(s, pending);
}

static const struct scout__pending_kind clear_kind = {.step = clear_step};

void
scout__clear(struct scout_server *s, struct scout__peer *peer, struct scout__packet *packet, const struct scout__op *op,
	     uint64_t deadline_us)
{
	const char *field = "";
	uint64_t generation;
	struct scout__pending_op *pending;
	int status = scout__get_one_u64(op, &generation, &field);

	if (status == SCOUT_WIRE_OK && generation == SCOUT_GENERATION_ANY && peer->role != SCOUT_ROLE_WORKER) {
		status = SCOUT_WIRE_RANGE;
		field = "generation";
	}
	if (status) {
		scout__refuse(s, &peer->dest, op->opcode, op->corr, (uint16_t)status, "CLEAR: %s is wrong", field);
		return;
	}
	/* A client decides. A worker of another version has nothing here that it could want dropped. */
	if (peer->role == SCOUT_ROLE_WORKER && !scout__require_weights(s, peer, op))
		return;
	pending = scout__pending_op_new(s, &clear_kind, peer, packet, op, deadline_us);
	if (!pending)
		return;
	pending->ticket = generation;
	pending->wait_end_us = scout__pending_op_answer_by(pending);
	if (s->fetch && pending->wait_end_us > s->now_us + s->fetch->timeout_us)
		pending->wait_end_us = s->now_us + s->fetch->timeout_us;
	clear_step(s, &pending->run);
}
