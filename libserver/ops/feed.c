/* SPDX-License-Identifier: Apache-2.0 */
#include "feed.h"

#include <string.h>

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
 * request says where it is. A cursor is the number of the walk, and the group and the entry from which it goes on.
 *
 * Routers drop for good what follows a block that they do not know. So before an object a walk tells those before it in the
 * prompt, as far as the descriptions know them: from the STORE that named both, or from its session. A bit for each entry
 * says what a walk has told. The bits are those of the last SCOUT__TOLD_WALKS walks; the reader of an earlier one starts over.
 *
 * What a page costs the loop: a copy of at most PAGE_BYTES, or a look at SLOTS entries, both some 20 us at most; and the way to
 * the begin of one prompt. A reader asks about once in a step of its engine, and has one request in flight.
 *
 * Rejected: keeping the order in a list (a cursor whose entry is evicted is lost; an object that comes back belongs into the
 * middle). Ordering by readers (their memory would have to have room for all).
 *
 * Threads: loop.
 */

#define PAGE_BYTES 32768u
#define SLOTS 4096u /* entries that a page of the walk looks at, and objects before one that it puts in their order */
#define CURSOR(walk, group, entry) ((uint64_t)(walk) << 37 | (uint64_t)(group) << 32 | (entry))
#define WALK_OF(cursor) ((uint32_t)((cursor) >> 37))

/* What the walk has told of @index. NULL: no object has a description. */
SCOUT_ON_LOOP static uint64_t *
told_by(const struct scout__chunk_index *index, uint32_t walk)
{
	return index->told ? index->told + walk % SCOUT__TOLD_WALKS * SCOUT__TOLD_WORDS(index) : NULL;
}

SCOUT_ON_LOOP static uint64_t
begin_walk(const struct scout__ns *ns, struct scout__feed *feed)
{
	feed->walk = feed->walk % WALK_OF(UINT64_MAX) + 1;
	for (uint32_t g = 0; g < ns->groups.n; g++) {
		const struct scout__chunk_index *index = ns->by_group[g].index;

		if (index && index->told)
			memset(told_by(index, feed->walk), 0, (size_t)index->slots.next_fresh / 64 * 8 + 8);
	}
	return CURSOR(feed->walk, 0, 0);
}

/* @entry, if it is a hit that the walk has not told, and such ones before it in its prompt. Returns their number, at most SLOTS. */
SCOUT_ON_LOOP static uint32_t
find_due(const struct scout__chunk_index *index, const uint64_t *told, uint32_t entry, uint32_t *ret_entries)
{
	const struct scout__description *d;
	uint32_t n = 0;

	while (n < SLOTS && entry != SCOUT__NO_ENTRY && index->entries[entry].in_use &&
	       scout__index_is_hit(index, entry) && !(told && told[entry / 64] >> entry % 64 & 1)) {
		ret_entries[n++] = entry;
		d = scout__index_description(index, entry);
		entry = d ? scout__index_find(index, index->entries[entry].space, d->before) : SCOUT__NO_ENTRY;
	}
	return n;
}

/* Put hits of the walk from @next->cursor on. Sets the cursor from which it goes on, 0 at its end. Returns their number. */
SCOUT_ON_LOOP static uint32_t
put_hits(struct scout__ns *ns, struct scout__feed_msg *next, struct scout__writer *w)
{
	uint32_t g = next->cursor >> 32 & (SCOUT_MAX_GROUPS - 1), entry = (uint32_t)next->cursor;
	uint32_t walk = WALK_OF(next->cursor), due[SLOTS], n = 0, left = SLOTS;
	size_t most = w->len + PAGE_BYTES - SCOUT__FEED_EVENT_MAX;

	for (; g < ns->groups.n; g++, entry = 0) {
		struct scout__ns_group *group = &ns->by_group[g];
		uint64_t *told = group->index ? told_by(group->index, walk) : NULL;

		for (; group->index && entry < group->index->slots.next_fresh; entry++) {
			uint32_t n_due = find_due(group->index, told, entry, due);

			for (; n_due > 0 && w->len <= most; n_due--) {
				uint32_t at = due[n_due - 1];

				/* By what peers say, a way may lead in a circle: then an entry is there more than once. */
				if (told && told[at / 64] >> at % 64 & 1)
					continue;
				n += scout__feed_put_hit(group, at, w);
				if (told)
					told[at / 64] |= UINT64_C(1) << at % 64;
			}
			if (n_due > 0 || left-- == 0) {
				next->cursor = CURSOR(walk, g, entry);
				return n;
			}
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
put_page(struct scout__ns *ns, struct scout__feed *feed, struct scout__feed_reply *reply, struct scout__writer *w)
{
	struct scout__feed_msg *next = &reply->next;

	if (next->feed == 0) {
		*next = (struct scout__feed_msg){feed->id, feed->ring.next, begin_walk(ns, feed)};
	} else if (next->feed != feed->id || !scout__feed_ring_has(&feed->ring, next->sequence) ||
		   (next->cursor && feed->walk - WALK_OF(next->cursor) >= SCOUT__TOLD_WALKS)) {
		*next = (struct scout__feed_msg){.feed = feed->id};
		reply->flags = SCOUT_FEED_LOST;
		return;
	}
	reply->n = next->cursor ? put_hits(ns, next, w) : put_events(feed, next, w);
	if (next->cursor || next->sequence < feed->ring.next)
		reply->flags = SCOUT_FEED_MORE;
}

void
scout__serve_feed(struct scout_server *s, struct scout__request *req)
{
	struct scout__feed_reply reply = {.n = 0};
	struct scout__feed *feed;
	struct scout__writer *w;
	const char *field = "";
	size_t op_at, head_at, end;
	int status = scout__get_feed(req->op, &reply.next, &field);

	if (status && scout__refuse_body(s, req->dest, req->op, status, field))
		return;
	if (!scout__require_weights(s, req->peer, req->op))
		return;
	feed = scout__feed_of(s, req->peer->ns);
	if (!feed) {
		s->count.out_of_memory++;
		scout__refuse(s, req->dest, req->op->opcode, req->op->corr, SCOUT_WIRE_LIMIT,
			      "no room for one more feed: those of all namespaces may have %llu bytes (feed_bytes)",
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
