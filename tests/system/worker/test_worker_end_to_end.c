/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_rig.h"

#include "check_main.h"

/*
 * Ten thousand random stores and retrieves through client, socket, server, pool, worker and copy engine (host backend), on
 * layouts as engines have them: planes of different sizes, one plane (MLA), 61 layers of two planes. The pool is smaller
 * than all that is stored, so chunks leave and come again. Every byte of every retrieved page is compared, and so is every page
 * that must not have been written, by its canary.
 */

#define OPERATIONS 3400 /* for each of the three layouts */
#define MAX_CHUNKS 4u
#define PAGES 96u

struct shape {
	uint32_t n_planes;
	uint64_t bytes[3], padding[3]; /* in turn */
	uint32_t layers;               /* 0: jobs are not layered */
	uint32_t n_prompts;            /* more than the pool has room for */
};

static const struct shape shapes[] = {
	{5, {61, 128, 1000}, {3, 0, 24}, 0, 400},
	{1, {1152, 1152, 1152}, {0, 0, 0}, 0, 400},
	{122, {32, 48, 33}, {0, 16, 7}, 61, 90},
};

static struct rig rig;
static uint32_t layer_planes[61];
static const struct shape *shape;
static uint64_t seed, n_retrieved, n_stored;

static void
setup(void)
{
	rig_init(&rig);
	rig.l1_bytes = 3u << 20;
	rig.extent_bytes = 512u << 10;
}

static void
teardown(void)
{
	rig_stop(&rig);
}

static uint64_t
below(uint64_t n)
{
	seed += 0x9e3779b97f4a7c15u;
	return (seed ^ seed >> 29) * 0xbf58476d1ce4e5b9u % n;
}

/* Distinct pages in random order; 0 is the null block. */
static void
pick_pages(int64_t *ids, size_t n)
{
	int64_t all[PAGES], swap;

	for (size_t i = 0; i < PAGES; i++)
		all[i] = (int64_t)i;
	for (size_t i = 0; i < n; i++) {
		size_t j = 1 + i + (size_t)below(PAGES - 1 - i);

		swap = all[1 + i];
		all[1 + i] = all[j];
		all[j] = swap;
		ids[i] = all[1 + i];
	}
}

static void
store_one(uint32_t prompt, size_t n)
{
	int64_t ids[MAX_CHUNKS * 4];
	uint8_t *hashes = rig_hashes(prompt, n);
	struct scout_store store = {
		.hashes = hashes,
		.hash_len = RIG_HASH,
		.n = n,
		.blocks = &(struct scout_blocks){.ids = ids, .n = n * rig.bpc},
		.n_groups = 1,
		.n_layers = shape->layers,
		.layer_planes = shape->layers ? layer_planes : NULL,
	};
	struct scout_done done;
	uint64_t job = 0;

	pick_pages(ids, n * rig.bpc);
	for (size_t b = 0; b < n * rig.bpc; b++)
		rig_fill(&rig.pages[0], ids[b], prompt, 0, b);
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), 0);
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	n_stored += done.bytes;
	free(hashes);
}

/* What must not be written looks as it did. */
static void
wipe(const int64_t *ids, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (uint32_t p = 0; p < rig.pages[0].n_planes; p++)
			memset(rig_page(&rig.pages[0], p, ids[i]), RIG_CANARY, rig.pages[0].planes[p].block_bytes);
}

static void
retrieve_one(uint32_t prompt)
{
	int64_t ids[MAX_CHUNKS * 4], asked[MAX_CHUNKS * 4];
	struct scout_blocks blocks = {.ids = asked};
	struct scout_retrieve retrieve = {
		.blocks = &blocks,
		.n_groups = 1,
		.n_layers = shape->layers,
		.layer_planes = shape->layers ? layer_planes : NULL,
	};
	struct scout_done done;
	struct scout_hit hit;
	size_t n, skip;
	uint64_t job = 0;
	char id[32];

	hit = rig_lookup(&rig, prompt, MAX_CHUNKS, id);
	n = hit.chunks * rig.bpc;
	skip = n ? (size_t)below(n) : 0;
	pick_pages(ids, n);
	wipe(ids, n);
	for (size_t b = 0; b < n; b++)
		asked[b] = below(9) == 0 ? 0 : ids[b];
	retrieve.ticket = hit.ticket;
	retrieve.to_token = n * rig.block_tokens;
	retrieve.from_token = skip * rig.block_tokens;
	blocks.n = n;
	if (n > 0) {
		ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &retrieve, &job), 0);
		done = rig_wait(rig.workers[0], job);
		ck_assert_int_eq(done.status, 0);
		ck_assert_uint_eq(done.n_missing, 0);
		n_retrieved += done.bytes;
	}
	for (size_t b = 0; b < n; b++) {
		if (b < skip || asked[b] == 0)
			ck_assert_msg(rig_page_untouched(&rig.pages[0], ids[b]), "block %zu was written", b);
		else
			ck_assert_msg(rig_page_is(&rig.pages[0], ids[b], prompt, 0, b), "block %zu is wrong", b);
	}
	(void)scout_finish(rig.client, id);
}

CHECKED_FIXTURE(setup, teardown);

START_LOOP_TEST(ten_thousand_stores_and_retrieves_move_every_byte, 0, 3)
{
	uint64_t bytes[RIG_MAX_PLANES], padding[RIG_MAX_PLANES];

	shape = &shapes[_i];
	seed = 77 + (uint64_t)_i;
	n_retrieved = 0;
	n_stored = 0;
	for (uint32_t p = 0; p < shape->n_planes; p++) {
		bytes[p] = shape->bytes[p % 3];
		padding[p] = shape->padding[p % 3];
	}
	for (uint32_t l = 0; l < shape->layers; l++)
		layer_planes[l] = 2;
	rig_pages_init(&rig.pages[0], shape->n_planes, bytes, padding, PAGES);
	rig_start(&rig);
	for (int i = 0; i < OPERATIONS; i++) {
		uint32_t prompt = (uint32_t)below(shape->n_prompts);

		if (below(2) == 0)
			store_one(prompt, 1 + (size_t)below(MAX_CHUNKS));
		else
			retrieve_one(prompt);
	}
	ck_assert(rig_gaps_untouched(&rig.pages[0]));
	/* Both happened, and often: chunks came back, and were stored again after they had left. */
	ck_assert_uint_gt(n_retrieved, 1u << 20);
	ck_assert_uint_gt(n_stored, 1u << 20);
}
END_TEST
