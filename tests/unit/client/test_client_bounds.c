/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "check_main.h"
#include "client_rig.h"

/* What is full, and what is refused: each with its own code, and nothing changes. */

/* ---- bounds ---- */

CHECKED_FIXTURE(rig_up, rig_down);

START_TEST(more_live_requests_than_max_lookups_is_busy)
{
	struct scout_hit hit;
	char id[32];
	int i, rc = 0;

	scout_client_free(client);
	rig_client("max_lookups", "8");
	rig_ready();
	for (i = 0; i < 9; i++) {
		struct scout_query q = rig_question(id, 2);

		snprintf(id, sizeof(id), "r%d", i);
		rc = scout_try_lookup(client, &q, &hit);
		if (i < 8)
			ck_assert_int_eq(rc, SCOUT_NOT_YET);
	}
	ck_assert_int_eq(rc, SCOUT_ERR_BUSY);
	ck_assert_uint_eq(rig_stats().busy, 1);
	ck_assert_int_eq(scout_finish(client, "r3"), 0); /* never refused */
	(void)rig_answer("r8", 2);
}
END_TEST

START_TEST(full_hash_arena_is_busy_and_drains)
{
	struct scout_query q;
	struct scout_hit hit;
	char id[32];
	int rc = SCOUT_NOT_YET, n = 0;

	scout_client_free(client);
	rig_client("arena_bytes", "65536");
	rig_ready();
	scout_step_begin(client); /* nothing is sent, so nothing comes back */
	while (rc == SCOUT_NOT_YET) {
		snprintf(id, sizeof(id), "r%d", n++);
		q = rig_question(id, 64); /* 2 KiB */
		rc = scout_try_lookup(client, &q, &hit);
	}
	ck_assert_int_eq(rc, SCOUT_ERR_BUSY);
	ck_assert_int_ge(n, 16);
	ck_assert_int_le(n, 33);
	scout_step_end(client);
	(void)rig_answer("r0", 64);
	(void)rig_answer(id, 64);
}
END_TEST

/* A frame of many hashes leaves with its buffer, a small one without; the one behind either begins as it should. */
START_TEST(frames_large_and_small_in_turn_arrive_whole)
{
	static const size_t sizes[] = {1, 5000, 5000, 64, 2047, 2048, 1, 20000, 3};
	const size_t n = sizeof(sizes) / sizeof(sizes[0]), longest = 20000;
	uint8_t *hashes = calloc(longest, RIG_HASH);
	struct scout_hit hit;
	char id[32];

	ck_assert_ptr_nonnull(hashes);
	for (size_t i = 0; i < longest * RIG_HASH; i++)
		hashes[i] = (uint8_t)(i * 13 + i / 251);
	fake_set_hit(fake, UINT32_MAX);
	for (size_t i = 0; i < 3 * n; i++) {
		struct scout_query q = rig_question(id, sizes[i % n]);

		(void)snprintf(id, sizeof(id), "r%zu", i);
		q.hashes = hashes;
		ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
		ck_assert_uint_eq(hit.chunks, sizes[i % n]);
		ck_assert_int_eq(scout_finish(client, id), 0);
	}
	ck_assert_uint_eq(rig_stats().reconnects, 0);
	free(hashes);
}
END_TEST

START_TEST(few_credits_delay_lookups_but_lose_none)
{
	struct scout_hit hit;
	char id[32];

	scout_client_free(client);
	fake_set_credits(fake, 2);
	fake_set_hit(fake, 2);
	rig_client(NULL, NULL);
	rig_ready();
	for (int i = 0; i < 200; i++) {
		struct scout_query q = rig_question(id, 2);

		snprintf(id, sizeof(id), "r%d", i);
		ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	}
	for (int i = 0; i < 200; i++) {
		snprintf(id, sizeof(id), "r%d", i);
		ck_assert_uint_eq(rig_answer(id, 2).chunks, 2);
		ck_assert_int_eq(scout_finish(client, id), 0);
	}
	ck_assert_uint_le(fake_max_ops(fake), 2);
}
END_TEST

START_TEST(queued_lookups_end_at_their_deadline_too)
{
	struct scout_hit hit;
	char id[32];

	scout_client_free(client);
	fake_set_credits(fake, 1);
	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_DROP, 0);
	rig_client("lookup_timeout_ms", "300");
	rig_ready();
	for (int i = 0; i < 20; i++) {
		struct scout_query q = rig_question(id, 2);

		snprintf(id, sizeof(id), "r%d", i);
		ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	}
	for (int i = 0; i < 20; i++) {
		snprintf(id, sizeof(id), "r%d", i);
		ck_assert_int_eq(rig_answer(id, 2).reason, SCOUT_REASON_TIMEOUT);
	}
}
END_TEST

/* ---- bad input: each its own code, and nothing changes ---- */

START_TEST(bad_request_ids)
{
	char long_id[SCOUT_MAX_NAME + 2];
	struct scout_query q = rig_question("", 2);
	struct scout_hit hit = {.tokens = 77};

	memset(long_id, 'x', sizeof(long_id));
	long_id[sizeof(long_id) - 1] = '\0';
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_REQUEST_ID);
	q.id = NULL;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_REQUEST_ID);
	q.id = long_id;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_REQUEST_ID);
	ck_assert_int_eq(scout_finish(client, ""), SCOUT_ERR_REQUEST_ID);
	ck_assert_int_eq(scout_admit(client, long_id, 0, 1), SCOUT_ERR_REQUEST_ID);
	long_id[SCOUT_MAX_NAME] = '\0'; /* 255 bytes */
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert_uint_eq(hit.tokens, 77);
}
END_TEST

START_TEST(bad_hash_lengths)
{
	struct scout_query q = rig_question("r1", 2);
	struct scout_hit hit;

	for (size_t len = 0; len < 70; len++) {
		q.hash_len = len;
		if (len != RIG_HASH)
			ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_HASH_LEN);
	}
	ck_assert_ptr_nonnull(strstr(scout_strerror(SCOUT_ERR_HASH_LEN), "hash_len"));
	ck_assert_uint_eq(rig_stats().live, 0);
}
END_TEST

START_TEST(other_hashes_for_a_live_id)
{
	struct scout_query q = rig_question("r1", 8);
	struct scout_hit hit;

	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	q.n = 7;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_STATE);
	q.n = 8;
	q.hashes = rig_hashes + 8; /* other bytes */
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_STATE);
	q.hashes = rig_hashes;
	q.tenant = "other";
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_STATE);
	q.tenant = "";
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
	q.n = 0;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_STATE);
}
END_TEST

START_TEST(bad_arguments)
{
	struct scout_query q = rig_question("r1", 8);
	struct scout_client_counters stats;
	struct scout_hit hit;
	char tenant[300];

	ck_assert_int_eq(scout_try_lookup(NULL, &q, &hit), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_try_lookup(client, NULL, &hit), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_try_lookup(client, &q, NULL), SCOUT_ERR_INVALID);
	q.hashes = NULL;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_INVALID);
	q = rig_question("r1", 8);
	q.prompt_tokens = 8 * RIG_CHUNK - 1; /* the chunks are longer than the prompt */
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_INVALID);
	q = rig_question("r1", 8);
	q.n = SCOUT_MAX_CHUNKS + 1;
	q.prompt_tokens = UINT64_MAX;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_INVALID);
	q = rig_question("r1", 8);
	memset(tenant, 't', sizeof(tenant));
	tenant[256] = '\0';
	q.tenant = tenant;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_TENANT);
	q.tenant = "a\nb";
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_TENANT);
	q.tenant = "\xff";
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_TENANT);
	q.tenant = NULL;
	ck_assert_int_eq(scout_try_lookup_sized(client, &q, 8, &hit, sizeof(hit)), SCOUT_ERR_UNSUPPORTED);
	ck_assert_int_eq(scout_lookup_sized(client, &q, sizeof(q), &hit, 8), SCOUT_ERR_UNSUPPORTED);
	ck_assert_int_eq(scout_lookup_ahead_sized(client, &q, 8), SCOUT_ERR_UNSUPPORTED);
	ck_assert_int_eq(scout_client_stats_sized(client, &stats, 4), SCOUT_ERR_UNSUPPORTED);
	ck_assert_int_eq(scout_finish(NULL, "x"), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_admit(NULL, "x", 0, 1), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_reset(NULL, 1), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_client_fd(NULL), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_lookup(NULL, &q, &hit), SCOUT_ERR_INVALID);
	ck_assert_uint_eq(rig_stats().live, 0);
}
END_TEST

/* A caller that was compiled against a later header, with larger structures. */
static char wrong[512];
static unsigned n_wrong;

static void
keep_wrong(void *user, int level, const char *text)
{
	(void)user;
	if (level != SCOUT_LOG_WARN)
		return;
	(void)snprintf(wrong, sizeof(wrong), "%s", text);
	n_wrong++;
}

/* The log says which field is wrong, once in 10 s for each code: an engine asks in every step. */
START_TEST(the_log_names_the_field_of_a_question_that_is_refused)
{
	struct scout_key_query keys = {.id = "k", .hashes = rig_hashes, .hash_len = 16, .n = 1};
	struct scout_query q = rig_question("r1", 8);
	struct scout_key_answer answer;
	struct scout_client_config cfg;
	struct scout_client *own;
	struct scout_hit hit;
	uint8_t states[1];
	char err[256];

	scout_client_config_init(&cfg);
	cfg.endpoint = fake_endpoint(fake);
	cfg.log = keep_wrong;
	ck_assert_int_eq(scout_client_new(&cfg, &own, err, sizeof(err)), 0);
	q.prompt_tokens = 1;
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(scout_try_lookup(own, &q, &hit), SCOUT_ERR_INVALID);
	ck_assert_msg(strstr(wrong, "\"r1\"") && strstr(wrong, "n = 8: must be"), "%s", wrong);
	q = rig_question("r2", 8);
	q.hash_len = 31;
	ck_assert_int_eq(scout_lookup_ahead(own, &q), SCOUT_ERR_HASH_LEN);
	ck_assert_msg(strstr(wrong, "hash_len = 31: must be hash_bytes = 32"), "%s", wrong);
	ck_assert_int_eq(scout_lookup_keys(own, &keys, states, &answer), SCOUT_ERR_HASH_LEN);
	q.tenant = "a\nb";
	q.hash_len = RIG_HASH;
	ck_assert_int_eq(scout_try_lookup(own, &q, &hit), SCOUT_ERR_TENANT);
	ck_assert_msg(strstr(wrong, "SCOUT_ERR_TENANT"), "%s", wrong);
	ck_assert_uint_eq(n_wrong, 3);
	scout_client_free(own);
}
END_TEST

START_TEST(larger_structures_of_a_newer_caller_work_while_what_is_unknown_is_0)
{
	struct {
		struct scout_query q;
		uint64_t beyond;
	} big = {.q = rig_question("r1", 8)};
	struct {
		struct scout_hit hit;
		uint64_t beyond;
	} answer = {.beyond = 4711};
	struct {
		struct scout_client_counters counters;
		uint64_t beyond;
	} counted = {.beyond = 4711};

	big.beyond = 1;
	ck_assert_int_eq(scout_try_lookup_sized(client, &big.q, sizeof(big), &answer.hit, sizeof(answer)),
			 SCOUT_ERR_UNSUPPORTED);
	ck_assert_int_eq(scout_lookup_ahead_sized(client, &big.q, sizeof(big)), SCOUT_ERR_UNSUPPORTED);
	ck_assert_uint_eq(rig_stats().lookups, 0);
	big.beyond = 0;
	ck_assert_int_eq(scout_try_lookup_sized(client, &big.q, sizeof(big), &answer.hit, sizeof(answer)),
			 SCOUT_NOT_YET);
	ck_assert_uint_eq(answer.beyond, 4711);
	ck_assert_int_eq(scout_wait_lookup_sized(client, &big.q, sizeof(big), &answer.hit, sizeof(answer)), 0);
	ck_assert_uint_eq(answer.beyond, 0);
	ck_assert_uint_eq(answer.hit.chunks, rig_answer("r1", 8).chunks);
	ck_assert_int_eq(scout_client_stats_sized(client, &counted.counters, sizeof(counted)), 0);
	ck_assert_uint_eq(counted.beyond, 0);
	ck_assert_uint_eq(counted.counters.lookups, 1);
}
END_TEST

START_TEST(bad_configurations_name_the_field)
{
	static const struct {
		const char *endpoint;
		uint32_t kv_ranks;
		int rc;
		const char *text;
	} rows[] = {
		{"ipc:///tmp/a auto", 2, SCOUT_ERR_CONFIG_SYNTAX, "endpoint"},
		{"auto://tmp", 1, SCOUT_ERR_INVALID, "absolute folder"},
		{"", 1, SCOUT_ERR_CONFIG_RANGE, "endpoint"},
		{" \t", 1, SCOUT_ERR_CONFIG_RANGE, "endpoint has 0 items"},
		{"ipc:///tmp/a,", 1, SCOUT_ERR_CONFIG_SYNTAX, "endpoint = \"ipc:///tmp/a,\": must hold no comma"},
		{"nonsense", 1, SCOUT_ERR_INVALID, "nonsense"},
		{"http://x", 1, SCOUT_ERR_INVALID, "http://x"},
		{"ipc:///tmp/a ipc:///tmp/b", 3, SCOUT_ERR_CONFIG_RANGE, "kv_ranks"},
		{"ipc:///tmp/a", 65, SCOUT_ERR_CONFIG_RANGE, "kv_ranks"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct scout_client *other = (void *)1;
		struct scout_client_config cfg;
		char err[256] = "";

		scout_client_config_init(&cfg);
		cfg.endpoint = rows[i].endpoint;
		cfg.kv_ranks = rows[i].kv_ranks;
		ck_assert_msg(scout_client_new(&cfg, &other, err, sizeof(err)) == rows[i].rc, "row %zu: %s", i, err);
		ck_assert_msg(strstr(err, rows[i].text) != NULL, "row %zu: %s", i, err);
		ck_assert_ptr_eq(other, (void *)1);
	}
}
END_TEST
