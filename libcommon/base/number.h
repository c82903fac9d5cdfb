/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

static inline uint64_t
scout__min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t
scout__max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* A decimal number up to @max at *@text, which is moved past it. False: there is none. */
static inline bool
scout__take_number(const char **text, uint32_t max, uint32_t *ret_number)
{
	const char *at = *text;
	uint32_t number = 0;

	if (*at < '0' || *at > '9')
		return false;
	for (; *at >= '0' && *at <= '9'; at++) {
		number = number * 10 + (uint32_t)(*at - '0');
		if (number > max)
			return false;
	}
	*text = at;
	*ret_number = number;
	return true;
}
