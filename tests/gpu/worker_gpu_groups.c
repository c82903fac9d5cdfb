/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One worker with the page tables of three groups on a real GPU: full attention, a sliding window and a recurrent state, with blocks
 * of other sizes, other numbers of planes, and null blocks.
 */
#include "worker_gpu_groups.h"

#include "gpu_worker_rig.h"

#define GROUPS 3u
#define FIRST 200 /* page that a retrieve begins with */

/* Blocks of a chunk, and planes, of each group. Its pages are those of rig.engines[group]. */
static const uint32_t bpc[GROUPS] = {4, 2, 1};
static const uint32_t n_planes[GROUPS] = {3, 1, 2};
/* Three layers of all groups: the window has none in the first, the state none in the second. */
static const uint32_t n_layers = 3, layer_planes[3 * GROUPS] = {1, 0, 1, 1, 1, 0, 1, 0, 1};

static void
register_groups(void)
{
	struct scout_table tables[GROUPS];
	char err[400] = "";
	int rc;

	for (uint32_t g = 0; g < GROUPS; g++)
		tables[g] = (struct scout_table){.group = g,
						 .block_tokens = CHUNK_TOKENS / bpc[g],
						 .n_planes = n_planes[g],
						 .planes = rig.engines[g].planes,
						 .n_blocks = N_PAGES,
						 .null_block = 0};
	rc = scout_worker_register(rig.engines[0].worker, tables, GROUPS, DEADLINE_MS, err, sizeof(err));
	if (rc)
		printf("# register: %s: %s\n", scout_err_name(rc), err);
	REQUIRE(rc == 0);
}

static void
start_groups(const char *backend, const char *method)
{
	rig.group = "all window:128 state";
	start_server_and_client();
	for (uint32_t g = 0; g < GROUPS; g++)
		pages_init(g, plain_alloc);
	rig.engines[0].worker = worker_new(0, backend, method);
	register_groups();
}

/* Pages of all groups for the whole prompt. */
struct block_table {
	int64_t ids[GROUPS][CHUNKS * BPC];
	struct scout_blocks blocks[GROUPS];
};

static bool
is_needed(uint32_t g, uint64_t chunk)
{
	return g == 0 || (g == 1 && chunk + 2 >= CHUNKS) || chunk + 1 == CHUNKS;
}

/* From page @first on; @needed_only: no pages for what the hit does without. */
static void
make_blocks(struct block_table *t, int64_t first, bool needed_only)
{
	for (uint32_t g = 0; g < GROUPS; g++) {
		for (uint64_t b = 0; b < CHUNKS * bpc[g]; b++)
			t->ids[g][b] =
				!needed_only || is_needed(g, b / bpc[g]) ? first + (int64_t)b : (int64_t)b % 2 - 1;
		t->blocks[g] = (struct scout_blocks){.group = g, .ids = t->ids[g], .n = CHUNKS * bpc[g]};
	}
}

static void
store_groups(uint32_t prompt, struct scout_store store)
{
	uint8_t hashes[CHUNKS * HASH];
	struct block_table table;
	struct scout_done done;
	uint64_t job;

	make_blocks(&table, 1, false);
	hashes_of(hashes, prompt);
	store.hashes = hashes;
	store.hash_len = HASH;
	store.n = CHUNKS;
	store.blocks = table.blocks;
	store.n_groups = GROUPS;
	REQUIRE(scout_worker_store(rig.engines[0].worker, &store, &job) == 0);
	done = wait_done(0, job);
	REQUIRE(done.status == 0 && done.chunks == GROUPS * CHUNKS);
}

static void
fill_groups(uint32_t prompt)
{
	for (uint32_t g = 0; g < GROUPS; g++)
		for (uint64_t b = 0; b < CHUNKS * bpc[g]; b++)
			fill(g, 1 + (int64_t)b, prompt, b);
}

static uint64_t
load_groups(uint32_t prompt, struct scout_retrieve retrieve)
{
	struct block_table table;
	uint64_t job;

	make_blocks(&table, FIRST, true);
	retrieve.ticket = look_up(prompt).ticket;
	retrieve.to_token = CHUNKS * CHUNK_TOKENS;
	retrieve.blocks = table.blocks;
	retrieve.n_groups = GROUPS;
	REQUIRE(scout_worker_retrieve(rig.engines[0].worker, &retrieve, &job) == 0);
	return job;
}

static bool
is_plane_untouched(uint32_t g, uint32_t p, int64_t id)
{
	static uint8_t now[1 << 17];
	uint64_t n = rig.engines[g].planes[p].stride;

	CUDA(gpu_read(now, page_at(&rig.engines[g], p, id), n));
	for (uint64_t b = 0; b < n; b++)
		if (now[b] != CANARY)
			return false;
	return true;
}

/* Planes [from, to) of the group hold the prompt from page FIRST on, and where a page is not needed what they held. */
static void
require_planes(uint32_t g, uint32_t from, uint32_t to, uint32_t prompt)
{
	for (uint32_t p = from; p < to; p++)
		for (uint64_t b = 0; b < CHUNKS * bpc[g]; b++) {
			int64_t id = FIRST + (int64_t)b;

			if (is_needed(g, b / bpc[g]))
				REQUIRE(plane_is(g, p, id, prompt, b));
			else
				REQUIRE(is_plane_untouched(g, p, id));
		}
}

static void
require_loaded(uint32_t prompt)
{
	for (uint32_t g = 0; g < GROUPS; g++) {
		require_planes(g, 0, n_planes[g], prompt);
		REQUIRE(page_holds(g, 0, CANARY) && page_holds(g, FIRST - 1, CANARY));
		REQUIRE(page_holds(g, FIRST + (int64_t)CHUNKS * bpc[g], CANARY));
	}
}

void
groups_come_back_in_other_pages(int i)
{
	struct scout_done done;

	start_groups(i & 1 ? "auto" : "cuda", methods[i / 2]);
	for (uint32_t prompt = 1; prompt < 6; prompt++) {
		fill_groups(prompt);
		store_groups(prompt, (struct scout_store){.ticket = 0});
		for (uint32_t g = 0; g < GROUPS; g++)
			pages_wipe(g);
		done = wait_done(0, load_groups(prompt, (struct scout_retrieve){.ticket = 0}));
		REQUIRE(done.status == 0 && done.chunks == CHUNKS + 2 + 1);
		require_loaded(prompt);
	}
	end();
}

/* The forward pass writes layer after layer, far behind; then each layer of all groups is read behind its event. */
void
groups_go_layer_by_layer(int i)
{
	struct scout_progress progress = {0};
	CUstream stream = new_stream();
	uint32_t first[GROUPS] = {0};
	void *events[3];
	uint64_t job;

	start_groups("cuda", methods[i]);
	fill_groups(9);
	for (uint32_t l = 0; l < n_layers; l++) {
		keep_busy(stream);
		for (uint32_t g = 0; g < GROUPS; g++)
			for (uint32_t p = first[g]; p < first[g] + layer_planes[l * GROUPS + g]; p++)
				for (uint64_t b = 0; b < CHUNKS * bpc[g]; b++) {
					/* What it writes lies ready elsewhere. */
					CUDA(gpu_copy(page_at(&rig.engines[g], p, 300 + (int64_t)b),
						      page_at(&rig.engines[g], p, 1 + (int64_t)b),
						      rig.engines[g].planes[p].block_bytes, GPU_LEGACY));
					CUDA(gpu_fill(page_at(&rig.engines[g], p, 1 + (int64_t)b), 0,
						      rig.engines[g].planes[p].block_bytes, GPU_LEGACY));
					CUDA(gpu.stream_sync(GPU_LEGACY));
					CUDA(gpu_copy(page_at(&rig.engines[g], p, 1 + (int64_t)b),
						      page_at(&rig.engines[g], p, 300 + (int64_t)b),
						      rig.engines[g].planes[p].block_bytes, stream));
				}
		for (uint32_t g = 0; g < GROUPS; g++)
			first[g] += layer_planes[l * GROUPS + g];
		events[l] = new_event();
		CUDA(gpu.event_record(events[l], stream));
	}
	store_groups(9,
		     (struct scout_store){.n_layers = n_layers, .layer_planes = layer_planes, .layer_events = events});
	for (uint32_t g = 0; g < GROUPS; g++) {
		pages_wipe(g);
		first[g] = 0;
	}
	job = load_groups(
		9, (struct scout_retrieve){.n_layers = n_layers, .layer_planes = layer_planes, .layer_events = events});
	for (uint32_t l = 0; l < n_layers; l++) {
		do
			REQUIRE(scout_worker_progress(rig.engines[0].worker, job, &progress) == 0);
		while (progress.enqueued <= l);
		CUDA(gpu.stream_wait(stream, events[l], 0));
		CUDA(gpu.stream_sync(stream));
		for (uint32_t g = 0; g < GROUPS; g++) {
			require_planes(g, first[g], first[g] + layer_planes[l * GROUPS + g], 9);
			first[g] += layer_planes[l * GROUPS + g];
		}
	}
	REQUIRE(scout_worker_wait_layer(rig.engines[0].worker, job, n_layers, DEADLINE_MS) == 0);
	REQUIRE(wait_done(0, job).status == 0);
	require_loaded(9);
	end();
}

/* The engine takes its pages back while copies are on their way, and registers others when it wakes. */
void
groups_sleep_and_wake_under_copies(int i)
{
	struct scout_progress progress;

	start_groups("cuda", methods[i]);
	fill_groups(4);
	store_groups(4, (struct scout_store){.ticket = 0});
	for (int n = 0; n < 6; n++) {
		uint64_t jobs[3];

		for (int k = 0; k < 3; k++)
			jobs[k] = load_groups(4, (struct scout_retrieve){.ticket = 0});
		do
			REQUIRE(scout_worker_progress(rig.engines[0].worker, jobs[0], &progress) == 0);
		while (n & 1 && progress.enqueued == 0);
		REQUIRE(scout_worker_unregister(rig.engines[0].worker) == 0);
		for (uint32_t g = 0; g < GROUPS; g++)
			pages_wipe(g);
		for (int k = 0; k < 3; k++) {
			struct scout_done done = wait_done(0, 0);

			REQUIRE(done.status == 0 || done.status == SCOUT_ERR_CANCELED);
		}
		/* Nothing was written since. */
		for (uint32_t g = 0; g < GROUPS; g++)
			for (int64_t id = FIRST; id < FIRST + (int64_t)(CHUNKS * bpc[g]); id++)
				REQUIRE(page_holds(g, id, CANARY));
		for (uint32_t g = 0; g < GROUPS && n & 2; g++) { /* other memory */
			for (uint32_t p = 0; p < N_PLANES; p++)
				CUDA(gpu.mem_free(GPU(rig.engines[g].planes[p].base)));
			pages_init(g, plain_alloc);
		}
		register_groups();
		REQUIRE(wait_done(0, load_groups(4, (struct scout_retrieve){.ticket = 0})).status == 0);
		require_loaded(4);
	}
	end();
}

void
a_fence_on_one_group_gives_its_pages_to_the_stream(int i)
{
	CUstream stream = new_stream();
	struct block_table table;

	start_groups("cuda", methods[i]);
	fill_groups(4);
	store_groups(4, (struct scout_store){.ticket = 0});
	make_blocks(&table, FIRST, true);
	for (uint32_t n = 0; n < 24; n++) {
		uint32_t g = n % GROUPS;
		uint64_t job = load_groups(4, (struct scout_retrieve){.ticket = 0});
		struct scout_done done;

		REQUIRE(scout_worker_fence(rig.engines[0].worker, g, table.ids[g], CHUNKS * bpc[g], stream) == 0);
		for (uint32_t p = 0; p < N_PLANES; p++)
			CUDA(gpu_fill(page_at(&rig.engines[g], p, FIRST), 0xee,
				      rig.engines[g].planes[p].stride * CHUNKS * bpc[g], stream));
		done = wait_done(0, job);
		REQUIRE(done.status == 0 || done.status == SCOUT_ERR_CANCELED);
		CUDA(gpu.stream_sync(stream));
		for (uint64_t b = 0; b < CHUNKS * bpc[g]; b++)
			REQUIRE(page_holds(g, FIRST + (int64_t)b, 0xee));
		pages_wipe(g);
	}
	end();
}
