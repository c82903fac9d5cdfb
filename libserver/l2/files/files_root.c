/* SPDX-License-Identifier: Apache-2.0 */
#include "files_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "fork_guard.h"

/*
 * DESIGN
 *
 * Purpose: take the folder of a files adapter, or refuse it. A mistyped path must not cost a user any file: a folder
 * without the marker is taken only if no name in it is of another kind than ours, and the scan leaves what does not begin
 * as an object of ours. The marker appears whole, by a rename of a file that was written under another name, so there is
 * no half-made folder: files of an interrupted set-up begin with the marker's name and do not count. Nor does
 * "lost+found", because a separate file system is a fine place.
 *
 * The lock is one of the open file (OFD) on the marker: the kernel drops it when the process ends, however it ends, and
 * a second adapter in this very process is refused too. A private user (shared=0) takes the lock for writing and puts
 * its pid into the marker. Shared users take it for reading if the file system can: they do not exclude each other, but
 * exclude a private user, which would evict what they rely on.
 *
 * Operators empty and remove such folders while a server runs. The lock is worth nothing then: it is on a file that
 * nobody finds. So the marker is looked at again and again, and a folder without it is taken anew, as at a start.
 *
 * Threads: the one that starts the server, then the one that scans.
 */

#define MARKER_TITLE "kvscout L2 files "
#define MARKER_VERSION 1
#define MARKER_BYTES_MAX 127
#define TRIES 16

struct marker {
	char id[33];
	long pid;
};

static int
code_of(int errnum)
{
	return errnum == EACCES || errnum == EPERM || errnum == EROFS ? SCOUT_ERR_PERMISSION : SCOUT_ERR_SYSTEM;
}

static int
open_folder(const char *path, int *ret_fd, char *err, size_t err_len)
{
	int fd;

	if (mkdir(path, 0700) != 0 && errno != EEXIST && errno != EROFS) {
		if (errno == ENOENT || errno == ENOTDIR)
			return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
					   "%s: the folder that it would be made in does not exist", path);
		return scout__fail(err, err_len, code_of(errno), "%s cannot be made (%s)", path,
				   scout__errno_text(errno));
	}
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && errno == ENOTDIR)
		return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE, "%s is not a folder", path);
	if (fd < 0)
		return scout__fail(err, err_len, code_of(errno), "%s cannot be opened (%s)", path,
				   scout__errno_text(errno));
	scout__fork_guard_add(fd);
	*ret_fd = fd;
	return 0;
}

static bool
counts_as_nothing(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "lost+found") == 0 ||
	       strcmp(name, SCOUT__FILES_TMP) == 0 || scout__files_is_fan_name(name) ||
	       strncmp(name, SCOUT__FILES_MARKER, sizeof(SCOUT__FILES_MARKER) - 1) == 0 ||
	       strncmp(name, SCOUT__FILES_RECORD, sizeof(SCOUT__FILES_RECORD) - 1) == 0;
}

/* Returns 0, or an error that names something in the folder. */
static int
check_empty(int root, const char *path, char *err, size_t err_len)
{
	int fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	int rc = 0;

	if (!dir) {
		rc = scout__fail(err, err_len, code_of(errno), "%s cannot be listed (%s)", path,
				 scout__errno_text(errno));
		if (fd >= 0)
			(void)close(fd);
		return rc;
	}
	/* NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of this thread only */
	while (rc == 0 && (entry = readdir(dir)))
		if (!counts_as_nothing(entry->d_name))
			rc = scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
					 "%s is not empty (\"%.60s\") and has no " SCOUT__FILES_MARKER
					 " file: it is not a folder of kvscout's, and nothing in it was touched",
					 path, entry->d_name);
	(void)closedir(dir);
	return rc;
}

static int
write_marker(int fd, const struct marker *marker)
{
	char text[MARKER_BYTES_MAX + 1];
	/* The text has one length whatever the pid, so that it can be overwritten. */
	int n = snprintf(text, sizeof(text), MARKER_TITLE "%d\nid %s\npid %-20ld\n", MARKER_VERSION, marker->id,
			 marker->pid);

	if (pwrite(fd, text, (size_t)n, 0) != n)
		return errno ? errno : EIO;
	return 0;
}

/* Make the folder ours; if another process is faster, that is as good. */
static int
make_marker(const struct scout__files_root *root, const char *path, char *err, size_t err_len)
{
	struct marker marker = {.pid = 0};
	uint64_t id[2];
	char name[sizeof(SCOUT__FILES_MARKER) + 18];
	int fd, rc;

	if (getrandom(id, sizeof(id), 0) != (ssize_t)sizeof(id))
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "getrandom: %s", scout__errno_text(errno));
	(void)snprintf(marker.id, sizeof(marker.id), "%016" PRIx64 "%016" PRIx64, id[0], id[1]);
	(void)snprintf(name, sizeof(name), SCOUT__FILES_MARKER ".%016" PRIx64, root->instance);
	fd = openat(root->fd, name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return scout__fail(err, err_len, code_of(errno), "%s cannot be written (%s)", path,
				   scout__errno_text(errno));
	errno = 0;
	rc = write_marker(fd, &marker);
	if (rc == 0 && fsync(fd) != 0)
		rc = errno;
	(void)close(fd);
	if (rc == 0)
		rc = scout__files_rename_new(root->fd, name, SCOUT__FILES_MARKER);
	if (rc)
		(void)unlinkat(root->fd, name, 0);
	if (rc && rc != EEXIST)
		return scout__fail(err, err_len, code_of(rc), "%s cannot be written (%s)", path, scout__errno_text(rc));
	return 0;
}

static int
open_marker(struct scout__files_root *root, const char *path, bool shared, char *err, size_t err_len)
{
	for (int i = 0; i < TRIES; i++) {
		int rc;

		root->marker_fd = openat(root->fd, SCOUT__FILES_MARKER,
					 (shared ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		if (root->marker_fd >= 0) {
			scout__fork_guard_add(root->marker_fd);
			return 0;
		}
		if (errno != ENOENT)
			return scout__fail(err, err_len, code_of(errno),
					   "%s/" SCOUT__FILES_MARKER " cannot be opened (%s)", path,
					   scout__errno_text(errno));
		rc = check_empty(root->fd, path, err, err_len);
		if (rc == 0)
			rc = make_marker(root, path, err, err_len);
		if (rc)
			return rc;
	}
	return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "%s/" SCOUT__FILES_MARKER " comes and goes", path);
}

/* Returns SCOUT_ERR_CONFIG_RANGE for what is not a marker that this version can read. */
static int
read_marker(int fd, const char *path, struct marker *ret_marker, char *err, size_t err_len)
{
	char text[MARKER_BYTES_MAX + 1] = "";
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
	struct scout__l2_digest id;
	const char *at = text + sizeof(MARKER_TITLE) - 1;
	char *end;
	long version;

	if (n < 0)
		return scout__fail(err, err_len, code_of(errno), "%s/" SCOUT__FILES_MARKER " cannot be read (%s)", path,
				   scout__errno_text(errno));
	if (strncmp(text, MARKER_TITLE, sizeof(MARKER_TITLE) - 1) != 0)
		goto err_not_ours;
	version = strtol(at, &end, 10);
	if (end == at || *end != '\n')
		goto err_not_ours;
	if (version != MARKER_VERSION)
		return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
				   "%s has format %ld; this version of kvscout knows format %d only", path, version,
				   MARKER_VERSION);
	if (strncmp(end, "\nid ", 4) != 0 || strlen(end) < 36 + 5 || strncmp(end + 36, "\npid ", 5) != 0)
		goto err_not_ours;
	memcpy(ret_marker->id, end + 4, 32);
	ret_marker->id[32] = '\0';
	if (!scout__l2_digest_parse(ret_marker->id, &id))
		goto err_not_ours;
	ret_marker->pid = strtol(end + 36 + 5, NULL, 10);
	return 0;

err_not_ours:
	return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
			   "%s/" SCOUT__FILES_MARKER " is damaged or of another program; nothing was touched", path);
}

static int
take_lock(const struct scout__files_root *root, const char *path, bool shared, const struct marker *marker, char *err,
	  size_t err_len)
{
	struct flock lock = {.l_type = shared ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET};

	if (fcntl(root->marker_fd, F_OFD_SETLK, &lock) == 0)
		return 0;
	if (errno == EAGAIN || errno == EACCES) {
		if (marker->pid > 0)
			return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "%s is in use by process %ld", path,
					   marker->pid);
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "%s is in use by others (with shared=1)", path);
	}
	/* Many parallel file systems have no locks; among shared users nothing depends on it. */
	if (shared)
		return 0;
	return scout__fail(err, err_len, SCOUT_ERR_SYSTEM,
			   "%s cannot be locked (%s); a file system of several machines needs shared=1", path,
			   scout__errno_text(errno));
}

/* Write and remove a small file, so that a folder that cannot work fails the start. A full disk does not. */
static int
probe(const struct scout__files_root *root, const char *path, bool direct, char *err, size_t err_len)
{
	char name[SCOUT__FILES_PATH];
	void *block;
	int fd, rc = 0;

	(void)snprintf(name, sizeof(name), SCOUT__FILES_TMP "/%016" PRIx64 "-0", root->instance);
	fd = openat(root->fd, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | (direct ? O_DIRECT : 0), 0600);
	if (fd < 0 && errno == EINVAL && direct)
		return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
				   "direct=1: the file system of %s does not support direct I/O", path);
	if (fd < 0)
		return scout__fail(err, err_len, code_of(errno), "%s cannot be written (%s)", path,
				   scout__errno_text(errno));
	if (posix_memalign(&block, SCOUT__FILES_PAYLOAD, SCOUT__FILES_PAYLOAD)) {
		rc = scout__fail_no_memory(err, err_len);
	} else {
		memset(block, 0, SCOUT__FILES_PAYLOAD);
		if (pwrite(fd, block, SCOUT__FILES_PAYLOAD, 0) < 0 && direct && errno == EINVAL)
			rc = scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
					 "direct=1: the device of %s cannot write blocks of 4 KiB", path);
		free(block);
	}
	(void)close(fd);
	(void)unlinkat(root->fd, name, 0);
	return rc;
}

static uint32_t
block_bytes_of(int fd)
{
	struct statvfs vfs;

	if (fstatvfs(fd, &vfs) != 0 || vfs.f_frsize < 512 || vfs.f_frsize > UINT64_C(1) << 20 ||
	    (vfs.f_frsize & (vfs.f_frsize - 1)))
		return 4096;
	return (uint32_t)vfs.f_frsize;
}

static int
take_folder(struct scout__files_root *root, const char *path, bool shared, bool direct, char *err, size_t err_len)
{
	struct marker marker = {.pid = 0};
	int rc;

	rc = open_marker(root, path, shared, err, err_len);
	if (rc == 0)
		rc = read_marker(root->marker_fd, path, &marker, err, err_len);
	if (rc == 0)
		rc = take_lock(root, path, shared, &marker, err, err_len);
	if (rc)
		return rc;
	marker.pid = (long)getpid();
	errno = 0;
	/* Only an error sentence depends on the pid. */
	if (!shared && write_marker(root->marker_fd, &marker) == EROFS)
		return scout__fail(err, err_len, SCOUT_ERR_PERMISSION, "%s is on a read-only file system", path);
	if (mkdirat(root->fd, SCOUT__FILES_TMP, 0700) != 0 && errno != EEXIST)
		return scout__fail(err, err_len, code_of(errno), "%s cannot be written (%s)", path,
				   scout__errno_text(errno));
	root->block_bytes = block_bytes_of(root->fd);
	return probe(root, path, direct, err, err_len);
}

int
scout__files_root_open(const char *path, bool shared, bool direct, struct scout__files_root *ret_root, char *err,
		       size_t err_len)
{
	struct scout__files_root root = {.fd = -1, .marker_fd = -1};
	int rc;

	if (getrandom(&root.instance, sizeof(root.instance), 0) != (ssize_t)sizeof(root.instance))
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "getrandom: %s", scout__errno_text(errno));
	rc = open_folder(path, &root.fd, err, err_len);
	if (rc)
		return rc;
	rc = take_folder(&root, path, shared, direct, err, err_len);
	if (rc) {
		scout__files_root_close(&root);
		return rc;
	}
	*ret_root = root;
	return 0;
}

void
scout__files_root_close(struct scout__files_root *root)
{
	scout__fork_guard_close(root->marker_fd);
	scout__fork_guard_close(root->fd);
	root->marker_fd = root->fd = -1;
}

bool
scout__files_root_is_ours(const struct scout__files_root *root)
{
	struct stat there, ours;

	if (fstatat(root->fd, SCOUT__FILES_MARKER, &there, AT_SYMLINK_NOFOLLOW) != 0)
		return errno != ENOENT;
	return fstat(root->marker_fd, &ours) != 0 || (there.st_ino == ours.st_ino && there.st_dev == ours.st_dev);
}

int
scout__files_root_take_again(struct scout__files_root *root, const char *path, bool shared, bool direct, char *err,
			     size_t err_len)
{
	struct scout__files_root new;
	int rc = scout__files_root_open(path, shared, direct, &new, err, err_len);

	if (rc)
		return rc;
	/* Other threads use these numbers at this moment. A lock is the open file's, so it passes over. */
	if (dup3(new.fd, root->fd, O_CLOEXEC) < 0 || dup3(new.marker_fd, root->marker_fd, O_CLOEXEC) < 0)
		rc = scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "dup3: %s", scout__errno_text(errno));
	scout__files_root_close(&new);
	return rc;
}
