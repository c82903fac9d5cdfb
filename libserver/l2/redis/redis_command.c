/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/*
 * Commands are kept in lists, written into the buffer of a link, and failed. The value of a SET stays where it is: the
 * link sends it from there between two parts of its buffer. redis_route.c decides where a command goes.
 *
 * Threads: the adapter's, which owns all commands.
 */

void
scout__redis_queue_init(struct redis_queue *queue)
{
	queue->head = NULL;
	queue->tail = &queue->head;
}

void
scout__redis_queue_push(struct redis_queue *queue, struct redis_command *command)
{
	command->next = NULL;
	*queue->tail = command;
	queue->tail = &command->next;
}

void
scout__redis_queue_push_front(struct redis_queue *queue, struct redis_command *command)
{
	command->next = queue->head;
	queue->head = command;
	if (!command->next)
		queue->tail = &command->next;
}

struct redis_command *
scout__redis_queue_pop(struct redis_queue *queue)
{
	struct redis_command *command = queue->head;

	if (command) {
		queue->head = command->next;
		if (!queue->head)
			queue->tail = &queue->head;
		command->next = NULL;
	}
	return command;
}

struct redis_command *
scout__redis_command_new(struct redis *r, enum redis_kind kind, struct redis_job *job)
{
	struct redis_command *command = r->free_commands;

	if (command)
		r->free_commands = command->next;
	else
		command = malloc(sizeof(*command));
	if (!command)
		return NULL;
	*command = (struct redis_command){.kind = (uint8_t)kind, .job = job};
	if (kind == REDIS_EXISTS)
		r->n_exists++;
	return command;
}

void
scout__redis_command_free(struct redis *r, struct redis_command *command)
{
	if (command->kind == REDIS_EXISTS)
		r->n_exists--;
	command->next = r->free_commands;
	r->free_commands = command;
}

void
scout__redis_command_fail(struct redis *r, struct redis_command *command, enum scout__l2_result result, int detail)
{
	struct redis_job *job = command->job;
	uint32_t index = command->index;
	uint8_t kind = command->kind;

	scout__redis_command_free(r, command);
	if (kind == REDIS_SLOTS)
		scout__redis_refresh_failed(r);
	else if (job)
		scout__redis_job_part(r, job, index, false, result, detail);
}

/* ---- as bytes ---- */

static void
put_keyed(struct scout__writer *w, const char *name, const char *key)
{
	scout__redis_put_argc(w, 2);
	scout__redis_put_arg(w, name, strlen(name));
	scout__redis_put_arg(w, key, SCOUT__REDIS_KEY_BYTES);
}

/* Add a command without a job of its own to `sent`: its reply comes before the reply to the caller's command. */
static bool
send_before(struct redis *r, struct redis_link *link, enum redis_kind kind, struct redis_job *job) SCOUT_ON_REDIS
{
	struct redis_command *extra = scout__redis_command_new(r, kind, job);

	if (!extra)
		return false;
	scout__redis_queue_push(&link->sent, extra);
	return true;
}

static void
put_set(struct redis *r, struct redis_link *link, struct scout__writer *w, struct redis_job *job)
{
	char ttl[24];
	int len = snprintf(ttl, sizeof(ttl), "%" PRIu64, r->ttl_ms);

	scout__redis_put_argc(w, r->ttl_ms > 0 ? 6 : 4);
	scout__redis_put_arg(w, "SET", 3);
	scout__redis_put_arg(w, job->key, SCOUT__REDIS_KEY_BYTES);
	scout__redis_put_length(w, SCOUT__L2_HEADER_BYTES + job->op->bytes);
	scout__put_bytes(w, job->header, sizeof(job->header));
	link->payload = job->op->data;
	link->payload_left = job->op->bytes;
	link->writing = job;
	link->out_split = link->out_len + w->len;
	scout__put_bytes(w, "\r\n", 2);
	scout__redis_put_arg(w, "NX", 2);
	if (r->ttl_ms > 0) {
		scout__redis_put_arg(w, "PX", 2);
		scout__redis_put_arg(w, ttl, (size_t)len);
	}
}

static void
put_command(struct redis *r, struct redis_link *link, struct scout__writer *w,
	    struct redis_command *command) SCOUT_ON_REDIS
{
	static const char *const slots[] = {"CLUSTER", "SLOTS", NULL};
	char key[SCOUT__REDIS_KEY_BYTES + 1];

	switch (command->kind) {
	case REDIS_EXISTS:
		scout__redis_key(command->job->op->digests[command->index], key);
		put_keyed(w, "EXISTS", key);
		return;
	case REDIS_GET:
	case REDIS_RECORD_GET:
		put_keyed(w, "GET", command->job->key);
		return;
	case REDIS_RECORD_SET:
		scout__redis_put_argc(w, 3);
		scout__redis_put_arg(w, "SET", 3);
		scout__redis_put_arg(w, command->job->key, SCOUT__REDIS_KEY_BYTES);
		scout__redis_put_arg(w, (const char *)command->job->op->data, command->job->op->bytes);
		return;
	case REDIS_SET:
		put_set(r, link, w, command->job);
		return;
	case REDIS_UNLINK:
		put_keyed(w, "UNLINK", command->job->key);
		return;
	default:
		SCOUT_ASSERT(command->kind == REDIS_SLOTS);
		scout__redis_put_words(w, slots);
	}
}

bool
scout__redis_command_write(struct redis *r, struct redis_link *link, struct redis_command *command)
{
	static const char *const asking[] = {"ASKING", NULL}, *const role[] = {"ROLE", NULL};
	struct scout__writer w = {.buf = link->out + link->out_len, .cap = SCOUT__REDIS_BUFFER_BYTES - link->out_len};

	if (command->asking) {
		if (!send_before(r, link, REDIS_ASKING, NULL))
			return false;
		scout__redis_put_words(&w, asking);
	}
	if (command->kind == REDIS_RECORD_GET && scout__redis_needs_role(r)) {
		if (!send_before(r, link, REDIS_ROLE, NULL))
			return false;
		scout__redis_put_words(&w, role);
	}
	put_command(r, link, &w, command);
	SCOUT_ASSERT(!w.bad);
	link->out_len += w.len;
	command->since_us = r->now_us;
	if (command->job)
		command->job->moved_us = r->now_us;
	if (!link->sent.head) {
		link->progress_us = r->now_us; /* from now on the server owes us a reply */
		link->trickle = 0;
	}
	link->sent_bytes += command->bytes;
	scout__redis_queue_push(&link->sent, command);
	return true;
}
