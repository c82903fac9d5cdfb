/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "metrics_rig.h"
#include "server_l2_rig.h"
#include "waiting.h"
#include "own_use.h"

/* The HTTP server: its address, its answers, its health, and clients that are slow, many, or stay. */

static struct page page;

/* ---- the key ---- */

static const struct {
	const char *value;
	int code;
	const char *says;
} bad_values[] = {
	{"127.0.0.1", SCOUT_ERR_CONFIG_SYNTAX, "there is no port"},
	{"localhost:", SCOUT_ERR_CONFIG_SYNTAX, "there is no port"},
	{"[::1]", SCOUT_ERR_CONFIG_SYNTAX, "there is no port"},
	{"[::1]9570", SCOUT_ERR_CONFIG_SYNTAX, "there is no port"},
	{"[::1:9570", SCOUT_ERR_CONFIG_SYNTAX, "the bracket is not closed"},
	{"::1:9570", SCOUT_ERR_CONFIG_SYNTAX, "an IPv6 address goes in brackets"},
	{":9570", SCOUT_ERR_CONFIG_SYNTAX, "0.0.0.0 or [::] is all interfaces"},
	{"[]:9570", SCOUT_ERR_CONFIG_SYNTAX, "0.0.0.0 or [::] is all interfaces"},
	{"localhost:http", SCOUT_ERR_CONFIG_SYNTAX, "the port is not a number"},
	{"localhost:-1", SCOUT_ERR_CONFIG_SYNTAX, "the port is not a number"},
	{"localhost:0x10", SCOUT_ERR_CONFIG_SYNTAX, "must be HOST:PORT"},
	{"localhost:65536", SCOUT_ERR_CONFIG_RANGE, "0..65535"},
	{"localhost:99999999999999999999", SCOUT_ERR_CONFIG_RANGE, "0..65535"},
	{"999.999.999.999:0", SCOUT_ERR_CONFIG_SYNTAX, "the host is no address"},
	{"localhost:0", SCOUT_ERR_CONFIG_SYNTAX, "names are not looked up"},
	{"192.0.2.1:0", SCOUT_ERR_BIND, "no address of this machine"},
};

static struct rig rig;

static void
teardown(void)
{
	if (rig.server)
		rig_down(&rig);
}

CHECKED_FIXTURE(NULL, teardown);

START_LOOP_TEST(what_cannot_be_served_is_said_at_start, 0, (sizeof(bad_values) / sizeof(bad_values[0])))
{
	struct scout_server_config cfg = rig_config(8);
	struct scout_server *server = NULL;
	char err[512] = "";
	int rc;

	cfg.metrics = bad_values[_i].value;
	rc = scout_server_start(&cfg, &server, err, sizeof(err));
	ck_assert_msg(rc == bad_values[_i].code, "%s: %s: %s", cfg.metrics, scout_err_name(rc), err);
	ck_assert_ptr_null(server);
	ck_assert_msg(strstr(err, bad_values[_i].says) && strstr(err, "metrics = "), "%s", err);
}
END_TEST

START_TEST(a_port_in_use_is_refused_and_its_owner_not_disturbed)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout_server *server = NULL;
	char err[512] = "", body[64];

	metrics_up(&rig, 8);
	cfg.metrics = metrics_address(rig.server);
	ck_assert_int_eq(scout_server_start(&cfg, &server, err, sizeof(err)), SCOUT_ERR_BIND);
	ck_assert_msg(strstr(err, "another program listens there"), "%s", err);
	ck_assert_int_eq(http_status(cfg.metrics, "/healthz", body, sizeof(body)), 200);
}
END_TEST

static char log_text[8192];

static void
log_line(void *user, int level, const char *text)
{
	size_t len = strlen(log_text);

	(void)user;
	/* Only what start says: on this thread. */
	if (strstr(text, "metrics"))
		(void)snprintf(log_text + len, sizeof(log_text) - len, "%d %s\n", level, text);
}

START_TEST(the_log_says_where_and_warns_of_addresses_that_others_reach)
{
	static const struct {
		const char *value, *prefix;
		bool warns;
	} cases[] = {
		{"127.0.0.1:0", "http://127.0.0.1:", false},
		{"0.0.0.0:0", "http://0.0.0.0:", true},
	};
	struct scout_server_config cfg = rig_config(8);
	struct scout_server *server;
	char err[512] = "";

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		log_text[0] = '\0';
		cfg.metrics = cases[i].value;
		cfg.log = log_line;
		ck_assert_msg(scout_server_start(&cfg, &server, err, sizeof(err)) == 0, "%s", err);
		ck_assert_msg(strstr(log_text, cases[i].prefix) && strstr(log_text, metrics_address(server)), "%s",
			      log_text);
		ck_assert_msg((strstr(log_text, "plain HTTP") != NULL) == cases[i].warns, "%s", log_text);
		scout_server_stop(server);
	}
}
END_TEST

START_TEST(an_ipv6_address_is_served)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout_server *server = NULL;
	char err[512] = "";
	int rc;

	cfg.metrics = "[::1]:0";
	rc = scout_server_start(&cfg, &server, err, sizeof(err));
	if (rc == SCOUT_ERR_BIND)
		return; /* this machine has no IPv6 */
	ck_assert_msg(rc == 0, "%s", err);
	ck_assert_int_eq(strncmp(metrics_address(server), "[::1]:", 6), 0);
	scout_server_stop(server);
}
END_TEST

START_TEST(nothing_is_left_of_it)
{
	struct scout_server_config cfg = rig_config(8);
	char address[64];
	int fds, with;

	scout_server_stop(rig_start(&cfg));
	fds = count_fds();
	cfg.metrics = "127.0.0.1:0";
	for (unsigned i = 0; i < 3; i++) {
		struct scout_server *server = rig_start(&cfg);
		char body[64];

		(void)snprintf(address, sizeof(address), "%s", metrics_address(server));
		ck_assert_int_eq(http_status(address, "/healthz", body, sizeof(body)), 200);
		with = count_fds();
		ck_assert_int_lt(with, fds + 40);
		scout_server_stop(server);
	}
	/* libzmq closes its descriptors on a thread of its own. */
	wait_until(count_fds() <= fds)
		;
	ck_assert_int_eq(http_connect(address), -1);
}
END_TEST

/* A child that the host forks must not keep the port. */
/* Whether a server whose process has forked meanwhile leaves its port to the next one. */
static bool
port_is_free_after_a_fork(void)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout_server *server;
	char address[64], err[256];
	int status, ends[2], rc;
	pid_t child;

	cfg.metrics = "127.0.0.1:0";
	server = rig_start(&cfg);
	(void)snprintf(address, sizeof(address), "%s", metrics_address(server));
	ck_assert_int_eq(pipe(ends), 0);
	child = fork();
	if (child == 0) {
		char byte;

		(void)close(ends[1]);
		_exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
	}
	ck_assert_int_gt(child, 0);
	ck_assert_int_eq(close(ends[0]), 0);
	scout_server_stop(server);
	cfg.metrics = address;
	rc = scout_server_start(&cfg, &server, err, sizeof(err));
	if (rc == 0)
		scout_server_stop(server);
	else
		ck_assert_int_eq(rc, SCOUT_ERR_BIND);
	ck_assert_int_eq(close(ends[1]), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	return rc == 0;
}

/* The kernel may give the port to another program in between, but not each time. */
START_TEST(a_forked_child_does_not_keep_the_port)
{
	bool was_free = false;

	for (int i = 0; i < 5 && !was_free; i++)
		was_free = port_is_free_after_a_fork();
	ck_assert(was_free);
}
END_TEST

/* ---- answers ---- */

START_TEST(paths_and_methods)
{
	static const struct {
		const char *method, *path;
		int status;
		const char *header, *body; /* have these; body NULL: is empty */
	} cases[] = {
		{"GET", "/healthz", 200, "text/plain", "ok\n"},
		{"GET", "/metrics", 200, "text/plain; version=0.0.4; charset=utf-8", "kvscout_up 1\n"},
		{"GET", "/metrics?x=y", 200, "version=0.0.4", "kvscout_up 1\n"},
		{"GET", "/status", 200, "application/json", "\"status\": {"},
		{"HEAD", "/metrics", 200, "Content-Length: ", NULL},
		{"HEAD", "/healthz", 200, "Content-Length: 3", NULL},
		{"GET", "/", 404, "text/plain", "/metrics, /healthz and /status"},
		{"GET", "/metrics/", 404, "text/plain", "there are"},
		{"GET", "/../etc/passwd", 404, "text/plain", "there are"},
		{"POST", "/metrics", 405, "Allow: GET, HEAD", "only GET and HEAD"},
		{"DELETE", "/", 405, "Allow: GET, HEAD", "only"},
		{"OPTIONS", "/status", 405, "Allow: GET, HEAD", "only"},
	};
	struct http_answer a;

	metrics_up(&rig, 8);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		http_request(metrics_address(rig.server), cases[i].method, cases[i].path, &a);
		ck_assert_msg(a.status == cases[i].status, "%s %s: %d", cases[i].method, cases[i].path, a.status);
		ck_assert_msg(strstr(a.header, cases[i].header), "%s %s: %s", cases[i].method, cases[i].path, a.header);
		ck_assert_ptr_nonnull(strstr(a.header, "Connection: close"));
		if (cases[i].body)
			ck_assert_msg(strstr(a.body, cases[i].body), "%s", a.body);
		else
			ck_assert_uint_eq(a.len, 0);
		free(a.body);
	}
}
END_TEST

START_TEST(a_request_for_another_host_gets_nothing)
{
	char own[256] = "", text[512], hosts[3][300];
	const char *const strange[] = {"attacker.example", "attacker.example:80", "localhost.attacker.example",
				       "localhostile", ""};
	struct http_answer a;

	ck_assert_int_eq(gethostname(own, sizeof(own) - 1), 0);
	own[strcspn(own, ".")] = '\0';
	(void)snprintf(hosts[0], sizeof(hosts[0]), "%s", own);
	(void)snprintf(hosts[1], sizeof(hosts[1]), "%s.cluster.example:9570", own);
	(void)snprintf(hosts[2], sizeof(hosts[2]), "[::1]:9570");
	metrics_up(&rig, 8);
	for (size_t i = 0; i < 5 + 3; i++) {
		int fd = http_connect(metrics_address(rig.server));

		(void)snprintf(text, sizeof(text), "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n",
			       i < 5 ? strange[i] : hosts[i - 5]);
		http_send(fd, text);
		http_receive(fd, &a);
		ck_assert_msg(a.status == (i < 5 ? 421 : 200), "%s: %d", text, a.status);
		ck_assert_msg(i >= 5 || strstr(a.body, "the Host of this request is none of this server's names"), "%s",
			      a.body);
		free(a.body);
		ck_assert_int_eq(close(fd), 0);
	}
}
END_TEST

START_TEST(what_is_no_http_does_no_harm)
{
	static const char *const texts[] = {
		"\r\n\r\n",
		"GET\r\n\r\n",
		"nonsense\r\n\r\n",
		"GET / HTTP/9.9\r\n\r\n",
		"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\nabc",
		"GET /metrics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"};
	struct http_answer a;
	char big[40000], body[64];

	metrics_up(&rig, 8);
	for (size_t i = 0; i <= sizeof(texts) / sizeof(texts[0]); i++) {
		int fd = http_connect(metrics_address(rig.server));

		memset(big, 'x', sizeof(big));
		memcpy(big, "GET /metrics HTTP/1.1\r\nX: ", 26);
		big[sizeof(big) - 1] = '\0';
		http_send(fd, i < sizeof(texts) / sizeof(texts[0]) ? texts[i] : big);
		/* The server may have ended the connection already. */
		ck_assert(shutdown(fd, SHUT_WR) == 0 || errno == ENOTCONN);
		http_receive(fd, &a);
		free(a.body);
		ck_assert_int_eq(close(fd), 0);
		ck_assert_int_eq(http_status(metrics_address(rig.server), "/healthz", body, sizeof(body)), 200);
	}
}
END_TEST

/* ---- health ---- */

static void
wait_health(const char *address, int status, const char *says)
{
	char body[256];

	wait_until(http_status(address, "/healthz", body, sizeof(body)) == status)
		;
	ck_assert_msg(strstr(body, says), "%s", body);
}

static void *
stop_main(void *arg)
{
	scout_server_stop(arg);
	return NULL;
}

START_TEST(a_server_that_drains_is_not_healthy)
{
	struct l2_rig r = l2_rig_of(8);
	char address[64];
	pthread_t thread;

	r.cfg.metrics = "127.0.0.1:0";
	r.cfg.l2_timeout_ms = 60000;
	l2_up(&r);
	(void)snprintf(address, sizeof(address), "%s", metrics_address(r.rig.server));
	/* It waits for what is not written yet. */
	l2_memory_pause(r.m, SCOUT__L2_STORE);
	l2_store_in_pool(&r.rig.worker, 1, 4);
	l2_memory_wait(r.m, SCOUT__L2_STORE, 1);
	wait_health(address, 200, "ok");
	ck_assert_int_eq(pthread_create(&thread, NULL, stop_main, r.rig.server), 0);
	wait_health(address, 503, "draining");
	page_wait(&page, address, "kvscout_draining", 1);
	ck_assert(page_value(&page, "kvscout_up") == 0);
	l2_memory_resume(r.m, SCOUT__L2_STORE);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(http_connect(address), -1);
	wire_close(&r.rig.client);
	wire_close(&r.rig.worker);
}
END_TEST

/* ---- clients that are slow, many, or stay ---- */

static int
open_slow(const char *address)
{
	int fd = http_connect(address);

	ck_assert_int_ge(fd, 0);
	http_send(fd, "GET /metrics HTTP/1.1\r\nX-Slow: ");
	return fd;
}

static bool
has_ended(int fd)
{
	struct pollfd item = {.fd = fd, .events = POLLIN};
	char byte;

	return poll(&item, 1, 0) == 1 && recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

START_TEST(the_oldest_connection_makes_room_for_the_next)
{
	int fds[SCOUT__HTTP_CONNS];
	char body[64];

	metrics_up(&rig, 8);
	for (unsigned i = 0; i < SCOUT__HTTP_CONNS; i++)
		fds[i] = open_slow(metrics_address(rig.server));
	ck_assert_int_eq(http_status(metrics_address(rig.server), "/healthz", body, sizeof(body)), 200);
	wait_until(has_ended(fds[0]))
		;
	for (unsigned i = 1; i < SCOUT__HTTP_CONNS; i++)
		ck_assert_msg(!has_ended(fds[i]), "connection %u", i);
	for (unsigned i = 0; i < SCOUT__HTTP_CONNS; i++)
		ck_assert_int_eq(close(fds[i]), 0);
}
END_TEST

/* Many, and none of them ends its request. */
START_TEST(a_thousand_slow_clients_do_not_disturb_lookups)
{
	enum {
		MANY = 1000
	};
	struct rlimit limit;
	static int fds[MANY];
	char body[64];
	int before;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_uint_ge(limit.rlim_cur, MANY + 200);
	metrics_up(&rig, 8);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 6), 6);
	before = count_fds();
	for (unsigned i = 0; i < MANY; i++) {
		fds[i] = open_slow(metrics_address(rig.server));
		if (i % 8 == 0)
			ck_assert_uint_eq(rig_peek(&rig.client, 1, 6), 6);
	}
	ck_assert_int_eq(http_status(metrics_address(rig.server), "/healthz", body, sizeof(body)), 200);
	page_wait(&page, metrics_address(rig.server), "kvscout_lookups_total{result=\"full\"}", MANY / 8);
	/* Ours, and few of the server's. */
	ck_assert_int_le(count_fds(), before + MANY + (int)SCOUT__HTTP_DESCRIPTORS);
	for (unsigned i = 0; i < MANY; i++)
		ck_assert_int_eq(close(fds[i]), 0);
}
END_TEST

/* It asks and does not read. */
START_TEST(clients_that_do_not_read_do_not_hold_up_others)
{
	int fds[8], small = 1024;
	char body[64];

	metrics_up(&rig, 8);
	for (unsigned i = 0; i < 8; i++) {
		fds[i] = http_connect(metrics_address(rig.server));
		ck_assert_int_eq(setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
		http_send(fds[i], "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
	}
	ck_assert_int_eq(http_status(metrics_address(rig.server), "/healthz", body, sizeof(body)), 200);
	page_get(&page, metrics_address(rig.server));
	for (unsigned i = 0; i < 8; i++)
		ck_assert_int_eq(close(fds[i]), 0);
}
END_TEST
