/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <kvscout/server.h>

#include "clock.h"
#include "l1_rig.h"
#include "log.h"
#include "memory.h"
#include "pool.h"

#include "check_main.h"
#include "given_time.h"
#include "own_use.h"
#include "waiting.h"

#define MIB (UINT64_C(1) << 20)

static struct scout__pool pool;
static int owner;

static SCOUT_STARTS_LOOP void
start(uint64_t l1_bytes, uint64_t extent_bytes)
{
	char err[256] = "";
	int code;

	scout__enter_loop();
	code = scout__pool_init(&pool, l1_bytes, extent_bytes, &test_log, err, sizeof(err));
	ck_assert_msg(code == 0, "%d: %s", code, err);
}

START_TEST(pool_stride_is_rounded_to_lines_below_a_page_and_to_pages_above)
{
	ck_assert_uint_eq(scout__slot_stride(0), 64);
	ck_assert_uint_eq(scout__slot_stride(1), 64);
	ck_assert_uint_eq(scout__slot_stride(64), 64);
	ck_assert_uint_eq(scout__slot_stride(65), 128);
	ck_assert_uint_eq(scout__slot_stride(4095), 4096);
	ck_assert_uint_eq(scout__slot_stride(4096), 4096);
	ck_assert_uint_eq(scout__slot_stride(4097), 8192);
	ck_assert_uint_eq(scout__slot_stride(UINT64_MAX), UINT64_MAX);
	ck_assert_uint_ge(scout__slot_stride(INT64_MAX), INT64_MAX);
}
END_TEST

/* Ask for an extent, and wait for it. */
static SCOUT_ON_LOOP struct scout__extent *
get_extent(const uint64_t *strides, const uint16_t *nodes, uint32_t n_ranks)
{
	ck_assert_int_eq(scout__pool_want(&pool, &owner, strides, nodes, n_ranks, UINT32_MAX), 1);
	return wait_extent(&pool);
}

/* Ask until there is no more; returns the slots got, and frees everything. */
static SCOUT_ON_LOOP uint64_t
exhaust(const uint64_t *strides, uint32_t n_ranks)
{
	struct scout__extent *extents[64];
	uint64_t slots = 0;
	uint32_t n = 0;
	uint64_t used = pool.used_bytes;

	while (scout__pool_want(&pool, &owner, strides, NULL, n_ranks, UINT32_MAX) == 1) {
		struct scout__extent *extent = wait_extent(&pool);

		ck_assert_uint_lt(n, 64);
		ck_assert_int_eq(extent->error, 0);
		ck_assert_uint_eq(pool.used_bytes, used + extent->slot_bytes);
		used = pool.used_bytes;
		slots += extent->slots;
		extents[n++] = extent;
	}
	while (n > 0)
		scout__extent_free(&pool, extents[--n]);
	return slots;
}

START_TEST(pool_gives_exactly_the_slots_that_l1_bytes_hold)
{
	static const uint64_t strides[] = {4096, 64, 8192};
	const uint64_t chunk = 4096 + 64 + 8192;

	for (uint64_t n = 1; n <= 41; n += 5) {
		/* Extents smaller than a slot, of one, of 7 and a bit, and larger than the pool. */
		const uint64_t extent_bytes[] = {1, chunk, 7 * chunk + 5, 1000 * chunk};

		for (int i = 0; i < 4; i++) {
			start(n * chunk, extent_bytes[i]);
			ck_assert_uint_eq(exhaust(strides, 3), n);
			ck_assert_uint_eq(pool.used_bytes, 0);
			scout__pool_fini(&pool);
			start(n * chunk + chunk - 1, extent_bytes[i]);
			ck_assert_uint_eq(exhaust(strides, 3), n);
			scout__pool_fini(&pool);
		}
	}
}
END_TEST

START_TEST(pool_smaller_than_a_slot_gives_none)
{
	const uint64_t stride = 4096;
	const uint64_t huge[] = {UINT64_MAX, UINT64_MAX};

	start(4095, 4096);
	ck_assert_int_eq(scout__pool_want(&pool, &owner, &stride, NULL, 1, UINT32_MAX), 0);
	ck_assert_int_eq(scout__pool_want(&pool, &owner, huge, NULL, 1, UINT32_MAX), 0);
	ck_assert_int_eq(scout__pool_want(&pool, &owner, huge, NULL, 2, UINT32_MAX), 0);
	ck_assert_uint_eq(pool.used_bytes, 0);
	scout__pool_fini(&pool);
}
END_TEST

/* With `sysctl vm.nr_hugepages=64` it takes some. */
START_LOOP_TEST(pool_takes_huge_pages_as_it_is_told, SCOUT_HUGE_PAGES_TRY, SCOUT_HUGE_PAGES_REQUIRE + 1)
{
	static const uint64_t stride = 64 << 10;
	struct scout__extent *extent;
	struct scout__memory memory;
	char err[256] = "";
	bool are_there;

	scout__memory_read("", &memory);
	are_there = memory.huge_page == 2 * MIB && memory.huge_available >= 16 * MIB;
	ck_assert_int_eq(scout__pool_check_huge_pages(16 * MIB, (uint32_t)_i, err, sizeof(err)),
			 _i < SCOUT_HUGE_PAGES_REQUIRE || are_there ? 0 : SCOUT_ERR_POOL_SIZE);
	ck_assert_int_eq(strstr(err, "reserve 17 more of them") != NULL,
			 _i == SCOUT_HUGE_PAGES_REQUIRE && memory.huge_available == 0);
	start(16 * MIB, 15 * MIB);
	pool.huge_pages = (uint32_t)_i;
	extent = get_extent(&stride, NULL, 1);
	if (_i == SCOUT_HUGE_PAGES_REQUIRE && !are_there) {
		ck_assert_int_eq(extent->error, SCOUT_ERR_NOMEM);
	} else {
		ck_assert_int_eq(extent->error, 0);
		ck_assert_int_eq(extent->segments[0].page_bytes == 2 * MIB, _i != SCOUT_HUGE_PAGES_OFF && are_there);
	}
	scout__extent_free(&pool, extent);
	scout__pool_fini(&pool);
}
END_TEST

START_TEST(pool_segments_are_sealed_allocated_and_closed_on_exec)
{
	static const uint64_t strides[] = {4096, 192};
	struct scout__extent *extent;

	start(MIB, MIB);
	extent = get_extent(strides, NULL, 2);
	ck_assert_int_eq(extent->error, 0);
	ck_assert_uint_eq(extent->slots, MIB / (4096 + 192));
	ck_assert_uint_ne(extent->segments[0].id, extent->segments[1].id);
	for (int rank = 0; rank < 2; rank++) {
		const struct scout__segment *segment = &extent->segments[rank];
		int seals = fcntl(segment->fd, F_GET_SEALS);
		struct stat st;

		ck_assert_int_eq(seals, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
		ck_assert_int_eq(ftruncate(segment->fd, (off_t)segment->bytes * 2), -1);
		ck_assert_int_eq(errno, EPERM);
		ck_assert_int_eq(ftruncate(segment->fd, 0), -1);
		ck_assert_int_eq(errno, EPERM);
		ck_assert_int_eq(fcntl(segment->fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
		ck_assert_int_eq(fcntl(segment->fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
		ck_assert_int_eq(fstat(segment->fd, &st), 0);
		ck_assert_uint_eq((uint64_t)st.st_size, segment->bytes);
		ck_assert_uint_ge((uint64_t)st.st_blocks * 512, segment->bytes);
		ck_assert_uint_eq(segment->stride, strides[rank]);
		ck_assert_uint_eq(segment->data_offset % 4096, 0);
		ck_assert_uint_ge(segment->data_offset, extent->slots * sizeof(uint64_t));
		ck_assert_uint_ge(segment->bytes, segment->data_offset + extent->slots * segment->stride);
	}
	ck_assert_uint_eq(pool.extra_bytes, extent->segments[0].bytes + extent->segments[1].bytes - extent->slot_bytes);
	scout__extent_free(&pool, extent);
	ck_assert_uint_eq(pool.extra_bytes, 0);
	scout__pool_fini(&pool);
}
END_TEST

START_TEST(pool_generation_words_are_shared_with_whoever_maps_the_memfd)
{
	const uint64_t stride = 64;
	struct scout__extent *extent;
	const uint64_t *seen;

	start(600 * stride, MIB);
	extent = get_extent(&stride, NULL, 1);
	ck_assert_int_eq(extent->error, 0);
	ck_assert_uint_eq(extent->slots, 600);
	seen = mmap(NULL, extent->segments[0].bytes, PROT_READ, MAP_SHARED, extent->segments[0].fd, 0);
	ck_assert_ptr_ne(seen, MAP_FAILED);
	for (uint32_t slot = 0; slot < 600; slot++) {
		ck_assert_uint_eq(seen[slot], 0);
		atomic_store(&extent->segments[0].words[slot], slot + 77);
		ck_assert_uint_eq(seen[slot], slot + 77);
	}
	scout__extent_free(&pool, extent);
	/* The memory lives as long as somebody maps it. */
	ck_assert_uint_eq(seen[599], 599 + 77);
	scout__pool_fini(&pool);
}
END_TEST

START_TEST(pool_says_its_page_size_once)
{
	const uint64_t stride = 4096;

	start(10 * stride, stride);
	ck_assert_uint_eq(exhaust(&stride, 1), 10);
	ck_assert_int_eq(captured.infos, 1);
	ck_assert_ptr_nonnull(strstr(captured.last_info, "pages of"));
	scout__pool_fini(&pool);
}
END_TEST

START_TEST(pool_tells_how_far_it_has_grown)
{
	const uint64_t stride = UINT64_C(1) << 20;

	/* Four extents of 64 MiB: each is more than a tenth. The page size is a line of its own. */
	start(256 * stride, 64 * stride);
	pool.huge_pages = SCOUT_HUGE_PAGES_OFF;
	ck_assert_uint_eq(exhaust(&stride, 1), 256);
	ck_assert_int_eq(captured.infos, 5);
	ck_assert_ptr_nonnull(strstr(captured.last_info, "268435456 of 268435456 bytes (100 %), pages of"));
	scout__pool_fini(&pool);
}
END_TEST

/* Whether this machine can be asked: some sandboxes cannot. */
static bool
knows_nodes(void)
{
	return syscall(SYS_get_mempolicy, NULL, NULL, 0ul, NULL, 0ul) == 0;
}

START_TEST(pool_memory_is_preferably_of_the_node_that_was_asked_for)
{
	const uint64_t strides[2] = {4096, 4096};
	const uint16_t nodes[2] = {1, 0};
	struct scout__extent *extent;

	start(16 * 8192, 16 * 8192);
	extent = get_extent(strides, nodes, 2);
	ck_assert_int_eq(extent->error, 0);
	for (uint32_t rank = 0; rank < 2 && knows_nodes(); rank++) {
		uint64_t bytes = extent->segments[rank].bytes;
		void *p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, extent->segments[rank].fd, 0);
		unsigned long mask[16] = {0};
		int mode = -1;

		ck_assert_ptr_ne(p, MAP_FAILED);
		ck_assert_int_eq(syscall(SYS_get_mempolicy, &mode, mask, 1024ul, p, 2ul /* MPOL_F_ADDR */), 0);
		ck_assert_int_eq(mode, rank == 0 ? 1 /* MPOL_PREFERRED */ : 0 /* MPOL_DEFAULT */);
		ck_assert_uint_eq(mask[0], rank == 0 ? 1 : 0);
		ck_assert_int_eq(munmap(p, bytes), 0);
	}
	ck_assert_int_eq(captured.warnings, knows_nodes() ? 0 : 1);
	scout__extent_free(&pool, extent);
	scout__pool_fini(&pool);
}
END_TEST

START_LOOP_TEST(pool_of_a_node_that_there_is_not_warns_once_and_works, 0, 2)
{
	const uint64_t stride = 4096;
	const uint16_t node = (uint16_t)(_i == 0 ? 1001 : UINT16_MAX);

	start(16 * stride, 4 * stride);
	for (int i = 0; i < 4; i++) {
		struct scout__extent *extent;

		extent = get_extent(&stride, &node, 1);
		ck_assert_int_eq(extent->error, 0);
		ck_assert_uint_eq(extent->slots, 4);
		scout__extent_free(&pool, extent);
	}
	ck_assert_int_eq(captured.warnings, 1);
	scout__pool_fini(&pool);
}
END_TEST

START_TEST(pool_segment_ids_never_repeat)
{
	const uint64_t stride = 64;
	uint32_t last = 0;

	start(stride, stride);
	for (int i = 0; i < 20; i++) {
		struct scout__extent *extent;

		extent = get_extent(&stride, NULL, 1);
		ck_assert_uint_gt(extent->segments[0].id, last);
		last = extent->segments[0].id;
		scout__extent_free(&pool, extent);
	}
	scout__pool_fini(&pool);
}
END_TEST

START_TEST(pool_larger_than_the_machine_is_refused_with_the_numbers)
{
	struct scout__memory memory;
	const uint64_t sizes[] = {0, UINT64_MAX};
	char err[512];
	char number[32];
	int fds = count_fds();

	scout__enter_loop();
	scout__memory_read("", &memory);
	ck_assert_uint_ne(memory.total, UINT64_MAX);
	for (int i = 0; i < 2; i++) {
		uint64_t l1_bytes = sizes[i] ? sizes[i] : memory.total + 1;

		err[0] = '\0';
		ck_assert_int_eq(scout__pool_init(&pool, l1_bytes, MIB, &test_log, err, sizeof(err)),
				 SCOUT_ERR_POOL_SIZE);
		(void)snprintf(number, sizeof(number), "%" PRIu64 " ", l1_bytes);
		ck_assert_msg(strstr(err, number) != NULL, "%s", err);
		(void)snprintf(number, sizeof(number), "%" PRIu64 " ", memory.total);
		ck_assert_msg(strstr(err, number) != NULL, "%s", err);
		ck_assert_msg(strstr(err, "GiB") != NULL, "%s", err);
	}
	ck_assert_int_eq(count_fds(), fds);
}
END_TEST

/* Ask for two extents that fail; the first one says so, the second need not. Then the bytes are back. */
static SCOUT_ON_LOOP void
expect_failure(const uint64_t strides[3])
{
	char number[32];

	for (int i = 0; i < 2; i++) {
		struct scout__extent *extent;

		ck_assert_int_eq(scout__pool_want(&pool, &owner, strides, NULL, 3, UINT32_MAX), 1);
		ck_assert_uint_gt(pool.used_bytes, 0);
		extent = wait_extent(&pool);
		ck_assert_int_eq(extent->error, SCOUT_ERR_SYSTEM);
		ck_assert_int_eq(extent->system_error, EFBIG);
		ck_assert_str_eq(extent->failed, "ftruncate");
		for (int rank = 0; rank < 3; rank++) {
			ck_assert_int_eq(extent->segments[rank].fd, -1);
			ck_assert_ptr_null(extent->segments[rank].words);
		}
		scout__extent_free(&pool, extent);
		ck_assert_uint_eq(pool.used_bytes, 0);
		ck_assert_uint_eq(pool.extra_bytes, 0);
		ck_assert_int_eq(captured.errors, 1);
	}
	(void)snprintf(number, sizeof(number), "errno %d", EFBIG);
	ck_assert_msg(strstr(captured.last_error, number) != NULL, "%s", captured.last_error);
	ck_assert_msg(strstr(captured.last_error, "ftruncate") != NULL, "%s", captured.last_error);
	ck_assert_msg(strstr(captured.last_error, scout__errno_text(EFBIG)) != NULL, "%s", captured.last_error);
}

START_TEST(pool_failed_extent_is_logged_once_and_gives_its_bytes_back)
{
	static const uint64_t strides[] = {MIB, MIB, MIB};
	struct scout__extent *extent;

	start(4 * MIB, MIB);
	limit_file_size(MIB / 2);
	expect_failure(strides);
	/* It works again when there is room again, and the next failure is worth a line again. */
	limit_file_size(RLIM_INFINITY);
	extent = get_extent(strides, NULL, 3);
	ck_assert_int_eq(extent->error, 0);
	scout__extent_free(&pool, extent);
	captured.errors = 0;
	limit_file_size(MIB / 2);
	expect_failure(strides);
	scout__pool_fini(&pool);
}
END_TEST

START_TEST(pool_extent_that_fails_at_a_later_rank_leaves_nothing_open)
{
	/* Only the last one is too large. */
	static const uint64_t strides[] = {4096, 64, MIB};
	int fds;

	start(4 * MIB, 1);
	fds = count_fds();
	limit_file_size(MIB / 2);
	expect_failure(strides);
	ck_assert_int_eq(count_fds(), fds);
	scout__pool_fini(&pool);
}
END_TEST

START_TEST(pool_extent_without_memory_is_an_error_with_the_numbers)
{
	struct scout__memory memory;
	struct scout__extent *extent;
	uint64_t l1_bytes;
	uint64_t stride;

	/* All that the machine has: the kernel and this process have some of it already. */
	scout__memory_read("", &memory);
	l1_bytes = memory.total < memory.cgroup_limit ? memory.total : memory.cgroup_limit;
	stride = l1_bytes / 4096 * 4096;
	start(l1_bytes, l1_bytes);
	extent = get_extent(&stride, NULL, 1);
	ck_assert_int_eq(extent->error, SCOUT_ERR_NOMEM);
	ck_assert_int_eq(extent->system_error, ENOMEM);
	ck_assert_uint_gt(extent->available_bytes, 0);
	ck_assert_int_eq(captured.errors, 1);
	ck_assert_msg(strstr(captured.last_error, "available") != NULL, "%s", captured.last_error);
	scout__extent_free(&pool, extent);
	scout__pool_fini(&pool);
}
END_TEST

START_TEST(pool_leaks_no_descriptor)
{
	const uint64_t stride = 4096;
	int fds = count_fds();

	for (int i = 0; i < 5; i++) {
		start(20 * stride, 3 * stride);
		ck_assert_uint_eq(exhaust(&stride, 1), 20);
		/* These are asked for and never taken. */
		ck_assert_int_eq(scout__pool_want(&pool, &owner, &stride, NULL, 1, UINT32_MAX), 1);
		ck_assert_int_eq(scout__pool_want(&pool, &owner, &stride, NULL, 1, UINT32_MAX), 1);
		wait_ready(&pool);
		scout__pool_fini(&pool);
		ck_assert_int_eq(count_fds(), fds);
	}
}
END_TEST

START_TEST(pool_stops_while_it_grows)
{
	const uint64_t stride = 64 * MIB;
	int fds = count_fds();

	start(8 * stride, 8 * stride);
	ck_assert_int_eq(scout__pool_want(&pool, &owner, &stride, NULL, 1, UINT32_MAX), 1);
	scout__pool_fini(&pool);
	ck_assert_int_eq(count_fds(), fds);
	/* Twice is allowed: it is also the end of what never started. */
	scout__pool_fini(&pool);
}
END_TEST

START_TEST(pool_frees_what_comes_for_an_owner_that_left)
{
	const uint64_t stride = 4096;
	int other;
	int fds;
	struct scout__extent *extent;

	start(2 * stride, stride);
	fds = count_fds();
	ck_assert_int_eq(scout__pool_want(&pool, &owner, &stride, NULL, 1, UINT32_MAX), 1);
	ck_assert_int_eq(scout__pool_want(&pool, &other, &stride, NULL, 1, UINT32_MAX), 1);
	scout__pool_disown(&pool, &owner);
	extent = wait_extent(&pool);
	ck_assert_ptr_eq(extent->owner, &other);
	ck_assert_uint_eq(pool.used_bytes, stride);
	ck_assert_ptr_null(scout__pool_ready(&pool));
	scout__extent_free(&pool, extent);
	ck_assert_uint_eq(pool.used_bytes, 0);
	ck_assert_uint_eq(pool.n_growing, 0);
	wait_until(count_fds() == fds)
		;
	scout__pool_fini(&pool);
}
END_TEST

static pthread_t done_by;

static void
note_thread(struct scout__pool *p, struct scout__chore *chore)
{
	(void)p;
	chore->run = NULL;
	done_by = pthread_self();
}

START_TEST(pool_chores_are_done_by_the_grower_before_it_grows_for_what_is_asked_later)
{
	const uint64_t stride = 4096;
	struct scout__chore chore;

	start(stride, stride);
	for (int i = 0; i < 100; i++) {
		scout__extent_free(&pool, get_extent(&stride, NULL, 1));
		scout__pool_do(&pool, &chore, note_thread);
		scout__extent_free(&pool, get_extent(&stride, NULL, 1));
		ck_assert(!chore.run);
		ck_assert(pthread_equal(done_by, pool.grower));
	}
	scout__pool_do(&pool, &chore, note_thread);
	scout__pool_fini(&pool);
	ck_assert(!chore.run);
	/* There is no grower any more. */
	scout__pool_do(&pool, &chore, note_thread);
	ck_assert(pthread_equal(done_by, pthread_self()));
}
END_TEST

/* The state letter of the thread named "scout-grower", or 0. */
static char
grower_state(void)
{
	char folder[64], path[80], line[256] = "";
	const char *name;
	FILE *file;

	if (!thread_named("scout-grower", folder))
		return 0;
	(void)snprintf(path, sizeof(path), "%s/stat", folder);
	file = fopen(path, "re");
	ck_assert(file && fgets(line, sizeof(line), file));
	(void)fclose(file);
	name = strstr(line, "(scout-grower) ");
	return name ? name[strlen("(scout-grower) ")] : 0;
}

START_TEST(pool_grower_sleeps_when_nothing_is_wanted)
{
	const uint64_t stride = 64;
	struct timespec before;
	struct timespec after;
	clockid_t clock;
	uint64_t until_us;

	start(20 * stride, stride);
	ck_assert_uint_eq(exhaust(&stride, 1), 20);
	wait_until(grower_state() == 'S')
		;
	ck_assert_int_eq(pthread_getcpuclockid(pool.grower, &clock), 0);
	ck_assert_int_eq(clock_gettime(clock, &before), 0);
	/* A loop that polls would use processor time while this one looks on. */
	until_us = scout__now_us() + 20000;
	while (scout__now_us() < until_us)
		(void)grower_state();
	ck_assert_int_eq(clock_gettime(clock, &after), 0);
	ck_assert_int_eq(before.tv_sec, after.tv_sec);
	ck_assert_int_eq(before.tv_nsec, after.tv_nsec);
	scout__pool_fini(&pool);
}
END_TEST
