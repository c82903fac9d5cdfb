/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>

#include "check_main.h"
#include "option_list.h"
#include "option_table.h"

CHECKED_FIXTURE(setup, teardown);

START_TEST(accept_replaces_zero_by_the_default)
{
	memset(&cfg, 0, sizeof(cfg));
	cfg.size = sizeof(cfg);
	ck_assert_int_eq(scout__options_accept(&table, &taken, &cfg, err, sizeof(err)), 0);
	check_defaults(&taken);
	scout__options_fini(&table, &taken);
}
END_TEST

START_TEST(accept_takes_what_was_set_and_copies_strings)
{
	char path[] = "ipc:///x";

	cfg.path = path;
	cfg.flags = 3;
	cfg.device = 4;
	ck_assert_int_eq(set("name", "n"), 0);
	ck_assert_int_eq(set("count", "5"), 0);
	ck_assert_int_eq(set("offset", "-7"), 0);
	ck_assert_int_eq(scout__options_accept(&table, &taken, &cfg, err, sizeof(err)), 0);
	scout__options_fini(&table, &cfg);
	memset(path, 'y', sizeof(path) - 1);
	ck_assert_str_eq(taken.path, "ipc:///x");
	ck_assert_str_eq(taken.name, "n");
	ck_assert_uint_eq(taken.flags, 3);
	ck_assert_int_eq(taken.device, 4);
	ck_assert_uint_eq(taken.count, 5);
	ck_assert_int_eq(taken.offset, -7);
	scout__options_fini(&table, &taken);
	scout__options_fini(&table, &taken);
}
END_TEST

/* Wants a refusal with @text, and that nothing is kept: the leak checkers see the strings. */
static void
check_not_accepted(int code, const char *text)
{
	static const struct config zero;

	ck_assert_int_eq(set("path", "copied"), 0);
	ck_assert_int_eq(scout__options_accept(&table, &taken, &cfg, err, sizeof(err)), code);
	ck_assert_str_eq(err, text);
	ck_assert_mem_eq(&taken, &zero, sizeof(zero));
	ck_assert_str_eq(cfg.path, "copied");
}

#define FIELD(field, n) NUMBER(struct config, field, n)

/* A value that the user put into a field, and what is said about it. */
static const struct setting not_accepted[] = {
	{"count = \"1001\": must be 1..1000", NULL, FIELD(count, 1001)},
	{"device = \"-3\": must be 0..15", NULL, FIELD(device, -3)},
	{"bytes = \"5Gi\": must be 64Ki..4Gi", NULL, FIELD(bytes, UINT64_C(5) << 30)},
	{"bytes = \"65535\": must be 64Ki..4Gi", NULL, FIELD(bytes, 65535)},
	{"is_on = \"2\": must be one of 0, 1, false, true, no, yes, off, on", NULL, FIELD(is_on, 2)},
	{"mode = \"3\": must be one of async, polled, sync", NULL, FIELD(mode, 3)},
	{"name = \"123456789\": must be 0..8 bytes", NULL, TEXT(struct config, name, "123456789")},
	{"late_name = \"\": must be 1..9 bytes", NULL, TEXT(struct config, late_name, "")},
};

START_LOOP_TEST(accept_checks_each_field, 0, N_OF(not_accepted))
{
	const struct setting *s = &not_accepted[_i];

	if (s->width)
		memcpy((char *)&cfg + s->offset, &s->number, s->width);
	else
		memcpy((char *)&cfg + s->offset, &s->text, sizeof(s->text));
	check_not_accepted(SCOUT_ERR_CONFIG_RANGE, s->key);
}
END_TEST

START_TEST(accept_of_an_older_structure_takes_defaults_for_the_rest)
{
	struct config *old = malloc(V1_SIZE);

	ck_assert_ptr_nonnull(old);
	scout__options_init(&table, old, V1_SIZE);
	ck_assert_int_eq(scout__options_set(&table, old, "count", "3", err, sizeof(err)), 0);
	ck_assert_int_eq(scout__options_accept(&table, &taken, old, err, sizeof(err)), 0);
	ck_assert_uint_eq(taken.size, sizeof(taken));
	ck_assert_uint_eq(taken.count, 3);
	ck_assert_uint_eq(taken.late, 7);
	ck_assert_str_eq(taken.late_name, "young");
	scout__options_fini(&table, &taken);
	scout__options_fini(&table, old);
	free(old);
}
END_TEST

/* Cut in the middle of late_name: half a pointer is none. */
START_TEST(accept_ignores_a_field_that_is_there_in_part)
{
	const uint32_t size = offsetof(struct config, late_name) + 4;
	unsigned char *old = calloc(1, size);
	uint32_t late = 9;

	ck_assert_ptr_nonnull(old);
	memcpy(old, &size, sizeof(size));
	memcpy(old + offsetof(struct config, late), &late, sizeof(late));
	memset(old + offsetof(struct config, late_name), 0xa5, 4);
	ck_assert_int_eq(scout__options_accept(&table, &taken, old, err, sizeof(err)), 0);
	ck_assert_uint_eq(taken.late, 9);
	ck_assert_str_eq(taken.late_name, "young");
	scout__options_fini(&table, &taken);
	free(old);
}
END_TEST

START_TEST(accept_refuses_sizes_that_no_version_had)
{
	const uint32_t wrong[] = {0, 4, V1_SIZE - 1, 16385, UINT32_MAX};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct config before;

		memcpy(&before, &taken, sizeof(taken));
		cfg.size = wrong[i];
		ck_assert_int_eq(scout__options_accept(&table, &taken, &cfg, err, sizeof(err)), SCOUT_ERR_UNSUPPORTED);
		ck_assert_int_eq(strncmp(err, "size = ", 7), 0);
		ck_assert_mem_eq(&before, &taken, sizeof(taken));
	}
	cfg.size = sizeof(cfg);
}
END_TEST

START_TEST(accept_of_a_newer_structure_wants_its_unknown_fields_zero)
{
	const uint32_t size = sizeof(struct config) + 16;
	unsigned char *newer = calloc(1, size);

	ck_assert_ptr_nonnull(newer);
	scout__options_init(&table, newer, size);
	ck_assert_int_eq(scout__options_set(&table, newer, "late", "2", err, sizeof(err)), 0);
	ck_assert_int_eq(scout__options_accept(&table, &taken, newer, err, sizeof(err)), 0);
	ck_assert_uint_eq(taken.size, sizeof(taken));
	ck_assert_uint_eq(taken.late, 2);
	scout__options_fini(&table, &taken);
	for (size_t i = sizeof(struct config); i < size; i++) {
		newer[i] = 1;
		ck_assert_int_eq(scout__options_accept(&table, &taken, newer, err, sizeof(err)), SCOUT_ERR_UNSUPPORTED);
		ck_assert_ptr_nonnull(strstr(err, "does not know"));
		newer[i] = 0;
	}
	free(newer);
}
END_TEST

START_TEST(a_list_grows_with_each_set)
{
	char own[] = "a b";

	ck_assert_ptr_null(cfg.late_list);
	ck_assert_int_eq(set("late_list", "one"), 0);
	ck_assert_str_eq(cfg.late_list, "one");
	ck_assert_int_eq(set("late_list", " two"), 0);
	ck_assert_str_eq(cfg.late_list, "one two");
	/* What is there is the user's own: copied, then added to. */
	cfg.late_list = own;
	ck_assert_int_eq(set("late_list", "c"), 0);
	ck_assert_str_eq(own, "a b");
	ck_assert_int_eq(scout__options_accept(&table, &taken, &cfg, err, sizeof(err)), 0);
	ck_assert_str_eq(taken.late_list, "a b c");
	ck_assert_ptr_ne(taken.late_list, cfg.late_list);
	scout__options_fini(&table, &taken);
	ck_assert_ptr_null(taken.late_list);
}
END_TEST

#define RANGE "1..3 items with blanks between them, 2..12 bytes"

/* A value may be a URL with a password: no message repeats it. */
START_TEST(a_list_has_its_length_checked)
{
	ck_assert_int_eq(set("late_list", "1234567890123"), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_str_eq(err, "late_list = \"...\": must be " RANGE);
	ck_assert_ptr_null(cfg.late_list);
	ck_assert_int_eq(set("late_list", "123456"), 0);
	ck_assert_int_eq(set("late_list", " "), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_int_eq(set("late_list", "123456"), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_str_eq(cfg.late_list, "123456");
	ck_assert_int_eq(set("late_list", "12345"), 0);
	ck_assert_str_eq(cfg.late_list, "123456 12345");
	cfg.late_list = "1234567890123";
	check_not_accepted(SCOUT_ERR_CONFIG_RANGE, "late_list = \"...\": must be " RANGE);
}
END_TEST

START_TEST(a_list_has_its_items_counted)
{
	ck_assert_int_eq(set("late_list", ""), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_str_eq(err, "late_list has 0 items: must have 1..3, with blanks between them");
	ck_assert_int_eq(set("late_list", " \t "), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_ptr_null(cfg.late_list);
	ck_assert_int_eq(set("late_list", "a b"), 0);
	ck_assert_int_eq(set("late_list", " "), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_int_eq(set("late_list", "c d"), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_str_eq(err, "late_list has 4 items: must have 1..3, with blanks between them");
	ck_assert_str_eq(cfg.late_list, "a b");
	ck_assert_int_eq(set("late_list", "c"), 0);
	cfg.late_list = "a b c d";
	check_not_accepted(SCOUT_ERR_CONFIG_RANGE, "late_list has 4 items: must have 1..3, with blanks between them");
	cfg.late_list = "  ";
	check_not_accepted(SCOUT_ERR_CONFIG_RANGE, "late_list has 0 items: must have 1..3, with blanks between them");
}
END_TEST

START_TEST(a_row_judges_each_item_of_its_list_and_its_string)
{
	ck_assert_int_eq(set("late_list", "a b?"), SCOUT_ERR_CONFIG_SYNTAX);
	ck_assert_str_eq(err, "late_list: \"b?\" has a question mark");
	ck_assert_ptr_null(cfg.late_list);
	cfg.late_list = "? c";
	check_not_accepted(SCOUT_ERR_CONFIG_SYNTAX, "late_list: \"?\" has a question mark");
	cfg.late_list = NULL;
	ck_assert_int_eq(set("path", "why ?"), SCOUT_ERR_CONFIG_SYNTAX);
	ck_assert_str_eq(err, "path: \"why ?\" has a question mark");
	ck_assert_str_eq(cfg.path, "copied");
}
END_TEST

START_TEST(a_list_is_split_at_blanks)
{
	static const struct {
		const char *list;
		uint32_t n;
		const char *items[3];
	} cases[] = {
		{NULL, 0, {NULL}},
		{"", 0, {NULL}},
		{" \t\n", 0, {NULL}},
		{"a", 1, {"a"}},
		{"a b c", 3, {"a", "b", "c"}},
		{"  fs:///a \t redis://b,c\n", 2, {"fs:///a", "redis://b,c"}},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char **items;
		uint32_t n;

		ck_assert_int_eq(scout__list_split(cases[i].list, &items, &n), 0);
		ck_assert_uint_eq(n, cases[i].n);
		for (uint32_t j = 0; j < n; j++)
			ck_assert_str_eq(items[j], cases[i].items[j]);
		free(items);
	}
}
END_TEST
