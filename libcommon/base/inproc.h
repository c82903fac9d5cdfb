/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_BASE_INPROC_H
#define SCOUT_BASE_INPROC_H

#include <stdbool.h>
#include <stddef.h>

/*
 * The servers of this process that listen on inproc://NAME, and the ZeroMQ context that each shares with its clients. All calls:
 * any thread.
 */
#define SCOUT__INPROC_SCHEME "inproc://"
#define SCOUT__INPROC_NAME_MAX 64
#define SCOUT__INPROC_ADDRESS_BYTES 128

struct scout__inproc;

static inline bool
scout__inproc_is(const char *endpoint)
{
	return __builtin_strncmp(endpoint, SCOUT__INPROC_SCHEME, sizeof(SCOUT__INPROC_SCHEME) - 1) == 0;
}

/*
 * Take the name in @endpoint for a server. @new_zmq makes the context, unless clients of an earlier server of that name still
 * have one: then it is theirs. Returns 0, SCOUT_ERR_BIND (not a name), SCOUT_ERR_IN_USE, SCOUT_ERR_NOMEM.
 */
int scout__inproc_listen(const char *endpoint, void *(*new_zmq)(void), struct scout__inproc **ret_inproc, char *err,
			 size_t err_len);
/* The server has bound scout__inproc_address(): clients may connect. */
void scout__inproc_serve(struct scout__inproc *inproc);
/* The name is free again, and clients find nobody. Before the socket is closed; scout__inproc_leave() after that. */
void scout__inproc_unlisten(struct scout__inproc *inproc);

/* A client's share of the context of the server at @endpoint; NULL when none listens there. */
struct scout__inproc *scout__inproc_join(const char *endpoint);
/* Give one share back, all sockets closed. The context when it was the last: the caller terminates it; else NULL. */
void *scout__inproc_leave(struct scout__inproc *inproc);

void *scout__inproc_zmq(const struct scout__inproc *inproc);
/* What libzmq binds, of this start of the server. */
void scout__inproc_address(const struct scout__inproc *inproc, char *buf, size_t len);
/* Whether there is a server now. It may go at any moment: who connects to nobody waits in vain, as for one that hangs. */
bool scout__inproc_is_served(const struct scout__inproc *inproc);

#endif
