/* SPDX-License-Identifier: Apache-2.0 */
#include "inproc.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>

#include "inproc_registry.h"
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
 * Both libraries contain this file, and share the one list of inproc_registry.c.
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
find(const struct scout__registry *r, const char *name)
{
	struct scout__inproc *inproc = r->first;

	while (inproc && strcmp(inproc->name, name) != 0)
		inproc = inproc->next;
	return inproc;
}

static struct scout__inproc *
add(struct scout__registry *r, const char *name, void *(*new_zmq)(void))
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
	struct scout__registry *r;
	int rc = 0;

	if (!name)
		return scout__fail(err, err_len, SCOUT_ERR_BIND,
				   "\"%s\": an inproc name has 1..%d letters, digits, \"_\", \".\" or \"-\"", endpoint,
				   SCOUT__INPROC_NAME_MAX);
	r = scout__registry_lock();
	inproc = find(r, name);
	if (!inproc)
		inproc = add(r, name, new_zmq);
	if (!inproc) {
		rc = scout__fail(err, err_len, SCOUT_ERR_NOMEM, "out of memory");
	} else if (inproc->taken) {
		rc = scout__fail(
			err, err_len, SCOUT_ERR_IN_USE,
			"%s is held by another server of this process: stop that one first, or choose another name",
			endpoint);
	} else {
		inproc->taken = true;
		inproc->shares++;
		inproc->serial = ++r->serial;
		*ret_inproc = inproc;
	}
	scout__registry_unlock();
	return rc;
}

void
scout__inproc_serve(struct scout__inproc *inproc)
{
	(void)scout__registry_lock();
	inproc->served = true;
	scout__registry_unlock();
}

void
scout__inproc_unlisten(struct scout__inproc *inproc)
{
	(void)scout__registry_lock();
	inproc->taken = inproc->served = false;
	scout__registry_unlock();
}

struct scout__inproc *
scout__inproc_join(const char *endpoint)
{
	const char *name = name_of(endpoint);
	struct scout__registry *r = scout__registry_lock();
	struct scout__inproc *inproc = name ? find(r, name) : NULL;

	if (inproc && !inproc->served)
		inproc = NULL;
	if (inproc)
		inproc->shares++;
	scout__registry_unlock();
	return inproc;
}

void *
scout__inproc_leave(struct scout__inproc *inproc)
{
	struct scout__registry *r = scout__registry_lock();
	struct scout__inproc **at = &r->first;
	void *zmq = NULL;

	if (--inproc->shares == 0) {
		while (*at != inproc)
			at = &(*at)->next;
		*at = inproc->next;
		zmq = inproc->zmq;
		free(inproc);
	}
	scout__registry_unlock();
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
	(void)scout__registry_lock();
	(void)snprintf(buf, len, SCOUT__INPROC_SCHEME "kvscout/%s/%" PRIu64, inproc->name, inproc->serial);
	scout__registry_unlock();
}

bool
scout__inproc_is_served(const struct scout__inproc *inproc)
{
	bool is_served;

	(void)scout__registry_lock();
	is_served = inproc->served;
	scout__registry_unlock();
	return is_served;
}
