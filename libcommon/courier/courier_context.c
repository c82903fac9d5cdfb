/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The libzmq context of a courier: made on the caller's thread before the courier starts, terminated by the courier when its last
 * socket is closed.
 */
#include "courier_internal.h"

#include "zmq_start.h"

#define LINK_DESCRIPTORS                                                                                               \
	9u /* socket, monitor (two), connection, lease, channel (three), and one more while it connects */

static int
create(struct scout__courier *c, uint32_t n_links, char *err, size_t err_len)
{
	int rc = scout__zmq_new(SCOUT__ZMQ_DESCRIPTORS + n_links * LINK_DESCRIPTORS, &c->env.zmq, err, err_len);

	if (rc)
		return rc;
	(void)zmq_ctx_set(c->env.zmq, ZMQ_MAX_SOCKETS, 1023);
	return 0;
}

/*
 * Endpoints are checked here, by connecting a throw-away socket, so that a wrong endpoint is an error for the caller and
 * not a connection that never comes up.
 */
static int
check_endpoint(void *zmq, const char *endpoint, char *err, size_t err_len)
{
	void *sock = zmq_socket(zmq, ZMQ_DEALER);
	int zero = 0, rc = 0, ipv6 = scout__zmq_needs_ipv6(endpoint, false);

	if (!sock)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "zmq_socket: %s", zmq_strerror(zmq_errno()));
	(void)zmq_setsockopt(sock, ZMQ_LINGER, &zero, sizeof(zero));
	(void)zmq_setsockopt(sock, ZMQ_IPV6, &ipv6, sizeof(ipv6));
	if (zmq_connect(sock, endpoint) != 0)
		rc = scout__fail(err, err_len, SCOUT_ERR_INVALID,
				 "endpoint \"%s\": %s; allowed are ipc:///path, tcp://host:port and auto", endpoint,
				 zmq_strerror(zmq_errno()));
	(void)zmq_close(sock);
	return rc;
}

int
scout__courier_open_context(struct scout__courier *c, const char *const *endpoints, uint32_t n, char *err,
			    size_t err_len)
{
	int rc = create(c, n, err, err_len);

	for (uint32_t i = 0; i < n && rc == 0; i++)
		rc = check_endpoint(c->env.zmq, endpoints[i], err, err_len);
	return rc;
}

void
scout__courier_close_context(struct scout__courier *c)
{
	if (c->env.zmq)
		(void)zmq_ctx_term(c->env.zmq);
	c->env.zmq = NULL;
}
