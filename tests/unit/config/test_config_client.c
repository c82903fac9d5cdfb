/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a client: each sets its field, by the setter, a file and the environment. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvscout/client.h>
#include <kvscout/protocol.h>

#include "client_config.h"
#include "config_settings.h"
#include "check_main.h"

static char err[512];

START_TEST(a_time_may_be_never)
{
	static const struct {
		const char *key, *value;
		int code;
	} refused[] = {
		{"lookup_refresh_ms", "3600001", SCOUT_ERR_CONFIG_RANGE},
		{"lookup_refresh_ms", "nevermore", SCOUT_ERR_CONFIG_SYNTAX},
		{"lookup_timeout_ms", "never", SCOUT_ERR_CONFIG_SYNTAX},
	};
	struct scout_client_config cfg;

	scout_client_config_init(&cfg);
	ck_assert_int_eq(scout_client_config_set(&cfg, "lookup_refresh_ms", "Never", err, sizeof(err)), 0);
	ck_assert_uint_eq(cfg.lookup_refresh_ms, SCOUT_NEVER);
	ck_assert_int_eq(scout_client_config_set(&cfg, "lookup_refresh_ms", "25", err, sizeof(err)), 0);
	ck_assert_uint_eq(cfg.lookup_refresh_ms, 25);
	for (size_t i = 0; i < N_OF(refused); i++) {
		ck_assert_int_eq(scout_client_config_set(&cfg, refused[i].key, refused[i].value, err, sizeof(err)),
				 refused[i].code);
		ck_assert(i > 0 || strstr(err, "1..3600000, never"));
	}
	scout_client_config_fini(&cfg);
}
END_TEST

#define CLIENT(field, n) NUMBER(struct scout_client_config, field, n)
#define CLIENT_TEXT(field, string) string, TEXT(struct scout_client_config, field, string)

static const struct setting client_settings[] = {
	{"endpoint", CLIENT_TEXT(endpoint, "ipc:///run/a tcp://[::1]:7000")},
	{"namespace", CLIENT_TEXT(name_space, "m")},
	{"chunk_tokens", "16", CLIENT(chunk_tokens, 16)},
	{"kv_ranks", "2", CLIENT(kv_ranks, 2)},
	{"readers", "3", CLIENT(readers, 3)},
	{"lookup_mode", "polled", CLIENT(lookup_mode, SCOUT_LOOKUP_POLLED)},
	{"lookup_timeout_ms", "4", CLIENT(lookup_timeout_ms, 4)},
	{"lookup_refresh_ms", "never", CLIENT(lookup_refresh_ms, SCOUT_NEVER)},
	{"step_wait_us", "13", CLIENT(step_wait_us, 13)},
	{"lookup_poll_interval_ms", "50", CLIENT(lookup_poll_interval_ms, 50)},
	{"lookup_poll_key_timeout_ms", "6", CLIENT(lookup_poll_key_timeout_ms, 6)},
	{"lookup_poll_key_interval_ms", "7", CLIENT(lookup_poll_key_intervals_ms, 7)},
	{"lookup_poll_key_all", "yes", CLIENT(lookup_poll_key_all, 1)},
	{"heartbeat_ms", "80", CLIENT(heartbeat_ms, 80)},
	{"max_lookups", "9", CLIENT(max_lookups, 9)},
	{"hash_bytes", "16", CLIENT(hash_bytes, 16)},
	{"hash_tokens", "16", CLIENT(hash_tokens, 16)},
	{"group", CLIENT_TEXT(group, "all,unit=16")},
	{"spin_us", "11", CLIENT(spin_us, 11)},
	{"connect_timeout_ms", "12", CLIENT(connect_timeout_ms, 12)},
	{"arena_bytes", "64Ki", CLIENT(arena_bytes, 65536)},
	{"weights_version", "18446744073709551615", CLIENT(weights_version, UINT64_MAX)},
	{"curve_secret_file", CLIENT_TEXT(curve_secret_file, "/k")},
	{"curve_server_key", CLIENT_TEXT(curve_server_key, PUBLIC_KEY)},
	{"local_transport", "socket", CLIENT(local_transport, SCOUT_LOCAL_SOCKET)},
	{"cpus", CLIENT_TEXT(cpus, "0-3,8")},
	{"server_program", CLIENT_TEXT(server_program, "/bin/kvscoutd")},
	{"server_keys", CLIENT_TEXT(server_keys, "l1_bytes=3 cpus=0-3,8")},
};

/* All keys that users rely on, each into its own field, through the string and then into the library's own copy. */
START_TEST(each_client_key_sets_its_field)
{
	struct scout_client_config cfg, taken;

	scout_client_config_init(&cfg);
	ck_assert_uint_eq(N_OF(client_settings), scout__client_options.n);
	for (size_t i = 0; i < N_OF(client_settings); i++)
		ck_assert_int_eq(
			scout_client_config_set(&cfg, client_settings[i].key, client_settings[i].value, err, 512), 0);
	ck_assert_int_eq(scout__client_config_accept(&taken, &cfg, err, sizeof(err)), 0);
	scout_client_config_fini(&cfg);
	check_settings(&taken, client_settings, N_OF(client_settings));
	scout_client_config_fini(&taken);
}
END_TEST

START_TEST(a_client_without_an_endpoint_is_accepted)
{
	struct scout_client_config cfg, taken;

	scout_client_config_init(&cfg);
	ck_assert_int_eq(scout__client_config_accept(&taken, &cfg, err, sizeof(err)), 0);
	ck_assert_ptr_null(taken.endpoint);
	scout_client_config_fini(&taken);
}
END_TEST

START_TEST(endpoints_are_written_with_blanks_and_not_with_commas)
{
	struct scout_client_config cfg, taken;

	scout_client_config_init(&cfg);
	ck_assert_int_eq(scout_client_config_set(&cfg, "endpoint", "ipc:///a,tcp://h:1", err, sizeof(err)),
			 SCOUT_ERR_CONFIG_SYNTAX);
	check_names(err, (const char *[]){"endpoint = \"ipc:///a,tcp://h:1\"", "no comma", "blanks"}, 3);
	ck_assert_ptr_null(cfg.endpoint);
	ck_assert_int_eq(scout_client_config_set(&cfg, "endpoint", " ipc:///a \t ipc:///b ", err, sizeof(err)), 0);
	ck_assert_int_eq(scout_client_config_set(&cfg, "endpoint", "ipc:///c", err, sizeof(err)), 0);
	ck_assert_int_eq(scout__client_config_accept(&taken, &cfg, err, sizeof(err)), 0);
	ck_assert_ptr_nonnull(strstr(taken.endpoint, "ipc:///a \t ipc:///b  ipc:///c"));
	scout_client_config_fini(&taken);
	scout_client_config_fini(&cfg);
	cfg.endpoint = "ipc:///a, ipc:///b";
	ck_assert_int_eq(scout__client_config_accept(&taken, &cfg, err, sizeof(err)), SCOUT_ERR_CONFIG_SYNTAX);
	ck_assert_ptr_nonnull(strstr(err, "endpoint = \"ipc:///a,\""));
}
END_TEST

START_TEST(endpoints_that_libzmq_would_take_for_others_are_refused)
{
	static const char *const bad[] = {"ipc://run/k.sock",  "tcp://127.0.0.1:65536", "tcp://127.0.0.1:0",
					  "tcp://127.0.0.1:*", "tcp://127.0.0.1",       "tcp://127.0.0.1:80x"};
	struct scout_client_config cfg;

	scout_client_config_init(&cfg);
	ck_assert_int_eq(
		scout_client_config_set(&cfg, "endpoint", "tcp://[::1]:65535 ipc:///run/k.sock", err, sizeof(err)), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_int_eq(scout_client_config_set(&cfg, "endpoint", bad[i], err, sizeof(err)),
				 SCOUT_ERR_CONFIG_RANGE);
		ck_assert_ptr_nonnull(strstr(err, bad[i]));
		ck_assert_ptr_nonnull(
			strstr(err, *bad[i] == 'i' ? "the path must begin with /" : "the port must be 1..65535"));
	}
	scout_client_config_fini(&cfg);
}
END_TEST

START_TEST(an_inproc_endpoint_is_refused_and_the_sentence_says_what_is_allowed)
{
	struct scout_client_config cfg, taken;
	const char *names[] = {"endpoint = \"inproc://a\"", "ipc:///path, tcp://host:port and auto",
			       "scout_server_endpoint()"};

	scout_client_config_init(&cfg);
	ck_assert_int_eq(scout_client_config_set(&cfg, "endpoint", "ipc:///b inproc://a", err, sizeof(err)),
			 SCOUT_ERR_UNSUPPORTED);
	check_names(err, names, 3);
	ck_assert_ptr_null(cfg.endpoint);
	cfg.endpoint = "inproc://a";
	ck_assert_int_eq(scout__client_config_accept(&taken, &cfg, err, sizeof(err)), SCOUT_ERR_UNSUPPORTED);
	check_names(err, names, 3);
}
END_TEST

START_TEST(a_variable_without_its_unit_is_named_and_others_names_are_left_alone)
{
	static const char *const others[] = {
		"KVSCOUT_PORT",        "KVSCOUT_PORT_5555_TCP_PROTO", "KVSCOUT_SERVICE_HOST",
		"KVSCOUT_SERVER_PORT", "KVSCOUT_SERVER_SERVICE_PORT", "KVSCOUT_LONG"};
	struct scout_client_config cfg;

	scout_client_config_init(&cfg);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		ck_assert_int_eq(setenv(others[i], "1", 1), 0);
	ck_assert_msg(scout_client_config_load_env(&cfg, err, sizeof(err)) == 0, "%s", err);
	ck_assert_int_eq(setenv("KVSCOUT_LOOKUP_TIMEOUT", "300", 1), 0);
	ck_assert_int_eq(scout_client_config_load_env(&cfg, err, sizeof(err)), SCOUT_ERR_CONFIG_KEY);
	ck_assert_str_eq(err,
			 "KVSCOUT_LOOKUP_TIMEOUT names no configuration key; did you mean KVSCOUT_LOOKUP_TIMEOUT_MS?");
	scout_client_config_fini(&cfg);
}
END_TEST

START_TEST(endpoints_of_a_file_and_of_the_environment_add_up)
{
	static const char text[] = "endpoint = ipc:///f\nendpoint = ipc:///g ipc:///h\n";
	const char *path = file_with(text, sizeof(text) - 1);
	struct scout_client_config cfg;

	scout_client_config_init(&cfg);
	ck_assert_int_eq(scout_client_config_load(&cfg, path, err, sizeof(err)), 0);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(setenv("KVSCOUT_ENDPOINT", "ipc:///i ipc:///j", 1), 0);
	ck_assert_int_eq(scout_client_config_load_env(&cfg, err, sizeof(err)), 0);
	ck_assert_str_eq(cfg.endpoint, "ipc:///f ipc:///g ipc:///h ipc:///i ipc:///j");
	ck_assert_int_eq(setenv("KVSCOUT_ENDPOINT", "ipc:///i,ipc:///j", 1), 0);
	ck_assert_int_eq(scout_client_config_load_env(&cfg, err, sizeof(err)), SCOUT_ERR_CONFIG_SYNTAX);
	ck_assert_ptr_nonnull(strstr(err, "KVSCOUT_ENDPOINT: endpoint = \"ipc:///i,ipc:///j\""));
	scout_client_config_fini(&cfg);
}
END_TEST
