/* SPDX-License-Identifier: Apache-2.0 */
#include "parts.h"

#include <stdlib.h>

#include "tier2.h"

/*
 * DESIGN
 *
 * Where the walk of a lookup over the pool ends, one question goes to all adapters at once: which of the shards that are not in the
 * pool, of all the chunks that are left, do you have? (What key polling asks again is a window, since what comes late
 * comes in order.) Building it and walking over the answer go in slices; in between the task waits, and so does nothing else.
 *
 * What is found is pinned in the stores as it is found. A chunk that counts moves its pins into the record of its entry; all
 * other pins are given back when the question is over. It is over when every adapter has answered, or when every key is
 * found, or when its time is up: then what is known by then is the answer, and the rest is given back when it comes.
 *
 * A question outlives its lookup: its memory is the adapters' until the last operation is reaped.
 *
 * Threads: loop.
 */

SCOUT_ON_LOOP static void
ask_free(struct scout_server *s, struct scout__ask *ask)
{
	scout__job_unqueue(&ask->job);
	s->tier2->ask_bytes -= ask->bytes;
	free(ask->chunks);
	free(ask->digests);
	free(ask->where);
	free(ask->found);
	free(ask->ops);
	free(ask);
}

/* Nobody reads the answer any more: give back the pins that nobody took. */
SCOUT_ON_LOOP static void
dispose_step(struct scout_server *s, struct scout__job *job)
{
	struct scout__ask *ask = SCOUT__OWNER(job, struct scout__ask, job);
	uint32_t end = ask->n_keys;

	if (end - ask->given_back > 4 * SCOUT__SLICE_KEYS)
		end = ask->given_back + 4 * SCOUT__SLICE_KEYS;
	for (; ask->given_back < end; ask->given_back++)
		if (ask->where[ask->given_back])
			scout__tier2_unpin(s, ask->digests[ask->given_back], ask->where[ask->given_back]);
	if (ask->given_back < ask->n_keys)
		scout__job_queue(s, job);
	else
		ask_free(s, ask);
}

/* There may be room for a question that waits. */
SCOUT_ON_LOOP static void
wake_waiter(struct scout_server *s)
{
	struct scout__list *waiters = &s->tier2->ask_waiters;

	if (!scout__list_empty(waiters)) {
		struct scout__task *task = SCOUT__OWNER(waiters->next, struct scout__task, waiting);

		scout__list_del(&task->waiting);
		scout__job_queue(s, &task->job);
	}
}

void
scout__ask_drop(struct scout_server *s, struct scout__task *task)
{
	struct scout__ask *ask = task->ask;

	if (!ask)
		return;
	task->ask = NULL;
	ask->task = NULL;
	/* It may have been woken to be sent, and needs it no more: the room is the next one's. */
	if (!ask->sent)
		wake_waiter(s);
	if (ask->n_running == 0)
		dispose_step(s, &ask->job);
}

/* ---- making it ---- */

SCOUT_ON_LOOP static uint8_t
usable(const struct scout_server *s, const struct scout__ns *ns)
{
	uint8_t adapters = 0;

	for (uint32_t i = 0; i < s->tier2->n; i++)
		if (scout__l2_usable(s->tier2->l2, i, SCOUT__L2_READS, s->now_us))
			adapters |= (uint8_t)(1u << i);
	return adapters & scout__records_stores(ns);
}

/* How many chunks from task.next on are worth asking for. */
SCOUT_ON_LOOP static uint32_t
how_many(const struct scout_server *s, const struct scout__task *task)
{
	uint64_t n = task->n - task->next;
	uint64_t room = s->l1.max_promised / task->ns->bank->chunk_bytes + 1;

	if (task->n_rounds > 0 && n > SCOUT__POLL_WINDOW)
		n = SCOUT__POLL_WINDOW;
	return (uint32_t)(n < room ? n : room);
}

SCOUT_ON_LOOP static struct scout__ask *
ask_new(struct scout_server *s, struct scout__task *task)
{
	struct scout__tier2 *t = s->tier2;
	uint32_t n = how_many(s, task);
	uint64_t keys = (uint64_t)n * task->ns->bank->n_ranks;
	uint64_t bytes = n * sizeof(struct scout__ask_chunk) + keys * (sizeof(struct scout__l2_digest) + 1 + t->n);
	struct scout__ask *ask;

	if (bytes > SCOUT__MAX_ASK_BYTES - t->ask_bytes)
		return NULL;
	ask = calloc(1, sizeof(*ask));
	if (!ask)
		return NULL;
	ask->chunks = calloc(n, sizeof(*ask->chunks));
	ask->digests = malloc(keys * sizeof(*ask->digests));
	ask->where = calloc(keys, 1);
	ask->bytes = bytes;
	t->ask_bytes += bytes;
	if (!ask->chunks || !ask->digests || !ask->where) {
		ask_free(s, ask);
		return NULL;
	}
	ask->job.step = dispose_step;
	ask->server = s;
	ask->task = task;
	ask->weights = task->ns->weights;
	ask->first = task->next;
	ask->n = n;
	ask->end_us = s->now_us + t->lookup_timeout_us;
	if (ask->end_us > scout__task_answer_by(task))
		ask->end_us = scout__task_answer_by(task);
	return ask;
}

/* The ranks of chunk @i that the pool does not have and does not expect. */
SCOUT_ON_LOOP static uint64_t
missing_ranks(const struct scout__task *task, uint32_t i)
{
	const struct scout__bank *bank = task->ns->bank;
	uint64_t all = bank->n_ranks == 64 ? UINT64_MAX : (UINT64_C(1) << bank->n_ranks) - 1;
	uint32_t entry = SCOUT__NO_ENTRY;

	if (task->space)
		entry = scout__bank_find(bank, task->space, task->hashes + (size_t)i * task->ns->hash_bytes);
	for (uint32_t rank = 0; entry != SCOUT__NO_ENTRY && rank < bank->n_ranks; rank++) {
		enum scout__shard_state state = scout__bank_state(bank, entry, rank);

		if (state == SCOUT__SHARD_READABLE || state == SCOUT__SHARD_EXPECTED || state == SCOUT__SHARD_LOADING)
			all &= ~(UINT64_C(1) << rank);
	}
	return all;
}

/* Some more of the keys. True: all are there. */
SCOUT_ON_LOOP static bool
build(struct scout__ask *ask, const struct scout__task *task)
{
	const struct scout__ns *ns = task->ns;
	uint32_t end = ask->n_keys + SCOUT__SLICE_KEYS;
	struct scout__l2_key key;

	for (; ask->n_built < ask->n && ask->n_keys < end; ask->n_built++) {
		uint32_t i = ask->first + ask->n_built;
		struct scout__ask_chunk *chunk = &ask->chunks[ask->n_built];

		chunk->ranks = missing_ranks(task, i);
		chunk->first = ask->n_keys;
		for (uint64_t ranks = chunk->ranks; ranks; ranks &= ranks - 1) {
			scout__key_of(ns, (uint32_t)__builtin_ctzll(ranks), ask->weights, &task->tenant, task->group,
				      task->hashes + (size_t)i * ns->hash_bytes, &key);
			ask->digests[ask->n_keys++] = key.digest;
		}
	}
	return ask->n_built == ask->n;
}

SCOUT_ON_LOOP static void
ask_done(void *user, struct scout__l2_op *op)
{
	struct scout__ask *ask = user;
	struct scout_server *s = ask->server;
	uint8_t *where = ask->where + (op->digests - ask->digests);

	/* However it ended: what was found is found, and pinned. */
	for (uint32_t i = 0; i < op->n; i++) {
		if (!op->found[i])
			continue;
		ask->n_found += where[i] == 0;
		where[i] |= (uint8_t)(1u << op->adapter);
	}
	s->tier2->n_ask_ops--;
	ask->n_running--;
	if (ask->n_running == 0 || ask->n_found == ask->n_keys)
		ask->over = true;
	if (ask->task && ask->over)
		scout__job_queue(s, &ask->task->job);
	else if (!ask->task && ask->n_running == 0)
		scout__job_queue(s, &ask->job);
	wake_waiter(s);
}

/* Send the question to all @adapters. False: they have too many now, or there is no memory (then it is over). */
SCOUT_ON_LOOP static bool
send_ask(struct scout_server *s, struct scout__ask *ask, uint8_t adapters)
{
	struct scout__tier2 *t = s->tier2;
	uint32_t batches = (ask->n_keys + SCOUT__L2_MAX_KEYS - 1) / SCOUT__L2_MAX_KEYS;
	uint32_t n_ops = batches * (uint32_t)__builtin_popcount(adapters);
	uint32_t at = 0;

	if (t->n_ask_ops > 0 && t->n_ask_ops + n_ops > SCOUT__ASK_OPS)
		return false;
	ask->sent = true;
	ask->found = calloc(t->n, ask->n_keys);
	ask->ops = calloc(n_ops, sizeof(*ask->ops));
	if (n_ops == 0 || !ask->found || !ask->ops) {
		ask->over = true;
		return true;
	}
	t->count.asks++;
	for (uint32_t adapter = 0; adapter < t->n; adapter++) {
		for (uint32_t i = 0; i < batches && adapters & 1u << adapter; i++) {
			uint32_t from = i * SCOUT__L2_MAX_KEYS;
			uint32_t n = ask->n_keys - from < SCOUT__L2_MAX_KEYS ? ask->n_keys - from : SCOUT__L2_MAX_KEYS;
			struct scout__l2_op *op = &ask->ops[at];

			op->what = SCOUT__L2_EXISTS;
			op->pin = true;
			op->timeout_us = t->lookup_timeout_us;
			op->n = n;
			op->digests = ask->digests + from;
			op->found = ask->found + (size_t)adapter * ask->n_keys + from;
			op->done = ask_done;
			op->user = ask;
			at++;
			ask->n_running++;
			t->n_ask_ops++;
			scout__l2_submit(t->l2, adapter, op, s->now_us);
		}
	}
	return true;
}

/* ---- taking what it found ---- */

/* The key of @rank in the question, or UINT32_MAX. */
static uint32_t
key_at(const struct scout__ask_chunk *chunk, uint32_t rank)
{
	uint64_t bit = UINT64_C(1) << rank;

	if (!(chunk->ranks & bit))
		return UINT32_MAX;
	return chunk->first + (uint32_t)__builtin_popcountll(chunk->ranks & (bit - 1));
}

/* Whether each shard of the chunk is in the pool, or free to be loaded and found. */
SCOUT_ON_LOOP static bool
is_complete(const struct scout_server *s, const struct scout__task *task, const struct scout__ask_chunk *chunk,
	    uint32_t entry)
{
	const struct scout__bank *bank = task->ns->bank;
	const struct scout__ask *ask = task->ask;

	if (entry != SCOUT__NO_ENTRY && bank->entries[entry].spoiled)
		return false;
	for (uint32_t rank = 0; rank < bank->n_ranks; rank++) {
		uint32_t key = key_at(chunk, rank);
		enum scout__shard_state state =
			entry == SCOUT__NO_ENTRY ? SCOUT__SHARD_ABSENT : scout__bank_state(bank, entry, rank);

		if (state == SCOUT__SHARD_READABLE || state == SCOUT__SHARD_EXPECTED || state == SCOUT__SHARD_LOADING)
			continue;
		if (state != SCOUT__SHARD_ABSENT || key == UINT32_MAX || !ask->where[key] ||
		    scout__bad_is(s, ask->digests[key]))
			return false;
	}
	return true;
}

/* Whether the question says nothing about a shard that is needed: it was here then and has been evicted since. */
SCOUT_ON_LOOP static bool
is_unasked(const struct scout__task *task)
{
	const struct scout__bank *bank = task->ns->bank;
	const struct scout__ask_chunk *chunk = &task->ask->chunks[task->next - task->ask->first];
	uint32_t entry = SCOUT__NO_ENTRY;

	if (task->space)
		entry = scout__bank_find(bank, task->space, task->hashes + (size_t)task->next * task->ns->hash_bytes);
	for (uint32_t rank = 0; rank < bank->n_ranks; rank++) {
		bool absent = entry == SCOUT__NO_ENTRY || scout__bank_state(bank, entry, rank) == SCOUT__SHARD_ABSENT;

		if (absent && key_at(chunk, rank) == UINT32_MAX)
			return true;
	}
	return false;
}

/* Move the pins of the found shards into the record of the entry. False: no memory. */
SCOUT_ON_LOOP static bool
expect(struct scout__task *task, const struct scout__ask_chunk *chunk, uint32_t entry)
{
	struct scout__bank *bank = task->ns->bank;
	struct scout__ask *ask = task->ask;
	struct scout__expected *x = scout__expected_make(task->ns, entry);

	if (!x)
		return false;
	for (uint64_t ranks = chunk->ranks; ranks; ranks &= ranks - 1) {
		uint32_t rank = (uint32_t)__builtin_ctzll(ranks);
		uint32_t key = key_at(chunk, rank);

		/* Somebody else's question may have been faster: then its pins are the ones that are kept. */
		if (scout__bank_state(bank, entry, rank) != SCOUT__SHARD_ABSENT)
			continue;
		x->shards[rank].digest = ask->digests[key];
		x->shards[rank].weights = ask->weights;
		x->shards[rank].pinned = ask->where[key];
		ask->where[key] = 0;
		scout__bank_expect_shard(bank, entry, rank);
	}
	return true;
}

/* Chunk task.next of the question, which is over. */
SCOUT_ON_LOOP static enum scout__asked
take(struct scout_server *s, struct scout__task *task)
{
	const struct scout__ask_chunk *chunk = &task->ask->chunks[task->next - task->ask->first];
	const uint8_t *hash = task->hashes + (size_t)task->next * task->ns->hash_bytes;
	struct scout__bank *bank = task->ns->bank;
	struct scout__session *session = task->session;
	uint32_t entry = task->space ? scout__bank_find(bank, task->space, hash) : SCOUT__NO_ENTRY;

	if (!is_complete(s, task, chunk, entry))
		return SCOUT__ASKED_GAP;
	if (!task->space)
		task->space = scout__ns_space_make(s, task->ns, &task->tenant, task->group);
	if (!task->space)
		return SCOUT__ASKED_LIMITED;
	switch (scout__bank_expect(bank, task->space, hash, s->tier2->temporary, &entry)) {
	case SCOUT__RESERVE_GRANTED:
		break;
	case SCOUT__RESERVE_WAIT:
		if (s->now_us >= scout__task_answer_by(task))
			return SCOUT__ASKED_LIMITED;
		scout__list_add(&task->ns->pool_waiters, &task->waiting);
		scout__timer_set(s, task, scout__task_answer_by(task));
		return SCOUT__ASKED_WAIT;
	default:
		return SCOUT__ASKED_LIMITED;
	}
	if (!expect(task, chunk, entry)) {
		s->count.out_of_memory++;
		scout__bank_unpromise(bank, entry, bank->n_ranks * bank->readers);
		return SCOUT__ASKED_LIMITED;
	}
	session->handles[task->next++] = scout__bank_handle(bank, entry);
	session->hit = session->kept_to = task->next;
	return SCOUT__ASKED_TAKEN;
}

/* ---- what the walk calls ---- */

/* Begin a question if one may be asked now. */
SCOUT_ON_LOOP static bool
begin(struct scout_server *s, struct scout__task *task)
{
	struct scout__tier2 *t = s->tier2;

	if (!t || !task->ns->bank || !task->ns->expected || s->draining)
		return false;
	if (task->n_rounds > 0 && s->now_us < task->poll_next_us)
		return false;
	if (s->now_us >= scout__task_answer_by(task))
		return false;
	if (!usable(s, task->ns)) {
		t->count.asks_skipped += task->n_rounds == 0;
		return false;
	}
	task->ask = ask_new(s, task);
	task->n_rounds++;
	if (!task->ask)
		t->count.asks_refused++;
	return task->ask;
}

/* The question is not over. */
SCOUT_ON_LOOP static enum scout__asked
wait(struct scout_server *s, struct scout__task *task)
{
	struct scout__ask *ask = task->ask;

	if (!ask->sent) {
		if (!build(ask, task))
			return SCOUT__ASKED_MORE;
		if (!send_ask(s, ask, usable(s, task->ns))) {
			scout__list_add(&s->tier2->ask_waiters, &task->waiting);
			scout__timer_set(s, task, ask->end_us);
			return SCOUT__ASKED_WAIT;
		}
		if (ask->over)
			return SCOUT__ASKED_TAKEN;
	}
	/* It may also be stored here meanwhile. */
	scout__chunk_wait(task, task->hashes + (size_t)task->next * task->ns->hash_bytes);
	scout__timer_set(s, task, ask->end_us);
	return SCOUT__ASKED_WAIT;
}

/* Go on until there is a question that is over: TAKEN. */
SCOUT_ON_LOOP static enum scout__asked
find_out(struct scout_server *s, struct scout__task *task)
{
	enum scout__asked what;

	for (;;) {
		struct scout__ask *ask = task->ask;

		/* Over to its last chunk: the next question is no other round. */
		if (ask && task->next >= ask->first + ask->n) {
			scout__ask_drop(s, task);
			task->poll_next_us = 0;
			ask = NULL;
		}
		if (!ask && !begin(s, task))
			return SCOUT__ASKED_GAP;
		ask = task->ask;
		if (!ask->over && s->now_us >= ask->end_us) {
			ask->over = true;
			s->tier2->count.asks_late++;
		}
		if (ask->over)
			return SCOUT__ASKED_TAKEN;
		what = wait(s, task);
		if (what != SCOUT__ASKED_TAKEN)
			return what;
	}
}

enum scout__asked
scout__ask_next(struct scout_server *s, struct scout__task *task)
{
	enum scout__asked what = find_out(s, task);

	if (what != SCOUT__ASKED_TAKEN)
		return what;
	what = take(s, task);
	if (what == SCOUT__ASKED_TAKEN || what == SCOUT__ASKED_WAIT)
		return what;
	/* What makes room for the head of a prompt may be its own tail: the next question is about that. */
	if (what == SCOUT__ASKED_GAP && is_unasked(task)) {
		task->poll_next_us = 0;
		what = SCOUT__ASKED_MORE;
	}
	/* A lookup ahead goes on behind the gap: the question is about that, too. */
	if (what == SCOUT__ASKED_GAP && task->ahead && task->next >= task->expect)
		return what;
	scout__ask_drop(s, task);
	return what;
}
