/* SPDX-License-Identifier: Apache-2.0 */
#include "l2_fault_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"

/*
 * DESIGN
 *
 * A disk that fails, below the adapter: the linker puts these functions (--wrap) in the place of the C library's for
 * all objects of the program. What a call is about is told by the descriptor's path, so the rest of the server is left
 * alone. It needs no privilege and no file system of its own, and fails at exactly the byte that a test wants.
 *
 * The names are those that glibc gives to the calls with 64-bit offsets, which the build asks for. A test that sees no
 * hits has the wrong names.
 *
 * Threads: any.
 */

ssize_t __real_pread64(int fd, void *data, size_t len, off_t at);
ssize_t __wrap_pread64(int fd, void *data, size_t len, off_t at);
ssize_t __real_pwrite64(int fd, const void *data, size_t len, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t len, off_t at);
int __real_openat64(int at, const char *path, int flags, ...);
int __wrap_openat64(int at, const char *path, int flags, ...);
int __real_mkdirat(int at, const char *path, mode_t mode);
int __wrap_mkdirat(int at, const char *path, mode_t mode);
int __real_renameat(int from_at, const char *from, int to_at, const char *to);
int __wrap_renameat(int from_at, const char *from, int to_at, const char *to);
int __real_renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags);
int __wrap_renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags);
int __real_linkat(int from_at, const char *from, int to_at, const char *to, int flags);
int __wrap_linkat(int from_at, const char *from, int to_at, const char *to, int flags);
int __real_unlinkat(int at, const char *path, int flags);
int __wrap_unlinkat(int at, const char *path, int flags);

static char *folder; /* const while there is an adapter */
static size_t folder_len;
static struct l2_fault_disk *disk;

void
l2_fault_disk_init(const char *path, struct l2_fault_disk *rules)
{
	char *real;

	/* Not there yet: the adapter makes it. */
	if (mkdir(path, 0700) != 0 && errno != EEXIST)
		return;
	real = realpath(path, NULL);
	if (!real)
		abort();
	free(folder);
	folder = real;
	folder_len = strlen(real);
	disk = rules;
}

void
l2_fault_disk_fini(void)
{
	disk = NULL;
	free(folder);
	folder = NULL;
}

/* Whether @fd is the folder or lies in it. */
static bool
is_ours(int fd)
{
	char name[64];
	char path[4096];
	ssize_t n;

	if (!disk)
		return false;
	(void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	n = readlink(name, path, sizeof(path));
	return n >= (ssize_t)folder_len && memcmp(path, folder, folder_len) == 0 &&
	       (n == (ssize_t)folder_len || path[folder_len] == '/');
}

static void
hit(void)
{
	atomic_fetch_add(&disk->hits, 1);
}

/* Or until the rule is changed: the other process has only memory to tell us through. */
static void
wait_for(const _Atomic uint32_t *delay_ms)
{
	uint64_t begin_us = scout__now_us();

	hit();
	while (scout__now_us() - begin_us < UINT64_C(1000) * atomic_load(delay_ms))
		(void)poll(NULL, 0, 1);
}

/* ---- reading ---- */

static ssize_t
read_at(int fd, uint8_t *data, size_t len, uint64_t at)
{
	uint64_t end = atomic_load(&disk->read_end);
	uint64_t flip = atomic_load(&disk->read_flip);
	ssize_t n;

	if (atomic_load(&disk->read_delay_ms))
		wait_for(&disk->read_delay_ms);
	if (atomic_load(&disk->read_errno)) {
		hit();
		errno = atomic_load(&disk->read_errno);
		return -1;
	}
	n = __real_pread64(fd, data, len, (off_t)at);
	if (n > 0 && end && at + (uint64_t)n >= end) {
		hit();
		n = at >= end - 1 ? 0 : (ssize_t)(end - 1 - at);
	}
	if (n > 0 && flip && flip - 1 >= at && flip - 1 < at + (uint64_t)n) {
		hit();
		data[flip - 1 - at] ^= 0x10;
	}
	return n;
}

ssize_t
__wrap_pread64(int fd, void *data, size_t len, off_t at)
{
	return is_ours(fd) ? read_at(fd, data, len, (uint64_t)at) : __real_pread64(fd, data, len, at);
}

/* ---- writing ---- */

/* What is there, with one bit of byte @flip flipped. */
static ssize_t
write_flipped(int fd, const uint8_t *data, size_t len, uint64_t at, uint64_t flip)
{
	void *copy;
	ssize_t n;

	/* Aligned as direct I/O wants it. */
	if (posix_memalign(&copy, 4096, len) != 0)
		abort();
	hit();
	memcpy(copy, data, len);
	((uint8_t *)copy)[flip - at] ^= 0x10;
	n = __real_pwrite64(fd, copy, len, (off_t)at);
	free(copy);
	return n;
}

static ssize_t
write_at(int fd, const uint8_t *data, size_t len, uint64_t at)
{
	uint64_t room = atomic_load(&disk->write_room);
	uint64_t flip = atomic_load(&disk->write_flip);
	int error = atomic_load(&disk->write_errno);

	if (atomic_load(&disk->write_delay_ms))
		wait_for(&disk->write_delay_ms);
	if (error && at + len > room) {
		hit();
		if (at >= room) {
			errno = error;
			return -1;
		}
		len = (size_t)(room - at);
	}
	if (flip && flip - 1 >= at && flip - 1 < at + len)
		return write_flipped(fd, data, len, at, flip - 1);
	return __real_pwrite64(fd, data, len, (off_t)at);
}

ssize_t
__wrap_pwrite64(int fd, const void *data, size_t len, off_t at)
{
	return is_ours(fd) ? write_at(fd, data, len, (uint64_t)at) : __real_pwrite64(fd, data, len, at);
}

/* ---- changes of folders ---- */

static bool
is_refused(int at)
{
	if (!disk || !atomic_load(&disk->change_errno) || !is_ours(at))
		return false;
	hit();
	errno = atomic_load(&disk->change_errno);
	return true;
}

int
__wrap_openat64(int at, const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list args;

	if (flags & O_CREAT) {
		va_start(args, flags);
		mode = va_arg(args, mode_t);
		va_end(args);
	}
	if ((flags & (O_CREAT | O_WRONLY | O_RDWR)) && is_refused(at))
		return -1;
	return __real_openat64(at, path, flags, mode);
}

int
__wrap_mkdirat(int at, const char *path, mode_t mode)
{
	return is_refused(at) ? -1 : __real_mkdirat(at, path, mode);
}

int
__wrap_renameat(int from_at, const char *from, int to_at, const char *to)
{
	return is_refused(from_at) ? -1 : __real_renameat(from_at, from, to_at, to);
}

int
__wrap_renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags)
{
	return is_refused(from_at) ? -1 : __real_renameat2(from_at, from, to_at, to, flags);
}

int
__wrap_linkat(int from_at, const char *from, int to_at, const char *to, int flags)
{
	return is_refused(from_at) ? -1 : __real_linkat(from_at, from, to_at, to, flags);
}

int
__wrap_unlinkat(int at, const char *path, int flags)
{
	return is_refused(at) ? -1 : __real_unlinkat(at, path, flags);
}
