/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_rig.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "check_main.h"
#include "host_gate.h"
#include "worker_internal.h"
#include "layers_rig.h"
#include "own_use.h"

/*
 * Jobs that are copied layer by layer, on the host backend. The gate lets a number of items pass and
 * is shut then, so a test can look at the pages while a job stands between two layers.
 */

static void
wait_copied(uint64_t job, uint32_t n)
{
	struct scout_progress progress = {0};

	wait_until(progress.copied >= n)
		ck_assert_int_eq(progress_of(job, &progress), 0);
	ck_assert_uint_eq(progress.copied, n);
	ck_assert_uint_ge(progress.enqueued, n);
	ck_assert_uint_eq(progress.layers, 3);
}

static struct scout_retrieve
layered_retrieve(uint64_t ticket, const struct scout_blocks *blocks)
{
	return (struct scout_retrieve){
		.ticket = ticket,
		.to_token = BLOCKS * 16,
		.blocks = blocks,
		.n_groups = 1,
		.n_layers = 3,
		.layer_planes = layers,
	};
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(a_layer_is_there_and_polled_before_the_next_is_copied)
{
	int64_t *ids = rig_ids(60, -2, BLOCKS);
	struct scout_retrieve retrieve;
	struct scout_progress progress;
	struct scout_done done;
	struct scout_hit hit;
	uint64_t job = 0;
	char id[32];

	rig_store_all(&rig, 1, CHUNKS, 1);
	rig_pages_wipe(&rig.pages[0]);
	hit = rig_lookup(&rig, 1, CHUNKS, id);
	retrieve = layered_retrieve(hit.ticket, &(struct scout_blocks){.ids = ids, .n = BLOCKS});
	host_gate_shut();
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &retrieve, &job), 0);
	ck_assert_int_eq(progress_of(job, &progress), 0);
	ck_assert_uint_eq(progress.copied, 0);
	for (uint32_t l = 1; l <= 2; l++) {
		host_gate_pass(CHUNKS);
		wait_copied(job, l);
		assert_layers(ids, 1, l);
		ck_assert(!rig_is_readable(rig.workers[0]));
	}
	/* A part of a layer is no layer. */
	host_gate_pass(CHUNKS - 1);
	wait_until(host_gate_passes() <= 0)
		;
	ck_assert_int_eq(progress_of(job, &progress), 0);
	ck_assert_uint_eq(progress.copied, 2);
	host_gate_pass(1);
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.chunks, CHUNKS);
	ck_assert_uint_eq(done.bytes, BLOCKS * (61 + 128 + 1 + 300 + 64));
	assert_layers(ids, 1, 3);
	ck_assert_int_eq(progress_of(job, &progress), SCOUT_ERR_STATE);
	free(ids);
}
END_TEST

START_TEST(a_store_reads_layer_after_layer)
{
	int64_t *ids = rig_ids(1, 1, BLOCKS), *back = rig_ids(40, 1, BLOCKS);
	uint8_t *hashes = rig_hashes(9, CHUNKS);
	struct scout_store store = {
		.hashes = hashes,
		.hash_len = RIG_HASH,
		.n = CHUNKS,
		.blocks = &(struct scout_blocks){.ids = ids, .n = BLOCKS},
		.n_groups = 1,
		.n_layers = 3,
		.layer_planes = layers,
	};
	struct scout_done done;
	struct scout_hit hit;
	uint64_t job = 0;
	char id[32];

	host_gate_shut();
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), 0);
	/* Each layer's pages are written only when the one before it was copied: it must not have been read before. */
	for (uint32_t l = 0; l < 3; l++) {
		for (uint64_t b = 0; b < BLOCKS; b++)
			for (uint32_t p = layer_begin[l]; p < layer_begin[l + 1]; p++)
				for (uint64_t o = 0; o < rig.pages[0].planes[p].block_bytes; o++)
					rig_page(&rig.pages[0], p, ids[b])[o] = rig_byte(9, 0, b, p, o);
		host_gate_pass(CHUNKS);
		if (l < 2)
			wait_copied(job, l + 1);
	}
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.chunks, CHUNKS);
	host_gate_open();
	hit = rig_lookup(&rig, 9, CHUNKS, id);
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 0, back, BLOCKS, 0));
	ck_assert_int_eq(done.status, 0);
	assert_layers(back, 9, 3);
	free(hashes);
	free(back);
	free(ids);
}
END_TEST

/* Item _i + 1 of the nine fails: only chunks with all their layers are filled. */
START_LOOP_TEST(a_copy_that_fails_in_a_layer_names_what_is_not_whole, 0, 9)
{
	struct scout__copy_faults faults = {.fail_item = (uint64_t)_i + 1};
	int64_t *ids = rig_ids(60, -2, BLOCKS);
	uint32_t filled = _i < 6 ? 0 : (uint32_t)_i - 6;
	struct scout_retrieve retrieve;
	struct scout_progress progress;
	struct scout_done done;
	struct scout_hit hit;
	uint64_t job = 0;
	char id[32];

	rig_store_all(&rig, 1, CHUNKS, 1);
	hit = rig_lookup(&rig, 1, CHUNKS, id);
	retrieve = layered_retrieve(hit.ticket, &(struct scout_blocks){.ids = ids, .n = BLOCKS});
	scout__copy_host_faults(&faults);
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &retrieve, &job), 0);
	wait_until(rig_is_readable(rig.workers[0]))
		;
	ck_assert_int_eq(progress_of(job, &progress), SCOUT_ERR_DEVICE);
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, SCOUT_ERR_DEVICE);
	ck_assert_uint_eq(done.chunks, filled);
	ck_assert_uint_eq(done.n_missing, BLOCKS - 4 * filled);
	for (uint32_t i = 0; i < done.n_missing; i++)
		ck_assert_uint_eq(done.missing[i], 4 * filled + i);
	for (uint64_t b = 0; b < 4 * filled; b++)
		ck_assert(rig_page_is(&rig.pages[0], ids[b], 1, 0, b));
	free(ids);
}
END_TEST

START_TEST(a_job_without_layers_has_one)
{
	int64_t *ids = rig_ids(40, 1, BLOCKS);
	int64_t nulls[4] = {-1, 0, -5, -1};
	struct scout_progress progress;
	struct scout_done done;
	struct scout_hit hit;
	uint64_t job;
	char id[32];

	rig_store_all(&rig, 1, CHUNKS, 1);
	hit = rig_lookup(&rig, 1, CHUNKS, id);
	host_gate_shut();
	job = rig_retrieve(&rig, 0, hit.ticket, 0, ids, BLOCKS, 0);
	ck_assert_int_eq(progress_of(job, &progress), 0);
	ck_assert_uint_eq(progress.layers, 1);
	ck_assert_uint_eq(progress.copied, 0);
	host_gate_open();
	wait_until(rig_is_readable(rig.workers[0]))
		;
	ck_assert_int_eq(progress_of(job, &progress), 0);
	ck_assert_uint_eq(progress.copied, 1);
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	/* Nothing to copy is soon copied. */
	job = rig_retrieve(&rig, 0, hit.ticket, 0, nulls, 4, 0);
	wait_until(rig_is_readable(rig.workers[0]))
		;
	ck_assert_int_eq(progress_of(job, &progress), 0);
	ck_assert_uint_eq(progress.copied, 1);
	ck_assert_int_eq(rig_wait(rig.workers[0], job).status, 0);
	ck_assert_int_eq(progress_of(0, &progress), SCOUT_ERR_STATE);
	ck_assert_int_eq(progress_of(12345, &progress), SCOUT_ERR_STATE);
	ck_assert_int_eq(scout_worker_progress_sized(rig.workers[0], job, &progress, 8), SCOUT_ERR_UNSUPPORTED);
	ck_assert_int_eq(scout_worker_progress(rig.workers[0], job, NULL), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_progress(NULL, job, &progress), SCOUT_ERR_INVALID);
	free(ids);
}
END_TEST

START_TEST(wrong_layers_are_refused)
{
	static const uint32_t short_of_one[3] = {2, 1, 1}, one_too_many[3] = {2, 2, 2}, with_an_empty[3] = {5, 0, 0};
	static const uint32_t huge[2] = {UINT32_MAX, 6};
	int64_t *ids = rig_ids(1, 1, BLOCKS);
	void *events[3] = {&rig, &rig, &rig};
	struct scout_retrieve good = layered_retrieve(77, &(struct scout_blocks){.ids = ids, .n = BLOCKS}), r;
	uint64_t job = 4711;

	for (int i = 0; i < 12; i++) {
		int want = SCOUT_ERR_INVALID;

		r = good;
		switch (i) {
		case 0:
			r.layer_planes = short_of_one;
			break;
		case 1:
			r.layer_planes = one_too_many;
			break;
		case 2:
			r.layer_planes = with_an_empty;
			break;
		case 3:
			r.layer_planes = NULL;
			break;
		case 4:
			r.n_layers = 0;
			break;
		case 5:
			r.n_layers = 2;
			r.layer_planes = huge;
			break;
		case 6:
			r.n_layers = UINT32_MAX;
			break;
		case 7:
			r.layer_events = events;
			want = SCOUT_ERR_UNSUPPORTED;
			break;
		case 8:
			r.after = &rig;
			want = SCOUT_ERR_UNSUPPORTED;
			break;
		default:
			r.event = &rig;
			want = SCOUT_ERR_UNSUPPORTED;
			break;
		}
		ck_assert_msg(scout_worker_retrieve(rig.workers[0], &r, &job) == want, "case %d", i);
		ck_assert_uint_eq(job, 4711);
	}
	free(ids);
}
END_TEST

/* A caller that was compiled with a larger structure: what this version does not know must be 0. */
START_TEST(what_a_newer_caller_has_beyond_is_refused_unless_it_is_0)
{
	struct {
		struct scout_retrieve r;
		uint64_t beyond;
	} big = {.beyond = 1};
	int64_t *ids = rig_ids(40, 1, BLOCKS);
	struct scout_hit hit;
	uint64_t job = 0;
	char id[32];

	rig_store_all(&rig, 1, CHUNKS, 1);
	hit = rig_lookup(&rig, 1, CHUNKS, id);
	big.r = layered_retrieve(hit.ticket, &(struct scout_blocks){.ids = ids, .n = BLOCKS});
	ck_assert_int_eq(
		scout_worker_retrieve_sized(rig.workers[0], &big.r, sizeof(big), sizeof(struct scout_blocks), &job),
		SCOUT_ERR_UNSUPPORTED);
	ck_assert_int_eq(scout_worker_retrieve_sized(rig.workers[0], &big.r, sizeof(big.r) - 8,
						     sizeof(struct scout_blocks), &job),
			 SCOUT_ERR_UNSUPPORTED);
	big.beyond = 0;
	ck_assert_int_eq(
		scout_worker_retrieve_sized(rig.workers[0], &big.r, sizeof(big), sizeof(struct scout_blocks), &job), 0);
	ck_assert_int_eq(rig_wait(rig.workers[0], job).status, 0);
	assert_layers(ids, 1, 3);
	free(ids);
}
END_TEST

/* ---- waiting for a layer ---- */

static struct scout__job_data *
work_of(uint64_t job)
{
	struct scout__job *found = scout__worker_find_job(rig.workers[0], job);

	ck_assert_ptr_nonnull(found);
	return found->data;
}

/* Lets the next layer pass when the test's thread sleeps, or is about to. */
static void *
open_for_sleeper(void *arg)
{
	struct scout__job_data *data = arg;

	while (atomic_load(&data->progress.waiters) == 0)
		(void)sched_yield();
	host_gate_pass(CHUNKS);
	return NULL;
}

START_TEST(waiting_for_a_layer_sleeps_until_it_is_copied)
{
	int64_t *ids = rig_ids(60, -2, BLOCKS);
	uint64_t job = 0, begin_us, cpu_begin_us;
	struct scout_retrieve retrieve;
	struct scout_hit hit;
	char id[32];

	rig_store_all(&rig, 1, CHUNKS, 1);
	rig_pages_wipe(&rig.pages[0]);
	hit = rig_lookup(&rig, 1, CHUNKS, id);
	retrieve = layered_retrieve(hit.ticket, &(struct scout_blocks){.ids = ids, .n = BLOCKS});
	host_gate_shut();
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &retrieve, &job), 0);
	ck_assert_int_eq(scout_worker_wait_layer(rig.workers[0], job, 0, 0), 0);
	ck_assert_int_eq(scout_worker_wait_layer(rig.workers[0], job, 1, 0), SCOUT_ERR_TIMEOUT);
	begin_us = scout__now_us();
	cpu_begin_us = cpu_us();
	ck_assert_int_eq(scout_worker_wait_layer(rig.workers[0], job, 1, 300), SCOUT_ERR_TIMEOUT);
	ck_assert_uint_ge(scout__now_us() - begin_us, 300000);
	ck_assert_uint_lt(cpu_us() - cpu_begin_us, 100000);
	for (uint32_t l = 1; l <= 3; l++) {
		pthread_t helper;

		ck_assert_int_eq(pthread_create(&helper, NULL, open_for_sleeper, work_of(job)), 0);
		ck_assert_int_eq(scout_worker_wait_layer(rig.workers[0], job, l, wait_limit_ms()), 0);
		ck_assert_int_eq(pthread_join(helper, NULL), 0);
		assert_layers(ids, 1, l);
	}
	/* Those that are there already. */
	ck_assert_int_eq(scout_worker_wait_layer(rig.workers[0], job, 2, 0), 0);
	ck_assert_int_eq(scout_worker_wait_layer(rig.workers[0], job, 4, 0), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_wait_layer(NULL, job, 1, 0), SCOUT_ERR_INVALID);
	ck_assert_int_eq(rig_wait(rig.workers[0], job).status, 0);
	ck_assert_int_eq(scout_worker_wait_layer(rig.workers[0], job, 1, wait_limit_ms()), SCOUT_ERR_STATE);
	free(ids);
}
END_TEST

/* Neither an end nor an error leaves it asleep: nothing of these jobs is ever copied. */
START_TEST(the_end_of_a_job_ends_the_waiting_for_its_layers)
{
	int64_t ids[4] = {1, 2, 3, 4}, nulls[4] = {-1, 0, -5, -1};
	uint64_t job;

	job = rig_retrieve(&rig, 0, 4711, 0, ids, 4, 0);
	ck_assert_int_eq(scout_worker_wait_layer(rig.workers[0], job, 1, wait_limit_ms()), SCOUT_ERR_NO_SESSION);
	ck_assert_int_eq(rig_wait(rig.workers[0], job).status, SCOUT_ERR_NO_SESSION);
	job = rig_retrieve(&rig, 0, 4711, 0, nulls, 4, 0);
	ck_assert_int_eq(scout_worker_wait_layer(rig.workers[0], job, 1, wait_limit_ms()), 0);
	ck_assert_int_eq(rig_wait(rig.workers[0], job).status, 0);
}
END_TEST

/* ---- announced layers ---- */
