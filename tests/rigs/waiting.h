/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/*
 * Wait until @condition holds; a body, if there is one, runs between two looks:
 *
 *   wait_until(fake_count(fake, SCOUT_OP_LOOKUP) == 2);
 *   wait_until((rc = scout_try_lookup(client, &q, &hit)) != SCOUT_NOT_YET) {
 *           (void)scout_step_wait(client, 1000);
 *   }
 *
 * The limit of a minute, multiplied by CK_TIMEOUT_MULTIPLIER, is there for what hangs. A test that judges how long something may take
 * uses given_time.h.
 */
#define wait_until(condition)                                                                                          \
	for (uint64_t wait_end_us_ = wait_begin(); !(condition);                                                       \
	     wait_turn(wait_end_us_, __FILE__, __LINE__, #condition))

/* When the wait that begins now has lasted too long. */
uint64_t wait_begin(void);
/* The same limit, for calls that take one: poll(), scout_client_wait_ready(). */
int wait_limit_ms(void);
/* Leave the CPU to the threads that are waited for, for 100 us; fail the test after @end_us. */
void wait_turn(uint64_t end_us, const char *file, int line, const char *condition);
