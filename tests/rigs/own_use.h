/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <dirent.h>
#include <stdint.h>
#include <sys/resource.h>
#include <time.h>

/* What a test's own process uses. */

/* CPU time of the calling thread. */
static inline uint64_t
cpu_us(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* Open descriptors, with the one that counts. */
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

/*
 * Let memfds of more than @bytes fail with EFBIG, for those threads that block SIGXFSZ, as the grower does. Not too
 * small a number: Check writes its own messages to a file. Not by RLIMIT_NOFILE: sanitizers need descriptors to
 * report.
 */
static inline void
limit_file_size(rlim_t bytes)
{
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes;
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}
