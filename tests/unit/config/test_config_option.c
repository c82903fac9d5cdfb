/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <kvscout/error.h>

#include "check_main.h"
#include "option_table.h"

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

CHECKED_FIXTURE(setup, teardown);

START_TEST(init_applies_every_default)
{
	check_defaults(&cfg);
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

#define FIELD(field, n) NUMBER(struct config, field, n)

static const struct setting accepted[] = {
	{"count", "1", FIELD(count, 1)},
	{"count", "1000", FIELD(count, 1000)},
	{"count", "0007", FIELD(count, 7)},
	{"any_count", "4294967295", FIELD(any_count, UINT32_MAX)},
	{"any_count", "0", FIELD(any_count, 0)},
	{"version", "18446744073709551615", FIELD(version, UINT64_MAX)},
	{"version", "-0", FIELD(version, 0)},
	{"offset", "-2147483648", FIELD(offset, INT32_MIN)},
	{"offset", "2147483647", FIELD(offset, INT32_MAX)},
	{"offset", "-1", FIELD(offset, -1)},
	{"device", "15", FIELD(device, 15)},
	{"counts", "12", FIELD(count, 12)}, /* the alias */
	{"any_bytes", "0", FIELD(any_bytes, 0)},
	{"any_bytes", "1", FIELD(any_bytes, 1)},
	{"any_bytes", "1b", FIELD(any_bytes, 1)},
	{"any_bytes", "7B", FIELD(any_bytes, 7)},
	{"any_bytes", "3k", FIELD(any_bytes, 3000)},
	{"any_bytes", "3K", FIELD(any_bytes, 3000)},
	{"any_bytes", "3kB", FIELD(any_bytes, 3000)},
	{"any_bytes", "3ki", FIELD(any_bytes, 3072)},
	{"any_bytes", "3KiB", FIELD(any_bytes, 3072)},
	{"any_bytes", "3KIB", FIELD(any_bytes, 3072)},
	{"any_bytes", "2m", FIELD(any_bytes, 2000000)},
	{"any_bytes", "2MB", FIELD(any_bytes, 2000000)},
	{"any_bytes", "2Mi", FIELD(any_bytes, UINT64_C(2) << 20)},
	{"any_bytes", "2g", FIELD(any_bytes, UINT64_C(2000000000))},
	{"any_bytes", "2GiB", FIELD(any_bytes, UINT64_C(2) << 30)},
	{"any_bytes", "5t", FIELD(any_bytes, UINT64_C(5000000000000))},
	{"any_bytes", "5Ti", FIELD(any_bytes, UINT64_C(5) << 40)},
	{"any_bytes", "5tib", FIELD(any_bytes, UINT64_C(5) << 40)},
	{"any_bytes", "18446744073709551615", FIELD(any_bytes, UINT64_MAX)},
	{"any_bytes", "16777215Ti", FIELD(any_bytes, UINT64_C(16777215) << 40)},
	{"any_bytes", "18446744T", FIELD(any_bytes, UINT64_C(18446744000000000000))},
	{"mode", "async", FIELD(mode, 0)},
	{"mode", "polled", FIELD(mode, 1)},
	{"mode", "sync", FIELD(mode, 2)},
	{"path", "12345678901234567890", TEXT(struct config, path, "12345678901234567890")},
	{"name", "", TEXT(struct config, name, "")},
};

START_LOOP_TEST(a_value_within_its_range_is_set, 0, N_OF(accepted))
{
	ck_assert_int_eq(set(accepted[_i].key, accepted[_i].value), 0);
	check_settings(&cfg, &accepted[_i], 1);
}
END_TEST

#define NO_NUMBERS                                                                                                     \
	"", " ", "-", "--1", "+1", " 1", "1 ", "1x", "x1", "0x10", "1.0", "1e2", "1,000", "a", "1-", "\t1",            \
		"\xd9\xa1", "1\n", "1k", "1Ki"

/* Values that a key does not take, the error, and what the message says is allowed. */
static const struct {
	const char *key;
	int code;
	const char *allowed;
	const char *values[20];
} refusals[] = {
	{"count", SCOUT_ERR_CONFIG_RANGE, "1..1000", {"1001", "-5", "0", "000", "-0"}},
	{"device", SCOUT_ERR_CONFIG_RANGE, "0..15", {"-1", "16"}},
	{"bytes", SCOUT_ERR_CONFIG_RANGE, "64Ki..4Gi", {"65535", "-1Mi", "0", "0Ki"}},
	{"any_count", SCOUT_ERR_CONFIG_RANGE, "0..4294967295", {"4294967296", "-1"}},
	{"version",
	 SCOUT_ERR_CONFIG_RANGE,
	 "0..18446744073709551615",
	 {"18446744073709551616", "99999999999999999999999999", "-1"}},
	{"offset",
	 SCOUT_ERR_CONFIG_RANGE,
	 "-2147483648..2147483647",
	 {"2147483648", "-2147483649", "18446744073709551615"}},
	{"any_bytes",
	 SCOUT_ERR_CONFIG_RANGE,
	 "0..18446744073709551615",
	 {"18446744073709551616", "16777216Ti", "18446745t", "18014398509481984Ki", "99999999999999999999k"}},
	{"path", SCOUT_ERR_CONFIG_RANGE, "1..20 bytes", {"", "123456789012345678901"}},
	{"count", SCOUT_ERR_CONFIG_SYNTAX, "a number, 1..1000", {NO_NUMBERS}},
	{"device", SCOUT_ERR_CONFIG_SYNTAX, "a number, 0..15", {NO_NUMBERS}},
	{"version", SCOUT_ERR_CONFIG_SYNTAX, "a number, 0..18446744073709551615", {NO_NUMBERS}},
	{"bytes",
	 SCOUT_ERR_CONFIG_SYNTAX,
	 "a size such as 64Mi, 64Ki..4Gi",
	 {"", "k", "Ki", "B", "1kk", "1Kib2", "1i", "1iB", "1p", "1 k", "1k ", "1.5g", "1BB", "1Bk", "1ik", "-", "-k",
	  "18446744073709551615b9"}},
	{"is_on",
	 SCOUT_ERR_CONFIG_SYNTAX,
	 "one of 0, 1, false, true, no, yes, off, on",
	 {"2", "", "y", "truee", "tru", "-1", " 1", "01"}},
	{"mode", SCOUT_ERR_CONFIG_SYNTAX, "one of async, polled, sync", {"1", "poll", ""}},
};

START_LOOP_TEST(a_refusal_names_key_value_and_what_is_allowed, 0, N_OF(refusals))
{
	for (size_t i = 0; i < N_OF(refusals[_i].values) && refusals[_i].values[i]; i++) {
		const char *value = refusals[_i].values[i];
		char text[160], shown[32];

		(void)snprintf(shown, sizeof(shown), "%s", value);
		for (char *at = shown; *at; at++) {
			if (*at == '\t' || *at == '\n')
				*at = '?';
		}
		(void)snprintf(text, sizeof(text), "%s = \"%s\": must be %s", refusals[_i].key, shown,
			       refusals[_i].allowed);
		check_refused(refusals[_i].key, value, refusals[_i].code, text);
	}
}
END_TEST

START_TEST(an_alias_is_refused_by_the_name_of_its_key)
{
	check_refused("counts", "1001", SCOUT_ERR_CONFIG_RANGE, "count = \"1001\": must be 1..1000");
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
	static const struct {
		const char *key, *hint;
	} unknown[] = {
		{"cuont", "did you mean count?"},         {"Mode", "did you mean mode?"},
		{"any-bytes", "did you mean any_bytes?"}, {"verxionss", "docs/configuration.md lists them"},
		{"", "docs/configuration.md lists them"}, {"count ", "did you mean count?"},
	};
	char text[128];

	for (size_t i = 0; i < N_OF(unknown); i++) {
		(void)snprintf(text, sizeof(text), "\"%s\" is no configuration key; %s", unknown[i].key,
			       unknown[i].hint);
		check_refused(unknown[i].key, "1", SCOUT_ERR_CONFIG_KEY, text);
	}
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
