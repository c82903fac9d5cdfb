/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/client.h>
#include <kvscout/server.h>
#include <kvscout/worker.h>

#include "client_config.h"
#include "server_config.h"
#include "worker_config.h"
#include "check_main.h"

/* The three tables themselves: that each row is sound, and that the public calls reach the right fields. */

static const struct scout__option_table *const tables[] = {
	&scout__client_options,
	&scout__server_options,
	&scout__worker_options,
};

static char err[512];

static bool
is_number(const struct scout__option *option)
{
	return option->type != SCOUT_OPTION_STRING && option->type != SCOUT_OPTION_LIST;
}

static uint64_t
largest_of(enum scout__option_type type)
{
	switch (type) {
	case SCOUT_OPTION_U32:
		return UINT32_MAX;
	case SCOUT_OPTION_I32:
		return INT32_MAX;
	case SCOUT_OPTION_BOOL:
		return 1;
	default:
		return UINT64_MAX;
	}
}

static uint64_t
n_words(const struct scout__option *option)
{
	uint64_t n = 0;

	while (option->words[n])
		n++;
	return n;
}

START_LOOP_TEST(rows_are_sound, 0, 3)
{
	const struct scout__option_table *table = tables[_i];

	for (size_t i = 0; i < table->n; i++) {
		const struct scout__option *option = &table->options[i];

		ck_assert_msg(option->min <= option->max, "%s", option->name);
		ck_assert_msg(option->max <= largest_of(option->type), "%s", option->name);
		ck_assert_msg(option->doc && option->doc[0], "%s", option->name);
		ck_assert_msg(!strpbrk(option->doc, "|\n"), "%s", option->name);
		if (!is_number(option))
			continue;
		if (option->type == SCOUT_OPTION_WORD)
			ck_assert_msg(n_words(option) == option->max + 1, "%s", option->name);
		/* 0 in a field means the default: what is allowed as "0" must mean 0. */
		ck_assert_msg(option->def == 0 || option->min > 0, "%s", option->name);
		ck_assert_msg(option->def >= option->min && option->def <= option->max, "%s", option->name);
	}
}
END_TEST

START_LOOP_TEST(names_and_fields_are_unique, 0, 3)
{
	const struct scout__option_table *table = tables[_i];

	for (size_t i = 0; i < table->n; i++) {
		const struct scout__option *a = &table->options[i];

		for (size_t j = 0; j < i; j++) {
			const struct scout__option *b = &table->options[j];

			ck_assert_str_ne(a->name, b->name);
			ck_assert_uint_ne(a->offset, b->offset);
			if (a->alias)
				ck_assert_str_ne(a->alias, b->name);
			if (b->alias)
				ck_assert_str_ne(b->alias, a->name);
		}
	}
}
END_TEST

/* What help prints as default and bounds can be given back to the setter. */
START_LOOP_TEST(each_bound_is_accepted_and_its_neighbour_is_not, 0, 3)
{
	const struct scout__option_table *table = tables[_i];
	union {
		struct scout_client_config client;
		struct scout_server_config server;
		struct scout_worker_config worker;
	} cfg;
	char text[32];

	for (size_t i = 0; i < table->n; i++) {
		const struct scout__option *option = &table->options[i];

		if (option->type == SCOUT_OPTION_WORD || !is_number(option))
			continue;
		scout__options_init(table, &cfg, (uint32_t)table->struct_size);
		snprintf(text, sizeof(text), "%llu", (unsigned long long)option->min);
		ck_assert_int_eq(scout__options_set(table, &cfg, option->name, text, err, 512), 0);
		snprintf(text, sizeof(text), "%llu", (unsigned long long)option->max);
		ck_assert_int_eq(scout__options_set(table, &cfg, option->name, text, err, 512), 0);
		if (option->max == UINT64_MAX || option->type == SCOUT_OPTION_BOOL)
			continue;
		snprintf(text, sizeof(text), "%llu", (unsigned long long)option->max + 1);
		ck_assert_int_eq(scout__options_set(table, &cfg, option->name, text, err, 512), SCOUT_ERR_CONFIG_RANGE);
		ck_assert_int_eq(scout__options_set(table, &cfg, option->name, "0", err, 512),
				 option->min > 0 && option->type != SCOUT_OPTION_I32 ? SCOUT_ERR_CONFIG_RANGE : 0);
	}
}
END_TEST

/* A structure as a program has it that was compiled before there was L2. */
START_TEST(a_server_configuration_of_the_first_version_has_no_second_tier)
{
	const uint32_t size = offsetof(struct scout_server_config, l2);
	struct scout_server_config *old = malloc(size);
	struct scout_server_config taken;

	ck_assert_ptr_nonnull(old);
	scout_server_config_init_sized(old, size);
	ck_assert_int_eq(scout_server_config_set(old, "l2", "fs:///a", err, sizeof(err)), SCOUT_ERR_CONFIG_KEY);
	ck_assert_int_eq(scout__server_config_accept(&taken, old, err, sizeof(err)), 0);
	ck_assert_ptr_null(taken.l2);
	ck_assert_uint_eq(taken.l2_timeout_ms, 1000);
	scout_server_config_fini(&taken);
	scout_server_config_fini(old);
	free(old);
}
END_TEST
