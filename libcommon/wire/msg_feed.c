/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of FEED. See msg_internal.h. Any thread. */
#include "msg_internal.h"

void
scout__put_feed(struct scout__writer *w, const struct scout__feed_msg *m)
{
	scout__put_u64(w, m->feed);
	scout__put_u64(w, m->sequence);
	scout__put_u64(w, m->cursor);
}

static struct scout__feed_msg
read_feed(struct scout__reader *r)
{
	struct scout__feed_msg m = {.feed = scout__get_u64(r)};

	m.sequence = scout__get_u64(r);
	m.cursor = scout__get_u64(r);
	return m;
}

int
scout__get_feed(const struct scout__op *op, struct scout__feed_msg *ret, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__feed_msg m = read_feed(&r);
	const char *bad = NULL;
	int status;

	if (m.feed == 0)
		bad = m.sequence != 0 ? "sequence" : m.cursor != 0 ? "cursor" : NULL;
	status = scout__body_judge(&r, 0, bad, ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

/* @ret_reserved: the field that must be 0. */
static bool
read_event(struct scout__reader *r, unsigned hash_bytes, struct scout__feed_event *ret, uint16_t *ret_reserved)
{
	struct scout__feed_event m = {.kind = scout__get_u16(r)};

	m.medium = scout__get_u16(r);
	m.group = scout__get_u16(r);
	*ret_reserved = scout__get_u16(r);
	scout__get_view(r, &m.tenant);
	m.hash = scout__get_bytes(r, hash_bytes);
	scout__get_view(r, &m.description);
	if (r->bad)
		return false;
	*ret = m;
	return true;
}

bool
scout__get_feed_event(struct scout__reader *r, unsigned hash_bytes, struct scout__feed_event *ret)
{
	uint16_t reserved;

	return read_event(r, hash_bytes, ret, &reserved);
}

static const char *
event_bad_field(const struct scout__feed_event *m)
{
	bool is_of_one = m->kind == SCOUT_EVENT_STORED || m->kind == SCOUT_EVENT_REMOVED;

	if (m->kind < SCOUT_EVENT_STORED || m->kind > SCOUT_EVENT_LAST)
		return "kind";
	if (is_of_one ? m->medium == 0 || m->medium > SCOUT_MEDIUM_LAST : m->medium != 0)
		return "medium";
	if (!scout__is_name(&m->tenant))
		return "tenant";
	return m->description.len > SCOUT_MAX_DESCRIPTION ? "description" : NULL;
}

void
scout__put_feed_head(struct scout__writer *w, const struct scout__feed_reply *m)
{
	scout__put_feed(w, &m->next);
	scout__put_u32(w, m->flags);
	scout__put_u32(w, m->n);
}

int
scout__get_feed_reply(const struct scout__op *op, unsigned hash_bytes, struct scout__feed_reply *ret,
		      const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__feed_reply m = {.next = read_feed(&r)};
	const char *bad = m.next.feed == 0 ? "feed" : NULL;
	uint32_t reserved;
	int status;

	m.flags = scout__get_u32(&r);
	m.n = scout__get_u32(&r);
	reserved = m.flags & ~(SCOUT_FEED_LOST | SCOUT_FEED_MORE);
	m.events = r;
	for (uint32_t i = 0; i < m.n && !r.bad; i++) {
		struct scout__feed_event event;
		uint16_t zero;

		if (!read_event(&r, hash_bytes, &event, &zero))
			break;
		reserved |= zero;
		if (!bad)
			bad = event_bad_field(&event);
	}
	status = scout__body_judge(&r, reserved, bad, ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}
