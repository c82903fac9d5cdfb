/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The DEALER socket of a link and its monitor: each connection gets a new pair, and closing drops both together with the frame
 * that was not sent yet. Connecting never waits: libzmq's own thread does it, "writable" says when it is done, the
 * monitor when it is over.
 */
#include "link.h"

#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "clock.h"
#include "inproc.h"

#define RECONNECT_IVL_MS 10
#define ATTEMPT_MS 2000u
#define CONNECT_AGAIN_MS UINT64_C(500)
#define EVENTS                                                                                                         \
	(ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |         \
	 ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)

/* ---- connecting ---- */

int
scout__link_socket_fd(void *sock)
{
	int fd = -1;
	size_t len = sizeof(fd);

	(void)zmq_getsockopt(sock, ZMQ_FD, &fd, &len); /* it has one */
	return fd;
}

void
scout__link_close(struct scout__link *link, int linger_ms)
{
	if (!link->sock)
		return;
	(void)zmq_setsockopt(link->sock, ZMQ_LINGER, &linger_ms, sizeof(linger_ms));
	(void)zmq_socket_monitor(link->sock, NULL, 0);
	(void)zmq_close(link->sock);
	(void)zmq_close(link->monitor);
	scout__link_channel_close(link);
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

static bool set_keys(struct scout__link *link) SCOUT_ON_COURIER;
static bool
set_keys(struct scout__link *link)
{
	const struct scout__curve_keys *keys = scout__link_view(link)->curve;

	return !keys || scout__curve_use(link->sock, keys);
}

static bool open_monitor(struct scout__link *link) SCOUT_ON_COURIER;
static bool
open_monitor(struct scout__link *link)
{
	char address[64];
	void *pair;
	int zero = 0;

	/* The address lives in our own context: the pointer makes it unique there. */
	(void)snprintf(address, sizeof(address), "inproc://monitor-%p", link->sock);
	if (zmq_socket_monitor(link->sock, address, EVENTS) != 0)
		return false;
	pair = zmq_socket(scout__link_view(link)->zmq, ZMQ_PAIR);
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

static bool
connect_socket(const struct scout__link *link)
{
	char address[SCOUT__INPROC_ADDRESS_BYTES];

	if (!scout__inproc_is(link->endpoint))
		return zmq_connect(link->sock, link->endpoint) == 0;
	scout__inproc_address(scout__link_view(link)->inproc, address, sizeof(address));
	return zmq_connect(link->sock, address) == 0;
}

void
scout__link_connect(struct scout__link *link, uint64_t now_us)
{
	uint32_t connect_ms = scout__link_view(link)->connect_timeout_ms;
	/* One attempt may take longer than lookups wait for it: the network may be slow, and they answer at once meanwhile. */
	int timeout_ms = connect_ms > ATTEMPT_MS ? (int)connect_ms : (int)ATTEMPT_MS;

	if (scout__inproc_is(link->endpoint) && !scout__inproc_is_served(scout__link_view(link)->inproc)) {
		link->next_try_us = now_us + RECONNECT_IVL_MS * UINT64_C(1000);
		return;
	}
	link->next_try_us = now_us + CONNECT_AGAIN_MS * 1000; /* if something below fails: no descriptors, usually */
	link->sock = zmq_socket(scout__link_view(link)->zmq, ZMQ_DEALER);
	if (!link->sock)
		return;
	(void)zmq_setsockopt(link->sock, ZMQ_CONNECT_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
	if (!set_options(link->sock) || !set_keys(link) || !open_monitor(link) || !connect_socket(link)) {
		scout__log(scout__link_view(link)->log, SCOUT_LOG_ERROR, "%s: cannot connect: %s", link->endpoint,
			   zmq_strerror(zmq_errno()));
		scout__link_close(link, 0);
		return;
	}
	link->state = SCOUT__LINK_CONNECTING;
	link->state_since_us = now_us;
}

void
scout__link_writable(struct scout__link *link, uint64_t now_us)
{
	link->state = SCOUT__LINK_GREETING;
	link->state_since_us = now_us;
	link->last_rx_us = now_us;
	link->epoch = 0; /* HELLO is of no epoch */
	scout__link_send_own(link, SCOUT_OP_HELLO);
}

/* One event: u16 what and u32 value in host order (zmq_socket_monitor(3)), then the address. False: there is none. */
static bool read_event(struct scout__link *link, uint16_t *ret_what, uint32_t *ret_value) SCOUT_ON_COURIER;
static bool
read_event(struct scout__link *link, uint16_t *ret_what, uint32_t *ret_value)
{
	uint8_t head[6], address[512];

	if (zmq_recv(link->monitor, head, sizeof(head), ZMQ_DONTWAIT) != (int)sizeof(head))
		return false;
	memcpy(ret_what, head, sizeof(*ret_what));
	memcpy(ret_value, head + sizeof(*ret_what), sizeof(*ret_value));
	(void)zmq_recv(link->monitor, address, sizeof(address), ZMQ_DONTWAIT); /* arrives with the first part */
	return true;
}

/*
 * The security handshake failed. What no later try will mend by itself is told as a refusal; a connection that just ended in the
 * middle may be anything: a server that could not read what was encrypted with another's key, or one that wants keys and hung up
 * before it had said so (libzmq drops the rest of its greeting when it finds that the peer's is not for it).
 */
static void handshake_failed(struct scout__link *link, uint16_t what, uint32_t value) SCOUT_ON_COURIER;
static void
handshake_failed(struct scout__link *link, uint16_t what, uint32_t value)
{
	bool has_keys = scout__link_view(link)->curve != NULL;

	if (what == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)
		scout__link_refused(link, SCOUT_ERR_PERMISSION,
				    "the server does not let this key in (curve_secret_file)");
	else if (what == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL && value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
		scout__link_refused(link, SCOUT_ERR_PERMISSION,
				    has_keys ? "curve_secret_file is set, but the server has no CURVE keys"
					     : "the server wants CURVE keys: curve_secret_file is not set");
	else
		link->greeting_failed = true;
}

void
scout__link_monitor_ready(struct scout__link *link)
{
	bool lost = false;
	uint16_t what;
	uint32_t value;

	/* A refusal closes the socket, and with it the monitor. */
	while (link->monitor && read_event(link, &what, &value)) {
		lost |= what == ZMQ_EVENT_DISCONNECTED;
		if (what != ZMQ_EVENT_DISCONNECTED)
			handshake_failed(link, what, value);
	}
	if (lost && link->monitor)
		scout__link_lost(link, SCOUT_ERR_UNREACHABLE, "the connection was lost");
}
