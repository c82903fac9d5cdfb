/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA backend with several page tables, on the stand-in for the CUDA driver (fake_cuda.h says what that shows and what not): bytes by every
 * method, layers that are empty for some tables or for all items, the caller's events, steps that fail.
 */
#include "cuda_rig.h"
#include "tables_world.h"
#include "check_main.h"

static struct tables_world w;

static void
announce_pages(void)
{
	ops = &scout__copy_cuda;
	for (uint32_t t = 0; t < w.n_tables; t++)
		for (uint32_t p = 0; p < w.layouts[t].n_planes; p++)
			fake_cuda_device_range(w.tables[t].planes[p].base,
					       w.layouts[t].n_blocks * w.tables[t].planes[p].stride);
}

static int
try_open_tables(const char *method, char *err, size_t err_len)
{
	struct scout__copy_config cfg = {.method = method, .stage_bytes = 1 << 20, .log = &test_log};

	tables_config(&w, &cfg);
	return ops->open(&cfg, &w.engine, err, err_len);
}

static void
start_fake(uint64_t seed, const struct fake_cuda_options *opt)
{
	tables_fill(&w, seed);
	fake_cuda_start(opt);
	announce_pages();
}

static void
open_tables(const char *method)
{
	struct scout__copy_memory memory = {
		.base = w.slots, .bytes = TABLES_SLOTS * w.slot_stride, .first_slot = GUARD, .stride = w.slot_stride};
	char err[300] = "";
	int rc = try_open_tables(method, err, sizeof(err));

	ck_assert_msg(rc == 0, "open: %d %s", rc, err);
	ck_assert_int_eq(ops->add_memory(w.engine, &memory), 0);
	wait_pinned(w.engine, w.slots);
}

static void
stop_fake(void)
{
	fake_end(&w.engine);
	tables_fini(&w);
}

START_LOOP_TEST(every_method_copies_every_table, 0, 36)
{
	struct fake_cuda_options opt = options();

	opt.no_batch = _i / 3 % 2;
	opt.alias = _i / 6 % 2 ? UINT64_C(1) << 45 : 0;
	start_fake(7000 + (uint64_t)_i, &opt);
	open_tables(methods[_i % 3]);
	for (int round = 0; round < 6; round++)
		tables_round_trip(&w);
	stop_fake();
}
END_TEST

/* ---- layers and events ---- */

struct events {
	void *layers[TABLES_LAYERS], *whole;
};

static void
events_new(struct events *e)
{
	for (uint32_t l = 0; l < TABLES_LAYERS; l++)
		ck_assert_int_eq(scout__cuda_api_event_new(&e->layers[l]), 0);
	ck_assert_int_eq(scout__cuda_api_event_new(&e->whole), 0);
}

static void
events_free(struct events *e)
{
	for (uint32_t l = 0; l < TABLES_LAYERS; l++)
		scout__cuda_api_event_free(e->layers[l]);
	scout__cuda_api_event_free(e->whole);
}

static void
check_layers(const struct scout__copy_batch *batch, unsigned enqueued, unsigned copied, const struct events *e)
{
	for (uint32_t l = 0; l < batch->n_layers; l++) {
		bool is_over = l < copied;

		if (l < enqueued && batch->layer_events) {
			ck_assert(fake_cuda_event_recorded(e->layers[l]));
			is_over |= fake_cuda_event_over(e->layers[l]);
		}
		if (is_over)
			ck_assert_msg(tables_layer_is(&w, batch->direction, batch->n, l), "layer %u", l);
	}
}

/*
 * Each operation of the GPU by itself: where a layer's event is over, or the engine says that it is copied, its bytes are there. The
 * next one may run when the engine has looked three times since the one before ran; after the last one it need not look again.
 */
static void
watch_layers(const struct scout__copy_batch *batch, const struct scout__copy_progress *progress, const struct events *e)
{
	bool is_open = false;
	uint64_t queries, before = 0;
	unsigned copied = 0;

	wait_until(copied == batch->n_layers) {
		copied = atomic_load(&progress->copied);
		check_layers(batch, atomic_load(&progress->enqueued), copied, e);
		if (atomic_load(&gate_steps) > 0)
			continue;
		queries = fake_cuda_counts().queries;
		if (is_open)
			before = queries;
		is_open = !is_open && queries >= before + 3;
		atomic_store(&gate_steps, is_open ? 1 : 0);
	}
}

START_LOOP_TEST(layers_of_several_tables_are_there_when_their_events_are, 0, 24)
{
	struct fake_cuda_options opt = gated();
	struct scout__copy_progress progress = {.copied = 0};
	struct scout__copy_batch batch = {.items = w.items, .first_plane = w.first_plane, .progress = &progress};
	struct events e;

	start_fake(9000 + (uint64_t)_i, &opt);
	open_tables(methods[_i % 3]);
	events_new(&e);
	tables_random_layers(&w);
	batch.direction = _i / 3 % 2 ? SCOUT__COPY_LOAD : SCOUT__COPY_SAVE;
	batch.n = 1 + (uint32_t)random_below(&w.seed, TABLES_SLOTS);
	batch.n_layers = w.n_layers;
	tables_random_items(&w, batch.n, 1 + (uint32_t)random_below(&w.seed, w.n_tables));
	tables_model_copy(&w, batch.direction, batch.n, 0, w.n_layers);
	if (batch.direction == SCOUT__COPY_LOAD) {
		batch.layer_events = e.layers;
		batch.event = e.whole;
	}
	atomic_store(&gate_steps, 0);
	ck_assert_int_eq(ops->start(w.engine, &batch), 0);
	watch_layers(&batch, &progress, &e);
	atomic_store(&gate_steps, -1);
	ck_assert_ptr_eq(next_ended(w.engine), &batch);
	ck_assert_int_eq(batch.status, 0);
	ck_assert_uint_eq(batch.n_done, batch.n);
	ck_assert_uint_eq(batch.bytes, tables_bytes(&w, batch.n, 0, w.n_layers));
	tables_assert_as_model(&w, "after the layers");
	for (uint32_t l = 0; l < w.n_layers && batch.layer_events; l++)
		ck_assert(fake_cuda_event_recorded(e.layers[l]));
	ck_assert(!batch.event || fake_cuda_event_recorded(e.whole));
	events_free(&e);
	stop_fake();
}
END_TEST

/* The forward pass: it computes layer after layer, and none of them may be read before its event. */
START_LOOP_TEST(no_layer_of_a_save_is_read_before_its_event, 0, 24)
{
	struct fake_cuda_options opt = options();
	struct scout__copy_batch batch = {
		.direction = SCOUT__COPY_SAVE, .items = w.items, .first_plane = w.first_plane};
	struct events e;
	void *forward;

	start_fake(11000 + (uint64_t)_i, &opt);
	open_tables(methods[_i % 3]);
	events_new(&e);
	ck_assert_int_eq(scout__cuda_api_stream_new(&forward), 0);
	tables_random_layers(&w);
	batch.n = 1 + (uint32_t)random_below(&w.seed, TABLES_SLOTS);
	batch.n_layers = w.n_layers;
	batch.layer_events = e.layers;
	tables_random_items(&w, batch.n, 1 + (uint32_t)random_below(&w.seed, w.n_tables));
	for (uint32_t l = 0; l < w.n_layers; l++) {
		fake_cuda_hold(forward);
		ck_assert_int_eq(scout__cuda_api_event_record(e.layers[l], forward), 0);
	}
	ck_assert_int_eq(ops->start(w.engine, &batch), 0);
	for (uint32_t l = 0; l < w.n_layers; l++) {
		/* It is computed now, later than anything that was read so far. */
		for (uint32_t t = 0; t < w.n_tables; t++)
			for (uint32_t p = w.first_plane[l * w.n_tables + t];
			     p < w.first_plane[(l + 1) * w.n_tables + t]; p++) {
				size_t bytes = w.layouts[t].n_blocks * w.tables[t].planes[p].stride;

				memset(w.tables[t].pages[p] + GUARD, (int)(l + 1), bytes);
				memset(w.tables[t].model[p] + GUARD, (int)(l + 1), bytes);
			}
		fake_cuda_release(forward);
		if (l + 1 < w.n_layers && tables_layer_has_planes(&w, batch.n, l + 1)) {
			wait_queries(3);
			ck_assert_ptr_null(ops->poll(w.engine));
		}
	}
	ck_assert_ptr_eq(next_ended(w.engine), &batch);
	ck_assert_int_eq(batch.status, 0);
	tables_model_copy(&w, SCOUT__COPY_SAVE, batch.n, 0, w.n_layers);
	tables_assert_as_model(&w, "after the forward pass");
	ck_assert_int_eq(scout__cuda_api_stream_sync(forward), 0);
	scout__cuda_api_stream_free(forward);
	events_free(&e);
	stop_fake();
}
END_TEST

/* ---- failing ---- */

/* Call number _i fails: the batch says so, what it counts as done is there, and the next one works. */
START_LOOP_TEST(a_failed_step_spoils_no_item_that_is_counted, 0, 120)
{
	struct fake_cuda_options opt = options();
	struct scout__copy_batch batch = {
		.direction = SCOUT__COPY_LOAD, .n = 6, .items = w.items, .first_plane = w.first_plane};
	struct events e;

	opt.seed = 5;
	start_fake(77 + ((uint64_t)_i / 3 + (uint64_t)_i) % 3, &opt);
	open_tables(methods[_i % 3]);
	events_new(&e);
	tables_random_layers(&w);
	tables_random_items(&w, batch.n, w.n_tables);
	batch.n_layers = w.n_layers;
	batch.layer_events = e.layers;
	fake_cuda_fail_call(1 + (uint64_t)_i / 3, FAKE_CUDA_OUT_OF_MEMORY);
	run_batch(w.engine, &batch);
	fake_cuda_fail_call(0, 0);
	ck_assert(batch.status == 0 || batch.status == SCOUT_ERR_DEVICE);
	ck_assert(batch.status == 0 ? batch.n_done == batch.n : batch.n_done < batch.n);
	ck_assert_uint_le(batch.bytes, tables_bytes(&w, batch.n, 0, w.n_layers));
	tables_model_copy(&w, SCOUT__COPY_LOAD, batch.n, 0, w.n_layers);
	for (uint32_t l = 0; l < w.n_layers; l++)
		ck_assert(tables_layer_is(&w, SCOUT__COPY_LOAD, batch.n_done, l));
	if (!((struct scout__cuda *)w.engine)->failed) {
		run_batch(w.engine, &batch);
		ck_assert_int_eq(batch.status, 0);
		tables_assert_as_model(&w, "after the next one");
	}
	events_free(&e);
	stop_fake();
}
END_TEST

START_TEST(each_table_must_be_the_devices)
{
	struct fake_cuda_options opt = options();
	static uint8_t page[64];
	char err[300] = "";

	start_fake(3, &opt);
	w.tables[1].planes[0].base = page;
	w.tables[1].planes[0].stride = w.tables[1].planes[0].block_bytes = 1;
	w.layouts[1].n_blocks = 64;
	ck_assert_int_eq(try_open_tables("auto", err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_msg(strstr(err, "the table of group 2: planes[0]") != NULL, "%s", err);
	w.layouts[1].n_blocks = (uint64_t)INT32_MAX + 1;
	ck_assert_int_eq(try_open_tables("auto", err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_msg(strstr(err, "the table of group 2: ") && strstr(err, "blocks"), "%s", err);
	w.layouts[1].n_blocks = 0;
	ck_assert_int_eq(try_open_tables("auto", err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_ptr_null(w.engine);
	stop_fake();
}
END_TEST
