/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the UTF-8 character at the start of the @left > 0 bytes at @p: 1 for ASCII; 0: no character. Any thread. */
size_t scout__utf8_length(const void *p, size_t left);
/* The number of a character of @n bytes, as scout__utf8_length() says it. */
uint32_t scout__utf8_code(const void *p, size_t n);
/*
 * The length of a character that may stand in a line for people. 0 also for control characters, separators of lines and paragraphs, and
 * format characters that nobody sees, such as U+202E, which turns the direction of what follows, or U+200B of no width.
 */
size_t scout__utf8_printable(const void *p, size_t left);
/*
 * Make @text fit for a line and a terminal: each byte that belongs to no character, and each character that is not printable as a whole,
 * becomes one '?'. Never longer than before.
 */
void scout__utf8_clean(char *text);
/* Whether @len bytes are UTF-8: a CBOR text string must be, and a Python str can be encoded to nothing else. */
bool scout__utf8_is_valid(const void *p, size_t len);
/* Whether @len bytes are printable characters only: the names that a namespace or a tenant may have. */
bool scout__utf8_is_name(const void *p, size_t len);
