/* SPDX-License-Identifier: Apache-2.0 */
#include "instance_server.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <kvscout/protocol.h>

#include "instance_record.h"
#include "log.h"
#include "pool_share.h"

/*
 * DESIGN
 *
 * Turns a process that an engine has spawned into an independent server. libcommon/host/instance_spawn.c has done what
 * posix_spawn() can. This file does the rest, before anything else and with one thread. It closes the host's
 * descriptors, except the streams and the lock. A second process goes on and the first ends, so that the host is no
 * parent and its waitpid() finds nothing. Working directory, umask, CPUs and scheduling policy become a daemon's.
 *
 * CPUs: an engine pins its threads, and the process would inherit that. So the server takes all CPUs that the cgroup
 * allows, unless the key cpus is set.
 *
 * The lock belongs to an open file and stays with its descriptor, which is never closed here. Peers read the text of
 * that file.
 *
 * A server that an operator starts without --listen serves the same engines, so it takes the same lock, and is otherwise a
 * process as its operator has made it.
 *
 * Threads: main.
 */

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

static int
complain(const char *what, int error)
{
	(void)fprintf(stderr, "kvscoutd: --instance: %s%s%s%s\n", what, error ? " (" : "",
		      error ? scout__errno_text(error) : "", error ? ")" : "");
	return 1;
}

const char *
scout__instance_option(int argc, char **argv)
{
	return argc >= 3 && strcmp(argv[1], "--instance") == 0 ? argv[2] : NULL;
}

/* Kernels before 5.9 know no close_range(). */
static void
close_others(void)
{
	long most = sysconf(_SC_OPEN_MAX);

	if (syscall(SYS_close_range, SCOUT__INSTANCE_LOCK_FD + 1, ~0u, 0) == 0)
		return;
	if (most < 0 || most > 65536)
		most = 65536;
	for (int fd = SCOUT__INSTANCE_LOCK_FD + 1; fd < most; fd++)
		(void)close(fd);
}

/* Reset what is left of the host's settings; no failure here is a reason not to serve. */
static void
reset_process(void)
{
	const struct sched_param none = {.sched_priority = 0};
	cpu_set_t all;

	memset(&all, 0xff, sizeof(all));
	(void)sched_setaffinity(0, sizeof(all), &all);
	(void)sched_setscheduler(0, SCHED_OTHER, &none);
	(void)umask(077);
	if (chdir("/") != 0)
		(void)complain("the working directory stays as it is", errno);
}

/* Whether descriptor 3 is the lock file of this folder, and locked by us. */
static int
take_lock(const struct scout__instance *paths)
{
	struct stat given, there;

	if (fstat(SCOUT__INSTANCE_LOCK_FD, &given) != 0 || stat(paths->lock, &there) != 0 ||
	    given.st_dev != there.st_dev || given.st_ino != there.st_ino)
		return complain("is for clients and workers with endpoint=auto, which give the lock of the folder as "
				"descriptor 3. To start a server by hand, leave --instance out",
				0);
	/* The file is locked already, by this open file: so this cannot wait. */
	if (flock(SCOUT__INSTANCE_LOCK_FD, LOCK_EX | LOCK_NB) != 0)
		return complain("another server has the lock of the folder", errno);
	if (fcntl(SCOUT__INSTANCE_LOCK_FD, F_SETFD, FD_CLOEXEC) != 0)
		return complain("fcntl", errno);
	return 0;
}

void
scout__instance_note_key(struct scout__instance_server *in, const char *key, const char *value)
{
	size_t n = strlen(in->keys);

	(void)snprintf(in->keys + n, sizeof(in->keys) - n, "%s%s=%s", n ? " " : "", key, value);
}

int
scout__instance_begin(struct scout__instance_server *in, const char *folder, struct scout_server_config *cfg)
{
	struct scout__instance_record record;
	char err[512];
	pid_t pid;

	if (scout__instance_open(folder, &in->paths, err, sizeof(err)) != 0)
		return complain(err, 0);
	if (take_lock(&in->paths) != 0)
		return 1;
	close_others();
	pid = fork();
	if (pid < 0)
		return complain("fork", errno);
	if (pid > 0)
		_exit(0);
	reset_process();
	in->lock_fd = SCOUT__INSTANCE_LOCK_FD;
	scout__record_read(in->lock_fd, &record); /* with the keys, as the engine gave them */
	record.pid = (long)getpid();
	if (!scout__record_write(in->lock_fd, &record))
		return complain("the lock cannot be written", errno);
	in->is_spawned = true;
	(void)snprintf(in->listen, sizeof(in->listen), "ipc://%s", in->paths.socket);
	in->log = (struct scout__log_file){in->paths.log, in->paths.old_log, SCOUT__INSTANCE_LOG_BYTES};
	cfg->listen = in->listen;
	cfg->idle_exit_s = SCOUT__INSTANCE_IDLE_EXIT_S;
	return 0;
}

static int
write_state(const struct scout__instance_server *in, enum scout__instance_state state)
{
	struct scout__instance_record record;

	scout__record_read(in->lock_fd, &record); /* the record counts failed starts */
	record.state = state;
	record.pid = (long)getpid();
	record.wire = SCOUT_WIRE_VERSION;
	record.since_ms = scout__boot_ms();
	(void)snprintf(record.version, sizeof(record.version), "%s", scout_version());
	(void)snprintf(record.keys, sizeof(record.keys), "%s", in->keys);
	return scout__record_write(in->lock_fd, &record) ? 0 : errno;
}

/* The lock is held: by whom? */
static int
is_there(const struct scout__instance_server *in)
{
	struct scout__instance_record record;

	scout__record_read(in->lock_fd, &record);
	(void)fprintf(
		stderr,
		"kvscoutd: a server %s for the engines of this user already: pid %ld%s, %s. End it, or use --listen for "
		"another one\n",
		record.state == SCOUT__INSTANCE_STARTING ? "is being started" : "serves", record.pid,
		record.pid ? "" : " (not known yet)", in->listen);
	return SCOUT__INSTANCE_EXIT_IN_USE;
}

int
scout__instance_claim(struct scout__instance_server *in, struct scout_server_config *cfg)
{
	char err[512];

	if (scout__instance_find(NULL, &in->paths, err, sizeof(err)) != 0) {
		(void)fprintf(stderr, "kvscoutd: %s; --listen names another place\n", err);
		return 1;
	}
	(void)snprintf(in->listen, sizeof(in->listen), "ipc://%s", in->paths.socket);
	in->lock_fd = open(in->paths.lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (in->lock_fd >= 0 && flock(in->lock_fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
		return is_there(in);
	if (in->lock_fd < 0 || flock(in->lock_fd, LOCK_EX | LOCK_NB) != 0 ||
	    write_state(in, SCOUT__INSTANCE_STARTING) != 0) {
		(void)fprintf(stderr, "kvscoutd: %s: cannot be locked and written (%s)\n", in->paths.lock,
			      scout__errno_text(errno));
		return 1;
	}
	cfg->listen = in->listen;
	return 0;
}

void
scout__instance_size_pool(struct scout_server_config *cfg, char *text, size_t len)
{
	struct scout__memory memory;

	text[0] = '\0';
	if (cfg->l1_bytes)
		return;
	scout__memory_read("", &memory);
	cfg->l1_bytes = scout__pool_share(&memory, text, len);
}

int
scout__instance_serves(const struct scout__instance_server *in)
{
	int fd = in->is_spawned ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;

	/* stdout is the log file as well, and would keep the file that the log's thread has moved away. */
	if (fd >= 0) {
		(void)dup2(fd, STDOUT_FILENO);
		(void)close(fd);
	}
	return write_state(in, SCOUT__INSTANCE_SERVING);
}

void
scout__instance_ended(const struct scout__instance_server *in)
{
	(void)write_state(in, SCOUT__INSTANCE_STOPPED);
}
