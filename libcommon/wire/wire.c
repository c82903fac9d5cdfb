/* SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"

#include <stdlib.h>

/*
 * DESIGN
 *
 * The parts of the cursors that are not worth inlining. All bounds are compared by subtraction from what is left, so
 * no length that a peer sends can overflow. Numbers are moved by memcpy() and the <endian.h> macros: one instruction
 * each, at any alignment, also in builds without optimisation. Threads: none; a cursor belongs to its caller.
 */

enum {
	STR_MAX = 65535
};

const char *
scout__get_str(struct scout__reader *r, uint16_t *ret_len)
{
	uint16_t len = scout__get_u16(r);
	const uint8_t *p = scout__get_bytes(r, len);

	*ret_len = p ? len : 0;
	return (const char *)p;
}

void
scout__put_bytes(struct scout__writer *w, const void *p, size_t len)
{
	uint8_t *at = len > 0 ? scout__writer_take(w, len) : NULL;

	if (at)
		memcpy(at, p, len);
}

void
scout__put_str(struct scout__writer *w, const char *s, size_t len)
{
	if (len > STR_MAX) {
		len = STR_MAX;
		/* At most three continuation bytes belong to one character; if there are more, the text is no UTF-8, and is cut as it is. */
		for (int i = 0; i < 3 && ((unsigned char)s[len] & 0xc0) == 0x80; i++)
			len--;
	}
	scout__put_u16(w, (uint16_t)len);
	scout__put_bytes(w, s, len);
}

bool
scout__writer_reserve(struct scout__writer *w, size_t cap, size_t least)
{
	size_t more = w->cap ? w->cap : least;
	uint8_t *buf;

	if (cap <= w->cap)
		return true;
	while (more < cap)
		more *= 2;
	buf = realloc(w->buf, more);
	if (!buf)
		return false;
	w->buf = buf;
	w->cap = more;
	return true;
}

static void
patch(struct scout__writer *w, size_t offset, const void *v, size_t len)
{
	if (w->bad)
		return;
	if (offset > w->len || len > w->len - offset) {
		w->bad = true;
		return;
	}
	memcpy(w->buf + offset, v, len);
}

void
scout__patch_u32(struct scout__writer *w, size_t offset, uint32_t v)
{
	v = htole32(v);
	patch(w, offset, &v, sizeof(v));
}

void
scout__patch_u64(struct scout__writer *w, size_t offset, uint64_t v)
{
	v = htole64(v);
	patch(w, offset, &v, sizeof(v));
}
