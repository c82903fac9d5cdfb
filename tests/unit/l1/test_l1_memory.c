/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory this machine lets a process have: meminfo and the groups above the process. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "l1_rig.h"
#include "memory.h"
#include "pool.h"

#include "check_main.h"

#define MIB (UINT64_C(1) << 20)

/* A file tree that stands for / */
static char root[64];

static void
put_file(const char *path, const char *text)
{
	char full[512];
	FILE *file;

	(void)snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		ck_assert(mkdir(full, 0700) == 0 || errno == EEXIST);
		*slash = '/';
	}
	file = fopen(full, "we");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
}

static void
make_root(void)
{
	(void)snprintf(root, sizeof(root), "/tmp/kvscout-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
	put_file("/proc/meminfo", "MemTotal:       1000000 kB\n"
				  "MemFree:         1 kB\n"
				  "MemAvailable:    500000 kB\n"
				  "HugePages_Total:     100\n"
				  "HugePages_Free:       50\n"
				  "HugePages_Rsvd:       10\n"
				  "Hugepagesize:       2048 kB\n");
}

static void
remove_root(void)
{
	char command[128];

	(void)snprintf(command, sizeof(command), "rm -r %s", root);
	ck_assert_int_eq(system(command), 0); // NOLINT: a fixed path of our own
}

CHECKED_FIXTURE(make_root, remove_root);

START_TEST(memory_is_read_from_meminfo)
{
	struct scout__memory memory;

	scout__memory_read(root, &memory);
	ck_assert_uint_eq(memory.total, UINT64_C(1000000) * 1024);
	ck_assert_uint_eq(memory.available, UINT64_C(500000) * 1024);
	ck_assert_uint_eq(memory.cgroup_limit, UINT64_MAX);
	ck_assert_uint_eq(memory.huge_page, 2 * MIB);
	ck_assert_uint_eq(memory.huge_available, 80 * MIB);
}
END_TEST

START_TEST(memory_takes_the_lowest_limit_of_the_version_2_groups_above)
{
	struct scout__memory memory;

	put_file("/proc/self/cgroup", "0::/a/b/c\n");
	put_file("/sys/fs/cgroup/a/memory.max", "400000000\n");
	put_file("/sys/fs/cgroup/a/memory.current", "100000000\n");
	put_file("/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 40000000\n");
	put_file("/sys/fs/cgroup/a/b/memory.max", "max\n");
	put_file("/sys/fs/cgroup/a/b/c/memory.max", "450000000\n");
	scout__memory_read(root, &memory);
	ck_assert_uint_eq(memory.cgroup_limit, 400000000);
	ck_assert_uint_eq(memory.available, 400000000 - (100000000 - 40000000));
	ck_assert_uint_eq(memory.cgroup_available, memory.available);
	ck_assert_uint_eq(memory.machine_available, UINT64_C(500000) * 1024);
}
END_TEST

START_TEST(memory_takes_the_limit_at_the_mount_when_the_path_is_not_mounted)
{
	struct scout__memory memory;

	put_file("/proc/self/cgroup", "0::/docker/0123\n");
	put_file("/sys/fs/cgroup/memory.max", "300000000\n");
	put_file("/sys/fs/cgroup/memory.current", "400000000\n");
	scout__memory_read(root, &memory);
	ck_assert_uint_eq(memory.cgroup_limit, 300000000);
}
END_TEST

START_TEST(memory_takes_the_limit_of_version_1)
{
	struct scout__memory memory;

	put_file("/proc/self/cgroup", "9:name=systemd:/\n5:cpu,memory,pids:/x\n0::/\n");
	put_file("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "200000000\n");
	put_file("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "250000000\n");
	put_file("/sys/fs/cgroup/memory/x/memory.stat", "cache 1\ntotal_inactive_file 10\n");
	put_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	scout__memory_read(root, &memory);
	ck_assert_uint_eq(memory.cgroup_limit, 200000000);
	ck_assert_uint_eq(memory.available, 0);
}
END_TEST

START_TEST(memory_that_cannot_be_read_is_unknown)
{
	struct scout__memory memory;

	scout__memory_read("/nonexistent", &memory);
	ck_assert_uint_eq(memory.total, UINT64_MAX);
	ck_assert_uint_eq(memory.available, UINT64_MAX);
	ck_assert_uint_eq(memory.cgroup_limit, UINT64_MAX);
	ck_assert_uint_eq(memory.huge_available, 0);
}
END_TEST
