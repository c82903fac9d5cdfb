/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/*
 * Which thread may run a function, in a form that clang checks (-Wthread-safety) and gcc ignores. A role is a capability that exists
 * only as a declaration; a thread's main function takes it by scout__enter_*(), all functions below require it.
 *
 *   SCOUT_ON_COURIER  only on a courier thread (client's or worker's)
 *   SCOUT_ON_LOOP     only on the server's loop thread
 *   SCOUT_ON_CALLER   only on the thread that uses the public object
 *   SCOUT_ON_ANY      any thread; documentation
 *
 * A prototype has the tag at its end, a static function after its return type.
 */
#if defined(__clang__)
#define SCOUT_TSA(x) __attribute__((x))
#else
#define SCOUT_TSA(x)
#endif

struct SCOUT_TSA(capability("role")) scout__role {
	char unused;
};

extern struct scout__role scout__courier_role;
extern struct scout__role scout__loop_role;

#define SCOUT_ON_COURIER SCOUT_TSA(requires_capability(scout__courier_role))
#define SCOUT_ON_LOOP SCOUT_TSA(requires_capability(scout__loop_role))
#define SCOUT_ON_CALLER
#define SCOUT_ON_ANY

static inline void
scout__enter_courier(void) SCOUT_TSA(assert_capability(scout__courier_role))
{
}

static inline void
scout__enter_loop(void) SCOUT_TSA(assert_capability(scout__loop_role))
{
}

/* Programming errors abort, and print the place; public functions return SCOUT_ERR_INVALID instead. */
#define SCOUT_ASSERT(x) ((x) ? (void)0 : scout__assert_failed(#x, __FILE__, __LINE__))
#ifdef SCOUT_DEBUG
#define SCOUT_DASSERT(x) SCOUT_ASSERT(x)
#else
#define SCOUT_DASSERT(x) ((void)0)
#endif

_Noreturn void scout__assert_failed(const char *what, const char *file, int line);

/*
 * Block all signals on this thread but those that a thread raises itself (SIGSEGV, SIGSYS ...), so that threads that another
 * library starts now inherit that. pthread_sigmask(SIG_SETMASK, ret_before, NULL) undoes it. Returns 0 or an errno value.
 */
int scout__block_signals(sigset_t *ret_before);

/*
 * Start a thread with all signals blocked but those that it raises itself (SIGSEGV, SIGSYS ...), so that the host's handlers
 * run on the host's threads. @name at most 15 bytes.
 * Returns 0 or an errno value.
 */
int scout__thread_start(pthread_t *ret_thread, const char *name, void *(*main)(void *), void *arg);

/*
 * Start @n threads at once, and end them: whether that many can be had now, for libraries that abort where they cannot.
 * Returns 0 or an errno value.
 */
int scout__threads_try(uint32_t n);

/* A condition whose waits end by the monotonic clock. Aborts where it fails, which it does not on Linux. */
void scout__cond_init(pthread_cond_t *cond);
/* As pthread_cond_timedwait(), until scout__now_us() is @until_us: 0, or ETIMEDOUT. */
int scout__cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mu, uint64_t until_us);
