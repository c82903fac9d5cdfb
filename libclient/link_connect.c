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

#define RECONNECT_IVL_MS 10
#define CONNECT_AGAIN_MS UINT64_C(500)

/* ---- connecting ---- */

void
scout__link_close(struct scout__link *link, int linger_ms)
{
	if (!link->sock)
		return;
	(void)zmq_setsockopt(link->sock, ZMQ_LINGER, &linger_ms, sizeof(linger_ms));
	(void)zmq_socket_monitor(link->sock, NULL, 0);
	(void)zmq_close(link->sock);
	(void)zmq_close(link->monitor);
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

static bool open_monitor(struct scout__link *link) SCOUT_ON_COURIER;
static bool
open_monitor(struct scout__link *link)
{
	char address[64];
	void *pair;
	int zero = 0;

	/* The address lives in our own context: the pointer makes it unique there. */
	(void)snprintf(address, sizeof(address), "inproc://monitor-%p", link->sock);
	if (zmq_socket_monitor(link->sock, address, ZMQ_EVENT_DISCONNECTED) != 0)
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

void
scout__link_connect(struct scout__link *link, uint64_t now_us)
{
	int timeout_ms = (int)scout__link_view(link)->connect_timeout_ms;

	link->next_try_us = now_us + CONNECT_AGAIN_MS * 1000; /* if something below fails: no descriptors, usually */
	link->sock = zmq_socket(scout__link_view(link)->zmq, ZMQ_DEALER);
	if (!link->sock)
		return;
	(void)zmq_setsockopt(link->sock, ZMQ_CONNECT_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
	if (!set_options(link->sock) || !open_monitor(link) || zmq_connect(link->sock, link->endpoint) != 0) {
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

void
scout__link_monitor_ready(struct scout__link *link)
{
	bool lost = false;
	zmq_msg_t msg;

	/* Two parts per event: u16 event and u32 value, then the address. Only DISCONNECTED is subscribed. */
	for (;;) {
		(void)zmq_msg_init(&msg);
		if (zmq_msg_recv(&msg, link->monitor, ZMQ_DONTWAIT) < 0) {
			(void)zmq_msg_close(&msg);
			break;
		}
		if (zmq_msg_more(&msg) && zmq_msg_size(&msg) >= 2) {
			uint16_t event;

			memcpy(&event, zmq_msg_data(&msg), sizeof(event)); /* host order, by zmq_socket_monitor(3) */
			lost |= event == ZMQ_EVENT_DISCONNECTED;
		}
		(void)zmq_msg_close(&msg);
	}
	if (lost)
		scout__link_lost(link, SCOUT_ERR_UNREACHABLE, "the connection was lost");
}
