/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_rig.h"

#include <stdatomic.h>

#include "check_main.h"
#include "host_gate.h"
#include "worker_internal.h"

/*
 * scout_clear() and scout_worker_clear() with a real server in a process of its own: what becomes of the jobs that a worker has,
 * in which order the calls may come, and what a server that was away is told.
 */

static struct rig rig;

static void
setup(void)
{
	rig_init(&rig);
}

static void
teardown(void)
{
	host_gate_open();
	rig_stop(&rig);
	scout__copy_host_faults(NULL);
}

/* How many leading chunks of @prompt are a hit. A lookup is answered after every clear that was called before it. */
static uint32_t
hit_of(uint32_t prompt, uint32_t n)
{
	char id[32];
	struct scout_hit hit = rig_lookup(&rig, prompt, n, id);

	(void)scout_finish(rig.client, id);
	return hit.error == 0 ? hit.chunks : 0;
}

static int
store_status(uint32_t w, uint32_t prompt)
{
	return rig_wait(rig.workers[w], rig_store(&rig, w, prompt, 3, 1)).status;
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(what_they_cannot_be_called_with)
{
	uint64_t generation = 7;

	rig_start(&rig);
	ck_assert_int_eq(scout_worker_clear(NULL, 0, &generation), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_clear(NULL, 0, &generation), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_clear(rig.client, SCOUT_GENERATION_NEWEST, &generation), SCOUT_ERR_INVALID);
	ck_assert_uint_eq(generation, 7);
	ck_assert_int_eq(store_status(0, 1), 0);
	/* Numbers of the caller's own: nothing is dropped, nothing is out. */
	ck_assert_int_eq(scout_worker_clear(rig.workers[0], 7, &generation), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_clear(rig.client, 7, &generation), SCOUT_ERR_INVALID);
	ck_assert_uint_eq(generation, 7);
	ck_assert_int_eq(store_status(0, 1), 0);
	ck_assert_int_eq(scout_clear(rig.client, 0, &generation), 0);
	ck_assert_int_eq(scout_worker_clear(rig.workers[0], generation + 1, NULL), SCOUT_ERR_INVALID);
}
END_TEST

START_TEST(a_clear_of_the_client_drops_all_and_the_worker_joins_by_its_own)
{
	uint64_t generation = 0;

	rig_start(&rig);
	rig_store_all(&rig, 1, 3, 1);
	ck_assert_uint_eq(hit_of(1, 3), 3);
	ck_assert_int_eq(scout_clear(rig.client, 0, &generation), 0);
	ck_assert_uint_ne(generation, 0);
	ck_assert_uint_eq(hit_of(1, 3), 0);
	ck_assert_int_eq(store_status(0, 1), SCOUT_ERR_CLEARED);
	ck_assert_uint_eq(hit_of(1, 3), 0);
	ck_assert_int_eq(scout_worker_clear(rig.workers[0], generation, NULL), 0);
	ck_assert_int_eq(store_status(0, 1), 0);
	ck_assert_uint_eq(hit_of(1, 3), 3);
	/* Twice is once. */
	ck_assert_int_eq(scout_clear(rig.client, generation, NULL), 0);
	ck_assert_int_eq(scout_worker_clear(rig.workers[0], generation, NULL), 0);
	ck_assert_uint_eq(hit_of(1, 3), 3);
	ck_assert_int_eq(store_status(0, 2), 0);
}
END_TEST

/* `kvscout clear`: nobody tells the worker, and it need not know. */
START_TEST(an_operator_drops_all_and_the_worker_goes_on)
{
	char command[256];

	rig_start(&rig);
	rig_store_all(&rig, 1, 3, 1);
	ck_assert_uint_eq(hit_of(1, 3), 3);
	(void)snprintf(command, sizeof(command), "\"$KVSCOUT\" clear --endpoint %s --namespace rig >&2", rig.endpoint);
	ck_assert_int_eq(system(command), 0); /* NOLINT: the test's own words */
	ck_assert_uint_eq(hit_of(1, 3), 0);
	ck_assert_int_eq(store_status(0, 1), 0);
	ck_assert_uint_eq(hit_of(1, 3), 3);
	/* Also after it has said HELLO again, to the next server. */
	rig_server_end(&rig, SIGKILL);
	rig_server_start(&rig);
	wait_until(store_status(0, 1) == 0)
		;
	wait_until(hit_of(1, 3) == 3) /* the client comes back by itself, too */
		;
}
END_TEST

START_TEST(a_worker_may_be_first)
{
	uint64_t generation = 0;

	rig_start(&rig);
	rig_store_all(&rig, 1, 3, 1);
	ck_assert_int_eq(scout_worker_clear(rig.workers[0], 0, &generation), 0);
	ck_assert_int_eq(store_status(0, 2), 0);
	ck_assert_uint_eq(hit_of(1, 3), 0);
	ck_assert_int_eq(scout_clear(rig.client, generation, NULL), 0);
	ck_assert_uint_eq(hit_of(2, 3), 3);
	ck_assert_int_eq(store_status(0, 1), 0);
}
END_TEST

START_TEST(nothing_that_waits_or_runs_is_good_afterwards)
{
	struct scout_progress progress = {0};
	uint64_t copying, asked, generation, frozen_us;
	struct scout_worker *worker;
	int status;
	bool gone;

	rig_start(&rig);
	worker = rig.workers[0];
	ck_assert_int_eq(store_status(0, 9), 0); /* memory is there */
	host_gate_shut();
	copying = rig_store(&rig, 0, 2, 3, 30);
	rig_wait_enqueued(worker, copying);
	frozen_us = scout__now_us();
	rig_server_freeze(&rig);
	asked = rig_store(&rig, 0, 3, 3, 50);
	ck_assert_int_eq(scout_worker_clear(worker, 0, &generation), 0);
	ck_assert_int_eq(scout_worker_progress(worker, copying, &progress), SCOUT_ERR_CLEARED);
	/* Without the server: it had not started. */
	status = rig_wait(worker, asked).status;
	host_gate_open();
	rig_server_thaw(&rig);
	gone = scout__now_us() - frozen_us > RIG_GONE_US;
	ck_assert(status == SCOUT_ERR_CLEARED || (gone && status == SCOUT_ERR_UNREACHABLE));
	status = rig_wait(worker, copying).status;
	ck_assert(status == SCOUT_ERR_CLEARED || (gone && status == SCOUT_ERR_UNREACHABLE));
	ck_assert_uint_eq(hit_of(2, 3), 0);
	(void)rig_store_until(&rig, 0, 2, 3, 1, 0);
	ck_assert_uint_eq(hit_of(2, 3), 3);
	/* A reset after it is told as one. */
	ck_assert_int_eq(scout_worker_reset(worker, 5), 0);
	(void)rig_store_until(&rig, 0, 3, 3, 1, 0);
}
END_TEST

/* Two engines on one server: worker 1 is the other one's. */
START_TEST(the_worker_of_another_engine_is_out_until_it_joins)
{
	uint64_t generation, in_flight;
	struct scout_hit hit;
	char id[32];
	int64_t *ids = rig_ids(100, 1, 12);

	rig.readers = 2;
	rig_start(&rig);
	ck_assert_uint_eq(rig.n_workers, 2);
	rig_store_all(&rig, 1, 3, 1);
	host_gate_shut();
	in_flight = rig_store(&rig, 1, 4, 3, 1);
	ck_assert_int_eq(scout_clear(rig.client, 0, &generation), 0);
	ck_assert_int_eq(scout_worker_clear(rig.workers[0], generation, NULL), 0);
	ck_assert_uint_eq(hit_of(1, 3), 0);
	host_gate_open();
	(void)rig_wait(rig.workers[1], in_flight); /* good or not, it is not committed */
	ck_assert_uint_eq(hit_of(4, 3), 0);
	ck_assert_int_eq(store_status(1, 1), SCOUT_ERR_CLEARED);
	hit = rig_lookup(&rig, 1, 3, id);
	ck_assert_int_eq(rig_wait(rig.workers[1], rig_retrieve(&rig, 1, hit.ticket, 0, ids, 12, 0)).status,
			 SCOUT_ERR_CLEARED);
	ck_assert_int_eq(store_status(0, 1), 0);
	ck_assert_int_eq(scout_worker_clear(rig.workers[1], SCOUT_GENERATION_NEWEST, NULL), 0);
	ck_assert_int_eq(store_status(1, 1), 0);
	free(ids);
}
END_TEST

START_TEST(calls_that_meet_no_server_are_delivered_when_it_is_back)
{
	uint64_t first, last;

	rig_start(&rig);
	rig_store_all(&rig, 1, 3, 1);
	rig_server_freeze(&rig);
	ck_assert_int_eq(scout_clear(rig.client, 0, &first), 0);
	ck_assert_int_eq(scout_clear(rig.client, 0, &last), 0);
	ck_assert_int_eq(scout_worker_clear(rig.workers[0], first, NULL), 0);
	ck_assert_int_eq(scout_worker_clear(rig.workers[0], last, NULL), 0);
	rig_server_thaw(&rig);
	ck_assert_uint_eq(hit_of(1, 3), 0);
	(void)rig_store_until(&rig, 0, 1, 3, 1, 0);
	ck_assert_uint_eq(hit_of(1, 3), 3);
	/* And one that was killed: nobody but the peers knows of the clear. */
	rig_server_end(&rig, SIGKILL);
	ck_assert_int_eq(scout_clear(rig.client, 0, &first), 0);
	ck_assert_int_eq(scout_worker_clear(rig.workers[0], first, NULL), 0);
	rig_server_start(&rig);
	(void)rig_store_until(&rig, 0, 1, 3, 1, 0);
	ck_assert_int_eq(scout_client_wait_ready(rig.client, wait_limit_ms(), NULL, 0), 0);
	ck_assert_uint_eq(hit_of(1, 3), 3); /* the client's clear had the same name */
}
END_TEST

/* A new server knows of no clear: a worker that is in says so, and one that is out, too. */
START_TEST(a_restart_of_the_server_puts_nobody_out_or_in)
{
	uint64_t generation;

	rig.readers = 2;
	rig_start(&rig);
	ck_assert_int_eq(scout_clear(rig.client, 0, &generation), 0);
	ck_assert_int_eq(scout_worker_clear(rig.workers[0], generation, NULL), 0);
	ck_assert_int_eq(store_status(0, 1), 0);
	ck_assert_int_eq(store_status(1, 1), SCOUT_ERR_CLEARED);
	rig_server_end(&rig, SIGKILL);
	rig_server_start(&rig);
	(void)rig_store_until(&rig, 0, 1, 3, 1, 0); /* the server knows from now on */
	(void)rig_store_until(&rig, 1, 1, 3, 1, SCOUT_ERR_CLEARED);
}
END_TEST
