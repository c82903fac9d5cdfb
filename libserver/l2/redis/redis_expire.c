/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_internal.h"

#include <errno.h>

/*
 * DESIGN
 *
 * Purpose: the clocks of jobs, and how a job that makes no progress ends.
 *
 * The clock of a job starts when the first of its commands is written. It starts anew with each further command, with
 * each reply, and with all bytes that move on a connection that owes the job a reply: values come one after the other,
 * and a job must not pay for a value of tens of megabytes before its own. Before its first command, a job waits for its
 * turn, and only the failure of the node that it waits for ends it. While a connection is being made, or the first slot
 * map is missing, the job waits for the store, and its clock runs.
 *
 * A job ends when all of its commands have ended, or when it is expired: then every link forgets the job first, and
 * only afterwards it is completed, so that nothing reads or writes a slot of the pool that is the server's again.
 *
 * Threads: the adapter's.
 */

static void
forget_waiting(struct redis_jobs *list)
{
	struct redis_job **at = &list->head;

	while (*at) {
		if ((*at)->expired)
			*at = (*at)->next;
		else
			at = &(*at)->next;
	}
	list->tail = at;
}

static void
forget_delayed(struct redis *r) SCOUT_ON_REDIS
{
	struct redis_queue kept;
	struct redis_command *command;

	scout__redis_queue_init(&kept);
	while ((command = scout__redis_queue_pop(&r->delayed))) {
		if (command->job->expired)
			scout__redis_command_free(r, command);
		else
			scout__redis_queue_push(&kept, command);
	}
	scout__redis_queue_init(&r->delayed);
	while ((command = scout__redis_queue_pop(&kept)))
		scout__redis_queue_push(&r->delayed, command);
}

static void
forget_on(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	if (scout__redis_link_forget(r, link))
		scout__redis_node_lost(r, link, (struct redis_trouble){REDIS_FINE, ETIMEDOUT, "a value took too long"});
}

static void
forget(struct redis *r) SCOUT_ON_REDIS
{
	struct redis_job *hashed = r->hashing.head;

	forget_delayed(r);
	for (int lane = 0; lane < REDIS_LANES; lane++)
		forget_waiting(&r->waiting[lane]);
	forget_waiting(&r->hashing);
	/* The sum was begun for the job that was first. */
	if (r->hashing.head && r->hashing.head != hashed)
		r->hashing.head->hashed = 0;
	for (uint32_t i = 0; i < r->n_nodes; i++)
		for (int lane = 0; r->nodes[i] && lane < REDIS_LANES; lane++)
			forget_on(r, &r->nodes[i]->links[lane]);
}

/* Bytes that move on a connection count for all jobs whose replies it owes. */
static void
note_progress(struct redis *r) SCOUT_ON_REDIS
{
	for (uint32_t i = 0; i < r->n_nodes; i++) {
		for (int lane = 0; r->nodes[i] && lane < REDIS_LANES; lane++) {
			const struct redis_link *link = &r->nodes[i]->links[lane];

			for (struct redis_command *command = link->sent.head; command; command = command->next)
				if (command->job && command->job->moved_us < link->progress_us)
					command->job->moved_us = link->progress_us;
			/* The connection that the job waited for is there: from here on the job waits for its turn. */
			for (struct redis_command *command = link->queue.head; command && link->state == REDIS_READY;
			     command = command->next)
				if (command->job && command->job->op->what != SCOUT__L2_EXISTS)
					command->job->moved_us = 0;
		}
	}
}

void
scout__redis_jobs_expire(struct redis *r, bool all)
{
	struct scout__list *node = &r->live;
	uint64_t earliest_us = UINT64_MAX;
	bool any = false;

	if (!all && r->now_us < r->earliest_us)
		return;
	note_progress(r);
	while ((node = node->next) != &r->live) {
		struct redis_job *job = SCOUT__OWNER(node, struct redis_job, live);
		uint64_t due_us = (job->moved_us ? job->moved_us : r->now_us) + job->op->timeout_us;

		job->expired = all || due_us <= r->now_us;
		any |= job->expired;
		if (!job->expired && due_us < earliest_us)
			earliest_us = due_us;
	}
	r->earliest_us = earliest_us;
	if (!any)
		return;
	forget(r);
	for (node = r->live.next; node != &r->live;) {
		struct redis_job *job = SCOUT__OWNER(node, struct redis_job, live);

		node = node->next;
		if (job->expired)
			scout__redis_job_finish(r, job, all ? SCOUT__L2_CANCELLED : SCOUT__L2_TIMEOUT,
						all ? 0 : ETIMEDOUT);
	}
}
