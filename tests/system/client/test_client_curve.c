/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <kvscout/client.h>
#include <kvscout/server.h>
#include <kvscout/worker.h>

#include "assert_rc.h"
#include "check_main.h"
#include "clock.h"
#include "waiting.h"

/* Who gets in with CURVE, and what the others are told: real server, real client, tcp on loopback. */

#define KEY 41

struct side {
	char public[KEY], secret[KEY];
	char file[128]; /* of the secret key */
};

static char folder[64], clients_file[128];
static struct side server_keys, client_keys, stranger_keys;
static struct scout_server *server;
static struct scout_client *client;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static char server_log[16384]; /* G:mu */

static void
log_line(void *user, int level, const char *text)
{
	size_t len;

	(void)user;
	if (level > SCOUT_LOG_WARN)
		return;
	(void)pthread_mutex_lock(&mu);
	len = strlen(server_log);
	(void)snprintf(server_log + len, sizeof(server_log) - len, "%s\n", text);
	(void)pthread_mutex_unlock(&mu);
}

static bool
was_logged(const char *text)
{
	bool found;

	(void)pthread_mutex_lock(&mu);
	found = strstr(server_log, text) != NULL;
	(void)pthread_mutex_unlock(&mu);
	return found;
}

static void
write_file(const char *path, const char *text, mode_t mode)
{
	FILE *file = fopen(path, "we");

	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(chmod(path, mode), 0);
}

static void
make_side(struct side *side, const char *name)
{
	ck_assert_int_eq(zmq_curve_keypair(side->public, side->secret), 0);
	(void)snprintf(side->file, sizeof(side->file), "%s/%s", folder, name);
	write_file(side->file, side->secret, 0600);
}

static void
setup(void)
{
	char text[256];

	(void)snprintf(folder, sizeof(folder), "/tmp/kvscout-curve-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	make_side(&server_keys, "server");
	make_side(&client_keys, "client");
	make_side(&stranger_keys, "stranger");
	(void)snprintf(clients_file, sizeof(clients_file), "%s/clients", folder);
	(void)snprintf(text, sizeof(text), "# who may connect\n\n%s the scheduler\n", client_keys.public);
	write_file(clients_file, text, 0644);
}

static void
teardown(void)
{
	char path[160];
	static const char *const names[] = {"server", "client", "stranger", "clients", "other"};

	scout_client_free(client);
	scout_server_stop(server);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		(void)unlink(path);
	}
	ck_assert_int_eq(rmdir(folder), 0);
}

static int
try_server(const char *listen, const char *secret_file, const char *clients, char *err, size_t len)
{
	struct scout_server_config cfg;
	int rc;

	scout_server_config_init(&cfg);
	cfg.listen = listen;
	cfg.l1_bytes = 1 << 20;
	cfg.curve_secret_file = secret_file;
	cfg.curve_clients_file = clients;
	cfg.log = log_line;
	rc = scout_server_start(&cfg, &server, err, len);
	scout_server_config_fini(&cfg);
	return rc;
}

static void
start_server(bool has_keys)
{
	char err[256] = "";

	ck_assert_msg(try_server("tcp://127.0.0.1:*", has_keys ? server_keys.file : NULL,
				 has_keys ? clients_file : NULL, err, sizeof(err)) == 0,
		      "%s", err);
}

static int
try_client(const char *secret_file, const char *server_key, char *err, size_t len)
{
	struct scout_client_config cfg;
	int rc;

	scout_client_config_init(&cfg);
	cfg.endpoint = scout_server_endpoint(server);
	cfg.curve_secret_file = secret_file;
	cfg.curve_server_key = server_key;
	cfg.connect_timeout_ms = 1500;
	cfg.lookup_timeout_ms = 60000;
	rc = scout_client_new(&cfg, &client, err, len);
	scout_client_config_fini(&cfg);
	return rc;
}

/* Connect; how it ended. */
static int
connect_as(const struct side *side, const char *server_key, char *err, size_t len)
{
	ck_assert_msg(try_client(side ? side->file : NULL, server_key, err, len) == 0, "%s", err);
	return scout_client_wait_ready(client, wait_limit_ms(), err, len);
}

/*
 * Refused, and told why. libzmq's server hangs up when it finds that the client's greeting is not for it, and drops the rest of its own: on a
 * busy machine the client may not have read what the server wants.
 */
static void
expect_refusal(const struct side *side, const char *server_key, const char *why)
{
	char err[512] = "";
	int rc = SCOUT_ERR_TIMEOUT;

	ck_assert_msg(try_client(side ? side->file : NULL, server_key, err, sizeof(err)) == 0, "%s", err);
	wait_until(rc != SCOUT_ERR_TIMEOUT || strstr(err, "within connect_timeout_ms"))
		rc = scout_client_wait_ready(client, 50, err, sizeof(err));
	if (rc == SCOUT_ERR_TIMEOUT) {
		(void)dprintf(STDOUT_FILENO, "# SKIP the server hung up before its greeting was read: %s\n", err);
		return;
	}
	assert_rc(rc, SCOUT_ERR_PERMISSION);
	ck_assert_msg(strstr(err, why), "%s", err);
}

static struct scout_hit
ask(void)
{
	static uint8_t hashes[64];
	struct scout_query q = {.id = "r", .hashes = hashes, .hash_len = 32, .n = 2, .prompt_tokens = 513};
	struct scout_hit hit;

	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	return hit;
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(a_client_on_the_list_is_served)
{
	char err[256] = "";

	start_server(true);
	ck_assert_msg(connect_as(&client_keys, server_keys.public, err, sizeof(err)) == 0, "%s", err);
	ck_assert_int_eq(ask().reason, SCOUT_REASON_MISS);
}
END_TEST

START_TEST(a_key_that_is_not_on_the_list_is_a_typed_logged_error)
{
	char err[256] = "";

	start_server(true);
	assert_rc(connect_as(&stranger_keys, server_keys.public, err, sizeof(err)), SCOUT_ERR_PERMISSION);
	ck_assert_ptr_nonnull(strstr(err, "its curve_clients_file must list the public key"));
	ck_assert_int_eq(ask().error, SCOUT_ERR_PERMISSION);
	ck_assert_int_eq(ask().reason, SCOUT_REASON_REFUSED);
	wait_until(was_logged(stranger_keys.public)) /* by its public key, so that it can be added */
		;
	ck_assert(!was_logged(stranger_keys.secret));
}
END_TEST

START_TEST(a_client_without_keys_is_told_that_it_needs_some)
{
	start_server(true);
	expect_refusal(NULL, NULL, "set curve_secret_file and curve_server_key");
}
END_TEST

START_TEST(a_client_with_keys_does_not_speak_in_the_clear)
{
	start_server(false);
	expect_refusal(&client_keys, server_keys.public, "the server has no CURVE keys");
}
END_TEST

/* It cannot read what was encrypted for another, so it cannot say so: the text has the hint. */
START_TEST(another_servers_key_is_no_connection_with_a_hint)
{
	char err[256] = "";
	int rc;

	start_server(true);
	ck_assert_int_eq(try_client(client_keys.file, stranger_keys.public, err, sizeof(err)), 0);
	ck_assert_int_eq(ask().error, SCOUT_ERR_UNREACHABLE);
	rc = scout_client_wait_ready(client, 200, err, sizeof(err));
	ck_assert_int_lt(rc, 0);
	ck_assert_msg(strstr(err, "curve_server_key") != NULL, "%s", err);
}
END_TEST

/* A worker needs a key of the list, too. */
START_TEST(a_worker_on_the_list_comes_in)
{
	static uint8_t memory[16 * 64];
	struct scout_plane plane = {.base = memory, .stride = 64, .block_bytes = 64};
	struct scout_table layout = {
		.null_block = -1, .planes = &plane, .n_planes = 1, .block_tokens = 16, .n_blocks = 16};
	struct scout_worker_config cfg;
	struct scout_worker *worker;
	char err[256] = "";

	start_server(true);
	for (int i = 0; i < 2; i++) {
		scout_worker_config_init(&cfg);
		cfg.endpoint = scout_server_endpoint(server);
		cfg.chunk_tokens = 64;
		cfg.curve_secret_file = i ? stranger_keys.file : client_keys.file;
		cfg.curve_server_key = server_keys.public;
		ck_assert_msg(scout_worker_new(&cfg, &worker, err, sizeof(err)) == 0, "%s", err);
		ck_assert_int_eq(scout_worker_register(worker, &layout, 1, wait_limit_ms(), err, sizeof(err)),
				 i ? SCOUT_ERR_PERMISSION : 0);
		scout_worker_free(worker);
		scout_worker_config_fini(&cfg);
	}
}
END_TEST

START_TEST(bad_key_files_are_named)
{
	char err[256] = "", other[128], text[256];
	const struct {
		const char *text;
		mode_t mode;
		int rc;
		const char *why;
	} bad[] = {
		{server_keys.secret, 0644, SCOUT_ERR_PERMISSION, "chmod 600"},
		{"", 0600, SCOUT_ERR_FORMAT, "40 characters"},
		{"short\n", 0600, SCOUT_ERR_FORMAT, "line 1"},
		{"# none\n\n\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\n", 0600,
		 SCOUT_ERR_FORMAT, "line 3"},
		{text, 0600, SCOUT_ERR_FORMAT, "one secret key"},
	};

	(void)snprintf(text, sizeof(text), "%s\n%s\n", server_keys.secret, client_keys.secret);
	(void)snprintf(other, sizeof(other), "%s/other", folder);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		write_file(other, bad[i].text, bad[i].mode);
		ck_assert_int_eq(try_server("tcp://127.0.0.1:*", other, clients_file, err, sizeof(err)), bad[i].rc);
		ck_assert_msg(strstr(err, bad[i].why) && strstr(err, other), "%s", err);
		ck_assert_ptr_null(strstr(err, server_keys.secret));
	}
	ck_assert_int_eq(unlink(other), 0);
	ck_assert_int_eq(try_server("tcp://127.0.0.1:*", other, clients_file, err, sizeof(err)), SCOUT_ERR_FORMAT);
	ck_assert_int_eq(try_server("tcp://127.0.0.1:*", server_keys.file, NULL, err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(err, "curve_clients_file"));
	ck_assert_int_eq(try_server("tcp://127.0.0.1:*", NULL, clients_file, err, sizeof(err)), SCOUT_ERR_INVALID);
	write_file(other, "not a key\n", 0644);
	ck_assert_int_eq(try_server("tcp://127.0.0.1:*", server_keys.file, other, err, sizeof(err)), SCOUT_ERR_FORMAT);
	ck_assert_ptr_nonnull(strstr(err, "line 1"));
	ck_assert_int_eq(try_server("tcp://127.0.0.1:*", server_keys.file, "/dev/zero", err, sizeof(err)),
			 SCOUT_ERR_FORMAT);
	ck_assert_ptr_nonnull(strstr(err, "must be a regular file"));
	start_server(true);
	ck_assert_int_eq(try_client(client_keys.file, NULL, err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_int_eq(try_client(NULL, server_keys.public, err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_int_ne(try_client(client_keys.file, "short", err, sizeof(err)), 0);
	ck_assert_int_eq(try_client(other, server_keys.public, err, sizeof(err)), SCOUT_ERR_PERMISSION);
}
END_TEST

START_TEST(an_open_endpoint_without_keys_is_warned_of)
{
	char err[256] = "";
	static const struct {
		const char *listen;
		bool has_keys, warns;
	} cases[] = {{"tcp://127.0.0.1:*", false, false},
		     {"tcp://0.0.0.0:*", true, false},
		     {"tcp://0.0.0.0:*", false, true}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ck_assert_msg(try_server(cases[i].listen, cases[i].has_keys ? server_keys.file : NULL,
					 cases[i].has_keys ? clients_file : NULL, err, sizeof(err)) == 0,
			      "%s", err);
		ck_assert_int_eq(was_logged("can be reached from other machines and has no keys"), cases[i].warns);
		scout_server_stop(server);
		server = NULL;
	}
}
END_TEST
