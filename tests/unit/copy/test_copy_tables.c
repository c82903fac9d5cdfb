/* SPDX-License-Identifier: Apache-2.0 */
/* Several page tables in one engine: slots of either, layer by layer and at once. */
#include "tables_world.h"
#include "check_main.h"

#define N_BLOCKS 16u
#define SLOT 4096u

/* Two groups of layers: three planes in chunks of four blocks, and two planes in chunks of one. */
struct two_tables {
	uint8_t pages[5][N_BLOCKS * 64];
	struct scout__copy_plane planes[5];
	struct scout__copy_layout layouts[2];
	uint8_t slots[2][SLOT];
	int64_t ids[2][4];
	struct scout__copy_item items[2];
	void *engine;
};

static void
tables_open(struct two_tables *t)
{
	struct scout__copy_config cfg = {.max_batches = 4, .n_more = 1};
	char err[200] = "";
	uint64_t seed = 11;

	for (uint32_t p = 0; p < 5; p++) {
		for (size_t i = 0; i < sizeof(t->pages[p]); i++)
			t->pages[p][i] = (uint8_t)next_random(&seed);
		t->planes[p] = (struct scout__copy_plane){.base = t->pages[p], .stride = 64, .block_bytes = 24 + 8 * p};
	}
	t->layouts[0] = (struct scout__copy_layout){
		.planes = t->planes, .n_planes = 3, .blocks_per_chunk = 4, .n_blocks = N_BLOCKS};
	t->layouts[1] = (struct scout__copy_layout){
		.planes = t->planes + 3, .n_planes = 2, .blocks_per_chunk = 1, .n_blocks = N_BLOCKS, .group = 3};
	cfg.layout = t->layouts[0];
	cfg.more = &t->layouts[1];
	memcpy(t->ids[0], (int64_t[]){3, 9, 10, 0}, sizeof(t->ids[0]));
	memcpy(t->ids[1], (int64_t[]){7, -1, -1, -1}, sizeof(t->ids[1]));
	memset(t->slots, 0xee, sizeof(t->slots));
	for (uint32_t i = 0; i < 2; i++)
		t->items[i] = (struct scout__copy_item){.slot = t->slots[i], .block_ids = t->ids[i], .table = i};
	ck_assert_msg(ops->open(&cfg, &t->engine, err, sizeof(err)) == 0, "%s", err);
}

/* Where the bytes of block @b of plane @p of table @i lie in its slot. */
static size_t
at_in_slot(const struct two_tables *t, uint32_t i, uint32_t p, uint32_t b)
{
	const struct scout__copy_layout *layout = &t->layouts[i];
	size_t at = b * layout->planes[p].block_bytes;

	for (uint32_t before = 0; before < p; before++)
		at += layout->blocks_per_chunk * layout->planes[before].block_bytes;
	return at;
}

/* The slot of table @i holds planes [from, to) of its pages, and elsewhere what it held. */
static void
assert_holds(const struct two_tables *t, uint32_t i, uint32_t from, uint32_t to)
{
	const struct scout__copy_layout *layout = &t->layouts[i];

	for (uint32_t p = 0; p < layout->n_planes; p++)
		for (uint32_t b = 0; b < layout->blocks_per_chunk; b++) {
			const struct scout__copy_plane *plane = &layout->planes[p];
			const uint8_t *got = t->slots[i] + at_in_slot(t, i, p, b);
			const uint8_t *page = plane->base + (uint64_t)t->ids[i][b] * plane->stride;

			if (p >= from && p < to)
				ck_assert_msg(memcmp(got, page, plane->block_bytes) == 0, "%u %u %u", i, p, b);
			else
				ck_assert_uint_eq(got[0], 0xee);
		}
	ck_assert_uint_eq(t->slots[i][scout__copy_shard_bytes(layout)], 0xee);
}

static void
run(struct two_tables *t, struct scout__copy_batch *batch)
{
	batch->n = 2;
	batch->items = t->items;
	run_batch(t->engine, batch);
	ck_assert_int_eq(batch->status, 0);
	ck_assert_uint_eq(batch->n_done, 2);
}

START_TEST(a_slot_takes_the_planes_of_its_table)
{
	struct scout__copy_batch batch = {.direction = SCOUT__COPY_SAVE};
	static struct two_tables t, before;

	tables_open(&t);
	run(&t, &batch);
	ck_assert_uint_eq(batch.bytes, scout__copy_shard_bytes(&t.layouts[0]) + scout__copy_shard_bytes(&t.layouts[1]));
	assert_holds(&t, 0, 0, 3);
	assert_holds(&t, 1, 0, 2);
	/* And back, to other pages. */
	before = t;
	memcpy(t.ids[0], (int64_t[]){4, 5, 1, 15}, sizeof(t.ids[0]));
	t.ids[1][0] = 2;
	batch = (struct scout__copy_batch){.direction = SCOUT__COPY_LOAD};
	run(&t, &batch);
	assert_holds(&t, 0, 0, 3);
	assert_holds(&t, 1, 0, 2);
	ck_assert_int_eq(memcmp(t.pages[0] + 6 * 64, before.pages[0] + 6 * 64, 64), 0);
	ck_assert_int_eq(memcmp(t.pages[3] + 4 * 64, before.pages[3] + 4 * 64, 64), 0);
	ops->close(t.engine);
}
END_TEST

START_TEST(a_layer_is_some_planes_of_each_table)
{
	/* Layer 0: one plane of table 0. Layer 1: both of table 1. Layer 2: the rest of table 0. */
	const uint32_t first_plane[] = {0, 0, 1, 0, 1, 2, 3, 2};
	static struct two_tables t;

	tables_open(&t);
	for (uint32_t l = 0; l < 3; l++) {
		struct scout__copy_batch batch = {
			.direction = SCOUT__COPY_SAVE, .n_layers = 1, .first_plane = first_plane + 2 * l};

		run(&t, &batch);
		assert_holds(&t, 0, 0, l < 2 ? 1 : 3);
		assert_holds(&t, 1, 0, l < 1 ? 0 : 2);
	}
	memset(t.slots, 0xee, sizeof(t.slots));
	run(&t, &(struct scout__copy_batch){.direction = SCOUT__COPY_SAVE, .n_layers = 3, .first_plane = first_plane});
	assert_holds(&t, 0, 0, 3);
	assert_holds(&t, 1, 0, 2);
	ops->close(t.engine);
}
END_TEST

START_LOOP_TEST(any_tables_and_any_layers, 0, 16)
{
	static struct tables_world w;
	struct scout__copy_config cfg = {.max_batches = 4};
	char err[200] = "";

	tables_fill(&w, 300 + (uint64_t)_i);
	tables_config(&w, &cfg);
	ck_assert_msg(ops->open(&cfg, &w.engine, err, sizeof(err)) == 0, "%s", err);
	for (int round = 0; round < 6; round++)
		tables_round_trip(&w);
	ops->close(w.engine);
	tables_fini(&w);
}
END_TEST

START_TEST(each_table_is_checked)
{
	struct scout__copy_config cfg = {.max_batches = 4, .n_more = 1};
	static struct two_tables t;
	void *engine = NULL;
	char err[200];

	tables_open(&t);
	cfg.layout = t.layouts[0];
	cfg.more = &t.layouts[1];
	t.layouts[1].n_blocks = 0;
	ck_assert_int_eq(ops->open(&cfg, &engine, err, sizeof(err)), SCOUT_ERR_INVALID);
	t.layouts[1].n_blocks = N_BLOCKS;
	t.planes[4].stride = 1;
	ck_assert_int_eq(ops->open(&cfg, &engine, err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_ptr_null(engine);
	ops->close(t.engine);
}
END_TEST
