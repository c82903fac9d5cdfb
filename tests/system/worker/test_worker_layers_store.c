/* SPDX-License-Identifier: Apache-2.0 */
/* Stores whose layers are announced one after the other: read as they come, committed as whole chunks. */
#include "worker_rig.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "check_main.h"
#include "host_gate.h"
#include "worker_internal.h"
#include "layers_rig.h"

static struct scout_store
announced_store(const uint8_t *hashes, const struct scout_blocks *blocks)
{
	return (struct scout_store){
		.hashes = hashes,
		.hash_len = RIG_HASH,
		.n = CHUNKS,
		.blocks = blocks,
		.n_groups = 1,
		.n_layers = 3,
		.layer_planes = layers,
		.announced = 1,
	};
}

/* What layer @l computes, or what is there before and after. */
static void
write_layer(const int64_t *ids, uint32_t l, uint32_t prompt)
{
	for (uint64_t b = 0; b < BLOCKS; b++)
		for (uint32_t p = layer_begin[l]; p < layer_begin[l + 1]; p++)
			for (uint64_t o = 0; o < rig.pages[0].planes[p].block_bytes; o++)
				rig_page(&rig.pages[0], p, ids[b])[o] =
					prompt ? rig_byte(prompt, 0, b, p, o) : RIG_CANARY;
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(a_layer_is_read_when_it_is_announced_and_retrieves_overtake)
{
	int64_t *ids = rig_ids(1, 1, BLOCKS), *back = rig_ids(40, 1, BLOCKS);
	uint8_t *hashes = rig_hashes(9, CHUNKS);
	struct scout_store store = announced_store(hashes, &(struct scout_blocks){.ids = ids, .n = BLOCKS});
	struct scout_progress progress;
	struct scout_done done;
	struct scout_hit hit;
	uint64_t job = 0;
	char id[32];

	rig_store_all(&rig, 1, CHUNKS, 20);
	hit = rig_lookup(&rig, 1, CHUNKS, id);
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), 0);
	for (uint32_t l = 0; l < 3; l++) {
		/* The forward pass needs a retrieve that was submitted behind the store. */
		done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 0, back, BLOCKS, 0));
		ck_assert_int_eq(done.status, 0);
		ck_assert_int_eq(progress_of(job, &progress), 0);
		ck_assert_uint_eq(progress.copied, l);
		ck_assert_uint_eq(progress.layers, 3);
		write_layer(ids, l, 9);
		ck_assert_int_eq(scout_worker_layer_ready(rig.workers[0], job, l + 1), 0);
		ck_assert_int_eq(scout_worker_layer_ready(rig.workers[0], job, l), 0);
		ck_assert_int_eq(scout_worker_wait_layer(rig.workers[0], job, l + 1, wait_limit_ms()), 0);
		write_layer(ids, l, 0); /* read by now, and not once more */
	}
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.chunks, CHUNKS);
	ck_assert_uint_eq(done.bytes, BLOCKS * (61 + 128 + 1 + 300 + 64));
	hit = rig_lookup(&rig, 9, CHUNKS, id);
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 0, back, BLOCKS, 0));
	ck_assert_int_eq(done.status, 0);
	assert_layers(back, 9, 3);
	/* What is there already needs no layers. */
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), 0);
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.present, CHUNKS);
	free(hashes);
	free(back);
	free(ids);
}
END_TEST

/* After _i layers. By cancel, by fence, by the end of the worker. */
START_LOOP_TEST(a_store_that_waits_for_a_layer_can_be_ended, 0, 12)
{
	int64_t *ids = rig_ids(1, 1, BLOCKS);
	uint8_t *hashes = rig_hashes(9, CHUNKS);
	struct scout_store store = announced_store(hashes, &(struct scout_blocks){.ids = ids, .n = BLOCKS});
	uint32_t n = (uint32_t)_i / 4, way = (uint32_t)_i % 4;
	struct scout_done done;
	uint64_t job = 0;
	char id[32];

	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), 0);
	ck_assert_int_eq(scout_worker_layer_ready(rig.workers[0], job, n), 0);
	ck_assert_int_eq(scout_worker_wait_layer(rig.workers[0], job, n, wait_limit_ms()), 0);
	if (way == 0) {
		ck_assert_int_eq(scout_worker_cancel(rig.workers[0], job), 0);
	} else if (way == 1) {
		ck_assert_int_eq(scout_worker_fence(rig.workers[0], 0, ids, BLOCKS, NULL), 0);
	} else if (way == 2) {
		rig_server_end(&rig, SIGKILL);
	} else {
		scout_worker_free(rig.workers[0]);
		rig.workers[0] = NULL;
	}
	if (rig.workers[0]) {
		done = rig_wait(rig.workers[0], job);
		ck_assert_int_eq(done.status, way == 2 ? SCOUT_ERR_UNREACHABLE : SCOUT_ERR_CANCELED);
		ck_assert_uint_eq(done.chunks, 0);
		ck_assert_int_eq(scout_worker_layer_ready(rig.workers[0], job, 3), SCOUT_ERR_STATE);
	}
	if (way != 2)
		ck_assert_uint_eq(rig_lookup(&rig, 9, CHUNKS, id).chunks, 0);
	free(hashes);
	free(ids);
}
END_TEST

/* Item _i + 1 of the nine fails, each layer in a batch of its own: only whole chunks are committed. */
START_LOOP_TEST(an_announced_layer_that_fails_commits_whole_chunks_only, 0, 9)
{
	struct scout__copy_faults faults = {.fail_item = (uint64_t)_i + 1};
	int64_t *ids = rig_ids(1, 1, BLOCKS);
	uint8_t *hashes = rig_hashes(9, CHUNKS);
	struct scout_store store = announced_store(hashes, &(struct scout_blocks){.ids = ids, .n = BLOCKS});
	struct scout_done done;
	uint64_t job = 0;
	char id[32];
	int rc = 0;

	scout__copy_host_faults(&faults);
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), 0);
	for (uint32_t l = 1; l <= 3 && rc == 0; l++) {
		ck_assert_int_eq(scout_worker_layer_ready(rig.workers[0], job, l), 0);
		rc = scout_worker_wait_layer(rig.workers[0], job, l, wait_limit_ms());
	}
	ck_assert_int_eq(rc, SCOUT_ERR_DEVICE);
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, SCOUT_ERR_DEVICE);
	ck_assert_uint_eq(done.chunks, _i < 6 ? 0 : _i - 6);
	ck_assert_uint_eq(rig_lookup(&rig, 9, CHUNKS, id).chunks, _i < 6 ? 0 : _i - 6);
	free(hashes);
	free(ids);
}
END_TEST

START_TEST(announcing_what_cannot_be_announced_is_refused)
{
	int64_t *ids = rig_ids(1, 1, BLOCKS);
	uint8_t *hashes = rig_hashes(9, CHUNKS);
	struct scout_store store = announced_store(hashes, &(struct scout_blocks){.ids = ids, .n = BLOCKS});
	uint64_t job = 0, plain;

	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), 0);
	ck_assert_int_eq(scout_worker_layer_ready(rig.workers[0], job, 4), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_layer_ready(NULL, job, 1), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_layer_ready(rig.workers[0], 77, 1), SCOUT_ERR_STATE);
	plain = rig_store(&rig, 0, 3, 1, 40);
	ck_assert_int_eq(scout_worker_layer_ready(rig.workers[0], plain, 1), SCOUT_ERR_INVALID);
	ck_assert_int_eq(rig_wait(rig.workers[0], plain).status, 0);
	ck_assert_int_eq(scout_worker_layer_ready(rig.workers[0], job, 3), 0);
	ck_assert_int_eq(rig_wait(rig.workers[0], job).status, 0);
	store.announced = 2;
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), SCOUT_ERR_INVALID);
	store.announced = 1;
	store.n_layers = 0;
	store.layer_planes = NULL;
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), SCOUT_ERR_INVALID);
	free(hashes);
	free(ids);
}
END_TEST
