/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a client: defaults, fields, ranges, files and the environment. */
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

static char err[512];

START_TEST(client_defaults_are_the_documented_ones)
{
	struct scout_client_config cfg;

	scout_client_config_init(&cfg);
	ck_assert_uint_eq(cfg.size, sizeof(cfg));
	ck_assert_ptr_null(cfg.endpoint);
	ck_assert_str_eq(cfg.name_space, "default");
	ck_assert_uint_eq(cfg.chunk_tokens, 256);
	ck_assert_uint_eq(cfg.kv_ranks, 1);
	ck_assert_uint_eq(cfg.readers, 1);
	ck_assert_uint_eq(cfg.hash_bytes, 32);
	ck_assert_uint_eq(cfg.lookup_mode, SCOUT_LOOKUP_ASYNC);
	ck_assert_uint_eq(cfg.lookup_timeout_ms, 500);
	ck_assert_uint_eq(cfg.lookup_refresh_ms, 1000);
	ck_assert_uint_eq(cfg.lookup_poll_interval_ms, 5);
	ck_assert_uint_eq(cfg.lookup_poll_key_timeout_ms, 0);
	ck_assert_uint_eq(cfg.lookup_poll_key_intervals_ms, 0);
	ck_assert_uint_eq(cfg.lookup_poll_key_all, 0);
	ck_assert_uint_eq(cfg.heartbeat_ms, 1000);
	ck_assert_uint_eq(cfg.connect_timeout_ms, 400);
	ck_assert_uint_eq(cfg.max_lookups, 65536);
	ck_assert_uint_eq(cfg.spin_us, 0);
	ck_assert_uint_eq(cfg.arena_bytes, 544 << 20);
	ck_assert_uint_eq(cfg.weights_version, 0);
	scout_client_config_fini(&cfg);
}
END_TEST

START_TEST(a_time_may_be_never)
{
	struct scout_client_config cfg;

	scout_client_config_init(&cfg);
	ck_assert_int_eq(scout_client_config_set(&cfg, "lookup_refresh_ms", "Never", err, sizeof(err)), 0);
	ck_assert_uint_eq(cfg.lookup_refresh_ms, SCOUT_NEVER);
	ck_assert_int_eq(scout_client_config_set(&cfg, "lookup_refresh_ms", "25", err, sizeof(err)), 0);
	ck_assert_uint_eq(cfg.lookup_refresh_ms, 25);
	ck_assert_int_eq(scout_client_config_set(&cfg, "lookup_refresh_ms", "3600001", err, sizeof(err)),
			 SCOUT_ERR_CONFIG_RANGE);
	ck_assert_str_eq(err, "lookup_refresh_ms = \"3600001\": must be 1..3600000, never");
	ck_assert_int_eq(scout_client_config_set(&cfg, "lookup_refresh_ms", "nevermore", err, sizeof(err)),
			 SCOUT_ERR_CONFIG_SYNTAX);
	ck_assert_int_eq(scout_client_config_set(&cfg, "lookup_timeout_ms", "never", err, sizeof(err)),
			 SCOUT_ERR_CONFIG_SYNTAX);
	scout_client_config_fini(&cfg);
}
END_TEST

static const struct setting client_settings[] = {
	{"endpoint", "ipc:///run/a tcp://[::1]:7000"},
	{"namespace", "m"},
	{"chunk_tokens", "16"},
	{"kv_ranks", "2"},
	{"readers", "3"},
	{"lookup_mode", "polled"},
	{"lookup_timeout_ms", "4"},
	{"lookup_refresh_ms", "never"},
	{"step_wait_us", "13"},
	{"lookup_poll_interval_ms", "50"},
	{"lookup_poll_key_timeout_ms", "6"},
	{"lookup_poll_key_interval_ms", "7"},
	{"lookup_poll_key_all", "yes"},
	{"heartbeat_ms", "80"},
	{"max_lookups", "9"},
	{"hash_bytes", "16"},
	{"hash_tokens", "16"},
	{"group", "all,unit=16"},
	{"spin_us", "11"},
	{"connect_timeout_ms", "12"},
	{"arena_bytes", "64Ki"},
	{"weights_version", "18446744073709551615"},
	{"curve_secret_file", "/k"},
	{"curve_server_key", PUBLIC_KEY},
	{"local_transport", "socket"},
	{"cpus", "0-3,8"},
	{"server_program", "/bin/kvscoutd"},
	{"server_keys", "l1_bytes=3 cpus=0-3,8"},
};

/* All keys that users rely on, each into its own field, through the string and then into the library's own copy. */
START_TEST(each_client_key_sets_its_field)
{
	struct scout_client_config cfg;
	struct scout_client_config taken;

	scout_client_config_init(&cfg);
	ck_assert_uint_eq(sizeof(client_settings) / sizeof(client_settings[0]), scout__client_options.n);
	for (size_t i = 0; i < scout__client_options.n; i++)
		ck_assert_int_eq(
			scout_client_config_set(&cfg, client_settings[i].key, client_settings[i].value, err, 512), 0);
	ck_assert_int_eq(scout__client_config_accept(&taken, &cfg, err, sizeof(err)), 0);
	scout_client_config_fini(&cfg);
	ck_assert_str_eq(taken.endpoint, "ipc:///run/a tcp://[::1]:7000");
	ck_assert_str_eq(taken.name_space, "m");
	ck_assert_uint_eq(taken.chunk_tokens, 16);
	ck_assert_uint_eq(taken.kv_ranks, 2);
	ck_assert_uint_eq(taken.readers, 3);
	ck_assert_uint_eq(taken.lookup_mode, SCOUT_LOOKUP_POLLED);
	ck_assert_uint_eq(taken.lookup_timeout_ms, 4);
	ck_assert_uint_eq(taken.lookup_refresh_ms, SCOUT_NEVER);
	ck_assert_uint_eq(taken.step_wait_us, 13);
	ck_assert_uint_eq(taken.lookup_poll_interval_ms, 50);
	ck_assert_uint_eq(taken.lookup_poll_key_timeout_ms, 6);
	ck_assert_uint_eq(taken.lookup_poll_key_intervals_ms, 7);
	ck_assert_uint_eq(taken.lookup_poll_key_all, 1);
	ck_assert_uint_eq(taken.heartbeat_ms, 80);
	ck_assert_uint_eq(taken.max_lookups, 9);
	ck_assert_uint_eq(taken.hash_bytes, 16);
	ck_assert_uint_eq(taken.hash_tokens, 16);
	ck_assert_str_eq(taken.group, "all,unit=16");
	ck_assert_uint_eq(taken.spin_us, 11);
	ck_assert_uint_eq(taken.local_transport, SCOUT_LOCAL_SOCKET);
	ck_assert_uint_eq(taken.connect_timeout_ms, 12);
	ck_assert_uint_eq(taken.arena_bytes, 65536);
	ck_assert_uint_eq(taken.weights_version, UINT64_MAX);
	ck_assert_str_eq(taken.curve_secret_file, "/k");
	ck_assert_str_eq(taken.curve_server_key, PUBLIC_KEY);
	ck_assert_str_eq(taken.cpus, "0-3,8");
	ck_assert_str_eq(taken.server_program, "/bin/kvscoutd");
	ck_assert_str_eq(taken.server_keys, "l1_bytes=3 cpus=0-3,8");
	scout_client_config_fini(&taken);
}
END_TEST

START_TEST(client_range_errors_read_as_documented)
{
	struct scout_client_config cfg;

	scout_client_config_init(&cfg);
	ck_assert_int_eq(scout_client_config_set(&cfg, "chunk_tokens", "1048577", err, sizeof(err)),
			 SCOUT_ERR_CONFIG_RANGE);
	ck_assert_str_eq(err, "chunk_tokens = \"1048577\": must be 1..1048576");
	ck_assert_int_eq(scout_client_config_set(&cfg, "hash_bytes", "33", err, sizeof(err)), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_str_eq(err, "hash_bytes = \"33\": must be 16..32");
	ck_assert_int_eq(scout_client_config_set(&cfg, "endpointt", "x", err, sizeof(err)), SCOUT_ERR_CONFIG_KEY);
	ck_assert_str_eq(err, "\"endpointt\" is no configuration key; did you mean endpoint?");
	ck_assert_int_eq(scout_client_config_set(&cfg, "lookup_mode", "sync", err, sizeof(err)),
			 SCOUT_ERR_CONFIG_SYNTAX);
	ck_assert_str_eq(err, "lookup_mode = \"sync\": must be one of async, polled");
}
END_TEST

START_TEST(a_client_without_an_endpoint_is_accepted)
{
	struct scout_client_config cfg;
	struct scout_client_config taken;

	scout_client_config_init(&cfg);
	ck_assert_int_eq(scout__client_config_accept(&taken, &cfg, err, sizeof(err)), 0);
	ck_assert_ptr_null(taken.endpoint);
	scout_client_config_fini(&taken);
}
END_TEST

START_TEST(a_refused_configuration_leaves_nothing_of_it)
{
	static const struct scout_client_config zero;
	struct scout_client_config cfg;
	struct scout_client_config taken;

	scout_client_config_init(&cfg);
	cfg.name_space = "a\nb";
	ck_assert_int_eq(scout__client_config_accept(&taken, &cfg, err, sizeof(err)), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_ptr_nonnull(strstr(err, "namespace"));
	ck_assert_mem_eq(&taken, &zero, sizeof(zero));
}
END_TEST

START_TEST(endpoints_are_written_with_blanks_and_not_with_commas)
{
	struct scout_client_config cfg;
	struct scout_client_config taken;

	scout_client_config_init(&cfg);
	ck_assert_int_eq(scout_client_config_set(&cfg, "endpoint", "ipc:///a,tcp://h:1", err, sizeof(err)),
			 SCOUT_ERR_CONFIG_SYNTAX);
	ck_assert_str_eq(err,
			 "endpoint = \"ipc:///a,tcp://h:1\": must hold no comma; write several endpoints with blanks "
			 "between them, or give the key once for each");
	ck_assert_ptr_null(cfg.endpoint);
	ck_assert_int_eq(scout_client_config_set(&cfg, "endpoint", " ipc:///a \t ipc:///b ", err, sizeof(err)), 0);
	ck_assert_int_eq(scout_client_config_set(&cfg, "endpoint", "ipc:///c", err, sizeof(err)), 0);
	ck_assert_int_eq(scout__client_config_accept(&taken, &cfg, err, sizeof(err)), 0);
	ck_assert_ptr_nonnull(strstr(taken.endpoint, "ipc:///a \t ipc:///b  ipc:///c"));
	scout_client_config_fini(&taken);
	scout_client_config_fini(&cfg);
	cfg.endpoint = "ipc:///a, ipc:///b";
	ck_assert_int_eq(scout__client_config_accept(&taken, &cfg, err, sizeof(err)), SCOUT_ERR_CONFIG_SYNTAX);
	ck_assert_ptr_nonnull(strstr(err, "endpoint = \"ipc:///a,\": must hold no comma"));
}
END_TEST

START_TEST(endpoints_of_a_file_and_of_the_environment_add_up)
{
	static const char text[] = "endpoint = ipc:///f\nendpoint = ipc:///g ipc:///h\n";
	char path[] = "/tmp/kvscout-test-config-XXXXXX";
	struct scout_client_config cfg;
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, sizeof(text) - 1), (ssize_t)sizeof(text) - 1);
	ck_assert_int_eq(close(fd), 0);
	scout_client_config_init(&cfg);
	ck_assert_int_eq(scout_client_config_load(&cfg, path, err, sizeof(err)), 0);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(setenv("KVSCOUT_ENDPOINT", "ipc:///i ipc:///j", 1), 0);
	ck_assert_int_eq(scout_client_config_load_env(&cfg, err, sizeof(err)), 0);
	ck_assert_str_eq(cfg.endpoint, "ipc:///f ipc:///g ipc:///h ipc:///i ipc:///j");
	ck_assert_int_eq(setenv("KVSCOUT_ENDPOINT", "ipc:///i,ipc:///j", 1), 0);
	ck_assert_int_eq(scout_client_config_load_env(&cfg, err, sizeof(err)), SCOUT_ERR_CONFIG_SYNTAX);
	ck_assert_ptr_nonnull(strstr(err, "KVSCOUT_ENDPOINT: endpoint = \"ipc:///i,ipc:///j\": must hold no comma"));
	scout_client_config_fini(&cfg);
}
END_TEST

START_TEST(a_client_reads_a_file_and_the_environment)
{
	static const char text[] = "endpoint = ipc:///f\nmax_lookups = 5\n";
	char path[] = "/tmp/kvscout-test-config-XXXXXX";
	struct scout_client_config cfg;
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, sizeof(text) - 1), (ssize_t)sizeof(text) - 1);
	ck_assert_int_eq(close(fd), 0);
	scout_client_config_init(&cfg);
	ck_assert_int_eq(scout_client_config_load(&cfg, path, err, sizeof(err)), 0);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(setenv("KVSCOUT_MAX_LOOKUPS", "6", 1), 0);
	ck_assert_int_eq(setenv("KVSCOUT_NAMESPACE", "e", 1), 0);
	ck_assert_uint_eq(cfg.max_lookups, 5);
	ck_assert_int_eq(scout_client_config_load_env(&cfg, err, sizeof(err)), 0);
	ck_assert_str_eq(cfg.endpoint, "ipc:///f");
	ck_assert_str_eq(cfg.name_space, "e");
	ck_assert_uint_eq(cfg.max_lookups, 6);
	scout_client_config_fini(&cfg);
}
END_TEST

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("config_client");
	TCase *tcase = tcase_create("config");

	tcase_add_test(tcase, client_defaults_are_the_documented_ones);
	tcase_add_test(tcase, each_client_key_sets_its_field);
	tcase_add_test(tcase, a_time_may_be_never);
	tcase_add_test(tcase, client_range_errors_read_as_documented);
	tcase_add_test(tcase, a_client_without_an_endpoint_is_accepted);
	tcase_add_test(tcase, a_refused_configuration_leaves_nothing_of_it);
	tcase_add_test(tcase, endpoints_are_written_with_blanks_and_not_with_commas);
	tcase_add_test(tcase, endpoints_of_a_file_and_of_the_environment_add_up);
	tcase_add_test(tcase, a_client_reads_a_file_and_the_environment);
	suite_add_tcase(suite, tcase);
	return suite;
}
