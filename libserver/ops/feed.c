/* SPDX-License-Identifier: Apache-2.0 */
#include "feed.h"

#include "chunk_index.h"
#include "msg.h"
#include "ns.h"
#include "ops_internal.h"
#include "peer.h"
#include "reply.h"
#include "server_core.h"

/*
 * DESIGN
 *
 * FEED: a reader pulls a page of events, or of what is a hit now (state/feed.c). The server remembers nothing of a reader: the
 * request says where it is. A cursor is the group and the entry from which the walk goes on, plus 1.
 *
 * What a page costs the loop: a copy of at most PAGE_BYTES, or a look at SLOTS entries, both some 20 us at most. A reader asks
 * about once in a step of its engine, and has one request in flight.
 *
 * Threads: loop.
 */

#define PAGE_BYTES 32768u
#define SLOTS 4096u /* entries that a page of the walk looks at */
#define CURSOR(group, entry) (((uint64_t)(group) << 32 | (entry)) + 1)

/* Put hits of the walk from @next->cursor on. Sets the cursor from which it goes on, 0 at its end. Returns their number. */
SCOUT_ON_LOOP static uint32_t
put_hits(struct scout__ns *ns, struct scout__feed_msg *next, struct scout__writer *w)
{
	uint64_t at = next->cursor ? next->cursor - 1 : 0;
	uint32_t g = (uint32_t)(at >> 32), entry = (uint32_t)at, n = 0, left = SLOTS;
	size_t most = w->len + PAGE_BYTES - SCOUT__FEED_EVENT_MAX;

	for (; g < ns->groups.n; g++, entry = 0) {
		struct scout__ns_group *group = &ns->by_group[g];

		for (; group->index && entry < group->index->slots.next_fresh; entry++) {
			if (left-- == 0 || w->len > most) {
				next->cursor = CURSOR(g, entry);
				return n;
			}
			n += scout__feed_put_hit(group, entry, w);
		}
	}
	next->cursor = 0;
	return n;
}

SCOUT_ON_LOOP static uint32_t
put_events(const struct scout__feed *feed, struct scout__feed_msg *next, struct scout__writer *w)
{
	struct scout__feed_run run = scout__feed_ring_get(&feed->ring, next->sequence, PAGE_BYTES);

	scout__put_bytes(w, run.bytes, run.len);
	next->sequence += run.n;
	return run.n;
}

/* What @m asks for, behind the head of the reply. */
SCOUT_ON_LOOP static void
put_page(struct scout__ns *ns, const struct scout__feed *feed, struct scout__feed_reply *reply, struct scout__writer *w)
{
	struct scout__feed_msg *next = &reply->next;

	if (next->feed == 0) {
		next->feed = feed->id;
		next->sequence = feed->ring.next;
		reply->n = put_hits(ns, next, w);
	} else if (next->feed != feed->id || !scout__feed_ring_has(&feed->ring, next->sequence)) {
		*next = (struct scout__feed_msg){.feed = feed->id};
		reply->flags = SCOUT_FEED_LOST;
		return;
	} else if (next->cursor) {
		reply->n = put_hits(ns, next, w);
	} else {
		reply->n = put_events(feed, next, w);
	}
	if (next->cursor || next->sequence < feed->ring.next)
		reply->flags = SCOUT_FEED_MORE;
}

void
scout__serve_feed(struct scout_server *s, struct scout__request *req)
{
	struct scout__feed_reply reply = {.n = 0};
	const struct scout__feed *feed;
	struct scout__writer *w;
	const char *field = "";
	size_t op_at, head_at, end;
	int status = scout__get_feed(req->op, &reply.next, &field);

	if (status) {
		scout__refuse_body(s, req->dest, req->op, status, field);
		return;
	}
	if (!scout__require_weights(s, req->peer, req->op))
		return;
	feed = scout__feed_of(s, req->peer->ns);
	if (!feed) {
		s->count.out_of_memory++;
		scout__refuse(s, req->dest, req->op->opcode, req->op->corr, SCOUT_WIRE_LIMIT,
			      "no memory for the feed of this namespace (feed_bytes: %llu)",
			      (unsigned long long)s->cfg.feed_bytes);
		return;
	}
	w = scout__reply_begin(s, req->dest, req->op->opcode, SCOUT_WIRE_OK, req->op->corr,
			       SCOUT__FEED_HEAD_BYTES + PAGE_BYTES, &op_at);
	if (!w)
		return;
	head_at = w->len;
	scout__put_feed_head(w, &reply);
	put_page(req->peer->ns, feed, &reply, w);
	end = w->len;
	w->len = head_at;
	scout__put_feed_head(w, &reply);
	w->len = end;
	scout__reply_end(s, req->dest, op_at);
}
