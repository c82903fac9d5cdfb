/* SPDX-License-Identifier: Apache-2.0 */
#include "clears.h"

#include <string.h>

#include "clock.h"
#include "ns.h"
#include "peer.h"
#include "server_core.h"
#include "state.h"

/*
 * DESIGN
 *
 * What a server knows about the clears of its namespaces. A clear has two numbers:
 *
 *   generation   its name: random, drawn by the client library, part of the fingerprint of every object in L2. So what
 *                was stored before a clear never has the key of what is stored after it, in any store, on any server.
 *                0: the namespace was never cleared.
 *   cleared      its stamp: microseconds since 1970, drawn by the server that carries it out. The clear with the larger
 *                stamp is the later one, wherever two are compared: in a store's record, in a HELLO, here.
 *
 * Names make a clear idempotent: client and workers of one engine send the same name in any order and after lost
 * replies, and the first one that arrives clears. The server remembers and records the last names, so that a late CLEAR
 * does not take a namespace back to an earlier generation. Without names, two calls of one engine would drop what was
 * stored between them.
 *
 * One peer's clears come in order, and its latest one is to win. But another peer of its engine may have sent only the
 * latest, which may arrive before the older one of the first peer: then the older one clears, and the latest is known
 * already. So a known name clears again if its peer comes from the generation that the namespace has, which that peer
 * said before. This clear has a new stamp, and workers that have said that name are in.
 *
 * Stamps order clears and say which workers are in. A worker is in since it joined, by its first HELLO or by a CLEAR of
 * its own. A worker that joined before the last clear is out: its KV may come from what that clear was to drop. The
 * worker remembers when it joined, every peer remembers the last clear that it knows, and each HELLO says both. So a
 * server that was restarted without an L2 learns of the last clear from the first peer that knows it, before that peer
 * can do anything, and a worker that was out stays out. A worker with the namespace's version of the weights is always
 * in: its version says what it computes.
 *
 * Each stamp is larger than any that this server has drawn or heard of in the namespace, and not before the wall clock: a clock
 * that is set back cannot make a clear older than a worker that it is to put out. A stamp more than a day ahead of it comes from a
 * wrong clock or a faulty peer and is refused: after a stamp near 2^62 this server would draw only larger ones. The peer then drops
 * its stamps, joins anew, and sends its last clear again, which does nothing where a record has it. Each namespace has a clock of
 * its own, so a peer whose stamp is wrong moves that of its own engines alone.
 * A stamp that this server drew is always accepted: each draw adds one microsecond and takes longer than that.
 *
 * Rejected: a name that says where it comes from ("leave generation G"), compared and exchanged. Such a name needs no
 * id in the engine's metadata, but the clear of a second engine that had not joined the first one's would drop nothing.
 * Rejected: clients that have to join, too. They see no KV bytes; a router that only asks has no hook to call.
 *
 * Threads: loop.
 */

#define DAY_US (UINT64_C(24) * 3600 * 1000000)

/* ---- stamps ---- */

uint64_t
scout__clears_draw_stamp(struct scout__ns *ns)
{
	uint64_t now_us = scout__wall_us();

	ns->last_stamp = ns->last_stamp < now_us ? now_us : ns->last_stamp + 1;
	return ns->last_stamp;
}

uint64_t
scout__clears_days_ahead(const struct scout__ns *ns, uint64_t stamp)
{
	uint64_t now_us = scout__wall_us();

	if (stamp <= now_us + SCOUT_MAX_STAMP_AHEAD_US || (ns && stamp <= ns->last_stamp))
		return 0;
	return (stamp - now_us) / DAY_US;
}

SCOUT_ON_LOOP static void
hear_stamp(struct scout__ns *ns, uint64_t stamp)
{
	if (stamp > ns->last_stamp)
		ns->last_stamp = stamp;
}

/* ---- generations ---- */

static bool
is_later(uint64_t cleared, uint64_t generation, const struct scout__ns *ns)
{
	/* Two servers may have drawn the same stamp: both must choose the same clear. */
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

SCOUT_ON_LOOP static void
change(struct scout_server *s, struct scout__ns *ns, uint64_t generation, uint64_t cleared, bool drops)
{
	ns->generation = generation;
	ns->cleared = ns->in_since = cleared;
	hear_stamp(ns, cleared);
	if (drops)
		scout__ns_outdate(s, ns, SCOUT_WIRE_CLEARED);
	s->state->hooks->cleared(s, ns);
}

bool
scout__clears_learn(struct scout_server *s, struct scout__ns *ns, uint64_t generation, uint64_t cleared,
		    const uint64_t *older, bool asks)
{
	/* Else there is nothing to drop. */
	bool drops = asks || scout__ns_count_chunks(ns) > 0;

	if (!is_later(cleared, generation, ns))
		return false;
	if (older)
		memcpy(ns->older, older, sizeof(ns->older));
	else
		push_older(ns);
	scout__log_limited(&s->log, &s->limit_ns, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_INFO,
			   "namespace \"%s\": it was cleared %s: everything older is dropped", ns->name,
			   older ? "as an L2 store says" : "before this server met it, as a peer says");
	change(s, ns, generation, cleared, drops);
	return true;
}

void
scout__clears_all_out(struct scout__ns *ns)
{
	ns->in_since = scout__clears_draw_stamp(ns);
}

/* Workers that said this name join again: the namespace has it again, perhaps after another name. */
SCOUT_ON_LOOP static void
join_again(struct scout_server *s, struct scout__ns *ns)
{
	for (uint32_t i = 0; i < s->cfg.max_peers; i++) {
		struct scout__peer *peer = s->state->peers[i];

		if (peer && peer->ns == ns && peer->role == SCOUT_ROLE_WORKER && peer->clear_said == ns->generation)
			peer->joined = scout__clears_draw_stamp(ns);
	}
}

SCOUT_ON_LOOP static void
clear(struct scout_server *s, struct scout__peer *peer, uint64_t generation)
{
	struct scout__ns *ns = peer->ns;
	bool goes_on = peer->clear_said != 0 && peer->clear_said == ns->generation;

	if (generation == ns->generation || (is_known(ns, generation) && !goes_on))
		return;
	push_older(ns);
	s->count.clears++;
	scout__log_limited(&s->log, &s->limit_ns, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_INFO,
			   "namespace \"%s\" is cleared: generation %016llx", ns->name, (unsigned long long)generation);
	change(s, ns, generation, scout__clears_draw_stamp(ns), true);
	join_again(s, ns);
}

void
scout__clears_add(struct scout_server *s, struct scout__peer *peer, uint64_t generation)
{
	clear(s, peer, generation);
	peer->clear_said = generation;
	if (peer->role == SCOUT_ROLE_WORKER && generation == peer->ns->generation)
		peer->joined = scout__clears_draw_stamp(peer->ns);
}

bool
scout__clears_drop(struct scout_server *s, struct scout__ns *ns, uint64_t generation)
{
	uint64_t in_since = ns->in_since;

	if (is_known(ns, generation))
		return false;
	s->count.clears++;
	scout__log_limited(&s->log, &s->limit_ns, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_INFO,
			   "namespace \"%s\" is cleared by an operator", ns->name);
	if (!s->fetch) {
		scout__ns_outdate(s, ns, SCOUT_WIRE_CLEARED);
		return true;
	}
	push_older(ns);
	change(s, ns, generation, scout__clears_draw_stamp(ns), true);
	for (uint32_t i = 0; i < s->cfg.max_peers; i++) {
		struct scout__peer *peer = s->state->peers[i];

		if (peer && peer->ns == ns && peer->role == SCOUT_ROLE_WORKER && peer->joined >= in_since)
			peer->joined = scout__clears_draw_stamp(ns);
	}
	return true;
}

/* ---- which workers are in ---- */

bool
scout__peer_is_in(const struct scout__peer *peer)
{
	return (peer->weights && peer->weights == peer->ns->weights) || peer->joined >= peer->ns->in_since;
}

void
scout__clears_hear(struct scout_server *s, struct scout__peer *peer, const struct scout__clear_state *m, bool asks)
{
	hear_stamp(peer->ns, m->joined);
	hear_stamp(peer->ns, m->cleared);
	if (m->generation)
		(void)scout__clears_learn(s, peer->ns, m->generation, m->cleared, NULL, asks);
	if (peer->role == SCOUT_ROLE_WORKER) {
		if (peer->joined < m->joined)
			peer->joined = m->joined;
		if (peer->joined == 0)
			peer->joined = scout__clears_draw_stamp(peer->ns);
	}
}

struct scout__clear_state
scout__clears_state_of(const struct scout__peer *peer)
{
	return (struct scout__clear_state){
		.joined = peer->joined, .generation = peer->ns->generation, .cleared = peer->ns->cleared};
}
