/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Asking anew for an answered lookup: the side of client_renew.c that runs on the courier's thread.
 *
 * Each RENEW word is answered once in slot->newer, with news or without, unless ADMIT or FINISH comes first: then it is not read. In a
 * session that all servers have, every lane sends LOOKUP with SCOUT_LOOKUP_RENEW; the new hit is the minimum, lanes that promised
 * more give that back, and a lane that refuses or whose answer is lost counts with what it said before. Without a session it is a
 * lookup like the first one, under a new ticket, whose answer goes to `newer`.
 *
 * A lane with anything in flight is left alone, for an ADMIT that trims it and a renewal that extends it would meet in the server.
 *
 * A renewal has no deadline of its own: a server that is alive answers within the budget that it is sent, and the end of a
 * connection ends what is in flight on it. From the first renewal on servers may promise more than the answer says, so every ADMIT is
 * sent.
 */
#include "lookup_internal.h"

#include "doorbell.h"

static void SCOUT_ON_COURIER
no_news(struct scout_client *c, uint32_t i)
{
	scout__renew_publish(c, i, &(struct scout_hit){.reason = SCOUT_REASON_NONE, .endpoint = -1});
}

/* Nothing more is sent for it, and what comes is not waited for. False: there is none under way. */
static bool SCOUT_ON_COURIER
stop(struct scout_client *c, uint32_t i)
{
	struct scout__lookup_slot *slot = &c->slots[i];

	if (slot->renew_left == 0)
		return false;
	slot->renew_left = 0;
	c->n_renewals--;
	for (uint32_t link = 0; link < c->n_links; link++)
		scout__lane_unrenew(c, slot, &slot->lanes[link]);
	return true;
}

void
scout__renew_lost(struct scout_client *c, uint32_t i)
{
	if (stop(c, i))
		no_news(c, i);
}

void
scout__renew_stop(struct scout_client *c, uint32_t i)
{
	struct scout__lookup_slot *slot = &c->slots[i];

	(void)stop(c, i);
	if (!slot->again)
		return;
	slot->again = false;
	slot->ended = true;
	scout__deadlines_remove(c, i);
	for (uint32_t link = 0; link < c->n_links; link++)
		scout__lane_end(c, i, link);
}

/* Whether all lanes are in this state, and nothing is on its way. */
static bool SCOUT_ON_COURIER
lanes_are(const struct scout_client *c, const struct scout__lookup_slot *slot, enum scout__lookup_lane_state state)
{
	for (uint32_t link = 0; link < c->n_links; link++) {
		const struct scout__lookup_lane *lane = &slot->lanes[link];

		if (lane->state != state || lane->in_flight || lane->want_admit || lane->want_finish ||
		    !scout__link_is_up(scout__courier_link(c->courier, link)))
			return false;
	}
	return true;
}

bool
scout__renew_start(struct scout_client *c, uint32_t i)
{
	struct scout__lookup_slot *slot = &c->slots[i];
	bool opens = slot->renew_ticket != 0;

	scout__arena_see(&c->arena, slot->arena_pos);
	if (c->closing || !lanes_are(c, slot, opens ? SCOUT__LANE_NONE : SCOUT__LANE_OPEN)) {
		scout__arena_give(&c->arena, slot->arena_pos);
		no_news(c, i);
		return false;
	}
	slot->was_renewed = true;
	if (opens) {
		slot->ticket = slot->renew_ticket;
		slot->again = true;
		slot->ended = false;
		return true;
	}
	c->n_renewals++;
	slot->renew_left = slot->unsent = (uint16_t)c->n_links;
	for (uint32_t link = 0; link < c->n_links; link++)
		slot->lanes[link].want_renew = true;
	scout__todo_add(c, i);
	return false;
}

void
scout__renew_reply(struct scout_client *c, uint32_t i, uint32_t link, const struct scout__op *op)
{
	struct scout__lookup_slot *slot = &c->slots[i];
	struct scout__lookup_lane *lane = &slot->lanes[link];
	struct scout__lookup_reply reply;
	struct scout_hit hit;
	const char *field;
	uint32_t before = slot->least;

	bool is_news = op->status == SCOUT_WIRE_OK && lane->state == SCOUT__LANE_OPEN &&
		       scout__get_lookup_reply(op, &reply, &field) == SCOUT_WIRE_OK && reply.hit <= slot->at_most &&
		       reply.hit >= lane->hit;

	if (slot->renew_left == 0) { /* it was ended: an ADMIT or FINISH gives back what came */
		if (is_news && reply.n_more == 0)
			scout__lane_take(lane, &reply);
		return;
	}
	is_news = is_news && scout__take_lengths(slot, &reply, true);
	if (is_news)
		scout__lane_take(lane, &reply);
	if (--slot->renew_left > 0)
		return;
	c->n_renewals--;
	/* Without news the lengths stay what they were. */
	if ((!is_news && c->n_links == 1) || !scout__lookup_minimum(c, i, &hit)) {
		no_news(c, i);
		return;
	}
	scout__renew_publish(c, i, &hit);
	if (slot->least > before && atomic_load_explicit(&c->event_armed, memory_order_relaxed))
		scout__eventfd_raise(c->event_fd); /* full: readable anyway */
}
