/* SPDX-License-Identifier: Apache-2.0 */
#include "parts.h"

#include <stdlib.h>

#include "tier2.h"

#define STEP_US 100u

/*
 * DESIGN
 *
 * LOOKUP: how many leading chunks are readable by all ranks, or to be had from the second tier? Each one that counts is
 * promised as it is counted, so the answer is true when it is given. The walk goes over the pool; from the first chunk on that is
 * not there it goes over the answer to one question to the second tier (l2_lookup.c) as well. It stops at the first
 * chunk that neither has, or when max_promised is reached.
 *
 * It goes in slices. Whatever ends the session meanwhile (FINISH, RESET, the client's end) answers the lookup too: see
 * scout__session_end(). When its budget ends first, the answer is the hit so far.
 *
 * Key polling: a lookup that expects more than it found sleeps and goes on where it stopped, at the next interval or when
 * that very chunk is stored here. reply_delay_us holds a finished answer back. Both are timers; nothing waits.
 *
 * prefetch=before_answer: the walk starts the loads; when it is over, the task goes over its chunks once more and waits for
 * each, and what has not arrived in time is given back and does not count.
 *
 * Chunks below `skip` are in the GPU already. They are remembered where they are cached too, so that the end of the session can
 * touch them, but are neither required nor promised.
 *
 * A lookup ahead keeps what is there by chunk: it notes a hole and goes on behind it. Its session's kept range then has chunks
 * without an entry, which count as nothing when they are given back.
 *
 * A renewal (renew.c) is a lookup whose walk begins behind what its session promises.
 *
 * Threads: loop.
 */

SCOUT_ON_LOOP static void
count_answer(struct scout_server *s, const struct scout__task *task, const struct scout__lookup_reply *m)
{
	struct scout__ns *ns = task->ns;
	uint32_t asked = task->n - task->skip;
	uint32_t hit = m->l1 + m->l2;

	s->count.asked_chunks += asked;
	s->count.hit_chunks += hit;
	if (s->tier2)
		s->tier2->count.hit_chunks += m->l2;
	s->count.lookups_limited += m->limited;
	s->count.lookups_full += hit == asked;
	s->count.lookups_partial += hit > 0 && hit < asked;
	s->count.lookups_none += hit == 0 && asked > 0;
	ns->count.lookups++;
	ns->count.asked_chunks += asked;
	ns->count.hit_chunks += hit;
	ns->count.asked_tokens += (uint64_t)asked * ns->chunk_tokens;
	ns->count.hit_tokens += (uint64_t)hit * ns->chunk_tokens;
}

static void
put_presence(struct scout__writer *w, const struct scout__task *task, const struct scout__lookup_reply *m,
	     uint32_t known)
{
	const struct scout__ahead_reply reply = {
		.lookup = *m,
		.known = known,
		.present = task->present,
		.in_l2 = task->present + (task->n + 7) / 8,
	};

	scout__put_ahead_reply(w, &reply);
}

SCOUT_ON_LOOP static void
answer(struct scout_server *s, struct scout__task *task)
{
	struct scout__session *session = task->session;
	struct scout__dest *dest = &task->peer->dest;
	/* A renewal that was cut may have loads under way: what has not arrived does not count. */
	uint32_t known = task->state == SCOUT__TASK_LOADS ? task->load_next : session->hit;
	uint32_t found = known < task->first_hole ? known : task->first_hole;
	/* Its budget may end before the walk has passed what is skipped, which is a hit without it. */
	uint32_t hit = found > task->skip ? found : task->skip;
	struct scout__lookup_reply m = {.hit = hit, .limited = task->limited};
	bool renews = task->renews;
	uint64_t ticket = session->ticket;
	uint64_t arrived_us = task->arrived_us;
	struct scout__writer *w;
	size_t op;

	session->l2 += task->ahead ? 0 : task->l2;
	/* What was found before in the pool may have been admitted since: then the range is smaller than the count. */
	m.l2 = task->ahead ? task->l2 : session->l2;
	if (m.l2 > hit - task->skip)
		m.l2 = hit - task->skip;
	m.l1 = hit - task->skip - m.l2;
	if (renews)
		s->count.lookups_renewed++;
	else
		count_answer(s, task, &m);
	w = scout__reply_begin(s, dest, task->opcode, SCOUT_WIRE_OK, task->corr,
			       task->ahead ? SCOUT__AHEAD_REPLY_BYTES(known) : 16, &op);
	if (!w) {
		scout__task_cancel(s, task);
		return;
	}
	if (task->ahead)
		put_presence(w, task, &m, known);
	else
		scout__put_lookup_reply(w, &m);
	scout__reply_end(s, dest, op);
	/* A hit of a few chunks must not keep the room of a long prompt. */
	(void)scout__session_resize(s, session, session->hit);
	/* The lookup is answered before its undoing is noted: what is undone may be that very session. */
	scout__task_free(s, task);
	/* A renewal whose answer is lost leaves a session that promises more than its client knows, until it is admitted. */
	if (!renews)
		scout__reply_grants(s, dest, SCOUT_OP_LOOKUP, ticket, arrived_us);
}

void
scout__lookup_cut(struct scout_server *s, struct scout__task *task)
{
	answer(s, task);
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
	uint64_t end_us = scout__task_answer_by(task);
	uint64_t at_us;

	if (end_us > task->poll_end_us)
		end_us = task->poll_end_us;
	if (task->next >= task->expect || task->limited || s->now_us >= end_us)
		return false;
	if (task->poll_next_us <= s->now_us)
		task->poll_next_us = s->now_us + task->poll_interval_us;
	at_us = task->poll_next_us < end_us ? task->poll_next_us : end_us;
	scout__chunk_wait(task, task->hashes + (size_t)task->next * task->ns->hash_bytes);
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

static void
set_bit(uint8_t *bits, uint32_t i)
{
	bits[i / 8] |= (uint8_t)(1u << i % 8);
}

static void
clear_bit(uint8_t *bits, uint32_t i)
{
	bits[i / 8] &= (uint8_t) ~(1u << i % 8);
}

/* Chunk @i counts. */
SCOUT_ON_LOOP static void
note_tier(struct scout_server *s, struct scout__task *task, uint32_t i, uint32_t entry)
{
	if (task->ahead)
		set_bit(task->present, i);
	if (scout__bank_is_hit(task->ns->bank, entry))
		return;
	if (task->ahead)
		set_bit(task->present + (task->n + 7) / 8, i);
	task->l2 += i < task->first_hole;
	if (s->tier2->load_at_lookup)
		scout__load_want_all(s, task->ns, entry);
	if (task->from_l2)
		set_bit(task->from_l2, i);
}

/* Chunk @i of a lookup ahead is not there, or did not arrive. */
SCOUT_ON_LOOP static void
note_hole(struct scout__task *task, uint32_t i)
{
	scout__session_hole(task->session, i);
	clear_bit(task->present, i);
	clear_bit(task->present + (task->n + 7) / 8, i);
	if (task->first_hole > i)
		task->first_hole = i;
}

/* The same of task.next: goes on behind it. */
SCOUT_ON_LOOP static void
pass_hole(struct scout__task *task)
{
	note_hole(task, task->next++);
	task->session->hit = task->session->kept_to = task->next;
}

/* Promise what the pool has, or expects, of the next @n chunks. Less than @n: task->next has it not, or is not allowed. */
SCOUT_ON_LOOP static uint32_t
walk_pool(struct scout_server *s, struct scout__task *task, uint32_t n)
{
	struct scout__session *session = task->session;
	struct scout__bank *bank = task->ns->bank;
	const uint8_t *hashes = task->hashes + (size_t)task->next * task->ns->hash_bytes;
	uint32_t entries[SCOUT__SLICE_CHUNKS];
	uint32_t found = 0;
	uint32_t i;

	if (!task->space)
		task->space = scout__ns_space(s, task->ns, &task->tenant, task->group);
	if (bank && task->space)
		found = scout__bank_find_run(bank, task->space, hashes, n, entries);
	for (i = 0; i < found; i++) {
		if (!scout__bank_counts(bank, entries[i]))
			break;
		if (!scout__bank_promise(bank, entries[i])) {
			task->limited = 1;
			break;
		}
		note_tier(s, task, task->next, entries[i]);
		session->handles[task->next++] = scout__bank_handle(bank, entries[i]);
		session->hit = session->kept_to = task->next;
	}
	return i;
}

/* The pool, and where it ends the second tier. MORE: the slice is used up. TAKEN: to the last chunk. */
SCOUT_ON_LOOP static enum scout__asked
walk(struct scout_server *s, struct scout__task *task, uint32_t left)
{
	uint64_t end_us = 0;

	while (left > 0 && task->next < task->n) {
		uint32_t n = task->n - task->next < left ? task->n - task->next : left;
		enum scout__asked what;
		uint32_t done;

		/* In the answer of the second tier, chunk by chunk. */
		if (task->ask)
			n = 1;
		done = walk_pool(s, task, n);
		left -= done;
		if (done == n)
			continue;
		if (task->limited)
			return SCOUT__ASKED_LIMITED;
		what = scout__ask_next(s, task);
		if (what == SCOUT__ASKED_GAP && task->ahead && task->next >= task->expect)
			pass_hole(task);
		else if (what != SCOUT__ASKED_TAKEN)
			return what;
		else
			note_tier(s, task, task->next - 1, task->session->handles[task->next - 1].entry);
		left--;
		/* Room for a chunk may cost page faults. */
		if (end_us == 0)
			end_us = s->now_us + STEP_US;
		if (left % 16 == 0 && scout__now_us() >= end_us)
			break;
	}
	return task->next < task->n ? SCOUT__ASKED_MORE : SCOUT__ASKED_TAKEN;
}

/* ---- prefetch=before_answer ---- */

/* Chunk @i has not come: neither it nor those behind it count. Some of them are given back; true when all are. */
SCOUT_ON_LOOP static bool
cut(struct scout__task *task, uint32_t at, uint32_t left)
{
	struct scout__session *session = task->session;

	for (; left > 0 && session->kept_to > at; left--)
		scout__session_shorten(session);
	session->hit = task->next = session->kept_to;
	return session->kept_to == at;
}

/* The walk is over; now what was promised arrives, in order. */
SCOUT_ON_LOOP static void
arrive(struct scout_server *s, struct scout__task *task)
{
	struct scout__bank *bank = task->ns->bank;
	uint32_t left = SCOUT__SLICE_CHUNKS;

	for (; left > 0 && task->load_next < task->next; left--, task->load_next++) {
		uint32_t i = task->load_next;
		uint32_t entry = task->session->handles[i].entry;

		if (entry == SCOUT__NO_ENTRY)
			continue;
		if (!scout__bank_is_hit(bank, entry) && scout__bank_counts(bank, entry) &&
		    s->now_us < task->wait_end_us) {
			scout__chunk_wait(task, bank->entries[entry].hash);
			scout__timer_set(s, task, task->wait_end_us);
			return;
		}
		if (!scout__bank_is_hit(bank, entry) && task->ahead) {
			note_hole(task, i);
			continue;
		}
		if (!scout__bank_is_hit(bank, entry)) {
			if (!cut(task, i, left))
				break;
			finish(s, task);
			return;
		}
		task->l2 += i < task->first_hole && (task->from_l2[i / 8] >> i % 8 & 1);
	}
	if (task->load_next < task->next)
		scout__job_queue(s, &task->job);
	else
		finish(s, task);
}

/* The walk is over. */
SCOUT_ON_LOOP static void
walked(struct scout_server *s, struct scout__task *task)
{
	scout__ask_drop(s, task);
	if (!task->from_l2) {
		finish(s, task);
		return;
	}
	task->state = SCOUT__TASK_LOADS;
	task->load_next = task->first;
	task->l2 = 0;
	task->wait_end_us = scout__task_answer_by(task);
	arrive(s, task);
}

SCOUT_ON_LOOP static void
lookup_step(struct scout_server *s, struct scout__job *job)
{
	struct scout__task *task = SCOUT__OWNER(job, struct scout__task, job);
	uint32_t left = SCOUT__SLICE_CHUNKS;
	enum scout__asked what;

	scout__list_del(&task->waiting);
	if (task->instance != task->ns->instance) {
		scout__task_refuse(s, task, task->ns->ended_by, "%s", scout__ns_ended_text(task->ns));
		return;
	}
	if (task->state == SCOUT__TASK_ANSWER) {
		answer(s, task);
		return;
	}
	scout__timer_clear(s, task);
	if (task->state == SCOUT__TASK_RUN && scout__records_wait(s, task))
		return;
	if (task->state == SCOUT__TASK_LOADS) {
		arrive(s, task);
		return;
	}
	if (task->next < task->skip)
		left -= walk_skipped(task, task->ns->bank,
				     task->skip - task->next < left ? task->skip - task->next : left);
	what = task->next < task->skip ? SCOUT__ASKED_MORE : walk(s, task, left);
	switch (what) {
	case SCOUT__ASKED_WAIT:
		return;
	case SCOUT__ASKED_MORE:
		if (s->now_us < scout__task_answer_by(task)) {
			scout__job_queue(s, job);
			return;
		}
		break;
	case SCOUT__ASKED_GAP:
		if (polls(s, task))
			return;
		if (task->ahead) { /* it was expected, and is late */
			pass_hole(task);
			scout__job_queue(s, job);
			return;
		}
		break;
	case SCOUT__ASKED_LIMITED:
		task->limited = 1;
		break;
	default:
		break;
	}
	walked(s, task);
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
	task->job.step = lookup_step;
	task->hashes = m.hashes;
	task->tenant = m.tenant;
	task->group = m.group;
	task->n = m.n;
	task->skip = m.skip;
	task->expect = m.expect;
	task->space = scout__ns_space(s, peer->ns, &m.tenant, m.group);
	task->ahead = m.flags & SCOUT_LOOKUP_AHEAD;
	task->first_hole = UINT32_MAX;
	if (task->ahead && !(task->present = calloc((m.n + 7) / 8, 2))) {
		s->count.out_of_memory++;
		scout__task_refuse(s, task, SCOUT_WIRE_LIMIT, "the server is out of memory");
		return;
	}
	if (m.flags & SCOUT_LOOKUP_RENEW)
		task->session = scout__renew(s, peer, task, m.ticket, &refusal, &text);
	else
		task->session = scout__session_new(s, peer, m.ticket, m.n, &refusal, &text);
	if (!task->session) {
		scout__task_refuse(s, task, refusal, "%s", text);
		return;
	}
	task->session->lookup = task;
	task->session->skip = m.skip;
	task->first = task->next > m.skip ? task->next : m.skip;
	/* Without an interval the keys are asked for once. */
	task->poll_end_us = m.poll_interval_ms ? s->now_us + (uint64_t)m.poll_timeout_ms * 1000 : 0;
	task->poll_interval_us = m.poll_interval_ms * UINT64_C(1000);
	/* Without memory for it the answer counts what is on its way, too. */
	if (s->tier2 && s->tier2->load_before_answer)
		task->from_l2 = calloc((m.n + 7) / 8, 1);
	scout__job_start(s, &task->job, m.n);
}
