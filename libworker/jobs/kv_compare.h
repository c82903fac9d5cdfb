/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvscout/types.h>

/*
 * What counts as equal KV, by dtype: an engine's sums differ from batch to batch, so the same KV is not the same bytes. Both measures
 * of each plane and block must stay within their bounds. docs/verify.md says what was measured on both sides of them; docs/engines.md
 * has them, too.
 */
static const struct scout__kv_bounds {
	float norm;    /* of the difference, divided by the norm of the pages */
	float element; /* a number is off when it differs by more than this times the root mean square of the pages */
	float share;   /* of the numbers that are off */
} scout__kv_bounds[SCOUT_DTYPE_LAST + 1] = {
	[SCOUT_DTYPE_OPAQUE] = {0, 0, 0}, /* equal or not */
	[SCOUT_DTYPE_F16] = {0.02F, 0.1F, 0.02F},
	[SCOUT_DTYPE_BF16] = {0.05F, 0.25F, 0.02F},
	[SCOUT_DTYPE_F32] = {0.01F, 0.05F, 0.02F},
	[SCOUT_DTYPE_F8_E4M3] = {0.1F, 0.75F, 0.02F},
	[SCOUT_DTYPE_F8_E5M2] = {0.1F, 0.75F, 0.02F},
	[SCOUT_DTYPE_I8] = {0.1F, 0.75F, 0.02F},
};

struct scout__kv_measure {
	float norm_error, share; /* as in struct scout_verified */
	bool differs;
};

/*
 * Compare @bytes of numbers of @dtype (SCOUT_DTYPE_*; one that is not known, or does not divide @bytes, is opaque). Any thread;
 * computes for about a millisecond per 2 MiB.
 */
struct scout__kv_measure scout__kv_compare(uint32_t dtype, const uint8_t *pages, const uint8_t *slot, size_t bytes);
