/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * What the slots want, put into the links' frames. `todo` holds the slots with something unsent; it is walked once per turn,
 * and what finds no credit or no connection stays in it. In a step nothing is sent before its end.
 */
#include "lookup.h"

/* ---- sending ---- */

static uint32_t budget_us(const struct scout__slot *slot, uint64_t now_us) SCOUT_ON_COURIER;
static uint32_t
budget_us(const struct scout__slot *slot, uint64_t now_us)
{
	uint64_t left = slot->deadline_us > now_us ? slot->deadline_us - now_us : 1;

	return left > UINT32_MAX ? UINT32_MAX : (uint32_t)left;
}

static bool send_lookup(struct scout_client *c, uint32_t i, struct scout__link *link, uint64_t now_us) SCOUT_ON_COURIER;
static bool
send_lookup(struct scout_client *c, uint32_t i, struct scout__link *link, uint64_t now_us)
{
	struct scout__slot *slot = &c->slots[i];
	struct scout__lane *lane = &slot->lanes[scout__link_index(link)];
	struct scout__lookup_msg msg = {
		.ticket = slot->ticket,
		.n = slot->n,
		.skip = slot->skip,
		.expect = slot->expect,
		.poll_timeout_ms = slot->expect ? c->cfg.lookup_poll_key_timeout_ms : 0,
		.poll_interval_ms = slot->expect ? c->cfg.lookup_poll_key_intervals_ms : 0,
		.tenant = {slot->tenant, slot->tenant_len},
		.hashes = scout__arena_at(&c->arena, slot->arena_pos),
	};
	size_t room = 64 + (size_t)slot->tenant_len + (size_t)slot->n * c->cfg.hash_bytes;
	struct scout__writer *w =
		scout__link_op_begin(link, SCOUT_OP_LOOKUP, budget_us(slot, now_us), COOKIE(COOKIE_LOOKUP, i), room);

	if (!w)
		return false;
	scout__put_lookup(w, &msg, c->cfg.hash_bytes);
	scout__link_op_end(link);
	lane->in_flight++;
	lane->state = SCOUT__LANE_ASKED;
	if (--slot->unsent == 0)
		scout__arena_give(&c->arena, slot->arena_pos);
	return true;
}

static bool send_admit(struct scout_client *c, uint32_t i, struct scout__link *link) SCOUT_ON_COURIER;
static bool
send_admit(struct scout_client *c, uint32_t i, struct scout__link *link)
{
	struct scout__slot *slot = &c->slots[i];
	struct scout__lane *lane = &slot->lanes[scout__link_index(link)];
	struct scout__admit_msg msg = {slot->ticket, slot->admit_from, slot->admit_to};
	struct scout__writer *w = scout__link_op_begin(link, SCOUT_OP_ADMIT, 0, COOKIE(COOKIE_ADMIT, i), 16);

	if (!w)
		return false;
	scout__put_admit(w, &msg);
	scout__link_op_end(link);
	lane->in_flight++;
	lane->want_admit = false;
	return true;
}

static bool send_finish(struct scout__link *link, uint64_t ticket, uint64_t cookie) SCOUT_ON_COURIER;
static bool
send_finish(struct scout__link *link, uint64_t ticket, uint64_t cookie)
{
	struct scout__writer *w = scout__link_op_begin(link, SCOUT_OP_FINISH, 0, cookie, 8);

	if (!w)
		return false;
	scout__put_one_u64(w, ticket);
	scout__link_op_end(link);
	return true;
}

static bool lane_finish(struct scout_client *c, uint32_t i, struct scout__link *link) SCOUT_ON_COURIER;
static bool
lane_finish(struct scout_client *c, uint32_t i, struct scout__link *link)
{
	struct scout__slot *slot = &c->slots[i];
	struct scout__lane *lane = &slot->lanes[scout__link_index(link)];

	if (!scout__link_is_up(link)) {
		scout__give_back_later(c, scout__link_index(link), slot->ticket);
		lane->state = SCOUT__LANE_NONE;
	} else if (!send_finish(link, slot->ticket, COOKIE(COOKIE_FINISH, i))) {
		return false;
	} else {
		lane->in_flight++;
	}
	lane->want_finish = false;
	return true;
}

/* Send what one slot wants on one link. False: something is left for later. */
static bool lane_send(struct scout_client *c, uint32_t i, uint32_t index, uint64_t now_us) SCOUT_ON_COURIER;
static bool
lane_send(struct scout_client *c, uint32_t i, uint32_t index, uint64_t now_us)
{
	struct scout__link *link = scout__courier_link(c->courier, index);
	struct scout__lane *lane = &c->slots[i].lanes[index];

	/* A lookup that comes after a reset must not be answered before it. */
	if (lane->state == SCOUT__LANE_WAIT && (scout__tell_is_due(c, index) || !send_lookup(c, i, link, now_us)))
		return false;
	if (lane->want_admit && lane->state == SCOUT__LANE_OPEN && scout__link_is_up(link) && !send_admit(c, i, link))
		return false;
	return !lane->want_finish || lane_finish(c, i, link);
}

static void send_give_back(struct scout_client *c, uint32_t index) SCOUT_ON_COURIER;
static void
send_give_back(struct scout_client *c, uint32_t index)
{
	struct scout__link *link = scout__courier_link(c->courier, index);
	struct scout__give_back *g = &c->give_back[index];

	while (g->sent < g->n &&
	       send_finish(link, g->tickets[(g->first + g->sent) % g->cap], COOKIE(COOKIE_GIVE_BACK, 0))) {
		g->sent++;
		g->in_flight++;
	}
}

/*
 * The tickets stay until all that were sent are answered: one that is lost on the way is sent again with the others, for giving
 * back twice changes nothing.
 */
void
scout__give_back_ended(struct scout_client *c, uint32_t index, bool lost)
{
	struct scout__give_back *g = &c->give_back[index];

	g->in_flight--;
	if (lost)
		g->sent = 0; /* so do all others in flight */
	if (g->in_flight > 0)
		return;
	g->first = (g->first + g->sent) % g->cap;
	g->n -= g->sent;
	g->sent = 0;
}

static void walk_todo(struct scout_client *c, uint64_t now_us) SCOUT_ON_COURIER;
static void
walk_todo(struct scout_client *c, uint64_t now_us)
{
	uint32_t i = c->todo_head;

	c->todo_head = c->todo_tail = SCOUT__NO_SLOT;
	while (i != SCOUT__NO_SLOT) {
		struct scout__slot *slot = &c->slots[i];
		uint32_t next = slot->todo_next;
		bool done = true;

		slot->in_todo = false;
		for (uint32_t link = 0; link < c->n_links; link++)
			done &= lane_send(c, i, link, now_us);
		if (!done)
			scout__todo_add(c, i);
		else
			scout__slot_release_if_done(c, i);
		i = next;
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
		send_give_back(c, link);
	walk_todo(c, now_us);
	/* Behind the FINISHes that it implies, and before the lookups that follow it. */
	if (scout__tell_send(c))
		walk_todo(c, now_us);
}
