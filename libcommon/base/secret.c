/* SPDX-License-Identifier: Apache-2.0 */
#include "secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvscout/error.h>

#include "log.h"

int
scout__regular_open(const char *what, const char *path, int code, char *err, size_t err_len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0)
		return scout__fail(err, err_len, errno == EACCES ? SCOUT_ERR_PERMISSION : code,
				   "%s %s cannot be read (%s)", what, path, scout__errno_text(errno));
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		return fd;
	(void)close(fd); /* read only: nothing is lost */
	return scout__fail(err, err_len, code, "%s %s: must be a regular file", what, path);
}

/* False also if there is no memory for the list: then the file is refused. */
static bool
is_own_group(gid_t group)
{
	bool found = group == getegid();
	int n = found ? 0 : getgroups(0, NULL);
	gid_t *groups = n > 0 ? calloc((size_t)n, sizeof(*groups)) : NULL;

	n = groups ? getgroups(n, groups) : 0;
	for (int i = 0; i < n && !found; i++)
		found = groups[i] == group;
	free(groups);
	return found;
}

int
scout__secret_judge(int fd, const char *what, const char *path, char *err, size_t err_len)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_PERMISSION, "%s %s cannot be looked at (%s)", what, path,
				   scout__errno_text(errno));
	if ((st.st_uid == 0 || st.st_uid == geteuid()) && !(st.st_mode & 007) &&
	    (!(st.st_mode & 070) || is_own_group(st.st_gid)))
		return 0;
	return scout__fail(
		err, err_len, SCOUT_ERR_PERMISSION,
		"%s %s has mode %04o, owner %u and group %u: its owner must be root or this process's user (%u), others "
		"must have no rights (chmod 600), and its group only if this process is in it",
		what, path, (unsigned)st.st_mode & 07777, (unsigned)st.st_uid, (unsigned)st.st_gid,
		(unsigned)geteuid());
}

int
scout__secret_open(const char *what, const char *path, int code, char *err, size_t err_len)
{
	int fd = scout__regular_open(what, path, code, err, err_len), rc;

	if (fd < 0)
		return fd;
	rc = scout__secret_judge(fd, what, path, err, err_len);
	if (rc == 0)
		return fd;
	(void)close(fd); /* read only: nothing is lost */
	return rc;
}
