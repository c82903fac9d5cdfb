/* SPDX-License-Identifier: Apache-2.0 */
#include "status_client.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "clock.h"
#include "curve.h"
#include "msg.h"
#include "text.h"

/*
 * DESIGN
 *
 * kvscoutd --status: one STATUS frame and its reply, for a person or a script. STATUS needs no HELLO, so asking makes
 * no peer and takes none of max_peers. Waits at most WAIT_MS twice: for the connection, and for the answer.
 *
 * A name may contain what a peer chose (its namespace), and any server may answer: unprintable bytes are escaped.
 *
 * A server with CURVE keys is asked with its own key, which it accepts: the owner of that key could be the server.
 *
 * Threads: main.
 */

#define WAIT_MS 2000

static int
complain(const char *endpoint, const char *what)
{
	(void)fprintf(stderr, "kvscoutd: %s: %s\n", endpoint, what);
	return 1;
}

static bool
set_int(void *sock, int option, int value)
{
	return zmq_setsockopt(sock, option, &value, sizeof(value)) == 0;
}

/* Returns 0, or 1 after printing why. */
static int
set_keys(void *sock, const char *secret_file)
{
	char secret[SCOUT__CURVE_KEY + 1], public[SCOUT__CURVE_KEY + 1], err[512] = "";
	bool ok;

	if (!secret_file)
		return 0;
	if (scout__curve_read_secret(secret_file, secret, err, sizeof(err)) != 0)
		return complain("curve_secret_file", err);
	ok = zmq_curve_public(public, secret) == 0 &&
	     zmq_setsockopt(sock, ZMQ_CURVE_SERVERKEY, public, sizeof(public)) == 0 &&
	     zmq_setsockopt(sock, ZMQ_CURVE_PUBLICKEY, public, sizeof(public)) == 0 &&
	     zmq_setsockopt(sock, ZMQ_CURVE_SECRETKEY, secret, sizeof(secret)) == 0;
	explicit_bzero(secret, sizeof(secret));
	return ok ? 0 : complain(secret_file, "not a secret key");
}

static int
print_counters(const char *endpoint, const void *data, size_t len)
{
	struct scout__reader ops, items;
	struct scout__frame frame;
	struct scout__op op;
	struct scout__str name;
	struct scout__text text = {NULL, 0, 0, false};
	const char *field = "";
	uint64_t value;
	uint32_t n;
	int rc = 0;

	if (scout__frame_check(data, len, false, &frame) != SCOUT_WIRE_OK)
		return complain(endpoint, "the answer is not of this version of the protocol");
	ops = scout__frame_ops(data, len);
	if (!scout__frame_next(&ops, &op) || op.opcode != SCOUT_OP_STATUS || op.status != SCOUT_WIRE_OK ||
	    scout__get_status(&op, &n, &items, &field) != SCOUT_WIRE_OK)
		return complain(endpoint, "the server refused STATUS");
	for (; n > 0 && scout__get_status_item(&items, &name, &value); n--) {
		scout__text_line(&text, name.p, name.len);
		scout__text_add(&text, " %" PRIu64 "\n", value);
	}
	if (text.failed)
		rc = complain(endpoint, "the answer is too long");
	else
		(void)fwrite(text.p, 1, text.len, stdout);
	scout__text_fini(&text);
	if (rc)
		return rc;
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	return complain("standard output", "could not be written");
}

static const char no_answer[] =
	"no answer within 2 s: does the server run, is it neither stopped nor hanging, is it this user's, "
	"and has it CURVE keys (curve_secret_file)?";

static int
ask(void *sock, const char *endpoint)
{
	uint8_t frame[128];
	struct scout__writer w = {.buf = frame, .cap = sizeof(frame)};
	zmq_msg_t msg;
	int rc;

	scout__frame_begin(&w);
	scout__op_end(&w, scout__op_begin(&w, SCOUT_OP_STATUS, SCOUT_KIND_REQUEST, SCOUT_WIRE_OK, 1, 0));
	scout__frame_end(&w, 1, 0, scout__now_us());
	if (zmq_send(sock, frame, w.len, 0) < 0)
		return complain(endpoint, errno == EAGAIN ? no_answer : zmq_strerror(errno));
	(void)zmq_msg_init(&msg); /* cannot fail */
	if (zmq_msg_recv(&msg, sock, 0) < 0)
		rc = complain(endpoint, errno == EAGAIN ? no_answer : zmq_strerror(errno));
	else
		rc = print_counters(endpoint, zmq_msg_data(&msg), zmq_msg_size(&msg));
	(void)zmq_msg_close(&msg);
	return rc;
}

int
scout__ask_status(const char *endpoint, const char *secret_file)
{
	void *ctx = zmq_ctx_new();
	void *sock = ctx ? zmq_socket(ctx, ZMQ_DEALER) : NULL;
	int rc;

	if (!sock || !set_int(sock, ZMQ_IMMEDIATE, 1) || !set_int(sock, ZMQ_LINGER, 0) ||
	    !set_int(sock, ZMQ_SNDTIMEO, WAIT_MS) || !set_int(sock, ZMQ_RCVTIMEO, WAIT_MS))
		rc = complain(endpoint, zmq_strerror(errno));
	else if ((rc = set_keys(sock, secret_file)) == 0)
		rc = zmq_connect(sock, endpoint) == 0 ? ask(sock, endpoint) : complain(endpoint, zmq_strerror(errno));
	if (sock)
		(void)zmq_close(sock);
	if (ctx)
		(void)zmq_ctx_term(ctx);
	return rc;
}
