/* SPDX-License-Identifier: Apache-2.0 */
/* The keys `group` and `hash_tokens`: what they say, what is malformed, and what this version does not carry out. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <kvscout/error.h>

#include "client_config.h"
#include "group_list.h"
#include "worker_config.h"
#include "check_main.h"

static const struct scout__group_keys keys = {.chunk_tokens = 256, .hash_tokens = 16, .readers = 3};
static char err[512];

START_TEST(nothing_said_is_one_group_of_all_chunks)
{
	static const char *const lists[] = {NULL, "", "  ", "all", " all\t"};

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		struct scout__groups g;

		ck_assert_int_eq(scout__groups_parse(lists[i], &keys, &g, err, sizeof(err)), 0);
		ck_assert_uint_eq(g.n, 1);
		ck_assert_uint_eq(g.group[0].policy, SCOUT__POLICY_ALL);
		ck_assert_uint_eq(g.group[0].unit_tokens, 256);
		ck_assert_uint_eq(g.group[0].readers, 3);
		ck_assert_uint_eq(g.group[0].span_tokens, 0);
		ck_assert_uint_eq(g.group[0].margin_tokens, 0);
	}
}
END_TEST

START_TEST(each_item_says_what_its_group_is)
{
	struct scout__groups g;

	ck_assert_int_eq(scout__groups_parse("all window:4096,unit=16 local:8192,margin=32,readers=1 state,unit=64",
					     &keys, &g, err, sizeof(err)),
			 0);
	ck_assert_uint_eq(g.n, 4);
	ck_assert_uint_eq(g.group[1].policy, SCOUT__POLICY_WINDOW);
	ck_assert_uint_eq(g.group[1].span_tokens, 4096);
	ck_assert_uint_eq(g.group[1].unit_tokens, 16);
	ck_assert_uint_eq(g.group[1].readers, 3);
	ck_assert_uint_eq(g.group[2].policy, SCOUT__POLICY_LOCAL);
	ck_assert_uint_eq(g.group[2].span_tokens, 8192);
	ck_assert_uint_eq(g.group[2].margin_tokens, 32);
	ck_assert_uint_eq(g.group[2].readers, 1);
	ck_assert_uint_eq(g.group[3].policy, SCOUT__POLICY_STATE);
	ck_assert_uint_eq(g.group[3].unit_tokens, 64);
}
END_TEST

START_TEST(a_malformed_item_is_named_with_what_is_allowed)
{
	static const char *const bad[] = {
		"some",
		"ALL",
		"all:4",
		"all:",
		"window",
		"window:",
		"window:0",
		"window:-1",
		"window:4096x",
		"window:4096:2",
		"window:99999999999999999999",
		"state:1",
		"all,",
		"all,unit",
		"all,unit=",
		"all,unit=0",
		"all,unit=1048577",
		"all,unit=16,unit=16",
		"all,readers=0",
		"all,readers=65",
		"all,color=3",
		"all,,unit=3",
		":4",
		",unit=16",
		"all\x1b[2J",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct scout__groups g;
		char list[128];

		(void)snprintf(list, sizeof(list), "all %s state", bad[i]);
		err[0] = '\0';
		ck_assert_msg(scout__groups_parse(list, &keys, &g, err, sizeof(err)) == SCOUT_ERR_CONFIG_SYNTAX, "%s",
			      bad[i]);
		ck_assert_msg(strstr(err, "must be all, window:SPAN, local:SPAN or state") != NULL, "%s", err);
		ck_assert_msg(strchr(err, '\x1b') == NULL, "%s", err);
		ck_assert_int_eq(scout__group_check_item("group", bad[i], err, sizeof(err)), SCOUT_ERR_CONFIG_SYNTAX);
	}
	ck_assert_int_eq(scout__group_check_item("group", "local:1024,margin=0", err, sizeof(err)), 0);
}
END_TEST

START_TEST(the_33rd_group_is_one_too_many)
{
	struct scout__groups g;
	char list[33 * 4 + 1] = "";

	for (int i = 0; i < 32; i++)
		strcat(list, "all ");
	ck_assert_int_eq(scout__groups_parse(list, &keys, &g, err, sizeof(err)), 0);
	ck_assert_uint_eq(g.n, 32);
	strcat(list, "all ");
	ck_assert_int_eq(scout__groups_parse(list, &keys, &g, err, sizeof(err)), SCOUT_ERR_GROUP_LIMIT);
	ck_assert_msg(strstr(err, "at most 32") != NULL, "%s", err);
}
END_TEST

START_TEST(the_setter_and_a_field_refuse_the_33rd_group_too)
{
	struct scout_client_config client, taken;
	char list[33 * 4 + 1] = "";

	scout_client_config_init(&client);
	client.endpoint = "ipc:///e";
	for (int i = 0; i < 32; i++)
		ck_assert_int_eq(scout_client_config_set(&client, "group", "all", err, sizeof(err)), 0);
	ck_assert_int_eq(scout_client_config_set(&client, "group", "all", err, sizeof(err)), SCOUT_ERR_GROUP_LIMIT);
	ck_assert_msg(strstr(err, "33 items") && strstr(err, "1..32"), "%s", err);
	for (int i = 0; i < 33; i++)
		strcat(list, "all ");
	client.group = list;
	ck_assert_int_eq(scout__client_config_accept(&taken, &client, err, sizeof(err)), SCOUT_ERR_GROUP_LIMIT);
	scout_client_config_fini(&client);
}
END_TEST

START_TEST(a_unit_is_a_whole_number_of_hashes)
{
	struct scout__groups g;

	ck_assert_int_eq(scout__groups_parse("window:64,unit=24", &keys, &g, err, sizeof(err)), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_msg(strstr(err, "unit=24") && strstr(err, "hash_tokens = 16"), "%s", err);
}
END_TEST

static const struct {
	const char *group;
	uint32_t hash_tokens;
	int code;
	const char *text;
} keys_together[] = {
	{"all window:4096 local:8192 state", 0, 0, ""},
	{"window:4096,unit=16,readers=2 all,margin=16", 16, 0, ""},
	{NULL, 16, 0, ""},
	{"window:4096,unit=24", 16, SCOUT_ERR_CONFIG_RANGE, "unit=24"},
	{NULL, 24, SCOUT_ERR_CONFIG_RANGE, "hash_tokens = 24"},
	{"sliding", 0, SCOUT_ERR_CONFIG_SYNTAX, "sliding"},
};

START_LOOP_TEST(client_and_worker_take_what_fits_together, 0, (sizeof(keys_together) / sizeof(keys_together[0])))
{
	struct scout_client_config client, client_taken;
	struct scout_worker_config worker, worker_taken;
	int code = keys_together[_i].code;

	scout_client_config_init(&client);
	client.endpoint = "ipc:///e";
	client.group = keys_together[_i].group;
	client.hash_tokens = keys_together[_i].hash_tokens;
	err[0] = '\0';
	ck_assert_int_eq(scout__client_config_accept(&client_taken, &client, err, sizeof(err)), code);
	ck_assert_msg(strstr(err, keys_together[_i].text) != NULL, "%s", err);
	scout_worker_config_init(&worker);
	worker.endpoint = "ipc:///e";
	worker.group = keys_together[_i].group;
	worker.hash_tokens = keys_together[_i].hash_tokens;
	err[0] = '\0';
	ck_assert_int_eq(scout__worker_config_accept(&worker_taken, &worker, err, sizeof(err)), code);
	ck_assert_msg(strstr(err, keys_together[_i].text) != NULL, "%s", err);
	if (code == 0) {
		scout_client_config_fini(&client_taken);
		scout_worker_config_fini(&worker_taken);
	}
}
END_TEST

START_TEST(one_group_of_all_chunks_may_be_spelled_out)
{
	struct scout_client_config client, taken;

	scout_client_config_init(&client);
	client.endpoint = "ipc:///e";
	client.readers = 2;
	ck_assert_int_eq(scout_client_config_set(&client, "group", "all,unit=256,margin=0,readers=2", err, sizeof(err)),
			 0);
	ck_assert_int_eq(scout_client_config_set(&client, "hash_tokens", "256", err, sizeof(err)), 0);
	ck_assert_msg(scout__client_config_accept(&taken, &client, err, sizeof(err)) == 0, "%s", err);
	ck_assert_uint_eq(taken.hash_tokens, 256);
	scout_client_config_fini(&taken);
	/* Set again, the key adds a group. */
	ck_assert_int_eq(scout_client_config_set(&client, "group", "state", err, sizeof(err)), 0);
	ck_assert_str_eq(client.group, "all,unit=256,margin=0,readers=2 state");
	scout_client_config_fini(&client);
}
END_TEST
