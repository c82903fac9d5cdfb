/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "check_main.h"
#include "msg.h"
#include "frame_copy.h"

/*
 * Frames: golden bytes written by hand from <kvscout/protocol.h>, and everything that makes a frame one that cannot
 * be taken apart. Frames are checked in heap blocks of exactly their length, so that the address sanitizer sees a
 * read beyond the end.
 */

/* FINISH, an unknown operation 200 with a body, PING: what a client may send. */
static const uint8_t golden_request[] = {
	'K',  'V',  'S',  'C',                          /*   0 magic */
	0x03, 0x00,                                     /*   4 version */
	0x00, 0x00,                                     /*   6 reserved */
	0x73, 0x00, 0x00, 0x00,                         /*   8 length 115 */
	0x03, 0x00, 0x00, 0x00,                         /*  12 op_count */
	0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, /*  16 epoch */
	0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, /*  24 sent_us */
	0x05, 0x00,                                     /*  32 opcode FINISH, kind request */
	0x00, 0x00,                                     /*  34 status */
	0x08, 0x00, 0x00, 0x00,                         /*  36 length */
	0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, /*  40 corr */
	0x34, 0x33, 0x32, 0x31,                         /*  48 budget_us */
	0x00, 0x00, 0x00, 0x00,                         /*  52 reserved */
	0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41, /*  56 ticket */
	0xc8, 0x00,                                     /*  64 opcode 200, kind request */
	0x00, 0x00,                                     /*  66 status */
	0x03, 0x00, 0x00, 0x00,                         /*  68 length */
	0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /*  72 corr */
	0x00, 0x00, 0x00, 0x00,                         /*  80 budget_us */
	0x00, 0x00, 0x00, 0x00,                         /*  84 reserved */
	'?',  '?',  '?',                                /*  88 body */
	0x02, 0x00,                                     /*  91 opcode PING, kind request */
	0x00, 0x00,                                     /*  93 status */
	0x00, 0x00, 0x00, 0x00,                         /*  95 length */
	0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /*  99 corr */
	0x00, 0x00, 0x00, 0x00,                         /* 107 budget_us */
	0x00, 0x00, 0x00, 0x00,                         /* 111 reserved */
};

/* NO_SESSION for a FINISH, then an ERROR without corr: what a server may send. */
static const uint8_t golden_reply[] = {
	'K',  'V',  'S',  'C',                          /*  0 magic */
	0x03, 0x00,                                     /*  4 version */
	0x00, 0x00,                                     /*  6 reserved */
	0x59, 0x00, 0x00, 0x00,                         /*  8 length 89 */
	0x02, 0x00, 0x00, 0x00,                         /* 12 op_count */
	0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, /* 16 epoch */
	0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, /* 24 sent_us */
	0x05, 0x01,                                     /* 32 opcode FINISH, kind reply */
	0x0c, 0x00,                                     /* 34 status NO_SESSION */
	0x05, 0x00, 0x00, 0x00,                         /* 36 length */
	0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, /* 40 corr */
	0x00, 0x00, 0x00, 0x00,                         /* 48 budget_us */
	0x00, 0x00, 0x00, 0x00,                         /* 52 reserved */
	0x03, 0x00, 'o',  'u',  't',                    /* 56 text */
	0x0d, 0x01,                                     /* 61 opcode ERROR, kind reply */
	0x01, 0x00,                                     /* 63 status TRUNCATED */
	0x04, 0x00, 0x00, 0x00,                         /* 65 length */
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /* 69 corr */
	0x00, 0x00, 0x00, 0x00,                         /* 77 budget_us */
	0x00, 0x00, 0x00, 0x00,                         /* 81 reserved */
	0x02, 0x00, 'n',  'o',                          /* 85 text */
};

/* Checks the frame as a server or a client would, frees it, and compares the verdict. */
static void
expect(struct frame *f, bool requests, int status)
{
	struct scout__frame head = {.op_count = 77};
	int got = scout__frame_check(f->bytes, f->len, requests, &head);

	ck_assert_int_eq(got, status);
	if (status != SCOUT_WIRE_OK)
		ck_assert_uint_eq(head.op_count, 77);
	free(f->bytes);
	f->bytes = NULL;
}

/* The golden request with one number changed. */
/* The golden frame of that side with one number changed. */
static void
expect_with(bool requests, size_t offset, unsigned width, uint64_t value, int status)
{
	struct frame f = requests ? copy_of(golden_request, sizeof(golden_request), 0)
				  : copy_of(golden_reply, sizeof(golden_reply), 0);

	set(&f, offset, width, value);
	expect(&f, requests, status);
}

START_TEST(the_golden_request_is_built)
{
	uint8_t *buf = malloc(sizeof(golden_request));
	struct scout__writer w = {.buf = buf, .cap = sizeof(golden_request)};
	size_t op;

	ck_assert_ptr_nonnull(buf);
	scout__frame_begin(&w);
	op = scout__op_begin(&w, SCOUT_OP_FINISH, SCOUT_KIND_REQUEST, 0, 0x2122232425262728, 0x31323334);
	scout__put_one_u64(&w, 0x4142434445464748);
	scout__op_end(&w, op);
	op = scout__op_begin(&w, 200, SCOUT_KIND_REQUEST, 0, 2, 0);
	scout__put_bytes(&w, "???", 3);
	scout__op_end(&w, op);
	op = scout__op_begin(&w, SCOUT_OP_PING, SCOUT_KIND_REQUEST, 0, 3, 0);
	scout__op_end(&w, op);
	scout__frame_end(&w, 3, 0x0102030405060708, 0x1112131415161718);
	ck_assert(!w.bad);
	ck_assert_uint_eq(w.len, sizeof(golden_request));
	ck_assert_mem_eq(buf, golden_request, sizeof(golden_request));
	free(buf);
}
END_TEST

START_TEST(the_golden_reply_is_built)
{
	uint8_t buf[sizeof(golden_reply)];
	struct scout__writer w = {.buf = buf, .cap = sizeof(buf)};
	size_t op;

	scout__frame_begin(&w);
	op = scout__op_begin(&w, SCOUT_OP_FINISH, SCOUT_KIND_REPLY, SCOUT_WIRE_NO_SESSION, 0x2122232425262728, 0);
	scout__put_text(&w, "out");
	scout__op_end(&w, op);
	op = scout__op_begin(&w, SCOUT_OP_ERROR, SCOUT_KIND_REPLY, SCOUT_WIRE_TRUNCATED, 0, 0);
	scout__put_text(&w, "no");
	scout__op_end(&w, op);
	scout__frame_end(&w, 2, 0x0102030405060708, 0x1112131415161718);
	ck_assert(!w.bad);
	ck_assert_uint_eq(w.len, sizeof(golden_reply));
	ck_assert_mem_eq(buf, golden_reply, sizeof(golden_reply));
}
END_TEST

START_TEST(the_golden_request_is_taken_apart)
{
	struct frame f = copy_of(golden_request, sizeof(golden_request), 0);
	struct scout__reader ops;
	struct scout__frame head;
	struct scout__op op;

	ck_assert_int_eq(scout__frame_check(f.bytes, f.len, true, &head), SCOUT_WIRE_OK);
	ck_assert_uint_eq(head.version, 3);
	ck_assert_uint_eq(head.length, sizeof(golden_request));
	ck_assert_uint_eq(head.op_count, 3);
	ck_assert_uint_eq(head.epoch, 0x0102030405060708);
	ck_assert_uint_eq(head.sent_us, 0x1112131415161718);
	ops = scout__frame_ops(f.bytes, f.len);
	ck_assert(scout__frame_next(&ops, &op));
	ck_assert_uint_eq(op.opcode, SCOUT_OP_FINISH);
	ck_assert_uint_eq(op.kind, SCOUT_KIND_REQUEST);
	ck_assert_uint_eq(op.status, 0);
	ck_assert_uint_eq(op.length, 8);
	ck_assert_uint_eq(op.corr, 0x2122232425262728);
	ck_assert_uint_eq(op.budget_us, 0x31323334);
	ck_assert_ptr_eq(op.body, f.bytes + 56);
	ck_assert(scout__frame_next(&ops, &op));
	ck_assert_uint_eq(op.opcode, 200);
	ck_assert_uint_eq(op.length, 3);
	ck_assert_ptr_eq(op.body, f.bytes + 88);
	ck_assert(scout__frame_next(&ops, &op));
	ck_assert_uint_eq(op.opcode, SCOUT_OP_PING);
	ck_assert_uint_eq(op.length, 0);
	ck_assert_uint_eq(op.corr, 3);
	ck_assert(!scout__frame_next(&ops, &op));
	free(f.bytes);
}
END_TEST

START_TEST(the_golden_reply_is_taken_apart)
{
	struct scout__reader ops = scout__frame_ops(golden_reply, sizeof(golden_reply));
	struct scout__frame head;
	struct scout__op op;

	ck_assert_int_eq(scout__frame_check(golden_reply, sizeof(golden_reply), false, &head), SCOUT_WIRE_OK);
	ck_assert(scout__frame_next(&ops, &op));
	ck_assert_uint_eq(op.kind, SCOUT_KIND_REPLY);
	ck_assert_uint_eq(op.status, SCOUT_WIRE_NO_SESSION);
	ck_assert(scout__frame_next(&ops, &op));
	ck_assert_uint_eq(op.opcode, SCOUT_OP_ERROR);
	ck_assert_uint_eq(op.corr, 0);
	ck_assert_uint_eq(op.status, SCOUT_WIRE_TRUNCATED);
	ck_assert(!scout__frame_next(&ops, &op));
}
END_TEST

START_TEST(a_frame_cut_at_any_byte_is_refused)
{
	for (size_t keep = 0; keep < sizeof(golden_request); keep++) {
		struct frame f = copy_of(golden_request, keep, 0);

		expect(&f, true, keep < SCOUT_FRAME_HEADER_BYTES ? -1 : SCOUT_WIRE_TRUNCATED);
	}
}
END_TEST

START_TEST(a_frame_cut_at_any_byte_is_refused_also_if_its_length_says_so)
{
	for (size_t keep = SCOUT_FRAME_HEADER_BYTES; keep < sizeof(golden_request); keep++) {
		struct frame f = copy_of(golden_request, keep, 0);

		set(&f, 8, 4, keep);
		expect(&f, true, SCOUT_WIRE_TRUNCATED);
	}
}
END_TEST

START_TEST(bytes_behind_the_last_operation_are_refused)
{
	for (size_t extra = 1; extra <= 2 * SCOUT_OP_HEADER_BYTES; extra++) {
		struct frame f = copy_of(golden_request, sizeof(golden_request), extra);

		expect(&f, true, SCOUT_WIRE_TRUNCATED);
		f = copy_of(golden_request, sizeof(golden_request), extra);
		set(&f, 8, 4, f.len);
		expect(&f, true, SCOUT_WIRE_TRUNCATED);
	}
}
END_TEST

#define REQUEST true
#define REPLY false

/* One number in a golden frame, and what is said to it. */
static const struct spoiled {
	bool requests;
	size_t offset;
	unsigned width;
	uint64_t value;
	int status;
} spoiled[] = {
	/* a length that is not the size of the message */
	{REQUEST, 8, 4, 0, SCOUT_WIRE_TRUNCATED},
	{REQUEST, 8, 4, 1, SCOUT_WIRE_TRUNCATED},
	{REQUEST, 8, 4, 32, SCOUT_WIRE_TRUNCATED},
	{REQUEST, 8, 4, 114, SCOUT_WIRE_TRUNCATED},
	{REQUEST, 8, 4, 116, SCOUT_WIRE_TRUNCATED},
	{REQUEST, 8, 4, 0x7300, SCOUT_WIRE_TRUNCATED},
	{REQUEST, 8, 4, SCOUT_MAX_FRAME + 1, SCOUT_WIRE_TRUNCATED},
	{REQUEST, 8, 4, UINT32_MAX, SCOUT_WIRE_TRUNCATED},
	/* an operation that reaches beyond the end */
	{REQUEST, 36, 4, 60, SCOUT_WIRE_TRUNCATED},
	{REQUEST, 36, 4, UINT32_MAX, SCOUT_WIRE_TRUNCATED},
	{REQUEST, 36, 4, UINT32_MAX - SCOUT_OP_HEADER_BYTES, SCOUT_WIRE_TRUNCATED},
	{REQUEST, 68, 4, 28, SCOUT_WIRE_TRUNCATED},
	{REQUEST, 95, 4, 1, SCOUT_WIRE_TRUNCATED},
	{REQUEST, 95, 4, UINT32_MAX, SCOUT_WIRE_TRUNCATED},
	/* ... or takes exactly all that is left, so that the third is not there */
	{REQUEST, 68, 4, 27, SCOUT_WIRE_TRUNCATED},
	/* an op_count that is not the number of operations, or outside its range */
	{REQUEST, 12, 4, 1, SCOUT_WIRE_TRUNCATED},
	{REQUEST, 12, 4, 2, SCOUT_WIRE_TRUNCATED},
	{REQUEST, 12, 4, 4, SCOUT_WIRE_TRUNCATED},
	{REQUEST, 12, 4, SCOUT_MAX_OPS, SCOUT_WIRE_TRUNCATED},
	{REQUEST, 12, 4, 0, SCOUT_WIRE_TOO_LARGE},
	{REQUEST, 12, 4, SCOUT_MAX_OPS + 1, SCOUT_WIRE_TOO_LARGE},
	{REQUEST, 12, 4, UINT32_MAX, SCOUT_WIRE_TOO_LARGE},
	/* another magic: dropped without an answer */
	{REQUEST, 0, 1, 'K' ^ 1, -1},
	{REQUEST, 1, 1, 'V' ^ 1, -1},
	{REQUEST, 2, 1, 'S' ^ 1, -1},
	{REPLY, 3, 1, 'C' ^ 0x80, -1},
	/* another version */
	{REQUEST, 4, 2, 0, SCOUT_WIRE_BAD_VERSION},
	{REQUEST, 4, 2, 1, SCOUT_WIRE_BAD_VERSION},
	{REQUEST, 4, 2, 2, SCOUT_WIRE_BAD_VERSION},
	{REQUEST, 4, 2, 4, SCOUT_WIRE_BAD_VERSION},
	{REQUEST, 4, 2, 0x0303, SCOUT_WIRE_BAD_VERSION},
	{REPLY, 4, 2, 2, SCOUT_WIRE_BAD_VERSION},
	/* a server takes only clean requests: kind, status, corr */
	{REQUEST, 33, 1, SCOUT_KIND_REPLY, SCOUT_WIRE_BAD_RESERVED},
	{REQUEST, 92, 1, 2, SCOUT_WIRE_BAD_RESERVED},
	{REQUEST, 34, 2, SCOUT_WIRE_TRUNCATED, SCOUT_WIRE_BAD_RESERVED},
	{REQUEST, 93, 2, 0x0100, SCOUT_WIRE_BAD_RESERVED},
	{REQUEST, 40, 8, 0, SCOUT_WIRE_BAD_RESERVED},
	{REQUEST, 99, 8, 0, SCOUT_WIRE_BAD_RESERVED},
	{REQUEST, 99, 8, UINT64_C(1) << 63, SCOUT_WIRE_OK},
	/* a client only clean replies: kind, budget; a status of a later version is for the caller */
	{REPLY, 33, 1, SCOUT_KIND_REQUEST, SCOUT_WIRE_BAD_RESERVED},
	{REPLY, 33, 1, 2, SCOUT_WIRE_BAD_RESERVED},
	{REPLY, 48, 4, 1, SCOUT_WIRE_BAD_RESERVED},
	{REPLY, 34, 2, 65535, SCOUT_WIRE_OK},
	/* a reply without corr must be an ERROR, which may have one: the answer to a request of that opcode */
	{REPLY, 40, 8, 0, SCOUT_WIRE_BAD_RESERVED},
	{REPLY, 61, 1, SCOUT_OP_FINISH, SCOUT_WIRE_BAD_RESERVED},
	{REPLY, 61, 1, 200, SCOUT_WIRE_BAD_RESERVED},
	{REPLY, 69, 8, 5, SCOUT_WIRE_OK},
	/* reserved fields of a reply; those of a request: every_reserved_bit_is_checked */
	{REPLY, 6, 2, 1, SCOUT_WIRE_BAD_RESERVED},
	{REPLY, 52, 4, 1, SCOUT_WIRE_BAD_RESERVED},
	{REPLY, 81, 4, 0x80000000, SCOUT_WIRE_BAD_RESERVED},
};

START_LOOP_TEST(a_number_that_spoils_a_frame_is_refused, 0, sizeof(spoiled) / sizeof(spoiled[0]))
{
	const struct spoiled *s = &spoiled[_i];

	expect_with(s->requests, s->offset, s->width, s->value, s->status);
}
END_TEST

START_TEST(another_version_is_refused_before_anything_else)
{
	struct frame f = copy_of(golden_request, sizeof(golden_request), 0);

	/* In another version the other fields may mean something else. */
	memset(f.bytes + 4, 0xff, f.len - 4);
	expect(&f, true, SCOUT_WIRE_BAD_VERSION);
}
END_TEST

/* A frame of @len bytes that is one STORE. */
static struct frame
large_frame(size_t len)
{
	struct frame f = copy_of(golden_request, 64, len - 64);

	set(&f, 8, 4, len);
	set(&f, 12, 4, 1);
	set(&f, 36, 4, len - SCOUT_FRAME_HEADER_BYTES - SCOUT_OP_HEADER_BYTES);
	return f;
}

START_TEST(a_frame_longer_than_the_limit_is_refused)
{
	struct frame f = large_frame(SCOUT_MAX_FRAME);

	expect(&f, true, SCOUT_WIRE_OK);
	f = large_frame(SCOUT_MAX_FRAME + 1);
	expect(&f, true, SCOUT_WIRE_TOO_LARGE);
}
END_TEST

START_TEST(every_reserved_bit_is_checked)
{
	static const struct {
		size_t offset;
		unsigned width;
	} fields[] = {{6, 2}, {52, 4}, {84, 4}, {111, 4}};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		for (unsigned bit = 0; bit < 8 * fields[i].width; bit++)
			expect_with(REQUEST, fields[i].offset, fields[i].width, UINT64_C(1) << bit,
				    SCOUT_WIRE_BAD_RESERVED);
	}
}
END_TEST

START_TEST(each_side_takes_only_what_the_other_sends)
{
	struct frame request = copy_of(golden_request, sizeof(golden_request), 0);
	struct frame reply = copy_of(golden_reply, sizeof(golden_reply), 0);

	expect(&reply, true, SCOUT_WIRE_BAD_RESERVED);
	expect(&request, false, SCOUT_WIRE_BAD_RESERVED);
}
END_TEST

START_TEST(a_request_never_has_no_corr_whatever_its_opcode)
{
	for (unsigned opcode = 0; opcode < 256; opcode++) {
		struct frame f = copy_of(golden_request, sizeof(golden_request), 0);

		set(&f, 32, 1, opcode);
		set(&f, 40, 8, 0);
		expect(&f, true, SCOUT_WIRE_BAD_RESERVED);
	}
}
END_TEST

START_TEST(any_opcode_passes_the_frame_check)
{
	for (unsigned opcode = 0; opcode < 256; opcode++) {
		expect_with(REQUEST, 64, 1, opcode, SCOUT_WIRE_OK);
		expect_with(REPLY, 32, 1, opcode, SCOUT_WIRE_OK);
	}
}
END_TEST

/* A frame of @n PINGs with @cap bytes of room; *ret_w is as scout__frame_end() left it. */
static uint8_t *
build_pings(uint32_t n, size_t cap, struct scout__writer *ret_w)
{
	uint8_t *buf = malloc(cap > 0 ? cap : 1);
	struct scout__writer w = {.buf = buf, .cap = cap};

	ck_assert_ptr_nonnull(buf);
	scout__frame_begin(&w);
	for (uint32_t i = 0; i < n; i++)
		scout__op_end(&w, scout__op_begin(&w, SCOUT_OP_PING, SCOUT_KIND_REQUEST, 0, i + 1, 0));
	scout__frame_end(&w, n, 1, 1);
	*ret_w = w;
	return buf;
}

START_TEST(a_frame_holds_up_to_4096_operations)
{
	const size_t len = SCOUT_FRAME_HEADER_BYTES + SCOUT_MAX_OPS * SCOUT_OP_HEADER_BYTES;
	struct scout__writer w;
	uint8_t *buf = build_pings(SCOUT_MAX_OPS, len, &w);
	struct scout__reader ops = scout__frame_ops(buf, len);
	struct scout__frame head;
	struct scout__op op;
	uint64_t n = 0;

	ck_assert(!w.bad);
	ck_assert_uint_eq(w.len, len);
	ck_assert_int_eq(scout__frame_check(buf, len, true, &head), SCOUT_WIRE_OK);
	ck_assert_uint_eq(head.op_count, SCOUT_MAX_OPS);
	while (scout__frame_next(&ops, &op))
		ck_assert_uint_eq(op.corr, ++n);
	ck_assert_uint_eq(n, SCOUT_MAX_OPS);
	free(buf);
}
END_TEST

START_TEST(a_frame_that_no_peer_would_take_is_not_finished)
{
	struct scout__writer w;
	uint8_t *buf = build_pings(0, 32, &w);

	ck_assert(w.bad);
	free(buf);
	buf = build_pings(SCOUT_MAX_OPS + 1, 200000, &w);
	ck_assert(w.bad);
	free(buf);
	buf = calloc(1, (size_t)SCOUT_MAX_FRAME + 1);
	ck_assert_ptr_nonnull(buf);
	w = (struct scout__writer){.buf = buf, .cap = (size_t)SCOUT_MAX_FRAME + 1};
	scout__frame_begin(&w);
	(void)scout__op_begin(&w, SCOUT_OP_STORE, SCOUT_KIND_REQUEST, 0, 1, 0);
	w.len = w.cap;
	scout__op_end(&w, SCOUT_FRAME_HEADER_BYTES);
	ck_assert(w.bad);
	w.bad = false;
	scout__frame_end(&w, 1, 1, 1);
	ck_assert(w.bad);
	free(buf);
}
END_TEST

START_TEST(a_frame_without_room_is_bad_whatever_the_room)
{
	const size_t whole = SCOUT_FRAME_HEADER_BYTES + 2 * SCOUT_OP_HEADER_BYTES;

	for (size_t cap = 0; cap <= whole; cap++) {
		struct scout__writer w;
		uint8_t *buf = build_pings(2, cap, &w);

		ck_assert(w.bad == (cap < whole));
		ck_assert_uint_le(w.len, cap);
		free(buf);
	}
}
END_TEST

START_TEST(an_operation_that_did_not_fit_can_be_taken_back)
{
	uint8_t buf[SCOUT_FRAME_HEADER_BYTES + SCOUT_OP_HEADER_BYTES + 30];
	struct scout__writer w = {.buf = buf, .cap = sizeof(buf)};
	struct scout__frame head;
	size_t op;

	scout__frame_begin(&w);
	scout__op_end(&w, scout__op_begin(&w, SCOUT_OP_PING, SCOUT_KIND_REQUEST, 0, 1, 0));
	op = scout__op_begin(&w, SCOUT_OP_FINISH, SCOUT_KIND_REQUEST, 0, 2, 0);
	scout__put_one_u64(&w, 7);
	scout__op_end(&w, op);
	ck_assert(w.bad);
	w.len = op;
	w.bad = false;
	scout__frame_end(&w, 1, 1, 1);
	ck_assert(!w.bad);
	ck_assert_int_eq(scout__frame_check(buf, w.len, true, &head), SCOUT_WIRE_OK);
}
END_TEST

START_TEST(nothing_comes_out_of_what_is_no_frame)
{
	struct scout__op op;

	for (size_t len = 0; len < sizeof(golden_request); len++) {
		struct frame f = copy_of(golden_request, len, 0);
		struct scout__reader ops = scout__frame_ops(f.bytes, f.len);
		unsigned n = 0;

		while (scout__frame_next(&ops, &op))
			n++;
		ck_assert_uint_lt(n, 3);
		ck_assert(len >= 64 || n == 0);
		free(f.bytes);
	}
}
END_TEST
