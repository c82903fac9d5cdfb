/* SPDX-License-Identifier: Apache-2.0 */
#include "transport.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conns.h"
#include "lease.h"
#include "rights.h"
#include "run_delay.h"
#include "server_core.h"
#include "server_curve.h"
#include "zmq_start.h"

/*
 * DESIGN
 *
 * The transport's memory, and its start and stop: paths and their lock, the ROUTER socket, the lease socket. libzmq's context
 * is our own.
 *
 * Threads: the one that starts and stops the server, without the loop.
 */

#define STOP_SEND_US UINT64_C(200000)
#define STOP_SEND_MAX_US UINT64_C(10000000)
#define STOP_LINGER_MS 100

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
		return scout__fail_no_memory(err, err_len);
	/* We set the mode of the lease socket; the mode of libzmq's comes from the umask. */
	return s->transport->paths.socket ? scout__unix_admit(s, s->transport->paths.socket, 0600, 0060, err, err_len)
					  : 0;
}

/* libzmq's own texts do not say what is wrong with a tcp address. */
static const char *
bind_error(const char *address, int error)
{
	if (strncmp(address, "tcp://", 6) == 0 && error == EINVAL)
		return "it must be tcp://address:port, where port 0 lets the kernel choose";
	if (strncmp(address, "tcp://", 6) == 0 && error == ENODEV)
		return "no interface of this machine has this address, or no address this name";
	return zmq_strerror(error);
}

/* "*" is all addresses of both families, or of IPv4 where there is no IPv6. */
static int
bind_router(void *router, const char *address)
{
	bool is_any = strncmp(address, "tcp://*:", 8) == 0;
	char endpoint[300];
	int rc;

	if (is_any || strncmp(address, "tcp://[", 7) == 0)
		(void)set_int(router, ZMQ_IPV6, 1);
	rc = zmq_bind(router, address);
	if (rc != 0 && is_any) {
		(void)set_int(router, ZMQ_IPV6, 0);
		rc = zmq_bind(router, address);
	} else if (rc != 0 && errno == ENODEV) {
		if (scout__zmq_look_up(address, endpoint, sizeof(endpoint))) {
			(void)set_int(router, ZMQ_IPV6, strncmp(endpoint, "tcp://[", 7) == 0);
			return zmq_bind(router, endpoint);
		}
		errno = ENODEV;
	}
	return rc;
}

static int
open_router(struct scout_server *s, const char *address, uint32_t reserved, char *err, size_t err_len)
{
	int rc = scout__zmq_new(SCOUT__ZMQ_DESCRIPTORS, &s->transport->zctx, err, err_len);

	if (rc)
		return rc;
	s->transport->router = zmq_socket(s->transport->zctx, ZMQ_ROUTER);
	if (!s->transport->router)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "no ZeroMQ socket: %s", zmq_strerror(errno));
	if (set_options(s) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "ZeroMQ socket option: %s", zmq_strerror(errno));
	rc = scout__conns_open(s, reserved, err, err_len);
	if (rc == 0 && scout__unsent_init(s) != 0)
		rc = scout__fail_no_memory(err, err_len);
	if (rc == 0)
		rc = scout__curve_open(s, err, err_len);
	if (rc)
		return rc;
	if (bind_router(s->transport->router, address) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_BIND, "%s cannot be bound: %s", address,
				   bind_error(address, errno));
	return keep_endpoint(s, err, err_len);
}

int
scout__transport_open(struct scout_server *s, uint32_t reserved, char *err, size_t err_len)
{
	char *address = NULL;
	int rc = scout__paths_open(&s->transport->paths, s->cfg.listen, &address, err, err_len);

	if (rc == 0 && (s->transport->paths.dir || s->transport->paths.made))
		rc = scout__unix_admit(s, s->transport->paths.dir ? s->transport->paths.dir : s->transport->paths.made,
				       0700, 0010, err, err_len);
	if (rc == 0)
		rc = open_router(s, address, reserved, err, err_len);
	if (rc == 0)
		rc = scout__lease_listen(s, err, err_len);
	free(address);
	return rc;
}

/*
 * Keep the socket open until libzmq has sent the replies. One that is closed drops what its I/O thread has in hand (8 KiB, or one large
 * message), whatever its linger time, and that passes, too, while the thread waits for a CPU. All is sent when the thread sleeps, nothing
 * is unsent and the kernel takes more. A peer that does not read holds a stop for STOP_SEND_US of the time that the thread was given.
 */
SCOUT_ON_LOOP static void
wait_until_sent(struct scout_server *s)
{
	uint64_t begin_us = scout__now_us(), passed_us = 0;
	struct scout__run_delay delay;

	scout__run_delay_begin(&delay, 0, true, begin_us);
	while (scout__unsent_bytes(s) != 0 || !scout__run_delay_all_sleep(&delay) || !scout__conns_are_writable(s)) {
		if (passed_us - scout__run_delay_us(&delay, begin_us + passed_us) >= STOP_SEND_US ||
		    passed_us >= STOP_SEND_MAX_US)
			return;
		(void)poll(NULL, 0, 1);
		passed_us = scout__now_us() - begin_us;
	}
}

void
scout__transport_close(struct scout_server *s)
{
	struct scout__transport *t = s->transport;

	if (s->endpoint)
		wait_until_sent(s);
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
