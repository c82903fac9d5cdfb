/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <locale.h>
#include <string.h>

#include "text.h"

/* What is written to people and their tools stays readable, whatever is in it. */

static struct scout__text text;

static void
is(const char *expected)
{
	ck_assert(!text.failed);
	ck_assert_uint_eq(text.len, strlen(expected));
	ck_assert_mem_eq(text.p, expected, text.len);
	scout__text_fini(&text);
}

START_TEST(numbers_are_decimal_fractions)
{
	scout__text_number(&text, 0, 1000);
	scout__text_add(&text, " ");
	scout__text_number(&text, 1005, 1000);
	scout__text_add(&text, " ");
	scout__text_number(&text, 2000, 1000);
	scout__text_add(&text, " ");
	scout__text_number(&text, 25, 1000000);
	scout__text_add(&text, " ");
	scout__text_number(&text, UINT64_MAX, 0);
	is("0 1.005 2 0.000025 18446744073709551615");
}
END_TEST

/* A bad locale is no matter: nothing here is printed by it. */
START_TEST(numbers_do_not_follow_the_locale)
{
	static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "C"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (setlocale(LC_ALL, names[i]))
			break;
	scout__text_number(&text, 1500, 1000);
	is("1.500");
}
END_TEST

START_TEST(what_others_chose_is_quoted)
{
	static const char bytes[] =
		"a\"b\\c\nj\te\x01 \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xff\xc3 \xed\xa0\x80 \xc0\xaf";
	const char with_nul[] = {'x', '\0', 'y'};

	scout__text_label(&text, bytes, sizeof(bytes) - 1);
	is("a\\\"b\\\\c\\nj\\\\x09e\\\\x01 \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \\\\xff\\\\xc3 \\\\xed\\\\xa0\\\\x80 \\\\xc0\\\\xaf");
	scout__text_json(&text, bytes, sizeof(bytes) - 1);
	is("a\\\"b\\\\c\\nj\\u0009e\\u0001 \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \\\\xff\\\\xc3 \\\\xed\\\\xa0\\\\x80 \\\\xc0\\\\xaf");
	scout__text_label(&text, with_nul, sizeof(with_nul));
	is("x\\\\x00y");
	scout__text_line(&text, bytes, sizeof(bytes) - 1);
	is("a\"b\\\\c\\nj\\x09e\\x01 \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \\xff\\xc3 \\xed\\xa0\\x80 \\xc0\\xaf");
	/* A terminal's escapes, in the one and the other form, and the separator of lines. */
	scout__text_line(&text,
			 "\x1b[2J\xc2\x9b"
			 "2J\xe2\x80\xa8",
			 11);
	is("\\x1b[2J\\xc2\\x9b2J\\xe2\\x80\\xa8");
	scout__text_json(&text, "\x7f\xc2\x9b\xe2\x80\xa8\xf3\xa0\x81\x81", 10);
	is("\\u007f\\u009b\\u2028\\udb40\\udc41");
	/* Its last character is cut off. */
	scout__text_label(&text, "\xe2\x82", 2);
	is("\\\\xe2\\\\x82");
}
END_TEST

START_TEST(a_text_that_is_too_long_latches)
{
	char line[1025];

	memset(line, 'x', sizeof(line) - 1);
	line[sizeof(line) - 1] = '\0';
	for (size_t n = 0; !text.failed; n += sizeof(line) - 1) {
		ck_assert_uint_le(n, SCOUT__TEXT_MAX);
		scout__text_add(&text, "%s", line);
	}
	ck_assert_uint_ge(text.len, SCOUT__TEXT_MAX - sizeof(line));
	ck_assert_uint_le(text.cap, SCOUT__TEXT_MAX);
	scout__text_add(&text, "y");
	ck_assert_int_eq(text.p[text.len - 1], 'x');
	scout__text_fini(&text);
	scout__text_add(&text, "again");
	is("again");
}
END_TEST
