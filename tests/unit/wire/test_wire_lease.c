/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of the lease connection: their bytes, and what is refused. */
#include <stdlib.h>
#include <string.h>

#include "check_main.h"
#include "msg.h"
#include "frame_copy.h"

static const uint8_t golden_lease_hello[] = {
	'K',  'V',  'S',  'L',                          /* 0 magic */
	0x01, 0x00,                                     /* 4 type */
	0x03, 0x00,                                     /* 6 version */
	0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, /* 8 token, or the word of another message */
	0x5f, 0x5e, 0x5d, 0x5c, 0x5b, 0x5a, 0x59, 0x58, /* 16 secret */
	0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51, 0x50, /* */
};
#define SHORT 16 /* of these, in messages that have a word only */

static const uint8_t golden_lease_segment[] = {
	'K',  'V',  'S',  'L',                          /*  0 magic */
	0x04, 0x00,                                     /*  4 type */
	0x03, 0x00,                                     /*  6 version */
	0x14, 0x13, 0x12, 0x11,                         /*  8 segment */
	0x24, 0x23, 0x22, 0x21,                         /* 12 slots */
	0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, /* 16 bytes */
	0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41, /* 24 data_offset */
	0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51, /* 32 slot_stride */
};

static const uint8_t golden_lease_withdraw[] = {
	'K',  'V',  'S',  'L', 6, 0, /* type */
	3,    0,                     /* version */
	0x44, 0x33, 0x22, 0x11       /* segment */
};

/* @m is written as @golden with its type, and read from there. */
static void
check_lease(struct frame golden, const struct scout__lease_msg *m)
{
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];
	struct scout__lease_msg got;

	set(&golden, 4, 2, m->type);
	ck_assert_uint_eq(scout__put_lease(buf, m), golden.len);
	ck_assert_mem_eq(buf, golden.bytes, golden.len);
	memset(&got, 0xee, sizeof(got));
	ck_assert(scout__get_lease(golden.bytes, golden.len, &got));
	ck_assert_uint_eq(got.type, m->type);
	ck_assert_uint_eq(got.word, m->word);
	ck_assert(scout__secret_equal(&got.secret, &m->secret));
	ck_assert_uint_eq(got.segment, m->segment);
	ck_assert_uint_eq(got.slots, m->slots);
	ck_assert_uint_eq(got.bytes, m->bytes);
	ck_assert_uint_eq(got.data_offset, m->data_offset);
	ck_assert_uint_eq(got.slot_stride, m->slot_stride);
	ck_assert_uint_eq(got.request_bytes, m->request_bytes);
	ck_assert_uint_eq(got.reply_bytes, m->reply_bytes);
	free(golden.bytes);
}

START_LOOP_TEST(lease_messages_that_name_a_segment, 0, 2)
{
	const uint16_t type = _i == 0 ? SCOUT_LEASE_WITHDRAW : SCOUT_LEASE_RELEASED;

	check_lease(copy_of(golden_lease_withdraw, sizeof(golden_lease_withdraw), 0),
		    &(struct scout__lease_msg){.type = type, .segment = 0x11223344});
}
END_TEST

START_LOOP_TEST(lease_messages_with_a_word, 0, 5)
{
	static const uint16_t types[] = {SCOUT_LEASE_HELLO, SCOUT_LEASE_BYE, SCOUT_LEASE_OK, SCOUT_LEASE_GONE,
					 SCOUT_LEASE_ASK_CHANNEL};
	uint64_t word = _i >= 3 ? 0 : 0x1122334455667788;
	struct frame golden = copy_of(golden_lease_hello, _i == 0 ? sizeof(golden_lease_hello) : SHORT, 0);
	struct scout__lease_msg m = {.type = types[_i], .word = word};

	if (_i == 0)
		m.secret = (struct scout__secret){{0x58595a5b5c5d5e5f, 0x5051525354555657}};
	set(&golden, 8, 8, word);
	check_lease(golden, &m);
}
END_TEST

START_TEST(lease_message_with_a_channel)
{
	struct frame golden = copy_of(golden_lease_hello, SHORT, 0);

	set(&golden, 8, 4, 0x11121314);
	set(&golden, 12, 4, 0x21222324);
	check_lease(golden, &(struct scout__lease_msg){.type = SCOUT_LEASE_CHANNEL,
						       .request_bytes = 0x11121314,
						       .reply_bytes = 0x21222324});
}
END_TEST

START_TEST(lease_message_with_a_segment)
{
	const struct scout__lease_msg m = {
		.type = SCOUT_LEASE_SEGMENT,
		.segment = 0x11121314,
		.slots = 0x21222324,
		.bytes = 0x3132333435363738,
		.data_offset = 0x4142434445464748,
		.slot_stride = 0x5152535455565758,
	};

	check_lease(copy_of(golden_lease_segment, sizeof(golden_lease_segment), 0), &m);
}
END_TEST

/* A lease message with one byte changed is none. */
static void
expect_no_lease(const uint8_t *golden, size_t len, size_t offset, uint8_t value)
{
	struct frame f = copy_of(golden, len, 0);
	struct scout__lease_msg got = {.type = 77};

	set(&f, offset, 1, value);
	ck_assert(!scout__get_lease(f.bytes, f.len, &got));
	ck_assert_uint_eq(got.type, 77);
	free(f.bytes);
}

START_TEST(lease_messages_that_are_not_exactly_right_are_refused)
{
	struct scout__lease_msg got;

	for (size_t len = 0; len < 64; len++) {
		size_t keep = len < sizeof(golden_lease_segment) ? len : sizeof(golden_lease_segment);
		struct frame segment = copy_of(golden_lease_segment, keep, len - keep);
		struct frame hello = copy_of(golden_lease_hello, len < 32 ? len : 32, len < 32 ? 0 : len - 32);
		struct frame withdraw = copy_of(golden_lease_withdraw, len < 12 ? len : 12, len < 12 ? 0 : len - 12);

		ck_assert(scout__get_lease(segment.bytes, len, &got) == (len == SCOUT__LEASE_SEGMENT_BYTES));
		ck_assert(scout__get_lease(hello.bytes, len, &got) == (len == SCOUT__LEASE_HELLO_BYTES));
		ck_assert(scout__get_lease(withdraw.bytes, len, &got) == (len == SCOUT__LEASE_WITHDRAW_BYTES));
		free(segment.bytes);
		free(hello.bytes);
		free(withdraw.bytes);
	}
	expect_no_lease(golden_lease_hello, 32, 3, 'C'); /* magic */
	expect_no_lease(golden_lease_hello, 32, 4, 2);   /* BYE is shorter */
	expect_no_lease(golden_lease_hello, SHORT, 4, 1);
	expect_no_lease(golden_lease_hello, SHORT, 4, 0); /* types that there are not, or are longer */
	expect_no_lease(golden_lease_hello, SHORT, 4, 4);
	expect_no_lease(golden_lease_hello, SHORT, 4, 6);
	expect_no_lease(golden_lease_hello, SHORT, 4, 7);
	expect_no_lease(golden_lease_hello, SHORT, 4, 8); /* ASK_CHANNEL, whose word is reserved */
	expect_no_lease(golden_lease_hello, SHORT, 4, 10);
	expect_no_lease(golden_lease_withdraw, 12, 4, 1);
	expect_no_lease(golden_lease_withdraw, 12, 4, 4);
	expect_no_lease(golden_lease_hello, 32, 5, 1);
	expect_no_lease(golden_lease_hello, SHORT, 4, 5); /* GONE, whose word is reserved */
	expect_no_lease(golden_lease_hello, 32, 6, 2);    /* the version before */
	expect_no_lease(golden_lease_hello, 32, 6, 4);
	expect_no_lease(golden_lease_hello, 32, 7, 1);
	expect_no_lease(golden_lease_segment, 40, 4, 1);
}
END_TEST

START_TEST(a_lease_message_of_an_unknown_type_is_not_written)
{
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES] = {0};
	const struct scout__lease_msg m = {.type = 10, .word = 1};

	ck_assert_uint_eq(scout__put_lease(buf, &m), 0);
	ck_assert_uint_eq(buf[0], 0);
}
END_TEST
