/* SPDX-License-Identifier: Apache-2.0 */
/* The encoder below the chunk hashes. */
#include <kvscout/hash.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_main.h"
#include "cbor.h"
#include "hash_vectors.h"

/* The examples of RFC 8949, appendix A, and the edges between the sizes. */
START_TEST(integers_take_their_shortest_form)
{
	static const struct {
		int64_t value;
		const char *bytes;
		size_t len;
	} examples[] = {
		{0, "\x00", 1},
		{23, "\x17", 1},
		{24, "\x18\x18", 2},
		{255, "\x18\xff", 2},
		{256, "\x19\x01\x00", 3},
		{65535, "\x19\xff\xff", 3},
		{65536, "\x1a\x00\x01\x00\x00", 5},
		{4294967295, "\x1a\xff\xff\xff\xff", 5},
		{4294967296, "\x1b\x00\x00\x00\x01\x00\x00\x00\x00", 9},
		{INT64_MAX, "\x1b\x7f\xff\xff\xff\xff\xff\xff\xff", 9},
		{-1, "\x20", 1},
		{-24, "\x37", 1},
		{-25, "\x38\x18", 2},
		{-256, "\x38\xff", 2},
		{-257, "\x39\x01\x00", 3},
		{-65536, "\x39\xff\xff", 3},
		{-65537, "\x3a\x00\x01\x00\x00", 5},
		{-4294967297, "\x3b\x00\x00\x00\x01\x00\x00\x00\x00", 9},
		{INT64_MIN, "\x3b\x7f\xff\xff\xff\xff\xff\xff\xff", 9},
	};
	uint8_t out[SCOUT_CBOR_HEAD_MAX];
	size_t i;

	for (i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
		ck_assert_uint_eq((size_t)(scout__cbor_put_int(out, examples[i].value) - out), examples[i].len);
		ck_assert_mem_eq(out, examples[i].bytes, examples[i].len);
	}
}
END_TEST

START_TEST(a_token_is_encoded_as_an_integer)
{
	uint8_t fast[SCOUT_CBOR_TOKEN_MAX], plain[SCOUT_CBOR_HEAD_MAX];
	uint32_t token, step = 1;

	for (token = 0;; token += step) {
		size_t len = (size_t)(scout__cbor_put_head(plain, SCOUT_CBOR_UINT, token) - plain);

		ck_assert_uint_eq((size_t)(scout__cbor_put_token(fast, token) - fast), len);
		ck_assert_mem_eq(fast, plain, len);
		step = token < 70000 ? 1 : 99991;
		if (token > UINT32_MAX - step)
			break;
	}
}
END_TEST
