/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_internal.h"

#include <string.h>

/*
 * DESIGN
 *
 * Purpose: new weights without a new worker: scout_worker_reset(), on both sides of the ring.
 *
 * Two things must be kept apart from the old weights: the jobs that we have, and what the server lets us do.
 *
 * Jobs. Each carries the worker's weights_gen at its submit; a reset counts it up, on the caller's thread. The same
 * call drops every waiting job (WAITING -> DROPPED, as cancel does), and tells running jobs to stop. So nothing old
 * starts after the call has returned, whatever the courier is doing. The courier ends jobs as always; only poll
 * decides that a job of an older weights_gen is not good. What a running store has copied is given up instead of
 * committed: under the old version it would hardly be asked for again.
 *
 * The server. It lets a worker store and retrieve if its HELLO gave no version of the weights, or the namespace's,
 * and checks this for each STORE that it reads. So a STORE of new bytes must never travel while the server still has
 * our old version, or none. Until the server has accepted a HELLO with the new version (`pending`), nothing asks.
 * That HELLO goes over the present connection, where it changes only this peer's version: registration, holds, lease
 * and segments stay.
 *
 *   HELLO(0) ──▶ the server's version is
 *     ours                     ──HELLO(ours)──▶ settled: HELLOs of later connections say ours
 *     none                     ──RESET──▶ HELLO(ours) ──▶ settled
 *     one that we had to leave ──HELLO(it)──▶ RESET ──▶ HELLO(ours) ──▶ settled
 *     another one              jobs that waited for this answer end WEIGHTS
 *
 * - A namespace without a version takes the version of the next HELLO as the name of all that it has, old bytes too. Hence the
 *   question first, and RESET before HELLO(ours).
 * - RESET makes client and workers equal: after the first of them, nothing older is served. And a restarted server can have its
 *   version from us, from before our reset; peers with the newer version would be refused for ever if we only adopted the
 *   server's.
 * - But a worker that was stopped during two updates must not take all peers back to the first one when it wakes (if it then
 *   died, they would stay there). Nothing shows which version is newer, but a version that our own user told us to leave is
 *   older. The server refuses RESET to a worker whose version is not the namespace's, so HELLO with that version and then RESET
 *   compare and change in one step.
 * - The worker does not ask again by the clock. A job that arrives makes us ask; the answer to an earlier question does not count
 *   for it. A job with the ticket of a lookup under the new version is sure to be served.
 * - Connections. While pending they begin with HELLO(0): neither an older nor a newer server version can lock us out, and the
 *   question follows. When settled, HELLO says ours, and a server with another version refuses the connection, as for any worker
 *   that was made with our version: jobs end WEIGHTS.
 * - After several resets the latest counts. An answer about a version that is not ours any more only makes us ask again.
 *
 * Rejected: only ever adopting what a client's RESET has set: it works until the server is restarted between two
 * ranks' resets, see above. Rejected: RESET without a question, because of the worker that wakes. Rejected: a new
 * connection with the new version: less code, but every job in flight would end unreachable.
 *
 * Threads: caller above, courier below; they share `weights_gen`, `reset_to` and `reset_queued`.
 */

#define MAX_RACES 3u /* so many answers in a row may be overtaken by a change of the server's version */

/* ---- the caller ---- */

int
scout_worker_reset(struct scout_worker *w, uint64_t weights_version)
{
	if (!w || weights_version == 0)
		return SCOUT_ERR_INVALID;
	if (scout__courier_forked(w->courier))
		return SCOUT_ERR_FORKED;
	if (weights_version == w->version)
		return 0;
	w->version = weights_version;
	w->reset_at = atomic_fetch_add(&w->weights_gen, 1) + 1;
	scout__worker_drop_all(w);
	/* In this order: if the word is queued already, the courier has not read the version yet. */
	atomic_store(&w->reset_to, weights_version);
	scout__worker_post_once(w, &w->reset_queued, SCOUT__WORD_RESET);
	return 0;
}

int
scout__worker_outdated_by(const struct scout_worker *w, const struct scout__job_data *data)
{
	return data->weights_gen < w->reset_at ? SCOUT_ERR_WEIGHTS : SCOUT_ERR_CLEARED;
}

void
scout__worker_outdate(const struct scout_worker *w, struct scout__job_data *data)
{
	switch (data->status) {
	case 0:
	case SCOUT_ERR_MISSING:
	case SCOUT_ERR_CANCELED:
	case SCOUT_ERR_NO_SESSION:
		data->status = scout__worker_outdated_by(w, data);
		break;
	default: /* an error of the device or the server is still worth reporting */
		break;
	}
	data->chunks = 0;
	if (data->kind == SCOUT_JOB_STORE)
		return;
	data->n_verified = data->mismatched = 0;
	memset(data->filled, 0, data->n_chunks);
	scout__job_name_missing(data);
}

/* ---- the courier ---- */

/* Whether our user has told us to leave this version. */
static bool SCOUT_ON_COURIER
is_left(const struct scout_worker *w, uint64_t version)
{
	for (uint32_t i = 0; i < SCOUT__LEFT_VERSIONS; i++)
		if (version != 0 && w->adopt.left[i] == version)
			return true;
	return false;
}

/* Go from our version to another one, perhaps to one that we had before. */
static void SCOUT_ON_COURIER
leave(struct scout_worker *w, uint64_t version)
{
	struct scout__adopt *adopt = &w->adopt;

	if (adopt->version != 0 && !is_left(w, adopt->version))
		adopt->left[adopt->next_left++ % SCOUT__LEFT_VERSIONS] = adopt->version;
	for (uint32_t i = 0; i < SCOUT__LEFT_VERSIONS; i++)
		if (adopt->left[i] == version)
			adopt->left[i] = 0;
	adopt->version = version;
}

void
scout__worker_on_reset(struct scout_worker *w)
{
	struct scout__link *link = scout__courier_link(w->courier, 0);
	uint64_t version;

	/* Cleared before the version is read: a later reset sends its own word. */
	atomic_store(&w->reset_queued, false);
	version = atomic_load(&w->reset_to);
	scout__jobs_sweep(w);
	if (version == w->adopt.version)
		return;
	leave(w, version);
	w->adopt.pending = true;
	w->adopt.wanted = true;
	w->adopt.seen = 0;
	scout__link_set_weights(link, 0);
	scout__link_try_now(link);
}

void
scout__worker_adopt_up(struct scout_worker *w)
{
	w->adopt.wanted = w->adopt.pending;
}

bool
scout__worker_adopt_mends(const struct scout_worker *w, int error)
{
	return w->adopt.pending && error == SCOUT_ERR_WEIGHTS;
}

static bool SCOUT_ON_COURIER
say(struct scout_worker *w, enum scout__adopt_step step, uint64_t version)
{
	struct scout__writer *writer;

	if (step != SCOUT__ADOPT_RESET) {
		if (!scout__link_hello_again(w->link, version, SCOUT__COOKIE_ADOPT))
			return false;
	} else {
		writer = scout__link_op_begin(w->link, SCOUT_OP_RESET, 0, SCOUT__COOKIE_ADOPT, sizeof(uint64_t));
		if (!writer)
			return false;
		scout__put_one_u64(writer, version);
		scout__link_op_end(w->link);
	}
	w->adopt.step = step;
	w->adopt.said = w->adopt.version;
	return true;
}

/* If nothing could be sent, the next turn tries again: whatever was in the way causes a turn. */
void
scout__worker_adopt(struct scout_worker *w)
{
	struct scout__adopt *adopt = &w->adopt;

	if (!adopt->pending || adopt->step != SCOUT__ADOPT_NONE || !w->up || w->closing)
		return;
	if ((!adopt->wanted && TAILQ_EMPTY(&w->to_ask)) || !say(w, SCOUT__ADOPT_ASK, 0))
		return;
	adopt->wanted = false;
	adopt->n_asked++;
}

static void SCOUT_ON_COURIER
settle(struct scout_worker *w)
{
	w->adopt.pending = false;
	w->adopt.n_races = 0;
	scout__link_set_weights(w->link, w->adopt.version);
	scout__log(&w->log, SCOUT_LOG_INFO, "weights version %llu", (unsigned long long)w->adopt.version);
}

/* The server refuses our version for now: end the jobs that waited for this answer. */
static void SCOUT_ON_COURIER
refused(struct scout_worker *w, int error)
{
	w->adopt.n_races = 0;
	scout__jobs_fail_asking(w, w->adopt.n_asked, error);
}

/* The server has a version that we never had. Logged once for each version, because each job asks again. */
static void SCOUT_ON_COURIER
differs(struct scout_worker *w, uint64_t version)
{
	if (w->adopt.seen != version)
		scout__log(&w->log, SCOUT_LOG_INFO,
			   "weights version %llu, but the server has %llu: jobs are refused until one of both is reset",
			   (unsigned long long)w->adopt.version, (unsigned long long)version);
	w->adopt.seen = version;
	refused(w, SCOUT_ERR_WEIGHTS);
}

/* We know the server's version: take the next step, or none. */
static void SCOUT_ON_COURIER
go_on(struct scout_worker *w, uint64_t version)
{
	uint64_t ours = w->adopt.version;
	bool sent;

	if (version == ours)
		sent = say(w, SCOUT__ADOPT_SAY, ours);
	else if (version == 0)
		sent = say(w, SCOUT__ADOPT_RESET, ours);
	else if (is_left(w, version))
		sent = say(w, SCOUT__ADOPT_COMPARE, version);
	else {
		differs(w, version);
		return;
	}
	w->adopt.wanted |= !sent; /* from the start, then */
}

void
scout__worker_adopt_answer(struct scout_worker *w, const struct scout__op *op)
{
	struct scout__adopt *adopt = &w->adopt;
	enum scout__adopt_step step = adopt->step;
	struct scout__hello_reply reply = {.weights = 0};
	const char *field;

	adopt->step = SCOUT__ADOPT_NONE;
	/* Without an answer jobs end with their connection, and the next connection asks by itself. */
	if (!op || adopt->said != adopt->version)
		return;
	if (op->status == SCOUT_WIRE_WEIGHTS && step != SCOUT__ADOPT_ASK && adopt->n_races++ < MAX_RACES) {
		adopt->wanted = true; /* the server's version changed meanwhile: perhaps to ours */
		return;
	}
	if (op->status != SCOUT_WIRE_OK) {
		refused(w, scout__wire_error(op->status));
		return;
	}
	if (step != SCOUT__ADOPT_RESET && scout__get_hello_reply(op, &reply, &field) != SCOUT_WIRE_OK) {
		refused(w, SCOUT_ERR_PROTOCOL);
		scout__link_reset(w->link, SCOUT_ERR_PROTOCOL, "a reply to HELLO makes no sense");
		return;
	}
	switch (step) {
	case SCOUT__ADOPT_ASK:
		go_on(w, reply.weights);
		break;
	case SCOUT__ADOPT_COMPARE:
		adopt->wanted |= !say(w, SCOUT__ADOPT_RESET, adopt->version);
		break;
	case SCOUT__ADOPT_RESET:
		adopt->wanted |= !say(w, SCOUT__ADOPT_SAY, adopt->version);
		break;
	default:
		settle(w);
		break;
	}
}
