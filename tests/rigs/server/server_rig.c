/* SPDX-License-Identifier: Apache-2.0 */
#include "server_rig.h"

struct scout_server_config
rig_config(uint32_t chunks)
{
	struct scout_server_config cfg;

	scout_server_config_init(&cfg);
	cfg.l1_bytes = (uint64_t)chunks * SHARD_BYTES;
	cfg.extent_bytes = cfg.l1_bytes;
	cfg.max_promised = cfg.l1_bytes;
	return cfg;
}

void
rig_log(void *user, int level, const char *text)
{
	(void)user;
	(void)fprintf(stderr, "[%d] %s\n", level, text);
}

struct scout_server *
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

void
rig_client(struct wire_peer *p, const char *endpoint)
{
	wire_open(p, endpoint);
	assert_wire(wire_hello(p), SCOUT_WIRE_OK);
}

void
rig_worker_unregistered(struct wire_peer *p, const char *endpoint, uint16_t ranks, uint16_t readers)
{
	wire_open(p, endpoint);
	p->hello.role = SCOUT_ROLE_WORKER;
	p->hello.rank_count = p->hello.kv_ranks = ranks;
	p->hello.readers = readers;
	assert_wire(wire_hello(p), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lease(p), SCOUT_LEASE_OK);
}

void
rig_worker(struct wire_peer *p, const char *endpoint)
{
	rig_worker_unregistered(p, endpoint, 1, 1);
	assert_wire(wire_register(p, 0, 0, SHARD_BYTES), SCOUT_WIRE_OK);
}

uint32_t
rig_store(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n)
{
	struct wire_grants g;
	uint32_t readable = 0;

	assert_wire(wire_store(p, ticket, first_key, n, &g), SCOUT_WIRE_OK);
	for (uint32_t i = 0; i < g.n; i++) {
		if (g.grants[i].state == SCOUT_GRANT_GRANTED)
			ck_assert_uint_eq(wire_generation(p, &g.grants[i]), g.grants[i].generation);
	}
	if (g.id)
		assert_wire(wire_store_done(p, g.id, g.n_granted, g.n_granted, &readable), SCOUT_WIRE_OK);
	free(g.grants);
	return readable;
}

uint32_t
rig_granted(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n, uint64_t *ret_id)
{
	struct wire_grants g;

	assert_wire(wire_store(p, ticket, first_key, n, &g), SCOUT_WIRE_OK);
	free(g.grants);
	*ret_id = g.id;
	return g.n_granted;
}

uint32_t
rig_hit(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n)
{
	struct scout__lookup_reply m;

	assert_wire(wire_lookup(p, ticket, first_key, n, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, m.l1);
	ck_assert_uint_eq(m.l2, 0);
	return m.hit;
}

void
rig_finish(struct wire_peer *p, uint64_t ticket)
{
	assert_wire(wire_simple(p, SCOUT_OP_FINISH, ticket), SCOUT_WIRE_OK);
}

uint32_t
rig_peek(struct wire_peer *p, uint64_t first_key, uint32_t n)
{
	static uint64_t ticket = UINT64_C(1) << 40;
	uint32_t hit = rig_hit(p, ++ticket, first_key, n);

	rig_finish(p, ticket);
	return hit;
}

void
rig_up_with(struct rig *rig, struct scout_server_config *cfg)
{
	rig->server = rig_start(cfg);
	rig->endpoint = scout_server_endpoint(rig->server);
	rig_client(&rig->client, rig->endpoint);
	rig_worker(&rig->worker, rig->endpoint);
}

void
rig_up(struct rig *rig, uint32_t chunks)
{
	struct scout_server_config cfg = rig_config(chunks);

	rig_up_with(rig, &cfg);
}

void
rig_up_promised(struct rig *rig, uint32_t chunks, uint32_t n)
{
	rig_up(rig, chunks);
	ck_assert_uint_eq(rig_store(&rig->worker, 0, 1, n), n);
	ck_assert_uint_eq(rig_hit(&rig->client, 9, 1, n), n);
}

void
rig_down(struct rig *rig)
{
	wire_close(&rig->client);
	wire_close(&rig->worker);
	scout_server_stop(rig->server);
	rig->server = NULL;
}

uint64_t
rig_promised(struct rig *rig)
{
	return wire_status(&rig->client, "l1.bytes_promised") / SHARD_BYTES;
}
