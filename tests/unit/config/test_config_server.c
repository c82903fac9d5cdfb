/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a server: each sets its field; defaults that follow from another key; its list of L2 stores. */
#include <string.h>
#include <unistd.h>

#include <kvscout/client.h>
#include <kvscout/server.h>
#include <kvscout/worker.h>

#include "client_config.h"
#include "server_config.h"
#include "worker_config.h"
#include "config_settings.h"
#include "check_main.h"

static const struct scout__option_table *const tables[] = {
	&scout__client_options,
	&scout__server_options,
	&scout__worker_options,
};

static char err[512];

#define SERVER(field, n) NUMBER(struct scout_server_config, field, n)
#define SERVER_TEXT(field, string) string, TEXT(struct scout_server_config, field, string)

static const struct setting server_settings[] = {
	{"listen", SERVER_TEXT(listen, "tcp://127.0.0.1:*")},
	{"eviction", SERVER_TEXT(eviction, "s3fifo")},
	{"l1_bytes", "3", SERVER(l1_bytes, 3)},
	{"extent_bytes", "4Ki", SERVER(extent_bytes, 4096)},
	{"prealloc", "yes", SERVER(prealloc, 1)},
	{"l1_huge_pages", "off", SERVER(l1_huge_pages, SCOUT_HUGE_PAGES_OFF)},
	{"max_promised", "2", SERVER(max_promised, 2)},
	{"max_request_bytes", "300Mi", SERVER(max_request_bytes, 300 << 20)},
	{"feed_bytes", "32Ki", SERVER(feed_bytes, 32 << 10)},
	{"tenant_share", SERVER_TEXT(tenant_share, "a:20% *:5%")},
	{"namespace_share", SERVER_TEXT(namespace_share, "m:30%")},
	{"max_sessions", "7", SERVER(max_sessions, 7)},
	{"max_peers", "8", SERVER(max_peers, 8)},
	{"max_namespaces", "18", SERVER(max_namespaces, 18)},
	{"peer_timeout_ms", "91", SERVER(peer_timeout_ms, 91)},
	{"idle_exit_s", "92", SERVER(idle_exit_s, 92)},
	{"dead_writer_ms", "90", SERVER(dead_writer_ms, 90)},
	{"l2", SERVER_TEXT(l2, "fs:///a")},
	{"prefetch", "before_answer", SERVER(prefetch, SCOUT_PREFETCH_BEFORE_ANSWER)},
	{"l2_objects", "temporary", SERVER(l2_objects, SCOUT_L2_TEMPORARY)},
	{"l2_timeout_ms", "13", SERVER(l2_timeout_ms, 13)},
	{"l2_lookup_timeout_ms", "19", SERVER(l2_lookup_timeout_ms, 19)},
	{"l2_queue_bytes", "14", SERVER(l2_queue_bytes, 14)},
	{"bad_key_ms", "15", SERVER(bad_key_ms, 15)},
	{"curve_secret_file", SERVER_TEXT(curve_secret_file, "/k")},
	{"curve_clients_file", SERVER_TEXT(curve_clients_file, "/c")},
	{"curve_rights_file", SERVER_TEXT(curve_rights_file, "/r")},
	{"socket_group", SERVER_TEXT(socket_group, "engines")},
	{"metrics", SERVER_TEXT(metrics, "127.0.0.1:0")},
	{"spin_us", "16", SERVER(spin_us, 16)},
	{"local_transport", "socket", SERVER(local_transport, SCOUT_LOCAL_SOCKET)},
	{"credits", "10", SERVER(credits, 10)},
	{"reply_delay_us", "11", SERVER(reply_delay_us, 11)},
	{"cpus", SERVER_TEXT(cpus, "inherit")},
};

START_TEST(each_server_key_sets_its_field)
{
	struct scout_server_config cfg, taken;

	scout_server_config_init(&cfg);
	ck_assert_uint_eq(N_OF(server_settings), scout__server_options.n);
	for (size_t i = 0; i < N_OF(server_settings); i++)
		ck_assert_int_eq(
			scout_server_config_set(&cfg, server_settings[i].key, server_settings[i].value, err, 512), 0);
	ck_assert_int_eq(scout__server_config_accept(&taken, &cfg, err, sizeof(err)), 0);
	scout_server_config_fini(&cfg);
	check_settings(&taken, server_settings, N_OF(server_settings));
	scout_server_config_fini(&taken);
}
END_TEST

START_TEST(limits_of_bytes_follow_the_size_of_the_pool)
{
	static const struct {
		uint64_t l1_bytes, max_promised, l2_queue_bytes, max_request_bytes;
	} pools[] = {{1 << 30, 1 << 29, 1 << 27, 1 << 28},
		     {1, 1, 1, 1 << 28},
		     {UINT64_C(1) << 40, UINT64_C(1) << 39, UINT64_C(1) << 37, UINT64_C(1) << 35}};
	struct scout_server_config cfg, taken;

	scout_server_config_init(&cfg);
	for (size_t i = 0; i < N_OF(pools); i++) {
		cfg.l1_bytes = pools[i].l1_bytes;
		ck_assert_int_eq(scout__server_config_accept(&taken, &cfg, err, sizeof(err)), 0);
		ck_assert_uint_eq(taken.max_promised, pools[i].max_promised);
		ck_assert_uint_eq(taken.l2_queue_bytes, pools[i].l2_queue_bytes);
		ck_assert_uint_eq(taken.max_request_bytes, pools[i].max_request_bytes);
		scout_server_config_fini(&taken);
	}
}
END_TEST

START_TEST(one_url_of_l2_may_hold_commas_and_no_second_url)
{
	struct scout_server_config cfg, taken;

	scout_server_config_init(&cfg);
	ck_assert_int_eq(scout_server_config_set(&cfg, "l2", "redis://a:1,b:2 fs:///a,b", err, sizeof(err)), 0);
	ck_assert_str_eq(cfg.l2, "redis://a:1,b:2 fs:///a,b");
	ck_assert_int_eq(scout_server_config_set(&cfg, "l2", "fs:///a,redis://:secret@b:2", err, sizeof(err)),
			 SCOUT_ERR_CONFIG_SYNTAX);
	check_names(err, (const char *[]){"l2", "comma", "blanks"}, 3);
	ck_assert_ptr_null(strstr(err, "secret"));
	ck_assert_int_eq(scout_server_config_set(&cfg, "l2", "fs:///c fs:///d fs:///e", err, sizeof(err)),
			 SCOUT_ERR_CONFIG_RANGE);
	check_names(err, (const char *[]){"l2 has 5 items", "1..4"}, 2);
	scout_server_config_fini(&cfg);
	cfg.l2 = "fs:///a,fs:///b";
	ck_assert_int_eq(scout__server_config_accept(&taken, &cfg, err, sizeof(err)), SCOUT_ERR_CONFIG_SYNTAX);
	check_names(err, (const char *[]){"l2", "comma"}, 2);
}
END_TEST

START_TEST(lines_of_a_file_add_to_the_second_tier)
{
	static const char text[] = "l2 = fs:///a?max_bytes=1Gi&threads=2\nprefetch=on_lookup\nl2 = redis://:p%23@h:1\n";
	const char *path = file_with(text, sizeof(text) - 1);
	struct scout_server_config cfg;

	scout_server_config_init(&cfg);
	ck_assert_int_eq(scout_server_config_set(&cfg, "l2", "fs:///first", err, sizeof(err)), 0);
	ck_assert_int_eq(scout_server_config_load(&cfg, path, err, sizeof(err)), 0);
	ck_assert_str_eq(cfg.l2, "fs:///first fs:///a?max_bytes=1Gi&threads=2 redis://:p%23@h:1");
	ck_assert_uint_eq(cfg.prefetch, SCOUT_PREFETCH_ON_LOOKUP);
	scout_server_config_fini(&cfg);
	ck_assert_int_eq(unlink(path), 0);
}
END_TEST

START_LOOP_TEST(help_lists_every_key, 0, 3)
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
