/* SPDX-License-Identifier: Apache-2.0 */
#include "given_time.h"

#include <check.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"

/* One thread's delay; 0 if the thread has ended, or where the kernel does not tell. */
static uint64_t
thread_delay_ns(const char *folder, const char *tid)
{
	uint64_t run_ns, delay_ns = 0;
	char path[300];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/%s/schedstat", folder, tid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%" SCNu64 " %" SCNu64, &run_ns, &delay_ns) != 2)
		delay_ns = 0;
	(void)fclose(file);
	return delay_ns;
}

static bool
has_name(const char *folder, const char *tid, const char *name)
{
	char path[300], line[32] = "";
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/%s/comm", folder, tid);
	file = fopen(path, "re");
	if (!file)
		return false;
	if (!fgets(line, sizeof(line), file))
		line[0] = '\0';
	(void)fclose(file);
	line[strcspn(line, "\n")] = '\0';
	return strcmp(line, name) == 0;
}

uint64_t
given_time_delay_us(pid_t pid, const char *name)
{
	uint64_t delay_ns = 0;
	struct dirent *entry;
	char folder[32];
	DIR *dir;

	(void)snprintf(folder, sizeof(folder), "/proc/%d/task", (int)pid);
	dir = opendir(folder);
	if (!dir)
		return 0;
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.' && (!name || has_name(folder, entry->d_name, name)))
			delay_ns += thread_delay_ns(folder, entry->d_name);
	(void)closedir(dir);
	return delay_ns / 1000;
}

bool
thread_named(const char *name, char ret_folder[64])
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	bool found = false;

	ck_assert_ptr_nonnull(dir);
	while (!found && (entry = readdir(dir))) {
		(void)snprintf(ret_folder, 64, "/proc/self/task/%.20s", entry->d_name);
		found = has_name("/proc/self/task", entry->d_name, name);
	}
	(void)closedir(dir);
	return found;
}

void
given_time_of(struct given_time *t, pid_t pid)
{
	ck_assert_uint_lt(t->n_processes, GIVEN_TIME_PROCESSES);
	t->processes[t->n_processes].pid = pid;
	t->processes[t->n_processes].delay_us = given_time_delay_us(pid, NULL);
	t->n_processes++;
}

void
given_time_begin(struct given_time *t)
{
	memset(t, 0, sizeof(*t));
	given_time_of(t, getpid());
	t->begin_us = scout__now_us();
}

struct given_time_result
given_time_end(const struct given_time *t)
{
	struct given_time_result r = {.elapsed_us = scout__now_us() - t->begin_us};

	for (unsigned i = 0; i < t->n_processes; i++) {
		uint64_t delay_us = given_time_delay_us(t->processes[i].pid, NULL);

		/* Threads that have ended since take their share along. */
		if (delay_us > t->processes[i].delay_us)
			r.delay_us += delay_us - t->processes[i].delay_us;
	}
	if (r.delay_us > r.elapsed_us)
		r.delay_us = r.elapsed_us;
	return r;
}

enum given_time_verdict
given_time_verdict(struct given_time_result r, uint64_t bound_us)
{
	uint64_t given_us = r.elapsed_us - r.delay_us;

	if (r.elapsed_us < bound_us)
		return GIVEN_TIME_KEPT;
	if (given_us >= bound_us && given_us > r.delay_us)
		return GIVEN_TIME_BROKEN;
	if (r.delay_us > bound_us)
		return GIVEN_TIME_NOT_GIVEN;
	return given_us < bound_us ? GIVEN_TIME_KEPT : GIVEN_TIME_BROKEN;
}

/* summary.py counts a case with this line as skipped; so there is one such line a case, which is a process of its own. */
static void
say_skipped(struct given_time_result r, uint64_t bound_us, const char *what)
{
	static bool said;

	/* Not through stdio: what Check's process has in its buffer was inherited. */
	(void)dprintf(STDOUT_FILENO,
		      "# %s %s: %" PRIu64 " ms, of which its threads waited %" PRIu64
		      " ms for a CPU; the bound is %" PRIu64 " ms\n",
		      said ? "and" : "SKIP", what, r.elapsed_us / 1000, r.delay_us / 1000, bound_us / 1000);
	said = true;
}

bool
given_time_judge(struct given_time_result r, uint64_t bound_us, const char *what)
{
	enum given_time_verdict verdict = given_time_verdict(r, bound_us);

	ck_assert_msg(verdict != GIVEN_TIME_BROKEN,
		      "%s took %" PRIu64 " ms, of which its threads waited %" PRIu64
		      " ms for a CPU; the bound is %" PRIu64 " ms",
		      what, r.elapsed_us / 1000, r.delay_us / 1000, bound_us / 1000);
	if (verdict == GIVEN_TIME_NOT_GIVEN)
		say_skipped(r, bound_us, what);
	return verdict == GIVEN_TIME_KEPT;
}

bool
given_time_within(const struct given_time *t, uint64_t bound_us, const char *what)
{
	return given_time_judge(given_time_end(t), bound_us, what);
}
