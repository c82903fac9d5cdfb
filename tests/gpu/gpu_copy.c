/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA backend of the copy engine on a real GPU: every method on random layouts, the caller's events, layers, a concurrent
 * stream capture, the fence, memory that is freed under a retrieve.
 */
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

#include <cuda_runtime_api.h>

#include <kvscout/error.h>

#include "clock.h"
#include "copy.h"
#include "gpu_test.h"

#define MAX_PLANES 122
#define MAX_ITEMS 6
#define WAIT_MS 60000

static const struct scout__copy_ops *const ops = &scout__copy_cuda;
static const char *const methods[] = {"staged", "batch", "direct", "auto"};

static struct {
	uint64_t seed;
	struct scout__copy_plane planes[MAX_PLANES];
	struct scout__copy_layout layout;
	uint8_t *host[MAX_PLANES]; /* what the planes should hold */
	uint8_t *slots, *model;    /* slots, and what they should hold */
	uint64_t shard, stride, bytes;
	uint32_t n_items;
	void *engine;
} w;

static uint64_t
below(uint64_t n)
{
	uint64_t z = w.seed += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (z ^ (z >> 31)) % n;
}

static void
fill_random(uint8_t *p, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		p[i] = (uint8_t)below(256);
}

static uint64_t
span_of(uint32_t p)
{
	return w.planes[p].stride * w.layout.n_blocks;
}

static void
wait_readable(void)
{
	struct pollfd pfd = {.fd = ops->fd(w.engine), .events = POLLIN};

	REQUIRE(poll(&pfd, 1, WAIT_MS) == 1);
}

static struct scout__copy_batch *
next_ended(void)
{
	struct scout__copy_batch *batch;

	while ((batch = ops->poll(w.engine)) == NULL)
		wait_readable();
	return batch;
}

/* Planes and slots with random bytes, and an engine. */
static void
world(uint32_t n_planes, const uint64_t *bytes, const uint64_t *padding, uint32_t bpc, uint32_t n_items,
      const char *method)
{
	struct scout__copy_config cfg = {.max_batches = 8, .method = method, .stage_bytes = 4 << 20};
	struct scout__copy_memory memory;
	char err[300] = "";

	w.layout = (struct scout__copy_layout){.planes = w.planes,
					       .n_planes = n_planes,
					       .blocks_per_chunk = bpc,
					       .n_blocks = (uint64_t)bpc * n_items + 7};
	for (uint32_t p = 0; p < n_planes; p++) {
		void *base;

		w.planes[p].block_bytes = bytes[p % 3];
		w.planes[p].stride = bytes[p % 3] + padding[p % 3];
		w.host[p] = malloc(span_of(p));
		REQUIRE(w.host[p]);
		fill_random(w.host[p], span_of(p));
		CUDA(cudaMalloc(&base, span_of(p)));
		CUDA(cudaMemcpy(base, w.host[p], span_of(p), cudaMemcpyHostToDevice));
		w.planes[p].base = base;
	}
	w.n_items = n_items;
	w.shard = scout__copy_shard_bytes(&w.layout);
	w.stride = (w.shard + 63) / 64 * 64;
	w.bytes = (4096 + w.stride * n_items + 4095) / 4096 * 4096;
	w.slots = mmap(NULL, w.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(w.slots != MAP_FAILED);
	fill_random(w.slots, w.bytes);
	w.model = malloc(w.bytes);
	REQUIRE(w.model);
	memcpy(w.model, w.slots, w.bytes);
	cfg.layout = w.layout;
	if (ops->open(&cfg, &w.engine, err, sizeof(err)) != 0)
		printf("# %s\n", err);
	REQUIRE(w.engine);
	memory = (struct scout__copy_memory){.base = w.slots, .bytes = w.bytes, .first_slot = 4096, .stride = w.stride};
	REQUIRE(ops->add_memory(w.engine, &memory) == 0);
	wait_readable();
	REQUIRE(ops->poll(w.engine) == NULL);
}

static uint64_t
slot_at(uint32_t i)
{
	return 4096 + i * w.stride;
}

static void
model_copy(enum scout__copy_direction direction, uint32_t item, const int64_t *ids)
{
	uint8_t *at = w.model + slot_at(item);

	for (uint32_t p = 0; p < w.layout.n_planes; p++)
		for (uint32_t b = 0; b < w.layout.blocks_per_chunk; b++, at += w.planes[p].block_bytes) {
			uint8_t *page = ids[b] < 0 ? NULL : w.host[p] + (uint64_t)ids[b] * w.planes[p].stride;

			if (direction == SCOUT__COPY_SAVE && page)
				memcpy(at, page, w.planes[p].block_bytes);
			else if (direction == SCOUT__COPY_SAVE)
				memset(at, 0, w.planes[p].block_bytes);
			else if (page)
				memcpy(page, at, w.planes[p].block_bytes);
		}
}

/* All of GPU and pool memory is as the model's, gaps and neighbours too. */
static void
require_as_model(void)
{
	for (uint32_t p = 0; p < w.layout.n_planes; p++) {
		uint8_t *now = malloc(span_of(p));

		REQUIRE(now);
		CUDA(cudaMemcpy(now, w.planes[p].base, span_of(p), cudaMemcpyDeviceToHost));
		REQUIRE(memcmp(now, w.host[p], span_of(p)) == 0);
		free(now);
	}
	REQUIRE(memcmp(w.slots, w.model, w.bytes) == 0);
}

static void
random_ids(int64_t *ids)
{
	uint64_t n = w.layout.n_blocks, want = (uint64_t)w.n_items * w.layout.blocks_per_chunk;
	int64_t *all = malloc(n * sizeof(*all)), swap;

	REQUIRE(all);
	for (uint64_t i = 0; i < n; i++)
		all[i] = (int64_t)i;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t j = below(4) ? i + below(n - i) : i;

		swap = all[i];
		all[i] = all[j];
		all[j] = swap;
	}
	for (uint64_t i = 0; i < want; i++)
		ids[i] = below(8) ? all[i] : -1;
	free(all);
}

static void
items_of(struct scout__copy_item *items, const int64_t *ids)
{
	for (uint32_t i = 0; i < w.n_items; i++)
		items[i] = (struct scout__copy_item){w.slots + slot_at(i), ids + (size_t)i * w.layout.blocks_per_chunk};
}

static void
copy_and_check(enum scout__copy_direction direction, const int64_t *ids)
{
	struct scout__copy_item items[MAX_ITEMS];
	struct scout__copy_batch batch = {.direction = direction, .n = w.n_items, .items = items};

	items_of(items, ids);
	for (uint32_t i = 0; i < w.n_items; i++)
		model_copy(direction, i, items[i].block_ids);
	REQUIRE(ops->start(w.engine, &batch) == 0);
	REQUIRE(next_ended() == &batch);
	REQUIRE(batch.status == 0 && batch.n_done == w.n_items);
}

/* ---- cases ---- */

static void
every_method_copies_every_byte_and_no_other(int i)
{
	static const struct {
		uint32_t n_planes, bpc, n_items;
		uint64_t bytes[3], padding[3];
	} shapes[] = {
		{3, 16, 6, {256, 4096, 33}, {0, 64, 7}},    {1, 16, 6, {1152, 1152, 1152}, {0, 0, 0}},
		{122, 8, 4, {512, 1000, 2049}, {0, 8, 15}}, {2, 4, 3, {1 << 20, 70001, 70001}, {0, 3, 3}},
		{2, 2000, 2, {16, 40, 40}, {0, 8, 8}},      {5, 1, 6, {2 << 20, 1, 65536}, {4096, 0, 0}},
	};
	int64_t ids[2000 * MAX_ITEMS];

	w.seed = 40 + (uint64_t)i;
	i %= 24;
	world(shapes[i / 4].n_planes, shapes[i / 4].bytes, shapes[i / 4].padding, shapes[i / 4].bpc,
	      shapes[i / 4].n_items, methods[i % 4]);
	for (int round = 0; round < 4; round++) {
		random_ids(ids);
		copy_and_check(SCOUT__COPY_SAVE, ids);
		random_ids(ids);
		copy_and_check(SCOUT__COPY_LOAD, ids);
		require_as_model();
	}
	ops->close(w.engine);
}

/* Ten thousand copies without a pause in random directions; all memory is compared every now and then. */
static void
ten_thousand_copies(int i)
{
	static const uint64_t bytes[3] = {256, 1000, 64}, padding[3] = {0, 24, 0};
	int64_t ids[16 * 2];

	w.seed = 900 + (uint64_t)i;
	world(12, bytes, padding, 16, 2, methods[i % 4]);
	for (int n = 0; n < 2500; n++) {
		random_ids(ids);
		copy_and_check(below(2) ? SCOUT__COPY_SAVE : SCOUT__COPY_LOAD, ids);
		if (n % 100 == 99)
			require_as_model();
	}
	ops->close(w.engine);
}

/* A stream that is busy for some milliseconds, and writes @value over plane 0 at its end. */
static void
busy_then_fill(cudaStream_t stream, int value)
{
	void *big;

	CUDA(cudaMalloc(&big, 1 << 30));
	for (int n = 0; n < 40; n++)
		CUDA(cudaMemsetAsync(big, n, 1 << 30, stream));
	CUDA(cudaMemsetAsync(w.planes[0].base, value, span_of(0), stream));
}

static void
a_save_waits_for_the_callers_event(int i)
{
	static const uint64_t bytes[3] = {4096, 4096, 4096}, padding[3] = {0, 0, 0};
	int64_t ids[16 * 2];
	struct scout__copy_item items[MAX_ITEMS];
	struct scout__copy_batch batch = {.direction = SCOUT__COPY_SAVE, .n = 2, .items = items};
	cudaStream_t stream;
	cudaEvent_t event;

	w.seed = 7;
	world(1, bytes, padding, 16, 2, methods[i]);
	random_ids(ids);
	items_of(items, ids);
	CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	busy_then_fill(stream, 0x5a);
	CUDA(cudaEventRecord(event, stream));
	batch.after = event;
	REQUIRE(ops->start(w.engine, &batch) == 0);
	REQUIRE(next_ended() == &batch && batch.status == 0);
	memset(w.host[0], 0x5a, span_of(0));
	for (uint32_t k = 0; k < 2; k++)
		model_copy(SCOUT__COPY_SAVE, k, items[k].block_ids);
	require_as_model();
	ops->close(w.engine);
}

static void
layers_have_events_behind_their_copies(int i)
{
	static const uint64_t bytes[3] = {65536, 4096, 256}, padding[3] = {0, 0, 0};
	static const uint32_t first_plane[4] = {0, 1, 2, 3};
	int64_t ids[16 * 4];
	struct scout__copy_item items[MAX_ITEMS];
	struct scout__copy_progress progress = {0, 0};
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
	world(3, bytes, padding, 16, 4, methods[i]);
	random_ids(ids);
	items_of(items, ids);
	CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (int l = 0; l < 3; l++) {
		CUDA(cudaEventCreateWithFlags(&events[l], cudaEventDisableTiming));
		layer_events[l] = events[l];
	}
	batch.layer_events = layer_events;
	for (uint32_t k = 0; k < 4; k++)
		model_copy(SCOUT__COPY_LOAD, k, items[k].block_ids);
	REQUIRE(ops->start(w.engine, &batch) == 0);
	for (unsigned l = 0; l < 3; l++) {
		while (atomic_load(&progress.enqueued) <= l)
			;
		CUDA(cudaStreamWaitEvent(stream, events[l], 0));
		CUDA(cudaMemcpyAsync(seen, w.planes[l].base, span_of(l), cudaMemcpyDeviceToHost, stream));
		CUDA(cudaStreamSynchronize(stream));
		REQUIRE(memcmp(seen, w.host[l], span_of(l)) == 0);
	}
	REQUIRE(next_ended() == &batch && batch.status == 0);
	REQUIRE(atomic_load(&progress.copied) == 3);
	require_as_model();
	ops->close(w.engine);
}

/* The engine copies, pins and unpins while another stream is being captured in the strictest mode. */
static void
a_capture_elsewhere_is_not_disturbed(int i)
{
	static const uint64_t bytes[3] = {4096, 100, 100}, padding[3] = {0, 0, 0};
	int64_t ids[16 * 4];
	struct scout__copy_memory more = {.bytes = 1 << 20, .stride = 1 << 20};
	cudaStream_t stream;
	cudaGraph_t graph;
	void *target;

	w.seed = 9;
	world(2, bytes, padding, 16, 4, methods[i]);
	CUDA(cudaMalloc(&target, 1 << 20));
	more.base = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(more.base != MAP_FAILED);
	CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	for (int n = 0; n < 20; n++) {
		CUDA(cudaMemsetAsync(target, n, 1 << 20, stream));
		random_ids(ids);
		copy_and_check(n & 1 ? SCOUT__COPY_SAVE : SCOUT__COPY_LOAD, ids);
	}
	REQUIRE(ops->add_memory(w.engine, &more) == 0);
	ops->remove_memory(w.engine, more.base);
	CUDA(cudaStreamEndCapture(stream, &graph));
	require_as_model();
	ops->close(w.engine);
}

static void
a_fence_makes_the_stream_wait(int i)
{
	static const uint64_t bytes[3] = {1 << 20, 1 << 20, 1 << 20}, padding[3] = {0, 0, 0};
	int64_t ids[16 * 6];
	struct scout__copy_item items[MAX_ITEMS];
	struct scout__copy_batch batch = {.direction = SCOUT__COPY_SAVE, .n = 6, .items = items};
	atomic_bool stop = false;
	cudaStream_t stream;

	w.seed = 10;
	world(1, bytes, padding, 16, 6, methods[i]);
	for (int64_t k = 0; k < 16 * 6; k++)
		ids[k] = k;
	items_of(items, ids);
	CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	batch.stop = &stop;
	REQUIRE(ops->start(w.engine, &batch) == 0);
	atomic_store(&stop, true);
	REQUIRE(ops->fence(w.engine, stream) == 0);
	/* The pages are the stream's now: what was saved must not see this. */
	CUDA(cudaMemsetAsync(w.planes[0].base, 0xee, span_of(0), stream));
	REQUIRE(next_ended() == &batch);
	REQUIRE(batch.status == SCOUT_ERR_CANCELED || batch.status == 0);
	for (uint32_t k = 0; k < batch.n_done; k++)
		REQUIRE(memcmp(w.slots + slot_at(k), w.host[0] + (uint64_t)k * (16 << 20), 16 << 20) == 0);
	CUDA(cudaStreamSynchronize(stream));
	ops->close(w.engine);
}

static void
memory_freed_under_a_retrieve_fails_the_device_and_not_the_process(int i)
{
	static const uint64_t bytes[3] = {4 << 20, 4 << 20, 4 << 20}, padding[3] = {0, 0, 0};
	int64_t ids[16 * 2];
	struct scout__copy_item items[MAX_ITEMS];
	struct scout__copy_batch batch = {.direction = SCOUT__COPY_LOAD, .n = 2, .items = items};

	w.seed = 11;
	world(1, bytes, padding, 16, 2, methods[i * 2]);
	for (int64_t k = 0; k < 16 * 2; k++)
		ids[k] = k;
	items_of(items, ids);
	CUDA(cudaFree(w.planes[0].base));
	REQUIRE(ops->start(w.engine, &batch) == 0);
	REQUIRE(next_ended() == &batch);
	REQUIRE(batch.status == SCOUT_ERR_DEVICE && batch.n_done < 2);
	REQUIRE(ops->start(w.engine, &batch) == 0);
	REQUIRE(next_ended() == &batch && batch.status == SCOUT_ERR_DEVICE);
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
	REQUIRE(ops->open(&cfg, &engine, err, sizeof(err)) == SCOUT_ERR_INVALID);
	REQUIRE(strstr(err, "planes[0]"));
	REQUIRE(!ops->claims(&cfg.layout));
}

static const struct gpu_case cases[] = {
	{"every_method_copies_every_byte_and_no_other", every_method_copies_every_byte_and_no_other, 24},
	{"ten_thousand_copies", ten_thousand_copies, 4},
	{"a_save_waits_for_the_callers_event", a_save_waits_for_the_callers_event, 4},
	{"layers_have_events_behind_their_copies", layers_have_events_behind_their_copies, 4},
	{"a_capture_elsewhere_is_not_disturbed", a_capture_elsewhere_is_not_disturbed, 4},
	{"a_fence_makes_the_stream_wait", a_fence_makes_the_stream_wait, 4},
	{"memory_freed_under_a_retrieve_fails_the_device_and_not_the_process",
	 memory_freed_under_a_retrieve_fails_the_device_and_not_the_process, 2},
	{"host_memory_is_no_plane", host_memory_is_no_plane, 1},
};

int
main(int argc, char **argv)
{
	static char err[300];
	const char *why_not = NULL;

	if (argc == 1 && ops->probe(0, err, sizeof(err)) != 0)
		why_not = err;
	return gpu_main(argc, argv, cases, (int)(sizeof(cases) / sizeof(cases[0])), why_not);
}
