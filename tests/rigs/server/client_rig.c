/* SPDX-License-Identifier: Apache-2.0 */
#include "client_rig.h"

#include "assert_rc.h"

struct fake_server *fake;

struct scout_client *client;

uint8_t rig_hashes[RIG_MAX * RIG_HASH];

void
rig_client(const char *key, const char *value)
{
	struct scout_client_config cfg;
	char err[256] = "";

	scout_client_config_init(&cfg);
	cfg.endpoint = fake_endpoint(fake);
	/* A busy machine must not look like a silent server, nor its answers like old ones. */
	cfg.heartbeat_ms = 1000;
	cfg.lookup_timeout_ms = 60000;
	cfg.connect_timeout_ms = 60000;
	cfg.lookup_refresh_ms = SCOUT_NEVER;
	if (key)
		ck_assert_int_eq(scout_client_config_set(&cfg, key, value, err, sizeof(err)), 0);
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	scout_client_config_fini(&cfg);
}

void
rig_ready(void)
{
	char err[256] = "";
	int rc = scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err));

	ck_assert_msg(rc == 0, "%s: %s", scout_err_name(rc), err);
}

void
rig_reopen(const char *key, const char *value)
{
	scout_client_free(client);
	rig_client(key, value);
	rig_ready();
}

void
rig_up(void)
{
	for (size_t i = 0; i < sizeof(rig_hashes); i++)
		rig_hashes[i] = (uint8_t)(i * 31 + 7);
	fake = fake_start();
	rig_client(NULL, NULL);
	rig_ready();
}

void
rig_down(void)
{
	scout_client_free(client);
	client = NULL;
	fake_stop(fake);
}

void
rig_wait_gone(void)
{
	wait_until(rig_stats().servers_up == 0)
		;
}

void
rig_restart(void)
{
	uint64_t epochs = rig_stats().epochs;

	fake_unbind(fake);
	fake_bind(fake, true);
	wait_until(rig_stats().epochs != epochs)
		;
	rig_ready(); /* it is counted before it has been acted on */
}

struct scout_query
rig_question(const char *id, size_t n)
{
	return (struct scout_query){
		.id = id, .hashes = rig_hashes, .hash_len = RIG_HASH, .n = n, .prompt_tokens = n * RIG_CHUNK + 1};
}

struct scout_hit
rig_answer(const char *id, size_t n)
{
	struct scout_query q = rig_question(id, n);
	struct scout_hit hit;
	int fd = scout_client_fd(client), rc;

	ck_assert_int_ge(fd, 0);
	wait_until((rc = scout_try_lookup(client, &q, &hit)) != SCOUT_NOT_YET) {
		struct pollfd p = {.fd = fd, .events = POLLIN};

		(void)poll(&p, 1, 1000);
		scout_client_fd_clear(client);
	}
	assert_ok(rc);
	return hit;
}

struct scout_client_counters
rig_stats(void)
{
	struct scout_client_counters s = {0};

	assert_ok(scout_client_stats(client, &s));
	return s;
}
