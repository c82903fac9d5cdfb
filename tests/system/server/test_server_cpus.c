/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <kvscout/client.h>
#include <kvscout/server.h>
#include <kvscout/worker.h>

#include "cpus.h"
#include "check_main.h"
#include "l2_folder.h"
#include "numa.h"
#include "waiting.h"

/* An engine pins its threads; ours run where the key `cpus` says. */

static cpu_set_t all; /* of this process */
static cpu_set_t one; /* of the test's thread */
static int first_cpu, last_cpu;

static char *folder; /* of L2, which has threads too */
static struct scout_server *server;
static struct scout_client *client;
static struct scout_worker *worker;
static uint8_t pages[16 * 4096];

static void
setup(void)
{
	ck_assert_int_eq(sched_getaffinity(0, sizeof(all), &all), 0);
	first_cpu = last_cpu = -1;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all)) {
			first_cpu = first_cpu < 0 ? cpu : first_cpu;
			last_cpu = cpu;
		}
	CPU_ZERO(&one);
	CPU_SET(first_cpu, &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
}

static void
teardown(void)
{
	scout_client_free(client);
	scout_worker_free(worker);
	scout_server_stop(server);
	if (folder)
		l2_folder_remove(folder);
	free(folder);
	folder = NULL;
}

/* Everything that starts threads. Returns the first error. */
static int
start_all(const char *cpus, char *err, size_t len)
{
	struct scout_plane plane = {.base = pages, .stride = 4096, .block_bytes = 4096};
	struct scout_table layout = {.block_tokens = 16, .n_planes = 1, .planes = &plane, .n_blocks = 16};
	struct scout_server_config server_cfg;
	struct scout_client_config client_cfg;
	struct scout_worker_config worker_cfg;
	char l2[300];
	int rc;

	if (!folder)
		folder = l2_folder_make(false);
	(void)snprintf(l2, sizeof(l2), "fs://%s", folder);
	scout_server_config_init(&server_cfg);
	server_cfg.cpus = cpus;
	server_cfg.l1_bytes = 1 << 20;
	server_cfg.l2 = l2;
	rc = scout_server_start(&server_cfg, &server, err, len);
	if (rc)
		return rc;
	scout_client_config_init(&client_cfg);
	client_cfg.endpoint = scout_server_endpoint(server);
	client_cfg.cpus = cpus;
	rc = scout_client_new(&client_cfg, &client, err, len);
	if (rc == 0)
		rc = scout_client_wait_ready(client, wait_limit_ms(), err, len);
	if (rc)
		return rc;
	scout_worker_config_init(&worker_cfg);
	worker_cfg.endpoint = scout_server_endpoint(server);
	worker_cfg.cpus = cpus;
	worker_cfg.backend = "host";
	rc = scout_worker_new(&worker_cfg, &worker, err, len);
	return rc ? rc : scout_worker_register(worker, &layout, 1, wait_limit_ms(), err, len);
}

/*
 * The masks of all threads but the test's, and those that bear its name: a sanitizer's. Returns how many there are;
 * each of
 * @names must be among them.
 */
static unsigned
assert_masks(const cpu_set_t *want, const char *const *names, unsigned n_names)
{
	DIR *dir = opendir("/proc/self/task");
	unsigned n = 0, found = 0;
	struct dirent *entry;
	char own[32] = "";

	ck_assert_ptr_nonnull(dir);
	ck_assert_int_eq(pthread_getname_np(pthread_self(), own, sizeof(own)), 0);
	while ((entry = readdir(dir)) != NULL) {
		long tid = strtol(entry->d_name, NULL, 10);
		char path[300], name[32] = "";
		cpu_set_t got;
		FILE *f;

		if (tid == 0 || tid == (long)syscall(SYS_gettid))
			continue;
		(void)snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		f = fopen(path, "re");
		if (!f)
			continue; /* it has ended */
		ck_assert_ptr_nonnull(fgets(name, sizeof(name), f));
		ck_assert_int_eq(fclose(f), 0);
		name[strcspn(name, "\n")] = '\0';
		if (strcmp(name, own) == 0 || sched_getaffinity((pid_t)tid, sizeof(got), &got) != 0)
			continue;
		ck_assert_msg(CPU_EQUAL(&got, want), "thread %s: %d CPUs, not %d", name, CPU_COUNT(&got),
			      CPU_COUNT(want));
		n++;
		for (unsigned i = 0; i < n_names; i++)
			found += strcmp(name, names[i]) == 0;
	}
	ck_assert_int_eq(closedir(dir), 0);
	ck_assert_uint_ge(found, n_names);
	return n;
}

static void
assert_caller_pinned(void)
{
	cpu_set_t got;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(got), &got), 0);
	ck_assert(CPU_EQUAL(&got, &one));
}

static const char *const names[] = {"scout-server", "scout-courier", "scout-worker", "scout-copy"};

CHECKED_FIXTURE(setup, teardown);

START_TEST(threads_of_a_pinned_caller_use_all_cpus_of_the_process)
{
	char err[256] = "";

	ck_assert_msg(start_all("auto", err, sizeof(err)) == 0, "%s", err);
	ck_assert_uint_gt(assert_masks(&all, names, 4), 4); /* libzmq's, too */
	assert_caller_pinned();
}
END_TEST

START_TEST(threads_use_the_cpus_of_the_list)
{
	char err[256] = "", list[32];
	cpu_set_t want;

	(void)snprintf(list, sizeof(list), "%d", last_cpu);
	CPU_ZERO(&want);
	CPU_SET(last_cpu, &want);
	ck_assert_msg(start_all(list, err, sizeof(err)) == 0, "%s", err);
	(void)assert_masks(&want, names, 4);
	assert_caller_pinned();
}
END_TEST

START_TEST(threads_inherit_where_that_is_asked_for)
{
	char err[256] = "";

	ck_assert_msg(start_all("inherit", err, sizeof(err)) == 0, "%s", err);
	(void)assert_masks(&one, names, 4);
	assert_caller_pinned();
}
END_TEST

START_TEST(a_list_that_cannot_be_is_refused_with_a_sentence)
{
	static const char *const bad[] = {"banana", "3-1", "0,", "-1", "0-", "0 1", "1024", "0-99999999999", "1023"};
	char err[256] = "";

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		err[0] = '\0';
		ck_assert_msg(start_all(bad[i], err, sizeof(err)) == SCOUT_ERR_CONFIG_RANGE, "%s", bad[i]);
		ck_assert_msg(strstr(err, bad[i]) && strstr(err, "cpus"), "%s", err);
		assert_caller_pinned();
	}
	/* One of them may be used. */
	(void)snprintf(err, sizeof(err), "%d,1023", first_cpu);
	ck_assert_int_eq(start_all(err, err, sizeof(err)), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_ptr_nonnull(strstr(err, "CPU 1023"));
	assert_caller_pinned();
}
END_TEST

START_TEST(what_is_preferred_is_taken_where_it_can_be)
{
	struct scout__cpus_scope scope;
	cpu_set_t prefer, got;

	CPU_ZERO(&prefer);
	CPU_SET(last_cpu, &prefer);
	CPU_SET(1023, &prefer);
	ck_assert_int_eq(scout__cpus_enter(&scope, "auto", &prefer, NULL, 0), 0);
	ck_assert_int_eq(sched_getaffinity(0, sizeof(got), &got), 0);
	ck_assert(CPU_COUNT(&got) == 1 && CPU_ISSET(last_cpu, &got));
	scout__cpus_leave(&scope);
	assert_caller_pinned();
	CPU_CLR(last_cpu, &prefer);
	ck_assert_int_eq(scout__cpus_enter(&scope, "auto", &prefer, NULL, 0), 0);
	ck_assert_int_eq(sched_getaffinity(0, sizeof(got), &got), 0);
	ck_assert(CPU_EQUAL(&got, &all));
	scout__cpus_leave(&scope);
	assert_caller_pinned();
}
END_TEST

START_TEST(the_kernel_names_the_cpus_of_a_node)
{
	static const char *const steps[] = {"/sys", "/sys/devices", "/sys/devices/system", "/sys/devices/system/node",
					    "/sys/devices/system/node/node1"};
	char root[] = "/tmp/kvscout-cpus-XXXXXX", path[256];
	cpu_set_t set;
	FILE *f;

	ck_assert_ptr_nonnull(mkdtemp(root));
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s%s", root, steps[i]);
		ck_assert_int_eq(mkdir(path, 0700), 0);
	}
	(void)snprintf(path, sizeof(path), "%s/sys/devices/system/node/node1/cpulist", root);
	f = fopen(path, "we");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_ge(fputs("4-6,12\n", f), 0);
	ck_assert_int_eq(fclose(f), 0);
	ck_assert(scout__numa_cpus(2, root, &set));
	ck_assert_int_eq(CPU_COUNT(&set), 4);
	ck_assert(CPU_ISSET(4, &set) && CPU_ISSET(5, &set) && CPU_ISSET(6, &set) && CPU_ISSET(12, &set));
	ck_assert(!scout__numa_cpus(1, root, &set));
	(void)unlink(path);
	for (size_t i = sizeof(steps) / sizeof(steps[0]); i > 0; i--) {
		(void)snprintf(path, sizeof(path), "%s%s", root, steps[i - 1]);
		(void)rmdir(path);
	}
	(void)rmdir(root);
}
END_TEST
