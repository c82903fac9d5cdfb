/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "clear_rig.h"

#include "redis_rig.h"

/* A clear while one real redis-server as L2 hangs, comes late, or loses the record (l2_nodes has what holds for every store). */

#define IMPATIENT_MS 300u

static struct redis_server server;
static char url[64];

static void
setup(void)
{
	memset(&server, 0, sizeof(server));
	redis_start(&server, NULL);
	(void)snprintf(url, sizeof(url), "redis://127.0.0.1:%u", server.port);
}

static void
teardown(void)
{
	redis_kill(&server);
}

CASE_TIMEOUT(300);
CHECKED_FIXTURE(setup, teardown);

/* The clear is answered in time, the store that cannot record it is not used, and takes it when it answers again. */
START_TEST(a_redis_that_hangs_gets_the_clear_when_it_is_back)
{
	struct scout__clear_reply m;
	struct node node;

	node_start(&node, url, IMPATIENT_MS);
	wire_wait_status(&node.rig.client, "l2.0.ready", 1);
	clear_write(&node);
	redis_freeze(&server);
	ck_assert_int_eq(wire_clear(&node.rig.worker, CLEAR_X, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.stores, 1);
	ck_assert_uint_eq(m.pending, 1);
	ck_assert_uint_eq(clear_look(&node.rig.client).hit, 0);
	redis_thaw(&server);
	wait_until(m.pending == 0)
		ck_assert_int_eq(wire_clear(&node.rig.worker, CLEAR_X, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(clear_look(&node.rig.client).hit, 0);
	rig_down(&node.rig);
	node_up(&node, url);
	ck_assert_uint_eq(clear_look(&node.rig.client).hit, 0);
	clear_write(&node);
	rig_down(&node.rig);
	node_up(&node, url);
	ck_assert_uint_eq(clear_look(&node.rig.client).l2, 4);
	rig_down(&node.rig);
}
END_TEST

/*
 * A store that answers late tells of a clear that is over: who joined meanwhile is in, and what the pool has is not
 * served.
 */
START_TEST(a_redis_that_comes_late_drops_the_pool_and_puts_nobody_out)
{
	struct node node;

	node_up(&node, url);
	(void)clear_by(&node.rig.client, CLEAR_X);
	rig_down(&node.rig);
	redis_freeze(&server);
	node_start(&node, url, IMPATIENT_MS);
	clear_write(&node);
	ck_assert_uint_eq(clear_look(&node.rig.client).l1, 4);
	redis_thaw(&server);
	clear_wait_gone(&node.rig.client);
	clear_write(&node);
	ck_assert_uint_eq(clear_look(&node.rig.client).l1, 4);
	rig_down(&node.rig);
}
END_TEST

/* A record that Redis has lost (evicted, or from an older snapshot) is written again while a server runs. */
START_TEST(a_record_that_was_lost_is_written_again)
{
	struct node node;
	redisReply *keys;

	node_up(&node, url);
	(void)clear_by(&node.rig.worker, CLEAR_X);
	keys = redis_do(&server, "KEYS kvscout:r:*");
	ck_assert_uint_eq(keys->elements, 1);
	ck_assert_int_eq((int)redis_number(&server, "PTTL %s", keys->element[0]->str), -1);
	ck_assert_int_eq((int)redis_number(&server, "DEL %s", keys->element[0]->str), 1);
	freeReplyObject(keys);
	wait_until(redis_number(&server, "DBSIZE") > 0)
		;
	clear_write(&node);
	rig_down(&node.rig);
	node_up(&node, url);
	ck_assert_uint_eq(clear_look(&node.rig.client).l2, 4);
	rig_down(&node.rig);
}
END_TEST

int
main(void)
{
	return redis_rig_main(suite_of_this_file());
}
