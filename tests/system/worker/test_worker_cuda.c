/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_rig.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "check_main.h"
#include "copy_backends.h"
#include "fake_cuda.h"
#include "wire_peer.h"
#include "worker_internal.h"

/*
 * The worker on the CUDA backend, which runs on the stand-in for the CUDA driver (fake_cuda.h says what that shows and what not), and how it
 * chooses between the backends on a machine with and without a device.
 */

#define CHUNKS 5u
#define BLOCKS (CHUNKS * 4u)

static struct rig rig;
static atomic_int passes; /* operations of the fake GPU that may still pass; negative: all */
static char said[4096];
static unsigned n_said;
static uint64_t large_block; /* bytes of a block in the third plane */

/* The last slot of a job that the worker looks at: there it waits until the GPU was asked for a copy. */
enum fault {
	SOUND,
	CHANGED, /* since it was granted */
	NO_SLOT,
	CANCELED,
	BREAKS, /* the device, which has copied what it was asked for */
	N_FAULTS
};
static struct {
	atomic_uint looks_left; /* 0: no job is looked at so */
	enum fault fault;
	uint64_t copies; /* before the job */
	atomic_bool is_reached, may_go;
} last_slot;

static uint64_t
count_copies(void)
{
	return fake_cuda_counts().copies + fake_cuda_counts().launches;
}

bool __real_scout__mapping_slot(const struct scout__mapping *mapping, uint64_t offset, uint64_t shard_bytes,
				uint8_t **ret_slot, const _Atomic uint64_t **ret_word);
bool __wrap_scout__mapping_slot(const struct scout__mapping *mapping, uint64_t offset, uint64_t shard_bytes,
				uint8_t **ret_slot, const _Atomic uint64_t **ret_word);

bool
__wrap_scout__mapping_slot(const struct scout__mapping *mapping, uint64_t offset, uint64_t shard_bytes,
			   uint8_t **ret_slot, const _Atomic uint64_t **ret_word)
{
	static const _Atomic uint64_t other_generation;
	bool is_slot = __real_scout__mapping_slot(mapping, offset, shard_bytes, ret_slot, ret_word);

	if (atomic_load(&last_slot.looks_left) == 0 || atomic_fetch_sub(&last_slot.looks_left, 1) > 1)
		return is_slot;
	wait_until(count_copies() > last_slot.copies && fake_cuda_pending() == 0)
		;
	atomic_store(&last_slot.is_reached, true);
	wait_until(atomic_load(&last_slot.may_go))
		;
	if (last_slot.fault == CHANGED)
		*ret_word = &other_generation;
	return is_slot && last_slot.fault != NO_SLOT;
}

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
keep_log(void *user, int level, const char *text)
{
	(void)user;
	if (level > SCOUT_LOG_INFO || !strstr(text, "CUDA"))
		return;
	n_said++;
	snprintf(said, sizeof(said), "%s", text);
}

static struct fake_cuda_options
options(void)
{
	return (struct fake_cuda_options){.n_devices = 1, .seed = 5, .gate = gate};
}

static void
setup(void)
{
	rig_init(&rig);
	atomic_store(&passes, -1);
	n_said = 0;
	large_block = 20000;
	scout__copy_override(&scout__copy_cuda);
}

static void
teardown(void)
{
	atomic_store(&passes, -1);
	rig_stop(&rig);
	scout__copy_override(NULL);
}

/* A worker on @backend; the pages are announced as GPU memory or not. */
static int
start(const struct fake_cuda_options *opt, const char *backend, const char *method, bool on_gpu, char *err)
{
	const uint64_t bytes[3] = {61, 128, large_block}, padding[3] = {3, 0, 96};
	struct scout_worker_config cfg;
	struct scout_table layout;
	int rc;

	rig_start_server(&rig);
	rig_client_start(&rig);
	rig_pages_init(&rig.pages[0], 3, bytes, padding, 64);
	fake_cuda_start(opt);
	for (uint32_t p = 0; p < 3 && on_gpu; p++)
		fake_cuda_device_range(rig.pages[0].planes[p].base,
				       rig.pages[0].planes[p].stride * rig.pages[0].n_blocks);
	rig_worker_config(&rig, 0, &cfg);
	cfg.backend = backend;
	cfg.copy_method = method;
	cfg.stage_bytes = 512 << 10;
	cfg.log = keep_log;
	rc = scout_worker_new(&cfg, &rig.workers[0], err, 256);
	if (rc)
		return rc;
	rig_table(&rig, &rig.pages[0], &layout);
	return scout_worker_register(rig.workers[0], &layout, 1, wait_limit_ms(), err, 256);
}

/* Nothing is left behind, and nothing was done that CUDA forbids. */
static void
end(void)
{
	struct fake_cuda_counts counts;

	atomic_store(&passes, -1);
	scout_worker_free(rig.workers[0]);
	rig.workers[0] = NULL;
	counts = fake_cuda_stop();
	ck_assert_uint_eq(counts.violations, 0);
}

static struct scout_hit
store_and_look_up(uint32_t prompt)
{
	char id[32];

	rig_store_all(&rig, prompt, CHUNKS, 1);
	return rig_lookup(&rig, prompt, CHUNKS, id);
}

static void
assert_filled(const int64_t *ids, uint32_t prompt, const struct scout_done *done)
{
	uint32_t m = 0;

	for (uint64_t b = 0; b < BLOCKS; b++) {
		if (m < done->n_missing && done->missing[m] == b) {
			m++;
			continue;
		}
		ck_assert(rig_page_is(&rig.pages[0], ids[b], prompt, 0, b));
	}
	ck_assert_uint_eq(m, done->n_missing);
}

CHECKED_FIXTURE(setup, teardown);

START_LOOP_TEST(what_was_stored_from_gpu_pages_comes_back_in_others, 0, 6)
{
	static const char *const methods[] = {"staged", "batch", "auto"};
	struct fake_cuda_options opt = options();
	int64_t *ids = rig_ids(63, -1, BLOCKS);
	struct scout_done done;
	struct scout_hit hit;
	char err[256] = "";
	int rc = start(&opt, _i & 1 ? "auto" : "cuda", methods[_i / 2], true, err);

	ck_assert_msg(rc == 0, "%s: %s", scout_err_name(rc), err);
	hit = store_and_look_up(1);
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 0, ids, BLOCKS, 1));
	ck_assert_int_eq(done.status, 0);
	ck_assert(rig_page_untouched(&rig.pages[0], ids[0]));
	for (uint64_t b = 1; b < BLOCKS; b++)
		ck_assert(rig_page_is(&rig.pages[0], ids[b], 1, 0, b));
	ck_assert(rig_gaps_untouched(&rig.pages[0]));
	ck_assert_uint_gt(fake_cuda_counts().copies + fake_cuda_counts().launches, 1);
	end();
	free(ids);
}
END_TEST

/*
 * More than 32 MiB: the GPU begins while the worker looks at the slots, and what is wrong with the last one ends the job as if it had been
 * found before. _i: the fault, of a load and of a store.
 */
START_LOOP_TEST(a_large_job_begins_before_its_last_slot_is_looked_at, 0, 2 * N_FAULTS)
{
	static const int loads[] = {0, SCOUT_ERR_CORRUPT, SCOUT_ERR_MISSING, SCOUT_ERR_CANCELED, SCOUT_ERR_DEVICE},
			 stores[] = {0, 0, SCOUT_ERR_DEVICE, SCOUT_ERR_CANCELED, SCOUT_ERR_DEVICE};
	enum fault fault = (enum fault)(_i / 2);
	bool is_load = _i % 2 == 0;
	struct fake_cuda_options opt = options();
	int64_t *ids = rig_ids(63, -1, BLOCKS);
	struct scout_done done;
	struct scout_hit hit = {0};
	char err[256] = "", id[32];
	uint64_t job;
	uint32_t n;

	large_block = UINT64_C(2) << 20;
	rig.l1_bytes = rig.extent_bytes = UINT64_C(128) << 20;
	ck_assert_int_eq(start(&opt, "cuda", NULL, true, err), 0);
	/* The pool is full: no memory will come that has to be pinned. */
	for (uint32_t prompt = 5; prompt > 2; prompt--)
		rig_store_all(&rig, prompt, CHUNKS, 1);
	if (is_load)
		hit = rig_lookup(&rig, 3, CHUNKS, id);
	wait_until(scout__cuda_memory_is_pinned(&((struct scout__cuda *)rig.workers[0]->engine)->memory))
		;
	last_slot.fault = fault;
	last_slot.copies = count_copies();
	atomic_store(&last_slot.looks_left, CHUNKS);
	job = is_load ? rig_retrieve(&rig, 0, hit.ticket, 0, ids, BLOCKS, 0) : rig_store(&rig, 0, 2, CHUNKS, 1);
	wait_until(atomic_load(&last_slot.is_reached))
		;
	if (fault == CANCELED)
		ck_assert_int_eq(scout_worker_cancel(rig.workers[0], job), 0);
	if (fault == BREAKS)
		fake_cuda_break_at(1, FAKE_CUDA_ILLEGAL_ADDRESS);
	atomic_store(&last_slot.may_go, true);
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, is_load ? loads[fault] : stores[fault]);
	n = done.status == 0 ? CHUNKS : CHUNKS - 1;
	if (fault != BREAKS || is_load)
		ck_assert_uint_eq(done.chunks, n);
	if (is_load) {
		ck_assert_uint_eq(done.n_missing, BLOCKS - 4 * n);
		assert_filled(ids, 3, &done);
	} else if (fault != BREAKS) {
		hit = rig_lookup(&rig, 2, n, id);
		ck_assert_uint_eq(hit.chunks, n);
		done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 0, ids, (size_t)n * 4, 0));
		ck_assert_int_eq(done.status, 0);
		for (uint64_t b = 0; b < (uint64_t)n * 4; b++)
			ck_assert(rig_page_is(&rig.pages[0], ids[b], 2, 0, b));
	}
	end();
	free(ids);
}
END_TEST

/* One process sees all devices, and the engine allocates on one of them. */
START_LOOP_TEST(the_device_is_that_of_the_pages, 0, 2)
{
	struct fake_cuda_options opt = options();
	int64_t *ids = rig_ids(63, -1, BLOCKS);
	struct scout_done done;
	char err[256] = "";
	int rc;

	opt.n_devices = 4;
	opt.device = 2;
	rc = start(&opt, _i ? "cuda" : "auto", NULL, true, err);
	ck_assert_msg(rc == 0, "%s: %s", scout_err_name(rc), err);
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, store_and_look_up(1).ticket, 0, ids, BLOCKS, 0));
	ck_assert_int_eq(done.status, 0);
	assert_filled(ids, 1, &done);
	ck_assert_ptr_nonnull(strstr(said, "CUDA device 2: method auto"));
	end();
	free(ids);
}
END_TEST

START_TEST(cuda_refuses_pages_in_host_memory)
{
	struct fake_cuda_options opt = options();
	char err[256] = "";

	ck_assert_int_eq(start(&opt, "cuda", NULL, false, err), SCOUT_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(
		err, "planes[0] is not memory of a CUDA device: for pages in host memory take backend host or auto"));
	end();
}
END_TEST

/* _i: no driver; a driver, no device; a device, but pages in host memory. */
START_LOOP_TEST(auto_copies_on_the_host_where_there_is_nothing_else, 0, 3)
{
	struct fake_cuda_options opt = options();
	struct scout_done done;
	struct scout_hit hit;
	int64_t *ids = rig_ids(63, -1, BLOCKS);
	char err[256] = "";

	opt.n_devices = _i == 2;
	opt.driver_version = _i == 0 ? -1 : 0;
	ck_assert_int_eq(start(&opt, "auto", NULL, false, err), 0);
	hit = store_and_look_up(1);
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 0, ids, BLOCKS, 0));
	ck_assert_int_eq(done.status, 0);
	assert_filled(ids, 1, &done);
	ck_assert_uint_eq(fake_cuda_counts().ops, 0);
	ck_assert_uint_eq(n_said, 1);
	ck_assert_ptr_nonnull(strstr(said, "not memory of a CUDA device"));
	/* A look at the pages, and that was all of CUDA. */
	ck_assert_uint_eq(fake_cuda_counts().inits, 0);
	ck_assert_uint_gt(fake_cuda_counts().looks, 0);
	end();
	free(ids);
}
END_TEST

/* A process that makes a worker may fork others that use CUDA, as long as it shows no pages of a GPU. */
START_TEST(auto_calls_nothing_of_cuda_before_it_knows_the_pages)
{
	struct fake_cuda_options opt = options();
	struct scout_worker_config cfg;
	struct scout_worker *worker = NULL;
	struct fake_cuda_counts counts;
	char err[256] = "";

	rig_start_server(&rig);
	fake_cuda_start(&opt);
	rig_worker_config(&rig, 0, &cfg);
	cfg.backend = "auto";
	ck_assert_int_eq(scout_worker_new(&cfg, &worker, err, sizeof(err)), 0);
	scout_worker_free(worker);
	counts = fake_cuda_stop();
	ck_assert_uint_eq(counts.inits, 0);
	ck_assert_uint_eq(counts.looks, 0);
}
END_TEST

START_TEST(cuda_without_a_device_is_an_error)
{
	struct fake_cuda_options opt = {.driver_version = -1};
	char err[256] = "";

	ck_assert_int_eq(start(&opt, "cuda", NULL, false, err), SCOUT_ERR_DEVICE);
	ck_assert_ptr_nonnull(strstr(err, "no CUDA device"));
	ck_assert_ptr_null(rig.workers[0]);
	end();
}
END_TEST

/* The real runtime, on a machine as this one may be. */
START_TEST(a_build_with_cuda_starts_without_a_driver)
{
	const struct scout__copy_ops *cuda;
	struct scout_worker_config cfg;
	struct scout_worker *worker = NULL;
	char err[256] = "", probe[256] = "";

	scout__copy_override(NULL);
	cuda = scout__copy_find("cuda");
	rig_start_server(&rig);
	rig_worker_config(&rig, 0, &cfg);
	cfg.backend = "cuda";
	cfg.log = keep_log;
	if (!cuda) {
		ck_assert_int_eq(scout_worker_new(&cfg, &worker, err, sizeof(err)), SCOUT_ERR_UNSUPPORTED);
	} else if (cuda->probe(0, probe, sizeof(probe)) == SCOUT_ERR_DEVICE) {
		ck_assert_int_eq(scout_worker_new(&cfg, &worker, err, sizeof(err)), SCOUT_ERR_DEVICE);
		ck_assert_str_eq(err, probe);
		cfg.backend = "auto";
		ck_assert_int_eq(scout_worker_new(&cfg, &worker, err, sizeof(err)), 0);
		scout_worker_free(worker);
	}
}
END_TEST

START_LOOP_TEST(a_device_that_breaks_under_a_retrieve_names_what_is_not_filled, 0, 12)
{
	struct fake_cuda_options opt = options();
	int64_t *ids = rig_ids(63, -1, BLOCKS);
	struct scout_done done;
	struct scout_hit hit;
	uint64_t job;
	char err[256] = "";

	ck_assert_int_eq(start(&opt, "cuda", "staged", true, err), 0);
	hit = store_and_look_up(1);
	fake_cuda_break_at((uint64_t)_i * 3 + 1, FAKE_CUDA_ILLEGAL_ADDRESS);
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 0, ids, BLOCKS, 0));
	ck_assert_int_eq(done.status, SCOUT_ERR_DEVICE);
	ck_assert_uint_eq(done.n_missing, BLOCKS - 4 * done.chunks);
	ck_assert_uint_gt(done.n_missing, 0);
	assert_filled(ids, 1, &done);
	ck_assert_ptr_nonnull(strstr(said, "CUDA_ERROR_ILLEGAL_ADDRESS"));
	/* The process lives, and what comes later ends as well. */
	done = rig_wait(rig.workers[0], rig_store(&rig, 0, 7, 2, 1));
	ck_assert_int_eq(done.status, SCOUT_ERR_DEVICE);
	ck_assert_uint_eq(done.chunks, 0);
	job = rig_retrieve(&rig, 0, hit.ticket, 0, ids, BLOCKS, 0);
	ck_assert_int_eq(rig_wait(rig.workers[0], job).status, SCOUT_ERR_DEVICE);
	end();
	free(ids);
}
END_TEST

/*
 * Another kernel faults, and the driver does not say that copies which ran meanwhile have stopped: nobody else gets their slots while
 * this process lives. What comes later touches none.
 */
START_LOOP_TEST(a_device_that_breaks_under_a_store_keeps_its_slots, 0, 5)
{
	struct fake_cuda_options opt = options();
	struct wire_peer status;
	struct scout_done done;
	char err[256] = "";

	ck_assert_int_eq(start(&opt, "cuda", "staged", true, err), 0);
	wire_open(&status, rig.endpoint);
	(void)rig_wait(rig.workers[0], rig_store(&rig, 0, 1, CHUNKS, 1));
	wire_wait_status(&status, "holds", 0);
	fake_cuda_break_at((uint64_t)_i * 2 + 1, FAKE_CUDA_ILLEGAL_ADDRESS);
	done = rig_wait(rig.workers[0], rig_store(&rig, 0, 2, CHUNKS, 1));
	ck_assert_int_eq(done.status, SCOUT_ERR_DEVICE);
	done = rig_wait(rig.workers[0], rig_store(&rig, 0, 3, CHUNKS, 1));
	ck_assert_int_eq(done.status, SCOUT_ERR_DEVICE);
	wire_wait_status(&status, "holds", 1);
	end();
	wire_wait_status(&status, "holds", 1);
	wire_close(&status);
}
END_TEST

static uint64_t
verify(uint64_t ticket, const int64_t *ids, void *after)
{
	struct scout_blocks blocks = {.ids = ids, .n = BLOCKS};
	struct scout_retrieve v = {
		.ticket = ticket, .to_token = BLOCKS * 16, .blocks = &blocks, .n_groups = 1, .after = after};
	uint64_t job = 0;

	ck_assert_int_eq(scout_worker_verify(rig.workers[0], &v, &job), 0);
	return job;
}

/* Its pages are read when the event has come, and a retrieve that needs none does not wait for that. */
START_LOOP_TEST(a_verification_waits_for_its_event_and_holds_up_no_retrieve, 0, 2)
{
	static const char *const methods[] = {"staged", "batch"};
	struct fake_cuda_options opt = options();
	int64_t *ids = rig_ids(1, 1, BLOCKS), *others = rig_ids(63, -1, BLOCKS);
	struct scout_done done;
	struct scout_hit hit;
	void *stream, *event;
	char err[256] = "";
	uint64_t job;

	ck_assert_int_eq(start(&opt, "cuda", methods[_i], true, err), 0);
	hit = store_and_look_up(1);
	ck_assert_int_eq(scout__cuda_api_stream_new(&stream), 0);
	ck_assert_int_eq(scout__cuda_api_event_new(&event), 0);
	fake_cuda_hold(stream);
	ck_assert_int_eq(scout__cuda_api_event_record(event, stream), 0);
	memset(rig_page(&rig.pages[0], 0, ids[9]), 0, 61); /* until the forward pass is over */
	job = verify(hit.ticket, ids, event);
	rig_wait_enqueued(rig.workers[0], job);
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 0, others, BLOCKS, 0));
	ck_assert_int_eq(done.status, 0);
	rig_fill(&rig.pages[0], ids[9], 1, 0, 9);
	fake_cuda_release(stream);
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.n_verified, CHUNKS);
	ck_assert_uint_eq(done.mismatched, 0);
	rig_page(&rig.pages[0], 2, ids[9])[19999] ^= 1;
	done = rig_wait(rig.workers[0], verify(hit.ticket, ids, NULL));
	ck_assert_uint_eq(done.mismatched, 1);
	ck_assert(done.verified[2].differs && done.verified[2].plane == 2);
	scout__cuda_api_event_free(event);
	scout__cuda_api_stream_free(stream);
	end();
	free(ids);
	free(others);
}
END_TEST

START_LOOP_TEST(a_device_that_breaks_under_a_verification_ends_it, 0, 3)
{
	struct fake_cuda_options opt = options();
	int64_t *ids = rig_ids(1, 1, BLOCKS);
	struct scout_done done;
	struct scout_hit hit;
	char err[256] = "";

	ck_assert_int_eq(start(&opt, "cuda", "staged", true, err), 0);
	hit = store_and_look_up(1);
	fake_cuda_break_at((uint64_t)_i * 2 + 1, FAKE_CUDA_ILLEGAL_ADDRESS);
	done = rig_wait(rig.workers[0], verify(hit.ticket, ids, NULL));
	ck_assert_int_eq(done.status, SCOUT_ERR_DEVICE);
	ck_assert_uint_lt(done.n_verified, CHUNKS);
	ck_assert_uint_eq(done.mismatched, 0);
	ck_assert_int_eq(rig_wait(rig.workers[0], verify(hit.ticket, ids, NULL)).status, SCOUT_ERR_DEVICE);
	end();
	free(ids);
}
END_TEST

START_LOOP_TEST(a_fence_lets_the_stream_wait_and_drops_the_rest, 0, 2)
{
	struct fake_cuda_options opt = options();
	int64_t *ids = rig_ids(63, -1, BLOCKS);
	struct scout_done done;
	struct scout_hit hit;
	void *stream, *event;
	uint64_t job, pending;
	char err[256] = "";

	ck_assert_int_eq(start(&opt, "cuda", _i & 1 ? "batch" : "staged", true, err), 0);
	hit = store_and_look_up(1);
	ck_assert_int_eq(scout__cuda_api_stream_new(&stream), 0);
	ck_assert_int_eq(scout__cuda_api_event_new(&event), 0);
	atomic_store(&passes, 0);
	job = rig_retrieve(&rig, 0, hit.ticket, 0, ids, BLOCKS, 0);
	wait_until(fake_cuda_pending() != 0)
		;
	/* A page of the first chunk, which is in the span that is enqueued. No CPU waits: the gate is shut. */
	ck_assert_int_eq(scout_worker_fence(rig.workers[0], 0, &ids[0], 1, stream), 0);
	pending = fake_cuda_pending();
	ck_assert_int_eq(scout__cuda_api_event_record(event, stream), 0);
	ck_assert(!fake_cuda_event_over(event));
	ck_assert_uint_eq(fake_cuda_pending(), pending);
	atomic_store(&passes, -1);
	ck_assert_int_eq(scout__cuda_api_stream_sync(stream), 0);
	done = rig_wait(rig.workers[0], job);
	ck_assert_uint_eq(fake_cuda_pending(), 0);
	ck_assert(done.status == SCOUT_ERR_CANCELED || done.status == 0);
	ck_assert_uint_eq(done.n_missing, BLOCKS - 4 * done.chunks);
	assert_filled(ids, 1, &done);
	scout__cuda_api_event_free(event);
	scout__cuda_api_stream_free(stream);
	end();
	free(ids);
}
END_TEST

/* When the fence has stopped the job. */
static void *
open_gate(void *arg)
{
	const struct scout__job *job = arg;

	while (!atomic_load(&job->stop))
		(void)sched_yield();
	atomic_store(&passes, -1);
	return NULL;
}

/* A captured stream cannot wait for what is not in its capture, and must not be made to: the caller waits. */
START_TEST(a_fence_on_a_captured_stream_waits_itself_and_keeps_the_capture)
{
	struct fake_cuda_options opt = options();
	int64_t *ids = rig_ids(63, -1, BLOCKS);
	struct scout_done done;
	struct scout_hit hit;
	void *stream;
	pthread_t opener;
	uint64_t job;
	char err[256] = "";

	ck_assert_int_eq(start(&opt, "cuda", "staged", true, err), 0);
	hit = store_and_look_up(1);
	ck_assert_int_eq(scout__cuda_api_stream_new(&stream), 0);
	fake_cuda_begin_capture(stream, false);
	atomic_store(&passes, 0);
	job = rig_retrieve(&rig, 0, hit.ticket, 0, ids, BLOCKS, 0);
	wait_until(fake_cuda_pending() != 0)
		;
	ck_assert_int_eq(pthread_create(&opener, NULL, open_gate, &rig.workers[0]->jobs[job & (SCOUT__MAX_JOBS - 1)]),
			 0);
	ck_assert_int_eq(scout_worker_fence(rig.workers[0], 0, ids, BLOCKS, stream), 0);
	ck_assert_uint_eq(fake_cuda_pending(), 0);
	ck_assert(fake_cuda_end_capture(stream));
	ck_assert_int_eq(pthread_join(opener, NULL), 0);
	done = rig_wait(rig.workers[0], job);
	ck_assert(done.status == SCOUT_ERR_CANCELED || done.status == 0);
	assert_filled(ids, 1, &done);
	scout__cuda_api_stream_free(stream);
	end();
	free(ids);
}
END_TEST

START_TEST(layers_have_events_of_the_callers)
{
	static const uint32_t layers[2] = {1, 2};
	struct fake_cuda_options opt = options();
	int64_t *ids = rig_ids(63, -1, BLOCKS);
	struct scout_progress progress = {0};
	struct scout_retrieve retrieve;
	struct scout_done done;
	struct scout_hit hit;
	void *events[3];
	uint64_t job = 0;
	char err[256] = "";

	ck_assert_int_eq(start(&opt, "cuda", "staged", true, err), 0);
	hit = store_and_look_up(1);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(scout__cuda_api_event_new(&events[i]), 0);
	retrieve = (struct scout_retrieve){
		.ticket = hit.ticket,
		.to_token = BLOCKS * 16,
		.blocks = &(struct scout_blocks){.ids = ids, .n = BLOCKS},
		.n_groups = 1,
		.n_layers = 2,
		.layer_planes = layers,
		.event = events[2],
		.layer_events = events,
	};
	atomic_store(&passes, 0);
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &retrieve, &job), 0);
	rig_wait_layers(rig.workers[0], job, 1);
	ck_assert_int_eq(scout_worker_progress(rig.workers[0], job, &progress), 0);
	/* What is enqueued has its event, which stands for copies that have not been made. */
	ck_assert(fake_cuda_event_recorded(events[0]));
	ck_assert(!fake_cuda_event_over(events[0]));
	ck_assert_uint_eq(progress.copied, 0);
	atomic_store(&passes, -1);
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	assert_filled(ids, 1, &done);
	for (int i = 0; i < 3; i++) {
		ck_assert(fake_cuda_event_over(events[i]));
		scout__cuda_api_event_free(events[i]);
	}
	end();
	free(ids);
}
END_TEST

/* _i: no blocks; all skipped; all null; chunks that nobody has stored. */
START_LOOP_TEST(a_retrieve_with_nothing_to_copy_records_its_events, 0, 4)
{
	static const uint32_t layers[2] = {1, 2};
	struct fake_cuda_options opt = options();
	struct scout_progress progress = {0};
	int64_t *ids = rig_ids(63, -1, BLOCKS), *none = rig_ids(-1, 0, BLOCKS);
	struct scout_retrieve retrieve;
	struct scout_done done;
	struct scout_hit hit;
	void *events[3], *after, *stream;
	uint64_t job = 0;
	uint64_t n = _i == 0 ? 0 : BLOCKS;
	char err[256] = "";

	ck_assert_int_eq(start(&opt, "cuda", "staged", true, err), 0);
	hit = store_and_look_up(1);
	ck_assert_int_eq(scout__cuda_api_stream_new(&stream), 0);
	ck_assert_int_eq(scout__cuda_api_event_new(&after), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(scout__cuda_api_event_new(&events[i]), 0);
	fake_cuda_hold(stream);
	ck_assert_int_eq(scout__cuda_api_event_record(after, stream), 0);
	retrieve = (struct scout_retrieve){
		.ticket = hit.ticket,
		/* Nothing to write, or behind what was looked up. */
		.from_token = _i == 3   ? BLOCKS * 16
			      : _i == 1 ? n * 16
					: 0,
		.to_token = (_i == 3 ? BLOCKS * 16 : 0) + n * 16,
		.blocks = &(struct scout_blocks){.first_token = _i == 3 ? BLOCKS * 16 : 0,
						 .ids = _i == 2 ? none : ids,
						 .n = n},
		.n_groups = 1,
		.n_layers = 2,
		.layer_planes = layers,
		.after = after,
		.event = events[2],
		.layer_events = events,
	};
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &retrieve, &job), 0);
	if (_i < 3) {
		rig_wait_layers(rig.workers[0], job, 2);
		ck_assert_int_eq(scout_worker_progress(rig.workers[0], job, &progress), 0);
		ck_assert_uint_eq(progress.copied, 0);
		for (int i = 0; i < 3; i++)
			ck_assert(fake_cuda_event_recorded(events[i]) && !fake_cuda_event_over(events[i]));
	}
	fake_cuda_release(stream);
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, _i == 3 ? SCOUT_ERR_MISSING : 0);
	ck_assert_uint_eq(done.n_missing, _i == 3 ? BLOCKS : 0);
	for (int i = 0; i < 3; i++) {
		ck_assert(_i == 3 || fake_cuda_event_over(events[i]));
		scout__cuda_api_event_free(events[i]);
	}
	ck_assert_int_eq(scout__cuda_api_stream_sync(stream), 0);
	scout__cuda_api_event_free(after);
	scout__cuda_api_stream_free(stream);
	end();
	free(ids);
	free(none);
}
END_TEST
