/* SPDX-License-Identifier: Apache-2.0 */
#include "lease.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "fork_guard.h"
#include "rights.h"
#include "server_core.h"
#include "transport.h"

/*
 * DESIGN
 *
 * The lease connection ties a peer to its process: the kernel gives the pid and uid of the socket's other end, and a
 * pidfd watches the process. What a peer holds stays held while that process lives, however silent it is and whatever becomes of its
 * connections. The end of the connection alone says nothing (a peer may connect again), unless the process cannot be
 * watched because it is in another pid namespace: then it counts as death.
 *
 * From process to pidfd: SO_PEERPIDFD (Linux 6.5) is exact, and knows processes of other pid namespaces, too, whose pid is 0 here. Older
 * kernels have pidfd_open(pid), which could hit a process that got the number of a dead one; so the connection must not have ended by then.
 *
 * ops/lease_messages.c decides what a message means, and what an end means for the peer (transport.hooks).
 *
 * Rejected: file locks as a sign of life (they fall before teardown ends, and forked children inherit them).
 *
 * Threads: loop; listening begins before it runs.
 */

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#define BATCH 128 /* connections, or messages of one, that one call takes, so that a flood does not keep the loop */
#define UNBOUND_US (SCOUT_LEASE_HELLO_MS * UINT64_C(1000)) /* a connection has this long for LEASE_HELLO */

/* Log at the start if peers in other pid namespaces cannot be watched. */
static void
tell_old_kernel(const struct scout_server *s)
{
	socklen_t len = sizeof(int);
	int pair[2], fd;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return;
	if (getsockopt(pair[0], SOL_SOCKET, SO_PEERPIDFD, &fd, &len) == 0)
		(void)close(fd);
	else
		scout__log(
			&s->log, SCOUT_LOG_INFO,
			"this kernel is older than Linux 6.5: a peer in another pid namespace (a sidecar) counts as dead "
			"when its lease connection ends, though its process may live; run the server in the peers' pid namespace");
	(void)close(pair[0]);
	(void)close(pair[1]);
}

int
scout__lease_listen(struct scout_server *s, char *err, size_t err_len)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t len = strlen(s->transport->paths.lease);
	int fd, rc;

	SCOUT_ASSERT(len <= SCOUT__IPC_PATH_MAX);
	memcpy(address.sun_path, s->transport->paths.lease, len + 1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "socket: %s", scout__errno_text(errno));
	s->transport->listener = (struct scout__watch){SCOUT__WATCH_LISTENER, fd, s};
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_BIND, "%s cannot be bound: %s", s->transport->paths.lease,
				   scout__errno_text(errno));
	rc = scout__unix_admit(s, s->transport->paths.lease, 0600, 0060, err, err_len);
	if (rc)
		return rc;
	if (listen(fd, 128) != 0 || scout__watch_add(s, &s->transport->listener) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "%s: %s", s->transport->paths.lease,
				   scout__errno_text(errno));
	tell_old_kernel(s);
	return 0;
}

void
scout__lease_say(int fd, uint16_t type, uint64_t word)
{
	const struct scout__lease_msg m = {.type = type, .word = word};

	(void)scout__lease_send(fd, &m, NULL, 0);
}

SCOUT_ON_LOOP static void
pause_listener(struct scout_server *s)
{
	scout__log_limited(&s->log, &s->limit_lease, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_ERROR,
			   "lease connections wait: no file descriptors left");
	/* The listener stays readable: if it stayed watched, the loop would spin. */
	(void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, s->transport->listener.fd, NULL);
	s->transport->listener_paused = true;
}

SCOUT_ON_LOOP static bool
accept_or_refuse(struct scout_server *s, int fd, const struct ucred *who)
{
	if (scout__right_of_uid(s, who->uid) != SCOUT__RIGHT_NONE &&
	    s->transport->n_leases < 2 * (uint64_t)s->transport->conns_limit)
		return true;
	s->count.leases_refused++;
	scout__log_limited(&s->log, &s->limit_lease, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_WARN,
			   "lease connection of pid %d, uid %u refused", (int)who->pid, (unsigned)who->uid);
	scout__lease_say(fd, SCOUT_LEASE_GONE, 0);
	return false;
}

SCOUT_ON_LOOP static bool
lease_new(struct scout_server *s, int fd)
{
	struct ucred who = {0};
	socklen_t len = sizeof(who);
	struct scout__lease *lease;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) != 0 || !accept_or_refuse(s, fd, &who))
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
 * End the connections that have not said LEASE_HELLO: those that are too old, and the oldest while there are too many.
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
		scout__lease_say(lease->watch.fd, SCOUT_LEASE_GONE, 0);
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
	scout__watch_end(s, &lease->watch);
	s->transport->n_unbound -= !lease->is_bound;
	scout__list_del(&lease->node);
	scout__list_add(&s->transport->deferred_free, &lease->node);
	s->transport->n_leases--;
}

void
scout__lease_bind(struct scout_server *s, struct scout__lease *lease, struct scout__peer *peer, uint16_t role)
{
	scout__list_del(&lease->node);
	scout__list_add(role == SCOUT_ROLE_WORKER ? &s->transport->of_workers : &s->transport->leases, &lease->node);
	s->transport->n_unbound--;
	lease->is_bound = true;
	lease->peer = peer;
}

void
scout__deferred_free(struct scout_server *s)
{
	struct scout__list *node;

	while ((node = scout__list_pop(&s->transport->deferred_free)))
		free(SCOUT__OWNER(node, struct scout__lease, node));
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
		if (len <= 0 || !scout__get_lease(buf, (size_t)len, &m) ||
		    !s->transport->hooks->lease_message(s, lease, &m)) {
			s->transport->hooks->lease_ended(s, lease);
			return;
		}
	}
}

int
scout__lease_process(const struct scout__lease *lease)
{
	struct pollfd end = {.fd = lease->watch.fd, .events = 0};
	socklen_t len = sizeof(int);
	int fd;

	if (getsockopt(lease->watch.fd, SOL_SOCKET, SO_PEERPIDFD, &fd, &len) == 0)
		return fd;
	if (lease->pid <= 0)
		return -1;
	fd = (int)syscall(SYS_pidfd_open, lease->pid, 0);
	if (fd < 0)
		return -1;
	if (poll(&end, 1, 0) > 0 && (end.revents & (POLLHUP | POLLERR))) {
		(void)close(fd);
		return -1;
	}
	return fd;
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

void
scout__leases_tick(struct scout_server *s)
{
	end_unbound(s);
	if (s->transport->listener_paused && scout__watch_add(s, &s->transport->listener) == 0)
		s->transport->listener_paused = false;
}
