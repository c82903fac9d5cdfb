/* SPDX-License-Identifier: Apache-2.0 */
#include "breaker.h"

/*
 * DESIGN
 *
 * Purpose: to know whether one side of one adapter is worth trying (states in breaker.h). Owns struct scout__l2_switch.
 *
 * Failures are counted for each kind of operation: a folder whose catalogue answers EXISTS from memory would otherwise
 * hide that every LOAD fails.
 *
 * An operation that fails while the breaker is open was begun earlier and says nothing new. Only the trial closes the
 * breaker or opens it again, so that the late end of an old operation does not.
 *
 * The wait starts anew at its shortest only when the breaker stayed closed for at least as long as it was open: a store
 * that passes each trial and fails right after it is asked less and less often.
 *
 * Threads: the loop.
 */

void
scout__l2_switch_init(struct scout__l2_switch *sw, uint64_t seed)
{
	*sw = (struct scout__l2_switch){.state = SCOUT__L2_CLOSED, .random = seed | 1};
}

/* xorshift64: any spread will do, since it only keeps many servers apart. */
static uint64_t
next_random(struct scout__l2_switch *sw)
{
	sw->random ^= sw->random << 13;
	sw->random ^= sw->random >> 7;
	sw->random ^= sw->random << 17;
	return sw->random;
}

static void
open_for(struct scout__l2_switch *sw, uint64_t wait_us, uint64_t now_us)
{
	if (wait_us > SCOUT__L2_WAIT_MAX_US)
		wait_us = SCOUT__L2_WAIT_MAX_US;
	sw->state = SCOUT__L2_OPEN;
	sw->wait_us = wait_us;
	sw->retry_us = now_us + wait_us - next_random(sw) % (wait_us / 4 + 1);
}

void
scout__l2_switch_worked(struct scout__l2_switch *sw, uint8_t what)
{
	sw->failures[what] = 0;
}

void
scout__l2_switch_open(struct scout__l2_switch *sw, uint64_t now_us)
{
	SCOUT_ASSERT(sw->state == SCOUT__L2_CLOSED);
	open_for(sw, sw->wait_us && now_us < sw->closed_us + sw->wait_us ? 2 * sw->wait_us : SCOUT__L2_WAIT_MIN_US,
		 now_us);
}

void
scout__l2_switch_distrust(struct scout__l2_switch *sw, uint8_t what, uint64_t now_us)
{
	sw->failures[what] = SCOUT__L2_FAILURES - 1;
	sw->closed_us = now_us;
}

bool
scout__l2_switch_failed(struct scout__l2_switch *sw, uint8_t what, uint64_t now_us)
{
	if (sw->state != SCOUT__L2_CLOSED || ++sw->failures[what] < SCOUT__L2_FAILURES)
		return false;
	scout__l2_switch_open(sw, now_us);
	return true;
}

bool
scout__l2_switch_is_due(const struct scout__l2_switch *sw, uint64_t now_us)
{
	return sw->state == SCOUT__L2_OPEN && now_us >= sw->retry_us;
}

void
scout__l2_switch_begin(struct scout__l2_switch *sw)
{
	SCOUT_ASSERT(sw->state == SCOUT__L2_OPEN);
	sw->state = SCOUT__L2_HALF_OPEN;
}

void
scout__l2_switch_end(struct scout__l2_switch *sw, bool worked, uint64_t now_us)
{
	SCOUT_ASSERT(sw->state == SCOUT__L2_HALF_OPEN);
	if (!worked) {
		open_for(sw, 2 * sw->wait_us, now_us);
		return;
	}
	sw->state = SCOUT__L2_CLOSED;
	sw->closed_us = now_us;
	for (unsigned i = 0; i < sizeof(sw->failures); i++)
		sw->failures[i] = 0;
}
