/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * One lock decides everything: flock() on the lock file of the instance. It belongs to an open file, and the kernel drops it when
 * the last process that has this open file ends, however it ends.
 *
 *   free             there is no server. The process that gets the lock starts one.
 *   held, starting   the holder starts kvscoutd, which inherits the open file: from then on kvscoutd holds the lock for its
 *                    life, and the starter may die.
 *   held, serving    connect to the socket, whose path is always the same.
 *   held, stopped    the server ends. Soon the lock is free.
 *
 * So 20 processes that look at once start one server; one that is killed at any moment leaves either a free lock or a
 * server; a stale socket means nothing; and a peer that joins while the server ends for want of peers loses its connection
 * and looks again, until it has started the next one. The file's text (instance_record.h) names the state and describes
 * the server; only the holder writes it. A look without the lock may see the text of an earlier holder, so a reason to
 * refuse a server must be seen twice.
 *
 * A server without the lock (started by hand on this path; or the lock file was removed by a cleaner of /tmp) is found by
 * connecting, before another one is started.
 *
 * Failure: kvscoutd that ends before it serves leaves a free lock and the text "starting". The processes of the host share
 * the count and the time in that text, so together they try ever more slowly: after 0.1 s, 0.2 s ... 30 s. A process with
 * other keys has one try without that pause. A server that crashes within CRASH_MS counts, too. The reason is the last
 * line of kvscoutd's log.
 *
 * A forked child of the host has the open file, too, and would hold the lock for as long as it lives. fork_guard.h closes
 * it there, from the moment in which it is opened.
 *
 * Rejected: a pidfile (numbers are used again), fcntl() locks (they fall with any close of the file in this process),
 * a port or an abstract socket as the lock (both belong to the network namespace; any user can take a name in the
 * abstract space), inotify instead of looking again (one more descriptor for a wait of some milliseconds).
 *
 * Threads: see the header.
 */
#include "instance_starter.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvscout/error.h>
#include <kvscout/protocol.h>

#include "fork_guard.h"
#include "instance_paths.h"
#include "instance_program.h"
#include "instance_record.h"
#include "instance_silent.h"
#include "instance_spawn.h"
#include "mask.h"

#define LOOK_US UINT64_C(5000)           /* while a server starts or ends */
#define LOOK_SLOWLY_US UINT64_C(1000000) /* while it cannot be used */
#define BACKOFF_FIRST_MS 100u
#define BACKOFF_MAX_MS 30000u
#define CRASH_MS 10000u   /* a server that served for less than this counts as failed, too */
#define SLOW_MS 5000u     /* a longer start is reported */
#define LOWEST_LOCK_FD 16 /* above the server's descriptor, and above standard streams that the host has closed */

struct scout__starter {
	struct scout__instance instance; /* const after start */
	char *endpoint;                  /* const after start: endpoint of the socket */
	char *asked;                     /* const after start: what the user wrote, or NULL */
	char *program;                   /* const after start: the user's, or NULL */
	char *keys;                      /* const after start: "" if none */
	const struct scout__log *log;    /* const after start */
	pid_t child;                     /* 0: no child to wait for */
	bool has_started;
	long doubted, warned; /* pids of servers: one seen once with another version; one whose keys differ */
	char text[1024];      /* reason of the last look that failed */
};

/* ---- life ---- */

int
scout__starter_new(const struct scout__starter_config *cfg, struct scout__starter **ret_starter, char *err,
		   size_t err_len)
{
	struct scout__starter *s;
	int rc = cfg->server_keys ? scout__server_keys_check(cfg->server_keys, err, err_len) : 0;

	if (rc)
		return rc;
	s = calloc(1, sizeof(*s));
	if (!s)
		return scout__fail_no_memory(err, err_len);
	s->log = cfg->log;
	rc = scout__instance_find(cfg->endpoint, &s->instance, err, err_len);
	if (rc)
		goto err_free;
	s->keys = strdup(cfg->server_keys ? cfg->server_keys : "");
	s->asked = cfg->endpoint ? strdup(cfg->endpoint) : NULL;
	s->program = cfg->server_program ? strdup(cfg->server_program) : NULL;
	if (asprintf(&s->endpoint, "ipc://%s", s->instance.socket) < 0)
		s->endpoint = NULL;
	if (!s->endpoint || !s->keys || !s->asked != !cfg->endpoint || !s->program != !cfg->server_program) {
		rc = scout__fail_no_memory(err, err_len);
		goto err_free;
	}
	*ret_starter = s;
	return 0;

err_free:
	scout__starter_free(s);
	return rc;
}

void
scout__starter_free(struct scout__starter *s)
{
	if (!s)
		return;
	(void)scout__starter_reap(s);
	free(s->endpoint);
	free(s->asked);
	free(s->program);
	free(s->keys);
	free(s);
}

const char *
scout__starter_endpoint(const struct scout__starter *starter)
{
	return starter->endpoint;
}

bool
scout__starter_listens(const struct scout__starter *starter)
{
	return scout__instance_listens(&starter->instance);
}

const char *
scout__starter_log_path(const struct scout__starter *starter)
{
	return starter->instance.log;
}

const char *
scout__starter_text(const struct scout__starter *starter)
{
	return starter->text;
}

const char *
scout__starter_explain(struct scout__starter *s, const char *what)
{
	return scout__instance_explain(&s->instance, what, s->text, sizeof(s->text)) ? s->text : what;
}

bool
scout__starter_reap(struct scout__starter *s)
{
	/* ECHILD: the host ignores SIGCHLD, or has waited for all of its children. */
	if (s->child && waitpid(s->child, NULL, WNOHANG) != 0)
		s->child = 0;
	return s->child == 0;
}

/* ---- the lock ---- */

static int
open_lock(struct scout__starter *s)
{
	return scout__fork_guard_open(s->instance.lock, O_RDWR | O_CREAT | O_NOFOLLOW, 0600, LOWEST_LOCK_FD);
}

static int
cannot(struct scout__starter *s, int code, const char *what)
{
	return scout__fail(s->text, sizeof(s->text), code, "%s: %s (%s)", s->instance.lock, what,
			   scout__errno_text(errno));
}

/* ---- what a failed start left ---- */

/* The last line of the server's log, without its newline. */
static void
last_line(const char *path, char *line, size_t len)
{
	char tail[1024];
	ssize_t n = 0;
	off_t size;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	char *begin;

	if (fd >= 0) {
		size = lseek(fd, 0, SEEK_END);
		n = pread(fd, tail, sizeof(tail) - 1,
			  size > (off_t)sizeof(tail) - 1 ? size - (off_t)sizeof(tail) + 1 : 0);
		(void)close(fd);
	}
	while (n > 0 && (tail[n - 1] == '\n' || tail[n - 1] == ' '))
		n--;
	tail[n > 0 ? n : 0] = '\0';
	begin = strrchr(tail, '\n');
	(void)snprintf(line, len, "%.*s", (int)len - 1, begin ? begin + 1 : tail); /* a longer line is cut */
}

static uint32_t
backoff_ms(uint32_t failures)
{
	uint32_t ms = BACKOFF_FIRST_MS;

	while (--failures > 0 && ms < BACKOFF_MAX_MS)
		ms *= 2;
	return ms < BACKOFF_MAX_MS ? ms : BACKOFF_MAX_MS;
}

/* How many starts in a row have failed, according to the text of the last one. */
static uint32_t
failures_of(const struct scout__instance_record *last, uint64_t now_ms)
{
	if (last->since_ms > now_ms) /* before the last boot */
		return 0;
	if (last->state == SCOUT__INSTANCE_STARTING)
		return last->failures < 1000 ? last->failures + 1 : last->failures;
	if (last->state == SCOUT__INSTANCE_SERVING && now_ms - last->since_ms < CRASH_MS)
		return last->failures < 1000 ? last->failures + 1 : last->failures;
	return 0;
}

/* Whether it is too early for the next start; *ret_ms is how long. The first failure may be a killed starter: not reported. */
static int
must_pause(struct scout__starter *s, const struct scout__instance_record *last, uint32_t failures, uint64_t *ret_ms)
{
	uint64_t gone_ms = scout__boot_ms() - last->since_ms;
	char line[512];

	if (failures == 0 || gone_ms >= backoff_ms(failures))
		return 0;
	*ret_ms = backoff_ms(failures) - gone_ms;
	if (failures == 1)
		return SCOUT_NOT_YET;
	last_line(s->instance.log, line, sizeof(line));
	return scout__fail(
		s->text, sizeof(s->text), SCOUT_ERR_UNREACHABLE,
		"kvscoutd was started %u times and ended each time; it says \"%s\", its log is %s; it is tried "
		"again, at most every %u s",
		(unsigned)failures, line, s->instance.log, BACKOFF_MAX_MS / 1000);
}

/* ---- start ---- */

static void
move_long_log(const struct scout__instance *instance)
{
	struct stat st;

	/* If the log cannot be moved, it grows. */
	if (lstat(instance->log, &st) == 0 && (uint64_t)st.st_size > SCOUT__INSTANCE_LOG_BYTES)
		(void)rename(instance->log, instance->old_log);
}

/* The lock is ours. */
static int
start(struct scout__starter *s, int lock_fd, uint32_t failures)
{
	struct scout__instance_record record = {
		.state = SCOUT__INSTANCE_STARTING,
		.pid = 0, /* kvscoutd's own, once it runs: a person may signal it */
		.since_ms = scout__boot_ms(),
		.failures = failures,
	};
	char program[PATH_MAX];
	int rc;

	if (!scout__starter_reap(s))
		return SCOUT_NOT_YET;
	rc = scout__program_find(s->program, program, s->text, sizeof(s->text));
	if (rc)
		return rc;
	move_long_log(&s->instance);
	(void)snprintf(record.keys, sizeof(record.keys), "%s", s->keys);
	if (!scout__record_write(lock_fd, &record))
		return cannot(s, SCOUT_ERR_SYSTEM, "cannot be written");
	s->has_started = true;
	rc = scout__spawn_server(&s->instance, program, s->keys, lock_fd, &s->child, s->text, sizeof(s->text));
	if (rc) { /* no kvscoutd has ended here: the text says more than its log */
		record.state = SCOUT__INSTANCE_STOPPED;
		(void)scout__record_write(lock_fd, &record);
		return rc;
	}
	scout__log(s->log, SCOUT_LOG_INFO, "%s: started %s; its log is %s", s->endpoint, program, s->instance.log);
	return SCOUT_NOT_YET;
}

static int
start_if_due(struct scout__starter *s, int lock_fd, uint64_t now_us, uint64_t *ret_next_us)
{
	struct scout__instance_record last;
	uint64_t pause_ms = 0;
	uint32_t failures;
	int rc;

	/* A server that has no lock: see above. */
	if (scout__instance_listens(&s->instance))
		return 0;
	scout__record_read(lock_fd, &last);
	failures = failures_of(&last, scout__boot_ms());
	if (!s->has_started && strcmp(last.keys, s->keys) != 0)
		failures = 0; /* others' keys may have been the reason: try ours once, without their pause */
	rc = must_pause(s, &last, failures, &pause_ms);
	if (rc) {
		*ret_next_us = now_us + pause_ms * 1000;
		return rc;
	}
	rc = start(s, lock_fd, failures);
	if (rc < 0)
		*ret_next_us = now_us + LOOK_SLOWLY_US;
	return rc;
}

/* ---- a server that is there ---- */

/* Collect the values of @key from the words of @keys, separated by blanks. */
static void
values_of(const char *keys, const char *key, size_t key_len, char *values, size_t len)
{
	size_t n = 0;

	values[0] = '\0';
	while (*keys) {
		size_t word = strcspn(keys, " \t\n");

		if (word > key_len && strncmp(keys, key, key_len) == 0 && keys[key_len] == '=' && n < len)
			n += (size_t)snprintf(values + n, len - n, "%s%.*s", n ? " " : "", (int)(word - key_len - 1),
					      keys + key_len + 1);
		keys += word + strspn(keys + word, " \t\n");
	}
}

#define KEYS_SHOWN (SCOUT__SERVER_KEYS_MAX + 256u) /* a mask may be longer than its password */

/* Log once for each server which of our keys it was not started with. */
static void
compare_keys(struct scout__starter *s, const struct scout__instance_record *server)
{
	char differ[1024] = "", ours[256], theirs[256], own[KEYS_SHOWN], others[KEYS_SHOWN];
	const char *at = s->keys + strspn(s->keys, " \t\n");
	size_t n = 0;

	if (s->warned == server->pid)
		return;
	s->warned = server->pid;
	scout__mask(s->keys, own, sizeof(own));
	scout__mask(server->keys, others, sizeof(others));
	while (*at) {
		size_t key = strcspn(at, "="), word = strcspn(at, " \t\n");

		values_of(s->keys, at, key, ours, sizeof(ours));
		values_of(server->keys, at, key, theirs, sizeof(theirs));
		if (strcmp(ours, theirs) != 0 && n < sizeof(differ)) {
			values_of(own, at, key, ours, sizeof(ours));
			values_of(others, at, key, theirs, sizeof(theirs));
			n += (size_t)snprintf(differ + n, sizeof(differ) - n, "%s%.*s is %s, wanted %s", n ? "; " : "",
					      (int)key, at, theirs[0] ? theirs : "not set", ours);
		}
		at += word + strspn(at + word, " \t\n");
	}
	if (n)
		scout__log(s->log, SCOUT_LOG_WARN,
			   "%s: the server of this host (pid %ld) was started with other keys: %s", s->endpoint,
			   server->pid, differ);
}

/* The lock is held by a server that serves. */
static int
judge(struct scout__starter *s, const struct scout__instance_record *server)
{
	bool is_ours = server->wire == SCOUT_WIRE_VERSION && strcmp(server->version, scout_version()) == 0;

	if (is_ours) {
		compare_keys(s, server);
		return 0;
	}
	if (s->doubted != server->pid) {
		s->doubted = server->pid;
		return SCOUT_NOT_YET;
	}
	return scout__fail(
		s->text, sizeof(s->text), SCOUT_ERR_VERSION,
		"the server of this host (pid %ld) is kvscout %s with protocol %u, this is kvscout %s with protocol "
		"%d: this engine runs without a cache until that server has ended, idle_exit_s after its last peer",
		server->pid, server->version, (unsigned)server->wire, scout_version(), SCOUT_WIRE_VERSION);
}

static int
look_at_holder(struct scout__starter *s, int fd, uint64_t now_us, uint64_t *ret_next_us)
{
	struct scout__instance_record record;
	int rc;

	scout__record_read(fd, &record);
	if (record.state == SCOUT__INSTANCE_SERVING) {
		rc = judge(s, &record);
		if (rc < 0)
			*ret_next_us = now_us + LOOK_SLOWLY_US;
		return rc;
	}
	if (record.state != SCOUT__INSTANCE_STARTING || scout__boot_ms() - record.since_ms < SLOW_MS)
		return SCOUT_NOT_YET;
	*ret_next_us = now_us + LOOK_SLOWLY_US;
	return scout__fail(s->text, sizeof(s->text), SCOUT_ERR_UNREACHABLE,
			   "kvscoutd has been starting for more than %u s; its log is %s", SLOW_MS / 1000,
			   s->instance.log);
}

int
scout__starter_look(struct scout__starter *s, uint64_t now_us, uint64_t *ret_next_us)
{
	int fd = open_lock(s), rc;

	*ret_next_us = now_us + LOOK_US;
	(void)scout__starter_reap(s);
	if (fd < 0) {
		*ret_next_us = now_us + LOOK_SLOWLY_US;
		/* A runtime folder is removed with the user's last session. */
		if (errno != ENOENT)
			return cannot(s, errno == EACCES ? SCOUT_ERR_PERMISSION : SCOUT_ERR_SYSTEM, "cannot be opened");
		rc = scout__instance_find(s->asked, &s->instance, s->text, sizeof(s->text));
		return rc ? rc : SCOUT_NOT_YET;
	}
	if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
		rc = start_if_due(s, fd, now_us, ret_next_us);
	} else if (errno == EWOULDBLOCK) {
		rc = look_at_holder(s, fd, now_us, ret_next_us);
	} else {
		*ret_next_us = now_us + LOOK_SLOWLY_US;
		rc = cannot(s, SCOUT_ERR_SYSTEM, "flock");
	}
	scout__fork_guard_close(fd);
	return rc;
}
