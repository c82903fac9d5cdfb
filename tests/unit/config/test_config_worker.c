/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a worker: defaults, fields, ranges, files, and the node whose memory it takes. */
#include <errno.h>
#include <ftw.h>
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
	{"hash_tokens", "16"},
	{"group", "all,unit=16"},
	{"transfer_timeout_ms", "6"},
	{"heartbeat_ms", "70"},
	{"connect_timeout_ms", "9"},
	{"max_jobs", "10"},
	{"spin_us", "11"},
	{"weights_version", "12"},
	{"copy_method", "batch"},
	{"copy_priority", "2"},
	{"stage_bytes", "64Mi"},
	{"numa_node", "3"},
	{"curve_secret_file", "/k"},
	{"curve_server_key", PUBLIC_KEY},
	{"local_transport", "socket"},
	{"cpus", "0-3,8"},
	{"server_program", "/bin/kvscoutd"},
	{"server_keys", "l1_bytes=3 cpus=0-3,8"},
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
	ck_assert_uint_eq(taken.hash_tokens, 16);
	ck_assert_str_eq(taken.group, "all,unit=16");
	ck_assert_uint_eq(taken.reader, 2);
	ck_assert_uint_eq(taken.hash_bytes, 20);
	ck_assert_uint_eq(taken.transfer_timeout_ms, 6);
	ck_assert_uint_eq(taken.heartbeat_ms, 70);
	ck_assert_uint_eq(taken.connect_timeout_ms, 9);
	ck_assert_uint_eq(taken.max_jobs, 10);
	ck_assert_uint_eq(taken.spin_us, 11);
	ck_assert_uint_eq(taken.local_transport, SCOUT_LOCAL_SOCKET);
	ck_assert_uint_eq(taken.weights_version, 12);
	ck_assert_str_eq(taken.copy_method, "batch");
	ck_assert_uint_eq(taken.copy_priority, 2);
	ck_assert_uint_eq(taken.stage_bytes, 64 << 20);
	ck_assert_str_eq(taken.numa_node, "3");
	ck_assert_str_eq(taken.curve_secret_file, "/k");
	ck_assert_str_eq(taken.curve_server_key, PUBLIC_KEY);
	ck_assert_str_eq(taken.cpus, "0-3,8");
	ck_assert_str_eq(taken.server_program, "/bin/kvscoutd");
	ck_assert_str_eq(taken.server_keys, "l1_bytes=3 cpus=0-3,8");
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
	cfg.endpoint = "ipc:///w ipc:///x";
	check_worker_refused(
		&cfg, SCOUT_ERR_CONFIG_SYNTAX,
		"endpoint = \"ipc:///w ipc:///x\": must be one endpoint, without blanks and commas; several "
		"servers are for clients only");
	ck_assert_int_eq(scout_worker_config_set(&cfg, "endpoint", "ipc:///w,ipc:///x", err, sizeof(err)),
			 SCOUT_ERR_CONFIG_SYNTAX);
	cfg.endpoint = "ipc:///w";
	cfg.kv_ranks = 4;
	cfg.rank_first = 2;
	cfg.rank_count = 3;
	check_worker_refused(&cfg, SCOUT_ERR_CONFIG_RANGE, "rank_first = 2, rank_count = 3: kv_ranks = 4 is exceeded");
	cfg.rank_count = 2;
	cfg.kv_rank = 2;
	cfg.endpoint = NULL;
	check_worker_refused(
		&cfg, SCOUT_ERR_CONFIG_RANGE,
		"endpoint is not set or auto, and of kv_ranks = 4 this server holds rank_count = 2: the others are on other nodes, "
		"which do not share a server; start one kvscoutd on each node, set endpoint to it in the workers of that node, and "
		"to the list of all in the client");
	cfg.endpoint = "ipc:///w";
	cfg.rank_count = 3;
	cfg.kv_rank = 0;
	cfg.rank_count = 2;
	cfg.kv_rank = 1;
	check_worker_refused(&cfg, SCOUT_ERR_CONFIG_RANGE, "kv_rank = 1: must be 2..3, the KV ranks of this server");
	cfg.kv_rank = 4;
	check_worker_refused(&cfg, SCOUT_ERR_CONFIG_RANGE, "kv_rank = 4: must be 2..3, the KV ranks of this server");
	cfg.kv_rank = 3;
	cfg.reader = 1;
	check_worker_refused(&cfg, SCOUT_ERR_CONFIG_RANGE, "reader = 1: must be 0..0, below readers");
	cfg.reader = 0;
}
END_TEST

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("config_worker");
	TCase *tcase = tcase_create("config");

	tcase_add_test(tcase, worker_defaults_are_the_documented_ones);
	tcase_add_test(tcase, a_namespace_is_a_name);
	tcase_add_test(tcase, numa_node_takes_auto_none_and_numbers);
	tcase_add_test(tcase, numa_node_auto_is_none_on_a_machine_of_one_node);
	tcase_add_test(tcase, the_kernel_names_the_node_of_a_device);
	tcase_add_test(tcase, each_worker_key_sets_its_field);
	tcase_add_test(tcase, a_worker_reads_a_file);
	tcase_add_loop_test(tcase, a_wrong_line_of_a_workers_file_is_named, 0,
			    sizeof(worker_bad_lines) / sizeof(worker_bad_lines[0]));
	tcase_add_test(tcase, worker_fields_must_agree_with_each_other);
	suite_add_tcase(suite, tcase);
	return suite;
}
