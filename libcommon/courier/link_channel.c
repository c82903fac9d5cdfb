/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * How a link gets its channel, and reads frames from it; courier thread only. With a server on the same machine all frames after HELLO
 * travel through shared memory (channel.h), which saves libzmq's two threads on either side, their wakes, and the kernel's copies. The
 * socket stays connected: it carried HELLO, and shows when the connection is over.
 *
 * Each connection asks for a channel of its own over the lease connection, before anything else is in flight, and waits for it in
 * the state LEASING. So a request and its reply always travel the same way. A channel that does not come in time, or cannot be
 * used, costs only speed: the link goes up with the socket. The lease connection outlives ZeroMQ connections, and so do
 * unanswered questions on it (a stopped server); each is answered, in order, and only the last answer is for this connection.
 *
 * If the ring is full, frames wait here (backlog). If many wait, operations get no credit until the server reads on.
 */
#include "link.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Ask for a channel. False: none is configured, or the question cannot be sent. */
static bool SCOUT_ON_COURIER
ask_channel(struct scout__link *link)
{
	const struct scout__lease_msg msg = {.type = SCOUT_LEASE_ASK_CHANNEL};
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];

	if (!link->env->shm || send(link->lease_fd, buf, scout__put_lease(buf, &msg), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return false;
	link->channel_asks++;
	return true;
}

void
scout__link_channel_take(struct scout__link *link, const struct scout__lease_msg *msg,
			 const int fds[SCOUT__CHANNEL_FDS])
{
	const struct scout__log *log = link->env->log;
	int rc = scout__channel_attach(&link->channel, fds, msg->request_bytes, msg->reply_bytes);

	if (rc != 0)
		scout__log(log, SCOUT_LOG_WARN, "%s: the server's shared memory cannot be used: %s", link->endpoint,
			   scout_strerror(rc));
	else
		scout__log(log, SCOUT_LOG_DEBUG, "%s: through shared memory", link->endpoint);
}

void
scout__link_bound(struct scout__link *link)
{
	if (!ask_channel(link))
		scout__link_leased(link);
}

static bool SCOUT_ON_COURIER
reserve_in(struct scout__link *link, size_t want)
{
	uint8_t *buf;

	if (want <= link->in_cap)
		return true;
	buf = realloc(link->in_buf, want);
	if (!buf)
		return false;
	link->in_buf = buf;
	link->in_cap = want;
	return true;
}

bool
scout__link_channel_read(struct scout__link *link)
{
	struct scout__channel *ch = &link->channel;

	uint32_t len = scout__channel_begin(ch);

	if (len == 0)
		return false;
	if (!reserve_in(link, len)) {
		/* The frame cannot be skipped: connect anew. */
		scout__link_lost(link, SCOUT_ERR_NOMEM, "no memory to take a reply in");
		return false;
	}
	return scout__channel_fill(ch, link->in_buf);
}
