/* SPDX-License-Identifier: Apache-2.0 */
#include "thread.h"

#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"

/*
 * DESIGN
 *
 * Purpose: the end of a program that has proved itself wrong, the start of every thread of ours, and what its waits end by.
 *
 * scout__assert_failed() may run with any lock held, in a forked child or on a broken heap. So it takes no lock and
 * no memory: one line on the stack, one write, abort. The roles of thread.h have no definition, because nothing reads
 * them.
 *
 * Threads: any.
 */

#define TRY_MOST 8u
#define TRY_GONE_MS 1000

struct assert_line {
	size_t n;
	char text[512];
};

static void
add_text(struct assert_line *line, const char *text)
{
	while (*text && line->n < sizeof(line->text))
		line->text[line->n++] = *text++;
}

static void
add_number(struct assert_line *line, unsigned number)
{
	char digits[3 * sizeof(number) + 1];
	size_t at = sizeof(digits) - 1;

	digits[at] = '\0';
	do {
		digits[--at] = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	add_text(line, digits + at);
}

void
scout__assert_failed(const char *what, const char *file, int line_number)
{
	struct assert_line line = {.n = 0};
	ssize_t written;

	add_text(&line, "kvscout: ");
	add_text(&line, file);
	add_text(&line, ":");
	add_number(&line, line_number > 0 ? (unsigned)line_number : 0);
	add_text(&line, ": assertion failed: ");
	add_text(&line, what);
	if (line.n == sizeof(line.text))
		line.n--;
	line.text[line.n++] = '\n';
	/* Nothing can be done for a closed stderr: the process is about to end. */
	written = write(STDERR_FILENO, line.text, line.n);
	(void)written;
	abort();
}

/*
 * All signals but those that a thread raises by its own fault. No other thread can handle such a signal, and if the
 * thread blocks it the kernel kills the process without the host's crash handlers.
 */
int
scout__block_signals(sigset_t *ret_before)
{
	static const int raised[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
	sigset_t set;

	sigfillset(&set);
	for (size_t i = 0; i < sizeof(raised) / sizeof(raised[0]); i++)
		sigdelset(&set, raised[i]);
	return pthread_sigmask(SIG_SETMASK, &set, ret_before);
}

int
scout__thread_start(pthread_t *ret_thread, const char *name, void *(*main)(void *), void *arg)
{
	pthread_t thread;
	sigset_t before;
	int err;

	SCOUT_ASSERT(strlen(name) <= 15);
	err = scout__block_signals(&before);
	if (err)
		return err;
	err = pthread_create(&thread, NULL, main, arg);
	/* Cannot fail: the mask is one that the kernel gave us. */
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err)
		return err;
	/* For debuggers and top only; a thread that has no name works as well. */
	(void)pthread_setname_np(thread, name);
	*ret_thread = thread;
	return 0;
}

/* Lives until the mutex is free. Returns its id in the kernel. */
static void *
try_main(void *gate)
{
	(void)pthread_mutex_lock(gate);
	(void)pthread_mutex_unlock(gate);
	return (void *)(uintptr_t)syscall(SYS_gettid); // NOLINT(performance-no-int-to-ptr): a number
}

int
scout__threads_try(uint32_t n)
{
	pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
	pthread_t threads[TRY_MOST];
	uint32_t started = 0;
	int err = 0;

	SCOUT_ASSERT(n <= TRY_MOST);
	(void)pthread_mutex_lock(&gate);
	while (err == 0 && started < n) {
		err = scout__thread_start(&threads[started], "scout-try", try_main, &gate);
		started += err == 0;
	}
	(void)pthread_mutex_unlock(&gate);
	while (started > 0) {
		void *id;

		(void)pthread_join(threads[--started], &id);
		/* A thread that is joined still counts until the kernel has forgotten its id. */
		for (int i = 0; i < TRY_GONE_MS && syscall(SYS_tgkill, getpid(), (pid_t)(uintptr_t)id, 0) == 0; i++)
			(void)poll(NULL, 0, 1);
	}
	return err;
}

void
scout__cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	SCOUT_ASSERT(pthread_condattr_init(&attr) == 0);
	SCOUT_ASSERT(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
	SCOUT_ASSERT(pthread_cond_init(cond, &attr) == 0);
	SCOUT_ASSERT(pthread_condattr_destroy(&attr) == 0);
}

int
scout__cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mu, uint64_t until_us)
{
	struct timespec until = scout__timespec(until_us);

	return pthread_cond_timedwait(cond, mu, &until);
}
