/* SPDX-License-Identifier: Apache-2.0 */
#include "client_rig.h"

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
	cfg.heartbeat_ms = 1000; /* a loaded machine must not look like a silent server */
	cfg.lookup_timeout_ms = 5000;
	cfg.connect_timeout_ms = 5000;
	if (key)
		ck_assert_int_eq(scout_client_config_set(&cfg, key, value, err, sizeof(err)), 0);
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	scout_client_config_fini(&cfg);
}

void
rig_ready(void)
{
	char err[256] = "";

	ck_assert_msg(scout_client_wait_ready(client, 10000, err, sizeof(err)) == 0, "%s", err);
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
	uint64_t end = scout__now_us() + 10000000;

	ck_assert_int_ge(fd, 0);
	while ((rc = scout_try_lookup(client, &q, &hit)) == SCOUT_NOT_YET) {
		struct pollfd p = {.fd = fd, .events = POLLIN};

		ck_assert_uint_lt(scout__now_us(), end);
		(void)poll(&p, 1, 1000);
		scout_client_fd_clear(client);
	}
	ck_assert_int_eq(rc, 0);
	return hit;
}

struct scout_client_counters
rig_stats(void)
{
	struct scout_client_counters s = {0};

	ck_assert_int_eq(scout_client_stats(client, &s), 0);
	return s;
}
