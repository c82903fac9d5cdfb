/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_GPU_TEST_H
#define KVSCOUT_TESTS_GPU_TEST_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * Tests on a real GPU, without Check: GPU machines often have a compiler and the CUDA toolkit and nothing else. Prints TAP. Each
 * case runs in a process of its own, started anew, because a CUDA context survives no fork and a broken device no case. With GPU_TEST_QUICK
 * in the environment each case runs once, the rest is skipped.
 */

struct gpu_case {
	const char *name;
	void (*run)(int i);
	int n; /* times, with i from 0 on */
};

#define GPU_SKIP 77
#define GPU_CASE_LIMIT_S 60

#define REQUIRE(x)                                                                                                     \
	do {                                                                                                           \
		if (!(x)) {                                                                                            \
			printf("# %s:%d: %s\n", __FILE__, __LINE__, #x);                                               \
			fflush(stdout);                                                                                \
			_exit(1);                                                                                      \
		}                                                                                                      \
	} while (0)

#define CUDA(call) REQUIRE((call) == cudaSuccess)

static inline int
gpu_run_one(const struct gpu_case *cases, int n_cases, const char *name, int i)
{
	for (int c = 0; c < n_cases; c++) {
		if (strcmp(cases[c].name, name) == 0) {
			cases[c].run(i);
			return 0;
		}
	}
	return 2;
}

/* The exit status of case @name, run by a new process of this program. */
static inline int
gpu_spawn(const char *name, int i)
{
	char number[16];
	int status = 0;
	pid_t pid;

	snprintf(number, sizeof(number), "%d", i);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		/* A program that another one has loaded (its own ld.so) is told what to start. */
		const char *self = getenv("GPU_TEST_SELF");

		/* A case that hangs costs the others no more than this. */
		alarm(GPU_CASE_LIMIT_S);
		execl(self ? self : "/proc/self/exe", "gpu-test", name, number, (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 127;
	if (WIFSIGNALED(status))
		printf("# ended by signal %d%s\n", WTERMSIG(status),
		       WTERMSIG(status) == SIGALRM ? ": it took too long" : "");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* @why_not: NULL, or why no case can run here. */
static inline int
gpu_main(int argc, char **argv, const struct gpu_case *cases, int n_cases, const char *why_not)
{
	const bool quick = getenv("GPU_TEST_QUICK") != NULL;
	int n = 0, passed = 0, failed = 0, skipped = 0, rc;

	if (argc == 3)
		return gpu_run_one(cases, n_cases, argv[1], (int)strtol(argv[2], NULL, 10));
	for (int c = 0; c < n_cases; c++)
		n += cases[c].n;
	printf("1..%d\n", n);
	n = 0;
	for (int c = 0; c < n_cases; c++)
		for (int i = 0; i < cases[c].n; i++) {
			n++;
			if (why_not || (quick && i > 0)) {
				printf("ok %d - %s:%d # SKIP %s\n", n, cases[c].name, i, why_not ? why_not : "quick");
				skipped++;
				continue;
			}
			rc = gpu_spawn(cases[c].name, i);
			printf("%s %d - %s:%d%s\n", rc && rc != GPU_SKIP ? "not ok" : "ok", n, cases[c].name, i,
			       rc == GPU_SKIP ? " # SKIP" : "");
			passed += rc == 0;
			skipped += rc == GPU_SKIP;
			failed += rc && rc != GPU_SKIP;
		}
	printf("# %d passed, %d failed, %d skipped\n", passed, failed, skipped);
	return failed ? 1 : 0;
}

#endif
