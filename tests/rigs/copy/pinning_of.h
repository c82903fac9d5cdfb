/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cuda_memory.h"

/* What the memory that @slot lies in is, now. */
static inline enum scout__cuda_pinning
pinning_of(struct scout__cuda_memory *memory, const void *slot)
{
	struct scout__cuda_found found = {.bytes = 0};

	scout__cuda_memory_find(memory, slot, &found);
	return found.state;
}
