/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/*
 * Keys of CurveZMQ: 32 bytes, written as 40 characters of Z85. A key file has one key on each line; blank lines and lines that
 * begin with '#' are skipped, and so is the text after a key and a blank.
 */
#define SCOUT__CURVE_KEY 40

/* Whether the first 40 characters are of Z85, and the text ends there. */
bool scout__curve_is_key(const char *text);

/* The next key of an open file into @ret_key. 1: there is one, 0: the end, SCOUT_ERR_FORMAT: line *line is no key. */
int scout__curve_next_key(FILE *file, unsigned *line, char ret_key[SCOUT__CURVE_KEY + 1]);

/*
 * The one secret key of a file that only its owner may read.
 * Returns 0, SCOUT_ERR_FORMAT (no such file, or not one key), SCOUT_ERR_PERMISSION; @err has the text, never the key.
 */
int scout__curve_read_secret(const char *path, char ret_key[SCOUT__CURVE_KEY + 1], char *err, size_t err_len);
