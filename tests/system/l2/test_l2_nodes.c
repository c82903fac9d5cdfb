/* SPDX-License-Identifier: Apache-2.0 */
#include "clear_rig.h"

#include <kvscout/client.h>

#include "check_main.h"
#include "store.h"

/*
 * Servers on one store of L2, after each other and as nodes of a cluster (files: on a parallel file system), on each of the stores: what
 * one has written another one finds or waits for, and what one has cleared none has.
 */

#define CHUNKS 8u
#define CHUNK_TOKENS 16u
#define HASH 16u

static const struct test_store *store;
static char url[STORE_URL], shared_url[2 * STORE_URL]; /* for one server, and for several at once */

static void
setup(void)
{
	store = store_of_this_run();
	store->start(url);
	(void)snprintf(shared_url, sizeof(shared_url), "%s%s", url, store->shared);
}

static void
teardown(void)
{
	store->stop();
}

/* ---- what another one writes ---- */

CASE_TIMEOUT(300);
CHECKED_FIXTURE(setup, teardown);

START_LOOP_TEST(a_node_waits_for_what_another_writes_late_and_out_of_order, 0, store_of_this_run()->sees_gaps)
{
	static const uint64_t order[] = {6, 2, 8, 1, 4, 3, 7, 5};
	const struct scout__lookup_msg m = {
		.ticket = 1, .n = 8, .expect = 8, .poll_timeout_ms = 20000, .poll_interval_ms = 5};
	struct node writer, reader;
	struct scout__lookup_reply hit;
	struct wire_reply *reply;
	const char *field = "";
	struct scout__op op;
	uint64_t corr;

	node_up(&writer, shared_url);
	node_up(&reader, shared_url);
	corr = wire_add_lookup(&reader.rig.client, &m, 1);
	wire_flush(&reader.rig.client);
	for (unsigned i = 0; i < 8; i++) {
		ck_assert(!wire_has(&reader.rig.client, corr));
		node_write(&writer, order[i]);
	}
	reply = wire_wait(&reader.rig.client, corr);
	ck_assert_uint_eq(reply->status, SCOUT_WIRE_OK);
	op = (struct scout__op){.opcode = SCOUT_OP_LOOKUP,
				.kind = SCOUT_KIND_REPLY,
				.corr = corr,
				.body = reply->body,
				.length = reply->length};
	ck_assert_int_eq(scout__get_lookup_reply(&op, &hit, &field), 0);
	wire_reply_free(reply);
	ck_assert_uint_eq(hit.hit, 8);
	ck_assert_uint_eq(hit.l2, 8);
	node_read(&reader, 1, 1, 8);
	rig_finish(&reader.rig.client, 1);
	wire_wait_status(&reader.rig.client, "l2.0.pinned", 0);
	rig_down(&reader.rig);
	rig_down(&writer.rig);
}
END_TEST

/* A scheduler of the decode node: what a proxy says of the prompt, or everything, is waited for. */
static struct scout_client *
node_scheduler(const struct node *node, bool waits_for_all)
{
	struct scout_client *client = NULL;
	struct scout_client_config cfg;
	char err[256] = "";

	scout_client_config_init(&cfg);
	cfg.endpoint = node->rig.endpoint;
	cfg.name_space = "test";
	cfg.chunk_tokens = CHUNK_TOKENS;
	cfg.hash_bytes = HASH;
	cfg.lookup_timeout_ms = 50; /* the time for late keys counts */
	cfg.lookup_poll_key_timeout_ms = 20000;
	cfg.lookup_poll_key_intervals_ms = 5;
	cfg.lookup_poll_key_all = waits_for_all;
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	ck_assert_msg(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
	return client;
}

/*
 * A prefill node writes a prompt's chunks late and out of order; a decode scheduler that asked before gets all of them. @_i: it says what
 * it expects, or waits for the chunks of every lookup.
 */
START_LOOP_TEST(a_decode_scheduler_gets_what_a_prefill_node_writes_late_and_out_of_order, 0,
		2 * store_of_this_run()->sees_gaps)
{
	static const uint64_t order[CHUNKS] = {6, 2, 8, 1, 4, 3, 7, 5};
	uint8_t hashes[CHUNKS * HASH];
	struct scout_query q = {.id = "decode-1",
				.hashes = hashes,
				.hash_len = HASH,
				.n = CHUNKS,
				.prompt_tokens = CHUNKS * CHUNK_TOKENS + 5,
				.expect_tokens = _i ? 0 : CHUNKS * CHUNK_TOKENS + 5};
	struct node prefill, decode;
	struct scout_client *client;
	struct scout_hit hit;

	for (uint32_t i = 0; i < CHUNKS; i++)
		wire_hash(hashes + (size_t)i * HASH, HASH, i + 1);
	node_up(&prefill, shared_url);
	node_up(&decode, shared_url);
	client = node_scheduler(&decode, _i != 0);
	ck_assert_int_eq(scout_lookup(client, &q, &hit), SCOUT_NOT_YET);
	for (uint32_t i = 0; i < CHUNKS; i++) {
		ck_assert_int_eq(scout_lookup(client, &q, &hit), SCOUT_NOT_YET);
		node_write(&prefill, order[i]);
	}
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_HIT);
	ck_assert_uint_eq(hit.chunks, CHUNKS);
	ck_assert_uint_eq(hit.l2_chunks, CHUNKS);
	node_read(&decode, hit.ticket, 1, CHUNKS);
	ck_assert_int_eq(scout_finish(client, q.id), 0);
	scout_client_free(client);
	rig_down(&decode.rig);
	rig_down(&prefill.rig);
}
END_TEST

START_TEST(a_server_that_restarts_finds_what_was_written)
{
	struct node node;
	struct scout__lookup_reply hit;

	node_up(&node, shared_url);
	for (uint64_t key = 1; key <= 8; key++)
		node_write(&node, key);
	rig_down(&node.rig);
	node_up(&node, url);
	ck_assert_uint_eq(wire_status(&node.rig.client, "l2.0.recovered"), store->shared[0] ? 8 : 0);
	ck_assert_int_eq(wire_lookup(&node.rig.client, 1, 1, 9, 0, &hit), SCOUT_WIRE_OK);
	ck_assert_uint_eq(hit.l1, 0);
	ck_assert_uint_eq(hit.l2, 8);
	node_read(&node, 1, 1, 8);
	rig_finish(&node.rig.client, 1);
	wire_wait_status(&node.rig.client, "l2.0.pinned", 0);
	rig_down(&node.rig);
}
END_TEST

/* ---- clears ---- */

/* Pool and store have all four; then a clear, and neither has any. @_i: other servers may use the store, too. */
START_LOOP_TEST(a_clear_drops_pool_and_store, 0, 2)
{
	struct node node;

	node_up(&node, _i ? shared_url : url);
	clear_write(&node);
	ck_assert_uint_eq(clear_look(&node.rig.client).hit, 4);
	(void)clear_by(&node.rig.client, CLEAR_X);
	ck_assert_uint_eq(clear_look(&node.rig.client).hit, 0);
	(void)clear_by(&node.rig.worker, CLEAR_X);
	clear_write(&node);
	ck_assert_uint_eq(clear_look(&node.rig.client).hit, 4);
	rig_down(&node.rig);
}
END_TEST

/* Peers that know nothing of it, on a server that knows nothing of it: only the store does. */
START_LOOP_TEST(a_restart_brings_nothing_back_that_was_cleared, 0, 2)
{
	const char *const of = _i ? shared_url : url;
	struct node node;
	struct wire_grants g;

	node_up(&node, of);
	clear_write(&node);
	rig_down(&node.rig);
	node_up(&node, of);
	ck_assert_uint_eq(clear_look(&node.rig.client).l2, 4); /* without a clear they come back */
	(void)clear_by(&node.rig.client, CLEAR_X);
	rig_down(&node.rig);
	for (int i = 0; i < 2; i++) {
		node_up(&node, of);
		ck_assert_uint_eq(clear_look(&node.rig.client).hit, 0);
		rig_down(&node.rig);
	}
	/* What is stored now outlives it, too; the same name clears nothing again. */
	node_up(&node, of);
	clear_write(&node);
	rig_down(&node.rig);
	node_up(&node, of);
	(void)clear_by(&node.rig.client, CLEAR_X);
	ck_assert_uint_eq(clear_look(&node.rig.client).l2, 4);
	assert_wire(wire_store(&node.rig.worker, 0, 9, 1, &g), SCOUT_WIRE_OK); /* it joined after the clear */
	free(g.grants);
	rig_down(&node.rig);
}
END_TEST

START_TEST(another_server_on_the_store_drops_what_was_cleared)
{
	struct node a, b;
	struct wire_grants g;

	node_up(&a, shared_url);
	node_up(&b, shared_url);
	clear_write(&a);
	ck_assert_uint_eq(clear_look(&b.rig.client).l2, 4);
	for (uint64_t key = 1; key <= 4; key++)
		node_write(&b, key); /* in its pool, too */
	ck_assert_uint_eq(clear_look(&b.rig.client).l1, 4);
	(void)clear_by(&a.rig.client, CLEAR_X);
	ck_assert_uint_eq(clear_look(&a.rig.client).hit, 0);
	clear_wait_gone(&b.rig.client);
	/* Its worker computes what it computed before; one that is asked to joins, and both share again. */
	assert_wire(wire_store(&b.rig.worker, 0, 1, 4, &g), SCOUT_WIRE_CLEARED);
	(void)clear_by(&b.rig.worker, SCOUT_GENERATION_ANY);
	clear_write(&b);
	ck_assert_uint_eq(clear_look(&a.rig.client).l2, 4);
	/* The other way round. */
	(void)clear_by(&b.rig.client, CLEAR_Y);
	clear_wait_gone(&a.rig.client);
	rig_down(&a.rig);
	rig_down(&b.rig);
}
END_TEST

int
main(void)
{
	return store_main();
}
