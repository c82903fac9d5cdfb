/* SPDX-License-Identifier: Apache-2.0 */
#include "lease_messages.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "lease.h"
#include "msg.h"
#include "peer.h"
#include "pending_op.h"
#include "reply.h"
#include "segments.h"
#include "server_core.h"
#include "shm.h"
#include "transport.h"
#include "watch.h"
#include "withdraw.h"

/*
 * DESIGN
 *
 * Messages of lease connections (transport/lease.c): LEASE_HELLO, which names the peer, BYE, RELEASED and ASK_CHANNEL.
 * This file also decides what the end of a lease connection, or a broken channel, means for the peer.
 *
 * The end of a connection without BYE says nothing while the peer's process is watched: the peer may connect again, and
 * keeps its holds. If the process cannot be watched (another pid namespace), the end counts as the peer's death.
 *
 * Threads: loop.
 */

/* Close @lease; its peer lives on without it. */
SCOUT_ON_LOOP static void
detach(struct scout_server *s, struct scout__lease *lease)
{
	struct scout__peer *peer = lease->peer;

	scout__lease_close(s, lease);
	if (!peer)
		return;
	lease->peer = NULL;
	peer->lease = NULL;
	scout__shm_close(s, &peer->dest); /* the channel came over this connection */
	scout__pending_ops_wake(s, &peer->lease_waiters);
}

/* False: the process is gone already, or there is no descriptor to watch it with. */
SCOUT_ON_LOOP static bool
watch_process(struct scout_server *s, struct scout__peer *peer, const struct scout__lease *lease)
{
	int fd = scout__lease_process(lease);

	if (fd < 0 && lease->pid > 0)
		return false;
	peer->pid = lease->pid;
	peer->process.fd = fd;
	if (fd < 0) {
		scout__log_limited(
			&s->log, &s->limit_join, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_INFO,
			"peer %016llx is in another pid namespace, and this kernel cannot watch it there; the end of its lease "
			"connection counts as its death",
			(unsigned long long)peer->id);
		return true;
	}
	if (scout__watch_add(s, &peer->process) == 0)
		return true;
	(void)close(fd);
	peer->process.fd = -1;
	return false;
}

/* LEASE_HELLO. False: the connection is to be closed. */
SCOUT_ON_LOOP static bool
hello(struct scout_server *s, struct scout__lease *lease, const struct scout__lease_msg *m)
{
	struct scout__peer *peer = scout__peer_by_token(s, m->word);
	bool knows = peer && scout__secret_equal(&peer->secret, &m->secret);

	/* A token names one object of one process, so another process with that token is not that peer. */
	bool fits = knows && !lease->peer && !s->draining && (!peer->pid || peer->pid == lease->pid);

	if (!fits || (peer->process.fd < 0 && !watch_process(s, peer, lease))) {
		s->count.leases_refused++;
		scout__log_limited(&s->log, &s->limit_lease, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_WARN,
				   "lease connection of pid %d refused: %s", (int)lease->pid,
				   !peer    ? "no HELLO with its token"
				   : !knows ? "it does not show the secret of the peer whose token it says"
				   : fits   ? "its process cannot be watched"
					    : "not that peer");
		scout__lease_say(lease->watch.fd, SCOUT_LEASE_GONE, 0);
		return false;
	}
	if (peer->lease)
		detach(s, peer->lease);
	scout__lease_bind(s, lease, peer, peer->role);
	peer->lease = lease;
	memset(peer->segments_sent, 0, sizeof(peer->segments_sent));
	scout__withdraw_gone(s, peer);
	scout__lease_say(lease->watch.fd, SCOUT_LEASE_OK, s->epoch);
	if (peer->rank >= 0)
		(void)scout__segments_deliver(s, peer);
	return true;
}

SCOUT_ON_LOOP static void
ask_channel(struct scout_server *s, struct scout__peer *peer)
{
	int error = scout__shm_open(s, &peer->dest, peer->lease->watch.fd);

	/* If the peer has left meanwhile, another line says so. */
	if (error && error != EPIPE && error != ECONNRESET)
		scout__log_limited(&s->log, &s->limit_shm, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_WARN,
				   "no shared memory for peer %016llx (%s): it uses the socket",
				   (unsigned long long)peer->id, scout__errno_text(error));
}

bool
scout__lease_message(struct scout_server *s, struct scout__lease *lease, const struct scout__lease_msg *m)
{
	struct scout__peer *peer = lease->peer;

	if (m->type == SCOUT_LEASE_HELLO)
		return hello(s, lease, m);
	if (!peer)
		return false;
	switch (m->type) {
	case SCOUT_LEASE_BYE:
		if (peer->token != m->word)
			return false;
		scout__peer_leave(s, peer, false);
		return true;
	case SCOUT_LEASE_RELEASED:
		scout__withdraw_released(s, peer, m->segment);
		return true;
	case SCOUT_LEASE_ASK_CHANNEL:
		ask_channel(s, peer);
		return true;
	default:
		return false;
	}
}

/* The connection ended without a goodbye, or broke the protocol. */
void
scout__lease_ended(struct scout_server *s, struct scout__lease *lease)
{
	struct scout__peer *peer = lease->peer;

	detach(s, lease);
	if (!peer)
		return;
	if (peer->process.fd < 0) {
		scout__peer_leave(s, peer, true);
		return;
	}
	scout__log_limited(
		&s->log, &s->limit_leave, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_INFO,
		"peer %016llx closed its lease connection; pid %d has not been seen to end and keeps %u holds",
		(unsigned long long)peer->id, (int)peer->pid, (unsigned)peer->n_holds);
}

void
scout__channel_broken(struct scout_server *s, struct scout__dest *dest)
{
	struct scout__peer *peer = SCOUT__OWNER(dest, struct scout__peer, dest);

	if (dest->shm.is_deaf) {
		s->count.peers_dropped++;
		scout__log_limited(
			&s->log, &s->limit_undo, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_WARN,
			"peer %016llx (pid %d) does not read its replies, %zu bytes wait: its channel and its lease end",
			(unsigned long long)peer->id, (int)peer->pid, dest->shm.channel.backlog_bytes);
	} else {
		s->count.frames_dropped++;
		scout__log_limited(&s->log, &s->limit_bad, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_WARN,
				   "peer %016llx (pid %d) broke the rules of its channel: its lease ends",
				   (unsigned long long)peer->id, (int)peer->pid);
	}
	scout__shm_close(s, dest);
	if (peer->lease)
		scout__lease_ended(s, peer->lease);
}
