/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "checked_fork.h"
#include "log.h"
#include "thread.h"
#include "check_main.h"
#include "waiting.h"

/* Log lines, the one line of a failed assertion, and how threads of ours start. */

struct sink {
	int n;
	int level;
	char text[2048];
};

static void
receive(void *user, int level, const char *text)
{
	struct sink *sink = user;

	sink->n++;
	sink->level = level;
	snprintf(sink->text, sizeof(sink->text), "%s", text);
}

static struct sink sink;
static const struct scout__log logger = {.fn = receive, .user = &sink, .who = "worker 2"};

START_TEST(a_line_has_its_prefix_and_level)
{
	scout__log(&logger, SCOUT_LOG_WARN, "%d of %s", 3, "four");
	ck_assert_int_eq(sink.n, 1);
	ck_assert_int_eq(sink.level, SCOUT_LOG_WARN);
	ck_assert_str_eq(sink.text, "worker 2: 3 of four");
}
END_TEST

START_TEST(a_line_without_prefix_is_only_its_text)
{
	const struct scout__log bare = {.fn = receive, .user = &sink};

	scout__log(&bare, SCOUT_LOG_DEBUG, "text");
	ck_assert_str_eq(sink.text, "text");
}
END_TEST

/* ---- the gate ---- */

static struct scout__log_gate gate;
static atomic_uint inside, calls, may_return;

/* A callback that stays inside until it is let go. */
static void
hang(void *user, int level, const char *text)
{
	(void)user;
	(void)level;
	(void)text;
	atomic_fetch_add(&calls, 1);
	atomic_fetch_add(&inside, 1);
	while (!atomic_load(&may_return))
		(void)sched_yield();
	atomic_fetch_sub(&inside, 1);
}

static const struct scout__log gated = {.fn = hang, .who = "client", .gate = &gate};

static void *
log_one(void *unused)
{
	(void)unused;
	scout__log(&gated, SCOUT_LOG_INFO, "text");
	return NULL;
}

static void *
let_go_when_shut(void *unused)
{
	(void)unused;
	while (!scout__log_is_shut(&gate))
		(void)sched_yield();
	atomic_store(&may_return, 1);
	return NULL;
}

START_TEST(a_shut_log_calls_no_callback)
{
	atomic_store(&may_return, 1);
	scout__log(&gated, SCOUT_LOG_INFO, "text");
	ck_assert_uint_eq(atomic_load(&calls), 1);
	scout__log_shut(&gate);
	scout__log_shut(&gate);
	scout__log(&gated, SCOUT_LOG_ERROR, "text");
	ck_assert_uint_eq(atomic_load(&calls), 1);
}
END_TEST

START_TEST(shutting_waits_for_the_callbacks_that_run)
{
	enum {
		LOGGERS = 3
	};
	pthread_t threads[LOGGERS + 1];

	for (unsigned i = 0; i < LOGGERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, log_one, NULL), 0);
	wait_until(atomic_load(&inside) == LOGGERS)
		;
	ck_assert_int_eq(pthread_create(&threads[LOGGERS], NULL, let_go_when_shut, NULL), 0);
	scout__log_shut(&gate);
	ck_assert_uint_eq(atomic_load(&inside), 0);
	ck_assert_uint_eq(atomic_load(&calls), LOGGERS);
	for (unsigned i = 0; i <= LOGGERS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}
END_TEST

static void
shut_from_inside(void *user, int level, const char *text)
{
	(void)user;
	(void)level;
	(void)text;
	scout__log_shut(&gate);
	atomic_fetch_add(&calls, 1);
}

START_TEST(shutting_from_inside_the_callback_does_not_wait_for_itself)
{
	const struct scout__log log = {.fn = shut_from_inside, .gate = &gate};

	scout__log(&log, SCOUT_LOG_INFO, "text");
	scout__log(&log, SCOUT_LOG_INFO, "text");
	ck_assert_uint_eq(atomic_load(&calls), 1);
	scout__log_shut(&gate); /* and nothing is left that counts as running */
}
END_TEST

START_TEST(a_silent_log_costs_nothing_and_counts_nothing)
{
	const struct scout__log silent = {.who = "client"};
	struct scout__log_limit limit = {0};

	scout__log(&silent, SCOUT_LOG_ERROR, "text");
	scout__log(NULL, SCOUT_LOG_ERROR, "text");
	scout__log_limited(&silent, &limit, 5, 10, SCOUT_LOG_ERROR, "text");
	ck_assert_uint_eq(limit.next_us, 0);
	ck_assert_int_eq(sink.n, 0);
}
END_TEST

START_TEST(a_text_from_a_peer_stays_one_line)
{
	scout__log(&logger, SCOUT_LOG_INFO, "a\nb\x1b[1mc\x7f\xc3\xa9");
	ck_assert_str_eq(sink.text, "worker 2: a?b?[1mc?\xc3\xa9");
	/* Control characters of two bytes, the separator of lines, and what is no character. */
	scout__log(&logger, SCOUT_LOG_INFO,
		   "a\xc2\x9b"
		   "1mb\xe2\x80\xa8"
		   "c\xff\xc3");
	ck_assert_str_eq(sink.text, "worker 2: a?1mb?c??");
}
END_TEST

START_TEST(a_long_text_is_cut)
{
	scout__log(&logger, SCOUT_LOG_INFO, "%3000d", 1);
	ck_assert_uint_eq(strlen(sink.text), 1023);
}
END_TEST

START_TEST(a_storm_becomes_one_line_with_the_number_dropped)
{
	struct scout__log_limit limit = {0};

	scout__log_limited(&logger, &limit, 1000, 50, SCOUT_LOG_WARN, "first");
	ck_assert_str_eq(sink.text, "worker 2: first");
	for (uint64_t now_us = 1000; now_us < 1050; now_us += 4)
		scout__log_limited(&logger, &limit, now_us, 50, SCOUT_LOG_WARN, "dropped");
	ck_assert_int_eq(sink.n, 1);
	scout__log_limited(&logger, &limit, 1050, 50, SCOUT_LOG_WARN, "next %d", 7);
	ck_assert_int_eq(sink.n, 2);
	ck_assert_str_eq(sink.text, "worker 2: next 7 (and 13 more)");
	scout__log_limited(&logger, &limit, 1100, 50, SCOUT_LOG_WARN, "quiet again");
	ck_assert_str_eq(sink.text, "worker 2: quiet again");
}
END_TEST

START_TEST(a_burst_passes_and_the_rest_is_counted)
{
	struct scout__log_limit limit = {.burst = 2};

	for (int i = 0; i < 10; i++)
		scout__log_limited(&logger, &limit, 1000, 50, SCOUT_LOG_WARN, "line %d", i);
	ck_assert_int_eq(sink.n, 3);
	ck_assert_str_eq(sink.text, "worker 2: line 2");
	for (int i = 0; i < 10; i++)
		scout__log_limited(&logger, &limit, 1050, 50, SCOUT_LOG_WARN, "line %d", i);
	ck_assert_int_eq(sink.n, 6);
	ck_assert_str_eq(sink.text, "worker 2: line 2");
	ck_assert_uint_eq(limit.dropped, 7);
}
END_TEST

START_TEST(the_number_dropped_is_said_behind_a_cut_text)
{
	struct scout__log_limit limit = {.dropped = UINT64_MAX};
	static const char tail[] = " (and 18446744073709551615 more)";

	scout__log_limited(&logger, &limit, 1, 50, SCOUT_LOG_WARN, "%3000d", 1);
	ck_assert_uint_eq(strlen(sink.text), 1023);
	ck_assert_str_eq(sink.text + 1023 - strlen(tail), tail);
}
END_TEST

START_TEST(fail_returns_its_code_and_fills_what_is_there)
{
	char err[8] = "before";

	ck_assert_int_eq(scout__fail(NULL, 5, SCOUT_ERR_BUSY, "x"), SCOUT_ERR_BUSY);
	ck_assert_int_eq(scout__fail(err, 0, SCOUT_ERR_BUSY, "x"), SCOUT_ERR_BUSY);
	ck_assert_str_eq(err, "before");
	ck_assert_int_eq(scout__fail(err, sizeof(err), SCOUT_ERR_BUSY, "%s", "123456789"), SCOUT_ERR_BUSY);
	ck_assert_str_eq(err, "1234567");
}
END_TEST

START_SIGNAL_TEST(a_failed_assertion_aborts, SIGABRT)
{
	SCOUT_ASSERT(sink.n == 1);
}
END_TEST

START_TEST(a_true_assertion_goes_on)
{
	SCOUT_ASSERT(sink.n == 0);
}
END_TEST

/* In a child whose stderr is a pipe. */
START_TEST(a_failed_assertion_writes_one_line_with_its_place)
{
	char line[1024];
	int ends[2];
	ssize_t n;
	pid_t pid;

	ck_assert_int_eq(pipe(ends), 0);
	pid = checked_fork();
	if (!pid) {
		char what[2000];

		memset(what, 'w', sizeof(what));
		what[sizeof(what) - 1] = '\0';
		dup2(ends[1], STDERR_FILENO);
		scout__assert_failed(ends[0] ? what : "", "some/file.c", 1234567);
	}
	ck_assert_int_eq(close(ends[1]), 0);
	n = read(ends[0], line, sizeof(line) - 1);
	ck_assert_int_gt(n, 0);
	line[n] = '\0';
	ck_assert_int_eq(strncmp(line, "kvscout: some/file.c:1234567: assertion failed: www", 51), 0);
	ck_assert_ptr_eq(strchr(line, '\n'), line + n - 1);
	ck_assert_int_eq(read(ends[0], line, sizeof(line)), 0);
	ck_assert_int_eq(close(ends[0]), 0);
}
END_TEST

struct started {
	sigset_t mask;
	int arg;
};

static void *
record(void *arg)
{
	struct started *started = arg;

	pthread_sigmask(SIG_SETMASK, NULL, &started->mask);
	started->arg++;
	return started;
}

START_TEST(a_thread_blocks_what_the_host_may_handle)
{
	static const int blocked[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGALRM, SIGPROF};
	static const int open[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS, SIGTRAP};
	struct started started = {.arg = 4};
	pthread_t thread;
	sigset_t before;
	sigset_t after;
	void *result;

	ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
	ck_assert_int_eq(scout__thread_start(&thread, "scout-fifteen15", record, &started), 0);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_ptr_eq(result, &started);
	ck_assert_int_eq(started.arg, 5);
	for (size_t i = 0; i < sizeof(blocked) / sizeof(blocked[0]); i++)
		ck_assert_int_eq(sigismember(&started.mask, blocked[i]), 1);
	for (size_t i = 0; i < sizeof(open) / sizeof(open[0]); i++)
		ck_assert_int_eq(sigismember(&started.mask, open[i]), 0);
	ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
	for (int number = 1; number < 32; number++)
		ck_assert_int_eq(sigismember(&before, number), sigismember(&after, number));
}
END_TEST

static void *
wait_for_word(void *arg)
{
	char byte;
	ssize_t n = read(*(int *)arg, &byte, 1);

	(void)n;
	return NULL;
}

START_TEST(a_thread_has_its_name)
{
	pthread_t thread;
	char name[16];
	int ends[2];

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(scout__thread_start(&thread, "scout-fifteen15", wait_for_word, ends), 0);
	ck_assert_int_eq(pthread_getname_np(thread, name, sizeof(name)), 0);
	ck_assert_str_eq(name, "scout-fifteen15");
	ck_assert_int_eq(close(ends[1]), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(close(ends[0]), 0);
}
END_TEST

START_SIGNAL_TEST(a_name_too_long_for_the_kernel_aborts, SIGABRT)
{
	pthread_t thread;

	(void)scout__thread_start(&thread, "scout-sixteen-16", record, NULL);
}
END_TEST

START_TEST(an_errno_value_has_words)
{
	errno = EINTR;
	ck_assert_str_eq(scout__errno_text(ENOSPC), "No space left on device");
	ck_assert_str_eq(scout__errno_text(-5), "unknown error");
	ck_assert_int_eq(errno, EINTR);
}
END_TEST
