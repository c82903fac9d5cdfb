/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "paths.h"

/*
 * DESIGN
 *
 * Private folders (kvscout-XXXXXX under the runtime folder or /tmp) that killed servers left. The next start removes
 * them.
 *
 * A folder is dead if no process holds its lock file: the kernel drops flock() when its process ends, however it ends,
 * and a lock, unlike a pid, never comes to mean another process. An empty lock file belongs to a server that is
 * starting: it sets the length to its pid once it holds the lock. A folder without a lock file belongs to such a server, too; if
 * that server is killed in this moment, its folder stays.
 *
 * A folder is ours if it belongs to this user, only this user may use it, and it holds nothing but the three names that
 * a server makes, sockets and a file as they should be. Anything else stays in place as a whole. No symbolic link is
 * followed, and everything is named relative to descriptors of the folders that were judged. Under /tmp the sticky bit
 * keeps others from putting something else in the place of a folder of this user.
 *
 * Two starts at once: the one that gets the lock of a dead folder removes it; the other one does not get it, or finds
 * that the file it has locked is not the one in the folder any more.
 *
 * Threads: the one that starts a server.
 */

#define ENTRIES_MAX 65536 /* names in the folder above that one start looks at */
#define NAME_BYTES (sizeof(SCOUT__PRIVATE_PREFIX) - 1 + 6)

static const char socket_name[] = SCOUT__PRIVATE_SOCKET;
static const char lease_name[] = SCOUT__PRIVATE_SOCKET SCOUT__LEASE_SUFFIX;
static const char lock_name[] = SCOUT__PRIVATE_SOCKET SCOUT__LOCK_SUFFIX;

static bool
is_named_ours(const char *name)
{
	return strncmp(name, SCOUT__PRIVATE_PREFIX, sizeof(SCOUT__PRIVATE_PREFIX) - 1) == 0 &&
	       strlen(name) == NAME_BYTES;
}

static bool
is_private(const struct stat *st, mode_t type)
{
	return (st->st_mode & S_IFMT) == type && st->st_uid == geteuid() && (st->st_mode & 067) == 0;
}

/* Whether the folder holds nothing but what a server makes, and its lock file is @lock. */
static bool
has_only_ours(int folder, const struct stat *lock)
{
	int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
	const struct dirent *entry;
	bool has_lock = false, only = true;

	if (!dir) {
		if (copy >= 0)
			(void)close(copy);
		return false;
	}
	while (only && (entry = readdir(dir))) { // NOLINT(concurrency-mt-unsafe): a stream of our own
		const char *name = entry->d_name;
		struct stat st;

		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
			continue;
		only = fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid == geteuid();
		if (strcmp(name, lock_name) == 0) {
			has_lock = only && st.st_dev == lock->st_dev && st.st_ino == lock->st_ino;
			only = has_lock;
		} else {
			only = only && S_ISSOCK(st.st_mode) &&
			       (strcmp(name, socket_name) == 0 || strcmp(name, lease_name) == 0);
		}
	}
	(void)closedir(dir);
	return only && has_lock;
}

/* Take the lock of @folder if its server is dead. Returns the descriptor that holds the lock, else -1. */
static int
lock_of_dead(int folder)
{
	struct stat st;
	int fd = openat(folder, lock_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) == 0 && is_private(&st, S_IFREG) && st.st_size > 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
	    has_only_ours(folder, &st))
		return fd;
	(void)close(fd);
	return -1;
}

static bool
remove_if_dead(int base, const char *name)
{
	int folder = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	int lock = -1;
	bool removed = false;

	if (folder < 0)
		return false;
	if (fstat(folder, &st) == 0 && is_private(&st, S_IFDIR))
		lock = lock_of_dead(folder);
	if (lock >= 0) {
		(void)unlinkat(folder, socket_name, 0); /* a server on tcp has none */
		(void)unlinkat(folder, lease_name, 0);
		(void)unlinkat(folder, lock_name, 0);
		removed = unlinkat(base, name, AT_REMOVEDIR) == 0;
		(void)close(lock); /* last: until then no other start removes it */
	}
	(void)close(folder);
	return removed;
}

uint32_t
scout__paths_sweep(const char *base)
{
	DIR *dir = opendir(base);
	const struct dirent *entry;
	uint32_t n = 0;

	if (!dir)
		return 0;
	for (int i = 0; i < ENTRIES_MAX && (entry = readdir(dir)); i++) // NOLINT(concurrency-mt-unsafe): as above
		n += is_named_ours(entry->d_name) && remove_if_dead(dirfd(dir), entry->d_name);
	(void)closedir(dir);
	return n;
}
