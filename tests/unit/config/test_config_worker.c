/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a worker: each sets its field; fields that must agree; the node whose memory it takes. */
#include <errno.h>
#include <ftw.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvscout/client.h>
#include <kvscout/worker.h>

#include "client_config.h"
#include "numa.h"
#include "worker_config.h"
#include "config_settings.h"
#include "check_main.h"

static char err[512];

START_TEST(a_namespace_is_a_name)
{
	static const char *const bad[] = {"a\nb", "\x1b[2J", "\xff", "\xc2\x9b"};
	static const struct scout_client_config no_client;
	static const struct scout_worker_config no_worker;

	for (size_t i = 0; i < N_OF(bad); i++) {
		struct scout_client_config client, client_taken;
		struct scout_worker_config worker, worker_taken;

		scout_client_config_init(&client);
		client.name_space = bad[i];
		ck_assert_int_eq(scout__client_config_accept(&client_taken, &client, err, sizeof(err)),
				 SCOUT_ERR_CONFIG_RANGE);
		ck_assert_ptr_nonnull(strstr(err, "namespace must be UTF-8"));
		ck_assert_mem_eq(&client_taken, &no_client, sizeof(no_client));
		scout_worker_config_init(&worker);
		worker.name_space = bad[i];
		err[0] = '\0';
		ck_assert_int_eq(scout__worker_config_accept(&worker_taken, &worker, err, sizeof(err)),
				 SCOUT_ERR_CONFIG_RANGE);
		ck_assert_ptr_nonnull(strstr(err, "namespace must be UTF-8"));
		ck_assert_mem_eq(&worker_taken, &no_worker, sizeof(no_worker));
	}
}
END_TEST

#define WORKER(field, n) NUMBER(struct scout_worker_config, field, n)
#define WORKER_TEXT(field, string) string, TEXT(struct scout_worker_config, field, string)

static const struct setting worker_settings[] = {
	{"endpoint", WORKER_TEXT(endpoint, "ipc:///w")},
	{"namespace", WORKER_TEXT(name_space, "m")},
	{"backend", WORKER_TEXT(backend, "cuda")},
	{"chunk_tokens", "16", WORKER(chunk_tokens, 16)},
	{"kv_ranks", "8", WORKER(kv_ranks, 8)},
	{"rank_first", "2", WORKER(rank_first, 2)},
	{"rank_count", "4", WORKER(rank_count, 4)},
	{"kv_rank", "5", WORKER(kv_rank, 5)},
	{"readers", "3", WORKER(readers, 3)},
	{"reader", "2", WORKER(reader, 2)},
	{"hash_bytes", "20", WORKER(hash_bytes, 20)},
	{"hash_tokens", "16", WORKER(hash_tokens, 16)},
	{"group", WORKER_TEXT(group, "all,unit=16")},
	{"transfer_timeout_ms", "6", WORKER(transfer_timeout_ms, 6)},
	{"heartbeat_ms", "70", WORKER(heartbeat_ms, 70)},
	{"connect_timeout_ms", "9", WORKER(connect_timeout_ms, 9)},
	{"max_jobs", "10", WORKER(max_jobs, 10)},
	{"spin_us", "11", WORKER(spin_us, 11)},
	{"weights_version", "12", WORKER(weights_version, 12)},
	{"copy_method", WORKER_TEXT(copy_method, "batch")},
	{"stage_bytes", "64Mi", WORKER(stage_bytes, 64 << 20)},
	{"numa_node", WORKER_TEXT(numa_node, "3")},
	{"curve_secret_file", WORKER_TEXT(curve_secret_file, "/k")},
	{"curve_server_key", WORKER_TEXT(curve_server_key, PUBLIC_KEY)},
	{"local_transport", "socket", WORKER(local_transport, SCOUT_LOCAL_SOCKET)},
	{"cpus", WORKER_TEXT(cpus, "0-3,8")},
	{"server_program", WORKER_TEXT(server_program, "/bin/kvscoutd")},
	{"server_keys", WORKER_TEXT(server_keys, "l1_bytes=3 cpus=0-3,8")},
};

START_TEST(each_worker_key_sets_its_field)
{
	struct scout_worker_config cfg, taken;

	scout_worker_config_init(&cfg);
	ck_assert_uint_eq(N_OF(worker_settings), scout__worker_options.n);
	for (size_t i = 0; i < N_OF(worker_settings); i++)
		ck_assert_int_eq(
			scout_worker_config_set(&cfg, worker_settings[i].key, worker_settings[i].value, err, 512), 0);
	ck_assert_int_eq(scout__worker_config_accept(&taken, &cfg, err, sizeof(err)), 0);
	scout_worker_config_fini(&cfg);
	check_settings(&taken, worker_settings, N_OF(worker_settings));
	scout_worker_config_fini(&taken);
}
END_TEST

START_TEST(a_server_holds_all_kv_ranks_where_nothing_is_said)
{
	struct scout_worker_config cfg, taken;

	scout_worker_config_init(&cfg);
	cfg.kv_ranks = 4;
	ck_assert_int_eq(scout__worker_config_accept(&taken, &cfg, err, sizeof(err)), 0);
	ck_assert_uint_eq(taken.rank_count, 4);
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

/* A folder that stands for /, in which files hold these texts. */
static void
make_file(const char *root, const char *name, const char *text)
{
	char path[256];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s%s", root, name);
	for (char *c = path + strlen(root) + 1; (c = strchr(c, '/')) != NULL; c++) {
		*c = '\0';
		ck_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
		*c = '/';
	}
	file = fopen(path, "we");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
}

static int
remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

/* A folder that stands for /, whose kernel says @online. */
static void
check_auto(const char *online, bool any)
{
	char root[] = "/tmp/kvscout-numa-XXXXXX";
	unsigned cpu, here;
	uint16_t node = 77;

	ck_assert_ptr_nonnull(mkdtemp(root));
	make_file(root, "/sys/devices/system/node/online", online);
	ck_assert(scout__numa_parse("auto", root, &node));
	ck_assert_int_eq(getcpu(&cpu, &here), 0);
	ck_assert_uint_eq(node, any ? here + 1 : 0);
	ck_assert_int_eq(nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
}

START_TEST(numa_node_auto_is_none_on_a_machine_of_one_node)
{
	uint16_t node = 77;

	check_auto("0\n", false);
	check_auto("0-1\n", true);
	check_auto("0,4\n", true);
	ck_assert(scout__numa_parse("auto", "/nowhere", &node));
	ck_assert_uint_eq(node, 0);
}
END_TEST

START_TEST(the_kernel_names_the_node_of_a_device)
{
	char root[] = "/tmp/kvscout-pci-XXXXXX";

	ck_assert_ptr_nonnull(mkdtemp(root));
	make_file(root, "/sys/bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
	make_file(root, "/sys/bus/pci/devices/0000:0a:00.0/numa_node", "0\n");
	make_file(root, "/sys/bus/pci/devices/0000:00:1e.0/numa_node", "-1\n");
	make_file(root, "/sys/bus/pci/devices/0000:00:1f.0/numa_node", "");
	make_file(root, "/sys/devices/system/node/online", "0\n");
	ck_assert_uint_eq(scout__numa_of_device("0000:3b:00.0", root), 0);
	make_file(root, "/sys/devices/system/node/online", "0-1\n");
	ck_assert_uint_eq(scout__numa_of_device("0000:3b:00.0", root), 2);
	ck_assert_uint_eq(scout__numa_of_device("0000:0a:00.0", root), 1);
	ck_assert_uint_eq(scout__numa_of_device("0000:00:1e.0", root), 0);
	ck_assert_uint_eq(scout__numa_of_device("0000:00:1f.0", root), 0);
	ck_assert_uint_eq(scout__numa_of_device("0000:ff:1f.7", root), 0);
	ck_assert_int_eq(nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
}
END_TEST

START_TEST(a_worker_reads_a_file)
{
	static const char text[] = "endpoint = ipc:///f\nkv_ranks=2\nbackend = host\nlisten = ipc:///x\n";
	const char *path = file_with(text, sizeof(text) - 1);
	struct scout_worker_config cfg;

	scout_worker_config_init(&cfg);
	ck_assert_int_eq(scout_worker_config_load(&cfg, path, err, sizeof(err)), SCOUT_ERR_CONFIG_KEY);
	check_names(err, (const char *[]){path, ":4:", "\"listen\""}, 3);
	ck_assert_str_eq(cfg.endpoint, "ipc:///f");
	ck_assert_uint_eq(cfg.kv_ranks, 2);
	ck_assert_str_eq(cfg.backend, "host");
	scout_worker_config_fini(&cfg);
	ck_assert_int_eq(unlink(path), 0);
}
END_TEST

/* A worker of 4 KV ranks and one reader, and what its refusal names. */
static const struct {
	const char *endpoint, *numa_node;
	uint32_t rank_first, rank_count, kv_rank, reader;
	int code;
	const char *names[3];
} disagreeing[] = {
	{"ipc:///w ipc:///x", "auto", 0, 4, 0, 0, SCOUT_ERR_CONFIG_SYNTAX, {"endpoint", "one endpoint"}},
	{"ipc:///w,ipc:///x", "auto", 0, 4, 0, 0, SCOUT_ERR_CONFIG_SYNTAX, {"endpoint", "one endpoint"}},
	{"inproc://w", "auto", 0, 4, 0, 0, SCOUT_ERR_UNSUPPORTED, {"inproc://w", "and auto", "_endpoint()"}},
	{"ipc:///w", "auto", 2, 3, 2, 0, SCOUT_ERR_CONFIG_RANGE, {"rank_first = 2", "rank_count = 3", "kv_ranks = 4"}},
	{NULL, "auto", 2, 2, 2, 0, SCOUT_ERR_CONFIG_RANGE, {"endpoint", "kv_ranks = 4", "rank_count = 2"}},
	{"ipc:///w", "auto", 2, 2, 1, 0, SCOUT_ERR_CONFIG_RANGE, {"kv_rank = 1", "2..3"}},
	{"ipc:///w", "auto", 2, 2, 4, 0, SCOUT_ERR_CONFIG_RANGE, {"kv_rank = 4", "2..3"}},
	{"ipc:///w", "auto", 2, 2, 3, 1, SCOUT_ERR_CONFIG_RANGE, {"reader = 1", "0..0"}},
	{"ipc:///w", "one", 2, 2, 3, 0, SCOUT_ERR_CONFIG_RANGE, {"numa_node = \"one\"", "auto, none"}},
};

START_LOOP_TEST(worker_fields_must_agree_with_each_other, 0, N_OF(disagreeing))
{
	static const struct scout_worker_config zero;
	struct scout_worker_config cfg, taken;

	scout_worker_config_init(&cfg);
	cfg.endpoint = disagreeing[_i].endpoint;
	cfg.numa_node = disagreeing[_i].numa_node;
	cfg.kv_ranks = 4;
	cfg.rank_first = disagreeing[_i].rank_first;
	cfg.rank_count = disagreeing[_i].rank_count;
	cfg.kv_rank = disagreeing[_i].kv_rank;
	cfg.reader = disagreeing[_i].reader;
	ck_assert_int_eq(scout__worker_config_accept(&taken, &cfg, err, sizeof(err)), disagreeing[_i].code);
	check_names(err, disagreeing[_i].names, 3);
	ck_assert_mem_eq(&taken, &zero, sizeof(zero));
}
END_TEST
