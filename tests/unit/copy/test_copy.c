/* SPDX-License-Identifier: Apache-2.0 */
/* What the copy engine does to memory; host backend. */
#include "copy_world.h"
#include "check_main.h"
#include "copy_backends.h"

START_TEST(shard_bytes_are_all_blocks_of_all_planes)
{
	struct scout__copy_plane planes[] = {{NULL, 200, 100}, {NULL, 7, 7}, {NULL, 4096, 1}};
	struct scout__copy_layout layout = {.planes = planes, .n_planes = 3, .blocks_per_chunk = 16, .n_blocks = 9};

	ck_assert_uint_eq(scout__copy_shard_bytes(&layout), 16 * 108);
	planes[0].block_bytes = UINT64_MAX / 16;
	ck_assert_uint_eq(scout__copy_shard_bytes(&layout), 0);
	planes[0].block_bytes = UINT64_MAX - 3;
	ck_assert_uint_eq(scout__copy_shard_bytes(&layout), 0);
}
END_TEST

START_TEST(backends_are_found_by_name)
{
	ck_assert_ptr_eq(scout__copy_find("host"), &scout__copy_host);
	ck_assert_str_eq(scout__copy_find("host")->name, "host");
	ck_assert_ptr_null(scout__copy_find("hos"));
	ck_assert_ptr_null(scout__copy_find(""));
	ck_assert_ptr_null(scout__copy_find("no such backend"));
}
END_TEST

/* One plane and an engine on it, with one thing that cannot be; no plane at all where @n_planes is 2. */
static const struct {
	uint32_t n_planes, blocks_per_chunk;
	uint64_t n_blocks, block_bytes, stride;
	uint32_t max_batches;
	bool no_base;
} refused[] = {
	{2, 1, 1, 64, 64, 1, false},
	{0, 1, 1, 64, 64, 1, false},
	{1, 0, 1, 64, 64, 1, false},
	{1, 1, 0, 64, 64, 1, false},
	{1, 1, (uint64_t)INT64_MAX + 1, 64, 64, 1, false},
	{1, 1, 1, 64, 64, 1, true},
	{1, 1, 1, 0, 64, 1, false},
	{1, 1, 1, 64, 63, 1, false},
	{1, 1, UINT64_MAX / 128, 64, 1024, 1, false},
	{1, 1, 1, 64, UINT64_MAX - 8, 1, false},
	{1, 1, 1, 64, 64, 0, false},
	{1, 1, 1, 64, 64, UINT32_MAX, false},
};

START_LOOP_TEST(open_refuses_what_cannot_be, 0, sizeof(refused) / sizeof(refused[0]))
{
	uint8_t page[64];
	struct scout__copy_plane plane = {.base = refused[_i].no_base ? NULL : page,
					  .block_bytes = refused[_i].block_bytes,
					  .stride = refused[_i].stride};
	struct scout__copy_config cfg = {.layout = {.planes = refused[_i].n_planes == 2 ? NULL : &plane,
						    .n_planes = refused[_i].n_planes,
						    .blocks_per_chunk = refused[_i].blocks_per_chunk,
						    .n_blocks = refused[_i].n_blocks},
					 .max_batches = refused[_i].max_batches};
	unsigned int fds = count_dir("/proc/self/fd");
	int untouched = 0;
	void *engine = &untouched;
	char err[200] = "";

	ck_assert_int_eq(ops->open(&cfg, &engine, err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_ptr_eq(engine, &untouched);
	ck_assert(err[0] != 0);
	ck_assert_int_eq(ops->open(&cfg, &engine, NULL, 0), SCOUT_ERR_INVALID);
	ck_assert_uint_eq(count_dir("/proc/self/fd"), fds);
}
END_TEST

START_TEST(the_host_takes_any_memory_for_slots)
{
	uint8_t page[64];
	const struct scout__copy_memory memory = {.base = page, .bytes = sizeof(page), .stride = sizeof(page)};
	struct scout__copy_plane plane = {page, 64, 64};
	struct scout__copy_config cfg = {
		.layout = {.planes = &plane, .n_planes = 1, .blocks_per_chunk = 1, .n_blocks = 1}, .max_batches = 1};
	unsigned int fds = count_dir("/proc/self/fd");
	void *engine;
	char err[200];

	ck_assert_int_eq(ops->open(&cfg, &engine, err, sizeof(err)), 0);
	ck_assert_int_eq(ops->add_memory(engine, &memory), 0);
	ops->remove_memory(engine, page);
	ops->close(engine);
	ck_assert_uint_eq(count_dir("/proc/self/fd"), fds);
}
END_TEST

/* Planes of one model are mostly alike, but not always; sizes are odd, powers of two, or both ends. */
static uint64_t
random_block_bytes(uint64_t *seed)
{
	switch (random_below(seed, 5)) {
	case 0:
		return 1 + random_below(seed, 16);
	case 1:
		return UINT64_C(1) << random_below(seed, 17);
	case 2:
		return 65536 - random_below(seed, 200);
	default:
		return 1 + random_below(seed, 5000);
	}
}

static void
world_random(struct world *w, uint64_t seed)
{
	static const uint32_t plane_counts[] = {1, 2, 3, 7, 61, 61 * 2};
	uint32_t n_planes, blocks_per_chunk, n_slots;
	uint64_t n_blocks, sum = 0;

	memset(w, 0, sizeof(*w));
	w->seed = seed;
	n_planes = plane_counts[random_below(&w->seed, 6)];
	for (uint32_t p = 0; p < n_planes; p++) {
		w->planes[p].block_bytes = random_block_bytes(&w->seed);
		w->planes[p].stride = w->planes[p].block_bytes;
		if (random_below(&w->seed, 2))
			w->planes[p].stride += 1 + random_below(&w->seed, 100);
		sum += w->planes[p].stride;
	}
	/* At most some 24 MiB a world, or it takes too long under sanitizers. */
	n_slots = 1 + (uint32_t)random_below(&w->seed, MAX_ITEMS);
	blocks_per_chunk = 1 + (uint32_t)random_below(&w->seed, 24);
	while (sum * n_slots * blocks_per_chunk > 6u << 20 && blocks_per_chunk > 1)
		blocks_per_chunk--;
	while (sum * n_slots * blocks_per_chunk > 6u << 20 && n_slots > 1)
		n_slots--;
	n_blocks = (uint64_t)n_slots * blocks_per_chunk + random_below(&w->seed, 8);
	world_fill(w, n_planes, blocks_per_chunk, n_blocks, n_slots);
	world_open(w, 4);
}

START_LOOP_TEST(random_layouts_copy_every_byte_and_no_other, 0, 24)
{
	struct world w;
	int64_t *ids;

	world_random(&w, 1000 + (uint64_t)_i);
	ids = must_alloc((size_t)w.n_slots * w.layout.blocks_per_chunk * sizeof(*ids));
	for (int round = 0; round < 2; round++) {
		random_ids(&w, ids);
		copy_all(&w, SCOUT__COPY_SAVE, ids);
		assert_as_model(&w, "after save");
		random_ids(&w, ids);
		copy_all(&w, SCOUT__COPY_LOAD, ids);
		assert_as_model(&w, "after load");
	}
	free(ids);
	world_fini(&w);
}
END_TEST

START_TEST(save_then_load_elsewhere_gives_the_same_blocks)
{
	int64_t from[8] = {3, 1, 15, 14, 0, 7, 2, 9}, to[8] = {8, 12, 5, 4, 6, 10, 11, 13};
	struct world w;
	const uint8_t *a, *b;

	memset(&w, 0, sizeof(w));
	w.planes[0] = (struct scout__copy_plane){.block_bytes = 1000, .stride = 1000};
	w.planes[1] = (struct scout__copy_plane){.block_bytes = 17, .stride = 64};
	world_fill(&w, 2, 8, 16, 1);
	world_open(&w, 1);
	copy_all(&w, SCOUT__COPY_SAVE, from);
	copy_all(&w, SCOUT__COPY_LOAD, to);
	/* By position in the chunk, without the model. */
	for (int i = 0; i < 8; i++) {
		for (uint32_t p = 0; p < 2; p++) {
			a = w.planes[p].base + (uint64_t)from[i] * w.planes[p].stride;
			b = w.planes[p].base + (uint64_t)to[i] * w.planes[p].stride;
			ck_assert_mem_eq(a, b, w.planes[p].block_bytes);
		}
	}
	assert_as_model(&w, "after the round trip");
	world_fini(&w);
}
END_TEST

/* Ids that invite merging, with every way a run can end. */
START_TEST(neighbouring_blocks_merge_only_where_memory_is_dense)
{
	static const int64_t patterns[][8] = {
		{0, 1, 2, 3, 4, 5, 6, 7},       {7, 6, 5, 4, 3, 2, 1, 0},         {0, 1, 2, -1, 4, 5, 6, 7},
		{-1, -1, -1, 3, 4, -2, -2, -9}, {-1, -1, -1, -1, -1, -1, -1, -1}, {4, 5, 5, 6, 6, 7, 8, 9},
		{12, 13, 14, 15, 0, 1, 2, 3},   {0, 2, 4, 6, 8, 10, 12, 14},      {15, -1, 0, 1, -1, 3, 4, -1},
	};
	struct world w;

	memset(&w, 0, sizeof(w));
	w.planes[0] = (struct scout__copy_plane){.block_bytes = 48, .stride = 48};
	w.planes[1] = (struct scout__copy_plane){.block_bytes = 47, .stride = 48};
	w.planes[2] = (struct scout__copy_plane){.block_bytes = 1, .stride = 1};
	world_fill(&w, 3, 8, 16, 1);
	world_open(&w, 1);
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		copy_all(&w, SCOUT__COPY_SAVE, patterns[i]);
		assert_as_model(&w, "after save");
		copy_all(&w, SCOUT__COPY_LOAD, patterns[sizeof(patterns) / sizeof(patterns[0]) - 1 - i]);
		assert_as_model(&w, "after load");
	}
	world_fini(&w);
}
END_TEST

START_TEST(null_blocks_are_zeroed_in_slots_and_left_alone_in_pages)
{
	int64_t ids[8] = {2, -1, 5, -7, INT64_MIN, 9, -1, 3};
	static const uint8_t zeros[100];
	struct world w;
	uint8_t *slot;

	memset(&w, 0, sizeof(w));
	w.planes[0] = (struct scout__copy_plane){.block_bytes = 100, .stride = 128};
	world_fill(&w, 1, 8, 16, 1);
	world_open(&w, 1);
	slot = slot_in(&w, w.slots, 0);
	/* A load with a slot full of other bytes: pages of null blocks keep theirs (the model compares all). */
	copy_all(&w, SCOUT__COPY_LOAD, ids);
	assert_as_model(&w, "after load");
	copy_all(&w, SCOUT__COPY_SAVE, ids);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(memcmp(slot + i * 100, zeros, 100) == 0, ids[i] < 0);
	assert_as_model(&w, "after save");
	world_fini(&w);
}
END_TEST
