/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "option.h"

/*
 * One option's value as text and back; internal to the option table. A number of any type travels as the 64 bits of a
 * uint64_t, an I32 sign-extended.
 */

#define SCOUT__OPTION_TEXT 128 /* enough for each of the texts below; longer ones are cut */

/* @text for use in a message: cut to a readable length, control characters replaced. Returns @buf. */
const char *scout__option_quote(char buf[SCOUT__OPTION_TEXT], const char *text);

/* "1..64", "64Ki..4Gi", "async, polled", "1..255 bytes", "1..8 items with blanks ...". Returns @buf. */
const char *scout__option_range(const struct scout__option *option, char buf[SCOUT__OPTION_TEXT]);

/* Print the number as a user would write it: "64Mi", "async", "-1". Returns @buf. */
const char *scout__option_number(const struct scout__option *option, uint64_t number, char buf[SCOUT__OPTION_TEXT]);

/* Parse a number of every type but SCOUT_OPTION_STRING and _LIST, and check its range. */
int scout__option_parse(const struct scout__option *option, const char *value, uint64_t *ret_number, char *err,
			size_t err_len);

/* Check whether a number, or a string's length, is in range; if not, write a message that shows @shown as the value. */
int scout__option_check(const struct scout__option *option, uint64_t number, const char *shown, char *err,
			size_t err_len);
