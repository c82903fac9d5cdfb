/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_groups_rig.h"

const uint32_t groups_bpc[GROUPS] = {4, 2, 1}, groups_planes[GROUPS] = {4, 1, 2};
const uint32_t groups_layers[GROUPS_LAYERS * GROUPS] = {1, 0, 1, 1, 1, 0, 2, 0, 1};

static const char key_group[] = "all window:128 state";

uint32_t
groups_layer_begin(uint32_t l, uint32_t g)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < l; i++)
		at += groups_layers[i * GROUPS + g];
	return at;
}

void
groups_init(struct groups_world *w)
{
	memset(w, 0, sizeof(*w));
	rig_init(&w->rig);
	w->rig.chunk_tokens = GROUPS_TOKENS;
	groups_pages_init(w->pages, GROUPS_PAGES);
}

void
groups_pages_init(struct rig_pages pages[GROUPS], uint64_t n_blocks)
{
	static const uint64_t bytes[GROUPS][GROUPS_PLANES] = {{61, 129, 2048, 33}, {4100}, {500, 12}};
	static const uint64_t padding[GROUPS_PLANES] = {3, 0, 32, 0};

	for (uint32_t g = 0; g < GROUPS; g++)
		rig_pages_init(&pages[g], groups_planes[g], bytes[g], padding, n_blocks);
}

static void
start_client(struct groups_world *w)
{
	struct scout_client_config cfg;
	char err[256] = "";

	scout_client_config_init(&cfg);
	cfg.lookup_timeout_ms = 5000;
	cfg.endpoint = w->rig.endpoint;
	cfg.name_space = "rig";
	cfg.chunk_tokens = GROUPS_TOKENS;
	cfg.group = key_group;
	cfg.local_transport = rig_transport();
	ck_assert_msg(scout_client_new(&cfg, &w->rig.client, err, sizeof(err)) == 0, "%s", err);
	ck_assert_msg(scout_client_wait_ready(w->rig.client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
}

void
groups_start(struct groups_world *w)
{
	rig_start_server(&w->rig);
	start_client(w);
}

void
groups_worker_start(struct groups_world *w, const char *backend, const char *method)
{
	struct scout_worker_config cfg;
	char err[512] = "";

	rig_worker_config(&w->rig, 0, &cfg);
	cfg.group = key_group;
	if (backend)
		cfg.backend = backend;
	cfg.copy_method = method;
	cfg.stage_bytes = 512 << 10;
	ck_assert_msg(scout_worker_new(&cfg, &w->rig.workers[0], err, sizeof(err)) == 0, "%s", err);
	groups_register(w);
}

void
groups_tables(const struct groups_world *w, struct scout_table tables[GROUPS])
{
	for (uint32_t g = 0; g < GROUPS; g++) {
		rig_table(&w->rig, &w->pages[g], &tables[g]);
		tables[g].group = g;
		tables[g].block_tokens = GROUPS_TOKENS / groups_bpc[g];
		tables[g].null_block = 0;
	}
}

void
groups_register(struct groups_world *w)
{
	struct scout_table tables[GROUPS];
	char err[512] = "";

	groups_tables(w, tables);
	ck_assert_msg(scout_worker_register(w->rig.workers[0], tables, GROUPS, wait_limit_ms(), err, sizeof(err)) == 0,
		      "%s", err);
}

void
groups_stop(struct groups_world *w)
{
	rig_stop(&w->rig);
	for (uint32_t g = 0; g < GROUPS; g++)
		rig_pages_fini(&w->pages[g]);
}

bool
groups_needs(uint32_t g, uint64_t unit)
{
	return g == 0 || (g == 1 && unit + 2 >= GROUPS_UNITS) || unit + 1 == GROUPS_UNITS;
}

void
groups_blocks(struct groups_blocks *b, int64_t first, bool needed_only)
{
	for (uint32_t g = 0; g < GROUPS; g++) {
		uint64_t n = (uint64_t)GROUPS_UNITS * groups_bpc[g];

		for (uint64_t i = 0; i < n; i++) {
			bool wanted = !needed_only || groups_needs(g, i / groups_bpc[g]);

			b->ids[g][i] = wanted ? first + (int64_t)i : (int64_t)(i % 2) - 1;
		}
		b->blocks[g] = (struct scout_blocks){.group = g, .ids = b->ids[g], .n = n};
	}
}

void
groups_fill(const struct groups_world *w, uint32_t prompt, int64_t first, uint32_t from, uint32_t to)
{
	for (uint32_t g = 0; g < GROUPS; g++)
		for (uint64_t b = 0; b < (uint64_t)GROUPS_UNITS * groups_bpc[g]; b++)
			for (uint32_t p = groups_layer_begin(from, g); p < groups_layer_begin(to, g); p++)
				for (uint64_t o = 0; o < w->pages[g].planes[p].block_bytes; o++)
					rig_page(&w->pages[g], p, first + (int64_t)b)[o] = rig_byte(prompt, g, b, p, o);
}

uint64_t
groups_store(struct groups_world *w, uint32_t prompt, struct scout_store store)
{
	uint8_t *hashes = rig_hashes(prompt, GROUPS_UNITS);
	struct groups_blocks b;
	uint64_t job = 0;

	groups_blocks(&b, 1, false);
	store.hashes = hashes;
	store.hash_len = RIG_HASH;
	store.n = GROUPS_UNITS;
	store.blocks = b.blocks;
	store.n_groups = GROUPS;
	ck_assert_int_eq(scout_worker_store(w->rig.workers[0], &store, &job), 0);
	free(hashes);
	return job;
}

void
groups_store_all(struct groups_world *w, uint32_t prompt)
{
	struct scout_done done;

	groups_fill(w, prompt, 1, 0, GROUPS_LAYERS);
	done = rig_wait(w->rig.workers[0], groups_store(w, prompt, (struct scout_store){.ticket = 0}));
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.chunks, GROUPS * GROUPS_UNITS);
}

uint64_t
groups_load(struct groups_world *w, uint32_t prompt, int64_t first, struct scout_retrieve retrieve)
{
	uint8_t *hashes = rig_hashes(prompt, GROUPS_UNITS);
	struct groups_blocks b;
	struct scout_query query;
	struct scout_hit hit;
	char id[32];
	uint64_t job = 0;

	(void)snprintf(id, sizeof(id), "g%u", w->rig.next_id++);
	query = (struct scout_query){.id = id,
				     .hashes = hashes,
				     .hash_len = RIG_HASH,
				     .n = GROUPS_UNITS,
				     .prompt_tokens = GROUPS_UNITS * GROUPS_TOKENS + 1};
	ck_assert_int_eq(scout_wait_lookup(w->rig.client, &query, &hit), 0);
	ck_assert_uint_eq(hit.tokens, GROUPS_UNITS * GROUPS_TOKENS);
	groups_blocks(&b, first, true);
	retrieve.ticket = hit.ticket;
	retrieve.to_token = GROUPS_UNITS * GROUPS_TOKENS;
	retrieve.blocks = b.blocks;
	retrieve.n_groups = GROUPS;
	ck_assert_int_eq(scout_worker_retrieve(w->rig.workers[0], &retrieve, &job), 0);
	free(hashes);
	return job;
}

static bool
plane_is(const struct rig_pages *pages, uint32_t g, uint32_t p, int64_t id, uint32_t prompt, int64_t block)
{
	for (uint64_t o = 0; o < pages->planes[p].block_bytes; o++) {
		uint8_t want = prompt ? rig_byte(prompt, g, (uint64_t)block, p, o) : RIG_CANARY;

		if (rig_page(pages, p, id)[o] != want)
			return false;
	}
	return true;
}

void
groups_assert_loaded(const struct groups_world *w, uint32_t prompt, int64_t first, uint32_t n)
{
	for (uint32_t g = 0; g < GROUPS; g++)
		for (int64_t id = 0; id < (int64_t)w->pages[g].n_blocks; id++)
			for (uint32_t p = 0; p < groups_planes[g]; p++) {
				int64_t b = id - first;
				bool is_in = b >= 0 && b < (int64_t)(GROUPS_UNITS * groups_bpc[g]) &&
					     groups_needs(g, (uint64_t)b / groups_bpc[g]) &&
					     p < groups_layer_begin(n, g);

				ck_assert_msg(plane_is(&w->pages[g], g, p, id, is_in ? prompt : 0, b),
					      "group %u page %d plane %u", g, (int)id, p);
			}
	for (uint32_t g = 0; g < GROUPS; g++)
		ck_assert(rig_gaps_untouched(&w->pages[g]));
}

void
groups_assert_untouched(const struct groups_world *w)
{
	groups_assert_loaded(w, 1, 0, 0);
}

void
groups_wipe(struct groups_world *w)
{
	for (uint32_t g = 0; g < GROUPS; g++)
		rig_pages_wipe(&w->pages[g]);
}
