/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "l2_old_object.h"
#include "redis.h"
#include "redis_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter_rig.h"
#include "redis_tls_rig.h"

/* The adapter on one real redis-server; as redis_adapter_tls over TLS. */

#define MIB (UINT64_C(1) << 20)

static struct redis_server server;
static struct adapter_rig rig;
static char url[512];

static void
set_up(void)
{
	server = (struct redis_server){.pid = 0};
	rig = (struct adapter_rig){.vt = &scout__l2_redis};
	redis_start(&server, NULL);
	(void)snprintf(url, sizeof(url), "redis://127.0.0.1:%u", server.port);
#ifdef HAVE_LIBSSL
	if (!getenv("KVSCOUT_REDIS_TLS"))
		return;
	rig.vt = &scout__l2_rediss;
	(void)snprintf(url, sizeof(url), "rediss://127.0.0.1:%u?ca_file=%s/ca.pem",
		       (unsigned)redis_tls_start(&server, "server", "no"), server.folder);
#endif
}

static void
add_option(const char *option)
{
	size_t len = strlen(url);

	(void)snprintf(url + len, sizeof(url) - len, "%c%s", strchr(url, '?') ? '&' : '?', option);
}

static void
tear_down(void)
{
	if (rig.adapter)
		adapter_down(&rig);
	redis_kill(&server);
}

static const char *
key_of(const struct adapter_object *o)
{
	static char key[SCOUT__REDIS_KEY_BYTES + 1];

	scout__redis_key(o->key.digest, key);
	return key;
}

CASE_TIMEOUT(300);
CHECKED_FIXTURE(set_up, tear_down);

START_TEST(what_was_stored_is_there_and_loads)
{
	struct adapter_object o[3];

	for (uint32_t i = 0; i < 3; i++)
		object_init(&o[i], i, (i + UINT64_C(1)) * 100000);
	adapter_up(&rig, url);
	ck_assert_uint_eq(object_exists(&rig, o, 3), 0);
	ck_assert_int_eq(object_load(&rig, &o[0]), SCOUT__L2_ABSENT);
	ck_assert_int_eq(object_store(&rig, &o[0]), SCOUT__L2_OK);
	ck_assert_int_eq(object_store(&rig, &o[2]), SCOUT__L2_OK);
	object_begin_exists(&rig, &o[1], o, 3, 5000);
	ck_assert_int_eq(object_end(&o[1]), SCOUT__L2_OK);
	ck_assert_uint_eq(o[1].op.found[0], 1);
	ck_assert_uint_eq(o[1].op.found[1], 0);
	ck_assert_uint_eq(o[1].op.found[2], 1);
	ck_assert_int_eq(object_load(&rig, &o[0]), SCOUT__L2_OK);
	ck_assert_int_eq(object_load(&rig, &o[2]), SCOUT__L2_OK);
	ck_assert_int_eq(object_load(&rig, &o[1]), SCOUT__L2_ABSENT);
	for (uint32_t i = 0; i < 3; i++)
		object_fini(&o[i]);
}
END_TEST

START_TEST(the_value_is_the_header_and_the_payload_under_the_documented_key)
{
	struct adapter_object o;
	uint8_t header[SCOUT__L2_HEADER_BYTES];
	redisReply *reply;

	object_init(&o, 1, 5000);
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_OK);
	reply = redis_do(&server, "GET %s", key_of(&o));
	scout__l2_header_put(header, &o.key, o.bytes, scout__l2_sum(o.data, o.bytes));
	ck_assert_int_eq(reply->type, REDIS_REPLY_STRING);
	ck_assert_uint_eq(reply->len, sizeof(header) + o.bytes);
	ck_assert_mem_eq(reply->str, header, sizeof(header));
	ck_assert_mem_eq(reply->str + sizeof(header), o.data, o.bytes);
	ck_assert_int_eq((int)redis_number(&server, "PTTL %s", key_of(&o)), -1);
	freeReplyObject(reply);
	object_fini(&o);
}
END_TEST

START_TEST(a_store_of_what_is_there_changes_nothing)
{
	struct adapter_object o;

	object_init(&o, 1, 5000);
	adapter_up(&rig, url);
	redis_ok(&server, "SET %s other", key_of(&o));
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_PRESENT);
	ck_assert_int_eq((int)redis_number(&server, "STRLEN %s", key_of(&o)), 5);
	object_fini(&o);
}
END_TEST

START_TEST(objects_expire_after_ttl_and_no_store_makes_them_younger)
{
	struct adapter_object o;
	long long left;

	object_init(&o, 1, 5000);
	add_option("ttl=100");
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_OK);
	left = redis_number(&server, "PTTL %s", key_of(&o));
	ck_assert_int_gt((int)left, 50000);
	ck_assert_int_le((int)left, 100000);
	(void)redis_number(&server, "PEXPIRE %s 40000", key_of(&o));
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_PRESENT);
	ck_assert_int_le((int)redis_number(&server, "PTTL %s", key_of(&o)), 40000);
	(void)redis_number(&server, "PEXPIRE %s 1", key_of(&o));
	wait_until(object_exists(&rig, &o, 1) == 0)
		;
	ck_assert_int_eq(object_load(&rig, &o), SCOUT__L2_ABSENT);
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_OK);
	object_fini(&o);
}
END_TEST

/* ---- damage ---- */

START_TEST(a_flipped_bit_anywhere_is_damage_and_is_removed)
{
	struct adapter_object o;
	/* In the magic, key, checksum, padding, the header's own checksum; first, middle and last byte of the payload. */
	const uint32_t at[] = {0, 45, 30, 300, 511, 512, 2500, 5511};

	object_init(&o, 1, 5000);
	adapter_up(&rig, url);
	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		long long bit;

		ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_OK);
		bit = redis_number(&server, "GETBIT %s %u", key_of(&o), at[i] * 8 + 3);
		(void)redis_number(&server, "SETBIT %s %u %d", key_of(&o), at[i] * 8 + 3, bit ? 0 : 1);
		ck_assert_msg(object_load(&rig, &o) == SCOUT__L2_CORRUPT, "byte %u", at[i]);
		ck_assert_int_eq(object_remove(&rig, &o), SCOUT__L2_OK);
		ck_assert_msg(redis_number(&server, "EXISTS %s", key_of(&o)) == 0, "byte %u", at[i]);
	}
	object_fini(&o);
}
END_TEST

START_TEST(a_value_of_another_length_or_key_never_gets_into_the_slot)
{
	struct adapter_object o, other;
	const char *const lengths[] = {"0", "1", "511", "512", "513", "5511", "5513", "200000"};

	object_init(&o, 1, 5000);
	object_init(&other, 2, 5000);
	adapter_up(&rig, url);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		char *value = calloc(1, 200001);
		long n = strtol(lengths[i], NULL, 10);

		scout__l2_header_put((uint8_t *)value, &o.key, o.bytes, scout__l2_sum(o.data, o.bytes));
		memcpy(value + SCOUT__L2_HEADER_BYTES, o.data, o.bytes);
		redis_set(&server, key_of(&o), value, (size_t)n);
		ck_assert_msg(object_load(&rig, &o) == SCOUT__L2_CORRUPT, "%s bytes", lengths[i]);
		for (uint64_t b = 0; b < o.bytes; b++)
			ck_assert_uint_eq(o.slot[b], 0xee);
		ck_assert_int_eq(object_remove(&rig, &o), SCOUT__L2_OK);
		ck_assert_int_eq((int)redis_number(&server, "EXISTS %s", key_of(&o)), 0);
		free(value);
	}
	/* Another object's value, whole and sound, under this key. */
	ck_assert_int_eq(object_store(&rig, &other), SCOUT__L2_OK);
	{
		char to[SCOUT__REDIS_KEY_BYTES + 1];

		scout__redis_key(o.key.digest, to);
		(void)redis_number(&server, "COPY %s %s", key_of(&other), to);
	}
	ck_assert_int_eq(object_load(&rig, &o), SCOUT__L2_CORRUPT);
	for (uint64_t b = 0; b < o.bytes; b++)
		ck_assert_uint_eq(o.slot[b], 0xee);
	ck_assert_int_eq(object_remove(&rig, &o), SCOUT__L2_OK);
	ck_assert_int_eq((int)redis_number(&server, "EXISTS %s", key_of(&o)), 0);
	ck_assert_int_eq(object_load(&rig, &other), SCOUT__L2_OK);
	object_fini(&o);
	object_fini(&other);
}
END_TEST

START_TEST(a_sound_value_of_another_size_does_not_overrun_the_slot)
{
	struct adapter_object o;
	const uint64_t sizes[] = {4000, 4992, 5008, 9000, 300000};

	object_init(&o, 1, 5000);
	adapter_up(&rig, url);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint8_t *value = calloc(1, SCOUT__L2_HEADER_BYTES + sizes[i]);

		/* Of this key, and every checksum is right. */
		scout__l2_header_put(value, &o.key, sizes[i], scout__l2_sum(value + SCOUT__L2_HEADER_BYTES, sizes[i]));
		redis_set(&server, key_of(&o), value, SCOUT__L2_HEADER_BYTES + sizes[i]);
		memset(o.slot + o.bytes, 0x5a, 8); /* it has 8 bytes more than it says */
		ck_assert_msg(object_load(&rig, &o) == SCOUT__L2_CORRUPT, "%zu bytes", (size_t)sizes[i]);
		for (uint64_t b = 0; b < o.bytes + 8; b++)
			ck_assert_uint_eq(o.slot[b], b < o.bytes ? 0xee : 0x5a);
		free(value);
	}
	object_fini(&o);
}
END_TEST

START_TEST(a_key_of_another_type_is_an_error_and_stays)
{
	struct adapter_object o;

	object_init(&o, 1, 5000);
	adapter_up(&rig, url);
	(void)redis_number(&server, "LPUSH %s x", key_of(&o));
	ck_assert_int_eq(object_load(&rig, &o), SCOUT__L2_ERROR);
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_PRESENT);
	ck_assert_int_eq((int)redis_number(&server, "LLEN %s", key_of(&o)), 1);
	(void)redis_number(&server, "DEL %s", key_of(&o));
	redis_ok(&server, "SET %s damaged", key_of(&o));
	ck_assert_int_eq(object_remove(&rig, &o), SCOUT__L2_OK);
	ck_assert_int_eq((int)redis_number(&server, "EXISTS %s", key_of(&o)), 0);
	object_fini(&o);
}
END_TEST

START_TEST(an_object_of_another_format_version_is_a_miss_and_stays)
{
	struct adapter_object o;
	/* The version itself is whole in each; so long is the value. */
	const char *const lengths[] = {"10", "300", "512", "1000", "5511", "5512", "200000"};

	object_init(&o, 1, 5000);
	adapter_up(&rig, url);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		uint8_t *value = calloc(1, 200000);
		long n = strtol(lengths[i], NULL, 10);

		scout__l2_header_put(value, &o.key, o.bytes, scout__l2_sum(o.data, o.bytes));
		value[8]++; /* see object.h */
		memcpy(value + SCOUT__L2_HEADER_BYTES, o.data, o.bytes);
		redis_set(&server, key_of(&o), value, (size_t)n);
		/* Not CORRUPT: what is CORRUPT is removed. */
		ck_assert_msg(object_load(&rig, &o) == SCOUT__L2_ABSENT, "%s bytes", lengths[i]);
		for (uint64_t b = 0; b < o.bytes; b++)
			ck_assert_uint_eq(o.slot[b], 0xee);
		ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_PRESENT);
		ck_assert_int_eq((int)redis_number(&server, "STRLEN %s", key_of(&o)), (int)n);
		free(value);
	}
	object_fini(&o);
}
END_TEST

/* Its key has another prefix, by which its owner finds it: it is neither asked for nor touched. */
START_TEST(an_object_of_the_release_before_stays_under_its_own_prefix)
{
	static const char old_key[] = "kvscout:2:" OLD_OBJECT_DIGEST;
	uint8_t value[OLD_OBJECT_HEADER + OLD_OBJECT_PAYLOAD];
	struct adapter_object o;

	old_object_header(value);
	old_object_payload(value + OLD_OBJECT_HEADER);
	redis_set(&server, old_key, value, sizeof(value));
	object_init(&o, 1, 5000);
	adapter_up(&rig, url);
	ck_assert_int_eq(object_load(&rig, &o), SCOUT__L2_ABSENT);
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_OK);
	ck_assert_int_eq(object_load(&rig, &o), SCOUT__L2_OK);
	ck_assert_int_eq(object_remove(&rig, &o), SCOUT__L2_OK);
	ck_assert_int_eq((int)redis_number(&server, "STRLEN %s", old_key), (int)sizeof(value));
	ck_assert_int_eq((int)redis_number(&server, "DBSIZE"), 1);
	ck_assert_int_eq(strncmp(key_of(&o), "kvscout:3:", 10), 0);
	object_fini(&o);
}
END_TEST

START_TEST(removals_at_once_remove_each_its_own)
{
	struct adapter_object o[40];

	adapter_up(&rig, url);
	for (uint32_t i = 0; i < 40; i++) {
		object_init(&o[i], i, 5000);
		ck_assert_int_eq(object_store(&rig, &o[i]), SCOUT__L2_OK);
	}
	for (uint32_t i = 1; i < 40; i += 2)
		object_begin(&rig, &o[i], SCOUT__L2_REMOVE, 5000);
	for (uint32_t i = 1; i < 40; i += 2)
		ck_assert_int_eq(object_end(&o[i]), SCOUT__L2_OK);
	for (uint32_t i = 0; i < 40; i++) {
		ck_assert_int_eq((int)redis_number(&server, "EXISTS %s", key_of(&o[i])), i % 2 ? 0 : 1);
		ck_assert_int_eq(object_load(&rig, &o[i]), i % 2 ? SCOUT__L2_ABSENT : SCOUT__L2_OK);
		object_fini(&o[i]);
	}
}
END_TEST

/* ---- amounts ---- */

START_TEST(large_values_travel_whole)
{
	struct adapter_object o[3];
	const uint64_t bytes[] = {64 * MIB, 5 * MIB + 8, 64 * MIB};

	rig.timeout_ms = 8000;
	adapter_up(&rig, url);
	for (uint32_t i = 0; i < 3; i++) {
		object_init(&o[i], i, bytes[i]);
		object_begin(&rig, &o[i], SCOUT__L2_STORE, 8000);
	}
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_int_eq(object_end(&o[i]), SCOUT__L2_OK);
	for (uint32_t i = 0; i < 3; i++) {
		memset(o[i].slot, 0, o[i].bytes);
		object_begin(&rig, &o[i], SCOUT__L2_LOAD, 8000);
	}
	for (uint32_t i = 0; i < 3; i++) {
		ck_assert_int_eq(object_end(&o[i]), SCOUT__L2_OK);
		ck_assert(memcmp(o[i].slot, o[i].data, o[i].bytes) == 0);
		object_fini(&o[i]);
	}
}
END_TEST

START_TEST(ten_thousand_small_operations_at_once)
{
	enum {
		N = 10000
	};
	struct adapter_object *o = calloc(N, sizeof(*o));

	rig.max_ops = N;
	adapter_up(&rig, url);
	for (uint32_t i = 0; i < N; i++) {
		object_init(&o[i], i, 64);
		object_begin(&rig, &o[i], SCOUT__L2_STORE, 9000);
	}
	for (uint32_t i = 0; i < N; i++)
		ck_assert_int_eq(object_end(&o[i]), SCOUT__L2_OK);
	ck_assert_int_eq((int)redis_number(&server, "DBSIZE"), N);
	ck_assert_uint_eq(object_exists(&rig, o, 8192), 8192);
	for (uint32_t i = 0; i < N; i++) {
		memset(o[i].slot, 0, o[i].bytes);
		object_begin(&rig, &o[i], SCOUT__L2_LOAD, 9000);
	}
	for (uint32_t i = 0; i < N; i++) {
		ck_assert_int_eq(object_end(&o[i]), SCOUT__L2_OK);
		ck_assert(memcmp(o[i].slot, o[i].data, o[i].bytes) == 0);
		object_fini(&o[i]);
	}
	free(o);
}
END_TEST

START_TEST(more_questions_than_commands_are_all_answered)
{
	/* Six times 8192 keys: three times as many as there are commands. */
	static struct adapter_object o[64], asked[6];
	struct adapter_object *of = calloc(8192, sizeof(*of));

	adapter_up(&rig, url);
	for (uint32_t i = 0; i < 64; i++) {
		object_init(&o[i], i, 64);
		ck_assert_int_eq(object_store(&rig, &o[i]), SCOUT__L2_OK);
	}
	for (uint32_t i = 0; i < 8192; i++)
		of[i].key.digest = i % 128 == 5 ? o[i / 128].key.digest : (struct scout__l2_digest){.lo = i, .hi = 77};
	for (uint32_t i = 0; i < 6; i++)
		object_begin_exists(&rig, &asked[i], of, 8192, 9000);
	for (uint32_t i = 0; i < 6; i++) {
		ck_assert_int_eq(object_end(&asked[i]), SCOUT__L2_OK);
		for (uint32_t k = 0; k < 8192; k++)
			ck_assert_uint_eq(asked[i].op.found[k], k % 128 == 5);
		object_fini(&asked[i]);
	}
	for (uint32_t i = 0; i < 64; i++)
		object_fini(&o[i]);
	free(of);
}
END_TEST

START_TEST(a_value_that_redis_cannot_take_is_refused_with_a_reason)
{
	struct adapter_object o;

	object_init(&o, 1, 64);
	adapter_up(&rig, url);
	o.bytes = SCOUT__REDIS_MAX_VALUE - SCOUT__L2_HEADER_BYTES + 1; /* never read */
	object_begin(&rig, &o, SCOUT__L2_STORE, 1000);
	ck_assert_int_eq(object_end(&o), SCOUT__L2_FULL);
	ck_assert_int_eq(o.op.detail, EFBIG);
	ck_assert_uint_eq(adapter_logged(&rig, "Redis takes values up to 536870912 bytes"), 1);
	o.bytes = 64;
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_OK);
	object_fini(&o);
}
END_TEST

START_TEST(a_server_that_is_full_says_so_and_loads_go_on)
{
	struct adapter_object o, small;

	object_init(&o, 1, 4 * MIB);
	object_init(&small, 2, 100);
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &small), SCOUT__L2_OK);
	redis_ok(&server, "CONFIG SET maxmemory-policy noeviction");
	redis_ok(&server, "CONFIG SET maxmemory 1mb");
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_FULL);
	ck_assert_int_eq(object_load(&rig, &small), SCOUT__L2_OK);
	ck_assert_uint_eq(object_exists(&rig, &small, 1), 1);
	redis_ok(&server, "CONFIG SET maxmemory 0");
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_OK);
	ck_assert_int_eq(object_load(&rig, &o), SCOUT__L2_OK);
	object_fini(&o);
	object_fini(&small);
}
END_TEST

START_TEST(pins_and_empty_questions_end_at_once)
{
	struct adapter_object o;

	object_init(&o, 1, 64);
	adapter_up(&rig, url);
	ck_assert_uint_eq(object_exists(&rig, &o, 0), 0);
	object_begin_exists(&rig, &o, &o, 1, 1000);
	ck_assert_int_eq(object_end(&o), SCOUT__L2_OK);
	o.op.what = SCOUT__L2_UNPIN;
	atomic_store(&o.ended, 0);
	ck_assert(rig.vt->submit(rig.adapter, &o.op));
	ck_assert_int_eq(object_end(&o), SCOUT__L2_OK);
	object_fini(&o);
}
END_TEST

/* ---- URLs ---- */

START_TEST(wrong_urls_are_refused_each_with_its_reason)
{
	static const struct {
		const char *url;
		int code;
		const char *says;
	} wrong[] = {
		{"redis://", SCOUT_ERR_CONFIG_RANGE, "host is missing"},
		{"redis://h/1", SCOUT_ERR_CONFIG_RANGE, "takes no path"},
		{"redis://a,b?cluster=no", SCOUT_ERR_CONFIG_RANGE, "2 hosts with cluster=no"},
		{"redis://h?cluster=maybe", SCOUT_ERR_CONFIG_SYNTAX, "auto, yes, no"},
		{"redis://h?ttl=-1", SCOUT_ERR_CONFIG_RANGE, "ttl"},
		{"redis://h?ttl=999999999", SCOUT_ERR_CONFIG_RANGE, "315360000"},
		{"redis://h?db=1", SCOUT_ERR_CONFIG_KEY, "db"},
		{"redis://:p@h?password_file=/x", SCOUT_ERR_CONFIG_RANGE, "leave one of them out"},
		{"redis://h?user=kv", SCOUT_ERR_CONFIG_RANGE, "user has no password"},
		{"redis://h?password_file=/nonexistent/x", SCOUT_ERR_CONFIG_RANGE, "/nonexistent/x cannot be read"},
		{"redis://h?password_file=/dev/null", SCOUT_ERR_CONFIG_RANGE, "must be a regular file"},
	};
	char err[256];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		err[0] = '\0';
		ck_assert_int_eq(adapter_try(&rig, wrong[i].url, err, sizeof(err)), wrong[i].code);
		ck_assert_msg(strstr(err, wrong[i].says) != NULL, "%s: %s", wrong[i].url, err);
	}
}
END_TEST

START_TEST(a_host_may_be_a_name)
{
	struct adapter_object o;

	object_init(&o, 1, 5000);
	/* It may have an IPv6 address, too, on which nobody listens. */
	(void)snprintf(url, sizeof(url), "redis://localhost:%u", server.port);
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_OK);
	ck_assert_int_eq(object_load(&rig, &o), SCOUT__L2_OK);
	object_fini(&o);
}
END_TEST

START_TEST(a_name_that_does_not_exist_is_an_error_that_says_so)
{
	struct adapter_object o;

	object_init(&o, 1, 64);
	adapter_up(&rig, "redis://no-such-host.invalid?cluster=no");
	object_begin(&rig, &o, SCOUT__L2_LOAD, 15000);
	ck_assert_int_ne(object_end(&o), SCOUT__L2_OK);
	adapter_wait_logged(&rig, "cannot be resolved");
	object_fini(&o);
}
END_TEST

START_TEST(several_hosts_that_are_no_cluster_are_an_error_in_the_log)
{
	struct adapter_object o;

	object_init(&o, 1, 64);
	(void)snprintf(url, sizeof(url), "redis://127.0.0.1:%u,127.0.0.1:1", server.port);
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_OK);
	adapter_wait_logged(&rig, "only the first");
	ck_assert_int_eq((int)redis_number(&server, "DBSIZE"), 1);
	object_fini(&o);
}
END_TEST

START_TEST(cluster_yes_does_not_use_a_single_server)
{
	struct adapter_object o;

	object_init(&o, 1, 64);
	add_option("cluster=yes");
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_ERROR);
	adapter_wait_logged(&rig, "does not tell which node serves which slot");
	ck_assert_int_eq((int)redis_number(&server, "DBSIZE"), 0);
	object_fini(&o);
}
END_TEST

int
main(void)
{
	if (getenv("KVSCOUT_REDIS_TLS") && !redis_tls_can()) {
		(void)puts("1..0 # SKIP no openssl command, or a redis-server without TLS");
		return EXIT_SUCCESS;
	}
	return redis_rig_main(suite_of_this_file());
}
