/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server that is just there: who starts it, what it has of the process that started it, and when it ends. Real processes, real signals.
 */
#include "check_main.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "instance_rig.h"
#include "waiting.h"

#define RACERS 20
#define ROUNDS 5 /* KVSCOUT_TEST_ROUNDS sets more */

static struct place place;

static void
teardown(void)
{
	if (place.folder[0])
		place_down(&place);
}

static unsigned
rounds(void)
{
	const char *text = getenv("KVSCOUT_TEST_ROUNDS");

	return text ? (unsigned)strtoul(text, NULL, 10) : ROUNDS;
}

/* A child that waits for the end of @gate and then asks for the server; its status is 0 if it got one. */
static pid_t
racer(const int gate[2], const char *keys)
{
	pid_t pid = fork();
	char byte, err[1024] = "";

	if (pid != 0)
		return pid;
	(void)close(gate[1]);
	(void)!read(gate[0], &byte, 1);
	if (place_ensure(&place, keys, err, sizeof(err)) == 0)
		_exit(0);
	(void)fprintf(stderr, "%s\n", err);
	_exit(1);
}

static void
reap_good(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a racer ended with %x", (unsigned)status);
}

CHECKED_FIXTURE(NULL, teardown);

START_TEST(twenty_that_race_get_one_server)
{
	unsigned n = rounds();

	for (unsigned round = 0; round < n; round++) {
		pid_t racers[RACERS];
		int gate[2];

		place_up(&place);
		ck_assert_int_eq(pipe(gate), 0);
		for (int i = 0; i < RACERS; i++) {
			racers[i] = racer(gate, NULL);
			ck_assert_int_gt(racers[i], 0);
		}
		(void)close(gate[0]);
		(void)close(gate[1]);
		for (int i = 0; i < RACERS; i++)
			reap_good(racers[i]);
		(void)place_server(&place);
		ck_assert_uint_eq(count_words(place_server_log(&place), "ready on"), 1);
		ck_assert_uint_eq(count_words(place_server_log(&place), "held by"), 0);
		place_down(&place);
	}
}
END_TEST

/*
 * The starter is killed some time after it began, a little later in each round: before it has the lock, between lock and
 * kvscoutd, while kvscoutd starts, and when it serves. Another process gets a server in any case, and only one.
 */
START_TEST(a_starter_that_is_killed_at_any_moment_leaves_a_server_or_none)
{
	char err[1024] = "";
	unsigned n = 8 * rounds();

	for (unsigned round = 0; round < n; round++) {
		uint64_t us = round * UINT64_C(16000) / n, begin_us;
		int gate[2], status;
		pid_t pid;

		place_up(&place);
		ck_assert_int_eq(pipe(gate), 0);
		pid = racer(gate, NULL);
		begin_us = scout__now_us();
		(void)close(gate[0]);
		(void)close(gate[1]);
		while (scout__now_us() - begin_us < us)
			;
		ck_assert_int_eq(kill(pid, SIGKILL), 0);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		if (access(place.paths.lock, F_OK) == 0) /* people signal the pid that is there: never the engine's */
			ck_assert_int_ne(place_record(&place).pid, pid);
		ck_assert_msg(place_ensure(&place, NULL, err, sizeof(err)) == 0, "after %u us: %s", (unsigned)us, err);
		(void)place_server(&place);
		ck_assert_uint_eq(count_words(place_server_log(&place), "ready on"), 1);
		place_down(&place);
	}
}
END_TEST

START_TEST(a_server_outlives_the_process_that_started_it)
{
	char err[1024] = "";
	pid_t starter, server;
	int gate[2];

	place_up(&place);
	ck_assert_int_eq(pipe(gate), 0);
	starter = racer(gate, NULL);
	(void)close(gate[0]);
	(void)close(gate[1]);
	reap_good(starter);
	server = place_server(&place);
	ck_assert_int_ne(getsid(server), getsid(0));
	ck_assert_int_ne(getsid(server), server); /* nor can it get a terminal */
	ck_assert_int_eq(place_ensure(&place, NULL, err, sizeof(err)), 0);
	ck_assert_int_eq(place_server(&place), server);
}
END_TEST

START_TEST(it_ends_after_idle_exit_s_and_the_next_one_is_started)
{
	char err[1024] = "";
	pid_t first;

	place_up(&place);
	ck_assert_msg(place_ensure(&place, "idle_exit_s=1", err, sizeof(err)) == 0, "%s", err);
	first = (pid_t)place_record(&place).pid; /* it may have ended by now */
	(void)close(place_lock(&place));
	ck_assert_int_eq(place_record(&place).state, SCOUT__INSTANCE_STOPPED);
	ck_assert(!scout__instance_listens(&place.paths));
	ck_assert_msg(place_ensure(&place, NULL, err, sizeof(err)) == 0, "%s", err);
	ck_assert_int_ne(place_server(&place), first);
	/* Without that key it has a minute. */
	ck_assert(!strstr(place_record(&place).keys, "idle_exit_s"));
}
END_TEST

START_TEST(what_a_killed_server_left_is_no_server)
{
	char err[1024] = "";

	place_up(&place);
	ck_assert_int_eq(place_ensure(&place, NULL, err, sizeof(err)), 0);
	place_kill(&place);
	ck_assert_int_eq(access(place.paths.socket, F_OK), 0);
	ck_assert_msg(place_ensure(&place, NULL, err, sizeof(err)) == 0, "%s", err);
	(void)place_server(&place);
}
END_TEST

/* One that crashes again and again is not started again and again: 0.1 s, 0.2 s, 0.4 s ... lie between. */
START_TEST(a_server_that_crashes_is_started_more_and_more_slowly)
{
	uint64_t begin_us = scout__now_us();
	char err[1024] = "";
	unsigned n = 0;

	place_up(&place);
	wait_until(n >= 3 && scout__now_us() - begin_us >= 1000000) {
		int rc = place_ensure(&place, NULL, err, sizeof(err));

		if (rc == 0) {
			place_kill(&place);
			n++;
		} else {
			ck_assert_int_eq(rc, SCOUT_ERR_UNREACHABLE);
			ck_assert_msg(strstr(err, place.paths.log), "%s", err);
		}
		ck_assert_uint_le(n, place_most_starts(begin_us));
	}
}
END_TEST

/* The folder's lock file may go (a cleaner of /tmp): the server that serves is found all the same. */
START_TEST(a_server_without_its_lock_file_is_joined)
{
	char err[1024] = "";
	pid_t server;

	place_up(&place);
	ck_assert_int_eq(place_ensure(&place, NULL, err, sizeof(err)), 0);
	server = place_server(&place);
	ck_assert_int_eq(unlink(place.paths.lock), 0);
	ck_assert_msg(place_ensure(&place, NULL, err, sizeof(err)) == 0, "%s", err);
	ck_assert_uint_eq(count_words(place_server_log(&place), "ready on"), 1);
	ck_assert_int_eq(kill(server, SIGTERM), 0);
	wait_until(!scout__instance_listens(&place.paths))
		;
}
END_TEST

/* ---- what it has of the host ---- */

static bool
has_descriptor_of(pid_t pid, const char *target)
{
	char folder[64], path[400], link[256];
	const struct dirent *entry;
	bool found = false;
	DIR *dir;

	(void)snprintf(folder, sizeof(folder), "/proc/%d/fd", (int)pid);
	dir = opendir(folder);
	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir))) {
		ssize_t n;

		(void)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		n = readlink(path, link, sizeof(link) - 1);
		link[n > 0 ? n : 0] = '\0';
		found |= strcmp(link, target) == 0;
	}
	(void)closedir(dir);
	return found;
}

static unsigned long
status_mask(pid_t pid, const char *name)
{
	const char *line = strstr(proc_text(pid, "status"), name);

	ck_assert_ptr_nonnull(line);
	return strtoul(line + strlen(name), NULL, 16);
}

START_TEST(it_has_nothing_of_the_process_that_started_it)
{
	char err[1024] = "", mine[128], cwd[64], link[32] = "";
	cpu_set_t one, all;
	sigset_t set;
	pid_t server;
	int fd;

	place_up(&place);
	/* A host with a descriptor that survives exec, one CPU, SIGTERM blocked and SIGINT ignored. */
	(void)snprintf(mine, sizeof(mine), "%s/mine", place.folder);
	fd = open(mine, O_CREAT | O_RDWR, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(sched_getaffinity(0, sizeof(all), &all), 0);
	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
		if (CPU_ISSET(cpu, &all))
			CPU_SET(cpu, &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGUSR1);
	ck_assert_int_eq(sigprocmask(SIG_BLOCK, &set, NULL), 0);
	ck_assert(signal(SIGHUP, SIG_IGN) != SIG_ERR);

	ck_assert_msg(place_ensure(&place, NULL, err, sizeof(err)) == 0, "%s", err);
	server = place_server(&place);
	ck_assert(!has_descriptor_of(server, mine));
	ck_assert(has_descriptor_of(server, place.paths.log));
	ck_assert_uint_eq(status_mask(server, "SigBlk:") & (1u << (SIGUSR1 - 1)), 0);
	ck_assert_uint_eq(status_mask(server, "SigIgn:") & (1u << (SIGHUP - 1)), 0);
	ck_assert_int_eq(sched_getaffinity(server, sizeof(one), &one), 0);
	ck_assert_int_eq(CPU_COUNT(&one), CPU_COUNT(&all));
	(void)snprintf(cwd, sizeof(cwd), "/proc/%d/cwd", (int)server);
	ck_assert_int_eq(readlink(cwd, link, sizeof(link) - 1), 1);
	ck_assert_str_eq(link, "/");
	/* No child of ours, and none to wait for: the process between us was reaped. */
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	ck_assert_int_eq(errno, ECHILD);
	(void)close(fd);
}
END_TEST

/* ---- a host that forks ---- */

#define FORKS 200

struct forker {
	pthread_mutex_t mu; /* held while this test itself has the lock file open */
	int end[2];
	pid_t pids[FORKS];
	atomic_int n;
};

/* Children that live on without exec, as those of multiprocessing do: forked while the server is being started. */
static void *
fork_main(void *arg)
{
	struct forker *f = arg;
	char byte;

	while (f->n < FORKS) {
		pid_t pid;

		(void)pthread_mutex_lock(&f->mu);
		pid = fork();
		if (pid == 0) {
			(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				(void)pause();
		}
		(void)pthread_mutex_unlock(&f->mu);
		ck_assert_int_gt(pid, 0);
		f->pids[f->n] = pid;
		f->n++; /* it is there */
	}
	(void)!read(f->end[0], &byte, 1); /* its end would be the signal that ends them */
	return NULL;
}

START_TEST(a_forked_child_of_the_host_does_not_keep_the_lock)
{
	static struct forker forker = {.mu = PTHREAD_MUTEX_INITIALIZER};
	pthread_t thread;
	char err[1024] = "";
	int status;

	place_up(&place);
	ck_assert_int_eq(pipe2(forker.end, O_CLOEXEC), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, fork_main, &forker), 0);
	for (int i = 0; i < 20; i++) {
		ck_assert_msg(place_ensure(&place, NULL, err, sizeof(err)) == 0, "%s", err);
		(void)pthread_mutex_lock(&forker.mu);
		place_kill(&place);                                 /* and the lock is free: this waits for it */
		ck_assert_int_eq(truncate(place.paths.lock, 0), 0); /* no crash that would slow down the next start */
		(void)pthread_mutex_unlock(&forker.mu);
	}
	while (forker.n < FORKS)
		;
	ck_assert_msg(place_ensure(&place, NULL, err, sizeof(err)) == 0, "%s", err);
	for (int i = 0; i < forker.n; i++) {
		ck_assert_int_eq(waitpid(forker.pids[i], &status, WNOHANG), 0); /* it lives */
		(void)kill(forker.pids[i], SIGKILL);
		ck_assert_int_eq(waitpid(forker.pids[i], &status, 0), forker.pids[i]);
	}
	(void)close(forker.end[1]);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

START_TEST(its_log_says_how_large_the_pool_is_and_why)
{
	char err[1024] = "";

	place_up(&place);
	ck_assert_int_eq(place_ensure(&place, NULL, err, sizeof(err)), 0);
	wait_until(strstr(place_server_log(&place), "l1_bytes sets another") != NULL) /* a thread writes the log */
		;
	place_down(&place);
	place_up(&place);
	ck_assert_int_eq(place_ensure(&place, "l1_bytes=48Mi", err, sizeof(err)), 0);
	wait_until(strstr(place_server_log(&place), "pool of 50331648 bytes") != NULL)
		;
	ck_assert(!strstr(place_server_log(&place), "l1_bytes sets another"));
}
END_TEST

/* ---- the operator ---- */

static int
run_status(const char *endpoint, char *text, size_t len)
{
	char command[512];
	FILE *out;
	size_t n;
	int status;

	(void)snprintf(command, sizeof(command), "%s --status %s 2>&1", place.program, endpoint);
	out = popen(command, "r");
	ck_assert_ptr_nonnull(out);
	n = fread(text, 1, len - 1, out);
	text[n] = '\0';
	status = pclose(out);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

START_TEST(status_auto_finds_it)
{
	char text[32768], err[1024] = "", absent[sizeof(place.endpoint) + 8];

	place_up(&place);
	/* Who only looks makes no folder. */
	(void)snprintf(absent, sizeof(absent), "%s/absent", place.endpoint);
	ck_assert_int_eq(run_status(absent, text, sizeof(text)), 1);
	ck_assert_msg(strstr(text, "/absent: not a folder") != NULL, "%s", text);
	ck_assert_int_ne(access(absent + strlen("auto://"), F_OK), 0);
	ck_assert_int_eq(run_status(place.endpoint, text, sizeof(text)), 1);
	ck_assert_msg(strstr(text, "no server serves there") && strstr(text, place.paths.socket), "%s", text);
	ck_assert_int_eq(place_ensure(&place, "l1_bytes=48Mi", err, sizeof(err)), 0);
	ck_assert_int_eq(run_status(place.endpoint, text, sizeof(text)), 0);
	ck_assert_msg(strstr(text, "l1.bytes_limit 50331648") && strstr(text, place.paths.log), "%s", text);
}
END_TEST
