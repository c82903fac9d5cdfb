/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <string.h>

#include "utf8.h"

/* What is a character, and what may stand in a name. */

static const struct {
	const char *bytes;
	size_t length, printable;
} characters[] = {
	{"a", 1, 1},
	{" ", 1, 1},
	{"~", 1, 1},
	{"\x01", 1, 0},
	{"\n", 1, 0},
	{"\x1b", 1, 0},
	{"\x7f", 1, 0},
	{"\xc2\x80", 2, 0}, /* the first and the last of the second set of controls */
	{"\xc2\x9f", 2, 0},
	{"\xc2\xa0", 2, 2},
	{"\xc3\xa9", 2, 2},
	{"\xdf\xbf", 2, 2},
	{"\xe0\xa0\x80", 3, 3},
	{"\xe2\x80\xa7", 3, 3},
	{"\xe2\x80\xa8", 3, 0}, /* separators of lines and paragraphs */
	{"\xe2\x80\xa9", 3, 0},
	{"\xe2\x80\xaa", 3, 0}, /* U+202A to 202E turn the direction of writing */
	{"\xe2\x80\xae", 3, 0},
	{"\xe2\x80\xaf", 3, 3},
	{"\xe2\x80\x8a", 3, 3},
	{"\xe2\x80\x8b", 3, 0}, /* of no width */
	{"\xe2\x81\xa6", 3, 0}, /* isolates a direction */
	{"\xc2\xad", 2, 0},     /* a soft hyphen */
	{"\xd8\x9c", 2, 0},     /* Arabic letter mark */
	{"\xef\xbb\xbf", 3, 0}, /* a byte order mark */
	{"\xef\xbf\xb9", 3, 0},
	{"\xf3\xa0\x81\x81", 4, 0}, /* a tag */
	{"\xed\x9f\xbf", 3, 3},
	{"\xf0\x9f\x98\x80", 4, 4},
	{"\xf4\x8f\xbf\xbf", 4, 4},
	{"\x80", 0, 0},
	{"\xbf", 0, 0},
	{"\xc0\xaf", 0, 0}, /* overlong */
	{"\xc1\xbf", 0, 0},
	{"\xe0\x9f\xbf", 0, 0},
	{"\xf0\x8f\xbf\xbf", 0, 0},
	{"\xed\xa0\x80", 0, 0},     /* a surrogate */
	{"\xf4\x90\x80\x80", 0, 0}, /* beyond the last */
	{"\xf5\x80\x80\x80", 0, 0},
	{"\xff", 0, 0},
	{"\xc3", 0, 0}, /* cut off */
	{"\xe2\x82", 0, 0},
	{"\xf0\x9f\x98", 0, 0},
	{"\xc3(", 0, 0},
};

START_LOOP_TEST(each_kind_of_character_is_known, 0, sizeof(characters) / sizeof(characters[0]))
{
	const char *bytes = characters[_i].bytes;

	ck_assert_uint_eq(scout__utf8_length(bytes, strlen(bytes)), characters[_i].length);
	ck_assert_uint_eq(scout__utf8_printable(bytes, strlen(bytes)), characters[_i].printable);
}
END_TEST

START_TEST(a_name_has_printable_characters_only)
{
	ck_assert(scout__utf8_is_name("", 0));
	ck_assert(scout__utf8_is_name(NULL, 0));
	ck_assert(scout__utf8_is_name("llama-3 70b/\xc3\xa9\xe2\x82\xac", 17));
	ck_assert(!scout__utf8_is_name("a\nb", 3));
	ck_assert(!scout__utf8_is_name("a\0b", 3));
	ck_assert(!scout__utf8_is_name("ab\xc3\xa9", 3)); /* cut in its last character */
}
END_TEST
