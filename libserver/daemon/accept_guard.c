/* SPDX-License-Identifier: Apache-2.0 */
#include "accept_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * DESIGN
 *
 * An ipc listener of libzmq aborts the process when accept finds no free descriptor (EMFILE), and a tcp listener spins.
 * The server keeps the number of connections below its limit (conns.c), but a flood can be faster than its loop. So the
 * process has one spare descriptor. When no other is free, the guard closes the spare one for a moment, accepts the
 * connection in its place, and closes it; the caller gets ECONNABORTED (the peer went away), which both kinds of
 * listener tolerate.
 *
 * While the spare descriptor is closed, another thread may take its place. Then the spare is lost until a descriptor is
 * free again; the guard asks first, before the next connection. Until then a connection waits in the listener's queue.
 *
 * This file's accept4() replaces the C library's for all libraries of the process, as any definition in an executable
 * does.
 *
 * Threads: any; the spare descriptor belongs to the thread that has exchanged it for -1.
 */

static atomic_int spare = -1;

void
scout__accept_guard_init(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), none = -1;

	if (fd >= 0 && !atomic_compare_exchange_strong(&spare, &none, fd))
		(void)close(fd); /* another thread was faster */
}

static int
accept_plain(int fd, struct sockaddr *address, socklen_t *len, int flags)
{
	return (int)syscall(SYS_accept4, fd, address, len, flags);
}

__attribute__((visibility("default"))) int
accept4(int fd, __SOCKADDR_ARG address, socklen_t *restrict len, int flags)
{
	int conn, mine;

	if (atomic_load_explicit(&spare, memory_order_relaxed) < 0)
		scout__accept_guard_init();
	/* glibc declares the address as a union of all its types. */
	conn = accept_plain(fd, address.__sockaddr__, len, flags);
	if (conn >= 0 || (errno != EMFILE && errno != ENOMEM && errno != ENOBUFS))
		return conn;
	if (errno != EMFILE) { /* these abort an ipc listener, too; now it tries again */
		errno = ECONNABORTED;
		return -1;
	}
	mine = atomic_exchange(&spare, -1);
	if (mine >= 0) {
		(void)close(mine);
		conn = accept_plain(fd, NULL, NULL, flags);
		if (conn >= 0)
			(void)close(conn);
		scout__accept_guard_init();
	}
	errno = ECONNABORTED;
	return -1;
}
