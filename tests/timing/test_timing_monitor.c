/* SPDX-License-Identifier: Apache-2.0 */
/* What the HTTP server promises in time: neither a loop that hangs nor slow clients hold anything up. */
#include "check_main.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "given_time.h"
#include "metrics_rig.h"
#include "waiting.h"

#define LATE_US UINT64_C(150000)
#define WAIT_US UINT64_C(100000)  /* a scrape waits so long for the loop */
#define STOP_US UINT64_C(1000000) /* the loop, its connections and their threads */

static struct page page;

/* The log callback of a host that hangs: the loop hangs in it. */
static struct {
	pthread_mutex_t mu;
	pthread_cond_t changed;
	bool holds, is_in; /* G:mu */
} hang = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false};

static void
hanging_log(void *user, int level, const char *text)
{
	(void)user;
	(void)level;
	if (!strstr(text, "not of this protocol"))
		return;
	(void)pthread_mutex_lock(&hang.mu);
	hang.is_in = true;
	(void)pthread_cond_broadcast(&hang.changed);
	while (hang.holds)
		(void)pthread_cond_wait(&hang.changed, &hang.mu);
	hang.is_in = false;
	(void)pthread_mutex_unlock(&hang.mu);
}

static void
hang_the_loop(struct wire_peer *p)
{
	hang.holds = true;
	wire_raw(p, "garbage", 7, false);
	(void)pthread_mutex_lock(&hang.mu);
	while (!hang.is_in)
		(void)pthread_cond_wait(&hang.changed, &hang.mu);
	(void)pthread_mutex_unlock(&hang.mu);
}

static void
let_go(void)
{
	(void)pthread_mutex_lock(&hang.mu);
	hang.holds = false;
	(void)pthread_cond_broadcast(&hang.changed);
	(void)pthread_mutex_unlock(&hang.mu);
}

static void
wait_health(const char *address, int status, const char *says)
{
	char body[256];

	wait_until(http_status(address, "/healthz", body, sizeof(body)) == status)
		;
	ck_assert_msg(strstr(body, says), "%s", body);
}

START_TEST(a_loop_that_hangs_is_not_healthy_and_its_last_values_are_shown)
{
	struct scout_server_config cfg = rig_config(8);
	struct given_time t;
	uint64_t hung_us;
	const char *address;
	struct rig rig;

	cfg.metrics = "127.0.0.1:0";
	cfg.log = hanging_log;
	rig_up_with(&rig, &cfg);
	address = metrics_address(rig.server);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 6), 6);
	page_wait(&page, address, "kvscout_l1_chunks", 6);
	wait_health(address, 200, "ok");
	hung_us = scout__now_us();
	hang_the_loop(&rig.client);
	/* Waited for in vain, once, and not long. */
	given_time_begin(&t);
	page_get(&page, address);
	given_time_within(&t, WAIT_US + LATE_US, "a scrape while the loop hangs");
	ck_assert(page_value(&page, "kvscout_l1_chunks") == 6);
	wait_health(address, 503, "the loop has not turned for");
	ck_assert_uint_ge(scout__now_us() - hung_us, SCOUT__METRICS_HUNG_US - 100000);
	page_get(&page, address);
	ck_assert(page_value(&page, "kvscout_up") == 0);
	ck_assert(page_value(&page, "kvscout_l1_chunks") == 6);
	ck_assert(page_value(&page, "kvscout_loop_heartbeat_age_seconds") >= 3);
	ck_assert(page_value(&page, "kvscout_snapshot_age_seconds") >= 3);
	let_go();
	wait_health(address, 200, "ok");
	page_wait(&page, address, "kvscout_up", 1);
	page_wait(&page, address, "kvscout_frames_dropped_total", 1);
	wait_until(page_value(&page, "kvscout_snapshot_age_seconds") < 3)
		page_get(&page, address);
	rig_down(&rig);
}
END_TEST

static int
open_slow(const char *address)
{
	int fd = http_connect(address);

	ck_assert_int_ge(fd, 0);
	http_send(fd, "GET /metrics HTTP/1.1\r\nX-Slow: ");
	return fd;
}

/* None of them ends its request. */
START_TEST(slow_clients_do_not_delay_a_lookup)
{
	enum {
		MANY = 200
	};
	struct given_time t;
	bool given = true;
	int fds[MANY];
	struct rig rig;

	metrics_up(&rig, 8);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 6), 6);
	for (unsigned i = 0; i < MANY; i++) {
		fds[i] = open_slow(metrics_address(rig.server));
		if (i % 8 || !given)
			continue;
		given_time_begin(&t);
		ck_assert_uint_eq(rig_peek(&rig.client, 1, 6), 6);
		given = given_time_within(&t, LATE_US, "a lookup beside slow HTTP clients");
	}
	for (unsigned i = 0; i < MANY; i++)
		ck_assert_int_eq(close(fds[i]), 0);
	rig_down(&rig);
}
END_TEST

START_TEST(stopping_with_open_connections_is_bounded)
{
	int fds[SCOUT__HTTP_CONNS];
	struct given_time t;
	struct rig rig;

	metrics_up(&rig, 8);
	for (unsigned i = 0; i < SCOUT__HTTP_CONNS; i++)
		fds[i] = open_slow(metrics_address(rig.server));
	http_send(fds[3], "\r\n\r\n");
	wire_close(&rig.client);
	wire_close(&rig.worker);
	given_time_begin(&t);
	scout_server_stop(rig.server);
	given_time_within(&t, STOP_US, "scout_server_stop() with open connections");
	for (unsigned i = 0; i < SCOUT__HTTP_CONNS; i++)
		ck_assert_int_eq(close(fds[i]), 0);
}
END_TEST
