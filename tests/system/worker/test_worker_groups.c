/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_rig.h"

#include "check_main.h"

/* A model with full attention, a sliding window and a recurrent state: client, server and worker together. */

#define TOKENS 16u /* of a hash, a block and an object */
#define HASHES 8u
#define GROUPS 3u
#define BLOCKS 64u
static const char groups[] = "all window:48 state"; /* a window of three objects */

static struct rig rig;
static struct rig_pages pages[GROUPS];

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
	cfg.group = groups;
	cfg.local_transport = rig_transport();
	ck_assert_msg(scout_client_new(&cfg, &rig.client, err, sizeof(err)) == 0, "%s", err);
	ck_assert_msg(scout_client_wait_ready(rig.client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
}

static void
start_worker(void)
{
	static const uint64_t bytes[GROUPS][2] = {{61, 129}, {40, 40}, {500, 12}}, padding[2] = {3, 0};
	struct scout_table tables[GROUPS];
	struct scout_worker_config cfg;
	char err[512] = "";

	rig_worker_config(&rig, 0, &cfg);
	cfg.group = groups;
	ck_assert_msg(scout_worker_new(&cfg, &rig.workers[0], err, sizeof(err)) == 0, "%s", err);
	for (uint32_t g = 0; g < GROUPS; g++) {
		rig_pages_init(&pages[g], 2, bytes[g], padding, BLOCKS);
		rig_table(&rig, &pages[g], &tables[GROUPS - 1 - g]); /* in any order */
		tables[GROUPS - 1 - g].group = g;
	}
	ck_assert_msg(scout_worker_register(rig.workers[0], tables, GROUPS, wait_limit_ms(), err, sizeof(err)) == 0,
		      "%s", err);
}

/* Store the prompt from pages 1.. of each group; there are states behind 4 and 8 hashes. */
static struct scout_done
store_prompt(uint32_t prompt)
{
	int64_t all[HASHES], states[HASHES];
	struct scout_blocks blocks[GROUPS] = {{.ids = all, .n = HASHES},
					      {.group = 1, .ids = all, .n = HASHES},
					      {.group = 2, .ids = states, .n = HASHES}};
	uint8_t *hashes = rig_hashes(prompt, HASHES);
	struct scout_store store = {
		.hashes = hashes, .hash_len = RIG_HASH, .n = HASHES, .blocks = blocks, .n_groups = GROUPS};
	uint64_t job;

	for (uint32_t i = 0; i < HASHES; i++) {
		all[i] = 1 + i;
		states[i] = i % 4 == 3 ? all[i] : -1;
		for (uint32_t g = 0; g < GROUPS; g++)
			rig_fill(&pages[g], all[i], prompt, g, i);
	}
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), 0);
	free(hashes);
	return rig_wait(rig.workers[0], job);
}

static void
setup(void)
{
	struct scout_done done;

	rig_init(&rig);
	rig.chunk_tokens = TOKENS;
	rig_start_server(&rig);
	start_client();
	start_worker();
	done = store_prompt(1);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.chunks, HASHES + HASHES + 2);
	ck_assert_uint_eq(done.null_chunks, HASHES - 2);
}

static void
teardown(void)
{
	rig_stop(&rig);
	for (uint32_t g = 0; g < GROUPS; g++)
		rig_pages_fini(&pages[g]);
}

static struct scout_query
question(const char *id, const void *hashes, uint64_t prompt_tokens)
{
	return (struct scout_query){.id = id,
				    .hashes = hashes,
				    .hash_len = RIG_HASH,
				    .n = prompt_tokens / TOKENS,
				    .prompt_tokens = prompt_tokens,
				    .want_lengths = 4};
}

/* Load @n hashes of the prompt to pages 20.., of the window and the state what they need. */
static struct scout_done
load(uint64_t ticket, uint32_t n)
{
	int64_t ids[GROUPS][HASHES];
	struct scout_blocks blocks[GROUPS];
	struct scout_retrieve retrieve = {
		.ticket = ticket, .to_token = (uint64_t)n * TOKENS, .blocks = blocks, .n_groups = GROUPS};
	uint64_t job;

	for (uint32_t g = 0; g < GROUPS; g++) {
		uint32_t needed = g == 0 ? n : g == 1 ? 3 : 1;

		for (uint32_t i = 0; i < n; i++)
			ids[g][i] = i + needed >= n ? 20 + (int64_t)i : -1;
		blocks[g] = (struct scout_blocks){.group = g, .ids = ids[g], .n = n};
		rig_pages_wipe(&pages[g]);
	}
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &retrieve, &job), 0);
	return rig_wait(rig.workers[0], job);
}

static void
assert_loaded(uint32_t prompt, uint32_t n)
{
	for (uint32_t g = 0; g < GROUPS; g++) {
		uint32_t needed = g == 0 ? n : g == 1 ? 3 : 1;

		for (uint32_t i = 0; i < BLOCKS; i++) {
			bool is_loaded = i >= 20 && i < 20 + n && i - 20 + needed >= n;

			ck_assert_msg(is_loaded ? rig_page_is(&pages[g], i, prompt, g, i - 20)
						: rig_page_untouched(&pages[g], i),
				      "group %u page %u", g, i);
		}
	}
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(a_hit_is_a_length_that_all_groups_can_restore)
{
	uint8_t *hashes = rig_hashes(1, HASHES);
	struct scout_query q = question("r1", hashes, HASHES * TOKENS + 1);
	uint64_t lengths[4];
	struct scout_hit hit;
	struct scout_done done;

	ck_assert_int_eq(scout_wait_lookup(rig.client, &q, &hit), 0);
	ck_assert_int_eq(hit.error, 0);
	ck_assert_uint_eq(hit.tokens, 8 * TOKENS);
	ck_assert_int_eq(scout_lookup_lengths(rig.client, "r1", lengths, 4), 2);
	ck_assert_uint_eq(lengths[0], 8 * TOKENS);
	ck_assert_uint_eq(lengths[1], 4 * TOKENS);
	ck_assert_int_eq(scout_admit(rig.client, "r1", 0, 6 * TOKENS), SCOUT_ERR_NOT_RESTORABLE);
	ck_assert_int_eq(scout_admit(rig.client, "r1", 0, 4 * TOKENS + 1), SCOUT_ERR_NOT_RESTORABLE);
	ck_assert_int_eq(scout_admit(rig.client, "r1", 0, 4 * TOKENS), 0);
	done = load(hit.ticket, 4);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.chunks, 4 + 3 + 1);
	assert_loaded(1, 4);
	free(hashes);
}
END_TEST

/* Of a prompt that ends with its last hash one token is left to compute: the state behind it is of no use. */
START_TEST(a_hit_is_not_cut_to_the_prompt)
{
	uint8_t *hashes = rig_hashes(1, HASHES);
	struct scout_query q = question("r1", hashes, HASHES * TOKENS);
	struct scout_hit hit;

	q.want_lengths = 0;
	ck_assert_int_eq(scout_wait_lookup(rig.client, &q, &hit), 0);
	ck_assert_uint_eq(hit.tokens, 4 * TOKENS);
	ck_assert_int_eq(scout_admit(rig.client, "r1", 0, SCOUT_TO_END), 0);
	ck_assert_int_eq(load(hit.ticket, 4).status, 0);
	assert_loaded(1, 4);
	free(hashes);
}
END_TEST

START_TEST(an_answer_ahead_is_evaluated_with_what_the_gpu_has)
{
	uint8_t *hashes = rig_hashes(1, HASHES);
	struct scout_query q = question("r1", hashes, HASHES * TOKENS + 1);
	uint64_t lengths[4];
	struct scout_hit hit;

	ck_assert_int_eq(scout_lookup_ahead(rig.client, &q), 0);
	q.computed_tokens = 5 * TOKENS;
	ck_assert_int_eq(scout_wait_lookup(rig.client, &q, &hit), 0);
	ck_assert_uint_eq(hit.tokens, 8 * TOKENS);
	ck_assert_uint_eq(hit.l1_chunks, 3 + 3 + 1);
	ck_assert_int_eq(scout_lookup_lengths(rig.client, "r1", lengths, 4), 1);
	ck_assert_int_eq(scout_admit(rig.client, "r1", 5 * TOKENS, SCOUT_TO_END), 0);
	free(hashes);
}
END_TEST

START_TEST(hashes_may_begin_behind_what_the_engine_has)
{
	uint8_t *hashes = rig_hashes(1, HASHES);
	struct scout_query q = question("r1", hashes + 4 * RIG_HASH, HASHES * TOKENS + 1);
	struct scout_hit hit;

	q.n = HASHES - 4;
	q.from_token = q.computed_tokens = 4 * TOKENS;
	ck_assert_int_eq(scout_wait_lookup(rig.client, &q, &hit), 0);
	ck_assert_int_eq(hit.error, 0);
	ck_assert_uint_eq(hit.tokens, 8 * TOKENS);
	free(hashes);
}
END_TEST

START_TEST(missing_pages_are_named_on_from_group_to_group)
{
	struct scout_done done = load(777, 4); /* no such session */

	ck_assert_int_ne(done.status, 0);
	ck_assert_uint_eq(done.n_missing, 4 + 3 + 1);
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_uint_eq(done.missing[i], i);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(done.missing[4 + i], 4 + 1 + i);
	ck_assert_uint_eq(done.missing[7], 8 + 3);
}
END_TEST

/* Ask until there is an answer. */
static struct scout_key_answer
answer_to(const struct scout_key_query *q, uint8_t *ret_states)
{
	struct scout_key_answer answer;
	int rc;

	while ((rc = scout_lookup_keys(rig.client, q, ret_states, &answer)) == SCOUT_NOT_YET)
		(void)scout_step_wait(rig.client, 1000000);
	ck_assert_int_eq(rc, 0);
	return answer;
}

/* Objects of several groups in any order, some of which are not there; each is loaded by its place in its group. */
START_TEST(keys_are_loaded_by_their_place)
{
	static const uint32_t groups_of[] = {2, 0, 1, 2, 0, 0, 1}, at[] = {3, 5, 7, 0, 1, 2, 0};
	static const uint8_t expected[] = {1, 1, 1, 0, 1, 0, 1};
	uint8_t *prompt = rig_hashes(1, HASHES), *other = rig_hashes(2, HASHES);
	uint8_t hashes[7 * RIG_HASH], states[7];
	/* Of group 0 keys 0 and 1, of group 1 both, of group 2 the first. */
	int64_t ids[GROUPS][2] = {{30, 31}, {40, 41}, {50, -1}};
	struct scout_blocks blocks[GROUPS];
	struct scout_key_query q = {.id = "k1", .groups = groups_of, .hashes = hashes, .hash_len = RIG_HASH, .n = 7};
	struct scout_retrieve retrieve = {.to_token = 2 * TOKENS, .blocks = blocks, .n_groups = GROUPS};
	struct scout_key_answer answer;
	struct scout_done done;
	uint64_t job;

	for (uint32_t i = 0; i < 7; i++)
		memcpy(hashes + (size_t)i * RIG_HASH, (i == 5 ? other : prompt) + (size_t)at[i] * RIG_HASH, RIG_HASH);
	answer = answer_to(&q, states);
	ck_assert_mem_eq(states, expected, 7);
	ck_assert_uint_eq(answer.hits, 5);
	ck_assert_uint_eq(answer.l2_hits, 0);
	for (uint32_t g = 0; g < GROUPS; g++) {
		blocks[g] = (struct scout_blocks){.group = g, .ids = ids[g], .n = 2};
		rig_pages_wipe(&pages[g]);
	}
	retrieve.ticket = answer.ticket;
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &retrieve, &job), 0);
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.chunks, 5);
	for (uint32_t g = 0; g < GROUPS; g++)
		for (uint32_t i = 0; i < BLOCKS; i++) {
			/* Which object of the prompt is to be there. */
			int64_t object = g == 0 && i == 30   ? 5
					 : g == 0 && i == 31 ? 1
					 : g == 1 && i == 40 ? 7
					 : g == 1 && i == 41 ? 0
					 : g == 2 && i == 50 ? 3
							     : -1;

			ck_assert_msg(object >= 0 ? rig_page_is(&pages[g], i, 1, g, (uint64_t)object)
						  : rig_page_untouched(&pages[g], i),
				      "group %u page %u", g, i);
		}
	/* After the end of the question there is nothing to load. */
	ck_assert_int_eq(scout_finish(rig.client, "k1"), 0);
	free(prompt);
	free(other);
}
END_TEST

START_TEST(a_range_of_keys_names_those_that_are_no_hits)
{
	uint8_t *prompt = rig_hashes(1, HASHES), *other = rig_hashes(2, HASHES);
	uint8_t hashes[3 * RIG_HASH], states[3];
	int64_t ids[3] = {30, 31, 32};
	struct scout_blocks blocks = {.ids = ids, .n = 3};
	struct scout_key_query q = {.id = "k1", .hashes = hashes, .hash_len = RIG_HASH, .n = 3};
	struct scout_retrieve retrieve = {.to_token = 3 * TOKENS, .blocks = &blocks, .n_groups = 1};
	struct scout_done done;
	uint64_t job;

	memcpy(hashes, prompt + 6 * RIG_HASH, RIG_HASH);
	memcpy(hashes + RIG_HASH, other, RIG_HASH);
	memcpy(hashes + 2 * RIG_HASH, prompt, RIG_HASH);
	retrieve.ticket = answer_to(&q, states).ticket;
	rig_pages_wipe(&pages[0]);
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &retrieve, &job), 0);
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, SCOUT_ERR_MISSING);
	ck_assert_uint_eq(done.n_missing, 1);
	ck_assert_uint_eq(done.missing[0], 1);
	ck_assert(rig_page_is(&pages[0], 30, 1, 0, 6));
	ck_assert(rig_page_untouched(&pages[0], 31));
	ck_assert(rig_page_is(&pages[0], 32, 1, 0, 0));
	free(prompt);
	free(other);
}
END_TEST

START_TEST(groups_of_a_job_are_checked)
{
	int64_t ids[2] = {1, 2};
	struct scout_blocks blocks[2] = {{.group = 1, .ids = ids, .n = 2}, {.group = 1, .ids = ids, .n = 2}};
	struct scout_retrieve retrieve = {.ticket = 5, .to_token = 2 * TOKENS, .blocks = blocks, .n_groups = 2};
	uint64_t job;

	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &retrieve, &job), SCOUT_ERR_GROUP);
	blocks[1].group = 0;
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &retrieve, &job), SCOUT_ERR_GROUP);
	blocks[1].group = 3;
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &retrieve, &job), SCOUT_ERR_GROUP);
	blocks[1].group = 2;
	ids[1] = BLOCKS;
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &retrieve, &job), SCOUT_ERR_BLOCK_ID);
	ck_assert_int_eq(scout_worker_fence(rig.workers[0], 3, ids, 1, NULL), SCOUT_ERR_GROUP);
	ck_assert_int_eq(scout_worker_fence(rig.workers[0], 2, ids, 1, NULL), 0);
}
END_TEST
