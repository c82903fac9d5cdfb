/* SPDX-License-Identifier: Apache-2.0 */
#include "log_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <kvscout/error.h>
#include <kvscout/types.h>

#include "clock.h"
#include "thread.h"

/*
 * DESIGN
 *
 * The server's threads must not wait for the reader of standard error: a pipe that nobody reads is full after 64 KiB,
 * and a write to it lasts for ever. So a line is copied into one of SCOUT__LOG_LINES places, and one thread writes them
 * in order.
 *
 * Full: info and debug lines may take all places but SCOUT__LOG_LINES_RESERVED. A warning or an error takes any free
 * place, else the place of the oldest info line; it is dropped only when every place holds a warning or an error. The
 * thread adds a line that says how many lines were dropped, when the queue is empty again and at least once per
 * DROPS_EVERY_US.
 *
 * The end: the thread has a bounded time to write what waits. A thread that is then still in write() is detached and
 * ends with the process; write() cannot be interrupted without a signal handler, and nothing needs the thread any more.
 *
 * The log of a server that an engine has started is a file that no operator rotates, so the thread does: two files of a
 * bounded size, and no line is lost between them.
 *
 * Rejected: O_NONBLOCK on standard error. The open file is shared with the process that started kvscoutd and with its
 * siblings, which do not expect EAGAIN.
 *
 * Threads: any thread puts; one starts and stops; the queue's own thread writes.
 */

#define DROPS_EVERY_US UINT64_C(1000000)

/* Time, level and @text as one line; returns its length. */
static uint32_t
format_line(char line[SCOUT__LOG_LINE_BYTES], int level, const char *text)
{
	static const char *const names[] = {"?", "error", "warn", "info", "debug"};
	struct timespec now;
	struct tm tm;
	size_t len;
	int n;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	(void)gmtime_r(&now.tv_sec, &tm);
	len = strftime(line, SCOUT__LOG_LINE_BYTES, "%Y-%m-%dT%H:%M:%S", &tm);
	n = snprintf(line + len, SCOUT__LOG_LINE_BYTES - len, ".%03ldZ %s %s\n", now.tv_nsec / 1000000,
		     level >= SCOUT_LOG_ERROR && level <= SCOUT_LOG_DEBUG ? names[level] : names[0], text);
	if (n < 0)
		return 0;
	len += (size_t)n;
	if (len >= SCOUT__LOG_LINE_BYTES) {
		len = SCOUT__LOG_LINE_BYTES - 1;
		line[len - 1] = '\n';
	}
	return (uint32_t)len;
}

/* The oldest line that is not urgent, out of the queue; NULL: there is none. Under the lock. */
static struct scout__log_line *
displace(struct scout__log_queue *q)
{
	struct scout__log_line *before = NULL, *line = q->head;

	for (; line && line->is_urgent; line = line->next)
		before = line;
	if (!line)
		return NULL;
	if (before)
		before->next = line->next;
	else
		q->head = line->next;
	if (q->tail == line)
		q->tail = before;
	q->n_info--;
	q->dropped_info++;
	return line;
}

/* A place for a line, or NULL: it is dropped, and counted. Under the lock. */
static struct scout__log_line *
take_place(struct scout__log_queue *q, bool is_urgent)
{
	struct scout__log_line *line = q->free;

	if (!is_urgent && (!line || q->n_info >= SCOUT__LOG_LINES - SCOUT__LOG_LINES_RESERVED)) {
		q->dropped_info++;
		return NULL;
	}
	if (line) {
		q->free = line->next;
		return line;
	}
	line = displace(q);
	if (!line)
		q->dropped_urgent++;
	return line;
}

void
scout__log_queue_put(void *queue, int level, const char *text)
{
	struct scout__log_queue *q = queue;
	char formatted[SCOUT__LOG_LINE_BYTES];
	uint32_t len = format_line(formatted, level, text);
	bool is_urgent = level <= SCOUT_LOG_WARN;
	struct scout__log_line *line;

	(void)pthread_mutex_lock(&q->mu);
	line = take_place(q, is_urgent);
	if (line) {
		memcpy(line->text, formatted, len);
		line->len = len;
		line->is_urgent = is_urgent;
		line->next = NULL;
		if (q->head)
			q->tail->next = line;
		else
			q->head = line;
		q->tail = line;
		q->n_info += !is_urgent;
	}
	(void)pthread_cond_signal(&q->filled);
	(void)pthread_mutex_unlock(&q->mu);
}

/* Write, however long that takes. A log that cannot be written is no reason to stop serving: the line is lost. */
static void
write_whole(int fd, const char *text, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, text, len);
		struct pollfd ready = {.fd = fd, .events = POLLOUT};

		if (n > 0) {
			text += n;
			len -= (size_t)n;
		} else if (n < 0 && errno == EAGAIN) {
			(void)poll(&ready, 1, -1); /* another process has made the file non-blocking */
		} else if (n == 0 || errno != EINTR) {
			return;
		}
	}
}

/* Make a line of the counts, and reset them. Returns its length. Under the lock. */
static uint32_t
tell_drops(struct scout__log_queue *q, char line[SCOUT__LOG_LINE_BYTES])
{
	char text[160];

	(void)snprintf(text, sizeof(text),
		       "kvscoutd: %llu log lines were dropped, %llu of them warnings or errors: the reader of standard "
		       "error is too slow",
		       (unsigned long long)(q->dropped_info + q->dropped_urgent),
		       (unsigned long long)q->dropped_urgent);
	q->dropped_info = 0;
	q->dropped_urgent = 0;
	return format_line(line, SCOUT_LOG_WARN, text);
}

static bool
has_drops(const struct scout__log_queue *q)
{
	return q->dropped_info || q->dropped_urgent;
}

/* The file is full: begin another with its name and descriptor. If that fails, it grows; the next line tries again. */
static void
renew_file(struct scout__log_queue *q)
{
	int fd;

	if (rename(q->file->path, q->file->old_path) != 0)
		return;
	fd = open(q->file->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return;
	if (dup2(fd, q->fd) == q->fd)
		q->file_bytes = 0;
	(void)close(fd);
}

static void
write_line(struct scout__log_queue *q, const char *text, uint32_t len)
{
	write_whole(q->fd, text, len);
	q->file_bytes += len;
	if (q->file && q->file_bytes >= q->file->max_bytes)
		renew_file(q);
}

/* Write the oldest line. Under the lock, which this function releases meanwhile. */
static void
write_head(struct scout__log_queue *q)
{
	struct scout__log_line *line = q->head;

	q->head = line->next;
	q->n_info -= !line->is_urgent;
	(void)pthread_mutex_unlock(&q->mu);
	write_line(q, line->text, line->len);
	(void)pthread_mutex_lock(&q->mu);
	line->next = q->free;
	q->free = line;
}

static void *
writer_main(void *arg)
{
	struct scout__log_queue *q = arg;
	uint64_t told_us = 0;

	(void)pthread_mutex_lock(&q->mu);
	for (;;) {
		char line[SCOUT__LOG_LINE_BYTES];
		uint32_t len;

		while (!q->head && !has_drops(q) && !q->stopping)
			(void)pthread_cond_wait(&q->filled, &q->mu);
		if (!q->head && !has_drops(q))
			break;
		if (has_drops(q) && (!q->head || scout__now_us() - told_us >= DROPS_EVERY_US)) {
			len = tell_drops(q, line);
			(void)pthread_mutex_unlock(&q->mu);
			write_line(q, line, len);
			(void)pthread_mutex_lock(&q->mu);
			told_us = scout__now_us();
		}
		if (q->head)
			write_head(q);
	}
	q->has_ended = true;
	(void)pthread_cond_signal(&q->ended);
	(void)pthread_mutex_unlock(&q->mu);
	return NULL;
}

int
scout__log_queue_start(struct scout__log_queue *queue, int fd, const struct scout__log_file *file)
{
	struct stat st;
	int rc;

	memset(queue, 0, sizeof(*queue));
	queue->fd = fd;
	queue->file = file;
	if (file && fstat(fd, &st) == 0 && st.st_size > 0)
		queue->file_bytes = (uint64_t)st.st_size;
	for (uint32_t i = 0; i < SCOUT__LOG_LINES; i++) {
		queue->lines[i].next = queue->free;
		queue->free = &queue->lines[i];
	}
	rc = pthread_mutex_init(&queue->mu, NULL);
	scout__cond_init(&queue->filled);
	scout__cond_init(&queue->ended);
	/* kvscoutd ends when this fails, so nothing is undone. */
	return rc ? rc : scout__thread_start(&queue->thread, "scout-log", writer_main, queue);
}

bool
scout__log_queue_stop(struct scout__log_queue *queue, uint32_t flush_ms)
{
	uint64_t end_us = scout__now_us() + (uint64_t)flush_ms * 1000;
	int rc = 0;

	(void)pthread_mutex_lock(&queue->mu);
	queue->stopping = true;
	(void)pthread_cond_signal(&queue->filled);
	while (!queue->has_ended && rc == 0)
		rc = scout__cond_wait_until(&queue->ended, &queue->mu, end_us);
	if (queue->has_ended)
		rc = 0;
	(void)pthread_mutex_unlock(&queue->mu);
	if (rc == 0)
		(void)pthread_join(queue->thread, NULL);
	else
		(void)pthread_detach(queue->thread);
	return rc == 0;
}
