/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * kvscoutd's log: lines wait in a bounded queue for one thread, and only this thread waits for the reader of standard
 * error. When the queue is full, info and debug lines are dropped first; dropped lines are counted, and the count is
 * printed.
 */
#define SCOUT__LOG_LINES 256u         /* lines that may wait */
#define SCOUT__LOG_LINES_RESERVED 64u /* of these, only for warnings and errors */
#define SCOUT__LOG_LINE_BYTES 1280u   /* a longer line is cut */

struct scout__log_line {
	struct scout__log_line *next;
	uint32_t len;
	bool is_urgent; /* a warning or an error */
	char text[SCOUT__LOG_LINE_BYTES];
};

/* A log that is a file of ours: at max_bytes it replaces the file old_path, and a new one begins. */
struct scout__log_file {
	const char *path, *old_path;
	uint64_t max_bytes;
};

struct scout__log_queue {
	int fd;                             /* const after start */
	const struct scout__log_file *file; /* const after start; NULL: a stream of the process that started us */
	uint64_t file_bytes;                /* the queue's thread */
	pthread_t thread;                   /* starter */
	pthread_mutex_t mu;
	pthread_cond_t filled, ended;
	struct scout__log_line *head, *tail;   /* G:mu: oldest first */
	struct scout__log_line *free;          /* G:mu */
	uint32_t n_info;                       /* G:mu: lines in the queue that are not urgent */
	uint64_t dropped_info, dropped_urgent; /* G:mu: since the last line that gave the counts */
	bool stopping, has_ended;              /* G:mu */
	struct scout__log_line lines[SCOUT__LOG_LINES];
};

/*
 * Start the thread, which writes to @fd. @queue has static storage: a thread that still waits for its reader at exit
 * uses it. @file, borrowed for as long: the file that @fd is, or NULL. Returns 0 or an errno value.
 */
int scout__log_queue_start(struct scout__log_queue *queue, int fd, const struct scout__log_file *file);
/* A scout_log_fn with the queue as its user: adds the time and the level. Any thread. Never waits for the reader. */
void scout__log_queue_put(void *queue, int level, const char *text);
/*
 * Write what waits, for at most @flush_ms, and end the thread. Returns whether all was written; a thread that is still
 * writing goes on, and the process may exit. No line may be put afterwards.
 */
bool scout__log_queue_stop(struct scout__log_queue *queue, uint32_t flush_ms);
