/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA backend among the caller's streams on a real GPU: streams that are captured, CUDA's default streams, graphs that are
 * replayed layer by layer with retrieves and stores, one hardware queue for all streams, engines beside each other, load.
 */
#include "gpu_world.h"

#define ROUNDS 8

static struct world w;
static const struct shape two_slots = {2, 16, 2, {65536, 4096, 4096}, {0, 0, 0}};
static const struct shape layered = {3, 16, 4, {65536, 4096, 256}, {0, 0, 0}};
static const uint32_t first_plane[4] = {0, 1, 2, 3};

/* ---- captures ---- */

static void *target; /* 1 MiB, written by what is captured */

/* Captures @stream in the strictest mode. */
static void
capture_begin(CUstream stream)
{
	CUDA(gpu.capture_begin(stream, GPU_CAPTURE_GLOBAL));
	CUDA(gpu_fill(target, 1, 1 << 20, stream));
}

/* The capture of @stream is good, and so is what is captured now. */
static CUgraph
capture_end(CUstream stream, int value)
{
	CUgraph graph = NULL;

	CUDA(gpu_fill(target, value, 1 << 20, stream));
	CUDA(gpu.capture_end(stream, &graph));
	REQUIRE(graph);
	return graph;
}

/* The engine copies, pins and unpins while a stream is captured. */
static void
a_capture_elsewhere_is_not_disturbed(int i)
{
	struct scout__copy_memory more = {.bytes = 1 << 20, .stride = 1 << 20};
	CUstream stream;
	struct job job;

	w.seed = 9;
	world_make(&w, &two_slots, methods[i]);
	target = plain_alloc(1 << 20);
	more.base = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(more.base != MAP_FAILED);
	stream = new_stream();
	capture_begin(stream);
	for (int n = 0; n < 20; n++) {
		CUDA(gpu_fill(target, n, 1 << 20, stream));
		job_init(&w, &job, n & 1 ? SCOUT__COPY_SAVE : SCOUT__COPY_LOAD);
		job_run(&w, &job);
	}
	REQUIRE(ops->add_memory(w.engine, &more) == 0);
	ops->remove_memory(w.engine, more.base);
	(void)capture_end(stream, 2);
	require_as_model(&w);
	ops->close(w.engine);
}

/* An engine is opened and closed, which allocates and frees, during a capture. */
static void
an_engine_comes_and_goes_during_a_capture(int i)
{
	CUstream stream;

	w.seed = 12;
	world_init(&w, &two_slots);
	target = plain_alloc(1 << 20);
	stream = new_stream();
	capture_begin(stream);
	world_open(&w, methods[i]);
	ops->close(w.engine);
	(void)capture_end(stream, 2);
}

/* A fence on the captured stream itself: the caller waits, and the capture is good, and so is what is captured after it. */
static void
a_fence_leaves_the_capture_of_its_stream_alone(int i)
{
	CUstream stream;
	CUgraphExec exec = NULL;
	struct job job;
	uint8_t *seen = malloc(1 << 20);

	REQUIRE(seen);
	w.seed = 13;
	world_make(&w, &two_slots, methods[i]);
	target = plain_alloc(1 << 20);
	stream = new_stream();
	job_init(&w, &job, SCOUT__COPY_SAVE);
	job_model(&w, &job);
	capture_begin(stream);
	job_start(&w, &job);
	REQUIRE(ops->fence(w.engine, stream, NULL) == SCOUT_ERR_DEVICE);
	CUDA(gpu.graph_instantiate(&exec, capture_end(stream, 7), 0));
	job_end(&w, &job, 0);
	CUDA(gpu.graph_launch(exec, stream));
	CUDA(gpu.stream_sync(stream));
	CUDA(gpu_read(seen, target, 1 << 20));
	for (int b = 0; b < 1 << 20; b++)
		REQUIRE(seen[b] == 7);
	REQUIRE(ops->fence(w.engine, stream, NULL) == 0);
	require_as_model(&w);
	ops->close(w.engine);
}

/* A fence on one stream while another one of the same thread is captured. */
static void
a_fence_beside_a_capture_makes_its_stream_wait(int i)
{
	CUstream captured, stream;
	struct job job;
	void *copy;

	w.seed = 23;
	world_make(&w, &two_slots, methods[i]);
	target = plain_alloc(1 << 20);
	copy = plain_alloc(span_of(&w, 0));
	captured = new_stream();
	stream = new_stream();
	job_init(&w, &job, SCOUT__COPY_LOAD);
	job_model(&w, &job);
	capture_begin(captured);
	job_start(&w, &job);
	job_await_layer(&job, 0);
	REQUIRE(ops->fence(w.engine, stream, NULL) == 0);
	CUDA(gpu_copy(copy, w.planes[0].base, span_of(&w, 0), stream));
	(void)capture_end(captured, 2);
	require_plane_is(&w, 0, copy, stream);
	job_end(&w, &job, 0);
	require_as_model(&w);
	ops->close(w.engine);
}

/* While a stream is captured that orders itself with the legacy stream, that one cannot wait, nor may it be tried. */
static void
a_fence_on_the_legacy_stream_leaves_another_capture_alone(int i)
{
	CUstream blocking;
	struct job job;

	w.seed = 14;
	world_make(&w, &two_slots, methods[i]);
	target = plain_alloc(1 << 20);
	CUDA(gpu.stream_new(&blocking, 0, 0));
	job_init(&w, &job, SCOUT__COPY_LOAD);
	job_model(&w, &job);
	capture_begin(blocking);
	job_start(&w, &job);
	REQUIRE(ops->fence(w.engine, GPU_LEGACY, NULL) == SCOUT_ERR_DEVICE);
	(void)capture_end(blocking, 2);
	job_end(&w, &job, 0);
	REQUIRE(ops->fence(w.engine, GPU_LEGACY, NULL) == 0);
	require_as_model(&w);
	ops->close(w.engine);
}

/* The job fails that waits for an event of a capture; the engine's streams stay out of it, and go on. */
static void
an_event_of_a_capture_fails_its_job_and_no_other(int i)
{
	CUstream stream;
	CUevent event;
	CUgraph graph = NULL;
	struct job job;

	w.seed = 15;
	world_make(&w, &two_slots, methods[i]);
	target = plain_alloc(1 << 20);
	stream = new_stream();
	event = new_event();
	capture_begin(stream);
	CUDA(gpu.event_record(event, stream));
	job_init(&w, &job, SCOUT__COPY_SAVE);
	job.batch.after = event;
	job_start(&w, &job);
	job_end(&w, &job, SCOUT_ERR_DEVICE);
	(void)gpu.capture_end(stream, &graph);
	job_init(&w, &job, SCOUT__COPY_SAVE);
	job_run(&w, &job);
	require_as_model(&w);
	ops->close(w.engine);
}

/* ---- streams of each kind ---- */

/*
 * A stream of the caller's, the legacy stream, that of the thread. What is enqueued behind a fence must not reach what is copied
 * before it.
 */
static void
a_fence_makes_every_kind_of_stream_wait(int i)
{
	static const struct shape shape = {1, 16, 6, {1 << 20, 1 << 20, 1 << 20}, {0, 0, 0}};
	CUstream stream = i % 3 == 1 ? GPU_LEGACY : GPU_PER_THREAD;
	struct job job;

	w.seed = 16;
	world_make(&w, &shape, methods[i / 3]);
	if (i % 3 == 0)
		stream = new_stream();
	job_in_order(&w, &job, SCOUT__COPY_SAVE);
	job_start(&w, &job);
	atomic_store(&job.stop, true);
	REQUIRE(ops->fence(w.engine, stream, NULL) == 0);
	/* The pages are the stream's now: what was saved must not see this. */
	CUDA(gpu_fill(w.planes[0].base, 0xee, span_of(&w, 0), stream));
	REQUIRE(next_ended(&w) == &job.batch);
	REQUIRE(job.batch.status == SCOUT_ERR_CANCELED || job.batch.status == 0);
	for (uint32_t k = 0; k < job.batch.n_done; k++)
		REQUIRE(memcmp(w.slots + slot_at(&w, k), w.host[0] + (uint64_t)k * (16 << 20), 16 << 20) == 0);
	CUDA(gpu.stream_sync(stream));
	ops->close(w.engine);
}

/* ---- graphs, layer by layer ---- */

static void
layered_job(struct job *job, enum scout__copy_direction direction, void **layer_events)
{
	job_init(&w, job, direction);
	job->batch.n_layers = 3;
	job->batch.first_plane = first_plane;
	job->batch.layer_events = layer_events;
}

/*
 * A graph as an engine replays it: each layer waits for its event and then reads its pages. The events are recorded by the
 * retrieve, outside of the graph, anew for each replay.
 */
static void
a_graph_reads_each_layer_behind_its_retrieve(int i)
{
	CUstream stream;
	CUgraph graph = NULL;
	CUgraphExec exec = NULL;
	void *layer_events[3], *copies[3];
	struct job job;

	w.seed = 17;
	world_make(&w, &layered, methods[i]);
	stream = new_stream();
	for (int l = 0; l < 3; l++) {
		layer_events[l] = new_event();
		copies[l] = plain_alloc(span_of(&w, (uint32_t)l));
	}
	CUDA(gpu.capture_begin(stream, GPU_CAPTURE_GLOBAL));
	for (uint32_t l = 0; l < 3; l++) {
		CUDA(gpu.stream_wait(stream, layer_events[l], GPU_EXTERNAL));
		CUDA(gpu_copy(copies[l], w.planes[l].base, span_of(&w, l), stream));
	}
	CUDA(gpu.capture_end(stream, &graph));
	CUDA(gpu.graph_instantiate(&exec, graph, 0));
	for (int n = 0; n < ROUNDS; n++) {
		fill_random(&w, w.slots + 4096, w.stride * w.n_items);
		memcpy(w.model, w.slots, w.bytes);
		layered_job(&job, SCOUT__COPY_LOAD, layer_events);
		job_model(&w, &job);
		job_start(&w, &job);
		/* All events stand for this round's copies when they are recorded, which is before they are over. */
		job_await_layer(&job, 2);
		CUDA(gpu.graph_launch(exec, stream));
		CUDA(gpu.stream_sync(stream));
		for (uint32_t l = 0; l < 3; l++)
			require_plane_is(&w, l, copies[l], stream);
		job_end(&w, &job, 0);
	}
	require_as_model(&w);
	ops->close(w.engine);
}

/* A graph that writes layer after layer and records an event behind each; the store of a layer begins behind its own. */
static void
a_store_saves_each_layer_that_a_graph_has_written(int i)
{
	CUstream stream;
	CUgraph graph = NULL;
	CUgraphExec exec = NULL;
	void *layer_events[3], *source[3];
	struct job job;

	w.seed = 18;
	world_make(&w, &layered, methods[i]);
	stream = new_stream();
	for (int l = 0; l < 3; l++) {
		layer_events[l] = new_event();
		source[l] = plain_alloc(span_of(&w, (uint32_t)l));
	}
	busy_then_fill(&w, stream, 0, 0); /* allocates, which a capture forbids */
	CUDA(gpu.capture_begin(stream, GPU_CAPTURE_GLOBAL));
	for (uint32_t l = 0; l < 3; l++) {
		busy_then_fill(&w, stream, l, 0);
		CUDA(gpu_copy(w.planes[l].base, source[l], span_of(&w, l), stream));
		CUDA(gpu.event_record_with(layer_events[l], stream, GPU_EXTERNAL));
	}
	CUDA(gpu.capture_end(stream, &graph));
	CUDA(gpu.graph_instantiate(&exec, graph, 0));
	for (int n = 0; n < ROUNDS; n++) {
		for (uint32_t l = 0; l < 3; l++) {
			fill_random(&w, w.host[l], span_of(&w, l));
			CUDA(gpu_write(source[l], w.host[l], span_of(&w, l)));
		}
		CUDA(gpu.graph_launch(exec, stream));
		layered_job(&job, SCOUT__COPY_SAVE, layer_events);
		job_run(&w, &job);
		require_as_model(&w);
	}
	ops->close(w.engine);
}

/* The same without a graph: the forward pass records its events in a stream, and is far behind. */
static void
a_store_waits_layer_by_layer(int i)
{
	CUstream stream;
	void *layer_events[3];
	struct job job;

	w.seed = 19;
	world_make(&w, &layered, methods[i]);
	stream = new_stream();
	for (uint32_t l = 0; l < 3; l++) {
		layer_events[l] = new_event();
		busy_then_fill(&w, stream, l, 0x30 + (int)l);
		CUDA(gpu.event_record(layer_events[l], stream));
		memset(w.host[l], 0x30 + (int)l, span_of(&w, l));
	}
	layered_job(&job, SCOUT__COPY_SAVE, layer_events);
	job_run(&w, &job);
	require_as_model(&w);
	ops->close(w.engine);
}

/* ---- one hardware queue ---- */

/*
 * All streams of the process share one queue of the GPU, as some frameworks want it (CUDA_DEVICE_MAX_CONNECTIONS=1): what waits in
 * one stream holds up the others behind it. Nothing may wait for what was enqueued later.
 */
static void
one_hardware_queue_is_enough(int i)
{
	CUstream stream;
	CUevent event, loaded;
	struct job save, load;
	void *copy;

	REQUIRE(setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1) == 0);
	w.seed = 20;
	world_make(&w, &two_slots, methods[i]);
	stream = new_stream();
	event = new_event();
	loaded = new_event();
	copy = plain_alloc(span_of(&w, 0));
	for (int n = 0; n < ROUNDS; n++) {
		busy_then_fill(&w, stream, 0, n);
		CUDA(gpu.event_record(event, stream));
		memset(w.host[0], n, span_of(&w, 0));
		job_init(&w, &save, SCOUT__COPY_SAVE);
		save.batch.after = event;
		job_init(&w, &load, SCOUT__COPY_LOAD);
		load.batch.event = loaded;
		job_run(&w, &save);
		job_model(&w, &load);
		job_start(&w, &load);
		job_await_layer(&load, 0);
		CUDA(gpu.stream_wait(stream, loaded, 0));
		CUDA(gpu_copy(copy, w.planes[0].base, span_of(&w, 0), stream));
		REQUIRE(ops->fence(w.engine, stream, NULL) == 0);
		require_plane_is(&w, 0, copy, stream);
		job_end(&w, &load, 0);
	}
	require_as_model(&w);
	ops->close(w.engine);
}

/* ---- engines beside each other, and load ---- */

static struct world v;

/* Two engines on one device, as of two workers in a process, both busy in both directions. */
static void
two_engines_share_a_device(int i)
{
	static const struct shape shape = {12, 16, 2, {256, 1000, 4096}, {0, 24, 0}};
	struct world *worlds[2] = {&w, &v};
	struct job jobs[2];

	w.seed = 21;
	v.seed = 22;
	world_make(&w, &shape, methods[i]);
	world_make(&v, &shape, methods[(i + 1) % 3]);
	for (int n = 0; n < 200; n++) {
		for (int k = 0; k < 2; k++) {
			job_init(worlds[k], &jobs[k], (n + k) & 1 ? SCOUT__COPY_SAVE : SCOUT__COPY_LOAD);
			job_model(worlds[k], &jobs[k]);
			job_start(worlds[k], &jobs[k]);
		}
		for (int k = 0; k < 2; k++)
			job_end(worlds[k], &jobs[k], 0);
	}
	require_as_model(&w);
	require_as_model(&v);
	ops->close(w.engine);
	require_as_model(&v);
	ops->close(v.engine);
}

#define N_JOBS 24

/* Jobs in both directions, each on a slot and pages of its own; which of them were stopped is left to chance. */
static void
stop_and_close_under_load(int i)
{
	static const struct shape shape = {4, 64, 6, {16384, 65536, 4096}, {0, 64, 0}};
	static struct scout__copy_batch batches[6];
	static struct scout__copy_item items[6];
	static int64_t ids[6][64];
	static atomic_bool stops[6];
	uint32_t n_good = 0, n_stopped = 0;

	w.seed = 300 + (uint64_t)i;
	world_make(&w, &shape, methods[i % 3]);
	for (int n = 0; n < N_JOBS; n++) {
		bool last = n == N_JOBS - 1;

		for (uint32_t k = 0; k < 6; k++) {
			for (uint32_t b = 0; b < 64; b++)
				ids[k][b] = (int64_t)(k * 64 + (b * 37) % 64);
			items[k] = (struct scout__copy_item){w.slots + slot_at(&w, k), ids[k]};
			atomic_store(&stops[k], false);
			batches[k] = (struct scout__copy_batch){.direction = below(&w, 2) ? SCOUT__COPY_SAVE
											  : SCOUT__COPY_LOAD,
								.n = 1,
								.items = &items[k],
								.stop = &stops[k]};
			REQUIRE(ops->start(w.engine, &batches[k]) == 0);
			if (below(&w, 3) == 0)
				atomic_store(&stops[k], true);
		}
		if (last) {
			ops->close(w.engine);
			break;
		}
		for (uint32_t k = 0; k < 6; k++) {
			struct scout__copy_batch *batch = next_ended(&w);

			REQUIRE(batch->status == 0 || batch->status == SCOUT_ERR_CANCELED);
			n_stopped += batch->status != 0;
			n_good += batch->status == 0;
		}
		/* What was good is in both places; what was stopped, in part: start anew from what is there. */
		for (uint32_t k = 0; k < 6; k++)
			if (batches[k].status == 0)
				model_copy(&w, batches[k].direction, k, ids[k]);
			else if (batches[k].direction == SCOUT__COPY_SAVE)
				memcpy(w.model + slot_at(&w, k), w.slots + slot_at(&w, k), w.shard);
			else
				for (uint32_t p = 0; p < w.layout.n_planes; p++)
					CUDA(gpu_read(w.host[p] + k * 64 * w.planes[p].stride,
						      w.planes[p].base + k * 64 * w.planes[p].stride,
						      64 * w.planes[p].stride));
		if (n % 6 == 5)
			require_as_model(&w);
	}
	for (uint32_t k = 0; k < 6; k++)
		REQUIRE(batches[k].status == 0 || batches[k].status == SCOUT_ERR_CANCELED ||
			batches[k].status == SCOUT_ERR_CLOSED);
	CUDA(gpu.stream_sync(GPU_LEGACY));
	printf("# %u good, %u stopped\n", n_good, n_stopped);
}

static const struct gpu_case cases[] = {
	{"a_capture_elsewhere_is_not_disturbed", a_capture_elsewhere_is_not_disturbed, 3},
	{"an_engine_comes_and_goes_during_a_capture", an_engine_comes_and_goes_during_a_capture, 1},
	{"a_fence_leaves_the_capture_of_its_stream_alone", a_fence_leaves_the_capture_of_its_stream_alone, 2},
	{"a_fence_beside_a_capture_makes_its_stream_wait", a_fence_beside_a_capture_makes_its_stream_wait, 2},
	{"a_fence_on_the_legacy_stream_leaves_another_capture_alone",
	 a_fence_on_the_legacy_stream_leaves_another_capture_alone, 1},
	{"an_event_of_a_capture_fails_its_job_and_no_other", an_event_of_a_capture_fails_its_job_and_no_other, 2},
	{"a_fence_makes_every_kind_of_stream_wait", a_fence_makes_every_kind_of_stream_wait, 9},
	{"a_graph_reads_each_layer_behind_its_retrieve", a_graph_reads_each_layer_behind_its_retrieve, 3},
	{"a_store_saves_each_layer_that_a_graph_has_written", a_store_saves_each_layer_that_a_graph_has_written, 3},
	{"a_store_waits_layer_by_layer", a_store_waits_layer_by_layer, 3},
	{"one_hardware_queue_is_enough", one_hardware_queue_is_enough, 3},
	{"two_engines_share_a_device", two_engines_share_a_device, 3},
	{"stop_and_close_under_load", stop_and_close_under_load, 6},
};

int
main(int argc, char **argv)
{
	return world_main(argc, argv, cases, (int)(sizeof(cases) / sizeof(cases[0])));
}
