/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with the page tables of several groups is said by a code and a sentence that names the table or the group. */
#include <kvscout/protocol.h>

#include "worker_groups_rig.h"

#include "check_main.h"

static struct groups_world w;
static struct scout_worker *others[2];

static void
setup(void)
{
	groups_init(&w);
	memset(others, 0, sizeof(others));
}

static void
teardown(void)
{
	for (int i = 0; i < 2; i++)
		scout_worker_free(others[i]);
	groups_stop(&w);
}

static struct scout_worker *
new_worker(uint32_t i, const char *group)
{
	struct scout_worker *worker = NULL;
	struct scout_worker_config cfg;
	char err[512] = "";

	rig_worker_config(&w.rig, i, &cfg);
	cfg.group = group;
	ck_assert_msg(scout_worker_new(&cfg, &worker, err, sizeof(err)) == 0, "%s", err);
	return worker;
}

static void
refused(struct scout_worker *worker, const struct scout_table *tables, size_t n, int code, const char *text)
{
	char err[512] = "";

	ck_assert_int_eq(scout_worker_register(worker, tables, n, wait_limit_ms(), err, sizeof(err)), code);
	ck_assert_msg(strstr(err, text) != NULL, "\"%s\" is not in: %s", text, err);
}

static void
accepted(struct scout_worker *worker, const struct scout_table *tables, size_t n)
{
	char err[512] = "";

	ck_assert_msg(scout_worker_register(worker, tables, n, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(tables_are_checked_by_the_worker)
{
	struct scout_table good[GROUPS], t[GROUPS + 1];
	struct scout_plane narrow, gone;

	rig_start_server(&w.rig);
	others[0] = new_worker(0, "all window:128,unit=128 state");
	groups_tables(&w, good);
#define WRONG(i, field, value, n, code, text)                                                                          \
	do {                                                                                                           \
		memcpy(t, good, sizeof(good));                                                                         \
		t[GROUPS] = good[0];                                                                                   \
		t[i].field = value;                                                                                    \
		refused(others[0], t, n, code, text);                                                                  \
	} while (0)
	WRONG(1, group, 3, GROUPS, SCOUT_ERR_GROUP, "tables[1].group = 3: must be below 3");
	WRONG(1, group, UINT32_MAX, GROUPS, SCOUT_ERR_GROUP, "tables[1].group = 4294967295");
	WRONG(2, group, 0, GROUPS, SCOUT_ERR_GROUP, "tables[2].group = 0: another table is of this group");
	WRONG(0, group, 0, GROUPS + 1, SCOUT_ERR_GROUP, "4 tables");
	WRONG(0, group, 0, 33, SCOUT_ERR_GROUP, "33 tables");
	/* By the unit of its group, not by chunk_tokens. */
	WRONG(0, block_tokens, 128, GROUPS, SCOUT_ERR_INVALID,
	      "tables[0].block_tokens = 128: must be 1 or more and divide the unit of group 0, 64 tokens");
	WRONG(1, block_tokens, 48, GROUPS, SCOUT_ERR_INVALID,
	      "tables[1].block_tokens = 48: must be 1 or more and divide the unit of group 1, 128 tokens");
	WRONG(2, block_tokens, 0, GROUPS, SCOUT_ERR_INVALID, "tables[2].block_tokens = 0");
	WRONG(1, dtype, 99, GROUPS, SCOUT_ERR_INVALID, "tables[1].dtype = 99");
	WRONG(2, null_block, GROUPS_PAGES, GROUPS, SCOUT_ERR_INVALID, "tables[2].null_block = 64");
	WRONG(1, layout_tag, "N\nHD", GROUPS, SCOUT_ERR_INVALID, "tables[1].layout_tag");
	WRONG(1, n_planes, 0, GROUPS, SCOUT_ERR_INVALID, "tables[1].n_planes = 0");
	WRONG(2, planes, NULL, GROUPS, SCOUT_ERR_INVALID, "tables[2].planes");
	WRONG(2, n_blocks, 0, GROUPS, SCOUT_ERR_INVALID, "tables[2].n_blocks");
	narrow = gone = good[1].planes[0];
	narrow.stride = narrow.block_bytes - 1;
	WRONG(1, planes, &narrow, GROUPS, SCOUT_ERR_INVALID, "the table of group 1: planes[0]: base must be set");
	gone.base = (void *)16; /* no memory of ours */
	WRONG(1, planes, &gone, GROUPS, SCOUT_ERR_INVALID, "the table of group 1: planes[0]: 0x10");
#undef WRONG
	/* A block may be larger than a chunk where the unit is. */
	good[1].block_tokens = 128;
	accepted(others[0], good, GROUPS);
	refused(others[0], good, GROUPS, SCOUT_ERR_STATE, "registered already");
}
END_TEST

START_TEST(all_tables_together_have_planes_enough)
{
	static struct scout_plane many[SCOUT_MAX_PLANES];
	struct scout_table good[GROUPS];

	rig_start_server(&w.rig);
	others[0] = new_worker(0, "all window:128 state");
	groups_tables(&w, good);
	for (uint32_t p = 0; p < SCOUT_MAX_PLANES; p++)
		many[p] = good[0].planes[0];
	good[1].planes = many;
	good[1].n_planes = SCOUT_MAX_PLANES;
	refused(others[0], good, GROUPS, SCOUT_ERR_INVALID, "planes in all tables");
	good[1].n_planes = SCOUT_MAX_PLANES + 1;
	refused(others[0], good, GROUPS, SCOUT_ERR_INVALID, "tables[1].n_planes");
}
END_TEST

/* Two workers that read the same shards, and say other things of one group. */
START_TEST(workers_of_one_shard_must_agree_on_each_group)
{
	struct scout_table good[GROUPS], t[GROUPS];
	struct scout_plane wide;

	w.rig.readers = 2;
	rig_start_server(&w.rig);
	others[0] = new_worker(0, "all window:128 state");
	others[1] = new_worker(1, "all window:128 state");
	groups_tables(&w, good);
	good[0].layout_tag = good[1].layout_tag = "NHD";
	accepted(others[0], good, GROUPS);
#define DIFFERS(i, field, value, text)                                                                                 \
	do {                                                                                                           \
		memcpy(t, good, sizeof(good));                                                                         \
		t[i].field = value;                                                                                    \
		refused(others[1], t, GROUPS, SCOUT_ERR_SHARD_BYTES, text);                                            \
	} while (0)
	wide = good[1].planes[0];
	wide.block_bytes /= 2;
	DIFFERS(1, planes, &wide, "shard bytes = 8200 in group 1, this REGISTER says 4100");
	DIFFERS(0, dtype, 1, "dtype = 0 in group 0, this REGISTER says 1");
	DIFFERS(1, layout_tag, "HND", "layout_tag \"NHD\" in group 1, this REGISTER says \"HND\"");
	DIFFERS(1, layout_tag, NULL, "layout_tag \"NHD\" in group 1, this REGISTER says \"\"");
	DIFFERS(2, layout_tag, "NHD", "layout_tag \"\" in group 2, this REGISTER says \"NHD\"");
#undef DIFFERS
	/* Its share of the window would never be stored. */
	t[0] = good[0];
	t[1] = good[2];
	refused(others[1], t, 2, SCOUT_ERR_SHARD_BYTES,
		"kv_rank 0, reader 1 has no table of group 1, but its shard was registered with one");
	accepted(others[1], good, GROUPS);
}
END_TEST

START_TEST(a_group_without_a_table_stays_without)
{
	struct scout_table good[GROUPS];

	w.rig.readers = 2;
	rig_start_server(&w.rig);
	others[0] = new_worker(0, "all window:128 state");
	others[1] = new_worker(1, "all window:128 state");
	groups_tables(&w, good);
	accepted(others[0], good, 2);
	refused(others[1], good, GROUPS, SCOUT_ERR_SHARD_BYTES,
		"kv_rank 0, reader 1 has a table of group 2, but its shard was registered without one");
	accepted(others[1], good, 2);
	/* The only one that is left may change it. */
	scout_worker_free(others[1]);
	others[1] = NULL;
	ck_assert_int_eq(scout_worker_unregister(others[0]), 0);
	accepted(others[0], good, GROUPS);
}
END_TEST

/* Each KV rank has shards of its own: other orders of elements, and other sizes, are no difference between them. */
START_TEST(kv_ranks_may_have_other_layouts)
{
	struct scout_table good[GROUPS];

	w.rig.kv_ranks = 2;
	rig_start_server(&w.rig);
	others[0] = new_worker(0, "all window:128 state");
	others[1] = new_worker(1, "all window:128 state");
	groups_tables(&w, good);
	good[0].layout_tag = "NHD";
	accepted(others[0], good, GROUPS);
	good[0].layout_tag = "HND";
	accepted(others[1], good, 2);
}
END_TEST

START_TEST(groups_must_be_those_of_the_namespace)
{
	struct scout_table good[GROUPS];

	rig_start_server(&w.rig);
	others[0] = new_worker(0, "all window:128 state");
	groups_tables(&w, good);
	accepted(others[0], good, GROUPS);
	others[1] = new_worker(0, "all window:192 state");
	refused(others[1], good, GROUPS, SCOUT_ERR_GROUPS_DIFFER, "span_tokens = 128 in group 1, this HELLO says 192");
	scout_worker_free(others[1]);
	others[1] = new_worker(0, "all window:128");
	refused(others[1], good, 2, SCOUT_ERR_GROUPS_DIFFER, "has 3 groups, this HELLO says 2");
}
END_TEST

/* A job may name only groups that this worker has a table of. */
START_TEST(a_job_of_a_group_without_a_table_is_refused)
{
	struct scout_table good[GROUPS];
	int64_t ids[4] = {1, 2, 3, 4};
	uint8_t hashes[RIG_HASH] = {1};
	struct scout_blocks blocks[2] = {{.ids = ids, .n = 4}, {.group = 2, .ids = ids, .n = 4}};
	struct scout_retrieve retrieve = {.ticket = 5, .to_token = GROUPS_TOKENS, .blocks = blocks, .n_groups = 2};
	struct scout_store store = {.hashes = hashes, .hash_len = RIG_HASH, .n = 1, .blocks = blocks, .n_groups = 2};
	uint64_t job;

	rig_start_server(&w.rig);
	others[0] = new_worker(0, "all window:128 state");
	groups_tables(&w, good);
	accepted(others[0], good, 2);
	ck_assert_int_eq(scout_worker_retrieve(others[0], &retrieve, &job), SCOUT_ERR_GROUP);
	ck_assert_int_eq(scout_worker_store(others[0], &store, &job), SCOUT_ERR_GROUP);
	ck_assert_int_eq(scout_worker_fence(others[0], 2, ids, 1, NULL), SCOUT_ERR_GROUP);
	blocks[1].group = 1;
	ck_assert_int_eq(scout_worker_store(others[0], &store, &job), 0);
	ck_assert_int_eq(rig_wait(others[0], job).status, 0);
}
END_TEST
