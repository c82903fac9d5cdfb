/* SPDX-License-Identifier: Apache-2.0 */
/* CBOR heads, integers and texts of block hashes, see cbor.h. Pure functions: any thread. */
#include "cbor.h"

uint8_t *
scout__cbor_put_head(uint8_t *at, enum scout__cbor_major major, uint64_t argument)
{
	unsigned type = (unsigned)major << 5;
	int n_bytes;

	if (argument < 24) {
		*at++ = (uint8_t)(type | argument);
		return at;
	}
	if (argument <= 0xff) {
		*at++ = (uint8_t)(type | 24);
		n_bytes = 1;
	} else if (argument <= 0xffff) {
		*at++ = (uint8_t)(type | 25);
		n_bytes = 2;
	} else if (argument <= 0xffffffff) {
		*at++ = (uint8_t)(type | 26);
		n_bytes = 4;
	} else {
		*at++ = (uint8_t)(type | 27);
		n_bytes = 8;
	}
	while (n_bytes-- > 0)
		*at++ = (uint8_t)(argument >> (8 * n_bytes));
	return at;
}

uint8_t *
scout__cbor_put_int(uint8_t *at, int64_t value)
{
	if (value >= 0)
		return scout__cbor_put_head(at, SCOUT_CBOR_UINT, (uint64_t)value);
	/* CBOR stores -1 - value, which is the complement and cannot overflow. */
	return scout__cbor_put_head(at, SCOUT_CBOR_NEGATIVE, ~(uint64_t)value);
}

uint8_t *
scout__cbor_put_string(uint8_t *at, enum scout__cbor_major major, const void *bytes, size_t len)
{
	at = scout__cbor_put_head(at, major, len);
	memcpy(at, bytes, len);
	return at + len;
}
