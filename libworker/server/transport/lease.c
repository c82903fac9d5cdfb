/* SPDX-License-Identifier: Apache-2.0 */
#include "lease.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "fork_guard.h"
#include "log.h"
#include "ns.h"
#include "paths.h"
#include "peer.h"
#include "pending_op.h"
#include "server_core.h"
#include "list.h"
#include "shm.h"
#include "transport.h"
#include "watch.h"
#include "withdraw.h"

/*
 * DESIGN
 *
 * The lease connection says who a peer is to the kernel: its pid and uid are read from the socket, and a pidfd watches
 * the process. What a peer holds stays held while that process lives, however silent it is and whatever becomes of its
 * connections. The end of the connection alone says nothing (a peer may connect again), unless the process cannot be
 * watched because it is in another pid namespace: then it counts as death.
 *
 * From process to pidfd: SO_PEERPIDFD is exact. Older kernels have pidfd_open(pid), which could hit a process that got
 * the number of a dead one; so the connection must not have ended by then.
 *
 * Segments: each connection is sent every segment of its worker's KV rank, in the order of their ids; a new connection
 * of the same process gets them all again. How they are withdrawn: withdraw.c.
 *
 * Rejected: file locks as a sign of life (they fall before teardown ends, and forked children inherit them).
 *
 * Threads: loop; listening begins before it runs.
 */

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#define BATCH 128 /* connections, or messages of one, that are taken at a time: who floods us does not keep the loop */
#define UNBOUND_US (SCOUT_LEASE_HELLO_MS * UINT64_C(1000)) /* a connection that does not say who it is is closed then */

int
scout__lease_listen(struct scout_server *s, char *err, size_t err_len)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t len = strlen(s->transport->paths.lease);
	int fd;

	SCOUT_ASSERT(len <= SCOUT__IPC_PATH_MAX);
	memcpy(address.sun_path, s->transport->paths.lease, len + 1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "socket: %s", scout__errno_text(errno));
	s->transport->listener = (struct scout__watch){SCOUT__WATCH_LISTENER, fd, s};
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_BIND, "%s cannot be bound: %s", s->transport->paths.lease,
				   scout__errno_text(errno));
	if (chmod(s->transport->paths.lease, 0600) != 0 || listen(fd, 128) != 0 ||
	    scout__watch_add(s, &s->transport->listener) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "%s: %s", s->transport->paths.lease,
				   scout__errno_text(errno));
	return 0;
}

/* A message of the short form; what cannot be sent now is lost, and the peer's own timeout finds out. */
SCOUT_ON_LOOP static void
say(int fd, uint16_t type, uint64_t word)
{
	const struct scout__lease_msg m = {.type = type, .word = word};

	(void)scout__lease_send(fd, &m, NULL, 0);
}

SCOUT_ON_LOOP static void
pause_listener(struct scout_server *s)
{
	scout__log_limited(&s->log, &s->limit_lease, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_ERROR,
			   "lease connections wait: no file descriptors left");
	/* It stays readable; without this the loop would spin. */
	(void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, s->transport->listener.fd, NULL);
	s->transport->listener_paused = true;
}

SCOUT_ON_LOOP static bool
is_welcome(struct scout_server *s, int fd, const struct ucred *who)
{
	if (who->uid == geteuid() || who->uid == 0) {
		if (s->transport->n_leases < 2 * (uint64_t)s->transport->conns_limit)
			return true;
	}
	s->count.leases_refused++;
	scout__log_limited(&s->log, &s->limit_lease, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_WARN,
			   "lease connection of pid %d, uid %u refused", (int)who->pid, (unsigned)who->uid);
	say(fd, SCOUT_LEASE_GONE, 0);
	return false;
}

SCOUT_ON_LOOP static bool
lease_new(struct scout_server *s, int fd)
{
	struct ucred who = {0};
	socklen_t len = sizeof(who);
	struct scout__lease *lease;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) != 0 || !is_welcome(s, fd, &who))
		return false;
	lease = calloc(1, sizeof(*lease));
	if (!lease)
		return false;
	lease->watch = (struct scout__watch){SCOUT__WATCH_LEASE, fd, lease};
	lease->pid = who.pid;
	lease->accepted_us = s->now_us;
	if (scout__watch_add(s, &lease->watch) != 0) {
		free(lease);
		return false;
	}
	scout__fork_guard_add(fd);
	scout__list_add(&s->transport->unbound, &lease->node);
	s->transport->n_leases++;
	s->transport->n_unbound++;
	return true;
}

/*
 * End the connections that have not said who they are: those that are too old, and the oldest while there are too many.
 * What a connection has sent is read first.
 */
SCOUT_ON_LOOP static void
end_unbound(struct scout_server *s)
{
	uint32_t most = s->transport->conns_limit < SCOUT_LEASE_MAX_UNBOUND ? s->transport->conns_limit
									    : SCOUT_LEASE_MAX_UNBOUND;

	while (!scout__list_empty(&s->transport->unbound)) {
		struct scout__lease *lease = SCOUT__OWNER(s->transport->unbound.next, struct scout__lease, node);

		if (s->transport->n_unbound <= most && s->now_us - lease->accepted_us <= UNBOUND_US)
			return;
		scout__lease_readable(s, lease);
		if (lease->is_bound || lease->watch.fd < 0)
			continue;
		s->count.leases_refused++;
		scout__log_limited(&s->log, &s->limit_lease, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_WARN,
				   "lease connection of pid %d ended: it did not say LEASE_HELLO", (int)lease->pid);
		say(lease->watch.fd, SCOUT_LEASE_GONE, 0);
		scout__lease_close(s, lease);
	}
}

void
scout__lease_accept(struct scout_server *s)
{
	for (int i = 0; i < BATCH; i++) {
		/* Not accept4(): kvscoutd's guard (accept_guard.c) would drop what can wait here. */
		int fd = (int)syscall(SYS_accept4, s->transport->listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
				pause_listener(s);
			if (errno == EINTR || errno == ECONNABORTED)
				continue;
			return;
		}
		if (!lease_new(s, fd))
			(void)close(fd);
		end_unbound(s);
	}
}

void
scout__lease_close(struct scout_server *s, struct scout__lease *lease)
{
	struct scout__peer *peer = lease->peer;

	scout__watch_end(s, &lease->watch);
	s->transport->n_unbound -= !lease->is_bound;
	scout__list_del(&lease->node);
	scout__list_add(&s->transport->grave, &lease->node);
	s->transport->n_leases--;
	if (!peer)
		return;
	lease->peer = NULL;
	peer->lease = NULL;
	scout__shm_close(s, peer); /* it came over this connection */
	scout__pending_ops_wake(s, &peer->lease_waiters);
}

void
scout__graves_free(struct scout_server *s)
{
	struct scout__list *node;

	while ((node = scout__list_pop(&s->transport->grave)))
		free(SCOUT__OWNER(node, struct scout__lease, node));
}

void
scout__process_unwatch(struct scout_server *s, struct scout__peer *peer)
{
	scout__watch_end(s, &peer->process);
}

/* A pidfd of the process at the other end, or -1. */
SCOUT_ON_LOOP static int
process_of(const struct scout__lease *lease)
{
	struct pollfd end = {.fd = lease->watch.fd, .events = 0};
	socklen_t len = sizeof(int);
	int fd;

	if (lease->pid <= 0)
		return -1;
	if (getsockopt(lease->watch.fd, SOL_SOCKET, SO_PEERPIDFD, &fd, &len) == 0)
		return fd;
	fd = (int)syscall(SYS_pidfd_open, lease->pid, 0);
	if (fd < 0)
		return -1;
	if (poll(&end, 1, 0) > 0 && (end.revents & (POLLHUP | POLLERR))) {
		(void)close(fd);
		return -1;
	}
	return fd;
}

/* False: the process is gone already, or there is no descriptor to watch it with. */
SCOUT_ON_LOOP static bool
watch_process(struct scout_server *s, struct scout__peer *peer, const struct scout__lease *lease)
{
	int fd = process_of(lease);

	if (fd < 0 && lease->pid > 0)
		return false;
	peer->pid = lease->pid;
	peer->process.fd = fd;
	if (fd < 0) {
		scout__log_limited(
			&s->log, &s->limit_join, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_INFO,
			"peer %016llx is in another pid namespace; the end of its lease connection counts as its death",
			(unsigned long long)peer->token);
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
lease_bind(struct scout_server *s, struct scout__lease *lease, uint64_t token)
{
	struct scout__peer *peer = scout__peer_by_token(s, token);

	/* A token is one object of one process, so another process with it is not that peer. */
	bool fits = peer && !lease->peer && !s->draining && (!peer->pid || peer->pid == lease->pid);

	if (!fits || (peer->process.fd < 0 && !watch_process(s, peer, lease))) {
		s->count.leases_refused++;
		scout__log_limited(&s->log, &s->limit_lease, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_WARN,
				   "lease connection of pid %d refused: %s", (int)lease->pid,
				   !peer  ? "no HELLO with its token"
				   : fits ? "its process cannot be watched"
					  : "not that peer");
		say(lease->watch.fd, SCOUT_LEASE_GONE, 0);
		return false;
	}
	if (peer->lease)
		scout__lease_close(s, peer->lease);
	scout__list_del(&lease->node);
	scout__list_add(&s->transport->leases, &lease->node);
	s->transport->n_unbound--;
	lease->is_bound = true;
	lease->peer = peer;
	peer->lease = lease;
	peer->segments_sent = 0;
	scout__withdraw_gone(s, peer);
	say(lease->watch.fd, SCOUT_LEASE_OK, s->epoch);
	if (peer->rank >= 0)
		(void)scout__lease_deliver(s, peer);
	return true;
}

/* The connection ended without a goodbye, or broke the protocol. */
void
scout__lease_end(struct scout_server *s, struct scout__lease *lease)
{
	struct scout__peer *peer = lease->peer;

	scout__lease_close(s, lease);
	if (!peer)
		return;
	if (peer->process.fd < 0) {
		scout__peer_leave(s, peer, true);
		return;
	}
	scout__log_limited(&s->log, &s->limit_leave, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_INFO,
			   "peer %016llx closed its lease connection; pid %d lives and keeps %u holds",
			   (unsigned long long)peer->token, (int)peer->pid, (unsigned)peer->n_holds);
}

void
scout__lease_readable(struct scout_server *s, struct scout__lease *lease)
{
	for (int i = 0; i < BATCH && lease->watch.fd >= 0; i++) {
		uint8_t buf[2 * SCOUT__LEASE_SEGMENT_BYTES];
		ssize_t len = recv(lease->watch.fd, buf, sizeof(buf), MSG_DONTWAIT);
		struct scout__lease_msg m;

		/* A peer that closed with unread segments is reported before its goodbye, and once: read on. */
		if (len < 0 && (errno == EINTR || errno == ECONNRESET))
			continue;
		if (len < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		if (len <= 0 || !scout__get_lease(buf, (size_t)len, &m)) {
			scout__lease_end(s, lease);
			return;
		}
		if (m.type == SCOUT_LEASE_HELLO) {
			if (!lease_bind(s, lease, m.word))
				scout__lease_end(s, lease);
		} else if (m.type == SCOUT_LEASE_BYE && lease->peer && lease->peer->token == m.word) {
			scout__peer_leave(s, lease->peer, false);
		} else if (m.type == SCOUT_LEASE_RELEASED && lease->peer) {
			scout__withdraw_released(s, lease->peer, m.segment);
		} else if (m.type == SCOUT_LEASE_ASK_CHANNEL && lease->peer) {
			scout__shm_open(s, lease->peer);
		} else {
			scout__lease_end(s, lease);
		}
	}
}

void
scout__process_ended(struct scout_server *s, struct scout__peer *peer)
{
	scout__peer_leave(s, peer, true);
}

bool
scout__lease_send(int fd, const struct scout__lease_msg *m, const int *fds, size_t n)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * SCOUT__CHANNEL_FDS)];
	} control;
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];
	struct iovec part = {.iov_base = buf, .iov_len = scout__put_lease(buf, m)};
	struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1};
	struct cmsghdr *head;

	SCOUT_ASSERT(n <= SCOUT__CHANNEL_FDS);
	if (n > 0) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * n);
		head = CMSG_FIRSTHDR(&msg);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(sizeof(int) * n);
		memcpy(CMSG_DATA(head), fds, sizeof(int) * n);
	}
	return sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

/* False: not now. */
SCOUT_ON_LOOP static bool
send_segment(int fd, const struct scout__segment *segment, uint32_t slots)
{
	const struct scout__lease_msg m = {
		.type = SCOUT_LEASE_SEGMENT,
		.segment = segment->id,
		.slots = slots,
		.bytes = segment->bytes,
		.data_offset = segment->data_offset,
		.slot_stride = segment->stride,
	};

	return scout__lease_send(fd, &m, &segment->fd, 1);
}

/* The first place in index->by_age of an extent that @peer was not sent. */
SCOUT_ON_LOOP static uint32_t
first_unsent(const struct scout__chunk_index *index, const struct scout__peer *peer)
{
	uint32_t low = 0;
	uint32_t high = index->n_extents;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (index->by_age[middle]->segments[0].id <= peer->segments_sent)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool
scout__lease_deliver(struct scout_server *s, struct scout__peer *peer)
{
	const struct scout__chunk_index *index = peer->ns->index;

	(void)s;
	if (!index || peer->rank < 0)
		return true;
	if (!peer->lease)
		return false;
	for (uint32_t i = first_unsent(index, peer); i < index->n_extents; i++) {
		const struct scout__extent *extent = index->by_age[i];

		/* A full socket or too many descriptors on their way; of a broken one epoll tells. */
		if (!send_segment(peer->lease->watch.fd, &extent->segments[peer->rank], extent->slots))
			return false;
		peer->segments_sent = extent->segments[0].id;
	}
	return true;
}

/* What was not delivered. */
SCOUT_ON_LOOP static void
tick(struct scout_server *s, struct scout__lease *lease)
{
	struct scout__peer *peer = lease->peer;

	if (peer->ns->index && peer->rank >= 0 && first_unsent(peer->ns->index, peer) < peer->ns->index->n_extents) {
		if (scout__lease_deliver(s, peer))
			scout__pending_ops_wake(s, &peer->lease_waiters);
	}
}

void
scout__leases_tick(struct scout_server *s)
{
	uint32_t left = scout__tick_share(s->transport->n_leases);
	struct scout__list *node;

	end_unbound(s);
	if (s->transport->listener_paused && scout__watch_add(s, &s->transport->listener) == 0)
		s->transport->listener_paused = false;
	/* By turns, as the peers. */
	while (left-- && (node = scout__list_pop(&s->transport->leases))) {
		scout__list_add(&s->transport->leases, node);
		tick(s, SCOUT__OWNER(node, struct scout__lease, node));
	}
	scout__withdraw_tick(s);
}
