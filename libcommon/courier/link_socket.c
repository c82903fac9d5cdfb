/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The DEALER socket of a link and its monitor; courier thread only. Each connection gets a new pair. Closing drops both, the frame that
 * was not sent yet, and the channel. The link owns all of them.
 */
#include "link.h"

#include <stdio.h>
#include <zmq.h>

#define RECONNECT_IVL_MS 10
#define EVENTS                                                                                                         \
	(ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |         \
	 ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)

void
scout__link_close(struct scout__link *link, int linger_ms)
{
	if (!link->sock)
		return;
	(void)zmq_setsockopt(link->sock, ZMQ_LINGER, &linger_ms, sizeof(linger_ms));
	(void)zmq_socket_monitor(link->sock, NULL, 0);
	(void)zmq_close(link->sock);
	(void)zmq_close(link->monitor);
	scout__channel_close(&link->channel);
	link->sock = NULL;
	link->monitor = NULL;
	link->out.len = 0;
	link->out_ops = 0;
}

static bool
set_options(void *sock)
{
	int zero = 0, one = 1, ivl = RECONNECT_IVL_MS, hwm = (int)(2 * SCOUT__LINK_SLOTS);
	int64_t max_msg = (int64_t)SCOUT_MAX_FRAME * 2;
	int rc = 0;

	rc |= zmq_setsockopt(sock, ZMQ_LINGER, &zero, sizeof(zero));
	rc |= zmq_setsockopt(sock, ZMQ_IMMEDIATE, &one, sizeof(one));
	rc |= zmq_setsockopt(sock, ZMQ_RECONNECT_IVL, &ivl, sizeof(ivl));
	rc |= zmq_setsockopt(sock, ZMQ_SNDHWM, &hwm, sizeof(hwm));
	rc |= zmq_setsockopt(sock, ZMQ_RCVHWM, &hwm, sizeof(hwm));
	rc |= zmq_setsockopt(sock, ZMQ_MAXMSGSIZE, &max_msg, sizeof(max_msg));
	return rc == 0;
}

static bool SCOUT_ON_COURIER
set_keys(struct scout__link *link)
{
	const struct scout__curve_keys *keys = link->env->curve;

	return !keys || scout__curve_use(link->sock, keys);
}

static bool SCOUT_ON_COURIER
open_monitor(struct scout__link *link)
{
	char address[64];
	void *pair;
	int zero = 0;

	/* The address is local to our context: the pointer makes it unique there. */
	(void)snprintf(address, sizeof(address), "inproc://monitor-%p", link->sock);
	if (zmq_socket_monitor(link->sock, address, EVENTS) != 0)
		return false;
	pair = zmq_socket(link->env->zmq, ZMQ_PAIR);
	if (!pair)
		return false;
	(void)zmq_setsockopt(pair, ZMQ_LINGER, &zero, sizeof(zero));
	if (zmq_connect(pair, address) != 0) {
		(void)zmq_close(pair);
		return false;
	}
	link->monitor = pair;
	return true;
}

bool
scout__link_open(struct scout__link *link, int timeout_ms)
{
	link->sock = zmq_socket(link->env->zmq, ZMQ_DEALER);
	if (!link->sock)
		return false;
	(void)zmq_setsockopt(link->sock, ZMQ_IPV6, &link->ipv6, sizeof(link->ipv6));
	(void)zmq_setsockopt(link->sock, ZMQ_CONNECT_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
	if (set_options(link->sock) && set_keys(link) && open_monitor(link) &&
	    zmq_connect(link->sock, link->endpoint) == 0)
		return true;
	scout__log(link->env->log, SCOUT_LOG_ERROR, "%s: cannot connect: %s", link->endpoint,
		   zmq_strerror(zmq_errno()));
	scout__link_close(link, 0);
	return false;
}
