/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE 1
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

START_TEST(rows_are_sound)
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
		/* 0 in a field means the default: what is allowed as "0" must mean 0. */
		ck_assert_msg(option->def == 0 || option->min > 0, "%s", option->name);
		ck_assert_msg(option->def >= option->min && option->def <= option->max, "%s", option->name);
	}
}
END_TEST

START_TEST(names_and_fields_are_unique)
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

START_TEST(words_end_where_the_range_ends)
{
	const struct scout__option_table *table = tables[_i];

	for (size_t i = 0; i < table->n; i++) {
		const struct scout__option *option = &table->options[i];
		uint64_t n = 0;

		if (option->type != SCOUT_OPTION_WORD)
			continue;
		while (option->words[n])
			n++;
		ck_assert_uint_eq(option->max + 1, n);
	}
}
END_TEST

/* What help prints as default and bounds can be given back to the setter. */
START_TEST(each_bound_is_accepted_and_its_neighbour_is_not)
{
	const struct scout__option_table *table = tables[_i];
	union {
		struct scout_client_config client;
		struct scout_server_config server;
		struct scout_worker_config worker;
	} cfg, fresh;
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
		/* The last value that was set was no 0, so what is there now is what "0" means. */
		ck_assert_int_eq(scout__options_set(table, &cfg, option->name, "0", err, 512), 0);
		scout__options_init(table, &fresh, (uint32_t)table->struct_size);
		ck_assert_mem_eq(&cfg, &fresh, table->struct_size);
	}
}
END_TEST

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

struct setting {
	const char *key;
	const char *value;
};

#define PUBLIC_KEY "0123456789012345678901234567890123456789"

static const struct setting client_settings[] = {
	{"endpoint", "ipc:///run/a,tcp://[::1]:7000"},
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
	{"spin_us", "11"},
	{"connect_timeout_ms", "12"},
	{"arena_bytes", "64Ki"},
	{"weights_version", "18446744073709551615"},
	{"curve_secret_file", "/k"},
	{"curve_server_key", PUBLIC_KEY},
	{"local_transport", "socket"},
	{"cpus", "0-3,8"},
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
	ck_assert_str_eq(taken.endpoint, "ipc:///run/a,tcp://[::1]:7000");
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
	ck_assert_uint_eq(taken.spin_us, 11);
	ck_assert_uint_eq(taken.local_transport, SCOUT_LOCAL_SOCKET);
	ck_assert_uint_eq(taken.connect_timeout_ms, 12);
	ck_assert_uint_eq(taken.arena_bytes, 65536);
	ck_assert_uint_eq(taken.weights_version, UINT64_MAX);
	ck_assert_str_eq(taken.curve_secret_file, "/k");
	ck_assert_str_eq(taken.curve_server_key, PUBLIC_KEY);
	ck_assert_str_eq(taken.cpus, "0-3,8");
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

START_TEST(a_client_needs_an_endpoint_and_no_flags)
{
	static const struct scout_client_config zero;
	struct scout_client_config cfg;
	struct scout_client_config taken;

	scout_client_config_init(&cfg);
	ck_assert_int_eq(scout__client_config_accept(&taken, &cfg, err, sizeof(err)), SCOUT_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(err, "endpoint"));
	cfg.endpoint = "ipc:///x";
	cfg.flags = 1;
	ck_assert_int_eq(scout__client_config_accept(&taken, &cfg, err, sizeof(err)), SCOUT_ERR_UNSUPPORTED);
	ck_assert_mem_eq(&taken, &zero, sizeof(zero));
	cfg.flags = 0;
	ck_assert_int_eq(scout__client_config_accept(&taken, &cfg, err, sizeof(err)), 0);
	scout_client_config_fini(&taken);
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

static const struct setting server_settings[] = {
	{"listen", "tcp://127.0.0.1:*"},
	{"eviction", "s3fifo"},
	{"l1_bytes", "3"},
	{"extent_bytes", "4Ki"},
	{"max_promised", "2"},
	{"max_sessions", "7"},
	{"max_peers", "8"},
	{"max_namespaces", "18"},
	{"peer_timeout_ms", "91"},
	{"dead_writer_ms", "90"},
	{"l2", "fs:///a"},
	{"prefetch", "before_answer"},
	{"l2_objects", "temporary"},
	{"l2_timeout_ms", "13"},
	{"l2_lookup_timeout_ms", "19"},
	{"l2_queue_bytes", "14"},
	{"bad_key_ms", "15"},
	{"curve_secret_file", "/k"},
	{"curve_clients_file", "/c"},
	{"metrics", "127.0.0.1:0"},
	{"spin_us", "16"},
	{"local_transport", "socket"},
	{"shm_bytes", "17Ki"},
	{"credits", "10"},
	{"reply_delay_us", "11"},
	{"reply_jitter_us", "12"},
	{"cpus", "inherit"},
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
	ck_assert_str_eq(taken.eviction, "adaptive");
	ck_assert_uint_eq(taken.l1_bytes, 1 << 30);
	ck_assert_uint_eq(taken.extent_bytes, 64 << 20);
	ck_assert_uint_eq(taken.max_promised, 1 << 29);
	ck_assert_uint_eq(taken.max_sessions, 65536);
	ck_assert_uint_eq(taken.max_peers, 1024);
	ck_assert_uint_eq(taken.max_namespaces, 256);
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
	cfg.flags = 8;
	ck_assert_int_eq(scout__server_config_accept(&taken, &cfg, err, sizeof(err)), SCOUT_ERR_UNSUPPORTED);
	ck_assert_str_eq(err, "flags = 8: must be 0");
}
END_TEST

START_TEST(a_namespace_is_a_name)
{
	static const char *const bad[] = {"a\nb", "\x1b[2J", "\xff", "\xc2\x9b"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct scout_client_config client = {0}, client_taken;
		struct scout_worker_config worker = {0}, worker_taken;

		scout_client_config_init(&client);
		client.endpoint = "ipc:///e";
		client.name_space = bad[i];
		ck_assert_int_eq(scout__client_config_accept(&client_taken, &client, err, sizeof(err)),
				 SCOUT_ERR_CONFIG_RANGE);
		ck_assert_ptr_nonnull(strstr(err, "namespace must be UTF-8"));
		scout_worker_config_init(&worker);
		worker.endpoint = "ipc:///e";
		worker.name_space = bad[i];
		err[0] = '\0';
		ck_assert_int_eq(scout__worker_config_accept(&worker_taken, &worker, err, sizeof(err)),
				 SCOUT_ERR_CONFIG_RANGE);
		ck_assert_ptr_nonnull(strstr(err, "namespace must be UTF-8"));
	}
}
END_TEST

static const struct setting worker_settings[] = {
	{"endpoint", "ipc:///w"},
	{"namespace", "m"},
	{"backend", "cuda"},
	{"chunk_tokens", "16"},
	{"kv_ranks", "8"},
	{"rank_first", "2"},
	{"rank_count", "4"},
	{"kv_rank", "5"},
	{"readers", "3"},
	{"reader", "2"},
	{"hash_bytes", "20"},
	{"transfer_timeout_ms", "6"},
	{"heartbeat_ms", "70"},
	{"connect_timeout_ms", "9"},
	{"max_jobs", "10"},
	{"spin_us", "11"},
	{"weights_version", "12"},
	{"device", "13"},
	{"copy_method", "batch"},
	{"copy_priority", "2"},
	{"stage_bytes", "64Mi"},
	{"numa_node", "3"},
	{"curve_secret_file", "/k"},
	{"curve_server_key", PUBLIC_KEY},
	{"local_transport", "socket"},
	{"cpus", "0-3,8"},
};

START_TEST(each_worker_key_sets_its_field)
{
	struct scout_worker_config cfg;
	struct scout_worker_config taken;

	scout_worker_config_init(&cfg);
	ck_assert_uint_eq(sizeof(worker_settings) / sizeof(worker_settings[0]), scout__worker_options.n);
	for (size_t i = 0; i < scout__worker_options.n; i++)
		ck_assert_int_eq(
			scout_worker_config_set(&cfg, worker_settings[i].key, worker_settings[i].value, err, 512), 0);
	ck_assert_int_eq(scout__worker_config_accept(&taken, &cfg, err, sizeof(err)), 0);
	scout_worker_config_fini(&cfg);
	ck_assert_str_eq(taken.endpoint, "ipc:///w");
	ck_assert_str_eq(taken.name_space, "m");
	ck_assert_str_eq(taken.backend, "cuda");
	ck_assert_uint_eq(taken.chunk_tokens, 16);
	ck_assert_uint_eq(taken.kv_ranks, 8);
	ck_assert_uint_eq(taken.rank_first, 2);
	ck_assert_uint_eq(taken.rank_count, 4);
	ck_assert_uint_eq(taken.kv_rank, 5);
	ck_assert_uint_eq(taken.readers, 3);
	ck_assert_uint_eq(taken.reader, 2);
	ck_assert_uint_eq(taken.hash_bytes, 20);
	ck_assert_uint_eq(taken.transfer_timeout_ms, 6);
	ck_assert_uint_eq(taken.heartbeat_ms, 70);
	ck_assert_uint_eq(taken.connect_timeout_ms, 9);
	ck_assert_uint_eq(taken.max_jobs, 10);
	ck_assert_uint_eq(taken.spin_us, 11);
	ck_assert_uint_eq(taken.local_transport, SCOUT_LOCAL_SOCKET);
	ck_assert_uint_eq(taken.weights_version, 12);
	ck_assert_int_eq(taken.device, 13);
	ck_assert_str_eq(taken.copy_method, "batch");
	ck_assert_uint_eq(taken.copy_priority, 2);
	ck_assert_uint_eq(taken.stage_bytes, 64 << 20);
	ck_assert_str_eq(taken.numa_node, "3");
	ck_assert_str_eq(taken.curve_secret_file, "/k");
	ck_assert_str_eq(taken.curve_server_key, PUBLIC_KEY);
	ck_assert_str_eq(taken.cpus, "0-3,8");
	scout_worker_config_fini(&taken);
}
END_TEST

START_TEST(worker_defaults_are_the_documented_ones)
{
	struct scout_worker_config cfg;
	struct scout_worker_config taken;

	scout_worker_config_init(&cfg);
	cfg.endpoint = "ipc:///w";
	cfg.kv_ranks = 4;
	ck_assert_int_eq(scout__worker_config_accept(&taken, &cfg, err, sizeof(err)), 0);
	ck_assert_str_eq(taken.name_space, "default");
	ck_assert_str_eq(taken.backend, "auto");
	ck_assert_uint_eq(taken.chunk_tokens, 256);
	ck_assert_uint_eq(taken.rank_first, 0);
	ck_assert_uint_eq(taken.rank_count, 4);
	ck_assert_uint_eq(taken.kv_rank, 0);
	ck_assert_uint_eq(taken.readers, 1);
	ck_assert_uint_eq(taken.reader, 0);
	ck_assert_uint_eq(taken.hash_bytes, 32);
	ck_assert_uint_eq(taken.transfer_timeout_ms, 30000);
	ck_assert_uint_eq(taken.heartbeat_ms, 1000);
	ck_assert_uint_eq(taken.connect_timeout_ms, 400);
	ck_assert_uint_eq(taken.max_jobs, 4096);
	ck_assert_int_eq(taken.device, 0);
	ck_assert_str_eq(taken.numa_node, "auto");
	scout_worker_config_fini(&taken);
}
END_TEST

START_TEST(numa_node_takes_auto_none_and_numbers)
{
	const char *good[] = {"none", "0", "7", "1023"}, *bad[] = {"", "1024", "-1", "one", "0x1", "99999"};
	const uint16_t want[] = {0, 1, 8, 1024};
	uint16_t node;

	for (size_t i = 0; i < 4; i++) {
		ck_assert(scout__numa_parse(good[i], "", &node));
		ck_assert_uint_eq(node, want[i]);
	}
	for (size_t i = 0; i < 6; i++)
		ck_assert(!scout__numa_parse(bad[i], "", &node));
}
END_TEST

/* A folder that stands for /, whose kernel says @online. */
static void
check_auto(const char *online, bool any)
{
	char root[] = "/tmp/kvscout-numa-XXXXXX";
	char path[256];
	unsigned cpu, here;
	uint16_t node = 77;
	FILE *file;

	ck_assert_ptr_nonnull(mkdtemp(root));
	for (size_t i = 0; i < 4; i++) {
		static const char *parts[] = {"/sys", "/sys/devices", "/sys/devices/system",
					      "/sys/devices/system/node"};

		snprintf(path, sizeof(path), "%s%s", root, parts[i]);
		ck_assert_int_eq(mkdir(path, 0700), 0);
	}
	snprintf(path, sizeof(path), "%s/sys/devices/system/node/online", root);
	file = fopen(path, "we");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fprintf(file, "%s\n", online), 0);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert(scout__numa_parse("auto", root, &node));
	ck_assert_int_eq(getcpu(&cpu, &here), 0);
	ck_assert_uint_eq(node, any ? here + 1 : 0);
	for (size_t len = strlen(path); len > strlen(root); len--) {
		if (path[len] != '\0' && path[len] != '/')
			continue;
		path[len] = '\0';
		ck_assert_int_eq(remove(path), 0);
	}
	ck_assert_int_eq(rmdir(root), 0);
}

START_TEST(numa_node_auto_is_none_on_a_machine_of_one_node)
{
	uint16_t node = 77;

	check_auto("0", false);
	check_auto("0-1", true);
	check_auto("0,4", true);
	ck_assert(scout__numa_parse("auto", "/nowhere", &node));
	ck_assert_uint_eq(node, 0);
}
END_TEST

/* A structure as a program has it that was compiled before there was a second tier. */
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

/* Load a file with this text. */
static int
load_worker(struct scout_worker_config *cfg, const char *text)
{
	char path[] = "/tmp/kvscout-test-config-XXXXXX";
	int fd = mkstemp(path), rc;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	ck_assert_int_eq(close(fd), 0);
	rc = scout_worker_config_load(cfg, path, err, sizeof(err));
	ck_assert_int_eq(unlink(path), 0);
	return rc;
}

START_TEST(a_worker_reads_a_file)
{
	struct scout_worker_config cfg;

	scout_worker_config_init(&cfg);
	ck_assert_int_eq(load_worker(&cfg, "# rank 1\nendpoint = ipc:///f # here\nkv_ranks=2\nkv_rank = 1\n"
					   "weights_version = 7\nbackend = host\n"),
			 0);
	ck_assert_str_eq(cfg.endpoint, "ipc:///f");
	ck_assert_uint_eq(cfg.kv_ranks, 2);
	ck_assert_uint_eq(cfg.kv_rank, 1);
	ck_assert_uint_eq(cfg.weights_version, 7);
	ck_assert_str_eq(cfg.backend, "host");
	scout_worker_config_fini(&cfg);
}
END_TEST

static const struct {
	const char *text;
	int code;
	const char *message; /* behind the file's name */
} worker_bad_lines[] = {
	{"max_jobs = 3\n\nmax_jobs = many\n", SCOUT_ERR_CONFIG_SYNTAX,
	 ":3: max_jobs = \"many\": must be a number, 1.."},
	{"max_jobs = 3\nmax_jobs = 65537\n", SCOUT_ERR_CONFIG_RANGE, ":2: max_jobs = \"65537\": must be 1.."},
	{"max_jobs = 3\nlisten = ipc:///x\n", SCOUT_ERR_CONFIG_KEY, ":2: \"listen\" is no configuration key"},
	{"max_jobs = 3\nlocal_transport = tcp\n", SCOUT_ERR_CONFIG_SYNTAX, ":2: local_transport = \"tcp\": must be"},
	{"max_jobs = 3\nmax_jobs 4\n", SCOUT_ERR_FORMAT, ":2: the line has no '='"},
	{"max_jobs = 3\n = 4\n", SCOUT_ERR_FORMAT, ":2: no key before '='"},
};

START_TEST(a_wrong_line_of_a_workers_file_is_named)
{
	struct scout_worker_config cfg;

	scout_worker_config_init(&cfg);
	ck_assert_int_eq(load_worker(&cfg, worker_bad_lines[_i].text), worker_bad_lines[_i].code);
	ck_assert_msg(strstr(err, worker_bad_lines[_i].message), "%s", err);
	/* The lines before it have been applied. */
	ck_assert_uint_eq(cfg.max_jobs, 3);
	ck_assert_int_eq(scout_worker_config_load(&cfg, "/nonexistent/worker.conf", err, sizeof(err)),
			 SCOUT_ERR_FORMAT);
	ck_assert_str_eq(err, "/nonexistent/worker.conf: No such file or directory");
	scout_worker_config_fini(&cfg);
}
END_TEST

static void
check_worker_refused(const struct scout_worker_config *cfg, int code, const char *text)
{
	static const struct scout_worker_config zero;
	struct scout_worker_config taken;

	ck_assert_int_eq(scout__worker_config_accept(&taken, cfg, err, sizeof(err)), code);
	ck_assert_str_eq(err, text);
	ck_assert_mem_eq(&taken, &zero, sizeof(zero));
}

START_TEST(worker_fields_must_agree_with_each_other)
{
	struct scout_worker_config cfg;

	scout_worker_config_init(&cfg);
	check_worker_refused(&cfg, SCOUT_ERR_INVALID, "endpoint is not set: must name a server");
	cfg.endpoint = "ipc:///w";
	cfg.kv_ranks = 4;
	cfg.rank_first = 2;
	cfg.rank_count = 3;
	check_worker_refused(&cfg, SCOUT_ERR_CONFIG_RANGE, "rank_first = 2, rank_count = 3: kv_ranks = 4 is exceeded");
	cfg.rank_count = 2;
	cfg.kv_rank = 1;
	check_worker_refused(&cfg, SCOUT_ERR_CONFIG_RANGE, "kv_rank = 1: must be 2..3, the KV ranks of this server");
	cfg.kv_rank = 4;
	check_worker_refused(&cfg, SCOUT_ERR_CONFIG_RANGE, "kv_rank = 4: must be 2..3, the KV ranks of this server");
	cfg.kv_rank = 3;
	cfg.reader = 1;
	check_worker_refused(&cfg, SCOUT_ERR_CONFIG_RANGE, "reader = 1: must be 0..0, below readers");
	cfg.reader = 0;
	cfg.reserved = 1;
	check_worker_refused(&cfg, SCOUT_ERR_UNSUPPORTED, "flags = 0, reserved = 1, reserved2 = 0: must be 0");
}
END_TEST

START_TEST(help_lists_every_key)
{
	size_t (*const helps[])(char *, size_t) = {scout_client_config_help, scout_server_config_help,
						   scout_worker_config_help};
	char key[80];
	char text[8192];

	ck_assert_uint_lt(helps[_i](text, sizeof(text)), sizeof(text));
	for (size_t i = 0; i < tables[_i]->n; i++) {
		snprintf(key, sizeof(key), "\n| `%s` | ", tables[_i]->options[i].name);
		ck_assert_ptr_nonnull(strstr(text, key));
	}
}
END_TEST

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("config");
	TCase *tcase = tcase_create("config");

	tcase_add_loop_test(tcase, rows_are_sound, 0, 3);
	tcase_add_loop_test(tcase, names_and_fields_are_unique, 0, 3);
	tcase_add_loop_test(tcase, words_end_where_the_range_ends, 0, 3);
	tcase_add_loop_test(tcase, each_bound_is_accepted_and_its_neighbour_is_not, 0, 3);
	tcase_add_loop_test(tcase, help_lists_every_key, 0, 3);
	tcase_add_test(tcase, client_defaults_are_the_documented_ones);
	tcase_add_test(tcase, each_client_key_sets_its_field);
	tcase_add_test(tcase, a_time_may_be_never);
	tcase_add_test(tcase, client_range_errors_read_as_documented);
	tcase_add_test(tcase, a_client_needs_an_endpoint_and_no_flags);
	tcase_add_test(tcase, a_client_reads_a_file_and_the_environment);
	tcase_add_test(tcase, server_defaults_are_the_documented_ones);
	tcase_add_test(tcase, each_server_key_sets_its_field);
	tcase_add_test(tcase, a_server_configuration_of_the_first_version_has_no_second_tier);
	tcase_add_test(tcase, lines_of_a_file_add_to_the_second_tier);
	tcase_add_test(tcase, worker_defaults_are_the_documented_ones);
	tcase_add_test(tcase, a_namespace_is_a_name);
	tcase_add_test(tcase, numa_node_takes_auto_none_and_numbers);
	tcase_add_test(tcase, numa_node_auto_is_none_on_a_machine_of_one_node);
	tcase_add_test(tcase, each_worker_key_sets_its_field);
	tcase_add_test(tcase, a_worker_reads_a_file);
	tcase_add_loop_test(tcase, a_wrong_line_of_a_workers_file_is_named, 0,
			    sizeof(worker_bad_lines) / sizeof(worker_bad_lines[0]));
	tcase_add_test(tcase, worker_fields_must_agree_with_each_other);
	suite_add_tcase(suite, tcase);
	return suite;
}
