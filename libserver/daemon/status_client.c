/* SPDX-License-Identifier: Apache-2.0 */
#include "status_client.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <kvscout/error.h>

#include "clock.h"
#include "curve.h"
#include "instance_silent.h"
#include "log.h"
#include "utf8.h"
#include "zmq_start.h"

/*
 * DESIGN
 *
 * One frame with one operation and its reply, for a person or a script. STATUS and the operations of operators need no
 * HELLO, so asking makes no peer and takes none of max_peers. Waits at most SCOUT__ASK_MS twice: for the connection, whose
 * monitor says at once why there is none, and for the answer. An answer that comes later than that is dropped before the next one is read.
 *
 * A server with CURVE keys is asked with its own key, which it accepts, or with a key of its list: then the server's public
 * key is needed, too.
 *
 * Threads: main.
 */

#define MONITOR "inproc://kvscout-greeting"

static const char no_answer[] = "no answer within 2 s: is the server stopped, or does it hang?";

static int
fail_zmq(const struct scout__status_client *c, char *err, size_t err_len)
{
	char text[700];

	if (errno == EAGAIN && c->log_path[0] &&
	    scout__instance_explain(&c->instance, "no answer within 2 s", text, sizeof(text)))
		return scout__fail(err, err_len, SCOUT_ERR_UNREACHABLE, "%s", text);
	if (errno == EAGAIN)
		return scout__fail(err, err_len, SCOUT_ERR_UNREACHABLE, "%s: %s", c->endpoint, no_answer);
	return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "%s: %s", c->endpoint, zmq_strerror(errno));
}

static bool
set_int(void *sock, int option, int value)
{
	return zmq_setsockopt(sock, option, &value, sizeof(value)) == 0;
}

static int
set_keys(void *sock, const char *secret_file, const char *server_key, char *err, size_t err_len)
{
	char secret[SCOUT__CURVE_KEY + 1], public[SCOUT__CURVE_KEY + 1], why[512] = "";
	bool ok;

	if (!secret_file)
		return 0;
	if (scout__curve_read_secret(secret_file, secret, why, sizeof(why)) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "curve_secret_file: %s", why);
	ok = zmq_curve_public(public, secret) == 0 &&
	     zmq_setsockopt(sock, ZMQ_CURVE_SERVERKEY, server_key ? server_key : public, SCOUT__CURVE_KEY + 1) == 0 &&
	     zmq_setsockopt(sock, ZMQ_CURVE_PUBLICKEY, public, sizeof(public)) == 0 &&
	     zmq_setsockopt(sock, ZMQ_CURVE_SECRETKEY, secret, sizeof(secret)) == 0;
	explicit_bzero(secret, sizeof(secret));
	return ok ? 0
		  : scout__fail(err, err_len, SCOUT_ERR_INVALID, "%s: %s", secret_file,
				server_key ? "not a secret key, or curve_server_key is not a public one"
					   : "not a secret key");
}

/* The socket of the server of this host. */
static int
find_local(struct scout__status_client *c, const char *endpoint, char *err, size_t err_len)
{
	/* Without its folder there was never a server. */
	if (scout__instance_look(endpoint, &c->instance, err, err_len) != 0)
		return SCOUT_ERR_UNREACHABLE;
	(void)snprintf(c->socket, sizeof(c->socket), "ipc://%s", c->instance.socket);
	(void)snprintf(c->log_path, sizeof(c->log_path), "%s", c->instance.log);
	c->endpoint = c->socket;
	if (scout__instance_listens(&c->instance))
		return 0;
	return scout__fail(err, err_len, SCOUT_ERR_UNREACHABLE,
			   "%s: no server serves there; if an engine started the last one, its log is %s", c->socket,
			   c->log_path);
}

/* What an event of the connection means; NULL: go on. */
static const char *
bad_event(uint16_t event, bool has_key)
{
	switch (event) {
	case ZMQ_EVENT_CONNECT_RETRIED:
		return "no server listens there, or its host cannot be reached";
	case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
		return "the server does not list this key: its curve_clients_file must have the public key of "
		       "curve_secret_file";
	case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
	case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
	case ZMQ_EVENT_DISCONNECTED:
		return has_key ? "the greeting failed: has the server CURVE keys, and is this its public key?"
			       : "the greeting failed: the server wants CURVE keys (curve_secret_file), or is no kvscoutd";
	default:
		return NULL;
	}
}

/* Connect, and wait until the server has accepted us. */
static int
greet(struct scout__status_client *c, bool has_key, char *err, size_t err_len)
{
	const int events = ZMQ_EVENT_CONNECT_RETRIED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
			   ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
			   ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED;
	void *monitor = zmq_socket(c->ctx, ZMQ_PAIR);
	const char *bad = NULL;
	uint8_t head[6];
	uint16_t event = 0;
	int rc = 0;

	if (!monitor || !set_int(monitor, ZMQ_LINGER, 0) || !set_int(monitor, ZMQ_RCVTIMEO, SCOUT__ASK_MS) ||
	    zmq_socket_monitor(c->sock, MONITOR, events) != 0 || zmq_connect(monitor, MONITOR) != 0)
		rc = fail_zmq(c, err, err_len);
	else if (zmq_connect(c->sock, c->endpoint) != 0)
		rc = errno == EINVAL || errno == EPROTONOSUPPORT
			     ? scout__fail(err, err_len, SCOUT_ERR_INVALID, "%s: %s", c->endpoint, zmq_strerror(errno))
			     : fail_zmq(c, err, err_len);
	while (rc == 0 && !bad && event != ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
		if (zmq_recv(monitor, head, sizeof(head), 0) != (int)sizeof(head)) {
			rc = fail_zmq(c, err, err_len);
		} else {
			(void)zmq_recv(monitor, NULL, 0, 0); /* the address */
			memcpy(&event, head, sizeof(event));
			bad = bad_event(event, has_key);
		}
	}
	if (bad)
		rc = scout__fail(err, err_len, SCOUT_ERR_UNREACHABLE, "%s: %s", c->endpoint, bad);
	(void)zmq_socket_monitor(c->sock, NULL, 0);
	if (monitor)
		(void)zmq_close(monitor);
	return rc;
}

int
scout__status_client_open(struct scout__status_client *c, const char *endpoint, const char *secret_file,
			  const char *server_key, char *err, size_t err_len)
{
	int rc, error;

	memset(c, 0, sizeof(*c));
	c->endpoint = endpoint;
	if (scout__instance_is_auto(endpoint)) {
		rc = find_local(c, endpoint, err, err_len);
		if (rc)
			return rc;
	}
	rc = scout__zmq_new(SCOUT__ZMQ_DESCRIPTORS, &c->ctx, err, err_len);
	if (rc)
		return rc;
	c->sock = zmq_socket(c->ctx, ZMQ_DEALER);
	if (!c->sock || !set_int(c->sock, ZMQ_IMMEDIATE, 1) || !set_int(c->sock, ZMQ_LINGER, 0) ||
	    !set_int(c->sock, ZMQ_IPV6, scout__zmq_needs_ipv6(c->endpoint, true)) ||
	    !set_int(c->sock, ZMQ_SNDTIMEO, SCOUT__ASK_MS) || !set_int(c->sock, ZMQ_RCVTIMEO, SCOUT__ASK_MS))
		return fail_zmq(c, err, err_len);
	rc = set_keys(c->sock, secret_file, server_key, err, err_len);
	error = strncmp(c->endpoint, "ipc://", 6) == 0 ? scout__socket_error(c->endpoint + 6) : 0;
	if (rc == 0 && error)
		rc = scout__fail(err, err_len, SCOUT_ERR_UNREACHABLE, "%s: no server can be asked there (%s)",
				 c->endpoint, scout__errno_text(error));
	return rc ? rc : greet(c, secret_file != NULL, err, err_len);
}

struct scout__writer *
scout__status_client_begin(struct scout__status_client *c, uint8_t opcode)
{
	c->w = (struct scout__writer){.buf = c->frame, .cap = sizeof(c->frame)};
	c->opcode = opcode;
	scout__frame_begin(&c->w);
	c->op_at = scout__op_begin(&c->w, opcode, SCOUT_KIND_REQUEST, SCOUT_WIRE_OK, ++c->corr, 0);
	return &c->w;
}

int
scout__status_client_bad_reply(const struct scout__status_client *c, char *err, size_t err_len)
{
	return scout__fail(err, err_len, SCOUT_ERR_PROTOCOL,
			   "%s: the answer to %s makes no sense: are server and tool of the same release?", c->endpoint,
			   scout__op_name(c->opcode));
}

static int
refused(const struct scout__status_client *c, const struct scout__op *op, char *err, size_t err_len)
{
	struct scout__str text = {"", 0};
	char shown[256];

	(void)scout__get_text(op, &text);
	(void)snprintf(shown, sizeof(shown), "%.*s", (int)text.len, text.p);
	scout__utf8_clean(shown); /* any server may answer: its text must not speak to a terminal */
	if (op->status == SCOUT_WIRE_UNKNOWN_OP)
		return scout__fail(err, err_len, SCOUT_ERR_UNSUPPORTED,
				   "%s: the server is of an older release, which does not know %s", c->endpoint,
				   scout__op_name(c->opcode));
	return scout__fail(err, err_len, scout__wire_error(op->status), "%s: the server refused %s: %s", c->endpoint,
			   scout__op_name(c->opcode), shown);
}

/* Whether the message is the reply to the last question: 1, 0, or SCOUT_ERR_*. */
static int
take_reply(struct scout__status_client *c, struct scout__op *ret_op, char *err, size_t err_len)
{
	const void *data = zmq_msg_data(&c->reply);
	size_t len = zmq_msg_size(&c->reply);
	struct scout__frame frame;
	struct scout__reader ops;
	int status = scout__frame_check(data, len, false, &frame);

	if (status == SCOUT_WIRE_BAD_VERSION)
		return scout__fail(err, err_len, SCOUT_ERR_VERSION,
				   "%s: the answer is not of this version of the protocol: the server speaks version "
				   "%u, this tool speaks version %d",
				   c->endpoint, scout__frame_version(data), SCOUT_WIRE_VERSION);
	if (status != SCOUT_WIRE_OK)
		return scout__status_client_bad_reply(c, err, err_len);
	ops = scout__frame_ops(data, len);
	if (!scout__frame_next(&ops, ret_op))
		return scout__status_client_bad_reply(c, err, err_len);
	if (ret_op->corr != 0 && ret_op->corr != c->corr)
		return 0;
	if (ret_op->status != SCOUT_WIRE_OK)
		return refused(c, ret_op, err, err_len);
	return ret_op->opcode == c->opcode ? 1 : scout__status_client_bad_reply(c, err, err_len);
}

int
scout__status_client_ask(struct scout__status_client *c, struct scout__op *ret_op, char *err, size_t err_len)
{
	int rc = 0;

	scout__op_end(&c->w, c->op_at);
	scout__frame_end(&c->w, 1, 0, scout__now_us());
	SCOUT_ASSERT(!c->w.bad);
	if (zmq_send(c->sock, c->frame, c->w.len, 0) < 0)
		return fail_zmq(c, err, err_len);
	while (rc == 0) {
		if (c->has_reply)
			(void)zmq_msg_close(&c->reply);
		(void)zmq_msg_init(&c->reply); /* cannot fail */
		c->has_reply = true;
		if (zmq_msg_recv(&c->reply, c->sock, 0) < 0)
			return fail_zmq(c, err, err_len);
		rc = take_reply(c, ret_op, err, err_len);
	}
	return rc > 0 ? 0 : rc;
}

void
scout__status_client_close(struct scout__status_client *c)
{
	if (c->has_reply)
		(void)zmq_msg_close(&c->reply);
	if (c->sock)
		(void)zmq_close(c->sock);
	if (c->ctx)
		(void)zmq_ctx_term(c->ctx);
}
