/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * Tests on a real GPU, without Check: GPU machines often have a compiler and nothing else. Prints TAP. Each
 * case runs in a process of its own, started anew, because a CUDA context survives no fork and a broken device no case. With GPU_TEST_QUICK
 * in the environment each case runs once, the rest is skipped. GPU_TEST_JOBS says how many run at a time; without it 8 do where there
 * are 16 CPUs, and 4 where there are fewer.
 */

struct gpu_case {
	const char *name;
	void (*run)(int i);
	int n; /* times, with i from 0 on */
};

#define GPU_SKIP 77
#define GPU_CASE_LIMIT_S 60 /* then a case has hung */

#define REQUIRE(x)                                                                                                     \
	do {                                                                                                           \
		if (!(x))                                                                                              \
			gpu_fail(__FILE__, __LINE__, #x, NULL);                                                        \
	} while (0)

/* The case fails here and now; @why may be NULL. */
_Noreturn void gpu_fail(const char *file, int line, const char *what, const char *why);

/*
 * A scout_log_fn: warnings and errors become comments. The case fails when the driver refuses a batch of copies: the engine would
 * go on with a call for each, and all would look well.
 */
void gpu_say(void *user, int level, const char *text);

/* @why_not: NULL, or why no case can run here. */
int gpu_main(int argc, char **argv, const struct gpu_case *cases, int n_cases, const char *why_not);
