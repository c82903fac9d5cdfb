/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "checked_fork.h"
#include "server_rig.h"

/*
 * Processes and files: who may start, what a start leaves behind, and what becomes of the promises and holds of peers that leave,
 * close, or are killed. Children are forked before this process has any thread.
 */

/* ---- start and stop ---- */

struct folder {
	char path[64];
	char endpoint[96];
};

static void
folder_up(struct folder *folder)
{
	(void)snprintf(folder->path, sizeof(folder->path), "/tmp/kvscout-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder->path));
	(void)snprintf(folder->endpoint, sizeof(folder->endpoint), "ipc://%s/s", folder->path);
}

/* Fails unless the server has removed what it made. */
static void
folder_down(const struct folder *folder)
{
	ck_assert_int_eq(rmdir(folder->path), 0);
}

static int
start(const char *listen, char *err, size_t err_len)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout_server *server = NULL;
	int rc;

	cfg.listen = listen;
	rc = scout_server_start(&cfg, &server, err, err_len);
	ck_assert((rc == 0) == (server != NULL));
	scout_server_stop(server);
	return rc;
}

static atomic_uint n_threads, n_open_to_signals;

/* Takes the place of the C library's, for libzmq, too: a new thread inherits the mask of the one that starts it. */
int
pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	sigset_t mask;

	*(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
	ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
	atomic_fetch_add(&n_threads, 1);
	if (!sigismember(&mask, SIGALRM))
		atomic_fetch_add(&n_open_to_signals, 1);
	return real(thread, attr, run, arg);
}

START_TEST(no_thread_of_a_server_takes_a_signal_of_its_host)
{
	struct folder folder;
	char err[256] = "";

	folder_up(&folder);
	ck_assert_msg(start(folder.endpoint, err, sizeof(err)) == 0, "%s", err);
	ck_assert_uint_ge(atomic_load(&n_threads), 3); /* the loop, and two of libzmq */
	ck_assert_uint_eq(atomic_load(&n_open_to_signals), 0);
	folder_down(&folder);
}
END_TEST

START_TEST(start_and_stop_leave_nothing_behind)
{
	struct folder folder;
	char err[256] = "";

	folder_up(&folder);
	ck_assert_msg(start(folder.endpoint, err, sizeof(err)) == 0, "%s", err);
	ck_assert_msg(start(folder.endpoint, err, sizeof(err)) == 0, "%s", err);
	folder_down(&folder);
}
END_TEST

START_TEST(a_second_server_is_refused_with_the_pid_of_the_first)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout_server *server;
	struct folder folder;
	struct wire_peer p;
	char err[256] = "", lock[80];
	struct stat st;
	char pid[32];

	folder_up(&folder);
	cfg.listen = folder.endpoint;
	server = rig_start(&cfg);
	(void)snprintf(pid, sizeof(pid), "pid %d", (int)getpid());
	ck_assert_int_eq(start(folder.endpoint, err, sizeof(err)), SCOUT_ERR_IN_USE);
	ck_assert_msg(strstr(err, pid), "%s", err);
	/* No page of the lock is ever dirty: the close of the removed file would wait until it is on the disk. */
	(void)snprintf(lock, sizeof(lock), "%s/s.lock", folder.path);
	ck_assert_int_eq(stat(lock, &st), 0);
	ck_assert_int_eq(st.st_size, getpid());
	ck_assert_int_eq(st.st_blocks, 0);
	/* The first one still has its socket. */
	rig_client(&p, folder.endpoint);
	wire_close(&p);
	scout_server_stop(server);
	ck_assert_int_eq(start(folder.endpoint, err, sizeof(err)), 0);
	folder_down(&folder);
}
END_TEST

START_TEST(a_path_that_is_too_long_is_our_error)
{
	char listen[200];
	char err[256] = "";
	char folder[96] = "/tmp/";

	memset(folder + 5, 'd', 84);
	memcpy(folder + 89, "XXXXXX", sizeof("XXXXXX"));
	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(listen, sizeof(listen), "ipc://%s/123456",
		       folder); /* 102 bytes: fits itself, but not with .lease */
	ck_assert_int_eq(start(listen, err, sizeof(err)), SCOUT_ERR_BIND);
	ck_assert_msg(strstr(err, "102") && strstr(err, "101"), "%s", err);
	(void)snprintf(listen, sizeof(listen), "ipc://%s/12345", folder);
	ck_assert_msg(start(listen, err, sizeof(err)) == 0, "%s", err);
	ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

START_TEST(a_folder_that_others_may_write_is_refused_and_named)
{
	struct folder folder;
	char err[256] = "";

	folder_up(&folder);
	ck_assert_int_eq(chmod(folder.path, 0777), 0);
	ck_assert_int_eq(start(folder.endpoint, err, sizeof(err)), SCOUT_ERR_PERMISSION);
	ck_assert_msg(strstr(err, folder.path), "%s", err);
	ck_assert_int_eq(chmod(folder.path, 01777), 0);
	ck_assert_msg(start(folder.endpoint, err, sizeof(err)) == 0, "%s", err);
	folder_down(&folder);
}
END_TEST

START_TEST(what_is_not_a_socket_is_not_removed)
{
	struct folder folder;
	char path[96], err[256] = "";
	FILE *file;

	folder_up(&folder);
	(void)snprintf(path, sizeof(path), "%s/s", folder.path);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(start(folder.endpoint, err, sizeof(err)), SCOUT_ERR_BIND);
	ck_assert_int_eq(access(path, F_OK), 0);
	ck_assert_int_eq(unlink(path), 0);
	(void)snprintf(path, sizeof(path), "%s/s.lock", folder.path);
	(void)unlink(path);
	folder_down(&folder);
}
END_TEST

START_TEST(a_pool_larger_than_the_memory_is_refused)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout_server *server = NULL;
	char err[256] = "";

	cfg.l1_bytes = UINT64_C(1) << 49;
	cfg.max_promised = 0;
	ck_assert_int_eq(scout_server_start(&cfg, &server, err, sizeof(err)), SCOUT_ERR_POOL_SIZE);
	ck_assert_ptr_null(server);
	ck_assert_uint_gt(strlen(err), 0);
}
END_TEST

static void
cut_at(char *text, const char *word)
{
	char *at = strstr(text, word);

	if (at)
		*at = 0;
}

/* What is wrong is told without a start, in the words of the start; a store that is not there is not wrong. */
START_TEST(a_check_says_what_a_start_would)
{
	struct scout_server *server = NULL;
	static const struct {
		const char *key, *value;
		int rc;
	} wrong[] = {
		{"eviction", "mru", SCOUT_ERR_CONFIG_RANGE},
		{"l1_bytes", "512Ti", SCOUT_ERR_POOL_SIZE},
		{"l2", "ftp://host/path", SCOUT_ERR_CONFIG_RANGE},
		{"l2", "fs://host/path", SCOUT_ERR_CONFIG_RANGE},
		{"l2", "fs:///path?max_byte=1Gi", SCOUT_ERR_CONFIG_KEY},
		{"l2", "fs:///path?max_bytes=many", SCOUT_ERR_CONFIG_SYNTAX},
		{"l2", "redis://:secret@", SCOUT_ERR_CONFIG_RANGE},
		{"tenant_share", "a:60% b:60%", SCOUT_ERR_CONFIG_RANGE},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct scout_server_config cfg = rig_config(8);
		char checked[512] = "", started[512] = "";

		cfg.max_promised = 0;
		ck_assert_msg(scout_server_config_set(&cfg, wrong[i].key, wrong[i].value, checked, sizeof(checked)) ==
				      0,
			      "%s", checked);
		ck_assert_msg(scout_server_config_check(&cfg, checked, sizeof(checked)) == wrong[i].rc, "%s: %s",
			      wrong[i].value, checked);
		ck_assert_int_eq(scout_server_start(&cfg, &server, started, sizeof(started)), wrong[i].rc);
		cut_at(checked, "MemAvailable"); /* other programs change that number meanwhile */
		cut_at(started, "MemAvailable");
		ck_assert_str_eq(checked, started);
		ck_assert_ptr_null(strstr(checked, "secret"));
		scout_server_config_fini(&cfg);
	}
}
END_TEST

START_TEST(a_check_asks_no_store_and_makes_nothing)
{
	struct scout_server_config cfg = rig_config(8);
	struct folder folder;
	char url[128], path[96], err[512] = "";

	folder_up(&folder);
	(void)snprintf(path, sizeof(path), "%s/kv", folder.path);
	(void)snprintf(url, sizeof(url), "fs://%s", path);
	cfg.l2 = url;
	ck_assert_msg(scout_server_config_check(&cfg, err, sizeof(err)) == 0, "%s", err);
	ck_assert_int_ne(access(path, F_OK), 0);
	cfg.l2 = "fs:///no/such/folder/kv";
	ck_assert_msg(scout_server_config_check(&cfg, err, sizeof(err)) == 0, "%s", err);
	cfg.l2 = NULL;
	ck_assert_msg(scout_server_config_check(&cfg, err, sizeof(err)) == 0, "%s", err);
	ck_assert_int_eq(scout_server_config_check(NULL, err, sizeof(err)), SCOUT_ERR_INVALID);
	folder_down(&folder);
}
END_TEST

START_TEST(other_transports_and_bad_configurations_are_refused)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout_server *server = NULL;
	char err[256] = "";

	ck_assert_int_eq(start("udp://x", err, sizeof(err)), SCOUT_ERR_UNSUPPORTED);
	ck_assert_int_eq(start("inproc://x", err, sizeof(err)), SCOUT_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(err, "listen = \"inproc://x\": must not be inproc://; allowed are ipc:///path"));
	ck_assert_ptr_nonnull(strstr(err, "scout_server_endpoint()"));
	ck_assert_int_eq(start("ipc://relative", err, sizeof(err)), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_int_eq(start("ipc:///no/such/folder/s", err, sizeof(err)), SCOUT_ERR_BIND);
	ck_assert_ptr_nonnull(strstr(err, "No such file or directory"));
	/* A port above 65535 would be another one. */
	ck_assert_int_eq(start("tcp://127.0.0.1:99999", err, sizeof(err)), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_int_eq(start("tcp://127.0.0.1", err, sizeof(err)), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_ptr_nonnull(strstr(err, "the port must be 0..65535"));
	cfg.credits = 70000;
	ck_assert_int_eq(scout_server_start(&cfg, &server, err, sizeof(err)), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_int_eq(scout_server_start(NULL, &server, err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_ptr_null(server);
}
END_TEST

START_TEST(tcp_serves_with_the_port_of_the_kernel)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout_server *server;
	struct wire_peer p;

	cfg.listen = "tcp://127.0.0.1:*";
	server = rig_start(&cfg);
	ck_assert_ptr_null(strchr(scout_server_endpoint(server), '*'));
	/* On this machine, so it has a lease. */
	rig_worker(&p, scout_server_endpoint(server));
	ck_assert_uint_eq(rig_store(&p, 0, 1, 4), 4);
	wire_close(&p);
	scout_server_stop(server);
}
END_TEST

/* ---- the end without peers ---- */

static bool
has_ended(const struct scout_server *server, int wait_ms)
{
	struct pollfd end = {.fd = scout_server_fd(server), .events = POLLIN};
	int n = poll(&end, 1, wait_ms);

	ck_assert_int_ge(n, 0);
	return n == 1;
}

START_TEST(a_server_without_peers_ends_after_idle_exit_s)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout_server *server;
	struct wire_peer p;
	uint64_t before_us;

	ck_assert_int_eq(scout_server_fd(NULL), SCOUT_ERR_INVALID);
	cfg.idle_exit_s = 2; /* so late that the peer is there before */
	server = rig_start(&cfg);
	rig_client(&p, scout_server_endpoint(server));
	ck_assert_int_eq(wire_lease(&p), SCOUT_LEASE_OK);
	/* A peer is there, idle or not. */
	ck_assert(!has_ended(server, 2500));
	before_us = scout__now_us();
	wire_lease_bye(&p);
	wire_close(&p);
	ck_assert(has_ended(server, wait_limit_ms()));
	ck_assert_uint_ge(scout__now_us() - before_us, 2000000);
	scout_server_stop(server);
}
END_TEST

START_TEST(a_server_that_no_peer_ever_joined_ends_too)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout_server *server;

	cfg.idle_exit_s = 1;
	server = rig_start(&cfg);
	ck_assert(has_ended(server, wait_limit_ms()));
	scout_server_stop(server);
	/* 0, the default, is never. */
	cfg.idle_exit_s = 0;
	server = rig_start(&cfg);
	ck_assert(!has_ended(server, 1500));
	scout_server_stop(server);
}
END_TEST

/* ---- leases ---- */

/* ---- death ---- */

/* A child that waits for an endpoint, does what @act says, tells us, and lives until it is killed. */
struct child {
	pid_t pid;
	int to, from;
};

static void
child_start(struct child *child, void (*act)(struct wire_peer *p, const char *endpoint))
{
	int to[2], from[2];
	char endpoint[128] = "";
	struct wire_peer p;

	ck_assert_int_eq(pipe(to), 0);
	ck_assert_int_eq(pipe(from), 0);
	child->pid = checked_fork();
	if (child->pid) {
		child->to = to[1];
		child->from = from[0];
		(void)close(to[0]);
		(void)close(from[1]);
		return;
	}
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)close(to[1]);
	(void)close(from[0]);
	if (read(to[0], endpoint, sizeof(endpoint) - 1) <= 0)
		_exit(1);
	act(&p, endpoint);
	if (write(from[1], "x", 1) != 1)
		_exit(1);
	for (;;)
		(void)pause();
}

static void
child_act(const struct child *child, const char *endpoint)
{
	char done;

	ck_assert_int_eq(write(child->to, endpoint, strlen(endpoint)), (ssize_t)strlen(endpoint));
	ck_assert_int_eq(read(child->from, &done, 1), 1);
}

static void
child_kill(const struct child *child)
{
	int status;

	ck_assert_int_eq(kill(child->pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child->pid, &status, 0), child->pid);
	ck_assert(WIFSIGNALED(status));
	(void)close(child->to);
	(void)close(child->from);
}

static void
act_promise(struct wire_peer *p, const char *endpoint)
{
	struct scout__lookup_reply m;

	wire_open(p, endpoint);
	if (wire_hello(p) != 0 || wire_lease(p) != SCOUT_LEASE_OK || wire_lookup(p, 9, 1, 4, 0, &m) != 0 || m.hit != 4)
		_exit(1);
}

static atomic_uint n_lost, n_unclosed; /* lines of the log */

static void
count_ends(void *user, int level, const char *text)
{
	(void)user;
	if (level == SCOUT_LOG_WARN && strstr(text, "died, with 2 holds"))
		n_lost++;
	if (level == SCOUT_LOG_INFO && strstr(text, "ended without closing, with 0 holds"))
		n_unclosed++;
}

START_TEST(the_promises_of_a_killed_client_are_gone)
{
	struct scout_server_config cfg = rig_config(4);
	struct child child;
	struct rig rig;
	uint64_t id;

	child_start(&child, act_promise);
	cfg.log = count_ends;
	rig_up_with(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 4);
	child_act(&child, rig.endpoint);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 4 * SHARD_BYTES);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 101, 4, &id), 0);
	child_kill(&child);
	wire_wait_status(&rig.client, "l1.bytes_promised", 0);
	ck_assert_uint_eq(wire_status(&rig.client, "peers.died"), 1);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 101, 4, &id), 4);
	wait_until(n_unclosed == 1) /* no line for an operator: vLLM ends like this */
		;
	ck_assert_uint_eq(n_lost, 0);
	rig_down(&rig);
}
END_TEST

static void
act_write_and_read(struct wire_peer *p, const char *endpoint)
{
	struct wire_grants g;

	wire_open(p, endpoint);
	p->hello.role = SCOUT_ROLE_WORKER;
	if (wire_hello(p) != 0 || wire_lease(p) != SCOUT_LEASE_OK || wire_register(p, 0, 0, SHARD_BYTES) != 0)
		_exit(1);
	if (wire_retrieve(p, 9, 0, 2, &g) != 0 || g.n_granted != 2)
		_exit(1);
	if (wire_store(p, 0, 101, 2, &g) != 0 || g.n_granted != 2)
		_exit(1);
}

START_TEST(what_a_killed_worker_was_writing_is_set_aside_for_a_while)
{
	struct scout_server_config cfg = rig_config(4);
	struct child child;
	struct wire_grants g;
	struct rig rig;
	uint64_t killed_us, id;

	child_start(&child, act_write_and_read);
	cfg.dead_writer_ms = 1000;
	cfg.log = count_ends;
	rig_up_with(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 2);
	rig_hit(&rig.client, 9, 1, 2);
	child_act(&child, rig.endpoint);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(wire_status(&rig.client, "holds"), 2);
	killed_us = scout__now_us();
	child_kill(&child);
	/* What it read is free at once; what it wrote is not, not even for the same keys. */
	wire_wait_status(&rig.client, "peers.died", 1);
	wait_until(wire_status(&rig.client, "holds") <= 1)
		;
	ck_assert_int_eq(wire_store(&rig.worker, 0, 101, 4, &g), SCOUT_WIRE_OK);
	if (scout__now_us() - killed_us < 1000000) {
		ck_assert_int_eq(g.grants[0].state, SCOUT_GRANT_PRESENT);
		ck_assert_int_eq(g.grants[1].state, SCOUT_GRANT_PRESENT);
		ck_assert_uint_eq(g.n_granted, 2); /* keys 1 and 2 made room */
	}
	ck_assert_uint_eq(rig_peek(&rig.client, 101, 2), 0);
	wire_wait_status(&rig.client, "holds", 1); /* that of the store */
	ck_assert_uint_ge(scout__now_us() - killed_us, 1000000);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 201, 4, &id), 2);
	free(g.grants);
	wait_until(n_lost == 1)
		;
	ck_assert_uint_eq(n_unclosed, 0);
	rig_down(&rig);
}
END_TEST

static uint32_t most_peers;

static void
act_serve(struct wire_peer *p, const char *endpoint)
{
	struct scout_server_config cfg = rig_config(4);
	struct scout_server *server;
	char err[256];

	(void)p;
	cfg.max_peers = most_peers;
	cfg.listen = endpoint;
	if (scout_server_start(&cfg, &server, err, sizeof(err)) != 0)
		_exit(1);
}

/* The same, in a pid namespace in which its peers have no number. It ends with the child. */
static void
act_serve_apart(struct wire_peer *p, const char *endpoint)
{
	pid_t pid;

	if (unshare(CLONE_NEWPID) != 0 || (pid = fork()) < 0)
		_exit(1);
	while (pid > 0)
		(void)pause();
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	act_serve(p, endpoint);
}

/* A worker that is writing two objects. */
static bool
begin_to_write(struct wire_peer *p, const char *endpoint, uint64_t key)
{
	struct wire_grants g = {0};
	bool granted;

	wire_open(p, endpoint);
	p->hello.role = SCOUT_ROLE_WORKER;
	granted = wire_hello(p) == 0 && wire_lease(p) == SCOUT_LEASE_OK && wire_register(p, 0, 0, SHARD_BYTES) == 0 &&
		  wire_store(p, 0, key, 2, &g) == 0 && g.n_granted == 2;
	free(g.grants);
	return granted;
}

static void
act_write(struct wire_peer *p, const char *endpoint)
{
	if (!begin_to_write(p, endpoint, 101))
		_exit(1);
}

static bool
can_watch_across_namespaces(void)
{
	socklen_t len = sizeof(int);
	int pair[2], fd = -1, status = 1;
	pid_t pid = fork();

	if (pid == 0)
		_exit(unshare(CLONE_NEWPID) != 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	(void)getsockopt(pair[0], SOL_SOCKET, 77 /* SO_PEERPIDFD */, &fd, &len);
	return status == 0 && fd >= 0;
}

/* As a sidecar's worker: its end is seen, and the end of its lease connection is not its end. */
START_TEST(a_worker_in_another_pid_namespace_is_its_process)
{
	struct child server, worker;
	struct wire_peer client, living;
	struct folder folder;
	struct wire_grants g;
	char err[256] = "";

	if (!can_watch_across_namespaces()) {
		(void)dprintf(STDOUT_FILENO, "# SKIP needs the right to make a pid namespace, and Linux 6.5\n");
		return;
	}
	folder_up(&folder);
	child_start(&server, act_serve_apart);
	child_start(&worker, act_write);
	child_act(&server, folder.endpoint);
	rig_client(&client, folder.endpoint);
	ck_assert(begin_to_write(&living, folder.endpoint, 201));
	wire_lease_close(&living);
	ck_assert_int_eq(wire_lease(&living), SCOUT_LEASE_OK); /* the server has seen the end of the other one */
	ck_assert_uint_eq(wire_status(&client, "peers.died"), 0);
	ck_assert_uint_eq(wire_status(&client, "holds"), 1);
	child_act(&worker, folder.endpoint);
	ck_assert_uint_eq(wire_status(&client, "peers.died"), 0);
	child_kill(&worker);
	wire_wait_status(&client, "peers.died", 1);
	ck_assert_int_eq(wire_store(&living, 0, 1, 1, &g), SCOUT_WIRE_OK);
	free(g.grants);
	wire_close(&living);
	wire_close(&client);
	child_kill(&server);
	/* It dies after its parent; the next one removes what it left. */
	wait_until(start(folder.endpoint, err, sizeof(err)) == 0)
		;
	folder_down(&folder);
}
END_TEST

START_TEST(the_files_of_a_killed_server_are_taken_over)
{
	struct folder folder;
	struct child child;
	char err[256] = "";
	char pid[32];

	folder_up(&folder);
	child_start(&child, act_serve);
	child_act(&child, folder.endpoint);
	(void)snprintf(pid, sizeof(pid), "pid %d", (int)child.pid);
	ck_assert_int_eq(start(folder.endpoint, err, sizeof(err)), SCOUT_ERR_IN_USE);
	ck_assert_msg(strstr(err, pid), "%s", err);
	child_kill(&child);
	ck_assert_msg(start(folder.endpoint, err, sizeof(err)) == 0, "%s", err);
	folder_down(&folder);
}
END_TEST

START_TEST(a_forked_child_cannot_stop_the_server_of_its_parent)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout_server *server = NULL;
	struct folder folder;
	char err[256] = "";
	int status;
	pid_t pid;

	folder_up(&folder);
	cfg.listen = folder.endpoint;
	ck_assert_msg(scout_server_start(&cfg, &server, err, sizeof(err)) == 0, "%s", err);
	pid = checked_fork();
	if (pid == 0) {
		(void)alarm(20); /* a child that waits is killed */
		scout_server_log_off(server);
		scout_server_stop(server);
		_exit(0);
	}
	ck_assert(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_int_eq(start(folder.endpoint, err, sizeof(err)), SCOUT_ERR_IN_USE); /* it still serves */
	scout_server_stop(server);
	folder_down(&folder);
}
END_TEST

#define OF_ONE_PROCESS 64u /* more than SCOUT__LOG_BURST, and as many as a process may have of 192 peers */

static atomic_uint lines_of_death;
static char line_of_death[256];

static void
note_lines_of_death(void *user, int level, const char *text)
{
	(void)user;
	(void)level;
	if (!strstr(text, "ended without closing"))
		return;
	(void)snprintf(line_of_death, sizeof(line_of_death), "%s", text);
	atomic_fetch_add(&lines_of_death, 1);
}

static void
act_many(struct wire_peer *p, const char *endpoint)
{
	static struct wire_peer peers[OF_ONE_PROCESS];

	(void)p;
	for (uint32_t i = 0; i < OF_ONE_PROCESS; i++) {
		wire_open(&peers[i], endpoint);
		if (wire_hello(&peers[i]) != 0 || wire_lease(&peers[i]) != SCOUT_LEASE_OK)
			_exit(1);
	}
}

/* Linux 6.9 gives the pidfds of two processes two inodes. */
static bool
can_tell_processes_apart(void)
{
	int own = (int)syscall(SYS_pidfd_open, getpid(), 0), parent = (int)syscall(SYS_pidfd_open, getppid(), 0);
	struct stat a = {0}, b = {0};

	(void)fstat(own, &a);
	(void)fstat(parent, &b);
	(void)close(own);
	(void)close(parent);
	return a.st_ino != b.st_ino && can_watch_across_namespaces();
}

/* Two engines that have no pid in the server's namespace are two processes: the second has a quarter of its own. */
START_TEST(processes_of_other_pid_namespaces_do_not_count_as_one)
{
	struct child server, full;
	struct wire_peer other;
	struct folder folder;
	char err[256] = "";

	if (!can_tell_processes_apart()) {
		(void)dprintf(STDOUT_FILENO, "# SKIP needs the right to make a pid namespace, and Linux 6.9\n");
		return;
	}
	folder_up(&folder);
	most_peers = 3 * OF_ONE_PROCESS;
	child_start(&server, act_serve_apart);
	child_start(&full, act_many);
	child_act(&server, folder.endpoint);
	child_act(&full, folder.endpoint);
	rig_client(&other, folder.endpoint); /* its HELLO is answered with OK */
	wire_close(&other);
	child_kill(&full);
	child_kill(&server);
	most_peers = 0;
	wait_until(start(folder.endpoint, err, sizeof(err)) == 0)
		;
	folder_down(&folder);
}
END_TEST

START_TEST(the_death_of_a_process_is_one_line)
{
	struct scout_server_config cfg = rig_config(4);
	struct child child;
	struct rig rig;
	char pid[32];

	child_start(&child, act_many);
	cfg.log = note_lines_of_death;
	rig_up_with(&rig, &cfg);
	child_act(&child, rig.endpoint);
	child_kill(&child);
	wire_wait_status(&rig.client, "peers.died", OF_ONE_PROCESS);
	wait_until(atomic_load(&lines_of_death) > 0)
		;
	rig_down(&rig);
	ck_assert_uint_eq(atomic_load(&lines_of_death), 1);
	(void)snprintf(pid, sizeof(pid), "(pid %d) and %u more", (int)child.pid, OF_ONE_PROCESS - 1);
	ck_assert_ptr_nonnull(strstr(line_of_death, pid));
}
END_TEST

#define GHOSTS 16u

/* Clients that need not say anything for ten minutes. */
static void
act_ghosts(struct wire_peer *p, const char *endpoint)
{
	static struct wire_peer ghosts[GHOSTS];
	struct scout__lookup_reply m;

	(void)p;
	for (uint32_t i = 0; i < GHOSTS; i++) {
		wire_open(&ghosts[i], endpoint);
		ghosts[i].hello.heartbeat_ms = 600000;
		if (wire_hello(&ghosts[i]) != 0 || wire_lookup(&ghosts[i], 100 + i, 1, 2, 0, &m) != 0 || m.hit != 2)
			_exit(1);
	}
}

#define CROWD 200u /* max_peers; a quarter of it is less than 64 */

/* All the peers that one process gets, alive. */
static void
act_crowd(struct wire_peer *p, const char *endpoint)
{
	static struct wire_peer crowd[65];

	(void)p;
	for (uint32_t i = 0; i < 65; i++) {
		wire_open(&crowd[i], endpoint);
		crowd[i].hello.heartbeat_ms = 600000; /* none counts as silent before the last is there */
		if (wire_hello(&crowd[i]) != (i < 64 ? SCOUT_WIRE_OK : SCOUT_WIRE_LIMIT))
			_exit(1);
	}
}

/* HELLO again and again, each on a connection that ends before the answer. */
static void
act_vanish(struct wire_peer *p, const char *endpoint)
{
	for (uint32_t i = 0; i < 2 * CROWD; i++) {
		wire_open(p, endpoint);
		p->hello.heartbeat_ms = 600000;
		(void)wire_hello(p);
		wire_close(p);
	}
}

START_TEST(a_process_with_all_the_peers_that_it_gets_leaves_room_for_others)
{
	static void (*const acts[])(struct wire_peer * p, const char *endpoint) = {act_crowd, act_vanish};
	struct scout_server_config cfg = rig_config(8);
	struct wire_peer others[4];
	struct child child;
	struct rig rig;

	cfg.max_peers = CROWD;
	for (size_t i = 0; i < 2; i++) {
		child_start(&child, acts[i]);
		rig_up_with(&rig, &cfg);
		child_act(&child, rig.endpoint);
		ck_assert_uint_le(wire_status(&rig.client, "peers"), 2 + 2 * 64);
		for (size_t j = 0; j < 4; j++)
			rig_client(&others[j], rig.endpoint);
		for (size_t j = 0; j < 4; j++)
			wire_close(&others[j]);
		child_kill(&child);
		rig_down(&rig);
	}
}
END_TEST

/* A client of a long heartbeat that lost its connection and is back; its session promises keys 3 and 4. */
static void
come_back(struct wire_peer *p, const char *endpoint)
{
	struct scout__hello was;

	wire_open(p, endpoint);
	p->hello.heartbeat_ms = 600000;
	assert_wire(wire_hello(p), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_hit(p, 50, 3, 2), 2);
	was = p->hello;
	wire_close(p);
	wire_open(p, endpoint);
	p->hello.heartbeat_ms = 600000;
	wire_as(p, &was);
	assert_wire(wire_hello(p), SCOUT_WIRE_OK);
}

/* Takes SCOUT_RECONNECT_MS. */
START_TEST(of_killed_peers_without_a_lease_nothing_is_left_when_they_do_not_come_back)
{
	struct scout_server_config cfg = rig_config(8);
	struct wire_peer reader, back, next;
	struct wire_grants g;
	struct child child;
	struct rig rig;
	uint64_t killed_us;

	child_start(&child, act_ghosts);
	cfg.listen = "tcp://127.0.0.1:*";
	cfg.max_peers = GHOSTS + 4;
	rig_up_with(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 8);
	child_act(&child, rig.endpoint);
	rig_worker(&reader, rig.endpoint);
	rig_hit(&rig.client, 9, 7, 2);
	ck_assert_int_eq(wire_retrieve(&reader, 9, 0, 2, &g), SCOUT_WIRE_OK);
	rig_finish(&rig.client, 9);
	wire_close(&reader); /* its process, this one, lives: it may still copy */
	come_back(&back, rig.endpoint);
	wire_open(&next, rig.endpoint);
	ck_assert_int_eq(wire_hello(&next), SCOUT_WIRE_LIMIT);
	killed_us = scout__now_us();
	child_kill(&child);
	wire_wait_status(&rig.client, "peers", 4);
	ck_assert_uint_ge(scout__now_us() - killed_us, SCOUT_RECONNECT_MS * UINT64_C(1000));
	ck_assert_int_eq(wire_hello(&next), SCOUT_WIRE_OK);
	/* What is left: the session of the client that came back, and the hold of the worker that did not. */
	ck_assert_uint_eq(wire_status(&rig.client, "sessions"), 1);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 2 * SHARD_BYTES);
	ck_assert_uint_eq(wire_status(&rig.client, "holds"), 1);
	rig_finish(&back, 50);
	free(g.grants);
	wire_close(&back);
	wire_close(&next);
	rig_down(&rig);
}
END_TEST
