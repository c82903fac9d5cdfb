/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The link's channel: with a server on the same machine all frames after HELLO travel through shared memory (channel.h), which saves
 * libzmq's two threads on either side, their wakes, and the kernel's copies. The socket stays connected: it carried HELLO, and it
 * says when the connection is over.
 *
 * Each connection asks for a channel of its own over the lease connection, before anything else is in flight, and waits for it in the
 * state LEASING. So no operation ever has a reply on the one way and its request on the other. What does not come in time, or
 * cannot be used, costs speed only: the link goes up with the socket. The lease connection outlives others, and with it questions that were
 * not answered (a stopped server); each gets its answer, in order, and only that to the last one is of this connection.
 *
 * A full ring keeps frames here (backlog). When that is much, operations find no credit until the server has read on.
 */
#include "link.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

bool
scout__link_channel_ask(struct scout__link *link)
{
	const struct scout__lease_msg ask = {.type = SCOUT_LEASE_ASK_CHANNEL};
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];

	if (!scout__link_view(link)->shm ||
	    send(link->lease_fd, buf, scout__put_lease(buf, &ask), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return false;
	link->channel_asks++;
	return true;
}

void
scout__link_channel_take(struct scout__link *link, const struct scout__lease_msg *msg,
			 const int fds[SCOUT__CHANNEL_FDS])
{
	const struct scout__log *log = scout__link_view(link)->log;
	int rc = scout__channel_attach(&link->channel, fds, msg->request_bytes, msg->reply_bytes);

	if (rc != 0)
		scout__log(log, SCOUT_LOG_WARN, "%s: the server's shared memory cannot be used: %s", link->endpoint,
			   scout_strerror(rc));
	else
		scout__log(log, SCOUT_LOG_DEBUG, "%s: through shared memory", link->endpoint);
}

void
scout__link_channel_close(struct scout__link *link)
{
	scout__channel_close(&link->channel);
	link->in_len = 0;
	link->in_filled = 0;
}

bool
scout__link_channel_is_full(const struct scout__link *link)
{
	return link->channel.backlog_bytes > SCOUT__LINK_BACKLOG;
}

static bool reserve_in(struct scout__link *link, size_t want) SCOUT_ON_COURIER;
static bool
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

/* Whether a whole frame is in the buffer then. */
static bool read_frame(struct scout__link *link) SCOUT_ON_COURIER;
static bool
read_frame(struct scout__link *link)
{
	struct scout__channel *ch = &link->channel;

	if (link->in_len == 0) {
		link->in_len = scout__channel_begin(ch);
		link->in_filled = 0;
		if (link->in_len == 0)
			return false;
		if (!reserve_in(link, link->in_len)) {
			ch->broken = true; /* it cannot be skipped: a new connection will do */
			return false;
		}
	}
	link->in_filled += scout__channel_read(ch, link->in_buf + link->in_filled, link->in_len - link->in_filled);
	return link->in_filled == link->in_len;
}

unsigned
scout__link_channel_receive(struct scout__link *link, unsigned max)
{
	unsigned n = 0;

	scout__channel_push(&link->channel);
	while (n < max && scout__channel_is_open(&link->channel) && read_frame(link)) {
		size_t len = link->in_len;

		link->in_len = 0;
		n++;
		scout__link_frame(link, link->in_buf, len); /* may end the connection */
	}
	if (scout__channel_is_open(&link->channel) && link->channel.broken)
		scout__link_lost(link, SCOUT_ERR_PROTOCOL, "the channel through shared memory broke");
	return n;
}

void
scout__link_channel_rang(struct scout__link *link, unsigned max)
{
	bool lives = scout__channel_hear(&link->channel); /* before reading: what comes later rings again */

	(void)scout__link_channel_receive(link, max);
	if (!lives && scout__channel_is_open(&link->channel))
		scout__link_lost(link, SCOUT_ERR_UNREACHABLE, "the server closed the channel through shared memory");
}
