/* SPDX-License-Identifier: Apache-2.0 */
#include "zmq_start.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include "log.h"
#include "thread.h"

/*
 * DESIGN
 *
 * The start of libzmq where resources are short. libzmq asserts that it gets them, and an assertion ends an engine. So we
 * take the descriptors and threads that it will need, give them back, and only then let it start. That reserves nothing, but
 * it turns the common case (a process at its limit) into an error.
 *
 * The assertions of libzmq 4.3.4 that a resource can reach, and what keeps us from them:
 *
 *   thread.cpp  pthread_create: pids.max, ulimit -u, ulimit -v   at the first socket only: this file
 *   epoll.cpp   epoll_create1: descriptors                       at the first socket only: this file
 *   ip.cpp      eventfd, but for EMFILE and ENFILE               ENOMEM of the kernel: nothing
 *   epoll.cpp   EPOLL_CTL_ADD: fs.epoll.max_user_watches         4 % of the memory for each user: nothing
 *   ipc_listener.cpp  accept: EMFILE, ENOMEM, ENOBUFS            kvscoutd's accept_guard.c, and its limit of connections
 *   tcp.cpp     send and recv: ENOMEM                            not seen on Linux, whose stream sockets wait: nothing
 *   all files   alloc_assert: malloc has no memory               ulimit -v, or memory.max with overcommit off: nothing. Our own
 *                                                                buffers are far larger and are checked, so they fail first
 *
 * Other descriptors (a socket's mailbox, a connection, a lease) are no assertions: the call fails, and is tried again.
 *
 * Threads: any.
 */

static const char tcp[] = "tcp://";

#define ZMQ_THREADS 2u /* one for I/O, one that closes sockets */

static int
check_descriptors(uint32_t n, char *err, size_t err_len)
{
	int *fds = calloc(n, sizeof(*fds));
	uint32_t i = 0;
	bool enough;

	if (!fds)
		return scout__fail_no_memory(err, err_len);
	while (i < n && (fds[i] = eventfd(0, EFD_CLOEXEC)) >= 0)
		i++;
	enough = i == n;
	while (i > 0)
		(void)close(fds[--i]);
	free(fds);
	if (enough)
		return 0;
	return scout__fail(err, err_len, SCOUT_ERR_SYSTEM,
			   "fewer than %u descriptors are left: raise the limit of open files (ulimit -n)", n);
}

int
scout__zmq_new(uint32_t n_descriptors, void **ret_context, char *err, size_t err_len)
{
	int rc = check_descriptors(n_descriptors, err, err_len);
	void *context;

	if (rc)
		return rc;
	rc = scout__threads_try(ZMQ_THREADS);
	if (rc)
		return scout__fail_thread(err, err_len, rc);
	context = zmq_ctx_new();
	if (!context)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "zmq_ctx_new: %s", zmq_strerror(zmq_errno()));
	*ret_context = context;
	return 0;
}

/* An address of the host of a tcp endpoint, of @family, to which there is a route. freeaddrinfo() frees it. */
static struct addrinfo *
address_of(const char *endpoint, int family)
{
	const struct addrinfo hints = {.ai_family = family, .ai_socktype = SOCK_DGRAM};
	const char *host = endpoint + sizeof(tcp) - 1, *colon = strrchr(host, ':');
	struct addrinfo *found = NULL;
	char name[256];
	int fd, rc;

	(void)snprintf(name, sizeof(name), "%.*s", colon ? (int)(colon - host) : 0, host);
	if (getaddrinfo(name, "1", &hints, &found) != 0)
		return NULL;
	fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	rc = fd < 0 ? -1 : connect(fd, found->ai_addr, found->ai_addrlen); /* sends nothing */
	if (fd >= 0)
		(void)close(fd);
	if (rc == 0)
		return found;
	freeaddrinfo(found);
	return NULL;
}

int
scout__zmq_needs_ipv6(const char *endpoint, bool asks_dns)
{
	struct addrinfo *v4;

	if (strncmp(endpoint, "tcp://[", 7) == 0)
		return 1;
	if (strncmp(endpoint, asks_dns ? tcp : "tcp://localhost:", strlen(asks_dns ? tcp : "tcp://localhost:")) != 0)
		return 0;
	v4 = address_of(endpoint, AF_INET);
	if (v4)
		freeaddrinfo(v4);
	return v4 == NULL;
}

bool
scout__zmq_look_up(const char *address, char *endpoint, size_t len)
{
	struct addrinfo *found = address_of(address, AF_INET);
	bool is_v6 = !found;
	char host[INET6_ADDRSTRLEN];
	int n;

	if (!found)
		found = address_of(address, AF_INET6);
	if (!found)
		return false;
	n = getnameinfo(found->ai_addr, found->ai_addrlen, host, sizeof(host), NULL, 0, NI_NUMERICHOST);
	freeaddrinfo(found);
	return n == 0 &&
	       snprintf(endpoint, len, is_v6 ? "tcp://[%s]%s" : "tcp://%s%s", host, strrchr(address, ':')) < (int)len;
}
