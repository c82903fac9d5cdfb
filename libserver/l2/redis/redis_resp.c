/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_resp.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <hiredis/hiredis.h>

#include "number.h"

/*
 * DESIGN
 *
 * Purpose: the words of Redis, apart from sockets, so that tests need no socket.
 *
 * Commands are written by hand and not by redisFormatCommandArgv(): that function allocates for each command and would
 * copy the value, megabytes, into the allocation. hiredis reads replies, except the one line before a value (its
 * length), which must be read before the value, so that the value can go straight into its slot.
 *
 * Threads: any; nothing is kept.
 */

#define KEY_PREFIX "kvscout:3:" /* the number grows with the format of keys and objects */

void
scout__redis_key(struct scout__l2_digest digest, char ret_key[SCOUT__REDIS_KEY_BYTES + 1])
{
	_Static_assert(sizeof(KEY_PREFIX) - 1 + 32 == SCOUT__REDIS_KEY_BYTES, "the key's length");
	memcpy(ret_key, KEY_PREFIX, sizeof(KEY_PREFIX) - 1);
	scout__l2_digest_text(digest, ret_key + sizeof(KEY_PREFIX) - 1);
}

void
scout__redis_record_key(struct scout__l2_digest digest, char ret_key[SCOUT__REDIS_KEY_BYTES + 1])
{
	scout__redis_key(digest, ret_key);
	ret_key[sizeof(KEY_PREFIX) - 3] = 'r';
}

uint16_t
scout__redis_slot(const char *key, size_t len)
{
	/* Four bits at a time: polynomial 0x1021. */
	static const uint16_t table[16] = {0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
					   0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef};
	unsigned crc = 0;

	for (size_t i = 0; i < len; i++) {
		unsigned byte = (unsigned char)key[i];

		crc = (crc << 4 & 0xffff) ^ table[crc >> 12 ^ byte >> 4];
		crc = (crc << 4 & 0xffff) ^ table[crc >> 12 ^ (byte & 15)];
	}
	return (uint16_t)(crc % SCOUT__REDIS_SLOTS);
}

static void
put_number_line(struct scout__writer *w, char mark, uint64_t number)
{
	char line[32];
	int len = snprintf(line, sizeof(line), "%c%" PRIu64 "\r\n", mark, number);

	scout__put_bytes(w, line, (size_t)len);
}

void
scout__redis_put_argc(struct scout__writer *w, uint32_t argc)
{
	put_number_line(w, '*', argc);
}

void
scout__redis_put_length(struct scout__writer *w, uint64_t len)
{
	put_number_line(w, '$', len);
}

void
scout__redis_put_arg(struct scout__writer *w, const char *arg, size_t len)
{
	put_number_line(w, '$', len);
	scout__put_bytes(w, arg, len);
	scout__put_bytes(w, "\r\n", 2);
}

void
scout__redis_put_words(struct scout__writer *w, const char *const *words)
{
	uint32_t n = 0;

	while (words[n])
		n++;
	scout__redis_put_argc(w, n);
	for (uint32_t i = 0; i < n; i++)
		scout__redis_put_arg(w, words[i], strlen(words[i]));
}

int
scout__redis_bulk_line(const uint8_t *p, size_t n, int64_t *ret_len)
{
	int64_t len = 0;
	size_t i = 1;

	if (n == 0)
		return 0;
	if (p[0] != '$')
		return -1;
	if (n >= 2 && p[1] == '-') {
		if (n < 5)
			return memcmp(p, "$-1\r\n", n) == 0 ? 0 : -1;
		if (memcmp(p, "$-1\r\n", 5) != 0)
			return -1;
		*ret_len = -1;
		return 5;
	}
	for (; i < n && p[i] >= '0' && p[i] <= '9'; i++) {
		if (i > 10)
			return -1; /* more digits than any length has */
		len = len * 10 + (p[i] - '0');
	}
	if (i == n)
		return 0;
	if (i == 1 || p[i] != '\r')
		return -1;
	if (i + 1 == n)
		return 0;
	if (p[i + 1] != '\n')
		return -1;
	*ret_len = len;
	return (int)i + 2;
}

/* " 3999 127.0.0.1:6381"; the host may be empty, and may hold colons (IPv6). */
static bool
read_redirect(const char *text, struct scout__redis_redirect *ret)
{
	struct scout__redis_redirect out;
	uint32_t slot, port;
	const char *colon, *after;
	size_t len;

	if (*text++ != ' ' || !scout__take_number(&text, SCOUT__REDIS_SLOTS - 1, &slot) || *text++ != ' ')
		return false;
	colon = strrchr(text, ':');
	if (!colon)
		return false;
	len = (size_t)(colon - text);
	after = colon + 1;
	if (len >= sizeof(out.host) || !scout__take_number(&after, 65535, &port) || *after || port == 0)
		return false;
	out.slot = (uint16_t)slot;
	out.port = (uint16_t)port;
	memcpy(out.host, text, len);
	out.host[len] = '\0';
	if (strcmp(out.host, "?") == 0)
		out.host[0] = '\0';
	*ret = out;
	return true;
}

static bool
begins_with(const char *text, const char *word)
{
	size_t len = strlen(word);

	return strncmp(text, word, len) == 0 && (text[len] == ' ' || text[len] == '\0');
}

enum scout__redis_error
scout__redis_kind_of(const char *text, struct scout__redis_redirect *ret_redirect)
{
	static const struct {
		const char *word;
		enum scout__redis_error error;
	} words[] = {
		{"TRYAGAIN", SCOUT__REDIS_TRYAGAIN}, {"CLUSTERDOWN", SCOUT__REDIS_DOWN},
		{"MASTERDOWN", SCOUT__REDIS_DOWN},   {"LOADING", SCOUT__REDIS_LOADING},
		{"READONLY", SCOUT__REDIS_READONLY}, {"OOM", SCOUT__REDIS_OOM},
		{"NOAUTH", SCOUT__REDIS_AUTH},       {"WRONGPASS", SCOUT__REDIS_AUTH},
		{"NOPERM", SCOUT__REDIS_NOPERM},     {"MISCONF", SCOUT__REDIS_MISCONF},
	};

	if (begins_with(text, "MOVED"))
		return read_redirect(text + 5, ret_redirect) ? SCOUT__REDIS_MOVED : SCOUT__REDIS_OTHER;
	if (begins_with(text, "ASK"))
		return read_redirect(text + 3, ret_redirect) ? SCOUT__REDIS_ASK : SCOUT__REDIS_OTHER;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (begins_with(text, words[i].word))
			return words[i].error;
	return SCOUT__REDIS_OTHER;
}

void
scout__redis_error_words(const char *text, bool is_of_auth, char *ret_words, size_t len)
{
	/* Codes are upper case letters; anything else is not trusted into a log. ERR names the command and its arguments. */
	size_t code = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
	size_t n = is_of_auth || text[code] != ' ' ? code : strcspn(text, code == 3 ? ".`'" : ".");

	(void)snprintf(ret_words, len, "%.*s", (int)(code ? n : 0), text);
}

static bool
is_number(const struct redisReply *reply, long long max)
{
	return reply && reply->type == REDIS_REPLY_INTEGER && reply->integer >= 0 && reply->integer <= max;
}

/* [first, last, [host, port, ...], replicas ...]; the slots it covers, or -1. */
static int
read_range(const struct redisReply *range,
	   bool (*add)(void *user, uint16_t first, uint16_t last, const char *host, uint16_t port), void *user)
{
	const struct redisReply *master, *host;
	const char *name = "";

	if (!range || range->type != REDIS_REPLY_ARRAY || range->elements < 3)
		return -1;
	if (!is_number(range->element[0], SCOUT__REDIS_SLOTS - 1) ||
	    !is_number(range->element[1], SCOUT__REDIS_SLOTS - 1) ||
	    range->element[0]->integer > range->element[1]->integer)
		return -1;
	master = range->element[2];
	if (!master || master->type != REDIS_REPLY_ARRAY || master->elements < 2 ||
	    !is_number(master->element[1], 65535))
		return -1;
	host = master->element[0];
	/* Unknown: nil, empty, or "?" if the cluster prefers host names and this node has none. */
	if (host && host->type == REDIS_REPLY_STRING && strcmp(host->str, "?") != 0)
		name = host->str;
	if (strlen(name) >= SCOUT__REDIS_HOST_BYTES || master->element[1]->integer == 0)
		return -1;
	if (!add(user, (uint16_t)range->element[0]->integer, (uint16_t)range->element[1]->integer, name,
		 (uint16_t)master->element[1]->integer))
		return -1;
	return (int)(range->element[1]->integer - range->element[0]->integer + 1);
}

int
scout__redis_read_slots(const struct redisReply *reply,
			bool (*add)(void *user, uint16_t first, uint16_t last, const char *host, uint16_t port),
			void *user)
{
	int served = 0;

	if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements > SCOUT__REDIS_SLOTS)
		return -1;
	for (size_t i = 0; i < reply->elements; i++) {
		int n = read_range(reply->element[i], add, user);

		if (n < 0)
			return -1;
		served += n;
	}
	return served;
}
