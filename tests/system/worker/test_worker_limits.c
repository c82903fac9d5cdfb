/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_rig.h"

#include "own_memory.h"
#include "check_main.h"
#include "host_gate.h"
#include "worker_internal.h"
#include "own_use.h"

/* Limits as an engine meets them: a whole queue of jobs, and what a large limit costs while it is not used. */

#define QUEUE 4096u
#define IDLE_BYTES (UINT64_C(2) << 20)

static struct rig rig;

static void
setup(void)
{
	rig_init(&rig);
	rig_start(&rig);
}

static void
teardown(void)
{
	host_gate_open();
	rig_stop(&rig);
	scout__copy_host_faults(NULL);
}

/* One chunk of its own, from the pages of all. */
static int
store_one(uint32_t prompt, uint64_t *ret_job)
{
	static const int64_t ids[4] = {1, 2, 3, 4};
	uint8_t *hashes = rig_hashes(prompt, 1);
	struct scout_store store = {.hashes = hashes,
				    .hash_len = RIG_HASH,
				    .n = 1,
				    .blocks = &(struct scout_blocks){.ids = ids, .n = 4},
				    .n_groups = 1};
	int rc = scout_worker_store(rig.workers[0], &store, ret_job);

	free(hashes);
	return rc;
}

/* Collect @n jobs, each once. */
static void
collect(uint32_t n)
{
	struct scout_done done[64];

	wait_until(n == 0) {
		struct pollfd pfd = {.fd = scout_worker_fd(rig.workers[0]), .events = POLLIN};
		int got = scout_worker_poll(rig.workers[0], done, 64);

		ck_assert_int_ge(got, 0);
		ck_assert_uint_le((uint32_t)got, n);
		for (int i = 0; i < got; i++)
			ck_assert_msg(done[i].status == 0, "%s", scout_err_name(done[i].status));
		n -= (uint32_t)got;
		(void)poll(&pfd, 1, n > 0 ? 100 : 0);
	}
}

CHECKED_FIXTURE(setup, teardown);

/* Twice: the slots of the first round come back. */
START_TEST(a_queue_of_4096_stores_is_taken_by_default)
{
	uint64_t job;

	for (uint32_t round = 0; round < 2; round++) {
		host_gate_shut();
		for (uint32_t i = 0; i < QUEUE; i++)
			ck_assert_msg(store_one(1 + i, &job) == 0, "job %u", (unsigned)i);
		ck_assert_int_eq(store_one(QUEUE + 1, &job), SCOUT_ERR_BUSY);
		host_gate_open();
		collect(QUEUE);
	}
	ck_assert_int_eq(store_one(QUEUE + 1, &job), 0);
	collect(1);
}
END_TEST

/* A walk over 65,536 slots takes some 100 us: 10,000 of them a second. */
START_TEST(fence_and_poll_do_not_walk_all_slots)
{
	static const int64_t pages[2] = {100, 101};
	struct scout_done done[4];
	uint64_t job, begin_us;

	scout_worker_free(rig.workers[0]);
	rig.max_jobs = SCOUT__MAX_JOBS;
	rig_worker_start(&rig, 0);
	host_gate_shut();
	ck_assert_int_eq(store_one(1, &job), 0);
	begin_us = cpu_us();
	for (int i = 0; i < 10000; i++) {
		ck_assert_int_eq(scout_worker_fence(rig.workers[0], 0, pages, 2, NULL), 0);
		ck_assert_int_eq(scout_worker_poll(rig.workers[0], done, 4), 0);
	}
	ck_assert_uint_lt(cpu_us() - begin_us, 300000);
	host_gate_open();
	collect(1);
}
END_TEST

/*
 * The pages that an engine gives to the next request are almost always of no job. A walk over 4,000 live jobs takes some 20 us:
 * 100,000 of them two seconds.
 */
START_TEST(fence_does_not_walk_the_jobs_for_pages_of_none)
{
	static const int64_t pages[2] = {100, 101};
	uint64_t job, begin_us;

	host_gate_shut();
	for (uint32_t i = 0; i < QUEUE; i++)
		ck_assert_msg(store_one(1 + i, &job) == 0, "job %u", (unsigned)i);
	begin_us = cpu_us();
	for (int i = 0; i < 100000; i++)
		ck_assert_int_eq(scout_worker_fence(rig.workers[0], 0, pages, 2, NULL), 0);
	ck_assert_uint_lt(cpu_us() - begin_us, 500000);
	host_gate_open();
	collect(QUEUE);
	for (uint64_t i = 0; i < rig.workers[0]->tables[0].layout.n_blocks; i++)
		ck_assert_uint_eq(rig.workers[0]->tables[0].uses[i], 0);
}
END_TEST

/* Jobs side by side, none of which may start yet: only those on the pages of the fence are dropped. */
START_TEST(a_fence_finds_its_jobs_among_many)
{
	static const uint32_t layer_planes[1] = {2};
	uint8_t *hashes = rig_hashes(1, 64);
	const int64_t pages[3] = {0, 5 + 4 * 40 + 2, 5 + 4 * 20};
	uint64_t jobs[64];
	unsigned canceled = 0;

	for (int i = 0; i < 64; i++) {
		const int64_t ids[4] = {5 + 4 * i, 6 + 4 * i, 7 + 4 * i, 8 + 4 * i};
		struct scout_store store = {.hashes = hashes + (size_t)i * RIG_HASH,
					    .hash_len = RIG_HASH,
					    .n = 1,
					    .blocks = &(struct scout_blocks){.ids = ids, .n = 4},
					    .n_groups = 1,
					    .n_layers = 1,
					    .layer_planes = layer_planes,
					    .announced = 1};

		ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &jobs[i]), 0);
	}
	ck_assert_int_eq(scout_worker_fence(rig.workers[0], 0, pages, 3, NULL), 0);
	for (int i = 0; i < 64; i++)
		ck_assert_int_eq(scout_worker_layer_ready(rig.workers[0], jobs[i], 1), 0);
	for (int i = 0; i < 64; i++) {
		struct scout_done done = rig_wait(rig.workers[0], 0);

		if (done.job == jobs[20] || done.job == jobs[40]) {
			ck_assert_int_eq(done.status, SCOUT_ERR_CANCELED);
			canceled++;
		} else {
			ck_assert_msg(done.status == 0, "%s", scout_err_name(done.status));
		}
	}
	ck_assert_uint_eq(canceled, 2);
	free(hashes);
}
END_TEST

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
START_TEST(an_idle_worker_takes_two_mebibytes_at_any_limit)
{
	static const uint32_t limits[] = {1, QUEUE, SCOUT__MAX_JOBS};

	for (unsigned i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		uint64_t before, after, job;
		struct scout_done done;

		scout_worker_free(rig.workers[0]);
		rig.workers[0] = NULL;
		before = anonymous_bytes();
		rig.max_jobs = limits[i];
		rig_worker_start(&rig, 0);
		ck_assert_int_eq(store_one(1 + i, &job), 0);
		collect(1);
		ck_assert_int_eq(scout_worker_fence(rig.workers[0], 0, (const int64_t[1]){1}, 1, NULL), 0);
		ck_assert_int_eq(scout_worker_poll(rig.workers[0], &done, 1), 0);
		after = anonymous_bytes();
		ck_assert_msg(after < before + IDLE_BYTES, "max_jobs %u: %llu KiB", (unsigned)limits[i],
			      (unsigned long long)(after - before) / 1024);
	}
}
END_TEST
#endif
