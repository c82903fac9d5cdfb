/* SPDX-License-Identifier: Apache-2.0 */
#include "oom.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/*
 * DESIGN: one countdown for all threads. Which thread reaches zero may differ from run to run; that one does is what counts.
 *
 * A block counts as live if a thread that counts has allocated it, whichever thread frees it: libzmq frees what was given to it on
 * its own threads. So the addresses of live blocks are kept, in a table with linear probing.
 */

static atomic_uint left; /* 0: disarmed, or over */
static atomic_bool failed;
static atomic_int who;

#define CELLS (1u << 20)
#define GONE ((void *)1)
static void *cells[CELLS]; /* G:cells_mu: NULL, an address, or GONE: was one */
static pthread_mutex_t cells_mu = PTHREAD_MUTEX_INITIALIZER;
static long live; /* G:cells_mu */

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

static unsigned
first_cell(const void *p)
{
	return (unsigned)(((uintptr_t)p >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 44) % CELLS;
}

static void
add(void *p)
{
	unsigned i = first_cell(p);

	(void)pthread_mutex_lock(&cells_mu);
	while (cells[i] && cells[i] != GONE)
		i = (i + 1) % CELLS;
	cells[i] = p;
	live++;
	(void)pthread_mutex_unlock(&cells_mu);
}

static void *
counted(void *p)
{
	if (p && counts())
		add(p);
	return p;
}

/* Before it is freed: afterwards another thread may get the same address. Returns whether it had counted. */
static bool
forget(const void *p)
{
	unsigned i = first_cell(p);
	bool had;

	if (!p)
		return false;
	(void)pthread_mutex_lock(&cells_mu);
	while (cells[i] && cells[i] != p)
		i = (i + 1) % CELLS;
	had = cells[i] != NULL;
	if (had) {
		cells[i] = cells[(i + 1) % CELLS] ? GONE : NULL;
		live--;
	}
	(void)pthread_mutex_unlock(&cells_mu);
	return had;
}

/* @to is what became of @p, which had counted or not; NULL: it stayed where it was. */
static void *
moved(void *p, bool had, void *to)
{
	if (!p)
		return counted(to);
	if (had)
		add(to ? to : p);
	return to;
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
oom_failed(void)
{
	return atomic_load(&failed);
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
	long n;

	(void)pthread_mutex_lock(&cells_mu);
	n = live;
	(void)pthread_mutex_unlock(&cells_mu);
	return n;
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
	bool had;

	if (fails())
		return NULL;
	had = forget(p);
	return moved(p, had, __real_realloc(p, size));
}

void *
__wrap_reallocarray(void *p, size_t n, size_t size)
{
	bool had;

	if (fails())
		return NULL;
	had = forget(p);
	return moved(p, had, __real_reallocarray(p, n, size));
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
	(void)forget(p);
	__real_free(p);
}
