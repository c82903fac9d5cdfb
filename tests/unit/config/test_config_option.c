/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <kvscout/error.h>

#include "check_main.h"
#include "option_table.h"

static int
set(const char *key, const char *value)
{
	return scout__options_set(&table, &cfg, key, value, err, sizeof(err));
}

/* Sets and wants a refusal that says @text, and a structure that is as it was. */
static void
check_refused(const char *key, const char *value, int code, const char *text)
{
	struct config before;

	memcpy(&before, &cfg, sizeof(cfg));
	ck_assert_int_eq(set(key, value), code);
	ck_assert_str_eq(err, text);
	ck_assert_mem_eq(&before, &cfg, sizeof(cfg));
}

START_TEST(init_applies_every_default)
{
	ck_assert_uint_eq(cfg.size, sizeof(cfg));
	ck_assert_uint_eq(cfg.flags, 0);
	ck_assert_ptr_null(cfg.path);
	ck_assert_str_eq(cfg.name, "default");
	ck_assert_uint_eq(cfg.count, 256);
	ck_assert_int_eq(cfg.device, 0);
	ck_assert_uint_eq(cfg.bytes, 8 << 20);
	ck_assert_uint_eq(cfg.mode, 0);
	ck_assert_uint_eq(cfg.late, 7);
	ck_assert_str_eq(cfg.late_name, "young");
	ck_assert_ptr_null(cfg.owned);
}
END_TEST

START_TEST(init_of_an_older_structure_touches_nothing_behind_it)
{
	union {
		struct config config;
		unsigned char bytes[sizeof(struct config)];
	} old;

	memset(&old, 0xa5, sizeof(old));
	scout__options_init(&table, &old, V1_SIZE);
	ck_assert_uint_eq(old.config.size, V1_SIZE);
	ck_assert_uint_eq(old.config.count, 256);
	ck_assert_ptr_null(old.config.owned);
	for (size_t i = V1_SIZE; i < sizeof(old); i++)
		ck_assert_uint_eq(old.bytes[i], 0xa5);
}
END_TEST

START_TEST(init_of_a_newer_structure_clears_all_of_it)
{
	unsigned char newer[sizeof(struct config) + 24];
	uint32_t size;

	memset(newer, 0xa5, sizeof(newer));
	scout__options_init(&table, newer, sizeof(newer));
	memcpy(&size, newer, sizeof(size));
	ck_assert_uint_eq(size, sizeof(newer));
	for (size_t i = sizeof(struct config); i < sizeof(newer); i++)
		ck_assert_uint_eq(newer[i], 0);
}
END_TEST

START_TEST(numbers_are_set)
{
	ck_assert_int_eq(set("count", "1"), 0);
	ck_assert_uint_eq(cfg.count, 1);
	ck_assert_int_eq(set("count", "1000"), 0);
	ck_assert_uint_eq(cfg.count, 1000);
	ck_assert_int_eq(set("count", "0007"), 0);
	ck_assert_uint_eq(cfg.count, 7);
	ck_assert_int_eq(set("any_count", "4294967295"), 0);
	ck_assert_uint_eq(cfg.any_count, UINT32_MAX);
	ck_assert_int_eq(set("any_count", "0"), 0);
	ck_assert_uint_eq(cfg.any_count, 0);
	ck_assert_int_eq(set("version", "18446744073709551615"), 0);
	ck_assert_uint_eq(cfg.version, UINT64_MAX);
	ck_assert_int_eq(set("version", "-0"), 0);
	ck_assert_uint_eq(cfg.version, 0);
}
END_TEST

START_TEST(zero_means_the_default_where_it_is_no_value_of_its_own)
{
	static const char *const zeros[] = {"0", "000", "-0"};

	for (size_t i = 0; i < sizeof(zeros) / sizeof(zeros[0]); i++) {
		ck_assert_int_eq(set("count", "12"), 0);
		ck_assert_int_eq(set("count", zeros[i]), 0);
		ck_assert_uint_eq(cfg.count, 256);
	}
	ck_assert_int_eq(set("bytes", "64Ki"), 0);
	ck_assert_int_eq(set("bytes", "0Ki"), 0);
	ck_assert_uint_eq(cfg.bytes, 8 << 20);
}
END_TEST

START_TEST(signed_numbers_are_set)
{
	ck_assert_int_eq(set("offset", "-2147483648"), 0);
	ck_assert_int_eq(cfg.offset, INT32_MIN);
	ck_assert_int_eq(set("offset", "2147483647"), 0);
	ck_assert_int_eq(cfg.offset, INT32_MAX);
	ck_assert_int_eq(set("offset", "-1"), 0);
	ck_assert_int_eq(cfg.offset, -1);
	ck_assert_int_eq(set("device", "15"), 0);
	ck_assert_int_eq(cfg.device, 15);
}
END_TEST

START_TEST(the_alias_sets_the_same_field)
{
	ck_assert_int_eq(set("counts", "12"), 0);
	ck_assert_uint_eq(cfg.count, 12);
	check_refused("counts", "1001", SCOUT_ERR_CONFIG_RANGE, "count = \"1001\": must be 1..1000");
}
END_TEST

START_TEST(a_number_out_of_range_names_key_value_and_range)
{
	check_refused("count", "1001", SCOUT_ERR_CONFIG_RANGE, "count = \"1001\": must be 1..1000");
	check_refused("count", "-5", SCOUT_ERR_CONFIG_RANGE, "count = \"-5\": must be 1..1000");
	check_refused("device", "-1", SCOUT_ERR_CONFIG_RANGE, "device = \"-1\": must be 0..15");
	check_refused("device", "16", SCOUT_ERR_CONFIG_RANGE, "device = \"16\": must be 0..15");
	check_refused("bytes", "65535", SCOUT_ERR_CONFIG_RANGE, "bytes = \"65535\": must be 64Ki..4Gi");
	check_refused("bytes", "-1Mi", SCOUT_ERR_CONFIG_RANGE, "bytes = \"-1Mi\": must be 64Ki..4Gi");
}
END_TEST

START_TEST(a_number_too_large_to_hold_is_out_of_range)
{
	check_refused("any_count", "4294967296", SCOUT_ERR_CONFIG_RANGE,
		      "any_count = \"4294967296\": must be 0..4294967295");
	check_refused("any_count", "-1", SCOUT_ERR_CONFIG_RANGE, "any_count = \"-1\": must be 0..4294967295");
	check_refused("version", "18446744073709551616", SCOUT_ERR_CONFIG_RANGE,
		      "version = \"18446744073709551616\": must be 0..18446744073709551615");
	check_refused("version", "99999999999999999999999999", SCOUT_ERR_CONFIG_RANGE,
		      "version = \"99999999999999999999999999\": must be 0..18446744073709551615");
	check_refused("version", "-1", SCOUT_ERR_CONFIG_RANGE, "version = \"-1\": must be 0..18446744073709551615");
	check_refused("offset", "2147483648", SCOUT_ERR_CONFIG_RANGE,
		      "offset = \"2147483648\": must be -2147483648..2147483647");
	check_refused("offset", "-2147483649", SCOUT_ERR_CONFIG_RANGE,
		      "offset = \"-2147483649\": must be -2147483648..2147483647");
	check_refused("offset", "18446744073709551615", SCOUT_ERR_CONFIG_RANGE,
		      "offset = \"18446744073709551615\": must be -2147483648..2147483647");
	check_refused("any_bytes", "18446744073709551616", SCOUT_ERR_CONFIG_RANGE,
		      "any_bytes = \"18446744073709551616\": must be 0..18446744073709551615");
	check_refused("any_bytes", "16777216Ti", SCOUT_ERR_CONFIG_RANGE,
		      "any_bytes = \"16777216Ti\": must be 0..18446744073709551615");
}
END_TEST

static const char *const no_numbers[] = {
	"",    " ",   "-",     "--1", "+1", " 1",  "1 ",       "1x",  "x1", "0x10",
	"1.0", "1e2", "1,000", "a",   "1-", "\t1", "\xd9\xa1", "1\n", "1k", "1Ki",
};

START_TEST(what_is_no_number_is_a_syntax_error)
{
	char text[128];
	char shown[32];

	snprintf(shown, sizeof(shown), "%s", no_numbers[_i]);
	for (char *at = shown; *at; at++) {
		if (*at == '\t' || *at == '\n')
			*at = '?';
	}
	snprintf(text, sizeof(text), "count = \"%s\": must be a number, 1..1000", shown);
	check_refused("count", no_numbers[_i], SCOUT_ERR_CONFIG_SYNTAX, text);
	ck_assert_int_eq(set("version", no_numbers[_i]), SCOUT_ERR_CONFIG_SYNTAX);
	ck_assert_int_eq(set("device", no_numbers[_i]), SCOUT_ERR_CONFIG_SYNTAX);
}
END_TEST

struct size_case {
	const char *text;
	uint64_t bytes;
};

static const struct size_case sizes[] = {
	{"0", 0},
	{"1", 1},
	{"1b", 1},
	{"7B", 7},
	{"3k", 3000},
	{"3K", 3000},
	{"3kB", 3000},
	{"3ki", 3072},
	{"3KiB", 3072},
	{"3KIB", 3072},
	{"2m", 2000000},
	{"2MB", 2000000},
	{"2Mi", UINT64_C(2) << 20},
	{"2g", UINT64_C(2000000000)},
	{"2GiB", UINT64_C(2) << 30},
	{"5t", UINT64_C(5000000000000)},
	{"5Ti", UINT64_C(5) << 40},
	{"5tib", UINT64_C(5) << 40},
	{"18446744073709551615", UINT64_MAX},
	{"16777215Ti", UINT64_C(16777215) << 40},
	{"18446744T", UINT64_C(18446744000000000000)},
};

#define N_SIZES ((int)(sizeof(sizes) / sizeof(sizes[0])))

START_TEST(sizes_take_suffixes)
{
	ck_assert_int_eq(set("any_bytes", sizes[_i].text), 0);
	ck_assert_uint_eq(cfg.any_bytes, sizes[_i].bytes);
}
END_TEST

static const char *const no_sizes[] = {
	"", "k", "Ki", "B", "1kk", "1Kib2", "1i", "1iB", "1p", "1 k", "1k ", "1.5g", "1BB", "1Bk", "1ik", "-", "-k",
};

START_TEST(what_is_no_size_is_a_syntax_error)
{
	char text[128];

	snprintf(text, sizeof(text), "bytes = \"%s\": must be a size such as 64Mi, 64Ki..4Gi", no_sizes[_i]);
	check_refused("bytes", no_sizes[_i], SCOUT_ERR_CONFIG_SYNTAX, text);
}
END_TEST

START_TEST(a_size_that_overflows_with_its_suffix_is_out_of_range)
{
	static const char *const values[] = {"18446745t", "16777216Ti", "18014398509481984Ki", "99999999999999999999k",
					     "18446744073709551615b9"};

	for (size_t i = 0; i < 4; i++) {
		ck_assert_int_eq(set("any_bytes", values[i]), SCOUT_ERR_CONFIG_RANGE);
		ck_assert_ptr_nonnull(strstr(err, values[i]));
		ck_assert_uint_eq(cfg.any_bytes, 0);
	}
	ck_assert_int_eq(set("any_bytes", values[4]), SCOUT_ERR_CONFIG_SYNTAX);
}
END_TEST

START_TEST(flags_take_their_words)
{
	static const char *const yes[] = {"1", "true", "yes", "on", "TRUE", "Yes", "oN"};
	static const char *const no[] = {"0", "false", "no", "off", "False", "NO", "OFF"};

	for (size_t i = 0; i < 7; i++) {
		ck_assert_int_eq(set("is_on", yes[i]), 0);
		ck_assert_uint_eq(cfg.is_on, 1);
		ck_assert_int_eq(set("is_on", no[i]), 0);
		ck_assert_uint_eq(cfg.is_on, 0);
	}
}
END_TEST

START_TEST(other_flags_are_refused)
{
	static const char *const values[] = {"2", "", "y", "truee", "tru", "-1", " 1", "01"};
	char text[160];

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		snprintf(text, sizeof(text), "is_on = \"%s\": must be one of 0, 1, false, true, no, yes, off, on",
			 values[i]);
		check_refused("is_on", values[i], SCOUT_ERR_CONFIG_SYNTAX, text);
	}
}
END_TEST

START_TEST(words_are_set_by_name)
{
	for (uint32_t i = 0; modes[i]; i++) {
		ck_assert_int_eq(set("mode", modes[i]), 0);
		ck_assert_uint_eq(cfg.mode, i);
	}
	check_refused("mode", "1", SCOUT_ERR_CONFIG_SYNTAX, "mode = \"1\": must be one of async, polled, sync");
	check_refused("mode", "poll", SCOUT_ERR_CONFIG_SYNTAX, "mode = \"poll\": must be one of async, polled, sync");
	check_refused("mode", "", SCOUT_ERR_CONFIG_SYNTAX, "mode = \"\": must be one of async, polled, sync");
}
END_TEST

START_TEST(strings_are_copied)
{
	char value[] = "ipc:///run/a";
	const char *first;

	ck_assert_int_eq(set("path", value), 0);
	memset(value, 'x', sizeof(value) - 1);
	ck_assert_str_eq(cfg.path, "ipc:///run/a");
	/* The user may have kept the old one: it lives until fini. */
	first = cfg.path;
	ck_assert_int_eq(set("path", "b"), 0);
	ck_assert_str_eq(cfg.path, "b");
	ck_assert_str_eq(first, "ipc:///run/a");
	ck_assert_int_eq(set("path", cfg.path), 0);
	ck_assert_str_eq(cfg.path, "b");
}
END_TEST

START_TEST(the_length_of_strings_is_limited)
{
	ck_assert_int_eq(set("path", "12345678901234567890"), 0);
	ck_assert_int_eq(set("name", ""), 0);
	ck_assert_str_eq(cfg.name, "");
	check_refused("path", "", SCOUT_ERR_CONFIG_RANGE, "path = \"\": must be 1..20 bytes");
	check_refused("path", "123456789012345678901", SCOUT_ERR_CONFIG_RANGE,
		      "path = \"123456789012345678901\": must be 1..20 bytes");
}
END_TEST

START_TEST(long_and_unprintable_values_are_shown_short_and_clean)
{
	char value[1000];

	memset(value, 'a', sizeof(value));
	value[3] = '\n';
	value[sizeof(value) - 1] = '\0';
	check_refused("path", value, SCOUT_ERR_CONFIG_RANGE,
		      "path = \"aaa?aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...\": "
		      "must be 1..20 bytes");
}
END_TEST

START_TEST(an_unknown_key_gets_a_suggestion_when_one_is_close)
{
	check_refused("cuont", "1", SCOUT_ERR_CONFIG_KEY, "\"cuont\" is no configuration key; did you mean count?");
	check_refused("Mode", "1", SCOUT_ERR_CONFIG_KEY, "\"Mode\" is no configuration key; did you mean mode?");
	check_refused("any-bytes", "1", SCOUT_ERR_CONFIG_KEY,
		      "\"any-bytes\" is no configuration key; did you mean any_bytes?");
	check_refused("verxionss", "1", SCOUT_ERR_CONFIG_KEY,
		      "\"verxionss\" is no configuration key; docs/configuration.md lists them");
	check_refused("", "1", SCOUT_ERR_CONFIG_KEY, "\"\" is no configuration key; docs/configuration.md lists them");
	check_refused("count ", "1", SCOUT_ERR_CONFIG_KEY, "\"count \" is no configuration key; did you mean count?");
}
END_TEST

START_TEST(a_very_long_key_is_refused)
{
	char key[5000];

	memset(key, 'c', sizeof(key));
	key[sizeof(key) - 1] = '\0';
	ck_assert_int_eq(set(key, "1"), SCOUT_ERR_CONFIG_KEY);
	ck_assert_uint_lt(strlen(err), 150);
}
END_TEST

START_TEST(null_arguments_are_refused)
{
	ck_assert_int_eq(scout__options_set(&table, NULL, "count", "1", err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_uint_gt(strlen(err), 0);
	ck_assert_int_eq(set(NULL, "1"), SCOUT_ERR_INVALID);
	ck_assert_int_eq(set("count", NULL), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout__options_load(&table, NULL, "x", err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout__options_load(&table, &cfg, NULL, err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout__options_load_env(&table, NULL, err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout__options_accept(&table, &taken, NULL, err, sizeof(err)), SCOUT_ERR_INVALID);
	scout__options_fini(&table, NULL);
	scout__options_init(&table, NULL, sizeof(cfg));
}
END_TEST

START_TEST(the_message_may_be_left_out_or_cut)
{
	char small[8] = "1234567";

	ck_assert_int_eq(scout__options_set(&table, &cfg, "count", "1001", NULL, 0), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_int_eq(scout__options_set(&table, &cfg, "count", "1001", NULL, 100), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_int_eq(scout__options_set(&table, &cfg, "count", "1001", small, 0), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_str_eq(small, "1234567");
	ck_assert_int_eq(scout__options_set(&table, &cfg, "count", "1001", small, 6), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_str_eq(small, "count");
	ck_assert_int_eq(scout__options_set(&table, &cfg, "count", "5", small, 6), 0);
	ck_assert_str_eq(small, "count");
}
END_TEST

START_TEST(a_structure_that_was_not_initialised_is_refused)
{
	struct config zero;

	memset(&zero, 0, sizeof(zero));
	ck_assert_int_eq(scout__options_set(&table, &zero, "count", "1", err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_uint_eq(zero.count, 0);
	scout__options_fini(&table, &zero);
}
END_TEST

START_TEST(a_key_beyond_an_older_structure_is_unknown_there)
{
	struct config old;

	memset(&old, 0, sizeof(old));
	scout__options_init(&table, &old, V1_SIZE);
	ck_assert_int_eq(scout__options_set(&table, &old, "late", "3", err, sizeof(err)), SCOUT_ERR_CONFIG_KEY);
	ck_assert_uint_eq(old.late, 0);
	ck_assert_int_eq(scout__options_set(&table, &old, "path", "x", err, sizeof(err)), 0);
	scout__options_fini(&table, &old);
	ck_assert_ptr_null(old.late_name);
}
END_TEST

START_TEST(fini_is_legal_twice_and_leaves_no_dangling_string)
{
	static const char mine[] = "mine";

	ck_assert_int_eq(set("path", "a"), 0);
	ck_assert_int_eq(set("name", "b"), 0);
	ck_assert_int_eq(set("count", "9"), 0);
	cfg.late_name = mine;
	scout__options_fini(&table, &cfg);
	ck_assert_ptr_null(cfg.path);
	ck_assert_str_eq(cfg.name, "default");
	ck_assert_ptr_eq(cfg.late_name, mine);
	ck_assert_uint_eq(cfg.count, 9);
	ck_assert_ptr_null(cfg.owned);
	scout__options_fini(&table, &cfg);
	ck_assert_int_eq(set("path", "again"), 0);
	ck_assert_str_eq(cfg.path, "again");
}
END_TEST

static void
add_setter_tests(TCase *tcase)
{
	tcase_add_test(tcase, init_applies_every_default);
	tcase_add_test(tcase, init_of_an_older_structure_touches_nothing_behind_it);
	tcase_add_test(tcase, init_of_a_newer_structure_clears_all_of_it);
	tcase_add_test(tcase, numbers_are_set);
	tcase_add_test(tcase, zero_means_the_default_where_it_is_no_value_of_its_own);
	tcase_add_test(tcase, signed_numbers_are_set);
	tcase_add_test(tcase, the_alias_sets_the_same_field);
	tcase_add_test(tcase, a_number_out_of_range_names_key_value_and_range);
	tcase_add_test(tcase, a_number_too_large_to_hold_is_out_of_range);
	tcase_add_loop_test(tcase, what_is_no_number_is_a_syntax_error, 0,
			    (int)(sizeof(no_numbers) / sizeof(no_numbers[0])));
	tcase_add_loop_test(tcase, sizes_take_suffixes, 0, N_SIZES);
	tcase_add_loop_test(tcase, what_is_no_size_is_a_syntax_error, 0, (int)(sizeof(no_sizes) / sizeof(no_sizes[0])));
	tcase_add_test(tcase, a_size_that_overflows_with_its_suffix_is_out_of_range);
	tcase_add_test(tcase, flags_take_their_words);
	tcase_add_test(tcase, other_flags_are_refused);
	tcase_add_test(tcase, words_are_set_by_name);
	tcase_add_test(tcase, strings_are_copied);
	tcase_add_test(tcase, the_length_of_strings_is_limited);
	tcase_add_test(tcase, long_and_unprintable_values_are_shown_short_and_clean);
	tcase_add_test(tcase, an_unknown_key_gets_a_suggestion_when_one_is_close);
	tcase_add_test(tcase, a_very_long_key_is_refused);
	tcase_add_test(tcase, null_arguments_are_refused);
	tcase_add_test(tcase, the_message_may_be_left_out_or_cut);
	tcase_add_test(tcase, a_structure_that_was_not_initialised_is_refused);
	tcase_add_test(tcase, a_key_beyond_an_older_structure_is_unknown_there);
	tcase_add_test(tcase, fini_is_legal_twice_and_leaves_no_dangling_string);
}

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("config_option");
	TCase *tcase = tcase_create("option");

	tcase_add_checked_fixture(tcase, setup, teardown);
	add_setter_tests(tcase);
	suite_add_tcase(suite, tcase);
	return suite;
}
