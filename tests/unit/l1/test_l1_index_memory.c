/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a chunk index: what it holds, how it grows, what it costs. */
#include "chunk_index.h"

#include <semaphore.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "l1_index_rig.h"

#include "check_main.h"
#include "own_use.h"

/* Sanitizers need more address space than one test leaves. */
#if defined(__SANITIZE_ADDRESS__) || defined(SCOUT__TSAN)
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#endif

START_TEST(index_holds_exactly_the_chunks_that_l1_bytes_hold)
{
	for (uint32_t n = 1; n <= 40; n += 3) {
		for (uint32_t extent = 1; extent <= 16; extent += 5) {
			uint32_t entry;

			start(2, 1, n, extent, n);
			for (uint32_t i = 0; i < n; i++) {
				/* Eviction never begins while the pool can grow. */
				ck_assert_int_eq(reserve(i, 0, &entry), SCOUT__RESERVE_GRANTED);
				ck_assert_uint_eq(l1.evictions, 0);
			}
			ck_assert_int_eq(reserve(n, 0, &entry), SCOUT__RESERVE_NO_ROOM);
			ck_assert_uint_eq(scout__index_used_bytes(cache), l1.pool.l1_bytes);
			ck_assert_uint_eq(scout__index_total_bytes(cache), l1.pool.l1_bytes);
			ck_assert_uint_eq(l1.pool.used_bytes, l1.pool.l1_bytes);
			stop();
		}
	}
}
END_TEST

START_TEST(index_asks_for_the_next_extent_before_the_last_is_full)
{
	uint32_t entry;

	start(1, 1, 32, 16, 32);
	ck_assert(cache->growth.n);
	ck_assert_int_eq(scout__index_reserve(cache, 0, key(0), 0, NULL, &entry), SCOUT__RESERVE_WAIT);
	ck_assert_uint_eq(l1.refusals, 0);
	ck_assert(wait_grown(cache));
	for (uint32_t i = 0; i < 12; i++)
		(void)store(i);
	ck_assert(!cache->growth.n);
	(void)store(12);
	ck_assert(cache->growth.n);
	for (uint32_t i = 13; i < 16; i++)
		(void)store(i);
	ck_assert_int_eq(scout__index_reserve(cache, 0, key(16), 0, NULL, &entry), SCOUT__RESERVE_WAIT);
	ck_assert(wait_grown(cache));
	for (uint32_t i = 16; i < 32; i++)
		(void)store(i);
	ck_assert(cache->growth.is_out);
	ck_assert_uint_eq(l1.evictions, 0);
	(void)store(32);
	ck_assert_uint_eq(l1.evictions, 1);
	ck_assert_uint_eq(find(0), SCOUT__NO_ENTRY);
	stop();
}
END_TEST

START_TEST(index_stores_evict_after_an_extent_failed_and_growing_is_tried_again)
{
	uint32_t entry;
	uint32_t pinned[4];

	start_slots(LARGE_SLOT, 1, 1, 8, 4, 8);
	ck_assert(wait_grown(cache));
	l1.regrow_us = UINT64_C(3600) * 1000000;
	limit_file_size(LARGE_SLOT);
	for (uint32_t i = 0; i < 4; i++)
		(void)store(i);
	ck_assert(cache->growth.n);
	ck_assert(!wait_grown(cache));
	ck_assert_int_eq(captured.errors, 1);
	ck_assert_uint_eq(l1.pool.used_bytes, 4 * LARGE_SLOT);
	/* Not in the next hour. */
	for (uint32_t i = 4; i < 8; i++) {
		pinned[i - 4] = store(i);
		ck_assert_uint_eq(l1.evictions, i - 3);
		ck_assert(!cache->growth.n);
	}
	for (uint32_t i = 0; i < 4; i++)
		ck_assert(scout__index_hold(cache, pinned[i], 0));
	ck_assert_int_eq(scout__index_reserve(cache, 0, key(9), 0, NULL, &entry), SCOUT__RESERVE_NO_ROOM);
	/* The hour has passed: asked again, and nobody waits for it who can evict. */
	cache->growth.again_us = 1;
	limit_file_size(RLIM_INFINITY);
	scout__index_unhold(cache, pinned[0]);
	ck_assert_int_eq(scout__index_reserve(cache, 0, key(9), 0, NULL, &entry), SCOUT__RESERVE_GRANTED);
	ck_assert(cache->growth.n);
	ck_assert_uint_eq(l1.evictions, 5);
	ck_assert_int_eq(scout__index_reserve(cache, 0, key(10), 0, NULL, &entry), SCOUT__RESERVE_WAIT);
	ck_assert(wait_grown(cache));
	ck_assert_int_eq(scout__index_reserve(cache, 0, key(10), 0, NULL, &entry), SCOUT__RESERVE_GRANTED);
	ck_assert_uint_eq(l1.evictions, 5);
	ck_assert_uint_eq(cache->extents.n_slots, 8);
	stop();
}
END_TEST

START_TEST(index_that_got_no_memory_at_all_refuses)
{
	uint32_t entry;

	limit_file_size(LARGE_SLOT);
	start_slots(LARGE_SLOT, 1, 1, 8, 4, 8);
	l1.regrow_us = UINT64_C(3600) * 1000000;
	ck_assert(!wait_grown(cache));
	ck_assert_int_eq(scout__index_reserve(cache, 0, key(0), 0, NULL, &entry), SCOUT__RESERVE_NO_ROOM);
	ck_assert_uint_eq(l1.refusals, 1);
	stop();
}
END_TEST

START_TEST(index_grows_when_another_gives_its_memory_back)
{
	const uint64_t shard_bytes = SLOT;
	struct scout__chunk_index *other;
	uint32_t entry;

	start(1, 1, 4, 4, 4);
	ck_assert(wait_grown(cache));
	ck_assert_int_eq(scout__index_new(&l1, NULL, &shard_bytes, NULL, 1, 1, HASH, &other), 0);
	ck_assert(!other->growth.n);
	/* It may have some of what the first one holds, when that is asked for it. */
	ck_assert_int_eq(scout__index_reserve(other, 0, key(0), 0, NULL, &entry), SCOUT__RESERVE_WAIT);
	(void)store(1);
	ck_assert(scout__index_promise(cache, find(1)));
	scout__index_free(cache);
	/* Its promises went with it. */
	ck_assert_uint_eq(l1.promised_bytes, 0);
	cache = other;
	ck_assert_int_eq(scout__index_reserve(cache, 0, key(0), 0, NULL, &entry), SCOUT__RESERVE_WAIT);
	ck_assert(wait_grown(cache));
	ck_assert_int_eq(scout__index_reserve(cache, 0, key(0), 0, NULL, &entry), SCOUT__RESERVE_GRANTED);
	stop();
}
END_TEST

START_TEST(index_grows_rather_than_evicts_when_there_is_memory_again)
{
	const uint64_t shard_bytes = SLOT;
	struct scout__chunk_index *other;
	uint32_t entry;

	start(1, 1, 4, 2, 4);
	ck_assert(wait_grown(cache));
	other = cache;
	ck_assert_int_eq(scout__index_new(&l1, NULL, &shard_bytes, NULL, 1, 1, HASH, &cache), 0);
	for (uint32_t i = 0; i < 3; i++)
		(void)store(i);
	ck_assert(cache->growth.is_out);
	ck_assert_uint_eq(l1.evictions, 1);
	scout__index_free(other);
	ck_assert_int_eq(scout__index_reserve(cache, 0, key(3), 0, NULL, &entry), SCOUT__RESERVE_WAIT);
	(void)store(3);
	(void)store(4);
	ck_assert_uint_eq(l1.evictions, 1);
	ck_assert_uint_eq(cache->extents.n_slots, 4);
	stop();
}
END_TEST

static sem_t go_on;

static void
wait_for_it(struct scout__pool *pool, struct scout__chore *chore)
{
	(void)pool;
	(void)chore;
	while (sem_wait(&go_on) != 0)
		;
}

/* It would take the loop milliseconds. */
START_TEST(index_leaves_its_memory_to_the_grower)
{
	int before = count_fds(), fds;
	struct scout__chore first;

	ck_assert_int_eq(sem_init(&go_on, 0, 0), 0);
	start(2, 1, 64, 64, 64);
	(void)store(1);
	fds = count_fds();
	scout__pool_do(&l1.pool, &first, wait_for_it);
	scout__index_free(cache);
	ck_assert_uint_eq(l1.pool.used_bytes, 0);
	ck_assert_int_eq(count_fds(), fds);
	ck_assert_int_eq(sem_post(&go_on), 0);
	scout__l1_fini(&l1);
	ck_assert_int_eq(count_fds(), before);
}
END_TEST

START_TEST(index_freed_while_it_grows_leaks_nothing)
{
	int fds = count_fds();

	for (int i = 0; i < 10; i++) {
		start(2, 1, 64, 16, 64);
		if (i % 2)
			(void)store(1);
		scout__index_free(cache);
		scout__index_free(NULL);
		while (l1.pool.n_growing > 0) {
			wait_ready(&l1.pool);
			ck_assert_ptr_null(scout__pool_ready(&l1.pool));
		}
		ck_assert_uint_eq(l1.pool.used_bytes, 0);
		scout__l1_fini(&l1);
		ck_assert_int_eq(count_fds(), fds);
	}
}
END_TEST

START_TEST(index_larger_than_the_pool_and_unknown_policies_are_refused)
{
	const uint64_t fits = SLOT;
	const uint64_t large[] = {8 * SLOT, 1};
	const uint64_t huge[] = {UINT64_MAX, UINT64_MAX};
	struct scout__chunk_index *none = NULL;
	char err[256] = "";

	scout__enter_loop();
	ck_assert_int_eq(scout__l1_init(&l1, 8 * SLOT, SLOT, 0, "nonesuch", &test_log, err, sizeof(err)),
			 SCOUT_ERR_CONFIG_RANGE);
	ck_assert_ptr_nonnull(strstr(err, "nonesuch"));
	ck_assert_int_eq(scout__l1_init(&l1, 8 * SLOT, SLOT, 0, "lru", &test_log, err, sizeof(err)), 0);
	ck_assert_int_eq(scout__index_new(&l1, NULL, large, NULL, 2, 1, HASH, &none), SCOUT_ERR_NO_ROOM);
	ck_assert_int_eq(scout__index_new(&l1, NULL, huge, NULL, 1, 1, HASH, &none), SCOUT_ERR_NO_ROOM);
	ck_assert_int_eq(scout__index_new(&l1, NULL, huge, NULL, 2, 1, HASH, &none), SCOUT_ERR_NO_ROOM);
	ck_assert_ptr_null(none);
	ck_assert_int_eq(scout__index_new(&l1, NULL, &fits, NULL, 1, 1, HASH, &cache), 0);
	stop();
}
END_TEST

#ifndef SANITIZED

START_TEST(index_without_address_space_is_refused)
{
	const uint64_t shard_bytes = 1;
	const uint64_t l1_bytes = UINT64_C(1) << 30;
	struct scout__chunk_index *none = NULL;
	struct rlimit limits;
	char err[256];
	int fds;

	scout__enter_loop();
	if (scout__l1_init(&l1, l1_bytes, SLOT, 0, "lru", &test_log, err, sizeof(err)) == SCOUT_ERR_POOL_SIZE)
		return; /* a machine with less than 1 GiB of memory */
	fds = count_fds();
	ck_assert_int_eq(getrlimit(RLIMIT_AS, &limits), 0);
	limits.rlim_cur = UINT64_C(256) << 20;
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &limits), 0);
	ck_assert_int_eq(scout__index_new(&l1, NULL, &shard_bytes, NULL, 1, 1, HASH, &none), SCOUT_ERR_NOMEM);
	limits.rlim_cur = limits.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &limits), 0);
	ck_assert_ptr_null(none);
	ck_assert_uint_eq(l1.pool.used_bytes, 0);
	ck_assert_int_eq(count_fds(), fds);
	scout__l1_fini(&l1);
}
END_TEST

#endif

#ifndef SANITIZED

static uint64_t
address_space(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	uint64_t pages = 0;

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fscanf(file, "%" SCNu64, &pages), 1);
	(void)fclose(file);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/*
 * Each of them had arrays for as many chunks as the pool holds, 200 bytes for each; now it has those for its extents, and
 * less than 60 bytes for each that it may have some day.
 */
START_TEST(indexes_of_small_chunks_reserve_what_their_extents_need)
{
	const uint64_t shard_bytes = 64, l1_bytes = UINT64_C(1) << 30;
	struct scout__chunk_index *indexes[7];
	uint64_t before;
	char err[256];

	scout__enter_loop();
	if (scout__l1_init(&l1, l1_bytes, 1 << 20, 0, "hdc", &test_log, err, sizeof(err)) == SCOUT_ERR_POOL_SIZE)
		return; /* a machine with less than 1 GiB of memory */
	before = address_space();
	for (unsigned i = 0; i < 7; i++)
		ck_assert_int_eq(scout__index_new(&l1, NULL, &shard_bytes, NULL, 1, 1, HASH, &indexes[i]), 0);
	ck_assert_uint_le(address_space() - before, 7 * 60 * (l1_bytes / shard_bytes));
	for (unsigned i = 0; i < 7; i++)
		scout__index_free(indexes[i]);
	scout__l1_fini(&l1);
}
END_TEST

#endif

START_TEST(index_index_costs_at_most_105_bytes_per_chunk)
{
	const uint64_t shard_bytes = SLOT;
	char err[256];

	scout__enter_loop();
	for (uint64_t n = 1000; n <= 10000000; n *= 10) {
		ck_assert_int_eq(scout__l1_init(&l1, n * SLOT, SLOT, 0, "lru", &test_log, err, sizeof(err)), 0);
		ck_assert_int_eq(scout__index_new(&l1, NULL, &shard_bytes, NULL, 1, 1, HASH, &cache), 0);
		ck_assert_uint_eq(cache->max_entries, n);
		ck_assert_uint_le(scout__index_own_bytes(cache), 105 * n);
		scout__index_free(cache);
		scout__l1_fini(&l1);
	}
	ck_assert_uint_eq(sizeof(struct scout__entry), 64);
}
END_TEST
