/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_test.h"

#include <kvscout/types.h>

/* A case of the program, and how it went. */
struct gpu_run {
	const char *name;
	int i;
	pid_t pid;    /* 0: not started */
	int status;   /* exit status, when it has ended */
	FILE *said;   /* what it printed */
	bool is_over; /* or is not run */
};

_Noreturn void
gpu_fail(const char *file, int line, const char *what, const char *why)
{
	printf("# %s:%d: %s%s%s\n", file, line, what, why ? ": " : "", why ? why : "");
	fflush(stdout);
	_exit(1);
}

void
gpu_say(void *user, int level, const char *text)
{
	(void)user;
	if (level > SCOUT_LOG_WARN)
		return;
	printf("# %s\n", text);
	fflush(stdout);
	if (strstr(text, "refuses a batch"))
		gpu_fail(__FILE__, __LINE__, "copies in one call", "refused, see above");
}

static int
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

/* Start a case in a new process of this program. */
static void
gpu_spawn(struct gpu_run *run)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", run->i);
	run->said = tmpfile();
	fflush(stdout);
	run->pid = run->said ? fork() : -1;
	if (run->pid == 0) {
		/* A program that another one has loaded (its own ld.so) is told what to start. */
		const char *self = getenv("GPU_TEST_SELF");

		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)alarm(GPU_CASE_LIMIT_S);
		if (dup2(fileno(run->said), STDOUT_FILENO) >= 0 && dup2(fileno(run->said), STDERR_FILENO) >= 0)
			execl(self ? self : "/proc/self/exe", "gpu-test", run->name, number, (char *)NULL);
		_exit(127);
	}
	if (run->pid < 0) {
		run->status = 127;
		run->is_over = true;
	}
}

/* Wait until one of the running cases has ended. */
static void
gpu_await(struct gpu_run *runs, int n)
{
	int status = 0;
	pid_t pid = waitpid(-1, &status, 0);

	for (int k = 0; k < n; k++)
		if (runs[k].pid > 0 && !runs[k].is_over && (runs[k].pid == pid || pid < 0)) {
			runs[k].status = pid < 0             ? 127
					 : WIFEXITED(status) ? WEXITSTATUS(status)
							     : 128 + WTERMSIG(status);
			runs[k].is_over = true;
		}
}

static void
gpu_print(const struct gpu_run *run, int number, const char *why_not)
{
	const char *skip = why_not ? why_not : run->pid == 0 ? "quick" : run->status == GPU_SKIP ? "see above" : NULL;
	char line[1024];

	if (run->said) {
		rewind(run->said);
		while (fgets(line, sizeof(line), run->said))
			fputs(line, stdout);
		fclose(run->said);
	}
	if (run->status > 128)
		printf("# ended by signal %d%s\n", run->status - 128,
		       run->status - 128 == SIGALRM ? ": it took too long" : "");
	printf("%s %d - %s:%d%s%s\n", run->status && !skip ? "not ok" : "ok", number, run->name, run->i,
	       skip ? " # SKIP " : "", skip ? skip : "");
	fflush(stdout);
}

/* Some cases at a time, since most of a case's time is the start of CUDA; their lines come in order. */
static void
gpu_run_all(struct gpu_run *runs, int n, const char *why_not)
{
	const char *text = getenv("GPU_TEST_JOBS");
	const long jobs = text ? strtol(text, NULL, 10) : sysconf(_SC_NPROCESSORS_ONLN) >= 16 ? 8 : 4;
	int next = 0, printed = 0, running = 0;

	while (printed < n) {
		for (; next < n && running < (jobs > 1 ? jobs : 1); next++)
			if (!runs[next].is_over) {
				gpu_spawn(&runs[next]);
				running += !runs[next].is_over;
			}
		for (; printed < next && runs[printed].is_over; printed++)
			gpu_print(&runs[printed], printed + 1, why_not);
		if (running > 0 && printed < n) {
			gpu_await(runs, n);
			running--;
		}
	}
}

int
gpu_main(int argc, char **argv, const struct gpu_case *cases, int n_cases, const char *why_not)
{
	const bool quick = getenv("GPU_TEST_QUICK") != NULL;
	int n = 0, passed = 0, failed = 0, skipped = 0;
	struct gpu_run *runs;

	if (argc == 3)
		return gpu_run_one(cases, n_cases, argv[1], (int)strtol(argv[2], NULL, 10));
	for (int c = 0; c < n_cases; c++)
		n += cases[c].n;
	runs = calloc((size_t)n, sizeof(*runs));
	REQUIRE(runs);
	printf("1..%d\n", n);
	n = 0;
	for (int c = 0; c < n_cases; c++)
		for (int i = 0; i < cases[c].n; i++)
			runs[n++] =
				(struct gpu_run){.name = cases[c].name, .i = i, .is_over = why_not || (quick && i > 0)};
	gpu_run_all(runs, n, why_not);
	for (int k = 0; k < n; k++) {
		bool is_skipped = runs[k].pid == 0 || runs[k].status == GPU_SKIP;

		skipped += is_skipped;
		passed += !is_skipped && runs[k].status == 0;
		failed += !is_skipped && runs[k].status != 0;
	}
	free(runs);
	printf("# %d passed, %d failed, %d skipped\n", passed, failed, skipped);
	return failed ? 1 : 0;
}
