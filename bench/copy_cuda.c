/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: kvscout-copy on a GPU.
 *
 * A KV cache as engines have it: planes of blocks of one size (16 blocks to a chunk, up to 128 planes, slots of at most 32 MiB),
 * its pages in random order. The same bytes move by each method of the copy engine and by one contiguous, pinned
 * cudaMemcpyAsync; slot to page (h2d), page to slot (d2h) and half of them each way at once. All ways take turns within each
 * round, in an order that rotates; ratios are taken within a round. Each engine has slots of its own, since memory is
 * pinned once; all share the pages.
 *
 * Every copy is verified: its destination is filled with a wrong pattern before, and every byte is compared with random data
 * after. Neither is in the time.
 *
 * The matrix product runs without a pause in a stream of its own while copies go both ways beside it, and is timed by
 * events; its time alone is taken before and after, as the mean of the two.
 *
 * Threads: main only, besides the engines'. All errors of CUDA end the program.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include <kvscout/error.h>

#include "clock.h"
#include "copy.h"
#include "copy_matmul.h"
#include "copy_tool.h"
#include "cuda_api.h"
#include "say.h"

#define BLOCKS_PER_CHUNK 16u
#define MAX_PLANES 128u
#define SLOT_BYTES (UINT64_C(32) << 20)
#define SMALLEST_PIECE 256u
#define LARGEST_PIECE (2u << 20)
#define WRONG 0xa5
#define WAIT_MS 60000
#define PRODUCT_N 2048
#define PRODUCTS 40

struct state {
	struct copy_sweep *sweep;
	uint64_t total, piece, slot_bytes, n_items;
	struct scout__copy_layout layout;
	struct scout__copy_plane planes[MAX_PLANES];
	int64_t *ids; /* n_items * BLOCKS_PER_CHUNK */
	struct scout__copy_item *items;
	uint8_t *random;             /* host: what slots hold, in their order */
	uint8_t *check;              /* host, pinned: pages as they are */
	uint8_t *slots[COPY_N_WAYS]; /* host; contiguous: pinned by us; engines': by them */
	uint8_t *pages;              /* GPU */
	uint8_t *page_image;         /* GPU: pages full of the random data, in their order */
	uint8_t *half_image;         /* GPU: as page_image, but the pages of the first half of the items are wrong */
	uint8_t *slot_image;         /* GPU: the random data as slots have it, for the contiguous copy */
	void *engines[COPY_N_WAYS];
	cudaStream_t up, down, product;
	cudaEvent_t begin, end;
	float *a, *b, *c;
};

static void
check_cuda(int rc, const char *what)
{
	if (rc != cudaSuccess)
		copy_die(EXIT_WRONG, "%s: %s", what, cudaGetErrorName((cudaError_t)rc));
}
#define CUDA(call) check_cuda((int)(call), #call)

/* ---- the memory ---- */

static void *
gpu_alloc(uint64_t bytes)
{
	void *p;

	CUDA(cudaMalloc(&p, bytes));
	return p;
}

static void *
pinned_alloc(uint64_t bytes)
{
	void *p;

	CUDA(cudaHostAlloc(&p, bytes, cudaHostAllocDefault));
	return p;
}

static void
set_up(struct state *s, struct copy_sweep *sweep)
{
	uint64_t seed = sweep->opt->seed, word, product = (uint64_t)PRODUCT_N * PRODUCT_N * sizeof(float);

	s->sweep = sweep;
	s->total = sweep->total_bytes;
	s->random = copy_alloc(s->total);
	for (uint64_t i = 0; i < s->total; i += sizeof(word)) {
		word = copy_random(&seed);
		memcpy(s->random + i, &word, sizeof(word));
	}
	s->check = pinned_alloc(s->total);
	s->slots[COPY_CONTIGUOUS] = pinned_alloc(s->total);
	for (unsigned int w = COPY_STAGED; w < COPY_N_WAYS; w++)
		s->slots[w] = copy_alloc(s->total);
	s->pages = gpu_alloc(s->total);
	s->page_image = gpu_alloc(s->total);
	s->half_image = gpu_alloc(s->total);
	s->slot_image = gpu_alloc(s->total);
	CUDA(cudaMemcpy(s->slot_image, s->random, s->total, cudaMemcpyHostToDevice));
	CUDA(cudaStreamCreateWithFlags(&s->up, cudaStreamNonBlocking));
	CUDA(cudaStreamCreateWithFlags(&s->down, cudaStreamNonBlocking));
	CUDA(cudaStreamCreateWithFlags(&s->product, cudaStreamNonBlocking));
	CUDA(cudaEventCreate(&s->begin));
	CUDA(cudaEventCreate(&s->end));
	s->a = gpu_alloc(product);
	s->b = gpu_alloc(product);
	s->c = gpu_alloc(product);
	CUDA(cudaMemset(s->a, 0, product));
	CUDA(cudaMemset(s->b, 0, product));
}

static void
tear_down(struct state *s)
{
	CUDA(cudaFree(s->a));
	CUDA(cudaFree(s->b));
	CUDA(cudaFree(s->c));
	CUDA(cudaEventDestroy(s->begin));
	CUDA(cudaEventDestroy(s->end));
	CUDA(cudaStreamDestroy(s->up));
	CUDA(cudaStreamDestroy(s->down));
	CUDA(cudaStreamDestroy(s->product));
	CUDA(cudaFree(s->pages));
	CUDA(cudaFree(s->page_image));
	CUDA(cudaFree(s->half_image));
	CUDA(cudaFree(s->slot_image));
	CUDA(cudaFreeHost(s->check));
	CUDA(cudaFreeHost(s->slots[COPY_CONTIGUOUS]));
	for (unsigned int w = COPY_STAGED; w < COPY_N_WAYS; w++)
		free(s->slots[w]);
	free(s->random);
}

/* Offset of a piece among the pages; plane by plane. */
static uint64_t
page_at(const struct state *s, uint64_t item, uint64_t plane, uint64_t block)
{
	return plane * s->layout.n_blocks * s->piece + (uint64_t)s->ids[item * BLOCKS_PER_CHUNK + block] * s->piece;
}

/* Walk all pieces of items [first, end): compare, or copy from slot order to page order. Returns wrong bytes. */
static uint64_t
walk(const struct state *s, uint64_t first, uint64_t end, const uint8_t *slots, uint8_t *pages, bool fill)
{
	uint64_t wrong = 0;

	for (uint64_t i = first; i < end; i++)
		for (uint64_t p = 0; p < s->layout.n_planes; p++)
			for (uint64_t b = 0; b < BLOCKS_PER_CHUNK; b++) {
				const uint8_t *in_slot =
					slots + i * s->slot_bytes + (p * BLOCKS_PER_CHUNK + b) * s->piece;
				uint8_t *page = pages + page_at(s, i, p, b);

				if (fill)
					memcpy(page, in_slot, s->piece);
				else if (memcmp(page, in_slot, s->piece) != 0)
					for (uint64_t k = 0; k < s->piece; k++)
						wrong += page[k] != in_slot[k];
			}
	return wrong;
}

/* Pieces of another size: the layout, the order of the pages, and the pages' random data. */
static void
lay_out(struct state *s, uint64_t piece)
{
	uint64_t seed = s->sweep->opt->seed + piece, planes = SLOT_BYTES / (BLOCKS_PER_CHUNK * piece);

	s->piece = piece;
	planes = planes > MAX_PLANES ? MAX_PLANES : planes;
	s->slot_bytes = planes * BLOCKS_PER_CHUNK * piece;
	s->n_items = s->total / s->slot_bytes;
	s->layout = (struct scout__copy_layout){.planes = s->planes,
						.n_planes = (uint32_t)planes,
						.blocks_per_chunk = BLOCKS_PER_CHUNK,
						.n_blocks = s->n_items * BLOCKS_PER_CHUNK};
	for (uint64_t p = 0; p < planes; p++)
		s->planes[p] = (struct scout__copy_plane){
			.base = s->pages + p * s->layout.n_blocks * piece, .stride = piece, .block_bytes = piece};
	s->ids = copy_alloc(s->layout.n_blocks * sizeof(*s->ids));
	s->items = copy_alloc(s->n_items * sizeof(*s->items));
	copy_shuffle(s->ids, s->layout.n_blocks, &seed);
	memset(s->check, WRONG, s->total);
	(void)walk(s, s->n_items / 2, s->n_items, s->random, s->check, true);
	CUDA(cudaMemcpy(s->half_image, s->check, s->total, cudaMemcpyHostToDevice));
	(void)walk(s, 0, s->n_items / 2, s->random, s->check, true);
	CUDA(cudaMemcpy(s->page_image, s->check, s->total, cudaMemcpyHostToDevice));
}

/* ---- the engines ---- */

static bool
is_wanted(const struct state *s, unsigned int way)
{
	const struct copy_options *opt = s->sweep->opt;

	return way == COPY_CONTIGUOUS || !opt->has_method || strcmp(opt->method, copy_way_names[way]) == 0;
}

static void
wait_fd(void *engine)
{
	struct pollfd pfd = {.fd = scout__copy_cuda.fd(engine), .events = POLLIN};

	if (poll(&pfd, 1, WAIT_MS) == 0)
		copy_die(EXIT_WRONG, "the engine said nothing for %d ms", WAIT_MS);
}

static void
open_engine(struct state *s, unsigned int way)
{
	struct scout__copy_config cfg = {
		.layout = s->layout, .max_batches = 2, .device = s->sweep->opt->device, .method = copy_way_names[way]};
	struct scout__copy_memory memory = {
		.base = s->slots[way], .bytes = s->total, .first_slot = 0, .stride = s->slot_bytes};
	char err[300] = "";
	int rc = scout__copy_cuda.open(&cfg, &s->engines[way], err, sizeof(err));

	if (rc)
		copy_die(EXIT_WRONG, "backend cuda: %s (%s)", err, scout_err_name(rc));
	rc = scout__copy_cuda.add_memory(s->engines[way], &memory);
	if (rc)
		copy_die(EXIT_WRONG, "backend cuda: %s", scout_strerror(rc));
	/* It is pinned when the descriptor says so; a failure shows in the first copy. */
	wait_fd(s->engines[way]);
	(void)scout__copy_cuda.poll(s->engines[way]);
}

static void
close_engines(struct state *s)
{
	for (unsigned int w = COPY_STAGED; w < COPY_N_WAYS; w++) {
		if (!s->engines[w])
			continue;
		scout__copy_cuda.remove_memory(s->engines[w], s->slots[w]);
		scout__copy_cuda.close(s->engines[w]);
		s->engines[w] = NULL;
	}
	free(s->ids);
	free(s->items);
}

/* ---- one copy ---- */

/* Items [0, split) go to the GPU, the others from it. */
static uint64_t
split_of(const struct state *s, unsigned int course)
{
	if (course == COPY_BOTH)
		return s->n_items / 2;
	return course == COPY_H2D ? s->n_items : 0;
}

static void
copy_contiguous(struct state *s, uint64_t split)
{
	uint64_t up = split * s->slot_bytes, down = s->n_items * s->slot_bytes - up;
	uint8_t *host = s->slots[COPY_CONTIGUOUS];

	if (up)
		CUDA(cudaMemcpyAsync(s->pages, host, up, cudaMemcpyHostToDevice, s->up));
	if (down)
		CUDA(cudaMemcpyAsync(host + up, s->slot_image + up, down, cudaMemcpyDeviceToHost, s->down));
	CUDA(cudaStreamSynchronize(s->up));
	CUDA(cudaStreamSynchronize(s->down));
}

static void
copy_by_engine(struct state *s, unsigned int way, uint64_t split)
{
	struct scout__copy_batch up = {.direction = SCOUT__COPY_LOAD, .n = (uint32_t)split, .items = s->items};
	struct scout__copy_batch down = {
		.direction = SCOUT__COPY_SAVE, .n = (uint32_t)(s->n_items - split), .items = s->items + split};
	unsigned int left = 0;
	int rc = 0;

	for (uint64_t i = 0; i < s->n_items; i++)
		s->items[i] = (struct scout__copy_item){.slot = s->slots[way] + i * s->slot_bytes,
							.block_ids = s->ids + i * BLOCKS_PER_CHUNK};
	if (up.n) {
		rc = scout__copy_cuda.start(s->engines[way], &up);
		left++;
	}
	if (down.n && rc == 0) {
		rc = scout__copy_cuda.start(s->engines[way], &down);
		left++;
	}
	if (rc)
		copy_die(EXIT_WRONG, "the engine refuses a batch (%s)", scout_err_name(rc));
	while (left > 0) {
		if (scout__copy_cuda.poll(s->engines[way]))
			left--;
		else
			wait_fd(s->engines[way]);
	}
	if (up.status || down.status)
		copy_die(EXIT_WRONG, "the engine failed a copy (%s)",
			 scout_err_name(up.status ? up.status : down.status));
}

static void
copy_once(struct state *s, unsigned int way, uint64_t split)
{
	if (way == COPY_CONTIGUOUS)
		copy_contiguous(s, split);
	else
		copy_by_engine(s, way, split);
}

/* Sources are right, destinations wrong. */
static void
prepare(struct state *s, unsigned int way, uint64_t split)
{
	uint64_t up = split * s->slot_bytes;

	memcpy(s->slots[way], s->random, up);
	memset(s->slots[way] + up, WRONG, s->total - up);
	if (split == s->n_items || way == COPY_CONTIGUOUS)
		CUDA(cudaMemset(s->pages, WRONG, s->total));
	else
		CUDA(cudaMemcpy(s->pages, split ? s->half_image : s->page_image, s->total, cudaMemcpyDeviceToDevice));
	CUDA(cudaDeviceSynchronize());
}

static void
verify(struct state *s, unsigned int way, uint64_t split)
{
	uint64_t up = split * s->slot_bytes, all = s->n_items * s->slot_bytes, wrong = 0;

	CUDA(cudaMemcpy(s->check, s->pages, s->total, cudaMemcpyDeviceToHost));
	if (way == COPY_CONTIGUOUS) {
		for (uint64_t k = 0; k < up; k++)
			wrong += s->check[k] != s->random[k];
	} else {
		wrong += walk(s, 0, split, s->random, s->check, false);
	}
	if (memcmp(s->slots[way] + up, s->random + up, all - up) != 0)
		for (uint64_t k = up; k < all; k++)
			wrong += s->slots[way][k] != s->random[k];
	s->sweep->verified_bytes += all;
	s->sweep->wrong_bytes += wrong;
}

/* GB/s */
static double
run_one(struct state *s, unsigned int way, unsigned int course)
{
	uint64_t split = split_of(s, course), begin_ns, end_ns;

	prepare(s, way, split);
	begin_ns = scout__now_ns();
	copy_once(s, way, split);
	end_ns = scout__now_ns();
	verify(s, way, split);
	return (double)(s->n_items * s->slot_bytes) / (double)(end_ns > begin_ns ? end_ns - begin_ns : 1);
}

static void
run_course(struct state *s, struct copy_point *point, unsigned int course)
{
	static double gbps[COPY_N_WAYS][COPY_MAX_REPEAT];
	uint64_t n = s->sweep->opt->repeat;

	/* The first round warms up and does not count. */
	for (uint64_t round = 0; round <= n; round++) {
		for (unsigned int k = 0; k < COPY_N_WAYS; k++) {
			unsigned int w = (unsigned int)((k + round) % COPY_N_WAYS);

			if (is_wanted(s, w))
				gbps[w][round ? round - 1 : 0] = run_one(s, w, course);
		}
	}
	for (unsigned int w = COPY_N_WAYS; w-- > 0;) {
		if (!is_wanted(s, w))
			continue;
		point->ran[w] = true;
		point->gbps[course][w] = copy_summarize(gbps[w], n);
		for (uint64_t round = 0; round < n && w != COPY_CONTIGUOUS; round++)
			gbps[w][round] /= gbps[COPY_CONTIGUOUS][round];
		if (w != COPY_CONTIGUOUS)
			point->ratio[course][w] = copy_summarize(gbps[w], n);
	}
}

/* ---- beside a matrix product ---- */

/* Milliseconds of PRODUCTS products; with copies by @way beside them, or COPY_N_WAYS: alone. */
static double
time_products(struct state *s, unsigned int way)
{
	float ms = 0;
	int rc;

	CUDA(cudaEventRecord(s->begin, s->product));
	for (int i = 0; i < PRODUCTS; i++)
		CUDA(copy_matmul_launch(s->a, s->b, s->c, PRODUCT_N, s->product));
	CUDA(cudaEventRecord(s->end, s->product));
	while ((rc = (int)cudaEventQuery(s->end)) == cudaErrorNotReady) {
		if (way == COPY_N_WAYS)
			CUDA(cudaEventSynchronize(s->end));
		else
			copy_once(s, way, s->n_items / 2);
	}
	check_cuda(rc, "a matrix product");
	CUDA(cudaEventElapsedTime(&ms, s->begin, s->end));
	return (double)ms;
}

static void
run_products(struct state *s, struct copy_point *point)
{
	double values[COPY_N_WAYS][3], before, beside;

	(void)time_products(s, COPY_N_WAYS);
	for (unsigned int round = 0; round < 3; round++) {
		for (unsigned int w = 0; w < COPY_N_WAYS; w++) {
			if (!is_wanted(s, w))
				continue;
			before = time_products(s, COPY_N_WAYS);
			beside = time_products(s, w);
			s->sweep->product_ms = (before + time_products(s, COPY_N_WAYS)) / 2;
			values[w][round] = (beside / s->sweep->product_ms - 1) * 100;
		}
	}
	s->sweep->product_ms /= PRODUCTS;
	for (unsigned int w = 0; w < COPY_N_WAYS; w++)
		if (is_wanted(s, w))
			point->slower[w] = copy_summarize(values[w], 3).p50;
}

static void
run_point(struct state *s, uint64_t piece)
{
	struct copy_point *point = &s->sweep->points[s->sweep->n_points++];

	lay_out(s, piece);
	point->piece_bytes = piece;
	point->pieces = s->n_items * s->slot_bytes / piece;
	for (unsigned int w = COPY_STAGED; w < COPY_N_WAYS; w++)
		if (is_wanted(s, w))
			open_engine(s, w);
	for (unsigned int course = 0; course < COPY_N_COURSES; course++)
		run_course(s, point, course);
	run_products(s, point);
	close_engines(s);
}

static void
describe(struct copy_sweep *sweep)
{
	struct cudaDeviceProp properties;

	CUDA(cudaSetDevice(sweep->opt->device));
	CUDA(cudaGetDeviceProperties(&properties, sweep->opt->device));
	memcpy(sweep->gpu, properties.name, sizeof(sweep->gpu));
	sweep->gpu[sizeof(sweep->gpu) - 1] = 0;
	CUDA(cudaDriverGetVersion(&sweep->driver));
	CUDA(cudaRuntimeGetVersion(&sweep->runtime));
	sweep->has_batch = scout__cuda_runtime.has_batch();
}

/* The runtime says "driver too old" also where there is none; the version tells the two apart. */
int
copy_cuda_devices(void)
{
	struct cudaDeviceProp properties;
	int driver = 0, runtime = 0, n = 0, rc;

	(void)cudaRuntimeGetVersion(&runtime); /* fails never */
	if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
		say("no CUDA device: there is no driver\n");
		return EXIT_NOT_HERE;
	}
	rc = (int)cudaGetDeviceCount(&n);
	if (rc == cudaErrorNoDevice || (rc == 0 && n == 0)) {
		say("no CUDA device: the driver finds none\n");
		return EXIT_NOT_HERE;
	}
	for (int i = 0; i < n && rc == 0; i++) {
		rc = (int)cudaGetDeviceProperties(&properties, i);
		if (rc == 0)
			say("device %d: %s, compute capability %d.%d, %zu MiB\n", i, properties.name, properties.major,
			    properties.minor, properties.totalGlobalMem >> 20);
	}
	say("driver %d.%d, runtime %d.%d\n", driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
	if (rc == 0)
		return 0;
	say("the driver cannot be used: %s\n", cudaGetErrorName((cudaError_t)rc));
	return EXIT_WRONG;
}

static bool
is_method(const char *name)
{
	for (unsigned int w = COPY_STAGED; w < COPY_N_WAYS; w++)
		if (strcmp(name, copy_way_names[w]) == 0)
			return true;
	return false;
}

int
copy_cuda_run(const struct copy_options *opt)
{
	static struct copy_sweep sweep;
	static struct state state;
	char err[300] = "";

	if (opt->has_method && !is_method(opt->method))
		copy_die(EXIT_USAGE, "--method: \"%s\" is none of staged, batch, direct, auto", opt->method);
	if (opt->has_piece_bytes &&
	    (opt->piece_bytes < SMALLEST_PIECE || opt->piece_bytes > LARGEST_PIECE || opt->piece_bytes % 8))
		copy_die(EXIT_USAGE, "--piece-bytes: on cuda a multiple of 8 from %u to %u", SMALLEST_PIECE,
			 LARGEST_PIECE);
	if (scout__copy_cuda.probe(opt->device, err, sizeof(err)) != 0)
		copy_die(EXIT_NOT_HERE, "backend cuda: SCOUT_ERR_DEVICE: %s", err);
	sweep.opt = opt;
	sweep.total_bytes = opt->total_bytes / 8 * 8;
	describe(&sweep);
	set_up(&state, &sweep);
	if (opt->sweep || !opt->has_piece_bytes)
		for (uint64_t piece = SMALLEST_PIECE; piece <= LARGEST_PIECE; piece *= 2)
			run_point(&state, piece);
	else
		run_point(&state, opt->piece_bytes);
	tear_down(&state);
	if (opt->json)
		copy_report_json(&sweep, opt->json);
	if (opt->svg)
		copy_report_svg(&sweep, opt->svg);
	if (!opt->json || strcmp(opt->json, "-") != 0)
		copy_report_table(&sweep);
	if (sweep.wrong_bytes)
		copy_die(EXIT_WRONG, "%" PRIu64 " bytes are wrong", sweep.wrong_bytes);
	return 0;
}
