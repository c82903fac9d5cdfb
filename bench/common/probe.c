/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: one frame is on its way at a time, so a reply with another correlation id is one that an earlier call gave
 * up on; it is skipped. The connection has no lease. The heartbeat that HELLO announces is long, because a probe
 * sends no PING: it is silent between its questions.
 */
#include "probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <zmq.h>

#include <kvscout/error.h>

#include "clock.h"
#include "keys.h"
#include "log.h"
#include "msg.h"

#define REPLY_MS 5000u
#define FINISH_BATCH 256u
#define HEARTBEAT_MS 3600000u

struct probe {
	void *ctx;
	void *socket;
	bool (*is_stopped)(void);
	uint32_t timeout_ms;
	uint8_t *buf; /* request */
	size_t cap;
	uint8_t *reply; /* received frame; decoded operations are views into it */
	size_t reply_cap;
	uint64_t epoch;
	uint64_t next_corr;
	uint64_t next_ticket;
	uint32_t hash_bytes;
};

static struct scout__writer
request_begin(struct probe *probe)
{
	struct scout__writer w = {.buf = probe->buf, .cap = probe->cap};

	scout__frame_begin(&w);
	return w;
}

/* After a call of libzmq that failed: whether to call it again. */
static bool
is_worth_another(const struct probe *probe)
{
	return zmq_errno() == EINTR && !(probe->is_stopped && probe->is_stopped());
}

static int
request_send(struct probe *probe, struct scout__writer *w, uint32_t n_ops, char *err, size_t err_len)
{
	int rc;

	scout__frame_end(w, n_ops, probe->epoch, scout__now_us());
	if (w->bad)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "the question does not fit into one frame");
	do {
		rc = zmq_send(probe->socket, w->buf, w->len, 0);
	} while (rc < 0 && is_worth_another(probe));
	if (rc < 0)
		return scout__fail(err, err_len, zmq_errno() == EINTR ? SCOUT_ERR_CANCELED : SCOUT_ERR_UNREACHABLE,
				   "the server does not take requests: %s", zmq_strerror(zmq_errno()));
	return 0;
}

/* One frame from the server into probe->reply. */
static int
receive(struct probe *probe, struct scout__frame *ret_frame, struct scout__reader *ret_ops, char *err, size_t err_len)
{
	int len;

	do {
		len = zmq_recv(probe->socket, probe->reply, probe->reply_cap, 0);
	} while (len < 0 && is_worth_another(probe));
	if (len < 0 && zmq_errno() == EINTR)
		return scout__fail(err, err_len, SCOUT_ERR_CANCELED, "interrupted");
	if (len < 0)
		return scout__fail(err, err_len, SCOUT_ERR_TIMEOUT, "the server did not answer within %u ms",
				   probe->timeout_ms);
	if ((size_t)len > probe->reply_cap ||
	    scout__frame_check(probe->reply, (size_t)len, false, ret_frame) != SCOUT_WIRE_OK)
		return scout__fail(
			err, err_len, SCOUT_ERR_PROTOCOL,
			"the server sent a frame that is not of this protocol version: are server and tool of one release?");
	*ret_ops = scout__frame_ops(probe->reply, (size_t)len);
	return 0;
}

static int
refused(const struct scout__op *op, char *err, size_t err_len)
{
	struct scout__str text;

	if (scout__get_text(op, &text) != SCOUT_WIRE_OK)
		text = (struct scout__str){.p = "", .len = 0};
	return scout__fail(err, err_len, scout__wire_error(op->status), "the server refused: %.*s", (int)text.len,
			   text.p);
}

/* Wait for the reply to @corr. Status other than OK: the error, and the server's sentence in @err. */
static int
await(struct probe *probe, uint64_t corr, struct scout__op *ret_op, char *err, size_t err_len)
{
	struct scout__frame frame = {0};
	struct scout__reader ops;
	struct scout__op op;
	int rc;

	for (;;) {
		rc = receive(probe, &frame, &ops, err, err_len);
		if (rc < 0)
			return rc;
		while (scout__frame_next(&ops, &op)) {
			if (op.corr != corr && op.opcode != SCOUT_OP_ERROR)
				continue;
			if (op.status != SCOUT_WIRE_OK)
				return refused(&op, err, err_len);
			probe->epoch = frame.epoch;
			*ret_op = op;
			return 0;
		}
	}
}

/* Complete and send a frame of the one operation that begins at @at, and wait for its reply. */
static int
ask(struct probe *probe, struct scout__writer *w, size_t at, uint64_t corr, struct scout__op *ret_op, char *err,
    size_t err_len)
{
	int rc;

	scout__op_end(w, at);
	rc = request_send(probe, w, 1, err, err_len);
	return rc < 0 ? rc : await(probe, corr, ret_op, err, err_len);
}

static int
hello(struct probe *probe, const struct probe_config *cfg, char *err, size_t err_len)
{
	struct scout__writer w = request_begin(probe);
	struct scout__hello m = {
		.token = probe->next_ticket++,
		.role = SCOUT_ROLE_CLIENT,
		.hash_bytes = (uint16_t)cfg->hash_bytes,
		.chunk_tokens = cfg->chunk_tokens,
		.rank_count = (uint16_t)cfg->kv_ranks,
		.kv_ranks = (uint16_t)cfg->kv_ranks,
		.readers = 1,
		.heartbeat_ms = HEARTBEAT_MS,
		.name_space = {.p = cfg->name_space, .len = (uint16_t)strlen(cfg->name_space)},
	};
	uint64_t corr = probe->next_corr++;
	size_t at = scout__op_begin(&w, SCOUT_OP_HELLO, SCOUT_KIND_REQUEST, 0, corr, 0);
	struct scout__op op;

	scout__hello_one_group(&m);
	scout__put_hello(&w, &m);
	return ask(probe, &w, at, corr, &op, err, err_len);
}

static int
use_keys(struct probe *probe, const struct probe_config *cfg, char *err, size_t err_len)
{
	struct scout__curve_keys keys;
	int rc = 0;

	if (!cfg->curve_secret_file)
		return 0;
	rc = scout__curve_load(cfg->curve_secret_file, cfg->curve_server_key, &keys, err, err_len);
	if (rc < 0)
		return rc;
	if (!scout__curve_use(probe->socket, &keys))
		rc = scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "the keys are refused: %s", zmq_strerror(zmq_errno()));
	explicit_bzero(&keys, sizeof(keys));
	return rc;
}

static int
open_socket(struct probe *probe, const struct probe_config *cfg, char *err, size_t err_len)
{
	int linger = 0, immediate = 1, timeout_ms = (int)probe->timeout_ms;
	int rc;

	probe->ctx = zmq_ctx_new();
	if (!probe->ctx)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "%s", scout_strerror(SCOUT_ERR_NOMEM));
	probe->socket = zmq_socket(probe->ctx, ZMQ_DEALER);
	if (!probe->socket || zmq_setsockopt(probe->socket, ZMQ_LINGER, &linger, sizeof(linger)) < 0 ||
	    zmq_setsockopt(probe->socket, ZMQ_IMMEDIATE, &immediate, sizeof(immediate)) < 0 ||
	    zmq_setsockopt(probe->socket, ZMQ_SNDTIMEO, &timeout_ms, sizeof(timeout_ms)) < 0 ||
	    zmq_setsockopt(probe->socket, ZMQ_RCVTIMEO, &timeout_ms, sizeof(timeout_ms)) < 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "no socket: %s", zmq_strerror(zmq_errno()));
	rc = use_keys(probe, cfg, err, err_len);
	if (rc == 0 && zmq_connect(probe->socket, cfg->endpoint) < 0)
		rc = scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "cannot connect to %s: %s", cfg->endpoint,
				 zmq_strerror(zmq_errno()));
	return rc;
}

int
probe_new(const struct probe_config *cfg, struct probe **ret_probe, char *err, size_t err_len)
{
	struct probe *probe = calloc(1, sizeof(*probe));
	int rc = SCOUT_ERR_NOMEM;

	if (!probe)
		return scout__fail(err, err_len, rc, "%s", scout_strerror(rc));
	probe->next_corr = 1;
	probe->hash_bytes = cfg->hash_bytes;
	probe->timeout_ms = cfg->timeout_ms ? cfg->timeout_ms : REPLY_MS;
	probe->is_stopped = cfg->is_stopped;
	probe->cap = probe->reply_cap = SCOUT_MAX_FRAME;
	probe->buf = malloc(probe->cap); /* touched only as far as it is used */
	probe->reply = malloc(probe->reply_cap);
	if (!probe->buf || !probe->reply) {
		scout__fail(err, err_len, rc, "%s", scout_strerror(rc));
		goto err_free;
	}
	/* Token and tickets must not be guessed or met by chance; within this probe they count up from there. */
	if (getrandom(&probe->next_ticket, sizeof(probe->next_ticket), 0) != (ssize_t)sizeof(probe->next_ticket)) {
		rc = scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "no random numbers from the kernel");
		goto err_free;
	}
	probe->next_ticket = probe->next_ticket >> 1 | 1; /* not 0, and never reaches it */
	rc = open_socket(probe, cfg, err, err_len);
	if (rc == 0)
		rc = hello(probe, cfg, err, err_len);
	if (rc < 0)
		goto err_free;
	*ret_probe = probe;
	return 0;

err_free:
	probe_free(probe);
	return rc;
}

void
probe_free(struct probe *probe)
{
	if (!probe)
		return;
	if (probe->socket)
		zmq_close(probe->socket);
	if (probe->ctx)
		zmq_ctx_term(probe->ctx); /* at once: no linger */
	free(probe->buf);
	free(probe->reply);
	free(probe);
}

int
probe_lookup(struct probe *probe, const uint8_t *hashes, uint32_t n, uint64_t *ret_ticket, uint32_t *ret_hit, char *err,
	     size_t err_len)
{
	struct scout__writer w = request_begin(probe);
	struct scout__lookup_msg m = {.ticket = probe->next_ticket++, .n = n, .hashes = hashes};
	uint64_t corr = probe->next_corr++;
	size_t at = scout__op_begin(&w, SCOUT_OP_LOOKUP, SCOUT_KIND_REQUEST, 0, corr, probe->timeout_ms * 1000);
	struct scout__lookup_reply reply;
	const char *field;
	struct scout__op op;
	int rc;

	scout__put_lookup(&w, &m, probe->hash_bytes);
	rc = ask(probe, &w, at, corr, &op, err, err_len);
	if (rc < 0)
		return rc;
	if (scout__get_lookup_reply(&op, &reply, &field) != SCOUT_WIRE_OK)
		return scout__fail(err, err_len, SCOUT_ERR_PROTOCOL, "the LOOKUP reply breaks the protocol: %s %s",
				   field, scout__field_rule(&op, field));
	*ret_ticket = m.ticket;
	*ret_hit = reply.hit;
	return 0;
}

/* Sessions that fit into one frame. */
static int
finish_batch(struct probe *probe, const uint64_t *tickets, uint64_t n, char *err, size_t err_len)
{
	struct scout__writer w = request_begin(probe);
	uint64_t first = probe->next_corr;
	struct scout__reader ops;
	struct scout__frame frame;
	struct scout__op op;
	int rc;

	for (uint64_t i = 0; i < n; i++) {
		size_t at = scout__op_begin(&w, SCOUT_OP_FINISH, SCOUT_KIND_REQUEST, 0, probe->next_corr++, 0);

		scout__put_finish(&w, &(struct scout__finish_msg){.ticket = tickets[i]});
		scout__op_end(&w, at);
	}
	rc = request_send(probe, &w, (uint32_t)n, err, err_len);
	/* Replies come in any order. */
	for (uint64_t left = n; rc == 0 && left > 0;) {
		rc = receive(probe, &frame, &ops, err, err_len);
		while (rc == 0 && scout__frame_next(&ops, &op)) {
			bool is_ours = op.corr >= first && op.corr < first + n;

			if ((is_ours || op.opcode == SCOUT_OP_ERROR) && op.status != SCOUT_WIRE_OK)
				rc = refused(&op, err, err_len);
			left -= is_ours;
		}
	}
	return rc;
}

int
probe_finish(struct probe *probe, const uint64_t *tickets, uint64_t n, char *err, size_t err_len)
{
	int rc = 0;

	for (uint64_t at = 0; at < n && rc == 0; at += FINISH_BATCH)
		rc = finish_batch(probe, tickets + at, n - at < FINISH_BATCH ? n - at : FINISH_BATCH, err, err_len);
	return rc;
}

static int
find_counter(const struct scout__op *op, const char *name, uint64_t *ret_value, char *err, size_t err_len)
{
	struct scout__reader items;
	struct scout__str item;
	const char *field;
	uint64_t value;
	uint32_t n;

	if (scout__get_status(op, &n, &items, &field) != SCOUT_WIRE_OK)
		return scout__fail(err, err_len, SCOUT_ERR_PROTOCOL, "the STATUS reply breaks the protocol: %s %s",
				   field, scout__field_rule(op, field));
	while (scout__get_status_item(&items, &item, &value)) {
		if (item.len != strlen(name) || memcmp(item.p, name, item.len) != 0)
			continue;
		*ret_value = value;
		return 0;
	}
	return scout__fail(err, err_len, SCOUT_ERR_UNSUPPORTED,
			   "the server has no counter %s: are server and tool of one release?", name);
}

int
probe_counter(struct probe *probe, const char *name, uint64_t *ret_value, char *err, size_t err_len)
{
	struct scout__writer w = request_begin(probe);
	uint64_t corr = probe->next_corr++;
	size_t at = scout__op_begin(&w, SCOUT_OP_STATUS, SCOUT_KIND_REQUEST, 0, corr, 0);
	struct scout__op op;
	int rc = ask(probe, &w, at, corr, &op, err, err_len);

	return rc < 0 ? rc : find_counter(&op, name, ret_value, err, err_len);
}
