/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which a caller asks for its requests is a guess of the client's and must never show: each question gets its own
 * answer, and a wrong one its error, also where a right one is expected next.
 */
#include "check_main.h"
#include "client_rig.h"
#include "random.h"

#define N 16u

static char ids[N][8];

static struct scout_query
question(uint32_t i)
{
	return rig_question(ids[i], N + i);
}

/* All requests are answered, each with its own hit, and were asked for in order twice. */
static void
settle(void)
{
	struct scout_hit hit;

	for (uint32_t i = 0; i < N; i++) {
		struct scout_query q = question(i);

		fake_set_hit(fake, i + 1);
		ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	}
	for (uint32_t i = 0; i < N; i++) {
		struct scout_query q = question(i);

		ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
	}
}

static void
order_up(void)
{
	rig_up();
	for (uint32_t i = 0; i < N; i++)
		(void)snprintf(ids[i], sizeof(ids[i]), "r%u", i);
}

static void
expect(uint32_t i)
{
	struct scout_query q = question(i);
	struct scout_hit hit;

	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
	ck_assert_uint_eq(hit.chunks, i + 1);
}

CHECKED_FIXTURE(order_up, rig_down);

START_TEST(each_gets_its_own_answer_in_any_order)
{
	uint64_t state = 88172645463325252u;

	settle();
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < N; i++)
			expect(i);
		for (uint32_t i = N; i-- > 0;)
			expect(i);
		for (uint32_t i = 0; i < N; i++)
			expect(i * 5 % N);
		for (uint32_t i = 0; i < N; i++)
			expect(3);
	}
	for (uint32_t i = 0; i < 10000; i++) {
		(void)xorshift(&state);
		expect((uint32_t)(state % N));
	}
	ck_assert_uint_eq(rig_stats().lookups, N);
}
END_TEST

/* The next in order, with one thing wrong each time. */
START_TEST(wrong_question_where_a_right_one_is_expected)
{
	struct scout_hit hit = {.chunks = 4711};
	uint8_t hashes[2 * N * RIG_HASH];
	struct scout_query q;

	settle();
	memcpy(hashes, rig_hashes, sizeof(hashes));
	q = question(0);
	q.hashes = hashes;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0); /* equal, though elsewhere */
	for (uint32_t byte = 0; byte < RIG_HASH; byte++) {
		q = question(1);
		q.hashes = hashes;
		hashes[(q.n - 1) * RIG_HASH + byte] ^= 1;
		hit.chunks = 4711;
		ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_STATE);
		hashes[(q.n - 1) * RIG_HASH + byte] ^= 1;
		expect(0);
	}
	q = question(1);
	q.n--;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_STATE);
	q = question(1);
	q.tenant = "t";
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_STATE);
	q = question(1);
	q.hashes = NULL;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_INVALID);
	q = question(1);
	q.prompt_tokens = q.n * RIG_CHUNK - 1;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_INVALID);
	q = question(1);
	q.computed_tokens = q.prompt_tokens + 1;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_INVALID);
	q.id = "new";
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_INVALID);
	q = question(1);
	q.hash_len = RIG_HASH - 1;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_HASH_LEN);
	q = question(1);
	ck_assert_int_eq(scout_try_lookup_sized(client, &q, 8, &hit, sizeof(hit)), SCOUT_ERR_UNSUPPORTED);
	q = question(1);
	q.id = NULL;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_REQUEST_ID);
	ck_assert_uint_eq(hit.chunks, 4711);
	expect(1);
	ck_assert_uint_eq(rig_stats().lookups, N);
}
END_TEST

START_TEST(finished_request_is_not_found_where_it_is_expected)
{
	struct scout_query q;
	struct scout_hit hit;

	settle();
	expect(6);
	ck_assert_int_eq(scout_finish(client, ids[7]), 0);
	q = question(7);
	q.id = "";
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_REQUEST_ID);
	q = question(7); /* the same as before, but of another request */
	fake_set_hit(fake, 2);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_uint_eq(hit.chunks, 2);
	ck_assert_uint_eq(rig_stats().lookups, N + 1);
}
END_TEST

START_TEST(admitted_request_starts_anew_where_it_is_expected)
{
	struct scout_query q;
	struct scout_hit hit;

	settle();
	expect(6);
	ck_assert_int_eq(scout_admit(client, ids[7], 0, SCOUT_TO_END), 0);
	q = question(7);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert_uint_eq(rig_stats().lookups, N + 1);
}
END_TEST

START_TEST(shrunken_gpu_cache_starts_anew_where_it_is_expected)
{
	struct scout_query q = question(0);
	struct scout_hit hit;

	q.computed_tokens = 2 * RIG_CHUNK;
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
	q.computed_tokens = 2 * RIG_CHUNK - 1;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert_uint_eq(rig_stats().lookups, 2);
}
END_TEST

START_TEST(tenant_is_part_of_what_is_expected)
{
	struct scout_query q = question(0);
	struct scout_hit hit;

	q.tenant = "ab";
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
	q.tenant = "abc";
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_STATE);
	q.tenant = "a";
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_STATE);
	q.tenant = NULL;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_ERR_STATE);
}
END_TEST

START_TEST(tenant_shorter_than_the_slots_last)
{
	static const char *const tenants[] = {"abcdef", "abc", "a"};
	struct scout_query q = question(0);
	struct scout_hit hit;

	rig_reopen("max_lookups", "1"); /* few slots, which are used again and again */
	for (uint32_t i = 0; i < 12; i++) {
		q.tenant = tenants[i / 4];
		ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
		ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
		ck_assert_int_eq(scout_finish(client, ids[0]), 0);
		ck_assert(fake_wait(fake, SCOUT_OP_FINISH, i + 1));
	}
}
END_TEST
