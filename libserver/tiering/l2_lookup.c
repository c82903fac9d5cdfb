/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "fetch.h"
#include "ns.h"
#include "lookup_op.h"
#include "request_bytes.h"
#include "server_core.h"
#include "session.h"
#include "state.h"

/*
 * DESIGN
 *
 * Where the walk of a lookup over the pool ends, one question goes to all adapters at once: which of the shards that
 * are not in the pool, of all the chunks that are left, do you have? (What key polling asks again is a window, since
 * what comes late comes in order.) Building it and walking over the answer go in slices; in between the pending
 * operation waits, and so does nothing else.
 *
 * What is found is pinned in the stores as it is found. A chunk that counts moves its pins into the record of its
 * entry; all other pins are given back when the question is over. It is over when every adapter has answered, when every
 * key is found, or when its time is up. In the last case the answer is what is known by then, and pins of answers that
 * come later are given back as these come.
 *
 * A lookup of one group asks after its run, chunk by chunk (scout__l2_take_next); one of several groups asks once about all
 * objects that are not in the pool, and then takes those that it needs (scout__ask_all, _found, _take).
 *
 * A question outlives its lookup: its memory is the adapters' until the last operation is reaped.
 *
 * Threads: loop.
 */

SCOUT_ON_LOOP static void
ask_free(struct scout_server *s, struct scout__ask *ask)
{
	scout__run_queue_remove(&ask->run);
	s->fetch->ask_bytes -= ask->bytes;
	scout__request_bytes_give(s, ask->bytes);
	free(ask->chunks);
	free(ask->digests);
	free(ask->where);
	free(ask->found);
	free(ask->ops);
	free(ask);
}

/* Nobody reads the answer any more: give back the pins that nobody took. */
SCOUT_ON_LOOP static void
dispose_step(struct scout_server *s, struct scout__run_item *item)
{
	struct scout__ask *ask = SCOUT__OWNER(item, struct scout__ask, run);
	uint32_t end = ask->n_keys;

	if (end - ask->given_back > 4 * SCOUT__SLICE_KEYS)
		end = ask->given_back + 4 * SCOUT__SLICE_KEYS;
	for (; ask->given_back < end; ask->given_back++)
		if (ask->where[ask->given_back])
			scout__fetch_unpin(s, ask->digests[ask->given_back], ask->where[ask->given_back]);
	if (ask->given_back < ask->n_keys)
		scout__run_queue_add(s, item);
	else
		ask_free(s, ask);
}

/* There may be room for a question that waits. */
SCOUT_ON_LOOP static void
wake_waiter(struct scout_server *s)
{
	struct scout__list *waiters = &s->fetch->ask_waiters;

	if (!scout__list_empty(waiters)) {
		struct scout__pending_op *pending = SCOUT__OWNER(waiters->next, struct scout__pending_op, waiting);

		scout__list_del(&pending->waiting);
		scout__run_queue_add(s, &pending->run);
	}
}

void
scout__ask_drop(struct scout_server *s, struct scout__lookup_op *pending)
{
	struct scout__ask *ask = pending->ask;

	if (!ask)
		return;
	pending->ask = NULL;
	ask->pending = NULL;
	/* It may have been woken to be sent, and needs it no more: the room is the next one's. */
	if (!ask->sent)
		wake_waiter(s);
	if (ask->n_running == 0)
		dispose_step(s, &ask->run);
}

/* ---- making it ---- */

SCOUT_ON_LOOP static uint8_t
usable(const struct scout_server *s, const struct scout__ns *ns)
{
	uint8_t adapters = 0;

	for (uint32_t i = 0; i < s->fetch->n; i++)
		if (scout__l2_tries_reads(s->fetch->l2, i))
			adapters |= (uint8_t)(1u << i);
	return adapters & scout__records_stores(ns);
}

/* How many chunks from lookup_op.next on are worth asking for. */
SCOUT_ON_LOOP static uint32_t
how_many(const struct scout_server *s, const struct scout__lookup_op *pending)
{
	uint64_t n = pending->n - pending->next;
	uint64_t room = s->state->l1.max_promised / pending->group->index->chunk_bytes + 1;

	if (pending->n_rounds > 0 && n > SCOUT__POLL_WINDOW)
		n = SCOUT__POLL_WINDOW;
	return (uint32_t)(n < room ? n : room);
}

/* About the @n objects from @first on, which have at most @keys shards. */
SCOUT_ON_LOOP static struct scout__ask *
ask_new(struct scout_server *s, struct scout__lookup_op *pending, uint32_t first, uint32_t n, uint64_t keys)
{
	struct scout__fetch *t = s->fetch;
	uint64_t ops = (keys + SCOUT__L2_MAX_KEYS - 1) / SCOUT__L2_MAX_KEYS * t->n;
	uint64_t bytes = sizeof(struct scout__ask) + n * sizeof(struct scout__ask_chunk) +
			 keys * (sizeof(struct scout__l2_digest) + 1 + t->n) + ops * sizeof(struct scout__l2_op);
	struct scout__ask *ask;

	if (bytes > SCOUT__MAX_ASK_BYTES - t->ask_bytes || !scout__request_bytes_take(s, bytes))
		return NULL;
	ask = calloc(1, sizeof(*ask));
	if (!ask) {
		scout__request_bytes_give(s, bytes);
		return NULL;
	}
	ask->chunks = calloc(n, sizeof(*ask->chunks));
	ask->digests = malloc(keys * sizeof(*ask->digests));
	ask->where = calloc(keys, 1);
	ask->bytes = bytes;
	t->ask_bytes += bytes;
	if (!ask->chunks || !ask->digests || !ask->where) {
		ask_free(s, ask);
		return NULL;
	}
	ask->run.step = dispose_step;
	ask->server = s;
	ask->pending = pending;
	ask->weights = pending->op.ns->weights;
	ask->first = first;
	ask->n = n;
	ask->end_us = s->now_us + t->lookup_timeout_us;
	if (ask->end_us > scout__pending_op_answer_by(&pending->op))
		ask->end_us = scout__pending_op_answer_by(&pending->op);
	return ask;
}

SCOUT_ON_LOOP static uint32_t
find(const struct scout__object *object)
{
	return object->space ? scout__index_find(object->group->index, object->space, object->hash) : SCOUT__NO_ENTRY;
}

/* The ranks of an object that the pool does not have and does not expect. */
SCOUT_ON_LOOP static uint64_t
missing_ranks(const struct scout__object *object)
{
	const struct scout__chunk_index *index = object->group->index;
	uint64_t all = index->n_ranks == 64 ? UINT64_MAX : (UINT64_C(1) << index->n_ranks) - 1;
	uint32_t entry = find(object);

	for (uint32_t rank = 0; entry != SCOUT__NO_ENTRY && rank < index->n_ranks; rank++) {
		enum scout__shard_state state = scout__index_state(index, entry, rank);

		if (state == SCOUT__SHARD_READABLE || state == SCOUT__SHARD_EXPECTED || state == SCOUT__SHARD_LOADING)
			all &= ~(UINT64_C(1) << rank);
	}
	return all;
}

/* Some more of the keys. True: all are there. */
SCOUT_ON_LOOP static bool
build(struct scout__ask *ask, const struct scout__lookup_op *pending)
{
	uint32_t end = ask->n_keys + SCOUT__SLICE_KEYS;
	struct scout__l2_key key;

	for (uint32_t left = 4 * SCOUT__SLICE_KEYS; left > 0 && ask->n_built < ask->n && ask->n_keys < end; left--) {
		struct scout__object object = pending->object(pending, ask->first + ask->n_built);
		struct scout__ask_chunk *chunk = &ask->chunks[ask->n_built++];

		chunk->ranks = object.is_asked_for ? missing_ranks(&object) : 0;
		chunk->first = ask->n_keys;
		for (uint64_t ranks = chunk->ranks; ranks; ranks &= ranks - 1) {
			scout__key_of(object.group, (uint32_t)__builtin_ctzll(ranks), ask->weights, &pending->tenant,
				      object.hash, &key);
			ask->digests[ask->n_keys++] = key.digest;
		}
	}
	return ask->n_built == ask->n;
}

/* What is known now is the answer. @late: a store had no answer of its own in time. */
SCOUT_ON_LOOP static void
ask_end(struct scout__ask *ask, bool late)
{
	if (ask->pending && !ask->over && late)
		ask->server->fetch->count.lookups_late++;
	ask->over = true;
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
	s->fetch->n_ask_ops--;
	ask->n_running--;
	/* Its thread may see the end of the question's time before the loop does. */
	ask->late |= op->result == SCOUT__L2_TIMEOUT;
	if (ask->n_running == 0 || ask->n_found == ask->n_keys)
		ask_end(ask, ask->late && ask->n_found < ask->n_keys);
	if (ask->pending && ask->over)
		scout__run_queue_add(s, &ask->pending->op.run);
	else if (!ask->pending && ask->n_running == 0)
		scout__run_queue_add(s, &ask->run);
	wake_waiter(s);
}

/* Send the question to all @adapters. False: they have too many now, or there is no memory (then it is over). */
SCOUT_ON_LOOP static bool
send_ask(struct scout_server *s, struct scout__ask *ask, uint8_t adapters)
{
	struct scout__fetch *t = s->fetch;
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
	t->count.lookups++;
	for (uint32_t adapter = 0; adapter < t->n; adapter++) {
		for (uint32_t i = 0; i < batches && adapters & 1u << adapter; i++) {
			uint32_t from = i * SCOUT__L2_MAX_KEYS;
			uint32_t n = ask->n_keys - from < SCOUT__L2_MAX_KEYS ? ask->n_keys - from : SCOUT__L2_MAX_KEYS;
			struct scout__l2_op *op = &ask->ops[at];

			op->what = SCOUT__L2_EXISTS;
			op->pin = true;
			op->is_chain = !ask->pending->walk;
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

SCOUT_ON_LOOP static const struct scout__ask_chunk *
chunk_of(const struct scout__lookup_op *pending, uint32_t number)
{
	return &pending->ask->chunks[number - pending->ask->first];
}

/* Whether each shard of the object is in the pool, or free to be loaded and found. */
SCOUT_ON_LOOP static bool
is_complete(const struct scout_server *s, const struct scout__lookup_op *pending, const struct scout__object *object,
	    uint32_t number, uint32_t entry)
{
	const struct scout__ask_chunk *chunk = chunk_of(pending, number);
	const struct scout__chunk_index *index = object->group->index;
	const struct scout__ask *ask = pending->ask;

	if (entry != SCOUT__NO_ENTRY && index->entries[entry].spoiled)
		return false;
	for (uint32_t rank = 0; rank < index->n_ranks; rank++) {
		uint32_t key = key_at(chunk, rank);
		enum scout__shard_state state =
			entry == SCOUT__NO_ENTRY ? SCOUT__SHARD_ABSENT : scout__index_state(index, entry, rank);

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
is_unasked(const struct scout__lookup_op *pending)
{
	struct scout__object object = pending->object(pending, pending->next);
	const struct scout__ask_chunk *chunk = chunk_of(pending, pending->next);
	const struct scout__chunk_index *index = object.group->index;
	uint32_t entry = find(&object);

	for (uint32_t rank = 0; rank < index->n_ranks; rank++) {
		bool absent = entry == SCOUT__NO_ENTRY || scout__index_state(index, entry, rank) == SCOUT__SHARD_ABSENT;

		if (absent && key_at(chunk, rank) == UINT32_MAX)
			return true;
	}
	return false;
}

/* Move the pins of the found shards into the record of the entry. False: no memory. */
SCOUT_ON_LOOP static bool
expect(struct scout__lookup_op *pending, struct scout__ns_group *group, const struct scout__ask_chunk *chunk,
       uint32_t entry)
{
	struct scout__ask *ask = pending->ask;
	struct scout__expected *x = scout__expected_make(group, entry);

	if (!x)
		return false;
	for (uint64_t ranks = chunk->ranks; ranks; ranks &= ranks - 1) {
		uint32_t rank = (uint32_t)__builtin_ctzll(ranks);
		uint32_t key = key_at(chunk, rank);

		/* Another lookup's question may have been faster: then its pins are the ones that are kept. */
		if (scout__index_state(group->index, entry, rank) != SCOUT__SHARD_ABSENT)
			continue;
		x->shards[rank].digest = ask->digests[key];
		x->shards[rank].weights = ask->weights;
		x->shards[rank].pinned = ask->where[key];
		ask->where[key] = 0;
		scout__index_expect_shard(group->index, entry, rank);
	}
	return true;
}

bool
scout__ask_found(const struct scout_server *s, const struct scout__lookup_op *pending, uint32_t number)
{
	struct scout__object object = pending->object(pending, number);

	return is_complete(s, pending, &object, number, find(&object));
}

enum scout__asked
scout__ask_take(struct scout_server *s, struct scout__lookup_op *pending, uint32_t number, uint32_t *ret_entry)
{
	struct scout__object object = pending->object(pending, number);
	struct scout__chunk_index *index = object.group->index;
	uint32_t entry = find(&object);

	if (!is_complete(s, pending, &object, number, entry))
		return SCOUT__ASKED_GAP;
	if (!object.space)
		object.space = scout__ns_space_make(s, pending->op.ns, &pending->tenant, object.group->number);
	if (!object.space)
		return SCOUT__ASKED_LIMITED;
	switch (scout__index_expect(index, object.space, object.hash, s->fetch->temporary, &entry)) {
	case SCOUT__RESERVE_GRANTED:
		break;
	case SCOUT__RESERVE_WAIT:
		if (s->now_us >= scout__pending_op_answer_by(&pending->op))
			return SCOUT__ASKED_LIMITED;
		scout__list_add(&pending->op.ns->pool_waiters, &pending->op.waiting);
		scout__timer_set(s, &pending->op.run, scout__pending_op_answer_by(&pending->op));
		return SCOUT__ASKED_WAIT;
	default:
		return SCOUT__ASKED_LIMITED;
	}
	if (!expect(pending, object.group, chunk_of(pending, number), entry)) {
		s->count.out_of_memory++;
		scout__index_unpromise(index, entry, index->n_ranks * index->readers);
		return SCOUT__ASKED_LIMITED;
	}
	*ret_entry = entry;
	return SCOUT__ASKED_TAKEN;
}

/* Chunk lookup_op.next of the question, which is over. */
SCOUT_ON_LOOP static enum scout__asked
take(struct scout_server *s, struct scout__lookup_op *pending)
{
	struct scout__kept *kept = &pending->session->of[0];
	uint32_t entry;
	enum scout__asked what = scout__ask_take(s, pending, pending->next, &entry);

	if (what != SCOUT__ASKED_TAKEN)
		return what;
	if (!pending->space)
		pending->space = pending->group->index->entries[entry].space;
	scout__index_take_share(pending->group->index);
	scout__kept_promised(kept, 1);
	kept->handles[pending->next++] = scout__index_handle(pending->group->index, entry);
	kept->hit = kept->kept_to = pending->next;
	return what;
}

/* ---- what the walk calls ---- */

/* Whether a question may be asked now. */
SCOUT_ON_LOOP static bool
may_ask(struct scout_server *s, struct scout__lookup_op *pending)
{
	struct scout__fetch *t = s->fetch;

	if (!t || !pending->op.ns->complete || s->draining)
		return false;
	if (pending->n_rounds > 0 && s->now_us < pending->poll_next_us)
		return false;
	if (s->now_us >= scout__pending_op_answer_by(&pending->op))
		return false;
	if (!usable(s, pending->op.ns)) {
		t->count.lookups_skipped += pending->n_rounds == 0;
		return false;
	}
	return true;
}

/* Begin a question about the @n objects from @first on. False: no memory. */
SCOUT_ON_LOOP static bool
begin(struct scout_server *s, struct scout__lookup_op *pending, uint32_t first, uint32_t n, uint64_t keys)
{
	pending->ask = ask_new(s, pending, first, n, keys);
	pending->n_rounds++;
	if (!pending->ask)
		s->fetch->count.lookups_refused++;
	return pending->ask;
}

/* The same, behind the run of a lookup of one group. */
SCOUT_ON_LOOP static bool
begin_run(struct scout_server *s, struct scout__lookup_op *pending)
{
	uint32_t n;

	if (!pending->group->expected || !may_ask(s, pending))
		return false;
	n = how_many(s, pending);
	return begin(s, pending, pending->next, n, (uint64_t)n * pending->group->index->n_ranks);
}

/* The question is not over. */
SCOUT_ON_LOOP static enum scout__asked
wait(struct scout_server *s, struct scout__lookup_op *pending)
{
	struct scout__ask *ask = pending->ask;

	if (!ask->sent) {
		if (!build(ask, pending))
			return SCOUT__ASKED_MORE;
		if (!send_ask(s, ask, usable(s, pending->op.ns))) {
			scout__list_add(&s->fetch->ask_waiters, &pending->op.waiting);
			scout__timer_set(s, &pending->op.run, ask->end_us);
			return SCOUT__ASKED_WAIT;
		}
		if (ask->over)
			return SCOUT__ASKED_TAKEN;
	}
	/* It may also be stored here meanwhile. */
	if (!pending->walk)
		scout__chunk_wait(&pending->op, pending->hashes + (size_t)pending->next * pending->op.ns->hash_bytes);
	scout__timer_set(s, &pending->op.run, ask->end_us);
	return SCOUT__ASKED_WAIT;
}

/* Whether the question is over, or its time is. */
SCOUT_ON_LOOP static bool
ends(struct scout_server *s, struct scout__ask *ask)
{
	if (s->now_us >= ask->end_us)
		ask_end(ask, true);
	return ask->over;
}

enum scout__asked
scout__ask_all(struct scout_server *s, struct scout__lookup_op *pending, uint32_t n, uint64_t n_keys)
{
	if (!pending->ask && (!may_ask(s, pending) || !begin(s, pending, 0, n, n_keys)))
		return SCOUT__ASKED_GAP;
	return ends(s, pending->ask) ? SCOUT__ASKED_TAKEN : wait(s, pending);
}

/* Go on until there is a question that is over: TAKEN. */
SCOUT_ON_LOOP static enum scout__asked
find_out(struct scout_server *s, struct scout__lookup_op *pending)
{
	enum scout__asked what;

	for (;;) {
		struct scout__ask *ask = pending->ask;

		/* Over to its last chunk: the next question is no other round. */
		if (ask && pending->next >= ask->first + ask->n) {
			scout__ask_drop(s, pending);
			pending->poll_next_us = 0;
			ask = NULL;
		}
		if (!ask && !begin_run(s, pending))
			return SCOUT__ASKED_GAP;
		if (ends(s, pending->ask))
			return SCOUT__ASKED_TAKEN;
		what = wait(s, pending);
		if (what != SCOUT__ASKED_TAKEN)
			return what;
	}
}

/* The question is over: take the chunk, if L2 has it. The question stays as long as it can tell of the chunks after it. */
SCOUT_ON_LOOP static enum scout__asked
take_or_drop(struct scout_server *s, struct scout__lookup_op *pending)
{
	enum scout__asked what = take(s, pending);

	if (what == SCOUT__ASKED_TAKEN || what == SCOUT__ASKED_WAIT)
		return what;
	if (what == SCOUT__ASKED_GAP && is_unasked(pending)) {
		/* What makes room for the head of a prompt may be its own tail: the next question is about that. */
		pending->poll_next_us = 0;
		what = SCOUT__ASKED_MORE;
	} else if (what == SCOUT__ASKED_GAP && pending->ahead && pending->next >= pending->expect) {
		return what; /* a lookup ahead goes on after the gap, with this question */
	}
	scout__ask_drop(s, pending);
	return what;
}

enum scout__asked
scout__l2_take_next(struct scout_server *s, struct scout__lookup_op *pending)
{
	enum scout__asked what = find_out(s, pending);

	return what == SCOUT__ASKED_TAKEN ? take_or_drop(s, pending) : what;
}
