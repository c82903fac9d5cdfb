/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * A server that is silent may be stopped or gone, or may be waiting for a CPU like everything else on its machine. The kernel knows which:
 * it counts for each thread how long the thread ran, and how long it waited on a run queue (/proc/PID/task/TID/schedstat, the first two
 * fields; Documentation/scheduler/sched-stats). The second number grows only when the wait ends. So a thread that is ready to run now (state
 * R) counts as waiting for all of the time in which it did not run; if it slept for a part, that error happens only once.
 *
 * A stopped thread (state T) waits for no CPU: its delay does not grow. The threads that matter are known by their names: the server's
 * loop, and libzmq's I/O threads. Rejected: the delay of all threads of a process, since an engine's threads wait for each other all day;
 * and the loop's thread id in the protocol, for a number that is only a help.
 */
#include "run_delay.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 64
#define NAME_BYTES 64 /* the kernel's names have 16 */

/* Read a small file of /proc whole. False: there is none (any more). */
static bool
read_text(pid_t pid, pid_t tid, const char *name, char *buf, size_t cap)
{
	char path[PATH_BYTES];
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", (int)pid, (int)tid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, buf, cap - 1);
	(void)close(fd);
	buf[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* The state of a thread ('R' ready or running, 'T' stopped, ...) and its name; '\0': there is no such thread (any more). */
static char
state_of(pid_t pid, pid_t tid, char name[NAME_BYTES])
{
	char buf[512], *begin, *end;

	if (!read_text(pid, tid, "stat", buf, sizeof(buf)))
		return '\0';
	/* "TID (NAME) STATE ...": the name may hold brackets. */
	begin = strchr(buf, '(');
	end = strrchr(buf, ')');
	if (!begin || !end || end[1] != ' ')
		return '\0';
	*end = '\0';
	(void)snprintf(name, NAME_BYTES, "%s", begin + 1);
	return end[2];
}

static bool
read_times(struct scout__run_delay_thread *t)
{
	char buf[128];

	return read_text(t->pid, t->tid, "schedstat", buf, sizeof(buf)) &&
	       sscanf(buf, "%" SCNu64 " %" SCNu64, &t->ran_ns, &t->delay_ns) == 2;
}

static bool
carries_frames(const char *name)
{
	return strcmp(name, "scout-server") == 0 || strncmp(name, "ZMQbg/IO", strlen("ZMQbg/IO")) == 0;
}

static void
add_process(struct scout__run_delay *d, pid_t pid)
{
	char path[PATH_BYTES], name[NAME_BYTES];
	struct dirent *entry;
	DIR *dir;

	(void)snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	if (!dir)
		return;
	while (d->n_threads < SCOUT__RUN_DELAY_THREADS && (entry = readdir(dir))) {
		struct scout__run_delay_thread *t = &d->threads[d->n_threads];

		t->pid = pid;
		t->tid = (pid_t)strtol(entry->d_name, NULL, 10);
		if (t->tid > 0 && state_of(pid, t->tid, name) != '\0' && carries_frames(name) && read_times(t))
			d->n_threads++;
	}
	(void)closedir(dir);
}

void
scout__run_delay_begin(struct scout__run_delay *d, pid_t server_pid, bool own_threads, uint64_t now_us)
{
	d->since_us = now_us;
	d->n_threads = 0;
	if (server_pid > 0)
		add_process(d, server_pid);
	if (own_threads && server_pid != getpid())
		add_process(d, getpid());
}

static uint64_t
delay_since_ns(const struct scout__run_delay_thread *was, uint64_t elapsed_ns)
{
	struct scout__run_delay_thread now = {.pid = was->pid, .tid = was->tid};
	char name[NAME_BYTES], state = state_of(was->pid, was->tid, name);
	uint64_t ran_ns;

	if (state == '\0' || !read_times(&now))
		return 0;
	if (state != 'R')
		return now.delay_ns - was->delay_ns;
	ran_ns = now.ran_ns - was->ran_ns;
	return ran_ns < elapsed_ns ? elapsed_ns - ran_ns : 0;
}

uint64_t
scout__run_delay_us(const struct scout__run_delay *d, uint64_t now_us)
{
	uint64_t elapsed_us = now_us - d->since_us, delay_us = 0;

	for (uint32_t i = 0; i < d->n_threads; i++)
		delay_us += delay_since_ns(&d->threads[i], elapsed_us * 1000) / 1000;
	return delay_us < elapsed_us ? delay_us : elapsed_us;
}

bool
scout__run_delay_all_sleep(const struct scout__run_delay *d)
{
	char name[NAME_BYTES];

	for (uint32_t i = 0; i < d->n_threads; i++) {
		char state = state_of(d->threads[i].pid, d->threads[i].tid, name);

		if (state != 'S' && state != '\0')
			return false;
	}
	return true;
}
