/* SPDX-License-Identifier: Apache-2.0 */
/* KEYS: objects by themselves. What is a hit, what it promises, how RETRIEVE redeems it, and what is refused. */
#include <string.h>

#include "check_main.h"
#include "groups_rig.h"

#define PAGE 16u /* tokens between two hashes */

static const struct scout__group all = {SCOUT_POLICY_ALL, 1, PAGE, 0, 0};
/* An object of it has two hashes. */
static const struct scout__group window = {SCOUT_POLICY_WINDOW, 1, 2 * PAGE, 4 * PAGE, 0};

static struct groups_rig rig;

static void
teardown(void)
{
	if (rig.server)
		groups_down(&rig);
}

/* Objects 0 to 3 and 6 of group 0, and 2 of group 1. */
static void
up(void)
{
	const struct scout__groups groups = {2, {all, window}};

	groups_up(&rig, 16, &groups, PAGE);
	groups_store(&rig.worker, 0, 0, 4);
	groups_store(&rig.worker, 0, 6, 7);
	groups_store(&rig.worker, 1, 2, 3);
}

static uint64_t
promised(void)
{
	return wire_status(&rig.client, "l1.bytes_promised") / SHARD_BYTES;
}

static struct groups_told
ask(uint64_t ticket, const struct groups_key *keys, uint32_t n)
{
	struct groups_told told;

	ck_assert_msg(groups_keys(&rig.client, ticket, keys, n, &told) == SCOUT_WIRE_OK, "%s", rig.client.text);
	return told;
}

static const struct groups_key some[] = {{0, 6}, {0, 5}, {0, 1}, {0, 9}, {0, 0}, {1, 1}, {1, 2}};

CHECKED_FIXTURE(NULL, teardown);

START_TEST(each_key_is_answered_by_itself_and_each_hit_is_promised)
{
	static const uint8_t expected[] = {1, 0, 1, 0, 1, 0, 1};
	struct groups_told told;

	up();
	told = ask(9, some, 7);
	ck_assert_mem_eq(told.what, expected, 7);
	ck_assert_uint_eq(told.l1, 4);
	ck_assert_uint_eq(told.l2, 0);
	ck_assert_uint_eq(told.limited, 0);
	ck_assert_uint_eq(promised(), 4);
	/* A key that is named twice has two promises. */
	told = ask(10, (const struct groups_key[]){{0, 3}, {0, 3}}, 2);
	ck_assert_uint_eq(told.l1, 2);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(promised(), 1); /* of one object: it counts once */
	rig_finish(&rig.client, 10);
	ck_assert_uint_eq(promised(), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "keys.miss"), 3);
	ck_assert_uint_eq(wire_status(&rig.client, "keys.hit"), 6);
	ck_assert_uint_eq(wire_status(&rig.client, "keys.later"), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "sessions"), 0);
}
END_TEST

START_TEST(a_retrieve_names_keys_by_their_place_in_their_group)
{
	/*
	 * Key 0 and keys 2 to 4 of group 0, of which 3 is not there; key 1 of group 1, whose objects have two hashes.
	 */
	const struct scout__retrieve_msg first = {.ticket = 9, .n_parts = 2, .parts = {{0, 0, 1}, {1, 2, 4}}};
	const struct scout__retrieve_msg rest = {.ticket = 9, .n_parts = 1, .parts = {{0, 2, 5}}};
	struct wire_grants g;

	up();
	(void)ask(9, some, 7);
	ck_assert_int_eq(groups_retrieve(&rig.worker, &first, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n, 2);
	ck_assert_uint_eq(g.n_granted, 2);
	for (uint32_t i = 0; i < 2; i++)
		ck_assert_uint_eq(wire_generation(&rig.worker, &g.grants[i]), g.grants[i].generation);
	ck_assert_uint_eq(promised(), 2);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 0), SCOUT_WIRE_OK);
	free(g.grants);
	ck_assert_int_eq(groups_retrieve(&rig.worker, &rest, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n, 3);
	ck_assert_uint_eq(g.n_granted, 2);
	ck_assert_uint_eq(g.grants[1].state, SCOUT_GRANT_MISSING);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 0), SCOUT_WIRE_OK);
	free(g.grants);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(promised(), 0);
}
END_TEST

START_TEST(what_may_not_be_promised_is_no_miss)
{
	static const uint8_t expected[] = {1, 1, 1, 2, 0, 2};
	const struct groups_key keys[] = {{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 5}, {0, 6}};
	const struct scout__groups groups = {1, {all}};
	struct scout_server_config cfg = rig_config(16);
	struct groups_told told;

	cfg.max_promised = (uint64_t)3 * SHARD_BYTES;
	groups_up_with(&rig, &cfg, &groups, PAGE);
	groups_store(&rig.worker, 0, 0, 4);
	groups_store(&rig.worker, 0, 6, 7);
	told = ask(9, keys, 6);
	ck_assert_mem_eq(told.what, expected, 6);
	ck_assert_uint_eq(told.limited, 1);
	ck_assert_uint_eq(told.l1, 3);
	ck_assert_uint_eq(promised(), 3);
	ck_assert_uint_eq(wire_status(&rig.client, "keys.later"), 2);
	rig_finish(&rig.client, 9);
	/* Now there is room for them. */
	told = ask(10, keys + 3, 3);
	ck_assert_uint_eq(told.what[0], 1);
	ck_assert_uint_eq(told.what[2], 1);
	ck_assert_uint_eq(told.limited, 0);
	rig_finish(&rig.client, 10);
	ck_assert_uint_eq(promised(), 0);
}
END_TEST

START_TEST(a_key_that_is_being_stored_is_no_hit_and_nothing_waits_for_it)
{
	const struct groups_key key = {0, 8};
	struct wire_grants g;
	uint32_t readable;

	up();
	ck_assert_int_eq(groups_store_of(&rig.worker, 0, 0, 8, 9, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(ask(9, &key, 1).what[0], 0);
	ck_assert_int_eq(wire_store_done(&rig.worker, g.id, 1, 1, &readable), SCOUT_WIRE_OK);
	free(g.grants);
	ck_assert_uint_eq(ask(10, &key, 1).what[0], 1);
}
END_TEST

START_TEST(a_key_needs_the_shards_of_all_kv_ranks)
{
	const struct groups_key key = {0, 0};
	struct groups_told told;
	struct wire_peer client, first, second;
	struct scout_server_config cfg = rig_config(16);
	struct scout_server *server = rig_start(&cfg);

	rig_worker_unregistered(&first, scout_server_endpoint(server), 2, 1);
	rig_worker_unregistered(&second, scout_server_endpoint(server), 2, 1);
	ck_assert_int_eq(wire_register(&first, 0, 0, SHARD_BYTES), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_register(&second, 1, 0, SHARD_BYTES), SCOUT_WIRE_OK);
	wire_open(&client, scout_server_endpoint(server));
	client.hello.kv_ranks = client.hello.rank_count = 2;
	ck_assert_int_eq(wire_hello(&client), SCOUT_WIRE_OK);
	groups_store(&first, 0, 0, 1);
	ck_assert_int_eq(groups_keys(&client, 9, &key, 1, &told), SCOUT_WIRE_OK);
	ck_assert_uint_eq(told.what[0], 0);
	groups_store(&second, 0, 0, 1);
	ck_assert_int_eq(groups_keys(&client, 10, &key, 1, &told), SCOUT_WIRE_OK);
	ck_assert_uint_eq(told.what[0], 1);
	wire_close(&client);
	wire_close(&first);
	wire_close(&second);
	scout_server_stop(server);
}
END_TEST

/* The text of the last refusal has @part. */
static void
says(const char *part)
{
	ck_assert_msg(strstr(rig.client.text, part) != NULL, "%s", rig.client.text);
}

START_TEST(what_makes_no_sense_is_refused_and_says_what_is_allowed)
{
	const struct scout__groups coarse = {1, {{SCOUT_POLICY_STATE, 1, 32 * PAGE, 0, 0}}};
	struct scout__keys_msg m = {.ticket = 7, .n = 8193, .n_parts = 1, .parts = {{0, 8193}}};
	struct scout__lookup_reply answer;
	struct wire_grants g;
	struct wire_reply *reply;
	struct groups_told told;
	uint32_t kept;

	up();
	ck_assert_int_eq(groups_keys(&rig.client, 9, (const struct groups_key[]){{0, 0}, {2, 0}}, 2, &told),
			 SCOUT_WIRE_GROUP);
	says("group = 2: this namespace has 2");
	(void)ask(9, some, 7);
	ck_assert_int_eq(groups_keys(&rig.client, 9, some, 7, &told), SCOUT_WIRE_STATE);
	says("this ticket is in use");
	ck_assert_int_eq(wire_admit(&rig.client, 9, 0, 1, &kept), SCOUT_WIRE_STATE);
	says("until FINISH");
	ck_assert_int_eq(wire_renew(&rig.client, 9, 1, 4, 0, &answer), SCOUT_WIRE_STATE);
	says("of KEYS");
	/* Its largest part reaches to 5 hashes. */
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 6, &g), SCOUT_WIRE_RANGE);
	/* None of that has changed anything. */
	ck_assert_uint_eq(promised(), 4);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(wire_status(&rig.client, "sessions"), 0);
	groups_down(&rig);

	/* RETRIEVE could not name the last one. */
	groups_up(&rig, 16, &coarse, PAGE);
	m.hashes = calloc(m.n, rig.client.hello.hash_bytes);
	ck_assert_ptr_nonnull(m.hashes);
	scout__put_keys(wire_begin(&rig.client, SCOUT_OP_KEYS), &m, rig.client.hello.hash_bytes);
	free((void *)(uintptr_t)m.hashes);
	(void)wire_end(&rig.client);
	wire_flush(&rig.client);
	reply = wire_wait(&rig.client, rig.client.last_corr);
	ck_assert_int_eq(reply->status, SCOUT_WIRE_RANGE);
	says("at most 8192, because an object of the group has 32 hashes");
	wire_reply_free(reply);
}
END_TEST

START_TEST(as_many_keys_as_the_protocol_allows_take_short_steps)
{
	struct scout__keys_msg m = {.ticket = 9, .n = SCOUT_MAX_KEYS, .n_parts = 1, .parts = {{0, SCOUT_MAX_KEYS}}};
	struct scout__keys_reply answer;
	struct wire_reply *reply;
	struct scout__op op;
	const char *field;
	uint8_t *hashes;

	up();
	hashes = malloc((size_t)m.n * rig.client.hello.hash_bytes);
	ck_assert_ptr_nonnull(hashes);
	for (uint32_t i = 0; i < m.n; i++)
		wire_hash(hashes + (size_t)i * rig.client.hello.hash_bytes, rig.client.hello.hash_bytes, i + 1);
	m.hashes = hashes;
	scout__put_keys(wire_begin(&rig.client, SCOUT_OP_KEYS), &m, rig.client.hello.hash_bytes);
	(void)wire_end(&rig.client);
	wire_flush(&rig.client);
	reply = wire_wait(&rig.client, rig.client.last_corr);
	ck_assert_int_eq(reply->status, SCOUT_WIRE_OK);
	op = (struct scout__op){.opcode = reply->opcode, .length = reply->length, .body = reply->body};
	ck_assert_int_eq(scout__get_keys_reply(&op, &answer, &field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(answer.l1, 5);
	ck_assert_uint_eq(answer.hit[0], 0x4f);
	wire_reply_free(reply);
	free(hashes);
	rig_finish(&rig.client, 9);
	wire_wait_status(&rig.client, "sessions", 0);
}
END_TEST

START_TEST(the_end_of_a_client_gives_back_what_its_keys_promise)
{
	up();
	ck_assert_int_eq(wire_lease(&rig.client), SCOUT_LEASE_OK);
	(void)ask(9, some, 7);
	ck_assert_uint_eq(promised(), 4);
	wire_lease_bye(&rig.client);
	wire_close(&rig.client);
	wire_wait_status(&rig.worker, "sessions", 0);
	ck_assert_uint_eq(wire_status(&rig.worker, "l1.bytes_promised"), 0);
	wire_close(&rig.worker);
	scout_server_stop(rig.server);
	rig.server = NULL;
}
END_TEST

START_TEST(a_clear_ends_the_session_of_keys)
{
	const struct scout__retrieve_msg m = {.ticket = 9, .n_parts = 1, .parts = {{0, 0, 1}}};
	struct scout__clear_reply cleared;
	struct wire_grants g;

	up();
	(void)ask(9, some, 7);
	ck_assert_int_eq(wire_clear(&rig.worker, 0xc1ea1, &cleared), SCOUT_WIRE_OK);
	ck_assert_int_eq(groups_retrieve(&rig.worker, &m, &g), SCOUT_WIRE_NO_SESSION);
	ck_assert_uint_eq(ask(10, some, 7).l1, 0);
	wire_wait_status(&rig.client, "l1.bytes_promised", 0);
}
END_TEST
