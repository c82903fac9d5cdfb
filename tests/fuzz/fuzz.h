/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An input for which this does not hold is a finding. */
#define MUST(condition)                                                                                                \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			(void)fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                \
			abort();                                                                                       \
		}                                                                                                      \
	} while (0)
