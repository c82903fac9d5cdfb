/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <kvscout/error.h>

/*
 * Structures of callers that were compiled against another version of the headers. Inline wrappers in the headers pass the
 * caller's sizeof, so that each structure of a call can grow at its end. One rule for all of them:
 *
 *   read by us     smaller than the first version: SCOUT_ERR_UNSUPPORTED. Smaller than ours: missing fields are 0. Larger: bytes
 *                  that we do not know must be 0, else SCOUT_ERR_UNSUPPORTED.
 *   written by us  smaller than the first version: SCOUT_ERR_UNSUPPORTED. Smaller than ours: only its own fields. Larger: the
 *                  rest becomes 0.
 *
 * The idea comes from xkbcommon (src/abi-check.h) and Linux's copy_struct_from_user(). Any thread, nothing blocks.
 */

#define SCOUT__SIZED_MAX 16384u /* the largest size of any structure: more is garbage */

/* The size of a structure up to and with @last, its last field in the first version. */
#define SCOUT__SIZE_UP_TO(type, last) (offsetof(type, last) + sizeof(((type *)NULL)->last))

/* Whether the caller's structure of @size bytes has a size that a version can have. */
static inline int
scout__sized_check(size_t first, size_t size)
{
	return size < first || size > SCOUT__SIZED_MAX ? SCOUT_ERR_UNSUPPORTED : 0;
}

/* Whether the caller's @theirs, @size bytes, has a byte set after the @known bytes of this version. */
static inline bool
scout__sized_has_unknown(const void *theirs, size_t size, size_t known)
{
	const uint8_t *bytes = theirs;

	for (size_t i = known; i < size; i++)
		if (bytes[i])
			return true;
	return false;
}

/* Fill @own, @own_size bytes, from the caller's @theirs, @size bytes. The structure's first version had @first bytes. */
static inline int
scout__sized_read(void *own, size_t own_size, size_t first, const void *theirs, size_t size)
{
	size_t n = size < own_size ? size : own_size;

	if (scout__sized_check(first, size) || scout__sized_has_unknown(theirs, size, own_size))
		return SCOUT_ERR_UNSUPPORTED;
	memcpy(own, theirs, n);
	memset((uint8_t *)own + n, 0, own_size - n);
	return 0;
}

/* Fill the caller's @theirs from @own; the size was checked. */
static inline void
scout__sized_write(void *theirs, size_t size, const void *own, size_t own_size)
{
	size_t n = size < own_size ? size : own_size;

	memcpy(theirs, own, n);
	memset((uint8_t *)theirs + n, 0, size - n);
}
