/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* See text.h. Any thread. */

/* Room for @n bytes more. */
static bool
make_room(struct scout__text *text, size_t n)
{
	size_t cap = text->cap ? text->cap : 4096;
	char *p;

	if (text->failed)
		return false;
	while (cap < text->len + n)
		cap *= 2;
	if (cap == text->cap)
		return true;
	p = cap <= SCOUT__TEXT_MAX ? realloc(text->p, cap) : NULL;
	if (!p) {
		text->failed = true;
		return false;
	}
	text->p = p;
	text->cap = cap;
	return true;
}

void
scout__text_add(struct scout__text *text, const char *fmt, ...)
{
	va_list args, again;
	int n;

	va_start(args, fmt);
	va_copy(again, args);
	n = vsnprintf(NULL, 0, fmt, args);
	/* One more for the terminator, which the next text overwrites. */
	if (n >= 0 && make_room(text, (size_t)n + 1)) {
		(void)vsnprintf(text->p + text->len, (size_t)n + 1, fmt, again);
		text->len += (size_t)n;
	}
	va_end(again);
	va_end(args);
}

void
scout__text_number(struct scout__text *text, uint64_t value, uint32_t per_unit)
{
	unsigned long long whole = per_unit > 1 ? value / per_unit : value;

	if (per_unit > 1 && value % per_unit)
		scout__text_add(text, "%llu.%0*u", whole, per_unit == 1000 ? 3 : 6, (unsigned)(value % per_unit));
	else
		scout__text_add(text, "%llu", whole);
}

/* Bytes of the UTF-8 character at @p, 1 for ASCII; 0: it is none. */
static size_t
utf8_length(const unsigned char *p, size_t left)
{
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

static void
add_escaped(struct scout__text *text, const char *bytes, size_t len, bool json)
{
	const unsigned char *p = (const unsigned char *)bytes;
	size_t n;

	for (size_t i = 0; i < len; i += n) {
		n = utf8_length(p + i, len - i);
		if (n == 0 || p[i] == 0) {
			n = 1;
			scout__text_add(text, "\\\\x%02x", (unsigned)p[i]);
		} else if (p[i] == '"' || p[i] == '\\') {
			scout__text_add(text, "\\%c", p[i]);
		} else if (p[i] == '\n') {
			scout__text_add(text, "\\n");
		} else if (json && p[i] < 0x20) {
			scout__text_add(text, "\\u%04x", (unsigned)p[i]);
		} else {
			scout__text_add(text, "%.*s", (int)n, bytes + i);
		}
	}
}

void
scout__text_label(struct scout__text *text, const char *bytes, size_t len)
{
	add_escaped(text, bytes, len, false);
}

void
scout__text_json(struct scout__text *text, const char *bytes, size_t len)
{
	add_escaped(text, bytes, len, true);
}

void
scout__text_fini(struct scout__text *text)
{
	free(text->p);
	*text = (struct scout__text){NULL, 0, 0, false};
}
