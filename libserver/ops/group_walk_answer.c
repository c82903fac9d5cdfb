/* SPDX-License-Identifier: Apache-2.0 */
#include "group_walk.h"

#include <string.h>

#include "msg.h"
#include "ns.h"
#include "ops_internal.h"
#include "peer.h"
#include "lookup_op.h"
#include "reply.h"
#include "server_core.h"
#include "session.h"

/*
 * The answer of a lookup of several groups (lookup_groups.c): lengths, and for a lookup ahead what is there of each
 * group. And the answer of KEYS: what is there of each key. Loop thread.
 */

SCOUT_ON_LOOP static size_t
map_bytes(const struct scout__group_walk *walk, uint32_t g)
{
	return ((size_t)(walk->known / walk->of[g].group->stride) + 7) / 8;
}

/* Bits of objects after the known ones are 0: they are not promised, and evaluate() has cleared what is not wanted. */
SCOUT_ON_LOOP static void
put_presence(struct scout__writer *w, const struct scout__group_walk *walk)
{
	scout__put_u32(w, walk->known);
	scout__put_u32(w, 0);
	for (uint32_t g = 0; g < walk->n_groups; g++) {
		scout__put_bytes(w, walk->of[g].wanted, map_bytes(walk, g));
		scout__bits_and(walk->of[g].in_l2, walk->of[g].wanted, walk->of[g].n);
		scout__put_bytes(w, walk->of[g].in_l2, map_bytes(walk, g));
	}
}

/* The answer of a lookup ahead names the objects that are promised. */
SCOUT_ON_LOOP static void
settle_presence(const struct scout__lookup_op *pending)
{
	const struct scout__group_walk *walk = pending->walk;

	for (uint32_t g = 0; g < walk->n_groups; g++) {
		struct scout__walk_group *wg = &pending->walk->of[g];

		memcpy(wg->wanted, scout__group_is_vacant(wg->group) ? wg->present : wg->promised,
		       SCOUT__BITS_BYTES(wg->n));
		scout__bits_fill(wg->wanted, 0, wg->from, 0);
		if (walk->known / wg->group->stride < wg->n)
			scout__bits_fill(wg->wanted, walk->known / wg->group->stride, wg->n, 0);
	}
}

SCOUT_ON_LOOP static void
put_answer(struct scout__writer *w, const struct scout__lookup_op *pending, struct scout__lookup_reply *m)
{
	const struct scout__group_walk *walk = pending->walk;
	uint8_t lengths[SCOUT_MAX_LENGTHS * 4];
	struct scout__writer more = {.buf = lengths, .cap = sizeof(lengths)};

	for (uint32_t i = 0; i < m->n_more; i++)
		scout__put_u32(&more, walk->more[i]);
	m->more = lengths;
	scout__put_lookup_reply(w, m);
	if (pending->ahead)
		put_presence(w, walk);
}

SCOUT_ON_LOOP static size_t
answer_bytes(const struct scout__lookup_op *pending, const struct scout__lookup_reply *m)
{
	size_t bytes = SCOUT__LOOKUP_REPLY_BYTES + 4 * (size_t)m->n_more;

	if (!pending->ahead)
		return bytes;
	for (uint32_t g = 0; g < pending->walk->n_groups; g++)
		bytes += 2 * map_bytes(pending->walk, g);
	return bytes + 8;
}

/* Where the prompt leaves what others have stored, if that is after the hit: see session_touch.c. */
SCOUT_ON_LOOP static void
note_divergence(const struct scout__lookup_op *pending, uint32_t g)
{
	const struct scout__group_walk *walk = pending->walk;
	const struct scout__walk_group *wg = &walk->of[g];
	const struct scout__group *said = &pending->op.ns->groups.group[g];
	uint32_t length = walk->diverges_at < walk->at_most ? walk->diverges_at : walk->at_most;
	struct scout__need need;

	if (said->policy == SCOUT_POLICY_STATE)
		length -= length % wg->group->stride;
	if (said->policy == SCOUT_POLICY_ALL || length <= walk->hit)
		return;
	need = scout__group_walk_need(walk, wg, length);
	if (need.from < need.to && need.to > wg->named)
		scout__kept_parts(&pending->session->of[g], scout__group_walk_hash(pending, g, need.to - 1));
}

/*
 * Hashes of the leading run that is cached or was evicted lately, in the first group with policy all: windows and states
 * know no run. Without such a group, and at the least, those of the hit. *@ret_seen: those after the hit that were ever
 * stored.
 */
SCOUT_ON_LOOP static uint32_t
known_run(const struct scout__lookup_op *pending, uint64_t *ret_seen)
{
	const struct scout__group_walk *walk = pending->walk;
	uint32_t known = walk->hit;

	*ret_seen = 0;
	for (uint32_t g = 0; g < walk->n_groups; g++) {
		const struct scout__walk_group *wg = &walk->of[g];
		size_t apart = (size_t)wg->group->stride * pending->op.ns->hash_bytes;
		uint32_t from = walk->hit / wg->group->stride;

		if (pending->op.ns->groups.group[g].policy != SCOUT_POLICY_ALL || !wg->group->index || !wg->space)
			continue;
		if (wg->named < wg->n && from >= wg->named) {
			const uint8_t *hashes = scout__group_walk_hash(pending, g, wg->named);
			uint32_t n = wg->n - wg->named, most = walk->at_most / wg->group->stride - from;

			from -= wg->named;
			known = wg->named +
				scout__index_known_apart(wg->group->index, wg->space, hashes, apart, from, n);
			known *= wg->group->stride;
			*ret_seen = wg->group->stride * scout__ceiling_seen(&pending->op.ns->ceiling, wg->space,
									    hashes + from * apart, apart, most);
		}
		break;
	}
	if (known < walk->hit)
		return walk->hit;
	return known < walk->at_most ? known : walk->at_most;
}

/* Objects of groups with policy all that are there, but after the hit. */
SCOUT_ON_LOOP static uint64_t
count_lost(const struct scout__lookup_op *pending)
{
	const struct scout__group_walk *walk = pending->walk;
	uint64_t lost = 0;

	for (uint32_t g = 0; g < walk->n_groups; g++) {
		const struct scout__walk_group *wg = &walk->of[g];
		uint32_t from = walk->hit / wg->group->stride;

		if (pending->op.ns->groups.group[g].policy != SCOUT_POLICY_ALL || !wg->group->index)
			continue;
		lost += scout__bits_count(wg->present, from > wg->from ? from : wg->from, wg->n);
	}
	return lost;
}

/* Tell the eviction policy of each group about the lookup. */
SCOUT_ON_LOOP static void
tell_policies(struct scout_server *s, const struct scout__lookup_op *pending)
{
	const struct scout__group_walk *walk = pending->walk;
	struct scout__ns_counters *count = &pending->op.ns->count;
	uint64_t seen;
	uint32_t known = known_run(pending, &seen);
	uint8_t kind = (uint8_t)scout__touch_kind((uint64_t)(walk->at_most - known) * pending->op.ns->hash_tokens);

	s->count.lookups_lost_chunks += count_lost(pending);
	s->count.lookups_known_chunks += known - walk->skip;
	count->known_chunks += known - walk->skip;
	count->ceiling_chunks += walk->hit - walk->skip + seen;
	for (uint32_t g = 0; g < walk->n_groups; g++) {
		const struct scout__walk_group *wg = &walk->of[g];

		struct scout__need need = scout__group_walk_need(walk, wg, walk->hit);

		pending->session->of[g].kind = kind;
		wg->group->hit_objects += walk->hit > walk->skip ? need.to - need.from : 0;
		if (!wg->group->index)
			continue;
		note_divergence(pending, g);
		if (wg->space)
			scout__index_asked(wg->group->index, wg->space, wg->n - wg->named);
	}
}

void
scout__group_walk_answer(struct scout_server *s, struct scout__lookup_op *pending)
{
	struct scout__session *session = pending->session;
	struct scout__group_walk *walk = pending->walk;
	struct scout__dest *dest = &pending->op.peer->dest;
	struct scout__lookup_reply m = {.hit = walk->hit, .limited = pending->limited, .n_more = walk->n_more};
	bool renews = pending->renews;
	uint64_t ticket = session->ticket;
	uint64_t arrived_us = pending->op.arrived_us;
	struct scout__writer *w;
	uint32_t n;
	size_t op;

	if (pending->ahead)
		settle_presence(pending);
	n = scout__group_walk_count(pending, &m.l2);
	m.l1 = n - m.l2;
	session->length = walk->hit;
	if (!renews)
		tell_policies(s, pending);
	if (renews)
		s->count.lookups_renewed++;
	else
		scout__lookup_count(s, pending, &m, walk->at_most - walk->skip, walk->hit - walk->skip);
	w = scout__reply_begin(s, dest, pending->op.opcode, SCOUT_WIRE_OK, pending->op.corr, answer_bytes(pending, &m),
			       &op);
	if (!w) {
		scout__pending_op_cancel(s, &pending->op);
		return;
	}
	put_answer(w, pending, &m);
	scout__reply_end(s, dest, op);
	/* Free the lookup before its undoing is noted: see lookup.c. */
	scout__pending_op_free(s, &pending->op);
	if (!renews)
		scout__reply_grants(s, dest, SCOUT_OP_LOOKUP, ticket, arrived_us);
}

/* ---- KEYS ---- */

/* What the answer says about one key. */
enum told {
	TOLD_MISS = 0,
	TOLD_HIT,
	TOLD_LATER
};

SCOUT_ON_LOOP static enum told
what_of(const struct scout__lookup_op *pending, uint32_t g, uint32_t i)
{
	const struct scout__group_walk *walk = pending->walk;

	if (scout__group_is_vacant(walk->of[g].group) || scout__bit(walk->of[g].promised, i))
		return TOLD_HIT;
	return scout__bit(walk->of[g].present, i) || !walk->is_known ? TOLD_LATER : TOLD_MISS;
}

/*
 * Write the answer about each key into the maps @hit and @later, and the counts into @m. In one pass: there may be many
 * keys.
 */
SCOUT_ON_LOOP static void
tell(struct scout_server *s, const struct scout__lookup_op *pending, struct scout__keys_reply *m, uint8_t *hit,
     uint8_t *later)
{
	const struct scout__group_walk *walk = pending->walk;
	uint32_t n_hits = 0, n_later = 0, at = 0;

	for (uint32_t g = 0; g < walk->n_groups; g++) {
		const struct scout__walk_group *wg = &walk->of[g];
		bool is_vacant = scout__group_is_vacant(wg->group);

		for (uint32_t i = 0; i < wg->n; i++, at++) {
			enum told what = what_of(pending, g, i);
			bool is_promised = what == TOLD_HIT && !is_vacant;

			if (what == TOLD_HIT)
				scout__bit_set(hit, at);
			else if (what == TOLD_LATER)
				scout__bit_set(later, at);
			n_hits += what == TOLD_HIT;
			n_later += what == TOLD_LATER;
			m->l2 += is_promised && scout__bit(wg->in_l2, i);
			m->l1 += is_promised && !scout__bit(wg->in_l2, i);
		}
		if (wg->group->index && wg->space && wg->n)
			scout__index_asked(wg->group->index, wg->space, wg->n);
	}
	s->count.keys_hit += n_hits;
	s->count.keys_later += n_later;
	s->count.keys_miss += at - n_hits - n_later;
}

void
scout__keys_answer(struct scout_server *s, struct scout__lookup_op *pending)
{
	struct scout__dest *dest = &pending->op.peer->dest;
	uint8_t hit[SCOUT_MAX_KEYS / 8] = {0}, later[SCOUT_MAX_KEYS / 8] = {0};
	struct scout__keys_reply m = {
		.n = pending->walk->n_objects, .limited = pending->limited, .hit = hit, .later = later};
	uint64_t ticket = pending->session->ticket;
	uint64_t arrived_us = pending->op.arrived_us;
	struct scout__writer *w;
	size_t op;

	tell(s, pending, &m, hit, later);
	w = scout__reply_begin(s, dest, pending->op.opcode, SCOUT_WIRE_OK, pending->op.corr,
			       SCOUT__KEYS_REPLY_BYTES(m.n), &op);
	if (!w) {
		scout__pending_op_cancel(s, &pending->op);
		return;
	}
	scout__put_keys_reply(w, &m);
	scout__reply_end(s, dest, op);
	/* Free the pending operation before its undoing is noted: see lookup.c. */
	scout__pending_op_free(s, &pending->op);
	scout__reply_grants(s, dest, SCOUT_OP_KEYS, ticket, arrived_us);
}
