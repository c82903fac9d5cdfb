/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zmq.h>

#include "instance_paths.h"
#include "msg.h"

/* Questions to a server without HELLO: STATUS, PING, and what operators ask. One thread. */

#define SCOUT__ASK_MS 2000 /* that a connection, and an answer, may take */

struct scout__status_client {
	void *ctx, *sock;
	const char *endpoint;                  /* as zmq_connect() takes it */
	struct scout__instance instance;       /* of auto */
	char socket[SCOUT__INSTANCE_PATH + 8]; /* of auto: the endpoint */
	char log_path[SCOUT__INSTANCE_PATH];   /* of auto: the server's log; else empty */
	uint8_t frame[1024];
	struct scout__writer w;
	size_t op_at;
	uint8_t opcode;
	uint64_t corr; /* of the last question */
	zmq_msg_t reply;
	bool has_reply;
};

/*
 * Connect to @endpoint (borrowed), which may be auto or auto:///FOLDER. @secret_file: NULL, or our CURVE key. @server_key:
 * the server's public key; NULL: ours is the server's own. Returns 0 or SCOUT_ERR_*; @err says why, with the endpoint.
 * SCOUT_ERR_INVALID: that is no endpoint; SCOUT_ERR_UNREACHABLE: no server serves there. scout__status_client_close() in every case.
 */
int scout__status_client_open(struct scout__status_client *c, const char *endpoint, const char *secret_file,
			      const char *server_key, char *err, size_t err_len);
/* Begin a question; the caller puts its body. */
struct scout__writer *scout__status_client_begin(struct scout__status_client *c, uint8_t opcode);
/*
 * Send it, and wait for the reply. 0: *ret_op is valid until the next question. Else @err says why: SCOUT_ERR_UNREACHABLE,
 * no answer; what the server said, if it refused; SCOUT_ERR_PROTOCOL.
 */
int scout__status_client_ask(struct scout__status_client *c, struct scout__op *ret_op, char *err, size_t err_len);
/* The reply's body does not make sense: SCOUT_ERR_PROTOCOL and @err. */
int scout__status_client_bad_reply(const struct scout__status_client *c, char *err, size_t err_len);
void scout__status_client_close(struct scout__status_client *c);
