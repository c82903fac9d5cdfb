/* SPDX-License-Identifier: Apache-2.0 */
/* A job that is refused: the code says which kind of mistake it is, and a line in the log which group, what and what is allowed. */
#include "worker_groups_rig.h"

#include "check_main.h"
#include "worker_internal.h"

static struct groups_world w;
static struct scout_worker *worker;
static char said[600];
static unsigned n_said;

static void
keep(void *user, int level, const char *text)
{
	(void)user;
	if (level > SCOUT_LOG_WARN || !strstr(text, "is refused with"))
		return;
	n_said++;
	(void)snprintf(said, sizeof(said), "%s", text);
}

static void
setup(void)
{
	struct scout_worker_config cfg;
	char err[512] = "";

	groups_init(&w);
	rig_start_server(&w.rig);
	rig_worker_config(&w.rig, 0, &cfg);
	cfg.group = "all window:128 state";
	cfg.hash_tokens = 32;
	cfg.log = keep;
	ck_assert_msg(scout_worker_new(&cfg, &w.rig.workers[0], err, sizeof(err)) == 0, "%s", err);
	groups_register(&w);
	worker = w.rig.workers[0];
	n_said = 0;
}

static void
teardown(void)
{
	groups_stop(&w);
}

/* One line was written, with @call, the name of @code, and @text. */
static void
assert_said(const char *call, int code, const char *text)
{
	char head[100];

	(void)snprintf(head, sizeof(head), "a %s is refused with %s: ", call, scout_err_name(code));
	ck_assert_msg(n_said == 1 && strstr(said, head) && strstr(said, text), "%u: %s", n_said, said);
	n_said = 0;
	memset(&worker->refusal_limit, 0, sizeof(worker->refusal_limit)); /* as ten seconds later */
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(a_refused_retrieve_says_why)
{
	static const uint32_t layers[6] = {4, 1, 0, 0, 0, 1}, empty[6] = {4, 1, 2, 0, 0, 0};
	struct groups_blocks b;
	struct scout_retrieve good = {
		.ticket = 5, .to_token = GROUPS_UNITS * GROUPS_TOKENS, .blocks = b.blocks, .n_groups = GROUPS};
	int dummy;
	uint64_t job;

#define REFUSED(change, code, text)                                                                                    \
	do {                                                                                                           \
		struct scout_retrieve r = good;                                                                        \
		groups_blocks(&b, 1, false);                                                                           \
		change;                                                                                                \
		ck_assert_int_eq(scout_worker_retrieve(worker, &r, &job), code);                                       \
		assert_said("retrieve", code, text);                                                                   \
	} while (0)
	REFUSED(r.blocks = NULL, SCOUT_ERR_INVALID, "blocks = NULL");
	REFUSED(r.n_groups = 0, SCOUT_ERR_INVALID, "n_groups = 0");
	REFUSED(r.n_groups = 4, SCOUT_ERR_GROUP, "n_groups = 4: this worker has registered the tables of 3 groups");
	REFUSED(b.blocks[1].group = 7, SCOUT_ERR_GROUP, "blocks[1].group = 7: this worker has registered no table");
	REFUSED(b.blocks[2].group = 1, SCOUT_ERR_GROUP,
		"blocks[2].group = 1: must be above the group of the entry before, which is 1");
	REFUSED(r.ticket = 0, SCOUT_ERR_INVALID, "ticket = 0");
	REFUSED(r.from_token = 1024, SCOUT_ERR_INVALID, "from_token = 1024, to_token = 320: must ascend");
	REFUSED(r.from_token = 16, SCOUT_ERR_INVALID,
		"from_token = 16: must be a multiple of block_tokens = 32 of group 1");
	REFUSED(b.blocks[1].first_token = 16, SCOUT_ERR_INVALID,
		"first_token = 16 of group 1: must be a multiple of its block_tokens = 32");
	REFUSED(b.blocks[1].first_token = 32, SCOUT_ERR_INVALID,
		"the 10 ids of group 1 cover tokens from 32 on, 32 each: must cover tokens 0 to 320");
	REFUSED(b.blocks[2].n = 4, SCOUT_ERR_INVALID, "the 4 ids of group 2 cover tokens from 0 on, 64 each");
	REFUSED(b.blocks[2].ids = NULL, SCOUT_ERR_INVALID, "ids (NULL) of group 2");
	REFUSED(b.ids[1][3] = GROUPS_PAGES, SCOUT_ERR_BLOCK_ID,
		"block id 64 of group 1: must be below n_blocks = 64, or negative");
	REFUSED(r.event = &dummy, SCOUT_ERR_UNSUPPORTED, "the host backend knows no events");
	REFUSED((r.n_layers = 2, r.layer_planes = layers), SCOUT_ERR_INVALID,
		"the layers take 1 of the planes of group 2, its table has 2");
	REFUSED((r.n_layers = 2, r.layer_planes = empty), SCOUT_ERR_INVALID, "layer 1 takes no plane of any group");
	REFUSED(r.layer_planes = layers, SCOUT_ERR_INVALID, "n_layers = 0: must be 1..");
#undef REFUSED
}
END_TEST

START_TEST(a_refused_store_says_why)
{
	struct groups_blocks b;
	uint8_t hashes[2 * GROUPS_UNITS * RIG_HASH] = {1};
	struct scout_store good = {.hashes = hashes,
				   .hash_len = RIG_HASH,
				   .n = (size_t)2 * GROUPS_UNITS,
				   .blocks = b.blocks,
				   .n_groups = GROUPS};
	uint64_t job;

#define REFUSED(change, code, text)                                                                                    \
	do {                                                                                                           \
		struct scout_store s = good;                                                                           \
		groups_blocks(&b, 1, false);                                                                           \
		change;                                                                                                \
		ck_assert_int_eq(scout_worker_store(worker, &s, &job), code);                                          \
		assert_said("store", code, text);                                                                      \
	} while (0)
	REFUSED(b.blocks[0].group = 1, SCOUT_ERR_GROUP, "blocks[1].group = 1: must be above");
	REFUSED(s.hashes = NULL, SCOUT_ERR_INVALID, "n = 10 hashes (NULL)");
	REFUSED(s.n = 5000000, SCOUT_ERR_INVALID, "n = 5000000 hashes: must be at most");
	REFUSED(s.first_token = 16, SCOUT_ERR_INVALID, "first_token = 16: must be a multiple of hash_tokens = 32");
	REFUSED(b.blocks[1].first_token = 64, SCOUT_ERR_INVALID,
		"the ids of group 1 begin at token 64, the hashes at 0: must begin there or before");
	REFUSED(b.blocks[2].n = 4, SCOUT_ERR_INVALID,
		"the 4 ids of group 2 cover tokens from 0 on, 64 each: must cover tokens 0 to 320");
	REFUSED(b.ids[2][1] = 1000, SCOUT_ERR_BLOCK_ID, "block id 1000 of group 2");
	REFUSED(s.announced = 1, SCOUT_ERR_INVALID, "announced = 1 with n_layers = 0");
	REFUSED(s.layer_events = (void *const[]){&b}, SCOUT_ERR_UNSUPPORTED, "the host backend knows no events");
#undef REFUSED
}
END_TEST

/* Ids that end inside of an object are not refused: the object is not the store's. Null blocks are counted. */
START_TEST(what_fills_no_unit_is_left_out)
{
	struct groups_blocks b;
	uint8_t *hashes = rig_hashes(1, (size_t)2 * GROUPS_UNITS);
	struct scout_store store = {.hashes = hashes,
				    .hash_len = RIG_HASH,
				    .n = 2 * GROUPS_UNITS - 1, /* the last unit has half of its hashes */
				    .blocks = b.blocks,
				    .n_groups = GROUPS};
	struct scout_done done;
	uint64_t job;

	groups_blocks(&b, 1, false);
	b.ids[0][5] = 0;
	b.ids[1][1] = -1;
	ck_assert_int_eq(scout_worker_store(worker, &store, &job), 0);
	done = rig_wait(worker, job);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.null_chunks, 2);
	ck_assert_uint_eq(done.chunks, GROUPS * (GROUPS_UNITS - 1) - 2);
	ck_assert_uint_eq(n_said, 0);
	free(hashes);
}
END_TEST

/* An engine that makes the same mistake for each request. */
START_TEST(the_same_mistake_is_said_once_in_a_while)
{
	struct scout_retrieve bad = {.ticket = 5, .n_groups = 0};
	uint64_t job;

	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(scout_worker_retrieve(worker, &bad, &job), SCOUT_ERR_INVALID);
	ck_assert_uint_eq(n_said, 1);
}
END_TEST
