/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>
#include <time.h>

/* 0: there is no such clock any more, as of a thread that has ended. */
static inline uint64_t
scout__clock_ns(clockid_t clock)
{
	struct timespec ts;

	if (clock_gettime(clock, &ts) != 0)
		return 0;
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* The monotonic clock. Every deadline in the project uses it. A vDSO call: no system call on the machines that we run on. */
static inline uint64_t
scout__now_ns(void)
{
	return scout__clock_ns(CLOCK_MONOTONIC);
}

static inline uint64_t
scout__now_us(void)
{
	return scout__now_ns() / 1000;
}

/* Unix time, which an operator may set: for what a person reads, and for what outlives a start. */
static inline uint64_t
scout__wall_us(void)
{
	return scout__clock_ns(CLOCK_REALTIME) / 1000;
}

static inline struct timespec
scout__timespec(uint64_t us)
{
	return (struct timespec){.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
}
