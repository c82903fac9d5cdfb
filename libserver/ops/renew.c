/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "group_walk.h"
#include "ns.h"
#include "ops_internal.h"
#include "peer.h"
#include "lookup_op.h"
#include "server_core.h"
#include "session.h"

/*
 * DESIGN
 *
 * LOOKUP with SCOUT_LOOKUP_RENEW: a request has waited for so long that its answer is old, and its client asks whether
 * there is more by now. The walk of a renewal is a lookup's (lookup.c), but begins after what the session promises, so
 * only the difference is promised, and the hit cannot shrink.
 *
 * Invariants. The promised chunks are [kept_from, kept_to) of what the session keeps, and a renewal moves kept_to
 * upwards while it runs. So nothing else may move it meanwhile, and nothing may have been sized by it: a session with
 * an ADMIT under way or with rows of used units (a RETRIEVE makes them, as long as the hit) is not renewed, and an
 * ADMIT or RETRIEVE ends the renewal first. A refused, cancelled or expired renewal leaves its session as it is.
 *
 * The session does not keep the hashes. The last promised chunk's entry is pinned and has its hash and its space, and
 * hashes are chained: one comparison tells whether the prompt is the same. A session that promises nothing has nothing
 * to mix up.
 *
 * Threads: loop.
 */

/* Whether the last chunk that @session promises is the one that the request names. */
SCOUT_ON_LOOP static bool
is_same_prompt(const struct scout__session *session, const struct scout__lookup_op *pending)
{
	const struct scout__kept *kept = &session->of[0];
	uint32_t last = kept->kept_to - 1;
	const struct scout__entry *e;

	if (kept->kept_from >= kept->kept_to)
		return true;
	e = &kept->group->index->entries[kept->handles[last].entry];
	return e->space == pending->space &&
	       memcmp(e->hash, pending->hashes + (size_t)last * pending->op.ns->hash_bytes,
		      pending->op.ns->hash_bytes) == 0;
}

/* Why the session of a run cannot be renewed; NULL: it can. */
SCOUT_ON_LOOP static const char *
run_refusal_of(const struct scout__session *session, const struct scout__lookup_op *pending, uint16_t *ret_status)
{
	const struct scout__kept *kept = &session->of[0];
	bool keeps = kept->kept_from < kept->kept_to;

	if (kept->used_rows)
		return "chunks of this session were retrieved";
	if (kept->n_holes)
		return "chunks are missing in what this session promises: ADMIT a run of it first";
	*ret_status = SCOUT_WIRE_RANGE;
	if (pending->n != session->n)
		return "n differs from the session's";
	if (keeps && (pending->skip < kept->kept_from || pending->skip > kept->kept_to))
		return "skip is outside of what the session promises";
	if (!is_same_prompt(session, pending))
		return "hashes or tenant differ from the session's";
	return NULL;
}

/* The walk begins after what @session promises. False: no memory. */
SCOUT_ON_LOOP static bool
renew_run(struct scout_server *s, struct scout__session *session, struct scout__lookup_op *pending)
{
	struct scout__kept *kept = &session->of[0];

	if (!scout__kept_resize(s, kept, session->n))
		return false;
	if (kept->kept_from < kept->kept_to) {
		kept->hit = kept->kept_to;
	} else {
		/* Below skip there may be chunks that were never looked at: the budget ended first. */
		kept->hit = kept->hit < pending->skip ? kept->hit : pending->skip;
		kept->kept_from = kept->kept_to = kept->hit;
		session->l2 = 0;
	}
	pending->next = kept->hit;
	return true;
}

/* ---- several groups ---- */

/* Whether the last object that @session promises in @kept is the one that the request names. */
SCOUT_ON_LOOP static bool
is_same_object(const struct scout__kept *kept, const struct scout__lookup_op *pending, uint32_t g)
{
	const struct scout__group_walk *walk = pending->walk;
	uint32_t i = kept->kept_to;
	const struct scout__entry *e;

	while (i > kept->kept_from && kept->handles[i - 1].entry == SCOUT__NO_ENTRY)
		i--;
	if (i == kept->kept_from || i > walk->of[g].n)
		return i == kept->kept_from;
	e = &kept->group->index->entries[kept->handles[i - 1].entry];
	return e->space == walk->of[g].space && i - 1 >= walk->of[g].named &&
	       memcmp(e->hash, scout__group_walk_hash(pending, g, i - 1), pending->op.ns->hash_bytes) == 0;
}

/* Why the session of several groups cannot be renewed; NULL: it can. */
SCOUT_ON_LOOP static const char *
groups_refusal_of(const struct scout__session *session, const struct scout__lookup_op *pending, uint16_t *ret_status)
{
	const struct scout__group_walk *walk = pending->walk;

	for (uint32_t g = 0; g < session->n_groups; g++)
		if (session->of[g].used_rows)
			return "objects of this session were retrieved";
	if (session->is_ahead)
		return "objects are missing in what this session promises: ADMIT a run of it first";
	*ret_status = SCOUT_WIRE_RANGE;
	if (walk->total != session->n)
		return "first and n differ from the session's";
	if (session->length > session->skip && (walk->skip < session->skip || walk->skip > session->length))
		return "skip is outside of what the session promises";
	for (uint32_t g = 0; g < session->n_groups; g++)
		if (!is_same_object(&session->of[g], pending, g))
			return "hashes or tenant differ from the session's";
	return NULL;
}

/* ---- both ---- */

/* Why the session cannot be renewed; NULL: it can. */
SCOUT_ON_LOOP static const char *
refusal_of(const struct scout__session *session, const struct scout__lookup_op *pending, uint16_t *ret_status)
{
	*ret_status = SCOUT_WIRE_STATE;
	if (session->by_key)
		return "the session is of KEYS: ask again with a new ticket";
	if (session->lookup)
		return "the lookup is not answered yet";
	if (session->n_admits)
		return "an ADMIT of this session is not answered yet";
	return pending->walk ? groups_refusal_of(session, pending, ret_status)
			     : run_refusal_of(session, pending, ret_status);
}

struct scout__session *
scout__renew(struct scout_server *s, struct scout__lookup_op *pending, uint64_t ticket, uint16_t *ret_status,
	     const char **ret_text)
{
	struct scout__session *session = scout__session_find(s, pending->op.ns, ticket);

	if (!session || session->peer != pending->op.peer) {
		*ret_status = SCOUT_WIRE_NO_SESSION;
		*ret_text = "no session of this client has this ticket";
		return NULL;
	}
	*ret_text = refusal_of(session, pending, ret_status);
	if (*ret_text)
		return NULL;
	if (pending->walk) {
		/* What the GPU had of this length is not promised. */
		pending->walk->floor = session->length > session->skip ? session->length : 0;
	} else if (!renew_run(s, session, pending)) {
		*ret_status = SCOUT_WIRE_LIMIT;
		*ret_text = "the server has no memory for a longer session";
		return NULL;
	}
	pending->renews = true;
	return session;
}
