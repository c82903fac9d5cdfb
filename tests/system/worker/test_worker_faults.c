/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_rig.h"

#include <pthread.h>
#include <stdatomic.h>

#include "assert_rc.h"
#include "check_main.h"
#include "host_gate.h"
#include "worker_internal.h"

/*
 * What a worker promises when something goes wrong: copies that are held up or fail, servers that stop, vanish or
 * come back, callers that cancel, fence and leave.
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

static uint64_t
frames_sent(const struct scout_worker *worker)
{
	return atomic_load(&scout__courier_counts(worker->courier)->frames_sent);
}

/* Wait until the worker has sent something. */
static void
wait_sent(const struct scout_worker *worker, uint64_t before)
{
	wait_until(frames_sent(worker) != before)
		;
}

/* ---- the copy engine ---- */

CHECKED_FIXTURE(setup, teardown);

START_TEST(jobs_beyond_max_jobs_are_refused_until_one_was_polled)
{
	int64_t ids[4] = {1, 2, 3, 4};
	struct scout_blocks blocks = {.ids = ids, .n = 4};
	struct scout_retrieve retrieve = {.ticket = 5, .to_token = 64, .blocks = &blocks, .n_groups = 1};
	struct scout_done done;
	uint64_t job = 99;

	rig.max_jobs = 3;
	rig_start(&rig);
	host_gate_shut();
	for (uint32_t i = 0; i < 3; i++)
		(void)rig_store(&rig, 0, 10 + i, 2, 1 + 10 * (int64_t)i);
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &retrieve, &job), SCOUT_ERR_BUSY);
	ck_assert_uint_eq(job, 99);
	host_gate_open();
	done = rig_wait(rig.workers[0], 0);
	ck_assert_int_eq(done.status, 0);
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &retrieve, &job), 0);
	for (int i = 0; i < 3; i++)
		(void)rig_wait(rig.workers[0], 0);
}
END_TEST

START_TEST(a_retrieve_whose_copy_fails_names_the_rest)
{
	struct scout__copy_faults faults = {.fail_item = 3};
	int64_t *ids = rig_ids(100, 1, 20);
	struct scout_done done;
	struct scout_hit hit;
	char id[32];

	rig_start(&rig);
	rig_store_all(&rig, 1, 5, 1);
	hit = rig_lookup(&rig, 1, 5, id);
	scout__copy_host_faults(&faults);
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 0, ids, 20, 0));
	ck_assert_int_eq(done.status, SCOUT_ERR_DEVICE);
	ck_assert_uint_eq(done.chunks, 2);
	ck_assert_uint_eq(done.n_missing, 12);
	for (uint32_t i = 0; i < 12; i++)
		ck_assert_uint_eq(done.missing[i], 8 + i);
	for (uint64_t b = 0; b < 8; b++)
		ck_assert(rig_page_is(&rig.pages[0], ids[b], 1, 0, b));
	/* The hold was given back, and the device works again. */
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 0, ids, 20, 0));
	ck_assert_int_eq(done.status, 0);
	free(ids);
}
END_TEST

START_TEST(a_store_whose_copy_fails_commits_its_head)
{
	struct scout__copy_faults faults = {.fail_item = 4};
	struct scout_done done;
	struct scout_hit hit;
	char id[32];

	rig_start(&rig);
	scout__copy_host_faults(&faults);
	done = rig_wait(rig.workers[0], rig_store(&rig, 0, 1, 6, 1));
	ck_assert_int_eq(done.status, SCOUT_ERR_DEVICE);
	ck_assert_uint_eq(done.chunks, 3);
	hit = rig_lookup(&rig, 1, 6, id);
	ck_assert_uint_eq(hit.chunks, 3);
}
END_TEST

START_TEST(a_slot_that_changes_under_a_copy_is_never_reported_as_good)
{
	int64_t *ids = rig_ids(100, 1, 12);
	struct scout__mapping *mapping;
	_Atomic uint64_t *words;
	struct scout_done done;
	struct scout_hit hit;
	uint64_t job;
	char id[32];

	rig_start(&rig);
	rig_store_all(&rig, 1, 3, 1);
	hit = rig_lookup(&rig, 1, 3, id);
	host_gate_shut();
	job = rig_retrieve(&rig, 0, hit.ticket, 0, ids, 12, 0);
	rig_wait_enqueued(rig.workers[0], job);
	mapping = rig.workers[0]->mappings.list[0];
	words = (_Atomic uint64_t *)(void *)mapping->base;
	for (uint32_t i = 0; i < mapping->slots; i++)
		atomic_fetch_add(&words[i], 1);
	host_gate_open();
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, SCOUT_ERR_CORRUPT);
	ck_assert_uint_eq(done.n_missing, 12);
	ck_assert_uint_eq(done.chunks, 0);
	/* It is no hit any more (once the server was told, on another connection than that of lookups), and can be stored anew. */
	wait_until(rig_lookup(&rig, 1, 3, id).chunks == 0)
		ck_assert_int_eq(scout_finish(rig.client, id), 0);
	rig_store_all(&rig, 1, 3, 1);
	hit = rig_lookup(&rig, 1, 3, id);
	ck_assert_uint_eq(hit.chunks, 3);
	/* Changed already when the copy would start: nothing is copied at all. */
	for (uint32_t i = 0; i < mapping->slots; i++)
		atomic_fetch_add(&words[i], 1);
	rig_pages_wipe(&rig.pages[0]);
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 0, ids, 12, 0));
	ck_assert_int_eq(done.status, SCOUT_ERR_CORRUPT);
	ck_assert_uint_eq(done.bytes, 0);
	ck_assert(rig_page_untouched(&rig.pages[0], 100));
	rig_store_all(&rig, 1, 3, 1);
	hit = rig_lookup(&rig, 1, 3, id);
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 0, ids, 12, 0));
	ck_assert_int_eq(done.status, 0);
	free(ids);
}
END_TEST

/* ---- cancel, fence, free ---- */

START_TEST(a_cancelled_job_ends_once_and_at_once_while_the_server_stands_still)
{
	struct scout_done done;
	uint64_t job, sent;

	rig_start(&rig);
	rig_server_freeze(&rig);
	sent = frames_sent(rig.workers[0]);
	job = rig_store(&rig, 0, 1, 3, 1);
	wait_sent(rig.workers[0], sent);
	ck_assert_int_eq(scout_worker_cancel(rig.workers[0], job), 0);
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, SCOUT_ERR_CANCELED);
	ck_assert_int_eq(scout_worker_cancel(rig.workers[0], job), SCOUT_ERR_STATE);
	ck_assert_int_eq(scout_worker_poll(rig.workers[0], &done, 1), 0);
	/* The late grants are given back: the same keys can be stored. */
	rig_server_thaw(&rig);
	wait_until((done = rig_store_until(&rig, 0, 1, 3, 1, 0)).chunks != 0)
		;
	ck_assert_uint_eq(done.chunks, 3);
}
END_TEST

START_TEST(a_cancel_after_the_copy_began_waits_for_it)
{
	struct scout_done done;
	uint64_t job;

	rig_start(&rig);
	host_gate_shut();
	job = rig_store(&rig, 0, 1, 3, 1);
	rig_wait_enqueued(rig.workers[0], job);
	ck_assert_int_eq(scout_worker_cancel(rig.workers[0], job), 0);
	ck_assert_int_eq(scout_worker_poll(rig.workers[0], &done, 1), 0);
	host_gate_open();
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.chunks, 3);
}
END_TEST

START_TEST(a_fence_waits_for_the_copies_on_its_pages)
{
	struct scout_done done;
	int64_t page = 5, other = 200, bad = 512;
	uint64_t job;

	rig_start(&rig);
	host_gate_shut();
	job = rig_store(&rig, 0, 1, 3, 1);
	rig_wait_enqueued(rig.workers[0], job);
	/* Pages of no job: it returns while the gate is closed. */
	ck_assert_int_eq(scout_worker_fence(rig.workers[0], 0, &other, 1, NULL), 0);
	ck_assert(!host_gate_is_open());
	ck_assert_int_eq(scout_worker_fence(rig.workers[0], 0, &bad, 1, NULL), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_fence(rig.workers[0], 0, NULL, 1, NULL), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_fence(NULL, 0, &page, 1, NULL), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_fence(rig.workers[0], 1, &page, 1, NULL), SCOUT_ERR_GROUP);
	host_gate_arm();
	ck_assert_int_eq(scout_worker_fence(rig.workers[0], 0, &page, 1, NULL), 0);
	ck_assert(host_gate_is_open());
	/* The pages are free now. */
	rig_pages_wipe(&rig.pages[0]);
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 3, (char[32]){0}).chunks, 3);
}
END_TEST

START_TEST(a_fence_drops_the_jobs_on_its_pages_that_did_not_start)
{
	struct scout_done done;
	int64_t page = 50, null_block = 0;
	uint64_t kept, dropped;

	rig_start(&rig);
	rig_server_freeze(&rig);
	kept = rig_store(&rig, 0, 1, 3, 1);
	dropped = rig_store(&rig, 0, 2, 3, 48);
	ck_assert_int_eq(scout_worker_fence(rig.workers[0], 0, &null_block, 1, NULL), 0);
	ck_assert_int_eq(scout_worker_fence(rig.workers[0], 0, &page, 1, NULL), 0);
	done = rig_wait(rig.workers[0], dropped);
	ck_assert_int_eq(done.status, SCOUT_ERR_CANCELED);
	rig_server_thaw(&rig);
	done = rig_wait(rig.workers[0], kept);
	/* On a slow machine it stood still for half a second. */
	ck_assert(done.status == 0 || done.status == SCOUT_ERR_UNREACHABLE);
	ck_assert_uint_eq(done.chunks, done.status ? 0 : 3);
}
END_TEST

START_TEST(a_fence_stops_a_long_store_after_the_part_that_runs)
{
	static const uint64_t bytes[1] = {4}, padding[1] = {0};
	struct scout_done done;
	int64_t page = 8999;
	uint64_t job;

	rig.chunk_tokens = 16;
	rig_pages_init(&rig.pages[0], 1, bytes, padding, 10000);
	rig_start(&rig);
	host_gate_shut();
	job = rig_store(&rig, 0, 1, 9000, 1);
	rig_wait_enqueued(rig.workers[0], job);
	host_gate_arm();
	ck_assert_int_eq(scout_worker_fence(rig.workers[0], 0, &page, 1, NULL), 0);
	ck_assert(host_gate_is_open());
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, SCOUT_ERR_CANCELED);
	ck_assert_uint_eq(done.chunks, SCOUT__STORE_PART);
}
END_TEST

START_TEST(free_waits_for_the_running_copies_and_commits_them)
{
	uint64_t job;

	rig_start(&rig);
	host_gate_shut();
	job = rig_store(&rig, 0, 1, 3, 1);
	rig_wait_enqueued(rig.workers[0], job);
	host_gate_arm();
	scout_worker_free(rig.workers[0]);
	rig.workers[0] = NULL;
	ck_assert(host_gate_is_open());
	rig_pages_fini(&rig.pages[0]);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 3, (char[32]){0}).chunks, 3);
}
END_TEST

/* ---- the server ---- */

START_TEST(a_job_that_cannot_start_in_time_ends_as_timed_out)
{
	int64_t ids[4] = {60, 61, 62, 63};
	struct scout_blocks blocks = {.ids = ids, .n = 4};
	struct scout_retrieve retrieve = {.to_token = 64, .blocks = &blocks, .n_groups = 1, .timeout_ms = 200};
	struct scout_done done;
	struct scout_hit hit;
	uint64_t job, begin_us;
	char id[32];

	rig_start(&rig);
	rig_store_all(&rig, 1, 1, 1);
	hit = rig_lookup(&rig, 1, 1, id);
	retrieve.ticket = hit.ticket;
	rig_server_freeze(&rig); /* it is not yet known to be away when the time of the job is over */
	begin_us = scout__now_us();
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &retrieve, &job), 0);
	done = rig_wait(rig.workers[0], job);
	ck_assert_uint_ge(scout__now_us() - begin_us, 200000);
	ck_assert_int_eq(done.status, SCOUT_ERR_TIMEOUT);
	ck_assert_uint_eq(done.n_missing, 4);
	ck_assert(rig_page_untouched(&rig.pages[0], 60));
	rig_server_thaw(&rig);
	while ((done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 0, ids, 4, 0))).status != 0)
		ck_assert_int_eq(done.status, SCOUT_ERR_UNREACHABLE);
	ck_assert(rig_page_is(&rig.pages[0], 60, 1, 0, 0));
}
END_TEST

START_TEST(a_server_that_dies_before_it_grants_leaves_no_job_behind)
{
	struct scout_done done;
	int64_t ids[4] = {60, 61, 62, 63};
	uint64_t stored, retrieved;

	rig_start(&rig);
	rig_server_freeze(&rig);
	stored = rig_store(&rig, 0, 1, 3, 1);
	retrieved = rig_retrieve(&rig, 0, 4711, 0, ids, 4, 0);
	rig_server_end(&rig, SIGKILL);
	for (int i = 0; i < 2; i++) {
		done = rig_wait(rig.workers[0], 0);
		ck_assert(done.job == stored || done.job == retrieved);
		ck_assert_int_eq(done.status, SCOUT_ERR_UNREACHABLE);
		ck_assert_uint_eq(done.n_missing, done.job == retrieved ? 4 : 0);
	}
	ck_assert_int_eq(scout_worker_poll(rig.workers[0], &done, 1), 0);
	/* Still away: told at once. */
	done = rig_wait(rig.workers[0], rig_store(&rig, 0, 1, 3, 1));
	ck_assert_int_eq(done.status, SCOUT_ERR_UNREACHABLE);
}
END_TEST

START_TEST(a_copy_outlives_its_server)
{
	int64_t *ids = rig_ids(100, 1, 12);
	struct scout_done done;
	struct scout_hit hit;
	uint64_t stored, retrieved;
	char id[32];

	rig_start(&rig);
	rig_store_all(&rig, 1, 3, 1);
	hit = rig_lookup(&rig, 1, 3, id);
	host_gate_shut();
	retrieved = rig_retrieve(&rig, 0, hit.ticket, 0, ids, 12, 0);
	stored = rig_store(&rig, 0, 2, 3, 200);
	rig_wait_enqueued(rig.workers[0], retrieved);
	rig_wait_enqueued(rig.workers[0], stored);
	rig_server_end(&rig, SIGKILL);
	/* The worker knows it before the gate opens. */
	done = rig_wait(rig.workers[0], rig_store(&rig, 0, 3, 1, 300));
	ck_assert_int_eq(done.status, SCOUT_ERR_UNREACHABLE);
	host_gate_open();
	done = rig_wait(rig.workers[0], retrieved);
	ck_assert_int_eq(done.status, 0);
	for (uint64_t b = 0; b < 12; b++)
		ck_assert(rig_page_is(&rig.pages[0], ids[b], 1, 0, b));
	done = rig_wait(rig.workers[0], stored);
	ck_assert_int_eq(done.status, SCOUT_ERR_UNREACHABLE);
	free(ids);
}
END_TEST

START_TEST(after_a_restart_the_worker_registers_by_itself)
{
	int64_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	struct scout_done done;
	struct scout_hit hit;
	char id[32];

	rig_start(&rig);
	rig_store_all(&rig, 1, 3, 1);
	rig_server_end(&rig, SIGKILL);
	rig_server_start(&rig);
	ck_assert_uint_eq(rig_store_until(&rig, 0, 2, 2, 400, 0).chunks, 2);
	wait_until((hit = rig_lookup(&rig, 2, 2, id)).reason != SCOUT_REASON_UNREACHABLE)
		ck_assert_int_eq(scout_finish(rig.client, id), 0);
	ck_assert_uint_eq(hit.chunks, 2);
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 0, ids, 8, 0));
	ck_assert_int_eq(done.status, 0);
	for (uint64_t b = 0; b < 8; b++)
		ck_assert(rig_page_is(&rig.pages[0], ids[b], 2, 0, b));
	/* What the old server had is gone, and none of its memory is kept. */
	ck_assert_uint_eq(rig_lookup(&rig, 1, 3, id).chunks, 0);
	ck_assert_ptr_null(rig.workers[0]->mappings.stale);
}
END_TEST

START_TEST(a_store_of_the_old_epoch_is_not_good_in_the_new_one)
{
	int64_t ids[4] = {400, 401, 402, 403};
	struct scout_done done;
	uint64_t stored;

	rig_start(&rig);
	host_gate_shut();
	stored = rig_store(&rig, 0, 1, 3, 1);
	rig_wait_enqueued(rig.workers[0], stored);
	rig_server_end(&rig, SIGKILL);
	rig_server_start(&rig);
	/* An unknown ticket is answered by the new server only: then the worker is registered there. */
	wait_until((done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, 4711, 0, ids, 4, 0))).status ==
		   SCOUT_ERR_NO_SESSION)
		ck_assert(done.status == SCOUT_ERR_UNREACHABLE || done.status == SCOUT_ERR_EPOCH);
	ck_assert_ptr_nonnull(rig.workers[0]->mappings.stale);
	host_gate_open();
	done = rig_wait(rig.workers[0], stored);
	ck_assert_int_eq(done.status, SCOUT_ERR_EPOCH);
	ck_assert_ptr_null(rig.workers[0]->mappings.stale);
}
END_TEST

START_TEST(a_silent_server_that_wakes_up_is_told_late)
{
	int64_t *ids = rig_ids(100, 1, 12);
	struct scout_done done;
	struct scout_hit hit;
	uint64_t stored, retrieved;
	char id[32];

	rig.heartbeat_ms = 250;
	rig_start(&rig);
	rig_store_all(&rig, 1, 3, 1);
	hit = rig_lookup(&rig, 1, 3, id);
	host_gate_shut();
	retrieved = rig_retrieve(&rig, 0, hit.ticket, 0, ids, 12, 0);
	stored = rig_store(&rig, 0, 2, 3, 200);
	rig_wait_enqueued(rig.workers[0], stored);
	rig_server_freeze(&rig);
	done = rig_wait(rig.workers[0], rig_store(&rig, 0, 3, 1, 300));
	ck_assert_int_eq(done.status, SCOUT_ERR_UNREACHABLE);
	host_gate_open();
	/* Both end without the server. */
	done = rig_wait(rig.workers[0], retrieved);
	ck_assert_int_eq(done.status, 0);
	done = rig_wait(rig.workers[0], stored);
	ck_assert_int_eq(done.status, SCOUT_ERR_UNREACHABLE);
	ck_assert(rig_page_is(&rig.pages[0], 111, 1, 0, 11));
	/* It is the same server start: what was copied becomes readable all the same. */
	rig_server_thaw(&rig);
	wait_until(rig_lookup(&rig, 2, 3, id).chunks == 3)
		ck_assert_int_eq(scout_finish(rig.client, id), 0);
	ck_assert_uint_eq(rig_store_until(&rig, 0, 4, 2, 400, 0).chunks, 2);
	free(ids);
}
END_TEST

START_TEST(what_retrieves_held_is_given_back)
{
	struct scout_done done;
	struct scout_hit hit;
	char id[32];
	int64_t *ids = rig_ids(100, 1, 8);

	/* 4 slots; what was held must be evictable. */
	rig.l1_bytes = 4 * 768;
	rig_start(&rig);
	rig_store_all(&rig, 1, 2, 1);
	hit = rig_lookup(&rig, 1, 2, id);
	for (int i = 0; i < 20; i++) {
		done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 0, ids, 8, 0));
		ck_assert_int_eq(done.status, 0);
	}
	ck_assert_int_eq(scout_finish(rig.client, id), 0);
	/* Behind FINISH and the DONEs all four slots are free for others. */
	wait_until((done = rig_wait(rig.workers[0], rig_store(&rig, 0, 50 + rig.next_id++, 4, 200))).no_room == 0)
		assert_ok(done.status);
	assert_ok(done.status);
	ck_assert_uint_eq(done.chunks, 4);
	free(ids);
}
END_TEST

START_TEST(the_courier_sleeps_when_its_copies_are_done)
{
	struct pollfd pfd = {.events = POLLIN};

	rig_start(&rig);
	pfd.fd = rig.workers[0]->epoll_fd;
	(void)rig_wait(rig.workers[0], rig_store(&rig, 0, 10, 2, 1));
	/* A descriptor that stays readable would keep the courier spinning. */
	wait_until(poll(&pfd, 1, 0) == 0)
		;
}
END_TEST
