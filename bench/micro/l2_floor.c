/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: the floor of the files adapter, in a folder beside the adapter's and so on the same file system. A store
 * writes each object to a temporary name and renames it, all in one folder; a load reads each object with one read()
 * and sums it in one go. There is no header, no catalogue, and one object follows the other: what a program does that
 * writes and reads these bytes and checks them.
 *
 * What was written lies in the page cache when it is read, as it does for the adapter, which is asked in the same
 * order. With direct=1 and sync=1 the adapter does more than this floor.
 *
 * Threads: main only.
 */
#include "l2_floor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "object.h"
#include "say.h"

static char *folder;
static uint32_t n_objects;
static uint64_t object_bytes;
static struct scout__l2_digest *sums;
static uint32_t last_round;
static bool has_round;

_Noreturn static void
fail(const char *what)
{
	char text[SAY_ERROR];

	complain("floor: %s: %s", what, say_error(text, errno));
	exit(EXIT_FAILURE); // NOLINT(concurrency-mt-unsafe): no other thread calls it
}

static void
path_of(uint32_t round, uint32_t i, char path[4096])
{
	if (snprintf(path, 4096, "%s/%u-%u", folder, round, i) >= 4096)
		fail("path too long");
}

void
l2_floor_begin(const char *path, uint32_t n, uint64_t bytes)
{
	if (asprintf(&folder, "%s.floor", path) < 0)
		fail("out of memory");
	if (mkdir(folder, 0700) != 0)
		fail(folder);
	n_objects = n;
	object_bytes = bytes;
	sums = calloc(n, sizeof(*sums));
	if (!sums)
		fail("out of memory");
}

static void
remove_round(uint32_t round)
{
	char path[4096];

	for (uint32_t i = 0; i < n_objects; i++) {
		path_of(round, i, path);
		(void)unlink(path); /* the first round is stored twice */
	}
}

static void
store_one(uint32_t round, uint32_t i, const uint8_t *data)
{
	char path[4096], tmp[4096];
	int fd;

	path_of(round, i, path);
	if (snprintf(tmp, sizeof(tmp), "%s/tmp", folder) >= (int)sizeof(tmp))
		fail("path too long");
	fd = open(tmp, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, data, object_bytes) != (ssize_t)object_bytes || close(fd) != 0)
		fail("write");
	if (rename(tmp, path) != 0)
		fail("rename");
}

void
l2_floor_store(uint32_t round, const uint8_t *data)
{
	for (uint32_t i = 0; i < n_objects; i++)
		store_one(round, i, data + i * object_bytes);
	last_round = round;
	has_round = true;
}

void
l2_floor_load(uint32_t round, uint8_t *data)
{
	char path[4096];

	for (uint32_t i = 0; i < n_objects; i++) {
		uint8_t *to = data + i * object_bytes;
		int fd;

		path_of(round, i, path);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || read(fd, to, object_bytes) != (ssize_t)object_bytes || close(fd) != 0)
			fail("read");
		sums[i] = scout__l2_sum(to, object_bytes);
	}
}

void
l2_floor_end(void)
{
	if (has_round)
		for (uint32_t round = 0; round <= last_round; round++)
			remove_round(round);
	if (rmdir(folder) != 0)
		fail(folder);
	free(folder);
	free(sums);
}
