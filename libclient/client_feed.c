/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The caller's half of the feed. The caller pulls: one request is under way at most, and `state` says whose the reader's fields are.
 * There are two pages, so that the next one is asked for while the caller still has views into the last one.
 *
 * Starting over is the server's word, or the client's first: a request with zeroes. Its first answer begins with START_OVER, so the
 * caller has one rule for the start, a restart of the server and a reader that was too slow.
 *
 * Rejected: a callback on the courier's thread (a slow one would delay lookups), pages that the courier fetches without being asked
 * (memory without a bound for a caller that has stopped reading).
 */
#include "client_internal.h"

#include <kvscout/client_feed.h>

#include "sized.h"

/* The answer has come: take it as the page to read. 0 or SCOUT_ERR_*. */
static int
take_page(struct scout_client *client)
{
	struct scout__feed_reader *feed = &client->feed;
	uint32_t page = feed->filling;
	const struct scout__op op = {.body = feed->pages[page].body, .length = (uint32_t)feed->pages[page].len};
	struct scout__feed_reply reply;
	const char *field;

	atomic_store_explicit(&feed->state, SCOUT__FEED_IDLE, memory_order_relaxed);
	if (feed->error)
		return feed->error;
	if (scout__get_feed_reply(&op, client->cfg.hash_bytes, &reply, &field) != SCOUT_WIRE_OK)
		return SCOUT_ERR_PROTOCOL;
	if (reply.flags & SCOUT_FEED_LOST) {
		feed->ask = (struct scout__feed_msg){.feed = 0};
		return 0;
	}
	feed->starts_over = feed->ask.feed == 0;
	feed->is_behind |= feed->starts_over;
	feed->catches_up = feed->is_behind && !(reply.flags & SCOUT_FEED_MORE);
	feed->ask = reply.next;
	feed->events = reply.events;
	feed->n_left = reply.n;
	feed->filling = !page;
	return 0;
}

static void
ask(struct scout_client *client)
{
	atomic_store_explicit(&client->feed.state, SCOUT__FEED_ASKED, memory_order_release);
	scout__client_push(client, SCOUT__WORD(SCOUT__WORD_FEED, 0));
}

static struct scout_feed_event
event_of(const struct scout__feed_event *m)
{
	struct scout_feed_event event = {
		.kind = m->kind,
		.medium = m->medium,
		.group = m->group,
		.tenant = m->tenant.p,
		.tenant_len = m->tenant.len,
		.description = m->description.p,
		.description_len = m->description.len,
	};

	if (m->kind == SCOUT_EVENT_STORED || m->kind == SCOUT_EVENT_REMOVED)
		event.hash = m->hash;
	return event;
}

/* The next event of the page. False: there is none. */
static bool
next_event(struct scout_client *client, struct scout_feed_event *ret)
{
	struct scout__feed_reader *feed = &client->feed;
	struct scout__feed_event m;

	if (feed->starts_over) {
		feed->starts_over = false;
		*ret = (struct scout_feed_event){.kind = SCOUT_FEED_START_OVER};
		return true;
	}
	if (feed->n_left > 0 && scout__get_feed_event(&feed->events, client->cfg.hash_bytes, &m)) {
		feed->n_left--;
		*ret = event_of(&m);
		return true;
	}
	if (!feed->catches_up)
		return false;
	feed->is_behind = feed->catches_up = false;
	*ret = (struct scout_feed_event){.kind = SCOUT_FEED_CAUGHT_UP};
	return true;
}

/* Whether all of the page has been told. */
static bool
is_read(const struct scout__feed_reader *feed)
{
	return feed->n_left == 0 && !feed->starts_over && !feed->catches_up;
}

static int
read_feed(struct scout_client *client, struct scout_feed_event *events, size_t size, size_t max)
{
	struct scout__feed_reader *feed = &client->feed;
	struct scout_feed_event event;
	size_t n = 0;
	int rc = 0;

	if (is_read(feed) && atomic_load_explicit(&feed->state, memory_order_acquire) == SCOUT__FEED_ANSWERED)
		rc = take_page(client);
	while (rc == 0 && n < max && n < INT32_MAX && next_event(client, &event)) {
		scout__sized_write((char *)events + n * size, size, &event, sizeof(event));
		n++;
	}
	if (is_read(feed) && atomic_load_explicit(&feed->state, memory_order_relaxed) == SCOUT__FEED_IDLE)
		ask(client);
	return rc ? rc : (int)n;
}

int
scout_feed_sized(struct scout_client *client, struct scout_feed_event *ret_events, size_t event_size, size_t max)
{
	if (!client || !ret_events || max == 0)
		return SCOUT_ERR_INVALID;
	if (client->n_links > 1 ||
	    scout__sized_check(SCOUT__SIZE_UP_TO(struct scout_feed_event, description_len), event_size))
		return SCOUT_ERR_UNSUPPORTED;
	if (!scout__client_enter(client))
		return SCOUT_ERR_FORKED;
	return scout__client_leave(client, read_feed(client, ret_events, event_size, max));
}
