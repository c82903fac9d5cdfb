/* SPDX-License-Identifier: Apache-2.0 */
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "block.h"
#include "keep.h"
#include "ns.h"
#include "peer.h"
#include "peer_share.h"
#include "pending_op.h"
#include "request_bytes.h"
#include "server_core.h"
#include "state.h"

/*
 * DESIGN
 *
 * A session is what one lookup promised. The unit of a promise is (session, object, rank, reader): a lookup takes all
 * units of an object at once, each worker's retrieve turns its own unit into a hold, and ADMIT, FINISH, RESET or the
 * end of the client gives back the rest.
 *
 * No list says which units are left. For each group these are the units of the objects in [kept_from, kept_to), less
 * those that a bitmap marks as used. There is one row of bits for each (rank, reader), made when that worker first
 * retrieves, and one count for each object, so that giving back an object is one subtraction. The range only ever
 * shrinks and bits are only ever set: so nothing can be given back twice, however often a peer asks.
 *
 * End: from that moment the ticket names nothing. The run item then walks what was stored, then what was looked up,
 * each from last to first. It gives back each object and, after FINISH, touches it: the head of the prompt, which other
 * prompts share, is then the last to be evicted. A long walk takes short slices while operations are in the run queue
 * (release_slice()).
 *
 * Memory: for each group one block of handles, as long as the hit; rows and stored keys only for sessions that need them.
 * Everything counts against max_request_bytes (request_bytes.h).
 *
 * Threads: loop.
 */

#define STEP_BACK 8u     /* how many times shorter the slices of a release are while others wait */
#define STEP_BACK_MAX 2u /* not with more sessions than these to release: what is pinned must not pile up */

SCOUT_ON_LOOP static void release_step(struct scout_server *s, struct scout__run_item *item);

struct scout__session *
scout__session_find(struct scout_server *s, const struct scout__ns *ns, uint64_t ticket)
{
	uint32_t slot = scout__map_get(&s->state->by_ticket, ticket);
	struct scout__session *session;

	if (slot == SCOUT__MAP_NONE)
		return NULL;
	session = s->state->sessions[slot];
	if (session->ended || session->ns != ns || session->weights_gen != ns->weights_gen || session->peer->leaving)
		return NULL;
	return session;
}

/* As realloc() of @n elements of 8 bytes, counted; NULL when there is no memory or too much is used. @n 0 frees. */
SCOUT_ON_LOOP static void *
resize(struct scout_server *s, void *block, uint32_t old_n, uint32_t n)
{
	uint64_t old_bytes = (uint64_t)old_n * 8;
	uint64_t bytes = (uint64_t)n * 8;
	void *p;

	if (n == 0) {
		scout__block_free(block, old_bytes);
		scout__request_bytes_give(s, old_bytes);
		s->state->session_bytes -= old_bytes;
		return NULL;
	}
	if (bytes > old_bytes && !scout__request_bytes_take(s, bytes - old_bytes))
		return NULL;
	p = scout__block_resize(block, old_bytes, bytes);
	if (p ? bytes < old_bytes : bytes > old_bytes)
		scout__request_bytes_give(s, p ? old_bytes - bytes : bytes - old_bytes);
	if (!p)
		return NULL;
	s->state->session_bytes += bytes;
	s->state->session_bytes -= old_bytes;
	return p;
}

bool
scout__kept_resize(struct scout_server *s, struct scout__kept *kept, uint32_t n)
{
	void *p;

	if (n == kept->cap_handles)
		return true;
	p = resize(s, kept->handles, kept->cap_handles, n);
	if (!p && n)
		return n < kept->cap_handles; /* if it cannot shrink, it stays larger than needed */
	kept->handles = p;
	kept->cap_handles = n;
	return true;
}

/* Room for the handles of each group. */
SCOUT_ON_LOOP static bool
make_handles(struct scout_server *s, struct scout__session *session, uint32_t n)
{
	bool made = true;

	for (uint32_t i = 0; i < session->n_groups; i++) {
		struct scout__ns_group *group = &session->ns->by_group[i];

		session->of[i].group = group;
		session->of[i].needs = scout__kept_needs(group);
		made = made && scout__kept_resize(s, &session->of[i], n / group->stride);
	}
	return made;
}

SCOUT_ON_LOOP static void
free_handles(struct scout_server *s, struct scout__session *session)
{
	for (uint32_t i = 0; i < session->n_groups; i++)
		(void)scout__kept_resize(s, &session->of[i], 0);
}

static size_t
session_size(uint32_t n_groups)
{
	return sizeof(struct scout__session) + n_groups * sizeof(struct scout__kept);
}

/* Whether @peer may have one more session; else *ret_text says why not, until the next call. */
SCOUT_ON_LOOP static bool
has_place(struct scout_server *s, const struct scout__peer *peer, const char **ret_text)
{
	uint32_t n = s->state->n_session_places - s->state->n_free_sessions;

	if (scout__peer_share_admits(s, peer, SCOUT__SHARED_SESSIONS, n, peer->n_sessions, 1))
		return true;
	(void)snprintf(s->state->refusal, sizeof(s->state->refusal),
		       "max_sessions = %u are open, %u of them are this peer's, whose share is %u: finish some",
		       (unsigned)s->cfg.max_sessions, (unsigned)peer->n_sessions,
		       (unsigned)scout__peer_share(s, SCOUT__SHARED_SESSIONS));
	*ret_text = s->state->refusal;
	return false;
}

struct scout__session *
scout__session_new(struct scout_server *s, struct scout__peer *peer, uint64_t ticket, uint32_t n, uint16_t *ret_status,
		   const char **ret_text)
{
	uint32_t n_groups = peer->ns->groups.n;
	struct scout__session *session;

	*ret_status = SCOUT_WIRE_LIMIT;
	*ret_text = "the server has no memory for one more session";
	if (scout__map_get(&s->state->by_ticket, ticket) != SCOUT__MAP_NONE) {
		*ret_status = SCOUT_WIRE_STATE;
		*ret_text = "this ticket is in use: every lookup needs a new one";
		return NULL;
	}
	if (!has_place(s, peer, ret_text))
		return NULL;
	if (!scout__request_bytes_take(s, session_size(n_groups)))
		return NULL;
	session = calloc(1, session_size(n_groups));
	if (!session)
		goto err_give;
	session->ns = peer->ns;
	session->n_groups = n_groups;
	if (!make_handles(s, session, n))
		goto err_free_handles;
	session->number = s->state->free_sessions[s->state->n_free_sessions - 1];
	if (!scout__map_put(&s->state->by_ticket, ticket, session->number))
		goto err_free_handles;
	s->state->n_free_sessions--;
	s->state->sessions[session->number] = session;
	session->run.step = release_step;
	session->peer = peer;
	session->ticket = ticket;
	session->serial = ++s->state->next_serial;
	session->weights_gen = peer->ns->weights_gen;
	session->n = n;
	scout__list_add(&peer->sessions, &session->of_peer);
	scout__list_add(&peer->ns->sessions, &session->of_ns);
	peer->n_sessions++;
	session->bytes = session_size(n_groups) + n * sizeof(struct scout__handle);
	peer->session_bytes += session->bytes;
	peer->ns->n_sessions++;
	return session;

err_free_handles:
	free_handles(s, session);
	free(session);
err_give:
	scout__request_bytes_give(s, session_size(n_groups));
	return NULL;
}

/* ---- units ---- */

SCOUT_ON_LOOP static uint32_t
n_rows(const struct scout__kept *kept)
{
	return kept->group->index->n_ranks * kept->group->index->readers;
}

void
scout__kept_promised(struct scout__kept *kept, int n)
{
	struct scout__session *session = SCOUT__OWNER(kept - kept->group->number, struct scout__session, of);
	uint64_t bytes = (uint64_t)(int64_t)n * kept->group->index->chunk_bytes;

	session->promised_bytes += bytes;
	if (!session->ended)
		session->peer->promised_bytes += bytes;
}

/* Give back what is left of object @i's units. False: there was none. */
SCOUT_ON_LOOP static bool
unpromise(struct scout__kept *kept, uint32_t i)
{
	uint32_t entry = kept->handles[i].entry;
	uint32_t used = kept->used_count ? kept->used_count[i] : 0;

	if (entry == SCOUT__NO_ENTRY) {
		kept->n_holes--;
		return false;
	}
	/* All units are used: this session does not pin the entry any more, which may be another object by now. */
	if (used == n_rows(kept))
		return false;
	scout__index_unpromise(kept->group->index, entry, n_rows(kept) - used);
	scout__ns_unpinned(kept->group, entry);
	return true;
}

SCOUT_ON_LOOP static void
give_back(struct scout__kept *kept, uint32_t i)
{
	if (unpromise(kept, i))
		scout__kept_promised(kept, -1);
}

void
scout__kept_drop_last(struct scout__kept *kept)
{
	give_back(kept, --kept->kept_to);
}

void
scout__kept_drop_first(struct scout__kept *kept)
{
	give_back(kept, kept->kept_from++);
}

void
scout__kept_hole(struct scout__kept *kept, uint32_t i)
{
	if (i < kept->kept_to)
		give_back(kept, i);
	kept->handles[i] = (struct scout__handle){SCOUT__NO_ENTRY, 0};
	kept->n_holes++;
}

/* Rows of bits and the counts, for the objects of the hit. */
SCOUT_ON_LOOP static bool
make_rows(struct scout_server *s, struct scout__kept *kept)
{
	uint32_t rows = n_rows(kept);

	if (kept->used_rows)
		return true;
	kept->n_used = (kept->hit + 63) / 64 * 64;
	kept->used_count = resize(s, NULL, 0, kept->n_used / 4);
	if (!kept->used_count)
		return false;
	memset(kept->used_count, 0, kept->n_used * sizeof(*kept->used_count));
	kept->used_rows = resize(s, NULL, 0, rows);
	if (!kept->used_rows) {
		(void)resize(s, kept->used_count, kept->n_used / 4, 0);
		kept->used_count = NULL;
		return false;
	}
	memset(kept->used_rows, 0, rows * sizeof(*kept->used_rows));
	return true;
}

SCOUT_ON_LOOP static void
free_rows(struct scout_server *s, struct scout__kept *kept)
{
	if (!kept->used_rows)
		return;
	for (uint32_t i = 0; i < n_rows(kept); i++) {
		if (kept->used_rows[i])
			(void)resize(s, kept->used_rows[i], kept->n_used / 64, 0);
	}
	(void)resize(s, kept->used_rows, n_rows(kept), 0);
	(void)resize(s, kept->used_count, kept->n_used / 4, 0);
	kept->used_rows = NULL;
	kept->used_count = NULL;
}

void
scout__kept_use(struct scout_server *s, struct scout__kept *kept, uint32_t i, uint32_t row)
{
	uint64_t bit = UINT64_C(1) << (i % 64);

	if (i < kept->kept_from || i >= kept->kept_to)
		return;
	/* Without memory for the bits the unit stays promised until the session ends: harmless. */
	if (!make_rows(s, kept))
		return;
	if (!kept->used_rows[row]) {
		kept->used_rows[row] = resize(s, NULL, 0, kept->n_used / 64);
		if (!kept->used_rows[row])
			return;
		memset(kept->used_rows[row], 0, kept->n_used / 8);
	}
	if (kept->used_rows[row][i / 64] & bit)
		return;
	kept->used_rows[row][i / 64] |= bit;
	if (++kept->used_count[i] == n_rows(kept))
		scout__kept_promised(kept, -1);
	scout__index_unpromise(kept->group->index, kept->handles[i].entry, 1);
}

void
scout__kept_stored(struct scout_server *s, struct scout__kept *kept, struct scout__handle handle, bool present)
{
	if (kept->n_stored == kept->cap_stored) {
		uint32_t cap = kept->cap_stored ? kept->cap_stored * 2 : 16;
		void *p;

		if (kept->cap_stored >= SCOUT_MAX_CHUNKS)
			return;
		p = resize(s, kept->stored, kept->cap_stored, cap);
		if (!p)
			return; /* no harm: it will not be touched */
		kept->stored = p;
		kept->cap_stored = cap;
	}
	if (kept->diverges_hash && scout__kept_diverges_at(kept, handle.entry))
		kept->diverges_at = kept->n_stored + 1;
	if (present)
		handle.entry |= SCOUT__STORED_PRESENT;
	kept->stored[kept->n_stored++] = handle;
}

/* ---- the end ---- */

/* Handles that the end of @session has yet to look at. */
SCOUT_ON_LOOP static uint32_t
n_left(const struct scout__session *session)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < session->n_groups; i++)
		n += session->of[i].hit + session->of[i].n_stored;
	return n;
}

void
scout__session_end(struct scout_server *s, struct scout__session *session, bool touch)
{
	struct scout__pending_op *lookup = session->lookup;

	SCOUT_ASSERT(!session->ended);
	session->ended = true;
	session->touch = touch;
	session->peer->n_sessions--;
	session->peer->session_bytes -= session->bytes;
	session->peer->promised_bytes -= session->promised_bytes;
	scout__list_del(&session->of_ns);
	if (lookup) {
		session->lookup = NULL;
		if (session->weights_gen != session->ns->weights_gen)
			scout__pending_op_refuse(s, lookup, session->ns->ended_by, "%s",
						 scout__ns_ended_text(session->ns));
		else
			scout__pending_op_refuse(s, lookup, SCOUT_WIRE_NO_SESSION, "finished before the answer");
	}
	if (!session->deferred.reply) {
		scout__list_del(&session->of_peer);
		session->peer = NULL;
	}
	s->state->n_releasing++;
	scout__run_queue_start(s, &session->run, n_left(session));
}

void
scout__session_undo(struct scout_server *s, uint64_t ticket)
{
	uint32_t at = scout__map_get(&s->state->by_ticket, ticket);

	if (at != SCOUT__MAP_NONE && !s->state->sessions[at]->ended)
		scout__session_end(s, s->state->sessions[at], false);
}

SCOUT_ON_LOOP static void
touch(const struct scout__session *session, struct scout__kept *kept, struct scout__handle handle,
      enum scout__access how)
{
	if (session->touch && handle.entry != SCOUT__NO_ENTRY && scout__index_valid(kept->group->index, handle))
		scout__kept_touch(session, kept, handle, how);
}

/* Send the reply to FINISH, if it is owed: @n hashes or keys are kept. */
SCOUT_ON_LOOP static void
reply(struct scout_server *s, struct scout__session *session, uint32_t n)
{
	if (session->peer)
		scout__deferred_reply_send(s, &session->deferred, session->peer,
					   n + session->keep.outcome * SCOUT__OUTCOME_UNIT);
	session->deferred.reply = NULL;
	s->count.keeps[session->keep.outcome]++;
	session->keep.outcome = SCOUT_OUTCOME_NONE;
}

SCOUT_ON_LOOP static void
session_free(struct scout_server *s, struct scout__session *session)
{
	reply(s, session, 0);
	if (session->weights_gen != session->ns->weights_gen)
		scout__stale_tickets_add(s, session->ticket, session->ns->ended_by);
	scout__list_del(&session->of_peer);
	for (uint32_t i = 0; i < session->n_groups; i++) {
		(void)resize(s, session->of[i].stored, session->of[i].cap_stored, 0);
		free_rows(s, &session->of[i]);
	}
	free_handles(s, session);
	(void)scout__map_del(&s->state->by_ticket, session->ticket);
	s->state->sessions[session->number] = NULL;
	s->state->free_sessions[s->state->n_free_sessions++] = session->number;
	session->ns->n_sessions--;
	s->state->n_releasing--;
	scout__request_bytes_give(s, session_size(session->n_groups));
	free(session);
}

/* ---- what stays after the end, see keep.c ---- */

/* Free the rows, and the handles that are not kept. */
SCOUT_ON_LOOP static void
trim(struct scout_server *s, struct scout__kept *kept)
{
	uint32_t n_stored = kept->keep_end > kept->n_found ? kept->keep_end - kept->n_found : 0;
	void *stored = resize(s, kept->stored, kept->cap_stored, n_stored);

	if (stored || !n_stored) {
		kept->stored = stored;
		kept->cap_stored = n_stored;
	}
	free_rows(s, kept);
	(void)scout__kept_resize(s, kept, kept->keep_end - n_stored);
}

SCOUT_ON_LOOP static void
unkeep_step(struct scout_server *s, struct scout__run_item *item)
{
	struct scout__session *session = SCOUT__OWNER(item, struct scout__session, run);
	uint32_t left = SCOUT__SLICE_CHUNKS;

	for (uint32_t i = 0; i < session->n_groups; i++) {
		struct scout__kept *kept = &session->of[i];

		for (; left && kept->keep_end > kept->keep_from; left--) {
			struct scout__handle handle = scout__keep_handle(kept, kept->n_found, --kept->keep_end);

			if (handle.entry == SCOUT__NO_ENTRY)
				continue;
			scout__index_unpromise(kept->group->index, handle.entry, n_rows(kept));
			scout__ns_unpinned(kept->group, handle.entry);
		}
	}
	if (left)
		session_free(s, session);
	else
		scout__run_queue_add(s, item);
}

SCOUT_ON_LOOP static void
unkeep(struct scout_server *s, struct scout__session *session)
{
	scout__timer_clear(s, &session->run);
	scout__list_del(&session->of_ns);
	if (session->keep.has_tail)
		(void)scout__map_del(&s->state->keeps.by_tail, session->keep.tail);
	scout__keep_charge(s, session, -1);
	s->state->n_releasing++;
	session->run.step = unkeep_step;
	scout__run_queue_add(s, &session->run);
}

SCOUT_ON_LOOP static void
expire_step(struct scout_server *s, struct scout__run_item *item)
{
	unkeep(s, SCOUT__OWNER(item, struct scout__session, run));
}

/* All that @session does not keep is given back. */
SCOUT_ON_LOOP static void
stay(struct scout_server *s, struct scout__session *session)
{
	struct scout__handle tail = scout__keep_tail(&session->of[0]);

	for (uint32_t i = 0; i < session->n_groups; i++)
		trim(s, &session->of[i]);
	if (session->keep.n == 0)
		session->keep.outcome = SCOUT_OUTCOME_MISSING;
	reply(s, session, scout__keep_length(session));
	scout__list_del(&session->of_peer);
	session->peer = NULL;
	s->state->n_releasing--;
	scout__list_add(&session->ns->keeps, &session->of_ns);
	if (session->keep.n == 0 || session->ns->n_peers == 0 || session->weights_gen != session->ns->weights_gen) {
		unkeep(s, session);
		return;
	}
	if (tail.entry != SCOUT__NO_ENTRY) {
		session->keep.tail = scout__keep_key(&session->of[0], tail);
		session->keep.has_tail = scout__map_put(&s->state->keeps.by_tail, session->keep.tail, session->number);
	}
	session->run.step = expire_step;
	scout__timer_set(s, &session->run, session->keep.due_us);
}

void
scout__session_end_older(struct scout_server *s, const struct scout__session *session)
{
	struct scout__session *older;
	uint32_t looked = 0;

	while ((older = scout__keep_find(s, session, &looked)))
		unkeep(s, older);
}

bool
scout__sessions_unkeep(struct scout_server *s, struct scout__ns *ns, bool all, uint32_t left)
{
	for (; left && !scout__list_empty(&ns->keeps); left--) {
		struct scout__session *session = SCOUT__OWNER(ns->keeps.next, struct scout__session, of_ns);

		if (!all && session->weights_gen == ns->weights_gen)
			return false; /* the list has the oldest first */
		unkeep(s, session);
	}
	return !left;
}

/*
 * No peer waits for giving back, but a peer waits for each operation in the run queue: few chunks are given back
 * between the slices of an operation.
 */
SCOUT_ON_LOOP static uint32_t
release_slice(const struct scout_server *s, const struct scout__session *session)
{
	bool steps_back = n_left(session) > SCOUT__SLICE_CHUNKS && s->state->n_releasing <= STEP_BACK_MAX &&
			  scout__run_queue_wait(s);

	return steps_back ? SCOUT__SLICE_CHUNKS / STEP_BACK : SCOUT__SLICE_CHUNKS;
}

/* Release at most @left handles of one group. Returns @left less the number of released handles. */
SCOUT_ON_LOOP static uint32_t
release(struct scout__session *session, struct scout__kept *kept, uint32_t left)
{
	bool keeps = session->keep.due_us != 0;

	for (; left && kept->n_stored; left--) {
		struct scout__handle handle = kept->stored[--kept->n_stored];
		bool present = handle.entry & SCOUT__STORED_PRESENT;

		handle.entry &= ~SCOUT__STORED_PRESENT;
		if (kept->needs == UINT32_MAX)
			touch(session, kept, handle, present ? SCOUT__ACCESS_READ : SCOUT__ACCESS_STORED);
		else if (session->touch)
			scout__touch_stored(session, kept, kept->n_stored, handle, present);
		if (keeps)
			scout__keep_one(session, kept, kept->hit + kept->n_stored, &kept->stored[kept->n_stored]);
	}
	for (; left && kept->hit; left--) {
		uint32_t i = --kept->hit;

		if (i >= kept->kept_from && i < kept->kept_to)
			(void)unpromise(kept, i); /* its end took all of it from the peer's count */
		if (kept->needs == UINT32_MAX)
			touch(session, kept, kept->handles[i], SCOUT__ACCESS_READ);
		else if (session->touch)
			scout__touch_found(session, kept, kept->handles[i]);
		if (keeps)
			scout__keep_one(session, kept, i, &kept->handles[i]);
	}
	return left;
}

SCOUT_ON_LOOP static void
release_step(struct scout_server *s, struct scout__run_item *item)
{
	struct scout__session *session = SCOUT__OWNER(item, struct scout__session, run);
	uint32_t left = release_slice(s, session);

	for (uint32_t i = session->n_groups; i > 0; i--)
		left = release(session, &session->of[i - 1], left);
	if (n_left(session))
		scout__run_queue_add(s, item);
	else if (session->keep.due_us)
		stay(s, session);
	else
		session_free(s, session);
}
