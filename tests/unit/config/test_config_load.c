/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvscout/error.h>

#include "check_main.h"
#include "option_table.h"

static char file_path[64];

/* A file with these bytes. */
static void
write_file(const char *text, size_t n)
{
	int fd;

	snprintf(file_path, sizeof(file_path), "/tmp/kvscout-test-option-XXXXXX");
	fd = mkstemp(file_path);
	ck_assert_int_ge(fd, 0);
	while (n) {
		ssize_t written = write(fd, text, n);

		ck_assert_int_gt(written, 0);
		text += written;
		n -= (size_t)written;
	}
	ck_assert_int_eq(close(fd), 0);
}

static int
load_bytes(const char *text, size_t n)
{
	int rc;

	write_file(text, n);
	rc = scout__options_load(&table, &cfg, file_path, err, sizeof(err));
	ck_assert_int_eq(unlink(file_path), 0);
	return rc;
}

static int
load(const char *text)
{
	return load_bytes(text, strlen(text));
}

static void
check_load_error(const char *text, int code, const char *message)
{
	char expected[256];

	ck_assert_int_eq(load(text), code);
	snprintf(expected, sizeof(expected), "%s:%s", file_path, message);
	ck_assert_str_eq(err, expected);
}

START_TEST(a_file_of_settings_is_applied)
{
	ck_assert_int_eq(load("# a comment\n"
			      "\n"
			      "  \t \n"
			      "count = 12\n"
			      "\tbytes=1Mi # the pool\r\n"
			      "  path =  a = b  \n"
			      "mode = sync #behind\n"
			      "name =\n"
			      "counts = 13\n"
			      "is_on = on"),
			 0);
	ck_assert_uint_eq(cfg.count, 13);
	ck_assert_uint_eq(cfg.bytes, 1 << 20);
	ck_assert_str_eq(cfg.path, "a = b");
	ck_assert_uint_eq(cfg.mode, 2);
	ck_assert_str_eq(cfg.name, "");
	ck_assert_uint_eq(cfg.is_on, 1);
}
END_TEST

START_TEST(only_behind_a_blank_does_a_comment_begin)
{
	ck_assert_int_eq(load("path = /a#b/#c # not this\n"), 0);
	ck_assert_str_eq(cfg.path, "/a#b/#c");
	ck_assert_int_eq(load("path=#begins\n"), 0);
	ck_assert_str_eq(cfg.path, "#begins");
	ck_assert_int_eq(load("name = #begins\n"), 0);
	ck_assert_str_eq(cfg.name, "");
}
END_TEST

START_TEST(an_empty_file_changes_nothing)
{
	struct config before;

	memcpy(&before, &cfg, sizeof(cfg));
	ck_assert_int_eq(load(""), 0);
	ck_assert_int_eq(load("\n\n#only this"), 0);
	ck_assert_mem_eq(&before, &cfg, sizeof(cfg));
}
END_TEST

START_TEST(a_wrong_line_is_named_by_its_number)
{
	check_load_error("count = 12\n\n# x\ncount = 1001\ncount = 99\n", SCOUT_ERR_CONFIG_RANGE,
			 "4: count = \"1001\": must be 1..1000");
	/* Lines before it have been applied, later ones not. */
	ck_assert_uint_eq(cfg.count, 12);
	check_load_error("count = x", SCOUT_ERR_CONFIG_SYNTAX, "1: count = \"x\": must be a number, 1..1000");
	check_load_error("\ncolour = 1\n", SCOUT_ERR_CONFIG_KEY,
			 "2: \"colour\" is no configuration key; docs/configuration.md lists them");
}
END_TEST

START_TEST(a_line_without_equals_or_key_is_malformed)
{
	check_load_error("count = 3\ncount\n", SCOUT_ERR_FORMAT,
			 "2: the line has no '=': must be `key = value`, or begin with #");
	check_load_error("count # = 3\n", SCOUT_ERR_FORMAT,
			 "1: the line has no '=': must be `key = value`, or begin with #");
	check_load_error("\n = 3\n", SCOUT_ERR_FORMAT, "2: no key before '=': must be `key = value`, or begin with #");
}
END_TEST

START_TEST(a_nul_byte_is_malformed)
{
	static const char text[] = "count = 3\ncount = 4\0 5\n";

	ck_assert_int_eq(load_bytes(text, sizeof(text) - 1), SCOUT_ERR_FORMAT);
	ck_assert_ptr_nonnull(strstr(err, ":2: the line has a NUL byte"));
	ck_assert_uint_eq(cfg.count, 3);
}
END_TEST

START_TEST(a_line_may_be_8191_bytes)
{
	char *text = malloc(8193);

	ck_assert_ptr_nonnull(text);
	memset(text, ' ', 8192);
	memcpy(text, "count = 77", 10);
	ck_assert_int_eq(load_bytes(text, 8191), 0);
	ck_assert_uint_eq(cfg.count, 77);
	ck_assert_int_eq(load_bytes(text, 8192), SCOUT_ERR_FORMAT);
	ck_assert_ptr_nonnull(strstr(err, ":1: the line is too long"));
	free(text);
}
END_TEST

START_TEST(what_is_no_file_is_said)
{
	ck_assert_int_eq(scout__options_load(&table, &cfg, "/nonexistent/kvscout.conf", err, sizeof(err)),
			 SCOUT_ERR_FORMAT);
	ck_assert_str_eq(err, "/nonexistent/kvscout.conf: No such file or directory");
	ck_assert_int_eq(scout__options_load(&table, &cfg, "/tmp", err, sizeof(err)), SCOUT_ERR_FORMAT);
	ck_assert_str_eq(err, "/tmp: Is a directory");
	ck_assert_int_eq(scout__options_load(&table, &cfg, "/dev/zero", err, sizeof(err)), SCOUT_ERR_FORMAT);
}
END_TEST

START_TEST(the_environment_is_read_when_asked)
{
	ck_assert_int_eq(setenv("KVSCOUT_TEST_COUNT", "21", 1), 0);
	ck_assert_int_eq(setenv("KVSCOUT_TEST_LATE_NAME", "env", 1), 0);
	ck_assert_int_eq(setenv("kvscout_test_device", "3", 1), 0);
	scout__options_init(&table, &cfg, sizeof(cfg));
	ck_assert_uint_eq(cfg.count, 256);
	ck_assert_int_eq(scout__options_load_env(&table, &cfg, err, sizeof(err)), 0);
	ck_assert_uint_eq(cfg.count, 21);
	ck_assert_str_eq(cfg.late_name, "env");
	ck_assert_int_eq(cfg.device, 0);
}
END_TEST

START_TEST(an_alias_works_in_the_environment_and_yields_to_the_name)
{
	ck_assert_int_eq(setenv("KVSCOUT_TEST_COUNTS", "22", 1), 0);
	ck_assert_int_eq(scout__options_load_env(&table, &cfg, err, sizeof(err)), 0);
	ck_assert_uint_eq(cfg.count, 22);
	ck_assert_int_eq(setenv("KVSCOUT_TEST_COUNT", "23", 1), 0);
	ck_assert_int_eq(scout__options_load_env(&table, &cfg, err, sizeof(err)), 0);
	ck_assert_uint_eq(cfg.count, 23);
}
END_TEST

START_TEST(a_wrong_variable_is_named)
{
	ck_assert_int_eq(setenv("KVSCOUT_TEST_COUNT", "many", 1), 0);
	ck_assert_int_eq(scout__options_load_env(&table, &cfg, err, sizeof(err)), SCOUT_ERR_CONFIG_SYNTAX);
	ck_assert_str_eq(err, "KVSCOUT_TEST_COUNT: count = \"many\": must be a number, 1..1000");
}
END_TEST

START_TEST(a_table_without_prefix_reads_no_environment)
{
	struct scout__option_table silent = table;

	silent.env_prefix = NULL;
	ck_assert_int_eq(setenv("COUNT", "5", 1), 0);
	ck_assert_int_eq(setenv("KVSCOUT_TEST_COUNT", "5", 1), 0);
	ck_assert_int_eq(scout__options_load_env(&silent, &cfg, err, sizeof(err)), 0);
	ck_assert_uint_eq(cfg.count, 256);
}
END_TEST

static const struct scout_config_row help[] = {
	{.name = "path", .alias = NULL, .meaning = "A path", .def = "none", .range = "1..20 bytes"},
	{.name = "name", .alias = NULL, .meaning = "A name", .def = "default", .range = "0..8 bytes"},
	{.name = "count", .alias = "counts", .meaning = "A count", .def = "256", .range = "1..1000"},
	{.name = "device", .alias = NULL, .meaning = "A device", .def = "0", .range = "0..15"},
	{.name = "version", .alias = NULL, .meaning = "A version", .def = "0", .range = "0..18446744073709551615"},
	{.name = "bytes", .alias = NULL, .meaning = "A size", .def = "8Mi", .range = "64Ki..4Gi"},
	{.name = "any_bytes", .alias = NULL, .meaning = "Any size", .def = "all", .range = "0..18446744073709551615"},
	{.name = "is_on",
	 .alias = NULL,
	 .meaning = "A flag",
	 .def = "0",
	 .range = "0, 1, false, true, no, yes, off, on"},
	{.name = "mode", .alias = NULL, .meaning = "A word", .def = "async", .range = "async, polled, sync"},
	{.name = "offset", .alias = NULL, .meaning = "A signed number", .def = "0", .range = "-2147483648..2147483647"},
	{.name = "any_count", .alias = NULL, .meaning = "Any count", .def = "0", .range = "0..4294967295"},
	{.name = "late", .alias = NULL, .meaning = "A later field", .def = "7", .range = "1..9"},
	{.name = "late_name", .alias = NULL, .meaning = "A later string", .def = "young", .range = "1..9 bytes"},
	{.name = "late_list",
	 .alias = NULL,
	 .meaning = "A later list",
	 .def = "none",
	 .range = "1..3 items with blanks between them, 2..12 bytes"},
};

START_TEST(help_has_a_row_for_each_option)
{
	struct scout_config_row row;
	size_t n = sizeof(help) / sizeof(help[0]);

	for (size_t i = 0; i < n; i++) {
		ck_assert_int_eq(scout__options_row(&table, i, &row, sizeof(row)), 0);
		ck_assert_str_eq(row.name, help[i].name);
		ck_assert_pstr_eq(row.alias, help[i].alias);
		ck_assert_str_eq(row.meaning, help[i].meaning);
		ck_assert_str_eq(row.def, help[i].def);
		ck_assert_str_eq(row.range, help[i].range);
	}
	ck_assert_int_eq(scout__options_row(&table, n, &row, sizeof(row)), SCOUT_ERR_INVALID);
}
END_TEST

static void
add_source_tests(TCase *tcase)
{
	tcase_add_test(tcase, a_file_of_settings_is_applied);
	tcase_add_test(tcase, only_behind_a_blank_does_a_comment_begin);
	tcase_add_test(tcase, an_empty_file_changes_nothing);
	tcase_add_test(tcase, a_wrong_line_is_named_by_its_number);
	tcase_add_test(tcase, a_line_without_equals_or_key_is_malformed);
	tcase_add_test(tcase, a_nul_byte_is_malformed);
	tcase_add_test(tcase, a_line_may_be_8191_bytes);
	tcase_add_test(tcase, what_is_no_file_is_said);
	tcase_add_test(tcase, the_environment_is_read_when_asked);
	tcase_add_test(tcase, an_alias_works_in_the_environment_and_yields_to_the_name);
	tcase_add_test(tcase, a_wrong_variable_is_named);
	tcase_add_test(tcase, a_table_without_prefix_reads_no_environment);
	tcase_add_test(tcase, help_has_a_row_for_each_option);
}

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("config_load");
	TCase *tcase = tcase_create("option_load");

	tcase_add_checked_fixture(tcase, setup, teardown);
	add_source_tests(tcase);
	suite_add_tcase(suite, tcase);
	return suite;
}
