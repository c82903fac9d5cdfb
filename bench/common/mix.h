/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/* Reproducible numbers: all that the tools generate follows from a seed. */

#define MIX_STEP UINT64_C(0x9e3779b97f4a7c15)

/* A bijection of 64 bits in which every input bit reaches every output bit (the finaliser of SplitMix64). */
static inline uint64_t
mix64(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* The next number of the sequence whose state is @state. */
static inline uint64_t
mix_next(uint64_t *state)
{
	*state += MIX_STEP;
	return mix64(*state);
}

/* Uniform in low..high, both included, up to a bias of (high - low) / 2^64. */
static inline uint64_t
mix_range(uint64_t *state, uint64_t low, uint64_t high)
{
	return low + mix_next(state) % (high - low + 1);
}
