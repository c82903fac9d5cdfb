/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zmq.h>

#include "msg.h"
#include "run_queue.h"
#include "thread.h"

struct scout_server;
struct scout__dest;

/* A received message. Pending operations keep views into it, so it lives as long as the last of them. */
struct scout__packet {
	zmq_msg_t msg;
	struct scout__run_item run; /* to free it in steps */
	size_t shed;                /* bytes of it that the system has back */
	uint32_t refs;
	uint32_t n_pending; /* pending operations among them: the first one counts its bytes */
};

/* The frame in hand: one with very many operations is executed over several turns. */
struct scout__inbox {
	struct scout__packet *packet; /* NULL: none */
	struct scout__frame frame;
	struct scout__reader ops;
	uint64_t read_us;
	uint64_t waited_us; /* before it was read */
	uint32_t had;       /* of operations that a frame may have once: the kinds (bits) that it had */
};

SCOUT_ON_LOOP void scout__packet_ref(struct scout__packet *packet);
/* Free it with its last reference, in steps if it is large. */
SCOUT_ON_LOOP void scout__packet_unref(struct scout_server *s, struct scout__packet *packet);
/* What it takes of memory. */
SCOUT_ON_LOOP uint64_t scout__packet_bytes(struct scout__packet *packet);
SCOUT_ON_LOOP struct scout__packet *scout__packet_new(size_t len);
/* A frame of @sender that did not come through the socket. Takes it. */
SCOUT_ON_LOOP void scout__packet_take(struct scout_server *s, const struct scout__dest *sender,
				      struct scout__packet *packet);
/* Receive what is there until about @end_us. Returns whether there may be more. @has_socket: the ROUTER is readable. */
SCOUT_ON_LOOP bool scout__receive(struct scout_server *s, bool has_socket, uint64_t end_us);
/* The key of a connection in maps: a hash of its identity that peers cannot choose. */
SCOUT_ON_LOOP uint64_t scout__identity_key(const struct scout_server *s, const void *identity, size_t len);
