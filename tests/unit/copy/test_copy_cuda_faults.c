/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the CUDA backend does when something goes wrong, on the stand-in for the CUDA driver (fake_cuda.h says what that shows and what
 * not): the n-th call that fails, a device that breaks, stop and fence, memory that cannot be pinned, close.
 */
#include "cuda_rig.h"
#include "pinning_of.h"
#include "check_main.h"

#define N_BATCHES 4u
#define N_ITEMS 2u

/* Some batches in both directions, each of two slots and pages of its own. */
struct traffic {
	struct scout__copy_batch batches[N_BATCHES];
	struct scout__copy_item items[N_BATCHES][N_ITEMS];
	struct single singles[N_BATCHES * N_ITEMS];
	uint32_t started;
};

static struct traffic traffic;

static void
traffic_start(struct traffic *t, struct world *w)
{
	memset(t, 0, sizeof(*t));
	for (uint32_t i = 0; i < N_BATCHES; i++) {
		for (uint32_t k = 0; k < N_ITEMS; k++) {
			single_init(&t->singles[i * N_ITEMS + k], w, SCOUT__COPY_SAVE, i * N_ITEMS + k);
			t->items[i][k] = t->singles[i * N_ITEMS + k].item;
		}
		t->batches[i].direction = i & 1 ? SCOUT__COPY_LOAD : SCOUT__COPY_SAVE;
		t->batches[i].n = N_ITEMS;
		t->batches[i].items = t->items[i];
		t->batches[i].cookie = i;
		t->batches[i].status = 12345;
		ck_assert_int_eq(ops->start(w->engine, &t->batches[i]), 0);
		t->started++;
	}
}

static void
traffic_wait(struct traffic *t, struct world *w)
{
	for (; t->started > 0; t->started--)
		(void)next_ended(w->engine);
}

/* Slot and pages of an item hold the same. */
static bool
item_is_copied(const struct world *w, const struct scout__copy_item *item)
{
	const uint8_t *at = item->slot;

	for (uint32_t p = 0; p < w->layout.n_planes; p++)
		for (uint32_t b = 0; b < w->layout.blocks_per_chunk; b++) {
			const uint8_t *page = w->planes[p].base + (uint64_t)item->block_ids[b] * w->planes[p].stride;

			if (memcmp(page, at, w->planes[p].block_bytes) != 0)
				return false;
			at += w->planes[p].block_bytes;
		}
	return true;
}

/* Whatever is reported is at rest, and what is said to be copied is. Returns how many batches failed. */
static uint32_t
traffic_check(const struct traffic *t, const struct world *w)
{
	uint32_t failed = 0;

	ck_assert_uint_eq(fake_cuda_pending(), 0);
	for (uint32_t i = 0; i < N_BATCHES; i++) {
		const struct scout__copy_batch *batch = &t->batches[i];

		if (batch->status == 0)
			ck_assert_uint_eq(batch->n_done, N_ITEMS);
		else
			ck_assert_int_eq(batch->status, SCOUT_ERR_DEVICE);
		ck_assert_uint_eq(batch->bytes, batch->n_done * w->shard_bytes);
		for (uint32_t k = 0; k < batch->n_done; k++)
			ck_assert(item_is_copied(w, &t->items[i][k]));
		failed += batch->status != 0;
	}
	return failed;
}

/* A batch on a slot that no other test traffic uses. */
static int
one_more(struct world *w)
{
	struct single s;

	single_init(&s, w, SCOUT__COPY_LOAD, N_BATCHES * N_ITEMS);
	run_batch(w->engine, &s.batch);
	if (s.batch.status == 0)
		ck_assert(item_is_copied(w, &s.item));
	return s.batch.status;
}

/* A sweep over the calls or operations of both methods, which need different numbers of them. */
struct sweep {
	int n[2];
};

static const struct sweep call_sweep = {{92, 24}}, op_sweep = {{100, 124}};

static int
sweep_length(const struct sweep *sweep)
{
	return sweep->n[0] + sweep->n[1];
}

/* Which of its method's steps @i is, from 1 on; and whether it is the last, which must be beyond all that happens. */
static uint64_t
sweep_step(const struct sweep *sweep, int i, const char **ret_method, bool *ret_last)
{
	int m = 0;

	for (; i >= sweep->n[m]; m++)
		i -= sweep->n[m];
	*ret_method = methods[m];
	*ret_last = i == sweep->n[m] - 1;
	return (uint64_t)i + 1;
}

/* The n-th call fails, once: one batch ends with it, and the engine goes on. */
START_LOOP_TEST(a_call_that_fails_ends_its_batch_and_no_other, 0, sweep_length(&call_sweep))
{
	struct fake_cuda_options opt = options();
	const char *method;
	uint32_t failed;
	bool last;
	uint64_t step = sweep_step(&call_sweep, _i, &method, &last), calls;

	world_layered(&world, N_BATCHES * N_ITEMS + 1);
	gpu_begin(&world, &opt, method);
	calls = fake_cuda_counts().calls;
	fake_cuda_fail_call(step, FAKE_CUDA_OUT_OF_MEMORY);
	traffic_start(&traffic, &world);
	traffic_wait(&traffic, &world);
	failed = traffic_check(&traffic, &world);
	calls = fake_cuda_counts().calls - calls;
	if (step <= calls) {
		/* A batch of copies that is refused is made of single ones. */
		ck_assert_uint_eq(failed, fake_cuda_counts().refused ? 0 : 1);
		ck_assert_ptr_nonnull(strstr(last_log, "CUDA_ERROR_OUT_OF_MEMORY"));
	} else {
		ck_assert_uint_eq(failed, 0);
	}
	ck_assert_msg(!last || failed == 0, "the sweep of %s ends too early", method);
	fake_cuda_fail_call(0, 0);
	ck_assert_int_eq(one_more(&world), 0);
	gpu_end(&world);
}
END_TEST

/* From the n-th operation on nothing works any more. */
START_LOOP_TEST(a_broken_device_ends_every_batch_and_the_process_lives, 0, sweep_length(&op_sweep))
{
	struct fake_cuda_options opt = options();
	struct fake_cuda_counts counts;
	const char *method;
	uint32_t failed;
	void *stream;
	bool last;

	opt.break_error = FAKE_CUDA_ILLEGAL_ADDRESS;
	opt.break_op = sweep_step(&op_sweep, _i, &method, &last) + 2; /* the first two are the engine's as it opens */
	world_layered(&world, N_BATCHES * N_ITEMS + 1);
	gpu_begin(&world, &opt, method);
	ck_assert_int_eq(scout__cuda_api_stream_new(&stream), 0);
	traffic_start(&traffic, &world);
	traffic_wait(&traffic, &world);
	failed = traffic_check(&traffic, &world);
	if (failed > 0) {
		ck_assert_ptr_nonnull(strstr(last_log, "CUDA_ERROR_ILLEGAL_ADDRESS"));
		ck_assert_int_eq(one_more(&world), SCOUT_ERR_DEVICE);
		ck_assert_int_eq(ops->fence(world.engine, stream, NULL), SCOUT_ERR_DEVICE);
		ck_assert_int_eq(one_more(&world), SCOUT_ERR_DEVICE);
	}
	ck_assert_msg(!last || failed == 0, "the sweep of %s ends too early", method);
	scout__cuda_api_stream_free(stream);
	ops->close(world.engine);
	world.engine = NULL;
	counts = fake_cuda_stop(); /* what a broken device has is lost */
	ck_assert_uint_eq(counts.violations, 0);
	world_fini(&world);
}
END_TEST

/* A kernel that cannot be loaded or launched fails nothing: the copy engines serve. */
START_LOOP_TEST(an_open_that_fails_at_any_call_leaves_nothing, 0, 82)
{
	struct fake_cuda_options opt = options();
	char err[300];
	int rc;

	opt.fail_call = (uint64_t)_i + 1;
	opt.fail_error = FAKE_CUDA_OUT_OF_MEMORY;
	world_layered(&world, 1);
	gpu_start(&world, &opt);
	err[0] = 0;
	rc = try_open(&world, "auto", err, sizeof(err));
	if (rc) {
		ck_assert_int_eq(rc, SCOUT_ERR_DEVICE);
		ck_assert_ptr_nonnull(strstr(err, "CUDA_ERROR_OUT_OF_MEMORY"));
		ck_assert_ptr_null(world.engine);
	}
	ck_assert_int_eq(rc != 0, _i < 81 && _i != 76 && _i != 77);
	ck_assert_int_eq(strstr(last_log, "made by method batch") != NULL, _i == 76 || _i == 77);
	gpu_end(&world);
}
END_TEST

/* What the driver says, what it finds, and what an operator reads. */
static const struct {
	int driver_version, count_error;
	const char *names[2];
} no_gpus[] = {
	{-1, 0, {"libcuda.so.1", "--gpus all"}},
	{11080, 0, {"CUDA 11.8 and older, and one for 12.0 is needed", "driver 525"}},
	{12000,
	 FAKE_CUDA_NO_DEVICE,
	 {"(CUDA_ERROR_NO_DEVICE): may this user open /dev/nvidia*", "CUDA_VISIBLE_DEVICES"}},
	{12000, 0, {"the driver finds none", "CUDA_VISIBLE_DEVICES"}},
};

START_LOOP_TEST(a_machine_without_a_gpu_is_told_so, 0, sizeof(no_gpus) / sizeof(no_gpus[0]))
{
	struct fake_cuda_options opt = {.driver_version = no_gpus[_i].driver_version,
					.count_error = no_gpus[_i].count_error};
	char err[300] = "";

	world_layered(&world, 1);
	gpu_start(&world, &opt);
	ck_assert_int_eq(ops->probe(0, err, sizeof(err)), SCOUT_ERR_DEVICE);
	for (int i = 0; i < 2; i++)
		ck_assert_msg(strstr(err, no_gpus[_i].names[i]) != NULL, "%s", err);
	ck_assert_int_eq(try_open(&world, NULL, err, sizeof(err)), SCOUT_ERR_DEVICE);
	gpu_end(&world);
}
END_TEST

START_TEST(a_device_that_there_is_not_is_named_with_their_number)
{
	struct fake_cuda_options opt = {.n_devices = 2};
	char err[300] = "";

	world_layered(&world, 1);
	gpu_start(&world, &opt);
	ck_assert_int_eq(ops->probe(1, err, sizeof(err)), 0);
	ck_assert_int_eq(ops->probe(-1, err, sizeof(err)), 0); /* whichever has the pages */
	ck_assert_int_eq(ops->probe(2, err, sizeof(err)), SCOUT_ERR_DEVICE);
	ck_assert_ptr_nonnull(strstr(err, "there are 2"));
	gpu_end(&world);
}
END_TEST

START_TEST(what_cannot_be_opened_is_refused_with_a_sentence)
{
	struct fake_cuda_options opt = options();
	uint64_t stride;
	char err[300] = "";

	opt.n_devices = 2;
	world_layered(&world, 1);
	opt.elsewhere = world.planes[1].base + 16;
	gpu_start(&world, &opt);
	ck_assert_int_eq(try_open(&world, "quick", err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(err, "\"quick\""));
	world.planes[1].base = world.slots;
	ck_assert(ops->claims(&world.layout));
	ck_assert_int_eq(try_open(&world, "auto", err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(err, "planes[1]"));
	world.planes[1].base = world.pages[1] + GUARD;
	world.planes[1].base += 16;
	ck_assert_int_eq(try_open(&world, "auto", err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(err, "planes[1] is memory of CUDA device 1, the first plane of device 0"));
	world.planes[1].base -= 16;
	/* The first block is the GPU's, the last is not. */
	stride = world.planes[2].stride;
	world.planes[2].stride = stride * 2;
	ck_assert_int_eq(try_open(&world, "auto", err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(err, "planes[2]"));
	world.planes[2].stride = stride;
	world.layout.n_blocks = UINT64_C(1) << 31;
	ck_assert_int_eq(try_open(&world, "auto", err, sizeof(err)), SCOUT_ERR_INVALID);
	world.layout.n_blocks = 12;
	world.planes[0].base = world.slots;
	ck_assert(!ops->claims(&world.layout));
	world.planes[0].base = world.pages[0] + GUARD;
	gpu_end(&world);
}
END_TEST

/* ---- stop and fence ---- */

/* More spans, and more pieces, than may be in flight. */
#define LONG_SLOTS 64u

static void
long_batch(struct traffic *t, struct world *w, const atomic_bool *stop)
{
	static struct scout__copy_item items[LONG_SLOTS];

	memset(t, 0, sizeof(*t));
	for (uint32_t i = 0; i < LONG_SLOTS; i++) {
		single_init(&t->singles[i % 8], w, SCOUT__COPY_SAVE, i);
		items[i].slot = slot_in(w, w->slots, i);
		items[i].block_ids = t->singles[0].ids;
	}
	t->batches[0].direction = SCOUT__COPY_SAVE;
	t->batches[0].n = LONG_SLOTS;
	t->batches[0].items = items;
	t->batches[0].stop = stop;
	ck_assert_int_eq(ops->start(w->engine, &t->batches[0]), 0);
}

START_LOOP_TEST(a_stopped_batch_ends_with_what_was_enqueued, 0, 2)
{
	struct fake_cuda_options opt = gated();
	atomic_bool stop = false;
	uint64_t ops_before;

	world_layered(&world, LONG_SLOTS);
	gpu_begin(&world, &opt, methods[_i]);
	atomic_store(&gate_steps, 0);
	long_batch(&traffic, &world, &stop);
	wait_until(fake_cuda_pending() >= 8)
		;
	atomic_store(&stop, true);
	ops_before = fake_cuda_pending();
	atomic_store(&gate_steps, -1);
	ck_assert_ptr_eq(next_ended(world.engine), &traffic.batches[0]);
	ck_assert_int_eq(traffic.batches[0].status, SCOUT_ERR_CANCELED);
	ck_assert_uint_lt(traffic.batches[0].n_done, LONG_SLOTS);
	ck_assert_uint_gt(ops_before, 0);
	ck_assert_uint_eq(fake_cuda_pending(), 0);
	gpu_end(&world);
}
END_TEST

START_LOOP_TEST(behind_a_fence_nothing_is_enqueued_and_the_stream_waits, 0, 2)
{
	struct fake_cuda_options opt = gated();
	atomic_bool stop = false;
	uint64_t pending;
	void *stream, *event;

	world_layered(&world, LONG_SLOTS);
	gpu_begin(&world, &opt, methods[_i]);
	ck_assert_int_eq(scout__cuda_api_stream_new(&stream), 0);
	ck_assert_int_eq(scout__cuda_api_event_new(&event), 0);
	atomic_store(&gate_steps, 0);
	long_batch(&traffic, &world, &stop);
	wait_until(fake_cuda_pending() >= 4)
		;
	atomic_store(&stop, true);
	ck_assert_int_eq(ops->fence(world.engine, stream, NULL), 0);
	pending = fake_cuda_pending();
	ck_assert_int_eq(scout__cuda_api_event_record(event, stream), 0);
	/* The engine looks at its events, and enqueues nothing. */
	wait_queries(5);
	ck_assert_uint_eq(fake_cuda_pending(), pending);
	while (fake_cuda_pending() > 0) {
		ck_assert(!fake_cuda_event_over(event));
		run_one_op();
	}
	atomic_store(&gate_steps, -1);
	ck_assert_int_eq(scout__cuda_api_stream_sync(stream), 0);
	ck_assert(fake_cuda_event_over(event));
	ck_assert_ptr_eq(next_ended(world.engine), &traffic.batches[0]);
	ck_assert_int_eq(traffic.batches[0].status, SCOUT_ERR_CANCELED);
	scout__cuda_api_event_free(event);
	scout__cuda_api_stream_free(stream);
	gpu_end(&world);
}
END_TEST

/* A retrieve that may go on, and a store that stands behind an event of the caller's. _i: the method. */
START_LOOP_TEST(a_fence_waits_for_the_spans_with_its_pages_alone, 0, 2)
{
	struct fake_cuda_options opt = options();
	struct single s[2];
	uint64_t marks[1] = {0};
	struct scout__copy_pages pages = {.marks = marks};
	void *forward, *after, *stream, *free_of[2];

	world_layered(&world, 2);
	gpu_begin(&world, &opt, methods[_i]);
	ck_assert_int_eq(scout__cuda_api_stream_new(&forward), 0);
	ck_assert_int_eq(scout__cuda_api_stream_new(&stream), 0);
	ck_assert_int_eq(scout__cuda_api_event_new(&after), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(scout__cuda_api_event_new(&free_of[i]), 0);
	fake_cuda_hold(forward);
	ck_assert_int_eq(scout__cuda_api_event_record(after, forward), 0);
	single_init(&s[0], &world, SCOUT__COPY_LOAD, 0);
	single_init(&s[1], &world, SCOUT__COPY_SAVE, 1);
	s[1].batch.after = after;
	ck_assert_int_eq(ops->start(world.engine, &s[1].batch), 0);
	wait_until(fake_cuda_pending() != 0)
		;
	run_batch(world.engine, &s[0].batch);
	for (int i = 0; i < 2; i++) {
		marks[0] = i ? 1u << s[1].ids[3] : 1u << s[0].ids[0];
		ck_assert_int_eq(ops->fence(world.engine, stream, &pages), 0);
		ck_assert_int_eq(scout__cuda_api_event_record(free_of[i], stream), 0);
	}
	wait_until(fake_cuda_event_over(free_of[0]))
		;
	wait_queries(5);
	ck_assert(!fake_cuda_event_over(free_of[1]));
	fake_cuda_release(forward);
	ck_assert_int_eq(scout__cuda_api_stream_sync(stream), 0);
	ck_assert(fake_cuda_event_over(free_of[1]));
	ck_assert_ptr_eq(next_ended(world.engine), &s[1].batch);
	assert_copied(&s[0], &world);
	assert_copied(&s[1], &world);
	for (int i = 0; i < 2; i++)
		scout__cuda_api_event_free(free_of[i]);
	scout__cuda_api_event_free(after);
	scout__cuda_api_stream_free(stream);
	scout__cuda_api_stream_free(forward);
	gpu_end(&world);
}
END_TEST

START_LOOP_TEST(close_waits_for_what_is_enqueued_and_says_what_is_not, 0, 6)
{
	struct fake_cuda_options opt = options();
	uint32_t n_good = 0;
	uint64_t calls;

	world_layered(&world, N_BATCHES * N_ITEMS + 1);
	gpu_begin(&world, &opt, methods[_i % 3]);
	calls = fake_cuda_counts().calls;
	traffic_start(&traffic, &world);
	wait_until(_i < 3 || fake_cuda_counts().calls != calls)
		;
	ops->close(world.engine);
	world.engine = NULL;
	ck_assert_uint_eq(fake_cuda_pending(), 0);
	for (uint32_t i = 0; i < N_BATCHES; i++) {
		const struct scout__copy_batch *batch = &traffic.batches[i];

		ck_assert(batch->status == 0 ? batch->n_done == N_ITEMS : batch->status == SCOUT_ERR_CLOSED);
		for (uint32_t k = 0; k < batch->n_done; k++)
			ck_assert(item_is_copied(&world, &traffic.items[i][k]));
		n_good += batch->status == 0;
	}
	ck_assert_uint_le(n_good, N_BATCHES);
	gpu_end(&world);
}
END_TEST

/* ---- pinning ---- */

START_TEST(what_is_not_pinned_yet_is_busy_and_the_descriptor_says_when_not)
{
	struct fake_cuda_options opt = options();
	char err[300] = "";
	struct single s;

	opt.pin_gate = gate;
	atomic_store(&gate_steps, 0);
	world_layered(&world, 1);
	gpu_start(&world, &opt);
	ck_assert_int_eq(try_open(&world, "auto", err, sizeof(err)), 0);
	add_slots(&world);
	single_init(&s, &world, SCOUT__COPY_SAVE, 0);
	ck_assert_int_eq(ops->start(world.engine, &s.batch), SCOUT_ERR_BUSY);
	ck_assert(!readable(ops->fd(world.engine), 0));
	atomic_store(&gate_steps, -1);
	ck_assert(readable(ops->fd(world.engine), wait_limit_ms()));
	ck_assert_ptr_null(ops->poll(world.engine));
	run_batch(world.engine, &s.batch);
	assert_copied(&s, &world);
	/* Away and here again. */
	ops->remove_memory(world.engine, world.slots);
	ck_assert_uint_eq(fake_cuda_counts().unpins, fake_cuda_counts().pins);
	run_batch(world.engine, &s.batch);
	ck_assert_int_eq(s.batch.status, SCOUT_ERR_DEVICE);
	add_slots(&world);
	wait_pinned(world.engine, slot_in(&world, world.slots, 0));
	run_batch(world.engine, &s.batch);
	assert_copied(&s, &world);
	gpu_end(&world);
}
END_TEST

START_LOOP_TEST(a_slot_that_is_not_pinned_ends_its_batch_and_spoils_no_other_slot, 0, 2)
{
	struct fake_cuda_options opt = options();
	struct scout__copy_item items[3];
	struct scout__copy_batch batch = {.direction = SCOUT__COPY_SAVE, .n = 3, .items = items};
	struct single s[3];

	world_layered(&world, 3);
	gpu_begin(&world, &opt, methods[_i]);
	for (uint32_t i = 0; i < 3; i++) {
		single_init(&s[i], &world, SCOUT__COPY_SAVE, i);
		items[i] = s[i].item;
	}
	items[1].slot = must_alloc(world.shard_bytes);
	run_batch(world.engine, &batch);
	ck_assert_int_eq(batch.status, SCOUT_ERR_DEVICE);
	ck_assert_uint_eq(batch.n_done, 1);
	ck_assert_uint_eq(batch.bytes, world.shard_bytes);
	model_copy(&world, SCOUT__COPY_SAVE, 0, s[0].ids);
	assert_as_model(&world, "after a batch that ends in the middle");
	free(items[1].slot);
	gpu_end(&world);
}
END_TEST

/* _i: the method that is configured; none but staged copies what the GPU has no address of. */
START_LOOP_TEST(memory_that_cannot_be_pinned_is_copied_all_the_same_and_tried_again, 0, 3)
{
	static const char *const configured[] = {"auto", "batch", "staged"};
	struct fake_cuda_options opt = options();
	char err[300] = "";
	struct single s;

	opt.fail_pin = 1;
	opt.pageable = true;
	world_layered(&world, 1);
	gpu_start(&world, &opt);
	ck_assert_int_eq(try_open(&world, configured[_i], err, sizeof(err)), 0);
	add_slots(&world);
	wait_pinned(world.engine, slot_in(&world, world.slots, 0));
	ck_assert_ptr_nonnull(strstr(last_log, "(CUDA_ERROR_OUT_OF_MEMORY): raise the memory limit of the container"));
	ck_assert_ptr_nonnull(strstr(last_log, "RLIMIT_MEMLOCK"));
	ck_assert_ptr_nonnull(strstr(last_log, "confidential computing forbids pinning; until it can be pinned"));
	single_init(&s, &world, SCOUT__COPY_SAVE, 0);
	run_batch(world.engine, &s.batch);
	assert_copied(&s, &world);
	/* The second try works. */
	wait_until(pinning_of(&((struct scout__cuda *)world.engine)->memory, slot_in(&world, world.slots, 0)) ==
		   SCOUT__CUDA_PINNED)
		;
	ck_assert_uint_eq(fake_cuda_counts().pins, 2);
	single_init(&s, &world, SCOUT__COPY_LOAD, 0);
	run_batch(world.engine, &s.batch);
	assert_copied(&s, &world);
	gpu_end(&world);
}
END_TEST

/* Parts end on a page and on a slot, are not smaller than asked for, and cover the mapping. */
START_TEST(parts_end_where_pages_and_slots_do)
{
	static const uint64_t strides[] = {1, 64, 4096, 4096 + 64, 12288, 100000, 1 << 20, (1 << 20) + 512, 4095};

	for (size_t i = 0; i < sizeof(strides) / sizeof(strides[0]); i++) {
		struct scout__copy_memory of = {.first_slot = 8192, .stride = strides[i]};
		uint64_t at = 0, end, slots = (UINT64_C(64) << 20) / strides[i] + 1, n = 0;

		of.bytes = (of.first_slot + slots * of.stride + 4095) / 4096 * 4096;
		for (; at < of.bytes; at = end) {
			end = scout__cuda_part_end(&of, at, 1 << 20);
			ck_assert_uint_gt(end, at);
			ck_assert_uint_le(end, of.bytes);
			n++;
			if (end == of.bytes)
				continue;
			ck_assert_uint_ge(end - at, 1 << 20);
			ck_assert_uint_eq(end % 4096, 0);
			ck_assert_uint_eq((end - of.first_slot) % of.stride, 0);
		}
		ck_assert_uint_eq(at, of.bytes);
		/* Of this many bytes there must be several, but where slots meet pages rarely. */
		if (4096 % strides[i] == 0 || strides[i] % 4096 == 0)
			ck_assert_uint_ge(n, 30);
	}
}
END_TEST
