/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA backend on the stand-in for the CUDA driver (fake_cuda.h says what that shows and what not): every method, layers, events.
 */
#include <sys/mman.h>

#include "cuda_rig.h"
#include "check_main.h"

/* How much higher the GPU's addresses of pinned memory are, where it does not know the host's. */
#define ALIAS (UINT64_C(1) << 45)

/* ---- bytes ---- */

static void
random_world(struct world *w, uint64_t seed)
{
	static const uint32_t plane_counts[] = {1, 2, 3, 61, 122};

	memset(w, 0, sizeof(*w));
	w->seed = seed;
	w->layout.n_planes = plane_counts[random_below(&w->seed, 5)];
	for (uint32_t p = 0; p < w->layout.n_planes; p++) {
		w->planes[p].block_bytes = 1 + random_below(&w->seed, w->layout.n_planes > 3 ? 1500 : 40000);
		if (random_below(&w->seed, 2))
			w->planes[p].block_bytes = (w->planes[p].block_bytes + 15) / 16 * 16;
		w->planes[p].stride = w->planes[p].block_bytes + random_below(&w->seed, 2) * 16;
	}
	world_fill(w, w->layout.n_planes, 1 + (uint32_t)random_below(&w->seed, 20), 100, 3);
}

START_LOOP_TEST(every_method_copies_every_byte_and_no_other, 0, 24)
{
	struct fake_cuda_options opt = options();
	int64_t ids[3 * 20] = {0};

	opt.no_batch = _i / 3 % 2;
	opt.alias = _i >= 12 ? ALIAS : 0;
	random_world(&world, 500 + (uint64_t)_i);
	gpu_begin(&world, &opt, methods[_i % 3]);
	for (int round = 0; round < 2; round++) {
		random_ids(&world, ids);
		copy_all(&world, SCOUT__COPY_SAVE, ids);
		assert_as_model(&world, "after save");
		random_ids(&world, ids);
		copy_all(&world, SCOUT__COPY_LOAD, ids);
		assert_as_model(&world, "after load");
	}
	gpu_end(&world);
}
END_TEST

/* More blocks in a chunk than one launch can name. */
START_LOOP_TEST(a_chunk_of_many_blocks_is_cut, 0, 3)
{
	struct fake_cuda_options opt = options();
	int64_t *ids;

	memset(&world, 0, sizeof(world));
	world.seed = 3;
	world.planes[0] = (struct scout__copy_plane){.block_bytes = 40, .stride = 48};
	world.planes[1] = (struct scout__copy_plane){.block_bytes = 16, .stride = 16};
	world_fill(&world, 2, 5000, 5100, 1);
	gpu_begin(&world, &opt, methods[_i]);
	ids = must_alloc(5000 * sizeof(*ids));
	for (int64_t i = 0; i < 5000; i++)
		ids[i] = i % 11 == 0 ? -1 : i * 3301 % 5100;
	copy_all(&world, SCOUT__COPY_SAVE, ids);
	copy_all(&world, SCOUT__COPY_LOAD, ids);
	assert_as_model(&world, "after both");
	free(ids);
	gpu_end(&world);
}
END_TEST

START_TEST(neighbouring_pages_are_one_copy)
{
	struct fake_cuda_options opt = options();
	int64_t ids[4] = {4, 5, 6, 7};
	uint64_t before;

	world_layered(&world, 1);
	gpu_begin(&world, &opt, "batch");
	before = fake_cuda_counts().copies;
	copy_all(&world, SCOUT__COPY_LOAD, ids);
	/* Only the first plane has no gaps. */
	ck_assert_uint_eq(fake_cuda_counts().copies - before, 1 + 4 + 4);
	ck_assert_uint_eq(fake_cuda_counts().batch_calls, 1);
	ck_assert_uint_eq(fake_cuda_counts().launches, 0);
	gpu_end(&world);
}
END_TEST

/* Slots beside each other, before and behind a place where two calls met that pinned them. _i: the direction. */
START_LOOP_TEST(neighbouring_slots_are_one_copy_within_what_was_pinned_at_once, 0, 2)
{
	enum {
		N = 5,
		BLOCKS = 4,
		BLOCK = 1024,
		SLOT = BLOCKS * BLOCK,
		FIRST = (32 << 20) / SLOT - 3
	};
	bool is_load = _i == 0;
	struct fake_cuda_options opt = options();
	struct scout__copy_memory memory = {.bytes = UINT64_C(33) << 20, .stride = SLOT};
	struct scout__copy_item items[N];
	struct scout__copy_batch batch = {
		.direction = is_load ? SCOUT__COPY_LOAD : SCOUT__COPY_SAVE, .n = N, .items = items};
	int64_t ids[N * BLOCKS];
	uint64_t before;

	memset(&world, 0, sizeof(world));
	world.planes[0] = (struct scout__copy_plane){.block_bytes = BLOCK, .stride = BLOCK};
	world_fill(&world, 1, BLOCKS, 2 * N * BLOCKS, 1);
	gpu_begin(&world, &opt, "staged");
	memory.base = mmap(NULL, memory.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(memory.base, MAP_FAILED);
	ck_assert_int_eq(ops->add_memory(world.engine, &memory), 0);
	wait_pinned(world.engine, memory.base);
	for (uint32_t i = 0; i < N * BLOCKS; i++) {
		ids[i] = 2 * (int64_t)i;
		memset(memory.base + FIRST * SLOT + (size_t)i * BLOCK, 1 + (int)i, BLOCK);
		memset(world.planes[0].base + 2 * (size_t)i * BLOCK, 101 + (int)i, BLOCK);
	}
	for (uint32_t i = 0; i < N; i++)
		items[i] =
			(struct scout__copy_item){memory.base + (size_t)(FIRST + i) * SLOT, ids + (size_t)i * BLOCKS};
	before = fake_cuda_counts().copies;
	run_batch(world.engine, &batch);
	ck_assert_int_eq(batch.status, 0);
	ck_assert_uint_eq(fake_cuda_counts().copies - before, 2);
	for (uint32_t i = 0; i < N * BLOCKS; i++) {
		const uint8_t *slot = memory.base + FIRST * SLOT + (size_t)i * BLOCK;
		const uint8_t *page = world.planes[0].base + 2 * (size_t)i * BLOCK;

		ck_assert_mem_eq(slot, page, BLOCK);
		ck_assert_uint_eq(slot[0], is_load ? 1 + i : 101 + i);
	}
	ops->remove_memory(world.engine, memory.base);
	munmap(memory.base, memory.bytes);
	gpu_end(&world);
}
END_TEST

/* More slots than one span can name, and more bytes than its stage holds: few spans take them all. */
START_LOOP_TEST(small_slots_go_together, 0, 16)
{
	enum {
		N = 70
	};
	struct fake_cuda_options opt = options();
	struct scout__copy_item items[N];
	struct scout__copy_batch batch = {.n = N, .items = items};
	int64_t *ids = must_alloc((size_t)N * 4 * sizeof(*ids));
	struct fake_cuda_counts before;

	opt.no_batch = _i & 1;
	opt.alias = _i & 2 ? ALIAS : 0;
	batch.direction = _i & 4 ? SCOUT__COPY_LOAD : SCOUT__COPY_SAVE;
	memset(&world, 0, sizeof(world));
	world.seed = 3 + (uint64_t)_i;
	world.planes[0] = (struct scout__copy_plane){.block_bytes = 700, .stride = 700};
	world.planes[1] = (struct scout__copy_plane){.block_bytes = 33, .stride = 48};
	world_fill(&world, 2, 4, (uint64_t)N * 4 + 9, N);
	gpu_begin(&world, &opt, methods[_i / 8]);
	random_ids(&world, ids);
	for (uint32_t i = 0; i < N; i++) {
		items[i] = (struct scout__copy_item){slot_in(&world, world.slots, i), ids + (size_t)i * 4};
		model_copy(&world, batch.direction, i, items[i].block_ids);
	}
	before = fake_cuda_counts();
	run_batch(world.engine, &batch);
	ck_assert_int_eq(batch.status, 0);
	ck_assert_uint_eq(batch.n_done, N);
	assert_as_model(&world, "after all slots");
	if (_i / 8 != 1) /* method batch launches nothing */
		ck_assert_uint_le(fake_cuda_counts().launches - before.launches, 1 + N / SCOUT__TILE_PARTS + 3);
	if (_i / 8 == 0 && !opt.no_batch)
		ck_assert_uint_le(fake_cuda_counts().batch_calls, 1 + N / SCOUT__TILE_PARTS + 3);
	free(ids);
	gpu_end(&world);
}
END_TEST

/* Thousands of pieces in both directions at once, behind a GPU that stands still. */
START_LOOP_TEST(a_thousand_pieces_are_outstanding_at_most, 0, 2)
{
	struct fake_cuda_options opt = gated();
	struct scout__copy_batch batches[2];
	struct scout__copy_item items[2];
	int64_t *ids = must_alloc(3000 * sizeof(*ids));

	opt.no_batch = _i & 1;
	memset(&world, 0, sizeof(world));
	world.seed = 3;
	world.planes[0] = (struct scout__copy_plane){.block_bytes = 40, .stride = 48};
	world.planes[1] = (struct scout__copy_plane){.block_bytes = 16, .stride = 32};
	world_fill(&world, 2, 1500, 3000, 2);
	gpu_begin(&world, &opt, "batch");
	for (int64_t i = 0; i < 3000; i++)
		ids[i] = 2999 - i;
	atomic_store(&gate_steps, 0);
	for (uint32_t b = 0; b < 2; b++) {
		items[b] = (struct scout__copy_item){slot_in(&world, world.slots, b), ids + (size_t)b * 1500};
		batches[b] = (struct scout__copy_batch){
			.direction = b ? SCOUT__COPY_SAVE : SCOUT__COPY_LOAD, .n = 1, .items = &items[b]};
		ck_assert_int_eq(ops->start(world.engine, &batches[b]), 0);
	}
	while (fake_cuda_pending() < 512) /* of one direction, and some of the other */
		sched_yield();
	wait_queries(20);
	ck_assert_uint_le(fake_cuda_pending(), 1024);
	atomic_store(&gate_steps, -1);
	for (uint32_t b = 0; b < 2; b++) {
		const struct scout__copy_batch *ended = next_ended(world.engine);

		ck_assert_int_eq(ended->status, 0);
		ck_assert_uint_eq(ended->n_done, 1);
	}
	model_copy(&world, SCOUT__COPY_LOAD, 0, ids);
	model_copy(&world, SCOUT__COPY_SAVE, 1, ids + 1500);
	assert_as_model(&world, "after both");
	ck_assert_uint_le(fake_cuda_counts().most_pending, 1024);
	free(ids);
	gpu_end(&world);
}
END_TEST

/* _i: whether the GPU knows pinned memory by other addresses; single copies take the host's. */
START_LOOP_TEST(a_batch_that_the_driver_refuses_is_copied_one_by_one_and_not_tried_again, 0, 2)
{
	struct fake_cuda_options opt = options();
	int64_t ids[8] = {4, 6, 1, 9, 0, 2, 3, 5};

	opt.refuse_batch = FAKE_CUDA_NOT_SUPPORTED;
	opt.alias = _i ? ALIAS : 0;
	world_layered(&world, 2);
	gpu_begin(&world, &opt, "batch");
	copy_all(&world, SCOUT__COPY_SAVE, ids);
	copy_all(&world, SCOUT__COPY_LOAD, ids);
	assert_as_model(&world, "after both");
	ck_assert_uint_eq(fake_cuda_counts().refused, 1);
	ck_assert_uint_eq(fake_cuda_counts().batch_calls, 0);
	ck_assert_ptr_nonnull(strstr(last_log, "refuses a batch"));
	ck_assert_ptr_nonnull(strstr(last_log, "CUDA_ERROR_NOT_SUPPORTED"));
	gpu_end(&world);
}
END_TEST

START_LOOP_TEST(without_a_kernel_every_method_is_batch, 0, 3)
{
	struct fake_cuda_options opt = options();
	int64_t ids[8] = {4, 6, 1, 9, 0, 2, 3, 5};

	opt.refuse_kernel = FAKE_CUDA_NOT_SUPPORTED;
	world_layered(&world, 2);
	gpu_begin(&world, &opt, methods[_i]);
	ck_assert_ptr_nonnull(strstr(last_log, "(CUDA_ERROR_NOT_SUPPORTED), so copies are made by method batch"));
	copy_all(&world, SCOUT__COPY_SAVE, ids);
	copy_all(&world, SCOUT__COPY_LOAD, ids);
	assert_as_model(&world, "after both");
	ck_assert_uint_eq(fake_cuda_counts().launches, 0);
	ck_assert_uint_gt(fake_cuda_counts().batch_calls, 0);
	gpu_end(&world);
}
END_TEST

START_TEST(auto_takes_larger_methods_for_larger_pieces)
{
	ck_assert_int_eq(scout__cuda_method_choose(0, 0, true), SCOUT__CUDA_STAGED);
	ck_assert_int_eq(scout__cuda_method_choose(1 << 20, 256, true), SCOUT__CUDA_STAGED);
	ck_assert_int_eq(scout__cuda_method_choose(64 << 20, 32, true), SCOUT__CUDA_BATCH);
	ck_assert_int_eq(scout__cuda_method_choose(4 << 20, 16, true), SCOUT__CUDA_BATCH);
	ck_assert_int_eq(scout__cuda_method_choose(4 << 20, 16, false), SCOUT__CUDA_STAGED);
}
END_TEST

/* ---- layers and events ---- */

START_LOOP_TEST(layers_are_enqueued_and_copied_in_order_with_their_events, 0, 6)
{
	struct fake_cuda_options opt = gated();
	struct scout__copy_progress progress = {0, 0};
	struct single s;
	void *events[2], *event;
	bool load = _i & 1;

	world_layered(&world, 1);
	gpu_begin(&world, &opt, methods[_i / 2]);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(scout__cuda_api_event_new(&events[i]), 0);
	ck_assert_int_eq(scout__cuda_api_event_new(&event), 0);
	single_init(&s, &world, load ? SCOUT__COPY_LOAD : SCOUT__COPY_SAVE, 0);
	s.batch.n_layers = 2;
	s.batch.first_plane = two_layers;
	s.batch.progress = &progress;
	s.batch.layer_events = load ? events : NULL;
	s.batch.event = load ? event : NULL;
	atomic_store(&gate_steps, 0);
	ck_assert_int_eq(ops->start(world.engine, &s.batch), 0);
	wait_until(atomic_load(&progress.enqueued) >= 2)
		;
	ck_assert_uint_eq(atomic_load(&progress.copied), 0);
	/* One operation at a time, and the engine looks after each: the first layer of a load is seen before the second is over. */
	while (load && atomic_load(&progress.copied) < 1) {
		ck_assert_ptr_null(ops->poll(world.engine));
		run_one_op();
	}
	if (load) {
		ck_assert(fake_cuda_event_over(events[0]));
		ck_assert(fake_cuda_event_recorded(events[1]));
		ck_assert(fake_cuda_event_recorded(event));
	}
	atomic_store(&gate_steps, -1);
	ck_assert_ptr_eq(next_ended(world.engine), &s.batch);
	ck_assert_uint_eq(atomic_load(&progress.copied), 2);
	ck_assert_int_eq(s.batch.status, 0);
	ck_assert_uint_eq(s.batch.n_done, 1);
	ck_assert_uint_eq(s.batch.bytes, world.shard_bytes);
	model_copy(&world, s.batch.direction, 0, s.ids);
	assert_as_model(&world, "after the layers");
	for (int i = 0; i < 2; i++)
		scout__cuda_api_event_free(events[i]);
	scout__cuda_api_event_free(event);
	gpu_end(&world);
}
END_TEST

static void
assert_pages_as_model(const struct world *w)
{
	for (uint32_t p = 0; p < w->layout.n_planes; p++)
		ck_assert(memcmp(w->pages[p], w->model_pages[p], plane_span(w, p)) == 0);
}

/* _i: a load, whose first layer goes alone; a save; and one whose last layer is late. */
START_LOOP_TEST(small_layers_go_together, 0, 3)
{
	static const uint32_t three_layers[] = {0, 1, 2, 3};
	struct fake_cuda_options opt = options();
	void *forward, *layer[3];
	struct fake_cuda_counts before;
	struct single s;

	memset(&world, 0, sizeof(world));
	world.seed = 7;
	for (uint32_t p = 0; p < 3; p++)
		world.planes[p] = (struct scout__copy_plane){.block_bytes = 96 + 33 * p, .stride = 256};
	world_fill(&world, 3, 4, 12, 1);
	gpu_begin(&world, &opt, "staged");
	ck_assert_int_eq(scout__cuda_api_stream_new(&forward), 0);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(scout__cuda_api_event_new(&layer[i]), 0);
		if (_i == 2 && i == 2)
			fake_cuda_hold(forward);
		ck_assert_int_eq(scout__cuda_api_event_record(layer[i], forward), 0);
	}
	if (_i < 2)
		ck_assert_int_eq(scout__cuda_api_stream_sync(forward), 0);
	else
		wait_until(scout__cuda_api_event_query(layer[1]) == 0)
			;
	single_init(&s, &world, _i == 0 ? SCOUT__COPY_LOAD : SCOUT__COPY_SAVE, 0);
	s.batch.n_layers = 3;
	s.batch.first_plane = three_layers;
	s.batch.layer_events = layer;
	before = fake_cuda_counts();
	ck_assert_int_eq(ops->start(world.engine, &s.batch), 0);
	if (_i == 2) {
		wait_queries(5);
		ck_assert_ptr_null(ops->poll(world.engine));
		memset(world.pages[2], 0x3c, plane_span(&world, 2));
		memset(world.model_pages[2], 0x3c, plane_span(&world, 2));
		fake_cuda_release(forward);
	}
	ck_assert_ptr_eq(next_ended(world.engine), &s.batch);
	ck_assert_uint_eq(fake_cuda_counts().launches - before.launches, _i == 1 ? 1 : 2);
	for (int i = 0; i < 3; i++)
		ck_assert(fake_cuda_event_over(layer[i]));
	ck_assert_uint_eq(s.batch.bytes, world.shard_bytes);
	model_copy(&world, s.batch.direction, 0, s.ids);
	assert_as_model(&world, "after the layers");
	for (int i = 0; i < 3; i++)
		scout__cuda_api_event_free(layer[i]);
	scout__cuda_api_stream_free(forward);
	gpu_end(&world);
}
END_TEST

/* The events are recorded in a stream of the caller's that stands still: the forward pass. */
START_LOOP_TEST(nothing_is_copied_before_the_callers_events, 0, 6)
{
	struct fake_cuda_options opt = options();
	void *forward, *after, *layer[2];
	struct single s;
	bool load = _i & 1;

	world_layered(&world, 1);
	gpu_begin(&world, &opt, methods[_i / 2]);
	ck_assert_int_eq(scout__cuda_api_stream_new(&forward), 0);
	ck_assert_int_eq(scout__cuda_api_event_new(&after), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(scout__cuda_api_event_new(&layer[i]), 0);
	fake_cuda_hold(forward);
	ck_assert_int_eq(scout__cuda_api_event_record(after, forward), 0);
	ck_assert_int_eq(scout__cuda_api_event_record(layer[0], forward), 0);
	fake_cuda_hold(forward);
	ck_assert_int_eq(scout__cuda_api_event_record(layer[1], forward), 0);
	single_init(&s, &world, load ? SCOUT__COPY_LOAD : SCOUT__COPY_SAVE, 0);
	s.batch.after = after;
	s.batch.n_layers = 2;
	s.batch.first_plane = two_layers;
	s.batch.layer_events = load ? NULL : layer;
	ck_assert_int_eq(ops->start(world.engine, &s.batch), 0);
	wait_queries(5);
	ck_assert_ptr_null(ops->poll(world.engine));
	if (load)
		assert_pages_as_model(&world);
	else
		assert_as_model(&world, "before the event");
	fake_cuda_release(forward);
	if (!load) {
		/* The first layer may be read now; the second, which the forward pass still writes, not. */
		memset(world.pages[2], 0x3c, plane_span(&world, 2));
		memset(world.model_pages[2], 0x3c, plane_span(&world, 2));
		wait_queries(5);
		ck_assert_ptr_null(ops->poll(world.engine));
		fake_cuda_release(forward);
	}
	ck_assert_ptr_eq(next_ended(world.engine), &s.batch);
	model_copy(&world, s.batch.direction, 0, s.ids);
	assert_as_model(&world, "after the events");
	if (load)
		fake_cuda_release(forward);
	ck_assert_int_eq(scout__cuda_api_stream_sync(forward), 0);
	scout__cuda_api_event_free(after);
	for (int i = 0; i < 2; i++)
		scout__cuda_api_event_free(layer[i]);
	scout__cuda_api_stream_free(forward);
	gpu_end(&world);
}
END_TEST

/*
 * The engine has enqueued all that is there, whenever the next item comes; a layer ends with the last item of all. _i: method, direction; a
 * load by layers, too; with one stopped batch each.
 */
START_LOOP_TEST(a_batch_grows_behind_what_is_enqueued, 0, 18)
{
	enum {
		N = 6
	};
	bool is_load = _i / 3 % 3 != 1, has_layers = _i / 3 % 3 == 2, is_stopped = _i >= 9;
	enum scout__copy_direction direction = is_load ? SCOUT__COPY_LOAD : SCOUT__COPY_SAVE;
	struct fake_cuda_options opt = options();
	struct scout__copy_progress progress = {0};
	struct scout__copy_item items[N];
	atomic_bool stop = false;
	struct scout__copy_batch batch = {.direction = direction,
					  .n = 1,
					  .items = items,
					  .n_layers = has_layers ? 2 : 0,
					  .first_plane = two_layers,
					  .stop = &stop,
					  .progress = &progress,
					  .grows = true,
					  .n_there = 1};
	int64_t ids[N * 4];

	world_layered(&world, N);
	random_ids(&world, ids);
	gpu_begin(&world, &opt, methods[_i % 3]);
	ck_assert(ops->may_grow(world.engine));
	for (uint32_t i = 0; i < N; i++) {
		uint64_t before = fake_cuda_counts().copies;

		items[i] = (struct scout__copy_item){slot_in(&world, world.slots, i), ids + (size_t)i * 4};
		if (i == N - 1 && is_stopped)
			break;
		model_copy(&world, direction, i, items[i].block_ids);
		atomic_store(&batch.n_there, i + 1);
		if (i == 0)
			ck_assert_int_eq(ops->start(world.engine, &batch), 0);
		else
			ops->grew(world.engine);
		wait_until(fake_cuda_counts().copies > before && fake_cuda_pending() == 0)
			;
		ck_assert_ptr_null(ops->poll(world.engine));
		ck_assert_uint_eq(atomic_load(&progress.enqueued), 0);
	}
	atomic_store(&stop, is_stopped);
	atomic_store(&batch.is_whole, true);
	ops->grew(world.engine);
	ck_assert_ptr_eq(next_ended(world.engine), &batch);
	ck_assert_int_eq(batch.status, is_stopped ? SCOUT_ERR_CANCELED : 0);
	/* A stopped batch may not count its last item, and then this may be half copied. */
	ck_assert_uint_le(batch.n_done, is_stopped ? (has_layers ? 0 : N - 1) : N);
	ck_assert_uint_ge(batch.n_done, is_stopped ? (has_layers ? 0 : N - 2) : N);
	ck_assert_uint_eq(atomic_load(&progress.copied), is_stopped ? 0 : scout__copy_layers(&batch));
	if (!is_stopped || batch.n_done == N - 1)
		assert_as_model(&world, "after it has grown");
	gpu_end(&world);
}
END_TEST
