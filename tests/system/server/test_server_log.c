/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>

#include "server_core.h"
#include "server_rig.h"

/* What the server's log tells its operator: which peer, what is wrong, what it has cost; and not too often. */

#define LINES 256

static struct {
	pthread_mutex_t mu;
	unsigned n;
	int level[LINES];
	char text[LINES][512];
} said = {.mu = PTHREAD_MUTEX_INITIALIZER};

static struct rig rig;

static void
teardown(void)
{
	if (rig.server)
		rig_down(&rig);
}

static void
listen(void *user, int level, const char *text)
{
	(void)user;
	(void)pthread_mutex_lock(&said.mu);
	if (said.n < LINES) {
		said.level[said.n] = level;
		(void)snprintf(said.text[said.n], sizeof(said.text[0]), "%s", text);
		said.n++;
	}
	(void)pthread_mutex_unlock(&said.mu);
}

/* How many lines of @level have @a and @b in them. */
static unsigned
heard(int level, const char *a, const char *b)
{
	unsigned n = 0;

	(void)pthread_mutex_lock(&said.mu);
	for (unsigned i = 0; i < said.n; i++)
		n += said.level[i] == level && strstr(said.text[i], a) && strstr(said.text[i], b);
	(void)pthread_mutex_unlock(&said.mu);
	return n;
}

static void
up_loud(struct scout_server_config *cfg)
{
	cfg->log = listen;
	rig_up_with(&rig, cfg);
}

CHECKED_FIXTURE(NULL, teardown);

START_TEST(a_limit_that_is_reached_is_a_warning_but_no_flood)
{
	struct scout_server_config cfg = rig_config(8);
	struct wire_peer third;
	uint64_t begin_us;
	unsigned n;

	cfg.max_peers = 2;
	cfg.max_sessions = 1;
	up_loud(&cfg);
	wire_open(&third, rig.endpoint);
	begin_us = scout__now_us();
	for (int i = 0; i < 50; i++)
		ck_assert_int_eq(wire_hello(&third), SCOUT_WIRE_LIMIT);
	n = heard(SCOUT_LOG_WARN, "a peer without HELLO", "max_peers = 2");
	ck_assert_uint_ge(n, 1);
	ck_assert_uint_le(n, 1 + (scout__now_us() - begin_us) / SCOUT__WARN_INTERVAL_US);
	ck_assert_uint_eq(heard(SCOUT_LOG_WARN, "refused", ""), n);
	wire_close(&third);
}
END_TEST

START_TEST(a_peer_with_another_configuration_is_a_warning)
{
	struct scout_server_config cfg = rig_config(8);
	struct wire_peer other;

	cfg.max_sessions = 1;
	up_loud(&cfg);
	wire_open(&other, rig.endpoint);
	other.hello.chunk_tokens = rig.client.hello.chunk_tokens * 2;
	ck_assert_int_eq(wire_hello(&other), SCOUT_WIRE_NAMESPACE);
	ck_assert_uint_eq(heard(SCOUT_LOG_WARN, "HELLO of a peer without HELLO refused (NAMESPACE)", "chunk_tokens"),
			  1);
	/* It does not hide a limit, and the peer is named. */
	(void)rig_hit(&rig.client, 5, 1, 1);
	ck_assert_int_eq(wire_lookup(&rig.client, 6, 1, 1, 0, NULL), SCOUT_WIRE_LIMIT);
	ck_assert_uint_eq(heard(SCOUT_LOG_WARN, "LOOKUP of client ", "max_sessions"), 1);
	/* What only the peer itself has done wrong is not for the operator. */
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_FINISH, 99), SCOUT_WIRE_NO_SESSION);
	ck_assert_uint_eq(heard(SCOUT_LOG_WARN, "FINISH", ""), 0);
	wire_close(&other);
}
END_TEST

START_TEST(what_a_namespace_made_anew_costs_is_told)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout_server *server;
	struct wire_peer worker, next, watcher;

	cfg.log = listen;
	server = rig_start(&cfg);
	wire_open(&watcher, scout_server_endpoint(server));
	rig_worker(&worker, scout_server_endpoint(server));
	ck_assert_uint_eq(rig_store(&worker, 0, 1, 4), 4);
	wire_lease_bye(&worker);
	wire_wait_status(&watcher, "peers", 0);
	wire_open(&next, scout_server_endpoint(server));
	next.hello.hash_bytes = 32;
	wait_until(wire_hello(&next) == SCOUT_WIRE_OK)
		;
	ck_assert_uint_eq(heard(SCOUT_LOG_WARN, "has hash_bytes = ", "4 chunks are dropped"), 1);
	wire_close(&next);
	wire_close(&worker);
	wire_close(&watcher);
	scout_server_stop(server);
	ck_assert_uint_eq(heard(SCOUT_LOG_INFO, "stopped", ""), 1);
	/* It never had a lease connection, so nobody knows its process. */
	ck_assert_uint_eq(heard(SCOUT_LOG_INFO, "(pid 0)", ""), 0);
}
END_TEST

/* kvscoutd drops debug lines behind the limit, so what they use up is lost for others. */
START_TEST(a_refused_lease_is_told_among_refusals_that_nobody_reads)
{
	struct scout_server_config cfg = rig_config(8);
	struct wire_peer stranger;

	up_loud(&cfg);
	ck_assert_int_eq(wire_simple(&rig.client, SCOUT_OP_FINISH, 99), SCOUT_WIRE_NO_SESSION);
	ck_assert_uint_eq(heard(SCOUT_LOG_DEBUG, "FINISH", "NO_SESSION"), 1);
	wire_open(&stranger, rig.endpoint);
	memcpy(stranger.lease_path, rig.client.lease_path, sizeof(stranger.lease_path));
	ck_assert_int_eq(wire_lease(&stranger), SCOUT_LEASE_GONE);
	ck_assert_uint_eq(heard(SCOUT_LOG_WARN, "lease connection of pid", "no HELLO with its token"), 1);
	wire_close(&stranger);
}
END_TEST

START_TEST(a_bad_frame_is_told_with_its_sender)
{
	struct scout_server_config cfg = rig_config(8);
	uint8_t frame[SCOUT_FRAME_HEADER_BYTES] = {'K', 'V', 'S', 'C', SCOUT_WIRE_VERSION};
	char who[64];

	up_loud(&cfg);
	(void)snprintf(who, sizeof(who), "client %016llx", (unsigned long long)rig.client.id);
	wire_raw(&rig.client, frame, sizeof(frame), false);
	wire_reply_free(wire_wait(&rig.client, 0));
	ck_assert_uint_eq(heard(SCOUT_LOG_WARN, who, "TOO_LARGE"), 1);
}
END_TEST

START_LOOP_TEST(which_limit_ends_the_pool_is_told_at_the_first_registration, 0, 2)
{
	const bool is_short = _i == 1;
	const char *what = is_short ? "descriptors (RLIMIT_NOFILE) end the pool first" : "l1_bytes ends the pool first";
	struct scout_server_config cfg = rig_config(4096);
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = 300;
	if (is_short)
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	/* A chunk in each memfd: that is what the user wants. */
	cfg.extent_bytes = is_short ? 4096 : 0;
	up_loud(&cfg);
	ck_assert_uint_eq(heard(is_short ? SCOUT_LOG_WARN : SCOUT_LOG_INFO, "namespace \"", what), 1);
}
END_TEST
