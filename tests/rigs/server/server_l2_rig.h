/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "l2_memory.h"
#include "server_rig.h"

/*
 * A server with L2 in memory, one client and one worker. What is stored has bytes of its own for each key, so that
 * what comes back from L2 can be compared.
 */

/* l2_timeout_ms and l2_lookup_timeout_ms where nothing is to be late, and where something is to be and all else must not. */
#define L2_PATIENT_MS 20000u
#define L2_LATE_MS 1000u

struct l2_rig {
	struct rig rig;
	struct scout_server_config cfg;
	struct l2_memory *m;
};

struct l2_rig l2_rig_of(uint32_t chunks);
void l2_up(struct l2_rig *r);
void l2_down(struct l2_rig *r);

/* The pool is empty afterwards, L2 is not. */
void l2_restart(struct l2_rig *r);
void l2_fill(uint8_t *slot, uint64_t key);

/* Store with bytes, commit; does not wait for L2. */
void l2_store_of(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n);
void l2_store_in_pool(struct wire_peer *p, uint64_t first_key, uint32_t n);
void l2_store(struct wire_peer *p, uint64_t first_key, uint32_t n);
void l2_lookup(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n, uint32_t l1, uint32_t l2);

/* Retrieve [from, to) of the session, whose key 0 is @first_key; compares all bytes; returns how many were granted. */
uint32_t l2_retrieve(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t from, uint32_t to);

/* Nothing is promised, held, loading, waiting or pinned any more. */
void l2_check_idle(struct l2_rig *r);

/* A server whose L2 has the keys 1 to @n and whose pool is empty. */
void l2_up_with_keys(struct l2_rig *r, uint32_t n);

/* The same; they came one after the other, so that the first is the oldest. */
void l2_up_with_keys_in_order(struct l2_rig *r, uint32_t n);

/* The last session ends, and nothing is left of any. */
void l2_end(struct l2_rig *r, uint64_t ticket);
