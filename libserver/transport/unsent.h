/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <kvscout/protocol.h>

#include "map.h"
#include "thread.h"

struct scout_server;
struct scout__dest;
struct scout__unknown_sender;
struct scout__unsent;

/* Replies that libzmq has, and the kernel has not (unsent.c). */

#define SCOUT__UNSENT_MAX ((size_t)SCOUT_MAX_UNREAD)     /* bytes of replies that one peer has not taken */
#define SCOUT__UNSENT_ALL ((size_t)4 * SCOUT_MAX_UNREAD) /* and that all peers have not taken */

/* Replies on their way through libzmq, see unsent.c. */
struct scout__unsent_table {
	struct scout__unsent *peers_all, *unknown_all;
	struct scout__unknown_sender *unknown; /* n_places */
	uint32_t n_places, n_unknown, free_place, hand;
	struct scout__map by_key; /* by identity */
};

/* After scout__conns_open(). Returns 0 or SCOUT_ERR_NOMEM. */
int scout__unsent_init(struct scout_server *s);
void scout__unsent_fini(struct scout_server *s);
/*
 * Send a frame through the ROUTER: @buf is copied, or @owned (malloc) taken in every case. Returns 0 or an errno value:
 * EAGAIN, the connection does not read and is being ended; EHOSTUNREACH, it has ended.
 */
SCOUT_ON_LOOP int scout__unsent_send(struct scout_server *s, struct scout__dest *dest, const uint8_t *buf,
				     uint8_t *owned, size_t len);
/* The descriptor that frames of @dest come from; -1: none. */
SCOUT_ON_LOOP void scout__unsent_note_fd(struct scout__dest *dest, int fd);
/* @dest has another connection from now on, or none. */
SCOUT_ON_LOOP void scout__unsent_forget(struct scout__dest *dest);
/* Bytes that the connection of @dest has unsent. */
SCOUT_ON_LOOP size_t scout__unsent_of(const struct scout__dest *dest);
/* Bytes that all connections have unsent. */
SCOUT_ON_LOOP size_t scout__unsent_bytes(const struct scout_server *s);
/* How many more bytes peers may have unsent, on both transports together. */
SCOUT_ON_LOOP size_t scout__unsent_left(const struct scout_server *s);
SCOUT_ON_LOOP void scout__unsent_tick(struct scout_server *s);
