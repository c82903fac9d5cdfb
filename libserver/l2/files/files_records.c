/* SPDX-License-Identifier: Apache-2.0 */
#include "files_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * DESIGN
 *
 * Purpose: records, small files in the folder itself, apart from the objects, so that they are never evicted. A record
 * is written whole under a temporary name and is on the disk (fsync) before it replaces the old record, and the folder
 * is on the disk before the write completes: after a crash there is the old record or the new one.
 *
 * Threads: the transfer threads.
 */

static void
record_path(struct scout__l2_digest digest, char ret_path[SCOUT__FILES_PATH])
{
	char hex[33];

	scout__l2_digest_text(digest, hex);
	(void)snprintf(ret_path, SCOUT__FILES_PATH, SCOUT__FILES_RECORD "%s", hex);
}

int
scout__files_record_read(struct scout__files *files, struct scout__l2_op *op)
{
	char path[SCOUT__FILES_PATH];
	struct stat st;
	ssize_t n;
	int fd, rc = 0;

	record_path(op->digests[0], path);
	op->found[0] = 0;
	memset(op->data, 0, op->bytes);
	fd = openat(files->root.fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return errno == ENOENT ? 0 : errno;
	n = pread(fd, op->data, op->bytes, 0);
	if (n < 0 || fstat(fd, &st) != 0)
		rc = errno;
	else if ((uint64_t)st.st_size != op->bytes || (uint64_t)n != op->bytes)
		memset(op->data, 0, op->bytes);
	(void)close(fd);
	op->found[0] = rc == 0;
	return rc;
}

static int
write_file(const struct scout__files *files, const char *tmp, const uint8_t *data, uint64_t bytes)
{
	int flags = O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW;
	int fd = openat(files->root.fd, tmp, flags, 0600);
	ssize_t n;
	int rc = 0;

	if (fd < 0 && errno == ENOENT) {
		/* The folder of temporary files was removed. */
		(void)mkdirat(files->root.fd, SCOUT__FILES_TMP, 0700);
		fd = openat(files->root.fd, tmp, flags, 0600);
	}
	if (fd < 0)
		return errno;
	n = pwrite(fd, data, bytes, 0);
	if (n < 0)
		rc = errno;
	else if ((uint64_t)n != bytes)
		rc = ENOSPC;
	else if (fsync(fd) != 0)
		rc = errno;
	if (close(fd) != 0 && rc == 0 && errno != EINTR)
		rc = errno;
	return rc;
}

int
scout__files_record_write(struct scout__files *files, const struct scout__l2_op *op)
{
	char tmp[SCOUT__FILES_PATH], path[SCOUT__FILES_PATH];
	int rc;

	scout__files_temporary_path(files, tmp);
	record_path(op->digests[0], path);
	rc = write_file(files, tmp, op->data, op->bytes);
	if (rc == 0 && renameat(files->root.fd, tmp, files->root.fd, path) != 0)
		rc = errno;
	if (rc) {
		(void)unlinkat(files->root.fd, tmp, 0);
		return rc;
	}
	return scout__files_sync_folder(files, ".");
}
