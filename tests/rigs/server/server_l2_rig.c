/* SPDX-License-Identifier: Apache-2.0 */
#include "server_l2_rig.h"

struct l2_rig
l2_rig_of(uint32_t chunks)
{
	struct l2_rig r = {.cfg = rig_config(chunks), .m = l2_memory("a")};

	r.cfg.l2 = "memory://a";
	r.cfg.l2_timeout_ms = L2_PATIENT_MS;
	r.cfg.l2_lookup_timeout_ms = L2_PATIENT_MS;
	r.cfg.l2_queue_bytes = r.cfg.l1_bytes;
	return r;
}

void
l2_up(struct l2_rig *r)
{
	rig_up_with(&r->rig, &r->cfg);
}

void
l2_down(struct l2_rig *r)
{
	rig_down(&r->rig);
}

void
l2_restart(struct l2_rig *r)
{
	l2_down(r);
	l2_up(r);
}

void
l2_fill(uint8_t *slot, uint64_t key)
{
	for (uint32_t i = 0; i < SHARD_BYTES; i++)
		slot[i] = (uint8_t)(key * 131 + i * 7 + (i >> 8));
}

void
l2_store_of(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n)
{
	struct wire_grants g;
	uint32_t readable;

	assert_wire(wire_store(p, ticket, first_key, n, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, n);
	for (uint32_t i = 0; i < n; i++)
		l2_fill(wire_slot(p, &g.grants[i]), first_key + i);
	assert_wire(wire_store_done(p, g.id, n, n, &readable), SCOUT_WIRE_OK);
	free(g.grants);
}

void
l2_store_in_pool(struct wire_peer *p, uint64_t first_key, uint32_t n)
{
	l2_store_of(p, 0, first_key, n);
}

void
l2_store(struct wire_peer *p, uint64_t first_key, uint32_t n)
{
	l2_store_in_pool(p, first_key, n);
	wire_wait_status(p, "l2.writes.waiting", 0);
}

void
l2_lookup(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n, uint32_t l1, uint32_t l2)
{
	struct scout__lookup_reply m;

	assert_wire(wire_lookup(p, ticket, first_key, n, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.l1, l1);
	ck_assert_uint_eq(m.l2, l2);
	ck_assert_uint_eq(m.hit, l1 + l2);
}

uint32_t
l2_retrieve(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t from, uint32_t to)
{
	struct wire_grants g;
	uint32_t n;

	assert_wire(wire_retrieve(p, ticket, from, to, &g), SCOUT_WIRE_OK);
	for (uint32_t i = 0; i < g.n; i++) {
		uint8_t expected[SHARD_BYTES];

		if (g.grants[i].state != SCOUT_GRANT_GRANTED)
			continue;
		l2_fill(expected, first_key + from + i);
		ck_assert_mem_eq(wire_slot(p, &g.grants[i]), expected, SHARD_BYTES);
		ck_assert_uint_eq(wire_generation(p, &g.grants[i]), g.grants[i].generation);
	}
	if (g.id)
		assert_wire(wire_retrieve_done(p, g.id, 0), SCOUT_WIRE_OK);
	n = g.n_granted;
	free(g.grants);
	return n;
}

void
l2_check_idle(struct l2_rig *r)
{
	wire_wait_status(&r->rig.client, "l1.bytes_promised", 0);
	wire_wait_status(&r->rig.client, "l1.bytes_held", 0);
	wire_wait_status(&r->rig.client, "holds", 0);
	wire_wait_status(&r->rig.client, "l2.loads.queued", 0);
	wire_wait_status(&r->rig.client, "l2.loads.running", 0);
	wire_wait_status(&r->rig.client, "l2.writes.waiting", 0);
	l2_memory_wait_unpinned(r->m);
}

/* A server that stores, however short the timeout of the one after it. */
static void
l2_up_to_store(struct l2_rig *r)
{
	struct scout_server_config cfg = r->cfg;

	cfg.l2_timeout_ms = L2_PATIENT_MS;
	rig_up_with(&r->rig, &cfg);
}

void
l2_up_with_keys(struct l2_rig *r, uint32_t n)
{
	l2_up_to_store(r);
	l2_store(&r->rig.worker, 1, n);
	l2_restart(r);
}

void
l2_up_with_keys_in_order(struct l2_rig *r, uint32_t n)
{
	l2_up_to_store(r);
	for (uint64_t key = 1; key <= n; key++)
		l2_store(&r->rig.worker, key, 1);
	l2_restart(r);
}

void
l2_end(struct l2_rig *r, uint64_t ticket)
{
	rig_finish(&r->rig.client, ticket);
	l2_check_idle(r);
	l2_down(r);
}
