/* SPDX-License-Identifier: Apache-2.0 */
#include "waiting.h"

#include <check.h>
#include <stdlib.h>
#include <time.h>

#include "clock.h"

#define WAIT_MAX_MS 55e3 /* below Check's own limit of a case, so that the message says what did not come */
#define TURN_NS 100000

int
wait_limit_ms(void)
{
	const char *multiplier = getenv("CK_TIMEOUT_MULTIPLIER");
	double n = multiplier ? strtod(multiplier, NULL) : 1;

	return (int)(WAIT_MAX_MS * (n > 1 ? n : 1));
}

uint64_t
wait_begin(void)
{
	return scout__now_us() + wait_limit_ms() * UINT64_C(1000);
}

void
wait_turn(uint64_t end_us, const char *file, int line, const char *condition)
{
	const struct timespec turn = {.tv_nsec = TURN_NS};

	if (scout__now_us() >= end_us)
		ck_abort_msg("%s:%d: this did not become true: %s", file, line, condition);
	(void)nanosleep(&turn, NULL);
}
