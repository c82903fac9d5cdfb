/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_internal.h"

/*
 * DESIGN
 *
 * Purpose: scout_worker_clear(), on both sides of the ring. The server's side of a clear is in libserver/ops/clear.c.
 *
 * The caller's side works as for a reset (worker_weights.c): every job that we have is older than the clear, so none
 * of them is good, and none starts after the call. The courier then sends CLEAR, and asks for nothing until the
 * answer. Without this wait a STORE of new bytes could arrive while the server still counts us as out (it would only
 * be refused), or one of our client's LOOKUPs could hit what was cached before.
 *
 * The answer says since when we are in; the link repeats that in each later HELLO. So every later server knows of a
 * CLEAR that was answered. A CLEAR without an answer is sent again on the next connection: its name makes that
 * harmless. After several calls the latest counts, and an answer about another name only makes us send again.
 *
 * If our clear is refused or too late (another clear came after ours), jobs still ask, and the server refuses each
 * with its reason. A namespace can come back to our clear, if a peer goes from the other clear to ours
 * (libserver/state/clears.c). Then the server lets us in, but does not tell us, and the next server does not know. So
 * when a job is refused with CLEARED, we ask which clear the server has, and send our CLEAR again if it is ours.
 *
 * While the worker changes to another version of the weights, CLEAR waits: the server would refuse it from a worker
 * with another version than the namespace's.
 *
 * Threads: caller above, courier below; they share `clear_to` and `clear_queued`.
 */

/* ---- the caller ---- */

int
scout_worker_clear(struct scout_worker *w, uint64_t generation, uint64_t *ret_generation)
{
	if (!w || (generation != SCOUT_GENERATION_NEWEST && scout__generation_of(generation) != generation))
		return SCOUT_ERR_INVALID;
	if (scout__courier_forked(w->courier))
		return SCOUT_ERR_FORKED;
	if (generation == 0 && !scout__draw_generation(&generation))
		return SCOUT_ERR_BUSY;
	(void)atomic_fetch_add(&w->weights_gen, 1);
	scout__worker_drop_all(w);
	atomic_store(&w->clear_to, generation);
	scout__worker_post_once(w, &w->clear_queued, SCOUT__WORD_CLEAR);
	if (ret_generation)
		*ret_generation = generation;
	return 0;
}

/* ---- the courier ---- */

void
scout__worker_on_clear(struct scout_worker *w)
{
	/* Cleared before clear_to is read: a call that comes later sends its own word. */
	atomic_store(&w->clear_queued, false);
	w->clear.generation = atomic_load(&w->clear_to);
	w->clear.pending = true;
	scout__jobs_sweep(w);
}

void
scout__worker_clear_pump(struct scout_worker *w)
{
	struct scout__writer *writer;

	if (w->clear.in_flight || !w->up || w->closing || w->adopt.pending)
		return;
	if (w->clear.looks && scout__link_hello_again(w->link, w->adopt.version, SCOUT__COOKIE_LOOK))
		w->clear.looks = false;
	if (!w->clear.pending)
		return;
	writer = scout__link_op_begin(w->link, SCOUT_OP_CLEAR, 0, SCOUT__COOKIE_CLEAR, sizeof(uint64_t));
	if (!writer)
		return; /* whatever was in the way causes another turn */
	scout__put_one_u64(writer, w->clear.generation);
	scout__link_op_end(w->link);
	w->clear.in_flight = true;
	w->clear.said = w->clear.generation;
}

/*
 * A new connection. Our client's CLEAR may have reached a restarted server before our HELLO did: the server then drew
 * a later stamp under the same name, and counts us as out. We cleared under that name, so we send CLEAR again.
 */
void
scout__worker_clear_up(struct scout_worker *w)
{
	bool lost = scout__link_lost_stamps(w->link);

	if (w->clear.generation != 0 && (lost || scout__link_is_before_clear(w->link, w->clear.generation)))
		w->clear.pending = true;
}

/* Log what the user should know of the reply. */
static void SCOUT_ON_COURIER
tell(struct scout_worker *w, const struct scout__clear_reply *reply)
{
	if (reply->clear.joined < reply->clear.cleared)
		scout__log(
			&w->log, SCOUT_LOG_WARN,
			"this clear came too late, the namespace was cleared again: jobs end SCOUT_ERR_CLEARED until "
			"scout_worker_clear() is called for the later one");
	if (reply->pending)
		scout__log(&w->log, SCOUT_LOG_WARN,
			   "%u of %u L2 stores have not recorded the clear: the server does not use them until "
			   "they have; if it ends before, what they hold comes back",
			   (unsigned)reply->pending, (unsigned)reply->stores);
}

void
scout__worker_clear_answer(struct scout_worker *w, const struct scout__op *op)
{
	struct scout__clear_reply reply;
	const char *field;

	w->clear.in_flight = false;
	/* If it was lost with its connection, or not carried out, send it again on the next. If it belongs to an older call, send the newer name. */
	if (!op || scout__link_puts_off(w->link, op->status) || w->clear.said != w->clear.generation)
		return;
	w->clear.pending = false;
	if (op->status != SCOUT_WIRE_OK) {
		scout__log(&w->log, SCOUT_LOG_ERROR, "the server refused a clear: %s", scout__wire_name(op->status));
		return;
	}
	if (scout__get_clear_reply(op, &reply, &field) != SCOUT_WIRE_OK) {
		w->clear.pending = true;
		scout__link_reset(
			w->link, SCOUT_ERR_PROTOCOL,
			"the server's CLEAR reply breaks the protocol: are server and worker of one release?");
		return;
	}
	scout__link_note_clear(w->link, &reply.clear);
	tell(w, &reply);
}

void
scout__worker_clear_looked(struct scout_worker *w, const struct scout__op *op)
{
	struct scout__hello_reply reply;
	const char *field;

	/* Without an answer, the next refused job asks again. */
	if (!op || op->status != SCOUT_WIRE_OK || scout__get_hello_reply(op, &reply, &field) != SCOUT_WIRE_OK)
		return;
	scout__link_note_clear(w->link, &reply.clear);
	scout__worker_clear_up(w);
}
