/* SPDX-License-Identifier: Apache-2.0 */
#include "inproc_registry.h"

#include <pthread.h>

/*
 * DESIGN
 *
 * A server from libkvscout-worker and a client from libkvscout-client meet in one process, so there must be one list of
 * servers. It is libkvscout-client's, and libkvscout-worker depends on that library: the dynamic linker finds it for
 * each program that loads either, also with RTLD_LOCAL. Archives have this file once, in libkvscout-client.a.
 *
 * A forked child starts with an empty list: the contexts are its parent's, and libzmq must not be used there.
 *
 * Rejected: a copy in each library that looks for the other's by dlsym(). It finds only what was loaded with
 * RTLD_GLOBAL, and a program that contains the libraries only if the linker exported the name.
 */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct scout__registry registry; /* G:lock */

static void
before_fork(void)
{
	(void)pthread_mutex_lock(&lock);
}

static void
after_fork_in_parent(void)
{
	(void)pthread_mutex_unlock(&lock);
}

static void
after_fork_in_child(void)
{
	registry.first = NULL; /* not freed: the parent's objects of this copy may still point there */
	(void)pthread_mutex_unlock(&lock);
}

static void
install(void)
{
	/* Fails on ENOMEM only: then a child that uses the same name is refused, or hangs. */
	(void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

struct scout__registry *
scout__registry_lock(void)
{
	(void)pthread_once(&once, install);
	(void)pthread_mutex_lock(&lock);
	return &registry;
}

void
scout__registry_unlock(void)
{
	(void)pthread_mutex_unlock(&lock);
}
