/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_SERVER_LEASE_H
#define SCOUT_SERVER_LEASE_H

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

struct scout__lease {
	struct scout__watch watch;
	struct scout__list node;  /* in transport.leases or server.unbound */
	struct scout__peer *peer; /* NULL until its HELLO, and when the peer has left */
	bool is_bound;            /* it has said its HELLO */
	pid_t pid;
	uint64_t accepted_us;
};

/* Before the loop. */
int scout__lease_listen(struct scout_server *s, char *err, size_t err_len);

SCOUT_ON_LOOP void scout__lease_accept(struct scout_server *s);
SCOUT_ON_LOOP void scout__lease_readable(struct scout_server *s, struct scout__lease *lease);
SCOUT_ON_LOOP void scout__process_ended(struct scout_server *s, struct scout__peer *peer);
/* Send @peer every segment that it does not have yet. False: the socket is full; try again later. */
SCOUT_ON_LOOP bool scout__lease_deliver(struct scout_server *s, struct scout__peer *peer);
/* One message, with @n descriptors, to the connection @fd. False: it could not be sent now. */
SCOUT_ON_LOOP bool scout__lease_send(int fd, const struct scout__lease_msg *m, const int *fds, size_t n);
/* As if the peer had closed it. */
SCOUT_ON_LOOP void scout__lease_end(struct scout_server *s, struct scout__lease *lease);
SCOUT_ON_LOOP void scout__lease_close(struct scout_server *s, struct scout__lease *lease);
SCOUT_ON_LOOP void scout__process_unwatch(struct scout_server *s, struct scout__peer *peer);
/* Close connections that never said who they are; try blocked deliveries again. */
SCOUT_ON_LOOP void scout__leases_tick(struct scout_server *s);
/* After each batch of events. */
SCOUT_ON_LOOP void scout__graves_free(struct scout_server *s);

#endif
