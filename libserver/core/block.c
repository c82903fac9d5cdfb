/* SPDX-License-Identifier: Apache-2.0 */
#include "block.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/*
 * DESIGN
 *
 * The heap gives memory back to the system when the last block of a region is freed: then one free() of a few bytes may
 * unmap 64 MB, and the loop waits for that for milliseconds. A large block is a mapping of its own: freeing it costs its own
 * pages only, and the caller knows how many these are.
 */

#define MAP_BYTES ((size_t)1 << 20) /* blocks of this size and more are mappings */

static bool
is_mapping(size_t bytes)
{
	return bytes >= MAP_BYTES;
}

void
scout__block_free(void *block, size_t bytes)
{
	if (is_mapping(bytes))
		(void)munmap(block, bytes);
	else
		free(block);
}

void *
scout__block_resize(void *block, size_t old_bytes, size_t bytes)
{
	void *p;

	if (!is_mapping(old_bytes) && !is_mapping(bytes))
		return realloc(block, bytes);
	if (!is_mapping(bytes))
		p = malloc(bytes);
	else if (is_mapping(old_bytes))
		p = mremap(block, old_bytes, bytes, MREMAP_MAYMOVE);
	else
		p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!p || p == MAP_FAILED)
		return NULL;
	if (is_mapping(bytes) && is_mapping(old_bytes))
		return p;
	if (old_bytes)
		memcpy(p, block, old_bytes < bytes ? old_bytes : bytes);
	scout__block_free(block, old_bytes);
	return p;
}
