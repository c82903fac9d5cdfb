/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <hiredis/hiredis.h>

#include "l2.h"

/*
 * DESIGN
 *
 * Purpose: bytes of one link in, replies out.
 *
 * Replies are read by hiredis' reader, all but values. A value is read into the slot of the pool by readv(), its checksum taken
 * while the bytes are still in the cache: hiredis would gather it in a string of its own (grown by 1 MiB at a time), hand over
 * that string, and have it copied from there. So the reader must never be fed what follows a reply: it gets bytes up to the
 * next line feed and is asked whether that made a reply; a reply always ends with a line feed, so its end is never missed.
 *
 * What is read before anything is believed: the length of the value against what is wanted, then the header in front of the
 * payload. A value that fails either is read and thrown away; nothing of it gets into the slot.
 *
 * Bounds: a reply that is no value has at most SCOUT__REDIS_REPLY_BYTES, an array no more elements than the largest slot map; one
 * turn reads a slice, so that other links are served while a large value arrives.
 *
 * Threads: the adapter's.
 */

#define MAX_ELEMENTS SCOUT__REDIS_SLOTS

static size_t
buffered(const struct redis_link *link)
{
	return link->in_len - link->in_at;
}

static void
protocol_error(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	scout__redis_link_lost(r, link, REDIS_BROKEN, EPROTO, "does not speak Redis' protocol");
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
 * The header is complete: is it what is wanted? An object of another format version is for that version to remove: whatever
 * its length, it is a miss and not CORRUPT, for what is CORRUPT is removed.
 */
static void
value_header(struct redis_link *link, const struct redis_job *job)
{
	struct redis_value *v = &link->value;
	uint64_t bytes = v->total > SCOUT__L2_HEADER_BYTES ? v->total - SCOUT__L2_HEADER_BYTES : 0;
	enum scout__l2_header_error error = scout__l2_header_check(v->header, job->op->key, bytes, &v->want);

	if (error == SCOUT__L2_HEADER_VERSION)
		v->result = SCOUT__L2_ABSENT;
	if (error != SCOUT__L2_HEADER_OK || bytes != job->op->bytes)
		return;
	(void)XXH3_128bits_reset(link->sum);
	v->result = SCOUT__L2_OK;
	v->dropped = false;
	v->data = job->op->data;
}

static void
value_end(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	struct redis_command *command = scout__redis_queue_pop(&link->sent);
	struct redis_value *v = &link->value;

	v->active = false;
	if (!v->dropped) {
		XXH128_hash_t hash = XXH3_128bits_digest(link->sum);

		if (hash.low64 != v->want.lo || hash.high64 != v->want.hi)
			v->result = SCOUT__L2_CORRUPT;
	}
	scout__redis_reply_value(r, link, command, (enum scout__l2_result)v->result);
}

/* Payload bytes at @p that passed: into the sum, and where they belong unless they are there already. */
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

/* Take what the buffer has of the value. False: the link was lost. */
static bool
value_feed(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	struct redis_value *v = &link->value;
	const struct redis_command *command = link->sent.head;

	while (buffered(link) > 0 && v->active) {
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
			if (*p != (v->at == v->total ? '\r' : '\n')) {
				protocol_error(r, link);
				return false;
			}
			v->at++;
		}
		link->in_at += n;
		if (v->at == v->total + 2)
			value_end(r, link);
	}
	return true;
}

/* ---- replies ---- */

static bool
is_value(const struct redis_link *link)
{
	const struct redis_command *command = link->sent.head;

	return link->fed == 0 && command->kind == REDIS_GET && link->in[link->in_at] == '$';
}

/* 1: begun (or answered), 0: more bytes are needed, -1: the link was lost. */
static int
begin_value(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	int64_t len = 0;
	int n = scout__redis_bulk_line(link->in + link->in_at, buffered(link), &len);

	if (n == 0)
		return 0;
	if (n < 0 || len > (int64_t)SCOUT__REDIS_MAX_VALUE) {
		protocol_error(r, link);
		return -1;
	}
	link->in_at += (size_t)n;
	if (len < 0)
		scout__redis_reply_value(r, link, scout__redis_queue_pop(&link->sent), SCOUT__L2_ABSENT);
	else
		value_begin(link, (uint64_t)len);
	return 1;
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

/* Feed hiredis to the end of a line. False: the link was lost. */
static bool
feed_line(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	const uint8_t *p = link->in + link->in_at;
	const uint8_t *end = memchr(p, '\n', buffered(link));
	size_t n = end ? (size_t)(end - p) + 1 : buffered(link);
	struct redis_command *command;
	void *reply = NULL;
	bool kept;

	link->fed += n;
	link->in_at += n;
	if (link->fed > SCOUT__REDIS_REPLY_BYTES || too_many_elements(p, n) ||
	    redisReaderFeed(link->reader, (const char *)p, n) != REDIS_OK ||
	    (end && redisReaderGetReply(link->reader, &reply) != REDIS_OK)) {
		protocol_error(r, link);
		return false;
	}
	if (!reply)
		return true;
	link->fed = 0;
	command = scout__redis_queue_pop(&link->sent);
	kept = scout__redis_reply(r, link, command, reply);
	freeReplyObject(reply);
	return kept;
}

/* Everything in the buffer. False: the link was lost. */
static bool
digest(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	while (buffered(link) > 0) { /* a link that was lost has none */
		int begun;

		if (link->value.active) {
			if (!value_feed(r, link))
				return false;
			continue;
		}
		if (!link->sent.head) {
			/* It says something without being asked. Redis does so when it refuses a connection. */
			protocol_error(r, link);
			return false;
		}
		if (!is_value(link)) {
			if (!feed_line(r, link))
				return false;
			continue;
		}
		begun = begin_value(r, link);
		if (begun < 0)
			return false;
		if (begun == 0)
			break;
	}
	if (link->fd < 0)
		return false;
	/* At most a piece of one line is left. */
	memmove(link->in, link->in + link->in_at, buffered(link));
	link->in_len = buffered(link);
	link->in_at = 0;
	return true;
}

/* ---- bytes ---- */

/* Into the slot as far as the value goes, and what follows into the buffer. */
static ssize_t
read_bytes(struct redis_link *link, uint64_t *ret_direct)
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
	return readv(link->fd, iov, n);
}

void
scout__redis_link_receive(struct redis *r, struct redis_link *link)
{
	uint64_t direct;
	ssize_t n = read_bytes(link, &direct);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		scout__redis_link_lost(r, link, REDIS_UNREACHABLE, n < 0 ? errno : ECONNRESET,
				       n < 0 ? "the connection broke" : "it closed the connection");
		return;
	}
	scout__redis_link_moved(r, link, (uint64_t)n);
	if (direct > (uint64_t)n)
		direct = (uint64_t)n;
	if (direct > 0)
		value_take(link, link->value.data + (link->value.at - SCOUT__L2_HEADER_BYTES), direct, true);
	link->in_len += (size_t)n - direct;
	(void)digest(r, link);
}
