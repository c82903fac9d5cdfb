/* SPDX-License-Identifier: Apache-2.0 */
/* How large extents are without extent_bytes, and which limit of the system ends a pool: with the sizes of real models. */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "l1_rig.h"
#include "pool.h"

#include "check_main.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define TIB (UINT64_C(1) << 40)
#define MAP_COUNT 65530u /* vm.max_map_count, unless an operator raises it */

static struct scout__pool_limits
limits_of(uint64_t descriptors, uint64_t mappings)
{
	return (struct scout__pool_limits){descriptors, mappings, UINT64_MAX};
}

/* A pool of @l1_bytes that nothing was asked of yet, on a machine with @limits. */
static struct scout__pool
pool_of(uint64_t l1_bytes, const struct scout__pool_limits *limits)
{
	return (struct scout__pool){
		.l1_bytes = l1_bytes, .limits = *limits, .max_segments = scout__pool_max_segments(limits)};
}

/* What all of the pool takes. */
struct needs {
	uint64_t slots;   /* of an extent */
	uint64_t extents; /* the last one may be smaller */
	uint64_t segments;
};

static struct needs
needs_of(const struct scout__pool *pool, uint64_t chunk_bytes, uint32_t n_ranks)
{
	uint64_t slots = scout__pool_extent_slots(pool, chunk_bytes, n_ranks);
	uint64_t chunks = pool->l1_bytes / chunk_bytes;
	uint64_t extents = (chunks + slots - 1) / slots;

	return (struct needs){slots, extents, extents * n_ranks};
}

/* Bytes of a chunk of all ranks: of 16 tokens of a small model, and of 128 to 1024 tokens of Llama-3 8B, 70B and 405B. */
static const uint64_t chunks[] = {96 << 10, 2 * MIB, 32 * MIB, 40 * MIB, 80 * MIB, 126 * MIB, 504 * MIB};

START_TEST(pool_of_a_terabyte_fits_the_limits_of_a_default_process)
{
	/* Hard limits of descriptors: of systemd and of containers, of this project's smallest machine, and the kernel's own. */
	static const uint64_t descriptors[] = {1 << 20, 524288, 20000, 4096};
	static const uint32_t ranks[] = {1, 2, 4, 8, 16, 64};

	for (size_t d = 0; d < sizeof(descriptors) / sizeof(descriptors[0]); d++) {
		struct scout__pool_limits limits = limits_of(descriptors[d], MAP_COUNT);
		struct scout__pool pool = pool_of(TIB, &limits);

		for (size_t r = 0; r < sizeof(ranks) / sizeof(ranks[0]); r++) {
			for (size_t c = 0; c < sizeof(chunks) / sizeof(chunks[0]); c++) {
				struct needs needs = needs_of(&pool, chunks[c], ranks[r]);

				/* Half of them stays for peers, for L2 and for what else the process does. */
				ck_assert_uint_le(needs.segments, descriptors[d] / 2 + ranks[r]);
				ck_assert_uint_le(needs.segments, MAP_COUNT / 2);
				ck_assert_uint_ge(needs.slots, 16);
				ck_assert_uint_ge(needs.slots * chunks[c], 64 * MIB);
				ck_assert_uint_ge(needs.extents, 8);
			}
		}
	}
}
END_TEST

START_TEST(pool_of_a_terabyte_in_numbers)
{
	/* 128 tokens of Llama-3 70B, TP8: 40 MiB a chunk. Before, an extent was one chunk. */
	const uint64_t chunk = 40 * MIB;
	struct scout__pool_limits limits = limits_of(20000, MAP_COUNT);
	struct scout__pool pool = pool_of(TIB, &limits);
	struct needs needs = needs_of(&pool, chunk, 8);
	uint64_t segment_bytes = needs.slots * chunk / 8, end;

	printf("# 1 TiB, TP8, chunks of 40 MiB: %" PRIu64 " slots an extent, %" PRIu64 " extents, %" PRIu64
	       " descriptors and mappings of the server, %" PRIu64 " mappings of a worker\n",
	       needs.slots, needs.extents, needs.segments, needs.extents);
	ck_assert_uint_eq(needs.slots, 26);
	ck_assert_uint_eq(needs.extents, 1009);
	ck_assert_uint_eq(needs.segments, 8072);
	ck_assert_int_eq(scout__pool_end(&limits, TIB, segment_bytes, &end), SCOUT__POOL_END_L1_BYTES);
	ck_assert_uint_eq(end, TIB);
	/* With an extent_bytes of 64 MiB the user has what was the default: an extent is one chunk. */
	pool.extent_bytes = 64 * MIB;
	needs = needs_of(&pool, chunk, 8);
	ck_assert_uint_eq(needs.slots, 1);
	ck_assert_int_eq(scout__pool_end(&limits, TIB, chunk / 8, &end), SCOUT__POOL_END_DESCRIPTORS);
	ck_assert_uint_eq(end, 20000 * chunk / 8);
	limits.descriptors = 1 << 20;
	ck_assert_int_eq(scout__pool_end(&limits, TIB, chunk / 8, &end), SCOUT__POOL_END_MAPPINGS);
	ck_assert_uint_eq(end, MAP_COUNT * chunk / 8);
}
END_TEST

START_TEST(small_pool_has_64_extents_or_one_for_each_chunk)
{
	struct scout__pool_limits limits = limits_of(20000, MAP_COUNT);
	struct scout__pool pool = pool_of(GIB, &limits);

	ck_assert_uint_eq(needs_of(&pool, 40 * MIB, 8).slots, 1);
	ck_assert_uint_eq(needs_of(&pool, 5 * MIB, 1).slots, 4);
	ck_assert_uint_eq(needs_of(&pool, 300 * MIB, 1).slots, 1);
	ck_assert_uint_eq(needs_of(&pool, MIB, 1).slots, 16);
	pool = pool_of(64 * MIB, &limits);
	ck_assert_uint_eq(needs_of(&pool, MIB, 1).slots, 1);
	pool = pool_of(8 * GIB, &limits);
	ck_assert_uint_eq(needs_of(&pool, MIB, 1).slots, 64);
	ck_assert_uint_eq(needs_of(&pool, 40 * MIB, 1).slots, 3);
	/* The user's own size is not touched. */
	pool.extent_bytes = 3 * MIB;
	ck_assert_uint_eq(needs_of(&pool, MIB, 1).slots, 3);
	ck_assert_uint_eq(needs_of(&pool, 4 * MIB, 1).slots, 1);
}
END_TEST

START_TEST(process_without_descriptors_has_extents_all_the_same)
{
	static const uint64_t left[] = {0, 1, 2, 100, UINT64_MAX};
	static const uint32_t segments[] = {1, 1, 1, 50, 8192};

	for (size_t i = 0; i < 5; i++) {
		struct scout__pool_limits limits = limits_of(left[i], UINT64_MAX);
		struct scout__pool pool = pool_of(TIB, &limits);

		ck_assert_uint_eq(pool.max_segments, segments[i]);
		ck_assert_uint_ge(needs_of(&pool, 40 * MIB, 8).extents, 8);
		limits = limits_of(UINT64_MAX, left[i]);
		ck_assert_uint_eq(scout__pool_max_segments(&limits), segments[i]);
	}
}
END_TEST

START_TEST(first_of_four_limits_ends_the_pool_and_is_named)
{
	static const struct {
		struct scout__pool_limits limits;
		enum scout__pool_end end;
		uint64_t bytes;
		const char *text;
	} cases[] = {
		{{1000, 1000, UINT64_MAX}, SCOUT__POOL_END_L1_BYTES, 100 * MIB, "l1_bytes ends the pool first"},
		{{99, 1000, UINT64_MAX}, SCOUT__POOL_END_DESCRIPTORS, 99 * MIB, "descriptors (RLIMIT_NOFILE) end"},
		{{1000, 98, UINT64_MAX}, SCOUT__POOL_END_MAPPINGS, 98 * MIB, "mappings (vm.max_map_count) end"},
		{{1000, 1000, 97 * MIB}, SCOUT__POOL_END_MEMORY, 97 * MIB, "available memory ends"},
		{{UINT64_MAX, UINT64_MAX, UINT64_MAX}, SCOUT__POOL_END_L1_BYTES, 100 * MIB, "any number of GiB"},
	};
	char text[400], number[64];
	uint64_t bytes;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ck_assert_int_eq(scout__pool_end(&cases[i].limits, 100 * MIB, MIB, &bytes), cases[i].end);
		ck_assert_uint_eq(bytes, cases[i].bytes);
		ck_assert_int_eq(scout__pool_end_text(&cases[i].limits, 100 * MIB, MIB, text, sizeof(text)),
				 cases[i].end);
		ck_assert_msg(strstr(text, cases[i].text) != NULL, "%s", text);
		(void)snprintf(number, sizeof(number), "%" PRIu64 " bytes", cases[i].bytes);
		ck_assert_msg(strstr(text, number) != NULL, "%s", text);
	}
}
END_TEST

START_TEST(longest_sentence_fits)
{
	const struct scout__pool_limits limits = {1, UINT64_MAX - 1, UINT64_MAX - 1};
	char text[400];

	(void)scout__pool_end_text(&limits, UINT64_MAX, UINT64_MAX - 1, text, sizeof(text));
	ck_assert_msg(strstr(text, "bytes in a memfd") != NULL, "%s", text);
}
END_TEST

START_TEST(limits_of_this_process_are_read)
{
	struct scout__pool_limits before, after;
	struct rlimit limit;
	int fds[2];

	scout__pool_limits_read("", &before);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_uint_lt(before.descriptors, limit.rlim_cur);
	ck_assert_uint_gt(before.memory, 0);
	ck_assert_int_eq(pipe(fds), 0);
	scout__pool_limits_read("", &after);
	ck_assert_uint_eq(after.descriptors, before.descriptors - 2);
	/* Without /proc: what is known. */
	scout__pool_limits_read("/nowhere", &after);
	ck_assert_uint_eq(after.descriptors, limit.rlim_cur);
	ck_assert_uint_eq(after.mappings, UINT64_MAX);
	(void)close(fds[0]);
	(void)close(fds[1]);
}
END_TEST
