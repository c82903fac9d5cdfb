/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA backend of the copy engine on a real GPU: every method on random layouts, the caller's events, layers, many pieces and
 * the fence.
 */
#include "gpu_world.h"

static struct world w;

static void
every_method_copies_every_byte_and_no_other(int i)
{
	static const struct shape shapes[] = {
		{3, 16, 6, {256, 4096, 33}, {0, 64, 7}},    {1, 16, 6, {1152, 1152, 1152}, {0, 0, 0}},
		{122, 8, 4, {512, 1000, 2049}, {0, 8, 15}}, {2, 4, 3, {1 << 20, 70001, 70001}, {0, 3, 3}},
		{2, 2000, 2, {16, 40, 40}, {0, 8, 8}},      {5, 1, 6, {2 << 20, 1, 65536}, {4096, 0, 0}},
	};

	w.seed = 40 + (uint64_t)i;
	i %= 24;
	world_make(&w, &shapes[i / 4], methods[i % 4]);
	round_trips(&w, 4);
	ops->close(w.engine);
}

/* Ten thousand copies without a pause in random directions; all memory is compared every now and then. */
static void
ten_thousand_copies(int i)
{
	static const struct shape shape = {12, 16, 2, {256, 1000, 64}, {0, 24, 0}};
	int64_t ids[16 * 2];

	w.seed = 900 + (uint64_t)i;
	world_make(&w, &shape, methods[i % 4]);
	for (int n = 0; n < 2500; n++) {
		random_ids(&w, ids);
		copy_and_check(&w, below(&w, 2) ? SCOUT__COPY_SAVE : SCOUT__COPY_LOAD, ids);
		if (n % 100 == 99)
			require_as_model(&w);
	}
	ops->close(w.engine);
}

/*
 * Forty thousand pieces behind a stream that is busy: more than a stream's queue holds and than some drivers survive at once. The
 * caller's thread never waits for the GPU meanwhile, nor does a fence.
 */
static void
many_pieces_behind_a_busy_stream(int i)
{
	static const struct shape shape = {20, 1000, 2, {2048, 512, 256}, {64, 64, 64}};
	int64_t *ids = malloc(2000 * sizeof(*ids));
	struct scout__copy_item items[MAX_ITEMS];
	struct scout__copy_batch batch = {.direction = SCOUT__COPY_LOAD, .n = 2, .items = items};
	cudaStream_t stream, other;
	cudaEvent_t event;
	uint64_t began_us;

	REQUIRE(ids);
	w.seed = 950 + (uint64_t)i;
	world_make(&w, &shape, methods[i % 4]);
	random_ids(&w, ids);
	items_of(&w, items, ids);
	stream = new_stream();
	other = new_stream();
	event = new_event();
	busy_then_fill(&w, stream, 0, 1);
	CUDA(cudaEventRecord(event, stream));
	memset(w.host[0], 1, span_of(&w, 0));
	batch.after = event;
	REQUIRE(ops->start(w.engine, &batch) == 0);
	began_us = scout__now_us();
	for (int n = 0; n < 100; n++)
		REQUIRE(ops->fence(w.engine, other) == 0);
	printf("# 100 fences in %llu us beside it\n", (unsigned long long)(scout__now_us() - began_us));
	for (uint32_t k = 0; k < 2; k++)
		model_copy(&w, SCOUT__COPY_LOAD, k, items[k].block_ids);
	REQUIRE(next_ended(&w) == &batch && batch.status == 0);
	require_as_model(&w);
	ops->close(w.engine);
}

static void
a_save_waits_for_the_callers_event(int i)
{
	static const struct shape shape = {1, 16, 2, {4096, 4096, 4096}, {0, 0, 0}};
	int64_t ids[16 * 2];
	struct scout__copy_item items[MAX_ITEMS];
	struct scout__copy_batch batch = {.direction = SCOUT__COPY_SAVE, .n = 2, .items = items};
	cudaStream_t stream;
	cudaEvent_t event;

	w.seed = 7;
	world_make(&w, &shape, methods[i]);
	random_ids(&w, ids);
	items_of(&w, items, ids);
	stream = new_stream();
	event = new_event();
	busy_then_fill(&w, stream, 0, 0x5a);
	CUDA(cudaEventRecord(event, stream));
	batch.after = event;
	REQUIRE(ops->start(w.engine, &batch) == 0);
	REQUIRE(next_ended(&w) == &batch && batch.status == 0);
	memset(w.host[0], 0x5a, span_of(&w, 0));
	for (uint32_t k = 0; k < 2; k++)
		model_copy(&w, SCOUT__COPY_SAVE, k, items[k].block_ids);
	require_as_model(&w);
	ops->close(w.engine);
}

static void
layers_have_events_behind_their_copies(int i)
{
	static const struct shape shape = {3, 16, 4, {65536, 4096, 256}, {0, 0, 0}};
	static const uint32_t first_plane[4] = {0, 1, 2, 3};
	int64_t ids[16 * 4];
	struct scout__copy_item items[MAX_ITEMS];
	struct scout__copy_progress progress = {.enqueued = 0};
	cudaEvent_t events[3];
	void *layer_events[3];
	struct scout__copy_batch batch = {.direction = SCOUT__COPY_LOAD,
					  .n = 4,
					  .items = items,
					  .n_layers = 3,
					  .first_plane = first_plane,
					  .progress = &progress};
	uint8_t *seen = malloc(1 << 23);
	cudaStream_t stream;

	REQUIRE(seen);
	w.seed = 8;
	world_make(&w, &shape, methods[i]);
	random_ids(&w, ids);
	items_of(&w, items, ids);
	stream = new_stream();
	for (int l = 0; l < 3; l++) {
		events[l] = new_event();
		layer_events[l] = events[l];
	}
	batch.layer_events = layer_events;
	for (uint32_t k = 0; k < 4; k++)
		model_copy(&w, SCOUT__COPY_LOAD, k, items[k].block_ids);
	REQUIRE(ops->start(w.engine, &batch) == 0);
	for (unsigned l = 0; l < 3; l++) {
		while (atomic_load(&progress.enqueued) <= l)
			;
		CUDA(cudaStreamWaitEvent(stream, events[l], 0));
		CUDA(cudaMemcpyAsync(seen, w.planes[l].base, span_of(&w, l), cudaMemcpyDeviceToHost, stream));
		CUDA(cudaStreamSynchronize(stream));
		REQUIRE(memcmp(seen, w.host[l], span_of(&w, l)) == 0);
	}
	REQUIRE(next_ended(&w) == &batch && batch.status == 0);
	REQUIRE(atomic_load(&progress.copied) == 3);
	require_as_model(&w);
	ops->close(w.engine);
}

static void
a_batch_without_items_records_its_events(int i)
{
	static const struct shape shape = {2, 4, 1, {4096, 64, 64}, {0, 0, 0}};
	static const uint32_t first_plane[3] = {0, 1, 2};
	cudaEvent_t after, layers[2], event;
	void *layer_events[2];
	struct scout__copy_batch batch = {
		.direction = SCOUT__COPY_LOAD, .n = 0, .n_layers = 2, .first_plane = first_plane};
	cudaStream_t stream;

	w.seed = 8;
	world_make(&w, &shape, methods[i]);
	stream = new_stream();
	after = new_event();
	event = new_event();
	for (int l = 0; l < 2; l++) {
		layers[l] = new_event();
		layer_events[l] = layers[l];
	}
	busy_then_fill(&w, stream, 0, 1);
	CUDA(cudaEventRecord(after, stream));
	batch.after = after;
	batch.event = event;
	batch.layer_events = layer_events;
	REQUIRE(ops->start(w.engine, &batch) == 0);
	REQUIRE(next_ended(&w) == &batch && batch.status == 0);
	CUDA(cudaEventQuery(after));
	CUDA(cudaEventQuery(layers[0]));
	CUDA(cudaEventQuery(layers[1]));
	CUDA(cudaEventQuery(event));
	ops->close(w.engine);
}

static void
a_fence_makes_the_stream_wait(int i)
{
	static const struct shape shape = {1, 16, 6, {1 << 20, 1 << 20, 1 << 20}, {0, 0, 0}};
	int64_t ids[16 * 6];
	struct scout__copy_item items[MAX_ITEMS];
	struct scout__copy_batch batch = {.direction = SCOUT__COPY_SAVE, .n = 6, .items = items};
	atomic_bool stop = false;
	cudaStream_t stream;

	w.seed = 10;
	world_make(&w, &shape, methods[i]);
	for (int64_t k = 0; k < 16 * 6; k++)
		ids[k] = k;
	items_of(&w, items, ids);
	stream = new_stream();
	batch.stop = &stop;
	REQUIRE(ops->start(w.engine, &batch) == 0);
	atomic_store(&stop, true);
	REQUIRE(ops->fence(w.engine, stream) == 0);
	/* The pages are the stream's now: what was saved must not see this. */
	CUDA(cudaMemsetAsync(w.planes[0].base, 0xee, span_of(&w, 0), stream));
	REQUIRE(next_ended(&w) == &batch);
	REQUIRE(batch.status == SCOUT_ERR_CANCELED || batch.status == 0);
	for (uint32_t k = 0; k < batch.n_done; k++)
		REQUIRE(memcmp(w.slots + slot_at(&w, k), w.host[0] + (uint64_t)k * (16 << 20), 16 << 20) == 0);
	CUDA(cudaStreamSynchronize(stream));
	ops->close(w.engine);
}

static void
host_memory_is_no_plane(int i)
{
	uint8_t page[64];
	struct scout__copy_plane plane = {page, 64, 64};
	struct scout__copy_config cfg = {
		.layout = {.planes = &plane, .n_planes = 1, .blocks_per_chunk = 1, .n_blocks = 1}, .max_batches = 1};
	char err[300] = "";
	void *engine = NULL;

	(void)i;
	REQUIRE(!ops->claims(&cfg.layout));
	REQUIRE(ops->open(&cfg, &engine, err, sizeof(err)) == SCOUT_ERR_INVALID);
	REQUIRE(strstr(err, "planes[0]"));
	REQUIRE(!ops->claims(&cfg.layout));
}

static const struct gpu_case cases[] = {
	{"every_method_copies_every_byte_and_no_other", every_method_copies_every_byte_and_no_other, 24},
	{"ten_thousand_copies", ten_thousand_copies, 4},
	{"many_pieces_behind_a_busy_stream", many_pieces_behind_a_busy_stream, 4},
	{"a_save_waits_for_the_callers_event", a_save_waits_for_the_callers_event, 4},
	{"layers_have_events_behind_their_copies", layers_have_events_behind_their_copies, 4},
	{"a_batch_without_items_records_its_events", a_batch_without_items_records_its_events, 4},
	{"a_fence_makes_the_stream_wait", a_fence_makes_the_stream_wait, 4},
	{"host_memory_is_no_plane", host_memory_is_no_plane, 1},
};

int
main(int argc, char **argv)
{
	return world_main(argc, argv, cases, (int)(sizeof(cases) / sizeof(cases[0])));
}
