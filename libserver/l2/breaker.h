/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "l2.h"

/*
 * Whether one side of one adapter is worth trying. Knows no operations and no clock, only what the caller tells it;
 * l2.h has the rules. Owned by the loop.
 *
 *   CLOSED ── SCOUT__L2_FAILURES of one kind in a row ──▶ OPEN ── due, then begin ──▶ HALF_OPEN ── end(true) ──▶ CLOSED
 *                                                          ▲───────── end(false): twice the wait ──────┘
 */

#define SCOUT__L2_WAIT_MIN_US UINT64_C(1000000)
#define SCOUT__L2_WAIT_MAX_US UINT64_C(30000000)

struct scout__l2_switch {
	enum scout__l2_breaker state;
	uint8_t failures[6]; /* in a row, by enum scout__l2_what */
	uint64_t wait_us;    /* the last wait; 0: it was never open */
	uint64_t retry_us;   /* OPEN: when a trial may begin */
	uint64_t closed_us;  /* CLOSED: since when */
	uint64_t random;
};

void scout__l2_switch_init(struct scout__l2_switch *sw, uint64_t seed);
/* An operation that was not a trial worked or failed. The second returns whether the failure opened the breaker. */
void scout__l2_switch_worked(struct scout__l2_switch *sw, uint8_t what);
bool scout__l2_switch_failed(struct scout__l2_switch *sw, uint8_t what, uint64_t now_us);
/* One more failure of this kind opens it, for twice as long as the last time: a trial worked, and nothing else yet. */
void scout__l2_switch_distrust(struct scout__l2_switch *sw, uint8_t what, uint64_t now_us);
/* The store hangs as a whole: open the breaker, which must be closed, at once. */
void scout__l2_switch_open(struct scout__l2_switch *sw, uint64_t now_us);
/* Whether a trial may begin. */
bool scout__l2_switch_is_due(const struct scout__l2_switch *sw, uint64_t now_us);
void scout__l2_switch_begin(struct scout__l2_switch *sw);
void scout__l2_switch_end(struct scout__l2_switch *sw, bool worked, uint64_t now_us);
