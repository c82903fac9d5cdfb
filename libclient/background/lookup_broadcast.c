/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The courier's side of client_life.c: a RESET or CLEAR goes to every server, after the FINISHes that the call implies
 * and before the lookups that follow it. This file owns the fields of struct scout__broadcast that the courier writes.
 *
 * Each link has the number to send (0: none), and a count of messages that were sent and not answered. A message that
 * is lost with its connection is sent again, with the latest number; carrying out the same number twice changes
 * nothing. A link is settled when nothing is to be sent and nothing is unanswered. Until a reset is settled the
 * link's HELLO gives no version of the weights: neither the old nor the new version may lock the RESET out.
 *
 * A server that is stopping, or that has no room, does not carry the message out: its answer counts as lost.
 *
 * A clear goes to every server under one name. Each server carries the clear out when it reads the message, and
 * answers when its stores have recorded the clear. The answer goes to the log, and to the link, which tells later
 * servers of the clear.
 */
#include "lookup_internal.h"

void
scout__broadcast_start(struct scout_client *c, uint32_t what)
{
	struct scout__broadcast *t = &c->broadcasts[what];

	atomic_store(&t->queued, false);
	t->latest = atomic_load(&t->number);
	for (uint32_t i = 0; i < c->n_links; i++) {
		struct scout__link *link = scout__courier_link(c->courier, i);

		t->links[i].todo = t->latest;
		if (what != SCOUT__BROADCAST_RESET)
			continue;
		scout__link_set_weights(link, 0);
		scout__link_try_now(link);
	}
}

void
scout__broadcast_clear_again(struct scout_client *c, uint32_t link)
{
	struct scout__broadcast *t = &c->broadcasts[SCOUT__BROADCAST_CLEAR];

	if (t->latest == 0)
		return;
	t->links[link].todo = t->latest;
	atomic_fetch_add(&t->untold, 1);
}

bool
scout__broadcast_is_due(const struct scout_client *c, uint32_t link)
{
	bool is_due = false;

	for (uint32_t what = 0; what < SCOUT__BROADCASTS; what++)
		is_due |= c->broadcasts[what].links[link].todo != 0;
	return is_due;
}

bool
scout__broadcast_is_open(const struct scout_client *c)
{
	bool is_open = false;

	for (uint32_t what = 0; what < SCOUT__BROADCASTS; what++)
		for (uint32_t i = 0; i < c->n_links; i++)
			is_open |= c->broadcasts[what].links[i].todo != 0 || c->broadcasts[what].links[i].in_flight > 0;
	return is_open;
}

/* Returns whether one was sent. */
static bool SCOUT_ON_COURIER
send_one(struct scout_client *c, uint32_t what, uint32_t index)
{
	struct scout__link *link = scout__courier_link(c->courier, index);
	struct scout__broadcast_link *t = &c->broadcasts[what].links[index];
	struct scout__writer *w;

	if (t->todo == 0)
		return false;
	w = scout__link_op_begin(link, what == SCOUT__BROADCAST_RESET ? SCOUT_OP_RESET : SCOUT_OP_CLEAR, 0,
				 COOKIE(COOKIE_BROADCAST, what), 8);
	if (!w)
		return false;
	scout__put_one_u64(w, t->todo);
	scout__link_op_end(link);
	t->todo = 0;
	t->in_flight++;
	return true;
}

bool
scout__broadcast_send(struct scout_client *c)
{
	bool sent = false;

	for (uint32_t what = 0; what < SCOUT__BROADCASTS; what++)
		for (uint32_t i = 0; i < c->n_links; i++)
			sent |= send_one(c, what, i);
	return sent;
}

static void SCOUT_ON_COURIER
reset_reply(struct scout_client *c, uint32_t index, const struct scout__op *op)
{
	const struct scout__broadcast *t = &c->broadcasts[SCOUT__BROADCAST_RESET];
	const struct scout__broadcast_link *link = &t->links[index];

	if (op->status != SCOUT_WIRE_OK)
		scout__log(&c->log, SCOUT_LOG_ERROR, "the server refused a reset of the weights: %s",
			   scout__wire_name(op->status));
	if (link->todo == 0 && link->in_flight == 0)
		scout__link_set_weights(scout__courier_link(c->courier, index), t->latest);
}

static void SCOUT_ON_COURIER
clear_reply(struct scout_client *c, uint32_t index, const struct scout__op *op)
{
	struct scout__link *link = scout__courier_link(c->courier, index);
	struct scout__clear_reply reply;
	const char *field;

	if (op->status != SCOUT_WIRE_OK) {
		scout__log(&c->log, SCOUT_LOG_ERROR, "%s refused a clear: %s", scout__link_endpoint(link),
			   scout__wire_name(op->status));
		return;
	}
	if (scout__get_clear_reply(op, &reply, &field) != SCOUT_WIRE_OK) {
		scout__link_reset(
			link, SCOUT_ERR_PROTOCOL,
			"the server's CLEAR reply breaks the protocol: are server and client of one release?");
		return;
	}
	scout__link_note_clear(link, &reply.clear);
	atomic_fetch_add(&c->broadcasts[SCOUT__BROADCAST_CLEAR].behind, reply.pending);
	if (reply.pending)
		scout__log(&c->log, SCOUT_LOG_WARN,
			   "%s: %u of %u L2 stores have not recorded the clear: the server does not use them "
			   "until they have; if it ends before, what they hold comes back",
			   scout__link_endpoint(link), (unsigned)reply.pending, (unsigned)reply.stores);
}

void
scout__broadcast_reply(struct scout_client *c, uint32_t what, uint32_t index, const struct scout__op *op)
{
	struct scout__broadcast *t = &c->broadcasts[what];
	struct scout__broadcast_link *link = &t->links[index];

	link->in_flight--;
	if (!op || scout__link_puts_off(scout__courier_link(c->courier, index), op->status))
		link->todo = t->latest; /* lost on the way, or not carried out */
	else if (what == SCOUT__BROADCAST_RESET)
		reset_reply(c, index, op);
	else
		clear_reply(c, index, op);
	/* An answer to one that was overtaken says nothing. */
	if (link->todo == 0 && link->in_flight == 0 && !atomic_load(&t->queued) && atomic_load(&t->untold) > 0)
		atomic_fetch_sub(&t->untold, 1);
}
