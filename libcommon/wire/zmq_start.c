/* SPDX-License-Identifier: Apache-2.0 */
#include "zmq_start.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
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

#define ZMQ_THREADS 2u /* one for I/O, one that closes sockets */

static int
check_descriptors(uint32_t n, char *err, size_t err_len)
{
	int *fds = calloc(n, sizeof(*fds));
	uint32_t i = 0;
	bool enough;

	if (!fds)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "out of memory");
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
