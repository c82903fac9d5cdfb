/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "s3_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "s3_stand.h"

/*
 * Requests on a real S3, OpenStack Swift with its s3api, through a server that adds faults. The first run installs Swift
 * from PyPI below the build folder.
 */

#define BYTES (3u << 20)

static struct swift swift;
static struct stand stand;
static struct scout__s3_client client;
static uint8_t *data, *got;

static void
open_client(uint32_t timeout_ms)
{
	char endpoint[64], err[512];
	struct scout__s3_options options = {
		.bucket = swift_bucket(), .prefix = "a b/c", .endpoint = endpoint, .timeout_ms = timeout_ms};

	(void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", stand.port);
	ck_assert_msg(scout__s3_client_init(&client, &options, err, sizeof(err)), "%s", err);
}

static struct scout__s3_ask
ask(const char *method, const char *key)
{
	return (struct scout__s3_ask){.method = method, .key = key};
}

static struct scout__s3_ask
done(struct scout__s3_ask a)
{
	scout__s3_do(&client, &a, 1, NULL);
	return a;
}

static struct scout__s3_ask
put(const char *key, uint32_t bytes)
{
	struct iovec parts[] = {{data, bytes / 3}, {data + bytes / 3, bytes - bytes / 3}};
	struct scout__s3_ask a = ask("PUT", key);

	a.parts = parts;
	a.n_parts = 2;
	a.must_be_new = true;
	return done(a);
}

/* A GET that has an outcome; what came is in got. */
static struct scout__s3_ask
get(const char *key, uint32_t bytes)
{
	struct iovec parts[] = {{got, 512}, {got + 512, bytes - 512}};
	struct scout__s3_ask a = ask("GET", key);

	memset(got, 0, BYTES);
	a.parts = parts;
	a.n_parts = 2;
	return done(a);
}

static enum scout_l2_outcome
head(const char *key)
{
	return done(ask("HEAD", key)).result;
}

static void
is_right(const char *key, uint32_t bytes)
{
	struct scout__s3_ask a = get(key, bytes);

	ck_assert_msg(a.result == SCOUT_L2_DONE, "%s", a.why);
	ck_assert_int_eq(memcmp(got, data, bytes), 0);
}

static void
up(void)
{
	stand.to = swift.port;
	stand_start(&stand);
	open_client(20000);
	data = malloc(BYTES);
	got = malloc(BYTES);
	ck_assert(data && got);
	for (uint32_t i = 0; i < BYTES; i++)
		data[i] = (uint8_t)(i * 2654435761u >> 13);
	ck_assert_int_eq(done(ask("PUT", NULL)).result, SCOUT_L2_DONE);
}

static void
down(void)
{
	scout__s3_client_fini(&client);
	stand_stop(&stand);
	free(data);
	free(got);
}

CASE_TIMEOUT(300);
CHECKED_FIXTURE(up, down);

START_TEST(objects_are_put_once_and_come_back_whole)
{
	static const uint32_t sizes[] = {513, 4096, 65535, 65536, BYTES};
	char key[32];

	ck_assert_int_eq(head("ab/none"), SCOUT_L2_ABSENT);
	ck_assert_int_eq(get("ab/none", 4096).result, SCOUT_L2_ABSENT);
	for (uint32_t i = 0; i < 5; i++) {
		(void)snprintf(key, sizeof(key), "%02x/k%u", i, i);
		ck_assert_int_eq(put(key, sizes[i]).result, SCOUT_L2_DONE);
		ck_assert_int_eq(put(key, sizes[i]).result, SCOUT_L2_PRESENT);
		ck_assert_int_eq(head(key), SCOUT_L2_DONE);
		is_right(key, sizes[i]);
	}
	ck_assert_int_eq(get("00/k0", 1024).result, SCOUT_L2_WRONG_SIZE);
	ck_assert_int_eq(get("01/k1", 1024).result, SCOUT_L2_WRONG_SIZE);
	ck_assert_int_eq(done(ask("DELETE", "00/k0")).result, SCOUT_L2_DONE);
	ck_assert_int_eq(head("00/k0"), SCOUT_L2_ABSENT);
	ck_assert_uint_eq(client.n_again, 0);
}
END_TEST

START_TEST(a_listing_names_what_is_there)
{
	static char xml[65536];
	struct scout__s3_ask a = ask("GET", NULL);
	char key[64], name[64];
	const char *at = xml;

	for (uint32_t i = 0; i < 5; i++) {
		(void)snprintf(key, sizeof(key), "%02x/k", i);
		ck_assert_int_eq(put(key, 600).result, SCOUT_L2_DONE);
	}
	a.pairs[a.n_pairs++] = (struct scout__s3_pair){"prefix", "a b/c/"};
	a.pairs[a.n_pairs++] = (struct scout__s3_pair){"list-type", "2"};
	a.pairs[a.n_pairs++] = (struct scout__s3_pair){"max-keys", "3"};
	a.text = scout__s3_text_in(xml, sizeof(xml));
	ck_assert_int_eq(done(a).result, SCOUT_L2_DONE);
	for (uint32_t i = 0; i < 3; i++) {
		ck_assert(scout__s3_xml(at, "Key", key, sizeof(key), &at));
		(void)snprintf(name, sizeof(name), "a b/c/%02x/k", i);
		ck_assert_str_eq(key, name);
	}
	ck_assert(!scout__s3_xml(at, "Key", key, sizeof(key), &at));
	ck_assert(scout__s3_xml(xml, "IsTruncated", key, sizeof(key), NULL));
	ck_assert_str_eq(key, "true");
}
END_TEST

START_TEST(a_busy_store_and_broken_connections_are_tried_again)
{
	static const enum stand_fault faults[] = {STAND_BUSY, STAND_RESET, STAND_SHORT};

	for (uint32_t i = 0; i < 3; i++) {
		char key[16];

		(void)snprintf(key, sizeof(key), "00/k%u", i);
		stand_fail(&stand, faults[i] == STAND_SHORT ? STAND_RESET : faults[i], "PUT", 1, 2);
		ck_assert_int_eq(put(key, BYTES).result, SCOUT_L2_DONE);
		ck_assert_uint_eq(stand.n_faults, 2);
		stand_fail(&stand, faults[i], "GET", 1, 2);
		is_right(key, BYTES);
		ck_assert_uint_eq(stand.n_faults, 2);
	}
	/* The answer was lost, not the object: the second PUT finds it. */
	stand_fail(&stand, STAND_LOST, "PUT", 1, 1);
	ck_assert_int_eq(put("00/lost", BYTES).result, SCOUT_L2_PRESENT);
	stand_fail(&stand, STAND_CONFLICT, "PUT", 1, 1);
	ck_assert_int_eq(put("00/conflict", BYTES).result, SCOUT_L2_DONE);
	stand_fail(&stand, STAND_BUSY, NULL, 1, -1);
	ck_assert_int_eq(get("00/k0", BYTES).result, SCOUT_L2_FAILED);
	ck_assert_uint_eq(stand.n_faults, SCOUT__S3_TRIES);
}
END_TEST

START_TEST(a_refusal_is_not_tried_again)
{
	struct scout__s3_ask a;

	stand_fail(&stand, STAND_FORBIDDEN, NULL, 1, -1);
	a = get("00/k", 4096);
	ck_assert_int_eq(a.result, SCOUT_L2_FAILED);
	ck_assert_str_eq(
		a.why,
		"403 AccessDenied: GET was refused; without the right s3:ListBucket also what is absent is refused");
	ck_assert_uint_eq(stand.n_faults, 1);
	stand_fail(&stand, STAND_MOVED, NULL, 1, -1);
	a = put("00/k", 4096);
	ck_assert_int_eq(a.result, SCOUT_L2_FAILED);
	ck_assert_str_eq(a.why,
			 "the bucket is in another region, eu-west-1, not in us-east-1: set region= and endpoint= "
			 "(status 301)");
	ck_assert_uint_eq(stand.n_faults, 1);
}
END_TEST

START_TEST(what_a_second_try_mends_is_tried_once)
{
	stand_fail(&stand, STAND_NO_CONDITION, NULL, 1, -1);
	ck_assert_int_eq(put("00/k", BYTES).result, SCOUT_L2_DONE);
	ck_assert_int_eq(put("00/l", BYTES).result, SCOUT_L2_DONE);
	ck_assert_uint_eq(stand.n_faults, 1);
	is_right("00/k", BYTES);
	/* One 400 says nothing of the requests after it. */
	client.plain_votes = 0;
	for (uint32_t i = 0; i < 2 * SCOUT__S3_PLAIN_VOTES; i++) {
		char key[16];

		(void)snprintf(key, sizeof(key), "00/m%u", i);
		stand_fail(&stand, STAND_BAD, "PUT", 1, 1);
		ck_assert_int_eq(put(key, BYTES).result, SCOUT_L2_DONE);
		ck_assert_int_eq(put(key, BYTES).result, SCOUT_L2_PRESENT);
	}
	/* The store says it once, with an hour between its clock and ours: from then on each request has its clock. */
	stand_fail(&stand, STAND_SKEWED, NULL, 1, 1);
	(void)get("00/k", BYTES);
	ck_assert_uint_eq(stand.n_faults, 1);
	ck_assert_int_ge(client.clock_offset, 3590);
	ck_assert_int_le(client.clock_offset, 3601);
	/* The keys of the environment are the same when they are read again: it stays at that. */
	client.clock_offset = 0;
	stand_fail(&stand, STAND_EXPIRED, NULL, 1, -1);
	ck_assert_int_eq(get("00/k", BYTES).result, SCOUT_L2_FAILED);
	ck_assert_uint_eq(stand.n_faults, 1);
}
END_TEST

/* Gives up at the third look. */
static bool
three_looks(void *user, uint64_t moved)
{
	uint32_t *looks = user;

	(void)moved;
	return ++*looks < 3;
}

/* A server takes more than before for progress, over all tries of a call. */
static bool
never_less(void *user, uint64_t moved)
{
	uint64_t *before = user;

	ck_assert_uint_ge(moved, *before);
	*before = moved;
	return true;
}

START_TEST(what_has_moved_never_becomes_less)
{
	uint64_t moved = 0;
	struct scout__s3_watch watch = {never_less, &moved, 0};
	struct iovec part = {data, BYTES};
	struct scout__s3_ask asks[2] = {ask("PUT", "00/k"), ask("HEAD", "00/none")};

	asks[0].parts = &part;
	asks[0].n_parts = 1;
	stand_fail(&stand, STAND_LOST, "PUT", 1, 1);
	scout__s3_do(&client, &asks[0], 1, &watch);
	ck_assert_int_eq(asks[0].result, SCOUT_L2_DONE);
	ck_assert_uint_gt(moved, 2 * BYTES);
	/* An answer without a body is progress, too. */
	moved = 0;
	watch.moved = 0;
	scout__s3_do(&client, &asks[1], 1, &watch);
	ck_assert_int_eq(asks[1].result, SCOUT_L2_ABSENT);
	ck_assert_uint_ge(watch.moved, 1);
}
END_TEST

START_TEST(what_is_longer_than_the_object_ends_at_its_size)
{
	ck_assert_int_eq(put("00/k", BYTES).result, SCOUT_L2_DONE);
	stand_fail(&stand, STAND_LONG, "GET", 1, -1);
	ck_assert_int_eq(get("00/k", BYTES).result, SCOUT_L2_WRONG_SIZE);
	ck_assert_uint_eq(stand.n_faults, 1);
}
END_TEST

START_TEST(a_frozen_store_ends_by_the_clock_or_the_watch)
{
	uint32_t looks = 0;
	struct scout__s3_watch watch = {three_looks, &looks, 0};
	struct scout__s3_ask a = ask("HEAD", "00/k");

	scout__s3_client_fini(&client);
	open_client(300);
	stand_fail(&stand, STAND_FROZEN, NULL, 1, -1);
	ck_assert_int_eq(get("00/k", 4096).result, SCOUT_L2_TIMEOUT);
	scout__s3_do(&client, &a, 1, &watch);
	ck_assert_int_eq(a.result, SCOUT_L2_GAVE_UP);
	ck_assert_uint_eq(looks, 3);
	stand_fail(&stand, STAND_PASS, NULL, 1, 0);
	scout__s3_client_fini(&client);
	open_client(20000);
	ck_assert_int_eq(put("00/k", 4096).result, SCOUT_L2_DONE);
}
END_TEST

int
main(void)
{
	return swift_main(&swift, suite_of_this_file());
}
