/* SPDX-License-Identifier: Apache-2.0 */
#include "transport.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conns.h"
#include "lease.h"
#include "server_core.h"
#include "server_curve.h"

/*
 * DESIGN
 *
 * The transport's memory, and its start and stop: paths and their lock, the ROUTER socket, the lease socket. libzmq's context
 * is our own.
 *
 * Threads: the one that starts and stops the server, without the loop.
 */

#define STOP_LINGER_MS 100

static int
no_memory(char *err, size_t err_len)
{
	return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "out of memory");
}

struct scout__transport *
scout__transport_new(struct scout_server *s, const struct scout__transport_hooks *hooks)
{
	struct scout__transport *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->hooks = hooks;
	t->paths.lock_fd = -1;
	t->listener = (struct scout__watch){SCOUT__WATCH_LISTENER, -1, s};
	scout__list_init(&t->dirty);
	scout__list_init(&t->leases);
	scout__list_init(&t->of_workers);
	scout__list_init(&t->unbound);
	scout__list_init(&t->deferred_free);
	scout__list_init(&t->shm_hot);
	scout__list_init(&t->shm_warm);
	scout__dest_init(&t->unknown_sender);
	return t;
}

static int
set_int(void *socket, int option, int value)
{
	return zmq_setsockopt(socket, option, &value, sizeof(value));
}

static int
set_options(struct scout_server *s)
{
	/* Credits bound what a peer may have unanswered; twice that leaves room for refusals and frame errors. */
	int hwm = (int)s->cfg.credits * 2 + 64;
	int64_t max_bytes = 2 * (int64_t)SCOUT_MAX_FRAME;

	return set_int(s->transport->router, ZMQ_LINGER, 0) || set_int(s->transport->router, ZMQ_ROUTER_MANDATORY, 1) ||
	       set_int(s->transport->router, ZMQ_SNDHWM, hwm) || set_int(s->transport->router, ZMQ_RCVHWM, hwm) ||
	       zmq_setsockopt(s->transport->router, ZMQ_MAXMSGSIZE, &max_bytes, sizeof(max_bytes));
}

static int
keep_endpoint(struct scout_server *s, char *err, size_t err_len)
{
	char text[512];
	size_t len = sizeof(text);

	if (zmq_getsockopt(s->transport->router, ZMQ_LAST_ENDPOINT, text, &len) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "ZMQ_LAST_ENDPOINT: %s", zmq_strerror(errno));
	s->endpoint = strdup(text);
	if (!s->endpoint)
		return no_memory(err, err_len);
	/* We set the mode of the lease socket; the mode of libzmq's comes from the umask. */
	if (s->transport->paths.socket && chmod(s->transport->paths.socket, 0600) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "chmod %s: %s", s->transport->paths.socket,
				   scout__errno_text(errno));
	return 0;
}

/* libzmq's own texts do not say what is wrong with a tcp address. */
static const char *
bind_error(const char *address, int error)
{
	if (strncmp(address, "tcp://", 6) == 0 && error == EINVAL)
		return "it must be tcp://address:port, where port 0 lets the kernel choose";
	if (strncmp(address, "tcp://", 6) == 0 && error == ENODEV)
		return "no interface of this machine has this address";
	return zmq_strerror(error);
}

static int
open_router(struct scout_server *s, const char *address, uint32_t reserved, char *err, size_t err_len)
{
	int rc;

	s->transport->zctx = zmq_ctx_new();
	s->transport->router = s->transport->zctx ? zmq_socket(s->transport->zctx, ZMQ_ROUTER) : NULL;
	if (!s->transport->router)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "no ZeroMQ socket: %s", zmq_strerror(errno));
	if (set_options(s) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "ZeroMQ socket option: %s", zmq_strerror(errno));
	rc = scout__conns_open(s, reserved, err, err_len);
	if (rc == 0 && scout__unsent_init(s) != 0)
		rc = no_memory(err, err_len);
	if (rc == 0)
		rc = scout__curve_open(s, err, err_len);
	if (rc)
		return rc;
	if (zmq_bind(s->transport->router, address) != 0)
		return scout__fail(err, err_len, errno == EADDRINUSE ? SCOUT_ERR_IN_USE : SCOUT_ERR_BIND,
				   "%s cannot be bound: %s", address, bind_error(address, errno));
	return keep_endpoint(s, err, err_len);
}

int
scout__transport_open(struct scout_server *s, uint32_t reserved, char *err, size_t err_len)
{
	char *address = NULL;
	int rc = scout__paths_open(&s->transport->paths, s->cfg.listen, &address, err, err_len);

	if (rc == 0)
		rc = open_router(s, address, reserved, err, err_len);
	if (rc == 0)
		rc = scout__lease_listen(s, err, err_len);
	free(address);
	return rc;
}

void
scout__transport_close(struct scout_server *s)
{
	struct scout__transport *t = s->transport;

	scout__conns_close(s);
	if (t->router) {
		(void)set_int(t->router, ZMQ_LINGER, STOP_LINGER_MS);
		(void)zmq_close(t->router);
	}
	scout__curve_close(s);
	if (t->zctx)
		(void)zmq_ctx_term(t->zctx); /* waits for the linger time at most */
	scout__unsent_fini(s);
	if (t->listener.fd >= 0)
		(void)close(t->listener.fd);
	scout__paths_close(&t->paths);
}
