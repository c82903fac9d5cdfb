/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * The part of canonical CBOR (RFC 8949, section 4.2.1: shortest heads, definite lengths) that block hashes need.
 * Encoders append at @at and return the new end. They check no bound: the caller has reserved the maximum beforehand.
 *
 * Threads: pure functions.
 */

#define SCOUT_CBOR_HEAD_MAX 9  /* a head with an 8-byte argument */
#define SCOUT_CBOR_TOKEN_MAX 5 /* a 32-bit unsigned integer */
#define SCOUT_CBOR_NULL 0xf6

enum scout__cbor_major {
	SCOUT_CBOR_UINT = 0,
	SCOUT_CBOR_NEGATIVE = 1,
	SCOUT_CBOR_BYTES = 2,
	SCOUT_CBOR_TEXT = 3,
	SCOUT_CBOR_ARRAY = 4
};

uint8_t *scout__cbor_put_head(uint8_t *at, enum scout__cbor_major major, uint64_t argument);
uint8_t *scout__cbor_put_int(uint8_t *at, int64_t value);
uint8_t *scout__cbor_put_string(uint8_t *at, enum scout__cbor_major major, const void *bytes, size_t len);

/*
 * One token id. May write SCOUT_CBOR_TOKEN_MAX bytes for any id; the bytes after the returned end are then garbage.
 *
 * Whether an id takes three bytes or five is close to random, and a mispredicted branch costs more than the encoding:
 * so these two forms are written without a branch, by moving the shorter form's two bytes to the front. Only the
 * first 256 ids branch.
 */
static inline uint8_t *
scout__cbor_put_token(uint8_t *at, uint32_t token)
{
	/* 1 if the id fits into two bytes: then the difference is negative. Compilers would make a branch of a comparison. */
	uint32_t is_short = (uint32_t)(((uint64_t)token - 0x10000) >> 63);
	uint32_t big_endian = htobe32(token << (16 * is_short));

	if (token <= 0xff) {
		at[0] = token < 24 ? (uint8_t)token : 24;
		at[1] = (uint8_t)token;
		return at + (token < 24 ? 1 : 2);
	}
	at[0] = (uint8_t)(26 - is_short);
	memcpy(at + 1, &big_endian, sizeof(big_endian));
	return at + 5 - (is_short << 1);
}
