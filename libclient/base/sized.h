/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_SIZED_H
#define SCOUT_SIZED_H

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
 * The idea is that of xkbcommon (src/abi-check.h) and of Linux's copy_struct_from_user(). Any thread, nothing blocks.
 */

#define SCOUT__SIZED_MAX 65536u /* of any structure: more is no size */

/* The size of a structure up to and with @last, its last field in the first version. */
#define SCOUT__SIZE_UP_TO(type, last) (offsetof(type, last) + sizeof(((type *)NULL)->last))

/* Fill @own, @own_size bytes, from the caller's @theirs, @size bytes, of which the first version had @first. */
static inline int
scout__sized_read(void *own, size_t own_size, size_t first, const void *theirs, size_t size)
{
	const uint8_t *bytes = theirs;

	if (size < first || size > SCOUT__SIZED_MAX)
		return SCOUT_ERR_UNSUPPORTED;
	for (size_t i = own_size; i < size; i++)
		if (bytes[i])
			return SCOUT_ERR_UNSUPPORTED;
	memset(own, 0, own_size);
	memcpy(own, theirs, size < own_size ? size : own_size);
	return 0;
}

/* Whether the caller's structure of @size bytes can be written at all. */
static inline int
scout__sized_check(size_t first, size_t size)
{
	return size < first || size > SCOUT__SIZED_MAX ? SCOUT_ERR_UNSUPPORTED : 0;
}

/* Fill the caller's @theirs from @own; the size was checked. */
static inline void
scout__sized_write(void *theirs, size_t size, const void *own, size_t own_size)
{
	memset(theirs, 0, size);
	memcpy(theirs, own, size < own_size ? size : own_size);
}

#endif
