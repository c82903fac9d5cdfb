/* SPDX-License-Identifier: Apache-2.0 */
#include "parts.h"

#include <stdlib.h>

/*
 * DESIGN
 *
 * The run queue: a ring of jobs behind a head that is no job itself. A turn runs each job that was there at its beginning
 * once, so a job of a million chunks and one of ten take turns, and the small one is answered first. Operations that are
 * short run at once when they arrive, without queueing, until the turn has touched SCOUT__INLINE_CHUNKS.
 *
 * Timers: a binary heap of tasks, from index 1. A task has at most one. Growing the heap may fail; the task is
 * then woken at once, which costs time but loses nothing.
 *
 * Threads: loop.
 */

void
scout__job_queue(struct scout_server *s, struct scout__job *job)
{
	if (job->queued)
		return;
	job->queued = true;
	job->prev = s->queue.prev;
	job->next = &s->queue;
	job->prev->next = job;
	s->queue.prev = job;
}

void
scout__job_unqueue(struct scout__job *job)
{
	if (!job->queued)
		return;
	job->queued = false;
	job->prev->next = job->next;
	job->next->prev = job->prev;
}

bool
scout__jobs_empty(const struct scout_server *s)
{
	return s->queue.next == &s->queue;
}

bool
scout__jobs_wait(const struct scout_server *s)
{
	const struct scout__job *mark = &s->turn_mark;
	const struct scout__job *first = s->queue.next == mark ? mark->next : s->queue.next;

	return first != &s->queue;
}

SCOUT_ON_LOOP static void
run_one(struct scout_server *s, struct scout__job *job)
{
	uint64_t before = s->now_us;

	job->step(s, job);
	scout__note_step(s, before);
}

void
scout__jobs_run(struct scout_server *s)
{
	uint64_t end_us = s->now_us + SCOUT__TURN_US;
	struct scout__job *mark = &s->turn_mark;

	if (scout__jobs_empty(s))
		return;
	/* What is queued from here on is for the next turn. */
	scout__job_queue(s, mark);
	while (s->queue.next != mark && s->now_us < end_us) {
		struct scout__job *job = s->queue.next;

		scout__job_unqueue(job);
		run_one(s, job);
	}
	scout__job_unqueue(mark);
}

void
scout__job_start(struct scout_server *s, struct scout__job *job, uint32_t chunks)
{
	if (chunks > SCOUT__SLICE_CHUNKS)
		chunks = SCOUT__SLICE_CHUNKS;
	if (s->inline_left < chunks) {
		scout__job_queue(s, job);
		return;
	}
	s->inline_left -= chunks;
	job->step(s, job);
}

SCOUT_ON_LOOP static void
place(struct scout_server *s, size_t i, struct scout__task *task)
{
	s->heap[i] = task;
	task->heap_pos = i;
}

SCOUT_ON_LOOP static void
sift_up(struct scout_server *s, size_t i)
{
	struct scout__task *task = s->heap[i];

	while (i > 1 && s->heap[i / 2]->wake_us > task->wake_us) {
		place(s, i, s->heap[i / 2]);
		i /= 2;
	}
	place(s, i, task);
}

SCOUT_ON_LOOP static void
sift_down(struct scout_server *s, size_t i)
{
	struct scout__task *task = s->heap[i];

	for (;;) {
		size_t child = 2 * i;

		if (child > s->heap_n)
			break;
		if (child < s->heap_n && s->heap[child + 1]->wake_us < s->heap[child]->wake_us)
			child++;
		if (s->heap[child]->wake_us >= task->wake_us)
			break;
		place(s, i, s->heap[child]);
		i = child;
	}
	place(s, i, task);
}

SCOUT_ON_LOOP static bool
heap_room(struct scout_server *s)
{
	size_t cap = s->heap_cap ? s->heap_cap * 2 : 64;
	struct scout__task **heap;

	if (s->heap_n + 1 < s->heap_cap)
		return true;
	heap = reallocarray(s->heap, cap, sizeof(struct scout__task *));
	if (!heap)
		return false;
	s->heap = heap;
	s->heap_cap = cap;
	return true;
}

void
scout__timer_set(struct scout_server *s, struct scout__task *task, uint64_t wake_us)
{
	scout__timer_clear(s, task);
	if (wake_us == UINT64_MAX)
		return;
	task->wake_us = wake_us;
	if (!heap_room(s)) {
		scout__job_queue(s, &task->job);
		return;
	}
	s->heap[++s->heap_n] = task;
	sift_up(s, s->heap_n);
}

void
scout__timer_clear(struct scout_server *s, struct scout__task *task)
{
	size_t i = task->heap_pos;
	struct scout__task *last;

	if (i == 0)
		return;
	task->heap_pos = 0;
	last = s->heap[s->heap_n--];
	if (last == task)
		return;
	place(s, i, last);
	sift_up(s, i);
	sift_down(s, last->heap_pos);
}

uint64_t
scout__timers_next(const struct scout_server *s)
{
	return s->heap_n ? s->heap[1]->wake_us : UINT64_MAX;
}

void
scout__timers_run(struct scout_server *s)
{
	while (s->heap_n && s->heap[1]->wake_us <= s->now_us) {
		struct scout__task *task = s->heap[1];

		scout__timer_clear(s, task);
		scout__job_queue(s, &task->job);
	}
}
