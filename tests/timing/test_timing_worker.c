/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker promises in time: calls that return without a server, jobs that end, a job that wakes whoever sleeps. */
#include "assert_rc.h"
#include "check_main.h"
#include "given_time.h"
#include "worker_rig.h"

/* What an end may be late, and a call may take beyond what was asked for. */
#define LATE_US UINT64_C(150000)
#define CONNECT_US UINT64_C(400000) /* connect_timeout_ms, as it is unless set */

static struct rig rig;

static void
setup(void)
{
	rig_init(&rig);
}

static void
teardown(void)
{
	rig_stop(&rig);
}

/* A new worker; how its registration ends, which waits for @timeout_ms. */
static int
register_new(uint32_t timeout_ms, struct given_time *t)
{
	struct scout_table layout;
	char err[512] = "";

	rig.workers[0] = rig_worker_new(&rig, 0);
	rig_table(&rig, &rig.pages[0], &layout);
	given_time_begin(t);
	return scout_worker_register(rig.workers[0], &layout, 1, timeout_ms, err, sizeof(err));
}

static void
start_without_worker(void)
{
	static const uint64_t bytes[2] = {61, 129}, padding[2] = {3, 0};

	rig_start_server(&rig);
	rig_pages_init(&rig.pages[0], 2, bytes, padding, 512);
	rig_server_end(&rig, SIGTERM);
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(a_registration_without_a_server_does_not_wait)
{
	struct given_time t;

	start_without_worker();
	assert_rc(register_new(0, &t), 0);
	given_time_within(&t, LATE_US, "a registration that does not wait");
	/* Jobs end unreachable: within connect_timeout_ms, later at once. */
	assert_rc(rig_wait(rig.workers[0], rig_store(&rig, 0, 1, 3, 1)).status, SCOUT_ERR_UNREACHABLE);
	given_time_within(&t, CONNECT_US + LATE_US, "the first job without a server");
	given_time_begin(&t);
	assert_rc(rig_wait(rig.workers[0], rig_store(&rig, 0, 1, 3, 1)).status, SCOUT_ERR_UNREACHABLE);
	given_time_within(&t, LATE_US, "a later job without a server");
}
END_TEST

START_TEST(a_registration_that_waits_ends_in_its_time)
{
	struct given_time t;

	start_without_worker();
	assert_rc(register_new(100, &t), SCOUT_ERR_TIMEOUT);
	given_time_within(&t, 100000 + LATE_US, "a registration that waits for 100 ms");
}
END_TEST

START_TEST(a_job_that_cannot_start_ends_at_its_time)
{
	int64_t ids[4] = {60, 61, 62, 63};
	struct scout_blocks blocks = {.ids = ids, .n = 4};
	struct scout_retrieve retrieve = {
		.ticket = 4711, .to_token = 64, .blocks = &blocks, .n_groups = 1, .timeout_ms = 200};
	struct given_time t;
	uint64_t job;

	rig_start(&rig);
	rig_server_freeze(&rig);
	given_time_begin(&t);
	assert_ok(scout_worker_retrieve(rig.workers[0], &retrieve, &job));
	assert_rc(rig_wait(rig.workers[0], job).status, SCOUT_ERR_TIMEOUT);
	given_time_within(&t, 200000 + LATE_US, "a job of 200 ms at a server that stands still");
	rig_server_thaw(&rig);
}
END_TEST

START_TEST(free_does_not_wait_for_a_server_that_stands_still)
{
	struct given_time t;

	rig_start(&rig);
	rig_server_freeze(&rig);
	(void)rig_store(&rig, 0, 1, 3, 1);
	(void)rig_store(&rig, 0, 2, 3, 50);
	given_time_begin(&t);
	scout_worker_free(rig.workers[0]);
	rig.workers[0] = NULL;
	given_time_within(&t, 200000 + LATE_US, "scout_worker_free() with jobs at a server that stands still");
	rig_server_thaw(&rig);
}
END_TEST

/* Couriers, copy engine and server sleep before each of them; the heartbeat is too far away to make up for a ring that was lost. */
START_TEST(a_job_wakes_all_that_it_needs)
{
	struct given_time t;
	bool given = true;

	rig.heartbeat_ms = 60000;
	rig_start(&rig);
	for (uint32_t i = 0; i < 200 && given; i++) {
		given_time_begin(&t);
		given_time_of(&t, rig.server);
		assert_ok(rig_wait(rig.workers[0], rig_store(&rig, 0, 1 + i, 2, 1)).status);
		given = given_time_within(&t, LATE_US, "a store of two chunks");
		(void)poll(NULL, 0, 2);
	}
}
END_TEST
