/* SPDX-License-Identifier: Apache-2.0 */
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "object.h"
#include "redis.h"
#include "redis_resp.h"
#include "redis_tls_rig.h"

/* Redis in the table of store.h. Threads: the test's. */

struct redis_server store_redis_server;

static void
start(char ret_url[STORE_URL])
{
	store_redis_server = (struct redis_server){.pid = 0};
	redis_start(&store_redis_server, NULL);
	(void)snprintf(ret_url, STORE_URL, "redis://127.0.0.1:%u", store_redis_server.port);
}

static void
stop(void)
{
	redis_kill(&store_redis_server);
}

static int64_t
get(struct scout__l2_digest digest, uint8_t *bytes, size_t size)
{
	char key[SCOUT__REDIS_KEY_BYTES + 1];
	redisReply *reply;
	int64_t n = -1;

	scout__redis_key(digest, key);
	reply = redis_do(&store_redis_server, "GET %s", key);
	if (reply->type == REDIS_REPLY_STRING) {
		ck_assert_uint_lt(reply->len, size);
		memcpy(bytes, reply->str, reply->len);
		n = (int64_t)reply->len;
	}
	freeReplyObject(reply);
	return n;
}

static void
put(struct scout__l2_digest digest, const uint8_t *bytes, size_t n)
{
	char key[SCOUT__REDIS_KEY_BYTES + 1];

	scout__redis_key(digest, key);
	redis_set(&store_redis_server, key, bytes, n);
}

static void
freeze(bool is_frozen)
{
	if (is_frozen)
		redis_freeze(&store_redis_server);
	else
		redis_thaw(&store_redis_server);
}

#define STORE_REDIS                                                                                                    \
	.payload_at = SCOUT__L2_HEADER_BYTES, .each = 1, .many = 10000, .keeps_formats = true, .judges_first = true,   \
	.is_atomic = true, .sees_gaps = true, .shared = "", .stop = stop, .get = get, .put = put, .freeze = freeze

const struct test_store store_redis = {
	.name = "redis", .adapter = &scout__l2_redis, .run = redis_rig_main, .start = start, STORE_REDIS};

#ifdef HAVE_LIBSSL
static int
run_over_tls(Suite *suite)
{
	if (redis_tls_can())
		return redis_rig_main(suite);
	(void)puts("1..0 # SKIP no openssl command, or a redis-server without TLS");
	return EXIT_SUCCESS;
}

static void
start_over_tls(char ret_url[STORE_URL])
{
	start(ret_url);
	(void)snprintf(ret_url, STORE_URL, "rediss://127.0.0.1:%u?ca_file=%s/ca.pem",
		       (unsigned)redis_tls_start(&store_redis_server, "server", "no"), store_redis_server.folder);
}

const struct test_store store_rediss = {
	.name = "rediss", .adapter = &scout__l2_rediss, .run = run_over_tls, .start = start_over_tls, STORE_REDIS};
#endif
