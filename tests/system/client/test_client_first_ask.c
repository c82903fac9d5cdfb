/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include <kvscout/client.h>

#include "check_main.h"
#include "server_rig.h"
#include "waiting.h"

/* Lookups ahead and the step that asks for them first, with a real server: one wait is enough for all of them, and asks nothing anew. */

#define CHUNK 16u
#define HASH 16u
#define KEYS 8u
#define WAITING 64u
#define LONG_US 10000000u

static struct rig rig;
static struct scout_client *client;
static uint8_t hashes[KEYS * HASH];

static void
up(void)
{
	struct scout_server_config cfg = rig_config(16);
	struct scout_client_config client_cfg;
	char err[256] = "", listen_on[64];

	snprintf(listen_on, sizeof(listen_on), "ipc:///tmp/kvscout-first-ask-%d", (int)getpid());
	cfg.listen = listen_on;
	rig_up_with(&rig, &cfg);
	scout_client_config_init(&client_cfg);
	client_cfg.endpoint = listen_on;
	client_cfg.name_space = "test";
	client_cfg.chunk_tokens = CHUNK;
	client_cfg.hash_bytes = HASH;
	client_cfg.lookup_timeout_ms = 60000; /* a busy machine is no reason for a miss */
	ck_assert_msg(scout_client_new(&client_cfg, &client, err, sizeof(err)) == 0, "%s", err);
	ck_assert_msg(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
	for (uint32_t i = 0; i < KEYS; i++)
		wire_hash(hashes + (size_t)i * HASH, HASH, i + 1);
	rig_store(&rig.worker, 0, 1, 5); /* the first five chunks */
}

static void
down(void)
{
	scout_client_free(client);
	rig_down(&rig);
}

static struct scout_query
question(char id[16], unsigned i)
{
	(void)snprintf(id, 16, "r%u", i);
	return (struct scout_query){
		.id = id, .hashes = hashes, .hash_len = HASH, .n = KEYS, .prompt_tokens = KEYS * CHUNK + 1};
}

CHECKED_FIXTURE(up, down);

START_TEST(the_step_that_asks_first_has_all_answers_after_one_wait)
{
	uint64_t lookups = wire_status(&rig.client, "ops.lookup");
	struct scout_query q;
	struct scout_hit hit;
	char id[16];

	for (unsigned i = 0; i < WAITING; i++) {
		q = question(id, i);
		ck_assert_int_eq(scout_lookup_ahead(client, &q), 0);
	}
	scout_step_begin(client);
	for (unsigned i = 0; i < WAITING; i++) {
		q = question(id, i);
		int rc = i % 2 ? scout_poll_lookup(client, id, 0, &hit) : scout_try_lookup(client, &q, &hit);
		ck_assert(rc == 0 || rc == SCOUT_NOT_YET);
	}
	ck_assert_int_eq(scout_step_wait(client, LONG_US), 0);
	for (unsigned i = 0; i < WAITING; i++) {
		(void)question(id, i);
		ck_assert_int_eq(scout_poll_lookup(client, id, 0, &hit), 0);
		ck_assert_uint_eq(hit.chunks, 5);
	}
	scout_step_end(client);
	ck_assert_uint_eq(wire_status(&rig.client, "ops.lookup"), lookups + WAITING);
	for (unsigned i = 0; i < WAITING; i++) {
		(void)question(id, i);
		ck_assert_int_eq(scout_finish(client, id), 0);
	}
	wire_wait_status(&rig.client, "sessions", 0);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 0);
}
END_TEST

/* As an engine that hears of a request right before its step: each ask comes too early, and one wait later it has its answer. */
START_TEST(a_request_that_comes_right_before_its_step_is_answered_in_it)
{
	unsigned too_early = 0;
	struct scout_hit hit;
	char id[16];

	for (unsigned i = 0; i < 200; i++) {
		struct scout_query q = question(id, i);

		ck_assert_int_eq(scout_lookup_ahead(client, &q), 0);
		scout_step_begin(client);
		if (scout_poll_lookup(client, id, 0, &hit) == SCOUT_NOT_YET) {
			too_early++;
			ck_assert_int_eq(scout_step_wait(client, LONG_US), 0);
			ck_assert_int_eq(scout_poll_lookup(client, id, 0, &hit), 0);
		}
		scout_step_end(client);
		ck_assert_uint_eq(hit.chunks, 5);
		ck_assert_int_eq(scout_finish(client, id), 0);
	}
	ck_assert_uint_gt(too_early, 0);
}
END_TEST
