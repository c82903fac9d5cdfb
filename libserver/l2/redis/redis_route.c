/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_internal.h"

#include <errno.h>

/*
 * Which connection a command goes to: the one of its lane, on the node that serves its slot. This file makes commands
 * of jobs, as far as there is room for them, and keeps commands that a server asked us to send again later.
 *
 * Threads: the adapter's.
 */

void
scout__redis_command_send_to(struct redis *r, struct redis_command *command, struct redis_node *node)
{
	struct redis_link *link = &node->links[scout__redis_lane_of(command->kind)];

	if (node->down) {
		scout__redis_command_fail(r, command, SCOUT__L2_ERROR, ENOTCONN);
		return;
	}
	node->used_us = r->now_us;
	if (command->job && link->state != REDIS_READY)
		command->job->moved_us = r->now_us;
	scout__redis_queue_push(&link->queue, command);
	scout__redis_link_touch(r, link);
}

/* Give @command to the node that serves its slot now. It fails if there is none, or that node is down. */
static void
route(struct redis *r, struct redis_command *command) SCOUT_ON_REDIS
{
	uint16_t index = r->mode == REDIS_SINGLE ? 0 : r->slots[command->slot];

	if (index == UINT16_MAX || !r->nodes[index]) {
		scout__redis_refresh(r);
		scout__redis_command_fail(r, command, SCOUT__L2_ERROR, ENETUNREACH);
		return;
	}
	scout__redis_command_send_to(r, command, r->nodes[index]);
}

/* Issue one more command of the head of @list. False: not now. */
static bool
issue_one(struct redis *r, struct redis_jobs *list) SCOUT_ON_REDIS
{
	struct redis_job *job = list->head;
	enum redis_kind kind = scout__redis_job_kind(job);
	struct redis_command *command;

	if (kind == REDIS_EXISTS && r->n_exists >= SCOUT__REDIS_MAX_COMMANDS)
		return false;
	command = scout__redis_command_new(r, kind, job);
	if (!command)
		return false;
	if (job->issued == 0)
		job->moved_us = 0; /* from here on the job waits for us */
	command->index = job->issued++;
	if (job->issued == scout__redis_job_parts(job))
		(void)scout__redis_jobs_pop(list); /* before routing, which may end the job */
	if (kind == REDIS_EXISTS) {
		char key[SCOUT__REDIS_KEY_BYTES + 1];

		scout__redis_key(job->op->digests[command->index], key);
		command->slot = scout__redis_slot(key, SCOUT__REDIS_KEY_BYTES);
	} else {
		command->slot = job->slot;
	}
	if (kind == REDIS_GET || kind == REDIS_SET)
		command->bytes = SCOUT__L2_HEADER_BYTES + job->op->bytes;
	route(r, command);
	return true;
}

void
scout__redis_jobs_issue(struct redis *r)
{
	if (r->mode == REDIS_UNKNOWN) {
		if (r->unreachable)
			scout__redis_jobs_fail_waiting(r, ENOTCONN);
		return;
	}
	for (int lane = 0; lane < REDIS_LANES; lane++)
		while (r->waiting[lane].head && issue_one(r, &r->waiting[lane]))
			;
}

void
scout__redis_route_later(struct redis *r, struct redis_command *command)
{
	command->asking = false;
	command->since_us = r->now_us + SCOUT__REDIS_TRYAGAIN_US;
	scout__redis_queue_push(&r->delayed, command);
}

uint64_t
scout__redis_route_tick(struct redis *r)
{
	while (r->delayed.head && r->delayed.head->since_us <= r->now_us)
		route(r, scout__redis_queue_pop(&r->delayed));
	return r->delayed.head ? r->delayed.head->since_us : UINT64_MAX;
}
