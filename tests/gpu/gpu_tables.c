/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA backend with several page tables on a real GPU: every method on random planes and blocks, layers that are empty for some
 * tables, the caller's events, the fence, an engine that is closed under its copies and opened on other tables.
 */
#include <sched.h>

#include "gpu_world.h"

#define TABLES 4u
#define PLANES 6u
#define BLOCKS 48u /* pages of a table */
#define BPC 8u     /* blocks of a slot, at most */
#define SLOTS 12u
#define LAYERS 8u

struct table {
	struct scout__copy_plane planes[PLANES];
	uint8_t *host[PLANES]; /* what they should hold */
};

static struct world w; /* random numbers, slots and engine; its own table is not used */
static struct table tables[TABLES];
static struct scout__copy_layout layouts[TABLES];
static uint32_t n_tables, n_layers, first_plane[(LAYERS + 1) * TABLES];
static int64_t ids[SLOTS][BPC];
static struct scout__copy_item items[SLOTS];

static uint64_t
plane_bytes(uint32_t t, uint32_t p)
{
	return layouts[t].n_blocks * tables[t].planes[p].stride;
}

static void
make_table(uint32_t t)
{
	static const uint64_t sizes[] = {1, 33, 256, 1000, 4096, 65536, 200001};

	layouts[t] = (struct scout__copy_layout){.planes = tables[t].planes,
						 .n_planes = 1 + (uint32_t)below(&w, PLANES),
						 .blocks_per_chunk = 1 + (uint32_t)below(&w, BPC),
						 .n_blocks = BLOCKS + t,
						 .group = t};
	for (uint32_t p = 0; p < layouts[t].n_planes; p++) {
		struct scout__copy_plane *plane = &tables[t].planes[p];

		plane->block_bytes = sizes[below(&w, sizeof(sizes) / sizeof(sizes[0]))];
		plane->stride = plane->block_bytes + 24 * below(&w, 2);
		tables[t].host[p] = malloc(plane_bytes(t, p));
		REQUIRE(tables[t].host[p]);
		fill_random(&w, tables[t].host[p], plane_bytes(t, p));
		plane->base = plain_alloc(plane_bytes(t, p));
		CUDA(gpu_write(plane->base, tables[t].host[p], plane_bytes(t, p)));
	}
	w.stride = w.stride > scout__copy_shard_bytes(&layouts[t]) ? w.stride : scout__copy_shard_bytes(&layouts[t]);
}

static void
open_engine(const char *method)
{
	struct scout__copy_config cfg = {.layout = layouts[0],
					 .more = &layouts[1],
					 .n_more = n_tables - 1,
					 .max_batches = 16,
					 .method = method,
					 .stage_bytes = 4 << 20,
					 .log = &engine_log};
	struct scout__copy_memory memory = {.base = w.slots, .bytes = w.bytes, .first_slot = 4096, .stride = w.stride};
	char err[300] = "";

	w.engine = NULL;
	if (ops->open(&cfg, &w.engine, err, sizeof(err)) != 0)
		printf("# %s\n", err);
	REQUIRE(w.engine);
	REQUIRE(ops->add_memory(w.engine, &memory) == 0);
	wait_readable(&w);
	REQUIRE(ops->poll(w.engine) == NULL);
}

static void
make(uint64_t seed, const char *method)
{
	w.seed = seed;
	n_tables = 2 + (uint32_t)below(&w, TABLES - 1);
	for (uint32_t t = 0; t < n_tables; t++)
		make_table(t);
	w.stride = (w.stride + 63) / 64 * 64;
	w.bytes = (4096 + w.stride * SLOTS + 4095) / 4096 * 4096;
	w.slots = mmap(NULL, w.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	w.model = malloc(w.bytes);
	REQUIRE(w.slots != MAP_FAILED && w.model);
	fill_random(&w, w.slots, w.bytes);
	memcpy(w.model, w.slots, w.bytes);
	open_engine(method);
}

/* Layers at random: some take no plane of some tables. */
static void
random_layers(void)
{
	n_layers = 1 + (uint32_t)below(&w, LAYERS);
	for (uint32_t t = 0; t < n_tables; t++) {
		uint32_t at = 0;

		for (uint32_t l = 0; l < n_layers; l++) {
			first_plane[l * n_tables + t] = at;
			at += below(&w, 2) ? 0 : (uint32_t)below(&w, layouts[t].n_planes - at + 1);
		}
		first_plane[n_layers * n_tables + t] = layouts[t].n_planes;
	}
}

/* Slots [from, from + n) of tables below @n_of, each with pages of its own, some null. */
static void
random_items(uint32_t from, uint32_t n, uint32_t n_of)
{
	static bool used[TABLES][BLOCKS];

	if (from == 0)
		memset(used, 0, sizeof(used));
	for (uint32_t i = from; i < from + n; i++) {
		uint32_t t = (uint32_t)below(&w, n_of);

		items[i] = (struct scout__copy_item){w.slots + slot_at(&w, i), ids[i], t};
		for (uint32_t b = 0; b < BPC; b++) {
			uint64_t id = below(&w, BLOCKS);

			ids[i][b] = used[t][id] || below(&w, 8) == 0 ? -1 : (int64_t)id;
			used[t][id] = true;
		}
	}
}

/* What the batch does, in the model. */
static void
model_of(const struct scout__copy_batch *batch)
{
	for (uint32_t i = 0; i < batch->n; i++) {
		uint32_t t = batch->items[i].table;
		uint8_t *at = w.model + (batch->items[i].slot - w.slots);

		for (uint32_t p = 0; p < layouts[t].n_planes; p++)
			for (uint32_t b = 0; b < layouts[t].blocks_per_chunk; b++) {
				const struct scout__copy_plane *plane = &tables[t].planes[p];
				int64_t id = batch->items[i].block_ids[b];
				uint8_t *page = id < 0 ? NULL : tables[t].host[p] + (uint64_t)id * plane->stride;

				if (batch->direction == SCOUT__COPY_LOAD && page)
					memcpy(page, at, plane->block_bytes);
				else if (batch->direction == SCOUT__COPY_SAVE && page)
					memcpy(at, page, plane->block_bytes);
				else if (batch->direction == SCOUT__COPY_SAVE)
					memset(at, 0, plane->block_bytes);
				at += plane->block_bytes;
			}
	}
}

static void
require_page_table_is(uint32_t t, uint32_t p, CUstream stream)
{
	uint8_t *now = malloc(plane_bytes(t, p));

	REQUIRE(now);
	CUDA(gpu.copy_to_host(now, GPU(tables[t].planes[p].base), plane_bytes(t, p), stream));
	CUDA(gpu.stream_sync(stream));
	REQUIRE(memcmp(now, tables[t].host[p], plane_bytes(t, p)) == 0);
	free(now);
}

static void
require_all(void)
{
	for (uint32_t t = 0; t < n_tables; t++)
		for (uint32_t p = 0; p < layouts[t].n_planes; p++)
			require_page_table_is(t, p, GPU_PER_THREAD);
	REQUIRE(memcmp(w.slots, w.model, w.bytes) == 0);
}

static struct scout__copy_batch
batch_of(enum scout__copy_direction direction, uint32_t n, bool layered)
{
	random_items(0, n, 1 + (uint32_t)below(&w, n_tables));
	random_layers();
	return (struct scout__copy_batch){.direction = direction,
					  .n = n,
					  .items = items,
					  .n_layers = layered ? n_layers : 0,
					  .first_plane = first_plane};
}

static void
run(struct scout__copy_batch *batch)
{
	REQUIRE(ops->start(w.engine, batch) == 0);
	REQUIRE(next_ended(&w) == batch);
	REQUIRE(batch->status == 0 && batch->n_done == batch->n);
}

static void
every_method_copies_every_table(int i)
{
	make(100 + (uint64_t)i, methods[i % 3]);
	for (int n = 0; n < 12; n++) {
		struct scout__copy_batch batch =
			batch_of(n & 1 ? SCOUT__COPY_LOAD : SCOUT__COPY_SAVE, (uint32_t)below(&w, SLOTS + 1), n & 2);

		model_of(&batch);
		run(&batch);
		require_all();
	}
	ops->close(w.engine);
}

/* Each layer of all tables is read by a stream behind its event, while the next ones are copied. */
static void
layers_of_all_tables_have_events(int i)
{
	struct scout__copy_progress progress = {.enqueued = 0};
	CUstream stream = new_stream();
	void *events[LAYERS];

	make(300 + (uint64_t)i, methods[i % 3]);
	for (uint32_t l = 0; l < LAYERS; l++)
		events[l] = new_event();
	for (int n = 0; n < 6; n++) {
		struct scout__copy_batch batch = batch_of(SCOUT__COPY_LOAD, SLOTS, true);

		atomic_store(&progress.enqueued, 0);
		atomic_store(&progress.copied, 0);
		batch.progress = &progress;
		batch.layer_events = events;
		batch.event = events[n_layers - 1]; /* recorded twice, the same place */
		model_of(&batch);
		REQUIRE(ops->start(w.engine, &batch) == 0);
		for (uint32_t l = 0; l < n_layers; l++) {
			while (atomic_load(&progress.enqueued) <= l)
				;
			CUDA(gpu.stream_wait(stream, events[l], 0));
			for (uint32_t t = 0; t < n_tables; t++)
				for (uint32_t p = first_plane[l * n_tables + t];
				     p < first_plane[(l + 1) * n_tables + t]; p++)
					require_page_table_is(t, p, stream);
		}
		REQUIRE(next_ended(&w) == &batch && batch.status == 0);
		REQUIRE(atomic_load(&progress.copied) == n_layers);
		require_all();
	}
	ops->close(w.engine);
}

/* The forward pass computes layer after layer, far behind; each is saved behind its own event. */
static void
layers_of_all_tables_are_saved_behind_their_events(int i)
{
	CUstream stream = new_stream();
	struct scout__copy_batch batch;
	void *events[LAYERS];

	make(500 + (uint64_t)i, methods[i % 3]);
	batch = batch_of(SCOUT__COPY_SAVE, SLOTS, true);
	for (uint32_t l = 0; l < n_layers; l++) {
		keep_busy(stream);
		for (uint32_t t = 0; t < n_tables; t++)
			for (uint32_t p = first_plane[l * n_tables + t]; p < first_plane[(l + 1) * n_tables + t]; p++) {
				CUDA(gpu_fill(tables[t].planes[p].base, (int)(l + 1), plane_bytes(t, p), stream));
				memset(tables[t].host[p], (int)(l + 1), plane_bytes(t, p));
			}
		events[l] = new_event();
		CUDA(gpu.event_record(events[l], stream));
	}
	batch.layer_events = events;
	model_of(&batch);
	run(&batch);
	CUDA(gpu.stream_sync(stream)); /* a layer that is no part of the batch may be written later */
	require_all();
	ops->close(w.engine);
}

/* The pages of all tables are the stream's behind a fence. */
static void
a_fence_waits_for_every_table(int i)
{
	CUstream stream = new_stream();

	make(700 + (uint64_t)i, methods[i % 3]);
	for (int n = 0; n < 20; n++) {
		struct scout__copy_batch batch = batch_of(SCOUT__COPY_LOAD, SLOTS, n & 1);
		atomic_bool stop = false;

		batch.stop = &stop;
		REQUIRE(ops->start(w.engine, &batch) == 0);
		if (n & 2)
			(void)sched_yield();
		atomic_store(&stop, true);
		REQUIRE(ops->fence(w.engine, stream, NULL) == 0);
		for (uint32_t t = 0; t < n_tables; t++)
			for (uint32_t p = 0; p < layouts[t].n_planes; p++) {
				CUDA(gpu_fill(tables[t].planes[p].base, 0x77, plane_bytes(t, p), stream));
				memset(tables[t].host[p], 0x77, plane_bytes(t, p));
			}
		REQUIRE(next_ended(&w) == &batch);
		REQUIRE(batch.status == SCOUT_ERR_CANCELED || batch.status == 0);
		CUDA(gpu.stream_sync(stream));
		require_all();
	}
	ops->close(w.engine);
}

/* As at unregister and register: nothing of the old engine's is written once close() has returned, and other tables follow. */
static void
closed_under_copies_and_opened_on_other_tables(int i)
{
	make(900 + (uint64_t)i, methods[i % 3]);
	for (int n = 0; n < 6; n++) {
		struct scout__copy_batch batches[3], again;

		random_layers();
		for (uint32_t b = 0; b < 3; b++) {
			random_items(4 * b, 4, n_tables);
			batches[b] = (struct scout__copy_batch){.direction = SCOUT__COPY_LOAD,
								.n = 4,
								.items = items + (size_t)4 * b,
								.n_layers = n & 1 ? n_layers : 0,
								.first_plane = first_plane};
			REQUIRE(ops->start(w.engine, &batches[b]) == 0);
		}
		ops->close(w.engine);
		for (uint32_t t = 0; t < n_tables; t++)
			for (uint32_t p = 0; p < layouts[t].n_planes; p++) {
				CUDA(gpu_set(tables[t].planes[p].base, 0x66, plane_bytes(t, p)));
				memset(tables[t].host[p], 0x66, plane_bytes(t, p));
			}
		require_all();
		/* The same memory, in blocks of another size. */
		for (uint32_t t = 0; t < n_tables; t++)
			layouts[t].blocks_per_chunk =
				layouts[t].blocks_per_chunk > 1 ? layouts[t].blocks_per_chunk - 1 : 1;
		open_engine(methods[(i + n) % 3]);
		again = batch_of(SCOUT__COPY_LOAD, SLOTS, false);
		model_of(&again);
		run(&again);
		require_all();
	}
	ops->close(w.engine);
}

/* One of the tables lies in this process's own memory. */
static void
each_table_must_be_the_devices(int i)
{
	uint8_t page[64];
	struct scout__copy_plane plane = {page, 64, 64};
	struct scout__copy_config cfg = {.max_batches = 1, .n_more = 1};
	struct scout__copy_layout more = {
		.planes = &plane, .n_planes = 1, .blocks_per_chunk = 1, .n_blocks = 1, .group = 7};
	char err[300] = "";
	void *engine = NULL;

	(void)i;
	make(1, "auto");
	cfg.layout = layouts[0];
	cfg.more = &more;
	REQUIRE(ops->open(&cfg, &engine, err, sizeof(err)) == SCOUT_ERR_INVALID);
	REQUIRE(strstr(err, "the table of group 7: planes[0]"));
	ops->close(w.engine);
}

static const struct gpu_case cases[] = {
	{"every_method_copies_every_table", every_method_copies_every_table, 24},
	{"layers_of_all_tables_have_events", layers_of_all_tables_have_events, 6},
	{"layers_of_all_tables_are_saved_behind_their_events", layers_of_all_tables_are_saved_behind_their_events, 6},
	{"a_fence_waits_for_every_table", a_fence_waits_for_every_table, 3},
	{"closed_under_copies_and_opened_on_other_tables", closed_under_copies_and_opened_on_other_tables, 3},
	{"each_table_must_be_the_devices", each_table_must_be_the_devices, 1},
};

int
main(int argc, char **argv)
{
	return world_main(argc, argv, cases, (int)(sizeof(cases) / sizeof(cases[0])));
}
