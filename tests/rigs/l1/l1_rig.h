/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_L1_FIXTURE_H
#define KVSCOUT_TESTS_L1_FIXTURE_H

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "chunk_index.h"

/*
 * Shared by the tests of the host-memory tier: captured log lines, keys, waiting for the grower, descriptors counted.
 */

#define DEADLINE_MS 60000
#define HASH 32u

struct captured {
	int errors;
	int infos;
	int warnings;
	char last_error[512];
	char last_info[512];
};

static inline void
capture(void *user, int level, const char *text)
{
	struct captured *captured = user;

	if (level == SCOUT_LOG_ERROR) {
		captured->errors++;
		(void)snprintf(captured->last_error, sizeof(captured->last_error), "%s", text);
	} else if (level == SCOUT_LOG_WARN) {
		captured->warnings++;
	} else if (level == SCOUT_LOG_INFO) {
		captured->infos++;
		(void)snprintf(captured->last_info, sizeof(captured->last_info), "%s", text);
	}
}

static struct captured captured;
static const struct scout__log test_log = {.fn = capture, .user = &captured, .who = "test"};

/* The hash of chunk @i; valid until the next call. */
static inline const uint8_t *
key(uint32_t i)
{
	static uint8_t hash[HASH];

	for (uint32_t at = 0; at < HASH; at += 4) {
		uint32_t x = (i + 1) * 2654435761u ^ at * 40503u;

		memcpy(hash + at, &x, sizeof(x));
	}
	return hash;
}

/* Sleep until the pool has something. */
static inline void
wait_ready(struct scout__pool *pool)
{
	struct pollfd ready = {.fd = pool->ready_fd, .events = POLLIN};

	ck_assert_int_eq(poll(&ready, 1, DEADLINE_MS), 1);
}

/* The next extent of the pool. */
static inline SCOUT_ON_LOOP struct scout__extent *
wait_extent(struct scout__pool *pool)
{
	struct scout__extent *extent;

	while (!(extent = scout__pool_ready(pool)))
		wait_ready(pool);
	return extent;
}

/* Give @index the extent that it asked for. Returns whether there are new slots. */
static inline SCOUT_ON_LOOP bool
wait_grown(struct scout__chunk_index *index)
{
	struct scout__extent *extent;

	ck_assert(index->growing);
	extent = wait_extent(&index->l1->pool);
	ck_assert_ptr_eq(extent->owner, index);
	return scout__index_grow(index, extent);
}

/*
 * Let memfds of more than @bytes fail with EFBIG, for those threads that block SIGXFSZ, as the grower does. Not too
 * small a number: Check writes its own messages to a file. Not by RLIMIT_NOFILE: sanitizers need descriptors to
 * report.
 */
static inline void
limit_file_size(rlim_t bytes)
{
	struct rlimit limits;

	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limits), 0);
	limits.rlim_cur = bytes;
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limits), 0);
}

static inline int
count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir)) // NOLINT(concurrency-mt-unsafe): a stream of our own
		n++;
	ck_assert_int_eq(closedir(dir), 0);
	return n;
}

#endif
