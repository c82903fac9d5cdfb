/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle.h"

#include <stdlib.h>

#include "mix.h"

#include "check_main.h"

#define MAX_IDS 64u

static uint64_t ids[MAX_IDS];
static size_t first[MAX_IDS + 1];
static struct policy_load load = {.ids = ids, .first = first};

static void
begin(void)
{
	load.n_requests = load.n_ids = 0;
}

static void
request(const uint64_t *blocks, size_t n)
{
	for (size_t i = 0; i < n; i++)
		ids[load.n_ids++] = blocks[i];
	first[++load.n_requests] = load.n_ids;
}

START_TEST(oracle_text_is_two_percentages)
{
	static const char *const wrong[] = {"",
					    "oracle",
					    "oracle:",
					    "oracle:80",
					    "oracle:80,",
					    "oracle:80,10,5",
					    "oracle:101,0",
					    "oracle:0,-1",
					    "oracle:nan,0",
					    "Oracle:80,10",
					    "oracle:80,10%"};
	double recall = -1, false_alarms = -1;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_msg(!oracle_parse(wrong[i], &recall, &false_alarms), "\"%s\"", wrong[i]);
	ck_assert(recall == -1 && false_alarms == -1);
	ck_assert(oracle_parse("oracle:80,10.5", &recall, &false_alarms));
	ck_assert(recall == 80 && false_alarms == 10.5);
}
END_TEST

START_TEST(oracle_knows_which_requests_are_continued)
{
	static const bool returns[] = {true, false, true, false, false};
	struct oracle_hints hints;

	begin();
	request((const uint64_t[]){1, 2, 3}, 3);    /* 2 and 4 go on behind block 2: block 3 was not full yet */
	request((const uint64_t[]){8, 9}, 2);       /* no later one has a block of it */
	request((const uint64_t[]){1, 2, 4, 5}, 4); /* 3 goes on behind block 4 */
	request((const uint64_t[]){1, 2, 4, 6}, 4); /* later ones begin alike, and end elsewhere */
	request((const uint64_t[]){1, 2, 7}, 3);
	oracle_hints_make(&load, 100, 0, 1, &hints);
	ck_assert_uint_eq(hints.n, 5);
	for (size_t i = 0; i < 5; i++) {
		ck_assert_msg(hints.returns[i] == returns[i], "request %zu", i);
		ck_assert(hints.flagged[i] == !returns[i]);
	}
	oracle_hints_free(&hints);
	oracle_hints_make(&load, 0, 100, 1, &hints);
	for (size_t i = 0; i < 5; i++)
		ck_assert(hints.flagged[i] == hints.returns[i]);
	oracle_hints_free(&hints);
}
END_TEST

/* ---- the optimum, against all that can be kept ---- */

/* The most hits from request @i on, with the set @cached of blocks below 16. */
static uint64_t
best_from(size_t i, uint32_t cached, uint32_t room)
{
	uint64_t hits = 0, best = 0;
	uint32_t all = cached;
	bool leading = true;

	if (i == load.n_requests)
		return 0;
	for (size_t at = first[i]; at < first[i + 1]; at++) {
		leading = leading && (cached >> ids[at] & 1);
		hits += leading;
		all |= 1u << ids[at];
	}
	/* Each subset that fits: of those, one as large as possible is among the best. */
	for (uint32_t kept = all;; kept = (kept - 1) & all) {
		uint32_t n = (uint32_t)__builtin_popcount(kept);

		if (n == room || (n < room && kept == all)) {
			uint64_t more = best_from(i + 1, kept, room);

			best = more > best ? more : best;
		}
		if (kept == 0)
			break;
	}
	return hits + best;
}

START_LOOP_TEST(oracle_optimum_is_the_best_of_all_choices, 0, 20)
{
	uint64_t random = (uint64_t)_i;

	/* Three conversations of up to three blocks behind a common one. */
	begin();
	for (int i = 0; i < 7; i++) {
		uint64_t talk = mix_range(&random, 0, 2), n = mix_range(&random, 0, 3);

		request((const uint64_t[]){0, 1 + talk * 3, 2 + talk * 3, 3 + talk * 3}, n + 1);
	}
	for (uint32_t room = 1; room <= 5; room++)
		ck_assert_uint_eq(oracle_optimum(&load, room), best_from(0, 0, room));
}
END_TEST
