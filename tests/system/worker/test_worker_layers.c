/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_rig.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "check_main.h"
#include "worker_internal.h"

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

/* ---- waiting for a layer ---- */

static struct scout__work *
work_of(uint64_t job)
{
	struct scout__transfer *found = scout__worker_find_job(rig.workers[0], job);

	ck_assert_ptr_nonnull(found);
	return found->work;
}

/* Lets the next layer pass when the test's thread sleeps, or is about to. */
static void *
open_for_sleeper(void *arg)
{
	struct scout__work *work = arg;

	while (atomic_load(&work->progress.waiters) == 0)
		(void)sched_yield();
	let_pass(CHUNKS);
	return NULL;
}

static uint64_t
cpu_us(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
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
	retrieve = layered_retrieve(hit.ticket, ids);
	close_gate();
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
		ck_assert_int_eq(scout_worker_wait_layer(rig.workers[0], job, l, RIG_DEADLINE_MS), 0);
		ck_assert_int_eq(pthread_join(helper, NULL), 0);
		assert_layers(ids, 1, l);
	}
	/* Those that are there already. */
	ck_assert_int_eq(scout_worker_wait_layer(rig.workers[0], job, 2, 0), 0);
	ck_assert_int_eq(scout_worker_wait_layer(rig.workers[0], job, 4, 0), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_wait_layer(NULL, job, 1, 0), SCOUT_ERR_INVALID);
	ck_assert_int_eq(rig_wait(rig.workers[0], job).status, 0);
	ck_assert_int_eq(scout_worker_wait_layer(rig.workers[0], job, 1, RIG_DEADLINE_MS), SCOUT_ERR_STATE);
	free(ids);
}
END_TEST

/* Neither an end nor an error leaves it asleep: nothing of these jobs is ever copied. */
START_TEST(the_end_of_a_job_ends_the_waiting_for_its_layers)
{
	int64_t ids[4] = {1, 2, 3, 4}, nulls[4] = {-1, 0, -5, -1};
	uint64_t job;

	job = rig_retrieve(&rig, 0, 4711, 0, ids, 4, 0);
	ck_assert_int_eq(scout_worker_wait_layer(rig.workers[0], job, 1, RIG_DEADLINE_MS), SCOUT_ERR_NO_SESSION);
	ck_assert_int_eq(rig_wait(rig.workers[0], job).status, SCOUT_ERR_NO_SESSION);
	job = rig_retrieve(&rig, 0, 4711, 0, nulls, 4, 0);
	ck_assert_int_eq(scout_worker_wait_layer(rig.workers[0], job, 1, RIG_DEADLINE_MS), 0);
	ck_assert_int_eq(rig_wait(rig.workers[0], job).status, 0);
}
END_TEST

/* ---- announced layers ---- */

static struct scout_store
announced_store(const uint8_t *hashes, const int64_t *ids)
{
	return (struct scout_store){
		.hashes = hashes,
		.hash_len = RIG_HASH,
		.n = CHUNKS,
		.block_ids = ids,
		.n_blocks = BLOCKS,
		.size = sizeof(struct scout_store),
		.n_layers = 3,
		.layer_planes = layers,
		.announced = 1,
	};
}

/* What layer @l computes, or what is there before and after. */
static void
write_layer(const int64_t *ids, uint32_t l, uint32_t prompt)
{
	for (uint64_t b = 0; b < BLOCKS; b++)
		for (uint32_t p = layer_begin[l]; p < layer_begin[l + 1]; p++)
			for (uint64_t o = 0; o < rig.pages[0].planes[p].block_bytes; o++)
				rig_page(&rig.pages[0], p, ids[b])[o] =
					prompt ? rig_byte(prompt, 0, b, p, o) : RIG_CANARY;
}

START_TEST(a_layer_is_read_when_it_is_announced_and_retrieves_overtake)
{
	int64_t *ids = rig_ids(1, 1, BLOCKS), *back = rig_ids(40, 1, BLOCKS);
	uint8_t *hashes = rig_hashes(9, CHUNKS);
	struct scout_store store = announced_store(hashes, ids);
	struct scout_progress progress;
	struct scout_done done;
	struct scout_hit hit;
	uint64_t job = 0;
	char id[32];

	rig_store_all(&rig, 1, CHUNKS, 20);
	hit = rig_lookup(&rig, 1, CHUNKS, id);
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), 0);
	for (uint32_t l = 0; l < 3; l++) {
		/* The forward pass needs a retrieve that was submitted behind the store. */
		done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 0, back, BLOCKS, 0));
		ck_assert_int_eq(done.status, 0);
		ck_assert_int_eq(progress_of(job, &progress), 0);
		ck_assert_uint_eq(progress.copied, l);
		ck_assert_uint_eq(progress.layers, 3);
		write_layer(ids, l, 9);
		ck_assert_int_eq(scout_worker_layer_ready(rig.workers[0], job, l + 1), 0);
		ck_assert_int_eq(scout_worker_layer_ready(rig.workers[0], job, l), 0);
		ck_assert_int_eq(scout_worker_wait_layer(rig.workers[0], job, l + 1, RIG_DEADLINE_MS), 0);
		write_layer(ids, l, 0); /* read by now, and not once more */
	}
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.chunks, CHUNKS);
	ck_assert_uint_eq(done.bytes, BLOCKS * (61 + 128 + 1 + 300 + 64));
	hit = rig_lookup(&rig, 9, CHUNKS, id);
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 0, back, BLOCKS, 0));
	ck_assert_int_eq(done.status, 0);
	assert_layers(back, 9, 3);
	/* What is there already needs no layers. */
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), 0);
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.present, CHUNKS);
	free(hashes);
	free(back);
	free(ids);
}
END_TEST

/* After _i layers. By cancel, by fence, by the end of the worker. */
START_TEST(a_store_that_waits_for_a_layer_can_be_ended)
{
	int64_t *ids = rig_ids(1, 1, BLOCKS);
	uint8_t *hashes = rig_hashes(9, CHUNKS);
	struct scout_store store = announced_store(hashes, ids);
	uint32_t n = (uint32_t)_i / 4, way = (uint32_t)_i % 4;
	struct scout_done done;
	uint64_t job = 0;
	char id[32];

	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), 0);
	ck_assert_int_eq(scout_worker_layer_ready(rig.workers[0], job, n), 0);
	ck_assert_int_eq(scout_worker_wait_layer(rig.workers[0], job, n, RIG_DEADLINE_MS), 0);
	if (way == 0) {
		ck_assert_int_eq(scout_worker_cancel(rig.workers[0], job), 0);
	} else if (way == 1) {
		ck_assert_int_eq(scout_worker_fence(rig.workers[0], ids, BLOCKS, NULL), 0);
	} else if (way == 2) {
		rig_server_end(&rig, SIGKILL);
	} else {
		scout_worker_free(rig.workers[0]);
		rig.workers[0] = NULL;
	}
	if (rig.workers[0]) {
		done = rig_wait(rig.workers[0], job);
		ck_assert_int_eq(done.status, way == 2 ? SCOUT_ERR_UNREACHABLE : SCOUT_ERR_CANCELED);
		ck_assert_uint_eq(done.chunks, 0);
		ck_assert_int_eq(scout_worker_layer_ready(rig.workers[0], job, 3), SCOUT_ERR_STATE);
	}
	if (way != 2)
		ck_assert_uint_eq(rig_lookup(&rig, 9, CHUNKS, id).chunks, 0);
	free(hashes);
	free(ids);
}
END_TEST

/* Item _i + 1 of the nine fails, each layer in a batch of its own: only whole chunks are committed. */
START_TEST(an_announced_layer_that_fails_commits_whole_chunks_only)
{
	struct scout__copy_faults faults = {.fail_item = (uint64_t)_i + 1};
	int64_t *ids = rig_ids(1, 1, BLOCKS);
	uint8_t *hashes = rig_hashes(9, CHUNKS);
	struct scout_store store = announced_store(hashes, ids);
	struct scout_done done;
	uint64_t job = 0;
	char id[32];
	int rc = 0;

	scout__copy_host_faults(&faults);
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), 0);
	for (uint32_t l = 1; l <= 3 && rc == 0; l++) {
		ck_assert_int_eq(scout_worker_layer_ready(rig.workers[0], job, l), 0);
		rc = scout_worker_wait_layer(rig.workers[0], job, l, RIG_DEADLINE_MS);
	}
	ck_assert_int_eq(rc, SCOUT_ERR_DEVICE);
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, SCOUT_ERR_DEVICE);
	ck_assert_uint_eq(done.chunks, _i < 6 ? 0 : _i - 6);
	ck_assert_uint_eq(rig_lookup(&rig, 9, CHUNKS, id).chunks, _i < 6 ? 0 : _i - 6);
	free(hashes);
	free(ids);
}
END_TEST

START_TEST(announcing_what_cannot_be_announced_is_refused)
{
	int64_t *ids = rig_ids(1, 1, BLOCKS);
	uint8_t *hashes = rig_hashes(9, CHUNKS);
	struct scout_store store = announced_store(hashes, ids);
	uint64_t job = 0, plain;

	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), 0);
	ck_assert_int_eq(scout_worker_layer_ready(rig.workers[0], job, 4), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_layer_ready(NULL, job, 1), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_layer_ready(rig.workers[0], 77, 1), SCOUT_ERR_STATE);
	plain = rig_store(&rig, 0, 3, 1, 40);
	ck_assert_int_eq(scout_worker_layer_ready(rig.workers[0], plain, 1), SCOUT_ERR_INVALID);
	ck_assert_int_eq(rig_wait(rig.workers[0], plain).status, 0);
	ck_assert_int_eq(scout_worker_layer_ready(rig.workers[0], job, 3), 0);
	ck_assert_int_eq(rig_wait(rig.workers[0], job).status, 0);
	store.announced = 2;
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), SCOUT_ERR_INVALID);
	store.announced = 1;
	store.n_layers = 0;
	store.layer_planes = NULL;
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), SCOUT_ERR_INVALID);
	free(hashes);
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
	tcase_add_test(tc, waiting_for_a_layer_sleeps_until_it_is_copied);
	tcase_add_test(tc, the_end_of_a_job_ends_the_waiting_for_its_layers);
	tcase_add_test(tc, a_layer_is_read_when_it_is_announced_and_retrieves_overtake);
	tcase_add_loop_test(tc, a_store_that_waits_for_a_layer_can_be_ended, 0, 12);
	tcase_add_loop_test(tc, an_announced_layer_that_fails_commits_whole_chunks_only, 0, 9);
	tcase_add_test(tc, announcing_what_cannot_be_announced_is_refused);
	suite_add_tcase(s, tc);
	return s;
}
