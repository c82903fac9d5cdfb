/* SPDX-License-Identifier: Apache-2.0 */
#include "shm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "lease.h"
#include "page.h"
#include "server_core.h"
#include "transport.h"

/*
 * DESIGN
 *
 * Channels: peers on this machine send their frames through shared memory (channel.h, and CHANNEL in protocol_local.h).
 * A peer asks for a channel over its lease connection, so its process is known and may use this machine's pool, too.
 * What arrives is then handled as any frame of that peer. Answers leave through the channel once a frame has come
 * through it.
 *
 * A channel is in one of three states:
 *   asleep   its bell is armed; the kernel tells through epoll (edge-triggered: the bell is never read)
 *   hot      it has bytes, or may have: each turn reads from it, one frame at a time by turns with the others
 *   warm     empty while the loop spins: the loop looks at its memory each turn, and its peer needs no system call
 *
 * What does not fit into the ring of answers is kept and written as the peer reads on, up to SCOUT__UNSENT_MAX. Beyond
 * that, the peer counts as one that does not read: what the answer granted is taken back, and its lease and channel
 * end. All channels, and the connections on the socket (unsent.c), share SCOUT__UNSENT_ALL, and each may keep no more
 * than what is left: so peers that never read share it evenly and leave as much for the others, however many they are.
 *
 * A channel that breaks the rules, or that is not read, is reported to the room above (channel_broken), which ends it.
 *
 * Threads: loop.
 */

/* Of a channel, for each direction; whole pages of any size that there is. */
#define REQUEST_BYTES (256u << 10)
#define REPLY_BYTES (64u << 10)

void
scout__shm_init(struct scout__dest *dest)
{
	dest->shm.watch = (struct scout__watch){SCOUT__WATCH_SHM, -1, dest};
	scout__list_init(&dest->shm.node);
}

void
scout__shm_close(struct scout_server *s, struct scout__dest *dest)
{
	struct scout__shm *shm = &dest->shm;

	if (!scout__channel_is_open(&shm->channel))
		return;
	(void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, shm->watch.fd, NULL); /* cannot fail: it was added */
	shm->watch.fd = -1;
	scout__list_del(&shm->node);
	s->transport->shm_backlog -= shm->channel.backlog_bytes;
	scout__channel_close(&shm->channel);
	if (shm->packet)
		scout__packet_unref(s, shm->packet);
	shm->packet = NULL;
	shm->is_used = false;
	shm->is_deaf = false;
	s->transport->n_channels--;
}

/* Answer a request for a channel, with its descriptors or without any. False: the answer could not be sent. */
SCOUT_ON_LOOP static bool
send_answer(int lease_fd, uint32_t request_bytes, uint32_t reply_bytes, const int *fds, size_t n)
{
	const struct scout__lease_msg m = {
		.type = SCOUT_LEASE_CHANNEL, .request_bytes = request_bytes, .reply_bytes = reply_bytes};

	return scout__lease_send(lease_fd, &m, fds, n);
}

/* Make a channel, watch it, let it sleep, and pass it on. */
SCOUT_ON_LOOP static bool
open_channel(struct scout_server *s, struct scout__dest *dest, int lease_fd)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data = {.ptr = &dest->shm.watch}};
	struct scout__channel *ch = &dest->shm.channel;
	int fds[SCOUT__CHANNEL_FDS];
	bool done;
	int error;

	if (scout__channel_create(ch, REQUEST_BYTES, REPLY_BYTES, fds) != 0)
		return false;
	done = epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, ch->bell_fd, &event) == 0 && scout__channel_sleep(ch) &&
	       send_answer(lease_fd, REQUEST_BYTES, REPLY_BYTES, fds, SCOUT__CHANNEL_FDS);
	error = errno;
	(void)close(fds[SCOUT__CHANNEL_MEMORY]);
	(void)close(fds[SCOUT__CHANNEL_PEER_BELL]);
	if (!done) {
		scout__channel_close(ch);
		errno = error; /* closing must not overwrite it */
		return false;
	}
	dest->shm.watch.fd = ch->bell_fd;
	s->transport->n_channels++;
	return true;
}

int
scout__shm_open(struct scout_server *s, struct scout__dest *dest, int lease_fd)
{
	bool offers = s->cfg.local_transport == SCOUT_LOCAL_SHM && !s->draining && !dest->shm.was_asked;
	int error = 0;

	dest->shm.was_asked = true; /* a peer that asks again and again must not make us allocate each time */
	if (offers && open_channel(s, dest, lease_fd))
		return 0;
	if (offers)
		error = errno;
	(void)send_answer(lease_fd, 0, 0, NULL, 0);
	return error;
}

/* Write more of the answers that wait for room. */
SCOUT_ON_LOOP static void
push(struct scout_server *s, struct scout__dest *dest)
{
	struct scout__channel *ch = &dest->shm.channel;
	size_t before = ch->backlog_bytes;

	scout__channel_push(ch);
	s->transport->shm_backlog -= before - ch->backlog_bytes;
}

void
scout__shm_rang(struct scout_server *s, struct scout__dest *dest)
{
	push(s, dest);
	scout__list_del(&dest->shm.node);
	scout__list_add(&s->transport->shm_hot, &dest->shm.node);
}

/* ---- frames from peers ---- */

/* NULL: none yet, or none whole. */
SCOUT_ON_LOOP static struct scout__packet *
read_packet(struct scout_server *s, struct scout__shm *shm)
{
	struct scout__packet *packet = shm->packet;
	uint32_t len = scout__channel_begin(&shm->channel);

	if (len == 0)
		return NULL;
	if (!packet)
		packet = shm->packet = scout__packet_new(len);
	if (!packet) {
		s->count.out_of_memory++;
		shm->channel.broken = true; /* it cannot be skipped: the peer's next connection will do */
		return NULL;
	}
	if (!scout__channel_fill(&shm->channel, zmq_msg_data(&packet->msg)))
		return NULL;
	shm->packet = NULL;
	return packet;
}

/* The channel is empty: asleep, or warm. */
SCOUT_ON_LOOP static void
cool_down(struct scout_server *s, struct scout__shm *shm)
{
	if (s->cfg.spin_us)
		scout__list_add(&s->transport->shm_warm, &shm->node);
	else if (!scout__channel_sleep(&shm->channel))
		scout__list_add(&s->transport->shm_hot, &shm->node);
}

bool
scout__shm_receive(struct scout_server *s, uint64_t end_us)
{
	while (!s->transport->inbox.packet && !scout__list_empty(&s->transport->shm_hot)) {
		struct scout__dest *dest;
		struct scout__packet *packet;

		if (s->now_us >= end_us || s->inline_left < SCOUT__SLICE_CHUNKS)
			return true;
		dest = SCOUT__OWNER(scout__list_pop(&s->transport->shm_hot), struct scout__dest, shm.node);
		packet = read_packet(s, &dest->shm);
		if (packet) {
			dest->shm.is_used = true;
			scout__list_add(&s->transport->shm_hot, &dest->shm.node); /* first: the frame may end it */
			scout__packet_take(s, dest, packet);
		} else if (dest->shm.channel.broken) {
			s->transport->hooks->channel_broken(s, dest);
		} else {
			/* A long frame that arrives while it is read must not last longer than the turn. */
			s->now_us = scout__now_us();
			cool_down(s, &dest->shm);
		}
	}
	return s->transport->inbox.packet != NULL;
}

void
scout__shm_look(struct scout_server *s)
{
	struct scout__list *node = s->transport->shm_warm.next;

	while (node != &s->transport->shm_warm) {
		struct scout__dest *dest = SCOUT__OWNER(node, struct scout__dest, shm.node);

		node = node->next;
		push(s, dest);
		if (!scout__channel_has_bytes(&dest->shm.channel) && !dest->shm.channel.broken)
			continue;
		scout__list_del(&dest->shm.node);
		scout__list_add(&s->transport->shm_hot, &dest->shm.node);
	}
}

bool
scout__shm_park(struct scout_server *s)
{
	struct scout__list *node;

	while ((node = scout__list_pop(&s->transport->shm_warm))) {
		struct scout__shm *shm = SCOUT__OWNER(node, struct scout__shm, node);

		if (!scout__channel_sleep(&shm->channel))
			scout__list_add(&s->transport->shm_hot, &shm->node);
	}
	return scout__list_empty(&s->transport->shm_hot);
}

/* ---- answers ---- */

int
scout__shm_send(struct scout_server *s, struct scout__dest *dest, const uint8_t *buf, size_t len)
{
	struct scout__channel *ch = &dest->shm.channel;
	size_t before = ch->backlog_bytes, left = scout__unsent_left(s);
	int rc = EAGAIN;

	s->count.frames_sent_shm++;
	if (before + len > (left < SCOUT__UNSENT_MAX ? left : SCOUT__UNSENT_MAX)) {
		dest->shm.is_deaf = true;
		ch->broken = true;
	} else {
		rc = scout__channel_send(ch, buf, len);
	}
	s->transport->shm_backlog += ch->backlog_bytes - before; /* may be less than before: waiting bytes found room */
	if (ch->broken) { /* its peer need not ring: reading hot channels will end it */
		scout__list_del(&dest->shm.node);
		scout__list_add(&s->transport->shm_hot, &dest->shm.node);
	}
	return rc;
}
