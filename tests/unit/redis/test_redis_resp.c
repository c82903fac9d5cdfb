/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_resp.h"

#include <string.h>

#include <hiredis/hiredis.h>

#include "check_main.h"

START_TEST(a_key_is_a_prefix_and_the_digest)
{
	struct scout__l2_digest digest = {.lo = 1, .hi = UINT64_C(0xfedcba9876543210)};
	char key[SCOUT__REDIS_KEY_BYTES + 1], text[33];

	scout__redis_key(digest, key);
	scout__l2_digest_text(digest, text);
	ck_assert_uint_eq(strlen(key), SCOUT__REDIS_KEY_BYTES);
	ck_assert(strncmp(key, "kvscout:3:", 10) == 0);
	ck_assert_str_eq(key + 10, text);
}
END_TEST

START_TEST(slots_are_those_of_the_cluster_specification)
{
	/* CRC16("123456789") is the specification's own check value. */
	ck_assert_uint_eq(scout__redis_slot("123456789", 9), 0x31c3 % 16384);
	ck_assert_uint_eq(scout__redis_slot("foo", 3), 12182);
	ck_assert_uint_eq(scout__redis_slot("", 0), 0);
}
END_TEST

START_TEST(commands_are_arrays_of_bulk_strings)
{
	static const char *const words[] = {"GET", "a b", "", NULL};
	uint8_t buf[64];
	struct scout__writer w = {.buf = buf, .cap = sizeof(buf)};
	const char *want = "*3\r\n$3\r\nGET\r\n$3\r\na b\r\n$0\r\n\r\n";

	scout__redis_put_words(&w, words);
	ck_assert(!w.bad);
	ck_assert_uint_eq(w.len, strlen(want));
	ck_assert_mem_eq(buf, want, w.len);
}
END_TEST

static int
bulk(const char *text, int64_t *ret_len)
{
	return scout__redis_bulk_line((const uint8_t *)text, strlen(text), ret_len);
}

START_TEST(the_line_before_a_value_is_read_whole_or_not_at_all)
{
	static const char line[] = "$1048576\r\nrest";
	int64_t len = -7;

	for (size_t n = 0; n < 10; n++)
		ck_assert_int_eq(scout__redis_bulk_line((const uint8_t *)line, n, &len), 0);
	ck_assert_int_eq(len, -7);
	ck_assert_int_eq(bulk(line, &len), 10);
	ck_assert_int_eq(len, 1048576);
	ck_assert_int_eq(bulk("$0\r\n\r\n", &len), 4);
	ck_assert_int_eq(len, 0);
	ck_assert_int_eq(bulk("$-", &len), 0);
	ck_assert_int_eq(bulk("$-1\r\n", &len), 5);
	ck_assert_int_eq(len, -1);
}
END_TEST

START_TEST(a_line_that_is_no_length_is_refused)
{
	static const char *const bad[] = {"+OK\r\n", "$\r\n",   "$-2\r\n", "$-1x\r\n",         "$1x\r\n",
					  "$12\rx",  "$ 1\r\n", "$+1\r\n", "$99999999999\r\n", "$1\n"};
	int64_t len = -7;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(bulk(bad[i], &len) == -1, "%s", bad[i]);
	ck_assert_int_eq(len, -7);
}
END_TEST

START_TEST(redirects_name_a_slot_and_a_node)
{
	struct scout__redis_redirect to = {.slot = 9};

	ck_assert_int_eq(scout__redis_kind_of("MOVED 3999 127.0.0.1:6381", &to), SCOUT__REDIS_MOVED);
	ck_assert_uint_eq(to.slot, 3999);
	ck_assert_str_eq(to.host, "127.0.0.1");
	ck_assert_uint_eq(to.port, 6381);
	ck_assert_int_eq(scout__redis_kind_of("ASK 16383 ::1:7000", &to), SCOUT__REDIS_ASK);
	ck_assert_uint_eq(to.slot, 16383);
	ck_assert_str_eq(to.host, "::1");
	ck_assert_uint_eq(to.port, 7000);
	/* Unknown to itself: where it was asked. */
	ck_assert_int_eq(scout__redis_kind_of("MOVED 0 :6381", &to), SCOUT__REDIS_MOVED);
	ck_assert_str_eq(to.host, "");
	ck_assert_int_eq(scout__redis_kind_of("MOVED 0 ?:6381", &to), SCOUT__REDIS_MOVED);
	ck_assert_str_eq(to.host, "");
}
END_TEST

START_TEST(malformed_redirects_are_errors_like_others)
{
	static const char *const bad[] = {"MOVED",       "MOVED ",       "MOVED 16384 h:1",  "MOVED 1 h",
					  "MOVED 1 h:",  "MOVED 1 h:0",  "MOVED 1 h:x",      "MOVED 1 h:65536",
					  "MOVED x h:1", "ASK",          "MOVED 1 h:1 more", "ASK 1",
					  "MOVED 1",     "MOVEDX 1 h:1", "MOVED -1 h:1"};
	struct scout__redis_redirect to = {.slot = 9};
	char text[512] = "MOVED 1 ";

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(scout__redis_kind_of(bad[i], &to) == SCOUT__REDIS_OTHER, "%s", bad[i]);
	memset(text + 8, 'h', SCOUT__REDIS_HOST_BYTES);
	memcpy(text + 8 + SCOUT__REDIS_HOST_BYTES, ":1", 3);
	ck_assert_int_eq(scout__redis_kind_of(text, &to), SCOUT__REDIS_OTHER);
	ck_assert_uint_eq(to.slot, 9);
}
END_TEST

START_TEST(errors_are_told_by_their_first_words)
{
	static const struct {
		const char *text, *words;
		bool is_of_auth;
	} said[] = {
		{"NOPERM this user has no permissions", "NOPERM this user has no permissions", false},
		{"MISCONF it can't save. Commands that", "MISCONF it can't save", false},
		{"ERR unknown command 'GET', with args beginning with: 'x'", "ERR unknown command ", false},
		{"WRONGPASS invalid secret", "WRONGPASS", true},
		{"CLUSTERDOWN", "CLUSTERDOWN", false},
		{"secret", "", false},
	};
	struct scout__redis_redirect to;
	char words[80];

	ck_assert_int_eq(scout__redis_kind_of("TRYAGAIN Multiple keys", &to), SCOUT__REDIS_TRYAGAIN);
	ck_assert_int_eq(scout__redis_kind_of("CLUSTERDOWN Hash slot not served", &to), SCOUT__REDIS_DOWN);
	ck_assert_int_eq(scout__redis_kind_of("MASTERDOWN Link", &to), SCOUT__REDIS_DOWN);
	ck_assert_int_eq(scout__redis_kind_of("LOADING Redis is", &to), SCOUT__REDIS_LOADING);
	ck_assert_int_eq(scout__redis_kind_of("READONLY You can't", &to), SCOUT__REDIS_READONLY);
	ck_assert_int_eq(scout__redis_kind_of("OOM command not allowed", &to), SCOUT__REDIS_OOM);
	ck_assert_int_eq(scout__redis_kind_of("NOAUTH Authentication required.", &to), SCOUT__REDIS_AUTH);
	ck_assert_int_eq(scout__redis_kind_of("WRONGPASS", &to), SCOUT__REDIS_AUTH);
	ck_assert_int_eq(scout__redis_kind_of("NOPERM this user", &to), SCOUT__REDIS_NOPERM);
	ck_assert_int_eq(scout__redis_kind_of("MISCONF Redis is configured", &to), SCOUT__REDIS_MISCONF);
	ck_assert_int_eq(scout__redis_kind_of("OOMX", &to), SCOUT__REDIS_OTHER);
	for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
		scout__redis_error_words(said[i].text, said[i].is_of_auth, words, sizeof(words));
		ck_assert_str_eq(words, said[i].words);
	}
}
END_TEST

/* ---- the slot map ---- */

struct ranges {
	unsigned n;
	unsigned first[4], last[4], port[4];
	char host[4][32];
	unsigned limit;
};

static bool
add(void *user, uint16_t first, uint16_t last, const char *host, uint16_t port)
{
	struct ranges *r = user;

	if (r->n == r->limit)
		return false;
	r->first[r->n] = first;
	r->last[r->n] = last;
	r->port[r->n] = port;
	(void)snprintf(r->host[r->n++], sizeof(r->host[0]), "%s", host);
	return true;
}

static int
read_slots(const char *text, struct ranges *ret)
{
	redisReader *reader = redisReaderCreate();
	void *reply = NULL;
	int served;

	*ret = (struct ranges){.limit = 4};
	ck_assert_int_eq(redisReaderFeed(reader, text, strlen(text)), REDIS_OK);
	ck_assert_int_eq(redisReaderGetReply(reader, &reply), REDIS_OK);
	ck_assert_ptr_nonnull(reply);
	served = scout__redis_read_slots(reply, add, ret);
	freeReplyObject(reply);
	redisReaderFree(reader);
	return served;
}

#define NODE(host, port) "*3\r\n" host ":" port "\r\n$2\r\nid\r\n"

START_TEST(a_slot_map_is_ranges_with_their_masters)
{
	struct ranges got;

	ck_assert_int_eq(
		read_slots("*3\r\n"
			   "*4\r\n:0\r\n:5460\r\n" NODE("$2\r\nh1\r\n", "7000")
				   NODE("$2\r\nh9\r\n", "7009") "*3\r\n:5461\r\n:5461\r\n" NODE(
					   "$-1\r\n", "7001") "*3\r\n:5462\r\n:16383\r\n" NODE("$1\r\n?\r\n", "7002"),
			   &got),
		16384);
	ck_assert_uint_eq(got.n, 3);
	ck_assert_str_eq(got.host[0], "h1");
	ck_assert_uint_eq(got.port[0], 7000);
	ck_assert_uint_eq(got.last[0], 5460);
	ck_assert_uint_eq(got.first[1], 5461);
	ck_assert_str_eq(got.host[1], "");
	ck_assert_str_eq(got.host[2], "");
	ck_assert_uint_eq(got.last[2], 16383);
	ck_assert_int_eq(read_slots("*0\r\n", &got), 0);
}
END_TEST

START_TEST(a_malformed_slot_map_is_refused)
{
	static const char *const bad[] = {
		"+OK\r\n",
		":1\r\n",
		"*1\r\n:1\r\n",
		"*1\r\n*2\r\n:0\r\n:1\r\n",
		"*1\r\n*3\r\n:0\r\n:16384\r\n" NODE("$1\r\nh\r\n", "1"),
		"*1\r\n*3\r\n:2\r\n:1\r\n" NODE("$1\r\nh\r\n", "1"),
		"*1\r\n*3\r\n:-1\r\n:1\r\n" NODE("$1\r\nh\r\n", "1"),
		"*1\r\n*3\r\n:0\r\n:1\r\n" NODE("$1\r\nh\r\n", "0"),
		"*1\r\n*3\r\n:0\r\n:1\r\n" NODE("$1\r\nh\r\n", "65536"),
		"*1\r\n*3\r\n:0\r\n:1\r\n*1\r\n$1\r\nh\r\n",
		"*1\r\n*3\r\n:0\r\n:1\r\n$1\r\nh\r\n",
		"*1\r\n*3\r\n$1\r\n0\r\n:1\r\n" NODE("$1\r\nh\r\n", "1"),
	};
	struct ranges got;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(read_slots(bad[i], &got) == -1, "%zu", i);
}
END_TEST

START_TEST(a_map_that_is_not_taken_is_refused)
{
	redisReader *reader = redisReaderCreate();
	const char *text = "*1\r\n*3\r\n:0\r\n:1\r\n" NODE("$1\r\nh\r\n", "1");
	struct ranges none = {.limit = 0};
	void *reply = NULL;

	ck_assert_int_eq(redisReaderFeed(reader, text, strlen(text)), REDIS_OK);
	ck_assert_int_eq(redisReaderGetReply(reader, &reply), REDIS_OK);
	ck_assert_int_eq(scout__redis_read_slots(reply, add, &none), -1);
	ck_assert_int_eq(scout__redis_read_slots(NULL, add, &none), -1);
	freeReplyObject(reply);
	redisReaderFree(reader);
}
END_TEST
