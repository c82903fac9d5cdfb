/* SPDX-License-Identifier: Apache-2.0 */
#include "timer_floor.h"

#include <sched.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "clock.h"

static void
sleep_until(int fd, uint64_t at_ns)
{
	const struct itimerspec when = {.it_value = {(time_t)(at_ns / 1000000000u), (long)(at_ns % 1000000000u)}};
	uint64_t expirations;

	if (timerfd_settime(fd, TFD_TIMER_ABSTIME, &when, NULL) != 0)
		return;
	(void)!read(fd, &expirations, sizeof(expirations)); /* blocks until then; an error shows as too early */
}

static void *
floor_main(void *arg)
{
	const struct sched_param no_priority = {.sched_priority = 0};
	struct timer_floor *floor = arg;
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);

	(void)pthread_setschedparam(pthread_self(), floor->policy, &no_priority);
	for (size_t i = 0; i < floor->n; i++) {
		uint64_t at_ns = floor->first_ns + i * floor->gap_ns;

		sleep_until(fd, at_ns);
		floor->late_ns[i] = (int64_t)(scout__now_ns() - at_ns);
	}
	(void)close(fd);
	return NULL;
}

int
timer_floor_start(struct timer_floor *floor)
{
	return pthread_create(&floor->thread, NULL, floor_main, floor);
}

void
timer_floor_join(struct timer_floor *floor)
{
	(void)pthread_join(floor->thread, NULL);
}
