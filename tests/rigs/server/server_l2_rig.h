/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_SERVER_L2_RIG_H
#define KVSCOUT_TESTS_SERVER_L2_RIG_H

#include "l2_memory.h"
#include "server_rig.h"

/*
 * A server with a second tier in memory, one client and one worker. What is stored has bytes of its own for each key, so that
 * what comes back from the second tier can be compared.
 */

/* l2_timeout_ms where nothing is to be late, and where something is to be and all else must not. */
#define L2_PATIENT_MS 20000u
#define L2_LATE_MS 1000u

struct l2_rig {
	struct rig rig;
	struct scout_server_config cfg;
	struct l2_memory *m;
};

static inline struct l2_rig
l2_rig_of(uint32_t chunks)
{
	struct l2_rig r = {.cfg = rig_config(chunks), .m = l2_memory("a")};

	r.cfg.l2 = "memory://a";
	r.cfg.l2_timeout_ms = L2_PATIENT_MS;
	r.cfg.l2_queue_bytes = r.cfg.l1_bytes;
	return r;
}

static inline void
l2_up(struct l2_rig *r)
{
	rig_up_with(&r->rig, &r->cfg);
}

static inline void
l2_down(struct l2_rig *r)
{
	rig_down(&r->rig);
}

/* The pool is empty afterwards, the second tier is not. */
static inline void
l2_restart(struct l2_rig *r)
{
	l2_down(r);
	l2_up(r);
}

static inline void
l2_fill(uint8_t *slot, uint64_t key)
{
	for (uint32_t i = 0; i < SHARD_BYTES; i++)
		slot[i] = (uint8_t)(key * 131 + i * 7 + (i >> 8));
}

/* Store with bytes, commit; does not wait for the second tier. */
static inline void
l2_store_in_pool(struct wire_peer *p, uint64_t first_key, uint32_t n)
{
	struct wire_grants g;
	uint32_t readable;

	ck_assert_int_eq(wire_store(p, 0, first_key, n, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, n);
	for (uint32_t i = 0; i < n; i++)
		l2_fill(wire_slot(p, &g.grants[i]), first_key + i);
	ck_assert_int_eq(wire_store_done(p, g.id, n, n, &readable), SCOUT_WIRE_OK);
	free(g.grants);
}

static inline void
l2_store(struct wire_peer *p, uint64_t first_key, uint32_t n)
{
	l2_store_in_pool(p, first_key, n);
	wire_wait_status(p, "l2.writes.waiting", 0);
}

static inline void
l2_lookup(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n, uint32_t l1, uint32_t l2)
{
	struct scout__lookup_reply m;

	ck_assert_int_eq(wire_lookup(p, ticket, first_key, n, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.l1, l1);
	ck_assert_uint_eq(m.l2, l2);
	ck_assert_uint_eq(m.hit, l1 + l2);
}

/* Retrieve [from, to) of the session, whose key 0 is @first_key; compares all bytes; returns how many were granted. */
static inline uint32_t
l2_retrieve(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t from, uint32_t to)
{
	struct wire_grants g;
	uint32_t n;

	ck_assert_int_eq(wire_retrieve(p, ticket, from, to, &g), SCOUT_WIRE_OK);
	for (uint32_t i = 0; i < g.n; i++) {
		uint8_t expected[SHARD_BYTES];

		if (g.grants[i].state != SCOUT_GRANT_GRANTED)
			continue;
		l2_fill(expected, first_key + from + i);
		ck_assert_mem_eq(wire_slot(p, &g.grants[i]), expected, SHARD_BYTES);
		ck_assert_uint_eq(wire_generation(p, &g.grants[i]), g.grants[i].generation);
	}
	if (g.id)
		ck_assert_int_eq(wire_retrieve_done(p, g.id, 0), SCOUT_WIRE_OK);
	n = g.n_granted;
	free(g.grants);
	return n;
}

/* Nothing is promised, held, loading, waiting or pinned any more. */
static inline void
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
static inline void
l2_up_to_store(struct l2_rig *r)
{
	struct scout_server_config cfg = r->cfg;

	cfg.l2_timeout_ms = L2_PATIENT_MS;
	rig_up_with(&r->rig, &cfg);
}

/* A server whose second tier has the keys 1 to @n and whose pool is empty. */
static inline void
l2_up_with_keys(struct l2_rig *r, uint32_t n)
{
	l2_up_to_store(r);
	l2_store(&r->rig.worker, 1, n);
	l2_restart(r);
}

/* The same; they came one after the other, so that the first is the oldest. */
static inline void
l2_up_with_keys_in_order(struct l2_rig *r, uint32_t n)
{
	l2_up_to_store(r);
	for (uint64_t key = 1; key <= n; key++)
		l2_store(&r->rig.worker, key, 1);
	l2_restart(r);
}

/* The last session ends, and nothing is left of any. */
static inline void
l2_end(struct l2_rig *r, uint64_t ticket)
{
	rig_finish(&r->rig.client, ticket);
	l2_check_idle(r);
	l2_down(r);
}

#endif
