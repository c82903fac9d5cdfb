/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_world.h"

const struct scout__copy_ops *const ops = &scout__copy_cuda;

const struct scout__log engine_log = {.fn = gpu_say, .who = "engine"};

const char *const methods[] = {"staged", "batch", "auto"};

uint64_t
below(struct world *w, uint64_t n)
{
	uint64_t z = w->seed += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (z ^ (z >> 31)) % n;
}

void
fill_random(struct world *w, uint8_t *p, uint64_t n)
{
	uint64_t i = 0, z;

	for (; i + 8 <= n; i += 8) {
		z = below(w, UINT64_MAX);
		memcpy(p + i, &z, 8);
	}
	for (; i < n; i++)
		p[i] = (uint8_t)below(w, 256);
}

uint64_t
span_of(const struct world *w, uint32_t p)
{
	return w->planes[p].stride * w->layout.n_blocks;
}

void
wait_readable(const struct world *w)
{
	struct pollfd pfd = {.fd = ops->fd(w->engine), .events = POLLIN};

	REQUIRE(poll(&pfd, 1, WAIT_MS) == 1);
}

struct scout__copy_batch *
next_ended(struct world *w)
{
	struct scout__copy_batch *batch;

	while ((batch = ops->poll(w->engine)) == NULL)
		wait_readable(w);
	return batch;
}

static void
world_slots(struct world *w)
{
	int flags = w->slots_fd ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS;

	w->bytes = (4096 + w->stride * w->n_items + 4095) / 4096 * 4096;
	if (w->slots_fd)
		REQUIRE(ftruncate(w->slots_fd, (off_t)w->bytes) == 0);
	w->slots = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, flags, w->slots_fd ? w->slots_fd : -1, 0);
	REQUIRE(w->slots != MAP_FAILED);
	fill_random(w, w->slots, w->bytes);
	w->model = malloc(w->bytes);
	REQUIRE(w->model);
	memcpy(w->model, w->slots, w->bytes);
}

void
world_init(struct world *w, const struct shape *shape)
{
	w->layout = (struct scout__copy_layout){.planes = w->planes,
						.n_planes = shape->n_planes,
						.blocks_per_chunk = shape->blocks_per_chunk,
						.n_blocks = (uint64_t)shape->blocks_per_chunk * shape->n_items + 7};
	for (uint32_t p = 0; p < shape->n_planes; p++) {
		w->planes[p].block_bytes = shape->bytes[p % 3];
		w->planes[p].stride = shape->bytes[p % 3] + shape->padding[p % 3];
		w->host[p] = malloc(span_of(w, p));
		REQUIRE(w->host[p]);
		fill_random(w, w->host[p], span_of(w, p));
		w->planes[p].base = w->alloc ? w->alloc(span_of(w, p)) : plain_alloc(span_of(w, p));
		CUDA(gpu_write(w->planes[p].base, w->host[p], span_of(w, p)));
	}
	w->n_items = shape->n_items;
	w->shard = scout__copy_shard_bytes(&w->layout);
	w->stride = (w->shard + 63) / 64 * 64;
	world_slots(w);
}

void
world_open(struct world *w, const char *method)
{
	struct scout__copy_config cfg = {
		.layout = w->layout, .max_batches = 64, .method = method, .stage_bytes = 4 << 20, .log = &engine_log};
	struct scout__copy_memory memory = {
		.base = w->slots, .bytes = w->bytes, .first_slot = 4096, .stride = w->stride};
	char err[300] = "";

	if (ops->open(&cfg, &w->engine, err, sizeof(err)) != 0)
		printf("# %s\n", err);
	REQUIRE(w->engine);
	REQUIRE(ops->add_memory(w->engine, &memory) == 0);
	wait_readable(w);
	REQUIRE(ops->poll(w->engine) == NULL);
}

void
world_make(struct world *w, const struct shape *shape, const char *method)
{
	world_init(w, shape);
	world_open(w, method);
}

uint64_t
slot_at(const struct world *w, uint32_t i)
{
	return 4096 + i * w->stride;
}

void
model_copy(struct world *w, enum scout__copy_direction direction, uint32_t item, const int64_t *ids)
{
	uint8_t *at = w->model + slot_at(w, item);

	for (uint32_t p = 0; p < w->layout.n_planes; p++)
		for (uint32_t b = 0; b < w->layout.blocks_per_chunk; b++, at += w->planes[p].block_bytes) {
			uint8_t *page = ids[b] < 0 ? NULL : w->host[p] + (uint64_t)ids[b] * w->planes[p].stride;

			if (direction == SCOUT__COPY_SAVE && page)
				memcpy(at, page, w->planes[p].block_bytes);
			else if (direction == SCOUT__COPY_SAVE)
				memset(at, 0, w->planes[p].block_bytes);
			else if (page)
				memcpy(page, at, w->planes[p].block_bytes);
		}
}

void
require_as_model(const struct world *w)
{
	for (uint32_t p = 0; p < w->layout.n_planes; p++)
		require_plane_is(w, p, w->planes[p].base, GPU_LEGACY);
	REQUIRE(memcmp(w->slots, w->model, w->bytes) == 0);
}

void
random_ids(struct world *w, int64_t *ids)
{
	uint64_t n = w->layout.n_blocks, want = (uint64_t)w->n_items * w->layout.blocks_per_chunk;
	int64_t *all = malloc(n * sizeof(*all)), swap;

	REQUIRE(all);
	for (uint64_t i = 0; i < n; i++)
		all[i] = (int64_t)i;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t j = below(w, 4) ? i + below(w, n - i) : i;

		swap = all[i];
		all[i] = all[j];
		all[j] = swap;
	}
	for (uint64_t i = 0; i < want; i++)
		ids[i] = below(w, 8) ? all[i] : -1;
	free(all);
}

void
items_of(const struct world *w, struct scout__copy_item *items, const int64_t *ids)
{
	for (uint32_t i = 0; i < w->n_items; i++)
		items[i] = (struct scout__copy_item){w->slots + slot_at(w, i),
						     ids + (size_t)i * w->layout.blocks_per_chunk};
}

void
copy_and_check(struct world *w, enum scout__copy_direction direction, const int64_t *ids)
{
	struct scout__copy_item items[MAX_ITEMS];
	struct scout__copy_batch batch = {.direction = direction, .n = w->n_items, .items = items};

	items_of(w, items, ids);
	for (uint32_t i = 0; i < w->n_items; i++)
		model_copy(w, direction, i, items[i].block_ids);
	REQUIRE(ops->start(w->engine, &batch) == 0);
	REQUIRE(next_ended(w) == &batch);
	REQUIRE(batch.status == 0 && batch.n_done == w->n_items);
}

void
round_trips(struct world *w, int n)
{
	int64_t *ids = malloc((size_t)w->n_items * w->layout.blocks_per_chunk * sizeof(*ids));

	REQUIRE(ids);
	for (int i = 0; i < n; i++) {
		random_ids(w, ids);
		copy_and_check(w, SCOUT__COPY_SAVE, ids);
		random_ids(w, ids);
		copy_and_check(w, SCOUT__COPY_LOAD, ids);
		require_as_model(w);
	}
	free(ids);
}

void
job_init(struct world *w, struct job *job, enum scout__copy_direction direction)
{
	memset(job, 0, sizeof(*job));
	random_ids(w, job->ids);
	items_of(w, job->items, job->ids);
	job->batch.direction = direction;
	job->batch.n = w->n_items;
	job->batch.items = job->items;
	job->batch.progress = &job->progress;
	job->batch.stop = &job->stop;
}

void
job_in_order(struct world *w, struct job *job, enum scout__copy_direction direction)
{
	job_init(w, job, direction);
	for (uint32_t i = 0; i < w->n_items * w->layout.blocks_per_chunk; i++)
		job->ids[i] = i;
}

void
job_model(struct world *w, const struct job *job)
{
	for (uint32_t k = 0; k < w->n_items; k++)
		model_copy(w, job->batch.direction, k, job->items[k].block_ids);
}

void
job_start(const struct world *w, struct job *job)
{
	REQUIRE(ops->start(w->engine, &job->batch) == 0);
}

void
job_end(struct world *w, const struct job *job, int status)
{
	REQUIRE(next_ended(w) == &job->batch && job->batch.status == status);
}

void
job_run(struct world *w, struct job *job)
{
	job_model(w, job);
	job_start(w, job);
	job_end(w, job, 0);
}

void
job_await_layer(const struct job *job, uint32_t layer)
{
	while (atomic_load(&job->progress.enqueued) <= layer)
		;
}

void
busy_then_fill(const struct world *w, CUstream stream, uint32_t p, int value)
{
	keep_busy(stream);
	CUDA(gpu_fill(w->planes[p].base, value, span_of(w, p), stream));
}

void
require_plane_is(const struct world *w, uint32_t p, const void *copy, CUstream stream)
{
	uint8_t *now = malloc(span_of(w, p));

	REQUIRE(now);
	CUDA(gpu.copy_to_host(now, GPU(copy), span_of(w, p), stream));
	CUDA(gpu.stream_sync(stream));
	REQUIRE(memcmp(now, w->host[p], span_of(w, p)) == 0);
	free(now);
}

int
world_main(int argc, char **argv, const struct gpu_case *cases, int n)
{
	static char err[300];

	return gpu_main(argc, argv, cases, n, argc == 1 && ops->probe(0, err, sizeof(err)) != 0 ? err : NULL);
}
