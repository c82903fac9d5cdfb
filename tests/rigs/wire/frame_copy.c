/* SPDX-License-Identifier: Apache-2.0 */
#include "frame_copy.h"

struct frame
copy_of(const uint8_t *golden, size_t keep, size_t extra)
{
	struct frame f = {.bytes = calloc(keep + extra > 0 ? keep + extra : 1, 1), .len = keep + extra};

	ck_assert_ptr_nonnull(f.bytes);
	memcpy(f.bytes, golden, keep);
	return f;
}

void
set(struct frame *f, size_t offset, unsigned width, uint64_t value)
{
	ck_assert_uint_le(offset + width, f->len);
	for (unsigned i = 0; i < width; i++)
		f->bytes[offset + i] = (uint8_t)(value >> (8 * i));
}
