/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "check_main.h"
#include "fault_store.h"
#include "redis_rig.h"

/*
 * kvscoutd with its L2 on real redis-servers: what was stored is found and loaded by a server that was started anew,
 * and whatever happens to Redis, nothing wrong is served, lookups end in time, the pool goes on working, the counters
 * say what happened, and it heals by itself.
 */

static struct redis_server server;
static struct redis_cluster cluster;
static char url[64];

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
	if (f.server)
		fault_down(&f);
	redis_kill(&server);
	redis_cluster_kill(&cluster);
}

static void
up_on(const char *before, uint16_t port, const char *timeout_ms)
{
	(void)snprintf(url, sizeof(url), "redis://%s127.0.0.1:%u", before, port);
	up(url, timeout_ms);
}

/* ---- one server ---- */

CASE_TIMEOUT(300);
CHECKED_FIXTURE(setup, teardown);

START_TEST(a_new_server_finds_and_loads_what_another_stored)
{
	redis_start(&server, NULL);
	up_on("", server.port, LONG);
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
}
END_TEST

START_TEST(what_goes_between_lookup_and_load_is_named_and_not_offered_again)
{
	struct fault_hit hit;
	struct fault_done done;

	redis_start(&server, NULL);
	up_on("", server.port, LONG);
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

START_LOOP_TEST(damaged_objects_are_misses_and_are_removed, 0, (sizeof(damages) / sizeof(damages[0])))
{
	struct fault_hit hit;
	struct fault_done done;

	redis_start(&server, NULL);
	up_on("", server.port, LONG);
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
}
END_TEST

START_TEST(a_wrong_password_costs_the_second_tier_only_and_heals)
{
	static const char *const extra[] = {"requirepass", "right", NULL};
	char words[160];

	server.password = "right";
	redis_start(&server, extra);
	up_on(":wrong@", server.port, LONG);
	wait_at_least("l2.0.login_refused", 2);
	ck_assert_uint_eq(fault_status(&f, "l2.0.ready"), 0);
	for (uint32_t i = 0; i < 8; i++) {
		ck_assert_uint_eq(use(50 + i, true), 0);
		check_pool(60 + i);
	}
	is_not_used();
	(void)snprintf(words, sizeof(words), "WRONGPASS: it refuses the user or password (127.0.0.1:%u)", server.port);
	check_failing(words);
	ck_assert_int_eq((int)redis_number(&server, "DBSIZE"), 0);
	redis_ok(&server, "CONFIG SET requirepass wrong");
	fault_wait(&f, "l2.0.ready", 1);
	check_healed(300);
}
END_TEST

START_TEST(a_server_that_accepts_and_never_answers_costs_the_second_tier_only)
{
	int fd;

	up_on("", redis_deaf_listener(&fd), SHORT);
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

	redis_start(&server, NULL);
	up_on("", server.port, LONG);
	store_through(1);
	hit = promise_impatiently(SHORT);
	redis_freeze(&server);
	check_frozen(&hit);
	redis_thaw(&server);
	fault_wait(&f, "l2.0.ready", 1);
	check_healed(400);
}
END_TEST

START_TEST(a_redis_that_is_killed_and_comes_back_empty_is_believed)
{
	redis_start(&server, NULL);
	up_on("", server.port, LONG);
	store_through(1);
	be_impatient(SHORT);
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
}
END_TEST

/* ---- three nodes ---- */

START_TEST(a_cluster_is_used_as_a_whole)
{
	redis_cluster_start(&cluster);
	up_on("", cluster.nodes[0].port, LONG);
	store_through(1);
	store_through(2);
	for (uint32_t i = 0; i < REDIS_NODES; i++)
		ck_assert_int_gt((int)redis_number(&cluster.nodes[i], "DBSIZE"), 0);
	start_anew();
	ck_assert_uint_eq(use(1, true), CHUNKS);
	ck_assert_uint_eq(use(2, true), CHUNKS);
	ck_assert_uint_eq(fault_status(&f, "l2.loads.done"), 2 * CHUNKS);
	ck_assert_uint_eq(fault_status(&f, "l2.0.moved") + fault_status(&f, "l2.0.asked"), 0);
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
	up_on("", cluster.nodes[0].port, LONG);
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
}
END_TEST

START_TEST(a_node_that_is_killed_between_lookup_and_load_costs_its_keys_only_and_heals)
{
	struct fault_hit hit;
	struct fault_done done;

	redis_cluster_start(&cluster);
	up_on("", cluster.nodes[0].port, LONG);
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
}
END_TEST

int
main(void)
{
	fault_make_home();
	return redis_rig_main(suite_of_this_file());
}
