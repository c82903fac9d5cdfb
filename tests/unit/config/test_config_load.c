/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvscout/error.h>

#include "check_main.h"
#include "option_table.h"

static const char *file_path;

static int
load_bytes(const char *text, size_t n)
{
	int rc;

	file_path = file_with(text, n);
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

CHECKED_FIXTURE(setup, teardown);

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

START_TEST(a_misspelt_variable_is_named_and_so_is_the_right_one)
{
	ck_assert_int_eq(setenv("KVSCOUT_TEST_COUMT", "21", 1), 0);
	ck_assert_int_eq(scout__options_load_env(&table, &cfg, err, sizeof(err)), SCOUT_ERR_CONFIG_KEY);
	ck_assert_str_eq(err, "KVSCOUT_TEST_COUMT names no configuration key; did you mean KVSCOUT_TEST_COUNT?");
}
END_TEST

/* Kubernetes sets these beside a service that is named as our prefix is; an alias is no misspelling. */
START_TEST(a_variable_that_is_close_to_no_key_is_left_alone)
{
	ck_assert_int_eq(setenv("KVSCOUT_TEST_PORT_5555_TCP_ADDR", "10.0.0.1", 1), 0);
	ck_assert_int_eq(setenv("KVSCOUT_TEST_SERVICE_HOST", "10.0.0.1", 1), 0);
	ck_assert_int_eq(setenv("KVSCOUT_TEST_COUNTS", "22", 1), 0);
	scout__options_init(&table, &cfg, sizeof(cfg));
	ck_assert_msg(scout__options_load_env(&table, &cfg, err, sizeof(err)) == 0, "%s", err);
	ck_assert_uint_eq(cfg.count, 22);
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

/* name, alias, default, range; the meaning stands in the table of options */
static const char *const help[][4] = {
	{"path", NULL, "none", "1..20 bytes"},
	{"name", NULL, "default", "0..8 bytes"},
	{"count", "counts", "256", "1..1000"},
	{"device", NULL, "0", "0..15"},
	{"version", NULL, "0", "0..18446744073709551615"},
	{"bytes", NULL, "8Mi", "64Ki..4Gi"},
	{"any_bytes", NULL, "all", "0..18446744073709551615"},
	{"is_on", NULL, "0", "0, 1, false, true, no, yes, off, on"},
	{"mode", NULL, "async", "async, polled, sync"},
	{"offset", NULL, "0", "-2147483648..2147483647"},
	{"any_count", NULL, "0", "0..4294967295"},
	{"late", NULL, "7", "1..9"},
	{"late_name", NULL, "young", "1..9 bytes"},
	{"late_list", NULL, "none", "1..3 items with blanks between them, 2..12 bytes"},
};

START_TEST(help_has_a_row_for_each_option)
{
	struct scout_config_row row;
	size_t n = sizeof(help) / sizeof(help[0]);

	for (size_t i = 0; i < n; i++) {
		ck_assert_int_eq(scout__options_row(&table, i, &row, sizeof(row)), 0);
		ck_assert_str_eq(row.name, help[i][0]);
		ck_assert_pstr_eq(row.alias, help[i][1]);
		ck_assert_str_eq(row.meaning, options[i].doc);
		ck_assert_str_eq(row.def, help[i][2]);
		ck_assert_str_eq(row.range, help[i][3]);
	}
	ck_assert_int_eq(scout__options_row(&table, n, &row, sizeof(row)), SCOUT_ERR_INVALID);
}
END_TEST
