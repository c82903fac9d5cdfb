/* SPDX-License-Identifier: Apache-2.0 */
#include "keep.h"

#include "ns.h"
#include "peer.h"
#include "peer_share.h"
#include "server_core.h"
#include "session.h"
#include "state.h"

/*
 * DESIGN
 *
 * Purpose: a conversation whose tool call runs keeps its chunks until the call returns, so that its next turn hits them.
 *
 * FINISH with keep_ms ends the session as any other: its ticket names nothing for clients. But its last steps promise again
 * what they give back, from the last object to the first, each right after its touch. So nothing can evict it in between, and the
 * policy learns from the touch. Then the session stays in its place of the table, without rows of bits and with handles of
 * what is kept only, until its timer, a clear, new weights, or a newer keep of the same prompt ends it; its handles are then given
 * back in steps. What is kept is pinned, so eviction never sees it.
 *
 * How much: what all keeps have is at most a KEEP_PART of max_promised, and each client has an equal part of that; never the
 * reserve of promises. Where tenants have guarantees, a tenant keeps no more than its own. What does not fit is not kept:
 * with policy all the leading objects are, with windows or states all or nothing, since a shorter length needs other objects. The
 * charge is taken at once for all, so that slices of two ends do not take the same room.
 *
 * A keep outlives the client that asked, and counts for it as long as it is there; it ends with its time, or when the last
 * peer of its namespace leaves. A restart of the server loses it, as everything in memory.
 *
 * Newest word: FINISH with keep_ms, or with the hint that nothing continues, ends each keep whose last object is among the last
 * objects of this prompt. by_tail finds it by that object. A FINISH that says neither leaves the keep alone: another branch of the
 * conversation may return.
 *
 * Threads: loop.
 */

#define KEEP_PART 4u
#define KEEP_LOOKS 512u /* objects from the end of a prompt in which FINISH looks for an older keep */

static uint64_t
less(uint64_t most, uint64_t used)
{
	return most > used ? most - used : 0;
}

/* The client that asked for the keep, if it is still there. */
SCOUT_ON_LOOP static struct scout__peer *
keeper(const struct scout_server *s, const struct scout__session *session)
{
	struct scout__peer *peer = s->state->peers[session->keep.peer];

	return peer && peer->id == session->keep.peer_id ? peer : NULL;
}

/* Of the tenant whose objects @session has. NULL: none of them is there. */
SCOUT_ON_LOOP static struct scout__account *
account_of(struct scout__session *session)
{
	for (uint32_t i = 0; i < session->n_groups; i++) {
		const struct scout__kept *kept = &session->of[i];
		struct scout__chunk_index *index = kept->group->index;

		for (uint32_t at = 0; index && at < kept->hit + kept->n_stored; at++) {
			struct scout__handle h = scout__keep_handle(kept, kept->hit, at);

			if (h.entry != SCOUT__NO_ENTRY && scout__index_valid(index, h))
				return scout__account_at(&session->ns->l1, index->entries[h.entry].space);
		}
	}
	return NULL;
}

/* Bytes that the client and the tenant of @session may keep now. */
SCOUT_ON_LOOP static uint64_t
room(const struct scout_server *s, struct scout__session *session)
{
	const struct scout__l1 *l1 = &s->state->l1;
	const struct scout__l1_ns *ns = &session->ns->l1;
	const struct scout__account *account = ns->n_guaranteed ? account_of(session) : NULL;
	uint32_t n_clients = s->state->shares.n_clients ? s->state->shares.n_clients : 1;
	uint64_t bytes = less(l1->max_promised / KEEP_PART, s->state->keeps.bytes);
	uint64_t own = less(l1->max_promised / KEEP_PART / n_clients, session->peer->kept_bytes);
	uint64_t unpromised = less(l1->max_promised, l1->promised_bytes) + session->promised_bytes;
	uint64_t guaranteed = UINT64_MAX;

	if (s->state->keeps.n >= s->cfg.max_sessions / KEEP_PART + 1)
		return 0;
	if (account) {
		session->keep.account = (uint32_t)(account - ns->accounts);
		guaranteed = less(scout__account_bytes_guaranteed(ns, account), account->kept_bytes);
	}
	bytes = bytes < own ? bytes : own;
	bytes = bytes < unpromised ? bytes : unpromised;
	return bytes < guaranteed ? bytes : guaranteed;
}

/* Choose the places to keep of @kept, if all fit. Returns their bytes. */
SCOUT_ON_LOOP static uint64_t
choose(struct scout__kept *kept)
{
	uint32_t n = kept->group->index ? kept->hit + kept->n_stored : 0;
	uint32_t last = kept->needs > n / SCOUT__LENGTHS ? n : kept->needs * SCOUT__LENGTHS;

	kept->n_found = kept->hit;
	kept->keep_from = n - last;
	kept->keep_to = kept->keep_end = n;
	return n ? last * kept->group->index->chunk_bytes : 0;
}

/* @bytes are chosen, and there is room for less: keep the leading hashes that fit. Returns their bytes. */
SCOUT_ON_LOOP static uint64_t
cut(struct scout__session *session, uint64_t bytes, uint64_t have)
{
	uint64_t left = 0;

	for (uint32_t i = 0; i < session->n_groups; i++) {
		struct scout__kept *kept = &session->of[i];
		bool is_all = kept->needs == UINT32_MAX;

		if (session->n_groups > 1 || !is_all)
			kept->keep_to = kept->keep_from;
		else
			kept->keep_to = (uint32_t)((double)have / (double)bytes * kept->keep_to);
		kept->keep_end = kept->keep_to;
		left += kept->keep_to > kept->keep_from
				? (kept->keep_to - kept->keep_from) * kept->group->index->chunk_bytes
				: 0;
	}
	return left;
}

void
scout__keep_charge(struct scout_server *s, struct scout__session *session, int change)
{
	uint64_t bytes = (uint64_t)(int64_t)change * session->keep.bytes;
	struct scout__peer *peer = keeper(s, session);

	s->state->keeps.n += (uint32_t)change;
	s->state->keeps.bytes += bytes;
	session->ns->kept_bytes += bytes;
	session->ns->n_keeps += (uint32_t)change;
	if (session->keep.account)
		session->ns->l1.accounts[session->keep.account].kept_bytes += bytes;
	if (peer)
		peer->kept_bytes += bytes;
}

void
scout__keep_begin(struct scout_server *s, struct scout__session *session, uint32_t keep_ms)
{
	uint32_t most_ms = keep_ms < SCOUT_MAX_KEEP_MS ? keep_ms : SCOUT_MAX_KEEP_MS;
	uint64_t bytes = 0, have;

	for (uint32_t i = 0; i < session->n_groups; i++)
		bytes += choose(&session->of[i]);
	if (bytes == 0) {
		session->keep.outcome = SCOUT_OUTCOME_MISSING;
		return;
	}
	have = room(s, session);
	session->keep.outcome = most_ms < keep_ms ? SCOUT_OUTCOME_CLIPPED : SCOUT_OUTCOME_ACCEPTED;
	if (have < bytes) {
		session->keep.outcome = SCOUT_OUTCOME_CLIPPED;
		bytes = cut(session, bytes, have);
	}
	if (bytes == 0) {
		session->keep.outcome = SCOUT_OUTCOME_REJECTED;
		return;
	}
	session->keep.due_us = s->now_us + most_ms * UINT64_C(1000);
	session->keep.bytes = bytes;
	session->keep.peer = session->peer->number;
	session->keep.peer_id = session->peer->id;
	scout__keep_charge(s, session, 1);
}

void
scout__keep_one(struct scout__session *session, struct scout__kept *kept, uint32_t at, struct scout__handle *handle)
{
	struct scout__handle h = scout__keep_handle(kept, kept->n_found, at);
	struct scout__chunk_index *index = kept->group->index;

	if (at < kept->keep_from || at >= kept->keep_end)
		return;
	index->l1->promised_share = 0; /* keeps do not use the reserve */
	if (h.entry != SCOUT__NO_ENTRY && scout__index_valid(index, h) && scout__index_promise(index, h.entry)) {
		session->keep.n++;
		return;
	}
	handle->entry = SCOUT__NO_ENTRY;
	if (!session->by_key && kept->needs == UINT32_MAX)
		kept->keep_to = at;
}

uint32_t
scout__keep_length(const struct scout__session *session)
{
	uint32_t n = UINT32_MAX;

	for (uint32_t i = 0; i < session->n_groups; i++) {
		const struct scout__kept *kept = &session->of[i];
		uint32_t hashes = kept->keep_to * kept->group->stride;

		if (kept->needs == UINT32_MAX && kept->group->index && hashes < n)
			n = hashes;
	}
	return session->by_key || n == UINT32_MAX ? session->keep.n : n;
}

struct scout__handle
scout__keep_tail(const struct scout__kept *kept)
{
	struct scout__handle last = {SCOUT__NO_ENTRY, 0};

	for (uint32_t at = kept->keep_end; at > kept->keep_from && last.entry == SCOUT__NO_ENTRY; at--)
		last = scout__keep_handle(kept, kept->n_found, at - 1);
	return last;
}

struct scout__session *
scout__keep_find(const struct scout_server *s, const struct scout__session *session, uint32_t *looked)
{
	const struct scout__kept *kept = &session->of[0];
	uint32_t n = kept->hit + kept->n_stored;

	while (*looked < n && *looked < KEEP_LOOKS) {
		struct scout__handle handle = scout__keep_handle(kept, kept->hit, n - ++*looked);
		uint32_t number = scout__map_get(&s->state->keeps.by_tail, scout__keep_key(kept, handle));

		if (handle.entry != SCOUT__NO_ENTRY && number != SCOUT__MAP_NONE)
			return s->state->sessions[number];
	}
	return NULL;
}
