/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conns.h"
#include "packet.h"
#include "paths.h"
#include "reply.h"
#include "list.h"
#include "thread.h"
#include "unsent.h"
#include "watch.h"

struct scout_server;
struct scout__lease;
struct scout__lease_msg;

/* What the rooms above do with what comes from below. Const. */
struct scout__transport_hooks {
	/* A frame has arrived. Takes @packet. */
	void (*frame)(struct scout_server *s, struct scout__packet *packet);
	/* The channel of @dest broke the rules, or is not read: close it. */
	void (*channel_broken)(struct scout_server *s, struct scout__dest *dest);
	/* The lease connection @lease has sent @m. False: close the connection. */
	bool (*lease_message)(struct scout_server *s, struct scout__lease *lease, const struct scout__lease_msg *m);
	/* The other side of @lease closed it, or broke the protocol: close it. */
	void (*lease_ended)(struct scout_server *s, struct scout__lease *lease);
	/* Take back what the reply to an @opcode granted: the reply could not be sent. @id: of a session or hold. */
	void (*take_back)(struct scout_server *s, uint8_t opcode, uint64_t id);
	/* The connection of @dest has ended, as it seems: look again later. */
	void (*conn_ended)(struct scout_server *s, struct scout__dest *dest);
	/* Names the peer of @dest for log lines. */
	void (*who)(const struct scout_server *s, struct scout__dest *dest, char who[SCOUT__WHO_BYTES]);
};

/* The server's sockets, channels and lease connections. */
struct scout__transport {
	const struct scout__transport_hooks *hooks;
	struct scout__paths paths;
	void *zctx;
	void *router;
	void *monitor;        /* of the router: events of connections that come and go */
	uint32_t n_conns;     /* connections of the router */
	uint32_t conns_limit; /* const after start */
	struct scout__conns conns;
	void *zap;                    /* ZAP: libzmq asks here which keys may connect; NULL: any peer may */
	uint8_t (*curve_clients)[32]; /* public keys that may connect; const after start */
	uint32_t n_curve_clients;     /* const after start */
	char *rights;                 /* of curve_rights_file, see rights.c; NULL: none */
	uint32_t n_rights;            /* times that it was replaced */
	bool look;                    /* a socket was called, or may have something: only zmq_poll() can tell */

	struct scout__inbox inbox;
	struct scout__dest unknown_sender; /* of the frame in hand, when its sender has not said HELLO */
	bool sender_is_local;              /* the sender of the frame in hand is on this machine */
	struct scout__list dirty;          /* destinations with a frame to send */
	struct scout__unsent_table unsent;

	struct scout__list shm_hot, shm_warm; /* channels, see shm.c */
	uint32_t n_channels;
	size_t shm_backlog; /* bytes that wait in all channels */
	bool shm_first;     /* this turn reads channels before the socket */

	struct scout__watch listener;  /* of lease connections */
	bool listener_paused;          /* no descriptors left: try again later */
	struct scout__list leases;     /* connections of clients that have said LEASE_HELLO */
	struct scout__list of_workers; /* ... of workers: segments.c walks them */
	struct scout__list unbound;    /* connections that have not, oldest first */
	uint32_t n_leases;             /* connections in the three lists */
	uint32_t n_unbound;
	struct scout__list deferred_free; /* leases that ended: freed after the events that may still name them */
};

/* For @s, with nothing opened. The caller frees it. NULL: no memory. */
SCOUT_ON_LOOP struct scout__transport *scout__transport_new(struct scout_server *s,
							    const struct scout__transport_hooks *hooks);
/*
 * Bind and listen. @reserved: descriptors that other rooms will need. Returns 0 or a code of scout_server_start(); what was opened is
 * closed by scout__transport_close().
 */
int scout__transport_open(struct scout_server *s, uint32_t reserved, char *err, size_t err_len);
/* Close what scout__transport_open() opened, however far it came. */
SCOUT_ON_LOOP void scout__transport_close(struct scout_server *s);
