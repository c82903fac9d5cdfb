/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_BASE_UTF8_H
#define SCOUT_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Length of the UTF-8 character at the start of the @left > 0 bytes at @p: 1 for ASCII; 0: no character. Any thread. */
size_t scout__utf8_length(const void *p, size_t left);
/*
 * The same for a character that may stand in a line for people: 0 also for a control character (U+0000..001F, U+007F..009F) and for
 * the separators of lines and paragraphs (U+2028, U+2029).
 */
size_t scout__utf8_printable(const void *p, size_t left);
/* Whether @len bytes are UTF-8: a CBOR text string must be, and a Python str can be encoded to nothing else. */
bool scout__utf8_is_valid(const void *p, size_t len);
/* Whether @len bytes are printable characters only: the names that a namespace or a tenant may have. */
bool scout__utf8_is_name(const void *p, size_t len);

#endif
