/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "redis.h"
#include "redis_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter_rig.h"
#include "redis_rig.h"

/*
 * The adapter on a real Redis Cluster of three nodes. Each case has one of its own, whose nodes take two seconds until they serve: most of
 * the program's half a minute.
 */

#define N 60u

static struct redis_cluster cluster;
static struct adapter_rig rig;
static struct adapter_object objects[N];
static char url[512];

static void
set_up(void)
{
	memset(&cluster, 0, sizeof(cluster));
	rig = (struct adapter_rig){.vt = &scout__l2_redis, .timeout_ms = 5000};
	redis_cluster_start(&cluster);
	/* One is enough to find the others. */
	(void)snprintf(url, sizeof(url), "redis://127.0.0.1:%u", cluster.nodes[1].port);
	for (uint32_t i = 0; i < N; i++)
		object_init(&objects[i], i, 3000 + i);
}

static void
add_option(const char *option)
{
	size_t len = strlen(url);

	(void)snprintf(url + len, sizeof(url) - len, "%s", option);
}

static void
tear_down(void)
{
	if (rig.adapter)
		adapter_down(&rig);
	redis_cluster_kill(&cluster);
	for (uint32_t i = 0; i < N; i++)
		object_fini(&objects[i]);
}

static uint64_t
counter(const atomic_uint_fast64_t *value)
{
	return atomic_load(value);
}
#define COUNTER(name) counter(&scout__redis_counters(rig.adapter)->name)

static void
store_all(void)
{
	for (uint32_t i = 0; i < N; i++)
		object_begin(&rig, &objects[i], SCOUT__L2_STORE, 10000);
	for (uint32_t i = 0; i < N; i++)
		ck_assert_int_eq(object_end(&objects[i]), SCOUT__L2_OK);
}

static uint16_t
slot_of(const struct adapter_object *o)
{
	char key[SCOUT__REDIS_KEY_BYTES + 1];
	uint16_t slot;

	scout__redis_key(o->key.digest, key);
	slot = redis_cluster_slot(&cluster, key);
	ck_assert_uint_eq(slot, scout__redis_slot(key, strlen(key)));
	return slot;
}

CASE_TIMEOUT(300);
CHECKED_FIXTURE(set_up, tear_down);

START_TEST(objects_are_spread_over_the_nodes_that_serve_their_slots)
{
	uint32_t total = 0;

	adapter_up(&rig, url);
	store_all();
	ck_assert_uint_eq(object_exists(&rig, objects, N), N);
	for (uint32_t i = 0; i < N; i++)
		ck_assert_int_eq(object_load(&rig, &objects[i]), SCOUT__L2_OK);
	for (uint32_t i = 0; i < REDIS_NODES; i++) {
		long long n = redis_number(&cluster.nodes[i], "DBSIZE");

		ck_assert_int_gt((int)n, 0);
		total += (uint32_t)n;
	}
	ck_assert_uint_eq(total, N);
	/* Every one went where it belongs at once. */
	ck_assert_uint_eq(COUNTER(moved) + COUNTER(ask), 0);
	ck_assert_uint_eq(adapter_logged(&rig, "a cluster"), 1);
}
END_TEST

START_TEST(a_host_that_is_away_does_not_matter_while_another_is_there)
{
	(void)snprintf(url, sizeof(url), "redis://127.0.0.1:1,127.0.0.1:%u", cluster.nodes[2].port);
	adapter_up(&rig, url);
	store_all();
	ck_assert_uint_eq(object_exists(&rig, objects, N), N);
}
END_TEST

START_TEST(cluster_no_is_an_error_in_the_log)
{
	uint32_t errors = 0;

	add_option("?cluster=no");
	adapter_up(&rig, url);
	for (uint32_t i = 0; i < N; i++)
		errors += object_store(&rig, &objects[i]) == SCOUT__L2_ERROR;
	ck_assert_uint_gt(errors, 0);
	ck_assert_uint_eq(adapter_logged(&rig, "says cluster=no"), 1);
}
END_TEST

START_TEST(a_slot_that_moves_is_followed_and_then_known)
{
	uint16_t slot = slot_of(&objects[0]);
	uint32_t from = redis_cluster_owner(&cluster, slot), to = (from + 1) % REDIS_NODES;
	uint64_t moved;

	adapter_up(&rig, url);
	store_all();
	redis_cluster_open_move(&cluster, slot, from, to);
	redis_cluster_migrate(&cluster, slot, from, to);
	/* Everything that the old owner no longer has is asked for at the new one. */
	ck_assert_uint_eq(COUNTER(ask), 0);
	ck_assert_int_eq(object_load(&rig, &objects[0]), SCOUT__L2_OK);
	ck_assert_uint_eq(COUNTER(ask), 1);
	ck_assert_uint_eq(object_exists(&rig, objects, N), N);
	ck_assert_uint_eq(COUNTER(ask), 2);
	ck_assert_int_eq(object_store(&rig, &objects[0]), SCOUT__L2_PRESENT);
	ck_assert_uint_eq(COUNTER(ask), 3);
	ck_assert_uint_eq(COUNTER(moved), 0);
	redis_cluster_close_move(&cluster, slot, to);
	ck_assert_int_eq(object_load(&rig, &objects[0]), SCOUT__L2_OK);
	moved = COUNTER(moved);
	ck_assert_uint_ge(moved, 1);
	ck_assert_uint_eq(COUNTER(ask), 3);
	/* It was learnt. */
	wait_until(COUNTER(refreshes) >= 2)
		;
	ck_assert_uint_eq(object_exists(&rig, objects, N), N);
	ck_assert_int_eq(object_load(&rig, &objects[0]), SCOUT__L2_OK);
	ck_assert_uint_eq(COUNTER(moved), moved);
}
END_TEST

START_TEST(an_object_in_a_moving_slot_is_stored_where_it_will_be)
{
	uint16_t slot = slot_of(&objects[0]);
	uint32_t from = redis_cluster_owner(&cluster, slot), to = (from + 1) % REDIS_NODES;

	adapter_up(&rig, url);
	redis_cluster_open_move(&cluster, slot, from, to);
	store_all();
	ck_assert_uint_ge(COUNTER(ask), 1);
	ck_assert_int_eq((int)redis_number(&cluster.nodes[to], "CLUSTER COUNTKEYSINSLOT %u", slot), 1);
	ck_assert_int_eq((int)redis_number(&cluster.nodes[from], "CLUSTER COUNTKEYSINSLOT %u", slot), 0);
	ck_assert_int_eq(object_load(&rig, &objects[0]), SCOUT__L2_OK);
	/* A removal follows it there. */
	ck_assert_int_eq(object_remove(&rig, &objects[0]), SCOUT__L2_OK);
	ck_assert_int_eq((int)redis_number(&cluster.nodes[to], "CLUSTER COUNTKEYSINSLOT %u", slot), 0);
	ck_assert_int_eq(object_store(&rig, &objects[0]), SCOUT__L2_OK);
	redis_cluster_close_move(&cluster, slot, to);
	ck_assert_int_eq(object_load(&rig, &objects[0]), SCOUT__L2_OK);
}
END_TEST

START_TEST(a_slot_that_was_moved_while_nobody_looked_costs_one_redirect)
{
	uint16_t slot = slot_of(&objects[5]);
	uint32_t from = redis_cluster_owner(&cluster, slot), to = (from + 2) % REDIS_NODES;
	char key[SCOUT__REDIS_KEY_BYTES + 1];

	adapter_up(&rig, url);
	store_all();
	redis_cluster_open_move(&cluster, slot, from, to);
	redis_cluster_migrate(&cluster, slot, from, to);
	redis_cluster_close_move(&cluster, slot, to);
	scout__redis_key(objects[5].key.digest, key);
	(void)redis_number(&cluster.nodes[to], "SETRANGE %s 600 damaged", key);
	ck_assert_int_eq(object_remove(&rig, &objects[5]), SCOUT__L2_OK);
	ck_assert_uint_eq(COUNTER(moved), 1);
	ck_assert_int_eq(object_load(&rig, &objects[5]), SCOUT__L2_ABSENT);
	ck_assert_int_eq(object_store(&rig, &objects[5]), SCOUT__L2_OK);
	ck_assert_int_eq(object_load(&rig, &objects[5]), SCOUT__L2_OK);
	ck_assert_uint_eq(COUNTER(moved), 1);
}
END_TEST

START_TEST(a_node_that_is_killed_costs_its_keys_only_and_heals)
{
	uint32_t lost = 0;
	uint32_t others;

	adapter_up(&rig, url);
	store_all();
	for (uint32_t i = 0; i < N; i++)
		lost += redis_cluster_owner(&cluster, slot_of(&objects[i])) == 2;
	ck_assert_uint_gt(lost, 0);
	redis_kill(&cluster.nodes[2]);
	/* The first may still be sent to it; afterwards nobody waits. */
	others = object_exists(&rig, objects, N);
	ck_assert_uint_eq(others, N - lost);
	for (uint32_t i = 0; i < N; i++)
		object_begin(&rig, &objects[i], SCOUT__L2_LOAD, 10000);
	for (uint32_t i = 0; i < N; i++)
		others -= object_end(&objects[i]) == SCOUT__L2_OK;
	ck_assert_uint_eq(others, 0);
	ck_assert(atomic_load(&scout__redis_counters(rig.adapter)->ready));
	/* It comes back, empty; its slots are still its own (nodes.conf). */
	redis_restart(&cluster.nodes[2]);
	for (uint32_t i = 0; i < N; i++) {
		wait_until(object_load(&rig, &objects[i]) != SCOUT__L2_ERROR)
			;
		if (object_load(&rig, &objects[i]) == SCOUT__L2_ABSENT)
			wait_until(object_store(&rig, &objects[i]) != SCOUT__L2_ERROR)
				;
	}
	ck_assert_uint_eq(object_exists(&rig, objects, N), N);
}
END_TEST

START_TEST(a_node_that_is_stopped_holds_up_its_own_keys_only_until_it_is_known)
{
	static struct adapter_object asked;
	uint32_t timeouts = 0;

	rig.timeout_ms = 1000;
	adapter_up(&rig, url);
	store_all();
	redis_freeze(&cluster.nodes[0]);
	for (uint32_t i = 0; i < N; i++)
		object_begin(&rig, &objects[i], SCOUT__L2_LOAD, 300);
	for (uint32_t i = 0; i < N; i++)
		timeouts += object_end(&objects[i]) == SCOUT__L2_TIMEOUT;
	ck_assert_uint_gt(timeouts, 0);
	ck_assert_uint_lt(timeouts, N);
	wait_until(COUNTER(stalled) > 0)
		;
	/* Known: a question with a minute's time is answered without the part that nobody knows. */
	object_begin_exists(&rig, &asked, objects, N, 60000);
	ck_assert_int_eq(object_end(&asked), SCOUT__L2_OK);
	redis_thaw(&cluster.nodes[0]);
	wait_until(object_exists(&rig, objects, N) == N)
		;
	object_fini(&asked);
}
END_TEST

START_TEST(a_whole_cluster_that_is_away_fails_at_once_and_heals)
{
	adapter_up(&rig, url);
	store_all();
	for (uint32_t i = 0; i < REDIS_NODES; i++)
		redis_kill(&cluster.nodes[i]);
	for (uint32_t i = 0; i < N; i++) {
		object_begin(&rig, &objects[i], SCOUT__L2_LOAD, 60000);
		ck_assert_int_eq(object_end(&objects[i]), SCOUT__L2_ERROR);
	}
	ck_assert(!atomic_load(&scout__redis_counters(rig.adapter)->ready));
	for (uint32_t i = 0; i < REDIS_NODES; i++)
		redis_restart(&cluster.nodes[i]);
	for (uint32_t i = 0; i < N; i++)
		wait_until(object_store(&rig, &objects[i]) == SCOUT__L2_OK || objects[i].op.result == SCOUT__L2_PRESENT)
			;
	ck_assert_uint_eq(object_exists(&rig, objects, N), N);
}
END_TEST

START_TEST(a_cluster_without_slots_is_waited_for)
{
	struct redis_server lone = {.cluster = true};
	struct adapter_rig second = {.vt = &scout__l2_redis};

	redis_start(&lone, NULL);
	(void)snprintf(url, sizeof(url), "redis://127.0.0.1:%u?cluster=yes", lone.port);
	adapter_up(&second, url);
	ck_assert_int_eq(object_store(&second, &objects[0]), SCOUT__L2_ERROR);
	ck_assert_uint_eq(adapter_logged(&second, "no node of the cluster serves any slot yet"), 1);
	redis_ok(&lone, "CLUSTER ADDSLOTSRANGE 0 16383");
	wait_until(object_store(&second, &objects[0]) == SCOUT__L2_OK)
		;
	ck_assert_int_eq(object_load(&second, &objects[0]), SCOUT__L2_OK);
	adapter_down(&second);
	redis_kill(&lone);
}
END_TEST

START_TEST(a_user_with_the_documented_rights_can_do_everything)
{
	uint16_t slot = slot_of(&objects[0]);
	uint32_t from = redis_cluster_owner(&cluster, slot), to = (from + 1) % REDIS_NODES;
	char key[SCOUT__REDIS_KEY_BYTES + 1];

	for (uint32_t i = 0; i < REDIS_NODES; i++)
		redis_ok(&cluster.nodes[i],
			 "ACL SETUSER kv on >pass ~kvscout:* +get +set +exists +unlink +asking +cluster|slots");
	(void)snprintf(url, sizeof(url), "redis://kv:pass@127.0.0.1:%u?cluster=yes", cluster.nodes[0].port);
	adapter_up(&rig, url);
	store_all();
	redis_cluster_open_move(&cluster, slot, from, to);
	redis_cluster_migrate(&cluster, slot, from, to);
	ck_assert_uint_eq(object_exists(&rig, objects, N), N);
	ck_assert_int_eq(object_load(&rig, &objects[0]), SCOUT__L2_OK);
	ck_assert_uint_eq(COUNTER(ask), 2);
	redis_cluster_close_move(&cluster, slot, to);
	scout__redis_key(objects[0].key.digest, key);
	(void)redis_number(&cluster.nodes[to], "SETRANGE %s 600 damaged", key);
	ck_assert_int_eq(object_remove(&rig, &objects[0]), SCOUT__L2_OK);
	ck_assert_int_eq((int)redis_number(&cluster.nodes[to], "EXISTS %s", key), 0);
	ck_assert_uint_eq(adapter_logged(&rig, "refused"), 0);
}
END_TEST

int
main(void)
{
	return redis_rig_main(suite_of_this_file());
}
