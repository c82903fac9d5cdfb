/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check_main.h"
#include "wire.h"

/* Buffers are heap blocks of exactly the right size, so that the address sanitizer sees an access one byte too far. */
static uint8_t *
exact_copy(const void *bytes, size_t len)
{
	uint8_t *copy = malloc(len > 0 ? len : 1);

	ck_assert_ptr_nonnull(copy);
	if (len > 0)
		memcpy(copy, bytes, len);
	return copy;
}

static const uint8_t all_widths[] = {
	0x01,                                           /* u8 */
	0x03, 0x02,                                     /* u16, unaligned from here on */
	0x07, 0x06, 0x05, 0x84,                         /* u32 */
	0x0f, 0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 0x09, 0x88, /* u64 */
	0x02, 0x00, 'h',  'i',                          /* str */
	0xee, 0xff,                                     /* bytes */
};

static void
put_all_widths(struct scout__writer *w)
{
	scout__put_u8(w, 0x01);
	scout__put_u16(w, 0x0203);
	scout__put_u32(w, 0x84050607);
	scout__put_u64(w, 0x88090a0b0c0d0e0f);
	scout__put_str(w, "hi", 2);
	scout__put_bytes(w, "\xee\xff", 2);
}

START_TEST(numbers_are_written_little_endian_and_unpadded)
{
	uint8_t *buf = malloc(sizeof(all_widths));
	struct scout__writer w = {.buf = buf, .cap = sizeof(all_widths)};

	ck_assert_ptr_nonnull(buf);
	put_all_widths(&w);
	ck_assert(!w.bad);
	ck_assert_uint_eq(w.len, sizeof(all_widths));
	ck_assert_mem_eq(buf, all_widths, sizeof(all_widths));
	free(buf);
}
END_TEST

START_TEST(numbers_are_read_little_endian_at_any_alignment)
{
	for (size_t shift = 0; shift < 8; shift++) {
		uint8_t *block = malloc(sizeof(all_widths) + shift);
		struct scout__reader r;
		const uint8_t *bytes;
		const char *s;
		uint16_t len;

		ck_assert_ptr_nonnull(block);
		memcpy(block + shift, all_widths, sizeof(all_widths));
		r = scout__reader_of(block + shift, sizeof(all_widths));
		ck_assert_uint_eq(scout__get_u8(&r), 0x01);
		ck_assert_uint_eq(scout__get_u16(&r), 0x0203);
		ck_assert_uint_eq(scout__get_u32(&r), 0x84050607);
		ck_assert_uint_eq(scout__get_u64(&r), 0x88090a0b0c0d0e0f);
		s = scout__get_str(&r, &len);
		ck_assert_uint_eq(len, 2);
		ck_assert_mem_eq(s, "hi", 2);
		ck_assert(!scout__reader_done(&r));
		bytes = scout__get_bytes(&r, 2);
		ck_assert_mem_eq(bytes, "\xee\xff", 2);
		ck_assert(scout__reader_done(&r));
		free(block);
	}
}
END_TEST

START_TEST(loads_need_no_alignment)
{
	ck_assert_uint_eq(scout__load_u16(all_widths + 1), 0x0203);
	ck_assert_uint_eq(scout__load_u32(all_widths + 3), 0x84050607);
	ck_assert_uint_eq(scout__load_u64(all_widths + 7), 0x88090a0b0c0d0e0f);
}
END_TEST

/* Reads one number of @width bytes. */
static uint64_t
get_number(struct scout__reader *r, size_t width)
{
	switch (width) {
	case 1:
		return scout__get_u8(r);
	case 2:
		return scout__get_u16(r);
	case 4:
		return scout__get_u32(r);
	default:
		return scout__get_u64(r);
	}
}

START_LOOP_TEST(a_read_beyond_the_end_latches_and_gives_zeroes, 0, 4)
{
	static const size_t widths[] = {1, 2, 4, 8};
	const size_t width = widths[_i];

	for (size_t len = 0; len < width; len++) {
		uint8_t *bytes = exact_copy("\xff\xff\xff\xff\xff\xff\xff", len);
		struct scout__reader r = scout__reader_of(bytes, len);
		uint16_t str_len = 77;

		ck_assert_uint_eq(get_number(&r, width), 0);
		ck_assert(r.bad);
		/* Bytes that would be there are not given any more either. */
		ck_assert_uint_eq(scout__get_u8(&r), 0);
		ck_assert_ptr_null(scout__get_bytes(&r, 0));
		ck_assert_ptr_null(scout__get_str(&r, &str_len));
		ck_assert_uint_eq(str_len, 0);
		ck_assert(!scout__reader_done(&r));
		free(bytes);
	}
}
END_TEST

START_TEST(a_string_that_is_not_whole_latches)
{
	static const uint8_t bytes[] = {0x03, 0x00, 'a', 'b'};

	for (size_t len = 0; len <= sizeof(bytes); len++) {
		uint8_t *copy = exact_copy(bytes, len);
		struct scout__reader r = scout__reader_of(copy, len);
		uint16_t str_len = 77;

		ck_assert_ptr_null(scout__get_str(&r, &str_len));
		ck_assert_uint_eq(str_len, 0);
		ck_assert(r.bad);
		free(copy);
	}
}
END_TEST

START_TEST(a_length_near_the_end_of_the_address_space_does_not_overflow)
{
	uint8_t bytes[4] = {0};
	struct scout__reader r = scout__reader_of(bytes, sizeof(bytes));
	struct scout__writer w = {.buf = bytes, .cap = sizeof(bytes)};

	(void)scout__get_u8(&r);
	ck_assert_ptr_null(scout__get_bytes(&r, SIZE_MAX));
	ck_assert(r.bad);
	scout__put_u8(&w, 1);
	scout__put_bytes(&w, bytes, SIZE_MAX);
	ck_assert(w.bad);
	ck_assert_uint_eq(w.len, 1);
}
END_TEST

START_TEST(nothing_is_a_whole_body_and_an_empty_view)
{
	struct scout__reader r = scout__reader_of(NULL, 0);
	struct scout__writer w = {0};

	ck_assert(scout__reader_done(&r));
	(void)scout__get_bytes(&r, 0);
	ck_assert(scout__reader_done(&r));
	scout__put_bytes(&w, NULL, 0);
	ck_assert(!w.bad);
	scout__put_u8(&w, 0);
	ck_assert(w.bad);
}
END_TEST

START_TEST(a_write_without_room_latches_and_touches_nothing)
{
	for (size_t cap = 0; cap < sizeof(all_widths); cap++) {
		uint8_t *buf = malloc(cap > 0 ? cap : 1);
		struct scout__writer w = {.buf = buf, .cap = cap};
		size_t len;

		ck_assert_ptr_nonnull(buf);
		put_all_widths(&w);
		ck_assert(w.bad);
		ck_assert_uint_le(w.len, cap);
		ck_assert_mem_eq(buf, all_widths, w.len);
		len = w.len;
		scout__put_u8(&w, 1);
		ck_assert_uint_eq(w.len, len);
		free(buf);
	}
}
END_TEST

/*
 * @tail is what stands around byte 65535 of a text that is one byte longer than fits; @expected the length that is
 * left.
 */
static void
check_cut(const char *tail, size_t tail_at, size_t expected)
{
	const size_t len = 65540;
	char *text = malloc(len);
	uint8_t *buf = malloc(70000);
	struct scout__writer w = {.buf = buf, .cap = 70000};
	struct scout__reader r;
	const char *s;
	uint16_t got;

	ck_assert(text && buf);
	memset(text, 'x', len);
	memcpy(text + tail_at, tail, strlen(tail));
	scout__put_str(&w, text, len);
	ck_assert(!w.bad);
	ck_assert_uint_eq(w.len, 2 + expected);
	r = scout__reader_of(buf, w.len);
	s = scout__get_str(&r, &got);
	ck_assert_uint_eq(got, expected);
	ck_assert_mem_eq(s, text, expected);
	ck_assert(scout__reader_done(&r));
	free(text);
	free(buf);
}

START_TEST(room_is_doubled_and_keeps_what_was_written)
{
	struct scout__writer w = {0};

	ck_assert(scout__writer_reserve(&w, 1, 16));
	ck_assert_uint_eq(w.cap, 16);
	scout__put_u64(&w, 0x0807060504030201);
	ck_assert(scout__writer_reserve(&w, 16, 64));
	ck_assert_uint_eq(w.cap, 16);
	ck_assert(scout__writer_reserve(&w, 33, 64));
	ck_assert_uint_eq(w.cap, 64);
	ck_assert_uint_eq(w.len, 8);
	ck_assert_mem_eq(w.buf, "\1\2\3\4\5\6\7\10", 8);
	ck_assert(!w.bad);
	free(w.buf);
}
END_TEST

START_TEST(a_text_that_is_too_long_is_cut_between_characters)
{
	check_cut("x", 65535, 65535);
	check_cut("\xc3\xa9", 65533, 65535);                 /* ends exactly there */
	check_cut("\xc3\xa9", 65534, 65534);                 /* one of its two bytes would be left */
	check_cut("\xe2\x82\xac", 65533, 65533);             /* two of three */
	check_cut("\xf0\x9f\x98\x80", 65532, 65532);         /* three of four */
	check_cut("\x80\x80\x80\x80\x80\x80", 65531, 65532); /* no UTF-8 at all: it ends all the same */
}
END_TEST

START_TEST(a_text_of_65535_bytes_is_not_cut)
{
	char *text = calloc(1, 65535);
	uint8_t *buf = malloc(2 + 65535);
	struct scout__writer w = {.buf = buf, .cap = 2 + 65535};

	ck_assert(text && buf);
	scout__put_str(&w, text, 65535);
	ck_assert(!w.bad);
	ck_assert_uint_eq(w.len, 2 + 65535);
	ck_assert_uint_eq(buf[0], 0xff);
	ck_assert_uint_eq(buf[1], 0xff);
	free(text);
	free(buf);
}
END_TEST

START_TEST(a_patch_changes_only_its_bytes)
{
	static const uint8_t expected[] = {0,    0x44, 0x33, 0x22, 0x11, 5,    0x88,
					   0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11};
	uint8_t buf[14] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
	struct scout__writer w = {.buf = buf, .cap = sizeof(buf), .len = sizeof(buf)};

	scout__patch_u32(&w, 1, 0x11223344);
	scout__patch_u64(&w, 6, 0x1122334455667788);
	ck_assert(!w.bad);
	ck_assert_uint_eq(w.len, sizeof(buf));
	ck_assert_mem_eq(buf, expected, sizeof(buf));
}
END_TEST

START_TEST(a_patch_beyond_what_was_written_latches_and_touches_nothing)
{
	static const size_t offsets[] = {3, 4, 5, 6, 7, SIZE_MAX - 1, SIZE_MAX};

	for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
		uint8_t buf[16] = {0};
		static const uint8_t zeroes[16];
		struct scout__writer w = {.buf = buf, .cap = sizeof(buf), .len = 6};

		scout__patch_u32(&w, offsets[i], UINT32_MAX);
		ck_assert(w.bad);
		w = (struct scout__writer){.buf = buf, .cap = sizeof(buf), .len = 6};
		scout__patch_u64(&w, offsets[i], UINT64_MAX);
		ck_assert(w.bad);
		ck_assert_mem_eq(buf, zeroes, sizeof(buf));
	}
}
END_TEST

START_TEST(a_patch_of_a_bad_writer_does_nothing)
{
	uint8_t buf[8] = {0};
	static const uint8_t zeroes[8];
	struct scout__writer w = {.buf = buf, .cap = sizeof(buf), .len = sizeof(buf), .bad = true};

	scout__patch_u32(&w, 0, UINT32_MAX);
	scout__patch_u64(&w, 0, UINT64_MAX);
	ck_assert_mem_eq(buf, zeroes, sizeof(buf));
}
END_TEST
