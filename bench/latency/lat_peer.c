/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Purpose: another implementation of the same scheduler loop in the same run (bench/scripts/peer_python.py), so that
 * both meet the same machine. The program lives through all rounds, as our modes' connections do, and speaks lines:
 *
 *   it is started as   COMMAND --serve --chunks N --inflight N --step-us N --hit-ratio X --delay-us N
 *                      --rate N
 *   it reads           run N
 *   it writes          METRIC NANOSECONDS         for each time; METRIC as in our JSON
 *                      count requests|steps|hit_chunks|asked_chunks|wrong N
 *                      end                        when the N requests are answered
 *   it leaves at the end of its input.
 *
 * Invariant: samples, not percentiles, cross the pipe: they go into our histogram, so that both sides' percentiles
 * are computed alike. It writes after it has measured.
 *
 * Threads: main only. The program has a process group of its own: Ctrl-C is ours to handle.
 */
#include "lat.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "say.h"

#define COMMAND_BYTES 4096
#define LINE_BYTES 256
#define LEAVE_TRIES 300
#define LEAVE_WAIT_NS 10000000

extern char **environ;

struct lat_peer {
	struct lat *lat;
	pid_t pid; /* 0: none */
	FILE *to, *from;
};

/* It leaves when its input ends; one that does not is killed. */
static void
wait_for_end(pid_t pid)
{
	struct timespec wait = {.tv_nsec = LEAVE_WAIT_NS};

	for (int i = 0; i < LEAVE_TRIES; i++) {
		if (waitpid(pid, NULL, WNOHANG) != 0)
			return;
		(void)nanosleep(&wait, NULL);
	}
	(void)kill(-pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
}

static void
peer_close(void *self)
{
	struct lat_peer *peer = self;

	if (!peer)
		return;
	if (peer->to)
		(void)fclose(peer->to);
	if (peer->from)
		(void)fclose(peer->from);
	if (peer->pid)
		wait_for_end(peer->pid);
	free(peer);
}

/* Start @command with these ends of the pipes. Returns 0 or an errno value. */
static int
spawn(const char *command, int in, int out, pid_t *ret_pid)
{
	char shell[] = "sh", flag[] = "-c", text[COMMAND_BYTES];
	char *const argv[] = {shell, flag, text, NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t pipe_set;
	int error;

	(void)snprintf(text, sizeof(text), "%s", command);
	sigemptyset(&pipe_set);
	sigaddset(&pipe_set, SIGPIPE);
	error = posix_spawn_file_actions_init(&actions);
	if (error)
		return error;
	error = posix_spawnattr_init(&attr);
	if (error)
		goto out_actions;
	error = posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
	if (!error)
		error = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	if (!error)
		error = posix_spawnattr_setsigdefault(&attr, &pipe_set);
	if (!error)
		error = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
	if (!error)
		error = posix_spawn(ret_pid, "/bin/sh", &actions, &attr, argv, environ);
	(void)posix_spawnattr_destroy(&attr);
out_actions:
	(void)posix_spawn_file_actions_destroy(&actions);
	return error;
}

static int
start(struct lat_peer *peer, const char *command)
{
	int there[2], back[2];
	int error;

	if (pipe2(there, O_CLOEXEC))
		return errno;
	if (pipe2(back, O_CLOEXEC)) {
		error = errno;
		goto err_there;
	}
	error = spawn(command, there[0], back[1], &peer->pid);
	if (error)
		goto err_back;
	peer->to = fdopen(there[1], "w");
	peer->from = fdopen(back[0], "r");
	(void)close(there[0]);
	(void)close(back[1]);
	if (peer->to && peer->from)
		return 0;
	error = errno;
	if (!peer->to)
		(void)close(there[1]);
	if (!peer->from)
		(void)close(back[0]);
	return error;

err_back:
	(void)close(back[0]);
	(void)close(back[1]);
err_there:
	(void)close(there[0]);
	(void)close(there[1]);
	return error;
}

static int
peer_open(struct lat *lat, void **ret_self)
{
	const struct lat_options *opt = lat->opt;
	struct lat_peer *peer = calloc(1, sizeof(*peer));
	char command[COMMAND_BYTES], text[SAY_ERROR];
	int error, n;

	if (!peer)
		return lat_fail(lat, "out of memory");
	peer->lat = lat;
	/* Writing to a program that has left is an error like others; it itself starts with the default. */
	(void)signal(SIGPIPE, SIG_IGN);
	n = snprintf(command, sizeof(command),
		     "exec %s --serve --chunks %" PRIu64 " --inflight %" PRIu64 " --step-us %" PRIu64
		     " --hit-ratio %.6f --delay-us %" PRIu64 " --rate %" PRIu64,
		     opt->peer, opt->chunks, opt->inflight, opt->step_us, opt->hit_ratio, opt->server_delay_us,
		     opt->rate);
	if (n < 0 || (size_t)n >= sizeof(command)) {
		(void)lat_fail(lat, "--peer: the command is too long");
		goto err_close;
	}
	error = start(peer, command);
	if (error) {
		(void)lat_fail(lat, "--peer: cannot start it: %s", say_error(text, error));
		goto err_close;
	}
	*ret_self = peer;
	return 0;

err_close:
	peer_close(peer);
	return -1;
}

static bool
parse_u64(const char *text, uint64_t *ret_value)
{
	char *end = NULL;
	unsigned long long value;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	value = strtoull(text, &end, 10);
	*ret_value = value;
	return !errno && *end == '\0';
}

/* One line; false if it makes no sense. */
static bool
take_line(struct lat_result *result, char *line)
{
	const struct {
		const char *name;
		uint64_t *to;
	} counts[] = {
		{"requests", &result->requests},         {"steps", &result->steps}, {"hit_chunks", &result->hit_chunks},
		{"asked_chunks", &result->asked_chunks}, {"wrong", &result->wrong},
	};
	bool is_count = strncmp(line, "count ", 6) == 0;
	char *name = is_count ? line + 6 : line;
	char *space = strchr(name, ' ');
	uint64_t value;

	if (!space || !parse_u64(space + 1, &value))
		return false;
	*space = '\0';
	for (size_t i = 0; is_count && i < sizeof(counts) / sizeof(counts[0]); i++) {
		if (strcmp(counts[i].name, name) == 0) {
			*counts[i].to += value;
			return true;
		}
	}
	for (unsigned int m = 0; !is_count && m < LAT_N_METRICS; m++) {
		if (strcmp(lat_metric_names[m], name) == 0) {
			scout__hist_add(&result->metrics[m], value);
			return true;
		}
	}
	return false;
}

static int
peer_run(void *self, struct lat_result *result, uint64_t requests)
{
	struct lat_peer *peer = self;
	char line[LINE_BYTES];
	struct lat_pace pace;

	lat_pace_begin(&pace, peer->lat);
	if (fprintf(peer->to, "run %" PRIu64 "\n", requests) < 0 || fflush(peer->to))
		return lat_is_stopped() ? 0 : lat_fail(peer->lat, "--peer: it has left");
	while (fgets(line, sizeof(line), peer->from)) {
		line[strcspn(line, "\n")] = '\0';
		if (strcmp(line, "end") == 0) {
			peer->lat->done += requests;
			return 0;
		}
		if (!take_line(result, line))
			return lat_fail(peer->lat, "--peer: cannot read its line \"%s\"", line);
	}
	return lat_is_stopped() ? 0 : lat_fail(peer->lat, "--peer: it left before it was done");
}

const struct lat_runner lat_peer_runner = {
	.open = peer_open,
	.run = peer_run,
	.close = peer_close,
};
