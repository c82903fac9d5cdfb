/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The courier's side of client_feed.c: it sends the one request that the caller has left, and copies the answer to where the caller
 * reads it. While the link is down the request fails at once: the caller asks again when it likes.
 */
#include "lookup_internal.h"

#include <stdlib.h>
#include <string.h>

void
scout__feed_send(struct scout_client *c)
{
	struct scout__link *link = scout__courier_link(c->courier, 0);
	struct scout__writer *w;

	if (!c->feed.unsent)
		return;
	if (!scout__link_is_up(link) && scout__link_error(link) != 0) {
		scout__feed_reply(c, NULL, scout__link_error(link));
		return;
	}
	w = scout__link_op_begin(link, SCOUT_OP_FEED, 0, COOKIE(COOKIE_FEED, 0), 24);
	if (!w)
		return;
	scout__put_feed(w, &c->feed.ask);
	scout__link_op_end(link);
	c->feed.unsent = false;
	c->feed.in_flight = true;
}

/* 0 or SCOUT_ERR_NOMEM. */
static int SCOUT_ON_COURIER
keep(struct scout__feed_reader *feed, const struct scout__op *op)
{
	uint32_t i = feed->filling;

	if (op->length > feed->pages[i].cap) {
		uint8_t *body = realloc(feed->pages[i].body, op->length);

		if (!body)
			return SCOUT_ERR_NOMEM;
		feed->pages[i].body = body;
		feed->pages[i].cap = op->length;
	}
	memcpy(feed->pages[i].body, op->body, op->length);
	feed->pages[i].len = op->length;
	return 0;
}

void
scout__feed_reply(struct scout_client *c, const struct scout__op *op, int error)
{
	struct scout__feed_reader *feed = &c->feed;

	feed->unsent = feed->in_flight = false;
	if (op)
		error = scout__wire_error(op->status);
	feed->error = error ? error : keep(feed, op);
	atomic_store_explicit(&feed->state, SCOUT__FEED_ANSWERED, memory_order_release);
}
