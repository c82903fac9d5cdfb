/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * Cursors over bytes. Little-endian, no struct overlays, no pointer arithmetic in the callers: a reader latches `bad`
 * at the first read beyond its end and returns zeroes from then on; a writer latches `bad` at the first write beyond
 * its room.
 *
 * The number functions are inline because a frame of 4096 operations makes some 10^5 of these calls.
 */
struct scout__reader {
	const uint8_t *p;
	size_t left;
	bool bad;
};

struct scout__writer {
	uint8_t *buf;
	size_t cap;
	size_t len;
	bool bad;
};

/* Unaligned little-endian numbers at an address that the caller knows to be good. */
static inline uint16_t
scout__load_u16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return le16toh(v);
}

static inline uint32_t
scout__load_u32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

static inline uint64_t
scout__load_u64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

static inline struct scout__reader
scout__reader_of(const void *p, size_t len)
{
	return (struct scout__reader){.p = p, .left = len};
}

/*
 * A view of @len bytes, NULL (and bad) when there are fewer. With @len 0 the view has no bytes, and is NULL only if the
 * reader's position is NULL.
 */
static inline const uint8_t *
scout__get_bytes(struct scout__reader *r, size_t len)
{
	const uint8_t *at = r->p;

	if (r->bad || len > r->left) {
		r->bad = true;
		return NULL;
	}
	if (len > 0) {
		r->p += len;
		r->left -= len;
	}
	return at;
}

static inline uint8_t
scout__get_u8(struct scout__reader *r)
{
	const uint8_t *p = scout__get_bytes(r, 1);

	return p ? *p : 0;
}

static inline uint16_t
scout__get_u16(struct scout__reader *r)
{
	const uint8_t *p = scout__get_bytes(r, 2);

	return p ? scout__load_u16(p) : 0;
}

static inline uint32_t
scout__get_u32(struct scout__reader *r)
{
	const uint8_t *p = scout__get_bytes(r, 4);

	return p ? scout__load_u32(p) : 0;
}

static inline uint64_t
scout__get_u64(struct scout__reader *r)
{
	const uint8_t *p = scout__get_bytes(r, 8);

	return p ? scout__load_u64(p) : 0;
}

/* A view of u16 length and bytes, not terminated. If it is not whole: NULL, bad, and length 0. */
const char *scout__get_str(struct scout__reader *r, uint16_t *ret_len);

/* Whether everything was read without a fault. */
static inline bool
scout__reader_done(const struct scout__reader *r)
{
	return !r->bad && r->left == 0;
}

/* Room for the next @len bytes, which count as written; NULL and bad when there is less. For the functions below. */
static inline uint8_t *
scout__writer_take(struct scout__writer *w, size_t len)
{
	uint8_t *at;

	if (w->bad || len > w->cap - w->len) {
		w->bad = true;
		return NULL;
	}
	at = w->buf + w->len;
	w->len += len;
	return at;
}

static inline void
scout__put_u8(struct scout__writer *w, uint8_t v)
{
	uint8_t *p = scout__writer_take(w, 1);

	if (p)
		*p = v;
}

static inline void
scout__put_u16(struct scout__writer *w, uint16_t v)
{
	uint8_t *p = scout__writer_take(w, 2);

	v = htole16(v);
	if (p)
		memcpy(p, &v, sizeof(v));
}

static inline void
scout__put_u32(struct scout__writer *w, uint32_t v)
{
	uint8_t *p = scout__writer_take(w, 4);

	v = htole32(v);
	if (p)
		memcpy(p, &v, sizeof(v));
}

static inline void
scout__put_u64(struct scout__writer *w, uint64_t v)
{
	uint8_t *p = scout__writer_take(w, 8);

	v = htole64(v);
	if (p)
		memcpy(p, &v, sizeof(v));
}

/* @p may be NULL when @len is 0. */
void scout__put_bytes(struct scout__writer *w, const void *p, size_t len);
/* A text longer than 65535 bytes is cut, before a UTF-8 sequence that would be torn. */
void scout__put_str(struct scout__writer *w, const char *s, size_t len);
/* Make room for @cap bytes in all: doubled as needed, from @least on. For writers whose buf is from malloc(), or NULL. False: no memory. */
bool scout__writer_reserve(struct scout__writer *w, size_t cap, size_t least);
/* Overwrite at an earlier offset. A bad writer stays unchanged; an offset beyond the written bytes makes it bad. */
void scout__patch_u32(struct scout__writer *w, size_t offset, uint32_t v);
void scout__patch_u64(struct scout__writer *w, size_t offset, uint64_t v);
