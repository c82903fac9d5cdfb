/* SPDX-License-Identifier: Apache-2.0 */
#include "matrix_rig.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The server's own limits, reached: typed refusals, and everything goes on when there is room again. */

static void
up(struct matrix *m, const char *key, const char *value)
{
	matrix_patient(m);
	m->real.more[0] = key;
	m->real.more[1] = value;
	matrix_real(m);
	matrix_client(m);
	matrix_ready(m);
}

static void
sessions_full(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	up(m, "max_sessions", "3");
	matrix_hits(m, 3);
	matrix_ask(m, 2);
	matrix_answers(m);
	for (uint32_t i = 3; i < 5; i++) {
		assert_reason(m->requests[i].hit.reason, SCOUT_REASON_REFUSED);
		assert_rc(m->requests[i].hit.error, SCOUT_ERR_LIMIT);
	}
	ck_assert_uint_eq(fault_status(&m->real, "sessions"), 3);
	matrix_works(m, true);
	matrix_end(m);
}

/* What cannot be promised does not count. */
static void
promised_full(struct matrix *m, const struct matrix_row *row)
{
	struct fault_actor *other;
	struct fault_hit hit;

	(void)row;
	up(m, "max_promised", "8192"); /* two of the four chunks */
	matrix_ask(m, 1);
	matrix_answers(m);
	ck_assert_uint_eq(m->requests[0].hit.chunks, 2);
	assert_reason(m->requests[0].hit.reason, SCOUT_REASON_LIMITED);
	/* What is promised already costs nothing more; another prompt gets nothing. */
	assert_ok(fault_store(m->worker, 0, 2, 2).status);
	other = fault_scheduler(&m->real);
	hit = fault_lookup(other, "x", 2, 2);
	ck_assert_uint_eq(hit.chunks, 0);
	assert_reason(hit.reason, SCOUT_REASON_LIMITED);
	assert_ok(hit.error);
	ck_assert_uint_gt(fault_status(&m->real, "l1.promises_refused"), 0);
	matrix_finish(m);
	fault_wait(&m->real, "l1.bytes_promised", 0);
	ck_assert_uint_eq(fault_lookup(other, "y", 2, 2).chunks, 2);
	(void)fault_ask(other, "finish x");
	(void)fault_ask(other, "finish y");
	matrix_works(m, false);
	matrix_end(m);
}

/* The client's HELLO is refused until somebody leaves. */
static void
peers_full(struct matrix *m, const struct matrix_row *row)
{
	struct fault_actor *other;
	char err[256] = "";

	(void)row;
	m->real.more[0] = "max_peers";
	m->real.more[1] = "2";
	matrix_real(m); /* its worker is the first */
	other = fault_scheduler(&m->real);
	m->timeout_ms = 20000;
	matrix_client(m);
	wait_until(strstr(err, "max_peers = 2"))
		ck_assert_int_lt(scout_client_wait_ready(m->client, 100, err, sizeof(err)), 0);
	matrix_ask(m, 2);
	matrix_answers(m);
	matrix_all_failed(m, 0);
	for (uint32_t i = 0; i < 2; i++)
		assert_rc(m->requests[i].hit.error, SCOUT_ERR_LIMIT);
	(void)fault_ask(other, "client_close");
	matrix_works(m, true);
	matrix_end(m);
}

/* A client that says it knows of many credits sends as many as it was granted; a bare one sends more. */
static void
credits_exceeded(struct matrix *m, const struct matrix_row *row)
{
	struct wire_peer bare;
	uint64_t corr[6];
	unsigned refused = 0;

	(void)row;
	up(m, "credits", "4");
	fault_bare_client(&m->real, &bare);
	/* Unknown prompts whose keys may still come: they stay unanswered, and keep their credits. */
	for (uint32_t i = 0; i < 6; i++)
		corr[i] = fault_bare_lookup_begin(&bare, 1000 + i, 50 + i, 2, 1500);
	for (uint32_t i = 0; i < 6; i++) {
		struct wire_reply *reply = wire_wait(&bare, corr[i]);

		refused += reply->status == SCOUT_WIRE_LIMIT;
		ck_assert(reply->status == SCOUT_WIRE_LIMIT || reply->status == SCOUT_WIRE_OK);
		wire_reply_free(reply);
	}
	ck_assert_uint_eq(refused, 2);
	wire_lease_bye(&bare);
	wire_close(&bare);
	/* Ours keeps to what it was granted: 20 at once are served four by four. */
	matrix_ask(m, 20);
	matrix_answers(m);
	matrix_all_hit(m, 0);
	matrix_works(m, true);
	matrix_end(m);
}

/* ---- raw connections ---- */

#define RAW 400

static int
raw_connect(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	ck_assert_int_ge(fd, 0);
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	ck_assert_int_eq(errno, EAGAIN); /* its backlog is full */
	(void)close(fd);
	return -1;
}

static unsigned
raw_flood(struct matrix *m, int *fds)
{
	const char *path = m->real.endpoint + strlen("ipc://");
	unsigned n = 0;

	for (unsigned i = 0; i < RAW; i++) {
		fds[i] = raw_connect(path);
		n += fds[i] >= 0;
		if (fds[i] < 0)
			matrix_step(m);
	}
	return n;
}

/*
 * More connections than the server may have descriptors, several times over, that say nothing: it lives, those who were there
 * before notice nothing, and when they are gone others come in.
 */
static void
raw_connections(struct matrix *m, const struct matrix_row *row)
{
	uint64_t limit;
	int fds[RAW];

	(void)row;
	matrix_patient(m);
	m->real.nofile = 160;
	matrix_real(m);
	matrix_client(m);
	matrix_ready(m);
	fault_wait(&m->real, "connections", 3); /* worker, client and the one that asks */
	limit = fault_status(&m->real, "connections.limit");
	ck_assert_uint_lt(limit, 160 / 4);
	for (unsigned round = 0; round < 5; round++) {
		unsigned n = raw_flood(m, fds);

		ck_assert_uint_gt(n, 160);
		matrix_ask(m, 2);
		matrix_answers(m);
		wait_until(fault_status(&m->real, "connections") <= limit)
			;
		if (round == 4) /* those that say nothing make room after a while */
			(void)fault_ask(fault_scheduler(&m->real), "client_close");
		for (unsigned i = 0; i < RAW; i++)
			if (fds[i] >= 0)
				(void)close(fds[i]);
	}
	ck_assert_uint_gt(fault_status(&m->real, "connections.refused"), 160);
	fault_wait(&m->real, "connections", 3);
	matrix_all_hit(m, 0);
	ck_assert_uint_eq(matrix_stats(m).reconnects, 0);
	matrix_works(m, true);
	matrix_end(m);
}

const struct matrix_row matrix_limits_rows[] = {
	{.name = "server_max_sessions_reached", .run = sessions_full},
	{.name = "server_max_promised_reached", .run = promised_full},
	{.name = "server_max_peers_reached", .run = peers_full},
	{.name = "server_queue_of_a_peer_full", .run = credits_exceeded},
	{.name = "raw_connections_use_up_the_descriptors", .run = raw_connections},
	{.name = NULL},
};
