/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvscout/protocol.h>

/*
 * A channel between two processes of one machine: a ring of bytes for each direction in one piece of shared memory, and a doorbell
 * for each side. It carries the same frames as the ZeroMQ socket, in order, and neither side ever waits in a call. Layout and
 * rules are part of the protocol: include/kvscout/protocol.h, CHANNEL.
 *
 * Each side is one thread. Nothing that the other side has written is trusted before it is checked: positions must lie within
 * the ring, and bytes are copied out before they are looked at. A channel that breaks the rules is `broken`, and is not used
 * any more.
 */

struct scout__channel_words; /* in shared memory */

/* One direction, as one side sees it. */
struct scout__channel_flow {
	struct scout__channel_words *words;
	uint8_t *data;
	uint64_t size;
	uint64_t at; /* our end, in bytes since the start; its copy in shared memory is for the other side only */
};

/* A frame, or the rest of one, that found no room yet. */
struct scout__channel_backlog {
	struct scout__channel_backlog *next;
	size_t len;
	size_t done;
	uint8_t bytes[];
};

struct scout__channel {
	void *map; /* NULL: there is no channel */
	size_t map_bytes;
	bool is_server;
	int bell_fd;       /* the other side rings: bytes have come, or room */
	int other_bell_fd; /* we ring */
	struct scout__channel_flow in, out;
	uint32_t frame_len; /* of the frame being read */
	uint64_t left;      /* bytes that its record still takes in the ring; 0: between two records */
	bool broken;
	struct scout__channel_backlog *first, **last;
	size_t backlog_bytes;
};

/* The descriptors, in the order in which they are passed on. */
enum scout__channel_fd {
	SCOUT__CHANNEL_MEMORY,
	SCOUT__CHANNEL_SERVER_BELL,
	SCOUT__CHANNEL_PEER_BELL,
	SCOUT__CHANNEL_FDS
};

/*
 * Server: make a channel. @fds are what the peer needs; the channel keeps the server's bell, and the caller closes the other two
 * when they have been passed on. Returns 0 or SCOUT_ERR_SYSTEM (errno says why).
 */
int scout__channel_create(struct scout__channel *ch, uint32_t request_bytes, uint32_t reply_bytes,
			  int fds[SCOUT__CHANNEL_FDS]);
/* Peer: use a channel. Takes @fds in every case. Returns 0, SCOUT_ERR_PROTOCOL (the descriptors are not as they should be) or SCOUT_ERR_SYSTEM. */
int scout__channel_attach(struct scout__channel *ch, const int fds[SCOUT__CHANNEL_FDS], uint32_t request_bytes,
			  uint32_t reply_bytes);
void scout__channel_close(struct scout__channel *ch);

/* Grows as the other side reads and writes bytes. 0: there is no channel. */
uint64_t scout__channel_progress(const struct scout__channel *ch);

static inline bool
scout__channel_is_open(const struct scout__channel *ch)
{
	return ch->map != NULL;
}

/* ---- reading ---- */

/* Whether there are bytes to read. */
bool scout__channel_has_bytes(const struct scout__channel *ch);
/* The length of the arriving frame; 0: none arrives (see `broken`). */
uint32_t scout__channel_begin(struct scout__channel *ch);
/* Add the newly arrived bytes to @frame, which has room for the whole frame. True: the frame is whole. */
bool scout__channel_fill(struct scout__channel *ch, uint8_t *frame);
/* Ask to be rung. False: bytes are there already, and no ring will come. */
bool scout__channel_sleep(struct scout__channel *ch);
/* Stop ringing from now on: we look by ourselves. */
void scout__channel_wake(struct scout__channel *ch);
/* Peer: our bell is readable; silence it. False: the server has closed the channel. (The server's is edge-triggered and never read.) */
bool scout__channel_hear(struct scout__channel *ch);

/* ---- writing ---- */

/*
 * Write a frame, as far as there is room; the rest is kept. Returns 0, ENOMEM (nothing was written), or EPIPE: broken.
 */
int scout__channel_send(struct scout__channel *ch, const uint8_t *frame, size_t len);
/* After a ring: write what was kept. */
void scout__channel_push(struct scout__channel *ch);
