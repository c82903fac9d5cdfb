/* SPDX-License-Identifier: Apache-2.0 */
#include "server_l2_rig.h"

#include <unistd.h>

#include <kvscout/client.h>

#include "check_main.h"
#include "pending_op.h"
#include "fetch.h"

/* The server over two tiers: what is found, promised, loaded and written, and what becomes of it when somebody goes. */

static struct l2_rig r;

static void
setup(void)
{
	r = l2_rig_of(64);
}

static void
teardown(void)
{
	if (r.rig.server)
		l2_down(&r);
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(what_was_stored_is_hit_after_a_restart)
{
	l2_up(&r);
	l2_store(&r.rig.worker, 1, 8);
	ck_assert_uint_eq(l2_memory_objects(r.m), 8);
	l2_lookup(&r.rig.client, 1, 1, 8, 8, 0);
	l2_restart(&r);
	l2_lookup(&r.rig.client, 2, 1, 12, 0, 8);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.bytes_promised"), 8 * SHARD_BYTES);
	ck_assert_uint_eq(l2_memory_count(r.m, SCOUT__L2_LOAD), 0);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 2, 1, 0, 8), 8);
	ck_assert_uint_eq(l2_memory_count(r.m, SCOUT__L2_LOAD), 8);
	rig_finish(&r.rig.client, 2);
	/* It is in the pool now, and nothing of it was written back. */
	l2_lookup(&r.rig.client, 3, 1, 8, 8, 0);
	rig_finish(&r.rig.client, 3);
	ck_assert_uint_eq(l2_memory_count(r.m, SCOUT__L2_STORE), 8);
	l2_check_idle(&r);
}
END_TEST

START_TEST(the_pool_s_part_comes_first_and_one_question_asks_for_the_rest)
{
	l2_up_with_keys(&r, 16);
	l2_store(&r.rig.worker, 1, 4);
	l2_store(&r.rig.worker, 8, 2);
	l2_lookup(&r.rig.client, 1, 1, 20, 6, 10);
	ck_assert_uint_eq(l2_memory_count(r.m, SCOUT__L2_EXISTS), 1);
	ck_assert_uint_eq(l2_memory_asked(r.m).chains, 1);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.0.keys_asked"), 14);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 1, 1, 0, 16), 16);
	l2_end(&r, 1);
}
END_TEST

START_TEST(a_prompt_whose_head_takes_the_room_of_its_tail_is_hit_as_a_whole)
{
	r.cfg.eviction = "lru";
	l2_up(&r);
	l2_store(&r.rig.worker, 1, 10);
	l2_store(&r.rig.worker, 11, 10);
	l2_restart(&r);
	/* The tail is in the pool, and the next to be evicted. */
	l2_store(&r.rig.worker, 11, 10);
	for (uint64_t key = 1000; key < 1054; key += 6)
		l2_store(&r.rig.worker, key, 6);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.chunks"), 64);
	l2_lookup(&r.rig.client, 1, 1, 20, 0, 20);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.evictions"), 20);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 1, 1, 0, 20), 20);
	l2_end(&r, 1);
}
END_TEST

START_TEST(a_second_lookup_finds_what_the_first_expects)
{
	l2_up_with_keys(&r, 4);
	l2_lookup(&r.rig.client, 1, 1, 4, 0, 4);
	l2_lookup(&r.rig.client, 2, 1, 4, 0, 4);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.bytes_promised"), 4 * SHARD_BYTES);
	rig_finish(&r.rig.client, 1);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 2, 1, 0, 4), 4);
	l2_end(&r, 2);
}
END_TEST

START_TEST(one_load_serves_all_who_ask)
{
	uint64_t corr[3];

	l2_up_with_keys(&r, 1);
	l2_memory_pause(r.m, SCOUT__L2_LOAD);
	for (uint64_t i = 0; i < 3; i++) {
		l2_lookup(&r.rig.client, i + 1, 1, 1, 0, 1);
		corr[i] = 0;
	}
	for (uint64_t i = 0; i < 3; i++) {
		const struct scout__retrieve_msg m = scout__retrieve_of(i + 1, 0, 1);

		scout__put_retrieve(wire_begin(&r.rig.worker, SCOUT_OP_RETRIEVE), &m);
		corr[i] = wire_end(&r.rig.worker);
	}
	wire_flush(&r.rig.worker);
	l2_memory_wait(r.m, SCOUT__L2_LOAD, 1);
	wire_wait_status(&r.rig.client, "ops.waiting", 3);
	l2_memory_resume(r.m, SCOUT__L2_LOAD);
	for (uint64_t i = 0; i < 3; i++) {
		struct wire_reply *reply = wire_wait(&r.rig.worker, corr[i]);

		ck_assert_uint_eq(reply->status, SCOUT_WIRE_OK);
		wire_reply_free(reply);
		ck_assert_int_eq(wire_retrieve_done(&r.rig.worker, corr[i], 0), SCOUT_WIRE_OK);
		rig_finish(&r.rig.client, i + 1);
	}
	ck_assert_uint_eq(l2_memory_count(r.m, SCOUT__L2_LOAD), 1);
	l2_check_idle(&r);
}
END_TEST

START_TEST(what_nobody_retrieves_leaves_nothing_behind)
{
	l2_up_with_keys(&r, 8);
	l2_lookup(&r.rig.client, 1, 1, 8, 0, 8);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.chunks"), 8);
	rig_finish(&r.rig.client, 1);
	l2_check_idle(&r);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.chunks"), 0);
}
END_TEST

START_TEST(it_counts_only_as_far_as_room_is_promised)
{
	r.cfg.max_promised = 5 * SHARD_BYTES;
	l2_up_with_keys(&r, 8);
	l2_lookup(&r.rig.client, 1, 1, 8, 0, 5);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.bytes_promised"), 5 * SHARD_BYTES);
	ck_assert_uint_eq(wire_status(&r.rig.client, "lookups.limited"), 1);
	l2_end(&r, 1);
}
END_TEST

START_TEST(a_renewal_asks_the_stores_too)
{
	struct scout__lookup_reply m;

	r.cfg.max_promised = 5 * SHARD_BYTES;
	l2_up_with_keys(&r, 8);
	l2_lookup(&r.rig.client, 1, 4, 5, 0, 5);
	l2_lookup(&r.rig.client, 2, 1, 8, 0, 0);
	rig_finish(&r.rig.client, 1);
	ck_assert_int_eq(wire_renew(&r.rig.client, 2, 1, 8, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, 5);
	ck_assert_uint_eq(m.l2, 5);
	ck_assert_uint_eq(m.limited, 1);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.bytes_promised"), 5 * SHARD_BYTES);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 2, 1, 0, 5), 5);
	l2_end(&r, 2);
}
END_TEST

START_TEST(a_lookup_ahead_knows_where_each_chunk_is)
{
	struct scout__ahead_reply m;
	uint8_t present[12];
	uint32_t kept;

	l2_up_with_keys(&r, 8);
	l2_store(&r.rig.worker, 3, 2);
	l2_store(&r.rig.worker, 10, 2);
	ck_assert_int_eq(wire_ahead(&r.rig.client, 1, 1, 12, &m, present), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.known, 12);
	ck_assert_uint_eq(m.lookup.hit, 8);
	ck_assert_uint_eq(m.lookup.l1, 2);
	ck_assert_uint_eq(m.lookup.l2, 6);
	for (uint32_t i = 0; i < 12; i++)
		ck_assert_uint_eq(present[i], "221122220110"[i] - '0');
	/* One question to the store for all that is not in the pool. */
	ck_assert_uint_eq(l2_memory_count(r.m, SCOUT__L2_EXISTS), 1);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.bytes_promised"), 10 * SHARD_BYTES);
	ck_assert_int_eq(wire_admit(&r.rig.client, 1, 5, 8, &kept), SCOUT_WIRE_OK);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.bytes_promised"), 3 * SHARD_BYTES);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 1, 1, 5, 8), 3);
	l2_end(&r, 1);
}
END_TEST

START_TEST(a_slow_store_costs_only_its_part)
{
	r.cfg.l2_lookup_timeout_ms = 50;
	l2_up_with_keys(&r, 8);
	l2_store(&r.rig.worker, 1, 3);
	l2_memory_pause(r.m, SCOUT__L2_EXISTS);
	l2_lookup(&r.rig.client, 1, 1, 8, 3, 0);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.lookups.late"), 1);
	l2_memory_resume(r.m, SCOUT__L2_EXISTS);
	l2_end(&r, 1);
}
END_TEST

/* It is the budget that ends the wait: the timeouts of the store and of a question are later than this peer waits for any reply. */
START_TEST(a_lookup_with_little_time_does_not_wait_for_a_slow_store)
{
	struct scout__lookup_reply m;

	r.cfg.l2_timeout_ms = 600000;
	r.cfg.l2_lookup_timeout_ms = 600000;
	l2_up_with_keys(&r, 8);
	l2_store(&r.rig.worker, 1, 3);
	l2_memory_pause(r.m, SCOUT__L2_EXISTS);
	r.rig.client.budget_us = 1000000;
	ck_assert_int_eq(wire_lookup(&r.rig.client, 1, 1, 8, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, 3);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.lookups.late"), 1);
	l2_memory_resume(r.m, SCOUT__L2_EXISTS);
	l2_end(&r, 1);
}
END_TEST

/* Its adapters have started by then. */
START_TEST(a_server_that_cannot_start_stops_its_second_tier)
{
	struct scout_server *server = NULL;
	char err[256] = "";

	r.cfg.metrics = "nowhere";
	ck_assert_int_lt(scout_server_start(&r.cfg, &server, err, sizeof(err)), 0);
	ck_assert_ptr_null(server);
	r.cfg.metrics = NULL;
	l2_up(&r);
}
END_TEST

/* When it ends is before the budget does: the answer has a way back. */
START_TEST(an_answer_is_due_before_its_budget_ends)
{
	static const uint64_t budgets_us[] = {8, 100, 8000, 40000, 2000000, UINT32_MAX};
	struct scout__pending_op pending = {.arrived_us = 1000000};

	scout__enter_loop();
	for (size_t i = 0; i < sizeof(budgets_us) / sizeof(budgets_us[0]); i++) {
		uint64_t margin_us = budgets_us[i] / 8;

		if (margin_us > SCOUT__ANSWER_MARGIN_US)
			margin_us = SCOUT__ANSWER_MARGIN_US;
		pending.deadline_us = pending.arrived_us + budgets_us[i];
		ck_assert_uint_eq(scout__pending_op_answer_by(&pending), pending.deadline_us - margin_us);
	}
	pending.deadline_us = UINT64_MAX;
	ck_assert_uint_eq(scout__pending_op_answer_by(&pending), UINT64_MAX);
}
END_TEST

START_TEST(four_thousand_lookups_at_once_are_all_asked_for)
{
	struct scout__lookup_msg m = {.n = 1};
	uint64_t corr[SCOUT_MAX_OPS];

	l2_up_with_keys(&r, 4);
	l2_memory_pause(r.m, SCOUT__L2_EXISTS);
	r.rig.client.budget_us = 60000000;
	for (unsigned i = 0; i < SCOUT_MAX_OPS; i++) {
		m.ticket = 1000 + i;
		corr[i] = wire_add_lookup(&r.rig.client, &m, 1 + i % 8);
	}
	wire_flush(&r.rig.client);
	l2_memory_wait(r.m, SCOUT__L2_EXISTS, 1024);
	l2_memory_resume(r.m, SCOUT__L2_EXISTS);
	for (unsigned i = 0; i < SCOUT_MAX_OPS; i++) {
		struct wire_reply *reply = wire_wait(&r.rig.client, corr[i]);

		ck_assert_int_eq(reply->status, SCOUT_WIRE_OK);
		ck_assert_uint_eq(reply->body[0], i % 8 < 4);
		wire_reply_free(reply);
	}
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.lookups.late"), 0);
	for (unsigned i = 0; i < SCOUT_MAX_OPS; i++)
		rig_finish(&r.rig.client, 1000 + i);
	l2_check_idle(&r);
}
END_TEST

START_TEST(a_client_that_goes_while_it_is_asked_leaves_no_pin)
{
	const struct scout__lookup_msg m = {.ticket = 1, .n = 8};
	struct wire_peer other;

	l2_up_with_keys(&r, 8);
	l2_memory_pause(r.m, SCOUT__L2_EXISTS);
	rig_client(&other, r.rig.endpoint);
	ck_assert_int_eq(wire_lease(&other), SCOUT_LEASE_OK);
	(void)wire_add_lookup(&other, &m, 1);
	wire_flush(&other);
	l2_memory_wait(r.m, SCOUT__L2_EXISTS, 1);
	wire_lease_bye(&other);
	wire_wait_status(&r.rig.client, "ops.waiting", 0);
	l2_memory_resume(r.m, SCOUT__L2_EXISTS);
	l2_memory_wait(r.m, SCOUT__L2_UNPIN, 1);
	l2_check_idle(&r);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.chunks"), 0);
	wire_close(&other);
}
END_TEST

#define RANKS 3

/* A client and a worker of each of RANKS KV ranks. */
static struct scout_server *
up_with_ranks(struct wire_peer *client, struct wire_peer workers[RANKS])
{
	struct scout_server_config cfg = r.cfg;
	struct scout_server *server = rig_start(&cfg);

	wire_open(client, scout_server_endpoint(server));
	client->hello.rank_count = client->hello.kv_ranks = RANKS;
	ck_assert_int_eq(wire_hello(client), SCOUT_WIRE_OK);
	for (uint16_t rank = 0; rank < RANKS; rank++) {
		rig_worker_unregistered(&workers[rank], scout_server_endpoint(server), RANKS, 1);
		ck_assert_int_eq(wire_register(&workers[rank], rank, 0, SHARD_BYTES), SCOUT_WIRE_OK);
	}
	return server;
}

static void
down_with_ranks(struct scout_server *server, struct wire_peer *client, struct wire_peer workers[RANKS])
{
	for (uint16_t rank = 0; rank < RANKS; rank++)
		wire_close(&workers[rank]);
	wire_close(client);
	scout_server_stop(server);
}

/* How many chunks the feed has told since @next to be in L2. */
static uint32_t
told_of_l2(struct wire_peer *p, struct scout__feed_msg *next)
{
	struct scout__feed_reply m = {.flags = SCOUT_FEED_MORE};
	struct scout__feed_event e;
	const char *field = "";
	uint32_t n = 0;

	while (m.flags & SCOUT_FEED_MORE) {
		struct wire_reply *reply;
		struct scout__op op;
		uint64_t corr;

		scout__put_feed(wire_begin(p, SCOUT_OP_FEED), next);
		corr = wire_end(p);
		wire_flush(p);
		reply = wire_wait(p, corr);
		assert_wire(reply->status, SCOUT_WIRE_OK);
		op = (struct scout__op){.opcode = SCOUT_OP_FEED, .body = reply->body, .length = reply->length};
		ck_assert_int_eq(scout__get_feed_reply(&op, p->hello.hash_bytes, &m, &field), SCOUT_WIRE_OK);
		while (scout__get_feed_event(&m.events, p->hello.hash_bytes, &e))
			n += e.kind == SCOUT_EVENT_STORED && e.medium == SCOUT_MEDIUM_L2;
		*next = m.next;
		wire_reply_free(reply);
	}
	return n;
}

START_TEST(what_one_store_has_is_told_while_another_is_off)
{
	struct scout__feed_msg next = {.feed = 0};

	r.cfg.l2 = "memory://a memory://b";
	l2_up(&r);
	(void)told_of_l2(&r.rig.client, &next);
	l2_memory_fail(r.m, SCOUT__L2_STORE, 1000, SCOUT__L2_ERROR);
	for (uint64_t key = 1; key <= 2 * SCOUT__L2_FAILURES; key++) {
		l2_store_in_pool(&r.rig.worker, key, 1);
		wire_wait_status(&r.rig.client, "l2.writes.bytes", 0);
		ck_assert_uint_eq(told_of_l2(&r.rig.client, &next), 1);
	}
	l2_memory_fail(r.m, SCOUT__L2_STORE, 0, SCOUT__L2_OK);
	wire_wait_status(&r.rig.client, "l2.writes.waiting", 0);
	ck_assert_uint_eq(told_of_l2(&r.rig.client, &next), 0); /* not again */
}
END_TEST

START_TEST(a_chunk_is_told_when_the_last_of_its_shards_is_written)
{
	struct wire_peer client, workers[RANKS];
	struct scout_server *server = up_with_ranks(&client, workers);
	struct scout__feed_msg next = {.feed = 0};

	r = l2_rig_of(64 * RANKS);
	(void)told_of_l2(&client, &next);
	l2_memory_fail(r.m, SCOUT__L2_STORE, 1, SCOUT__L2_ERROR);
	for (uint16_t rank = 0; rank < RANKS; rank++) {
		l2_store_in_pool(&workers[rank], 1, 1);
		wire_wait_status(&client, "l2.writes.bytes", 0);
	}
	/* The first is put off for a second, or was written by now. */
	wire_wait_status(&client, "l2.writes.waiting", 0);
	ck_assert_uint_eq(l2_memory_objects(r.m), RANKS);
	ck_assert_uint_eq(told_of_l2(&client, &next), 1);
	down_with_ranks(server, &client, workers);
}
END_TEST

START_TEST(the_shards_of_a_chunk_may_come_from_both_tiers)
{
	struct wire_peer client, workers[RANKS];
	struct scout_server *server = up_with_ranks(&client, workers);

	r = l2_rig_of(64 * RANKS);
	/* A chunk whose shards are not all there is no hit, in L2 either. */
	for (uint16_t rank = 0; rank < RANKS; rank++)
		l2_store(&workers[rank], 1, 4);
	l2_store(&workers[0], 5, 1);
	l2_store(&workers[1], 5, 1);
	down_with_ranks(server, &client, workers);
	server = up_with_ranks(&client, workers);
	l2_store(&workers[1], 1, 2);
	l2_lookup(&client, 1, 1, 6, 0, 4);
	ck_assert_uint_eq(wire_status(&client, "l2.0.keys_asked"), 6 * RANKS - 2);
	for (uint16_t rank = 0; rank < RANKS; rank++)
		ck_assert_uint_eq(l2_retrieve(&workers[rank], 1, 1, 0, 4), 4);
	ck_assert_uint_eq(wire_status(&client, "l2.loads.done"), 4 * RANKS - 2);
	rig_finish(&client, 1);
	l2_lookup(&client, 2, 1, 6, 4, 0);
	rig_finish(&client, 2);
	wire_wait_status(&client, "l1.bytes_promised", 0);
	l2_memory_wait_unpinned(r.m);
	down_with_ranks(server, &client, workers);
}
END_TEST

/* Otherwise what was written under older weights would be found again. */
START_TEST(a_client_that_changed_the_weights_says_so_to_a_server_that_restarted)
{
	struct scout_client_config cfg;
	struct scout_client *client;
	char folder[] = "/tmp/kvscout-l2-XXXXXX";
	char listen[64], err[256];
	struct wire_peer other;

	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(listen, sizeof(listen), "ipc://%s/s", folder);
	r.cfg.listen = listen;
	l2_up(&r);
	l2_store(&r.rig.worker, 1, 8);
	scout_client_config_init(&cfg);
	cfg.lookup_timeout_ms = 30000; /* a loaded machine is no reason for a miss */
	cfg.endpoint = listen;
	cfg.name_space = "test";
	cfg.chunk_tokens = 16;
	cfg.hash_bytes = 16;
	ck_assert_int_eq(scout_client_new(&cfg, &client, err, sizeof(err)), 0);
	ck_assert_msg(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
	ck_assert_int_eq(scout_reset(client, 7), 0);
	wire_wait_status(&r.rig.client, "ns.test.weights", 7);
	wire_close(&r.rig.worker);
	wire_close(&r.rig.client);
	scout_server_stop(r.rig.server);
	r.rig.server = rig_start(&r.cfg);
	ck_assert_msg(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
	rig_client(&other, listen);
	wire_wait_status(&other, "ns.test.weights", 7);
	rig_worker(&r.rig.worker, listen);
	l2_lookup(&other, 1, 1, 8, 0, 0);
	scout_client_free(client);
	wire_close(&other);
	wire_close(&r.rig.worker);
	scout_server_stop(r.rig.server);
	r.rig.server = NULL;
	ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

/*
 * prefetch=before_answer: what cannot be loaded within the client's timeout does not count, unless the lookup brings
 * the time for it. The store loads nothing before the first lookup has got its answer.
 */
START_TEST(a_lookup_with_a_timeout_of_its_own_gets_what_takes_longer_to_load)
{
	struct scout_client_config cfg;
	struct scout_client *client;
	uint8_t hashes[8 * 16];
	struct scout_query patient = {
		.id = "patient", .hashes = hashes, .hash_len = 16, .n = 8, .prompt_tokens = 8 * 16 + 1};
	struct scout_query hasty = patient;
	struct scout_hit hit;
	char err[256] = "";

	for (uint64_t i = 0; i < 8; i++)
		wire_hash(hashes + i * 16, 16, i + 1);
	r.cfg.prefetch = SCOUT_PREFETCH_BEFORE_ANSWER;
	l2_up_with_keys(&r, 8);
	l2_memory_pause(r.m, SCOUT__L2_LOAD);
	scout_client_config_init(&cfg);
	cfg.endpoint = r.rig.endpoint;
	cfg.name_space = "test";
	cfg.chunk_tokens = 16;
	cfg.hash_bytes = 16;
	cfg.lookup_timeout_ms = 300;
	ck_assert_int_eq(scout_client_new(&cfg, &client, err, sizeof(err)), 0);
	ck_assert_msg(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
	patient.timeout_ms = 20000;
	hasty.id = "hasty";
	ck_assert_int_eq(scout_try_lookup(client, &patient, &hit), SCOUT_NOT_YET);
	ck_assert_int_eq(scout_wait_lookup(client, &hasty, &hit), 0);
	ck_assert_uint_eq(hit.tokens, 0);
	ck_assert_int_eq(scout_try_lookup(client, &patient, &hit), SCOUT_NOT_YET);
	l2_memory_resume(r.m, SCOUT__L2_LOAD);
	ck_assert_int_eq(scout_wait_lookup(client, &patient, &hit), 0);
	ck_assert_uint_eq(hit.chunks, 8);
	ck_assert_uint_eq(hit.l2_chunks, 8);
	scout_client_free(client);
	l2_check_idle(&r);
}
END_TEST
