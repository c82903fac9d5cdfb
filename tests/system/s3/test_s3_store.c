/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "s3_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "s3_stand.h"

/*
 * Objects by name, and lookups with few requests, on Swift with faults before it. It takes half a minute, since Swift needs
 * some 20 ms for a request.
 */

#define N 1000u
#define BYTES 2048u

static struct swift swift;
static struct stand stand;
static struct scout__s3_client client;
static char texts[N][SCOUT__S3_NAME_TEXT];
static const char *names[N];
static char why[SCOUT__S3_SENTENCE];
static uint8_t found[N], data[BYTES], got[BYTES];

static void
up(void)
{
	struct scout__s3_ask make = {.method = "PUT"};
	struct scout__s3_options options = {.bucket = swift_bucket(), .prefix = "p", .timeout_ms = 20000};
	char endpoint[64], err[512];

	stand.to = swift.port;
	stand_start(&stand);
	(void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", stand.port);
	ck_assert(scout__s3_option_set(&options, "endpoint", endpoint));
	ck_assert(scout__s3_option_set(&options, "style", "path"));
	ck_assert_msg(scout__s3_client_init(&client, &options, err, sizeof(err)), "%s", err);
	scout__s3_do(&client, &make, 1, NULL);
	ck_assert_int_eq(make.result, SCOUT_L2_DONE);
	for (uint32_t i = 0; i < N; i++) {
		(void)snprintf(texts[i], sizeof(texts[i]), "%08x%024x", i * 2654435761u, i + 1);
		names[i] = texts[i];
	}
}

static void
down(void)
{
	scout__s3_client_fini(&client);
	stand_stop(&stand);
}

/* Bytes that only object @i has. */
static void
fill(uint32_t i)
{
	for (uint32_t at = 0; at < BYTES; at++)
		data[at] = (uint8_t)((at + 1) * (2 * i + 1) >> 3);
}

static enum scout_l2_outcome
store(uint32_t i)
{
	struct iovec parts[] = {{data, 512}, {data + 512, BYTES - 512}};

	fill(i);
	return scout__s3_store_store(&client, names[i], 0, parts, 2, NULL, why);
}

/* An object that comes has its bytes. */
static enum scout_l2_outcome
load(uint32_t i)
{
	struct iovec parts[] = {{got, 512}, {got + 512, BYTES - 512}};
	enum scout_l2_outcome result;

	fill(i);
	memset(got, 0, sizeof(got));
	result = scout__s3_store_load(&client, names[i], 0, parts, 2, NULL, why);
	ck_assert(result != SCOUT_L2_DONE || memcmp(got, data, BYTES) == 0);
	return result;
}

/* A lookup of @n names that finds the first @there, in at most @requests. */
static void
finds(uint32_t n, uint32_t there, uint32_t requests)
{
	uint64_t before = client.n_requests;

	memset(found, 7, sizeof(found));
	ck_assert_int_eq(scout__s3_store_exists(&client, names, n, SCOUT_L2_CHAIN, found, NULL, why), SCOUT_L2_DONE);
	for (uint32_t i = 0; i < n; i++)
		ck_assert_msg(found[i] == (i < there), "%u of %u, %u there", i, n, there);
	ck_assert_msg(client.n_requests - before <= requests, "%u of %u names: %u requests, not %u", there, n,
		      (unsigned)(client.n_requests - before), requests);
}

CASE_TIMEOUT(300);
CHECKED_FIXTURE(up, down);

START_TEST(a_lookup_asks_for_few_of_many_names)
{
	static const uint32_t steps[] = {1, 2, 16, 17, 100, 200};
	uint32_t there = 0;

	finds(0, 0, 0);
	finds(N, 0, 11);
	for (uint32_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		for (; there < steps[i]; there++)
			ck_assert_int_eq(store(there), SCOUT_L2_DONE);
		finds(there, there, 9 * 2 + 2 * SCOUT__S3_AT_ONCE);
		finds(N, there, 11 + 2 * SCOUT__S3_AT_ONCE);
	}
}
END_TEST

/* A store that has everything. */
static bool
has_all(void *user, int fd, const struct stand_request *request)
{
	(void)user;
	(void)request;
	stand_reply(fd, 200, "", "", 0);
	return true;
}

/* Those of windows, states and keys: a hit after a gap counts. */
START_TEST(names_that_are_no_chain_are_asked_for_each)
{
	static const char *many[SCOUT__S3_MAX_HEADS + 8];
	static uint8_t there[SCOUT__S3_MAX_HEADS + 8];
	uint64_t before;

	for (uint32_t i = 2; i < 40; i += 7)
		ck_assert_int_eq(store(i), SCOUT_L2_DONE);
	before = client.n_requests;
	ck_assert_int_eq(scout__s3_store_exists(&client, names, 40, 0, found, NULL, why), SCOUT_L2_DONE);
	ck_assert_uint_eq(client.n_requests - before, 40);
	for (uint32_t i = 0; i < 40; i++)
		ck_assert_uint_eq(found[i], i % 7 == 2);
	for (uint32_t i = 0; i < SCOUT__S3_MAX_HEADS + 8; i++)
		many[i] = names[2];
	stand.answer = has_all;
	ck_assert_int_eq(scout__s3_store_exists(&client, many, SCOUT__S3_MAX_HEADS + 8, 0, there, NULL, why),
			 SCOUT_L2_DONE);
	for (uint32_t i = 0; i < SCOUT__S3_MAX_HEADS + 8; i++)
		ck_assert_uint_eq(there[i], i < SCOUT__S3_MAX_HEADS);
}
END_TEST

START_TEST(a_record_is_replaced_and_no_object_has_its_name)
{
	struct iovec parts[] = {{data, BYTES}};
	struct iovec into[] = {{got, BYTES}};
	struct scout__s3_ask record = {.method = "GET"};
	struct scout__s3_index index;
	static char xml[65536];

	for (uint32_t i = 0; i < 3; i++) {
		fill(i);
		ck_assert_int_eq(scout__s3_store_store(&client, names[0], SCOUT_L2_RECORD, parts, 1, NULL, why),
				 SCOUT_L2_DONE);
		ck_assert_int_eq(scout__s3_store_load(&client, names[0], SCOUT_L2_RECORD, into, 1, NULL, why),
				 SCOUT_L2_DONE);
		ck_assert_mem_eq(got, data, BYTES);
	}
	ck_assert_int_eq(load(0), SCOUT_L2_ABSENT);
	/* A lifecycle rule for the objects does not reach it. */
	record.pairs[record.n_pairs++] = (struct scout__s3_pair){"list-type", "2"};
	record.text = scout__s3_text_in(xml, sizeof(xml));
	scout__s3_do(&client, &record, 1, NULL);
	ck_assert_ptr_nonnull(strstr(xml, "<Key>p/records/"));
	ck_assert_ptr_null(strstr(xml, "<Key>p/objects/"));
	ck_assert(scout__s3_index_init(&index));
	ck_assert_int_eq(scout__s3_index_list(&index, &client, NULL, why), SCOUT_L2_DONE);
	ck_assert_uint_eq(index.n_listed, 0);
	scout__s3_index_fini(&index);
}
END_TEST

START_TEST(a_gap_shows_at_the_load)
{
	for (uint32_t i = 0; i < 8; i++)
		ck_assert_int_eq(store(i), SCOUT_L2_DONE);
	ck_assert_int_eq(store(3), SCOUT_L2_PRESENT);
	ck_assert_int_eq(scout__s3_store_remove(&client, names[5], NULL, why), SCOUT_L2_DONE);
	ck_assert_int_eq(scout__s3_store_remove(&client, names[5], NULL, why), SCOUT_L2_DONE);
	for (uint32_t i = 0; i < 8; i++)
		ck_assert_int_eq(load(i), i == 5 ? SCOUT_L2_ABSENT : SCOUT_L2_DONE);
}
END_TEST

START_TEST(faults_in_one_request_of_four_lose_nothing)
{
	static const enum stand_fault faults[] = {STAND_BUSY, STAND_RESET, STAND_LOST};
	uint32_t n_faults = 0;

	for (uint32_t f = 0; f < 3; f++) {
		stand_fail(&stand, faults[f], NULL, 4, -1);
		for (uint32_t i = 20 * f; i < 20 * f + 20; i++) {
			enum scout_l2_outcome result = store(i);

			ck_assert_msg(result == SCOUT_L2_DONE || result == SCOUT_L2_PRESENT, "%s", why);
			ck_assert_msg(load(i) == SCOUT_L2_DONE, "%s", why);
		}
		n_faults += stand.n_faults;
	}
	ck_assert_uint_ge(n_faults, 30);
	stand_fail(&stand, STAND_PASS, NULL, 1, 0);
	finds(N, 60, 11 + 2 * SCOUT__S3_AT_ONCE);
}
END_TEST

START_TEST(a_lookup_that_is_refused_says_why)
{
	stand_fail(&stand, STAND_FORBIDDEN, NULL, 1, -1);
	ck_assert_int_eq(scout__s3_store_exists(&client, names, N, SCOUT_L2_CHAIN, found, NULL, why), SCOUT_L2_FAILED);
	ck_assert_str_eq(why, "403: HEAD was refused; without the right s3:ListBucket also what is absent is refused");
	ck_assert_uint_eq(found[0], 0);
}
END_TEST

START_TEST(an_index_has_what_was_listed_and_own_stores)
{
	struct scout__s3_index index;
	uint32_t n_found = 0;
	uint64_t before;

	ck_assert(scout__s3_index_init(&index));
	index.page = 7;
	for (uint32_t i = 0; i < 30; i++)
		ck_assert_int_eq(store(i), SCOUT_L2_DONE);
	scout__s3_index_add(&index, names[40]);
	before = client.n_requests;
	ck_assert_int_eq(scout__s3_index_list(&index, &client, NULL, why), SCOUT_L2_DONE);
	ck_assert_uint_eq(index.n_listed, 30);
	ck_assert_uint_eq(client.n_requests - before, 5);
	scout__s3_index_add(&index, names[41]);
	scout__s3_index_remove(&index, names[3]);
	scout__s3_index_exists(&index, names, N, found);
	for (uint32_t i = 0; i < N; i++)
		ck_assert_uint_eq(found[i], (i < 30 && i != 3) || i == 40 || i == 41);
	/* What was never in a listing is gone after two. A listing that fails leaves all as it was. */
	ck_assert_int_eq(scout__s3_index_list(&index, &client, NULL, why), SCOUT_L2_DONE);
	stand_fail(&stand, STAND_FORBIDDEN, NULL, 3, 1);
	ck_assert_int_eq(scout__s3_index_list(&index, &client, NULL, why), SCOUT_L2_FAILED);
	ck_assert_str_eq(
		why,
		"403 AccessDenied: GET was refused; without the right s3:ListBucket also what is absent is refused");
	scout__s3_index_exists(&index, names, N, found);
	for (uint32_t i = 0; i < N; i++)
		ck_assert_uint_eq(found[i], i < 30 || i == 41);
	/* It has a bound; what is beyond it is a miss. */
	index.max = 20;
	ck_assert_int_eq(scout__s3_index_list(&index, &client, NULL, why), SCOUT_L2_DONE);
	scout__s3_index_add(&index, names[42]);
	scout__s3_index_exists(&index, names, N, found);
	for (uint32_t i = 0; i < 20; i++)
		n_found += found[i] + found[i + 20];
	ck_assert_uint_eq(n_found, 20);
	ck_assert_uint_eq(found[42], 0);
	scout__s3_index_fini(&index);
}
END_TEST

CHECKED_FIXTURE(NULL, NULL);

/* Names whose places are close, so that rows are long, in a table that grows; a plain array knows what is there. */
START_TEST(an_index_forgets_only_what_is_removed)
{
	static char text[4000][SCOUT__S3_NAME_TEXT];
	static const char *of[4000];
	static uint8_t there[4000], got_there[4000];
	struct scout__s3_index index;
	uint32_t seed = 1;

	ck_assert(scout__s3_index_init(&index));
	for (uint32_t i = 0; i < 4000; i++) {
		(void)snprintf(text[i], sizeof(text[i]), "%016x%016x", i + 1, i / 8 * 3);
		of[i] = text[i];
	}
	for (uint32_t step = 0; step < 40000; step++) {
		uint32_t i = (seed = seed * 1664525 + 1013904223) >> 8;

		there[i % 4000] = i / 4000 % 3 != 0;
		if (there[i % 4000])
			scout__s3_index_add(&index, of[i % 4000]);
		else
			scout__s3_index_remove(&index, of[i % 4000]);
	}
	scout__s3_index_exists(&index, of, 4000, got_there);
	ck_assert_int_eq(memcmp(there, got_there, sizeof(there)), 0);
	scout__s3_index_fini(&index);
}
END_TEST

START_TEST(options_are_checked)
{
	static const struct {
		struct scout__s3_options options;
		const char *says;
	} bad[] = {
		{{.bucket = "ab"}, "a bucket has 3 to 63"},
		{{.bucket = "Abc"}, "a bucket has 3 to 63"},
		{{.bucket = "abc", .style = "dns"}, "style is path or host"},
		{{.bucket = "abc", .endpoint = "host:80"}, "endpoint is https://HOST"},
		{{.bucket = "abc", .endpoint = "http://a@b"}, "endpoint is https://HOST"},
		{{.bucket = "abc", .endpoint = "http://host/path"}, "endpoint is https://HOST"},
		{{.bucket = "abc", .endpoint = "http://host", .unsigned_payload = true}, "payload=unsigned needs"},
	};
	struct scout__s3_options options = {.bucket = "abc", .region = "eu-west-1"};
	struct scout__s3_client c;
	char err[512];

	for (uint32_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert(!scout__s3_client_init(&c, &bad[i].options, err, sizeof(err)));
		ck_assert_msg(strstr(err, bad[i].says) == err, "%s", err);
	}
	ck_assert(!scout__s3_option_set(&options, "payload", "none"));
	ck_assert(!scout__s3_option_set(&options, "colour", "red"));
	ck_assert(scout__s3_option_set(&options, "payload", "unsigned"));
	ck_assert(scout__s3_client_init(&c, &options, err, sizeof(err)));
	ck_assert_str_eq(c.host, "abc.s3.eu-west-1.amazonaws.com");
	ck_assert_str_eq(c.bucket, "");
	scout__s3_client_fini(&c);
	ck_assert(scout__s3_option_set(&options, "endpoint", "https://host:443/"));
	ck_assert(scout__s3_client_init(&c, &options, err, sizeof(err)));
	ck_assert_str_eq(c.host, "host");
	ck_assert_str_eq(c.bucket, "abc");
	scout__s3_client_fini(&c);
}
END_TEST

int
main(void)
{
	return swift_main(&swift, suite_of_this_file());
}
