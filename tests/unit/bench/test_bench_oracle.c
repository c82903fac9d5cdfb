/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle.h"

#include <math.h>
#include <stdlib.h>

#include "ceiling.h"
#include "map.h"
#include "mix.h"
#include "trace.h"

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

/* ---- the ceiling ---- */

/*
 * In percent of what was asked for: what a cache without end hits, and what the server would say of it with @left bytes.
 * The server's cache keeps what one of the last @age requests had: the less that is, the more there is to estimate.
 */
static void
run_ceiling(const struct policy_load *l, uint32_t left, uint32_t age, double *ret_truth, double *ret_said,
	    uint32_t *ret_sample)
{
	static uint8_t hashes[4096][TRACE_HASH_BYTES];
	struct scout__ceiling ceiling = {.mask = 0};
	struct scout__map stored;
	uint64_t truth = 0, said = 0;

	ck_assert_int_eq(scout__map_init(&stored, l->n_ids), 0);
	scout__ceiling_init(&ceiling, &left);
	for (size_t i = 0; i < l->n_requests; i++) {
		const uint64_t *blocks = l->ids + l->first[i];
		uint32_t n = (uint32_t)(l->first[i + 1] - l->first[i]), run = 0, hit;

		ck_assert_uint_le(n, 4096);
		for (uint32_t j = 0; j < n; j++)
			trace_hash(blocks[j], hashes[j]);
		while (run < n && scout__map_get(&stored, blocks[run]) != SCOUT__MAP_NONE)
			run++;
		hit = 0;
		while (hit < run && i - scout__map_get(&stored, blocks[hit]) <= age)
			hit++;
		truth += run;
		said += hit + scout__ceiling_seen(&ceiling, 1, hashes[hit], TRACE_HASH_BYTES, n - hit);
		scout__ceiling_stored(&ceiling, 1, hashes[hit], TRACE_HASH_BYTES, n - hit);
		for (uint32_t j = 0; j < n; j++)
			(void)scout__map_put(&stored, blocks[j], (uint32_t)i);
	}
	*ret_truth = 100.0 * (double)truth / (double)l->n_ids;
	*ret_said = 100.0 * (double)said / (double)l->n_ids;
	*ret_sample = ceiling.mask + 1;
	free(ceiling.cells);
	scout__map_fini(&stored);
}

/* Errors in points with the memory of a lone namespace, and with an eighth of it. */
static const struct {
	const char *name;
	double lone, small;
} ceiling_loads[] = {{"zipf", 2.5, 2.5}, {"loop", 0.5, 2},   {"chat", 1, 1},
		     {"scan", 1, 4},     {"agents", 0.1, 1}, {"uniform", 0.5, 3}};

START_LOOP_TEST(ceiling_is_near_the_truth, 0, 6)
{
	static const uint32_t ages[] = {20, 200};
	double truth, said;
	uint32_t sample;

	for (uint64_t seed = 1; seed <= 3; seed++) {
		struct policy_load l = {0};

		ck_assert(load_synthetic(&l, ceiling_loads[_i].name, seed, 12000));
		for (uint32_t i = 0; i < 4; i++) {
			bool lone = i < 2;

			run_ceiling(&l, lone ? SCOUT__CEILING_BYTES : SCOUT__CEILING_BYTES / 8, ages[i % 2], &truth,
				    &said, &sample);
			ck_assert_uint_gt(sample, 1);
			ck_assert_msg(fabs(said - truth) <= (lone ? ceiling_loads[_i].lone : ceiling_loads[_i].small),
				      "%s, seed %d, age %u: %.2f %%, not %.2f %%", ceiling_loads[_i].name, (int)seed,
				      (unsigned)ages[i % 2], said, truth);
		}
		load_free(&l);
	}
}
END_TEST

START_TEST(ceiling_of_a_small_load_is_exact)
{
	struct policy_load l = {0};
	double truth, said;
	uint32_t sample;

	ck_assert(load_synthetic(&l, "chat", 1, 500));
	run_ceiling(&l, SCOUT__CEILING_BYTES, 0, &truth, &said, &sample);
	ck_assert_uint_eq(sample, 1);
	ck_assert(truth > 20 && fabs(said - truth) < 1e-9);
	load_free(&l);
}
END_TEST

/* As many as STATUS lists have a sample; the others are without, and nothing is known of them. */
START_TEST(ceilings_of_a_thousand_namespaces_stay_below_their_memory)
{
	static struct scout__ceiling all[1000];
	uint8_t hash[TRACE_HASH_BYTES];
	uint32_t left = SCOUT__CEILING_BYTES;
	uint64_t bytes = 0;

	trace_hash(1, hash);
	for (uint32_t i = 0; i < 1000; i++) {
		scout__ceiling_init(&all[i], &left);
		scout__ceiling_stored(&all[i], 1, hash, TRACE_HASH_BYTES, 1);
		ck_assert_uint_eq(scout__ceiling_seen(&all[i], 1, hash, TRACE_HASH_BYTES, 1), all[i].cells != NULL);
		ck_assert_uint_eq(scout__ceiling_seen(&all[i], 2, hash, TRACE_HASH_BYTES, 1), 0);
		ck_assert(all[i].cells || i >= 64);
		bytes += all[i].cells ? all[i].n_buckets * UINT64_C(64) : 0;
		scout__ceiling_clear(&all[i]);
		ck_assert_uint_eq(scout__ceiling_seen(&all[i], 1, hash, TRACE_HASH_BYTES, 1), 0);
	}
	ck_assert_uint_le(bytes, SCOUT__CEILING_BYTES);
	for (uint32_t i = 0; i < 1000; i++)
		free(all[i].cells);
}
END_TEST
