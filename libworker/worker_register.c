/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_internal.h"

#include <stdio.h>

#include "clock.h"
#include "cpus.h"

/*
 * DESIGN
 *
 * Purpose: the registration, on the courier.
 *
 * The server must know the layout of our KV rank before it grants slots. The caller describes the pages once; from then
 * on the registration belongs to the courier, the first one as the later ones: whenever a connection comes up with an
 * epoch that does not know us, it registers before any job asks. Jobs wait for that in to_ask, within their own time.
 *
 * A refusal (another worker of that rank came first, with another layout) ends the jobs with its error, is logged once for
 * each reason, and is tried again every second: the other worker may go. So does a connection that is refused for good: the
 * link tries again by itself.
 *
 * The caller may wait for the first registration. It is told of a refusal, takes the registration back and may come again
 * with another layout. When its time is over, all goes on without it. A REGISTER that was taken back may still be answered:
 * its number of attempt tells.
 *
 * Rejected: keeping a refused registration while its caller is told. The engine is open on the layout that was refused, and
 * the caller, who changes it, would have to close it first.
 */

#define REGISTER_AGAIN_US 1000000u
#define REGISTER_NO_ROOM_US 10000u /* no credit or no memory for the operation */
#define REGISTER_BODY_BYTES 16u

/* For the caller, if it waits. */
static void conclude(struct scout_worker *w, enum scout__reg_state state, int code, const char *text) SCOUT_ON_COURIER;
static void
conclude(struct scout_worker *w, enum scout__reg_state state, int code, const char *text)
{
	(void)pthread_mutex_lock(&w->mu);
	w->reg = state;
	w->reg_code = code;
	(void)snprintf(w->reg_text, sizeof(w->reg_text), "%s", text);
	(void)pthread_cond_broadcast(&w->cond);
	(void)pthread_mutex_unlock(&w->mu);
}

static void send_register(struct scout_worker *w) SCOUT_ON_COURIER;
static void
send_register(struct scout_worker *w)
{
	uint32_t n = w->layout.n_planes;
	struct scout__register_msg msg = {
		.kv_rank = (uint16_t)w->cfg.kv_rank,
		.reader = (uint16_t)w->cfg.reader,
		.block_tokens = w->block_tokens,
		.dtype = w->dtype,
		.numa = w->numa,
		.n_planes = n,
	};
	uint64_t plane_bytes[SCOUT_MAX_PLANES];
	struct scout__writer *writer = scout__link_op_begin(
		w->link, SCOUT_OP_REGISTER, 0, (w->reg_attempt + 1) << SCOUT__COOKIE_BITS | SCOUT__COOKIE_REGISTER,
		REGISTER_BODY_BYTES + (size_t)n * sizeof(uint64_t));

	if (!writer) {
		w->reg_retry_us = scout__now_us() + REGISTER_NO_ROOM_US;
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		plane_bytes[i] = w->planes[i].block_bytes;
	scout__put_register(writer, &msg, plane_bytes);
	scout__link_op_end(w->link);
	w->reg_attempt++;
	w->reg_in_flight = true;
}

bool
scout__worker_is_registered(const struct scout_worker *w)
{
	return w->up && w->reg_epoch != 0 && w->reg_epoch == w->epoch;
}

/* REGISTER is to be sent, at reg_retry_us or now. */
static bool is_due(const struct scout_worker *w) SCOUT_ON_COURIER;
static bool
is_due(const struct scout_worker *w)
{
	return w->up && w->reg_wanted && !w->reg_in_flight && !scout__worker_is_registered(w);
}

void
scout__worker_register_pump(struct scout_worker *w, uint64_t now_us)
{
	if (is_due(w) && now_us >= w->reg_retry_us)
		send_register(w);
	if (w->up && w->reg_error && !scout__worker_is_registered(w))
		scout__transfer_fail_waiting(w, w->reg_error);
}

uint64_t
scout__worker_register_next(const struct scout_worker *w)
{
	return is_due(w) ? w->reg_retry_us : UINT64_MAX;
}

/* The sentence of a refusal. */
static void
text_of(const struct scout__op *op, char *buf, size_t len)
{
	struct scout__str text;

	if (scout__get_text(op, &text) == SCOUT_WIRE_OK && text.len > 0)
		(void)snprintf(buf, len, "%.*s", (int)text.len, text.p);
	else
		(void)snprintf(buf, len, "the server refused: %s", scout__wire_name(op->status));
}

/* Whether the reply is what we need. Otherwise the code, and a sentence in @text. */
static int judge_reply(const struct scout_worker *w, const struct scout__op *op, char *text, size_t len)
	SCOUT_ON_COURIER;
static int
judge_reply(const struct scout_worker *w, const struct scout__op *op, char *text, size_t len)
{
	struct scout__register_reply reply;
	const char *field;

	if (op->status == SCOUT_WIRE_STATE) {
		text_of(op, text, len);
		return SCOUT_ERR_UNREACHABLE;
	}
	if (op->status != SCOUT_WIRE_OK) {
		text_of(op, text, len);
		return scout__wire_error(op->status);
	}
	if (scout__get_register_reply(op, &reply, &field) != SCOUT_WIRE_OK)
		return scout__fail(text, len, SCOUT_ERR_PROTOCOL, "the reply to REGISTER is malformed: %s", field);
	if (reply.shard_bytes != w->shard_bytes || reply.slot_stride < w->shard_bytes)
		return scout__fail(text, len, SCOUT_ERR_PROTOCOL,
				   "the server counts %llu bytes in a shard (stride %llu), we %llu",
				   (unsigned long long)reply.shard_bytes, (unsigned long long)reply.slot_stride,
				   (unsigned long long)w->shard_bytes);
	return 0;
}

void
scout__worker_on_registered(struct scout_worker *w, uint64_t attempt, const struct scout__op *op)
{
	char text[SCOUT__TEXT_BYTES];
	int before = w->reg_error;
	int rc;

	if (attempt != w->reg_attempt || !w->reg_in_flight)
		return;
	w->reg_in_flight = false;
	if (!op)
		return; /* the connection went: again when it is back */
	rc = judge_reply(w, op, text, sizeof(text));
	w->reg_error = rc;
	if (rc == 0) {
		scout__log(&w->log, SCOUT_LOG_INFO, w->reg_epoch ? "registered again" : "registered");
		w->reg_epoch = w->epoch;
		atomic_store(&w->is_registered, true);
		conclude(w, SCOUT__REG_OK, 0, "");
		return;
	}
	/* Tried again every second: said once for each reason. */
	scout__log(&w->log, rc == before ? SCOUT_LOG_DEBUG : SCOUT_LOG_ERROR, "cannot register: %s", text);
	w->reg_retry_us = scout__now_us() + REGISTER_AGAIN_US;
	conclude(w, SCOUT__REG_FAILED, rc, text);
}

void
scout__worker_register_down(struct scout_worker *w, int error, const char *text)
{
	if (w->reg_wanted && !scout_err_is_retriable(error) && !scout__worker_adopt_mends(w, error))
		conclude(w, SCOUT__REG_FAILED, error, text);
}

/* The courier was started before the pages were known. */
static void go_to_node(struct scout_worker *w) SCOUT_ON_COURIER;
static void
go_to_node(struct scout_worker *w)
{
	struct scout__cpus_scope before; /* for good */

	/* A list was accepted when the worker was made; it is no other now. */
	if (w->has_node_cpus)
		(void)scout__cpus_enter(&before, w->cfg.cpus, &w->node_cpus, NULL, 0);
}

void
scout__worker_on_register(struct scout_worker *w)
{
	int error = w->link ? scout__link_error(w->link) : 0;

	w->reg_wanted = true;
	w->reg_retry_us = 0;
	w->reg_error = 0;
	go_to_node(w);
	scout__mappings_attach(&w->mappings, w->copy, w->engine);
	if (!w->up && error)
		scout__worker_register_down(w, error, w->down_text);
}

void
scout__worker_on_forget(struct scout_worker *w)
{
	w->reg_wanted = false;
	w->reg_in_flight = false;
	scout__worker_unregistered(w);
	scout__mappings_detach(&w->mappings);
	conclude(w, SCOUT__REG_NONE, 0, "");
}
