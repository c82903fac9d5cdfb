/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_SERVER_RIG_H
#define KVSCOUT_TESTS_SERVER_RIG_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/server.h>

#include "clock.h"
#include "wire_peer.h"

/*
 * A server in this process with a pool of SHARD_BYTES slots, and peers on a real socket. Everything is one test's: the server
 * starts in the test, after any fork, and what a test leaves open ends with its process. Set RIG_LOG=1 to see the log.
 */

#define SHARD_BYTES 4096u

/* The pool is one extent, so its size in chunks is exact. */
static inline struct scout_server_config
rig_config(uint32_t chunks)
{
	struct scout_server_config cfg;

	scout_server_config_init(&cfg);
	cfg.l1_bytes = (uint64_t)chunks * SHARD_BYTES;
	cfg.extent_bytes = cfg.l1_bytes;
	cfg.max_promised = cfg.l1_bytes;
	return cfg;
}

static inline void
rig_log(void *user, int level, const char *text)
{
	(void)user;
	(void)fprintf(stderr, "[%d] %s\n", level, text);
}

static inline struct scout_server *
rig_start(struct scout_server_config *cfg)
{
	struct scout_server *server = NULL;
	char err[512] = "";
	int rc;

	if (getenv("RIG_LOG"))
		cfg->log = rig_log;
	rc = scout_server_start(cfg, &server, err, sizeof(err));
	ck_assert_msg(rc == 0, "%s: %s", scout_err_name(rc), err);
	return server;
}

static inline void
rig_client(struct wire_peer *p, const char *endpoint)
{
	wire_open(p, endpoint);
	ck_assert_int_eq(wire_hello(p), SCOUT_WIRE_OK);
}

/* A peer of a namespace of @ranks * @readers, not registered. */
static inline void
rig_worker_unregistered(struct wire_peer *p, const char *endpoint, uint16_t ranks, uint16_t readers)
{
	wire_open(p, endpoint);
	p->hello.role = SCOUT_ROLE_WORKER;
	p->hello.rank_count = p->hello.kv_ranks = ranks;
	p->hello.readers = readers;
	ck_assert_int_eq(wire_hello(p), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lease(p), SCOUT_LEASE_OK);
}

static inline void
rig_worker(struct wire_peer *p, const char *endpoint)
{
	rig_worker_unregistered(p, endpoint, 1, 1);
	ck_assert_int_eq(wire_register(p, 0, 0, SHARD_BYTES), SCOUT_WIRE_OK);
}

/* Store and commit; the number that became readable. */
static inline uint32_t
rig_store(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n)
{
	struct wire_grants g;
	uint32_t readable = 0;

	ck_assert_int_eq(wire_store(p, ticket, first_key, n, &g), SCOUT_WIRE_OK);
	for (uint32_t i = 0; i < g.n; i++) {
		if (g.grants[i].state == SCOUT_GRANT_GRANTED)
			ck_assert_uint_eq(wire_generation(p, &g.grants[i]), g.grants[i].generation);
	}
	if (g.id)
		ck_assert_int_eq(wire_store_done(p, g.id, g.n_granted, g.n_granted, &readable), SCOUT_WIRE_OK);
	free(g.grants);
	return readable;
}

static inline uint32_t
rig_granted(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n, uint64_t *ret_id)
{
	struct wire_grants g;

	ck_assert_int_eq(wire_store(p, ticket, first_key, n, &g), SCOUT_WIRE_OK);
	free(g.grants);
	*ret_id = g.id;
	return g.n_granted;
}

/* The hit of @n keys, under a session of its own that stays open. */
static inline uint32_t
rig_hit(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n)
{
	struct scout__lookup_reply m;

	ck_assert_int_eq(wire_lookup(p, ticket, first_key, n, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, m.l1);
	ck_assert_uint_eq(m.l2, 0);
	return m.hit;
}

static inline void
rig_finish(struct wire_peer *p, uint64_t ticket)
{
	ck_assert_int_eq(wire_simple(p, SCOUT_OP_FINISH, ticket), SCOUT_WIRE_OK);
}

/* A look at the cache that leaves nothing behind but a touch of what it hit. */
static inline uint32_t
rig_peek(struct wire_peer *p, uint64_t first_key, uint32_t n)
{
	static uint64_t ticket = UINT64_C(1) << 40;
	uint32_t hit = rig_hit(p, ++ticket, first_key, n);

	rig_finish(p, ticket);
	return hit;
}

/* One server, one client, one worker: what most tests need. */
struct rig {
	struct scout_server *server;
	const char *endpoint;
	struct wire_peer client, worker;
};

static inline void
rig_up_with(struct rig *rig, struct scout_server_config *cfg)
{
	rig->server = rig_start(cfg);
	rig->endpoint = scout_server_endpoint(rig->server);
	rig_client(&rig->client, rig->endpoint);
	rig_worker(&rig->worker, rig->endpoint);
}

static inline void
rig_up(struct rig *rig, uint32_t chunks)
{
	struct scout_server_config cfg = rig_config(chunks);

	rig_up_with(rig, &cfg);
}

/* A pool of @chunks; keys 1 to @n are stored and, under ticket 9, promised to the client. */
static inline void
rig_up_promised(struct rig *rig, uint32_t chunks, uint32_t n)
{
	rig_up(rig, chunks);
	ck_assert_uint_eq(rig_store(&rig->worker, 0, 1, n), n);
	ck_assert_uint_eq(rig_hit(&rig->client, 9, 1, n), n);
}

static inline void
rig_down(struct rig *rig)
{
	wire_close(&rig->client);
	wire_close(&rig->worker);
	scout_server_stop(rig->server);
}

#endif
