/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <kvscout/error.h>
#include <kvscout/version.h>

#include "check_main.h"

struct row {
	const char *name;
	int number;
	int scope;
	bool retriable;
	const char *text;
};

static const struct row rows[] = {
#define ROW(name, number, scope, retriable, text)                                                                      \
	{"SCOUT_ERR_" #name, SCOUT_ERR_##name, SCOUT_SCOPE_##scope, retriable, text},
	SCOUT_ERROR_TABLE(ROW)
#undef ROW
};

#define N_ROWS ((int)(sizeof(rows) / sizeof(rows[0])))

START_LOOP_TEST(each_code_has_its_row, 0, N_ROWS)
{
	const struct row *row = &rows[_i];

	ck_assert_str_eq(scout_err_name(row->number), row->name);
	ck_assert_str_eq(scout_strerror(row->number), row->text);
	ck_assert_int_eq(scout_err_scope(row->number), row->scope);
	ck_assert(scout_err_is_retriable(row->number) == row->retriable);
}
END_TEST

START_LOOP_TEST(texts_are_one_sentence_without_full_stop, 0, N_ROWS)
{
	const char *text = rows[_i].text;

	ck_assert_uint_gt(strlen(text), 0);
	ck_assert_int_ne(text[strlen(text) - 1], '.');
	ck_assert_ptr_null(strchr(text, '\n'));
}
END_TEST

/* The numbers travel between versions: these may never change. */
START_TEST(numbers_are_the_published_ones)
{
	for (int i = 0; i < N_ROWS; i++)
		ck_assert_int_eq(rows[i].number, -(i + 1));
	ck_assert_int_eq(SCOUT_ERR_INVALID, -1);
	ck_assert_int_eq(SCOUT_ERR_UNREACHABLE, -10);
	ck_assert_int_eq(SCOUT_ERR_IN_USE, -19);
	ck_assert_int_eq(SCOUT_ERR_DEVICE, -28);
	ck_assert_int_eq(SCOUT_ERR_TENANT, -35);
	ck_assert_int_eq(SCOUT_NOT_YET, 1);
	ck_assert_int_eq(SCOUT_NEED_QUERY, 2);
}
END_TEST

START_TEST(names_are_unique)
{
	for (int i = 0; i < N_ROWS; i++) {
		for (int j = 0; j < i; j++) {
			ck_assert_str_ne(rows[i].name, rows[j].name);
			ck_assert_str_ne(rows[i].text, rows[j].text);
		}
	}
}
END_TEST

START_TEST(success_and_not_yet_are_no_errors)
{
	ck_assert_str_eq(scout_err_name(0), "SCOUT_OK");
	ck_assert_str_eq(scout_err_name(SCOUT_NOT_YET), "SCOUT_NOT_YET");
	ck_assert_uint_gt(strlen(scout_strerror(0)), 0);
	ck_assert_uint_gt(strlen(scout_strerror(SCOUT_NOT_YET)), 0);
	ck_assert_str_ne(scout_strerror(0), scout_strerror(SCOUT_NOT_YET));
	ck_assert_str_eq(scout_err_name(SCOUT_NEED_QUERY), "SCOUT_NEED_QUERY");
	ck_assert_str_ne(scout_strerror(SCOUT_NEED_QUERY), scout_strerror(SCOUT_NOT_YET));
	for (int code = 0; code <= SCOUT_NEED_QUERY; code++) {
		ck_assert_int_eq(scout_err_scope(code), 0);
		ck_assert(!scout_err_is_retriable(code));
	}
}
END_TEST

START_TEST(unknown_codes_are_said_to_be_unknown)
{
	const int codes[] = {3, 35, INT_MAX, -(N_ROWS + 1), -1000, INT_MIN};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		ck_assert_str_eq(scout_err_name(codes[i]), "SCOUT_ERR_?");
		ck_assert_ptr_nonnull(scout_strerror(codes[i]));
		ck_assert_uint_gt(strlen(scout_strerror(codes[i])), 0);
		ck_assert_int_eq(scout_err_scope(codes[i]), 0);
		ck_assert(!scout_err_is_retriable(codes[i]));
	}
}
END_TEST

START_TEST(version_is_that_of_the_header)
{
	char text[64];

	ck_assert_str_eq(scout_version(), SCOUT_VERSION_STRING);
	snprintf(text, sizeof(text), "%d.%d.%d", SCOUT_VERSION_MAJOR, SCOUT_VERSION_MINOR, SCOUT_VERSION_PATCH);
	ck_assert_str_eq(scout_version(), text);
}
END_TEST
