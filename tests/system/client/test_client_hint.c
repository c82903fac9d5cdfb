/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <unistd.h>

#include <kvscout/client.h>

#include "check_main.h"
#include "server_rig.h"
#include "waiting.h"

/* scout_finish_hint(): from the caller through the wire to the eviction policy, and what the server counts of it. */

#define CHUNK 16u
#define HASH 16u
#define KEYS 8u

static struct scout_client *client;
static struct rig rig;

static void
up(void)
{
	struct scout_server_config server = rig_config(16);
	struct scout_client_config cfg;
	char listen_on[64];
	char err[256] = "";

	snprintf(listen_on, sizeof(listen_on), "ipc:///tmp/kvscout-hint-%d", (int)getpid());
	server.listen = listen_on;
	rig_up_with(&rig, &server);
	scout_client_config_init(&cfg);
	cfg.endpoint = listen_on;
	cfg.name_space = "test";
	cfg.chunk_tokens = CHUNK;
	cfg.hash_bytes = HASH;
	cfg.lookup_timeout_ms = 60000;
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	scout_client_config_fini(&cfg);
	ck_assert_msg(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
}

static void
down(void)
{
	scout_client_free(client);
	rig_down(&rig);
}

/* Look the first @n keys up; @expect are there. */
static void
ask_of(const char *tenant, const char *id, uint32_t n, uint32_t expect)
{
	uint8_t hashes[KEYS * HASH];
	struct scout_query q = {.id = id,
				.tenant = tenant,
				.hashes = hashes,
				.hash_len = HASH,
				.n = n,
				.prompt_tokens = (uint64_t)n * CHUNK + 1};
	struct scout_hit hit;

	for (uint32_t i = 0; i < n; i++)
		wire_hash(hashes + (size_t)i * HASH, HASH, 1 + i);
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_uint_eq(hit.chunks, expect);
}

static void
ask(const char *id, uint32_t n)
{
	ask_of(NULL, id, n, n);
}

static void
finish(const char *id, enum scout_hint hint)
{
	ck_assert_int_eq(scout_finish_hint(client, id, hint), 0);
	wire_wait_status(&rig.client, "sessions", 0);
}

START_TEST(a_hint_reaches_the_server)
{
	up();
	rig_store(&rig.worker, 0, 1, KEYS);
	ask("a", KEYS);
	finish("a", SCOUT_HINT_UNKNOWN);
	ask("a", KEYS);
	ck_assert_int_eq(scout_finish(client, "a"), 0);
	wire_wait_status(&rig.client, "sessions", 0);
	ck_assert_uint_eq(wire_status(&rig.client, "hints.likely"), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "hints.unlikely"), 0);
	ask("a", KEYS);
	finish("a", SCOUT_HINT_LIKELY);
	ck_assert_uint_eq(wire_status(&rig.client, "hints.likely"), 1);
	ask("a", KEYS);
	finish("a", SCOUT_HINT_UNLIKELY);
	ck_assert_uint_eq(wire_status(&rig.client, "hints.likely"), 1);
	ck_assert_uint_eq(wire_status(&rig.client, "hints.unlikely"), 1);
	/* A request that is not there any more has no hint either, and an id's next request not that of the one before. */
	finish("a", SCOUT_HINT_UNLIKELY);
	ask("a", KEYS);
	ck_assert_int_eq(scout_finish(client, "a"), 0);
	wire_wait_status(&rig.client, "sessions", 0);
	ck_assert_uint_eq(wire_status(&rig.client, "hints.unlikely"), 1);
	down();
}
END_TEST

START_TEST(a_keep_reaches_the_server_and_its_outcome_comes_back)
{
	struct scout_finish keep = {.hint = SCOUT_HINT_LIKELY, .keep_ms = UINT32_MAX};
	struct scout_client_counters counters;

	up();
	rig_store(&rig.worker, 0, 1, KEYS);
	ask("a", KEYS);
	ck_assert_int_eq(scout_finish_keep(NULL, "a", &keep), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_finish_keep_sized(client, "a", &keep, 4), SCOUT_ERR_UNSUPPORTED);
	/* A quarter of the pool of 16, and an hour instead of 49 days. */
	ck_assert_int_eq(scout_finish_keep(client, "a", &keep), 0);
	wire_wait_status(&rig.client, "keeps.clipped", 1);
	ck_assert_uint_eq(wire_status(&rig.client, "hints.likely"), 1);
	ask("a", KEYS);
	wait_until(scout_client_stats(client, &counters) == 0 && counters.keeps_clipped == 1)
		;
	ck_assert_uint_eq(counters.kept_tokens, 2 * CHUNK); /* two clients: the rig's, too */
	/* The next turn's answer says so, and not that of a prompt that is shorter. */
	ask("b", KEYS);
	ck_assert_int_eq(scout_lookup_kept(client, "b"), SCOUT_KEEP_CLIPPED);
	ask("c", KEYS - 1);
	ck_assert_int_eq(scout_lookup_kept(client, "c"), SCOUT_KEEP_UNKNOWN);
	/* Nor that of another tenant. */
	ask_of("other", "o", KEYS, 0);
	ck_assert_int_eq(scout_lookup_kept(client, "o"), SCOUT_KEEP_UNKNOWN);
	ck_assert_int_eq(scout_finish(client, "o"), 0);
	ck_assert_int_eq(scout_lookup_kept(client, "d"), SCOUT_ERR_STATE);
	ck_assert_int_eq(scout_lookup_kept(client, ""), SCOUT_ERR_REQUEST_ID);
	ck_assert_int_eq(scout_lookup_kept(NULL, "b"), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_finish(client, "b"), 0);
	ck_assert_int_eq(scout_finish(client, "c"), 0);
	/* The id's next request has no such wish. */
	finish("a", SCOUT_HINT_UNLIKELY);
	wire_wait_status(&rig.client, "ns.test.bytes_kept", 0);
	ck_assert_uint_eq(wire_status(&rig.client, "keeps.clipped"), 1);
	down();
}
END_TEST

/* Let go of a list of hashes: a question for them, and the hint at its end. */
START_TEST(a_list_of_hashes_is_let_go)
{
	struct scout_finish keep = {.keep_ms = 600000};
	uint8_t hashes[2 * HASH], states[2];
	struct scout_key_query q = {.id = "k", .hashes = hashes, .hash_len = HASH, .n = 2};
	struct scout_key_answer answer;

	up();
	rig_store(&rig.worker, 0, 1, KEYS);
	ask("a", 2);
	ck_assert_int_eq(scout_finish_keep(client, "a", &keep), 0);
	wire_wait_status(&rig.client, "keeps.accepted", 1);
	for (uint32_t i = 0; i < 2; i++)
		wire_hash(hashes + (size_t)i * HASH, HASH, 1 + i);
	wait_until(scout_lookup_keys(client, &q, states, &answer) == 0)
		;
	ck_assert_uint_eq(answer.hits, 2);
	finish("k", SCOUT_HINT_UNLIKELY);
	ck_assert_uint_eq(wire_status(&rig.client, "hints.unlikely"), 1);
	wire_wait_status(&rig.client, "ns.test.bytes_kept", 0);
	down();
}
END_TEST

START_TEST(a_hint_that_is_none_is_refused_and_finishes_nothing)
{
	up();
	rig_store(&rig.worker, 0, 1, KEYS);
	ask("a", KEYS);
	ck_assert_int_eq(scout_finish_hint(client, "a", (enum scout_hint)(SCOUT_HINT_UNLIKELY + 1)), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_finish_hint(NULL, "a", SCOUT_HINT_UNKNOWN), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_finish_hint(client, "", SCOUT_HINT_UNKNOWN), SCOUT_ERR_REQUEST_ID);
	ck_assert_int_eq(scout_admit(client, "a", 0, SCOUT_TO_END), 0);
	finish("a", SCOUT_HINT_UNLIKELY);
	ck_assert_uint_eq(wire_status(&rig.client, "hints.unlikely"), 1);
	down();
}
END_TEST

START_TEST(wrong_hints_are_counted_by_chunk)
{
	up();
	rig_store(&rig.worker, 0, 1, KEYS);
	ask("a", KEYS);
	finish("a", SCOUT_HINT_UNLIKELY);
	ck_assert_uint_eq(wire_status(&rig.client, "hints.wrong_chunks"), 0);
	/* The first three come back; those are touched anew, without a hint. */
	ask("b", 3);
	finish("b", SCOUT_HINT_UNKNOWN);
	ck_assert_uint_eq(wire_status(&rig.client, "hints.wrong_chunks"), 3);
	ask("c", KEYS);
	finish("c", SCOUT_HINT_UNKNOWN);
	ck_assert_uint_eq(wire_status(&rig.client, "hints.wrong_chunks"), KEYS);
	/* Also of chunks that were touched often. */
	for (uint32_t i = 0; i < 4; i++) {
		ask("d", KEYS);
		finish("d", i < 3 ? SCOUT_HINT_UNKNOWN : SCOUT_HINT_UNLIKELY);
	}
	ask("e", KEYS);
	finish("e", SCOUT_HINT_UNKNOWN);
	ck_assert_uint_eq(wire_status(&rig.client, "hints.wrong_chunks"), 2 * KEYS);
	ck_assert_uint_eq(wire_status(&rig.client, "hints.right_chunks"), 0);
	down();
}
END_TEST

START_TEST(right_hints_are_counted_when_their_chunks_are_gone_for_long)
{
	up();
	rig_store(&rig.worker, 0, 1, KEYS);
	ask("a", KEYS);
	finish("a", SCOUT_HINT_UNLIKELY);
	/* Five of the eight are not asked for while 16 capacities of others are. */
	for (uint32_t i = 0; i < 16 * 16; i++) {
		ask("b", 3);
		finish("b", SCOUT_HINT_UNKNOWN);
	}
	ck_assert_uint_eq(wire_status(&rig.client, "hints.wrong_chunks"), 3);
	ck_assert_uint_eq(wire_status(&rig.client, "hints.right_chunks"), KEYS - 3);
	down();
}
END_TEST

START_TEST(chunks_behind_a_gap_are_counted_as_lost)
{
	uint8_t hashes[KEYS * HASH];
	struct scout_query q = {
		.id = "a", .hashes = hashes, .hash_len = HASH, .n = KEYS, .prompt_tokens = KEYS * CHUNK + 1};
	struct scout_hit hit;

	up();
	for (uint32_t i = 0; i < KEYS; i++)
		wire_hash(hashes + (size_t)i * HASH, HASH, 1 + i);
	/* Keys 1, 2, and 4 to 8: the third is the gap. */
	rig_store(&rig.worker, 0, 1, 2);
	rig_store(&rig.worker, 0, 4, KEYS - 3);
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_uint_eq(hit.chunks, 2);
	ck_assert_uint_eq(wire_status(&rig.client, "lookups.lost_chunks"), KEYS - 3);
	finish("a", SCOUT_HINT_UNKNOWN);
	rig_store(&rig.worker, 0, 3, 1);
	ask("b", KEYS);
	finish("b", SCOUT_HINT_UNKNOWN);
	ck_assert_uint_eq(wire_status(&rig.client, "lookups.lost_chunks"), KEYS - 3);
	down();
}
END_TEST
