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
#include "redis_rig.h"
#include "store.h"

/* What only Redis has, on one real redis-server; as redis_adapter_tls over TLS. */

#define MIB (UINT64_C(1) << 20)

static struct adapter_rig rig;
static char url[STORE_URL];

static void
set_up(void)
{
	rig = (struct adapter_rig){.vt = store_of_this_run()->adapter};
	store_of_this_run()->start(url);
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
	store_of_this_run()->stop();
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

START_TEST(objects_expire_after_ttl_and_no_store_makes_them_younger)
{
	struct adapter_object o;
	long long left;

	object_init(&o, 1, 5000);
	add_option("ttl=100");
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_OK);
	left = redis_number(&store_redis_server, "PTTL %s", key_of(&o));
	ck_assert_int_gt((int)left, 50000);
	ck_assert_int_le((int)left, 100000);
	(void)redis_number(&store_redis_server, "PEXPIRE %s 40000", key_of(&o));
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_PRESENT);
	ck_assert_int_le((int)redis_number(&store_redis_server, "PTTL %s", key_of(&o)), 40000);
	(void)redis_number(&store_redis_server, "PEXPIRE %s 1", key_of(&o));
	wait_until(object_exists(&rig, &o, 1) == 0)
		;
	ck_assert_int_eq(object_load(&rig, &o), SCOUT__L2_ABSENT);
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_OK);
	object_fini(&o);
}
END_TEST

/* ---- damage ---- */

START_TEST(a_key_of_another_type_is_an_error_and_stays)
{
	struct adapter_object o;

	object_init(&o, 1, 5000);
	adapter_up(&rig, url);
	(void)redis_number(&store_redis_server, "LPUSH %s x", key_of(&o));
	ck_assert_int_eq(object_load(&rig, &o), SCOUT__L2_ERROR);
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_PRESENT);
	ck_assert_int_eq((int)redis_number(&store_redis_server, "LLEN %s", key_of(&o)), 1);
	(void)redis_number(&store_redis_server, "DEL %s", key_of(&o));
	redis_ok(&store_redis_server, "SET %s damaged", key_of(&o));
	ck_assert_int_eq(object_remove(&rig, &o), SCOUT__L2_OK);
	ck_assert_int_eq((int)redis_number(&store_redis_server, "EXISTS %s", key_of(&o)), 0);
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
	redis_set(&store_redis_server, old_key, value, sizeof(value));
	object_init(&o, 1, 5000);
	adapter_up(&rig, url);
	ck_assert_int_eq(object_load(&rig, &o), SCOUT__L2_ABSENT);
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_OK);
	ck_assert_int_eq(object_load(&rig, &o), SCOUT__L2_OK);
	ck_assert_int_eq(object_remove(&rig, &o), SCOUT__L2_OK);
	ck_assert_int_eq((int)redis_number(&store_redis_server, "STRLEN %s", old_key), (int)sizeof(value));
	ck_assert_int_eq((int)redis_number(&store_redis_server, "DBSIZE"), 1);
	ck_assert_int_eq(strncmp(key_of(&o), "kvscout:3:", 10), 0);
	object_fini(&o);
}
END_TEST

/* ---- amounts ---- */

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
	redis_ok(&store_redis_server, "CONFIG SET maxmemory-policy noeviction");
	redis_ok(&store_redis_server, "CONFIG SET maxmemory 1mb");
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_FULL);
	ck_assert_int_eq(object_load(&rig, &small), SCOUT__L2_OK);
	ck_assert_uint_eq(object_exists(&rig, &small, 1), 1);
	redis_ok(&store_redis_server, "CONFIG SET maxmemory 0");
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_OK);
	ck_assert_int_eq(object_load(&rig, &o), SCOUT__L2_OK);
	object_fini(&o);
	object_fini(&small);
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
	(void)snprintf(url, sizeof(url), "redis://localhost:%u", store_redis_server.port);
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
	(void)snprintf(url, sizeof(url), "redis://127.0.0.1:%u,127.0.0.1:1", store_redis_server.port);
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_OK);
	adapter_wait_logged(&rig, "only the first");
	ck_assert_int_eq((int)redis_number(&store_redis_server, "DBSIZE"), 1);
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
	ck_assert_int_eq((int)redis_number(&store_redis_server, "DBSIZE"), 0);
	object_fini(&o);
}
END_TEST

int
main(void)
{
	return store_main();
}
