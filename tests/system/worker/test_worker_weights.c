/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_rig.h"

#include <stdatomic.h>

#include "check_main.h"
#include "host_gate.h"
#include "worker_internal.h"

/*
 * scout_worker_reset() with a real server: what becomes of the jobs that a worker has, whoever resets first, and what is served
 * afterwards.
 */

static struct rig rig;

static void
setup(void)
{
	rig_init(&rig);
	rig.weights = 1;
}

static void
teardown(void)
{
	host_gate_open();
	rig_stop(&rig);
	scout__copy_host_faults(NULL);
}

/* How many leading chunks of @prompt are a hit. A lookup is answered after every reset that was called before it. */
static uint32_t
hit_of(uint32_t prompt, uint32_t n)
{
	char id[32];
	struct scout_hit hit = rig_lookup(&rig, prompt, n, id);

	ck_assert_msg(hit.error == 0, "%s", scout_err_name(hit.error));
	(void)scout_finish(rig.client, id);
	return hit.chunks;
}

static void
client_resets(uint64_t version)
{
	ck_assert_int_eq(scout_reset(rig.client, version), 0);
	ck_assert_uint_eq(hit_of(999, 1), 0);
}

static int
store_status(uint32_t w, uint32_t prompt)
{
	return rig_wait(rig.workers[w], rig_store(&rig, w, prompt, 3, 1)).status;
}

static void
check_all_missing(const struct scout_done *done, uint32_t n)
{
	ck_assert_int_eq(done->status, SCOUT_ERR_WEIGHTS);
	ck_assert_uint_eq(done->chunks, 0);
	ck_assert_uint_eq(done->n_missing, n);
	for (uint32_t i = 0; i < n; i++)
		ck_assert_uint_eq(done->missing[i], i);
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(what_it_cannot_be_called_with)
{
	rig_start(&rig);
	ck_assert_int_eq(scout_worker_reset(NULL, 2), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_reset(rig.workers[0], 0), SCOUT_ERR_INVALID);
	ck_assert_int_eq(store_status(0, 1), 0);
}
END_TEST

START_TEST(nothing_that_waits_or_runs_is_good_afterwards)
{
	struct scout_progress progress = {0};
	struct scout_worker *worker;
	int64_t *ids = rig_ids(100, 1, 20);
	uint64_t copying, reading, asked, frozen_us;
	int status;
	bool gone;
	struct scout_hit hit;
	char id[32];

	rig_start(&rig);
	worker = rig.workers[0];
	rig_store_all(&rig, 1, 5, 1);
	hit = rig_lookup(&rig, 1, 5, id);
	ck_assert_uint_eq(hit.chunks, 5);
	host_gate_shut();
	copying = rig_store(&rig, 0, 2, 3, 30);
	reading = rig_retrieve(&rig, 0, hit.ticket, 0, ids, 20, 0);
	rig_wait_enqueued(worker, copying);
	rig_wait_enqueued(worker, reading);
	frozen_us = scout__now_us();
	rig_server_freeze(&rig);
	asked = rig_store(&rig, 0, 3, 3, 50); /* in the ring, or sent: nobody answers */
	ck_assert_int_eq(scout_worker_progress(worker, copying, &progress), 0);
	ck_assert_int_eq(scout_worker_reset(worker, 2), 0);
	ck_assert_int_eq(scout_worker_progress(worker, copying, &progress), SCOUT_ERR_WEIGHTS);
	ck_assert_int_eq(scout_worker_progress(worker, reading, &progress), SCOUT_ERR_WEIGHTS);
	/* Without the server: it had not started. */
	status = rig_wait(worker, asked).status;
	host_gate_open();
	rig_server_thaw(&rig);
	gone = scout__now_us() - frozen_us > RIG_GONE_US;
	ck_assert(status == SCOUT_ERR_WEIGHTS || (gone && status == SCOUT_ERR_UNREACHABLE));
	for (int i = 0; i < 2; i++) {
		struct scout_done done = rig_wait(worker, 0);

		ck_assert(done.status == SCOUT_ERR_WEIGHTS ||
			  (gone && done.job == copying && done.status == SCOUT_ERR_UNREACHABLE));
		ck_assert_uint_eq(done.chunks, 0);
		if (done.job == reading)
			check_all_missing(&done, 20);
		else
			ck_assert_uint_eq(done.job, copying);
	}
	client_resets(2);
	for (uint32_t prompt = 1; prompt <= 3; prompt++)
		ck_assert_uint_eq(hit_of(prompt, 3), 0);
	(void)rig_store_until(&rig, 0, 4, 3, 1, 0);
	rig_store_all(&rig, 1, 5, 1);
	ck_assert_uint_eq(hit_of(1, 5), 5);
	free(ids);
}
END_TEST

START_TEST(what_ended_well_but_was_not_polled_is_not_good_afterwards)
{
	int64_t *ids = rig_ids(100, 1, 12);
	struct scout_done done;
	struct scout_hit hit;
	struct pollfd pfd;
	char id[32];

	rig_start(&rig);
	rig_store_all(&rig, 1, 3, 1);
	hit = rig_lookup(&rig, 1, 3, id);
	(void)rig_retrieve(&rig, 0, hit.ticket, 0, ids, 12, 0);
	pfd = (struct pollfd){.fd = scout_worker_fd(rig.workers[0]), .events = POLLIN};
	ck_assert_int_eq(poll(&pfd, 1, wait_limit_ms()), 1);
	ck_assert_int_eq(scout_worker_reset(rig.workers[0], 2), 0);
	ck_assert_int_eq(scout_worker_poll(rig.workers[0], &done, 1), 1);
	check_all_missing(&done, 12);
	free(ids);
}
END_TEST

START_TEST(another_error_is_still_told)
{
	struct scout__copy_faults faults = {.fail_item = 1, .gate = host_gate};
	uint64_t job;

	rig_start(&rig);
	host_gate_open();
	scout__copy_host_faults(&faults);
	job = rig_store(&rig, 0, 1, 3, 1);
	wait_until(rig_is_readable(rig.workers[0]))
		;
	ck_assert_int_eq(scout_worker_reset(rig.workers[0], 2), 0);
	ck_assert_int_eq(rig_wait(rig.workers[0], job).status, SCOUT_ERR_DEVICE);
}
END_TEST

START_TEST(a_worker_that_is_first_takes_everybody_along)
{
	struct scout_hit hit;
	char id[32];

	rig_start(&rig);
	ck_assert_int_eq(store_status(0, 1), 0);
	ck_assert_int_eq(scout_worker_reset(rig.workers[0], 2), 0);
	ck_assert_int_eq(store_status(0, 2), 0);
	hit = rig_lookup(&rig, 1, 3, id);
	ck_assert_uint_eq(hit.tokens, 0);
	ck_assert_int_eq(hit.error, SCOUT_ERR_WEIGHTS);
	client_resets(2);
	ck_assert_uint_eq(hit_of(1, 3), 0);
	ck_assert_uint_eq(hit_of(2, 3), 3);
}
END_TEST

START_TEST(a_worker_that_is_second_is_refused_until_it_follows)
{
	rig_start(&rig);
	ck_assert_int_eq(store_status(0, 1), 0);
	client_resets(2);
	ck_assert_int_eq(store_status(0, 1), SCOUT_ERR_WEIGHTS);
	ck_assert_uint_eq(hit_of(1, 3), 0);
	ck_assert_int_eq(scout_worker_reset(rig.workers[0], 2), 0);
	ck_assert_int_eq(store_status(0, 1), 0);
	ck_assert_uint_eq(hit_of(1, 3), 3);
}
END_TEST

START_TEST(the_version_that_it_has_changes_nothing)
{
	uint64_t job;

	rig_start(&rig);
	host_gate_shut();
	job = rig_store(&rig, 0, 1, 3, 1);
	rig_wait_enqueued(rig.workers[0], job);
	ck_assert_int_eq(scout_worker_reset(rig.workers[0], 1), 0);
	host_gate_open();
	ck_assert_int_eq(rig_wait(rig.workers[0], job).status, 0);
	ck_assert_uint_eq(hit_of(1, 3), 3);
}
END_TEST

/* The first version that a namespace hears of could become the name of what it has. */
START_TEST(old_bytes_without_a_version_do_not_get_the_new_one)
{
	rig.weights = 0;
	rig_start(&rig);
	ck_assert_int_eq(store_status(0, 1), 0);
	ck_assert_int_eq(scout_worker_reset(rig.workers[0], 7), 0);
	ck_assert_int_eq(store_status(0, 2), 0);
	ck_assert_uint_eq(hit_of(1, 3), 0);
	ck_assert_uint_eq(hit_of(2, 3), 3);
	client_resets(7);
	ck_assert_uint_eq(hit_of(2, 3), 3);
	/* From now on it has one, and does not follow. */
	client_resets(8);
	ck_assert_int_eq(store_status(0, 3), SCOUT_ERR_WEIGHTS);
	ck_assert_uint_eq(hit_of(3, 3), 0);
}
END_TEST

/* It never had the version that the namespace has, so it cannot know which one is older. */
START_TEST(a_worker_that_had_no_version_leaves_the_matter_to_the_client)
{
	static const uint64_t bytes[2] = {61, 129}, padding[2] = {3, 0};
	uint64_t job;

	rig_start_server(&rig);
	rig_client_start(&rig);
	rig_pages_init(&rig.pages[0], 2, bytes, padding, 512);
	rig.weights = 0;
	rig_worker_start(&rig, 0);
	host_gate_shut();
	job = rig_store(&rig, 0, 1, 3, 1);
	rig_wait_enqueued(rig.workers[0], job);
	ck_assert_int_eq(scout_worker_reset(rig.workers[0], 2), 0);
	host_gate_open();
	ck_assert_int_eq(rig_wait(rig.workers[0], job).status, SCOUT_ERR_WEIGHTS);
	/* What it had copied was given up, though the server has not gone on. */
	ck_assert_int_eq(store_status(0, 2), SCOUT_ERR_WEIGHTS);
	ck_assert_uint_eq(hit_of(1, 3), 0);
	client_resets(2);
	ck_assert_int_eq(store_status(0, 2), 0);
	ck_assert_uint_eq(hit_of(2, 3), 3);
}
END_TEST

START_TEST(a_rank_that_comes_late_with_an_older_version_harms_only_itself)
{
	rig.kv_ranks = 2;
	rig_start(&rig);
	rig_store_all(&rig, 1, 3, 1);
	client_resets(2);
	ck_assert_int_eq(scout_worker_reset(rig.workers[0], 2), 0);
	client_resets(3);
	ck_assert_int_eq(scout_worker_reset(rig.workers[0], 3), 0);
	ck_assert_int_eq(store_status(0, 1), 0);
	ck_assert_int_eq(scout_worker_reset(rig.workers[1], 2), 0);
	ck_assert_int_eq(store_status(1, 1), SCOUT_ERR_WEIGHTS);
	/* One rank has it: no hit, and no error for anybody. */
	ck_assert_uint_eq(hit_of(1, 3), 0);
	ck_assert_int_eq(store_status(0, 2), 0);
	ck_assert_int_eq(scout_worker_reset(rig.workers[1], 3), 0);
	ck_assert_int_eq(store_status(1, 1), 0);
	ck_assert_uint_eq(hit_of(1, 3), 3);
}
END_TEST

START_TEST(a_worker_that_cannot_register_for_its_weights_can_after_it)
{
	static const uint64_t bytes[2] = {61, 129}, padding[2] = {3, 0};
	struct scout_table layout;
	char err[512] = "";

	rig.weights = 2;
	rig_start_server(&rig);
	rig_client_start(&rig);
	rig_pages_init(&rig.pages[0], 2, bytes, padding, 512);
	rig_table(&rig, &rig.pages[0], &layout);
	rig.weights = 1;
	rig.workers[0] = rig_worker_new(&rig, 0);
	ck_assert_int_eq(scout_worker_register(rig.workers[0], &layout, 1, wait_limit_ms(), err, sizeof(err)),
			 SCOUT_ERR_WEIGHTS);
	ck_assert_int_eq(scout_worker_reset(rig.workers[0], 2), 0);
	ck_assert_msg(scout_worker_register(rig.workers[0], &layout, 1, wait_limit_ms(), err, sizeof(err)) == 0, "%s",
		      err);
	ck_assert_int_eq(store_status(0, 1), 0);
	ck_assert_uint_eq(hit_of(1, 3), 3);
}
END_TEST

/* Both have gone over before, or one of them only afterwards, or none. */
START_LOOP_TEST(a_server_that_was_restarted_is_told_by_everybody, 0, 4)
{
	bool worker_before = _i & 1, client_before = _i & 2;

	rig_start(&rig);
	ck_assert_int_eq(store_status(0, 1), 0);
	if (client_before)
		client_resets(2);
	if (worker_before)
		ck_assert_int_eq(scout_worker_reset(rig.workers[0], 2), 0);
	if (worker_before)
		ck_assert_int_eq(store_status(0, 1), 0);
	rig_server_end(&rig, SIGKILL);
	if (!client_before)
		ck_assert_int_eq(scout_reset(rig.client, 2), 0);
	if (!worker_before)
		ck_assert_int_eq(scout_worker_reset(rig.workers[0], 2), 0);
	rig_server_start(&rig);
	/* One that was about to be refused says so first. */
	wait_until(scout_client_wait_ready(rig.client, wait_limit_ms(), NULL, 0) == 0)
		;
	(void)rig_store_until(&rig, 0, 1, 3, 1, 0);
	ck_assert_uint_eq(hit_of(1, 3), 3);
	client_resets(3);
	ck_assert_int_eq(store_status(0, 1), SCOUT_ERR_WEIGHTS);
}
END_TEST

/* Jobs and resets as fast as they can be called; only what was submitted after the last one may be good. */
START_TEST(many_resets_in_a_row_let_nothing_old_pass)
{
	enum {
		ROUNDS = 300,
		MAX_JOBS = 64
	};
	uint64_t last[MAX_JOBS] = {0};
	uint32_t n_open = 0, n_last = 0;
	uint64_t version = 1;

	rig.max_jobs = MAX_JOBS;
	rig_start(&rig);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct scout_done done[MAX_JOBS];
		int n;

		if (n_open < MAX_JOBS) {
			uint64_t job = rig_store(&rig, 0, i + 1, 1, 1 + (i % 100) * 4);

			last[n_last++] = job;
			n_open++;
		}
		if (i % 3 == 2) {
			ck_assert_int_eq(scout_worker_reset(rig.workers[0], ++version), 0);
			n_last = 0;
		}
		if (i % 7 == 6)
			ck_assert_int_eq(scout_reset(rig.client, version), 0);
		n = scout_worker_poll(rig.workers[0], done, MAX_JOBS);
		ck_assert_int_ge(n, 0);
		n_open -= (uint32_t)n;
		for (int j = 0; j < n; j++) {
			bool is_last = false;

			for (uint32_t l = 0; l < n_last; l++)
				is_last |= last[l] == done[j].job;
			ck_assert_msg(done[j].status == SCOUT_ERR_WEIGHTS || (is_last && done[j].status == 0), "%s",
				      scout_err_name(done[j].status));
		}
	}
	while (n_open-- > 0)
		(void)rig_wait(rig.workers[0], 0);
	client_resets(version + 1);
	ck_assert_int_eq(scout_worker_reset(rig.workers[0], version + 1), 0);
	for (uint32_t i = 0; i < ROUNDS; i += 10)
		ck_assert_uint_eq(hit_of(i + 1, 1), 0);
	ck_assert_int_eq(store_status(0, 5000), 0);
	ck_assert_uint_eq(hit_of(5000, 3), 3);
}
END_TEST
