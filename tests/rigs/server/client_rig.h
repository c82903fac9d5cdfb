/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_CLIENT_RIG_H
#define KVSCOUT_TESTS_CLIENT_RIG_H

#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/client.h>
#include <kvscout/protocol.h>

#include "clock.h"
#include "fake_server.h"

/* A client on a scripted server, and helpers that the client's tests share. */

#define RIG_CHUNK 256u
#define RIG_HASH 32u
#define RIG_MAX 64u

static struct fake_server *fake;
static struct scout_client *client;
static uint8_t rig_hashes[RIG_MAX * RIG_HASH];

static inline void
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

static inline void
rig_ready(void)
{
	char err[256] = "";

	ck_assert_msg(scout_client_wait_ready(client, 10000, err, sizeof(err)) == 0, "%s", err);
}

/* Another client on the same server. */
static inline void
rig_reopen(const char *key, const char *value)
{
	scout_client_free(client);
	rig_client(key, value);
	rig_ready();
}

static inline void
rig_up(void)
{
	for (size_t i = 0; i < sizeof(rig_hashes); i++)
		rig_hashes[i] = (uint8_t)(i * 31 + 7);
	fake = fake_start();
	rig_client(NULL, NULL);
	rig_ready();
}

static inline void
rig_down(void)
{
	scout_client_free(client);
	client = NULL;
	fake_stop(fake);
}

static inline struct scout_lookup
rig_question(const char *id, size_t n)
{
	return (struct scout_lookup){
		.id = id, .hashes = rig_hashes, .hash_len = RIG_HASH, .n = n, .prompt_tokens = n * RIG_CHUNK + 1};
}

/* Ask until there is an answer; fails the test after 10 s. */
static inline struct scout_hit
rig_answer(const char *id, size_t n)
{
	struct scout_lookup q = rig_question(id, n);
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

static inline struct scout_client_stats
rig_stats(void)
{
	struct scout_client_stats s = {.size = sizeof(s)};

	ck_assert_int_eq(scout_client_stats(client, &s), 0);
	return s;
}

#endif
