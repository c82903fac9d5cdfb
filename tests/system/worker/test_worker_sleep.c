/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_rig.h"

#include "check_main.h"
#include "host_gate.h"
#include "worker_internal.h"

/* An engine that sleeps takes its pages back: scout_worker_unregister(), and registers others when it wakes. */

#define CHUNKS 4u

static struct rig rig;

static void
setup(void)
{
	rig_init(&rig);
	rig_start(&rig);
	rig_store_all(&rig, 1, CHUNKS, 1);
}

static void
teardown(void)
{
	host_gate_open();
	rig_stop(&rig);
	scout__copy_host_faults(NULL);
}

static uint64_t
start_retrieve(int64_t first_id, char id[32])
{
	struct scout_hit hit = rig_lookup(&rig, 1, CHUNKS, id);
	int64_t *ids = rig_ids(first_id, 1, (size_t)CHUNKS * rig.bpc);
	uint64_t job;

	ck_assert_uint_eq(hit.chunks, CHUNKS);
	job = rig_retrieve(&rig, 0, hit.ticket, 0, ids, (size_t)CHUNKS * rig.bpc, 0);
	free(ids);
	return job;
}

static void
assert_untouched(const struct rig_pages *pages)
{
	for (uint64_t id = 0; id < pages->n_blocks; id++)
		ck_assert_msg(rig_page_untouched(pages, (int64_t)id), "page %u was written", (unsigned)id);
}

/* Register @pages, and load the prompt into them. */
static void
wake_into(const struct rig_pages *pages)
{
	struct scout_table table;
	struct scout_done done;
	char err[512] = "", id[32];

	rig_table(&rig, pages, &table);
	ck_assert_msg(scout_worker_register(rig.workers[0], &table, 1, wait_limit_ms(), err, sizeof(err)) == 0, "%s",
		      err);
	done = rig_wait(rig.workers[0], start_retrieve(20, id));
	ck_assert_int_eq(done.status, 0);
	for (uint64_t b = 0; b < (uint64_t)CHUNKS * rig.bpc; b++)
		ck_assert(rig_page_is(pages, 20 + (int64_t)b, 1, 0, b));
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(a_running_copy_is_waited_for_and_no_other_starts)
{
	struct scout_worker *worker = rig.workers[0];
	struct rig_pages *pages = &rig.pages[0];
	char running_id[32];
	struct scout_done done[2];
	uint64_t running, asked;
	int n = 0;

	host_gate_shut();
	running = start_retrieve(20, running_id);
	rig_wait_enqueued(rig.workers[0], running);
	rig_server_freeze(&rig);
	{
		int64_t ids[4] = {60, 61, 62, 63};

		asked = rig_retrieve(&rig, 0, 77, 0, ids, 4, 0);
	}
	host_gate_arm();
	ck_assert_int_eq(scout_worker_unregister(worker), 0);
	/* The engine's memory is away from here on. */
	ck_assert(host_gate_is_open());
	rig_pages_wipe(pages);
	ck_assert_int_eq(scout_worker_unregister(worker), 0);
	ck_assert_int_eq(scout_worker_fence(worker, 0, (int64_t[]){20, 60}, 2, NULL), 0);
	while (n < 2)
		n += scout_worker_poll(worker, &done[n], 1);
	for (int i = 0; i < 2; i++)
		if (done[i].job == asked) {
			ck_assert_int_eq(done[i].status, SCOUT_ERR_CANCELED);
			ck_assert_uint_eq(done[i].n_missing, 4);
		} else {
			ck_assert_uint_eq(done[i].job, running);
		}
	rig_server_thaw(&rig);
	assert_untouched(pages);
	wake_into(pages);
}
END_TEST

START_TEST(jobs_are_refused_while_the_pages_are_away)
{
	int64_t ids[4] = {1, 2, 3, 4};
	struct scout_blocks blocks = {.ids = ids, .n = 4};
	struct scout_retrieve retrieve = {.ticket = 5, .to_token = 64, .blocks = &blocks, .n_groups = 1};
	struct scout_store store = {.hash_len = RIG_HASH, .blocks = &blocks, .n_groups = 1};
	struct scout_worker_counters counters;
	uint64_t job;

	ck_assert_int_eq(scout_worker_unregister(NULL), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_unregister(rig.workers[0]), 0);
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &retrieve, &job), SCOUT_ERR_NOT_REGISTERED);
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), SCOUT_ERR_NOT_REGISTERED);
	ck_assert_int_eq(scout_worker_stats(rig.workers[0], &counters), 0);
	ck_assert_uint_eq(counters.registered, 0);
	ck_assert_uint_eq(counters.server_up, 1);
	wake_into(&rig.pages[0]);
	ck_assert_int_eq(scout_worker_stats(rig.workers[0], &counters), 0);
	ck_assert_uint_eq(counters.registered, 1);
}
END_TEST

/* A job that was not polled names pages of before; its end does not count for those of now. */
START_TEST(it_wakes_with_fewer_pages_while_an_old_job_is_not_polled)
{
	struct scout_worker *worker = rig.workers[0];
	struct rig_pages small = rig.pages[0];
	char id[32];
	uint64_t job;

	host_gate_shut();
	job = start_retrieve((int64_t)rig.pages[0].n_blocks - (int64_t)(CHUNKS * rig.bpc), id);
	rig_wait_enqueued(rig.workers[0], job);
	host_gate_arm();
	ck_assert_int_eq(scout_worker_unregister(worker), 0);
	small.n_blocks = 40; /* the head of the same memory */
	{
		struct scout_table table;
		char err[512] = "";

		rig_table(&rig, &small, &table);
		ck_assert_msg(scout_worker_register(worker, &table, 1, wait_limit_ms(), err, sizeof(err)) == 0, "%s",
			      err);
	}
	ck_assert_uint_eq(rig_wait(worker, job).job, job);
	for (uint64_t i = 0; i < small.n_blocks; i++)
		ck_assert_uint_eq(worker->tables[0].uses[i], 0);
	ck_assert_int_eq(scout_worker_fence(worker, 0, (int64_t[]){20}, 1, NULL), 0);
	ck_assert_int_eq(scout_worker_unregister(worker), 0);
	wake_into(&rig.pages[0]);
}
END_TEST

START_TEST(a_restart_of_the_server_while_it_sleeps_is_no_matter)
{
	struct scout_table table;
	char err[512] = "";

	ck_assert_int_eq(scout_worker_unregister(rig.workers[0]), 0);
	rig_server_end(&rig, SIGKILL);
	rig_server_start(&rig);
	rig_table(&rig, &rig.pages[0], &table);
	ck_assert_msg(scout_worker_register(rig.workers[0], &table, 1, wait_limit_ms(), err, sizeof(err)) == 0, "%s",
		      err);
	rig_store_all(&rig, 2, CHUNKS, 1);
}
END_TEST
