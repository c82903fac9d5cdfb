/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * What the slots want, put into the links' frames. In a step nothing is sent before its end.
 *
 * A slot with something unsent is in `todo`, from which each turn takes what the links have room for, or in `blocked`, if a link
 * that it needs was away or full when it was looked at. Those are looked at again when a credit or a connection has come, never just
 * because a turn is made: a scheduler may have 65,536 requests waiting for 4,096 credits, and each frame of replies is a turn.
 * Both lists are linked in both directions, so a request that is finished while it waits leaves at once.
 */
#include "lookup_internal.h"

/* ---- sending ---- */

static uint32_t budget_us(const struct scout__slot *slot, uint64_t now_us) SCOUT_ON_COURIER;
static uint32_t
budget_us(const struct scout__slot *slot, uint64_t now_us)
{
	uint64_t left = slot->deadline_us > now_us ? slot->deadline_us - now_us : 1;

	return left > UINT32_MAX ? UINT32_MAX : (uint32_t)left;
}

/* As COOKIE_LOOKUP, or COOKIE_RENEW. */
static bool send_lookup(struct scout_client *c, uint32_t i, struct scout__link *link, enum cookie_kind kind,
			uint64_t now_us) SCOUT_ON_COURIER;
static bool
send_lookup(struct scout_client *c, uint32_t i, struct scout__link *link, enum cookie_kind kind, uint64_t now_us)
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
		scout__link_op_begin(link, SCOUT_OP_LOOKUP, budget_us(slot, now_us), COOKIE(kind, i), room);

	if (!w)
		return false;
	if (kind == COOKIE_RENEW) {
		msg.flags = SCOUT_LOOKUP_RENEW;
		msg.expect = msg.poll_timeout_ms = msg.poll_interval_ms = 0;
	} else if (slot->ahead) {
		msg.flags = SCOUT_LOOKUP_AHEAD;
	}
	scout__put_lookup(w, &msg, c->cfg.hash_bytes);
	scout__link_op_end(link);
	lane->in_flight++;
	if (kind == COOKIE_LOOKUP)
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
	if (lane->state == SCOUT__LANE_WAIT &&
	    (scout__tell_is_due(c, index) || !send_lookup(c, i, link, COOKIE_LOOKUP, now_us)))
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

/* ---- what waits ---- */

static void append(struct scout_client *c, struct scout__slot_list *list, uint32_t i) SCOUT_ON_COURIER;
static void
append(struct scout_client *c, struct scout__slot_list *list, uint32_t i)
{
	struct scout__slot *slot = &c->slots[i];

	slot->in_todo = true;
	slot->todo_prev = list->tail;
	slot->todo_next = SCOUT__NO_SLOT;
	if (list->tail == SCOUT__NO_SLOT)
		list->head = i;
	else
		c->slots[list->tail].todo_next = i;
	list->tail = i;
}

void
scout__todo_remove(struct scout_client *c, uint32_t i)
{
	struct scout__slot *slot = &c->slots[i];

	if (!slot->in_todo)
		return;
	slot->in_todo = false;
	for (unsigned k = 0; k < 2; k++) { /* the ends of a list tell which one it is in */
		struct scout__slot_list *list = k ? &c->blocked : &c->todo;

		if (list->head == i)
			list->head = slot->todo_next;
		if (list->tail == i)
			list->tail = slot->todo_prev;
	}
	if (slot->todo_prev != SCOUT__NO_SLOT)
		c->slots[slot->todo_prev].todo_next = slot->todo_next;
	if (slot->todo_next != SCOUT__NO_SLOT)
		c->slots[slot->todo_next].todo_prev = slot->todo_prev;
}

void
scout__todo_add(struct scout_client *c, uint32_t i)
{
	scout__todo_remove(c, i);
	append(c, &c->todo, i);
}

/* Everything that was blocked is to be tried again, before what came after it. */
static void unblock(struct scout_client *c) SCOUT_ON_COURIER;
static void
unblock(struct scout_client *c)
{
	c->may_unblock = false;
	if (c->blocked.head == SCOUT__NO_SLOT)
		return;
	if (c->todo.head == SCOUT__NO_SLOT) {
		c->todo.tail = c->blocked.tail;
	} else {
		c->slots[c->blocked.tail].todo_next = c->todo.head;
		c->slots[c->todo.head].todo_prev = c->blocked.tail;
	}
	c->todo.head = c->blocked.head;
	c->blocked = (struct scout__slot_list){SCOUT__NO_SLOT, SCOUT__NO_SLOT};
}

static uint32_t links_with_room(const struct scout_client *c) SCOUT_ON_COURIER;
static uint32_t
links_with_room(const struct scout_client *c)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->n_links; i++)
		n += scout__link_has_room(scout__courier_link(c->courier, i));
	return n;
}

/* Whether looking at a slot could change anything: not while all servers are there and none takes an operation. */
static bool may_send(const struct scout_client *c) SCOUT_ON_COURIER;
static bool
may_send(const struct scout_client *c)
{
	if (links_with_room(c) > 0)
		return true;
	for (uint32_t i = 0; i < c->n_links; i++)
		if (!scout__link_is_up(scout__courier_link(c->courier, i)))
			return true; /* what is for that one may end, or be kept for later */
	return false;
}

static void walk_todo(struct scout_client *c, uint64_t now_us) SCOUT_ON_COURIER;
static void
walk_todo(struct scout_client *c, uint64_t now_us)
{
	uint32_t i;

	if (c->may_unblock)
		unblock(c);
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
			append(c, &c->blocked, i);
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
		send_give_back(c, link);
	walk_todo(c, now_us);
	/* Behind the FINISHes that it implies, and before the lookups that follow it. */
	if (scout__tell_send(c)) {
		c->may_unblock = true;
		walk_todo(c, now_us);
	}
}
