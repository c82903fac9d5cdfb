/* SPDX-License-Identifier: Apache-2.0 */
#include "chunked_queue.h"

#include <string.h>
#include <sys/mman.h>

#include <kvscout/error.h>

/*
 * DESIGN
 *
 * Purpose: the order of eviction, without the cache misses of a linked list. There, each element that is taken out of
 * the middle - and every promise takes one out - drags in the two that happened to be used before and after it.
 *
 * A queue is a list of strips. A strip has 256 slots, filled one after the other, each with the number of an element;
 * its head has a bit for each slot. An element's node says in which slot it is. So taking one out clears a bit, and
 * putting one in sets a bit and writes four bytes behind the last ones: the heads of a million elements are 256 KiB.
 *
 * A strip whose last element has left is free at once. Of those that only became thin, two neighbours that together
 * hold no more than JOIN are noted as sparse, and joined later: two joins, of at most JOIN moves each, when a strip is
 * begun. So no call takes longer than that, whatever was taken out before it; 256 calls pay for it; and there are never
 * more strips than cap_strips(): while a sparse pair is left, beginning a strip frees two for the one it takes, and
 * when none is left, every two neighbours hold more than JOIN. The newest strip of each queue takes no part, because it
 * is being filled.
 *
 * Joining touches what it moves: at worst 1.5 elements for each one that is put in, about none when elements are used
 * together again that were used together before.
 *
 * Rejected: leaving what is pinned in a linked list, for eviction to skip (moves the two misses from the promise to the
 * finish, where the element has to leave its place anyway), a log in which what is out of date is skipped (looking
 * whether it is costs the miss), nodes in an array of their own (one more line where neighbours are not close).
 *
 * Threads: loop.
 */

#define SLOTS SCOUT__STRIP_SLOTS
#define STEP SCOUT__STRIP_STEP
#define JOIN (6 * STEP)
#define JOINS 2u
#define AHEAD 8u /* of the head, elements that are loaded */
#define WORDS (SLOTS / 64)

_Static_assert(sizeof(struct scout__strip) == 64, "one cache line");

/*
 * In a queue, without the newest strip, each two neighbours hold more than JOIN, but for a step of either; so one may
 * be over, and one has been begun.
 */
static uint32_t
cap_strips(uint32_t max)
{
	return (uint32_t)((uint64_t)max * 2 / (JOIN - STEP)) + 2 * SCOUT__QUEUES + 2;
}

static uint64_t
block_bytes(uint32_t n_strips)
{
	return n_strips * (sizeof(struct scout__strip) + SLOTS * sizeof(uint32_t));
}

int
scout__queues_init(struct scout__queues *queues, struct scout__node *first, size_t stride, uint32_t max)
{
	uint32_t cap = cap_strips(max);
	void *block;

	SCOUT_ASSERT(max <= SCOUT__MAX_QUEUED);
	block = mmap(NULL, block_bytes(cap), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		     0);
	if (block == MAP_FAILED)
		return SCOUT_ERR_NOMEM;
	*queues = (struct scout__queues){
		.nodes = (char *)first,
		.stride = stride,
		.max = max,
		.strips = block,
		.cap_strips = cap,
		.free_strip = SCOUT__NO_ENTRY,
		.sparse = SCOUT__NO_ENTRY,
	};
	queues->slots = (uint32_t *)(void *)(queues->strips + cap);
	for (uint32_t i = 0; i < SCOUT__QUEUES; i++)
		queues->oldest[i] = queues->newest[i] = SCOUT__NO_ENTRY;
	return 0;
}

void
scout__queues_fini(struct scout__queues *queues)
{
	if (queues->strips)
		(void)munmap(queues->strips, block_bytes(queues->cap_strips));
	queues->strips = NULL;
}

uint64_t
scout__queues_bytes(const struct scout__queues *queues)
{
	return block_bytes(queues->max / SLOTS + 1);
}

/* ---- slots of a strip ---- */

/* The first slot from @from on that is not empty; SLOTS: there is none. */
static uint32_t
slot_from(const struct scout__strip *strip, uint32_t from)
{
	for (uint32_t word = from / 64; word < WORDS; word++) {
		uint64_t bits = strip->stays[word];
		uint32_t slot;

		if (word == from / 64)
			bits &= UINT64_MAX << from % 64;
		if (!bits)
			continue;
		slot = word * 64 + (uint32_t)__builtin_ctzll(bits);
		return slot < strip->end ? slot : SLOTS;
	}
	return SLOTS;
}

uint32_t
scout__queues_head(const struct scout__queues *queues, uint32_t queue)
{
	uint32_t s = queues->oldest[queue];
	uint32_t slot;

	if (s == SCOUT__NO_ENTRY)
		return s;
	slot = slot_from(&queues->strips[s], 0);
	/* Who asks for the oldest one asks for the next ones soon, and they were not used for long. */
	if (slot + AHEAD < queues->strips[s].end)
		__builtin_prefetch(scout__node_at(queues, queues->slots[s * SLOTS + slot + AHEAD]), 1);
	return queues->slots[s * SLOTS + slot];
}

uint32_t
scout__queues_next(const struct scout__queues *queues, uint32_t i)
{
	uint32_t at = scout__node_at(queues, i)->at;
	uint32_t s = at / SLOTS;
	uint32_t slot = slot_from(&queues->strips[s], at % SLOTS + 1);

	if (slot < SLOTS)
		return queues->slots[s * SLOTS + slot];
	s = queues->strips[s].next;
	return s == SCOUT__NO_ENTRY ? s : queues->slots[s * SLOTS + slot_from(&queues->strips[s], 0)];
}

/* ---- which strips are sparse ---- */

/* What it holds, in steps: changes only when thinned() is told. */
static uint32_t
steps(const struct scout__strip *strip)
{
	return (strip->live + STEP - 1) / STEP;
}

static bool
is_sparse(const struct scout__queues *queues, uint32_t s)
{
	const struct scout__strip *strip = &queues->strips[s];

	if (strip->next == SCOUT__NO_ENTRY || strip->next == queues->newest[strip->queue])
		return false;
	return steps(strip) + steps(&queues->strips[strip->next]) <= JOIN / STEP;
}

static void
sparse_add(struct scout__queues *queues, uint32_t s)
{
	struct scout__strip *strip = &queues->strips[s];

	strip->sparse = 1;
	strip->sparse_prev = SCOUT__NO_ENTRY;
	strip->sparse_next = queues->sparse;
	if (queues->sparse != SCOUT__NO_ENTRY)
		queues->strips[queues->sparse].sparse_prev = s;
	queues->sparse = s;
}

static void
sparse_remove(struct scout__queues *queues, uint32_t s)
{
	struct scout__strip *strip = &queues->strips[s];

	strip->sparse = 0;
	if (strip->sparse_prev == SCOUT__NO_ENTRY)
		queues->sparse = strip->sparse_next;
	else
		queues->strips[strip->sparse_prev].sparse_next = strip->sparse_next;
	if (strip->sparse_next != SCOUT__NO_ENTRY)
		queues->strips[strip->sparse_next].sparse_prev = strip->sparse_prev;
}

/* @s, if there is one, or the next one has changed. */
static void
judge(struct scout__queues *queues, uint32_t s)
{
	bool sparse;

	if (s == SCOUT__NO_ENTRY)
		return;
	sparse = is_sparse(queues, s);
	if (sparse && !queues->strips[s].sparse)
		sparse_add(queues, s);
	else if (!sparse && queues->strips[s].sparse)
		sparse_remove(queues, s);
}

/* ---- strips of a queue ---- */

/* Out of its queue, and free. Nothing is in it. */
static void
strip_free(struct scout__queues *queues, uint32_t s)
{
	struct scout__strip *strip = &queues->strips[s];

	if (strip->sparse)
		sparse_remove(queues, s);
	if (strip->prev == SCOUT__NO_ENTRY)
		queues->oldest[strip->queue] = strip->next;
	else
		queues->strips[strip->prev].next = strip->next;
	if (strip->next == SCOUT__NO_ENTRY)
		queues->newest[strip->queue] = strip->prev;
	else
		queues->strips[strip->next].prev = strip->prev;
	strip->next = queues->free_strip;
	queues->free_strip = s;
	queues->n_used--;
}

void
scout__queues_thinned(struct scout__queues *queues, uint32_t s)
{
	struct scout__strip *strip = &queues->strips[s];
	uint32_t prev = strip->prev;
	bool newest = strip->next == SCOUT__NO_ENTRY;

	if (strip->live == 0) {
		strip_free(queues, s);
		if (newest && prev != SCOUT__NO_ENTRY)
			judge(queues, queues->strips[prev].prev);
	} else {
		judge(queues, s);
	}
	judge(queues, prev);
}

/* Move what is in strip @from into the slots of @to from @slot on, in order. Returns the slot behind. */
static uint32_t
move_all(struct scout__queues *queues, uint32_t from, uint32_t to, uint32_t slot)
{
	const struct scout__strip *strip = &queues->strips[from];

	for (uint32_t at = slot_from(strip, 0); at < SLOTS; at = slot_from(strip, at + 1), slot++) {
		uint32_t i = queues->slots[from * SLOTS + at];

		queues->slots[to * SLOTS + slot] = i;
		scout__node_at(queues, i)->at = to * SLOTS + slot;
	}
	return slot;
}

static void
load_ahead(const struct scout__queues *queues, uint32_t s)
{
	const struct scout__strip *strip = &queues->strips[s];

	for (uint32_t at = slot_from(strip, 0); at < SLOTS; at = slot_from(strip, at + 1))
		__builtin_prefetch(scout__node_at(queues, queues->slots[s * SLOTS + at]), 1);
}

/* What is in @s and in the next one, into @s. */
static void
join(struct scout__queues *queues, uint32_t s)
{
	struct scout__strip *strip = &queues->strips[s];
	uint32_t next = strip->next;
	uint32_t live;

	load_ahead(queues, s);
	load_ahead(queues, next);
	live = move_all(queues, next, s, move_all(queues, s, s, 0));
	strip->live = strip->end = (uint16_t)live;
	memset(strip->stays, 0xff, sizeof(strip->stays));
	strip_free(queues, next);
	judge(queues, s);
	judge(queues, strip->prev);
}

static uint32_t
strip_take(struct scout__queues *queues)
{
	uint32_t s = queues->free_strip;

	queues->n_used++;
	if (s != SCOUT__NO_ENTRY) {
		queues->free_strip = queues->strips[s].next;
		return s;
	}
	SCOUT_ASSERT(queues->n_strips < queues->cap_strips);
	return queues->n_strips++;
}

uint32_t
scout__queues_extend(struct scout__queues *queues, uint32_t queue)
{
	uint32_t s = strip_take(queues);
	uint32_t prev = queues->newest[queue];

	queues->strips[s] = (struct scout__strip){
		.prev = prev,
		.next = SCOUT__NO_ENTRY,
		.queue = queue & 3,
	};
	memset(queues->strips[s].stays, 0xff, sizeof(queues->strips[s].stays));
	queues->newest[queue] = s;
	if (prev == SCOUT__NO_ENTRY) {
		queues->oldest[queue] = s;
	} else {
		queues->strips[prev].next = s;
		judge(queues, queues->strips[prev].prev);
	}
	for (uint32_t joins = 0; joins < JOINS && queues->sparse != SCOUT__NO_ENTRY; joins++)
		join(queues, queues->sparse);
	return s;
}

/* ---- check ---- */

static void
check_strip(const struct scout__queues *queues, uint32_t s)
{
	const struct scout__strip *strip = &queues->strips[s];
	uint32_t live = 0;

	for (uint32_t slot = slot_from(strip, 0); slot < SLOTS; slot = slot_from(strip, slot + 1)) {
		const struct scout__node *node = scout__node_at(queues, queues->slots[s * SLOTS + slot]);

		SCOUT_ASSERT(node->at == s * SLOTS + slot && node->queue == strip->queue);
		live++;
	}
	SCOUT_ASSERT(live > 0 && live == strip->live && strip->end <= SLOTS);
	SCOUT_ASSERT(strip->sparse == is_sparse(queues, s));
}

void
scout__queues_check(const struct scout__queues *queues)
{
	uint32_t n_used = 0;
	uint32_t n_sparse = 0;

	for (uint32_t queue = 0; queue < SCOUT__QUEUES; queue++) {
		uint32_t prev = SCOUT__NO_ENTRY;
		uint32_t seen = 0;

		for (uint32_t s = queues->oldest[queue]; s != SCOUT__NO_ENTRY; s = queues->strips[s].next) {
			SCOUT_ASSERT(queues->strips[s].prev == prev && queues->strips[s].queue == queue);
			check_strip(queues, s);
			seen += queues->strips[s].live;
			n_sparse += queues->strips[s].sparse;
			SCOUT_ASSERT(++n_used <= queues->n_used);
			prev = s;
		}
		SCOUT_ASSERT(queues->newest[queue] == prev && seen == queues->n[queue]);
	}
	SCOUT_ASSERT(n_used == queues->n_used);
	for (uint32_t s = queues->sparse; s != SCOUT__NO_ENTRY; s = queues->strips[s].sparse_next)
		SCOUT_ASSERT(queues->strips[s].sparse && n_sparse-- > 0);
	SCOUT_ASSERT(n_sparse == 0);
	for (uint32_t s = queues->free_strip; s != SCOUT__NO_ENTRY; s = queues->strips[s].next)
		SCOUT_ASSERT(n_used++ < queues->n_strips);
	SCOUT_ASSERT(n_used == queues->n_strips);
}
