/* SPDX-License-Identifier: Apache-2.0 */
#include "s3_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/*
 * See s3_text.h. XML and JSON are read by their names alone: S3 and the services that hand out credentials answer with
 * flat documents, in which a name stands once, or in a row of equal elements. Nothing that is read decides more than
 * which object to ask for next, or is a credential that the store then judges.
 */

void
scout__s3_put(struct scout__s3_text *text, const char *bytes, size_t len)
{
	if (len >= text->size - text->len) {
		text->is_cut = true;
		return;
	}
	memcpy(text->at + text->len, bytes, len);
	text->len += len;
	text->at[text->len] = '\0';
}

void
scout__s3_printf(struct scout__s3_text *text, const char *format, ...)
{
	size_t room = text->size - text->len;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text->at + text->len, room, format, args);
	va_end(args);
	if (n >= 0 && (size_t)n < room) {
		text->len += (size_t)n;
		return;
	}
	text->at[text->len] = '\0';
	text->is_cut = true;
}

void
scout__s3_put_encoded(struct scout__s3_text *text, const char *raw, bool keep_slashes)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";

	for (; *raw; raw++) {
		if (strchr(plain, *raw) || (keep_slashes && *raw == '/'))
			scout__s3_put(text, raw, 1);
		else
			scout__s3_printf(text, "%%%02X", (unsigned char)*raw);
	}
}

void
scout__s3_put_hex(struct scout__s3_text *text, const uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		scout__s3_printf(text, "%02x", bytes[i]);
}

/* The entity at the start of @from, as its character; 0: none. */
static char
entity(const char *from, size_t *ret_len)
{
	static const struct {
		const char *text;
		char is;
	} table[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		*ret_len = strlen(table[i].text);
		if (strncmp(from, table[i].text, *ret_len) == 0)
			return table[i].is;
	}
	*ret_len = 1;
	return 0;
}

bool
scout__s3_xml(const char *xml, const char *element, char *ret_text, size_t size, const char **ret_next)
{
	struct scout__s3_text text = scout__s3_text_in(ret_text, size);
	char tag[64];
	const char *at, *end;
	size_t len;

	(void)snprintf(tag, sizeof(tag), "<%s>", element);
	at = strstr(xml, tag);
	if (!at)
		return false;
	at += strlen(tag);
	(void)snprintf(tag, sizeof(tag), "</%s>", element);
	end = strstr(at, tag);
	if (!end)
		return false;
	if (ret_next)
		*ret_next = end + strlen(tag);
	for (; at < end; at += len) {
		char is = entity(at, &len);

		scout__s3_put(&text, is ? &is : at, 1);
	}
	if (text.is_cut)
		ret_text[0] = '\0';
	return !text.is_cut;
}

bool
scout__s3_json(const char *json, const char *name, char *ret_text, size_t size)
{
	struct scout__s3_text text = scout__s3_text_in(ret_text, size);
	char quoted[64];
	const char *at;

	(void)snprintf(quoted, sizeof(quoted), "\"%s\"", name);
	at = strstr(json, quoted);
	if (!at)
		return false;
	at += strlen(quoted);
	at += strspn(at, " \t\r\n");
	if (*at++ != ':')
		return false;
	at += strspn(at, " \t\r\n");
	if (*at++ != '"')
		return false;
	for (; *at && *at != '"'; at++) {
		if (*at == '\\' && *++at == '\0')
			break;
		scout__s3_put(&text, at, 1);
	}
	if (*at == '"' && !text.is_cut)
		return true;
	ret_text[0] = '\0';
	return false;
}
