/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The courier's callbacks, on its thread: an operation has ended, a connection came up or was lost. A reply that comes after its
 * lookup has ended is counted and dropped; the FINISH that gives back its promise follows it or is on its way.
 */
#include "lookup_internal.h"

#include <stdio.h>

/* ---- replies ---- */

static void SCOUT_ON_COURIER
lookup_reply(struct scout_client *c, uint32_t i, uint32_t link, const struct scout__op *op)
{
	struct scout__lookup_slot *slot = &c->slots[i];
	struct scout__lookup_lane *lane = &slot->lanes[link];
	struct scout__lookup_reply reply;
	const char *field;
	int error = scout__wire_error(op->status);

	if (slot->ended) { /* its FINISH follows or is on its way */
		scout__count_n(&c->counts.late, 1);
		return;
	}
	if (error == 0 && slot->n_parts)
		error = scout__keys_take_reply(c, slot, op, &reply);
	else if (error == 0 && slot->ahead)
		error = scout__ahead_take_reply(c, slot, op, &reply);
	else if (error == 0 && (scout__get_lookup_reply(op, &reply, &field) != SCOUT_WIRE_OK ||
				!scout__take_lengths(slot, &reply, slot->again)))
		error = SCOUT_ERR_PROTOCOL;
	if (error == 0 && reply.hit > slot->at_most)
		error = SCOUT_ERR_PROTOCOL;
	if (error != 0) {
		if (op->status != SCOUT_WIRE_OK && op->status != SCOUT_WIRE_EXPIRED)
			lane->state = SCOUT__LANE_NONE; /* refused: no session */
		scout__lookup_fail(c, i, scout__reason_of(error), error, (int)link);
		return;
	}
	lane->state = SCOUT__LANE_OPEN;
	scout__lane_take(lane, &reply);
	if (--slot->unanswered == 0)
		scout__lookup_all_answered(c, i);
}

/* The connection went while an operation of this lane was in flight. */
static void SCOUT_ON_COURIER
lane_lost(struct scout_client *c, uint32_t i, uint32_t link, uint32_t kind, int error)
{
	struct scout__lookup_lane *lane = &c->slots[i].lanes[link];

	if (kind == COOKIE_LOOKUP) {
		scout__lookup_fail(c, i, scout__reason_of(error), error, (int)link);
	} else if (kind == COOKIE_RENEW) {
		scout__renew_lost(c, i);
	} else if (kind == COOKIE_FINISH) {
		scout__give_back_later(c, link, c->slots[i].ticket);
		lane->state = SCOUT__LANE_NONE;
	} else if (kind == COOKIE_ADMIT && lane->state == SCOUT__LANE_OPEN) {
		lane->want_admit = true; /* giving back twice changes nothing */
		scout__todo_add(c, i);
	}
}

void
scout__lookup_op_ended(void *user, struct scout__link *link, uint64_t cookie, const struct scout__op *op, int error)
{
	struct scout_client *c = user;
	uint32_t i = (uint32_t)cookie, kind = (uint32_t)(cookie >> 32), index;

	scout__enter_courier();
	c->may_unblock = true; /* its credit is back */
	index = scout__link_index(link);
	if (kind == COOKIE_GIVE_BACK) {
		scout__give_back_ended(c, index, op == NULL);
		return;
	}
	if (kind == COOKIE_BROADCAST) {
		scout__broadcast_reply(c, i, index, op);
		return;
	}
	struct scout__lookup_lane *lane = &c->slots[i].lanes[index];

	lane->in_flight--;
	if (!op)
		lane_lost(c, i, index, kind, error);
	else if (kind == COOKIE_LOOKUP)
		lookup_reply(c, i, index, op);
	else if (kind == COOKIE_RENEW)
		scout__renew_reply(c, i, index, op);
	else if (kind == COOKIE_FINISH)
		lane->state = SCOUT__LANE_NONE; /* also when there was no such session */
	scout__slot_release_if_done(c, i);
}

/* ---- links ---- */

/* @news: the link that has just come up or gone; @text: why it is gone, NULL when it is up. */
static void SCOUT_ON_COURIER
tell_ready(struct scout_client *c, const struct scout__link *news, const char *text)
{
	const struct scout__link *missing = NULL;
	uint32_t up = 0;
	unsigned down = 0;
	int error = 0;

	for (uint32_t i = 0; i < c->n_links; i++) {
		struct scout__link *link = scout__courier_link(c->courier, i);

		up += scout__link_is_up(link);
		if (!scout__link_is_up(link) && !missing)
			missing = link;
		if (!down && scout__link_error(link) != 0) {
			error = scout__link_error(link);
			down = SCOUT__DOWN(i, error);
		}
	}
	atomic_store_explicit(&c->down, down, memory_order_relaxed);
	(void)pthread_mutex_lock(&c->ready_mu);
	c->ready_up = up;
	c->ready_error = error;
	if (text)
		(void)snprintf(c->ready_text, sizeof(c->ready_text), "%s: %s", scout__link_endpoint(news), text);
	else if (missing)
		(void)snprintf(c->ready_text, sizeof(c->ready_text), "%s", scout__link_endpoint(missing));
	(void)pthread_cond_broadcast(&c->ready_cond);
	(void)pthread_mutex_unlock(&c->ready_mu);
}

/* A new server start knows no session of ours. */
static void SCOUT_ON_COURIER
forget_sessions(struct scout_client *c, uint32_t index)
{
	c->give_back[index].n = c->give_back[index].sent = 0;
	for (uint32_t i = 0; i < c->n_seen; i++) {
		struct scout__lookup_lane *lane = &c->slots[i].lanes[index];

		if (lane->state != SCOUT__LANE_OPEN && lane->state != SCOUT__LANE_ASKED &&
		    lane->state != SCOUT__LANE_ENDING)
			continue;
		scout__renew_lost(c, i);
		lane->state = SCOUT__LANE_NONE;
		lane->want_finish = false;
		lane->want_admit = false;
		scout__slot_release_if_done(c, i);
	}
}

void
scout__lookup_link_up(void *user, struct scout__link *link, bool new_epoch)
{
	struct scout_client *c = user;

	uint32_t index;

	scout__enter_courier();
	c->may_unblock = true;
	index = scout__link_index(link);
	if (new_epoch) {
		forget_sessions(c, index);
		atomic_fetch_add_explicit(&c->epochs, 1, memory_order_relaxed);
	}
	for (uint32_t i = 0; i < c->n_seen; i++)
		if (c->slots[i].lanes[index].want_admit)
			scout__todo_add(c, i);
	tell_ready(c, link, NULL);
}

void
scout__lookup_link_going(void *user, struct scout__link *link, int error, const char *text)
{
	(void)error;
	scout__enter_courier();
	tell_ready(user, link, text);
}

/* What waits for this connection ends now: unsent lookups too (C5). */
void
scout__lookup_link_down(void *user, struct scout__link *link, int error, const char *text)
{
	struct scout_client *c = user;
	uint32_t index, i;

	(void)text;
	scout__enter_courier();
	c->may_unblock = true; /* what is to be given back there is kept for later */
	index = scout__link_index(link);
	while ((i = scout__deadlines_first(c)) != SCOUT__NO_SLOT)
		scout__lookup_fail(c, i, scout__reason_of(error), error, (int)index);
}
