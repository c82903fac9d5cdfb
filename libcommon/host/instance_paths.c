/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The folder of the instance. All processes that share a server must find the same folder, and no other user may
 * decide what they find there.
 *
 * - Its name has the user's number (in /tmp) and the inode number of the IPC namespace: processes of containers that
 *   share a file system by chance do not meet. Containers that share both (a pod with a common volume) do. It also has
 *   the kernel's boot id: the first IPC namespace has one number on every host, and a home on NFS is seen by many.
 * - It belongs to this user and only this user may write it; a symbolic link is refused. A folder of another user under
 *   our name in /tmp is refused too: it could name any server.
 * - $XDG_RUNTIME_DIR counts only if it is this user's: su and sudo leave another user's in the environment. In setuid
 *   programs it does not count at all.
 *
 * Threads: any; no state.
 */
#include "instance_paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <kvscout/error.h>

#include "log.h"

static const char word[] = "auto";
static const char scheme[] = "auto://";

#define SOCKET_NAME "kvscout.sock"
#define SOCKET_PATH_MAX (sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1 - sizeof(".lease"))

bool
scout__instance_is_auto(const char *endpoint)
{
	return !endpoint || strcmp(endpoint, word) == 0 || strncmp(endpoint, scheme, sizeof(scheme) - 1) == 0;
}

/* Whether others can neither write @path nor have put it there. */
static int
check_folder(const char *path, char *err, size_t err_len)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	int rc;

	if (fd < 0)
		return scout__fail(err, err_len, SCOUT_ERR_PERMISSION,
				   "%s: not a folder that this user may read (%s), so no server can be shared there",
				   path, scout__errno_text(errno));
	rc = fstat(fd, &st);
	(void)close(fd);
	if (rc != 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "%s: fstat (%s)", path, scout__errno_text(errno));
	if (st.st_uid != geteuid())
		return scout__fail(
			err, err_len, SCOUT_ERR_PERMISSION,
			"%s belongs to uid %u, this process is uid %u: only the owner may share a server there", path,
			(unsigned)st.st_uid, (unsigned)geteuid());
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return scout__fail(
			err, err_len, SCOUT_ERR_PERMISSION,
			"%s may be written by others (mode %03o): they could put another server there; chmod 700", path,
			(unsigned)(st.st_mode & 07777));
	return 0;
}

static int
make_folder(const char *path, bool makes, char *err, size_t err_len)
{
	if (makes && strrchr(path, '/') == path && access(path, F_OK) != 0)
		return scout__fail(
			err, err_len, SCOUT_ERR_INVALID,
			"%s: there is no such folder, and none is made in /: make it, or correct the endpoint or "
			"XDG_RUNTIME_DIR",
			path);
	if (makes && mkdir(path, 0700) != 0 && errno != EEXIST)
		return scout__fail(err, err_len,
				   errno == EACCES || errno == EPERM || errno == EROFS ? SCOUT_ERR_PERMISSION
										       : SCOUT_ERR_SYSTEM,
				   "%s: the folder for the server of this host cannot be made (%s)", path,
				   scout__errno_text(errno));
	return check_folder(path, err, err_len);
}

static bool
is_runtime_folder(const char *path)
{
	struct stat st;

	return path && path[0] == '/' && strlen(path) <= 48 && stat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
	       st.st_uid == geteuid() && (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

static int
join(char path[SCOUT__INSTANCE_PATH], const char *folder, const char *name, char *err, size_t err_len)
{
	if (snprintf(path, SCOUT__INSTANCE_PATH, "%s/%s", folder, name) < (int)SCOUT__INSTANCE_PATH)
		return 0;
	return scout__fail(err, err_len, SCOUT_ERR_INVALID, "%s: the path is too long", folder);
}

int
scout__instance_open(const char *folder, struct scout__instance *ret_instance, char *err, size_t err_len)
{
	struct scout__instance in;
	int rc = check_folder(folder, err, err_len);

	if (rc)
		return rc;
	if (snprintf(in.folder, sizeof(in.folder), "%s", folder) >= (int)sizeof(in.folder) ||
	    strlen(folder) + 1 + strlen(SOCKET_NAME) > SOCKET_PATH_MAX)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID,
				   "%s: %zu bytes are too long for the folder of a socket, at most %zu fit", folder,
				   strlen(folder), SOCKET_PATH_MAX - 1 - strlen(SOCKET_NAME));
	rc = join(in.socket, folder, SOCKET_NAME, err, err_len);
	if (rc == 0)
		rc = join(in.lock, folder, "server.lock", err, err_len);
	if (rc == 0)
		rc = join(in.log, folder, "kvscoutd.log", err, err_len);
	if (rc == 0)
		rc = join(in.old_log, folder, "kvscoutd.log.1", err, err_len);
	if (rc == 0)
		*ret_instance = in;
	return rc;
}

/* The folder that holds the folders of the namespaces. */
static int
base_folder(const char *endpoint, char path[SCOUT__INSTANCE_PATH], char *err, size_t err_len)
{
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
	const char *given = endpoint && strcmp(endpoint, word) != 0 ? endpoint + sizeof(scheme) - 1 : NULL;
	size_t len;

	if (given) {
		if (given[0] != '/' || given[1] == '\0')
			return scout__fail(err, err_len, SCOUT_ERR_INVALID,
					   "endpoint \"%s\": must be auto, or auto:// and an absolute folder",
					   endpoint);
		len = strlen(given);
		while (len > 1 && given[len - 1] == '/')
			len--;
		if (snprintf(path, SCOUT__INSTANCE_PATH, "%.*s", (int)len, given) >= (int)SCOUT__INSTANCE_PATH)
			return scout__fail(err, err_len, SCOUT_ERR_INVALID, "endpoint \"%s\": the folder is too long",
					   endpoint);
		return 0;
	}
	if (is_runtime_folder(runtime))
		return join(path, runtime, "kvscout", err, err_len);
	(void)snprintf(path, SCOUT__INSTANCE_PATH, "/tmp/kvscout-%u", (unsigned)geteuid());
	return 0;
}

/* The first 8 digits of the number of this start of the kernel; "" without /proc. */
static void
boot_id(char ret_id[9])
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, ret_id, 8);

	ret_id[n == 8 ? 8 : 0] = '\0';
	if (fd >= 0)
		(void)close(fd);
}

static int
find(const char *endpoint, bool makes, struct scout__instance *ret_instance, char *err, size_t err_len)
{
	char base[SCOUT__INSTANCE_PATH], folder[SCOUT__INSTANCE_PATH], name[40], boot[9];
	struct stat ns = {0};
	int rc = base_folder(endpoint, base, err, err_len);

	/* Without /proc all processes count as one namespace of one host. */
	(void)stat("/proc/self/ns/ipc", &ns);
	boot_id(boot);
	(void)snprintf(name, sizeof(name), "ipc-%llu-%s", (unsigned long long)ns.st_ino, boot);
	if (rc == 0)
		rc = make_folder(base, makes, err, err_len);
	if (rc == 0)
		rc = join(folder, base, name, err, err_len);
	if (rc == 0)
		rc = make_folder(folder, makes, err, err_len);
	if (rc == 0)
		rc = scout__instance_open(folder, ret_instance, err, err_len);
	return rc;
}

int
scout__instance_find(const char *endpoint, struct scout__instance *ret_instance, char *err, size_t err_len)
{
	return find(endpoint, true, ret_instance, err, err_len);
}

int
scout__instance_look(const char *endpoint, struct scout__instance *ret_instance, char *err, size_t err_len)
{
	return find(endpoint, false, ret_instance, err, err_len);
}

int
scout__socket_error(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;

	if (fd < 0)
		return errno;
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%.*s", (int)sizeof(address.sun_path) - 1, path);
	/* EAGAIN: its queue of connections is full. */
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 && errno != EAGAIN)
		error = errno;
	(void)close(fd);
	return error;
}

bool
scout__instance_listens(const struct scout__instance *instance)
{
	return scout__socket_error(instance->socket) == 0;
}
