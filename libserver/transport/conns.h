/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "list.h"
#include "map.h"
#include "thread.h"

struct scout_server;
struct scout__dest;

/* The connections of the router, and which peer has which (conns.c). */

#define SCOUT__CONN_SOURCES 256u

/* One connection. */
struct scout__conn {
	struct scout__list node;  /* in conns.silent while no peer has it */
	struct scout__dest *dest; /* of the peer whose HELLO came on it; NULL: none */
	uint64_t inode;           /* of its socket; 0: it was closed before its event was read */
	int fd;
	bool is_accepted; /* the event of its accept was read */
	uint64_t source;  /* of its process or its address, hashed */
};

struct scout__conns {
	struct scout__conn *table; /* as many as transport.conns_limit */
	uint32_t *free_places;
	uint32_t n_free;
	struct scout__map by_fd;
	struct scout__list silent; /* no peer has them; the one heard last is last */
	uint32_t n_silent;
	uint32_t silent_of[SCOUT__CONN_SOURCES];
	uint32_t n_sources; /* that have silent ones */
};

/* Count the router's connections from now on. Before it is bound. @reserved: descriptors that others will need. */
int scout__conns_open(struct scout_server *s, uint32_t reserved, char *err, size_t err_len);
void scout__conns_close(struct scout_server *s);
/* Read some of the monitor's events; zmq_poll() finds the rest for the next turn. */
SCOUT_ON_LOOP void scout__conns_read(struct scout_server *s);
/* @dest is reached through the connection with descriptor dest->fd from now on. The hook conn_ended says when it ends. */
SCOUT_ON_LOOP void scout__conns_bind(struct scout_server *s, struct scout__dest *dest);
/* @dest is no more, or has another connection. */
SCOUT_ON_LOOP void scout__conns_unbind(struct scout_server *s, struct scout__dest *dest);
#define SCOUT__OWN_PROCESS UINT64_C(1)
/* The process (SCOUT__OWN_PROCESS: this one) or the address at the other end of @fd, as a hash; 0: not known any more. */
SCOUT_ON_LOOP uint64_t scout__conns_source(struct scout_server *s, int fd);
/* A frame came on the connection @fd, which no peer has. */
SCOUT_ON_LOOP void scout__conns_heard(struct scout_server *s, int fd);
/* Whether the socket that dest->fd named when it was noted is still open. */
SCOUT_ON_LOOP bool scout__conns_is_open(const struct scout__dest *dest);
/* Whether each connection takes more bytes: its peer has read what was sent, or nearly all. */
SCOUT_ON_LOOP bool scout__conns_are_writable(const struct scout_server *s);
