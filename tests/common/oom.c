/* SPDX-License-Identifier: Apache-2.0 */
#include "oom.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* DESIGN: one countdown for all threads. Which thread reaches zero may differ from run to run; that one does is what counts. */

static atomic_uint left; /* 0: disarmed, or over */
static atomic_bool failed;
static atomic_int who;
static atomic_long live;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_reallocarray(void *p, size_t n, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
int __real_posix_memalign(void **ret, size_t align, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t n);
void *__real_mmap64(void *at, size_t len, int prot, int flags, int fd, off_t offset);
void __real_free(void *p);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
int __wrap_posix_memalign(void **ret, size_t align, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t n);
__attribute__((format(printf, 2, 3))) int __wrap_asprintf(char **ret, const char *fmt, ...);
void *__wrap_mmap64(void *at, size_t len, int prot, int flags, int fd, off_t offset);
void __wrap_free(void *p);

static bool
counts(void)
{
	char name[16] = "";
	bool is_server;

	if (atomic_load(&who) == OOM_ALL)
		return true;
	(void)pthread_getname_np(pthread_self(), name, sizeof(name));
	is_server = strcmp(name, "scout-server") == 0 || strcmp(name, "scout-grower") == 0;
	return is_server == (atomic_load(&who) == OOM_SERVER);
}

static bool
fails(void)
{
	unsigned n = atomic_load(&left);

	if (n == 0 || !counts())
		return false;
	while (n > 0 && !atomic_compare_exchange_weak(&left, &n, n - 1))
		;
	if (n != 1)
		return false;
	atomic_store(&failed, true);
	errno = ENOMEM;
	return true;
}

static void *
counted(void *p)
{
	if (p && counts())
		atomic_fetch_add(&live, 1);
	return p;
}

void
oom_arm(unsigned nth, enum oom_threads threads)
{
	atomic_store(&left, 0);
	atomic_store(&failed, false);
	atomic_store(&who, (int)threads);
	atomic_store(&left, nth);
}

bool
oom_disarm(void)
{
	atomic_store(&left, 0);
	return atomic_load(&failed);
}

long
oom_live(void)
{
	return atomic_load(&live);
}

void *
__wrap_malloc(size_t size)
{
	return fails() ? NULL : counted(__real_malloc(size));
}

void *
__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : counted(__real_calloc(n, size));
}

void *
__wrap_realloc(void *p, size_t size)
{
	void *to = fails() ? NULL : __real_realloc(p, size);

	return p ? to : counted(to);
}

void *
__wrap_reallocarray(void *p, size_t n, size_t size)
{
	void *to = fails() ? NULL : __real_reallocarray(p, n, size);

	return p ? to : counted(to);
}

void *
__wrap_aligned_alloc(size_t align, size_t size)
{
	return fails() ? NULL : counted(__real_aligned_alloc(align, size));
}

int
__wrap_posix_memalign(void **ret, size_t align, size_t size)
{
	int error = fails() ? ENOMEM : __real_posix_memalign(ret, align, size);

	if (error == 0)
		(void)counted(*ret);
	return error;
}

char *
__wrap_strdup(const char *text)
{
	return fails() ? NULL : counted(__real_strdup(text));
}

char *
__wrap_strndup(const char *text, size_t n)
{
	return fails() ? NULL : counted(__real_strndup(text, n));
}

int
__wrap_asprintf(char **ret, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (fails())
		return -1;
	va_start(ap, fmt);
	n = vasprintf(ret, fmt, ap);
	va_end(ap);
	if (n >= 0)
		(void)counted(*ret);
	return n;
}

void *
__wrap_mmap64(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
	return fails() ? MAP_FAILED : __real_mmap64(at, len, prot, flags, fd, offset);
}

void
__wrap_free(void *p)
{
	if (p && counts())
		atomic_fetch_sub(&live, 1);
	__real_free(p);
}
