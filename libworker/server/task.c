/* SPDX-License-Identifier: Apache-2.0 */
#include "parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tier2.h"

/*
 * DESIGN
 *
 * A task is an operation that was read and is not answered: LOOKUP, ADMIT, STORE, RETRIEVE. It belongs to its peer and keeps the
 * message alive that it points into. What it has granted so far hangs on its session (LOOKUP) or its hold (STORE,
 * RETRIEVE), so that it can be taken back at any moment without asking the task how far it got.
 *
 * Tasks that can go on when something happens to one chunk (it is stored, loaded, or given up) wait in a bucket by its
 * hash. A wrong wake costs a look and changes nothing.
 *
 * Threads: loop.
 */

struct scout__task *
scout__task_new(struct scout_server *s, struct scout__peer *peer, struct scout__packet *packet,
		const struct scout__op *op, uint64_t deadline_us)
{
	struct scout__task *task = calloc(1, sizeof(*task));

	if (!task) {
		s->count.out_of_memory++;
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_LIMIT, "the server is out of memory");
		return NULL;
	}
	task->peer = peer;
	task->ns = peer->ns;
	task->instance = peer->ns->instance;
	task->packet = packet;
	task->opcode = op->opcode;
	task->corr = op->corr;
	task->arrived_us = s->now_us;
	task->deadline_us = deadline_us;
	scout__packet_ref(packet);
	scout__list_init(&task->waiting);
	scout__list_add(&peer->tasks, &task->of_peer);
	peer->unanswered++;
	s->n_tasks++;
	return task;
}

/* However it ended: from now on its session may be renewed. */
SCOUT_ON_LOOP static void
admit_is_over(struct scout_server *s, const struct scout__task *task)
{
	struct scout__session *session = scout__session_find(s, task->ns, task->ticket);

	if (session && session->serial == task->serial)
		session->n_admits--;
}

void
scout__task_free(struct scout_server *s, struct scout__task *task)
{
	scout__timer_clear(s, task);
	scout__job_unqueue(&task->job);
	scout__list_del(&task->of_peer);
	scout__list_del(&task->waiting);
	scout__ask_drop(s, task);
	if (task->session)
		task->session->lookup = NULL;
	if (task->opcode == SCOUT_OP_ADMIT)
		admit_is_over(s, task);
	if (task->reply.cap)
		s->grant_bytes -= task->reply.cap;
	free(task->reply.buf);
	free(task->from_l2);
	free(task->present);
	scout__packet_unref(task->packet);
	task->peer->unanswered--;
	s->n_tasks--;
	free(task);
}

/* What a task has granted so far, and was never told. */
SCOUT_ON_LOOP static void
take_back(struct scout_server *s, struct scout__task *task)
{
	struct scout__session *session = task->session;

	if (task->hold)
		scout__hold_undo(s, task->hold);
	task->hold = NULL;
	if (session) {
		task->session = NULL;
		session->lookup = NULL;
		/* What a renewal has promised is the session's, as what was promised before: its next answer says it. */
		if (!session->ended && !task->renews)
			scout__session_end(s, session, false, 0);
	}
}

void
scout__task_refuse(struct scout_server *s, struct scout__task *task, uint16_t status, const char *fmt, ...)
{
	char text[256];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	take_back(s, task);
	scout__refuse(s, &task->peer->dest, task->opcode, task->corr, status, "%s", text);
	scout__task_free(s, task);
}

void
scout__task_cancel(struct scout_server *s, struct scout__task *task)
{
	take_back(s, task);
	scout__task_free(s, task);
}

void
scout__tasks_cancel(struct scout_server *s, struct scout__peer *peer)
{
	struct scout__list *node;

	while ((node = scout__list_pop(&peer->tasks)))
		scout__task_cancel(s, SCOUT__OWNER(node, struct scout__task, of_peer));
}

void
scout__tasks_wake(struct scout_server *s, struct scout__list *waiters)
{
	struct scout__list *node;

	while ((node = scout__list_pop(waiters)))
		scout__job_queue(s, &SCOUT__OWNER(node, struct scout__task, waiting)->job);
}

uint64_t
scout__task_answer_by(const struct scout__task *task)
{
	uint64_t margin_us = (task->deadline_us - task->arrived_us) / 8;

	if (task->deadline_us == UINT64_MAX)
		return UINT64_MAX;
	return task->deadline_us - (margin_us < SCOUT__ANSWER_MARGIN_US ? margin_us : SCOUT__ANSWER_MARGIN_US);
}

/* ---- who waits for a chunk ---- */

static struct scout__list *
bucket(struct scout__ns *ns, const uint8_t *hash)
{
	uint64_t word;

	memcpy(&word, hash, sizeof(word));
	return &ns->chunk_waiters[(word * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - SCOUT__WAITER_BITS)];
}

void
scout__chunk_wait(struct scout__task *task, const uint8_t *hash)
{
	memcpy(task->wait_hash, hash, task->ns->hash_bytes);
	scout__list_add(bucket(task->ns, hash), &task->waiting);
}

void
scout__chunk_wake(struct scout_server *s, struct scout__ns *ns, const uint8_t *hash)
{
	struct scout__list *list = bucket(ns, hash);
	struct scout__list *node = list->next;

	while (node != list) {
		struct scout__task *task = SCOUT__OWNER(node, struct scout__task, waiting);

		node = node->next;
		if (memcmp(task->wait_hash, hash, ns->hash_bytes) != 0)
			continue;
		scout__list_del(&task->waiting);
		scout__job_queue(s, &task->job);
	}
}
