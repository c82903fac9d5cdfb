/* SPDX-License-Identifier: Apache-2.0 */
#include "feed.h"

#include <stdlib.h>
#include <sys/random.h>

#include "chunk_index.h"
#include "msg.h"
#include "ns.h"
#include "server_core.h"
#include "state.h"
#include "wire.h"

/*
 * DESIGN
 *
 * Purpose: what became a hit and what stopped being one, for readers outside: routers that know where a prompt's KV is.
 *
 * Where events are born. In host memory a chunk becomes a hit in one place, scout__index_commit(), whichever rank is the last and
 * whether a worker or L2 wrote it; it stops in two, scout__entry_discard() (evicted, dropped, its extent withdrawn) and
 * scout__index_spoil(). All three call l1.hit_changed. In L2 a chunk is stored when the last shard of a hit is written
 * (l2_write.c). A clear, and other weights, end all keys of a namespace in one turn, scout__ns_outdate(), and a drop those of a
 * tenant: one event each. The entries that these leave behind go later, without an event: their keys may have been stored again
 * since. What an L2 evicts by itself has no event: no store tells of it by key.
 *
 * Each namespace has its own ring, made when it is read first, and freed when nobody has read it for a minute, when all peers
 * have left, or when all its chunks are gone at once (scout__ns_drop_indexes). All rings have at most feed_bytes for events, and a
 * quarter of that for their index; a new one gets a quarter of what the others leave, so there is room for some twenty. Before
 * and after that an event costs one branch (l1_ns.watched). The loop encodes an event once, into the ring, in the form of the reply, and
 * readers pull: a page is a copy of at most PAGE_BYTES (ops/feed.c). So no reader is known here, a slow one costs nothing and
 * finds its events lost, and no thread is needed: a thread would have to be handed each event, which costs as much as the ring.
 *
 * Sequence numbers belong to `id`. After a restart, or when the ring was freed, the id is another one, so no old number is
 * mistaken for a new one.
 *
 * A reader starts with a walk over all entries, page by page, and then reads the events since the begin of the walk. An entry that
 * changed meanwhile is in these events, too, and the last event of a key is what holds.
 *
 * Rejected: one ring for the server (a busy namespace would push out the events of others). Pushing to readers (their queues).
 * Encoding when an event is read: its hash, tenant and description may be gone by then, so they are copied or counted when it
 * happens, for 70 instructions where all of an event takes 100; and each reader would pay for the encoding again.
 *
 * Threads: loop.
 */

#define UNREAD_US UINT64_C(60000000)

struct scout__feed *
scout__feed_of(struct scout_server *s, struct scout__ns *ns)
{
	uint64_t left = s->cfg.feed_bytes / 4 * 5 - s->state->feed_bytes, size = left / 5;
	struct scout__feed *feed = ns->feed;

	if (!feed) {
		size = size > SCOUT__FEED_RING_MIN ? size : SCOUT__FEED_RING_MIN;
		feed = size / 4 * 5 <= left ? calloc(1, sizeof(*feed)) : NULL;
		if (!feed || scout__feed_ring_init(&feed->ring, (uint32_t)size, SCOUT__FEED_EVENT_MAX) != 0) {
			free(feed);
			return NULL;
		}
		s->state->feed_bytes += scout__feed_ring_bytes(&feed->ring);
		/* Without entropy, at boot: what is random of this start, and when. */
		if (getrandom(&feed->id, sizeof(feed->id), GRND_NONBLOCK) != (ssize_t)sizeof(feed->id) || feed->id == 0)
			feed->id = (s->epoch ^ s->now_us) | 1;
		ns->feed = feed;
		ns->l1.watched = true;
	}
	feed->read_us = s->now_us;
	return feed;
}

/* Wiping touches each page. */
static void
feed_free(struct scout__pool *pool, struct scout__chore *chore)
{
	(void)pool;
	scout__feed_ring_fini(&((struct scout__feed *)chore)->ring);
	free(chore);
}

void
scout__feed_end(struct scout_server *s, struct scout__ns *ns)
{
	if (!ns->feed)
		return;
	ns->l1.watched = false;
	s->state->feed_bytes -= scout__feed_ring_bytes(&ns->feed->ring);
	scout__pool_do(&s->state->l1.pool, &ns->feed->chore, feed_free);
	ns->feed = NULL;
}

void
scout__feed_tick(struct scout_server *s, struct scout__ns *ns)
{
	if (ns->feed && (ns->n_peers == 0 || s->now_us > ns->feed->read_us + UNREAD_US))
		scout__feed_end(s, ns);
}

/* Inline: the compiler then builds no event in memory. */
SCOUT_ON_LOOP static inline __attribute__((always_inline)) void
put(struct scout__ns *ns, const struct scout__feed_event *event)
{
	struct scout__feed *feed = ns->feed;
	struct scout__writer w = {.cap = SCOUT__FEED_EVENT_MAX};

	if (!feed)
		return;
	w.buf = scout__feed_ring_room(&feed->ring);
	scout__put_feed_event(&w, event, ns->hash_bytes);
	SCOUT_ASSERT(!w.bad);
	scout__feed_ring_put(&feed->ring, w.len);
}

/* The event of @entry. False: no lookup finds it any more. */
SCOUT_ON_LOOP static inline bool
describe(const struct scout__ns_group *group, uint32_t entry, uint16_t kind, uint16_t medium,
	 struct scout__feed_event *ret)
{
	const struct scout__entry *e = &group->index->entries[entry];
	const struct scout__description *d = scout__index_description(group->index, entry);
	const struct scout__space *space;

	if (e->space < group->ns->space_floor)
		return false;
	space = &group->ns->tenants->spaces[scout__ns_space_index(group->ns, e->space)];
	if (space->id != e->space)
		return false;
	*ret = (struct scout__feed_event){
		.kind = kind,
		.medium = medium,
		.group = group->number,
		.tenant = {space->tenant, space->tenant_len},
		.hash = e->hash,
	};
	if (d && kind == SCOUT_EVENT_STORED)
		ret->description = (struct scout__str){d->bytes, d->len};
	return true;
}

void
scout__feed_hit_changed(struct scout__chunk_index *index, uint32_t entry, bool is_hit)
{
	const struct scout__ns_group *group = index->user;
	struct scout__feed_event event;

	if (describe(group, entry, is_hit ? SCOUT_EVENT_STORED : SCOUT_EVENT_REMOVED, SCOUT_MEDIUM_L1, &event))
		put(group->ns, &event);
}

void
scout__feed_saved(struct scout__ns_group *group, uint32_t entry)
{
	struct scout__feed_event event;

	if (group->ns->feed && describe(group, entry, SCOUT_EVENT_STORED, SCOUT_MEDIUM_L2, &event))
		put(group->ns, &event);
}

void
scout__feed_cleared(struct scout__ns *ns)
{
	put(ns, &(struct scout__feed_event){.kind = SCOUT_EVENT_CLEARED});
}

void
scout__feed_dropped(struct scout__ns *ns, const struct scout__str *tenant)
{
	put(ns, &(struct scout__feed_event){.kind = SCOUT_EVENT_DROPPED, .tenant = *tenant});
}

bool
scout__feed_put_hit(struct scout__ns_group *group, uint32_t entry, struct scout__writer *w)
{
	struct scout__feed_event event;

	if (!group->index->entries[entry].in_use || !scout__index_is_hit(group->index, entry) ||
	    !describe(group, entry, SCOUT_EVENT_STORED, SCOUT_MEDIUM_L1, &event))
		return false;
	scout__put_feed_event(w, &event, group->ns->hash_bytes);
	return true;
}
