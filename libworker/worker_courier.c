/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/*
 * DESIGN
 *
 * Purpose: what the worker does on its courier, but for the jobs themselves: connection, registration, closing.
 *
 * Registration. The server must know the layout of our KV rank before it grants slots. The first REGISTER is asked
 * for by the caller, who waits for its end. After that it belongs to the courier: whenever the connection comes back
 * with another epoch it registers again, before any job asks. Jobs wait for it in to_ask, under their own deadline.
 * A later refusal (another worker of that rank came first, with another layout) fails jobs with its error, and is
 * tried again every second. A REGISTER that the caller gave up may still be answered; its number of attempt tells.
 *
 * A lost connection is only noted in link_down and acted upon in flush: the courier may notice it in the middle of
 * our own sending, with our lists half walked.
 *
 * The weights. What each HELLO says, and when jobs may ask: worker_weights.c.
 *
 * Closing. Jobs without a running copy end as closed. Running copies are waited for without limit, since the memory
 * is somebody else's; after them, the replies to the last DONEs for at most DRAIN_US: the lease connection's BYE
 * must not overtake a STORE_DONE.
 */

#define REGISTER_AGAIN_US 1000000u
#define REGISTER_NO_ROOM_US 10000u /* no credit or no memory for the operation */
#define DRAIN_US 100000u
#define REGISTER_BODY_BYTES 16u

/* ---- registration ---- */

/* Tell the caller, if it waits. */
static void conclude(struct scout_worker *w, enum scout__reg_state state, int code, const char *text) SCOUT_ON_COURIER;
static void
conclude(struct scout_worker *w, enum scout__reg_state state, int code, const char *text)
{
	w->reg_first = false;
	(void)pthread_mutex_lock(&w->mu);
	w->reg = state;
	w->reg_code = code;
	(void)snprintf(w->reg_text, sizeof(w->reg_text), "%s", text);
	(void)pthread_cond_broadcast(&w->cond);
	(void)pthread_mutex_unlock(&w->mu);
}

/* Refused for good: the caller has to change something. */
static void give_up(struct scout_worker *w, int code, const char *text) SCOUT_ON_COURIER;
static void
give_up(struct scout_worker *w, int code, const char *text)
{
	w->reg_wanted = false;
	conclude(w, SCOUT__REG_FAILED, code, text);
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

static bool is_registered(const struct scout_worker *w) SCOUT_ON_COURIER;
static bool
is_registered(const struct scout_worker *w)
{
	return w->up && w->reg_epoch != 0 && w->reg_epoch == w->epoch;
}

static bool must_register(const struct scout_worker *w, uint64_t now_us) SCOUT_ON_COURIER;
static bool
must_register(const struct scout_worker *w, uint64_t now_us)
{
	return w->up && w->reg_wanted && !w->reg_in_flight && !is_registered(w) && now_us >= w->reg_retry_us;
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

static void on_registered(struct scout_worker *w, uint64_t attempt, const struct scout__op *op) SCOUT_ON_COURIER;
static void
on_registered(struct scout_worker *w, uint64_t attempt, const struct scout__op *op)
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
		w->reg_epoch = w->epoch;
		if (w->reg_first)
			conclude(w, SCOUT__REG_OK, 0, "");
		else
			scout__log(&w->log, SCOUT_LOG_INFO, "registered again");
		return;
	}
	/* Tried again every second: said once for each reason. */
	scout__log(&w->log, rc == before ? SCOUT_LOG_DEBUG : SCOUT_LOG_ERROR, "cannot register: %s", text);
	w->reg_retry_us = scout__now_us() + REGISTER_AGAIN_US;
	if (w->reg_first)
		give_up(w, rc, text);
}

/* The connection is refused with @error, and will be until somebody changes something. */
static bool is_final(const struct scout_worker *w, int error) SCOUT_ON_COURIER;
static bool
is_final(const struct scout_worker *w, int error)
{
	return !scout_err_is_retriable(error) && !scout__worker_adopt_mends(w, error);
}

static void on_word_register(struct scout_worker *w) SCOUT_ON_COURIER;
static void
on_word_register(struct scout_worker *w)
{
	int error = w->link ? scout__link_error(w->link) : 0;

	w->reg_wanted = true;
	w->reg_first = true;
	w->reg_retry_us = 0;
	w->reg_error = 0;
	scout__segments_attach(&w->segments, w->copy, w->engine);
	if (!w->up && error && is_final(w, error))
		give_up(w, error, w->down_text);
}

static void on_word_forget(struct scout_worker *w) SCOUT_ON_COURIER;
static void
on_word_forget(struct scout_worker *w)
{
	w->reg_wanted = false;
	w->reg_in_flight = false;
	w->reg_epoch = 0;
	scout__segments_detach(&w->segments);
	conclude(w, SCOUT__REG_NONE, 0, "");
}

/* ---- the courier's callbacks ---- */

static void on_job(void *user, uint64_t word, uint64_t now_us) SCOUT_ON_COURIER;
static void
on_job(void *user, uint64_t word, uint64_t now_us)
{
	struct scout_worker *w = user;

	(void)now_us;
	if (word == SCOUT__WORD_REGISTER) {
		on_word_register(w);
	} else if (word == SCOUT__WORD_FORGET) {
		on_word_forget(w);
	} else if (word == SCOUT__WORD_RESET) {
		scout__worker_on_reset(w);
	} else if (word == SCOUT__WORD_KICK) {
		/* Before the sweep: a drop that comes later kicks again. */
		atomic_store(&w->kicked, false);
		scout__transfer_sweep(w);
	} else {
		struct scout__job *job = &w->jobs[word & (SCOUT__MAX_JOBS - 1)];

		SCOUT_ASSERT(job->id == word);
		scout__transfer_accept(w, job);
	}
}

static void tell_jobs_down(struct scout_worker *w) SCOUT_ON_COURIER;
static void
tell_jobs_down(struct scout_worker *w)
{
	int error = w->down_pending;

	w->down_pending = 0;
	if (!error)
		return;
	if (!scout__worker_adopt_mends(w, error))
		scout__transfer_fail_waiting(w, error);
	scout__transfer_fail_due(w, error);
}

/* No connection is in sight. Refused for our weights is another matter than not being there. */
static void tell_jobs_hopeless(struct scout_worker *w) SCOUT_ON_COURIER;
static void
tell_jobs_hopeless(struct scout_worker *w)
{
	int error = scout__link_error(w->link) == SCOUT_ERR_WEIGHTS ? SCOUT_ERR_WEIGHTS : SCOUT_ERR_UNREACHABLE;

	if (!scout__worker_adopt_mends(w, error))
		scout__transfer_fail_waiting(w, error);
}

/* Tell the server what has been unmapped; what the socket does not take waits for the next turn. */
static void tell_released(struct scout_worker *w) SCOUT_ON_COURIER;
static void
tell_released(struct scout_worker *w)
{
	uint32_t id;

	while (w->link && (id = scout__segments_released(&w->segments)) != 0 && scout__link_released(w->link, id))
		scout__segments_told(&w->segments);
}

static void on_flush(void *user, uint64_t now_us) SCOUT_ON_COURIER;
static void
on_flush(void *user, uint64_t now_us)
{
	struct scout_worker *w = user;

	if (!w->link)
		return; /* neither up nor down yet, and so nothing to do */
	scout__transfer_collect(w);
	tell_released(w);
	tell_jobs_down(w);
	if (!w->up && !scout__link_is_hopeful(w->link))
		tell_jobs_hopeless(w);
	if (must_register(w, now_us))
		send_register(w);
	if (w->up && w->reg_error && !is_registered(w))
		scout__transfer_fail_waiting(w, w->reg_error);
	scout__worker_adopt(w);
	scout__transfer_pump(w, is_registered(w) && !w->adopt.pending, now_us);
}

static void on_link_up(void *user, struct scout__link *link, bool new_epoch) SCOUT_ON_COURIER;
static void
on_link_up(void *user, struct scout__link *link, bool new_epoch)
{
	struct scout_worker *w = user;

	w->link = link;
	tell_jobs_down(w);
	w->up = true;
	w->epoch = scout__link_epoch(link);
	w->reg_retry_us = 0;
	w->reg_error = 0;
	(void)pthread_mutex_lock(&w->mu);
	w->down_code = 0;
	(void)pthread_mutex_unlock(&w->mu);
	scout__worker_adopt_up(w);
	if (!new_epoch)
		return;
	scout__segments_retire(&w->segments);
	scout__transfer_new_epoch(w);
}

static void on_link_down(void *user, struct scout__link *link, int error, const char *text) SCOUT_ON_COURIER;
static void
on_link_down(void *user, struct scout__link *link, int error, const char *text)
{
	struct scout_worker *w = user;

	w->link = link;
	w->up = false;
	w->reg_in_flight = false;
	w->down_pending = error;
	(void)pthread_mutex_lock(&w->mu);
	w->down_code = error;
	(void)snprintf(w->down_text, sizeof(w->down_text), "%s", text);
	(void)pthread_mutex_unlock(&w->mu);
	if (scout__worker_adopt_mends(w, error))
		scout__link_try_now(link); /* this HELLO was on its way when the weights changed */
	else if (w->reg_first && !scout_err_is_retriable(error))
		give_up(w, error, text);
}

static void on_ended(void *user, struct scout__link *link, uint64_t cookie, const struct scout__op *op, int error)
	SCOUT_ON_COURIER;
static void
on_ended(void *user, struct scout__link *link, uint64_t cookie, const struct scout__op *op, int error)
{
	struct scout_worker *w = user;
	uint64_t number = cookie >> SCOUT__COOKIE_BITS;

	(void)link;
	switch (cookie & ((1u << SCOUT__COOKIE_BITS) - 1)) {
	case SCOUT__COOKIE_REGISTER:
		on_registered(w, number, op);
		break;
	case SCOUT__COOKIE_GRANTS:
		scout__transfer_grants(w, number, op, error);
		break;
	case SCOUT__COOKIE_ADOPT:
		scout__worker_adopt_answer(w, op);
		break;
	default:
		scout__transfer_told(w, number, op, error);
		break;
	}
}

static void on_segment(void *user, struct scout__link *link, const struct scout__lease_msg *msg, int fd)
	SCOUT_ON_COURIER;
static void
on_segment(void *user, struct scout__link *link, const struct scout__lease_msg *msg, int fd)
{
	struct scout_worker *w = user;

	(void)link;
	/* The lease connection ends with its server: what comes on it is of the epoch that we know. */
	(void)scout__segments_add(&w->segments, w->epoch, msg, fd); /* has been logged; kept as unusable */
}

static void on_withdraw(void *user, struct scout__link *link, uint32_t segment) SCOUT_ON_COURIER;
static void
on_withdraw(void *user, struct scout__link *link, uint32_t segment)
{
	struct scout_worker *w = user;

	/* A full socket here means that the server stands still; what it waits for is in the list, or was never mapped. */
	if (!scout__segments_withdraw(&w->segments, segment))
		(void)scout__link_released(link, segment);
	tell_released(w);
}

static void on_lease_new(void *user, struct scout__link *link) SCOUT_ON_COURIER;
static void
on_lease_new(void *user, struct scout__link *link)
{
	struct scout_worker *w = user;

	(void)link;
	scout__segments_retire(&w->segments);
}

static void on_user_ready(void *user) SCOUT_ON_COURIER;
static void
on_user_ready(void *user)
{
	scout__transfer_collect(user);
}

static uint64_t on_tick(void *user, uint64_t now_us) SCOUT_ON_COURIER;
static uint64_t
on_tick(void *user, uint64_t now_us)
{
	struct scout_worker *w = user;
	uint64_t next_us = scout__transfer_tick(w, now_us);
	bool waits = w->up && w->reg_wanted && !w->reg_in_flight && !is_registered(w);

	return waits && w->reg_retry_us < next_us ? w->reg_retry_us : next_us;
}

static void on_closing(void *user) SCOUT_ON_COURIER;
static void
on_closing(void *user)
{
	struct scout_worker *w = user;

	w->closing = true;
	w->reg_wanted = false;
	scout__transfer_close(w);
}

static bool is_drained(void *user) SCOUT_ON_COURIER;
static bool
is_drained(void *user)
{
	struct scout_worker *w = user;
	uint64_t now_us = scout__now_us();

	if (w->n_copying > 0)
		return false;
	if (!w->drain_until_us)
		w->drain_until_us = now_us + DRAIN_US;
	return !w->up || (w->n_told == 0 && TAILQ_EMPTY(&w->due)) || now_us >= w->drain_until_us;
}

const struct scout__courier_ops scout__worker_courier_ops = {
	.job = on_job,
	.flush = on_flush,
	.link_up = on_link_up,
	.link_down = on_link_down,
	.ended = on_ended,
	.segment = on_segment,
	.withdraw = on_withdraw,
	.lease_new = on_lease_new,
	.user_ready = on_user_ready,
	.tick = on_tick,
	.closing = on_closing,
	.drained = is_drained,
};
