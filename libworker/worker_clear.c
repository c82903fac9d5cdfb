/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_internal.h"

/*
 * DESIGN
 *
 * Purpose: scout_worker_clear(), on both sides of the ring. What a clear is to the server: server/ops/clear.c.
 *
 * The caller's side is that of a reset (worker_weights.c): every job that we have is of before, so none of
 * them is good, and none starts after the call. The courier then sends CLEAR, and asks for nothing until it
 * is answered. Without that a STORE of new bytes could travel while the server takes us for a worker of
 * before (it would be refused, no more), or one of our client's LOOKUPs be answered with what was cached
 * before.
 *
 * The answer says since when we are in; the link repeats that in each later HELLO. So a CLEAR that was
 * answered is known to every later server, and one that was not is sent again on the next connection: its
 * name makes that harmless. Several calls: the latest counts, an answer about another name only makes us send
 * again.
 *
 * Refused or too late (another clear came after ours): jobs go on to ask, and the server refuses them, each
 * with its reason. A namespace can come back to our clear, when a peer that came from the other one goes on to
 * ours (server/state/clears.c). The server lets us in then, but we do not hear of it, and the next server does
 * not know. So a job that is refused with CLEARED makes us ask which clear the server has, and say ours again if
 * that is the one.
 *
 * While the worker goes over to another version of the weights, CLEAR waits: the server would not take it
 * from a worker of a version that is not its own.
 *
 * Threads: caller above, courier below; they share `clear_to` and `clear_queued`.
 */

/* ---- the caller ---- */

int
scout_worker_clear(struct scout_worker *w, uint64_t generation, uint64_t *ret_generation)
{
	if (!w)
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
	/* Before it is read: a call that comes later sends its own word. */
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
		return; /* whatever was in the way makes another turn */
	scout__put_one_u64(writer, w->clear.generation);
	scout__link_op_end(w->link);
	w->clear.in_flight = true;
	w->clear.said = w->clear.generation;
}

/*
 * A new connection. Our client's CLEAR may have met a server that was restarted before our HELLO did: it drew a later
 * stamp under the same name, and takes us for a worker of before. We cleared under that name, so we say it again.
 */
void
scout__worker_clear_up(struct scout_worker *w)
{
	if (w->clear.generation != 0 && scout__link_is_before_clear(w->link, w->clear.generation))
		w->clear.pending = true;
}

/* What the reply says that our user should know. */
static void SCOUT_ON_COURIER
tell(struct scout_worker *w, const struct scout__clear_reply *reply)
{
	if (reply->clear.joined < reply->clear.cleared)
		scout__log(
			&w->log, SCOUT_LOG_WARN,
			"this clear came too late, the namespace was cleared again: jobs end SCOUT_ERR_CLEARED until "
			"scout_worker_clear() is called for that one");
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
	/* Lost with its connection, or not carried out: again on the next. Of an older call: again, under the newer name. */
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

	/* Without an answer the next job that is refused asks again. */
	if (!op || op->status != SCOUT_WIRE_OK || scout__get_hello_reply(op, &reply, &field) != SCOUT_WIRE_OK)
		return;
	scout__link_note_clear(w->link, &reply.clear);
	scout__worker_clear_up(w);
}
