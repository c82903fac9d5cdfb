/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index arithmetic of the GPU's scatter and gather kernel, walked on the CPU lane by lane against a plain copy of every
 * block. It shows where each byte goes; that a GPU runs it, and how fast, only a test on a GPU can show.
 */
#include "copy_world.h"
#include "tile.h"
#include "check_main.h"

/* One launch, as the kernel does it: every lane of a group on every tile. */
static void
run_span(const struct scout__tile_span *span)
{
	for (uint64_t t = 0; t < span->n_tiles; t++)
		for (uint32_t lane = 0; lane < SCOUT__TILE_LANES; lane++)
			scout__tile_do(span, t, lane);
}

struct shape {
	uint32_t n_planes;
	uint32_t blocks_per_chunk;
	uint64_t bytes[4]; /* in turn */
	uint64_t padding[4];
};

static const struct shape shapes[] = {
	{1, 1, {1}, {0}},
	{1, 4, {2048}, {0}},
	{2, 16, {256, 2049}, {0, 15}},
	{3, 7, {4096, 1, 6000}, {16, 0, 4}},
	{122, 16, {1152, 64, 33, 4000}, {0, 0, 7, 96}},
	{61, 3, {1152}, {0}},
	{2, 1024, {16, 40}, {0, 8}},
	{1, 3000, {5, 5}, {1, 1}},
	{4, 2, {65536, 2047, 4095, 12}, {0, 1, 1, 4}},
};
#define N_SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static void
world_shaped(struct world *w, const struct shape *s, uint32_t n_slots)
{
	memset(w, 0, sizeof(*w));
	w->seed = 99;
	for (uint32_t p = 0; p < s->n_planes; p++) {
		w->planes[p].block_bytes = s->bytes[p % 4] ? s->bytes[p % 4] : s->bytes[0];
		w->planes[p].stride = w->planes[p].block_bytes + s->padding[p % 4];
	}
	world_fill(w, s->n_planes, s->blocks_per_chunk, n_slots * (uint64_t)s->blocks_per_chunk + 5, n_slots);
}

static int64_t *
some_ids(struct world *w)
{
	uint64_t n = w->layout.n_blocks;
	int64_t *ids = must_alloc(n * sizeof(*ids)), swap;

	for (uint64_t i = 0; i < n; i++)
		ids[i] = (int64_t)i;
	for (uint64_t i = n; i > 1; i--) {
		uint64_t j = random_below(&w->seed, i);

		swap = ids[i - 1];
		ids[i - 1] = ids[j];
		ids[j] = swap;
	}
	for (uint64_t i = 0; i < n; i++)
		if (random_below(&w->seed, 6) == 0)
			ids[i] = -1 - (int64_t)random_below(&w->seed, 3);
	return ids;
}

/* One part more, of slot @slot from tile @t on. Returns its bytes; 0: the span is full. */
static uint64_t
add_part(const struct world *w, const struct scout__tile_plane *planes, const int64_t *ids, uint32_t slot, uint64_t t,
	 uint64_t max, struct scout__tile_span *span)
{
	uint64_t end = planes[w->layout.n_planes].first_tile, at, bytes, tiles = span->n_tiles;
	const struct scout__tile_part *part = &span->parts[span->n_parts];

	bytes = scout__tile_add(span, planes, &w->layout, ids + (size_t)slot * w->layout.blocks_per_chunk, t, end, max,
				&at);
	if (bytes == 0)
		return 0;
	ck_assert_uint_eq(part->first_tile, t);
	ck_assert_uint_eq(part->begin, tiles);
	ck_assert_uint_gt(scout__tile_end(span), t);
	ck_assert_uint_le(scout__tile_end(span), end);
	ck_assert_uint_le(bytes, max);
	ck_assert_uint_le(span->n_ids, SCOUT__TILE_IDS);
	span->parts[span->n_parts - 1].slot = (uintptr_t)slot_in(w, w->slots, slot);
	return bytes;
}

/* All slots in spans of at most @max bytes, of as many slots as fit; with every tile in exactly one of them. */
static void
move_all(struct world *w, const struct scout__tile_plane *planes, const int64_t *ids, bool to_pages, uint64_t max)
{
	uint64_t end = planes[w->layout.n_planes].first_tile, t = 0, bytes, in_span = 0, sum = 0;
	struct scout__tile_span span;

	memset(&span, 0xee, sizeof(span));
	scout__tile_begin(&span, to_pages);
	for (uint32_t slot = 0; slot < w->n_slots;) {
		bytes = max - in_span < SCOUT__TILE_BYTES ? 0 : add_part(w, planes, ids, slot, t, max - in_span, &span);
		if (bytes == 0) {
			ck_assert_uint_gt(span.n_parts, 0);
			run_span(&span);
			memset(&span, 0xee, sizeof(span));
			scout__tile_begin(&span, to_pages);
			in_span = 0;
			continue;
		}
		in_span += bytes;
		sum += bytes;
		t = scout__tile_end(&span);
		slot += t == end;
		t = t == end ? 0 : t;
	}
	run_span(&span);
	ck_assert_uint_eq(sum, w->n_slots * w->shard_bytes);
}

START_LOOP_TEST(every_byte_of_every_shape_goes_where_it_belongs, 0, N_SHAPES)
{
	static const uint64_t limits[] = {2048, 2049, 5000, 65536, UINT64_C(1) << 40};
	struct scout__tile_plane *planes;
	struct world w;
	int64_t *ids;

	world_shaped(&w, &shapes[_i], 1 + (uint32_t)_i % 5);
	planes = must_alloc((w.layout.n_planes + 1) * sizeof(*planes));
	scout__tile_table(&w.layout, planes);
	for (size_t l = 0; l < sizeof(limits) / sizeof(limits[0]); l++) {
		for (int to_pages = 0; to_pages < 2; to_pages++) {
			ids = some_ids(&w);
			for (uint32_t slot = 0; slot < w.n_slots; slot++)
				model_copy(&w, to_pages ? SCOUT__COPY_LOAD : SCOUT__COPY_SAVE, slot,
					   ids + (size_t)slot * w.layout.blocks_per_chunk);
			move_all(&w, planes, ids, to_pages, limits[l]);
			assert_as_model(&w, to_pages ? "after a scatter" : "after a gather");
			free(ids);
		}
	}
	free(planes);
	world_fini(&w);
}
END_TEST

/* Tiles of a part of the planes, as a layer is. */
START_TEST(a_range_of_planes_is_a_range_of_tiles)
{
	struct scout__tile_plane planes[5];
	struct scout__tile_span span;
	struct world w;
	int64_t *ids;
	uint64_t at, bytes;

	world_shaped(&w, &shapes[3], 1);
	scout__tile_table(&w.layout, planes);
	ids = some_ids(&w);
	for (uint32_t p = 0; p < 3; p++) {
		scout__tile_begin(&span, true);
		bytes = scout__tile_add(&span, planes, &w.layout, ids, planes[p].first_tile, planes[p + 1].first_tile,
					1 << 30, &at);
		ck_assert_uint_eq(at, planes[p].slot_at);
		ck_assert_uint_eq(bytes, 7 * planes[p].block_bytes);
		ck_assert_uint_eq(span.parts[0].first_plane, p);
		ck_assert_uint_eq(span.parts[0].end_plane, p + 1);
	}
	free(ids);
	world_fini(&w);
}
END_TEST

START_LOOP_TEST(a_span_takes_parts_until_it_is_full, 0, 2)
{
	struct scout__tile_plane planes[3];
	struct scout__tile_span span;
	struct world w;
	uint32_t n = 0;
	int64_t *ids;

	world_shaped(&w, &shapes[_i ? 2 : 1], 1);
	scout__tile_table(&w.layout, planes);
	ids = some_ids(&w);
	scout__tile_begin(&span, true);
	while (add_part(&w, planes, ids, 0, 0, 1 << 30, &span))
		n++;
	ck_assert_uint_eq(n, SCOUT__TILE_PARTS);
	ck_assert_uint_eq(span.n_ids, SCOUT__TILE_PARTS * w.layout.blocks_per_chunk);
	/* With chunks of many blocks there is room for their ids alone, and none is taken in part. */
	w.layout.blocks_per_chunk = 5;
	scout__tile_table(&w.layout, planes);
	scout__tile_begin(&span, true);
	span.n_ids = SCOUT__TILE_IDS - 4;
	ck_assert_uint_eq(add_part(&w, planes, ids, 0, 0, 1 << 30, &span), 0);
	ck_assert_uint_eq(span.n_parts, 0);
	free(ids);
	world_fini(&w);
}
END_TEST

/* All alignments of both ends within 16, and all lengths around the borders of an access. */
START_TEST(a_tile_moves_at_every_alignment_and_length)
{
	static const uint32_t lengths[] = {1, 3, 4, 15, 16, 17, 31, 32, 255, 256, 257, 2000, 2047, 2048};
	uint8_t from[2048 + 64], to[2048 + 64], expected[2048 + 64];
	uint64_t seed = 5;

	for (uint32_t a = 0; a < 16; a++)
		for (uint32_t b = 0; b < 16; b++)
			for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
				uintptr_t source = ((uintptr_t)from + 15) / 16 * 16 + a;
				uintptr_t target = ((uintptr_t)to + 15) / 16 * 16 + b;

				for (size_t i = 0; i < sizeof(from); i++)
					from[i] = (uint8_t)next_random(&seed);
				memset(to, 0x77, sizeof(to));
				memset(expected, 0x77, sizeof(expected));
				memcpy(expected + (target - (uintptr_t)to), from + (source - (uintptr_t)from),
				       lengths[l]);
				for (uint32_t lane = 0; lane < SCOUT__TILE_LANES; lane++)
					scout__tile_move(target, source, lengths[l], lane);
				ck_assert_msg(memcmp(to, expected, sizeof(to)) == 0, "%u to %u, %u bytes", a, b,
					      lengths[l]);
				for (uint32_t lane = 0; lane < SCOUT__TILE_LANES; lane++)
					scout__tile_zero(target, lengths[l], lane);
				memset(expected + (target - (uintptr_t)to), 0, lengths[l]);
				ck_assert(memcmp(to, expected, sizeof(to)) == 0);
			}
}
END_TEST

START_TEST(a_launch_fits_what_every_device_takes)
{
	ck_assert_uint_le(sizeof(struct scout__tile_span), 4096);
}
END_TEST
