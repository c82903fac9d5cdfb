/* SPDX-License-Identifier: Apache-2.0 */
#include "micro_link.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <zmq.h>

#include "clock.h"
#include "say.h"

#define TIMEOUT_MS 30000

void
micro_link_send(struct micro_link *link, struct scout__writer *w, uint32_t n_ops)
{
	scout__frame_end(w, n_ops, link->epoch, scout__now_us());
	if (w->bad)
		die("frame: too large");
	if (scout__channel_is_open(&link->channel)) {
		if (scout__channel_send(&link->channel, w->buf, w->len) != 0)
			die("send: the channel broke");
	} else if (zmq_send(link->dealer, w->buf, w->len, 0) < 0) {
		die("send: %s", zmq_strerror(zmq_errno()));
	}
}

/* One lease message; the descriptors that came with it. */
static struct scout__lease_msg
hear_lease(const struct micro_link *link, int fds[SCOUT__CHANNEL_FDS])
{
	union {
		char bytes[CMSG_SPACE(sizeof(int) * SCOUT__CHANNEL_FDS)];
		struct cmsghdr align;
	} control;
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];
	struct iovec part = {.iov_base = buf, .iov_len = sizeof(buf)};
	struct msghdr msg = {.msg_iov = &part,
			     .msg_iovlen = 1,
			     .msg_control = control.bytes,
			     .msg_controllen = sizeof(control.bytes)};
	struct scout__lease_msg m;
	ssize_t len = recvmsg(link->lease_fd, &msg, MSG_CMSG_CLOEXEC);

	if (len <= 0 || !scout__get_lease(buf, (size_t)len, &m))
		die("lease: no answer");
	if (m.type == SCOUT_LEASE_CHANNEL && CMSG_FIRSTHDR(&msg) &&
	    CMSG_FIRSTHDR(&msg)->cmsg_len == CMSG_LEN(sizeof(int) * SCOUT__CHANNEL_FDS))
		memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int) * SCOUT__CHANNEL_FDS);
	return m;
}

static void
say_lease(const struct micro_link *link, uint16_t type, uint64_t word, const struct scout__secret *secret)
{
	const struct scout__lease_msg m = {.type = type, .word = word, .secret = *secret};
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];
	size_t len = scout__put_lease(buf, &m);

	if (send(link->lease_fd, buf, len, MSG_NOSIGNAL) != (ssize_t)len)
		die("lease: it is closed");
}

static void
open_channel(struct micro_link *link, const struct scout__hello_reply *reply, uint64_t token)
{
	const struct scout__str *path = &reply->lease_path;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fds[SCOUT__CHANNEL_FDS] = {-1, -1, -1};
	struct scout__lease_msg m;

	if (path->len == 0 || path->len >= sizeof(address.sun_path))
		die("lease: the server has none");
	memcpy(address.sun_path, path->p, path->len);
	link->lease_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (link->lease_fd < 0 || connect(link->lease_fd, (struct sockaddr *)&address, sizeof(address)) != 0)
		die("lease: cannot connect");
	say_lease(link, SCOUT_LEASE_HELLO, token, &reply->secret);
	if (hear_lease(link, fds).type != SCOUT_LEASE_OK)
		die("lease: refused");
	say_lease(link, SCOUT_LEASE_ASK_CHANNEL, 0, &reply->secret);
	m = hear_lease(link, fds);
	if (fds[0] < 0 || scout__channel_attach(&link->channel, fds, m.request_bytes, m.reply_bytes) != 0)
		die("channel: none to be had");
}

void
micro_link_open(struct micro_link *link, const char *endpoint, bool use_socket, const struct scout__hello *hello,
		size_t max_frame)
{
	uint8_t out[1024], in[1024];
	struct scout__writer w = {.buf = out, .cap = sizeof(out)};
	const int zero = 0, timeout_ms = TIMEOUT_MS;
	struct scout__hello_reply reply;
	struct scout__reader ops;
	struct scout__frame frame;
	struct scout__op op;
	const char *field;
	size_t at;
	int len;

	link->lease_fd = -1;
	link->in_cap = max_frame;
	link->in = malloc(max_frame);
	link->zmq = zmq_ctx_new();
	link->dealer = zmq_socket(link->zmq, ZMQ_DEALER);
	if (!link->in || !link->dealer)
		die("out of memory");
	(void)zmq_setsockopt(link->dealer, ZMQ_LINGER, &zero, sizeof(zero));
	(void)zmq_setsockopt(link->dealer, ZMQ_SNDTIMEO, &timeout_ms, sizeof(timeout_ms));
	(void)zmq_setsockopt(link->dealer, ZMQ_RCVTIMEO, &timeout_ms, sizeof(timeout_ms));
	if (zmq_connect(link->dealer, endpoint) != 0)
		die("connect: %s", zmq_strerror(zmq_errno()));
	scout__frame_begin(&w);
	at = scout__op_begin(&w, SCOUT_OP_HELLO, SCOUT_KIND_REQUEST, 0, 1, 0);
	scout__put_hello(&w, hello);
	scout__op_end(&w, at);
	micro_link_send(link, &w, 1);
	len = zmq_recv(link->dealer, in, sizeof(in), 0);
	if (len <= 0 || scout__frame_check(in, (size_t)len, false, &frame) != SCOUT_WIRE_OK)
		die("HELLO: no answer");
	link->epoch = frame.epoch;
	ops = scout__frame_ops(in, (size_t)len);
	if (!scout__frame_next(&ops, &op) || scout__get_hello_reply(&op, &reply, &field) != SCOUT_WIRE_OK)
		die("HELLO: refused");
	if (!use_socket)
		open_channel(link, &reply, hello->token);
}

void
micro_link_close(struct micro_link *link)
{
	scout__channel_close(&link->channel);
	if (link->lease_fd >= 0)
		(void)close(link->lease_fd);
	(void)zmq_close(link->dealer);
	(void)zmq_ctx_term(link->zmq);
	free(link->in);
}

static void
receive_socket(struct micro_link *link, bool wait)
{
	zmq_msg_t msg;

	(void)zmq_msg_init(&msg);
	while (zmq_msg_recv(&msg, link->dealer, wait ? 0 : ZMQ_DONTWAIT) >= 0) {
		link->on_frame(link->user, zmq_msg_data(&msg), zmq_msg_size(&msg));
		wait = false;
	}
	if (wait)
		die("answer: %s", zmq_strerror(zmq_errno()));
	(void)zmq_msg_close(&msg);
}

/* Until @fd is readable. False: not within @timeout. */
static bool
sleep_on(int fd, const struct timespec *timeout)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};

	return ppoll(&pfd, 1, timeout, NULL) > 0;
}

/* Until the server rings, if it has nothing for us now. */
static bool
sleep_on_channel(struct micro_link *link, const struct timespec *timeout)
{
	bool rang = true;

	if (scout__channel_sleep(&link->channel)) {
		rang = sleep_on(link->channel.bell_fd, timeout);
		if (rang && !scout__channel_hear(&link->channel))
			die("bell: the server has closed the channel");
		scout__channel_wake(&link->channel);
	}
	return rang;
}

static void
receive_channel(struct micro_link *link, bool wait)
{
	const struct timespec timeout = {.tv_sec = TIMEOUT_MS / 1000};
	uint32_t len;

	while (!link->channel.broken) {
		scout__channel_push(&link->channel);
		len = scout__channel_begin(&link->channel);
		if (len > link->in_cap)
			die("answer: too long");
		if (len && scout__channel_fill(&link->channel, link->in)) {
			link->on_frame(link->user, link->in, len);
			wait = false;
		} else if (!wait) {
			return;
		} else if (!sleep_on_channel(link, &timeout)) {
			die("answer: none came");
		}
	}
	die("answer: the channel broke");
}

void
micro_link_receive(struct micro_link *link, bool wait)
{
	if (scout__channel_is_open(&link->channel))
		receive_channel(link, wait);
	else
		receive_socket(link, wait);
}

void
micro_link_sleep_until(struct micro_link *link, double until_ns)
{
	double left_ns = until_ns - (double)scout__now_ns();
	struct timespec timeout = {.tv_nsec = left_ns > 1e8 ? 100000000 : (long)left_ns};
	size_t len = sizeof(int);
	int fd;

	if (left_ns <= 0)
		return;
	if (scout__channel_is_open(&link->channel))
		(void)sleep_on_channel(link, &timeout);
	else if (zmq_getsockopt(link->dealer, ZMQ_FD, &fd, &len) == 0)
		(void)sleep_on(fd, &timeout);
}
