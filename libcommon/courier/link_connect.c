/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * How a link connects, and what its monitor reports; courier thread only. Connecting never waits: libzmq's own thread connects,
 * "writable" says when it has, and the monitor when the connection is over.
 */
#include "link.h"

#include <string.h>
#include <zmq.h>

#define CONNECT_AGAIN_US UINT64_C(500000)
#define ATTEMPT_MS 2000u

/*
 * endpoint=auto: whether the server of this host serves; if not, next_try_us is when to look again. The reason is reported when it
 * changes, even if the link is down already. Any reason but another version means to the user that the server is not there.
 */
static bool SCOUT_ON_COURIER
find_server(struct scout__link *link, uint64_t now_us)
{
	struct scout__starter *starter = link->env->starter;
	int rc = scout__starter_look(starter, now_us, &link->next_try_us);
	int error = rc == SCOUT_ERR_VERSION ? rc : SCOUT_ERR_UNREACHABLE;

	if (rc == SCOUT_NOT_YET)
		return false;
	if (rc < 0 && rc != link->start_error && link->told_down && link->error == error)
		scout__log(link->env->log, SCOUT_LOG_WARN, "%s: %s (%s)", link->endpoint, scout__starter_text(starter),
			   scout_err_name(rc));
	link->start_error = rc;
	if (rc < 0)
		scout__link_tell_down(link, error, scout__starter_text(starter));
	return rc == 0;
}

void
scout__link_connect(struct scout__link *link, uint64_t now_us)
{
	uint32_t connect_ms = link->env->connect_timeout_ms;
	/* One attempt may take longer than lookups wait: the network may be slow, and lookups answer at once meanwhile. */
	int timeout_ms = connect_ms > ATTEMPT_MS ? (int)connect_ms : (int)ATTEMPT_MS;

	if (link->env->starter && !find_server(link, now_us))
		return;
	link->next_try_us = now_us + CONNECT_AGAIN_US; /* used if opening fails, usually for lack of descriptors */
	if (!scout__link_open(link, timeout_ms))
		return;
	link->state = SCOUT__LINK_CONNECTING;
	link->state_since_us = now_us;
}

void
scout__link_writable(struct scout__link *link, uint64_t now_us)
{
	link->state = SCOUT__LINK_GREETING;
	link->state_since_us = now_us;
	link->last_rx_us = now_us;
	link->silence = (struct scout__patience){.looked_us = now_us};
	link->epoch = 0; /* HELLO carries no epoch */
	scout__link_send_own(link, SCOUT_OP_HELLO);
}

/* Read one event: u16 event and u32 value in host order (zmq_socket_monitor(3)), then the address. False: there is none. */
static bool SCOUT_ON_COURIER
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
 * The security handshake failed. A fault that no later try can mend is reported as a refusal. A connection that just ended in
 * the middle may have many causes: a server that could not decrypt what was meant for another key, or a server that wants keys
 * and hung up before it had said so (libzmq drops the rest of its greeting when the peer's greeting does not fit).
 */
static void SCOUT_ON_COURIER
handshake_failed(struct scout__link *link, uint16_t what, uint32_t value)
{
	bool has_keys = link->env->curve != NULL;

	if (what == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)
		scout__link_refused(
			link, SCOUT_ERR_PERMISSION,
			"the server refuses the key of curve_secret_file: its curve_clients_file must list the public key");
	else if (what == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL && value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
		scout__link_refused(
			link, SCOUT_ERR_PERMISSION,
			has_keys
				? "curve_secret_file is set, but the server has no CURVE keys: unset it and curve_server_key, or give the server keys"
				: "the server requires CURVE keys: set curve_secret_file and curve_server_key");
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
