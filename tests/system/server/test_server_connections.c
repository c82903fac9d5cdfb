/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvscout/client.h>

#include "checked_fork.h"
#include "server_rig.h"

/* Connections that come faster than the server's loop reads of them, and a process that may have no more threads. */

#define A_TURN 256u          /* EVENTS_A_TURN in conns.c */
#define SOON (4 * A_TURN)    /* the question is found in one of the next turns */
#define MANY (SOON + A_TURN) /* of which libzmq lets 100 wait before it accepts them */

static pthread_barrier_t at_gate, gate;

static bool has_stopped;

/* The loop stands still in its first line about a connection that is refused, until the test opens the gate. (One line a second may come.) */
static void
stop_at_the_first(void *user, int level, const char *text)
{
	(void)user;
	if (level != SCOUT_LOG_WARN || !strstr(text, "a connection is refused") || has_stopped)
		return;
	has_stopped = true;
	(void)pthread_barrier_wait(&at_gate);
	(void)pthread_barrier_wait(&gate);
}

static int
stranger(const char *endpoint)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *path = endpoint + strlen("ipc://");
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_uint_lt(strlen(path), sizeof(address.sun_path));
	memcpy(address.sun_path, path, strlen(path) + 1);
	ck_assert_int_eq(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

/* The question lies in shared memory before the loop goes on: connections that it has not read of yet wait longer than the question does. */
START_TEST(many_at_once_do_not_keep_the_loop)
{
	struct scout_server_config cfg = rig_config(8);
	struct rlimit descriptors;
	uint64_t limit, corr;
	struct rig rig;
	int fds[MANY];

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &descriptors), 0);
	descriptors.rlim_cur = descriptors.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &descriptors), 0);
	cfg.max_peers = 2;
	cfg.log = stop_at_the_first;
	ck_assert_int_eq(pthread_barrier_init(&at_gate, NULL, 2), 0);
	ck_assert_int_eq(pthread_barrier_init(&gate, NULL, 2), 0);
	rig_up_with(&rig, &cfg);
	ck_assert_int_eq(wire_lease(&rig.client), SCOUT_LEASE_OK);
	ck_assert(wire_channel(&rig.client));
	limit = wire_status(&rig.client, "connections.limit") - wire_status(&rig.client, "connections");
	for (unsigned i = 0; i <= limit; i++)
		fds[i] = stranger(rig.endpoint);
	(void)pthread_barrier_wait(&at_gate);
	for (unsigned i = (unsigned)limit + 1; i < MANY; i++)
		fds[i] = stranger(rig.endpoint);
	corr = wire_ask_status(&rig.client);
	(void)pthread_barrier_wait(&gate);
	ck_assert_uint_le(wire_read_status(&rig.client, corr, "connections.refused"), SOON);
	wire_wait_status(&rig.client, "connections.refused", MANY - limit);
	for (unsigned i = 0; i < MANY; i++)
		(void)close(fds[i]);
	rig_down(&rig);
}
END_TEST

#define FLOOD 300u

/* Another process, with a connection that says nothing. Exits 0 if it is still open when the test says so. */
static pid_t
neighbour(int *ret_to, int *ret_from)
{
	char byte, endpoint[128] = "", bytes[256];
	int to[2], from[2], fd;
	ssize_t n;
	pid_t pid;

	ck_assert_int_eq(pipe(to), 0);
	ck_assert_int_eq(pipe(from), 0);
	pid = checked_fork();
	if (pid) {
		*ret_to = to[1];
		*ret_from = from[0];
		(void)close(to[0]);
		(void)close(from[1]);
		return pid;
	}
	(void)close(to[1]);
	if (read(to[0], endpoint, sizeof(endpoint) - 1) <= 0)
		_exit(1);
	fd = stranger(endpoint);
	if (write(from[1], "x", 1) != 1 || read(to[0], &byte, 1) != 1)
		_exit(1);
	while ((n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
		; /* the server's greeting */
	_exit(n == 0);
}

START_TEST(connections_without_HELLO_keep_no_peer_out)
{
	struct scout_server_config cfg = rig_config(8);
	int fds[FLOOD], to, from, status;
	struct wire_peer good;
	struct rig rig;
	uint64_t limit;
	char byte;
	pid_t pid = neighbour(&to, &from);

	cfg.max_peers = 16;
	rig_up_with(&rig, &cfg);
	ck_assert_int_eq(write(to, rig.endpoint, strlen(rig.endpoint)), (ssize_t)strlen(rig.endpoint));
	ck_assert_int_eq(read(from, &byte, 1), 1);
	limit = wire_status(&rig.client, "connections.limit");
	for (unsigned i = 0; i < FLOOD; i++)
		fds[i] = stranger(rig.endpoint);
	wire_wait_status(&rig.client, "connections.refused", FLOOD + 3 - limit);
	/* It gets in while all places are still taken, not when the flood has run out of time. */
	rig_client(&good, rig.endpoint);
	ck_assert_uint_eq(wire_status(&good, "connections.refused"), FLOOD + 4 - limit);
	wire_wait_status(&good, "connections", limit);
	/* The neighbour was there before the flood, and was silent for longer. */
	ck_assert_int_eq(write(to, "x", 1), 1);
	ck_assert(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	for (unsigned i = 0; i < FLOOD; i++)
		(void)close(fds[i]);
	wire_wait_status(&good, "connections", 3);
	wire_close(&good);
	rig_down(&rig);
}
END_TEST

/* ---- threads ---- */

#define CROWDED_UID 54321

/* Exits with 0 where server and client started, 1 where one refused and named the limit, else 2. */
static int
start_with(rlim_t n_threads_most)
{
	const struct rlimit limit = {n_threads_most, n_threads_most};
	struct scout_server_config cfg = rig_config(8);
	struct scout_client_config client_cfg;
	struct scout_server *server = NULL;
	struct scout_client *client = NULL;
	char err[512] = "";
	int rc;

	/* Root has no limit. No other process has this uid, so threads of the child are all that count. */
	if (getuid() == 0 && setresuid(CROWDED_UID, CROWDED_UID, CROWDED_UID) != 0)
		return 2;
	if (setrlimit(RLIMIT_NPROC, &limit) != 0)
		return 2;
	cfg.listen = "tcp://127.0.0.1:*";
	rc = scout_server_start(&cfg, &server, err, sizeof(err));
	scout_client_config_init(&client_cfg);
	client_cfg.endpoint = "tcp://127.0.0.1:1";
	if (rc == 0)
		rc = scout_client_new(&client_cfg, &client, err, sizeof(err));
	scout_client_free(client);
	scout_server_stop(server);
	return rc == 0 ? 0 : rc == SCOUT_ERR_SYSTEM && strstr(err, "the limits of threads") ? 1 : 2;
}

START_TEST(a_process_at_its_limit_of_threads_gets_an_error_and_no_abort)
{
	int ended = 1;
	rlim_t n = 1;

	for (; ended == 1 && n < 32; n++) {
		pid_t pid = fork();
		int status;

		if (pid == 0)
			_exit(start_with(n));
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_msg(WIFEXITED(status), "%d threads: signal %d", (int)n, WTERMSIG(status));
		ended = WEXITSTATUS(status);
		ck_assert_msg(ended != 2, "%d threads", (int)n);
		if (getuid() != 0)
			return; /* other processes of this user count, too: only the smallest limit is sure */
	}
	ck_assert_int_eq(ended, 0);
	ck_assert_uint_gt(n, 6);
}
END_TEST
