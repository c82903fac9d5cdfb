/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* A key, a value for it, and what its field in a structure then holds. */
struct setting {
	const char *key, *value;
	size_t offset, width; /* of a number; width 0: the field is a string */
	uint64_t number;
	const char *text;
};

#define NUMBER(type, field, n)                                                                                         \
	.offset = offsetof(type, field), .width = sizeof(((type *)0)->field), .number = (uint64_t)(n)
#define TEXT(type, field, string) .offset = offsetof(type, field), .text = string

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))
#define PUBLIC_KEY "0123456789012345678901234567890123456789"

/* Each field of @cfg is what its setting says. */
void check_settings(const void *cfg, const struct setting *settings, size_t n);

/* The path of a new file with @text, until the next call; the caller removes the file. */
const char *file_with(const void *text, size_t n);

/* @text has each of the @n words that are no NULL. */
void check_names(const char *text, const char *const *words, size_t n);
