/* SPDX-License-Identifier: Apache-2.0 */
#include "zmq_wait.h"

#include <limits.h>

/* See zmq_wait.h: the sleep of the courier and of the server's loop. */

/* The descriptor that becomes readable when something happens to a socket of libzmq. The socket's thread. */
static int
descriptor_of(void *sock)
{
	int fd = -1;
	size_t len = sizeof(fd);

	(void)zmq_getsockopt(sock, ZMQ_FD, &fd, &len); /* every socket has one */
	return fd;
}

static int
ask_sockets(zmq_pollitem_t *items, int n, long wait_ms, bool *look)
{
	int rc = zmq_poll(items, n, wait_ms);

	*look = false;
	for (int i = 0; i < n && rc != 0; i++)
		*look |= items[i].socket && (rc < 0 || items[i].revents);
	return rc;
}

int
scout__zmq_wait(zmq_pollitem_t *items, struct pollfd *fds, int n, long wait_ms, bool *look)
{
	int rc;

	if (*look)
		return ask_sockets(items, n, wait_ms, look);
	for (int i = 0; i < n; i++)
		fds[i] = (struct pollfd){.fd = items[i].socket ? descriptor_of(items[i].socket) : items[i].fd,
					 .events = POLLIN};
	rc = poll(fds, (nfds_t)n, wait_ms > INT_MAX ? INT_MAX : (int)wait_ms);
	for (int i = 0; i < n; i++) {
		items[i].revents = rc > 0 && fds[i].revents ? ZMQ_POLLIN : 0;
		*look |= items[i].socket && items[i].revents;
	}
	return rc;
}
