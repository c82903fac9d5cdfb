/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <hiredis/hiredis.h>

/*
 * DESIGN
 *
 * Purpose: turn the bytes of one link into events: a reply, a value that has arrived, or a trouble. Nothing here acts
 * on events; redis_reply.c takes one at a time, and may close the link between two.
 *
 * hiredis' reader reads all replies but values. A value is read into the slot of the pool by readv(), and its checksum
 * is taken while the bytes are still in the cache: hiredis would gather it in a string of its own (grown by 1 MiB at a
 * time), hand over that string, and have it copied from there. So the reader must never be fed what follows a reply: it
 * gets bytes up to the next line feed, and then says whether they made a reply; a reply always ends with a line feed,
 * so its end is never missed.
 *
 * The header before the payload, and the length of the value, are checked before any byte gets into the slot. A
 * value that fails either is read and thrown away.
 *
 * Bounds: a reply that is no value has at most SCOUT__REDIS_REPLY_BYTES, an array no more elements than the largest
 * slot map; one turn reads a slice, so that other links are served while a large value arrives.
 *
 * Threads: the adapter's, which owns the buffers of each link.
 */

#define MAX_ELEMENTS SCOUT__REDIS_SLOTS

static const struct redis_event nothing = {.what = REDIS_EVENT_NONE};

static size_t
buffered(const struct redis_link *link)
{
	return link->in_len - link->in_at;
}

static struct redis_event
protocol_error(void)
{
	return (struct redis_event){.what = REDIS_EVENT_TROUBLE,
				    .trouble = {REDIS_BROKEN, EPROTO, "does not speak Redis' protocol"}};
}

/* ---- values ---- */

static void
value_begin(struct redis_link *link, uint64_t total)
{
	struct redis_value *v = &link->value;

	v->active = true;
	v->total = total;
	v->at = 0;
	v->data = NULL;
	v->result = SCOUT__L2_CORRUPT;
	v->dropped = true;
	memset(v->header, 0, sizeof(v->header)); /* it may be shorter */
}

/*
 * The header is complete, or the value ends before it does: check it. Only its own version may remove an object of another format version:
 * whatever its length, such an object is a miss and not CORRUPT, because a CORRUPT object is removed.
 */
static void
value_header(struct redis_link *link, const struct redis_job *job)
{
	struct redis_value *v = &link->value;
	uint64_t bytes = v->total > SCOUT__L2_HEADER_BYTES ? v->total - SCOUT__L2_HEADER_BYTES : 0;
	enum scout__l2_header_error error = scout__l2_header_check(v->header, job->op->key, bytes, &v->want);

	if (scout__l2_header_is_other_format(v->header))
		v->result = SCOUT__L2_ABSENT;
	if (error != SCOUT__L2_HEADER_OK || bytes != job->op->bytes)
		return;
	(void)XXH3_128bits_reset(link->sum);
	v->result = SCOUT__L2_OK;
	v->dropped = false;
	v->data = job->op->data;
}

/* The oldest command is answered by a value. */
static struct redis_event
value_event(struct redis_link *link, enum scout__l2_result result)
{
	return (struct redis_event){
		.what = REDIS_EVENT_VALUE, .command = scout__redis_queue_pop(&link->sent), .result = result};
}

static struct redis_event
value_end(struct redis_link *link)
{
	struct redis_value *v = &link->value;

	v->active = false;
	if (!v->dropped) {
		XXH128_hash_t hash = XXH3_128bits_digest(link->sum);

		if (hash.low64 != v->want.lo || hash.high64 != v->want.hi)
			v->result = SCOUT__L2_CORRUPT;
	}
	return value_event(link, (enum scout__l2_result)v->result);
}

/* Payload bytes have arrived at @p: add them to the sum, and copy them to the slot unless they are there already. */
static void
value_take(struct redis_link *link, const uint8_t *p, uint64_t n, bool in_place)
{
	struct redis_value *v = &link->value;

	if (!v->dropped) {
		if (!in_place && v->data)
			memcpy(v->data + (v->at - SCOUT__L2_HEADER_BYTES), p, n);
		(void)XXH3_128bits_update(link->sum, p, n);
	}
	v->at += n;
}

static uint64_t
least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Take what the buffer has of the value: its end, a trouble, or nothing. */
static struct redis_event
value_feed(struct redis_link *link)
{
	struct redis_value *v = &link->value;
	const struct redis_command *command = link->sent.head;

	while (buffered(link) > 0) {
		const uint8_t *p = link->in + link->in_at;
		uint64_t n;

		if (v->at < least(v->total, SCOUT__L2_HEADER_BYTES)) {
			n = least(buffered(link), least(v->total, SCOUT__L2_HEADER_BYTES) - v->at);
			memcpy(v->header + v->at, p, n);
			v->at += n;
			if (v->at == least(v->total, SCOUT__L2_HEADER_BYTES) && command->job)
				value_header(link, command->job);
		} else if (v->at < v->total) {
			n = least(buffered(link), v->total - v->at);
			value_take(link, p, n, false);
		} else {
			n = 1;
			if (*p != (v->at == v->total ? '\r' : '\n'))
				return protocol_error();
			v->at++;
		}
		link->in_at += n;
		if (v->at == v->total + 2)
			return value_end(link);
	}
	return nothing;
}

/* ---- replies ---- */

static bool
is_value(const struct redis_link *link)
{
	const struct redis_command *command = link->sent.head;

	return link->fed == 0 && command->kind == REDIS_GET && link->in[link->in_at] == '$';
}

/* A value begins; a nil is an ABSENT value. False: the line with its length is not all there yet. */
static bool
begin_value(struct redis_link *link, struct redis_event *event)
{
	int64_t len = 0;
	int n = scout__redis_bulk_line(link->in + link->in_at, buffered(link), &len);

	if (n == 0)
		return false;
	if (n < 0 || len > (int64_t)SCOUT__REDIS_MAX_VALUE) {
		*event = protocol_error();
		return true;
	}
	link->in_at += (size_t)n;
	if (len < 0)
		*event = value_event(link, SCOUT__L2_ABSENT);
	else
		value_begin(link, (uint64_t)len);
	return true;
}

/* "*100000000\r\n" would have hiredis allocate for all of them. */
static bool
too_many_elements(const uint8_t *line, size_t n)
{
	uint32_t elements = 0;

	if (line[0] != '*')
		return false;
	for (size_t i = 1; i < n && line[i] >= '0' && line[i] <= '9'; i++) {
		elements = elements * 10 + (uint32_t)(line[i] - '0');
		if (elements > MAX_ELEMENTS)
			return true;
	}
	return false;
}

/* Feed hiredis to the end of a line. */
static struct redis_event
feed_line(struct redis_link *link)
{
	const uint8_t *p = link->in + link->in_at;
	const uint8_t *end = memchr(p, '\n', buffered(link));
	size_t n = end ? (size_t)(end - p) + 1 : buffered(link);
	void *reply = NULL;

	link->fed += n;
	link->in_at += n;
	if (link->fed > SCOUT__REDIS_REPLY_BYTES || too_many_elements(p, n) ||
	    redisReaderFeed(link->reader, (const char *)p, n) != REDIS_OK ||
	    (end && redisReaderGetReply(link->reader, &reply) != REDIS_OK))
		return protocol_error();
	if (!reply)
		return nothing;
	link->fed = 0;
	return (struct redis_event){
		.what = REDIS_EVENT_REPLY, .command = scout__redis_queue_pop(&link->sent), .reply = reply};
}

struct redis_event
scout__redis_link_next(struct redis_link *link)
{
	while (buffered(link) > 0) {
		struct redis_event event = nothing;

		if (link->value.active)
			event = value_feed(link);
		else if (!link->sent.head)
			event = protocol_error(); /* unasked: Redis sends this when it refuses a connection */
		else if (!is_value(link))
			event = feed_line(link);
		else if (!begin_value(link, &event))
			break;
		if (event.what != REDIS_EVENT_NONE)
			return event;
	}
	/* At most a piece of one line is left. */
	memmove(link->in, link->in + link->in_at, buffered(link));
	link->in_len = buffered(link);
	link->in_at = 0;
	return nothing;
}

/* ---- bytes ---- */

/* Read the value into the slot, and what follows into the buffer. */
static ssize_t
read_bytes(struct redis *r, struct redis_link *link, uint64_t *ret_direct)
{
	struct redis_value *v = &link->value;
	struct iovec iov[2];
	int n = 0;

	*ret_direct = 0;
	if (v->active && v->data && v->at >= SCOUT__L2_HEADER_BYTES && v->at < v->total) {
		*ret_direct = least(v->total - v->at, SCOUT__REDIS_SLICE_BYTES);
		iov[n].iov_base = v->data + (v->at - SCOUT__L2_HEADER_BYTES);
		iov[n++].iov_len = *ret_direct;
	}
	if (*ret_direct == 0 || v->at + *ret_direct == v->total) {
		iov[n].iov_base = link->in + link->in_len;
		iov[n++].iov_len = SCOUT__REDIS_BUFFER_BYTES - link->in_len;
	}
	return link->ssl ? r->tls->read(r, link, iov, (size_t)n) : readv(link->fd, iov, n);
}

struct redis_trouble
scout__redis_link_receive(struct redis *r, struct redis_link *link)
{
	uint64_t direct;
	ssize_t n = read_bytes(r, link, &direct);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return nothing.trouble;
	if (n < 0 && link->ssl && errno == EPROTO)
		return (struct redis_trouble){REDIS_UNTRUSTED, EPROTO, r->tls_text};
	if (n < 0)
		return (struct redis_trouble){REDIS_UNREACHABLE, errno, "the connection broke"};
	if (n == 0)
		return (struct redis_trouble){REDIS_UNREACHABLE, ECONNRESET, "it closed the connection"};
	scout__redis_link_moved(r, link, (uint64_t)n);
	if (direct > (uint64_t)n)
		direct = (uint64_t)n;
	if (direct > 0)
		value_take(link, link->value.data + (link->value.at - SCOUT__L2_HEADER_BYTES), direct, true);
	link->in_len += (size_t)n - direct;
	return nothing.trouble;
}
