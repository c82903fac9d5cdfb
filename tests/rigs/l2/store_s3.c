/* SPDX-License-Identifier: Apache-2.0 */
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "object.h"
#include "plugin.h"
#include "s3_stand.h"
#include "s3_store.h"

/*
 * S3 in the table of store.h: Swift behind a stand. The library of S3 lies beside kvscoutd, not beside a test, so the adapter is that of
 * plugins, and gets its path. Threads: the test's.
 */

static struct swift swift;
static struct stand stand;
static struct scout__s3_client client; /* it passes by the stand */

static struct scout__s3_ask
done(struct scout__s3_ask ask)
{
	scout__s3_do(&client, &ask, 1, NULL);
	return ask;
}

static void
start(char ret_url[STORE_URL])
{
	char endpoint[64], err[512];
	struct scout__s3_options options = {
		.bucket = swift_bucket(), .prefix = "p", .endpoint = endpoint, .timeout_ms = 20000};

	memset(&stand, 0, sizeof(stand));
	stand.to = swift.port;
	stand_start(&stand);
	(void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", swift.port);
	ck_assert_msg(scout__s3_client_init(&client, &options, err, sizeof(err)), "%s", err);
	ck_assert_int_eq(done((struct scout__s3_ask){.method = "PUT"}).result, SCOUT_L2_DONE);
	(void)snprintf(ret_url, STORE_URL, "plugin://%s?bucket=%s&prefix=p&endpoint=http://127.0.0.1:%u",
		       getenv("KVSCOUT_S3_PLUGIN"), swift_bucket(), stand.port);
}

static void
freeze(bool is_frozen)
{
	stand_fail(&stand, is_frozen ? STAND_FROZEN : STAND_PASS, NULL, 1, is_frozen ? -1 : 0);
}

static void
stop(void)
{
	freeze(false);
	scout__s3_client_fini(&client);
	stand_stop(&stand);
}

static const char *
key_of(struct scout__l2_digest digest)
{
	static char key[64];
	char name[33];

	scout__l2_digest_text(digest, name);
	(void)snprintf(key, sizeof(key), SCOUT__S3_OBJECTS "%.2s/%s", name, name);
	return key;
}

static int64_t
get(struct scout__l2_digest digest, uint8_t *bytes, size_t size)
{
	struct scout__s3_ask ask = done((struct scout__s3_ask){
		.method = "GET", .key = key_of(digest), .text = scout__s3_text_in((char *)bytes, size)});

	ck_assert(ask.result == SCOUT_L2_ABSENT || (ask.result == SCOUT_L2_DONE && !ask.text.is_cut));
	return ask.result == SCOUT_L2_DONE ? (int64_t)ask.text.len : -1;
}

static void
put(struct scout__l2_digest digest, const uint8_t *bytes, size_t n)
{
	struct iovec part = {(void *)(uintptr_t)bytes, n};

	ck_assert_int_eq(
		done((struct scout__s3_ask){.method = "PUT", .key = key_of(digest), .parts = &part, .n_parts = 1})
			.result,
		SCOUT_L2_DONE);
}

static int
run(Suite *suite)
{
	return swift_main(&swift, suite);
}

const struct test_store store_s3 = {
	.name = "s3",
	.adapter = &scout__l2_plugin,
	.timeout_ms = 20000,
	.payload_at = SCOUT__L2_HEADER_BYTES,
	.each = 211, /* a request takes 20 ms */
	.many = 100,
	.keeps_formats = true,
	.shared = "",
	.run = run,
	.start = start,
	.stop = stop,
	.get = get,
	.put = put,
	.freeze = freeze,
};
