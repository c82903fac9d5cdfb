/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvscout/error.h>
#include <kvscout/types.h>

#include "clock.h"
#include "given_time.h"
#include "log_queue.h"
#include "waiting.h"

/* kvscoutd's log with a reader that is late, slow or absent. */

static struct scout__log_queue queue;
static int fds[2];

static void
setup(void)
{
	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	ck_assert_int_eq(fcntl(fds[1], F_SETPIPE_SZ, 4096), 4096);
	ck_assert_int_eq(scout__log_queue_start(&queue, fds[1], NULL), 0);
}

/* Put lines until the pipe is full and the thread waits in write(): then nothing leaves the queue any more. */
static void
stall(void)
{
	char text[1000];
	bool waits = false;

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	for (unsigned i = 0; i < 8; i++) /* twice the pipe */
		scout__log_queue_put(&queue, SCOUT_LOG_ERROR, text);
	wait_until(waits) {
		(void)pthread_mutex_lock(&queue.mu);
		/* Three whole lines fit, the fourth is being written. */
		waits = queue.head && queue.head->next && queue.head->next->next && queue.head->next->next->next &&
			!queue.head->next->next->next->next;
		(void)pthread_mutex_unlock(&queue.mu);
	}
}

static void
put(int level, const char *word, unsigned n)
{
	char text[64];

	for (unsigned i = 0; i < n; i++) {
		(void)snprintf(text, sizeof(text), "%s %u.", word, i);
		scout__log_queue_put(&queue, level, text);
	}
}

static char heard[1 << 20];

static void *
read_main(void *arg)
{
	size_t at = 0;
	ssize_t n;

	(void)arg;
	while (at < sizeof(heard) - 1 && (n = read(fds[0], heard + at, sizeof(heard) - 1 - at)) > 0)
		at += (size_t)n;
	heard[at] = '\0';
	return NULL;
}

/* The reader comes back; all that the queue writes until its end is in heard[]. */
static void
read_all(void)
{
	pthread_t reader;

	ck_assert_int_eq(pthread_create(&reader, NULL, read_main, NULL), 0);
	ck_assert(scout__log_queue_stop(&queue, wait_limit_ms()));
	(void)close(fds[1]);
	ck_assert_int_eq(pthread_join(reader, NULL), 0);
}

static unsigned
count(const char *what)
{
	unsigned n = 0;

	for (const char *at = heard; (at = strstr(at, what)); at += strlen(what))
		n++;
	return n;
}

CHECKED_FIXTURE(setup, NULL);

START_TEST(lines_keep_their_order_and_have_a_time_and_a_level)
{
	scout__log_queue_put(&queue, SCOUT_LOG_INFO, "first");
	scout__log_queue_put(&queue, SCOUT_LOG_ERROR, "second");
	scout__log_queue_put(&queue, SCOUT_LOG_DEBUG, "third");
	read_all();
	ck_assert_int_eq(heard[4], '-');
	ck_assert_int_eq(heard[10], 'T');
	ck_assert_ptr_nonnull(strstr(heard, "Z info first\n20"));
	ck_assert_ptr_nonnull(strstr(strstr(heard, "first\n"), "Z error second\n"));
	ck_assert_ptr_nonnull(strstr(strstr(heard, "second\n"), "Z debug third\n"));
	ck_assert_uint_eq(count("dropped"), 0);
}
END_TEST

START_TEST(info_is_dropped_first_and_leaves_a_part_to_warnings)
{
	unsigned info = SCOUT__LOG_LINES - SCOUT__LOG_LINES_RESERVED;

	stall(); /* four places are taken by warnings, one by the line that is being written */
	put(SCOUT_LOG_INFO, "info", info + 10);
	put(SCOUT_LOG_WARN, "warning", SCOUT__LOG_LINES_RESERVED - 5);
	read_all();
	ck_assert_uint_eq(count("info info "), info);
	ck_assert_uint_eq(count("warn warning "), SCOUT__LOG_LINES_RESERVED - 5);
	ck_assert_uint_eq(count("10 log lines were dropped, 0 of them warnings or errors"), 1);
	ck_assert_ptr_nonnull(strstr(heard, "info 0."));
}
END_TEST

START_TEST(a_warning_takes_the_place_of_the_oldest_info_line)
{
	unsigned info = SCOUT__LOG_LINES - SCOUT__LOG_LINES_RESERVED;

	stall();
	put(SCOUT_LOG_INFO, "info", info);
	put(SCOUT_LOG_WARN, "warning", SCOUT__LOG_LINES_RESERVED - 5 + 3);
	read_all();
	ck_assert_uint_eq(count("warn warning "), SCOUT__LOG_LINES_RESERVED - 5 + 3);
	ck_assert_uint_eq(count("info info "), info - 3);
	ck_assert_ptr_null(strstr(heard, "info 2."));
	ck_assert_ptr_nonnull(strstr(heard, "info 3."));
	ck_assert_uint_eq(count("3 log lines were dropped, 0 of them warnings or errors"), 1);
}
END_TEST

START_TEST(warnings_beyond_the_whole_queue_are_dropped_and_counted)
{
	stall();
	put(SCOUT_LOG_INFO, "info", SCOUT__LOG_LINES);
	put(SCOUT_LOG_WARN, "warning", SCOUT__LOG_LINES);
	read_all();
	ck_assert_uint_eq(count("info info "), 0);
	ck_assert_uint_eq(count("warn warning "), SCOUT__LOG_LINES - 5);
	ck_assert_uint_eq(count("261 log lines were dropped, 5 of them warnings or errors"), 1);
}
END_TEST

START_TEST(the_end_does_not_wait_for_a_reader_that_never_reads)
{
	struct given_time t;

	stall();
	given_time_begin(&t);
	ck_assert(!scout__log_queue_stop(&queue, 300));
	ck_assert_uint_ge(given_time_end(&t).elapsed_us, 300000);
	given_time_within(&t, 450000, "the end of a log queue that waits for 300 ms");
	/* The thread is still there, and a late line harms nothing. */
	scout__log_queue_put(&queue, SCOUT_LOG_INFO, "late");
}
END_TEST

START_TEST(a_long_line_is_cut_and_still_one_line)
{
	static char text[5000];

	memset(text, 'x', sizeof(text) - 1);
	scout__log_queue_put(&queue, SCOUT_LOG_INFO, text);
	scout__log_queue_put(&queue, SCOUT_LOG_INFO, "next");
	read_all();
	ck_assert_uint_eq(count("\n"), 2);
	ck_assert_uint_eq(strcspn(heard, "\n"), SCOUT__LOG_LINE_BYTES - 2);
}
END_TEST

START_TEST(a_reader_that_has_left_costs_the_lines_and_nothing_else)
{
	(void)signal(SIGPIPE, SIG_IGN); /* as kvscoutd does */
	(void)close(fds[0]);
	put(SCOUT_LOG_ERROR, "error", 1000);
	ck_assert(scout__log_queue_stop(&queue, wait_limit_ms()));
}
END_TEST

/* What both files of a log have, the older one first. */
static size_t
read_files(const struct scout__log_file *file, size_t *ret_old, size_t *ret_new)
{
	const char *paths[] = {file->old_path, file->path};
	size_t got[2] = {0, 0}, at = 0;

	for (int i = 0; i < 2; i++) {
		int fd = open(paths[i], O_RDONLY | O_CLOEXEC);
		ssize_t n;

		while (fd >= 0 && (n = read(fd, heard + at, sizeof(heard) - 1 - at)) > 0) {
			at += (size_t)n;
			got[i] += (size_t)n;
		}
		if (fd >= 0)
			(void)close(fd);
	}
	heard[at] = '\0';
	*ret_old = got[0];
	*ret_new = got[1];
	return at;
}

CHECKED_FIXTURE(NULL, NULL);

START_TEST(a_file_that_is_full_is_moved_away_and_no_line_is_lost)
{
	char folder[] = "/tmp/kvscout-test-XXXXXX", path[64], old_path[64], word[32];
	struct scout__log_file file = {path, old_path, 4096};
	size_t old_bytes, new_bytes;
	int fd;

	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/log", folder);
	(void)snprintf(old_path, sizeof(old_path), "%s/log.1", folder);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	/* What is there already counts. */
	ck_assert_int_eq(ftruncate(fd, 4000), 0);
	ck_assert_int_eq(scout__log_queue_start(&queue, fd, &file), 0);
	put(SCOUT_LOG_INFO, "first", 10);
	ck_assert(scout__log_queue_stop(&queue, wait_limit_ms()));
	(void)read_files(&file, &old_bytes, &new_bytes);
	ck_assert_uint_ge(old_bytes, 4096);
	ck_assert_uint_gt(new_bytes, 0);
	/* Through the same descriptor, many times over: the last lines are there, each once, and the files stay small. */
	ck_assert_int_eq(scout__log_queue_start(&queue, fd, &file), 0);
	for (unsigned i = 0; i < 100; i++) {
		(void)snprintf(word, sizeof(word), "round %u", i);
		put(SCOUT_LOG_WARN, word, 10);
		ck_assert(scout__log_queue_stop(&queue, wait_limit_ms()));
		ck_assert_int_eq(scout__log_queue_start(&queue, fd, &file), 0);
	}
	ck_assert(scout__log_queue_stop(&queue, wait_limit_ms()));
	(void)read_files(&file, &old_bytes, &new_bytes);
	ck_assert_uint_ge(old_bytes, 4096);
	ck_assert_uint_lt(old_bytes, 4096 + SCOUT__LOG_LINE_BYTES);
	ck_assert_uint_lt(new_bytes, 4096);
	for (unsigned i = 95; i < 100; i++)
		for (unsigned j = 0; j < 10; j++) {
			(void)snprintf(word, sizeof(word), "round %u %u.", i, j);
			ck_assert_msg(strstr(heard, word), "%s", word);
		}
	(void)close(fd);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(unlink(old_path), 0);
	ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST
