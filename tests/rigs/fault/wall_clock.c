/* SPDX-License-Identifier: Apache-2.0 */
#include "wall_clock.h"

#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/*
 * An executable's definitions take the place of the C library's, for all libraries of the process, so whoever reads the wall
 * clock here - client, libzmq, anything - reads one that can be made to jump. The monotonic clocks are the kernel's.
 */

static atomic_long jump_s;

void
wall_clock_jump(long seconds)
{
	atomic_store(&jump_s, seconds);
}

int
clock_gettime(clockid_t clock, struct timespec *ts)
{
	long rc = syscall(SYS_clock_gettime, clock, ts);

	if (rc == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI))
		ts->tv_sec += atomic_load(&jump_s);
	return (int)rc;
}

int
gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	struct timespec ts;

	(void)zone;
	(void)clock_gettime(CLOCK_REALTIME, &ts);
	*tv = (struct timeval){.tv_sec = ts.tv_sec, .tv_usec = ts.tv_nsec / 1000};
	return 0;
}

time_t
time(time_t *ret_now)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_REALTIME, &ts);
	if (ret_now)
		*ret_now = ts.tv_sec;
	return ts.tv_sec;
}
