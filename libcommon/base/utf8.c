/* SPDX-License-Identifier: Apache-2.0 */
#include "utf8.h"

#include <string.h>

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

uint32_t
scout__utf8_code(const void *bytes, size_t n)
{
	const unsigned char *p = bytes;
	uint32_t code = n == 1 ? *p : *p & (0x7fu >> n);

	for (size_t i = 1; i < n; i++)
		code = code << 6 | (p[i] & 0x3fu);
	return code;
}

/*
 * Controls; the separators of lines and paragraphs; and of Unicode's format characters (general category Cf) those that nobody sees: what
 * turns the direction of writing, hides, joins, or tags. Those that stand for a visible sign (U+0600 and others) may pass.
 */
static const struct {
	uint32_t first, last;
} unseen[] = {
	{0x0, 0x1f},        {0x7f, 0x9f},       {0xad, 0xad},       {0x61c, 0x61c},   {0x180e, 0x180e},
	{0x200b, 0x200f},   {0x2028, 0x202e},   {0x2060, 0x206f},   {0xfeff, 0xfeff}, {0xfff9, 0xfffb},
	{0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe007f},
};

size_t
scout__utf8_printable(const void *bytes, size_t left)
{
	const unsigned char *p = bytes;
	size_t n;
	uint32_t code;

	if (*p >= 0x20 && *p < 0x7f) /* almost all names */
		return 1;
	n = scout__utf8_length(p, left);
	code = n > 0 ? scout__utf8_code(p, n) : 0;
	for (size_t i = 0; i < sizeof(unseen) / sizeof(unseen[0]); i++)
		if (code >= unseen[i].first && code <= unseen[i].last)
			return 0;
	return n;
}

void
scout__utf8_clean(char *text)
{
	size_t left = strlen(text), n;
	char *to = text;

	for (; left > 0; text += n, left -= n) {
		n = scout__utf8_printable(text, left);
		if (n > 0) {
			memmove(to, text, n);
			to += n;
			continue;
		}
		n = scout__utf8_length(text, left);
		n = n > 0 ? n : 1;
		*to++ = '?';
	}
	*to = '\0';
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
