/* SPDX-License-Identifier: Apache-2.0 */
#include "peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "hold.h"
#include "lease.h"
#include "ns.h"
#include "peer_share.h"
#include "pending_op.h"
#include "segments.h"
#include "server_core.h"
#include "session.h"
#include "shm.h"
#include "state.h"
#include "transport.h"
#include "withdraw.h"

/*
 * DESIGN
 *
 * A peer is one client or worker object: named by the token of its HELLO, reached through the ZeroMQ identity of its
 * present connection. A reconnect brings a new identity, the old token, and the secret that the server drew for the
 * peer, without which nobody is that peer; what the peer holds stays. Operations that
 * were not answered on the old connection are then cancelled in steps, because no answer can reach the peer, and what they had
 * granted is taken back.
 *
 * Silence: a peer without lease connection is forgotten after peer_timeout_ms (or three of its heartbeats if they are
 * longer, because an idle peer sends nothing else), plus at most a second: each tick looks at some peers, by turns, so
 * that a tick stays short with tens of thousands. A peer whose process is watched and that holds slots is never
 * forgotten, and only the end of its process frees the slots: memory under a running copy is not reused. Time in which
 * this loop itself did not run (a stopped server) does not count as silence.
 *
 * The end of its ZeroMQ connection: a peer without lease connection has SCOUT_RECONNECT_MS to come back with its token,
 * however long its heartbeat is. Then it is forgotten; of one that must not be, because it holds slots, the sessions
 * end. The event of the end may have been meant for another connection (conns.c), so the server looks at the socket
 * again before it acts; the descriptor of a connection that has ended is closed long before.
 *
 * The server does not trust a peer's clock. A timestamp from the future makes later frames look as if they had waited;
 * so when the clock jumps back by more than CLOCK_BACK_US, the server forgets what it knew of that clock. A peer's
 * clock makes only that peer's operations expire.
 *
 * A process, or an address of another machine, has at most a quarter of max_peers: else one that says HELLO again and again would keep
 * all others out. What is not known to be of any, because its connection ended at once, counts as one. Before Linux 6.9, processes of
 * other pid namespaces count as one for each user, too.
 *
 * A peer that leaves is out of the maps at once; its run item cancels and gives back in steps what it had.
 *
 * Threads: loop.
 */

#define SOURCE_PART 4u   /* of max_peers, that one process or address may have ... */
#define SOURCE_LEAST 64u /* ... and never fewer: an engine on eight GPUs has nine */
#define SILENT_HEARTBEATS 3u
#define WINDOW_US UINT64_C(60000000)      /* clocks drift: a smallest difference counts for one to two windows */
#define CLOCK_BACK_US UINT64_C(5000000)   /* a peer's threads may send in another order than they read the clock */
#define WAITED_MAX_US (UINT64_C(1) << 32) /* more than any budget */
#define TICK_US UINT64_C(20000)
#define STOPPED_US UINT64_C(500000)
#define LEAVE_STEP 64u  /* operations that one step cancels; and sessions and holds that it ends */
#define TICK_PEERS 256u /* peers that one tick looks at */
#define TICK_SHARE 50u  /* or one in so many, if that is more: a round takes a second at most */

struct scout__peer *
scout__peer_by_identity(struct scout_server *s, const void *identity, size_t len)
{
	uint32_t slot = scout__map_get(&s->state->by_identity, scout__identity_key(s, identity, len));
	struct scout__peer *peer;

	if (slot == SCOUT__MAP_NONE)
		return NULL;
	peer = s->state->peers[slot];
	if (peer->dest.identity_len != len || memcmp(peer->dest.identity, identity, len) != 0)
		return NULL;
	return peer;
}

struct scout__peer *
scout__peer_by_token(struct scout_server *s, uint64_t token)
{
	uint32_t slot = scout__map_get(&s->state->by_token, token);

	return slot == SCOUT__MAP_NONE ? NULL : s->state->peers[slot];
}

/* Forget what was known of the clock of @peer. */
SCOUT_ON_LOOP static void
take_clock(struct scout_server *s, struct scout__peer *peer, int64_t offset)
{
	peer->offset_us[0] = peer->offset_us[1] = offset;
	peer->window_us = s->now_us;
}

uint64_t
scout__peer_heard(struct scout_server *s, struct scout__peer *peer, uint64_t sent_us)
{
	int64_t offset, least;
	uint64_t waited;

	peer->seen_us = s->now_us;
	if (sent_us == 0)
		return 0; /* it has no clock */
	offset = (int64_t)(s->now_us - sent_us);
	/*
	 * Frames of a connection arrive in the order in which they were sent, so a clock that jumps back is wrong, or
	 * was wrong before.
	 */
	if (peer->window_us == 0 || (sent_us < peer->sent_us && peer->sent_us - sent_us > CLOCK_BACK_US))
		take_clock(s, peer, offset);
	peer->sent_us = sent_us;
	least = peer->offset_us[0] < peer->offset_us[1] ? peer->offset_us[0] : peer->offset_us[1];
	if (s->now_us - peer->window_us > WINDOW_US) {
		peer->offset_us[1] = peer->offset_us[0];
		peer->offset_us[0] = offset;
		peer->window_us = s->now_us;
	} else if (offset < peer->offset_us[0]) {
		peer->offset_us[0] = offset;
	}
	if (offset <= least)
		return 0;
	waited = (uint64_t)offset - (uint64_t)least; /* the difference may not fit into an int64_t */
	return waited < WAITED_MAX_US ? waited : WAITED_MAX_US;
}

/* Bind @peer to the sender of the frame in hand. False: the hash of its identity is taken, a chance of 2^-64. */
SCOUT_ON_LOOP static bool
take_identity(struct scout_server *s, struct scout__peer *peer)
{
	const struct scout__dest *sender = &s->transport->unknown_sender;
	uint64_t key = scout__identity_key(s, sender->identity, sender->identity_len);

	if (scout__map_get(&s->state->by_identity, key) != SCOUT__MAP_NONE)
		return false;
	if (!scout__map_put(&s->state->by_identity, key, peer->number))
		return false;
	peer->identity_key = key;
	memcpy(peer->dest.identity, sender->identity, sender->identity_len);
	peer->dest.identity_len = sender->identity_len;
	scout__unsent_note_fd(&peer->dest, sender->fd);
	peer->ended_us = 0;
	scout__conns_bind(s, &peer->dest);
	return true;
}

SCOUT_ON_LOOP static void step(struct scout_server *s, struct scout__run_item *item);

SCOUT_ON_LOOP static void
join(struct scout_server *s, struct scout__peer *peer, struct scout__ns *ns, uint16_t role)
{
	peer->role = role;
	peer->ns = ns;
	ns->n_peers++;
	scout__peer_shares_count(s, peer, 1);
	scout__ns_note_use(ns);
	s->count.peers_joined++;
	scout__log_limited(&s->log, &s->limit_join, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_INFO,
			   "%s %016llx joined namespace \"%s\"", role == SCOUT_ROLE_WORKER ? "worker" : "client",
			   (unsigned long long)peer->id, ns->name);
}

bool
scout__peers_of_source_full(struct scout_server *s, uint32_t *ret_most)
{
	uint64_t source = scout__conns_source(s, s->transport->unknown_sender.fd);
	uint32_t n = scout__map_get(&s->state->by_source, source);

	*ret_most = s->cfg.max_peers / SOURCE_PART > SOURCE_LEAST ? s->cfg.max_peers / SOURCE_PART : SOURCE_LEAST;
	return source != SCOUT__OWN_PROCESS && n != SCOUT__MAP_NONE && n >= *ret_most;
}

/* One more peer of @source (@change 1), or one less (-1). False: no memory, which the map has for as many as there are peers. */
SCOUT_ON_LOOP static bool
count_source(struct scout_server *s, uint64_t source, int change)
{
	uint32_t n = scout__map_get(&s->state->by_source, source);

	n = (n == SCOUT__MAP_NONE ? 0 : n) + (uint32_t)change;
	return n > 0 ? scout__map_put(&s->state->by_source, source, n) : scout__map_del(&s->state->by_source, source);
}

static bool
draw(void *random, size_t len)
{
	return getrandom(random, len, 0) == (ssize_t)len;
}

struct scout__peer *
scout__peer_new(struct scout_server *s, struct scout__ns *ns, uint64_t token, uint16_t role)
{
	uint64_t source = scout__conns_source(s, s->transport->unknown_sender.fd);
	struct scout__peer *peer;

	if (s->state->n_free_peers == 0)
		return NULL;
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return NULL;
	scout__dest_init(&peer->dest);
	peer->number = s->state->free_peers[s->state->n_free_peers - 1];
	if (!draw(&peer->secret, sizeof(peer->secret)) || !draw(&peer->id, sizeof(peer->id)) || !take_identity(s, peer))
		goto err_free_peer;
	if (!scout__map_put(&s->state->by_token, token, peer->number))
		goto err_unmap;
	peer->source = source;
	(void)count_source(s, peer->source, 1);
	s->state->n_free_peers--;
	s->state->peers[peer->number] = peer;
	peer->token = token;
	peer->rank = -1;
	peer->run.step = step;
	peer->process = (struct scout__watch){SCOUT__WATCH_PROCESS, -1, peer};
	scout__list_init(&peer->polls.node);
	scout__list_init(&peer->polls.items);
	scout__list_init(&peer->pending_ops);
	scout__list_init(&peer->sessions);
	scout__list_init(&peer->holds);
	scout__list_init(&peer->lease_waiters);
	join(s, peer, ns, role);
	return peer;

err_unmap:
	scout__conns_unbind(s, &peer->dest);
	(void)scout__map_del(&s->state->by_identity, peer->identity_key);
err_free_peer:
	free(peer);
	return NULL;
}

void
scout__peer_lose_identity(struct scout_server *s, struct scout__peer *peer)
{
	if (peer->dest.identity_len)
		(void)scout__map_del(&s->state->by_identity, peer->identity_key);
	peer->dest.identity_len = 0;
}

bool
scout__peer_move(struct scout_server *s, struct scout__peer *peer)
{
	scout__dest_flush(s, &peer->dest);
	scout__shm_close(s, &peer->dest);
	peer->dest.shm.was_asked = false;
	scout__dest_drop(s, &peer->dest);
	scout__peer_lose_identity(s, peer);
	peer->connection++;
	peer->unanswered = 0;
	scout__run_queue_add(s, &peer->run);
	scout__conns_unbind(s, &peer->dest);
	scout__unsent_forget(&peer->dest);
	/* False: no reply can reach the peer now; it will say HELLO again from another identity, or be forgotten. */
	return take_identity(s, peer);
}

void
scout__peer_who(const struct scout_server *s, struct scout__dest *dest, char who[SCOUT__WHO_BYTES])
{
	const struct scout__peer *peer;
	int n;

	if (dest == &s->transport->unknown_sender) {
		(void)snprintf(who, SCOUT__WHO_BYTES, "a peer without HELLO");
		return;
	}
	peer = SCOUT__OWNER(dest, struct scout__peer, dest);
	n = snprintf(who, SCOUT__WHO_BYTES, "%s %016llx", peer->role == SCOUT_ROLE_WORKER ? "worker" : "client",
		     (unsigned long long)peer->id);
	/* The pid is known only from a lease connection. */
	if (n > 0 && peer->pid > 0)
		(void)snprintf(who + n, SCOUT__WHO_BYTES - (size_t)n, " (pid %d)", (int)peer->pid);
}

/*
 * The line about the process that died last: one for all of its peers. Engines kill some of their processes at an ordinary end; that
 * costs something only if a peer held slots.
 */
SCOUT_ON_LOOP static void
tell_death(struct scout_server *s)
{
	uint32_t n = s->state->dead.n_peers;
	bool is_loss = s->state->dead.n_holds > 0;
	char others[40] = "";

	if (n == 0)
		return;
	s->state->dead.n_peers = 0;
	if (n > 1)
		(void)snprintf(others, sizeof(others), " and %u more of its peers", (unsigned)(n - 1));
	scout__log_limited(&s->log, &s->limit_died, s->now_us, SCOUT__LOG_INTERVAL_US,
			   is_loss ? SCOUT_LOG_WARN : SCOUT_LOG_INFO, "%s%s %s, with %u holds", s->state->dead.first,
			   others, is_loss ? "died" : "ended without closing", (unsigned)s->state->dead.n_holds);
}

SCOUT_ON_LOOP static void
note_death(struct scout_server *s, struct scout__peer *peer, const char who[SCOUT__WHO_BYTES])
{
	/* A process without a pid here is in another pid namespace. */
	if (peer->pid <= 0 || peer->pid != s->state->dead.pid)
		tell_death(s);
	if (s->state->dead.n_peers++ == 0) {
		s->state->dead.n_holds = 0;
		memcpy(s->state->dead.first, who, SCOUT__WHO_BYTES);
	}
	s->state->dead.pid = peer->pid;
	s->state->dead.n_holds += peer->n_holds;
	s->state->dead.at_us = s->now_us;
}

void
scout__peer_leave(struct scout_server *s, struct scout__peer *peer, bool died)
{
	char who[SCOUT__WHO_BYTES];

	if (peer->leaving)
		return;
	peer->leaving = true;
	peer->died = died;
	scout__peer_who(s, &peer->dest, who);
	if (died)
		note_death(s, peer, who);
	else
		scout__log_limited(&s->log, &s->limit_leave, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_INFO,
				   "%s left, with %u holds", who, (unsigned)peer->n_holds);
	s->count.peers_left++;
	if (died)
		s->count.peers_died++;
	(void)scout__map_del(&s->state->by_token, peer->token);
	if (peer->dest.identity_len)
		(void)scout__map_del(&s->state->by_identity, peer->identity_key);
	scout__watch_end(s, &peer->process);
	scout__shm_close(s, &peer->dest);
	if (peer->lease) {
		struct scout__lease *lease = peer->lease;

		lease->peer = NULL;
		peer->lease = NULL;
		scout__lease_close(s, lease);
	}
	peer->connection++;
	scout__withdraw_gone(s, peer);
	if (--peer->ns->n_peers == 0 && peer->ns->n_keeps)
		scout__run_queue_add(s, &peer->ns->sweep); /* it ends them */
	scout__peer_shares_count(s, peer, -1);
	peer->ns->n_leaving++;
	peer->ns->left_us = s->now_us;
	scout__ns_note_use(peer->ns);
	scout__run_queue_add(s, &peer->run);
}

/* End at most @left of what a leaving peer holds. True: nothing is left. */
SCOUT_ON_LOOP static bool
end_some(struct scout_server *s, struct scout__peer *peer, uint32_t left)
{
	for (; left && !scout__list_empty(&peer->sessions); left--) {
		struct scout__session *session = SCOUT__OWNER(peer->sessions.next, struct scout__session, of_peer);

		if (!session->ended) {
			scout__session_end(s, session, false);
			continue;
		}
		/* The reply to its FINISH has no receiver any more. */
		session->deferred.reply = NULL;
		session->peer = NULL;
		scout__list_del(&session->of_peer);
	}
	for (; left && !scout__list_empty(&peer->holds); left--) {
		struct scout__hold *hold = SCOUT__OWNER(peer->holds.next, struct scout__hold, of_worker);

		if (hold->end == SCOUT__END_NONE) {
			if (hold->kind == SCOUT__HOLD_READ)
				scout__hold_end(s, hold, SCOUT__END_RELEASE, 0);
			else
				scout__hold_end(s, hold, peer->died ? SCOUT__END_QUARANTINE : SCOUT__END_COMMIT, 0);
			continue;
		}
		hold->deferred.reply = NULL;
		hold->worker = NULL;
		scout__list_del(&hold->of_worker);
	}
	return left > 0;
}

SCOUT_ON_LOOP static void
step(struct scout_server *s, struct scout__run_item *item)
{
	struct scout__peer *peer = SCOUT__OWNER(item, struct scout__peer, run);
	uint32_t left = scout__pending_ops_cancel(s, peer, LEAVE_STEP);

	if (!left || (peer->leaving && !end_some(s, peer, left))) {
		scout__run_queue_add(s, item);
		return;
	}
	if (!peer->leaving)
		return;
	scout__dest_drop(s, &peer->dest);
	scout__conns_unbind(s, &peer->dest);
	scout__unsent_forget(&peer->dest);
	peer->ns->n_leaving--;
	scout__list_del(&peer->polls.node);
	(void)count_source(s, peer->source, -1);
	s->state->peers[peer->number] = NULL;
	s->state->free_peers[s->state->n_free_peers++] = peer->number;
	free(peer);
}

void
scout__peer_conn_ended(struct scout_server *s, struct scout__dest *dest)
{
	struct scout__peer *peer = SCOUT__OWNER(dest, struct scout__peer, dest);

	peer->ended_us = s->now_us;
}

/* The time to come back is over. */
SCOUT_ON_LOOP static bool
is_gone(const struct scout_server *s, const struct scout__peer *peer)
{
	return peer->ended_us && s->now_us - peer->ended_us > SCOUT_RECONNECT_MS * UINT64_C(1000);
}

SCOUT_ON_LOOP static bool
is_silent(const struct scout_server *s, const struct scout__peer *peer)
{
	uint64_t promised_ms = (uint64_t)SILENT_HEARTBEATS * peer->heartbeat_ms;
	uint64_t silent_ms = promised_ms > s->cfg.peer_timeout_ms ? promised_ms : s->cfg.peer_timeout_ms;

	return s->now_us - peer->seen_us > silent_ms * 1000;
}

/* Forget @peer if it is gone or silent for too long, or end its promises if it must not be forgotten. */
SCOUT_ON_LOOP static void
look_at(struct scout_server *s, struct scout__peer *peer)
{
	if (peer->leaving || peer->lease)
		return;
	if (is_gone(s, peer) && scout__conns_is_open(&peer->dest)) {
		peer->ended_us = 0; /* the event was another connection's */
		scout__conns_bind(s, &peer->dest);
	}
	if (!is_gone(s, peer) && !is_silent(s, peer))
		return;
	if (!peer->n_holds || peer->process.fd < 0) {
		s->count.peers_forgotten++;
		scout__peer_leave(s, peer, false);
		return;
	}
	for (uint32_t left = LEAVE_STEP; left && is_gone(s, peer) && !scout__list_empty(&peer->sessions); left--) {
		struct scout__session *session = SCOUT__OWNER(peer->sessions.next, struct scout__session, of_peer);

		if (session->ended)
			break;
		scout__session_end(s, session, false);
	}
}

/* This loop did not run for @gap_us: this time must not count as silence of the peers. */
SCOUT_ON_LOOP static void
forgive(struct scout_server *s, uint64_t gap_us)
{
	for (uint32_t i = 0; i < s->cfg.max_peers; i++) {
		struct scout__peer *peer = s->state->peers[i];

		if (!peer)
			continue;
		peer->seen_us += gap_us;
		if (peer->seen_us > s->now_us)
			peer->seen_us = s->now_us;
		if (peer->ended_us)
			peer->ended_us = s->now_us - peer->ended_us > gap_us ? peer->ended_us + gap_us : s->now_us;
	}
}

uint32_t
scout__tick_share(uint32_t n)
{
	uint32_t share = n / TICK_SHARE > TICK_PEERS ? n / TICK_SHARE : TICK_PEERS;

	return n < share ? n : share;
}

void
scout__peers_tick(struct scout_server *s)
{
	uint64_t gap_us = s->now_us - s->state->last_tick_us;

	if (s->now_us < s->state->next_tick_us)
		return;
	s->state->next_tick_us = s->now_us + TICK_US;
	s->state->last_tick_us = s->now_us;
	if (gap_us > STOPPED_US)
		forgive(s, gap_us);
	if (s->now_us - s->state->dead.at_us >= TICK_US)
		tell_death(s);
	for (uint32_t left = scout__tick_share(s->cfg.max_peers); left; left--) {
		struct scout__peer *peer = s->state->peers[s->state->tick_peer];

		s->state->tick_peer = (s->state->tick_peer + 1) % s->cfg.max_peers;
		if (peer)
			look_at(s, peer);
	}
	scout__leases_tick(s);
	scout__segments_tick(s);
	scout__withdraw_tick(s);
	scout__ns_tick(s);
	scout__ns_grow_ahead(s);
	scout__unsent_tick(s);
}

void
scout__peers_fini(struct scout_server *s)
{
	tell_death(s);
	for (uint32_t i = 0; i < s->cfg.max_peers; i++) {
		if (s->state->peers[i])
			scout__peer_leave(s, s->state->peers[i], false);
	}
	while (!scout__run_queue_empty(s))
		scout__run_queue_run(s);
}
