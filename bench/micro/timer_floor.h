/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/*
 * What the machine itself makes of a time to be kept: a bare thread that does nothing but sleep on a timerfd until
 * each of @n times, and notes how late it was woken.
 */
struct timer_floor {
	pthread_t thread;
	int policy; /* SCHED_OTHER or SCHED_BATCH */
	uint64_t first_ns, gap_ns;
	size_t n;
	int64_t *late_ns; /* n of them, written by the thread */
};

/* Fields above are set, but for `thread`. 0 or an errno value. */
int timer_floor_start(struct timer_floor *floor);
void timer_floor_join(struct timer_floor *floor);
