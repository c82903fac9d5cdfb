/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

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
	char err[256] = "";
	char pid[32];

	folder_up(&folder);
	cfg.listen = folder.endpoint;
	server = rig_start(&cfg);
	(void)snprintf(pid, sizeof(pid), "pid %d", (int)getpid());
	ck_assert_int_eq(start(folder.endpoint, err, sizeof(err)), SCOUT_ERR_IN_USE);
	ck_assert_msg(strstr(err, pid), "%s", err);
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
	char listen[200] = "ipc:///tmp/";
	char err[256] = "";
	char folder[128] = "/tmp/";

	memset(folder + 5, 'd', 90);
	ck_assert_int_eq(mkdir(folder, 0700), 0);
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

START_TEST(other_transports_and_bad_configurations_are_refused)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout_server *server = NULL;
	char err[256] = "";

	ck_assert_int_eq(start("udp://x", err, sizeof(err)), SCOUT_ERR_UNSUPPORTED);
	ck_assert_int_eq(start("ipc://relative", err, sizeof(err)), SCOUT_ERR_BIND);
	ck_assert_int_eq(start("ipc:///no/such/folder/s", err, sizeof(err)), SCOUT_ERR_BIND);
	ck_assert_ptr_nonnull(strstr(err, "No such file or directory"));
	ck_assert_int_eq(start("tcp://127.0.0.1", err, sizeof(err)), SCOUT_ERR_BIND);
	ck_assert_ptr_nonnull(strstr(err, "must be tcp://address:port"));
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

START_TEST(stop_with_running_operations_is_bounded)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout__lookup_msg m = {.ticket = 9, .n = 4};
	struct rig rig;
	uint64_t id, before_us;

	cfg.reply_delay_us = 60000000;
	rig_up_with(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 4);
	rig_granted(&rig.worker, 0, 11, 4, &id);
	(void)wire_add_lookup(&rig.client, &m, 1);
	wire_flush(&rig.client);
	ck_assert_int_eq(wire_ping(&rig.client), SCOUT_WIRE_OK);
	before_us = scout__now_us();
	scout_server_stop(rig.server);
	ck_assert_uint_lt(scout__now_us() - before_us, 20000000);
	wire_close(&rig.client);
	wire_close(&rig.worker);
}
END_TEST

/* ---- leases ---- */

START_TEST(a_lease_of_an_unknown_token_is_refused)
{
	struct rig rig;
	struct wire_peer p;

	rig_up(&rig, 8);
	wire_open(&p, rig.endpoint);
	memcpy(p.lease_path, rig.client.lease_path, sizeof(p.lease_path));
	ck_assert_int_eq(wire_lease(&p), SCOUT_LEASE_GONE);
	wire_close(&p);
	rig_down(&rig);
}
END_TEST

START_TEST(garbage_on_the_lease_connection_ends_it)
{
	struct rig rig;
	char byte;

	rig_up(&rig, 8);
	ck_assert_int_eq(wire_lease(&rig.client), SCOUT_LEASE_OK);
	ck_assert_int_eq(send(rig.client.lease_fd, "nonsense", 8, MSG_NOSIGNAL), 8);
	ck_assert_int_eq(recv(rig.client.lease_fd, &byte, 1, 0), 0);
	ck_assert_int_eq(wire_ping(&rig.client), SCOUT_WIRE_OK);
	rig_down(&rig);
}
END_TEST

START_TEST(goodbye_frees_sessions_and_holds_at_once)
{
	struct rig rig;
	struct wire_peer watcher;
	struct wire_grants g;
	uint64_t id;

	rig_up(&rig, 8);
	wire_open(&watcher, rig.endpoint);
	rig_store(&rig.worker, 0, 1, 4);
	ck_assert_int_eq(wire_lease(&rig.client), SCOUT_LEASE_OK);
	rig_hit(&rig.client, 9, 1, 4);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 2, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 101, 2, &id), 2);
	wire_lease_bye(&rig.client);
	wire_wait_status(&watcher, "l1.bytes_promised", 0);
	ck_assert_uint_eq(wire_status(&watcher, "holds"), 2);
	wire_lease_bye(&rig.worker);
	wire_wait_status(&watcher, "holds", 0);
	ck_assert_uint_eq(wire_status(&watcher, "quarantine"), 0);
	wire_wait_status(&watcher, "peers", 0);
	ck_assert_uint_eq(wire_status(&watcher, "l1.chunks"), 4);
	free(g.grants);
	wire_close(&watcher);
	rig_down(&rig);
}
END_TEST

START_TEST(a_living_process_keeps_its_holds_without_a_connection)
{
	struct scout_server_config cfg = rig_config(4);
	struct rig rig;
	struct wire_peer other, again;
	struct wire_grants g;
	uint64_t id, token;

	cfg.peer_timeout_ms = 100;
	rig_up_with(&rig, &cfg);
	rig.worker.hello.heartbeat_ms = 10;
	ck_assert_int_eq(wire_hello(&rig.worker), SCOUT_WIRE_OK);
	token = rig.worker.hello.token;
	rig_store(&rig.worker, 0, 1, 4);
	rig_hit(&rig.client, 9, 1, 4);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 4, &g), SCOUT_WIRE_OK);
	rig_finish(&rig.client, 9);
	wire_close(&rig.worker);
	/* A client of the same heartbeat, silent since later, is forgotten: so the worker would have been too. */
	wire_open(&other, rig.endpoint);
	other.hello.heartbeat_ms = 10;
	ck_assert_int_eq(wire_hello(&other), SCOUT_WIRE_OK);
	wire_wait_status(&rig.client, "peers.forgotten", 1);
	wire_close(&other);
	ck_assert_uint_eq(wire_status(&rig.client, "holds"), 1);
	rig_worker(&other, rig.endpoint);
	ck_assert_uint_eq(rig_granted(&other, 0, 101, 4, &id), 0);
	/* It comes back and ends its retrieve itself; its segments are sent anew. */
	wire_open(&again, rig.endpoint);
	again.hello.role = SCOUT_ROLE_WORKER;
	again.hello.token = token;
	ck_assert_int_eq(wire_hello(&again), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lease(&again), SCOUT_LEASE_OK);
	ck_assert_uint_eq(wire_generation(&again, &g.grants[0]), g.grants[0].generation);
	ck_assert_int_eq(wire_retrieve_done(&again, g.id, 0), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_granted(&other, 0, 101, 4, &id), 4);
	free(g.grants);
	wire_close(&again);
	wire_close(&other);
	wire_close(&rig.client);
	scout_server_stop(rig.server);
}
END_TEST

START_TEST(what_an_unsendable_answer_promised_is_taken_back)
{
	struct scout_server_config cfg = rig_config(4);
	struct scout__lookup_msg m = {.ticket = 9, .n = 4};
	struct wire_peer gone, watcher;
	struct rig rig;

	cfg.reply_delay_us = 100000;
	rig_up_with(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 4);
	wire_open(&watcher, rig.endpoint);
	wire_open(&gone, rig.endpoint);
	gone.hello.heartbeat_ms = 600000; /* silence will not end it */
	ck_assert_int_eq(wire_hello(&gone), SCOUT_WIRE_OK);
	(void)wire_add_lookup(&gone, &m, 1);
	wire_flush(&gone);
	ck_assert_int_eq(wire_ping(&gone), SCOUT_WIRE_OK);
	wire_close(&gone);
	wire_wait_status(&watcher, "replies.undone", 1);
	ck_assert_uint_eq(wire_status(&watcher, "l1.bytes_promised"), 0);
	ck_assert_uint_eq(wire_status(&watcher, "sessions"), 0);
	ck_assert_uint_eq(wire_status(&watcher, "peers"), 3);
	wire_close(&watcher);
	rig_down(&rig);
}
END_TEST

static uint64_t
refused_strangers(struct wire_peer *watcher)
{
	uint64_t n = wire_status(watcher, "refused.no_hello");

	return n == UINT64_MAX ? 0 : n; /* what has not happened is not listed */
}

START_TEST(a_peer_that_does_not_read_loses_what_it_was_not_told)
{
	enum {
		BATCH = 200,
		MOST = 20000
	};
	struct scout_server_config cfg = rig_config(4);
	struct wire_peer deaf, watcher;
	struct rig rig;
	uint64_t ticket = 0;
	uint64_t deadline_us = scout__now_us() + 20000000;
	uint32_t frames = 0;

	/* Few replies fit into its queue, so many of its lookups cannot be answered. */
	cfg.credits = 1;
	rig_up_with(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 4);
	wire_open(&watcher, rig.endpoint);
	wire_open_hwm(&deaf, rig.endpoint, 1);
	ck_assert_int_eq(wire_hello(&deaf), SCOUT_WIRE_OK);
	/* Answers as large as they get, until no buffer on the way takes any more: then its connection ends. */
	do {
		for (uint32_t i = 0; i < BATCH; i++) {
			(void)wire_begin(&deaf, SCOUT_OP_STATUS);
			(void)wire_end(&deaf);
			(void)wire_add_lookup(&deaf, &(struct scout__lookup_msg){.ticket = ++ticket, .n = 4}, 1);
			wire_flush(&deaf);
		}
		frames += BATCH;
		while (wire_status(&watcher, "ops.lookup") < frames && wire_status(&watcher, "peers.dropped") == 0)
			ck_assert_uint_lt(scout__now_us(), deadline_us);
	} while (wire_status(&watcher, "peers.dropped") == 0 && frames < MOST);
	ck_assert_uint_gt(wire_status(&watcher, "replies.undone"), 0);
	/*
	 * Exactly the sessions whose answers are on their way are left, once the loop has come to undo the others. What came later
	 * came over a new connection, which has not said HELLO.
	 */
	while (wire_status(&watcher, "sessions") + wire_status(&watcher, "replies.undone") +
		       refused_strangers(&watcher) !=
	       wire_status(&watcher, "ops.lookup"))
		ck_assert_uint_lt(scout__now_us(), deadline_us);
	wire_close(&deaf);
	wire_close(&watcher);
	rig_down(&rig);
}
END_TEST

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
	child->pid = fork();
	ck_assert_int_ge(child->pid, 0);
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

START_TEST(the_promises_of_a_killed_client_are_gone)
{
	struct child child;
	struct rig rig;
	uint64_t id;

	child_start(&child, act_promise);
	rig_up(&rig, 4);
	rig_store(&rig.worker, 0, 1, 4);
	child_act(&child, rig.endpoint);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 4 * SHARD_BYTES);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 101, 4, &id), 0);
	child_kill(&child);
	wire_wait_status(&rig.client, "l1.bytes_promised", 0);
	ck_assert_uint_eq(wire_status(&rig.client, "peers.died"), 1);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 101, 4, &id), 4);
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
	cfg.dead_writer_ms = 400;
	rig_up_with(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 2);
	rig_hit(&rig.client, 9, 1, 2);
	child_act(&child, rig.endpoint);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(wire_status(&rig.client, "holds"), 2);
	killed_us = scout__now_us();
	child_kill(&child);
	/* What it read is free at once; what it wrote is not, not even for the same keys. */
	wire_wait_status(&rig.client, "holds", 1);
	wire_wait_status(&rig.client, "quarantine", 1);
	ck_assert_int_eq(wire_store(&rig.worker, 0, 101, 4, &g), SCOUT_WIRE_OK);
	if (scout__now_us() - killed_us < 400000) {
		ck_assert_int_eq(g.grants[0].state, SCOUT_GRANT_PRESENT);
		ck_assert_int_eq(g.grants[1].state, SCOUT_GRANT_PRESENT);
		ck_assert_uint_eq(g.n_granted, 2); /* keys 1 and 2 made room */
	}
	ck_assert_uint_eq(rig_peek(&rig.client, 101, 2), 0);
	wire_wait_status(&rig.client, "quarantine", 0);
	ck_assert_uint_ge(scout__now_us() - killed_us, 400000);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 201, 4, &id), 2);
	free(g.grants);
	rig_down(&rig);
}
END_TEST

static void
act_serve(struct wire_peer *p, const char *endpoint)
{
	struct scout_server_config cfg = rig_config(4);
	struct scout_server *server;
	char err[256];

	(void)p;
	cfg.listen = endpoint;
	if (scout_server_start(&cfg, &server, err, sizeof(err)) != 0)
		_exit(1);
}

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

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("server_process");
	TCase *starting = tcase_create("start and stop");
	TCase *lease = tcase_create("lease");
	TCase *death = tcase_create("death");

	tcase_set_timeout(starting, 60);
	tcase_add_test(starting, start_and_stop_leave_nothing_behind);
	tcase_add_test(starting, a_second_server_is_refused_with_the_pid_of_the_first);
	tcase_add_test(starting, a_path_that_is_too_long_is_our_error);
	tcase_add_test(starting, a_folder_that_others_may_write_is_refused_and_named);
	tcase_add_test(starting, what_is_not_a_socket_is_not_removed);
	tcase_add_test(starting, a_pool_larger_than_the_memory_is_refused);
	tcase_add_test(starting, other_transports_and_bad_configurations_are_refused);
	tcase_add_test(starting, tcp_serves_with_the_port_of_the_kernel);
	tcase_add_test(starting, stop_with_running_operations_is_bounded);
	suite_add_tcase(suite, starting);
	tcase_set_timeout(lease, 60);
	tcase_add_test(lease, a_lease_of_an_unknown_token_is_refused);
	tcase_add_test(lease, garbage_on_the_lease_connection_ends_it);
	tcase_add_test(lease, goodbye_frees_sessions_and_holds_at_once);
	tcase_add_test(lease, a_living_process_keeps_its_holds_without_a_connection);
	tcase_add_test(lease, what_an_unsendable_answer_promised_is_taken_back);
	tcase_add_test(lease, a_peer_that_does_not_read_loses_what_it_was_not_told);
	suite_add_tcase(suite, lease);
	tcase_set_timeout(death, 60);
	tcase_add_test(death, the_promises_of_a_killed_client_are_gone);
	tcase_add_test(death, what_a_killed_worker_was_writing_is_set_aside_for_a_while);
	tcase_add_test(death, the_files_of_a_killed_server_are_taken_over);
	suite_add_tcase(suite, death);
	return suite;
}
