/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/*
 * Memory for arrays that may be large (block.c). The caller remembers the size of each block. Any thread.
 */

/* As realloc(): @block has @old_bytes (0: NULL), @bytes is not 0. NULL: no memory, and @block stays as it is. */
void *scout__block_resize(void *block, size_t old_bytes, size_t bytes);
void scout__block_free(void *block, size_t bytes);
