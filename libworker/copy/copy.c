/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "copy.h"

/* What this build has. */
static const struct scout__copy_ops *const backends[] = {
	&scout__copy_host,
};

const struct scout__copy_ops *
scout__copy_find(const char *name)
{
	for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
		if (strcmp(backends[i]->name, name) == 0)
			return backends[i];
	}
	return NULL;
}

uint64_t
scout__copy_shard_bytes(const struct scout__copy_layout *layout)
{
	uint64_t per_block = 0, bytes;

	for (uint32_t i = 0; i < layout->n_planes; i++) {
		if (__builtin_add_overflow(per_block, layout->planes[i].block_bytes, &per_block))
			return 0;
	}
	if (__builtin_mul_overflow(per_block, (uint64_t)layout->blocks_per_chunk, &bytes))
		return 0;
	return bytes;
}
