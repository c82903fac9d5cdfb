/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Text that grows at its end in a buffer of the caller's, always NUL-terminated. What does not fit sets `is_cut`, which
 * stays set: a caller looks once, after the last put. Any thread, one at a time. Nothing here blocks.
 */
struct scout__s3_text {
	char *at;
	size_t len, size; /* size: with the NUL, 1 at least */
	bool is_cut;
};

static inline struct scout__s3_text
scout__s3_text_in(char *buffer, size_t size)
{
	buffer[0] = '\0';
	return (struct scout__s3_text){.at = buffer, .size = size};
}

void scout__s3_put(struct scout__s3_text *text, const char *bytes, size_t len);
__attribute__((format(printf, 2, 3))) void scout__s3_printf(struct scout__s3_text *text, const char *format, ...);
/* As RFC 3986 and S3 want it: all but letters, digits and -._~ as %XX; slashes stay if @keep_slashes. */
void scout__s3_put_encoded(struct scout__s3_text *text, const char *raw, bool keep_slashes);
/* Lower-case hex digits. */
void scout__s3_put_hex(struct scout__s3_text *text, const uint8_t *bytes, size_t len);

/*
 * The text between the first <@element> and the </@element> after it, without the five entities of XML. Returns whether
 * there is one that fits; @ret_text is "" otherwise. @ret_next, or NULL: what follows it in @xml.
 */
bool scout__s3_xml(const char *xml, const char *element, char *ret_text, size_t size, const char **ret_next);
/* The string that @name has in @json, wherever it stands; without \u escapes. Returns and writes as scout__s3_xml(). */
bool scout__s3_json(const char *json, const char *name, char *ret_text, size_t size);
