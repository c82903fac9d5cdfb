/* SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "page.h"

/*
 * DESIGN
 *
 * Purpose: how much memory this process may still take, so that an extent that cannot be had is refused with numbers
 * and does not wake the kernel's out-of-memory killer (fallocate() of shared memory does not fail when memory is
 * short: it makes room by killing).
 *
 * Cgroups: version 2 and version 1, by the paths in /proc/self/cgroup, from our own group up to the root. In a
 * container without a cgroup namespace that path names directories that are not mounted inside; the walk upwards
 * passes them and ends at the mount point, which is the container's own group.
 *
 * Threads: any; no state.
 */

#define PATH_BYTES (2 * PATH_MAX)

static bool
read_line(const char *path, char *buf, size_t len)
{
	FILE *file = fopen(path, "re");
	bool ok;

	if (!file)
		return false;
	ok = fgets(buf, (int)len, file) != NULL;
	(void)fclose(file); /* only read */
	return ok;
}

/* Also for "max", which is not a number: unlimited. */
static uint64_t
parse_number(const char *text)
{
	char *end;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || end == text)
		return UINT64_MAX;
	return value;
}

static uint64_t
read_number(const char *path)
{
	char line[64];

	if (!read_line(path, line, sizeof(line)))
		return UINT64_MAX;
	return parse_number(line);
}

/* The number after "@key " at the start of a line. */
static uint64_t
read_key(const char *path, const char *key)
{
	FILE *file = fopen(path, "re");
	uint64_t value = UINT64_MAX;
	size_t key_len = strlen(key);
	char line[256];

	if (!file)
		return UINT64_MAX;
	while (fgets(line, sizeof(line), file)) {
		if (strncmp(line, key, key_len) == 0 && strchr(" \t:", line[key_len])) {
			value = parse_number(line + key_len + strspn(line + key_len, " \t:"));
			break;
		}
	}
	(void)fclose(file); /* only read */
	return value;
}

struct group_files {
	const char *limit;
	const char *usage;
	const char *reclaimable; /* key in memory.stat: file pages that the kernel takes back first */
};

static const struct group_files version_1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
static const struct group_files version_2 = {"memory.max", "memory.current", "inactive_file"};

static uint64_t
read_group_file(const char *dir, const char *name)
{
	char path[PATH_BYTES + 64];

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return UINT64_MAX;
	return read_number(path);
}

static void
look_at_group(const char *dir, const struct group_files *files, struct scout__memory *memory)
{
	uint64_t limit = read_group_file(dir, files->limit);
	uint64_t usage = read_group_file(dir, files->usage);
	char path[PATH_BYTES + 64];
	uint64_t reclaimable;

	/* Version 1 has no word for "no limit": it is the largest number of whole pages. */
	if (limit >= INT64_MAX - INT64_MAX % scout__page_bytes())
		return;
	if (limit < memory->cgroup_limit)
		memory->cgroup_limit = limit;
	if (usage == UINT64_MAX || snprintf(path, sizeof(path), "%s/memory.stat", dir) >= (int)sizeof(path))
		return;
	reclaimable = read_key(path, files->reclaimable);
	if (reclaimable != UINT64_MAX)
		usage -= reclaimable < usage ? reclaimable : usage;
	limit -= usage < limit ? usage : limit;
	if (limit < memory->cgroup_available)
		memory->cgroup_available = limit;
}

/* @mount and each directory of @group below it. */
static void
walk_groups(const char *mount, const char *group, const struct group_files *files, struct scout__memory *memory)
{
	char dir[PATH_BYTES];
	size_t mount_len = strlen(mount);
	char *slash;

	if (snprintf(dir, sizeof(dir), "%s%s", mount, group) >= (int)sizeof(dir))
		return;
	for (;;) {
		look_at_group(dir, files, memory);
		slash = strrchr(dir + mount_len, '/');
		if (!slash)
			return;
		*slash = '\0';
	}
}

/* Whether the comma-separated @list has "memory". */
static bool
has_memory(const char *list, size_t len)
{
	static const char word[] = "memory";
	const size_t word_len = sizeof(word) - 1;
	size_t at = 0;

	while (at < len) {
		size_t n = 0;

		while (at + n < len && list[at + n] != ',')
			n++;
		if (n == word_len && memcmp(list + at, word, n) == 0)
			return true;
		at += n + 1;
	}
	return false;
}

static void
read_groups(const char *root, struct scout__memory *memory)
{
	char path[PATH_BYTES];
	char line[PATH_MAX + 256];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	file = fopen(path, "re");
	if (!file)
		return;
	/* hierarchy:controllers:path */
	while (fgets(line, sizeof(line), file)) {
		char *controllers = strchr(line, ':');
		char *group = controllers ? strchr(controllers + 1, ':') : NULL;

		if (!group)
			continue;
		group[strcspn(group, "\n")] = '\0';
		controllers++;
		if (group == controllers) {
			(void)snprintf(path, sizeof(path), "%s/sys/fs/cgroup", root);
			walk_groups(path, group + 1, &version_2, memory);
		} else if (has_memory(controllers, (size_t)(group - controllers))) {
			(void)snprintf(path, sizeof(path), "%s/sys/fs/cgroup/memory", root);
			walk_groups(path, group + 1, &version_1, memory);
		}
	}
	(void)fclose(file); /* only read */
}

static uint64_t
kib(uint64_t value)
{
	return value > UINT64_MAX / 1024 ? UINT64_MAX : value * 1024;
}

void
scout__memory_read(const char *root, struct scout__memory *ret_memory)
{
	struct scout__memory memory = {.cgroup_limit = UINT64_MAX, .cgroup_available = UINT64_MAX};
	char path[PATH_BYTES];
	uint64_t huge_free;
	uint64_t huge_reserved;

	(void)snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	memory.total = kib(read_key(path, "MemTotal"));
	memory.machine_available = kib(read_key(path, "MemAvailable"));
	memory.huge_page = kib(read_key(path, "Hugepagesize"));
	huge_free = read_key(path, "HugePages_Free");
	huge_reserved = read_key(path, "HugePages_Rsvd");
	if (memory.huge_page == UINT64_MAX)
		memory.huge_page = 0;
	if (huge_free != UINT64_MAX && huge_reserved != UINT64_MAX && huge_free > huge_reserved &&
	    __builtin_mul_overflow(huge_free - huge_reserved, memory.huge_page, &memory.huge_available))
		memory.huge_available = 0;
	read_groups(root, &memory);
	memory.available =
		memory.machine_available < memory.cgroup_available ? memory.machine_available : memory.cgroup_available;
	*ret_memory = memory;
}
