/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "check_main.h"
#include "body_rig.h"

/*
 * What a get refuses. Each case takes golden bytes, spoils one thing, and expects the status and the name of the field.
 */

struct body {
	const struct msg_codec *codec;
	uint8_t *bytes;
	uint32_t len;
};

/* The first @keep bytes of a golden body, then @extra zeroes. */
static struct body
body_of(const struct msg_codec *codec, uint32_t keep, uint32_t extra)
{
	struct body b = {.codec = codec, .len = keep + extra};

	ck_assert_uint_le(keep, codec->golden_len);
	b.bytes = calloc(b.len > 0 ? b.len : 1, 1);
	ck_assert_ptr_nonnull(b.bytes);
	memcpy(b.bytes, codec->golden, keep);
	return b;
}

static struct body
golden_body(uint8_t opcode, uint8_t kind)
{
	const struct msg_codec *codec = codec_of(opcode, kind);

	return body_of(codec, codec->golden_len, 0);
}

static void
set(struct body *b, uint32_t offset, unsigned width, uint64_t value)
{
	ck_assert_uint_le(offset + width, b->len);
	for (unsigned i = 0; i < width; i++)
		b->bytes[offset + i] = (uint8_t)(value >> (8 * i));
}

/* Decodes the body, frees it, and compares the verdict. @field NULL: must be OK. */
static void
expect(struct body *b, int status, const char *field)
{
	const char *got_field = NULL;
	int got = body_status(b->codec, b->bytes, b->len, GOLDEN_HASH_BYTES, &got_field);

	ck_assert_msg(got == status, "%s, %u bytes: status %s, expected %s", b->codec->name, b->len,
		      scout__wire_name((unsigned)got), scout__wire_name((unsigned)status));
	ck_assert_pstr_eq(got_field, field);
	free(b->bytes);
	b->bytes = NULL;
}

START_LOOP_TEST(a_body_that_ends_early_is_refused_at_every_length, 0, N_MSG_CODECS)
{
	const struct msg_codec *codec = &msg_codecs[_i];

	for (uint32_t keep = 0; keep < codec->golden_len; keep++) {
		struct body b = body_of(codec, keep, 0);

		expect(&b, SCOUT_WIRE_BAD_BODY, "length");
	}
}
END_TEST

START_LOOP_TEST(a_body_with_bytes_behind_its_end_is_refused, 0, N_MSG_CODECS)
{
	static const uint32_t extras[] = {1, 2, 8, 16, 24};
	const struct msg_codec *codec = &msg_codecs[_i];

	for (size_t i = 0; i < sizeof(extras) / sizeof(extras[0]); i++) {
		struct body b = body_of(codec, codec->golden_len, extras[i]);

		expect(&b, SCOUT_WIRE_BAD_BODY, "length");
	}
}
END_TEST

/* Every reserved field of every body. */
#define REQUEST(op) SCOUT_OP_##op, SCOUT_KIND_REQUEST
#define REPLY(op) SCOUT_OP_##op, SCOUT_KIND_REPLY
static const struct {
	uint8_t opcode, kind;
	uint32_t offset;
	unsigned width;
} reserved[] = {
	{REQUEST(HELLO), 87, 2},    {REQUEST(LOOKUP), 39, 1},   {REPLY(ADMIT), 4, 4},       {REPLY(REGISTER), 6, 2},
	{REQUEST(RETRIEVE), 10, 2}, {REQUEST(RETRIEVE), 14, 2}, {REQUEST(RETRIEVE), 26, 2}, {REQUEST(STORE), 15, 1},
	{REPLY(STORE), 12, 4},      {REPLY(STORE), 22, 2},      {REPLY(STORE), 46, 2},      {REPLY(STORE), 70, 2},
	{REPLY(STORE_DONE), 4, 4},  {REPLY(RETRIEVE), 12, 4},   {REPLY(RETRIEVE), 22, 2},   {REPLY(RETRIEVE), 46, 2},
	{REQUEST(PEERS), 4, 4},     {REQUEST(DROP), 9, 3},      {REQUEST(DROP), 12, 4},     {REPLY(FEED), 25, 3},
	{REPLY(FEED), 38, 2},       {REPLY(FEED), 69, 2},
};

START_LOOP_TEST(a_reserved_field_that_is_not_zero_is_refused, 0, sizeof(reserved) / sizeof(reserved[0]))
{
	for (unsigned byte = 0; byte < reserved[_i].width; byte++) {
		for (unsigned bit = 0; bit < 8; bit++) {
			struct body b = golden_body(reserved[_i].opcode, reserved[_i].kind);

			set(&b, reserved[_i].offset + byte, 1, 1u << bit);
			expect(&b, SCOUT_WIRE_BAD_BODY, "reserved");
		}
	}
}
END_TEST

START_TEST(a_lookup_or_a_store_with_an_unknown_flag_is_refused)
{
	for (unsigned flag = SCOUT_STORE_DESCRIBED << 1; flag < 1u << 16; flag <<= 1) {
		struct body b = golden_body(SCOUT_OP_STORE, SCOUT_KIND_REQUEST);

		set(&b, 14, 2, SCOUT_STORE_DESCRIBED | flag);
		expect(&b, SCOUT_WIRE_BAD_BODY, "reserved");
	}
	for (unsigned flag = 1; flag < 1u << 16; flag <<= 1) {
		struct body b = golden_body(SCOUT_OP_LOOKUP, SCOUT_KIND_REQUEST);

		set(&b, 24, 4, 0);
		set(&b, 38, 2, flag);
		if (flag & SCOUT_LOOKUP_FLAGS)
			set(&b, 20, 4, 3), expect(&b, SCOUT_WIRE_OK, NULL); /* nothing is skipped */
		else
			expect(&b, SCOUT_WIRE_BAD_BODY, "reserved");
	}
}
END_TEST

/* A number, and what is said about it: the name of the field that is out of range, or NULL if it is just inside. */
static const struct range {
	uint8_t opcode, kind;
	uint32_t offset;
	unsigned width;
	uint64_t value;
	const char *field;
} ranges[] = {
	{REQUEST(HELLO), 0, 8, 0, "token"},
	{REQUEST(HELLO), 0, 8, 1, NULL},
	{REQUEST(HELLO), 8, 2, 0, "role"},
	{REQUEST(HELLO), 8, 2, 1, NULL},
	{REQUEST(HELLO), 8, 2, 3, "role"},
	{REQUEST(HELLO), 8, 2, 0x0101, "role"},
	{REQUEST(HELLO), 10, 2, 15, "hash_bytes"},
	{REQUEST(HELLO), 10, 2, 32, NULL},
	{REQUEST(HELLO), 10, 2, 33, "hash_bytes"},
	{REQUEST(HELLO), 12, 4, 0, "chunk_tokens"},
	{REQUEST(HELLO), 12, 4, 1, NULL},
	{REQUEST(HELLO), 16, 2, 5, NULL}, /* 5 + 3 of 8 */
	{REQUEST(HELLO), 16, 2, 6, "rank_first"},
	{REQUEST(HELLO), 16, 2, 65535, "rank_first"},
	{REQUEST(HELLO), 18, 2, 0, "rank_count"},
	{REQUEST(HELLO), 18, 2, 6, NULL}, /* 2 + 6 of 8 */
	{REQUEST(HELLO), 18, 2, 7, "rank_first"},
	{REQUEST(HELLO), 18, 2, 9, "rank_count"},
	{REQUEST(HELLO), 18, 2, 65535, "rank_count"},
	{REQUEST(HELLO), 20, 2, 0, "kv_ranks"},
	{REQUEST(HELLO), 20, 2, 64, NULL},
	{REQUEST(HELLO), 20, 2, 65, "kv_ranks"},
	{REQUEST(HELLO), 22, 2, 0, "readers"},
	{REQUEST(HELLO), 22, 2, 64, NULL},
	{REQUEST(HELLO), 22, 2, 65, "readers"},
	{REQUEST(HELLO), 28, 4, 0, "hash_tokens"},
	{REQUEST(HELLO), 28, 4, 1, NULL},
	{REQUEST(HELLO), 28, 4, 32, "unit_tokens"}, /* 48 is no multiple */
	{REQUEST(HELLO), 85, 2, 0, "n_groups"},
	{REQUEST(HELLO), 80, 2, 4, "n_groups"}, /* its second byte and the reserved one */
	{REQUEST(HELLO), 89, 2, 3, NULL},
	{REQUEST(HELLO), 89, 2, 4, "policy"},
	{REQUEST(HELLO), 89, 2, 1, "span_tokens"}, /* a window without one */
	{REQUEST(HELLO), 105, 2, 2, NULL},
	{REQUEST(HELLO), 105, 2, 0, "span_tokens"}, /* ALL with one */
	{REQUEST(HELLO), 105, 2, 3, "span_tokens"},
	{REQUEST(HELLO), 113, 4, 0, "span_tokens"},
	{REQUEST(HELLO), 107, 2, 0, "readers"},
	{REQUEST(HELLO), 107, 2, 65, "readers"},
	{REQUEST(HELLO), 109, 4, 0, "unit_tokens"},
	{REQUEST(HELLO), 109, 4, 49, "unit_tokens"},
	{REQUEST(HELLO), 117, 4, UINT32_MAX, NULL},
	{REQUEST(HELLO), 40, 8, 0, NULL},
	{REQUEST(HELLO), 40, 8, SCOUT_MAX_HEARD_STAMP, NULL},
	{REQUEST(HELLO), 40, 8, SCOUT_MAX_HEARD_STAMP + 1, "joined"},
	{REQUEST(HELLO), 48, 8, 0, "generation"},
	{REQUEST(HELLO), 48, 8, UINT64_MAX, "generation"},
	{REQUEST(HELLO), 56, 8, 0, "generation"},
	{REQUEST(HELLO), 56, 8, SCOUT_MAX_HEARD_STAMP + 1, "cleared"},
	{REPLY(HELLO), 16, 8, SCOUT_MAX_STAMP, NULL},
	{REPLY(HELLO), 16, 8, SCOUT_MAX_STAMP + 1, "joined"},
	{REPLY(HELLO), 32, 8, 0, "generation"},
	{REQUEST(LOOKUP), 0, 8, 0, "ticket"},
	{REQUEST(LOOKUP), 8, 4, 0, "n"},
	{REQUEST(LOOKUP), 8, 4, 262145, "n"},
	{REQUEST(LOOKUP), 8, 4, UINT32_MAX, "n"},
	{REQUEST(LOOKUP), 12, 4, 4, NULL}, /* first */
	{REQUEST(LOOKUP), 12, 4, 5, "skip"},
	{REQUEST(LOOKUP), 12, 4, 262142, "skip"},
	{REQUEST(LOOKUP), 12, 4, 262143, "first"},
	{REQUEST(LOOKUP), 12, 4, UINT32_MAX, "first"},
	{REQUEST(LOOKUP), 16, 4, 0, NULL},
	{REQUEST(LOOKUP), 16, 4, 2, "skip"}, /* the longest length is 3 then */
	{REQUEST(LOOKUP), 16, 4, 3, "beyond"},
	{REQUEST(LOOKUP), 16, 4, UINT32_MAX, "beyond"},
	{REQUEST(LOOKUP), 20, 4, 3, NULL},
	{REQUEST(LOOKUP), 20, 4, 2, "skip"},
	{REQUEST(LOOKUP), 20, 4, 5, "skip"},
	{REQUEST(LOOKUP), 20, 4, UINT32_MAX, "skip"},
	{REQUEST(LOOKUP), 24, 4, 4, NULL},
	{REQUEST(LOOKUP), 24, 4, 5, "expect"},
	{REQUEST(LOOKUP), 28, 4, SCOUT_MAX_POLL_MS, NULL},
	{REQUEST(LOOKUP), 28, 4, SCOUT_MAX_POLL_MS + 1, "poll_timeout_ms"},
	{REQUEST(LOOKUP), 36, 2, 0, NULL},
	{REQUEST(LOOKUP), 36, 2, 64, "more"},
	{REQUEST(LOOKUP), 38, 1, SCOUT_LOOKUP_RENEW, "expect"}, /* 2 are expected */
	{REQUEST(LOOKUP), 38, 1, SCOUT_LOOKUP_AHEAD, "skip"},   /* 1 is skipped */
	{REQUEST(LOOKUP), 38, 1, SCOUT_LOOKUP_AHEAD | SCOUT_LOOKUP_RENEW, "flags"},
	{REQUEST(LOOKUP), 38, 1, SCOUT_LOOKUP_FLAGS, "flags"},
	{REPLY(LOOKUP), 0, 4, 0, "l1"}, /* a miss has no bytes in a tier */
	{REPLY(LOOKUP), 0, 4, 262144, NULL},
	{REPLY(LOOKUP), 0, 4, 262145, "hit"},
	{REPLY(LOOKUP), 4, 4, 32 * 262144, NULL},
	{REPLY(LOOKUP), 4, 4, 32 * 262144 + 1, "l1"},
	{REPLY(LOOKUP), 8, 4, 32 * 262144 + 1, "l2"},
	{REPLY(LOOKUP), 12, 4, 0, NULL},
	{REPLY(LOOKUP), 12, 4, 2, "limited"},
	{REPLY(LOOKUP), 16, 4, 64, "n_more"},
	{REPLY(LOOKUP), 16, 4, UINT32_MAX, "n_more"},
	{REPLY(LOOKUP), 20, 4, 2, NULL},
	{REPLY(LOOKUP), 20, 4, 0x030201, "more"}, /* not below the hit */
	{REPLY(LOOKUP), 20, 4, 1, "more"},        /* not above the one behind it */
	{REPLY(LOOKUP), 24, 4, 0, "more"},
	{REQUEST(KEYS), 0, 8, 0, "ticket"},
	{REQUEST(KEYS), 8, 2, 0, "n_parts"},
	{REQUEST(KEYS), 8, 2, 33, "n_parts"},
	{REQUEST(KEYS), 14, 1, '\n', "tenant"},
	{REQUEST(KEYS), 16, 2, 0x0303, NULL},
	{REQUEST(KEYS), 16, 2, 0x0304, "group"},
	{REQUEST(KEYS), 24, 2, 0, "group"},
	{REQUEST(KEYS), 24, 2, 65535, NULL}, /* the server knows which groups there are */
	{REQUEST(KEYS), 20, 4, 0, "n"},
	{REQUEST(KEYS), 28, 4, 0, "n"},
	{REQUEST(KEYS), 20, 4, 16385, "n"},
	{REQUEST(KEYS), 28, 4, 16384, "n"}, /* with the one of the first part */
	{REQUEST(KEYS), 28, 4, UINT32_MAX, "n"},
	{REPLY(KEYS), 0, 4, 0, "n"},
	{REPLY(KEYS), 0, 4, 16385, "n"},
	{REPLY(KEYS), 0, 4, UINT32_MAX, "n"},
	{REPLY(KEYS), 0, 4, 12, NULL},
	{REPLY(KEYS), 0, 4, 10, "hits"},     /* the hit at 10 is behind the last key then */
	{REPLY(KEYS), 17, 1, 0x01, "later"}, /* a hit, and not */
	{REPLY(KEYS), 17, 1, 0x08, "hits"},
	{REPLY(KEYS), 19, 1, 0x08, "later"},
	{REPLY(KEYS), 4, 4, 6, "l2"}, /* six hits */
	{REPLY(KEYS), 4, 4, 7, "l1"},
	{REPLY(KEYS), 8, 4, 0, NULL}, /* a group that the server has no layers of */
	{REPLY(KEYS), 8, 4, 3, "l2"},
	{REPLY(KEYS), 12, 4, 2, "limited"},
	{REQUEST(ADMIT), 0, 8, 0, NULL},  /* names no session: the server's to say */
	{REQUEST(ADMIT), 12, 4, 0, NULL}, /* gives back everything */
	{REPLY(ADMIT), 0, 4, 262144, NULL},
	{REPLY(ADMIT), 0, 4, 262145, "kept"},
	{REQUEST(FINISH), 0, 8, 0, NULL},
	{REQUEST(FINISH), 8, 4, 0, NULL},
	{REQUEST(FINISH), 8, 4, 3, "hint"},
	{REQUEST(FINISH), 12, 4, UINT32_MAX, NULL},
	{REPLY(FINISH), 0, 4, 262145, "kept"},
	{REPLY(FINISH), 4, 4, SCOUT_OUTCOME_LAST, NULL},
	{REPLY(FINISH), 4, 4, SCOUT_OUTCOME_LAST + 1, "outcome"},
	{REQUEST(RESET), 0, 8, 0, "weights"},
	{REQUEST(RESET), 0, 8, 1, NULL},
	{REQUEST(CLEAR), 0, 8, 0, "generation"},
	{REQUEST(CLEAR), 0, 8, UINT64_MAX, NULL},
	{REPLY(CLEAR), 8, 8, 0, "generation"},
	{REPLY(CLEAR), 16, 8, SCOUT_MAX_STAMP + 1, "cleared"},
	{REPLY(CLEAR), 28, 4, 0x01020304, NULL},
	{REPLY(CLEAR), 28, 4, 0x01020305, "pending"},
	{REQUEST(PEERS), 0, 4, UINT32_MAX, NULL}, /* beyond the last: the server's to say */
	{REPLY(PEERS), 4, 4, 257, "n"},
	{REPLY(PEERS), 16, 2, 0, "role"},
	{REPLY(PEERS), 60, 2, 3, "role"},
	{REPLY(PEERS), 18, 2, 65, "kv_rank"},
	{REPLY(PEERS), 94, 1, '\n', "namespace"},
	{REQUEST(TENANTS), 2, 1, '\n', "namespace"},
	{REPLY(TENANTS), 4, 4, 257, "n"},
	{REPLY(TENANTS), 18, 1, '\n', "tenant"},
	{REQUEST(DROP), 0, 8, 0, "generation"},
	{REQUEST(DROP), 0, 8, UINT64_MAX, "generation"},
	{REQUEST(DROP), 8, 4, 0, "tenant"}, /* is named, and not wanted */
	{REQUEST(DROP), 18, 1, '\n', "namespace"},
	{REQUEST(DROP), 22, 1, '\n', "tenant"},
	{REPLY(DROP), 12, 4, 0x01020304, NULL},
	{REPLY(DROP), 12, 4, 0x01020305, "pending"},
	{REQUEST(FEED), 0, 8, 0, "sequence"},
	{REPLY(FEED), 0, 8, 0, "feed"},
	{REPLY(FEED), 24, 1, 0, NULL},
	{REPLY(FEED), 32, 2, 0, "kind"},
	{REPLY(FEED), 32, 2, 5, "kind"},
	{REPLY(FEED), 34, 2, 0, "medium"},
	{REPLY(FEED), 34, 2, 1, NULL},
	{REPLY(FEED), 34, 2, 3, "medium"},
	{REPLY(FEED), 65, 2, 1, "medium"}, /* CLEARED is for all media */
	{REPLY(FEED), 42, 1, 0x7f, "tenant"},
	{REQUEST(REGISTER), 0, 2, 63, NULL},
	{REQUEST(REGISTER), 0, 2, 64, "kv_rank"},
	{REQUEST(REGISTER), 2, 2, 63, NULL},
	{REQUEST(REGISTER), 2, 2, 64, "reader"},
	{REQUEST(REGISTER), 6, 2, 0, "n_tables"},
	{REQUEST(REGISTER), 6, 2, 33, "n_tables"},
	{REQUEST(REGISTER), 8, 2, 0x0303, NULL},
	{REQUEST(REGISTER), 8, 2, 0x0304, "group"}, /* the second table's */
	{REQUEST(REGISTER), 41, 2, 0, "group"},
	{REQUEST(REGISTER), 10, 2, 6, NULL},
	{REQUEST(REGISTER), 10, 2, 7, "dtype"},
	{REQUEST(REGISTER), 43, 2, 7, "dtype"},
	{REQUEST(REGISTER), 12, 4, 0, "block_tokens"},
	{REQUEST(REGISTER), 45, 4, 0, "block_tokens"},
	{REQUEST(REGISTER), 16, 4, 0, "n_planes"},
	{REQUEST(REGISTER), 16, 4, 4097, "n_planes"},
	{REQUEST(REGISTER), 49, 4, 4095, "n_planes"}, /* with the two of the first table */
	{REQUEST(REGISTER), 16, 4, UINT32_MAX, "n_planes"},
	{REQUEST(REGISTER), 22, 1, '\n', "layout_tag"},
	{REPLY(REGISTER), 4, 2, 0, "n_tables"},
	{REPLY(REGISTER), 4, 2, 33, "n_tables"},
	{REQUEST(STORE), 0, 8, 0, NULL}, /* belongs to no session */
	{REQUEST(STORE), 8, 4, 0, "n"},
	{REQUEST(STORE), 8, 4, 262145, "n"},
	{REQUEST(STORE), 8, 4, UINT32_MAX, "n"},
	{REQUEST(STORE), 12, 2, 65535, NULL}, /* the server knows which groups there are */
	{REPLY(STORE), 0, 8, 0, NULL},        /* nothing granted */
	{REPLY(STORE), 8, 4, 262145, "n"},
	{REPLY(STORE), 8, 4, UINT32_MAX, "n"},
	{REPLY(STORE), 20, 2, 2, "segment"}, /* not GRANTED, but with a place */
	{REPLY(STORE), 64, 4, 1, "segment"},
	{REPLY(STORE), 48, 8, 1, "offset"},
	{REPLY(STORE), 56, 8, 1, "generation"},
	{REPLY(STORE), 20, 2, 5, NULL}, /* a state of a later version */
	{REPLY(STORE), 20, 2, 0, NULL},
	{REQUEST(STORE_DONE), 8, 4, 0, "committed"},
	{REQUEST(STORE_DONE), 8, 4, 262144, NULL},
	{REQUEST(STORE_DONE), 8, 4, 262145, "n"},
	{REQUEST(STORE_DONE), 12, 4, 0x010203, NULL},
	{REQUEST(STORE_DONE), 12, 4, 0x010204, "committed"},
	{REPLY(STORE_DONE), 0, 4, 262144, NULL},
	{REPLY(STORE_DONE), 0, 4, 262145, "readable"},
	{REQUEST(RETRIEVE), 8, 2, 0, "n_parts"},
	{REQUEST(RETRIEVE), 8, 2, 33, "n_parts"},
	{REQUEST(RETRIEVE), 12, 2, 0x0303, NULL},
	{REQUEST(RETRIEVE), 12, 2, 0x0304, "group"},
	{REQUEST(RETRIEVE), 16, 4, 0x010203, NULL},
	{REQUEST(RETRIEVE), 16, 4, 0x010204, "from"},
	{REQUEST(RETRIEVE), 20, 4, 262144, NULL},
	{REQUEST(RETRIEVE), 20, 4, 262145, "to"},
	{REQUEST(RETRIEVE), 32, 4, 262144, "to"},   /* both parts together */
	{REQUEST(HELLO), 82, 1, '\n', "namespace"}, /* names are UTF-8 without control characters */
	{REQUEST(HELLO), 83, 1, 0x1b, "namespace"},
	{REQUEST(HELLO), 84, 1, 0xff, "namespace"},
	{REQUEST(HELLO), 82, 2, 0xa9c3, NULL},
	{REQUEST(HELLO), 82, 2, 0x9bc2, "namespace"},
	{REQUEST(LOOKUP), 42, 1, 0, "tenant"},
	{REQUEST(LOOKUP), 42, 2, 0x80c2, "tenant"},
	{REQUEST(STORE), 18, 1, 0x7f, "tenant"},
	{REPLY(RETRIEVE), 24, 8, 1, "offset"},
	{REPLY(RETRIEVE), 32, 8, 1, "generation"},
};

START_LOOP_TEST(a_number_outside_its_range_is_refused_by_name, 0, sizeof(ranges) / sizeof(ranges[0]))
{
	const struct range *range = &ranges[_i];
	struct body b = golden_body(range->opcode, range->kind);

	set(&b, range->offset, range->width, range->value);
	expect(&b, range->field ? SCOUT_WIRE_RANGE : SCOUT_WIRE_OK, range->field);
}
END_TEST

/* Counts inside their range that do not fit the length of the body. */
static const struct range lengths[] = {
	{REQUEST(HELLO), 80, 2, 65535, "length"},    {REPLY(HELLO), 64, 2, 8, "length"},
	{REPLY(FEED), 28, 4, 1, "length"},           {REPLY(FEED), 28, 4, UINT32_MAX, "length"},
	{REPLY(FEED), 59, 2, 4097, "length"},        {REQUEST(STORE), 14, 2, 0, "length"},
	{REPLY(HELLO), 73, 2, 5, "length"},          {REQUEST(LOOKUP), 8, 4, 3, "length"},
	{REQUEST(LOOKUP), 8, 4, 262141, "length"},   {REQUEST(LOOKUP), 40, 2, 3, "length"},
	{REQUEST(LOOKUP), 40, 2, 1, "length"},       {REQUEST(REGISTER), 49, 4, 2, "length"},
	{REQUEST(REGISTER), 6, 2, 1, "length"},      {REQUEST(REGISTER), 6, 2, 3, "length"},
	{REQUEST(REGISTER), 16, 4, 4096, "length"},  {REPLY(REGISTER), 4, 2, 1, "length"},
	{REPLY(REGISTER), 4, 2, 3, "length"},        {REQUEST(HELLO), 85, 2, 1, "length"},
	{REQUEST(HELLO), 85, 2, 32, "length"},       {REQUEST(RETRIEVE), 8, 2, 1, "length"},
	{REQUEST(RETRIEVE), 8, 2, 3, "length"},      {REPLY(LOOKUP), 16, 4, 1, "length"},
	{REPLY(LOOKUP), 16, 4, 63, "length"},        {REQUEST(STORE), 8, 4, 2, "length"},
	{REQUEST(STORE), 16, 2, 0, "length"},        {REPLY(STORE), 8, 4, 2, "length"},
	{REPLY(STORE), 8, 4, 4, "length"},           {REPLY(STORE), 8, 4, 262144, "length"},
	{REPLY(RETRIEVE), 8, 4, 0, "length"},        {REPLY(STATUS), 0, 4, 0, "length"},
	{REPLY(STATUS), 0, 4, 1, "length"},          {REPLY(STATUS), 0, 4, 3, "length"},
	{REPLY(STATUS), 0, 4, UINT32_MAX, "length"}, {REPLY(STATUS), 4, 2, 3, "length"},
	{REPLY(ERROR), 0, 2, 3, "length"},           {REPLY(ERROR), 0, 2, 65535, "length"},
	{REPLY(PEERS), 4, 4, 1, "length"},           {REPLY(PEERS), 4, 4, 3, "length"},
	{REPLY(TENANTS), 4, 4, 1, "length"},         {REPLY(TENANTS), 4, 4, 256, "length"},
};

START_LOOP_TEST(a_count_that_does_not_fit_the_body_is_refused, 0, sizeof(lengths) / sizeof(lengths[0]))
{
	struct body b = golden_body(lengths[_i].opcode, lengths[_i].kind);

	set(&b, lengths[_i].offset, lengths[_i].width, lengths[_i].value);
	expect(&b, SCOUT_WIRE_BAD_BODY, lengths[_i].field);
}
END_TEST

/* The golden body with the string whose length is at @offset, @old bytes long, replaced by @len bytes 'x'. */
static struct body
with_name(const struct msg_codec *codec, uint32_t offset, uint32_t old, uint32_t len)
{
	uint32_t tail = codec->golden_len - offset - 2 - old;
	struct body b = body_of(codec, offset, 2 + len + tail);

	set(&b, offset, 2, len);
	memset(b.bytes + offset + 2, 'x', len);
	memcpy(b.bytes + offset + 2 + len, codec->golden + offset + 2 + old, tail);
	return b;
}

static const struct {
	uint8_t opcode, kind;
	uint32_t offset, old, len;
	const char *field;
} texts[] = {
	{REQUEST(HELLO), 80, 3, 0, "namespace"},
	{REQUEST(HELLO), 80, 3, 1, NULL},
	{REQUEST(HELLO), 80, 3, 255, NULL},
	{REQUEST(HELLO), 80, 3, 256, "namespace"},
	{REQUEST(LOOKUP), 40, 2, 0, NULL},
	{REQUEST(LOOKUP), 40, 2, 255, NULL},
	{REQUEST(LOOKUP), 40, 2, 256, "tenant"},
	{REQUEST(LOOKUP), 40, 2, 65535, "tenant"},
	{REQUEST(STORE), 35, 2, 4096, NULL},
	{REQUEST(STORE), 35, 2, 4097, "description"},
	{REPLY(FEED), 40, 1, 256, "tenant"},
	{REPLY(FEED), 59, 2, 4096, NULL},
	{REPLY(FEED), 59, 2, 4097, "description"},
	{REQUEST(TENANTS), 0, 3, 0, "namespace"},
	{REQUEST(TENANTS), 0, 3, 255, NULL},
	{REQUEST(TENANTS), 0, 3, 256, "namespace"},
	{REPLY(TENANTS), 16, 2, 256, "tenant"},
	{REPLY(PEERS), 48, 2, 0, "namespace"},
	{REQUEST(DROP), 16, 2, 0, "namespace"},
	{REQUEST(DROP), 20, 2, 0, NULL},
	{REQUEST(DROP), 20, 2, 256, "tenant"},
	{REQUEST(REGISTER), 20, 3, 0, NULL},
	{REQUEST(REGISTER), 20, 3, 255, NULL},
	{REQUEST(REGISTER), 20, 3, 256, "layout_tag"},
	{REQUEST(STORE), 16, 1, 0, NULL},
	{REQUEST(STORE), 16, 1, 255, NULL},
	{REQUEST(STORE), 16, 1, 256, "tenant"},
	{REPLY(HELLO), 64, 7, 0, NULL},
	{REPLY(HELLO), 73, 6, 0, NULL}, /* not on this machine */
	{REPLY(STATUS), 4, 2, 65535, NULL},
	{REPLY(ERROR), 0, 4, 65535, NULL},
};

START_LOOP_TEST(a_text_of_a_wrong_length_is_refused_by_name, 0, sizeof(texts) / sizeof(texts[0]))
{
	struct body b =
		with_name(codec_of(texts[_i].opcode, texts[_i].kind), texts[_i].offset, texts[_i].old, texts[_i].len);

	expect(&b, texts[_i].field ? SCOUT_WIRE_RANGE : SCOUT_WIRE_OK, texts[_i].field);
}
END_TEST
#undef REQUEST
#undef REPLY

START_TEST(the_33rd_group_has_a_status_of_its_own)
{
	struct body b = golden_body(SCOUT_OP_HELLO, SCOUT_KIND_REQUEST);

	set(&b, 85, 2, 33);
	expect(&b, SCOUT_WIRE_GROUP_LIMIT, "n_groups");
	b = golden_body(SCOUT_OP_HELLO, SCOUT_KIND_REQUEST);
	set(&b, 85, 2, 65535);
	expect(&b, SCOUT_WIRE_GROUP_LIMIT, "n_groups");
}
END_TEST

START_TEST(a_reply_to_hello_has_a_secret)
{
	struct body b = golden_body(SCOUT_OP_HELLO, SCOUT_KIND_REPLY);

	set(&b, 40, 8, 0);
	expect(&b, SCOUT_WIRE_OK, NULL);
	b = golden_body(SCOUT_OP_HELLO, SCOUT_KIND_REPLY);
	set(&b, 40, 8, 0);
	set(&b, 48, 8, 0);
	expect(&b, SCOUT_WIRE_RANGE, "secret");
}
END_TEST

START_TEST(what_is_refused_is_not_written)
{
	struct scout__lookup_msg lookup = {.ticket = 77};
	struct scout__grants grants = {.id = 77};
	struct scout__hello hello = {.token = 77};
	const struct scout__op op = {.body = (const uint8_t *)"short", .length = 5};
	struct scout__str text = {.len = 77};
	uint64_t number = 77;
	uint32_t count = 77;
	const char *field;

	ck_assert_int_eq(scout__get_lookup(&op, 16, &lookup, &field), SCOUT_WIRE_BAD_BODY);
	ck_assert_int_eq(scout__get_grants(&op, &grants, &field), SCOUT_WIRE_BAD_BODY);
	ck_assert_int_eq(scout__get_hello(&op, &hello, &field), SCOUT_WIRE_BAD_BODY);
	ck_assert_int_eq(scout__get_text(&op, &text), SCOUT_WIRE_BAD_BODY);
	ck_assert_int_eq(scout__get_one_u64(&op, &number, &field), SCOUT_WIRE_BAD_BODY);
	ck_assert_int_eq(scout__get_admit_reply(&op, &count, &field), SCOUT_WIRE_BAD_BODY);
	ck_assert_uint_eq(lookup.ticket, 77);
	ck_assert_uint_eq(grants.id, 77);
	ck_assert_uint_eq(hello.token, 77);
	ck_assert_uint_eq(text.len, 77);
	ck_assert_uint_eq(number, 77);
	ck_assert_uint_eq(count, 77);
}
END_TEST

START_TEST(a_grant_of_an_unknown_state_comes_back_as_nothing)
{
	struct body b = golden_body(SCOUT_OP_STORE, SCOUT_KIND_REPLY);
	const struct scout__op op = {.body = b.bytes, .length = b.len};
	struct scout__grants grants;
	struct scout__grant g;
	const char *field;

	set(&b, 20, 2, 5);
	ck_assert_int_eq(scout__get_grants(&op, &grants, &field), SCOUT_WIRE_OK);
	g = scout__grant_at(&grants, 0);
	ck_assert_uint_eq(g.state, 0);
	ck_assert_uint_eq(g.segment, 0);
	ck_assert_uint_eq(g.offset, 0);
	ck_assert_uint_eq(g.generation, 0);
	free(b.bytes);
}
END_TEST
