/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The operations that the slots want, put into the links' frames; courier thread only. In a step nothing is sent before its end.
 * Which slots have something unsent is known to lookup_todo.c.
 */
#include "lookup_internal.h"

/* ---- sending ---- */

static uint32_t SCOUT_ON_COURIER
budget_us(const struct scout__lookup_slot *slot, uint64_t now_us)
{
	uint64_t left = slot->deadline_us > now_us ? slot->deadline_us - now_us : 1;

	return left > UINT32_MAX ? UINT32_MAX : (uint32_t)left;
}

/* LOOKUP, as COOKIE_LOOKUP or COOKIE_RENEW. False: the link has no room. */
static bool SCOUT_ON_COURIER
put_lookup(struct scout_client *c, uint32_t i, struct scout__link *link, enum lookup_cookie kind, uint64_t now_us)
{
	const struct scout__lookup_slot *slot = &c->slots[i];
	struct scout__lookup_msg msg = {
		.ticket = slot->ticket,
		.n = slot->n - slot->first,
		.first = slot->first,
		.beyond = slot->n - slot->at_most,
		.skip = slot->skip,
		.expect = slot->expect,
		.poll_timeout_ms = slot->expect ? c->cfg.lookup_poll_key_timeout_ms : 0,
		.poll_interval_ms = slot->expect ? c->cfg.lookup_poll_key_intervals_ms : 0,
		.tenant = {slot->tenant, slot->tenant_len},
		.hashes = scout__arena_at(&c->arena, slot->arena_pos),
	};
	size_t room = 64 + (size_t)slot->tenant_len + (size_t)(slot->n - slot->first) * c->cfg.hash_bytes;
	struct scout__writer *w =
		scout__link_op_begin(link, SCOUT_OP_LOOKUP, budget_us(slot, now_us), COOKIE(kind, i), room);

	if (!w)
		return false;
	if (kind == COOKIE_RENEW) {
		msg.flags = SCOUT_LOOKUP_RENEW;
		msg.expect = msg.poll_timeout_ms = msg.poll_interval_ms = 0;
	} else if (slot->ahead) {
		msg.flags = SCOUT_LOOKUP_AHEAD;
	}
	/* Several servers need not have the same ones. */
	if (slot->lengths && !slot->ahead && c->n_links == 1)
		msg.more = (uint16_t)(slot->want - 1);
	scout__put_lookup(w, &msg, c->cfg.hash_bytes);
	scout__link_op_end(link);
	return true;
}

/* As COOKIE_LOOKUP, or COOKIE_RENEW. */
static bool SCOUT_ON_COURIER
send_lookup(struct scout_client *c, uint32_t i, struct scout__link *link, enum lookup_cookie kind, uint64_t now_us)
{
	struct scout__lookup_slot *slot = &c->slots[i];
	struct scout__lookup_lane *lane = &slot->lanes[scout__link_index(link)];
	bool was_sent = slot->n_parts ? scout__keys_send(c, i, link, budget_us(slot, now_us))
				      : put_lookup(c, i, link, kind, now_us);

	if (!was_sent)
		return false;
	lane->in_flight++;
	if (kind == COOKIE_LOOKUP)
		lane->state = SCOUT__LANE_ASKED;
	if (--slot->unsent == 0)
		scout__arena_give(&c->arena, slot->arena_pos);
	return true;
}

static bool SCOUT_ON_COURIER
send_admit(struct scout_client *c, uint32_t i, struct scout__link *link)
{
	struct scout__lookup_slot *slot = &c->slots[i];
	struct scout__lookup_lane *lane = &slot->lanes[scout__link_index(link)];
	struct scout__admit_msg msg = {.ticket = slot->ticket, .from = slot->base, .to = slot->least};
	struct scout__writer *w = scout__link_op_begin(link, SCOUT_OP_ADMIT, 0, COOKIE(COOKIE_ADMIT, i), 16);

	if (!w)
		return false;
	if (slot->admit_came) { /* else it cuts a lane that promised more than all do */
		msg.from = slot->admit_from;
		msg.to = slot->admit_to;
	}
	scout__put_admit(w, &msg);
	scout__link_op_end(link);
	lane->in_flight++;
	lane->want_admit = false;
	return true;
}

static bool SCOUT_ON_COURIER
lane_finish(struct scout_client *c, uint32_t i, struct scout__link *link)
{
	struct scout__lookup_slot *slot = &c->slots[i];
	struct scout__lookup_lane *lane = &slot->lanes[scout__link_index(link)];

	if (!scout__link_is_up(link)) {
		scout__give_back_later(c, scout__link_index(link), slot->ticket);
		lane->state = SCOUT__LANE_NONE;
	} else if (!scout__send_finish(link, slot->ticket,
				       atomic_load_explicit(&slot->finish_hint, memory_order_relaxed),
				       COOKIE(COOKIE_FINISH, i))) {
		return false;
	} else {
		lane->in_flight++;
	}
	lane->want_finish = false;
	return true;
}

/* Send what one slot wants on one link. False: something is left for later. */
static bool SCOUT_ON_COURIER
lane_send(struct scout_client *c, uint32_t i, uint32_t index, uint64_t now_us)
{
	struct scout__link *link = scout__courier_link(c->courier, index);
	struct scout__lookup_lane *lane = &c->slots[i].lanes[index];

	/* A lookup that comes after a reset must not be answered before it. */
	if (lane->state == SCOUT__LANE_WAIT &&
	    (scout__broadcast_is_due(c, index) || !send_lookup(c, i, link, COOKIE_LOOKUP, now_us)))
		return false;
	if (lane->want_renew && !scout__link_is_up(link))
		scout__renew_lost(c, i);
	if (lane->want_renew) {
		if (!send_lookup(c, i, link, COOKIE_RENEW, now_us))
			return false;
		lane->want_renew = false;
	}
	if (lane->want_admit && lane->state == SCOUT__LANE_OPEN && scout__link_is_up(link) && !send_admit(c, i, link))
		return false;
	return !lane->want_finish || lane_finish(c, i, link);
}

/* ---- what waits ---- */

static uint32_t SCOUT_ON_COURIER
links_with_room(const struct scout_client *c)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->n_links; i++)
		n += scout__link_has_room(scout__courier_link(c->courier, i));
	return n;
}

/* Whether looking at a slot could change anything: not while all servers are there and none takes an operation. */
static bool SCOUT_ON_COURIER
may_send(const struct scout_client *c)
{
	if (links_with_room(c) > 0)
		return true;
	for (uint32_t i = 0; i < c->n_links; i++)
		if (!scout__link_is_up(scout__courier_link(c->courier, i)))
			return true; /* what is for that one may end, or be kept for later */
	return false;
}

static void SCOUT_ON_COURIER
walk_todo(struct scout_client *c, uint64_t now_us)
{
	uint32_t i;

	if (c->may_unblock)
		scout__todo_unblock(c);
	while ((i = c->todo.head) != SCOUT__NO_SLOT && may_send(c)) {
		bool done = true;

		scout__todo_remove(c, i);
		for (uint32_t link = 0; link < c->n_links; link++)
			done &= lane_send(c, i, link, now_us);
		if (c->slots[i].in_todo)
			continue; /* a connection was lost meanwhile, and something else is to be sent */
		if (done) {
			scout__slot_release_if_done(c, i);
		} else {
			scout__todo_block(c, i);
			/* Room everywhere: memory for the frame is what is short. The next turn tries again. */
			c->may_unblock |= links_with_room(c) == c->n_links;
		}
	}
}

void
scout__lookup_flush(void *user, uint64_t now_us)
{
	struct scout_client *c = user;

	scout__enter_courier();
	if (c->held && !c->closing)
		return;
	for (uint32_t link = 0; link < c->n_links; link++)
		scout__give_back_send(c, link);
	walk_todo(c, now_us);
	/* Behind the FINISHes that it implies, and before the lookups that follow it. */
	if (scout__broadcast_send(c)) {
		c->may_unblock = true;
		walk_todo(c, now_us);
	}
}
