/* SPDX-License-Identifier: Apache-2.0 */
#include "parts.h"

/*
 * DESIGN
 *
 * LOOKUP: how many leading chunks are readable by all ranks? Each one that counts is promised as it is counted, so the
 * answer is true when it is given. The walk stops at the first chunk that is not readable, or when max_promised is reached.
 *
 * It goes in slices. Whatever ends the session meanwhile (FINISH, RESET, the client's end) answers the lookup too: see
 * scout__session_end(). When its budget ends first, the answer is the hit so far.
 *
 * Key polling: a lookup that expects more than it found sleeps and goes on where it stopped. reply_delay_us holds a finished
 * answer back. Both are timers; nothing waits.
 *
 * Chunks below `skip` are in the GPU already. They are remembered where they are cached too, so that the end of the session can
 * touch them, but are neither required nor promised.
 *
 * Threads: loop.
 */

SCOUT_ON_LOOP static void
answer(struct scout_server *s, struct scout__task *task)
{
	struct scout__session *session = task->session;
	struct scout__dest *dest = &task->peer->dest;
	struct scout__lookup_reply m = {
		.hit = session->hit,
		.l1 = session->hit - task->skip,
		.limited = task->limited,
	};
	uint64_t ticket = session->ticket;
	struct scout__writer *w;
	size_t op;

	s->count.asked_chunks += task->n - task->skip;
	s->count.hit_chunks += m.l1;
	s->count.lookups_limited += m.limited;
	w = scout__reply_begin(s, dest, task->opcode, SCOUT_WIRE_OK, task->corr, 16, &op);
	if (!w) {
		scout__task_cancel(s, task);
		return;
	}
	scout__put_lookup_reply(w, &m);
	scout__reply_end(s, dest, op);
	/* A hit of a few chunks must not keep the room of a long prompt. */
	(void)scout__session_resize(s, session, session->hit);
	/* The lookup is answered before its undoing is noted: what is undone may be that very session. */
	scout__task_free(s, task);
	scout__reply_grants(s, dest, SCOUT_OP_LOOKUP, ticket);
}

/* 0..@max_us, by the ticket: a lookup keeps its delay however often it is looked at. */
static uint64_t
jitter_us(uint64_t ticket, uint32_t max_us)
{
	/* Clients draw tickets at random; the multiplication guards against those that count. */
	return ((ticket * UINT64_C(0x9e3779b97f4a7c15)) >> 32) % ((uint64_t)max_us + 1);
}

/* The walk is over: answer, or see to it that it happens later. */
SCOUT_ON_LOOP static void
finish(struct scout_server *s, struct scout__task *task)
{
	uint64_t delay_us = s->cfg.reply_delay_us;
	uint64_t at_us;

	if (s->cfg.reply_jitter_us)
		delay_us += jitter_us(task->session->ticket, s->cfg.reply_jitter_us);
	at_us = task->arrived_us + delay_us;
	if (at_us > task->deadline_us)
		at_us = task->deadline_us;
	if (delay_us == 0 || at_us <= s->now_us) {
		answer(s, task);
		return;
	}
	task->state = SCOUT__TASK_ANSWER;
	scout__timer_set(s, task, at_us);
}

/* Chunk task->next is not readable yet. True: it may still come, the task sleeps. */
SCOUT_ON_LOOP static bool
polls(struct scout_server *s, struct scout__task *task)
{
	uint64_t at_us = s->now_us + task->poll_interval_us;

	if (task->next >= task->expect || task->limited || s->now_us >= task->poll_end_us ||
	    s->now_us >= task->deadline_us)
		return false;
	if (at_us > task->poll_end_us)
		at_us = task->poll_end_us;
	if (at_us > task->deadline_us)
		at_us = task->deadline_us;
	scout__timer_set(s, task, at_us);
	return true;
}

/* The skipped chunks of this slice: remember those that are there. Returns how many it looked at. */
SCOUT_ON_LOOP static uint32_t
walk_skipped(struct scout__task *task, const struct scout__bank *bank, uint32_t n)
{
	struct scout__session *session = task->session;
	uint32_t hash_bytes = task->ns->hash_bytes;
	uint32_t end = task->next + n;

	while (task->next < end) {
		uint32_t entries[SCOUT__SLICE_CHUNKS];
		uint32_t found = 0;

		if (bank && task->space)
			found = scout__bank_find_run(bank, task->space, task->hashes + (size_t)task->next * hash_bytes,
						     end - task->next, entries);
		for (uint32_t i = 0; i < found; i++)
			session->handles[task->next++] = scout__bank_handle(bank, entries[i]);
		if (task->next < end)
			session->handles[task->next++] = (struct scout__handle){SCOUT__NO_ENTRY, 0};
		session->hit = task->next;
	}
	session->kept_from = session->kept_to = task->next;
	return n;
}

/* Promise what is readable in the next @n chunks. Less than @n: that is where the hit ends. */
SCOUT_ON_LOOP static uint32_t
walk(struct scout__task *task, struct scout__bank *bank, uint32_t n)
{
	struct scout__session *session = task->session;
	const uint8_t *hashes = task->hashes + (size_t)task->next * task->ns->hash_bytes;
	uint32_t entries[SCOUT__SLICE_CHUNKS];
	uint32_t found = scout__bank_find_run(bank, task->space, hashes, n, entries);
	uint32_t i;

	for (i = 0; i < found; i++) {
		if (!scout__bank_is_hit(bank, entries[i]))
			break;
		if (!scout__bank_promise(bank, entries[i])) {
			task->limited = 1;
			break;
		}
		session->handles[task->next++] = scout__bank_handle(bank, entries[i]);
		session->hit = session->kept_to = task->next;
	}
	return i;
}

SCOUT_ON_LOOP static void
lookup_step(struct scout_server *s, struct scout__job *job)
{
	struct scout__task *task = SCOUT__OWNER(job, struct scout__task, job);
	struct scout__bank *bank = task->ns->bank;
	uint32_t left = SCOUT__SLICE_CHUNKS;

	if (task->instance != task->ns->instance) {
		scout__task_refuse(s, task, SCOUT_WIRE_WEIGHTS, "the weights version changed");
		return;
	}
	if (task->state == SCOUT__TASK_ANSWER) {
		answer(s, task);
		return;
	}
	if (task->next < task->skip)
		left -= walk_skipped(task, bank, task->skip - task->next < left ? task->skip - task->next : left);
	if (task->next >= task->skip && task->next < task->n && left) {
		uint32_t n = task->n - task->next < left ? task->n - task->next : left;

		if (!task->space)
			task->space = scout__ns_space(s, task->ns, &task->tenant, task->group);
		if (!bank || !task->space || walk(task, bank, n) < n) {
			if (!polls(s, task))
				finish(s, task);
			return;
		}
	}
	if (task->next == task->n || s->now_us >= task->deadline_us)
		finish(s, task);
	else
		scout__job_queue(s, job);
}

void
scout__lookup(struct scout_server *s, struct scout__peer *peer, struct scout__packet *packet,
	      const struct scout__op *op, uint64_t deadline_us)
{
	struct scout__lookup_msg m;
	struct scout__task *task;
	const char *text = "";
	uint16_t refusal;
	int status = scout__get_lookup(op, peer->ns->hash_bytes, &m, &text);

	if (status) {
		scout__refuse(s, &peer->dest, op->opcode, op->corr, (uint16_t)status, "LOOKUP: %s is wrong", text);
		return;
	}
	if (!scout__peer_weights_fit(s, peer, op))
		return;
	task = scout__task_new(s, peer, packet, op, deadline_us);
	if (!task)
		return;
	task->session = scout__session_new(s, peer, m.ticket, m.n, &refusal, &text);
	if (!task->session) {
		scout__task_refuse(s, task, refusal, "%s", text);
		return;
	}
	task->session->lookup = task;
	task->session->skip = m.skip;
	task->job.step = lookup_step;
	task->hashes = m.hashes;
	task->tenant = m.tenant;
	task->group = m.group;
	task->n = m.n;
	task->skip = m.skip;
	task->expect = m.expect;
	task->space = scout__ns_space(s, peer->ns, &m.tenant, m.group);
	task->poll_end_us = s->now_us + (uint64_t)m.poll_timeout_ms * 1000;
	task->poll_interval_us = m.poll_interval_ms ? m.poll_interval_ms * UINT64_C(1000) : 1000;
	scout__job_start(s, &task->job, m.n);
}
