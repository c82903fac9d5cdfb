/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_rig.h"

#include <sched.h>
#include <stdatomic.h>

#include "check_main.h"
#include "worker_priv.h"

/*
 * Jobs that are copied layer by layer, on the host backend. The gate lets a number of items pass (an item is one chunk of
 * one layer) and is shut then, so a test can look at the pages while a job stands between two layers.
 */

#define PLANES 5u
#define CHUNKS 3u
#define BLOCKS (CHUNKS * 4u)

/* Three layers of the five planes. */
static const uint32_t layers[3] = {2, 1, 2};
static const uint32_t layer_begin[4] = {0, 2, 3, 5};

static struct rig rig;
static atomic_int passes; /* items that may still pass; negative: all */

static bool
gate(void *user)
{
	int left = atomic_load(&passes);

	(void)user;
	if (left < 0)
		return false;
	while (left > 0)
		if (atomic_compare_exchange_weak(&passes, &left, left - 1))
			return false;
	return true;
}

static void
let_pass(int n)
{
	atomic_fetch_add(&passes, n);
}

static void
setup(void)
{
	static const uint64_t bytes[PLANES] = {61, 128, 1, 300, 64}, padding[PLANES] = {3, 0, 7, 0, 64};

	rig_init(&rig);
	rig_pages_init(&rig.pages[0], PLANES, bytes, padding, 64);
	rig_start(&rig);
}

static void
teardown(void)
{
	atomic_store(&passes, -1);
	rig_stop(&rig);
	scout__copy_host_faults(NULL);
}

static void
close_gate(void)
{
	struct scout__copy_faults faults = {.gate = gate};

	atomic_store(&passes, 0);
	scout__copy_host_faults(&faults);
}

static int
progress_of(uint64_t job, struct scout_progress *ret)
{
	*ret = (struct scout_progress){.size = sizeof(*ret)};
	return scout_worker_progress(rig.workers[0], job, ret);
}

static void
wait_copied(uint64_t job, uint32_t n)
{
	uint64_t end_us = scout__now_us() + RIG_DEADLINE_MS * UINT64_C(1000);
	struct scout_progress progress;

	do {
		ck_assert_int_eq(progress_of(job, &progress), 0);
		ck_assert_uint_lt(scout__now_us(), end_us);
		(void)sched_yield();
	} while (progress.copied < n);
	ck_assert_uint_eq(progress.copied, n);
	ck_assert_uint_ge(progress.enqueued, n);
	ck_assert_uint_eq(progress.layers, 3);
}

/* What plane @p of page @id holds: the block of the prompt, or nothing yet. */
static bool
plane_is(int64_t id, uint32_t p, uint32_t prompt, uint64_t block)
{
	for (uint64_t o = 0; o < rig.pages[0].planes[p].block_bytes; o++)
		if (rig_page(&rig.pages[0], p, id)[o] != rig_byte(prompt, 0, block, p, o))
			return false;
	return true;
}

static bool
plane_untouched(int64_t id, uint32_t p)
{
	for (uint64_t o = 0; o < rig.pages[0].planes[p].block_bytes; o++)
		if (rig_page(&rig.pages[0], p, id)[o] != RIG_CANARY)
			return false;
	return true;
}

/* The layers below @n are there in all pages, of the others nothing is. */
static void
assert_layers(const int64_t *ids, uint32_t prompt, uint32_t n)
{
	for (uint64_t b = 0; b < BLOCKS; b++)
		for (uint32_t p = 0; p < PLANES; p++) {
			if (p < layer_begin[n])
				ck_assert_msg(plane_is(ids[b], p, prompt, b), "block %u plane %u", (unsigned)b, p);
			else
				ck_assert_msg(plane_untouched(ids[b], p), "block %u plane %u", (unsigned)b, p);
		}
}

static struct scout_retrieve
layered_retrieve(uint64_t ticket, const int64_t *ids)
{
	return (struct scout_retrieve){
		.ticket = ticket,
		.to_token = BLOCKS * 16,
		.block_ids = ids,
		.n_blocks = BLOCKS,
		.size = sizeof(struct scout_retrieve),
		.n_layers = 3,
		.layer_planes = layers,
	};
}

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
	retrieve = layered_retrieve(hit.ticket, ids);
	close_gate();
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &retrieve, &job), 0);
	ck_assert_int_eq(progress_of(job, &progress), 0);
	ck_assert_uint_eq(progress.copied, 0);
	for (uint32_t l = 1; l <= 2; l++) {
		let_pass(CHUNKS);
		wait_copied(job, l);
		assert_layers(ids, 1, l);
		ck_assert(!rig_is_readable(rig.workers[0]));
	}
	/* A part of a layer is no layer. */
	let_pass(CHUNKS - 1);
	while (atomic_load(&passes) > 0)
		(void)sched_yield();
	ck_assert_int_eq(progress_of(job, &progress), 0);
	ck_assert_uint_eq(progress.copied, 2);
	let_pass(1);
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
		.block_ids = ids,
		.n_blocks = BLOCKS,
		.size = sizeof(store),
		.n_layers = 3,
		.layer_planes = layers,
	};
	struct scout_done done;
	struct scout_hit hit;
	uint64_t job = 0;
	char id[32];

	close_gate();
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), 0);
	/* Each layer's pages are written only when the one before it was copied: it must not have been read before. */
	for (uint32_t l = 0; l < 3; l++) {
		for (uint64_t b = 0; b < BLOCKS; b++)
			for (uint32_t p = layer_begin[l]; p < layer_begin[l + 1]; p++)
				for (uint64_t o = 0; o < rig.pages[0].planes[p].block_bytes; o++)
					rig_page(&rig.pages[0], p, ids[b])[o] = rig_byte(9, 0, b, p, o);
		let_pass(CHUNKS);
		if (l < 2)
			wait_copied(job, l + 1);
	}
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.chunks, CHUNKS);
	atomic_store(&passes, -1);
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
START_TEST(a_copy_that_fails_in_a_layer_names_what_is_not_whole)
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
	retrieve = layered_retrieve(hit.ticket, ids);
	scout__copy_host_faults(&faults);
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &retrieve, &job), 0);
	while (!rig_is_readable(rig.workers[0]))
		(void)sched_yield();
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
	close_gate();
	job = rig_retrieve(&rig, 0, hit.ticket, 0, ids, BLOCKS, 0);
	ck_assert_int_eq(progress_of(job, &progress), 0);
	ck_assert_uint_eq(progress.layers, 1);
	ck_assert_uint_eq(progress.copied, 0);
	atomic_store(&passes, -1);
	while (!rig_is_readable(rig.workers[0]))
		(void)sched_yield();
	ck_assert_int_eq(progress_of(job, &progress), 0);
	ck_assert_uint_eq(progress.copied, 1);
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	/* Nothing to copy is soon copied. */
	job = rig_retrieve(&rig, 0, hit.ticket, 0, nulls, 4, 0);
	while (!rig_is_readable(rig.workers[0]))
		(void)sched_yield();
	ck_assert_int_eq(progress_of(job, &progress), 0);
	ck_assert_uint_eq(progress.copied, 1);
	ck_assert_int_eq(rig_wait(rig.workers[0], job).status, 0);
	ck_assert_int_eq(progress_of(0, &progress), SCOUT_ERR_STATE);
	ck_assert_int_eq(progress_of(12345, &progress), SCOUT_ERR_STATE);
	progress.size = 8;
	ck_assert_int_eq(scout_worker_progress(rig.workers[0], job, &progress), SCOUT_ERR_INVALID);
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
	struct scout_retrieve good = layered_retrieve(77, ids), r;
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
			r.size = sizeof(r) - 8;
			break;
		case 8:
			r.size = sizeof(r) + 8;
			break;
		case 9:
			r.layer_events = events;
			want = SCOUT_ERR_UNSUPPORTED;
			break;
		case 10:
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

/* Who was compiled with the first structure: what lies behind it is not looked at. */
START_TEST(what_an_older_caller_does_not_have_is_not_read)
{
	int64_t *ids = rig_ids(40, 1, BLOCKS);
	struct scout_retrieve r;
	struct scout_hit hit;
	uint64_t job = 0;
	char id[32];

	rig_store_all(&rig, 1, CHUNKS, 1);
	hit = rig_lookup(&rig, 1, CHUNKS, id);
	r = layered_retrieve(hit.ticket, ids);
	r.n_layers = 0xdeadbeef;
	r.after = &rig;
	for (int i = 0; i < 2; i++) {
		r.size = i ? offsetof(struct scout_retrieve, layer_planes) : 0;
		ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &r, &job), 0);
		ck_assert_int_eq(rig_wait(rig.workers[0], job).status, 0);
	}
	assert_layers(ids, 1, 3);
	free(ids);
}
END_TEST

Suite *
suite_of_this_file(void)
{
	Suite *s = suite_create("worker_layers");
	TCase *tc = tcase_create("worker_layers");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_layer_is_there_and_polled_before_the_next_is_copied);
	tcase_add_test(tc, a_store_reads_layer_after_layer);
	tcase_add_loop_test(tc, a_copy_that_fails_in_a_layer_names_what_is_not_whole, 0, 9);
	tcase_add_test(tc, a_job_without_layers_has_one);
	tcase_add_test(tc, wrong_layers_are_refused);
	tcase_add_test(tc, what_an_older_caller_does_not_have_is_not_read);
	suite_add_tcase(s, tc);
	return s;
}
