/* SPDX-License-Identifier: Apache-2.0 */
#include "chunked_queue.h"

#include <string.h>
#include <sys/mman.h>

#include <kvscout/error.h>

#include "grow_array.h"
#include "lazy.h"

/*
 * DESIGN
 *
 * Purpose: the order of eviction, without the cache misses of a linked list. There, each element taken out of the
 * middle - and every promise takes one out - loads its neighbours, which happened to be used before and after it.
 *
 * A queue is a list of chunks (in this file always pieces of a queue, and not the cache's chunks of tokens). A chunk
 * has 256 slots, filled one after the other, each with the number of an element; its head has a bit for each slot. An
 * element's node says in which slot it is. So taking an element out clears a bit, and putting one in sets a bit and
 * writes four bytes after the last ones: the heads of a million elements are 256 KiB.
 *
 * A chunk is free as soon as its last element has left. Two thin neighbours that together hold no more than JOIN are
 * noted as sparse, and joined later: beginning a chunk makes two joins, of at most JOIN moves each. So no call takes
 * longer than that, whatever was taken out before; 256 calls pay for it. There are never more chunks than cap_chunks():
 * while a sparse pair is left, beginning a chunk frees two and takes one, and when none is left, every two neighbours
 * hold more than JOIN. The newest chunk of each queue takes no part, because it is being filled.
 *
 * Joining touches the elements that it moves: at worst 1.5 for each element that is put in, about none if elements that
 * were used together are used together again.
 *
 * Rejected: leaving what is pinned in a linked list, for eviction to skip (moves the two misses from the promise to the
 * finish, when the element has to leave its place anyway), a log whose stale entries are skipped (to see that an entry
 * is stale costs the miss), nodes in an array of their own (one more line where neighbours are not close).
 *
 * Threads: loop.
 */

#define SLOTS SCOUT__QUEUE_CHUNK_SLOTS
#define STEP SCOUT__QUEUE_CHUNK_STEP
#define JOIN (6 * STEP)
#define JOINS 2u
#define AHEAD 8u /* elements after the head that are loaded */
#define WORDS (SLOTS / 64)

_Static_assert(sizeof(struct scout__queue_chunk) == 64, "one cache line");

/*
 * In a queue, without the newest chunk, each two neighbours hold more than JOIN, less at most a step of either; one
 * chunk may be left over, and one has been begun.
 */
static uint32_t
cap_chunks(uint32_t max)
{
	return (uint32_t)((uint64_t)max * 2 / (JOIN - STEP)) + 2 * SCOUT__QUEUES + 2;
}

static uint64_t
heads_bytes(uint32_t n_chunks)
{
	return n_chunks * sizeof(struct scout__queue_chunk);
}

static uint64_t
slots_bytes(uint32_t n_chunks)
{
	return (uint64_t)n_chunks * SLOTS * sizeof(uint32_t);
}

void
scout__chunked_queue_init(struct scout__chunked_queues *queues, size_t stride)
{
	*queues = (struct scout__chunked_queues){
		.stride = stride, .free_chunk = SCOUT__NO_ENTRY, .sparse = SCOUT__NO_ENTRY};
	for (uint32_t i = 0; i < SCOUT__QUEUES; i++)
		queues->oldest[i] = queues->newest[i] = SCOUT__NO_ENTRY;
}

int
scout__chunked_queue_reserve(struct scout__chunked_queues *queues, struct scout__node *first, uint32_t max)
{
	uint32_t old = queues->chunks ? queues->cap_chunks : 0, cap = cap_chunks(max);
	void *chunks, *slots;

	SCOUT_ASSERT(max <= SCOUT__MAX_QUEUED);
	queues->nodes = (char *)first;
	if (queues->chunks && max <= queues->max)
		return 0;
	chunks = scout__grow_array(queues->chunks, heads_bytes(old), heads_bytes(cap));
	if (!chunks)
		return SCOUT_ERR_NOMEM;
	slots = scout__grow_array(queues->slots, slots_bytes(old), slots_bytes(cap));
	if (!slots && old == 0) {
		(void)munmap(chunks, heads_bytes(cap));
		return SCOUT_ERR_NOMEM;
	}
	/* It cannot fail to shrink. */
	queues->chunks = slots ? chunks : scout__grow_array(chunks, heads_bytes(cap), heads_bytes(old));
	if (!slots)
		return SCOUT_ERR_NOMEM;
	queues->slots = slots;
	queues->cap_chunks = cap;
	queues->max = max;
	return 0;
}

void
scout__chunked_queue_fini(struct scout__chunked_queues *queues)
{
	if (!queues->chunks)
		return;
	scout__lazy_free(queues->chunks, heads_bytes(queues->cap_chunks));
	scout__lazy_free(queues->slots, slots_bytes(queues->cap_chunks));
	queues->chunks = NULL;
}

uint64_t
scout__chunked_queue_bytes(uint32_t n)
{
	uint32_t n_chunks = n / SLOTS + 1;

	return heads_bytes(n_chunks) + slots_bytes(n_chunks);
}

/* ---- slots of a chunk ---- */

/* The first slot from @from on that is not empty; SLOTS: there is none. */
static uint32_t
slot_from(const struct scout__queue_chunk *chunk, uint32_t from)
{
	for (uint32_t word = from / 64; word < WORDS; word++) {
		uint64_t bits = chunk->stays[word];
		uint32_t slot;

		if (word == from / 64)
			bits &= UINT64_MAX << from % 64;
		if (!bits)
			continue;
		slot = word * 64 + (uint32_t)__builtin_ctzll(bits);
		return slot < chunk->end ? slot : SLOTS;
	}
	return SLOTS;
}

uint32_t
scout__chunked_queue_head(const struct scout__chunked_queues *queues, uint32_t queue)
{
	uint32_t s = queues->oldest[queue];
	uint32_t slot;

	if (s == SCOUT__NO_ENTRY)
		return s;
	slot = slot_from(&queues->chunks[s], 0);
	/* Eviction that asks for the oldest element soon asks for the next ones, which were not used for long. */
	if (slot + AHEAD < queues->chunks[s].end)
		__builtin_prefetch(scout__node_at(queues, queues->slots[s * SLOTS + slot + AHEAD]), 1);
	return queues->slots[s * SLOTS + slot];
}

uint32_t
scout__chunked_queue_next(const struct scout__chunked_queues *queues, uint32_t i)
{
	uint32_t at = scout__node_at(queues, i)->at;
	uint32_t s = at / SLOTS;
	uint32_t slot = slot_from(&queues->chunks[s], at % SLOTS + 1);

	if (slot < SLOTS)
		return queues->slots[s * SLOTS + slot];
	s = queues->chunks[s].next;
	return s == SCOUT__NO_ENTRY ? s : queues->slots[s * SLOTS + slot_from(&queues->chunks[s], 0)];
}

/* ---- which chunks are sparse ---- */

/* What the chunk holds, in steps: changes only when scout__chunked_queue_thinned() is called. */
static uint32_t
steps(const struct scout__queue_chunk *chunk)
{
	return (chunk->live + STEP - 1) / STEP;
}

static bool
is_sparse(const struct scout__chunked_queues *queues, uint32_t s)
{
	const struct scout__queue_chunk *chunk = &queues->chunks[s];

	if (chunk->next == SCOUT__NO_ENTRY || chunk->next == queues->newest[chunk->queue])
		return false;
	return steps(chunk) + steps(&queues->chunks[chunk->next]) <= JOIN / STEP;
}

static void
sparse_add(struct scout__chunked_queues *queues, uint32_t s)
{
	struct scout__queue_chunk *chunk = &queues->chunks[s];

	chunk->sparse = 1;
	chunk->sparse_prev = SCOUT__NO_ENTRY;
	chunk->sparse_next = queues->sparse;
	if (queues->sparse != SCOUT__NO_ENTRY)
		queues->chunks[queues->sparse].sparse_prev = s;
	queues->sparse = s;
}

static void
sparse_remove(struct scout__chunked_queues *queues, uint32_t s)
{
	struct scout__queue_chunk *chunk = &queues->chunks[s];

	chunk->sparse = 0;
	if (chunk->sparse_prev == SCOUT__NO_ENTRY)
		queues->sparse = chunk->sparse_next;
	else
		queues->chunks[chunk->sparse_prev].sparse_next = chunk->sparse_next;
	if (chunk->sparse_next != SCOUT__NO_ENTRY)
		queues->chunks[chunk->sparse_next].sparse_prev = chunk->sparse_prev;
}

/* Chunk @s, if there is one, or the next chunk has changed. */
static void
judge(struct scout__chunked_queues *queues, uint32_t s)
{
	bool sparse;

	if (s == SCOUT__NO_ENTRY)
		return;
	sparse = is_sparse(queues, s);
	if (sparse && !queues->chunks[s].sparse)
		sparse_add(queues, s);
	else if (!sparse && queues->chunks[s].sparse)
		sparse_remove(queues, s);
}

/* ---- chunks of a queue ---- */

/* Take an empty chunk out of its queue, and free it. */
static void
chunk_free(struct scout__chunked_queues *queues, uint32_t s)
{
	struct scout__queue_chunk *chunk = &queues->chunks[s];

	if (chunk->sparse)
		sparse_remove(queues, s);
	if (chunk->prev == SCOUT__NO_ENTRY)
		queues->oldest[chunk->queue] = chunk->next;
	else
		queues->chunks[chunk->prev].next = chunk->next;
	if (chunk->next == SCOUT__NO_ENTRY)
		queues->newest[chunk->queue] = chunk->prev;
	else
		queues->chunks[chunk->next].prev = chunk->prev;
	chunk->next = queues->free_chunk;
	queues->free_chunk = s;
	queues->n_used--;
}

void
scout__chunked_queue_thinned(struct scout__chunked_queues *queues, uint32_t s)
{
	struct scout__queue_chunk *chunk = &queues->chunks[s];
	uint32_t prev = chunk->prev;
	bool newest = chunk->next == SCOUT__NO_ENTRY;

	if (chunk->live == 0) {
		chunk_free(queues, s);
		if (newest && prev != SCOUT__NO_ENTRY)
			judge(queues, queues->chunks[prev].prev);
	} else {
		judge(queues, s);
	}
	judge(queues, prev);
}

/* Move what is in chunk @from into the slots of @to from @slot on, in order. Returns the slot after them. */
static uint32_t
move_all(struct scout__chunked_queues *queues, uint32_t from, uint32_t to, uint32_t slot)
{
	const struct scout__queue_chunk *chunk = &queues->chunks[from];

	for (uint32_t at = slot_from(chunk, 0); at < SLOTS; at = slot_from(chunk, at + 1), slot++) {
		uint32_t i = queues->slots[from * SLOTS + at];

		queues->slots[to * SLOTS + slot] = i;
		scout__node_at(queues, i)->at = to * SLOTS + slot;
	}
	return slot;
}

static void
load_ahead(const struct scout__chunked_queues *queues, uint32_t s)
{
	const struct scout__queue_chunk *chunk = &queues->chunks[s];

	for (uint32_t at = slot_from(chunk, 0); at < SLOTS; at = slot_from(chunk, at + 1))
		__builtin_prefetch(scout__node_at(queues, queues->slots[s * SLOTS + at]), 1);
}

/* Move the elements of chunk @s and of the next chunk into @s. */
static void
join(struct scout__chunked_queues *queues, uint32_t s)
{
	struct scout__queue_chunk *chunk = &queues->chunks[s];
	uint32_t next = chunk->next;
	uint32_t live;

	load_ahead(queues, s);
	load_ahead(queues, next);
	live = move_all(queues, next, s, move_all(queues, s, s, 0));
	chunk->live = chunk->end = (uint16_t)live;
	memset(chunk->stays, 0xff, sizeof(chunk->stays));
	chunk_free(queues, next);
	judge(queues, s);
	judge(queues, chunk->prev);
}

static uint32_t
chunk_take(struct scout__chunked_queues *queues)
{
	uint32_t s = queues->free_chunk;

	queues->n_used++;
	if (s != SCOUT__NO_ENTRY) {
		queues->free_chunk = queues->chunks[s].next;
		return s;
	}
	SCOUT_ASSERT(queues->n_chunks < queues->cap_chunks);
	return queues->n_chunks++;
}

uint32_t
scout__chunked_queue_extend(struct scout__chunked_queues *queues, uint32_t queue)
{
	uint32_t s = chunk_take(queues);
	uint32_t prev = queues->newest[queue];

	queues->chunks[s] = (struct scout__queue_chunk){
		.prev = prev,
		.next = SCOUT__NO_ENTRY,
		.queue = queue & 63,
	};
	memset(queues->chunks[s].stays, 0xff, sizeof(queues->chunks[s].stays));
	queues->newest[queue] = s;
	if (prev == SCOUT__NO_ENTRY) {
		queues->oldest[queue] = s;
	} else {
		queues->chunks[prev].next = s;
		judge(queues, queues->chunks[prev].prev);
	}
	for (uint32_t joins = 0; joins < JOINS && queues->sparse != SCOUT__NO_ENTRY; joins++)
		join(queues, queues->sparse);
	return s;
}

/* ---- check ---- */

static void
check_chunk(const struct scout__chunked_queues *queues, uint32_t s)
{
	const struct scout__queue_chunk *chunk = &queues->chunks[s];
	uint32_t live = 0;

	for (uint32_t slot = slot_from(chunk, 0); slot < SLOTS; slot = slot_from(chunk, slot + 1)) {
		const struct scout__node *node = scout__node_at(queues, queues->slots[s * SLOTS + slot]);

		SCOUT_ASSERT(node->at == s * SLOTS + slot && node->queue == chunk->queue);
		live++;
	}
	SCOUT_ASSERT(live > 0 && live == chunk->live && chunk->end <= SLOTS);
	SCOUT_ASSERT(chunk->sparse == is_sparse(queues, s));
}

void
scout__chunked_queue_check(const struct scout__chunked_queues *queues)
{
	uint32_t n_used = 0;
	uint32_t n_sparse = 0;

	for (uint32_t queue = 0; queue < SCOUT__QUEUES; queue++) {
		uint32_t prev = SCOUT__NO_ENTRY;
		uint32_t seen = 0;

		for (uint32_t s = queues->oldest[queue]; s != SCOUT__NO_ENTRY; s = queues->chunks[s].next) {
			SCOUT_ASSERT(queues->chunks[s].prev == prev && queues->chunks[s].queue == queue);
			check_chunk(queues, s);
			seen += queues->chunks[s].live;
			n_sparse += queues->chunks[s].sparse;
			SCOUT_ASSERT(++n_used <= queues->n_used);
			prev = s;
		}
		SCOUT_ASSERT(queues->newest[queue] == prev && seen == queues->n[queue]);
	}
	SCOUT_ASSERT(n_used == queues->n_used);
	for (uint32_t s = queues->sparse; s != SCOUT__NO_ENTRY; s = queues->chunks[s].sparse_next)
		SCOUT_ASSERT(queues->chunks[s].sparse && n_sparse-- > 0);
	SCOUT_ASSERT(n_sparse == 0);
	for (uint32_t s = queues->free_chunk; s != SCOUT__NO_ENTRY; s = queues->chunks[s].next)
		SCOUT_ASSERT(n_used++ < queues->n_chunks);
	SCOUT_ASSERT(n_used == queues->n_chunks);
}
