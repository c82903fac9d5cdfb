/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Lookups ahead (client_ahead.c), the side of the courier's thread: it keeps bitmaps of the objects that the servers have, of
 * several servers those that all of them have. The map is made with the first reply and freed with the SETTLE word or with the
 * slot. Without memory for it only the leading run is known, and the rest is given back when the answer is settled.
 */
#include "lookup_internal.h"

#include <stdlib.h>
#include <string.h>

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
scout__ahead_reply(struct scout_client *c, struct scout__lookup_slot *slot, const struct scout__op *op,
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
scout__ahead_settled(struct scout_client *c, uint32_t i)
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
