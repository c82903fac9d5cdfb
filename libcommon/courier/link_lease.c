/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The peer's end of the lease connection, courier thread only: a SOCK_SEQPACKET unix socket on which the server learns our pid and
 * uid from the kernel, and hands the pool's memfds to workers. While our process lives, the server keeps our holds, even when our
 * ZeroMQ connection is lost; so this one is kept over reconnects to the same server start. The link owns the descriptor.
 *
 * A forked child would keep the connection open after our end: the copy it got is closed (fork_guard.h).
 *
 * End of file here means that the server is gone (or refuses us): we notice at once, long before a heartbeat.
 */
#include "fork_guard.h"
#include "link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LEASE_BATCH 64
#define NO_FDS_PAUSE_MS 500 /* until some descriptors may be free */

void
scout__link_lease_close(struct scout__link *link)
{
	scout__fork_guard_close(link->lease_fd);
	link->lease_fd = -1;
	link->lease_bound = false;
	link->lease_epoch = 0;
	link->channel_asks = 0;
}

static int
connect_path(const struct scout__str *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd;

	if (path->len >= sizeof(addr.sun_path))
		return -1;
	memcpy(addr.sun_path, path->p, path->len);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	/* On a unix socket connect() succeeds at once, or is refused (EAGAIN: the server's backlog is full). */
	if (connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) != 0) {
		(void)close(fd);
		return -1;
	}
	return fd;
}

/* The server's lease socket by the path at which we see its endpoint: in another mount namespace it is not the server's own path. */
static int
connect_beside(const char *endpoint)
{
	static const char ipc[] = "ipc://";
	char path[sizeof(((struct sockaddr_un *)NULL)->sun_path) + 1];
	int n = snprintf(path, sizeof(path), "%s.lease", endpoint + sizeof(ipc) - 1);

	if (strncmp(endpoint, ipc, sizeof(ipc) - 1) != 0)
		return -1;
	return connect_path(&(struct scout__str){path, (uint16_t)n});
}

pid_t
scout__link_server_pid(const struct scout__link *link)
{
	struct ucred server;
	socklen_t len = sizeof(server);

	return getsockopt(link->lease_fd, SOL_SOCKET, SO_PEERCRED, &server, &len) == 0 ? server.pid : 0;
}

bool
scout__link_lease_connect(struct scout__link *link, const struct scout__str *path)
{
	const struct scout__log *log = link->env->log;
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];
	struct scout__lease_msg hello = {
		.type = SCOUT_LEASE_HELLO, .word = link->hello.token, .secret = link->hello.secret};
	int fd = connect_beside(link->endpoint);

	if (fd < 0)
		fd = connect_path(path);
	if (fd < 0 || send(fd, buf, scout__put_lease(buf, &hello), MSG_NOSIGNAL) < 0) {
		scout__log(log, SCOUT_LOG_INFO, "%s: no lease connection at %.*s (%s)", link->endpoint, (int)path->len,
			   path->p, scout__errno_text(errno));
		if (fd >= 0)
			(void)close(fd);
		return false;
	}
	scout__fork_guard_add(fd);
	link->lease_fd = fd;
	return true;
}

bool
scout__link_released(struct scout__link *link, uint32_t segment)
{
	struct scout__lease_msg msg = {.type = SCOUT_LEASE_RELEASED, .segment = segment};
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];

	if (link->lease_fd < 0)
		return true;
	/* If the connection is broken, its reader notices. */
	return send(link->lease_fd, buf, scout__put_lease(buf, &msg), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 ||
	       (errno != EAGAIN && errno != EWOULDBLOCK);
}

/* The descriptors that came with a message. */
struct passed_fds {
	int fds[SCOUT__CHANNEL_FDS];
	size_t n;
};

static void
close_passed(const struct passed_fds *passed)
{
	for (size_t i = 0; i < passed->n; i++)
		(void)close(passed->fds[i]);
}

/* Receive one message. Returns its length, 0 at end of file, -1 when there is none. */
static ssize_t
receive(int fd, uint8_t *buf, size_t len, struct passed_fds *ret_passed)
{
	union {
		char bytes[CMSG_SPACE(sizeof(ret_passed->fds))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = buf, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.bytes,
			     /* Not CMSG_SPACE: its padding would let one descriptor too many in. */
			     .msg_controllen = CMSG_LEN(sizeof(ret_passed->fds))};
	ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	ret_passed->n = 0;
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? -1 : 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && ret_passed->n == 0) {
			ret_passed->n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
			memcpy(ret_passed->fds, CMSG_DATA(c), ret_passed->n * sizeof(int));
		}
	return n;
}

/* The answer to a question for a channel; an answer that is late, or to an earlier question, is not used. Takes @passed. */
static void SCOUT_ON_COURIER
on_channel(struct scout__link *link, const struct scout__lease_msg *msg, const struct passed_fds *passed)
{
	bool in_time = link->state == SCOUT__LINK_LEASING && link->lease_bound && link->channel_asks == 1;

	if (link->channel_asks > 0)
		link->channel_asks--;
	if (in_time && passed->n == SCOUT__CHANNEL_FDS)
		scout__link_channel_take(link, msg, passed->fds);
	else
		close_passed(passed);
	if (in_time)
		scout__link_leased(link);
}

static void SCOUT_ON_COURIER
on_bound(struct scout__link *link, uint64_t epoch)
{
	const struct scout__link_env *env = link->env;

	if (env->ops->lease_new)
		env->ops->lease_new(env->user, link);
	link->lease_bound = true;
	link->lease_epoch = epoch;
	if (link->state == SCOUT__LINK_LEASING)
		scout__link_bound(link);
}

static void SCOUT_ON_COURIER
on_withdraw(struct scout__link *link, uint32_t segment)
{
	const struct scout__link_env *env = link->env;

	if (env->ops->withdraw)
		env->ops->withdraw(env->user, link, segment);
	else
		(void)scout__link_released(link, segment); /* never mapped; the server does not ask again */
}

/* Takes @passed. False: the lease is over. */
static bool SCOUT_ON_COURIER
on_message(struct scout__link *link, const uint8_t *buf, size_t len, const struct passed_fds *passed)
{
	const struct scout__link_env *env = link->env;
	struct scout__lease_msg msg;
	bool good = scout__get_lease(buf, len, &msg);

	if (good && msg.type == SCOUT_LEASE_SEGMENT && env->ops->segment) {
		if (passed->n == 1) {
			env->ops->segment(env->user, link, &msg, passed->fds[0]);
			return true;
		}
		/* A segment is sent once on each lease connection, and jobs that need it would wait for it in vain. */
		scout__log(env->log, SCOUT_LOG_WARN,
			   "%s: pool segment %u came without its memory; are there descriptors left?", link->endpoint,
			   (unsigned)msg.segment);
		link->pause_ms = NO_FDS_PAUSE_MS;
		good = false;
	}
	if (good && msg.type == SCOUT_LEASE_CHANNEL) {
		on_channel(link, &msg, passed);
		return true;
	}
	close_passed(passed);
	if (!good || msg.type == SCOUT_LEASE_GONE)
		return false;
	if (msg.type == SCOUT_LEASE_WITHDRAW)
		on_withdraw(link, msg.segment);
	else if (msg.type == SCOUT_LEASE_OK)
		on_bound(link, msg.word);
	return true;
}

void
scout__link_lease_ready(struct scout__link *link)
{
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES + 1];

	for (int i = 0; i < LEASE_BATCH && link->lease_fd >= 0; i++) {
		bool was_bound = link->lease_bound;
		struct passed_fds passed;
		ssize_t n = receive(link->lease_fd, buf, sizeof(buf), &passed);

		if (n < 0)
			return;
		if (n > 0 && on_message(link, buf, (size_t)n, &passed))
			continue;
		scout__link_lease_close(link);
		if (link->state == SCOUT__LINK_LEASING && !was_bound)
			scout__link_leased(link); /* refused: go on without a lease, as the log line says */
		else if (link->state >= SCOUT__LINK_LEASING)
			scout__link_reset(link, SCOUT_ERR_UNREACHABLE, "the lease connection is over");
	}
}
