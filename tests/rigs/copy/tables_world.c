/* SPDX-License-Identifier: Apache-2.0 */
#include "tables_world.h"

static uint8_t *
random_memory(struct tables_world *w, size_t bytes)
{
	uint8_t *p = must_alloc(bytes);

	for (size_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)next_random(&w->seed);
	return p;
}

static uint8_t *
copy_of(const uint8_t *from, size_t bytes)
{
	uint8_t *p = must_alloc(bytes);

	memcpy(p, from, bytes);
	return p;
}

static size_t
span_of(const struct tables_world *w, uint32_t t, uint32_t p)
{
	return w->layouts[t].n_blocks * w->tables[t].planes[p].stride + (size_t)2 * GUARD;
}

static size_t
slots_bytes(const struct tables_world *w)
{
	return TABLES_SLOTS * w->slot_stride;
}

static void
fill_table(struct tables_world *w, uint32_t t)
{
	struct table_pages *table = &w->tables[t];
	uint32_t n_planes = 1 + (uint32_t)random_below(&w->seed, TABLE_PLANES);
	uint64_t longest = random_below(&w->seed, 3) ? 700 : 9000;

	w->layouts[t] = (struct scout__copy_layout){
		.planes = table->planes,
		.n_planes = n_planes,
		.blocks_per_chunk = 1 + (uint32_t)random_below(&w->seed, TABLE_BPC),
		.n_blocks = TABLE_BLOCKS + t,
		.group = 2 * t,
	};
	for (uint32_t p = 0; p < n_planes; p++) {
		struct scout__copy_plane *plane = &table->planes[p];

		plane->block_bytes = 1 + random_below(&w->seed, longest);
		plane->stride = plane->block_bytes + random_below(&w->seed, 2) * 16;
		table->pages[p] = random_memory(w, span_of(w, t, p));
		table->model[p] = copy_of(table->pages[p], span_of(w, t, p));
		plane->base = table->pages[p] + GUARD;
	}
	table->shard_bytes = scout__copy_shard_bytes(&w->layouts[t]);
	if (w->slot_stride < table->shard_bytes + (uint64_t)2 * GUARD)
		w->slot_stride = table->shard_bytes + (uint64_t)2 * GUARD;
}

void
tables_fill(struct tables_world *w, uint64_t seed)
{
	memset(w, 0, sizeof(*w));
	w->seed = seed;
	w->n_tables = 2 + (uint32_t)random_below(&w->seed, TABLES_MAX - 1);
	for (uint32_t t = 0; t < w->n_tables; t++)
		fill_table(w, t);
	w->slots = random_memory(w, slots_bytes(w));
	w->model_slots = copy_of(w->slots, slots_bytes(w));
}

void
tables_config(struct tables_world *w, struct scout__copy_config *cfg)
{
	cfg->layout = w->layouts[0];
	cfg->more = &w->layouts[1];
	cfg->n_more = w->n_tables - 1;
	cfg->max_batches = 16;
}

void
tables_fini(struct tables_world *w)
{
	for (uint32_t t = 0; t < w->n_tables; t++)
		for (uint32_t p = 0; p < w->layouts[t].n_planes; p++) {
			free(w->tables[t].pages[p]);
			free(w->tables[t].model[p]);
		}
	free(w->slots);
	free(w->model_slots);
}

void
tables_random_layers(struct tables_world *w)
{
	uint32_t n = w->n_tables;

	w->n_layers = 1 + (uint32_t)random_below(&w->seed, TABLES_LAYERS);
	for (uint32_t t = 0; t < n; t++) {
		uint32_t n_planes = w->layouts[t].n_planes;

		for (uint32_t l = 0; l < w->n_layers; l++) {
			uint32_t before = l ? w->first_plane[l * n + t] : 0;

			w->first_plane[l * n + t] = before;
			w->first_plane[(l + 1) * n + t] =
				random_below(&w->seed, 2)
					? before
					: before + (uint32_t)random_below(&w->seed, n_planes - before + 1);
		}
		w->first_plane[w->n_layers * n + t] = n_planes;
	}
}

void
tables_random_items(struct tables_world *w, uint32_t n, uint32_t n_of)
{
	bool used[TABLES_MAX][TABLE_BLOCKS] = {{false}};

	for (uint32_t i = 0; i < n; i++) {
		uint32_t t = (uint32_t)random_below(&w->seed, n_of);

		w->items[i] = (struct scout__copy_item){
			.slot = w->slots + i * w->slot_stride + GUARD, .block_ids = w->ids[i], .table = t};
		for (uint32_t b = 0; b < TABLE_BPC; b++) {
			uint64_t id = random_below(&w->seed, TABLE_BLOCKS);

			if (used[t][id] || random_below(&w->seed, 6) == 0) {
				w->ids[i][b] = -1;
				continue;
			}
			used[t][id] = true;
			w->ids[i][b] = (int64_t)id;
		}
	}
}

static uint32_t
plane_of(const struct tables_world *w, uint32_t t, uint32_t layer)
{
	if (w->n_layers)
		return w->first_plane[layer * w->n_tables + t];
	return layer ? w->layouts[t].n_planes : 0;
}

bool
tables_layer_has_planes(const struct tables_world *w, uint32_t n, uint32_t layer)
{
	for (uint32_t i = 0; i < n; i++)
		if (plane_of(w, w->items[i].table, layer) < plane_of(w, w->items[i].table, layer + 1))
			return true;
	return false;
}

/* One block of one plane of an item: where it is in the slot and, unless it is null, in the plane. */
struct piece {
	uint32_t table, plane;
	int64_t id;
	uint64_t slot_at, page_at, bytes;
};

/* Call @each for all pieces of the first @n items in layers [from, to). */
static void
each_piece(const struct tables_world *w, uint32_t n, uint32_t from, uint32_t to,
	   void (*each)(const struct tables_world *w, const struct piece *piece, void *user), void *user)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t t = w->items[i].table;
		const struct scout__copy_layout *layout = &w->layouts[t];
		uint64_t at = i * w->slot_stride + GUARD;

		for (uint32_t p = 0; p < layout->n_planes; p++)
			for (uint32_t b = 0; b < layout->blocks_per_chunk; b++) {
				struct piece piece = {.table = t,
						      .plane = p,
						      .id = w->ids[i][b],
						      .slot_at = at,
						      .page_at =
							      GUARD + (uint64_t)w->ids[i][b] * layout->planes[p].stride,
						      .bytes = layout->planes[p].block_bytes};

				at += piece.bytes;
				if (p >= plane_of(w, t, from) && p < plane_of(w, t, to))
					each(w, &piece, user);
			}
	}
}

static void
add_bytes(const struct tables_world *w, const struct piece *piece, void *user)
{
	(void)w;
	*(uint64_t *)user += piece->id < 0 ? 0 : piece->bytes;
}

uint64_t
tables_bytes(const struct tables_world *w, uint32_t n, uint32_t from, uint32_t to)
{
	uint64_t bytes = 0;

	each_piece(w, n, from, to, add_bytes, &bytes);
	return bytes;
}

static void
move(const struct tables_world *w, const struct piece *piece, void *user)
{
	uint8_t *page = w->tables[piece->table].model[piece->plane] + piece->page_at;
	uint8_t *slot = w->model_slots + piece->slot_at;

	if (piece->id < 0 && *(enum scout__copy_direction *)user == SCOUT__COPY_SAVE)
		memset(slot, 0, piece->bytes);
	else if (piece->id >= 0 && *(enum scout__copy_direction *)user == SCOUT__COPY_SAVE)
		memcpy(slot, page, piece->bytes);
	else if (piece->id >= 0)
		memcpy(page, slot, piece->bytes);
}

void
tables_model_copy(struct tables_world *w, enum scout__copy_direction direction, uint32_t n, uint32_t from, uint32_t to)
{
	each_piece(w, n, from, to, move, &direction);
}

struct compare {
	enum scout__copy_direction direction;
	bool same;
};

static void
compare(const struct tables_world *w, const struct piece *piece, void *user)
{
	const struct table_pages *table = &w->tables[piece->table];
	struct compare *c = user;

	if (c->direction == SCOUT__COPY_SAVE)
		c->same &= memcmp(w->slots + piece->slot_at, w->model_slots + piece->slot_at, piece->bytes) == 0;
	else if (piece->id >= 0)
		c->same &= memcmp(table->pages[piece->plane] + piece->page_at,
				  table->model[piece->plane] + piece->page_at, piece->bytes) == 0;
}

bool
tables_layer_is(const struct tables_world *w, enum scout__copy_direction direction, uint32_t n, uint32_t layer)
{
	struct compare c = {.direction = direction, .same = true};

	each_piece(w, n, layer, layer + 1, compare, &c);
	return c.same;
}

void
tables_assert_as_model(const struct tables_world *w, const char *when)
{
	for (uint32_t t = 0; t < w->n_tables; t++)
		for (uint32_t p = 0; p < w->layouts[t].n_planes; p++)
			ck_assert_msg(memcmp(w->tables[t].pages[p], w->tables[t].model[p], span_of(w, t, p)) == 0,
				      "table %u plane %u %s", t, p, when);
	ck_assert_msg(memcmp(w->slots, w->model_slots, slots_bytes(w)) == 0, "slots %s", when);
}

void
tables_round_trip(struct tables_world *w)
{
	for (int k = 0; k < 4; k++) {
		uint32_t n = (uint32_t)random_below(&w->seed, TABLES_SLOTS + 1), layers;
		struct scout__copy_progress progress = {.copied = 0};
		struct scout__copy_batch batch = {.direction = k & 1 ? SCOUT__COPY_LOAD : SCOUT__COPY_SAVE,
						  .n = n,
						  .items = w->items,
						  .first_plane = w->first_plane,
						  .progress = &progress};

		tables_random_items(w, n, 1 + (uint32_t)random_below(&w->seed, w->n_tables));
		if (k < 2)
			tables_random_layers(w);
		else
			w->n_layers = 0;
		layers = w->n_layers ? w->n_layers : 1;
		batch.n_layers = w->n_layers;
		run_batch(w->engine, &batch);
		ck_assert_int_eq(batch.status, 0);
		ck_assert_uint_eq(batch.n_done, n);
		ck_assert_uint_eq(batch.bytes, tables_bytes(w, n, 0, layers));
		ck_assert_uint_eq(atomic_load(&progress.copied), layers);
		ck_assert_uint_eq(atomic_load(&progress.enqueued), layers);
		tables_model_copy(w, batch.direction, n, 0, layers);
		tables_assert_as_model(w, k & 1 ? "after a load" : "after a save");
	}
}
