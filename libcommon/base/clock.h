/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>
#include <time.h>

/* The monotonic clock. Every deadline in the project uses it. A vDSO call: no system call on the machines that we run on. */
static inline uint64_t
scout__now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t
scout__now_us(void)
{
	return scout__now_ns() / 1000;
}
