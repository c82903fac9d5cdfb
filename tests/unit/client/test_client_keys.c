/* SPDX-License-Identifier: Apache-2.0 */
/* scout_lookup_keys() on scripted servers: states by key, ends, restarts, and what is refused at the door. */
#include "check_main.h"
#include "client_rig.h"

#define N 4u

/* In the message: keys 1 and 3 of group 0, 2 of group 1, 0 of group 2. */
static const uint32_t mixed[N] = {2, 0, 1, 0};

static struct scout_key_query
keys(const char *id, size_t n)
{
	return (struct scout_key_query){.id = id, .hashes = rig_hashes, .hash_len = RIG_HASH, .n = n};
}

/* Ask until there is an answer. */
static struct scout_key_answer
answer_to(const struct scout_key_query *q, uint8_t *ret_states)
{
	struct scout_key_answer answer;
	int rc;

	wait_until((rc = scout_lookup_keys(client, q, ret_states, &answer)) != SCOUT_NOT_YET)
		(void)scout_step_wait(client, 1000000);
	ck_assert_int_eq(rc, 0);
	ck_assert_uint_eq(answer.hits + answer.misses + answer.retries, q->n);
	return answer;
}

static void
up_with_groups(void)
{
	rig_reopen("group", "all window:512 state");
}

CHECKED_FIXTURE(rig_up, rig_down);

START_TEST(each_key_has_its_state_in_the_order_of_the_query)
{
	static const uint8_t expected[N] = {SCOUT_KEY_RETRY, SCOUT_KEY_HIT, SCOUT_KEY_HIT, SCOUT_KEY_MISS};
	struct scout_key_query q = keys("k1", N);
	struct scout_key_answer answer, again;
	uint8_t states[N], same[N];

	up_with_groups();
	fake_set_present(fake, 0x5, 0xc, 0); /* key 0 of the message, and key 2, which is in L2 */
	q.groups = mixed;
	ck_assert_int_eq(scout_lookup_keys(client, &q, states, &answer), SCOUT_NOT_YET);
	answer = answer_to(&q, states);
	ck_assert_mem_eq(states, expected, N);
	ck_assert_uint_eq(answer.hits, 2);
	ck_assert_uint_eq(answer.misses, 1);
	ck_assert_uint_eq(answer.retries, 1);
	ck_assert_uint_eq(answer.l2_hits, 1);
	ck_assert_int_eq(answer.reason, SCOUT_REASON_HIT);
	ck_assert_int_eq(answer.error, 0);
	ck_assert_int_eq(answer.endpoint, -1);
	ck_assert_uint_eq(answer.ticket, fake_last_word(fake, SCOUT_OP_KEYS));
	/* It stays the same, and costs no second message. */
	fake_set_present(fake, 0, 0, 0);
	ck_assert_int_eq(scout_lookup_keys(client, &q, same, &again), 0);
	ck_assert_mem_eq(same, expected, N);
	ck_assert_uint_eq(again.ticket, answer.ticket);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_KEYS), 1);
	ck_assert_int_eq(scout_finish(client, "k1"), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1));
	ck_assert_uint_eq(fake_finish_ticket(fake, 0), answer.ticket);
	ck_assert_uint_eq(rig_stats().asked_keys, N);
	ck_assert_uint_eq(rig_stats().hit_keys, 2);
	ck_assert_uint_eq(rig_stats().hits, 1);
}
END_TEST

START_TEST(the_reason_says_why_there_is_no_more)
{
	struct scout_key_query q = keys("k1", N);
	uint8_t states[N];

	fake_set_present(fake, 0, 0, 0);
	ck_assert_int_eq(answer_to(&q, states).reason, SCOUT_REASON_MISS);
	q.id = "k2";
	fake_set_present(fake, 0, 0x1, 0);
	ck_assert_int_eq(answer_to(&q, states).reason, SCOUT_REASON_TIMEOUT);
	q.id = "k3";
	fake_set_limited(fake, true);
	ck_assert_int_eq(answer_to(&q, states).reason, SCOUT_REASON_LIMITED);
	ck_assert_uint_eq(states[0], SCOUT_KEY_RETRY);
	q.id = "k4";
	fake_set_present(fake, 0xf, 0, 0);
	ck_assert_int_eq(answer_to(&q, states).reason, SCOUT_REASON_HIT);
	ck_assert_int_eq(scout_lookup_keys(client, &q, states, NULL), 0); /* the answer itself may be left out */
}
END_TEST

START_TEST(the_questions_of_a_step_travel_in_one_frame)
{
	struct scout_key_query first = keys("k1", N), second = keys("k2", 2);
	struct scout_query lookup = rig_question("r1", 2);
	struct scout_key_answer answer;
	struct scout_hit hit;
	uint8_t states[N];
	unsigned frames = fake_frames(fake);

	fake_set_present(fake, 0x3, 0, 0);
	scout_step_begin(client);
	ck_assert_int_eq(scout_lookup_keys(client, &first, states, &answer), SCOUT_NOT_YET);
	ck_assert_int_eq(scout_try_lookup(client, &lookup, &hit), SCOUT_NOT_YET);
	ck_assert_int_eq(scout_lookup_keys(client, &second, states, &answer), SCOUT_NOT_YET);
	scout_step_end(client);
	ck_assert_int_eq(scout_step_wait(client, 60000000), 0);
	ck_assert_int_eq(scout_lookup_keys(client, &first, states, &answer), 0);
	ck_assert_uint_eq(answer.hits, 2);
	ck_assert_int_eq(scout_lookup_keys(client, &second, states, &answer), 0);
	ck_assert_uint_eq(answer.hits, 2);
	ck_assert_uint_eq(fake_frames(fake), frames + 1);
}
END_TEST

START_TEST(a_question_without_an_answer_ends_at_its_deadline_with_all_keys_to_be_retried)
{
	struct scout_key_query q = keys("k1", N);
	struct scout_key_answer answer;
	uint8_t states[N];

	rig_reopen("lookup_timeout_ms", "60");
	fake_set_present(fake, 0xf, 0, 0);
	fake_script(fake, SCOUT_OP_KEYS, FAKE_HOLD, 0);
	answer = answer_to(&q, states);
	ck_assert_int_eq(answer.reason, SCOUT_REASON_TIMEOUT);
	ck_assert_int_eq(answer.error, SCOUT_ERR_TIMEOUT);
	ck_assert_uint_eq(answer.retries, N);
	/* Whatever it may have promised is given back, and a late answer changes nothing. */
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1));
	ck_assert_uint_eq(fake_finish_ticket(fake, 0), answer.ticket);
	fake_release(fake);
	wait_until(rig_stats().late != 0)
		;
	ck_assert_uint_eq(answer_to(&q, states).retries, N);
	ck_assert_uint_eq(rig_stats().hit_keys, 0);
	ck_assert_uint_eq(rig_stats().timeouts, 1);
}
END_TEST

START_TEST(a_longer_time_of_its_own_counts)
{
	struct scout_key_query q = keys("k1", N);
	uint8_t states[N];

	rig_reopen("lookup_timeout_ms", "50");
	fake_set_present(fake, 0xf, 0, 0);
	fake_script(fake, SCOUT_OP_KEYS, FAKE_DELAY, 200);
	q.timeout_ms = 60000;
	ck_assert_uint_eq(answer_to(&q, states).hits, N);
}
END_TEST

START_TEST(a_server_that_is_away_is_no_miss)
{
	struct scout_key_query q = keys("k1", N);
	struct scout_key_answer answer;
	uint8_t states[N];

	fake_set_present(fake, 0xf, 0, 0);
	fake_unbind(fake);
	answer = answer_to(&q, states);
	ck_assert_int_eq(answer.reason, SCOUT_REASON_UNREACHABLE);
	ck_assert_int_eq(answer.endpoint, 0);
	ck_assert_uint_eq(answer.retries, N);
	/* From now on it is known, and the answer is there at once. */
	rig_wait_gone();
	q.id = "k2";
	ck_assert_int_eq(scout_lookup_keys(client, &q, states, &answer), 0);
	ck_assert_int_eq(answer.reason, SCOUT_REASON_UNREACHABLE);
	ck_assert_uint_eq(answer.retries, N);
	ck_assert_uint_eq(answer.ticket, 0);
	fake_bind(fake, false);
	rig_ready();
	q.id = "k3";
	ck_assert_uint_eq(answer_to(&q, states).hits, N);
}
END_TEST

START_TEST(after_a_restart_an_answer_is_asked_for_anew)
{
	struct scout_key_query q = keys("k1", N);
	struct scout_key_answer answer;
	uint64_t ticket;
	uint8_t states[N];

	fake_set_present(fake, 0xf, 0, 0);
	ticket = answer_to(&q, states).ticket;
	fake_set_present(fake, 0x1, 0, 0);
	rig_restart();
	ck_assert_int_eq(scout_lookup_keys(client, &q, states, &answer), SCOUT_NOT_YET);
	answer = answer_to(&q, states);
	ck_assert_uint_eq(answer.hits, 1);
	ck_assert_uint_ne(answer.ticket, ticket);
}
END_TEST

START_TEST(a_refusal_and_a_broken_answer_are_no_miss)
{
	static const struct {
		enum fake_action action;
		unsigned arg;
		int error, reason;
	} rows[] = {
		{FAKE_REFUSE, SCOUT_WIRE_LIMIT, SCOUT_ERR_LIMIT, SCOUT_REASON_REFUSED},
		{FAKE_REFUSE, SCOUT_WIRE_GROUP, SCOUT_ERR_GROUP, SCOUT_REASON_REFUSED},
		{FAKE_REFUSE, SCOUT_WIRE_UNKNOWN_OP, SCOUT_ERR_PROTOCOL, SCOUT_REASON_REFUSED},
		{FAKE_SHORT_BODY, 0, SCOUT_ERR_PROTOCOL, SCOUT_REASON_REFUSED},
		{FAKE_BIG_HIT, 0, SCOUT_ERR_PROTOCOL, SCOUT_REASON_REFUSED},
	};
	struct scout_key_answer answer;
	uint8_t states[N];
	char id[8];

	fake_set_present(fake, 0xf, 0, 0);
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct scout_key_query q = keys(id, N);

		(void)snprintf(id, sizeof(id), "k%u", i);
		fake_script(fake, SCOUT_OP_KEYS, rows[i].action, rows[i].arg);
		answer = answer_to(&q, states);
		ck_assert_int_eq(answer.error, rows[i].error);
		ck_assert_int_eq(answer.reason, rows[i].reason);
		ck_assert_uint_eq(answer.retries, N);
		ck_assert_int_eq(answer.endpoint, 0);
	}
}
END_TEST

START_TEST(a_finished_question_leaves_nothing)
{
	struct scout_key_query q = keys("k1", N);
	struct scout_key_answer answer;
	uint8_t states[N];

	fake_set_present(fake, 0xf, 0, 0);
	fake_script(fake, SCOUT_OP_KEYS, FAKE_HOLD, 0);
	ck_assert_int_eq(scout_lookup_keys(client, &q, states, &answer), SCOUT_NOT_YET);
	ck_assert(fake_wait(fake, SCOUT_OP_KEYS, 1));
	ck_assert_int_eq(scout_finish(client, "k1"), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1));
	fake_release(fake);
	/* The same id is a new question. */
	fake_set_present(fake, 0x2, 0, 0);
	ck_assert_int_eq(scout_lookup_keys(client, &q, states, &answer), SCOUT_NOT_YET);
	ck_assert_uint_eq(answer_to(&q, states).hits, 1);
	ck_assert_uint_eq(states[1], SCOUT_KEY_HIT);
	ck_assert_int_eq(scout_finish(client, "k1"), 0);
	ck_assert_int_eq(scout_finish(client, "k1"), 0);
	ck_assert_uint_eq(rig_stats().dropped, 1);
	ck_assert_uint_eq(rig_stats().live, 0);
}
END_TEST

START_TEST(wrong_arguments_have_codes_of_their_own)
{
	static const uint32_t unknown[N] = {0, 1, 2, 3};
	static uint8_t many[(SCOUT_KEYS_MAX + 1) * RIG_HASH], states[SCOUT_KEYS_MAX + 1];
	const struct scout_key_query good = keys("k1", N);
	struct scout_key_query q = good;
	struct scout_key_answer answer = {.hits = 77};

	up_with_groups();
	states[0] = 99;
	ck_assert_int_eq(scout_lookup_keys(NULL, &q, states, &answer), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_lookup_keys(client, NULL, states, &answer), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_lookup_keys(client, &q, NULL, &answer), SCOUT_ERR_INVALID);
	q.hashes = NULL;
	ck_assert_int_eq(scout_lookup_keys(client, &q, states, &answer), SCOUT_ERR_INVALID);
	q = good;
	q.timeout_ms = SCOUT_LOOKUP_TIMEOUT_MAX_MS + 1;
	ck_assert_int_eq(scout_lookup_keys(client, &q, states, &answer), SCOUT_ERR_INVALID);
	q = good;
	q.id = "";
	ck_assert_int_eq(scout_lookup_keys(client, &q, states, &answer), SCOUT_ERR_REQUEST_ID);
	q = good;
	q.hash_len = RIG_HASH - 1;
	ck_assert_int_eq(scout_lookup_keys(client, &q, states, &answer), SCOUT_ERR_HASH_LEN);
	q = good;
	q.tenant = "a\nb";
	ck_assert_int_eq(scout_lookup_keys(client, &q, states, &answer), SCOUT_ERR_TENANT);
	q = good;
	q.n = 0;
	ck_assert_int_eq(scout_lookup_keys(client, &q, states, &answer), SCOUT_ERR_KEY_COUNT);
	q.n = SCOUT_KEYS_MAX + 1;
	q.hashes = many;
	ck_assert_int_eq(scout_lookup_keys(client, &q, states, &answer), SCOUT_ERR_KEY_COUNT);
	q = good;
	q.groups = unknown;
	ck_assert_int_eq(scout_lookup_keys(client, &q, states, &answer), SCOUT_ERR_GROUP);
	ck_assert_int_eq(scout_lookup_keys_sized(client, &good, offsetof(struct scout_key_query, timeout_ms), states,
						 &answer, sizeof(answer)),
			 SCOUT_ERR_UNSUPPORTED);
	ck_assert_int_eq(scout_lookup_keys_sized(client, &good, sizeof(good), states, &answer,
						 offsetof(struct scout_key_answer, endpoint)),
			 SCOUT_ERR_UNSUPPORTED);
	ck_assert_uint_eq(states[0], 99);
	ck_assert_uint_eq(answer.hits, 77);
	ck_assert_uint_eq(rig_stats().lookups, 0);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_KEYS), 0);
	ck_assert_str_eq(scout_err_name(SCOUT_ERR_KEY_COUNT), "SCOUT_ERR_KEY_COUNT");
}
END_TEST

START_TEST(keys_that_do_not_fit_are_too_many)
{
	static uint8_t many[SCOUT_KEYS_MAX * RIG_HASH], states[SCOUT_KEYS_MAX];
	struct scout_key_query q = {.id = "k1", .hashes = many, .hash_len = RIG_HASH, .n = 4000};

	/* Half of it is 64 KiB. */
	rig_reopen("arena_bytes", "128Ki");
	ck_assert_int_eq(scout_lookup_keys(client, &q, states, NULL), SCOUT_ERR_KEY_COUNT);
	/* A retrieve counts to 262144 hashes, and an object has 32 of them. */
	rig_reopen("hash_tokens", "8");
	q.n = 8193;
	ck_assert_int_eq(scout_lookup_keys(client, &q, states, NULL), SCOUT_ERR_KEY_COUNT);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_KEYS), 0);
}
END_TEST

START_TEST(an_id_is_that_of_one_question)
{
	struct scout_key_query q = keys("k1", N), other;
	struct scout_query lookup = rig_question("k1", N);
	struct scout_key_answer answer;
	struct scout_hit hit;
	uint64_t tokens;
	uint8_t states[N], hashes[N * RIG_HASH];
	uint32_t groups[N] = {0};

	up_with_groups();
	fake_set_present(fake, 0xf, 0, 0);
	q.groups = groups;
	(void)answer_to(&q, states);
	ck_assert_int_eq(scout_try_lookup(client, &lookup, &hit), SCOUT_ERR_STATE);
	ck_assert_int_eq(scout_lookup_ahead(client, &lookup), SCOUT_ERR_STATE);
	ck_assert_int_eq(scout_poll_lookup(client, "k1", 0, &hit), SCOUT_NEED_QUERY);
	ck_assert_int_eq(scout_lookup_lengths(client, "k1", &tokens, 1), SCOUT_ERR_STATE);
	ck_assert_int_eq(scout_admit(client, "k1", 0, SCOUT_TO_END), SCOUT_ERR_STATE);
	/* Other keys: another number, another tenant, another one in the middle, another group. */
	other = q;
	other.n = N - 1;
	ck_assert_int_eq(scout_lookup_keys(client, &other, states, &answer), SCOUT_ERR_STATE);
	other = q;
	other.tenant = "x";
	ck_assert_int_eq(scout_lookup_keys(client, &other, states, &answer), SCOUT_ERR_STATE);
	other = q;
	memcpy(hashes, rig_hashes, sizeof(hashes));
	hashes[RIG_HASH] ^= 1;
	other.hashes = hashes;
	ck_assert_int_eq(scout_lookup_keys(client, &other, states, &answer), SCOUT_ERR_STATE);
	groups[2] = 1;
	ck_assert_int_eq(scout_lookup_keys(client, &q, states, &answer), SCOUT_ERR_STATE);
	groups[2] = 0;
	ck_assert_int_eq(scout_lookup_keys(client, &q, states, &answer), 0);
	ck_assert_uint_eq(answer.hits, N);
	/* And the id of a lookup is not one of keys. */
	(void)rig_answer("r1", 2);
	q.id = "r1";
	ck_assert_int_eq(scout_lookup_keys(client, &q, states, &answer), SCOUT_ERR_STATE);
}
END_TEST

START_TEST(all_servers_must_agree_on_a_hit)
{
	/* First hit + second: hit, later, miss, and the same with later and miss at the first. */
	static const uint8_t expected[9] = {
		SCOUT_KEY_HIT,  SCOUT_KEY_RETRY, SCOUT_KEY_MISS, SCOUT_KEY_RETRY, SCOUT_KEY_RETRY,
		SCOUT_KEY_MISS, SCOUT_KEY_MISS,  SCOUT_KEY_MISS, SCOUT_KEY_MISS,
	};
	struct fake_server *second = fake_start();
	struct scout_key_query q = keys("k1", 9);
	struct scout_key_answer answer;
	struct scout_client_config cfg;
	char endpoints[512], err[256] = "";
	uint8_t states[9];

	scout_client_free(client);
	(void)snprintf(endpoints, sizeof(endpoints), "%s %s", fake_endpoint(fake), fake_endpoint(second));
	scout_client_config_init(&cfg);
	cfg.endpoint = endpoints;
	cfg.kv_ranks = 2;
	cfg.lookup_timeout_ms = 60000;
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	rig_ready();
	fake_set_present(fake, 0x7, 0x38, 0);
	fake_set_present(second, 0x49, 0x92, 0);
	answer = answer_to(&q, states);
	ck_assert_mem_eq(states, expected, 9);
	ck_assert_uint_eq(answer.hits, 1);
	/* What the one promises and the other does not have is given back with the rest. */
	ck_assert_int_eq(scout_finish(client, "k1"), 0);
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1));
	ck_assert(fake_wait(second, SCOUT_OP_FINISH, 1));
	/* One that is away makes none of them known. */
	fake_unbind(second);
	q.id = "k2";
	answer = answer_to(&q, states);
	ck_assert_uint_eq(answer.retries, 9);
	ck_assert_int_eq(answer.endpoint, 1);
	scout_client_free(client);
	fake_stop(second);
	rig_client(NULL, NULL);
}
END_TEST
