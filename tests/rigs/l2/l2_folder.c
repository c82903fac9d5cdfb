/* SPDX-License-Identifier: Apache-2.0 */
#include "l2_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "object.h"

static void
die(const char *what)
{
	(void)fprintf(stderr, "l2_folder: %s: errno %d\n", what, errno);
	abort();
}

static pid_t runner; /* of this program's cases */

static const char *
base_folder(bool in_memory)
{
	const char *base = in_memory && access("/dev/shm", W_OK) == 0 ? "/dev/shm" : secure_getenv("TMPDIR");

	return base ? base : "/tmp";
}

char *
l2_folder_make(bool in_memory)
{
	char *path;

	if (asprintf(&path, "%s/kvscout-l2-%d-XXXXXX", base_folder(in_memory), (int)runner) < 0 || !mkdtemp(path))
		die("mkdtemp");
	return path;
}

/* As remove_one(), but a process of the case may still write there. */
static int
remove_any(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	(void)remove(path);
	return 0;
}

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	if (remove(path) != 0)
		die(path);
	return 0;
}

void
l2_folder_remove(const char *path)
{
	if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0)
		die(path);
}

/* A case that fails or takes too long removes nothing, and what is left in /dev/shm takes memory until somebody looks. */
static void
remove_left_ones(void)
{
	char pattern[256];
	glob_t found;

	for (int in_memory = 0; in_memory <= 1 && getpid() == runner; in_memory++) {
		(void)snprintf(pattern, sizeof(pattern), "%s/kvscout-l2-%d-*", base_folder(in_memory), (int)runner);
		if (glob(pattern, 0, NULL, &found) != 0)
			continue;
		for (size_t i = 0; i < found.gl_pathc; i++)
			(void)nftw(found.gl_pathv[i], remove_any, 16, FTW_DEPTH | FTW_PHYS);
		globfree(&found);
	}
}

__attribute__((constructor)) static void
know_runner(void)
{
	runner = getpid();
	if (atexit(remove_left_ones) != 0)
		die("atexit");
}

/* ---- what is in it ---- */

/* nftw() has no argument for its user; one check at a time. */
static struct l2_folder_report *report;
static size_t root_len;

static bool
is_good(const char *path, const struct stat *st, uint64_t offset)
{
	struct scout__l2_header header;
	struct scout__l2_digest sum;
	char name[33];
	uint8_t *bytes;
	bool good = false;
	int fd;

	if ((uint64_t)st->st_size < offset)
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	bytes = malloc((size_t)st->st_size);
	if (fd < 0 || !bytes)
		die(path);
	if (pread(fd, bytes, (size_t)st->st_size, 0) == st->st_size &&
	    scout__l2_header_get(bytes, &header) == SCOUT__L2_HEADER_OK &&
	    header.bytes == (uint64_t)st->st_size - offset) {
		sum = scout__l2_sum(bytes + offset, header.bytes);
		scout__l2_digest_text(header.key.digest, name);
		good = sum.lo == header.sum.lo && sum.hi == header.sum.hi && strcmp(strrchr(path, '/') + 1, name) == 0;
	}
	free(bytes);
	(void)close(fd);
	return good;
}

/* Whether AA/BB/AABB... */
static bool
is_in_its_folder(const char *inside)
{
	return strncmp(inside + 1, inside + 7, 2) == 0 && strncmp(inside + 4, inside + 9, 2) == 0;
}

static void
bad(uint32_t *counter, const char *path)
{
	++*counter;
	if (!report->first_bad[0])
		(void)snprintf(report->first_bad, sizeof(report->first_bad), "%s", path);
}

static int
see(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	const char *inside = path + root_len;

	if (ftw->level == 0 || type == FTW_DP || type == FTW_D || strcmp(inside, "/kvscout-l2") == 0 ||
	    strncmp(inside, "/record-", 8) == 0)
		return 0;
	if (strncmp(inside, "/tmp/", 5) == 0) {
		bad(&report->temporaries, path);
	} else if (type != FTW_F || ftw->level != 3 || strlen(inside) != 1 + 3 + 3 + 32) {
		bad(&report->foreign, path);
	} else if (!is_in_its_folder(inside) || !is_good(path, st, 4096)) {
		bad(&report->damaged, path);
	} else {
		report->objects++;
		report->bytes += (uint64_t)st->st_blocks * 512;
	}
	return 0;
}

/* Records are shorter than a header. */
static int
see_flat(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	const char *inside = path + root_len;

	if (ftw->level == 0)
		return 0;
	if (strchr(inside, '.')) {
		bad(&report->temporaries, path);
	} else if (type != FTW_F || strlen(inside) != 1 + 32) {
		bad(&report->foreign, path);
	} else if (st->st_size >= SCOUT__L2_HEADER_BYTES) {
		if (!is_good(path, st, SCOUT__L2_HEADER_BYTES))
			bad(&report->damaged, path);
		else
			report->objects++;
	}
	return 0;
}

static void
check_all(const char *path, struct l2_folder_report *ret_report,
	  int (*see_one)(const char *, const struct stat *, int, struct FTW *))
{
	memset(ret_report, 0, sizeof(*ret_report));
	report = ret_report;
	root_len = strlen(path);
	if (nftw(path, see_one, 16, FTW_PHYS) != 0)
		die(path);
}

void
l2_folder_check(const char *path, struct l2_folder_report *ret_report)
{
	check_all(path, ret_report, see);
}

void
l2_folder_check_flat(const char *path, struct l2_folder_report *ret_report)
{
	check_all(path, ret_report, see_flat);
}

/* ---- processes ---- */

pid_t
crash_start(void (*main)(void *arg), void *arg)
{
	pid_t parent = getpid();
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	if (pid > 0)
		return pid;
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
		_exit(1);
	main(arg);
	_exit(1);
}

bool
crash_kill(pid_t pid)
{
	int status;

	(void)kill(pid, SIGKILL); /* one that has ended is still to be waited for */
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			die("waitpid");
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}
