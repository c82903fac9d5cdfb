/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/*
 * Preloaded into every process of a test (`./dev check jitter`): where threads tell each other something, one call in ONE_IN is followed by
 * a pause of up to MAX_US, as on a machine that has more to do. So the orders of events that are rare on an idle machine become common,
 * and a test that counts on one of them, or code that does, fails within minutes.
 *
 * The calls are those by which threads meet here and in libzmq: eventfds (reads and writes of eight bytes), poll, epoll, condition
 * variables, starts of threads. The C library's own function is found by dlsym() at the first call.
 */

#define ONE_IN 8u
#define MAX_US 8000u

static _Atomic uint64_t state;

/* splitmix64: G. Steele, D. Lea, C. Flood: Fast Splittable Pseudorandom Number Generators, 2014. */
static uint64_t
next_random(void)
{
	uint64_t x = atomic_fetch_add(&state, UINT64_C(0x9e3779b97f4a7c15));

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

__attribute__((constructor)) static void
seed(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	atomic_store(&state, ((uint64_t)now.tv_sec << 32 ^ (uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 40));
}

/* Keeps errno. Not by nanosleep(), which a test may have replaced. */
static void
maybe_pause(void)
{
	uint64_t x = next_random();
	struct timespec t = {.tv_nsec = (long)((x >> 20) % MAX_US) * 1000};
	int error = errno;

	if (x % ONE_IN == 0)
		(void)syscall(SYS_nanosleep, &t, NULL);
	errno = error;
}

/* ISO C knows no function at the address of an object; POSIX does. */
#define FIND(next, name)                                                                                               \
	do {                                                                                                           \
		if (!(next))                                                                                           \
			*(void **)&(next) = find(name);                                                                \
	} while (0)

/* On x86-64 there are older condition variables of the same names, of another size. */
static void *
find(const char *name)
{
	void *call = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");

	return call ? call : dlsym(RTLD_NEXT, name);
}

ssize_t
read(int fd, void *data, size_t bytes)
{
	static __typeof__(&read) next;
	ssize_t n;

	FIND(next, "read");
	n = next(fd, data, bytes);
	if (bytes == sizeof(uint64_t))
		maybe_pause();
	return n;
}

ssize_t
write(int fd, const void *data, size_t bytes)
{
	static __typeof__(&write) next;
	ssize_t n;

	FIND(next, "write");
	if (bytes == sizeof(uint64_t))
		maybe_pause();
	n = next(fd, data, bytes);
	if (bytes == sizeof(uint64_t))
		maybe_pause();
	return n;
}

int
poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	static __typeof__(&poll) next;
	int rc;

	FIND(next, "poll");
	rc = next(fds, n, timeout_ms);
	maybe_pause();
	return rc;
}

int
ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *signals)
{
	static __typeof__(&ppoll) next;
	int rc;

	FIND(next, "ppoll");
	rc = next(fds, n, timeout, signals);
	maybe_pause();
	return rc;
}

int
epoll_wait(int epoll, struct epoll_event *events, int n, int timeout_ms)
{
	static __typeof__(&epoll_wait) next;
	int rc;

	FIND(next, "epoll_wait");
	rc = next(epoll, events, n, timeout_ms);
	maybe_pause();
	return rc;
}

struct thread {
	void *(*run)(void *);
	void *argument;
};

static void *
run_late(void *memory)
{
	struct thread thread = *(struct thread *)memory;

	free(memory);
	maybe_pause();
	return thread.run(thread.argument);
}

int
pthread_create(pthread_t *ret_thread, const pthread_attr_t *attr, void *(*run)(void *), void *argument)
{
	static __typeof__(&pthread_create) next;
	struct thread *thread = malloc(sizeof(*thread));
	int rc;

	FIND(next, "pthread_create");
	if (!thread)
		return EAGAIN;
	*thread = (struct thread){.run = run, .argument = argument};
	rc = next(ret_thread, attr, run_late, thread);
	if (rc != 0)
		free(thread);
	maybe_pause();
	return rc;
}

/* The woken thread's pause is without the lock: others may have it first. */
static void
pause_unlocked(pthread_mutex_t *lock)
{
	(void)pthread_mutex_unlock(lock);
	maybe_pause();
	(void)pthread_mutex_lock(lock);
}

int
pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock)
{
	static __typeof__(&pthread_cond_wait) next;
	int rc;

	FIND(next, "pthread_cond_wait");
	rc = next(condition, lock);
	pause_unlocked(lock);
	return rc;
}

int
pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock, const struct timespec *until)
{
	static __typeof__(&pthread_cond_timedwait) next;
	int rc;

	FIND(next, "pthread_cond_timedwait");
	rc = next(condition, lock, until);
	pause_unlocked(lock);
	return rc;
}
