/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "check_main.h"
#include "sha256.h"

/* sha256_alone.c, which this program compiles for itself: it is the product's only in builds with sha256=libcrypto-sha256. */

#define N SCOUT_SHA256_BYTES

struct vector {
	const char *text;
	int times; /* the message is so many copies of the text */
	uint8_t digest[N];
};

/* Messages of FIPS 180-4's examples: none, one and two blocks, and a million bytes. */
static const struct vector vectors[] = {
	{"", 1, {0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
		 0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55}},
	{"abc", 1, {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22, 0x23,
		    0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad}},
	{"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
	 1,
	 {0x24, 0x8d, 0x6a, 0x61, 0xd2, 0x06, 0x38, 0xb8, 0xe5, 0xc0, 0x26, 0x93, 0x0c, 0x3e, 0x60, 0x39,
	  0xa3, 0x3c, 0xe4, 0x59, 0x64, 0xff, 0x21, 0x67, 0xf6, 0xec, 0xed, 0xd4, 0x19, 0xdb, 0x06, 0xc1}},
	{"a", 1000000, {0xcd, 0xc7, 0x6e, 0x5c, 0x99, 0x14, 0xfb, 0x92, 0x81, 0xa1, 0xc7,
			0xe2, 0x84, 0xd7, 0x3e, 0x67, 0xf1, 0x80, 0x9a, 0x48, 0xa4, 0x97,
			0x20, 0x0e, 0x04, 0x6d, 0x39, 0xcc, 0xc7, 0x11, 0x2c, 0xd0}},
};

START_TEST(the_examples_of_the_standard_hold_in_one_context)
{
	struct scout__sha256 sha;
	uint8_t digest[N];

	ck_assert_int_eq(scout__sha256_init(&sha), 0);
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		size_t len = strlen(vectors[i].text), all = len * (size_t)vectors[i].times;
		uint8_t *message = malloc(all ? all : 1);

		ck_assert_ptr_nonnull(message);
		for (size_t at = 0; at < all; at += len)
			memcpy(message + at, vectors[i].text, len);
		ck_assert_int_eq(scout__sha256_digest(&sha, message, all, digest), 0);
		ck_assert_mem_eq(digest, vectors[i].digest, N);
		free(message);
	}
	scout__sha256_fini(&sha);
}
END_TEST

START_TEST(a_digest_may_lie_within_its_message)
{
	struct scout__sha256 sha;
	uint8_t message[] = "abcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabc";
	uint8_t expected[N];

	ck_assert_int_eq(scout__sha256_init(&sha), 0);
	ck_assert_int_eq(scout__sha256_digest(&sha, message, sizeof(message), expected), 0);
	ck_assert_int_eq(scout__sha256_digest(&sha, message, sizeof(message), message + 1), 0);
	ck_assert_mem_eq(message + 1, expected, N);
	scout__sha256_fini(&sha);
}
END_TEST
