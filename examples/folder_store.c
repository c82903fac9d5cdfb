/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store of L2 as a plugin: objects as files of a folder. The server does deadlines, breakers and the check of what was loaded.
 *
 *   cc folder_store.c -shared -fPIC $(pkg-config --cflags kvscout-server) -o folder_store.so && kvscoutd --l2 "plugin://$PWD/folder_store.so?folder=/tmp"
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <kvscout/l2_plugin.h>

static int folder = -1; /* one store is enough for an example */

static int
failed(char *why)
{
	snprintf(why, SCOUT_L2_WHY_BYTES, "errno %d", errno);
	return errno == ENOENT ? SCOUT_L2_ABSENT : errno == ENOSPC ? SCOUT_L2_FULL : SCOUT_L2_FAILED;
}

static int
open_store(const struct scout_l2_open *args, void **ret_store, char *why)
{
	snprintf(why, SCOUT_L2_WHY_BYTES, "needs folder=PATH, of a folder that is there");
	if (args->n_options != 1 || strcmp(args->options[0].name, "folder") != 0)
		return SCOUT_ERR_CONFIG_KEY;
	folder = open(args->options[0].value, O_DIRECTORY | O_CLOEXEC);
	*ret_store = &folder;
	return folder < 0 ? SCOUT_ERR_CONFIG_RANGE : 0;
}

static int
exists(void *store, const char *const *names, uint32_t n, uint32_t flags, uint8_t *found,
       const struct scout_l2_watch *watch, char *why)
{
	(void)store, (void)flags, (void)why;
	for (uint32_t i = 0; i < n; i++) {
		if (!watch->goes_on(watch->user, i))
			return SCOUT_L2_GAVE_UP;
		found[i] = faccessat(folder, names[i], R_OK, 0) == 0;
	}
	return SCOUT_L2_DONE;
}

/* Each part in pieces of 512 KiB, so that the server sees progress. The file's offset is the bytes that have moved. */
static int
move(int fd, const struct iovec *parts, uint32_t n, ssize_t (*io)(int, char *, size_t),
     const struct scout_l2_watch *watch, char *why)
{
	uint64_t moved = 0;

	for (uint32_t i = 0; i < n; i++)
		for (size_t at = 0; at < parts[i].iov_len;) {
			size_t left = parts[i].iov_len - at;
			ssize_t now = io(fd, (char *)parts[i].iov_base + at, left < 524288 ? left : 524288);

			if (now <= 0)
				return now < 0 ? failed(why) : SCOUT_L2_WRONG_SIZE;
			at += (size_t)now;
			if (!watch->goes_on(watch->user, moved += (uint64_t)now))
				return SCOUT_L2_GAVE_UP;
		}
	return SCOUT_L2_DONE;
}

static ssize_t
get(int fd, char *data, size_t bytes)
{
	return read(fd, data, bytes);
}

static ssize_t
put(int fd, char *data, size_t bytes)
{
	return write(fd, data, bytes);
}

static int
load(void *store, const char *name, uint32_t flags, const struct iovec *parts, uint32_t n,
     const struct scout_l2_watch *watch, char *why)
{
	int fd = openat(folder, name, O_RDONLY | O_CLOEXEC), outcome;
	char more;

	(void)store, (void)flags;
	if (fd < 0)
		return failed(why);
	outcome = move(fd, parts, n, get, watch, why);
	if (outcome == SCOUT_L2_DONE && read(fd, &more, 1) != 0)
		outcome = SCOUT_L2_WRONG_SIZE;
	close(fd);
	return outcome;
}

/*
 * Written under another name, then renamed: it appears whole. A record replaces the one before, an object that is there stays. A server
 * that is killed leaves such a file, with a dot in its name; a store for more than an example removes those when it opens.
 */
static int
store_parts(void *store, const char *name, uint32_t flags, const struct iovec *parts, uint32_t n,
	    const struct scout_l2_watch *watch, char *why)
{
	char temporary[64];
	int fd, outcome;

	(void)store;
	snprintf(temporary, sizeof(temporary), "%s.%d.%lx", name, (int)getpid(), (unsigned long)(uintptr_t)&fd);
	fd = openat(folder, temporary, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0)
		return failed(why);
	outcome = move(fd, parts, n, put, watch, why);
	if (outcome == SCOUT_L2_DONE &&
	    (flags & SCOUT_L2_RECORD ? fsync(fd) || renameat(folder, temporary, folder, name)
				     : linkat(folder, temporary, folder, name, 0)))
		outcome = errno == EEXIST ? SCOUT_L2_PRESENT : failed(why);
	close(fd);
	unlinkat(folder, temporary, 0);
	return outcome;
}

static int
remove_name(void *store, const char *name, const struct scout_l2_watch *watch, char *why)
{
	(void)store, (void)watch;
	return unlinkat(folder, name, 0) == 0 || errno == ENOENT ? SCOUT_L2_DONE : failed(why);
}

static void
close_store(void *store)
{
	close(*(int *)store);
}

const struct scout_l2_plugin *
scout_l2_plugin(void)
{
	static const struct scout_l2_plugin plugin = {
		sizeof(plugin), SCOUT_L2_PLUGIN_VERSION, open_store, exists, load, store_parts, remove_name,
		close_store};

	return &plugin;
}
