/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * What servers have of single objects, on the courier's thread: answers to lookups ahead, and to questions for keys.
 *
 * Lookups ahead (client_ahead.c), the side of the courier's thread: it keeps bitmaps of the objects that the servers
 * have, of several servers those that all of them have. The map is made with the first reply and freed with the SETTLE
 * word or with the slot. Without memory for it only the leading run is known, and the rest is given back when the
 * answer is settled.
 *
 * Questions for keys (client_keys.c), the side of the courier's thread. A lane sends KEYS in place of LOOKUP; all else
 * - deadlines, lost connections, giving back - is as for lookups.
 *
 * The slot keeps two maps: keys that all servers promise, and keys that no server has called a miss. A key is a hit if
 * it is in the first, and to be retried if it is only in the second: one server that does not have it is enough for a
 * miss, and one that could not say is enough to ask again. The maps are made with the first reply and freed with the
 * slot. What one server promises and another one does not have stays promised until FINISH.
 */
#include "lookup_internal.h"

#include <stdlib.h>
#include <string.h>

size_t
scout__present_at(const struct scout_client *client, const struct scout__lookup_slot *slot, uint32_t g,
		  size_t *ret_bytes)
{
	size_t at = 0, bytes = 0;

	for (uint32_t i = 0; i <= g; i++) {
		at += 2 * bytes;
		if (i < client->groups.n)
			bytes = ((uint64_t)slot->n * client->cfg.hash_tokens / client->groups.group[i].unit_tokens +
				 7) /
				8;
	}
	*ret_bytes = bytes;
	return at;
}

/* What the first server has. */
static void SCOUT_ON_COURIER
first_reply(const struct scout_client *c, struct scout__lookup_slot *slot, const struct scout__ahead_groups *reply)
{
	size_t bytes, at = scout__present_at(c, slot, c->groups.n, &bytes);

	slot->known = reply->known;
	slot->known_limited = reply->lookup.limited;
	slot->present = calloc(at > 0 ? at : 1, 1);
	for (uint32_t g = 0; slot->present && g < c->groups.n; g++) {
		at = scout__present_at(c, slot, g, &bytes);
		memcpy(slot->present + at, reply->of[g].present, ((size_t)reply->of[g].n + 7) / 8);
		memcpy(slot->present + at + bytes, reply->of[g].in_l2, ((size_t)reply->of[g].n + 7) / 8);
	}
}

/* Less what another one does not have. */
static void SCOUT_ON_COURIER
next_reply(const struct scout_client *c, struct scout__lookup_slot *slot, const struct scout__ahead_groups *reply)
{
	if (reply->known == slot->known)
		slot->known_limited &= reply->lookup.limited;
	else if (reply->known < slot->known)
		slot->known_limited = reply->lookup.limited;
	if (reply->known < slot->known)
		slot->known = reply->known;
	for (uint32_t g = 0; slot->present && g < c->groups.n; g++) {
		size_t bytes, at = scout__present_at(c, slot, g, &bytes);

		for (size_t i = 0; i < ((size_t)reply->of[g].n + 7) / 8; i++) {
			slot->present[at + i] &= reply->of[g].present[i];
			slot->present[at + bytes + i] |= reply->of[g].in_l2[i];
		}
	}
}

int
scout__ahead_take_reply(struct scout_client *c, struct scout__lookup_slot *slot, const struct scout__op *op,
			struct scout__lookup_reply *ret)
{
	struct scout__ahead_groups reply;
	const char *field;

	if (scout__get_ahead_groups(op, &c->groups, c->cfg.hash_tokens, &reply, &field) != SCOUT_WIRE_OK ||
	    reply.lookup.n_more > 0 || reply.known > slot->n)
		return SCOUT_ERR_PROTOCOL;
	if (slot->unanswered == c->n_links)
		first_reply(c, slot, &reply);
	else
		next_reply(c, slot, &reply);
	*ret = reply.lookup;
	return 0;
}

void
scout__ahead_free(struct scout__lookup_slot *slot)
{
	free(slot->present);
	slot->present = NULL;
}

void
scout__lengths_free(struct scout__lookup_slot *slot)
{
	free(slot->lengths);
	slot->lengths = NULL;
}

void
scout__apply_settle(struct scout_client *c, uint32_t i)
{
	struct scout__lookup_slot *slot = &c->slots[i];

	slot->base = slot->settle_from;
	slot->base_l2 = slot->settle_l2;
	slot->least = slot->settle_to;
	slot->was_renewed = true; /* what an ADMIT gives back is not for the caller's side to know */
	scout__ahead_free(slot);
	for (uint32_t link = 0; link < c->n_links; link++) {
		struct scout__lookup_lane *lane = &slot->lanes[link];

		lane->hit = slot->settle_to;
		lane->l2 = 0;
		lane->want_admit = lane->state == SCOUT__LANE_OPEN && !slot->settle_keeps;
	}
	scout__todo_add(c, i);
}

/* ---- keys ---- */

static size_t
map_bytes(const struct scout__lookup_slot *slot)
{
	return ((size_t)slot->n + 7) / 8;
}

bool
scout__keys_send(struct scout_client *c, uint32_t i, struct scout__link *link, uint32_t budget_us)
{
	struct scout__lookup_slot *slot = &c->slots[i];
	const uint8_t *region = scout__arena_at(&c->arena, slot->arena_pos);
	const struct scout__keys_part *parts = (const struct scout__keys_part *)(const void *)region;
	struct scout__keys_msg msg = {
		.ticket = slot->ticket,
		.n = slot->n,
		.n_parts = slot->n_parts,
		.tenant = {slot->tenant, slot->tenant_len},
		.hashes = region + slot->n_parts * sizeof(*parts),
	};
	size_t room = SCOUT__KEYS_BYTES(slot->n_parts) + slot->tenant_len + (size_t)slot->n * c->cfg.hash_bytes;
	struct scout__writer *w = scout__link_op_begin(link, SCOUT_OP_KEYS, budget_us, COOKIE(COOKIE_LOOKUP, i), room);

	if (!w)
		return false;
	for (uint32_t part = 0; part < slot->n_parts; part++) {
		msg.parts[part].group = (uint16_t)parts[part].group;
		msg.parts[part].n = parts[part].n;
	}
	scout__put_keys(w, &msg, c->cfg.hash_bytes);
	scout__link_op_end(link);
	return true;
}

int
scout__keys_take_reply(struct scout_client *c, struct scout__lookup_slot *slot, const struct scout__op *op,
		       struct scout__lookup_reply *ret)
{
	struct scout__keys_reply reply;
	size_t bytes = map_bytes(slot);
	bool is_first = slot->unanswered == c->n_links;
	const char *field;

	if (scout__get_keys_reply(op, &reply, &field) != SCOUT_WIRE_OK || reply.n != slot->n)
		return SCOUT_ERR_PROTOCOL;
	if (is_first)
		slot->present = malloc(2 * bytes);
	if (!slot->present)
		return SCOUT_ERR_NOMEM;
	for (size_t i = 0; i < bytes; i++) {
		uint8_t not_miss = reply.hit[i] | reply.later[i];

		slot->present[i] = is_first ? reply.hit[i] : slot->present[i] & reply.hit[i];
		slot->present[bytes + i] = is_first ? not_miss : slot->present[bytes + i] & not_miss;
	}
	*ret = (struct scout__lookup_reply){.l1 = reply.l1, .l2 = reply.l2, .limited = reply.limited};
	return 0;
}

void
scout__keys_hit(struct scout_client *c, uint32_t i, struct scout_hit *ret_hit)
{
	const struct scout__lookup_slot *slot = &c->slots[i];
	uint32_t n_hits = 0, n_not_miss = 0, l2 = 0;
	size_t bytes = map_bytes(slot);
	bool limited = false;

	for (size_t at = 0; at < bytes; at++) {
		n_hits += (uint32_t)__builtin_popcount(slot->present[at]);
		n_not_miss += (uint32_t)__builtin_popcount(slot->present[bytes + at]);
	}
	for (uint32_t link = 0; link < c->n_links; link++) {
		l2 = slot->lanes[link].l2 > l2 ? slot->lanes[link].l2 : l2;
		limited |= slot->lanes[link].limited;
	}
	*ret_hit = (struct scout_hit){
		.chunks = n_hits,
		.l2_chunks = l2 < n_hits ? l2 : n_hits,
		.reason = limited && n_not_miss > n_hits ? SCOUT_REASON_LIMITED
			  : n_hits > 0                   ? SCOUT_REASON_HIT
			  : n_not_miss > 0               ? SCOUT_REASON_TIMEOUT
							 : SCOUT_REASON_MISS,
		.endpoint = -1,
	};
	scout__count_n(&c->counts.hits, n_hits > 0);
	scout__count_n(&c->counts.hit_keys, n_hits);
}
