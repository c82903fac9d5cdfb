/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checked_fork.h"
#include "server_rig.h"

/*
 * What live requests take of the server's memory: the server counts what it really has allocated, refuses at max_request_bytes,
 * and frees it when the peer goes. The server is a process of its own, whose resident memory the kernel tells. With KVSCOUT_LONG=1
 * there are 512 waiting lookups of the longest prompts, which take 5 GB.
 */

#define HASHES 262000u
#define HASH_BYTES 32u
#define WAIT_MS 600000u
#define FEW 12u
#define N_LOOKUPS (getenv("KVSCOUT_LONG") ? 512u : FEW)

struct child {
	pid_t pid;
	char endpoint[256];
	int stop_fd;
};

/* In the child: serve until the other end of @stop_fd is closed. */
static void
serve(uint64_t max_request_bytes, int ready_fd, int stop_fd)
{
	struct scout_server_config cfg = rig_config(16);
	struct scout_server *server;
	const char *endpoint;
	char byte;

	cfg.max_request_bytes = max_request_bytes;
	server = rig_start(&cfg);
	endpoint = scout_server_endpoint(server);
	ck_assert_int_eq(write(ready_fd, endpoint, strlen(endpoint) + 1), (ssize_t)strlen(endpoint) + 1);
	(void)!read(stop_fd, &byte, 1);
	scout_server_stop(server);
	_exit(0);
}

static void
child_up(struct child *child, uint64_t max_request_bytes)
{
	int ready[2], stop[2];

	ck_assert_int_eq(pipe(ready) | pipe(stop), 0);
	child->pid = checked_fork();
	if (child->pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)close(stop[1]);
		serve(max_request_bytes, ready[1], stop[0]);
	}
	(void)close(stop[0]);
	(void)close(ready[1]);
	ck_assert_int_gt(read(ready[0], child->endpoint, sizeof(child->endpoint)), 0);
	(void)close(ready[0]);
	child->stop_fd = stop[1];
}

static void
child_down(struct child *child)
{
	int status;

	(void)close(child->stop_fd);
	ck_assert(waitpid(child->pid, &status, 0) == child->pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static uint64_t
resident(const struct child *child)
{
	char path[64];
	uint64_t pages = 0;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/statm", (int)child->pid);
	file = fopen(path, "re");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fscanf(file, "%*u %" SCNu64, &pages), 1);
	(void)fclose(file);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void
peer_up(struct wire_peer *p, const struct child *child)
{
	wire_open(p, child->endpoint);
	p->hello.hash_bytes = HASH_BYTES;
	p->budget_us = WAIT_MS * 1000;
	assert_wire(wire_hello(p), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lease(p), SCOUT_LEASE_OK);
}

/* A lookup of @n keys that are not there, and may still come. */
static uint64_t
ask(struct wire_peer *p, uint64_t ticket, uint32_t n)
{
	const struct scout__lookup_msg m = {
		.ticket = ticket,
		.n = n,
		.skip = n - 1, /* its handles are written at once */
		.expect = n,
		.poll_timeout_ms = WAIT_MS,
		.poll_interval_ms = 1000,
	};
	uint64_t corr = wire_add_lookup(p, &m, ticket << 32);

	wire_flush(p);
	return corr;
}

/* What the server counts, and what it has more than at first, differ by less than a twentieth. */
static void
check_counted(const struct child *child, struct wire_peer *watcher, uint64_t at_first)
{
	uint64_t counted = wire_status(watcher, "requests.bytes");
	uint64_t real = resident(child) - at_first;

	(void)printf("# counted %" PRIu64 " bytes, resident %" PRIu64 "\n", counted, real);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	ck_assert_uint_le(real, counted + counted / 20);
	ck_assert_uint_ge(real, counted - counted / 20);
#endif
}

CASE_TIMEOUT(600);

START_TEST(waiting_lookups_are_counted_with_their_messages)
{
	struct wire_peer client, watcher;
	struct child child;
	uint64_t at_first;

	child_up(&child, UINT64_C(8) << 30);
	peer_up(&client, &child);
	peer_up(&watcher, &child);
	at_first = resident(&child);
	for (uint32_t i = 1; i <= N_LOOKUPS; i++) {
		(void)ask(&client, i, HASHES);
		wire_wait_status(&watcher, "ops.waiting", i);
	}
	check_counted(&child, &watcher, at_first);
	wire_lease_bye(&client); /* else silence has to tell */
	wire_close(&client);
	wire_wait_status(&watcher, "requests.bytes", 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	ck_assert_uint_le(resident(&child), at_first + HASHES * HASH_BYTES);
#endif
	wire_close(&watcher);
	child_down(&child);
}
END_TEST

/* One client takes all that it may, while it is alone; the others have what is left, and its place when it is gone. */
START_TEST(a_client_with_all_its_bytes_is_refused_and_others_are_not)
{
	struct wire_peer client, watcher, other;
	struct wire_reply *reply;
	struct child child;
	uint64_t corr, n = 0;

	child_up(&child, UINT64_C(64) << 20);
	peer_up(&client, &child);
	wire_open(&watcher, child.endpoint); /* without HELLO it is no peer */
	do {
		corr = ask(&client, ++n, HASHES);
		ck_assert_uint_lt(n, FEW);
		while (!wire_has(&client, corr) && wire_status(&watcher, "ops.waiting") < n)
			;
	} while (!wire_has(&client, corr));
	n--;
	reply = wire_wait(&client, corr);
	ck_assert_uint_eq(reply->status, SCOUT_WIRE_LIMIT);
	ck_assert_ptr_nonnull(strstr(client.text, "max_request_bytes = 67108864"));
	wire_reply_free(reply);
	ck_assert_uint_ge(n, 4);
	ck_assert_uint_le(wire_status(&watcher, "requests.bytes"), 48 << 20);
	wire_close(&watcher);
	peer_up(&other, &child);
	(void)ask(&other, 1000, HASHES / 2);
	wire_wait_status(&other, "ops.waiting", n + 1);
	wire_lease_bye(&client); /* else silence has to tell */
	wire_close(&client);
	wire_wait_status(&other, "ops.waiting", 1);
	(void)ask(&other, 1001, HASHES);
	wire_wait_status(&other, "ops.waiting", 2);
	wire_close(&other);
	child_down(&child);
}
END_TEST
