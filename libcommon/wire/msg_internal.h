/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "msg.h"
#include "utf8.h"

/*
 * DESIGN
 *
 * The bodies of <kvscout/protocol.h>, one put and one get for each: msg_peer.c, msg_lookup.c and msg_transfer.c. This file is the
 * part that they share. A get reads every field first and checks them afterwards, in this order: is the body exactly as long as its
 * fields say ("length"), are the reserved fields 0 ("reserved"), is each field in its range (its name). Only a count that sizes the
 * fields after it is checked earlier: no length is computed from a wrong count. The result is written only if all checks pass, so a
 * caller never sees half a message. The server itself checks the parts that depend on its state: whether a ticket lives, whether a
 * KV rank is held here.
 *
 * A put writes what it is given; the receiver checks ranges. Running out of room latches in the writer.
 *
 * Rejected: a table of field descriptions with one interpreter. The code would be shorter, but the compiler could no
 * longer see the types, and a third of the bodies have arrays whose length depends on another field.
 *
 * Threads: any; no state. Everything here works on the caller's memory.
 */

static inline struct scout__reader
scout__body_of(const struct scout__op *op)
{
	return scout__reader_of(op->body, op->length);
}

static inline void
scout__get_view(struct scout__reader *r, struct scout__str *str)
{
	str->p = scout__get_str(r, &str->len);
}

static inline int
scout__body_fault(int status, const char *field, const char **ret_field)
{
	*ret_field = field;
	return status;
}

/* The end of every get: @bad_field is the name of a field outside its range, or NULL. */
static inline int
scout__body_judge(const struct scout__reader *r, uint32_t reserved, const char *bad_field, const char **ret_field)
{
	if (!scout__reader_done(r))
		return scout__body_fault(SCOUT_WIRE_BAD_BODY, "length", ret_field);
	if (reserved != 0)
		return scout__body_fault(SCOUT_WIRE_BAD_BODY, "reserved", ret_field);
	if (bad_field)
		return scout__body_fault(SCOUT_WIRE_RANGE, bad_field, ret_field);
	return SCOUT_WIRE_OK;
}

static inline bool
scout__is_name(const struct scout__str *str)
{
	return str->len <= SCOUT_MAX_NAME && scout__utf8_is_name(str->p, str->len);
}

static inline bool
scout__is_chunk_count(uint32_t n)
{
	return n >= 1 && n <= SCOUT_MAX_CHUNKS;
}

static inline void
scout__put_hashes(struct scout__writer *w, const uint8_t *hashes, uint32_t n, unsigned hash_bytes)
{
	if (hashes)
		scout__put_bytes(w, hashes, (size_t)n * hash_bytes);
}

/* The replies that are a count of chunks and a reserved word. */
static inline void
scout__put_count(struct scout__writer *w, uint32_t n)
{
	scout__put_u32(w, n);
	scout__put_u32(w, 0);
}

static inline int
scout__get_count(const struct scout__op *op, const char *name, uint32_t *ret_n, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	uint32_t n = scout__get_u32(&r);
	uint32_t reserved = scout__get_u32(&r);
	int status = scout__body_judge(&r, reserved, n > SCOUT_MAX_CHUNKS ? name : NULL, ret_field);

	if (status == SCOUT_WIRE_OK)
		*ret_n = n;
	return status;
}
