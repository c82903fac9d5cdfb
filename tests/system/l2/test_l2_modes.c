/* SPDX-License-Identifier: Apache-2.0 */
#include "server_l2_rig.h"

#include "check_main.h"
#include "fetch.h"
#include "waiting.h"

/* prefetch, l2_objects, several adapters, and key polling over both tiers. */

/* ---- prefetch ---- */

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

START_TEST(on_lookup_loads_start_with_the_answer)
{
	r.cfg.prefetch = SCOUT_PREFETCH_ON_LOOKUP;
	l2_up_with_keys(&r, 8);
	l2_memory_pause(r.m, SCOUT__L2_LOAD);
	l2_lookup(&r.rig.client, 1, 1, 8, 0, 8);
	l2_memory_wait(r.m, SCOUT__L2_LOAD, 8);
	l2_memory_resume(r.m, SCOUT__L2_LOAD);
	wire_wait_status(&r.rig.client, "l2.loads.done", 8);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 1, 1, 0, 8), 8);
	l2_end(&r, 1);
}
END_TEST

START_TEST(a_lookup_that_asks_for_it_loads_at_once)
{
	struct scout__lookup_msg m = {.ticket = 1, .n = 8, .flags = SCOUT_LOOKUP_LOAD};
	struct wire_reply *reply;
	uint64_t corr;

	l2_up_with_keys(&r, 8);
	corr = wire_add_lookup(&r.rig.client, &m, 1);
	wire_flush(&r.rig.client);
	reply = wire_wait(&r.rig.client, corr);
	ck_assert_int_eq(reply->status, SCOUT_WIRE_OK);
	wire_reply_free(reply);
	wire_wait_status(&r.rig.client, "l2.loads.done", 8);
	/* The next one finds it in memory, with and without the first. */
	l2_lookup(&r.rig.client, 2, 1, 8, 8, 0);
	rig_finish(&r.rig.client, 1);
	rig_finish(&r.rig.client, 2);
	l2_lookup(&r.rig.client, 3, 1, 8, 8, 0);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.loads.done"), 8);
	l2_end(&r, 3);
}
END_TEST

START_TEST(before_answer_counts_what_has_arrived)
{
	r.cfg.prefetch = SCOUT_PREFETCH_BEFORE_ANSWER;
	l2_up_with_keys(&r, 8);
	l2_store(&r.rig.worker, 1, 2);
	l2_lookup(&r.rig.client, 1, 1, 8, 2, 6);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.loads.done"), 6);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 1, 1, 0, 8), 8);
	l2_end(&r, 1);
}
END_TEST

START_TEST(before_answer_ends_where_a_load_fails)
{
	r.cfg.prefetch = SCOUT_PREFETCH_BEFORE_ANSWER;
	l2_up_with_keys_in_order(&r, 8);
	l2_store(&r.rig.worker, 1, 2);
	/* The first that is loaded is chunk 2. */
	l2_memory_fail(r.m, SCOUT__L2_LOAD, 1, SCOUT__L2_CORRUPT);
	l2_lookup(&r.rig.client, 1, 1, 8, 2, 0);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.bytes_promised"), 2 * SHARD_BYTES);
	rig_finish(&r.rig.client, 1);
	l2_check_idle(&r);
	ck_assert_uint_eq(l2_memory_objects(r.m), 7);
}
END_TEST

START_TEST(before_answer_gives_back_what_does_not_come_in_time)
{
	r.cfg.prefetch = SCOUT_PREFETCH_BEFORE_ANSWER;
	r.cfg.l2_timeout_ms = L2_LATE_MS;
	l2_up_with_keys(&r, 8);
	l2_store(&r.rig.worker, 1, 3);
	l2_memory_pause(r.m, SCOUT__L2_LOAD);
	l2_lookup(&r.rig.client, 1, 1, 8, 3, 0);
	rig_finish(&r.rig.client, 1);
	wire_wait_status(&r.rig.client, "l1.bytes_promised", 0);
	/* What is under way has its slots until it is over; then it is there. */
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.bytes_held"), 5 * SHARD_BYTES);
	l2_memory_resume(r.m, SCOUT__L2_LOAD);
	l2_check_idle(&r);
	l2_lookup(&r.rig.client, 2, 1, 8, 8, 0);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 2, 1, 0, 8), 8);
	l2_end(&r, 2);
}
END_TEST

/* ---- l2_objects ---- */

/* Pool of 64, all of it used: keys 1 to 8 are loaded, what else there is was stored. */
static void
load_into_full_pool(void)
{
	l2_up(&r);
	l2_store(&r.rig.worker, 1, 8);
	l2_restart(&r);
	l2_lookup(&r.rig.client, 1, 1, 8, 0, 8);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 1, 1, 0, 8), 8);
	rig_finish(&r.rig.client, 1);
	for (uint64_t key = 1000; key < 1056; key += 8)
		l2_store(&r.rig.worker, key, 8);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.chunks"), 64);
	/* The loaded ones are the most recent. */
	l2_lookup(&r.rig.client, 2, 1, 8, 8, 0);
	rig_finish(&r.rig.client, 2);
	l2_store(&r.rig.worker, 2000, 8);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l1.evictions"), 8);
}

/* How many of @n keys from @first on are in the pool, whatever L2 has. */
static uint32_t
in_pool(uint64_t first, uint32_t n)
{
	uint32_t found = 0;

	l2_memory_hide_all(r.m);
	for (uint32_t i = 0; i < n; i++)
		found += rig_peek(&r.rig.client, first + i, 1);
	return found;
}

START_TEST(retained_objects_are_like_any_other)
{
	r.cfg.eviction = "lru";
	load_into_full_pool();
	ck_assert_uint_eq(in_pool(1, 8), 8);
	ck_assert_uint_eq(in_pool(1000, 56), 48);
}
END_TEST

START_LOOP_TEST(temporary_objects_go_first_and_finish_does_not_touch_them, 0, 3)
{
	static const char *const policies[] = {"lru", "s3fifo", "hdc"};

	r.cfg.eviction = policies[_i];
	r.cfg.l2_objects = SCOUT_L2_TEMPORARY;
	load_into_full_pool();
	ck_assert_uint_eq(in_pool(1, 8), 0);
	ck_assert_uint_eq(in_pool(1000, 56), 56);
}
END_TEST

#define READERS 8

static void
open_reader(struct wire_peer *p, const char *endpoint, uint16_t reader)
{
	rig_worker_unregistered(p, endpoint, 1, READERS);
	ck_assert_int_eq(wire_register(p, 0, reader, SHARD_BYTES), SCOUT_WIRE_OK);
}

START_TEST(eight_readers_of_a_temporary_object_are_one_load)
{
	struct wire_peer client, readers[READERS];
	struct scout_server *server;
	struct wire_grants g[READERS];
	const char *endpoint;

	r.cfg.l2_objects = SCOUT_L2_TEMPORARY;
	for (int round = 0; round < 2; round++) {
		server = rig_start(&r.cfg);
		endpoint = scout_server_endpoint(server);
		wire_open(&client, endpoint);
		client.hello.readers = READERS;
		ck_assert_int_eq(wire_hello(&client), SCOUT_WIRE_OK);
		for (uint16_t i = 0; i < READERS; i++)
			open_reader(&readers[i], endpoint, i);
		if (round == 0)
			l2_store(&readers[0], 1, 1);
		else
			break;
		for (uint16_t i = 0; i < READERS; i++)
			wire_close(&readers[i]);
		wire_close(&client);
		scout_server_stop(server);
	}
	l2_lookup(&client, 1, 1, 1, 0, 1);
	for (uint16_t i = 0; i < READERS; i++) {
		uint8_t expected[SHARD_BYTES];

		ck_assert_int_eq(wire_retrieve(&readers[i], 1, 0, 1, &g[i]), SCOUT_WIRE_OK);
		ck_assert_uint_eq(g[i].n_granted, 1);
		l2_fill(expected, 1);
		ck_assert_mem_eq(wire_slot(&readers[i], &g[i].grants[0]), expected, SHARD_BYTES);
	}
	ck_assert_uint_eq(l2_memory_count(r.m, SCOUT__L2_LOAD), 1);
	for (uint16_t i = 0; i < READERS; i++) {
		ck_assert_int_eq(wire_retrieve_done(&readers[i], g[i].id, 0), SCOUT_WIRE_OK);
		free(g[i].grants);
	}
	rig_finish(&client, 1);
	for (uint64_t key = 1000; key < 1064; key++)
		l2_store(&readers[key % READERS], key, 1);
	ck_assert_uint_eq(wire_status(&client, "l1.evictions"), 1);
	l2_memory_hide_all(r.m);
	ck_assert_uint_eq(rig_peek(&client, 1, 1), 0);
	ck_assert_uint_eq(rig_peek(&client, 1000, 64), 64);
	for (uint16_t i = 0; i < READERS; i++)
		wire_close(&readers[i]);
	wire_close(&client);
	scout_server_stop(server);
}
END_TEST

/* ---- two adapters ---- */

START_TEST(a_failed_load_is_tried_on_the_next_adapter_that_has_it)
{
	struct l2_memory *b = l2_memory("b");

	r.cfg.l2 = "memory://a memory://b";
	l2_up(&r);
	l2_store(&r.rig.worker, 1, 8);
	ck_assert_uint_eq(l2_memory_objects(r.m), 8);
	ck_assert_uint_eq(l2_memory_objects(b), 8);
	l2_restart(&r);
	/* Nobody knows yet that the second one has it, too: it is tried all the same. */
	l2_memory_pause(b, SCOUT__L2_EXISTS);
	l2_lookup(&r.rig.client, 1, 1, 8, 0, 8);
	l2_memory_resume(b, SCOUT__L2_EXISTS);
	l2_memory_fail(r.m, SCOUT__L2_LOAD, 3, SCOUT__L2_CORRUPT);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 1, 1, 0, 8), 8);
	ck_assert_uint_eq(l2_memory_count(b, SCOUT__L2_LOAD), 3);
	rig_finish(&r.rig.client, 1);
	l2_check_idle(&r);
	l2_memory_wait_unpinned(b);
	/* What was damaged is gone, and nothing is a bad key. */
	ck_assert_uint_eq(l2_memory_objects(r.m), 5);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.bad_keys"), 0);
}
END_TEST

/* A store that has lost its connection says nothing about the object; nor does another one that never had it. */
START_TEST(a_load_that_one_store_fails_and_another_lacks_is_offered_again_soon)
{
	struct scout__lookup_reply m = {.hit = 0};
	struct l2_memory *b = l2_memory("b");
	uint64_t ticket = 1, begin_us;

	r.cfg.l2 = "memory://a memory://b";
	r.cfg.bad_key_ms = 30000;
	l2_up(&r);
	l2_store(&r.rig.worker, 1, 1);
	l2_memory_delete(b, 0);
	l2_restart(&r);
	l2_lookup(&r.rig.client, ticket, 1, 1, 0, 1);
	l2_memory_fail(r.m, SCOUT__L2_LOAD, 1, SCOUT__L2_ERROR);
	begin_us = scout__now_us();
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, ticket, 1, 0, 1), 0);
	ck_assert_uint_eq(l2_memory_count(b, SCOUT__L2_LOAD), 1);
	wait_until(m.hit == 1) {
		rig_finish(&r.rig.client, ticket);
		ck_assert_int_eq(wire_lookup(&r.rig.client, ++ticket, 1, 1, 0, &m), SCOUT_WIRE_OK);
	}
	ck_assert_uint_lt(scout__now_us() - begin_us, 30000000);
	l2_end(&r, ticket);
}
END_TEST

START_TEST(who_has_all_need_not_wait_for_who_is_slow)
{
	struct l2_memory *b = l2_memory("b");

	r.cfg.l2 = "memory://a memory://b";
	l2_up_with_keys(&r, 8);
	l2_memory_pause(b, SCOUT__L2_EXISTS);
	l2_lookup(&r.rig.client, 1, 1, 8, 0, 8);
	ck_assert_uint_eq(wire_status(&r.rig.client, "l2.lookups.late"), 0);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 1, 1, 0, 8), 8);
	rig_finish(&r.rig.client, 1);
	l2_memory_resume(b, SCOUT__L2_EXISTS);
	l2_check_idle(&r);
	l2_memory_wait_unpinned(b);
}
END_TEST

/* ---- key polling ---- */

#define NEVER_MS 3600000u /* later than any test waits */

/* A lookup of @n keys from 1 on that expects them all; its corr. */
static uint64_t
poll_for(uint64_t ticket, uint32_t n, uint32_t timeout_ms, uint32_t interval_ms)
{
	const struct scout__lookup_msg m = {
		.ticket = ticket,
		.n = n,
		.expect = n,
		.poll_timeout_ms = timeout_ms,
		.poll_interval_ms = interval_ms,
	};
	uint64_t corr = wire_add_lookup(&r.rig.client, &m, 1);

	wire_flush(&r.rig.client);
	return corr;
}

static uint32_t
polled_hit(uint64_t corr)
{
	struct wire_reply *reply = wire_wait(&r.rig.client, corr);
	const struct scout__op op = {.opcode = SCOUT_OP_LOOKUP,
				     .kind = SCOUT_KIND_REPLY,
				     .corr = corr,
				     .body = reply->body,
				     .length = reply->length};
	struct scout__lookup_reply m;
	const char *field = "";

	ck_assert_uint_eq(reply->status, SCOUT_WIRE_OK);
	ck_assert_int_eq(scout__get_lookup_reply(&op, &m, &field), 0);
	wire_reply_free(reply);
	return m.hit;
}

/* What L2 has of keys 1 to @n, each stored by itself so that object i is key i + 1; hidden. */
static void
another_node_wrote(uint32_t n)
{
	l2_up_with_keys_in_order(&r, n);
	l2_memory_hide_all(r.m);
}

START_TEST(keys_that_come_late_and_out_of_order_are_waited_for)
{
	static const unsigned order[] = {5, 1, 7, 0, 3, 2, 6, 4};
	unsigned rounds;
	uint64_t corr;

	another_node_wrote(8);
	corr = poll_for(1, 8, 20000, 2);
	l2_memory_wait(r.m, SCOUT__L2_EXISTS, 3);
	for (unsigned i = 0; i < 8; i++) {
		ck_assert(!wire_has(&r.rig.client, corr));
		l2_memory_show(r.m, order[i]);
		rounds = l2_memory_count(r.m, SCOUT__L2_EXISTS);
		/* The last but one of these was asked after it was shown. */
		if (i < 7)
			l2_memory_wait(r.m, SCOUT__L2_EXISTS, rounds + 2);
	}
	ck_assert_uint_eq(polled_hit(corr), 8);
	/* The round that was under way when the last one came, and the next: within one interval. */
	ck_assert_uint_le(l2_memory_count(r.m, SCOUT__L2_EXISTS), rounds + 2);
	ck_assert_uint_eq(l2_retrieve(&r.rig.worker, 1, 1, 0, 8), 8);
	l2_end(&r, 1);
}
END_TEST

/*
 * Many long lookups that poll: what they ask for goes in pieces, so that no step of the loop is longer for it. In the
 * first round that is what the operations of one turn may touch, later a window of each lookup.
 */
START_TEST(polling_asks_for_little_in_each_step)
{
	enum {
		LOOKUPS = 64,
		KEYS = 512
	};
	struct l2_memory_asked first, all;

	r = l2_rig_of(2 * KEYS);
	l2_up(&r);
	l2_memory_pause(r.m, SCOUT__L2_EXISTS);
	for (uint32_t i = 0; i < LOOKUPS; i++) {
		const struct scout__lookup_msg m = {
			.ticket = i + 1, .n = KEYS, .expect = KEYS, .poll_timeout_ms = 60000, .poll_interval_ms = 1};

		(void)wire_add_lookup(&r.rig.client, &m, 1 + i * KEYS);
	}
	wire_flush(&r.rig.client);
	l2_memory_wait(r.m, SCOUT__L2_EXISTS, LOOKUPS);
	first = l2_memory_asked(r.m);
	ck_assert_uint_eq(first.questions, LOOKUPS);
	ck_assert_uint_eq(first.keys, LOOKUPS * KEYS);
	ck_assert_uint_le(first.most_keys, SCOUT__INLINE_CHUNKS);
	l2_memory_resume(r.m, SCOUT__L2_EXISTS);
	l2_memory_wait(r.m, SCOUT__L2_EXISTS, 4 * LOOKUPS);
	all = l2_memory_asked(r.m);
	ck_assert_uint_eq(all.keys - first.keys, (all.questions - first.questions) * SCOUT__POLL_WINDOW);
	ck_assert_uint_eq(all.most_keys, first.most_keys);
}
END_TEST

START_TEST(polling_ends_with_what_there_is_in_order)
{
	uint64_t corr;

	another_node_wrote(8);
	l2_memory_show(r.m, 0);
	l2_memory_show(r.m, 1);
	l2_memory_show(r.m, 3);
	corr = poll_for(1, 8, 50, 5);
	ck_assert_uint_eq(polled_hit(corr), 2);
	l2_end(&r, 1);
}
END_TEST

START_TEST(without_a_timeout_it_is_one_round)
{
	another_node_wrote(8);
	ck_assert_uint_eq(polled_hit(poll_for(1, 8, 0, 1)), 0);
	ck_assert_uint_eq(l2_memory_count(r.m, SCOUT__L2_EXISTS), 1);
	l2_end(&r, 1);
}
END_TEST

START_TEST(a_commit_wakes_who_waits_for_it_before_the_interval)
{
	uint64_t corr;

	l2_up(&r);
	corr = poll_for(1, 4, NEVER_MS, NEVER_MS);
	l2_memory_wait(r.m, SCOUT__L2_EXISTS, 1);
	l2_store_in_pool(&r.rig.worker, 1, 4);
	ck_assert_uint_eq(polled_hit(corr), 4);
	/* The pool said it: nobody was asked again. */
	ck_assert_uint_eq(l2_memory_count(r.m, SCOUT__L2_EXISTS), 1);
	l2_end(&r, 1);
}
END_TEST
