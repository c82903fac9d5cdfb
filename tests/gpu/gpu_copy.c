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
	i %= 18;
	world_make(&w, &shapes[i / 3], methods[i % 3]);
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
	world_make(&w, &shape, methods[i % 3]);
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
	static struct job job;
	CUstream stream, other;
	CUevent event;
	uint64_t began_us;

	w.seed = 950 + (uint64_t)i;
	world_make(&w, &shape, methods[i % 3]);
	job_init(&w, &job, SCOUT__COPY_LOAD);
	stream = new_stream();
	other = new_stream();
	event = new_event();
	busy_then_fill(&w, stream, 0, 1);
	CUDA(gpu.event_record(event, stream));
	memset(w.host[0], 1, span_of(&w, 0));
	job.batch.after = event;
	job_start(&w, &job);
	began_us = scout__now_us();
	for (int n = 0; n < 100; n++)
		REQUIRE(ops->fence(w.engine, other, NULL) == 0);
	printf("# 100 fences in %llu us beside it\n", (unsigned long long)(scout__now_us() - began_us));
	job_model(&w, &job);
	job_end(&w, &job, 0);
	require_as_model(&w);
	ops->close(w.engine);
}

static void
a_save_waits_for_the_callers_event(int i)
{
	static const struct shape shape = {1, 16, 2, {4096, 4096, 4096}, {0, 0, 0}};
	struct job job;
	CUstream stream;
	CUevent event;

	w.seed = 7;
	world_make(&w, &shape, methods[i]);
	job_init(&w, &job, SCOUT__COPY_SAVE);
	stream = new_stream();
	event = new_event();
	busy_then_fill(&w, stream, 0, 0x5a);
	CUDA(gpu.event_record(event, stream));
	job.batch.after = event;
	memset(w.host[0], 0x5a, span_of(&w, 0));
	job_run(&w, &job);
	require_as_model(&w);
	ops->close(w.engine);
}

static void
layers_have_events_behind_their_copies(int i)
{
	static const struct shape shape = {3, 16, 4, {65536, 4096, 256}, {0, 0, 0}};
	static const uint32_t first_plane[4] = {0, 1, 2, 3};
	void *layer_events[3];
	CUstream stream;
	struct job job;

	w.seed = 8;
	world_make(&w, &shape, methods[i]);
	job_init(&w, &job, SCOUT__COPY_LOAD);
	stream = new_stream();
	for (int l = 0; l < 3; l++)
		layer_events[l] = new_event();
	job.batch.n_layers = 3;
	job.batch.first_plane = first_plane;
	job.batch.layer_events = layer_events;
	job_model(&w, &job);
	job_start(&w, &job);
	for (uint32_t l = 0; l < 3; l++) {
		job_await_layer(&job, l);
		CUDA(gpu.stream_wait(stream, layer_events[l], 0));
		require_plane_is(&w, l, w.planes[l].base, stream);
	}
	job_end(&w, &job, 0);
	REQUIRE(atomic_load(&job.progress.copied) == 3);
	require_as_model(&w);
	ops->close(w.engine);
}

static void
a_batch_without_items_records_its_events(int i)
{
	static const struct shape shape = {2, 4, 1, {4096, 64, 64}, {0, 0, 0}};
	static const uint32_t first_plane[3] = {0, 1, 2};
	CUevent events[4]; /* what it waits for, its layers', its own */
	void *layer_events[2];
	struct scout__copy_batch batch = {
		.direction = SCOUT__COPY_LOAD, .n = 0, .n_layers = 2, .first_plane = first_plane};
	CUstream stream;

	w.seed = 8;
	world_make(&w, &shape, methods[i]);
	stream = new_stream();
	for (int e = 0; e < 4; e++)
		events[e] = new_event();
	busy_then_fill(&w, stream, 0, 1);
	CUDA(gpu.event_record(events[0], stream));
	layer_events[0] = events[1];
	layer_events[1] = events[2];
	batch.after = events[0];
	batch.event = events[3];
	batch.layer_events = layer_events;
	REQUIRE(ops->start(w.engine, &batch) == 0);
	REQUIRE(next_ended(&w) == &batch && batch.status == 0);
	for (int e = 0; e < 4; e++)
		CUDA(gpu.event_query(events[e]));
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
	{"every_method_copies_every_byte_and_no_other", every_method_copies_every_byte_and_no_other, 18},
	{"ten_thousand_copies", ten_thousand_copies, 3},
	{"many_pieces_behind_a_busy_stream", many_pieces_behind_a_busy_stream, 3},
	{"a_save_waits_for_the_callers_event", a_save_waits_for_the_callers_event, 3},
	{"layers_have_events_behind_their_copies", layers_have_events_behind_their_copies, 3},
	{"a_batch_without_items_records_its_events", a_batch_without_items_records_its_events, 3},
	{"host_memory_is_no_plane", host_memory_is_no_plane, 1},
};

int
main(int argc, char **argv)
{
	return world_main(argc, argv, cases, (int)(sizeof(cases) / sizeof(cases[0])));
}
