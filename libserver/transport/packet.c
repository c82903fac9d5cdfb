/* SPDX-License-Identifier: Apache-2.0 */
#include "packet.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <xxhash.h>

#include "page.h"
#include "server_core.h"
#include "shm.h"
#include "transport.h"

/*
 * DESIGN
 *
 * Frames that arrive, on the socket and through shared memory, and the buffers that hold them. The room above takes each
 * frame (transport.hooks.frame); its sender stands in transport.unknown_sender. While a frame is in hand no other one is
 * received, which keeps the order of each sender's operations.
 *
 * Threads: loop.
 */

#define SHED_BYTES 262144u /* of a large message in one step: to take 16 MiB back, the system needs 2 ms */
#define MESSAGE_BYTES 128u /* of what libzmq and malloc add to a message, and malloc to a packet */

struct scout__packet *
scout__packet_new(size_t len)
{
	struct scout__packet *packet = malloc(sizeof(*packet));

	if (!packet)
		return NULL;
	packet->refs = 1;
	packet->n_pending = 0;
	if (zmq_msg_init_size(&packet->msg, len) == 0)
		return packet;
	free(packet);
	return NULL;
}

uint64_t
scout__packet_bytes(struct scout__packet *packet)
{
	return sizeof(*packet) + zmq_msg_size(&packet->msg) + MESSAGE_BYTES;
}

uint64_t
scout__identity_key(const struct scout_server *s, const void *identity, size_t len)
{
	return XXH3_64bits_withSeed(identity, len, s->seed);
}

void
scout__packet_ref(struct scout__packet *packet)
{
	packet->refs++;
}

SCOUT_ON_LOOP static void
free_step(struct scout_server *s, struct scout__run_item *item)
{
	struct scout__packet *packet = SCOUT__OWNER(item, struct scout__packet, run);
	uintptr_t data = (uintptr_t)zmq_msg_data(&packet->msg), page = scout__page_bytes();

	if (zmq_msg_size(&packet->msg) - packet->shed >= 2 * SHED_BYTES) {
		/* Whole pages of a message that nobody reads any more. If the system leaves them here, free() gives them back. */
		(void)madvise((void *)((data + packet->shed + page - 1) / page * page), SHED_BYTES, MADV_DONTNEED);
		packet->shed += SHED_BYTES;
		scout__run_queue_add(s, item);
		return;
	}
	(void)zmq_msg_close(&packet->msg); /* cannot fail for an initialised message */
	free(packet);
}

void
scout__packet_unref(struct scout_server *s, struct scout__packet *packet)
{
	if (--packet->refs)
		return;
	packet->run = (struct scout__run_item){.step = free_step};
	packet->shed = 0;
	free_step(s, &packet->run);
}

void
scout__packet_take(struct scout_server *s, const struct scout__dest *sender, struct scout__packet *packet)
{
	uint64_t before_us = s->now_us;

	memcpy(s->transport->unknown_sender.identity, sender->identity, sender->identity_len);
	s->transport->unknown_sender.identity_len = sender->identity_len;
	s->transport->sender_is_local = true;
	s->count.frames_received_shm++;
	s->transport->hooks->frame(s, packet);
	scout__note_step(s, before_us);
}

/* Whether the sender is on this machine: with ipc always; with tcp its address tells. */
SCOUT_ON_LOOP static bool
is_local(const struct scout_server *s, zmq_msg_t *msg)
{
	const char *address;

	if (s->transport->paths.socket)
		return true;
	address = zmq_msg_gets(msg, "Peer-Address");
	if (address && strncmp(address, "::ffff:", 7) == 0) /* IPv4 through a socket of both families */
		address += 7;
	return address && (strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0);
}

/* @identity is the first part, already received, and more follows. */
SCOUT_ON_LOOP static void
receive_packet(struct scout_server *s, zmq_msg_t *identity)
{
	struct scout__packet *packet = malloc(sizeof(*packet));
	size_t len = zmq_msg_size(identity);
	zmq_msg_t rest;
	bool whole = true;
	bool more;

	(void)zmq_msg_init(&rest); /* cannot fail */
	if (packet) {
		packet->refs = 1;
		packet->n_pending = 0;
		(void)zmq_msg_init(&packet->msg);
	}
	/* The parts of a message arrive together, so none of these waits. */
	more = zmq_msg_recv(packet ? &packet->msg : &rest, s->transport->router, ZMQ_DONTWAIT) >= 0 &&
	       zmq_msg_more(packet ? &packet->msg : &rest);
	while (more) {
		whole = false;
		more = zmq_msg_recv(&rest, s->transport->router, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(&rest);
	}
	(void)zmq_msg_close(&rest);
	if (!packet || !whole || len > sizeof(s->transport->unknown_sender.identity)) {
		s->count.frames_received++;
		s->count.frames_dropped++;
		if (packet)
			scout__packet_unref(s, packet);
		return;
	}
	memcpy(s->transport->unknown_sender.identity, zmq_msg_data(identity), len);
	s->transport->unknown_sender.identity_len = (uint8_t)len;
	s->transport->sender_is_local = is_local(s, &packet->msg);
	s->transport->hooks->frame(s, packet);
}

SCOUT_ON_LOOP static bool
receive_socket(struct scout_server *s, uint64_t end_us)
{
	while (!s->transport->inbox.packet && s->now_us < end_us && s->inline_left >= SCOUT__SLICE_CHUNKS) {
		uint64_t before_us = s->now_us;
		zmq_msg_t identity;

		(void)zmq_msg_init(&identity); /* cannot fail */
		if (zmq_msg_recv(&identity, s->transport->router, ZMQ_DONTWAIT) < 0)
			return errno == EINTR;
		if (zmq_msg_more(&identity))
			receive_packet(s, &identity);
		else
			s->count.frames_dropped++;
		(void)zmq_msg_close(&identity);
		scout__note_step(s, before_us);
	}
	return true;
}

/* Socket and channels share a turn; which one comes first changes, so that neither can starve the other. */
bool
scout__receive(struct scout_server *s, bool has_socket, uint64_t end_us)
{
	bool more = false;

	s->transport->shm_first = !s->transport->shm_first;
	if (s->transport->shm_first)
		more |= scout__shm_receive(s, end_us);
	if (has_socket)
		more |= receive_socket(s, end_us);
	if (!s->transport->shm_first)
		more |= scout__shm_receive(s, end_us);
	return more;
}
