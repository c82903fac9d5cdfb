/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "fault_rig.h"
#include "redis_rig.h"

/*
 * kvscoutd with its L2 on real redis-servers: what was stored is found and loaded by a server that was started anew,
 * and whatever happens to Redis, nothing wrong is served, lookups end in time, the pool goes on working, the counters
 * say what happened, and it heals by itself.
 */

#define CHUNKS 16u
#define BLOCKS (CHUNKS * FAULT_BPC)
/* l2_timeout_ms and l2_lookup_timeout_ms where Redis is to be missed, and where nothing is to be missed on a busy machine. */
#define SHORT "300"
#define LONG "10000"

static struct fault f;
static struct fault_actor *sched, *worker;
static struct redis_server server;
static struct redis_cluster cluster;
static char url[64];
static uint32_t n_lookups;

static void
setup(void)
{
	memset(&f, 0, sizeof(f));
	memset(&server, 0, sizeof(server));
	memset(&cluster, 0, sizeof(cluster));
}

static void
teardown(void)
{
	redis_kill(&server);
	redis_cluster_kill(&cluster);
}

static void
actors(void)
{
	sched = fault_scheduler(&f);
	worker = fault_worker(&f);
}

static void
up(const char *before, uint16_t port, const char *timeout_ms)
{
	const char *const keys[] = {
		"l2", url, "l2_timeout_ms", timeout_ms, "l2_lookup_timeout_ms", timeout_ms, "l2_queue_bytes", "64Mi"};

	(void)snprintf(url, sizeof(url), "redis://%s127.0.0.1:%u", before, port);
	for (int i = 0; i < 8; i++)
		f.more[i] = keys[i];
	f.pool_chunks = 16 * CHUNKS; /* what waits to be written is bounded by a share of it */
	fault_up(&f);
	actors();
}

/* What starts next misses Redis soon, and forgets soon what it could not load. */
static void
be_impatient(void)
{
	f.more[3] = f.more[5] = SHORT;
	f.more[8] = "bad_key_ms";
	f.more[9] = "300";
}

/* Another start of the server: its pool is empty. */
static void
start_anew(void)
{
	fault_kill(sched);
	fault_kill(worker);
	fault_server_kill(&f);
	fault_server_start(&f);
	actors();
	fault_wait(&f, "l2.0.ready", 1);
}

static struct fault_hit
lookup(uint32_t prompt)
{
	char id[32];
	struct fault_hit hit;

	(void)snprintf(id, sizeof(id), "request-%u", n_lookups++);
	hit = fault_lookup(sched, id, prompt, CHUNKS);
	ck_assert_msg(hit.reason != SCOUT_REASON_TIMEOUT, "the client's timeout ended the lookup");
	return hit;
}

static void
finish(void)
{
	(void)fault_ask(sched, "finish request-%u", n_lookups - 1);
}

/* Look up and load; what is not named is right, and who insists gets all of the hit. Returns the chunks that came. */
static uint32_t
use(uint32_t prompt, bool insist)
{
	struct fault_hit hit = lookup(prompt);
	uint32_t missing = 0;

	if (hit.chunks > 0) {
		uint32_t blocks = hit.chunks * FAULT_BPC;
		struct fault_done done = fault_retrieve(worker, 0, hit.ticket, 0, blocks);

		if (insist)
			fault_check_all(worker, 0, &done, prompt, 0, blocks);
		else
			fault_check_pages(worker, 0, &done, prompt, 0, blocks);
		missing = done.n_missing / FAULT_BPC;
	}
	finish();
	return hit.chunks - missing;
}

static void
store(uint32_t prompt)
{
	ck_assert_uint_eq(fault_store(worker, 0, prompt, CHUNKS).chunks, CHUNKS);
}

/* Stored, and in Redis too. */
static void
store_through(uint32_t prompt)
{
	uint64_t before = fault_status(&f, "l2.writes.done");

	store(prompt);
	fault_wait(&f, "l2.writes.done", before + CHUNKS);
}

/* In the pool: whatever Redis does. */
static void
check_pool(uint32_t prompt)
{
	store(prompt);
	ck_assert_uint_eq(use(prompt, true), CHUNKS);
}

/* New prompts until one of them is in Redis; then it is found by a server that knows nothing else. */
static void
check_healed(uint32_t prompt)
{
	uint64_t before = UINT64_MAX - CHUNKS;

	wait_until(fault_status(&f, "l2.writes.done") >= before + CHUNKS) {
		fault_wait(&f, "l2.writes.waiting", 0);
		before = fault_status(&f, "l2.writes.done");
		store(++prompt);
		fault_wait(&f, "l2.writes.waiting", 0);
	}
	ck_assert_uint_eq(fault_status(&f, "l2.0.breaker.writes"), 0);
	start_anew();
	/* With a short timeout an overloaded machine may miss it, or some of it, once. */
	wait_until(use(prompt, false) == CHUNKS)
		;
}

static void
wait_at_least(const char *name, uint64_t value)
{
	uint64_t end_us = wait_begin();

	while (fault_status(&f, name) < value)
		ck_assert_msg(scout__now_us() < end_us, "%s is %" PRIu64, name, fault_status(&f, name));
}

/* ---- one server ---- */

START_TEST(a_new_server_finds_and_loads_what_another_stored)
{
	redis_start(&server, NULL);
	up("", server.port, LONG);
	store_through(1);
	ck_assert_int_eq((int)redis_number(&server, "DBSIZE"), CHUNKS);
	start_anew();
	ck_assert_uint_eq(use(1, true), CHUNKS);
	ck_assert_uint_eq(fault_status(&f, "l2.hit_chunks"), CHUNKS);
	ck_assert_uint_eq(fault_status(&f, "l2.loads.done"), CHUNKS);
	ck_assert_uint_eq(fault_status(&f, "l2.0.keys_found"), CHUNKS);
	/* By now it is in the pool: Redis is not asked again. */
	ck_assert_uint_eq(use(1, true), CHUNKS);
	ck_assert_uint_eq(fault_status(&f, "l2.loads"), CHUNKS);
	fault_down(&f);
}
END_TEST

START_TEST(what_goes_between_lookup_and_load_is_named_and_not_offered_again)
{
	struct fault_hit hit;
	struct fault_done done;

	redis_start(&server, NULL);
	up("", server.port, LONG);
	store_through(1);
	start_anew();
	hit = lookup(1);
	ck_assert_uint_eq(hit.chunks, CHUNKS);
	redis_ok(&server, "FLUSHALL");
	done = fault_retrieve(worker, 0, hit.ticket, 0, BLOCKS);
	assert_rc(done.status, SCOUT_ERR_MISSING);
	ck_assert_uint_eq(done.n_missing, BLOCKS);
	fault_check_pages(worker, 0, &done, 1, 0, BLOCKS);
	finish();
	ck_assert_uint_eq(fault_status(&f, "l2.loads.failed"), CHUNKS);
	ck_assert_uint_eq(use(1, true), 0);
	/* Stored again it is there again. */
	check_pool(1);
	check_healed(100);
	fault_down(&f);
}
END_TEST

/* Change something in the value of every object. */
static void
damage(const char *how)
{
	redisReply *keys = redis_do(&server, "KEYS kvscout:3:*");

	ck_assert_uint_eq(keys->elements, CHUNKS);
	for (size_t i = 0; i < keys->elements; i++) {
		const char *key = keys->element[i]->str;

		if (strcmp(how, "bit") == 0) {
			long long bit = redis_number(&server, "GETBIT %s %u", key, 8 * (600 + (unsigned)i));

			(void)redis_number(&server, "SETBIT %s %u %d", key, 8 * (600 + (unsigned)i), bit ? 0 : 1);
		} else if (strcmp(how, "short") == 0) {
			redisReply *value = redis_do(&server, "GET %s", key);

			redis_set(&server, key, value->str, value->len - 1 - i);
			freeReplyObject(value);
		} else {
			redisReply *value = redis_do(&server, "GET %s", keys->element[(i + 1) % keys->elements]->str);

			redis_set(&server, key, value->str, value->len);
			freeReplyObject(value);
		}
	}
	freeReplyObject(keys);
}

static const char *const damages[] = {"bit", "short", "other"};

START_TEST(damaged_objects_are_misses_and_are_removed)
{
	struct fault_hit hit;
	struct fault_done done;

	redis_start(&server, NULL);
	up("", server.port, LONG);
	store_through(1);
	start_anew();
	damage(damages[_i]);
	hit = lookup(1);
	ck_assert_uint_eq(hit.chunks, CHUNKS);
	done = fault_retrieve(worker, 0, hit.ticket, 0, BLOCKS);
	ck_assert_uint_eq(done.n_missing, BLOCKS);
	fault_check_pages(worker, 0, &done, 1, 0, BLOCKS);
	finish();
	wait_at_least("l2.0.load.corrupt", 1);
	wait_until(redis_number(&server, "DBSIZE") <= (long long)(CHUNKS - fault_status(&f, "l2.0.load.corrupt")))
		;
	check_healed(200);
	fault_down(&f);
}
END_TEST

/*
 * A store that never said what was cleared last is neither asked nor written, so its breakers have nothing to open
 * over.
 */
static void
is_not_used(void)
{
	ck_assert_uint_eq(fault_status(&f, "l2.loads"), 0);
	ck_assert_uint_eq(fault_status(&f, "l2.hit_chunks"), 0);
	ck_assert_uint_eq(fault_status(&f, "l2.writes.done"), 0);
	ck_assert_uint_eq(fault_status(&f, "l2.0.reads_switched_off"), 0);
	ck_assert_uint_eq(fault_status(&f, "l2.0.writes_switched_off"), 0);
}

START_TEST(a_wrong_password_costs_the_second_tier_only_and_heals)
{
	static const char *const extra[] = {"requirepass", "right", NULL};

	server.password = "right";
	redis_start(&server, extra);
	up(":wrong@", server.port, LONG);
	wait_at_least("l2.0.login_refused", 2);
	ck_assert_uint_eq(fault_status(&f, "l2.0.ready"), 0);
	for (uint32_t i = 0; i < 8; i++) {
		ck_assert_uint_eq(use(50 + i, true), 0);
		check_pool(60 + i);
	}
	is_not_used();
	ck_assert_int_eq((int)redis_number(&server, "DBSIZE"), 0);
	redis_ok(&server, "CONFIG SET requirepass wrong");
	fault_wait(&f, "l2.0.ready", 1);
	check_healed(300);
	fault_down(&f);
}
END_TEST

START_TEST(a_server_that_accepts_and_never_answers_costs_the_second_tier_only)
{
	int fd;

	up("", redis_deaf_listener(&fd), SHORT);
	for (uint32_t i = 0; i < 12; i++) {
		ck_assert_uint_eq(use(50 + i, true), 0);
		check_pool(70 + i);
	}
	ck_assert_uint_eq(fault_status(&f, "l2.0.ready"), 0);
	is_not_used();
	fault_down(&f);
	(void)close(fd);
}
END_TEST

START_TEST(a_stopped_redis_costs_the_second_tier_only_and_heals)
{
	struct fault_hit hit;
	struct fault_done done;

	redis_start(&server, NULL);
	up("", server.port, LONG);
	store_through(1);
	be_impatient();
	start_anew();
	wait_until((hit = lookup(1)).chunks == CHUNKS)
		finish();
	redis_freeze(&server);
	/* It was there; it does not come in time. */
	done = fault_retrieve(worker, 0, hit.ticket, 0, BLOCKS);
	assert_rc(done.status, SCOUT_ERR_MISSING);
	fault_check_pages(worker, 0, &done, 1, 0, BLOCKS);
	finish();
	wait_at_least("l2.loads.failed", 1);
	for (uint32_t i = 0; i < 8; i++) {
		ck_assert_uint_eq(use(50 + i, true), 0);
		check_pool(60 + i);
	}
	wait_at_least("l2.0.reads_switched_off", 1);
	redis_thaw(&server);
	fault_wait(&f, "l2.0.ready", 1);
	check_healed(400);
	fault_down(&f);
}
END_TEST

START_TEST(a_redis_that_is_killed_and_comes_back_empty_is_believed)
{
	redis_start(&server, NULL);
	up("", server.port, LONG);
	store_through(1);
	be_impatient();
	start_anew();
	redis_kill(&server);
	for (uint32_t i = 0; i < 8; i++) {
		ck_assert_uint_eq(use(1, true), 0);
		check_pool(60 + i);
	}
	fault_wait(&f, "l2.0.ready", 0);
	redis_restart(&server);
	fault_wait(&f, "l2.0.ready", 1);
	fault_wait(&f, "l2.0.breaker.reads", 0);
	ck_assert_uint_eq(use(1, true), 0);
	check_healed(500);
	fault_down(&f);
}
END_TEST

/* ---- three nodes ---- */

START_TEST(a_cluster_is_used_as_a_whole)
{
	redis_cluster_start(&cluster);
	up("", cluster.nodes[0].port, LONG);
	store_through(1);
	store_through(2);
	for (uint32_t i = 0; i < REDIS_NODES; i++)
		ck_assert_int_gt((int)redis_number(&cluster.nodes[i], "DBSIZE"), 0);
	start_anew();
	ck_assert_uint_eq(use(1, true), CHUNKS);
	ck_assert_uint_eq(use(2, true), CHUNKS);
	ck_assert_uint_eq(fault_status(&f, "l2.loads.done"), 2 * CHUNKS);
	ck_assert_uint_eq(fault_status(&f, "l2.0.moved") + fault_status(&f, "l2.0.asked"), 0);
	fault_down(&f);
}
END_TEST

/* The slot of some key on a node. */
static uint16_t
some_slot(uint32_t node)
{
	redisReply *key = redis_do(&cluster.nodes[node], "RANDOMKEY");
	uint16_t slot;

	ck_assert_int_eq(key->type, REDIS_REPLY_STRING);
	slot = redis_cluster_slot(&cluster, key->str);
	freeReplyObject(key);
	return slot;
}

START_TEST(slots_that_move_between_lookup_and_load_are_followed)
{
	struct fault_hit hit;
	struct fault_done done;
	uint16_t slot, second;

	redis_cluster_start(&cluster);
	up("", cluster.nodes[0].port, LONG);
	store_through(1);
	start_anew();
	slot = some_slot(0);
	second = some_slot(1);
	hit = lookup(1);
	ck_assert_uint_eq(hit.chunks, CHUNKS);
	/* One is on its way (ASK), the other has arrived (MOVED). */
	redis_cluster_open_move(&cluster, slot, 0, 2);
	redis_cluster_migrate(&cluster, slot, 0, 2);
	redis_cluster_open_move(&cluster, second, 1, 2);
	redis_cluster_migrate(&cluster, second, 1, 2);
	redis_cluster_close_move(&cluster, second, 2);
	done = fault_retrieve(worker, 0, hit.ticket, 0, BLOCKS);
	fault_check_all(worker, 0, &done, 1, 0, BLOCKS);
	finish();
	ck_assert_uint_ge(fault_status(&f, "l2.0.asked"), 1);
	ck_assert_uint_ge(fault_status(&f, "l2.0.moved"), 1);
	ck_assert_uint_eq(fault_status(&f, "l2.loads.failed"), 0);
	redis_cluster_close_move(&cluster, slot, 2);
	start_anew();
	ck_assert_uint_eq(use(1, true), CHUNKS);
	ck_assert_uint_eq(fault_status(&f, "l2.0.asked"), 0);
	fault_down(&f);
}
END_TEST

START_TEST(a_node_that_is_killed_between_lookup_and_load_costs_its_keys_only_and_heals)
{
	struct fault_hit hit;
	struct fault_done done;

	redis_cluster_start(&cluster);
	up("", cluster.nodes[0].port, LONG);
	store_through(1);
	start_anew();
	hit = lookup(1);
	ck_assert_uint_eq(hit.chunks, CHUNKS);
	redis_kill(&cluster.nodes[2]);
	done = fault_retrieve(worker, 0, hit.ticket, 0, BLOCKS);
	assert_rc(done.status, SCOUT_ERR_MISSING);
	fault_check_pages(worker, 0, &done, 1, 0, BLOCKS);
	finish();
	ck_assert_uint_ge(fault_status(&f, "l2.loads.done"), 1);
	wait_at_least("l2.loads.failed", 1);
	/* Hits end before the first chunk that nobody can ask for; what they promise comes. */
	for (uint32_t i = 0; i < 4; i++) {
		ck_assert_uint_lt(use(1, true), CHUNKS);
		check_pool(60 + i);
	}
	redis_restart(&cluster.nodes[2]);
	check_healed(600);
	fault_down(&f);
}
END_TEST

static Suite *
suite(void)
{
	Suite *s = suite_create("fault_redis");
	TCase *single = tcase_create("single"), *nodes = tcase_create("cluster");

	tcase_add_checked_fixture(single, setup, teardown);
	tcase_set_timeout(single, 300);
	tcase_add_test(single, a_new_server_finds_and_loads_what_another_stored);
	tcase_add_test(single, what_goes_between_lookup_and_load_is_named_and_not_offered_again);
	tcase_add_loop_test(single, damaged_objects_are_misses_and_are_removed, 0,
			    (int)(sizeof(damages) / sizeof(damages[0])));
	tcase_add_test(single, a_wrong_password_costs_the_second_tier_only_and_heals);
	tcase_add_test(single, a_server_that_accepts_and_never_answers_costs_the_second_tier_only);
	tcase_add_test(single, a_stopped_redis_costs_the_second_tier_only_and_heals);
	tcase_add_test(single, a_redis_that_is_killed_and_comes_back_empty_is_believed);
	suite_add_tcase(s, single);
	tcase_add_checked_fixture(nodes, setup, teardown);
	tcase_set_timeout(nodes, 300);
	tcase_add_test(nodes, a_cluster_is_used_as_a_whole);
	tcase_add_test(nodes, slots_that_move_between_lookup_and_load_are_followed);
	tcase_add_test(nodes, a_node_that_is_killed_between_lookup_and_load_costs_its_keys_only_and_heals);
	suite_add_tcase(s, nodes);
	return s;
}

int
main(void)
{
	fault_make_home();
	return redis_rig_main(suite());
}
