/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "given_time.h"
#include "waiting.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checked_fork.h"
#include "clock.h"

/* What the tests of time stand on: what counts as given, and what follows from it. */

START_TEST(a_bound_is_judged_by_the_time_that_was_given)
{
	static const struct {
		uint64_t elapsed_us, delay_us;
		enum given_time_verdict verdict;
	} rows[] = {
		{99, 0, GIVEN_TIME_KEPT},         {99, 99, GIVEN_TIME_KEPT},     {100, 0, GIVEN_TIME_BROKEN},
		{150, 50, GIVEN_TIME_BROKEN},     {150, 51, GIVEN_TIME_KEPT},    {199, 100, GIVEN_TIME_KEPT},
		{200, 100, GIVEN_TIME_BROKEN},    {900, 449, GIVEN_TIME_BROKEN}, {900, 450, GIVEN_TIME_NOT_GIVEN},
		{900, 900, GIVEN_TIME_NOT_GIVEN},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct given_time_result r = {.elapsed_us = rows[i].elapsed_us, .delay_us = rows[i].delay_us};

		ck_assert_msg(given_time_verdict(r, 100) == rows[i].verdict, "row %zu", i);
	}
}
END_TEST

static void
stay_on_one_cpu(void)
{
	cpu_set_t mine, one;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(mine), &mine), 0);
	CPU_ZERO(&one);
	for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
		if (CPU_ISSET(cpu, &mine))
			CPU_SET(cpu, &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
}

static uint64_t
cpu_us(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* Two processes spin on one CPU: what each gets is what the other waits for. */
START_TEST(what_a_process_waits_for_a_cpu_is_its_delay)
{
	struct given_time_result r;
	struct given_time t;
	uint64_t begin_cpu_us;
	pid_t other;

	if (access("/proc/self/schedstat", R_OK) != 0) {
		printf("# SKIP no /proc/self/schedstat\n");
		return;
	}
	stay_on_one_cpu();
	other = checked_fork();
	while (other == 0)
		;
	given_time_begin(&t);
	given_time_of(&t, other);
	begin_cpu_us = cpu_us();
	while (cpu_us() - begin_cpu_us < 100000)
		;
	r = given_time_end(&t);
	ck_assert_int_eq(kill(other, SIGKILL), 0);
	ck_assert_int_eq(waitpid(other, NULL, 0), other);
	ck_assert_uint_ge(r.delay_us, 50000);
	ck_assert_uint_le(r.delay_us, r.elapsed_us);
}
END_TEST

START_TEST(a_wait_ends_when_its_condition_holds)
{
	unsigned turns = 0, bodies = 0;

	wait_until(++turns == 5)
		bodies++;
	ck_assert_uint_eq(turns, 5);
	ck_assert_uint_eq(bodies, 4);
}
END_TEST

/* Of the file in which Check's runner reads how far this case is; each assertion adds to it. -1: there is none. */
static off_t
bytes_for_check(void)
{
	char path[32], name[128];
	off_t bytes = -1;
	struct stat st;

	for (int fd = 3; fd < 256; fd++) {
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		memset(name, 0, sizeof(name));
		if (readlink(path, name, sizeof(name) - 1) > 0 && strstr(name, "/check_") && fstat(fd, &st) == 0)
			bytes = st.st_size;
	}
	return bytes;
}

START_TEST(what_a_child_asserts_does_not_reach_check)
{
	off_t before = bytes_for_check(), after;
	pid_t child = fork();
	int status = -1;

	if (child == 0) {
		for (unsigned i = 0; i < 100; i++)
			ck_assert_uint_lt(i, 100);
		_exit(0);
	}
	(void)waitpid(child, &status, 0);
	after = bytes_for_check();
	ck_assert_int_eq(status, 0);
	ck_assert_int_ge(before, 0);
	ck_assert_int_eq(after, before);
	ck_assert_int_gt(bytes_for_check(), after);
}
END_TEST
