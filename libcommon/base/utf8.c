/* SPDX-License-Identifier: Apache-2.0 */
#include "utf8.h"

/* Lengths and validity of UTF-8, see utf8.h. Any thread; no state. */

size_t
scout__utf8_length(const void *bytes, size_t left)
{
	const unsigned char *p = bytes;
	size_t n = *p < 0x80 ? 1 : *p < 0xc2 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf5 ? 4 : 0;

	if (n == 0 || n > left)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	/* Overlong, surrogates, beyond the last character. */
	if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) || (*p == 0xf0 && p[1] < 0x90) ||
	    (*p == 0xf4 && p[1] > 0x8f))
		return 0;
	return n;
}

size_t
scout__utf8_printable(const void *bytes, size_t left)
{
	const unsigned char *p = bytes;
	size_t n = scout__utf8_length(p, left);

	if (n == 1)
		return *p >= 0x20 && *p != 0x7f;
	if (n == 2)
		return *p == 0xc2 && p[1] < 0xa0 ? 0 : 2;
	if (n == 3 && *p == 0xe2 && p[1] == 0x80 && (p[2] == 0xa8 || p[2] == 0xa9))
		return 0;
	return n;
}

bool
scout__utf8_is_valid(const void *bytes, size_t len)
{
	const unsigned char *p = bytes;

	for (size_t n; len > 0; p += n, len -= n) {
		n = scout__utf8_length(p, len);
		if (n == 0)
			return false;
	}
	return true;
}

bool
scout__utf8_is_name(const void *bytes, size_t len)
{
	const unsigned char *p = bytes;

	for (size_t n; len > 0; p += n, len -= n) {
		n = scout__utf8_printable(p, len);
		if (n == 0)
			return false;
	}
	return true;
}
