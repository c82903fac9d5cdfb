/* SPDX-License-Identifier: Apache-2.0 */
#include "files_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

/*
 * DESIGN
 *
 * Purpose: rebuild the catalogue. After a start the folder is walked once: the catalogue takes each file with an
 * object's name whose header is whole, has that name, and says the file's length. Other files with such a name, and
 * temporary files of earlier starts, are remains of a crash and are removed. Payloads are not read: a load verifies
 * them. What begins with other bytes than an object of ours stays, as does any other name, and is logged.
 *
 * Objects of another format (of a former release, say) have names that no question asks for. They stay, because the
 * operator decides when to remove them, and are in the catalogue as the oldest of all, so that max_bytes pushes them
 * out first. With remove_old=1 they are removed here.
 *
 * Loads and stores go on meanwhile. The scan claims each name before it looks, as a store does, so the two never meet;
 * an object that is in the catalogue already was stored or examined since the start.
 *
 * The order of use survives as well as files keep it: the later of access and modification time (loads write it, at
 * most once a minute for each object). Objects come in as the folder lists them; when all are known they are put in
 * order, after everything that was used since.
 *
 * With shared=1 there is no catalogue to rebuild. Temporary files of others may be in use, so only files that were not
 * written for an hour, by the clock of that file system, are removed.
 *
 * Threads: its own.
 */

#define PROGRESS_US 5000000u
#define ABANDONED_S 3600
#define ORDER_SLICE 4096u

struct found {
	uint64_t when; /* ns since 1970 */
	uint32_t entry;
};

struct folder_scan {
	struct scout__files *files;
	uint64_t begun_us, progress_us;
	struct scout__log_limit limit;
	struct found *found;
	size_t n_found, cap_found;
	uint64_t n_objects, bytes, n_leftover, n_foreign;
	uint64_t n_other, other_bytes; /* of another format */
	time_t now;                    /* shared: the file system's time */
};

/* ---- folders ---- */

static bool
is_stopping(const struct folder_scan *scan)
{
	return scout__files_is_stopping(scan->files);
}

typedef void (*entry_fn)(struct folder_scan *scan, const char *folder, const char *name);

/* Call @fn with each entry of @folder. What cannot be listed is logged and left out. */
static void
walk(struct folder_scan *scan, const char *folder, entry_fn fn)
{
	int fd = openat(scan->files->root.fd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!dir) {
		scout__log(scan->files->log, SCOUT_LOG_WARN, "files tier %s: %s cannot be listed (%s)",
			   scan->files->path, folder, scout__errno_text(errno));
		if (fd >= 0)
			(void)close(fd);
		return;
	}
	/* NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of this thread only */
	while (!is_stopping(scan) && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			fn(scan, folder, entry->d_name);
	(void)closedir(dir);
}

static void
foreign(struct folder_scan *scan, const char *folder, const char *name)
{
	scan->n_foreign++;
	scout__log_limited(scan->files->log, &scan->limit, scout__now_us(), PROGRESS_US, SCOUT_LOG_WARN,
			   "files tier %s: %s/%.80s was not made by kvscout; it stays in place", scan->files->path,
			   folder, name);
}

static void
leftover_removed(struct folder_scan *scan)
{
	scan->n_leftover++;
	scout__files_count(&scan->files->leftover);
}

/* ---- objects ---- */

static uint64_t
ns_of(struct timespec ts)
{
	return ts.tv_sec < 0 ? 0 : (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* 0: a good file; FILES_DAMAGED, _OTHER_FORMAT, _FOREIGN; or an errno value: not known. */
static int
examine(const struct folder_scan *scan, const char *path, struct scout__l2_digest digest, uint64_t *ret_bytes,
	struct stat *ret_st)
{
	uint8_t bytes[SCOUT__L2_HEADER_BYTES] = {0};
	struct scout__l2_header header;
	int fd = openat(scan->files->root.fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	int rc = 0;

	if (fd < 0 && errno != ELOOP)
		return errno;
	if (fd < 0)
		return fstatat(scan->files->root.fd, path, ret_st, AT_SYMLINK_NOFOLLOW) ? errno : SCOUT__FILES_DAMAGED;
	if (fstat(fd, ret_st) != 0)
		rc = errno;
	else if (!S_ISREG(ret_st->st_mode))
		rc = SCOUT__FILES_DAMAGED;
	/* No readahead: only one block of each file is wanted. */
	if (rc == 0)
		(void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	if (rc == 0)
		rc = scout__files_read_header(fd, bytes);
	(void)close(fd);
	if (rc <= 0 && scout__l2_header_is_foreign(bytes))
		return SCOUT__FILES_FOREIGN;
	if (rc)
		return rc;
	if (scout__l2_header_is_other_format(bytes) && ret_st->st_size >= (off_t)SCOUT__FILES_PAYLOAD) {
		*ret_bytes = (uint64_t)ret_st->st_size - SCOUT__FILES_PAYLOAD;
		return SCOUT__FILES_OTHER_FORMAT;
	}
	if (scout__l2_header_get(bytes, &header) != SCOUT__L2_HEADER_OK || header.key.digest.lo != digest.lo ||
	    header.key.digest.hi != digest.hi || header.bytes > INT64_MAX - SCOUT__FILES_PAYLOAD ||
	    (uint64_t)ret_st->st_size != SCOUT__FILES_PAYLOAD + header.bytes)
		return SCOUT__FILES_DAMAGED;
	*ret_bytes = header.bytes;
	return 0;
}

/* Note when the object was used. Without memory, the order is a little worse. */
static void
remember_order(struct folder_scan *scan, uint32_t entry, uint64_t when)
{
	if (scan->n_found == scan->cap_found) {
		size_t cap = scan->cap_found ? scan->cap_found * 2 : 1024;
		struct found *more = realloc(scan->found, cap * sizeof(*more));

		if (!more)
			return;
		scan->found = more;
		scan->cap_found = cap;
	}
	scan->found[scan->n_found++] = (struct found){.when = when, .entry = entry};
}

static uint64_t
last_use_of(const struct stat *st)
{
	uint64_t read = ns_of(st->st_atim), written = ns_of(st->st_mtim);

	return read > written ? read : written;
}

/* An object of another format: the oldest of all, or removed. 0 or an errno value. */
static int
judge_other(struct folder_scan *scan, const char *path, uint64_t bytes, const struct stat *st, uint32_t entry)
{
	struct scout__files *files = scan->files;
	int rc = 0;

	scan->n_other++;
	scan->other_bytes += bytes;
	if (!files->remove_old) {
		scout__cat_adopt(&files->cat, entry, scout__files_disk_bytes(files, bytes));
		remember_order(scan, entry, 0);
		return 0;
	}
	rc = scout__files_remove_same(files, path, st);
	scout__cat_drop(&files->cat, entry);
	return rc;
}

static void
judge_object(struct folder_scan *scan, const char *path, struct scout__l2_digest digest, uint32_t entry)
{
	struct scout__files *files = scan->files;
	struct stat st = {.st_nlink = 0};
	uint64_t bytes = 0;
	int rc = examine(scan, path, digest, &bytes, &st);

	if (rc == 0) {
		bytes = scout__files_disk_bytes(files, bytes);
		scout__cat_adopt(&files->cat, entry, bytes);
		remember_order(scan, entry, last_use_of(&st));
		scout__files_count(&files->recovered);
		scan->n_objects++;
		scan->bytes += bytes;
		return;
	}
	if (rc == SCOUT__FILES_OTHER_FORMAT) {
		rc = judge_other(scan, path, bytes, &st, entry);
	} else if (rc == SCOUT__FILES_FOREIGN) {
		scout__cat_drop(&files->cat, entry);
		foreign(scan, ".", path);
		return;
	} else {
		if (rc == SCOUT__FILES_DAMAGED)
			rc = scout__files_remove_same(files, path, &st);
		scout__cat_drop(&files->cat, entry);
		if (rc == 0)
			leftover_removed(scan);
	}
	if (rc != 0 && rc != ENOENT)
		scout__log_limited(files->log, &scan->limit, scout__now_us(), PROGRESS_US, SCOUT_LOG_WARN,
				   "files tier %s: %s cannot be read or removed (%s)", files->path, path,
				   scout__errno_text(rc));
}

static void
progress(struct folder_scan *scan, const char *folder)
{
	uint64_t now_us = scout__now_us();

	if (now_us < scan->progress_us)
		return;
	scan->progress_us = now_us + PROGRESS_US;
	scout__log(scan->files->log, SCOUT_LOG_INFO,
		   "files tier %s: %" PRIu64 " objects of %" PRIu64 " MiB found so far, now in %s of 00/00..ff/ff",
		   scan->files->path, scan->n_objects, scan->bytes >> 20, folder);
}

static void
see_object(struct folder_scan *scan, const char *folder, const char *name)
{
	struct scout__l2_digest digest;
	char path[SCOUT__FILES_PATH];
	uint32_t entry;

	if (strlen(name) != 32 || !scout__l2_digest_parse(name, &digest)) {
		foreign(scan, folder, name);
		return;
	}
	progress(scan, folder);
	scout__files_object_path(digest, path);
	if (strncmp(path, folder, 5) != 0) {
		struct stat st;
		uint64_t bytes;

		/* The file is in a folder where no load looks for it. */
		(void)snprintf(path, sizeof(path), "%.5s/%.32s", folder, name);
		if (examine(scan, path, digest, &bytes, &st) == SCOUT__FILES_FOREIGN)
			foreign(scan, folder, name);
		else if (unlinkat(scan->files->root.fd, path, 0) == 0)
			leftover_removed(scan);
		return;
	}
	/* A deadline in the past: a name that another thread has claimed is being stored or removed at this moment. */
	if (scout__cat_try_claim(&scan->files->cat, digest, 0, &entry) == SCOUT__CAT_CLAIMED)
		judge_object(scan, path, digest, entry);
}

static void
see_inner(struct folder_scan *scan, const char *folder, const char *name)
{
	char inner[6];

	if (!scout__files_is_fan_name(name)) {
		foreign(scan, folder, name);
		return;
	}
	(void)snprintf(inner, sizeof(inner), "%.2s/%.2s", folder, name);
	walk(scan, inner, see_object);
}

static void
see_outer(struct folder_scan *scan, const char *folder, const char *name)
{
	if (scout__files_is_fan_name(name))
		walk(scan, name, see_inner);
	else if (strncmp(name, SCOUT__FILES_MARKER ".", sizeof(SCOUT__FILES_MARKER)) == 0) {
		/* From an interrupted set-up: the lock is ours, so that set-up is not running. */
		if (unlinkat(scan->files->root.fd, name, 0) == 0)
			leftover_removed(scan);
	} else if (strcmp(name, SCOUT__FILES_MARKER) != 0 && strcmp(name, SCOUT__FILES_TMP) != 0 &&
		   strncmp(name, SCOUT__FILES_RECORD, sizeof(SCOUT__FILES_RECORD) - 1) != 0 &&
		   strcmp(name, "lost+found") != 0)
		foreign(scan, folder, name);
}

/* ---- temporary files ---- */

static void
see_temporary(struct folder_scan *scan, const char *folder, const char *name)
{
	char path[SCOUT__FILES_PATH];
	uint64_t instance;
	struct stat st;

	if (!scout__files_is_temporary(name, &instance)) {
		foreign(scan, folder, name);
		return;
	}
	if (instance == scan->files->root.instance)
		return;
	(void)snprintf(path, sizeof(path), "%s/%.40s", folder, name);
	if (scan->files->shared && (fstatat(scan->files->root.fd, path, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
				    st.st_mtime > scan->now - ABANDONED_S))
		return;
	if (unlinkat(scan->files->root.fd, path, 0) == 0)
		leftover_removed(scan);
}

/* The time by the file system's own clock, from a file that is written now. */
static time_t
file_time(struct scout__files *files)
{
	char tmp[SCOUT__FILES_PATH];
	struct stat st = {.st_mtime = 0};
	int fd;

	scout__files_temporary_path(files, tmp);
	fd = openat(files->root.fd, tmp, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0)
		return 0;
	if (write(fd, "", 1) != 1 || fstat(fd, &st) != 0)
		st.st_mtime = 0; /* then nothing is abandoned */
	(void)close(fd);
	(void)unlinkat(files->root.fd, tmp, 0);
	return st.st_mtime;
}

/* ---- the order ---- */

static int
newest_first(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	return (x->when < y->when) - (x->when > y->when);
}

static void
put_in_order(struct folder_scan *scan)
{
	uint32_t entries[ORDER_SLICE];

	if (scan->n_found > 1)
		qsort(scan->found, scan->n_found, sizeof(*scan->found), newest_first);
	for (size_t at = 0; at < scan->n_found && !is_stopping(scan);) {
		size_t n = 0;

		while (n < ORDER_SLICE && at < scan->n_found)
			entries[n++] = scan->found[at++].entry;
		scout__cat_order(&scan->files->cat, entries, n);
	}
}

/* ---- all ---- */

static void
rebuild(struct folder_scan *scan)
{
	struct scout__files *files = scan->files;
	int32_t detail;

	walk(scan, ".", see_outer);
	put_in_order(scan);
	free(scan->found);
	if (is_stopping(scan))
		return;
	if (!scout__files_make_room(files, NULL, &detail))
		scout__log(files->log, SCOUT_LOG_WARN,
			   "files tier %s: more than max_bytes is in use, and cannot be removed (%s)", files->path,
			   scout__errno_text(detail));
	scout__log(files->log, SCOUT_LOG_INFO,
		   "files tier %s: ready after %" PRIu64 " ms: %" PRIu64 " objects of %" PRIu64
		   " MiB taken over, %" PRIu64 " leftovers of a crash removed, %" PRIu64 " foreign names left in place",
		   files->path, (scout__now_us() - scan->begun_us) / 1000, scan->n_objects, scan->bytes >> 20,
		   scan->n_leftover, scan->n_foreign);
	if (scan->n_other)
		scout__log(files->log, SCOUT_LOG_WARN,
			   "files tier %s: %" PRIu64 " objects of %" PRIu64
			   " MiB are of another format, as an upgrade leaves them: %s",
			   files->path, scan->n_other, scan->other_bytes >> 20,
			   files->remove_old ? "removed"
					     : "they stay unused; set remove_old=1 once to remove them at the start");
}

void
scout__files_scan(struct scout__files *files)
{
	uint64_t now_us = scout__now_us();
	struct folder_scan scan = {.files = files, .begun_us = now_us, .progress_us = now_us + PROGRESS_US};

	if (files->shared) {
		atomic_store_explicit(&files->ready, true, memory_order_release);
		scan.now = file_time(files);
		walk(&scan, SCOUT__FILES_TMP, see_temporary);
		return;
	}
	walk(&scan, SCOUT__FILES_TMP, see_temporary);
	rebuild(&scan);
	if (!scout__files_is_stopping(files))
		atomic_store_explicit(&files->ready, true, memory_order_release);
}
