/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "list.h"
#include "thread.h"
#include "watch.h"

struct scout_server;
struct scout__lease_msg;
struct scout__peer;

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* A connection of the lease socket. Owned by the loop: in one of the lists of struct scout__transport. */
struct scout__lease {
	struct scout__watch watch;
	struct scout__list node;  /* in transport.leases or .unbound */
	struct scout__peer *peer; /* set by the rooms above; NULL until its HELLO, and when the peer has left */
	bool is_bound;            /* it has said its HELLO */
	pid_t pid;
	uint64_t accepted_us;
};

/* Before the loop. */
int scout__lease_listen(struct scout_server *s, char *err, size_t err_len);

SCOUT_ON_LOOP void scout__lease_accept(struct scout_server *s);
SCOUT_ON_LOOP void scout__lease_readable(struct scout_server *s, struct scout__lease *lease);
/* One message, with @n descriptors, to the connection @fd. False: it could not be sent now. */
SCOUT_ON_LOOP bool scout__lease_send(int fd, const struct scout__lease_msg *m, const int *fds, size_t n);
/* A message of the short form. If it cannot be sent now, it is lost, and the peer's own timeout notices. */
SCOUT_ON_LOOP void scout__lease_say(int fd, uint16_t type, uint64_t word);
/* @lease is the lease of @peer from now on. */
SCOUT_ON_LOOP void scout__lease_bind(struct scout_server *s, struct scout__lease *lease, struct scout__peer *peer,
				     uint16_t role);
/* A pidfd of the process at the other end, or -1. */
SCOUT_ON_LOOP int scout__lease_process(const struct scout__lease *lease);
/* Close @lease. Its memory stays until scout__deferred_free(). */
SCOUT_ON_LOOP void scout__lease_close(struct scout_server *s, struct scout__lease *lease);
/* Close connections that never said LEASE_HELLO; listen again if descriptors had run out. */
SCOUT_ON_LOOP void scout__leases_tick(struct scout_server *s);
/* After each batch of events. */
SCOUT_ON_LOOP void scout__deferred_free(struct scout_server *s);
