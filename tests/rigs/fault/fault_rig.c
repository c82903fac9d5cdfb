/* SPDX-License-Identifier: Apache-2.0 */
#include "fault_rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checked_fork.h"
#include "fault_rig_internal.h"
#include "worker_rig.h"

/*
 * DESIGN
 *
 * Nothing that a test starts may outlive it. Every process asks the kernel to be killed with the one that
 * started it; forked children of actors end with a pipe of the test's; and the folder of the whole binary is
 * removed by the process that made it, which no failure of a test ends.
 *
 * No waiting without a condition and a limit: replies of actors, the server's counters, the end of a process.
 *
 * Threads: the test's one, and those of libzmq behind the STATUS peer. So between fork and exec only system
 * calls.
 */

static char home[64];
static pid_t home_owner;

/* ---- the folder ---- */

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

static void
remove_home(void)
{
	if (getpid() == home_owner)
		(void)nftw(home, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void
fault_make_home(void)
{
	(void)snprintf(home, sizeof(home), "/tmp/kvscout-fault-XXXXXX");
	home_owner = getpid();
	/* No test runs yet, so there is none to fail. */
	if (!mkdtemp(home) || atexit(remove_home) != 0) {
		perror(home);
		exit(EXIT_FAILURE);
	}
}

const char *
fault_home(void)
{
	return home;
}

static uint32_t
count_files(const char *folder)
{
	DIR *dir = opendir(folder);
	uint32_t n = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		n++;
	(void)closedir(dir);
	return n - 2; /* . and .. */
}

/* ---- processes ---- */

const char *
fault_program(const char *variable)
{
	const char *path = getenv(variable);

	ck_assert_msg(path != NULL, "%s must name the program; the build's test runner sets it", variable);
	return path;
}

const char *
fault_kvscoutd(void)
{
	return fault_program("KVSCOUT_KVSCOUTD");
}

/* @fds become 0, 1, 2 and 3 of the program; -1 stays what it is. @nofile: its limit of open files; 0: ours. */
static pid_t
spawn_limited(char *const argv[], const int fds[4], uint64_t nofile)
{
	struct rlimit limit = {.rlim_cur = nofile, .rlim_max = nofile};
	pid_t parent = getpid();
	pid_t pid = checked_fork();

	if (pid)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	for (int i = 0; i < 4; i++) {
		if (fds[i] >= 0 && dup2(fds[i], i) < 0)
			_exit(127);
	}
	if (nofile && setrlimit(RLIMIT_NOFILE, &limit) != 0)
		_exit(127);
	(void)execv(argv[0], argv);
	_exit(127);
}

pid_t
fault_spawn(char *const argv[], const int fds[4])
{
	return spawn_limited(argv, fds, 0);
}

void
fault_pipe(int fds[2])
{
	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	/* Above the numbers that fault_spawn() gives. */
	for (int i = 0; i < 2; i++) {
		int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 10);

		ck_assert_int_ge(fd, 0);
		(void)close(fds[i]);
		fds[i] = fd;
	}
}

int
fault_read_line(int fd, const char *what, char *line, size_t size)
{
	uint64_t end_us = wait_begin();
	size_t len = 0;

	for (;;) {
		struct pollfd ready = {.fd = fd, .events = POLLIN};
		uint64_t now_us = scout__now_us();
		ssize_t n;

		ck_assert_msg(now_us < end_us, "no answer to: %s", what);
		if (poll(&ready, 1, (int)((end_us - now_us) / 1000) + 1) <= 0)
			continue;
		n = read(fd, line + len, size - 1 - len);
		if (n < 0 && errno == EINTR)
			continue;
		len += n > 0 ? (size_t)n : 0;
		line[len] = '\0';
		if (n <= 0)
			return len ? (int)len : -1;
		if (line[len - 1] == '\n') {
			line[--len] = '\0';
			return (int)len;
		}
		ck_assert_uint_lt(len, size - 1);
	}
}

int
fault_wait_exit(pid_t pid)
{
	int status;

	wait_until(waitpid(pid, &status, WNOHANG) == pid)
		;
	return status;
}

/* ---- the server ---- */

static void
watch(struct fault *f)
{
	wire_open(&f->status, f->endpoint);
	f->watching = true;
}

static void
unwatch(struct fault *f)
{
	if (f->watching)
		wire_close(&f->status);
	f->watching = false;
}

void
fault_server_start(struct fault *f)
{
	char l1[32], extent[32], dead[32], delay[32], silent[32], line[256], want[256];
	char *argv[15 + FAULT_MORE_OPTIONS + 1] = {(char *)(uintptr_t)fault_kvscoutd(),
						   (char *)(uintptr_t) "--listen",
						   f->endpoint,
						   (char *)(uintptr_t) "--l1_bytes",
						   l1,
						   (char *)(uintptr_t) "--extent_bytes",
						   extent,
						   (char *)(uintptr_t) "--max_promised",
						   l1,
						   (char *)(uintptr_t) "--dead_writer_ms",
						   dead,
						   (char *)(uintptr_t) "--reply_delay_us",
						   delay,
						   (char *)(uintptr_t) "--peer_timeout_ms",
						   silent};
	char option[FAULT_MORE_OPTIONS][512];
	int out[2];
	int quiet = getenv("RIG_LOG") ? -1 : open("/dev/null", O_WRONLY | O_CLOEXEC);

	(void)snprintf(l1, sizeof(l1), "%" PRIu64, f->l1_bytes);
	/* One extent, so that the pool has exactly so many chunks. */
	(void)snprintf(extent, sizeof(extent), "%" PRIu64, f->l1_bytes < 4096 ? 4096 : f->l1_bytes);
	(void)snprintf(dead, sizeof(dead), "%u", (unsigned)f->dead_writer_ms);
	(void)snprintf(delay, sizeof(delay), "%u", (unsigned)f->reply_delay_us);
	(void)snprintf(silent, sizeof(silent), "%u", 10 * FAULT_HEARTBEAT_MS);
	for (int i = 0; i < FAULT_MORE_OPTIONS && f->more[i]; i++) {
		(void)snprintf(option[i], sizeof(option[i]), "%s%s", i % 2 ? "" : "--", f->more[i]);
		argv[15 + i] = option[i];
	}
	fault_pipe(out);
	f->server = spawn_limited(argv, (const int[4]){-1, out[1], f->log_fd ? f->log_fd : quiet, -1}, f->nofile);
	(void)close(out[1]);
	if (quiet >= 0)
		(void)close(quiet);
	f->server_out = out[0];
	ck_assert_msg(fault_read_line(f->server_out, "the start of kvscoutd", line, sizeof(line)) > 0,
		      "kvscoutd did not start (RIG_LOG=1 shows why)");
	(void)snprintf(want, sizeof(want), "kvscoutd: ready on %s", f->endpoint);
	ck_assert_str_eq(line, want);
	watch(f);
}

void
fault_server_kill(struct fault *f)
{
	unwatch(f);
	ck_assert_int_eq(kill(f->server, SIGKILL), 0);
	ck_assert(WIFSIGNALED(fault_wait_exit(f->server)));
	(void)close(f->server_out);
	f->server = 0;
}

void
fault_server_terminate(struct fault *f)
{
	unwatch(f);
	ck_assert_int_eq(kill(f->server, SIGTERM), 0);
}

void
fault_server_await_end(struct fault *f)
{
	int status = fault_wait_exit(f->server);

	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "kvscoutd ended with wait status %d", status);
	(void)close(f->server_out);
	f->server = 0;
}

int
fault_server_run(char *const argv[], char *text, size_t len)
{
	int err[2];
	size_t at = 0;
	ssize_t n;
	pid_t pid;

	fault_pipe(err);
	pid = fault_spawn(argv, (const int[4]){-1, err[1], err[1], -1});
	(void)close(err[1]);
	while (at < len - 1 && (n = read(err[0], text + at, len - 1 - at)) > 0)
		at += (size_t)n;
	text[at] = '\0';
	(void)close(err[0]);
	return fault_wait_exit(pid);
}

#define ASK_AGAIN_US 2000000u

uint64_t
fault_status(struct fault *f, const char *name)
{
	uint64_t end_us = wait_begin(), corr, value;

	/* It has said no HELLO: a flood of connections may end this one, and the question with it. */
	do {
		corr = wire_ask_status(&f->status);
	} while (!wire_comes(&f->status, corr, scout__now_us() + ASK_AGAIN_US) && scout__now_us() < end_us);
	value = wire_read_status(&f->status, corr, name);
	ck_assert_msg(value != UINT64_MAX, "STATUS has no \"%s\"", name);
	return value;
}

void
fault_wait(struct fault *f, const char *name, uint64_t value)
{
	uint64_t end_us = wait_begin(), before = value, now;

	/* A server that works off much on a busy machine does not hang. */
	for (; (now = fault_status(f, name)) != value; before = now) {
		end_us = now == before ? end_us : wait_begin();
		ck_assert_msg(scout__now_us() < end_us, "%s is %" PRIu64 ", should become %" PRIu64, name, now, value);
	}
}

/* ---- the whole ---- */

void
fault_up(struct fault *f)
{
	static unsigned n_folders;

	f->pool_chunks = f->pool_chunks ? f->pool_chunks : 8;
	f->readers = f->readers ? f->readers : 1;
	f->kv_ranks = f->kv_ranks ? f->kv_ranks : 1;
	f->dead_writer_ms = f->dead_writer_ms ? f->dead_writer_ms : 300;
	if (!f->l1_bytes)
		f->l1_bytes = (uint64_t)f->pool_chunks * f->kv_ranks * FAULT_SHARD_BYTES;
	(void)snprintf(f->folder, sizeof(f->folder), "%s/%d-%u", home, (int)getpid(), n_folders++);
	ck_assert_int_eq(mkdir(f->folder, 0700), 0);
	(void)snprintf(f->endpoint, sizeof(f->endpoint), "ipc://%s/s", f->folder);
	fault_pipe(f->life);
	fault_server_start(f);
}

static void
leave(struct fault_actor *a)
{
	int status;

	if (!a->pid)
		return;
	(void)fault_ask(a, "exit");
	status = fault_wait_exit(a->pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "an actor ended with status %d", status);
	(void)close(a->to);
	(void)close(a->from);
	a->pid = 0;
}

void
fault_settle(struct fault *f)
{
	fault_wait(f, "quarantine", 0);
	fault_wait(f, "holds", 0);
	fault_wait(f, "l1.bytes_promised", 0);
	fault_wait(f, "sessions", 0);
}

void
fault_down(struct fault *f)
{
	int status;

	(void)close(f->life[1]);
	(void)close(f->life[0]);
	for (uint32_t i = 0; i < f->n_actors; i++)
		leave(&f->actors[i]);
	fault_settle(f);
	fault_wait(f, "peers", 0);
	fault_wait(f, "leases", 0);
	unwatch(f);
	ck_assert_int_eq(kill(f->server, SIGTERM), 0);
	status = fault_wait_exit(f->server);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "kvscoutd ended with status %d", status);
	(void)close(f->server_out);
	ck_assert_uint_eq(count_files(f->folder), 0);
	ck_assert_int_eq(rmdir(f->folder), 0);
	memset(f, 0, sizeof(*f));
}

/* ---- bare peers ---- */

static void
bare(struct fault *f, struct wire_peer *p, uint16_t role)
{
	wire_open(p, f->endpoint);
	p->hello.role = role;
	p->hello.hash_bytes = RIG_HASH;
	p->hello.chunk_tokens = FAULT_CHUNK_TOKENS;
	p->hello.rank_count = p->hello.kv_ranks = (uint16_t)f->kv_ranks;
	p->hello.readers = (uint16_t)f->readers;
	p->hello.name_space.p = NAME_SPACE;
	p->hello.name_space.len = sizeof(NAME_SPACE) - 1;
	assert_wire(wire_hello(p), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lease(p), SCOUT_LEASE_OK);
}

void
fault_bare_client(struct fault *f, struct wire_peer *p)
{
	bare(f, p, SCOUT_ROLE_CLIENT);
}

void
fault_bare_worker(struct fault *f, struct wire_peer *p)
{
	struct scout__register_msg m = {.n_tables = 1};
	struct scout__table_msg table = {.block_tokens = FAULT_BLOCK_TOKENS, .n_planes = 2};
	struct scout__writer *w;
	struct wire_reply *reply;
	uint64_t corr;

	bare(f, p, SCOUT_ROLE_WORKER);
	w = wire_begin(p, SCOUT_OP_REGISTER);
	scout__put_register(w, &m);
	scout__put_table(w, &table, (const uint64_t[2]){1000, 24});
	corr = wire_end(p);
	wire_flush(p);
	reply = wire_wait(p, corr);
	ck_assert_msg(reply->status == SCOUT_WIRE_OK, "%s", p->text);
	wire_reply_free(reply);
}

uint64_t
fault_bare_lookup_begin(struct wire_peer *p, uint64_t ticket, uint32_t prompt, uint32_t n, uint32_t poll_timeout_ms)
{
	struct scout__lookup_msg m = {
		.ticket = ticket,
		.n = n,
		.expect = poll_timeout_ms ? n : 0,
		.poll_timeout_ms = poll_timeout_ms,
		.poll_interval_ms = poll_timeout_ms ? 2 : 0,
	};
	uint8_t *hashes = rig_hashes(prompt, n);
	uint64_t corr;

	m.hashes = hashes;
	scout__put_lookup(wire_begin(p, SCOUT_OP_LOOKUP), &m, RIG_HASH);
	corr = wire_end(p);
	wire_flush(p);
	free(hashes);
	return corr;
}

uint32_t
fault_bare_lookup_end(struct wire_peer *p, uint64_t corr)
{
	struct wire_reply *reply = wire_wait(p, corr);
	struct scout__op op = {
		.opcode = SCOUT_OP_LOOKUP, .kind = SCOUT_KIND_REPLY, .length = reply->length, .body = reply->body};
	struct scout__lookup_reply answer;
	const char *field;

	ck_assert_msg(reply->status == SCOUT_WIRE_OK, "%s", p->text);
	ck_assert_int_eq(scout__get_lookup_reply(&op, &answer, &field), SCOUT_WIRE_OK);
	wire_reply_free(reply);
	return answer.hit;
}

uint32_t
fault_bare_lookup(struct wire_peer *p, uint64_t ticket, uint32_t prompt, uint32_t n)
{
	return fault_bare_lookup_end(p, fault_bare_lookup_begin(p, ticket, prompt, n, 0));
}
