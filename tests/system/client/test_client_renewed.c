/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include <kvscout/client.h>

#include "check_main.h"
#include "server_rig.h"
#include "waiting.h"

/* Answers that grow old, with a real server between a scheduler and a worker. */

#define CHUNK 16u
#define HASH 16u
#define KEYS 8u
#define CROWD 2000u

static struct scout_client *client;
static char listen_on[64];

static void
ready(void)
{
	char err[256] = "";

	ck_assert_msg(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
}

static void
open_client(const char *refresh_ms)
{
	struct scout_client_config cfg;
	char err[256] = "";

	scout_client_config_init(&cfg);
	cfg.endpoint = listen_on;
	cfg.name_space = "test";
	cfg.chunk_tokens = CHUNK;
	cfg.hash_bytes = HASH;
	cfg.lookup_timeout_ms = 60000;
	ck_assert_int_eq(scout_client_config_set(&cfg, "lookup_refresh_ms", refresh_ms, err, sizeof(err)), 0);
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	scout_client_config_fini(&cfg);
	ready();
}

/* One server, a raw peer and a worker, and the client that asks. */
static void
up(struct rig *rig, struct scout_server_config *cfg)
{
	snprintf(listen_on, sizeof(listen_on), "ipc:///tmp/kvscout-renewed-%d", (int)getpid());
	cfg->listen = listen_on;
	rig_up_with(rig, cfg);
	open_client("5");
}

static void
down(struct rig *rig)
{
	scout_client_free(client);
	rig_down(rig);
}

static int
ask(const char *id, uint64_t first_key, struct scout_hit *ret_hit)
{
	uint8_t hashes[KEYS * HASH];
	struct scout_query q = {
		.id = id, .hashes = hashes, .hash_len = HASH, .n = KEYS, .prompt_tokens = KEYS * CHUNK + 1};

	for (uint32_t i = 0; i < KEYS; i++)
		wire_hash(hashes + (size_t)i * HASH, HASH, first_key + i);
	return scout_try_lookup(client, &q, ret_hit);
}

/* Ask until there is an answer. */
static struct scout_hit
answer(const char *id, uint64_t first_key)
{
	struct scout_hit hit;
	int rc;

	wait_until((rc = ask(id, first_key, &hit)) != SCOUT_NOT_YET)
		;
	ck_assert_int_eq(rc, 0);
	return hit;
}

/* Ask until the answer has @chunks. It never has fewer than before. */
static struct scout_hit
ask_until(const char *id, uint64_t first_key, uint32_t chunks)
{
	struct scout_hit hit = {0};
	uint32_t before = 0;

	wait_until(hit.chunks == chunks) {
		ck_assert_int_eq(ask(id, first_key, &hit), 0);
		ck_assert_uint_ge(hit.chunks, before);
		before = hit.chunks;
	}
	return hit;
}

static struct scout_client_counters
stats(void)
{
	struct scout_client_counters s = {0};

	ck_assert_int_eq(scout_client_stats(client, &s), 0);
	return s;
}

START_TEST(a_miss_becomes_a_hit_when_another_request_has_stored)
{
	struct scout_server_config cfg = rig_config(16);
	struct wire_grants g;
	struct scout_hit hit;
	struct rig rig;

	up(&rig, &cfg);
	hit = answer("waits", 1);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_MISS);
	rig_store(&rig.worker, 0, 1, 3);
	ck_assert_uint_eq(ask_until("waits", 1, 3).ticket, hit.ticket);
	rig_store(&rig.worker, 0, 4, 5);
	hit = ask_until("waits", 1, 8);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_HIT);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 8 * SHARD_BYTES);
	ck_assert_int_eq(scout_admit(client, "waits", 2 * CHUNK, 6 * CHUNK), 0);
	wire_wait_status(&rig.client, "l1.bytes_promised", 4 * SHARD_BYTES);
	ck_assert_int_eq(wire_retrieve(&rig.worker, hit.ticket, 2, 6, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, 4);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 0), SCOUT_WIRE_OK);
	free(g.grants);
	ck_assert_int_eq(scout_finish(client, "waits"), 0);
	wire_wait_status(&rig.client, "sessions", 0);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 0);
	down(&rig);
}
END_TEST

START_TEST(a_hit_that_max_promised_cut_becomes_whole_when_the_other_finishes)
{
	struct scout_server_config cfg = rig_config(16);
	struct scout_hit hit;
	struct rig rig;

	cfg.max_promised = 8 * SHARD_BYTES;
	up(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 8);
	rig_store(&rig.worker, 0, 101, 6);
	ck_assert_uint_eq(answer("first", 101).chunks, 6);
	hit = answer("second", 1);
	ck_assert_uint_eq(hit.chunks, 2);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_LIMITED);
	ck_assert_int_eq(scout_finish(client, "first"), 0);
	hit = ask_until("second", 1, 8);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_HIT);
	ck_assert_uint_eq(hit.tokens, 8 * CHUNK);
	ck_assert_int_eq(scout_finish(client, "second"), 0);
	wire_wait_status(&rig.client, "sessions", 0);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 0);
	down(&rig);
}
END_TEST

START_TEST(nothing_leaks_whenever_a_request_ends)
{
	struct scout_server_config cfg = rig_config(16);
	struct scout_hit hit;
	struct rig rig;
	char id[16];

	cfg.reply_delay_us = 3000; /* so that renewals are under way when their requests end */
	up(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 4);
	for (unsigned i = 0; i < 60; i++) {
		uint64_t renewals = stats().renewals;

		snprintf(id, sizeof(id), "r%u", i);
		(void)answer(id, 1);
		wait_until(stats().renewals != renewals)
			ck_assert_int_eq(ask(id, 1, &hit), 0);
		if (i % 3 == 0)
			ck_assert_int_eq(scout_admit(client, id, 0, i % 2 ? SCOUT_TO_END : 2 * (int64_t)CHUNK), 0);
		if (i == 30)
			rig_store(&rig.worker, 0, 5, 4);
		ck_assert_int_eq(scout_finish(client, id), 0);
	}
	wire_wait_status(&rig.client, "sessions", 0);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 0);
	ck_assert_uint_eq(stats().live, 0);
	down(&rig);
}
END_TEST

START_TEST(a_lookup_ahead_promises_what_the_gpu_does_not_have)
{
	struct scout_server_config cfg = rig_config(16);
	uint8_t hashes[KEYS * HASH];
	struct scout_query q = {
		.id = "r1", .hashes = hashes, .hash_len = HASH, .n = KEYS, .prompt_tokens = KEYS * CHUNK + 1};
	struct wire_grants g;
	struct scout_hit hit;
	struct rig rig;

	for (uint32_t i = 0; i < KEYS; i++)
		wire_hash(hashes + (size_t)i * HASH, HASH, i + 1);
	up(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 1); /* the second chunk was evicted, the GPU still has it */
	rig_store(&rig.worker, 0, 3, 4);
	ck_assert_int_eq(scout_lookup_ahead(client, &q), 0);
	wire_wait_status(&rig.client, "l1.bytes_promised", 5 * SHARD_BYTES);
	q.computed_tokens = 2 * CHUNK;
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_uint_eq(hit.tokens, 6 * CHUNK);
	ck_assert_uint_eq(hit.l1_chunks, 4);
	wire_wait_status(&rig.client, "l1.bytes_promised", 4 * SHARD_BYTES);
	/* Others go on storing, and it grows as any other answer. */
	rig_store(&rig.worker, 0, 7, 2);
	wait_until(hit.chunks == 8)
		ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
	ck_assert_int_eq(scout_admit(client, "r1", 2 * CHUNK, SCOUT_TO_END), 0);
	ck_assert_int_eq(wire_retrieve(&rig.worker, hit.ticket, 2, 8, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, 6);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 0), SCOUT_WIRE_OK);
	free(g.grants);
	ck_assert_int_eq(scout_finish(client, "r1"), 0);
	wire_wait_status(&rig.client, "sessions", 0);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 0);
	down(&rig);
}
END_TEST

/* Another server, at the same place; the client knows it. */
static void
restart(struct rig *rig, struct scout_server_config *cfg)
{
	rig_down(rig);
	rig_up_with(rig, cfg);
	wait_until(stats().epochs != 0)
		;
	ready(); /* it is counted before it has been acted on */
}

START_TEST(after_a_restart_of_the_server_what_waits_is_asked_anew)
{
	struct scout_server_config cfg = rig_config(16);
	struct scout_hit old, hit;
	struct rig rig;

	up(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 8);
	old = answer("waits", 1);
	ck_assert_uint_eq(old.chunks, 8);
	ck_assert_uint_eq(answer("admits", 1).chunks, 8);
	restart(&rig, &cfg);
	/* The old answer promises nothing. */
	ck_assert_int_eq(scout_admit(client, "admits", 0, SCOUT_TO_END), 0);
	ck_assert_int_eq(ask("waits", 1, &hit), SCOUT_NOT_YET);
	hit = answer("waits", 1);
	ck_assert_uint_eq(hit.chunks, 0);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_MISS);
	ck_assert_uint_ne(hit.ticket, old.ticket);
	ck_assert_uint_eq(wire_status(&rig.client, "sessions"), 1);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 0);
	ck_assert_int_eq(scout_finish(client, "admits"), 0);
	/* And from then on it is renewed as ever. */
	rig_store(&rig.worker, 0, 1, 4);
	ck_assert_uint_eq(ask_until("waits", 1, 4).ticket, hit.ticket);
	ck_assert_int_eq(scout_finish(client, "waits"), 0);
	wire_wait_status(&rig.client, "sessions", 0);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 0);
	down(&rig);
}
END_TEST

START_TEST(a_crowd_that_waits_asks_at_a_bounded_rate)
{
	static char ids[CROWD][16];
	struct scout_server_config cfg = rig_config(16);
	struct scout_hit hit;
	struct rig rig;
	uint64_t start, most;

	cfg.max_sessions = CROWD + 10;
	up(&rig, &cfg);
	start = scout__now_us();
	for (unsigned i = 0; i < CROWD; i++) {
		snprintf(ids[i], sizeof(ids[i]), "r%u", i);
		ck_assert_int_eq(ask(ids[i], 1, &hit), SCOUT_NOT_YET);
	}
	for (unsigned i = 0; i < CROWD; i++)
		(void)answer(ids[i], 1);
	for (unsigned round = 0; round < 20; round++)
		for (unsigned i = 0; i < CROWD; i++)
			ck_assert_int_eq(ask(ids[i], 1, &hit), 0);
	most = 256 * (scout__now_us() - start) / 1000000 + 33;
	ck_assert_uint_gt(wire_status(&rig.client, "lookups.renewed"), 0);
	ck_assert_uint_le(wire_status(&rig.client, "lookups.renewed"), most);
	for (unsigned i = 0; i < CROWD; i++)
		ck_assert_int_eq(scout_finish(client, ids[i]), 0);
	wire_wait_status(&rig.client, "sessions", 0);
	down(&rig);
}
END_TEST
