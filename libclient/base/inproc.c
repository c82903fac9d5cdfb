/* SPDX-License-Identifier: Apache-2.0 */
#include "inproc.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>

#include "log.h"

/*
 * DESIGN
 *
 * libzmq's inproc works inside one context. So the first server that listens on a name makes a context, and each client that joins
 * gets a share of it; who leaves last terminates it, be it the server or a client that was freed after it.
 *
 * Each start of a server binds an address of its own. So a client never connects to what a server before has left, and a
 * restart need not wait until libzmq's reaper has unbound the old one. A client asks for the address each time it
 * connects: libzmq itself would let it connect to nobody, and wait.
 *
 * Both libraries contain this file, and must find the same list. The list is an exported object, looked up by its name in what the
 * program has loaded: then the first that was loaded has it, for both. In a program that contains the libraries there is
 * only one, which the dynamic linker may not know. The name ends in the version of its layout.
 *
 * A forked child starts with an empty list: the contexts are its parent's, and libzmq must not be used there.
 *
 * Rejected: handing the context over in the configuration (every user would need to know libzmq), a name in the environment.
 */

struct scout__inproc {
	struct scout__inproc *next;            /* G:lock */
	void *zmq;                             /* const */
	uint64_t serial;                       /* G:lock; of the server's start */
	uint32_t shares;                       /* G:lock */
	bool taken;                            /* G:lock; a server has the name */
	bool served;                           /* G:lock; and its socket is bound */
	char name[SCOUT__INPROC_NAME_MAX + 1]; /* const */
};

struct registry {
	pthread_mutex_t lock;
	struct scout__inproc *first; /* G:lock */
	uint64_t serial;             /* G:lock */
	bool guarded;                /* G:lock; against forks */
};

/* By name, see above. */
extern struct registry scout_inproc_registry_v1;
__attribute__((visibility("default"))) struct registry scout_inproc_registry_v1 = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct registry *
registry(void)
{
	struct registry *r = dlsym(RTLD_DEFAULT, "scout_inproc_registry_v1");

	return r ? r : &scout_inproc_registry_v1;
}

static void
before_fork(void)
{
	(void)pthread_mutex_lock(&registry()->lock);
}

static void
after_fork_in_parent(void)
{
	(void)pthread_mutex_unlock(&registry()->lock);
}

static void
after_fork_in_child(void)
{
	struct registry *r = registry();

	r->first = NULL; /* not freed: the parent's objects of this copy may still point there */
	(void)pthread_mutex_unlock(&r->lock);
}

static struct registry *
lock(void)
{
	struct registry *r = registry();

	(void)pthread_mutex_lock(&r->lock);
	if (!r->guarded)
		/* Fails on ENOMEM only: then a child that uses the same name is refused, or hangs. */
		r->guarded = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
	return r;
}

static void
unlock(struct registry *r)
{
	(void)pthread_mutex_unlock(&r->lock);
}

/* The name behind the scheme; NULL when it is not one. */
static const char *
name_of(const char *endpoint)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
	const char *name = endpoint + sizeof(SCOUT__INPROC_SCHEME) - 1;
	size_t len;

	if (!scout__inproc_is(endpoint))
		return NULL;
	len = strlen(name);
	return len >= 1 && len <= SCOUT__INPROC_NAME_MAX && strspn(name, allowed) == len ? name : NULL;
}

static struct scout__inproc *
find(const struct registry *r, const char *name)
{
	struct scout__inproc *inproc = r->first;

	while (inproc && strcmp(inproc->name, name) != 0)
		inproc = inproc->next;
	return inproc;
}

static struct scout__inproc *
add(struct registry *r, const char *name, void *(*new_zmq)(void))
{
	struct scout__inproc *inproc = calloc(1, sizeof(*inproc));

	if (!inproc)
		return NULL;
	inproc->zmq = new_zmq();
	if (!inproc->zmq) {
		free(inproc);
		return NULL;
	}
	memcpy(inproc->name, name, strlen(name) + 1);
	inproc->next = r->first;
	r->first = inproc;
	return inproc;
}

int
scout__inproc_listen(const char *endpoint, void *(*new_zmq)(void), struct scout__inproc **ret_inproc, char *err,
		     size_t err_len)
{
	const char *name = name_of(endpoint);
	struct scout__inproc *inproc;
	struct registry *r;
	int rc = 0;

	if (!name)
		return scout__fail(err, err_len, SCOUT_ERR_BIND,
				   "\"%s\": an inproc name has 1..%d letters, digits, \"_\", \".\" or \"-\"", endpoint,
				   SCOUT__INPROC_NAME_MAX);
	r = lock();
	inproc = find(r, name);
	if (!inproc)
		inproc = add(r, name, new_zmq);
	if (!inproc) {
		rc = scout__fail(err, err_len, SCOUT_ERR_NOMEM, "out of memory");
	} else if (inproc->taken) {
		rc = scout__fail(err, err_len, SCOUT_ERR_IN_USE, "%s is held by another server of this process",
				 endpoint);
	} else {
		inproc->taken = true;
		inproc->shares++;
		inproc->serial = ++r->serial;
		*ret_inproc = inproc;
	}
	unlock(r);
	return rc;
}

void
scout__inproc_serve(struct scout__inproc *inproc)
{
	struct registry *r = lock();

	inproc->served = true;
	unlock(r);
}

void
scout__inproc_unlisten(struct scout__inproc *inproc)
{
	struct registry *r = lock();

	inproc->taken = inproc->served = false;
	unlock(r);
}

struct scout__inproc *
scout__inproc_join(const char *endpoint)
{
	const char *name = name_of(endpoint);
	struct registry *r = lock();
	struct scout__inproc *inproc = name ? find(r, name) : NULL;

	if (inproc && !inproc->served)
		inproc = NULL;
	if (inproc)
		inproc->shares++;
	unlock(r);
	return inproc;
}

void *
scout__inproc_leave(struct scout__inproc *inproc)
{
	struct registry *r = lock();
	struct scout__inproc **at = &r->first;
	void *zmq = NULL;

	if (--inproc->shares == 0) {
		while (*at != inproc)
			at = &(*at)->next;
		*at = inproc->next;
		zmq = inproc->zmq;
		free(inproc);
	}
	unlock(r);
	return zmq;
}

void *
scout__inproc_zmq(const struct scout__inproc *inproc)
{
	return inproc->zmq;
}

void
scout__inproc_address(const struct scout__inproc *inproc, char *buf, size_t len)
{
	struct registry *r = lock();

	(void)snprintf(buf, len, SCOUT__INPROC_SCHEME "kvscout/%s/%" PRIu64, inproc->name, inproc->serial);
	unlock(r);
}

bool
scout__inproc_is_served(const struct scout__inproc *inproc)
{
	struct registry *r = lock();
	bool is_served = inproc->served;

	unlock(r);
	return is_served;
}
