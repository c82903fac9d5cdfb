/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "adapter_rig.h"
#include "redis_tls_rig.h"

/* The adapter on a real redis-server with TLS: what it trusts, what it does not, and the sentence that says so. */

#define MIB (UINT64_C(1) << 20)

static struct redis_server server;
static struct adapter_rig rig;
static uint16_t port;
static char url[512];

static void
set_up(void)
{
	server = (struct redis_server){.pid = 0};
	rig = (struct adapter_rig){.vt = &scout__l2_rediss};
	redis_start(&server, NULL);
}

static void
tear_down(void)
{
	if (rig.adapter)
		adapter_down(&rig);
	redis_kill(&server);
}

/* URL of @host with ca_file and @more. */
static const char *
of(const char *host, const char *ca, const char *more)
{
	(void)snprintf(url, sizeof(url), "rediss://%s:%u?ca_file=%s/%s.pem%s", host, port, server.folder, ca, more);
	return url;
}

static const char *
with_certificate(const char *name)
{
	static char more[256];

	(void)snprintf(more, sizeof(more), "&cert_file=%s/%s.pem&key_file=%s/%s.key", server.folder, name,
		       server.folder, name);
	return more;
}

static void
check_works(void)
{
	struct adapter_object o;

	object_init(&o, 7, 3 * MIB + 1);
	wait_until(object_store(&rig, &o) == SCOUT__L2_OK)
		;
	ck_assert_int_eq(object_load(&rig, &o), SCOUT__L2_OK);
	object_fini(&o);
}

CASE_TIMEOUT(120);
CHECKED_FIXTURE(set_up, tear_down);

/* Objects of many sizes, and around those of a record of TLS; all under way at once, larger than all buffers. */
START_TEST(objects_of_all_sizes_come_back)
{
	static const uint64_t sizes[] = {1, 15360, 15872, 16384, 16385, 32768, 100000, MIB, 2 * MIB + 7, 20 * MIB};
	struct adapter_object o[sizeof(sizes) / sizeof(sizes[0])];
	const uint32_t n = sizeof(sizes) / sizeof(sizes[0]);

	port = redis_tls_start(&server, "server", "no");
	adapter_up(&rig, of("127.0.0.1", "ca", ""));
	for (uint32_t i = 0; i < n; i++) {
		object_init(&o[i], i, sizes[i]);
		object_begin(&rig, &o[i], SCOUT__L2_STORE, 20000);
	}
	for (uint32_t i = 0; i < n; i++)
		ck_assert_int_eq(object_end(&o[i]), SCOUT__L2_OK);
	ck_assert_uint_eq(object_exists(&rig, o, n), n);
	for (uint32_t i = 0; i < n; i++)
		ck_assert_int_eq(object_load(&rig, &o[i]), SCOUT__L2_OK);
	ck_assert_int_eq(object_remove(&rig, &o[0]), SCOUT__L2_OK);
	ck_assert_uint_eq(object_exists(&rig, o, n), n - 1);
	ck_assert_int_gt((int)redis_number(&server, "DBSIZE"), 0);
	for (uint32_t i = 0; i < n; i++)
		object_fini(&o[i]);
}
END_TEST

/* Each connection ends in the middle of what it sends, and is made anew. */
START_TEST(connections_that_are_cut_are_made_anew)
{
	struct adapter_object o[4];

	port = redis_tls_start(&server, "server", "no");
	adapter_up(&rig, of("localhost", "ca", ""));
	for (uint32_t i = 0; i < 4; i++) {
		object_init(&o[i], i, 16 * MIB);
		object_begin(&rig, &o[i], SCOUT__L2_STORE, 20000);
	}
	wait_until(redis_number(&server, "CLIENT KILL TYPE normal SKIPME yes") > 0)
		;
	for (uint32_t i = 0; i < 4; i++) {
		enum scout__l2_result result = object_end(&o[i]);

		ck_assert(result == SCOUT__L2_OK || result == SCOUT__L2_ERROR || result == SCOUT__L2_REFUSED);
		wait_until((result = object_store(&rig, &o[i])) == SCOUT__L2_PRESENT || result == SCOUT__L2_OK)
			;
		ck_assert_int_eq(object_load(&rig, &o[i]), SCOUT__L2_OK);
		object_fini(&o[i]);
	}
}
END_TEST

static const struct {
	const char *host, *presented, *ca, *more, *says;
} wrong[] = {
	{"127.0.0.1", "server", "other_ca", "",
	 "its certificate is not accepted: self-signed certificate in certificate chain"},
	{"127.0.0.1", "other_ca", "ca", "", "its certificate is not accepted: self-signed certificate"},
	{"127.0.0.1", "expired", "ca", "", "its certificate is not accepted: certificate has expired"},
	{"127.0.0.1", "server", "ca", "&server_name=redis.example",
	 "its certificate is not accepted: hostname mismatch"},
	{"127.0.0.2", "server", "ca", "", "its certificate is not accepted: IP address mismatch"},
};

START_LOOP_TEST(a_certificate_that_is_not_right_is_refused_with_its_reason_and_a_right_one_heals, 0,
		sizeof(wrong) / sizeof(wrong[0]))
{
	struct adapter_object o;

	redis_ok(&server, "CONFIG SET bind %s", "127.0.0.1 127.0.0.2");
	port = redis_tls_start(&server, wrong[_i].presented, "no");
	adapter_up(&rig, of(wrong[_i].host, wrong[_i].ca, wrong[_i].more));
	adapter_wait_logged(&rig, wrong[_i].says);
	object_init(&o, 1, 1000);
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_ERROR);
	ck_assert_int_eq((int)redis_number(&server, "DBSIZE"), 0);
	object_fini(&o);
	if (strcmp(wrong[_i].presented, "server") == 0)
		return; /* our own configuration is wrong */
	redis_tls_present(&server, "server");
	check_works();
	adapter_wait_logged(&rig, "works again");
}
END_TEST

START_TEST(a_port_without_tls_is_named)
{
	port = redis_tls_start(&server, "server", "no");
	port = server.port;
	adapter_up(&rig, of("127.0.0.1", "ca", ""));
	adapter_wait_logged(&rig, "TLS: a port without TLS would not");
}
END_TEST

START_TEST(a_client_certificate_is_sent_and_its_lack_is_named)
{
	port = redis_tls_start(&server, "server", "yes");
	adapter_up(&rig, of("127.0.0.1", "ca", ""));
	adapter_wait_logged(&rig, "TLS failed: tlsv13 alert certificate required");
	adapter_down(&rig);
	adapter_up(&rig, of("127.0.0.1", "ca", with_certificate("client")));
	check_works();
}
END_TEST

START_TEST(files_and_options_that_cannot_be_are_refused_with_a_sentence)
{
	char path[160], err[512];

	port = redis_tls_start(&server, "server", "no");
	ck_assert_int_eq(adapter_try(&rig, of("h", "none", ""), err, sizeof(err)), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_msg(strstr(err, "none.pem cannot be read (No such file or directory)"), "%s", err);
	ck_assert_int_eq(adapter_try(&rig, of("h", "ca", "&cert_file=/x"), err, sizeof(err)), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_msg(strstr(err, "cert_file and key_file: give both of them, or none"), "%s", err);
	(void)snprintf(path, sizeof(path), "%s/client.key", server.folder);
	ck_assert_int_eq(chmod(path, 0644), 0);
	ck_assert_int_eq(adapter_try(&rig, of("h", "ca", with_certificate("client")), err, sizeof(err)),
			 SCOUT_ERR_PERMISSION);
	ck_assert_msg(strstr(err, "client.key has mode 0644, owner "), "%s", err);
	rig.vt = &scout__l2_redis;
	ck_assert_int_eq(adapter_try(&rig, "redis://h?ca_file=/x", err, sizeof(err)), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_msg(strstr(err, "are for rediss://, which is TLS"), "%s", err);
}
END_TEST

int
main(void)
{
	if (!redis_tls_can()) {
		(void)puts("1..0 # SKIP no openssl command, or a redis-server without TLS");
		return EXIT_SUCCESS;
	}
	return redis_rig_main(suite_of_this_file());
}
