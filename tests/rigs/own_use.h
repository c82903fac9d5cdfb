/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <dirent.h>
#include <stdint.h>
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
	(void)closedir(dir);
	return n;
}
