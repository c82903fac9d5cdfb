/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a server: defaults, fields, and its list of L2 stores. */
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvscout/client.h>
#include <kvscout/protocol.h>
#include <kvscout/server.h>
#include <kvscout/worker.h>

#include "client_config.h"
#include "numa.h"
#include "server_config.h"
#include "worker_config.h"
#include "setting.h"
#include "check_main.h"

static const struct scout__option_table *const tables[] = {
	&scout__client_options,
	&scout__server_options,
	&scout__worker_options,
};

static char err[512];

static const struct setting server_settings[] = {
	{"listen", "tcp://127.0.0.1:*"}, {"eviction", "s3fifo"},     {"l1_bytes", "3"},
	{"extent_bytes", "4Ki"},         {"max_promised", "2"},      {"tenant_share", "a:20% *:5%"},
	{"namespace_share", "m:30%"},    {"max_sessions", "7"},      {"max_peers", "8"},
	{"max_namespaces", "18"},        {"peer_timeout_ms", "91"},  {"idle_exit_s", "92"},
	{"dead_writer_ms", "90"},        {"l2", "fs:///a"},          {"prefetch", "before_answer"},
	{"l2_objects", "temporary"},     {"l2_timeout_ms", "13"},    {"l2_lookup_timeout_ms", "19"},
	{"l2_queue_bytes", "14"},        {"bad_key_ms", "15"},       {"curve_secret_file", "/k"},
	{"curve_clients_file", "/c"},    {"metrics", "127.0.0.1:0"}, {"spin_us", "16"},
	{"local_transport", "socket"},   {"shm_bytes", "17Ki"},      {"credits", "10"},
	{"reply_delay_us", "11"},        {"reply_jitter_us", "12"},  {"cpus", "inherit"},
};

START_TEST(each_server_key_sets_its_field)
{
	struct scout_server_config cfg;
	struct scout_server_config taken;

	scout_server_config_init(&cfg);
	ck_assert_uint_eq(sizeof(server_settings) / sizeof(server_settings[0]), scout__server_options.n);
	for (size_t i = 0; i < scout__server_options.n; i++)
		ck_assert_int_eq(
			scout_server_config_set(&cfg, server_settings[i].key, server_settings[i].value, err, 512), 0);
	ck_assert_int_eq(scout__server_config_accept(&taken, &cfg, err, sizeof(err)), 0);
	scout_server_config_fini(&cfg);
	ck_assert_str_eq(taken.listen, "tcp://127.0.0.1:*");
	ck_assert_str_eq(taken.eviction, "s3fifo");
	ck_assert_uint_eq(taken.l1_bytes, 3);
	ck_assert_uint_eq(taken.extent_bytes, 4096);
	ck_assert_uint_eq(taken.max_promised, 2);
	ck_assert_uint_eq(taken.max_sessions, 7);
	ck_assert_uint_eq(taken.max_peers, 8);
	ck_assert_uint_eq(taken.max_namespaces, 18);
	ck_assert_uint_eq(taken.idle_exit_s, 92);
	ck_assert_uint_eq(taken.dead_writer_ms, 90);
	ck_assert_uint_eq(taken.credits, 10);
	ck_assert_uint_eq(taken.reply_delay_us, 11);
	ck_assert_uint_eq(taken.reply_jitter_us, 12);
	ck_assert_str_eq(taken.l2, "fs:///a");
	ck_assert_uint_eq(taken.prefetch, SCOUT_PREFETCH_BEFORE_ANSWER);
	ck_assert_uint_eq(taken.l2_objects, SCOUT_L2_TEMPORARY);
	ck_assert_uint_eq(taken.l2_timeout_ms, 13);
	ck_assert_uint_eq(taken.l2_lookup_timeout_ms, 19);
	ck_assert_uint_eq(taken.l2_queue_bytes, 14);
	ck_assert_uint_eq(taken.bad_key_ms, 15);
	ck_assert_str_eq(taken.curve_secret_file, "/k");
	ck_assert_str_eq(taken.curve_clients_file, "/c");
	ck_assert_str_eq(taken.metrics, "127.0.0.1:0");
	ck_assert_uint_eq(taken.spin_us, 16);
	ck_assert_uint_eq(taken.local_transport, SCOUT_LOCAL_SOCKET);
	ck_assert_uint_eq(taken.shm_bytes, 17 << 10);
	ck_assert_str_eq(taken.cpus, "inherit");
	ck_assert_str_eq(taken.tenant_share, "a:20% *:5%");
	ck_assert_str_eq(taken.namespace_share, "m:30%");
	scout_server_config_fini(&taken);
}
END_TEST

START_TEST(server_defaults_are_the_documented_ones)
{
	struct scout_server_config cfg;
	struct scout_server_config taken;

	scout_server_config_init(&cfg);
	ck_assert_int_eq(scout__server_config_accept(&taken, &cfg, err, sizeof(err)), 0);
	ck_assert_ptr_null(taken.listen);
	ck_assert_str_eq(taken.eviction, "hdc");
	ck_assert_uint_eq(taken.l1_bytes, 1 << 30);
	ck_assert_uint_eq(taken.extent_bytes, 64 << 20);
	ck_assert_uint_eq(taken.max_promised, 1 << 29);
	ck_assert_uint_eq(taken.max_sessions, 65536);
	ck_assert_uint_eq(taken.max_peers, 1024);
	ck_assert_uint_eq(taken.max_namespaces, 256);
	ck_assert_uint_eq(taken.idle_exit_s, 0);
	ck_assert_uint_eq(taken.dead_writer_ms, 30000);
	ck_assert_uint_eq(taken.credits, 4096);
	ck_assert_uint_eq(taken.reply_delay_us, 0);
	ck_assert_uint_eq(taken.reply_jitter_us, 0);
	ck_assert_ptr_null(taken.l2);
	ck_assert_uint_eq(taken.prefetch, SCOUT_PREFETCH_ON_RETRIEVE);
	ck_assert_uint_eq(taken.l2_objects, SCOUT_L2_RETAIN);
	ck_assert_uint_eq(taken.l2_timeout_ms, 1000);
	ck_assert_uint_eq(taken.l2_queue_bytes, 1 << 27);
	ck_assert_uint_eq(taken.bad_key_ms, 30000);
	ck_assert_ptr_null(taken.metrics);
	ck_assert_uint_eq(taken.spin_us, 0);
	scout_server_config_fini(&taken);
	cfg.l1_bytes = 1;
	ck_assert_int_eq(scout__server_config_accept(&taken, &cfg, err, sizeof(err)), 0);
	ck_assert_uint_eq(taken.max_promised, 1);
	ck_assert_uint_eq(taken.l2_queue_bytes, 1);
	scout_server_config_fini(&taken);
}
END_TEST

START_TEST(one_url_of_l2_may_hold_commas_and_no_second_url)
{
	static const char text[] =
		"l2: must hold no second URL behind a comma; write several URLs with blanks between them, or give "
		"the key once for each";
	struct scout_server_config cfg;
	struct scout_server_config taken;

	scout_server_config_init(&cfg);
	ck_assert_int_eq(scout_server_config_set(&cfg, "l2", "redis://a:1,b:2 fs:///a,b", err, sizeof(err)), 0);
	ck_assert_str_eq(cfg.l2, "redis://a:1,b:2 fs:///a,b");
	ck_assert_int_eq(scout_server_config_set(&cfg, "l2", "fs:///a,redis://:secret@b:2", err, sizeof(err)),
			 SCOUT_ERR_CONFIG_SYNTAX);
	ck_assert_str_eq(err, text);
	ck_assert_int_eq(scout_server_config_set(&cfg, "l2", "fs:///c fs:///d fs:///e", err, sizeof(err)),
			 SCOUT_ERR_CONFIG_RANGE);
	ck_assert_str_eq(err, "l2 has 5 items: must have 1..4, with blanks between them");
	scout_server_config_fini(&cfg);
	cfg.l2 = "fs:///a,fs:///b";
	ck_assert_int_eq(scout__server_config_accept(&taken, &cfg, err, sizeof(err)), SCOUT_ERR_CONFIG_SYNTAX);
	ck_assert_str_eq(err, text);
}
END_TEST

START_TEST(lines_of_a_file_add_to_the_second_tier)
{
	static const char text[] = "l2 = fs:///a?max_bytes=1Gi&threads=2\nprefetch=on_lookup\nl2 = redis://:p%23@h:1\n";
	char path[] = "/tmp/kvscout-test-config-XXXXXX";
	struct scout_server_config cfg;
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
	ck_assert_int_eq(close(fd), 0);
	scout_server_config_init(&cfg);
	ck_assert_int_eq(scout_server_config_set(&cfg, "l2", "fs:///first", err, sizeof(err)), 0);
	ck_assert_int_eq(scout_server_config_load(&cfg, path, err, sizeof(err)), 0);
	ck_assert_str_eq(cfg.l2, "fs:///first fs:///a?max_bytes=1Gi&threads=2 redis://:p%23@h:1");
	ck_assert_uint_eq(cfg.prefetch, SCOUT_PREFETCH_ON_LOOKUP);
	scout_server_config_fini(&cfg);
	ck_assert_int_eq(unlink(path), 0);
}
END_TEST

START_TEST(help_lists_every_key)
{
	int (*const helps[])(size_t, struct scout_config_row *) = {scout_client_config_help, scout_server_config_help,
								   scout_worker_config_help};
	struct scout_config_row row;
	size_t n = 0;

	for (; helps[_i](n, &row) == 0; n++) {
		ck_assert_str_eq(row.name, tables[_i]->options[n].name);
		ck_assert_str_eq(row.meaning, tables[_i]->options[n].doc);
		ck_assert_uint_lt(strlen(row.def), sizeof(row.def) - 1);
		ck_assert_uint_lt(strlen(row.range), sizeof(row.range) - 1);
		ck_assert(row.def[0] && row.range[0]);
	}
	ck_assert_uint_eq(n, tables[_i]->n);
	ck_assert_int_eq(helps[_i](n, &row), SCOUT_ERR_INVALID);
	ck_assert_int_eq(helps[_i](0, NULL), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_client_config_help_sized(0, &row, 8), SCOUT_ERR_UNSUPPORTED);
}
END_TEST

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("config_server");
	TCase *tcase = tcase_create("config");

	tcase_add_loop_test(tcase, help_lists_every_key, 0, 3);
	tcase_add_test(tcase, server_defaults_are_the_documented_ones);
	tcase_add_test(tcase, each_server_key_sets_its_field);
	tcase_add_test(tcase, one_url_of_l2_may_hold_commas_and_no_second_url);
	tcase_add_test(tcase, lines_of_a_file_add_to_the_second_tier);
	suite_add_tcase(suite, tcase);
	return suite;
}
