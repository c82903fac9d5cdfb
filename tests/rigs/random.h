/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/* The next number of a sequence that is the same in each run: xorshift64. @state: not 0. */
static inline uint64_t
xorshift(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}
