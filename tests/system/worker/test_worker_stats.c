/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_rig.h"

#include <stdatomic.h>

#include "check_main.h"
#include "host_gate.h"
#include "worker_internal.h"

/* What a job cost, and what a worker has done. */

static struct rig rig;

static void
setup(void)
{
	rig_init(&rig);
	rig.max_jobs = 4;
	rig_start(&rig);
}

static void
teardown(void)
{
	host_gate_open();
	rig_stop(&rig);
	scout__copy_host_faults(NULL);
}

static struct scout_worker_counters
stats_now(void)
{
	struct scout_worker_counters stats;

	memset(&stats, 0xee, sizeof(stats));
	ck_assert_int_eq(scout_worker_stats(rig.workers[0], &stats), 0);
	return stats;
}

/* Nothing is reported for this long. */
static void
nothing_ends_for(int ms)
{
	struct pollfd pfd = {.fd = scout_worker_fd(rig.workers[0]), .events = POLLIN};

	ck_assert_int_eq(poll(&pfd, 1, ms), 0);
}

static void
assert_times(const struct scout_done *done, uint64_t elapsed_us)
{
	ck_assert_uint_eq(done->queued_us + done->server_us + done->copy_us, done->total_us);
	ck_assert_uint_le(done->total_us, elapsed_us);
	ck_assert_uint_gt(done->total_us, 0);
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(a_job_tells_where_its_time_went)
{
	uint64_t begin_us, job, frames;
	struct scout_done done;
	struct scout_hit hit;
	int64_t *ids = rig_ids(100, 1, 12);
	char id[32];

	/* For the server. On a slow machine it stands still for half a second, and is not waited for any more. */
	do {
		struct pollfd ended = {.fd = scout_worker_fd(rig.workers[0]), .events = POLLIN};

		wait_until(stats_now().registered)
			;
		rig_server_freeze(&rig);
		frames = stats_now().frames_sent;
		begin_us = scout__now_us();
		job = rig_store(&rig, 0, 1, 3, 1);
		wait_until(stats_now().frames_sent != frames || rig_is_readable(rig.workers[0]))
			;
		(void)poll(&ended, 1, 60);
		rig_server_thaw(&rig);
		done = rig_wait(rig.workers[0], job);
		assert_times(&done, scout__now_us() - begin_us);
	} while (done.status == SCOUT_ERR_UNREACHABLE);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_ge(done.server_us, 50000);
	/* Copying. */
	hit = rig_lookup(&rig, 1, 3, id);
	host_gate_shut();
	begin_us = scout__now_us();
	job = rig_retrieve(&rig, 0, hit.ticket, 0, ids, 12, 0);
	rig_wait_enqueued(rig.workers[0], job);
	nothing_ends_for(60);
	host_gate_open();
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	assert_times(&done, scout__now_us() - begin_us);
	ck_assert_uint_ge(done.copy_us, 50000);
	free(ids);
}
END_TEST

/* In the worker: its pages are not registered yet. */
START_TEST(time_before_the_registration_is_queued)
{
	struct scout_table layout;
	struct scout_done done;
	uint64_t begin_us;
	char err[256] = "";

	scout_worker_free(rig.workers[0]);
	rig_server_end(&rig, SIGTERM);
	rig.workers[0] = rig_worker_new(&rig, 0);
	rig_table(&rig, &rig.pages[0], &layout);
	ck_assert_int_eq(scout_worker_register(rig.workers[0], &layout, 1, 0, err, sizeof(err)), 0);
	ck_assert_uint_eq(stats_now().server_up, 0);
	begin_us = scout__now_us();
	done = rig_wait(rig.workers[0], rig_store(&rig, 0, 1, 3, 1));
	ck_assert_int_eq(done.status, SCOUT_ERR_UNREACHABLE);
	assert_times(&done, scout__now_us() - begin_us);
	ck_assert_uint_eq(done.server_us + done.copy_us, 0);
	rig_server_start(&rig);
	wait_until(stats_now().registered)
		;
	ck_assert_int_eq(rig_wait(rig.workers[0], rig_store(&rig, 0, 1, 3, 1)).status, 0);
}
END_TEST

START_TEST(each_job_is_live_or_counted_in_one_end_of_its_kind)
{
	int64_t *ids = rig_ids(100, 1, 20), nulls[8] = {20, 21, 0, 23, 24, 25, 26, 27};
	uint8_t *hashes = rig_hashes(7, 2);
	struct scout_store store = {.hashes = hashes,
				    .hash_len = RIG_HASH,
				    .n = 2,
				    .blocks = &(struct scout_blocks){.ids = nulls, .n = 8},
				    .n_groups = 1};
	struct scout_retrieve retrieve = {
		.ticket = 1, .to_token = 64, .blocks = &(struct scout_blocks){.ids = ids, .n = 4}, .n_groups = 1};
	struct scout_worker_counters s;
	struct scout_done done;
	struct scout_hit hit;
	uint64_t job, jobs[4], total_us = 0;
	bool canceled = false;
	char id[32];

	s = stats_now();
	ck_assert_uint_eq(s.server_up, 1);
	ck_assert_uint_eq(s.registered, 1);
	ck_assert_uint_eq(s.retrieves + s.stores + s.live + s.busy + s.reconnects, 0);
	done = rig_wait(rig.workers[0], rig_store(&rig, 0, 1, 3, 1));
	total_us += done.total_us;
	done = rig_wait(rig.workers[0], rig_store(&rig, 0, 1, 4, 1)); /* three are there */
	total_us += done.total_us;
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), 0);
	done = rig_wait(rig.workers[0], job);
	total_us += done.total_us;
	s = stats_now();
	ck_assert_uint_eq(s.stores, 3);
	ck_assert_uint_eq(s.stores_ok, 3);
	ck_assert_uint_eq(s.stored_chunks, 5);
	ck_assert_uint_eq(s.stored_bytes, 5 * 4 * 190);
	ck_assert_uint_eq(s.present_chunks, 3);
	ck_assert_uint_eq(s.null_chunks, 1);
	ck_assert_uint_eq(s.store_total_us, total_us);
	ck_assert_uint_eq(s.store_queued_us + s.store_server_us + s.store_copy_us, total_us);
	/* Retrieves: well, without a session, of chunks that were not looked up. */
	hit = rig_lookup(&rig, 1, 3, id);
	ck_assert_int_eq(rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 0, ids, 12, 0)).status, 0);
	ck_assert_int_eq(rig_wait(rig.workers[0], rig_retrieve(&rig, 0, 4711, 0, ids, 4, 0)).status,
			 SCOUT_ERR_NO_SESSION);
	ck_assert_int_eq(rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 12, ids, 4, 0)).status,
			 SCOUT_ERR_MISSING);
	/* Four that are live, one too many, one cancelled. */
	host_gate_shut();
	for (int i = 0; i < 4; i++)
		jobs[i] = rig_store(&rig, 0, 20 + (uint32_t)i, 1, 1 + 4 * i);
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &retrieve, &job), SCOUT_ERR_BUSY);
	ck_assert_int_eq(scout_worker_cancel(rig.workers[0], jobs[3]), 0);
	s = stats_now();
	ck_assert_uint_eq(s.live, 4);
	ck_assert_uint_eq(s.busy, 1);
	host_gate_open();
	for (int i = 0; i < 4; i++) {
		done = rig_wait(rig.workers[0], 0);
		/* Too late for one whose copy was begun. */
		canceled |= done.job == jobs[3] && done.status == SCOUT_ERR_CANCELED;
	}
	s = stats_now();
	ck_assert_uint_eq(s.live, 0);
	ck_assert_uint_eq(s.stores, 7);
	ck_assert_uint_eq(s.stores_canceled, canceled);
	ck_assert_uint_eq(s.stores_ok + s.stores_canceled, 7);
	ck_assert_uint_eq(s.retrieves, 3);
	ck_assert_uint_eq(s.retrieves_ok, 1);
	ck_assert_uint_eq(s.retrieves_refused, 1);
	ck_assert_uint_eq(s.retrieves_missing, 1);
	ck_assert_uint_eq(s.retrieved_chunks, 3);
	ck_assert_uint_eq(s.retrieved_bytes, 3 * 4 * 190);
	ck_assert_uint_eq(s.missing_blocks, 8);
	ck_assert_uint_eq(s.mismatches, 0);
	ck_assert_uint_gt(s.frames_sent, 0);
	ck_assert_uint_gt(s.frames_received, 0);
	/* A lost server. */
	rig_server_end(&rig, SIGKILL);
	wait_until(!stats_now().server_up)
		;
	ck_assert_uint_eq(stats_now().registered, 0);
	ck_assert_int_eq(rig_wait(rig.workers[0], rig_store(&rig, 0, 1, 1, 1)).status, SCOUT_ERR_UNREACHABLE);
	rig_server_start(&rig);
	wait_until(stats_now().registered)
		;
	s = stats_now();
	ck_assert_uint_eq(s.stores_unreachable, 1);
	ck_assert_uint_eq(s.reconnects, 1);
	ck_assert_uint_eq(s.epochs, 1);
	free(hashes);
	free(ids);
}
END_TEST

/* Two jobs in an array whose elements are larger than this version's. */
START_TEST(a_poll_strides_by_the_callers_structure)
{
	struct {
		struct scout_done done;
		uint64_t beyond;
	} ended[2] = {{.beyond = 4711}, {.beyond = 4711}};
	uint64_t jobs[2] = {rig_store(&rig, 0, 1, 3, 1), rig_store(&rig, 0, 2, 3, 100)};
	int n = 0;

	while (n < 2) {
		int rc = scout_worker_poll_sized(rig.workers[0], &ended[n].done, sizeof(ended[0]), (size_t)(2 - n));

		ck_assert_int_ge(rc, 0);
		n += rc;
	}
	ck_assert((ended[0].done.job == jobs[0] && ended[1].done.job == jobs[1]) ||
		  (ended[0].done.job == jobs[1] && ended[1].done.job == jobs[0])); /* two stores end in any order */
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(ended[i].done.status, 0);
		ck_assert_uint_eq(ended[i].beyond, 0);
	}
	ck_assert_int_eq(scout_worker_poll_sized(rig.workers[0], &ended[0].done, 8, 1), SCOUT_ERR_UNSUPPORTED);
}
END_TEST

START_TEST(statistics_of_older_and_newer_callers)
{
	struct {
		struct scout_worker_counters stats;
		uint64_t beyond;
	} big = {.beyond = 4711};
	struct scout_worker_counters small;

	ck_assert_int_eq(rig_wait(rig.workers[0], rig_store(&rig, 0, 1, 3, 1)).status, 0);
	ck_assert_int_eq(scout_worker_stats_sized(rig.workers[0], &big.stats, sizeof(big)), 0);
	ck_assert_uint_eq(big.stats.stores_ok, 1);
	ck_assert_uint_eq(big.beyond, 0);
	ck_assert_int_eq(scout_worker_stats_sized(rig.workers[0], &small,
						  offsetof(struct scout_worker_counters, protocol_errors)),
			 SCOUT_ERR_UNSUPPORTED);
	ck_assert_int_eq(scout_worker_stats(rig.workers[0], NULL), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_stats(NULL, &small), SCOUT_ERR_INVALID);
}
END_TEST
