/* SPDX-License-Identifier: Apache-2.0 */
#include "files_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY /* a streaming state on the stack */
#include <xxhash.h>
#ifdef HAVE_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#endif

/*
 * DESIGN
 *
 * Purpose: move the bytes of one object between a slot of the pool and a file, with nothing in between that can be
 * avoided.
 *
 * Data moves piece by piece, and each piece is summed while the kernel's copy of it (made or to be made) is in the
 * cache: the sum costs little more than the copy. The header is written last, so a file that was cut off has none.
 * Buffered I/O needs no bounce; direct I/O needs one only for what is not aligned: a payload's last piece, a slot that
 * does not begin on 4 KiB.
 *
 * With sync=1 the thread flushes every SYNC_PIECES pieces to the disk, and waits: else tens of megabytes would be left
 * to one fdatasync(), which reports no progress while it works.
 *
 * Nothing is read or written before the file's length was checked, and nothing is good before its sum was checked.
 *
 * A file never changes once it has its name, and no second file gets a name while a first one has it: so an open file
 * stays what it was, and "still the same inode" is enough to remove the damaged file and nothing else.
 *
 * Threads: any; a hand belongs to its thread.
 */

#define PAYLOAD SCOUT__FILES_PAYLOAD
#define PIECE SCOUT__FILES_PIECE
#define SYNC_PIECES 8u

void
scout__files_object_path(struct scout__l2_digest digest, char ret_path[SCOUT__FILES_PATH])
{
	scout__l2_digest_text(digest, ret_path + 6);
	memcpy(ret_path, ret_path + 6, 2);
	memcpy(ret_path + 3, ret_path + 8, 2);
	ret_path[2] = ret_path[5] = '/';
}

void
scout__files_temporary_path(struct scout__files *files, char ret_path[SCOUT__FILES_PATH])
{
	uint64_t n = atomic_fetch_add_explicit(&files->temporaries, 1, memory_order_relaxed) + 1;

	(void)snprintf(ret_path, SCOUT__FILES_PATH, SCOUT__FILES_TMP "/%016" PRIx64 "-%" PRIx64, files->root.instance,
		       n);
}

bool
scout__files_is_temporary(const char *name, uint64_t *ret_instance)
{
	static const char digits[] = "0123456789abcdef";
	size_t n = strspn(name, digits);
	uint64_t instance = 0;

	if (n != 16 || name[16] != '-' || name[17] == '\0' || strspn(name + 17, digits) > 16 ||
	    name[17 + strspn(name + 17, digits)] != '\0')
		return false;
	for (n = 0; n < 16; n++)
		instance = instance << 4 | (uint64_t)(strchr(digits, name[n]) - digits);
	*ret_instance = instance;
	return true;
}

/* ---- bytes ---- */

static int
write_all(int fd, const uint8_t *data, uint64_t len, uint64_t at)
{
	while (len > 0) {
		ssize_t n = pwrite(fd, data, len, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? errno : EIO;
		data += n;
		at += (uint64_t)n;
		len -= (uint64_t)n;
	}
	return 0;
}

/* Read at least @least of @len bytes; @len may reach beyond the end of the file: direct I/O reads whole blocks. */
static int
read_all(int fd, uint8_t *data, uint64_t len, uint64_t least, uint64_t at)
{
	uint64_t got = 0;

	while (got < least) {
		ssize_t n = pread(fd, data + got, len - got, (off_t)(at + got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno;
		if (n == 0)
			return SCOUT__FILES_DAMAGED;
		got += (uint64_t)n;
	}
	return 0;
}

static uint64_t
whole_blocks(uint64_t bytes)
{
	return (bytes + PAYLOAD - 1) / PAYLOAD * PAYLOAD;
}

static bool
is_aligned(const uint8_t *data, uint64_t len)
{
	return ((uintptr_t)data | len) % PAYLOAD == 0;
}

static int
write_piece(struct scout__files_hand *hand, int fd, const uint8_t *data, uint64_t len, uint64_t at)
{
	uint64_t padded = whole_blocks(len);

	if (!hand->files->direct || is_aligned(data, len))
		return write_all(fd, data, len, at);
	memcpy(hand->bounce, data, len);
	memset(hand->bounce + len, 0, padded - len);
	return write_all(fd, hand->bounce, padded, at);
}

static int
read_piece(struct scout__files_hand *hand, int fd, uint8_t *data, uint64_t len, uint64_t at)
{
	int rc;

	if (!hand->files->direct || is_aligned(data, len))
		return read_all(fd, data, len, len, at);
	rc = read_all(fd, hand->bounce, whole_blocks(len), len, at);
	if (rc == 0 && data != hand->bounce)
		memcpy(data, hand->bounce, len);
	return rc;
}

static struct scout__l2_digest
sum_of(const XXH3_state_t *state)
{
	XXH128_hash_t hash = XXH3_128bits_digest(state);

	return (struct scout__l2_digest){.lo = hash.low64, .hi = hash.high64};
}

/* Put what was written since the last call on the disk, without metadata. If this fails, fdatasync() is enough. */
static void
flush_pieces(int fd, uint64_t from, uint64_t to)
{
	(void)sync_file_range(fd, (off_t)(PAYLOAD + from), (off_t)(to - from),
			      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
}

static int
write_payload(struct scout__files_hand *hand, int fd, const uint8_t *data, uint64_t bytes,
	      struct scout__l2_digest *ret_sum)
{
	bool flushes = hand->files->sync && !hand->files->direct;
	uint64_t flushed = 0;
	XXH3_state_t state;

	XXH3_INITSTATE(&state);
	(void)XXH3_128bits_reset(&state);
	for (uint64_t at = 0; at < bytes; at += PIECE) {
		uint64_t len = bytes - at < PIECE ? bytes - at : PIECE;
		int rc;

		(void)XXH3_128bits_update(&state, data + at, len);
		rc = write_piece(hand, fd, data + at, len, PAYLOAD + at);
		if (rc)
			return rc;
		if (flushes && at + len - flushed >= SYNC_PIECES * PIECE) {
			flush_pieces(fd, flushed, at + len);
			flushed = at + len;
		}
		scout__l2_moved(hand->op);
	}
	*ret_sum = sum_of(&state);
	return 0;
}

/* Read into @data, or through the bounce if @data is NULL. */
static int
read_payload(struct scout__files_hand *hand, int fd, uint8_t *data, uint64_t bytes, struct scout__l2_digest *ret_sum)
{
	XXH3_state_t state;

	XXH3_INITSTATE(&state);
	(void)XXH3_128bits_reset(&state);
	for (uint64_t at = 0; at < bytes; at += PIECE) {
		uint64_t len = bytes - at < PIECE ? bytes - at : PIECE;
		uint8_t *to = data ? data + at : hand->bounce;
		int rc = read_piece(hand, fd, to, len, PAYLOAD + at);

		if (rc)
			return rc;
		scout__l2_moved(hand->op);
		(void)XXH3_128bits_update(&state, to, len);
	}
	*ret_sum = sum_of(&state);
	return 0;
}

/* ---- writing ---- */

static int
write_object(struct scout__files_hand *hand, int fd, const struct scout__l2_key *key, const uint8_t *data,
	     uint64_t bytes)
{
	const struct scout__files *files = hand->files;
	struct scout__l2_digest sum;
	int rc = write_payload(hand, fd, data, bytes, &sum);

	if (rc)
		return rc;
	memset(hand->bounce, 0, PAYLOAD);
	scout__l2_header_put(hand->bounce, key, bytes, sum);
	rc = write_all(fd, hand->bounce, PAYLOAD, 0);
	if (rc)
		return rc;
	/* The last piece was written in whole blocks. */
	if (files->direct && bytes % PAYLOAD && ftruncate(fd, (off_t)(PAYLOAD + bytes)) != 0)
		return errno;
	scout__l2_moved(hand->op);
	if (files->sync && fdatasync(fd) != 0)
		return errno;
	scout__l2_moved(hand->op);
	return 0;
}

int
scout__files_write(struct scout__files_hand *hand, const char *tmp, const struct scout__l2_key *key,
		   const uint8_t *data, uint64_t bytes)
{
	const struct scout__files *files = hand->files;
	int flags = O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW | (files->direct ? O_DIRECT : 0);
	int fd = openat(files->root.fd, tmp, flags, 0600);
	int rc;

	if (fd < 0 && errno == ENOENT) {
		/* Another process removed the folder meanwhile. */
		(void)mkdirat(files->root.fd, SCOUT__FILES_TMP, 0700);
		fd = openat(files->root.fd, tmp, flags, 0600);
	}
	if (fd < 0)
		return errno;
	rc = write_object(hand, fd, key, data, bytes);
	/* A network file system may report only now that there was no room. */
	if (close(fd) != 0 && rc == 0 && errno != EINTR)
		rc = errno;
	return rc;
}

int
scout__files_rename_new(int root_fd, const char *from, const char *to)
{
	struct stat st;

	if (renameat2(root_fd, from, root_fd, to, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
		return errno;
	/* Network file systems know no such flag, but a second name does the same. */
	if (linkat(root_fd, from, root_fd, to, 0) == 0) {
		(void)unlinkat(root_fd, from, 0);
		return 0;
	}
	if (errno != EPERM && errno != ENOSYS && errno != EOPNOTSUPP && errno != EMLINK)
		return errno;
	/* No links either. A file that a rename might replace in this moment has the same name, so the same bytes. */
	if (fstatat(root_fd, to, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return EEXIST;
	return renameat(root_fd, from, root_fd, to) == 0 ? 0 : errno;
}

int
scout__files_sync_folder(const struct scout__files *files, const char *folder)
{
	int fd = openat(files->root.fd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = 0;

	if (fd < 0)
		return errno;
	if (fsync(fd) != 0)
		rc = errno;
	(void)close(fd);
	return rc;
}

/* "ab" and "ab/cd" of "ab/cd/HEX". */
static int
make_folders(const struct scout__files *files, const char *path)
{
	char outer[3], inner[6];

	memcpy(outer, path, 2);
	outer[2] = '\0';
	memcpy(inner, path, 5);
	inner[5] = '\0';
	if (mkdirat(files->root.fd, outer, 0700) != 0 && errno != EEXIST)
		return errno;
	if (mkdirat(files->root.fd, inner, 0700) != 0 && errno != EEXIST)
		return errno;
	if (!files->sync)
		return 0;
	if (scout__files_sync_folder(files, ".") != 0)
		return EIO;
	return scout__files_sync_folder(files, outer);
}

int
scout__files_place(const struct scout__files *files, const char *tmp, const char *path)
{
	int rc = scout__files_rename_new(files->root.fd, tmp, path);
	char inner[6];

	if (rc == ENOENT) {
		rc = make_folders(files, path);
		if (rc == 0)
			rc = scout__files_rename_new(files->root.fd, tmp, path);
	}
	if (rc || !files->sync)
		return rc;
	memcpy(inner, path, 5);
	inner[5] = '\0';
	rc = scout__files_sync_folder(files, inner);
	if (rc)
		(void)unlinkat(files->root.fd, path, 0); /* a file that may not last was not stored */
	return rc;
}

/* ---- reading ---- */

int
scout__files_read_header(int fd, uint8_t header[SCOUT__L2_HEADER_BYTES])
{
	return read_all(fd, header, SCOUT__L2_HEADER_BYTES, SCOUT__L2_HEADER_BYTES, 0);
}

/* A file that cannot be ours - a folder, a pipe, a link - counts as damaged. */
static int
open_object(const struct scout__files *files, const char *path, int flags, int *ret_fd, struct stat *ret_st)
{
	int fd = openat(files->root.fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags);

	ret_st->st_nlink = 0;
	if (fd < 0 && errno == ELOOP) {
		if (fstatat(files->root.fd, path, ret_st, AT_SYMLINK_NOFOLLOW) != 0)
			return errno;
		return SCOUT__FILES_DAMAGED;
	}
	if (fd < 0)
		return errno;
	if (fstat(fd, ret_st) != 0) {
		int rc = errno;

		ret_st->st_nlink = 0;
		(void)close(fd);
		return rc;
	}
	if (!S_ISREG(ret_st->st_mode) || ret_st->st_size < (off_t)PAYLOAD) {
		(void)close(fd);
		return SCOUT__FILES_DAMAGED;
	}
	*ret_fd = fd;
	return 0;
}

static bool
is_key(const struct scout__l2_key *a, const struct scout__l2_key *b)
{
	return a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

static int
read_object(struct scout__files_hand *hand, int fd, const struct stat *st, const struct scout__l2_key *key,
	    uint8_t *data, uint64_t bytes)
{
	struct scout__l2_digest sum, wanted;
	struct scout__l2_header header;
	/* Through the bounce: direct I/O takes whole blocks only. */
	int rc = read_all(fd, hand->bounce, PAYLOAD, SCOUT__L2_HEADER_BYTES, 0);

	if (rc)
		return rc;
	if (data) {
		if (scout__l2_header_check(hand->bounce, key, bytes, &wanted) != SCOUT__L2_HEADER_OK)
			return SCOUT__FILES_DAMAGED;
	} else {
		if (scout__l2_header_get(hand->bounce, &header) != SCOUT__L2_HEADER_OK || !is_key(&header.key, key))
			return SCOUT__FILES_DAMAGED;
		bytes = header.bytes;
		wanted = header.sum;
	}
	if ((uint64_t)st->st_size - PAYLOAD != bytes)
		return SCOUT__FILES_DAMAGED;
	rc = read_payload(hand, fd, data, bytes, &sum);
	if (rc == 0 && (sum.lo != wanted.lo || sum.hi != wanted.hi))
		rc = SCOUT__FILES_DAMAGED;
	return rc;
}

int
scout__files_read(struct scout__files_hand *hand, const char *path, const struct scout__l2_key *key, uint8_t *data,
		  uint64_t bytes, bool stamp, struct stat *ret_st)
{
	static const struct timespec now_and_as_it_was[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
	int fd = -1; /* gcc does not follow it through open_object() at -O3 */
	int rc = open_object(hand->files, path, hand->files->direct ? O_DIRECT : 0, &fd, ret_st);

	if (rc)
		return rc;
	rc = read_object(hand, fd, ret_st, key, data, bytes);
	/* If this fails, the order after a restart is a little worse. */
	if (rc == 0 && stamp)
		(void)futimens(fd, now_and_as_it_was);
	(void)close(fd);
	return rc;
}

int
scout__files_look(const struct scout__files *files, const char *path, const struct scout__l2_key *key, uint64_t bytes,
		  struct stat *ret_st)
{
	uint8_t header[SCOUT__L2_HEADER_BYTES];
	struct scout__l2_digest sum;
	int fd = -1; /* gcc does not follow it through open_object() at -O3 */
	int rc = open_object(files, path, 0, &fd, ret_st);

	if (rc)
		return rc;
	rc = scout__files_read_header(fd, header);
	(void)close(fd);
	if (rc == 0 && (scout__l2_header_check(header, key, bytes, &sum) != SCOUT__L2_HEADER_OK ||
			(uint64_t)ret_st->st_size - PAYLOAD != bytes))
		rc = SCOUT__FILES_DAMAGED;
	return rc;
}

/* ---- removing ---- */

/* Inode numbers are given out again, so the time of the last write counts as well. */
static bool
is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

int
scout__files_remove_same(struct scout__files *files, const char *path, const struct stat *st)
{
	struct stat now;
	int rc = 0;

	/* Only one thread at a time compares and removes; no thread replaces a file that has its name. */
	SCOUT_ASSERT(pthread_mutex_lock(&files->removing) == 0);
	if (fstatat(files->root.fd, path, &now, AT_SYMLINK_NOFOLLOW) != 0 ||
	    (is_same(&now, st) && unlinkat(files->root.fd, path, S_ISDIR(now.st_mode) ? AT_REMOVEDIR : 0) != 0))
		rc = errno == ENOENT ? 0 : errno;
	SCOUT_ASSERT(pthread_mutex_unlock(&files->removing) == 0);
	return rc;
}
