/* SPDX-License-Identifier: Apache-2.0 */
#include "paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fork_guard.h"
#include "log.h"

/*
 * DESIGN
 *
 * The files next to an endpoint: the socket itself, PATH.lease and PATH.lock, or a private folder for them.
 *
 * zmq_bind() on an ipc path unlinks whatever is there, also the socket of a living server. So a lock comes first: an
 * open file with flock(), which the kernel drops when its process ends, however it ends. The holder of the lock owns
 * the socket paths and may remove what a dead server left. The holder unlinks the lock file before it lets go; a server
 * that got the lock of a file that was unlinked meanwhile opens the path again.
 *
 * A private folder stays when its server is killed; the next start removes it (paths_sweep.c).
 *
 * A user who can write the folder could replace the socket: so only this user and root may write it, or it is sticky. A folder that is
 * missing is made so: a volume that containers share may be written by all of them.
 *
 * Threads: the one that starts and stops the server.
 */

#define LOCK_TRIES 16

static int
check_folder(struct scout__paths *paths, const char *path, char *err, size_t err_len)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash == path ? 1 : (size_t)(slash - path);
	char folder[SCOUT__IPC_PATH_MAX + 1];
	struct stat st;

	memcpy(folder, path, len);
	folder[len] = '\0';
	if (mkdir(folder, 0700) == 0 && !(paths->made = strdup(folder)))
		return scout__fail_no_memory(err, err_len);
	if (stat(folder, &st) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_BIND, "%s: the folder cannot be used (%s)", folder,
				   scout__errno_text(errno));
	if (!S_ISDIR(st.st_mode))
		return scout__fail(err, err_len, SCOUT_ERR_BIND, "%s is not a folder: listen on a path in a folder",
				   folder);
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return scout__fail(err, err_len, SCOUT_ERR_PERMISSION,
				   "%s belongs to uid %u, who could replace the socket", folder, (unsigned)st.st_uid);
	if ((st.st_mode & (S_IWGRP | S_IWOTH)) && !(st.st_mode & S_ISVTX))
		return scout__fail(
			err, err_len, SCOUT_ERR_PERMISSION,
			"%s may be written by others (mode %03o) and is not sticky: they could replace the socket",
			folder, (unsigned)(st.st_mode & 07777));
	return 0;
}

/* Whether @fd still is what @path names. */
static bool
is_same_file(int fd, const char *path)
{
	struct stat a, b;

	return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static int
in_use(int fd, const char *path, char *err, size_t err_len)
{
	struct stat st = {0};
	bool known = fstat(fd, &st) == 0 && st.st_size > 0;

	return scout__fail(err, err_len, SCOUT_ERR_IN_USE,
			   "%s is held by a living server, pid %ld%s: stop it, or listen elsewhere", path,
			   known ? (long)st.st_size : 0, known ? "" : " (not known yet)");
}

/*
 * The length of the lock file is the server's pid. A page with data would be written back some time later, and on a busy disk the close
 * of the removed file waits for that, for seconds.
 */
static int
note_pid(int fd)
{
	return ftruncate(fd, (off_t)getpid());
}

/* flock() is bound to this open file, so a second server in this very process is refused as well. */
static int
take_lock(struct scout__paths *paths, char *err, size_t err_len)
{
	for (int i = 0; i < LOCK_TRIES; i++) {
		/* Guarded before it is locked: a child that was forked in between would hold the lock. */
		int fd = scout__fork_guard_open(paths->lock, O_CREAT | O_RDWR | O_NOFOLLOW, 0600, 0);
		int code;

		if (fd < 0)
			return scout__fail(err, err_len,
					   errno == EACCES || errno == EPERM ? SCOUT_ERR_PERMISSION : SCOUT_ERR_BIND,
					   "%s cannot be opened (%s)", paths->lock, scout__errno_text(errno));
		if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
			code = errno == EWOULDBLOCK
				       ? in_use(fd, paths->socket ? paths->socket : paths->dir, err, err_len)
				       : scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "flock %s: %s", paths->lock,
						     scout__errno_text(errno));
			scout__fork_guard_close(fd);
			return code;
		}
		if (is_same_file(fd, paths->lock)) {
			paths->lock_fd = fd;
			if (note_pid(fd) == 0)
				return 0;
			return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "%s cannot be written (%s)", paths->lock,
					   scout__errno_text(errno));
		}
		scout__fork_guard_close(fd);
	}
	return scout__fail(err, err_len, SCOUT_ERR_IN_USE, "%s is taken by one server after another: listen elsewhere",
			   paths->lock);
}

/* What a dead server left. Anything that is not a socket is not ours. */
static int
remove_stale(const char *path, char *err, size_t err_len)
{
	struct stat st;

	if (lstat(path, &st) != 0)
		return 0;
	if (!S_ISSOCK(st.st_mode))
		return scout__fail(err, err_len, SCOUT_ERR_BIND,
				   "%s exists and is not a socket: remove it, or listen elsewhere", path);
	if (unlink(path) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_PERMISSION, "%s cannot be removed (%s)", path,
				   scout__errno_text(errno));
	return 0;
}

/* A folder of our own: under the user's runtime folder if there is one that is short enough, else under /tmp. */
static int
make_folder(struct scout__paths *paths, char *err, size_t err_len)
{
	const char *base = secure_getenv("XDG_RUNTIME_DIR");

	if (!base || base[0] != '/' || !base[1] || strlen(base) > 48 || access(base, W_OK | X_OK) != 0)
		base = "/tmp";
	paths->n_swept = scout__paths_sweep(base);
	if (asprintf(&paths->dir, "%s/" SCOUT__PRIVATE_PREFIX "XXXXXX", base) < 0) {
		paths->dir = NULL;
		return scout__fail_no_memory(err, err_len);
	}
	if (!mkdtemp(paths->dir)) {
		free(paths->dir);
		paths->dir = NULL;
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "no folder can be made under %s (%s)", base,
				   scout__errno_text(errno));
	}
	return 0;
}

static char *
with_suffix(const char *path, const char *suffix)
{
	char *text;

	return asprintf(&text, "%s%s", path, suffix) < 0 ? NULL : text;
}

static int
open_ipc(struct scout__paths *paths, const char *path, char *err, size_t err_len)
{
	size_t max = SCOUT__IPC_PATH_MAX - (sizeof(SCOUT__LEASE_SUFFIX) - 1);
	int rc;

	if (path[0] != '/')
		return scout__fail(err, err_len, SCOUT_ERR_BIND, "ipc path \"%s\" must begin with /", path);
	if (strlen(path) > max)
		return scout__fail(err, err_len, SCOUT_ERR_BIND, "ipc path of %zu bytes: at most %zu fit", strlen(path),
				   max);
	rc = check_folder(paths, path, err, err_len);
	if (rc)
		return rc;
	paths->socket = with_suffix(path, "");
	paths->lease = with_suffix(path, SCOUT__LEASE_SUFFIX);
	paths->lock = with_suffix(path, SCOUT__LOCK_SUFFIX);
	if (!paths->socket || !paths->lease || !paths->lock)
		return scout__fail_no_memory(err, err_len);
	rc = take_lock(paths, err, err_len);
	if (rc)
		return rc;
	rc = remove_stale(paths->socket, err, err_len);
	if (rc == 0)
		rc = remove_stale(paths->lease, err, err_len);
	paths->sockets_are_ours = rc == 0;
	return rc;
}

static int
open_private(struct scout__paths *paths, char *err, size_t err_len)
{
	char *path;
	int rc = make_folder(paths, err, err_len);

	if (rc)
		return rc;
	path = with_suffix(paths->dir, "/" SCOUT__PRIVATE_SOCKET);
	if (!path)
		return scout__fail_no_memory(err, err_len);
	rc = open_ipc(paths, path, err, err_len);
	free(path);
	return rc;
}

/* tcp has no file of its own, but the lease socket is one; the lock says whether its server lives. */
static int
open_folder(struct scout__paths *paths, char *err, size_t err_len)
{
	int rc = make_folder(paths, err, err_len);

	if (rc)
		return rc;
	paths->lease = with_suffix(paths->dir, "/" SCOUT__PRIVATE_SOCKET SCOUT__LEASE_SUFFIX);
	paths->lock = with_suffix(paths->dir, "/" SCOUT__PRIVATE_SOCKET SCOUT__LOCK_SUFFIX);
	if (!paths->lease || !paths->lock)
		return scout__fail_no_memory(err, err_len);
	paths->sockets_are_ours = true;
	return take_lock(paths, err, err_len);
}

int
scout__paths_open(struct scout__paths *paths, const char *listen, char **ret_bind, char *err, size_t err_len)
{
	int rc;

	memset(paths, 0, sizeof(*paths));
	paths->lock_fd = -1;
	if (!listen)
		rc = open_private(paths, err, err_len);
	else if (strncmp(listen, "ipc://", 6) == 0)
		rc = open_ipc(paths, listen + 6, err, err_len);
	else if (strncmp(listen, "tcp://", 6) == 0)
		rc = open_folder(paths, err, err_len);
	else
		rc = scout__fail(err, err_len, SCOUT_ERR_UNSUPPORTED,
				 "listen \"%s\": only ipc:// and tcp:// are served", listen);
	if (rc)
		return rc;
	if (paths->socket)
		rc = asprintf(ret_bind, "ipc://%s", paths->socket);
	else
		rc = asprintf(ret_bind, "%s", listen);
	return rc < 0 ? scout__fail_no_memory(err, err_len) : 0;
}

void
scout__paths_close(struct scout__paths *paths)
{
	/* Files that are gone are fine. The lock is removed last: until then no other server makes these files. */
	if (paths->sockets_are_ours && paths->socket)
		(void)unlink(paths->socket);
	if (paths->sockets_are_ours && paths->lease)
		(void)unlink(paths->lease);
	if (paths->lock_fd >= 0) {
		(void)unlink(paths->lock);
		scout__fork_guard_close(paths->lock_fd);
	}
	if (paths->dir)
		(void)rmdir(paths->dir);
	free(paths->dir);
	free(paths->socket);
	free(paths->lease);
	free(paths->made);
	free(paths->lock);
	memset(paths, 0, sizeof(*paths));
	paths->lock_fd = -1;
}
