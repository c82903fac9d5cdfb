/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Four workers of one model, in which a group of layers may have the same KV on several of them (as MLA under tensor parallelism),
 * and another group on each its own: every worker stores its share, and loads all of its shards.
 */
#include "worker_rig.h"

#include "check_main.h"

#define TOKENS 16u
#define UNITS 12u
#define WORKERS 4u
#define GROUPS 3u
#define PAGES 40u

/* How the four workers are numbered, and how many of them read each shard of each group. */
struct layout {
	uint32_t kv_ranks, readers;
	const char *group;
	uint32_t group_readers[GROUPS];
};

static const struct layout layouts[] = {
	{4, 1, "all all,readers=4 window:48,readers=2", {1, 4, 2}},
	{1, 4, "all all,readers=1 window:48,readers=2", {4, 1, 2}},
	{2, 2, "all all,readers=4 window:48,readers=1", {2, 4, 1}},
	{2, 2, "all,readers=1 all,readers=2 window:48,readers=4", {1, 2, 4}},
};

static struct rig rig;
static struct rig_pages pages[WORKERS][GROUPS];
static const struct layout *layout;

static void
start_client(void)
{
	struct scout_client_config cfg;
	char err[256] = "";

	scout_client_config_init(&cfg);
	cfg.lookup_timeout_ms = 5000;
	cfg.endpoint = rig.endpoint;
	cfg.name_space = "rig";
	cfg.chunk_tokens = TOKENS;
	cfg.kv_ranks = layout->kv_ranks;
	cfg.readers = layout->readers;
	cfg.group = layout->group;
	cfg.local_transport = rig_transport();
	ck_assert_msg(scout_client_new(&cfg, &rig.client, err, sizeof(err)) == 0, "%s", err);
	ck_assert_msg(scout_client_wait_ready(rig.client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
}

/* Groups of @wanted (bits) alone. */
static int
register_worker(uint32_t i, uint32_t wanted, char *err, size_t err_len)
{
	struct scout_table tables[GROUPS];
	uint32_t n = 0;

	for (uint32_t g = 0; g < GROUPS; g++) {
		if (!(wanted >> g & 1))
			continue;
		rig_table(&rig, &pages[i][g], &tables[n]);
		tables[n++].group = g;
	}
	return scout_worker_register(rig.workers[i], tables, n, wait_limit_ms(), err, err_len);
}

static void
make_worker(uint32_t i)
{
	static const uint64_t bytes[GROUPS][2] = {{61, 129}, {40, 40}, {500, 12}}, padding[2] = {3, 0};
	struct scout_worker_config cfg;
	char err[512] = "";

	rig_worker_config(&rig, i, &cfg);
	cfg.group = layout->group;
	ck_assert_msg(scout_worker_new(&cfg, &rig.workers[i], err, sizeof(err)) == 0, "%s", err);
	for (uint32_t g = 0; g < GROUPS; g++)
		rig_pages_init(&pages[i][g], 2, bytes[g], padding, PAGES);
}

static void
start(uint32_t i_layout, uint32_t n_registered)
{
	char err[512] = "";

	layout = &layouts[i_layout];
	rig_init(&rig);
	rig.chunk_tokens = rig.block_tokens = TOKENS;
	rig.kv_ranks = layout->kv_ranks;
	rig.readers = layout->readers;
	rig.n_workers = WORKERS;
	rig_start_server(&rig);
	start_client();
	for (uint32_t i = 0; i < WORKERS; i++) {
		make_worker(i);
		if (i < n_registered)
			ck_assert_msg(register_worker(i, 7, err, sizeof(err)) == 0, "worker %u: %s", i, err);
	}
}

static void
end(void)
{
	rig_stop(&rig);
	for (uint32_t i = 0; i < WORKERS; i++)
		for (uint32_t g = 0; g < GROUPS; g++)
			rig_pages_fini(&pages[i][g]);
}

/* What a shard holds: the same for all workers that read it. */
static uint32_t
shard_of(uint32_t i, uint32_t g)
{
	return 100 * g + i / layout->group_readers[g];
}

static struct scout_done
store(uint32_t i, uint32_t prompt)
{
	struct scout_blocks blocks[GROUPS];
	int64_t ids[UNITS];
	uint8_t *hashes = rig_hashes(prompt, UNITS);
	struct scout_store request = {
		.hashes = hashes, .hash_len = RIG_HASH, .n = UNITS, .blocks = blocks, .n_groups = GROUPS};
	uint64_t job = 0;

	for (uint32_t u = 0; u < UNITS; u++) {
		ids[u] = 1 + (int64_t)u;
		for (uint32_t g = 0; g < GROUPS; g++)
			rig_fill(&pages[i][g], ids[u], prompt, shard_of(i, g), u);
	}
	for (uint32_t g = 0; g < GROUPS; g++)
		blocks[g] = (struct scout_blocks){.group = g, .ids = ids, .n = UNITS};
	ck_assert_int_eq(scout_worker_store(rig.workers[i], &request, &job), 0);
	free(hashes);
	return rig_wait(rig.workers[i], job);
}

static void
load_and_check(uint32_t i, uint64_t ticket, uint32_t prompt)
{
	struct scout_blocks blocks[GROUPS];
	int64_t ids[GROUPS][UNITS];
	struct scout_retrieve retrieve = {
		.ticket = ticket, .to_token = UNITS * TOKENS, .blocks = blocks, .n_groups = GROUPS};
	struct scout_done done;
	uint64_t job = 0;

	for (uint32_t g = 0; g < GROUPS; g++) {
		rig_pages_wipe(&pages[i][g]);
		for (uint32_t u = 0; u < UNITS; u++)
			ids[g][u] = g < 2 || u + 3 >= UNITS ? 20 + (int64_t)u : -1;
		blocks[g] = (struct scout_blocks){.group = g, .ids = ids[g], .n = UNITS};
	}
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[i], &retrieve, &job), 0);
	done = rig_wait(rig.workers[i], job);
	ck_assert_msg(done.status == 0, "worker %u: %s", i, scout_err_name(done.status));
	ck_assert_uint_eq(done.chunks, 2 * UNITS + 3);
	for (uint32_t g = 0; g < GROUPS; g++)
		for (int64_t id = 0; id < PAGES; id++) {
			int64_t u = id - 20;

			if (u >= 0 && u < UNITS && ids[g][u] >= 0)
				ck_assert(rig_page_is(&pages[i][g], id, prompt, shard_of(i, g), (uint64_t)u));
			else
				ck_assert(rig_page_untouched(&pages[i][g], id));
		}
}

static struct scout_hit
look_up(uint32_t prompt, char id[32])
{
	uint8_t *hashes = rig_hashes(prompt, UNITS);
	struct scout_query query = {
		.id = id, .hashes = hashes, .hash_len = RIG_HASH, .n = UNITS, .prompt_tokens = UNITS * TOKENS + 1};
	struct scout_hit hit;

	(void)snprintf(id, 32, "r%u", rig.next_id++);
	ck_assert_int_eq(scout_wait_lookup(rig.client, &query, &hit), 0);
	free(hashes);
	return hit;
}

START_LOOP_TEST(each_worker_stores_its_share_and_loads_its_shards, 0, 4)
{
	char id[32];

	start((uint32_t)_i, WORKERS);
	for (uint32_t prompt = 1; prompt < 4; prompt++) {
		struct scout_hit hit;
		uint32_t hits = 0;

		for (uint32_t i = 0; i < WORKERS; i++) {
			struct scout_done done;

			/* Nothing is a hit before the last worker has stored its share. */
			ck_assert_uint_eq(look_up(prompt, id).tokens, 0);
			done = store(i, prompt);
			ck_assert_int_eq(done.status, 0);
			ck_assert_uint_eq(done.present, 0);
			hits += done.chunks;
		}
		/* Each unit of each group became one once. */
		ck_assert_uint_eq(hits, GROUPS * UNITS);
		/* None is stored again. */
		for (uint32_t i = 0; i < WORKERS; i++)
			ck_assert_uint_eq(store(i, prompt).chunks, 0);
		hit = look_up(prompt, id);
		ck_assert_uint_eq(hit.tokens, UNITS * TOKENS);
		ck_assert_int_eq(scout_admit(rig.client, id, 0, SCOUT_TO_END), 0);
		for (uint32_t i = WORKERS; i-- > 0;)
			load_and_check(i, hit.ticket, prompt);
	}
	end();
}
END_TEST

/* The shards of a group are known when a worker of each has come, in whichever order. */
START_LOOP_TEST(workers_come_in_any_order, 0, 8)
{
	static const uint32_t orders[][WORKERS] = {{3, 2, 1, 0}, {1, 3, 0, 2}};
	char err[512] = "", id[32];

	start((uint32_t)_i % 4, 0);
	for (uint32_t k = 0; k < WORKERS; k++)
		ck_assert_msg(register_worker(orders[_i / 4][k], 7, err, sizeof(err)) == 0, "%s", err);
	for (uint32_t i = 0; i < WORKERS; i++)
		ck_assert_int_eq(store(i, 1).status, 0);
	ck_assert_uint_eq(look_up(1, id).tokens, UNITS * TOKENS);
	end();
}
END_TEST
