/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "utf8.h"

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

enum format {
	LABEL, /* the inside of a quoted string of /metrics */
	JSON,
	LINE /* a part of a line of --status */
};

/* Add a character of @n bytes (0: one byte that belongs to no character) that must be escaped. */
static void
add_code(struct scout__text *text, const unsigned char *p, size_t n, enum format format)
{
	uint32_t code = n > 0 ? scout__utf8_code(p, n) : 0;

	if (format == JSON && code > 0xffff) {
		scout__text_add(text, "\\u%04x\\u%04x", 0xd7c0 + (code >> 10), 0xdc00 + (code & 0x3ff));
		return;
	}
	if (format == JSON && code > 0) {
		scout__text_add(text, "\\u%04x", code);
		return;
	}
	for (size_t i = 0; i < (n > 0 ? n : 1); i++)
		scout__text_add(text, format == LINE ? "\\x%02x" : "\\\\x%02x", (unsigned)p[i]);
}

static void
add_escaped(struct scout__text *text, const char *bytes, size_t len, enum format format)
{
	const unsigned char *p = (const unsigned char *)bytes;
	size_t n;

	for (size_t i = 0; i < len; i += n) {
		n = scout__utf8_printable(p + i, len - i);
		if (n == 0) {
			n = scout__utf8_length(p + i, len - i);
			if (p[i] == '\n')
				scout__text_add(text, "\\n");
			else
				add_code(text, p + i, n, format);
			n = n > 0 ? n : 1;
		} else if (p[i] == '\\' || (p[i] == '"' && format != LINE)) {
			scout__text_add(text, "\\%c", p[i]);
		} else {
			scout__text_add(text, "%.*s", (int)n, bytes + i);
		}
	}
}

void
scout__text_label(struct scout__text *text, const char *bytes, size_t len)
{
	add_escaped(text, bytes, len, LABEL);
}

void
scout__text_json(struct scout__text *text, const char *bytes, size_t len)
{
	add_escaped(text, bytes, len, JSON);
}

void
scout__text_line(struct scout__text *text, const char *bytes, size_t len)
{
	add_escaped(text, bytes, len, LINE);
}

void
scout__text_fini(struct scout__text *text)
{
	free(text->p);
	*text = (struct scout__text){NULL, 0, 0, false};
}
