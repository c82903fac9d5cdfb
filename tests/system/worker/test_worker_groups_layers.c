/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs of several groups that are copied layer by layer, with a real server, on the host backend: a layer takes planes of each
 * group's table, and of some tables none. The gate lets a number of items pass and is shut then.
 */
#include "worker_groups_rig.h"

#include "check_main.h"
#include "host_gate.h"
#include "worker_internal.h"

#define NEEDED (GROUPS_UNITS + 2 + 1) /* units of all groups that a hit needs */

static struct groups_world w;

static void
setup(void)
{
	groups_init(&w);
	groups_start(&w);
	groups_worker_start(&w, "host", NULL);
}

static void
teardown(void)
{
	host_gate_open();
	groups_stop(&w);
	scout__copy_host_faults(NULL);
}

static int
wait_layer(uint64_t job, uint32_t layers)
{
	return scout_worker_wait_layer(w.rig.workers[0], job, layers, wait_limit_ms());
}

static uint64_t
load_in_layers(uint32_t prompt, int64_t first)
{
	return groups_load(&w, prompt, first,
			   (struct scout_retrieve){.n_layers = GROUPS_LAYERS, .layer_planes = groups_layers});
}

/* What was stored is right in all layers of all groups. */
static void
assert_stored(uint32_t prompt)
{
	groups_wipe(&w);
	ck_assert_int_eq(rig_wait(w.rig.workers[0], load_in_layers(prompt, 30)).status, 0);
	groups_assert_loaded(&w, prompt, 30, GROUPS_LAYERS);
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(a_layer_is_there_in_all_groups_before_the_next_is_copied)
{
	struct scout_progress progress;
	struct scout_done done;
	uint64_t job;

	groups_store_all(&w, 1);
	groups_wipe(&w);
	host_gate_shut();
	job = load_in_layers(1, 30);
	ck_assert_int_eq(wait_layer(job, GROUPS_LAYERS + 1), SCOUT_ERR_INVALID);
	for (uint32_t l = 1; l < GROUPS_LAYERS; l++) {
		ck_assert_int_eq(scout_worker_wait_layer(w.rig.workers[0], job, l, 0), SCOUT_ERR_TIMEOUT);
		/* All items but one: the layer of the last group is not there. */
		host_gate_pass(NEEDED - 1);
		wait_until(host_gate_passes() <= 0)
			;
		ck_assert_int_eq(scout_worker_wait_layer(w.rig.workers[0], job, l, 0), SCOUT_ERR_TIMEOUT);
		host_gate_pass(1);
		ck_assert_int_eq(wait_layer(job, l), 0);
		groups_assert_loaded(&w, 1, 30, l);
		ck_assert_int_eq(scout_worker_progress(w.rig.workers[0], job, &progress), 0);
		ck_assert_uint_eq(progress.layers, GROUPS_LAYERS);
		ck_assert_uint_eq(progress.copied, l);
	}
	host_gate_open();
	ck_assert_int_eq(wait_layer(job, GROUPS_LAYERS), 0);
	done = rig_wait(w.rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.chunks, NEEDED);
	groups_assert_loaded(&w, 1, 30, GROUPS_LAYERS);
}
END_TEST

/* The forward pass computes a layer of all groups, announces it, and computes the next when it is copied. */
START_TEST(a_layer_of_a_store_is_read_when_it_is_announced)
{
	struct scout_progress progress;
	struct scout_done done;
	uint64_t job = groups_store(
		&w, 2, (struct scout_store){.n_layers = GROUPS_LAYERS, .layer_planes = groups_layers, .announced = 1});

	for (uint32_t l = 0; l < GROUPS_LAYERS; l++) {
		ck_assert_int_eq(scout_worker_wait_layer(w.rig.workers[0], job, l + 1, 0), SCOUT_ERR_TIMEOUT);
		groups_fill(&w, 2, 1, l, l + 1);
		ck_assert_int_eq(scout_worker_layer_ready(w.rig.workers[0], job, l + 1), 0);
		ck_assert_int_eq(wait_layer(job, l + 1), 0);
		ck_assert_int_eq(scout_worker_progress(w.rig.workers[0], job, &progress), 0);
		ck_assert_uint_eq(progress.copied, l + 1);
	}
	done = rig_wait(w.rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.chunks, GROUPS * GROUPS_UNITS);
	assert_stored(2);
}
END_TEST

/* Without announcements a layer of a store counts when it is copied of all groups, which are copied one after the other. */
START_TEST(a_layer_of_a_store_is_copied_when_it_is_of_all_groups)
{
	struct scout_progress progress;
	struct scout_done done;
	uint64_t job;

	groups_fill(&w, 3, 1, 0, GROUPS_LAYERS);
	host_gate_shut();
	job = groups_store(&w, 3, (struct scout_store){.n_layers = GROUPS_LAYERS, .layer_planes = groups_layers});
	/* Two groups completely, and of the third the first layer but for one unit. */
	host_gate_pass(2 * GROUPS_LAYERS * GROUPS_UNITS + GROUPS_UNITS - 1);
	wait_until(host_gate_passes() <= 0)
		;
	ck_assert_int_eq(scout_worker_wait_layer(w.rig.workers[0], job, 1, 0), SCOUT_ERR_TIMEOUT);
	host_gate_pass(1);
	ck_assert_int_eq(wait_layer(job, 1), 0);
	ck_assert_int_eq(scout_worker_progress(w.rig.workers[0], job, &progress), 0);
	ck_assert_uint_eq(progress.copied, 1);
	host_gate_open();
	done = rig_wait(w.rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.chunks, GROUPS * GROUPS_UNITS);
	assert_stored(3);
}
END_TEST

/* Item _i of a retrieve fails: what is named as filled is there in all layers, of whichever group. */
START_LOOP_TEST(a_copy_that_fails_in_a_layer_names_blocks_of_each_group, 0, 24)
{
	struct scout__copy_faults faults = {.fail_item = (uint64_t)_i + 1};
	uint32_t n_all = GROUPS_LAYERS * NEEDED, filled = _i < 16 ? 0 : (uint32_t)_i - 16, blocks = 0;
	struct scout_done done;
	uint64_t job;

	groups_store_all(&w, 1);
	groups_wipe(&w);
	scout__copy_host_faults(&faults);
	job = load_in_layers(1, 30);
	ck_assert_int_eq(wait_layer(job, GROUPS_LAYERS), SCOUT_ERR_DEVICE);
	done = rig_wait(w.rig.workers[0], job);
	ck_assert_uint_lt(_i, n_all);
	ck_assert_int_eq(done.status, SCOUT_ERR_DEVICE);
	ck_assert_uint_eq(done.chunks, filled);
	for (uint32_t i = filled; i < NEEDED; i++)
		blocks += i < GROUPS_UNITS ? groups_bpc[0] : i < GROUPS_UNITS + 2 ? groups_bpc[1] : groups_bpc[2];
	ck_assert_uint_eq(done.n_missing, blocks);
}
END_TEST

/* One group of an announced store fails: no layer counts, and the job ends once, with what the others stored. */
START_TEST(a_group_that_fails_ends_the_wait_for_a_layer)
{
	struct scout__copy_faults faults = {.fail_item = GROUPS_UNITS + 1};
	struct scout_done done, none;
	uint64_t job;

	groups_fill(&w, 5, 1, 0, GROUPS_LAYERS);
	scout__copy_host_faults(&faults);
	job = groups_store(
		&w, 5, (struct scout_store){.n_layers = GROUPS_LAYERS, .layer_planes = groups_layers, .announced = 1});
	ck_assert_int_eq(scout_worker_layer_ready(w.rig.workers[0], job, 1), 0);
	ck_assert_int_eq(wait_layer(job, 1), SCOUT_ERR_DEVICE);
	ck_assert_int_eq(scout_worker_layer_ready(w.rig.workers[0], job, GROUPS_LAYERS), 0);
	done = rig_wait(w.rig.workers[0], job);
	ck_assert_int_eq(done.status, SCOUT_ERR_DEVICE);
	ck_assert_uint_eq(done.chunks, 2 * GROUPS_UNITS);
	ck_assert_int_eq(scout_worker_poll(w.rig.workers[0], &none, 1), 0);
}
END_TEST

START_TEST(a_store_is_cancelled_in_all_groups_between_two_layers)
{
	struct scout_done done, none;
	uint64_t job = groups_store(
		&w, 6, (struct scout_store){.n_layers = GROUPS_LAYERS, .layer_planes = groups_layers, .announced = 1});

	groups_fill(&w, 6, 1, 0, 1);
	ck_assert_int_eq(scout_worker_layer_ready(w.rig.workers[0], job, 1), 0);
	ck_assert_int_eq(wait_layer(job, 1), 0);
	ck_assert_int_eq(scout_worker_cancel(w.rig.workers[0], job), 0);
	done = rig_wait(w.rig.workers[0], job);
	ck_assert_int_eq(done.status, SCOUT_ERR_CANCELED);
	ck_assert_uint_eq(done.chunks, 0);
	ck_assert_int_eq(scout_worker_poll(w.rig.workers[0], &none, 1), 0);
	/* Nothing half stored is found: a hit would end the load below with its bytes. */
	groups_store_all(&w, 6);
	assert_stored(6);
}
END_TEST

/* Group 1 has no pages at all; its layers count as copied. */
START_TEST(a_group_without_pages_has_its_layers_copied)
{
	struct groups_blocks b;
	uint8_t *hashes = rig_hashes(7, GROUPS_UNITS);
	struct scout_store store = {.hashes = hashes,
				    .hash_len = RIG_HASH,
				    .n = GROUPS_UNITS,
				    .blocks = b.blocks,
				    .n_groups = GROUPS,
				    .n_layers = GROUPS_LAYERS,
				    .layer_planes = groups_layers};
	struct scout_done done;
	uint64_t job;

	groups_blocks(&b, 1, false);
	for (uint32_t i = 0; i < GROUPS_MOST; i++)
		b.ids[1][i] = 0;
	groups_fill(&w, 7, 1, 0, GROUPS_LAYERS);
	ck_assert_int_eq(scout_worker_store(w.rig.workers[0], &store, &job), 0);
	ck_assert_int_eq(wait_layer(job, GROUPS_LAYERS), 0);
	done = rig_wait(w.rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.chunks, 2 * GROUPS_UNITS);
	ck_assert_uint_eq(done.null_chunks, GROUPS_UNITS);
	free(hashes);
}
END_TEST

/* Planes of each group by layer: all of each table, and some plane in each layer. */
START_TEST(layers_of_several_groups_are_checked)
{
	static const struct {
		uint32_t n;
		uint32_t planes[4 * GROUPS];
	} bad[] = {
		{3, {1, 0, 1, 1, 1, 0, 1, 0, 1}},          /* a plane of group 0 is left over */
		{3, {1, 0, 1, 1, 1, 0, 2, 1, 1}},          /* group 1 has not so many */
		{4, {1, 0, 1, 0, 0, 0, 1, 1, 0, 2, 0, 1}}, /* a layer of nothing */
		{0, {0}},
	};
	struct groups_blocks b;
	struct scout_retrieve retrieve = {
		.ticket = 5, .to_token = GROUPS_TOKENS, .blocks = b.blocks, .n_groups = GROUPS};
	uint64_t job = 0;

	groups_blocks(&b, 1, false);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		retrieve.n_layers = bad[i].n;
		retrieve.layer_planes = bad[i].planes;
		ck_assert_int_eq(scout_worker_retrieve(w.rig.workers[0], &retrieve, &job), SCOUT_ERR_INVALID);
	}
	/* The planes of those groups only that the job is about. */
	retrieve.blocks = &b.blocks[1];
	retrieve.n_groups = 2;
	retrieve.n_layers = 2;
	retrieve.layer_planes = (const uint32_t[]){0, 1, 1, 1};
	ck_assert_int_eq(scout_worker_retrieve(w.rig.workers[0], &retrieve, &job), 0);
	ck_assert_int_ne(rig_wait(w.rig.workers[0], job).status, 0); /* no such ticket */
}
END_TEST
