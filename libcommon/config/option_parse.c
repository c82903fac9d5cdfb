/* SPDX-License-Identifier: Apache-2.0 */
#include "option_parse.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <kvscout/error.h>

#include "log.h"
#include "mask.h"
#include "utf8.h"

/*
 * DESIGN
 *
 * Purpose: numbers, sizes, flags and words, as text and back. The numbers that a range prints are valid values.
 *
 * Numbers are decimal digits with an optional '-', nothing else: no blank, no '+', no 0x, no locale. The strto*
 * family accepts all of these and turns -1 into 2^64 - 1, so it is not used. A number that does not fit the type is
 * out of range, not a syntax error: the user must learn what is allowed.
 *
 * Threads: any; only constants and the arguments are touched.
 */

#define SHOWN_BYTES 60 /* length of a value in a message */

const char *
scout__option_quote(char buf[SCOUT__OPTION_TEXT], const char *text)
{
	size_t n;

	scout__mask(text, buf, SCOUT__OPTION_TEXT);
	n = strlen(buf);
	if (n > SHOWN_BYTES)
		(void)snprintf(buf + SHOWN_BYTES, SCOUT__OPTION_TEXT - SHOWN_BYTES, "...");
	scout__utf8_clean(buf);
	return buf;
}

/* Print with the largest binary suffix that divides the number. */
static void
print_size(uint64_t number, char *buf, size_t len)
{
	static const char *const suffixes[] = {"", "Ki", "Mi", "Gi", "Ti"};
	size_t i = 0;

	while (number && number % 1024 == 0 && i + 1 < sizeof(suffixes) / sizeof(suffixes[0])) {
		number /= 1024;
		i++;
	}
	(void)snprintf(buf, len, "%" PRIu64 "%s", number, suffixes[i]);
}

static bool
is_beyond(const struct scout__option *option, uint64_t number)
{
	return option->beyond && number == UINT32_MAX;
}

const char *
scout__option_number(const struct scout__option *option, uint64_t number, char buf[SCOUT__OPTION_TEXT])
{
	if (is_beyond(option, number)) {
		(void)snprintf(buf, SCOUT__OPTION_TEXT, "%s", option->beyond);
		return buf;
	}
	switch (option->type) {
	case SCOUT_OPTION_I32:
		(void)snprintf(buf, SCOUT__OPTION_TEXT, "%" PRId64, (int64_t)number);
		break;
	case SCOUT_OPTION_SIZE:
		print_size(number, buf, SCOUT__OPTION_TEXT);
		break;
	case SCOUT_OPTION_WORD:
		if (number <= option->max) {
			(void)snprintf(buf, SCOUT__OPTION_TEXT, "%s", option->words[number]);
			break;
		}
		__attribute__((fallthrough));
	case SCOUT_OPTION_U32:
	case SCOUT_OPTION_U64:
	case SCOUT_OPTION_BOOL:
	case SCOUT_OPTION_STRING:
	case SCOUT_OPTION_LIST:
		(void)snprintf(buf, SCOUT__OPTION_TEXT, "%" PRIu64, number);
		break;
	}
	return buf;
}

static void
print_words(const struct scout__option *option, char *buf, size_t len)
{
	size_t n = 0;

	buf[0] = '\0';
	for (size_t i = 0; option->words[i] && n < len; i++) {
		(void)snprintf(buf + n, len - n, "%s%s", i ? ", " : "", option->words[i]);
		n += strlen(buf + n);
	}
}

const char *
scout__option_range(const struct scout__option *option, char buf[SCOUT__OPTION_TEXT])
{
	char low[SCOUT__OPTION_TEXT];
	char high[SCOUT__OPTION_TEXT];

	if (option->type == SCOUT_OPTION_WORD) {
		print_words(option, buf, SCOUT__OPTION_TEXT);
		return buf;
	}
	if (option->type == SCOUT_OPTION_BOOL) {
		(void)snprintf(buf, SCOUT__OPTION_TEXT, "0, 1, false, true, no, yes, off, on");
		return buf;
	}
	scout__option_number(option, option->min, low);
	scout__option_number(option, option->max, high);
	if (option->type == SCOUT_OPTION_LIST) {
		(void)snprintf(buf, SCOUT__OPTION_TEXT, "1..%u items with blanks between them, %.20s..%.20s bytes",
			       (unsigned)option->max_items, low, high);
		return buf;
	}
	(void)snprintf(buf, SCOUT__OPTION_TEXT, "%.40s..%.40s%s%s%.20s", low, high,
		       option->type == SCOUT_OPTION_STRING ? " bytes" : "", option->beyond ? ", " : "",
		       option->beyond ? option->beyond : "");
	return buf;
}

static int
fail(const struct scout__option *option, int code, const char *value, char *err, size_t err_len)
{
	static const char *const what[] = {
		[SCOUT_OPTION_U32] = "a number, ", [SCOUT_OPTION_I32] = "a number, ",
		[SCOUT_OPTION_U64] = "a number, ", [SCOUT_OPTION_SIZE] = "a size such as 64Mi, ",
		[SCOUT_OPTION_BOOL] = "one of ",   [SCOUT_OPTION_WORD] = "one of ",
		[SCOUT_OPTION_STRING] = "",        [SCOUT_OPTION_LIST] = "",
	};
	bool is_choice = option->type == SCOUT_OPTION_BOOL || option->type == SCOUT_OPTION_WORD;
	const char *prefix = code == SCOUT_ERR_CONFIG_SYNTAX || is_choice ? what[option->type] : "";
	char shown[SCOUT__OPTION_TEXT];
	char range[SCOUT__OPTION_TEXT];

	return scout__fail(err, err_len, code, "%s = \"%s\": must be %s%s", option->name,
			   scout__option_quote(shown, value), prefix, scout__option_range(option, range));
}

int
scout__option_check(const struct scout__option *option, uint64_t number, const char *shown, char *err, size_t err_len)
{
	bool ok;

	if (option->type == SCOUT_OPTION_I32)
		ok = (int64_t)number >= (int64_t)option->min && (int64_t)number <= (int64_t)option->max;
	else
		ok = (number >= option->min && number <= option->max) || is_beyond(option, number);
	return ok ? 0 : fail(option, SCOUT_ERR_CONFIG_RANGE, shown, err, err_len);
}

/* Parse the digits at *text, which moves past them. Sets *too_large instead of wrapping. False without a digit. */
static bool
take_digits(const char **text, uint64_t *number, bool *too_large)
{
	const char *at = *text;

	*number = 0;
	for (; *at >= '0' && *at <= '9'; at++) {
		if (__builtin_mul_overflow(*number, 10u, number) ||
		    __builtin_add_overflow(*number, (unsigned)(*at - '0'), number))
			*too_large = true;
	}
	if (at == *text)
		return false;
	*text = at;
	return true;
}

static char
lower(char c)
{
	return (char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

static bool
is_same_word(const char *a, const char *b)
{
	while (*a && lower(*a) == lower(*b)) {
		a++;
		b++;
	}
	return !*a && !*b;
}

/* "", "k", "Mi", "GiB", "b" ... -> 1, 1000, 2^20, 2^30, 1. 0: no suffix. */
static uint64_t
unit_of(const char *suffix)
{
	static const char letters[] = "kmgt";
	const char *letter = *suffix ? strchr(letters, lower(*suffix)) : NULL;
	uint64_t step = 1000;
	uint64_t unit = 1;

	if (letter) {
		suffix++;
		if (lower(*suffix) == 'i') {
			step = 1024;
			suffix++;
		}
		for (const char *at = letters; at <= letter; at++)
			unit *= step;
	}
	if (lower(*suffix) == 'b')
		suffix++;
	return *suffix ? 0 : unit;
}

static int
parse_number(const struct scout__option *option, const char *value, uint64_t *ret_number, char *err, size_t err_len)
{
	bool is_negative = *value == '-';
	const char *at = value + (is_negative ? 1 : 0);
	bool too_large = false;
	uint64_t number;
	uint64_t unit = 1;

	if (option->beyond && is_same_word(option->beyond, value)) {
		*ret_number = UINT32_MAX;
		return 0;
	}
	if (!take_digits(&at, &number, &too_large))
		return fail(option, SCOUT_ERR_CONFIG_SYNTAX, value, err, err_len);
	if (option->type == SCOUT_OPTION_SIZE) {
		unit = unit_of(at);
		at = "";
	}
	if (*at || !unit)
		return fail(option, SCOUT_ERR_CONFIG_SYNTAX, value, err, err_len);
	too_large |= __builtin_mul_overflow(number, unit, &number);
	/* Signs count for I32 only; its numbers fit into 63 bits, so neither way can change the sign below. */
	if (option->type == SCOUT_OPTION_I32 && number > INT32_MAX + UINT64_C(1))
		too_large = true;
	if (is_negative && number && option->type != SCOUT_OPTION_I32)
		too_large = true;
	if (too_large)
		return fail(option, SCOUT_ERR_CONFIG_RANGE, value, err, err_len);
	*ret_number = is_negative ? 0 - number : number;
	return 0;
}

static int
parse_bool(const struct scout__option *option, const char *value, uint64_t *ret_number, char *err, size_t err_len)
{
	/* The words come in pairs: the index modulo 2 is the value. */
	static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (is_same_word(words[i], value)) {
			*ret_number = i % 2;
			return 0;
		}
	}
	return fail(option, SCOUT_ERR_CONFIG_SYNTAX, value, err, err_len);
}

static int
parse_word(const struct scout__option *option, const char *value, uint64_t *ret_number, char *err, size_t err_len)
{
	for (size_t i = 0; option->words[i]; i++) {
		if (strcmp(option->words[i], value) == 0) {
			*ret_number = i;
			return 0;
		}
	}
	return fail(option, SCOUT_ERR_CONFIG_SYNTAX, value, err, err_len);
}

int
scout__option_parse(const struct scout__option *option, const char *value, uint64_t *ret_number, char *err,
		    size_t err_len)
{
	uint64_t number = 0;
	int rc;

	if (option->type == SCOUT_OPTION_BOOL)
		rc = parse_bool(option, value, &number, err, err_len);
	else if (option->type == SCOUT_OPTION_WORD)
		rc = parse_word(option, value, &number, err, err_len);
	else
		rc = parse_number(option, value, &number, err, err_len);
	if (!rc)
		rc = scout__option_check(option, number, value, err, err_len);
	if (!rc)
		*ret_number = number;
	return rc;
}
