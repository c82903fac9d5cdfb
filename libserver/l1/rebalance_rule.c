/* SPDX-License-Identifier: Apache-2.0 */
#include "chunk_index_internal.h"
#include "clock.h"

/*
 * DESIGN
 *
 * Purpose: which chunk index may take an extent, and from which other one. What is then done is in rebalance.c.
 *
 * The rule. Namespaces share the pool; one that holds or wants memory and has a peer to use it takes part. A namespace
 * with a share of its own has that percentage of l1_bytes, the others have equal parts of what is left; when all have
 * their own, they share all of it in that proportion. When the pool is used up, a namespace that one more extent would
 * lift above its share evicts its own; one below it takes an extent from the namespace that is most above its share,
 * and evicts its own or waits while that is on its way. Namespaces that no peer uses have no share and lose first, and
 * a chunk index that holds nothing may take from any.
 *
 * Since taking needs room for a whole extent below the share, and lifts no namespace above it, two namespaces at their
 * share do not take from each other in turns.
 *
 * The chunk indexes of one namespace, one for each group, share what the namespace has. A request needs the objects of
 * all groups together, so each group has memory for the same number of tokens: its part is in proportion to the bytes
 * that a token takes in it. What a group has too much of shows: objects that nothing needs stay unused in it for a
 * whole turn of evictions (chunk_index_unneeded.c). Then it gives an extent away, and as long as something is unneeded in it,
 * it asks for none.
 *
 * Rejected: a share for each chunk index (a namespace with two groups would have two shares, and a small group as much
 * as a large one); to move extents to the group whose next victim is expected to bring more hits for each byte (windows
 * are hit by few objects of a long prompt, so all memory moved away from them and no length could be restored).
 *
 * Threads: loop.
 */

void
scout__rebalance_join(struct scout__chunk_index *index)
{
	index->member.serial = ++index->l1->last_serial;
	index->member.next = index->l1->indexes;
	index->l1->indexes = index;
}

void
scout__rebalance_unlist(struct scout__chunk_index *index)
{
	struct scout__chunk_index **at = &index->l1->indexes;

	while (*at != index)
		at = &(*at)->member.next;
	*at = index->member.next;
}

void
scout__rebalance_settled(struct scout__chunk_index *index)
{
	index->l1->n_wanting -= index->member.wants_extent;
	index->member.wants_extent = false;
}

static uint64_t
held(const struct scout__chunk_index *index)
{
	return index->extents.n_slots * index->chunk_bytes;
}

uint64_t
scout__index_extent_slots(const struct scout__chunk_index *index)
{
	const struct scout__pool *pool = &index->l1->pool;
	uint64_t slots = scout__pool_extent_slots(pool, index->chunk_bytes, index->n_ranks), part;

	if (!index->l1_ns || index->l1_ns->n_groups < 2)
		return slots;
	part = pool->l1_bytes / 2 / index->l1_ns->n_groups / index->chunk_bytes;
	part = part > 0 ? part : 1;
	return slots < part ? slots : part;
}

static SCOUT_ON_LOOP uint64_t
extent_bytes(const struct scout__chunk_index *index)
{
	return scout__index_extent_slots(index) * index->chunk_bytes;
}

uint64_t
scout__index_segment_bytes(const struct scout__chunk_index *index)
{
	return extent_bytes(index) / index->n_ranks;
}

static bool
is_fellow(const struct scout__chunk_index *a, const struct scout__chunk_index *b)
{
	return a == b || (a->l1_ns && a->l1_ns == b->l1_ns);
}

/* What the namespace of a chunk index holds. */
static uint64_t
held_together(const struct scout__chunk_index *index)
{
	return index->l1_ns ? index->l1_ns->slot_bytes : held(index);
}

/* Who takes part. */
struct parts {
	uint32_t percent; /* of those that have their own share */
	uint32_t n_equal; /* the others */
};

static uint32_t
percent_of(const struct scout__chunk_index *index)
{
	return index->l1_ns ? index->l1_ns->pool_percent : 0;
}

/* Each namespace once. */
static bool
is_counted(const struct scout__chunk_index *index, uint64_t round)
{
	bool counted = index->l1_ns && index->l1_ns->counted == round;

	if (index->l1_ns)
		index->l1_ns->counted = round;
	return counted;
}

/* With the namespace of @index, whether it holds anything or not. */
static struct parts
count_parts(const struct scout__chunk_index *index)
{
	uint64_t round = ++index->l1->counting;
	struct parts parts = {0};

	for (const struct scout__chunk_index *other = index->l1->indexes; other; other = other->member.next) {
		bool takes_part =
			!other->idle && (other->extents.n_slots > 0 || other->growth.n || other->member.wants_extent);

		if ((!takes_part && !is_fellow(other, index)) || is_counted(other, round))
			continue;
		parts.percent += percent_of(other);
		parts.n_equal += percent_of(other) == 0;
	}
	return parts;
}

/* The share of the namespace of @index. */
static uint64_t
share(const struct scout__chunk_index *index, const struct parts *parts)
{
	uint64_t bytes = index->l1->pool.l1_bytes;
	uint32_t own = percent_of(index);
	uint32_t left = parts->percent < 100 ? 100 - parts->percent : 0;

	if (own)
		return parts->n_equal || parts->percent > 100 ? bytes / 100 * own : bytes / parts->percent * own;
	/* Exactly, where no namespace has its own. */
	return left == 100 ? bytes / parts->n_equal : bytes / 100 * left / parts->n_equal;
}

static SCOUT_ON_LOOP bool
has_room_below_share(const struct scout__chunk_index *index, const struct parts *parts)
{
	uint64_t together = held_together(index);

	return together == 0 || together + extent_bytes(index) <= share(index, parts);
}

bool
scout__rebalance_allows(const struct scout__chunk_index *index)
{
	struct parts parts;

	if (index->l1->n_wanting == 0 || index->member.wants_extent || held(index) == 0)
		return true;
	parts = count_parts(index);
	return has_room_below_share(index, &parts);
}

/* The part of @index of what its namespace holds. */
static SCOUT_ON_LOOP uint64_t
part(const struct scout__chunk_index *index)
{
	double sum = 0;

	for (const struct scout__chunk_index *other = index->l1->indexes; other; other = other->member.next)
		if (is_fellow(other, index))
			sum += (double)other->token_bytes;
	return (uint64_t)((double)held_together(index) * (double)index->token_bytes / sum);
}

/* Whether @other has less use for an extent than @taker, of the same namespace. It keeps one. */
static SCOUT_ON_LOOP bool
may_give_fellow(const struct scout__chunk_index *other, const struct scout__chunk_index *taker)
{
	if (other->extents.n < 2)
		return false;
	if (held(taker) == 0)
		return true;
	if (scout__unneeded_fill_extent(other))
		return !scout__unneeded_fill_extent(taker);
	return held(other) > part(other) && held(taker) + extent_bytes(taker) <= part(taker);
}

/* Whether @taker may take from @other at all. */
static SCOUT_ON_LOOP bool
may_give(struct scout__chunk_index *other, struct scout__chunk_index *taker, const struct parts *parts)
{
	if (other == taker || other->extents.n == 0)
		return false;
	if (is_fellow(other, taker))
		return may_give_fellow(other, taker);
	if (other->idle || held(taker) == 0)
		return true;
	return held_together(other) > share(other, parts) && has_room_below_share(taker, parts);
}

/* How much the namespace of @index has above its share, or below. */
static int64_t
excess(const struct scout__chunk_index *index, const struct parts *parts)
{
	return (int64_t)held_together(index) - (int64_t)share(index, parts);
}

/* Whether @a is to lose before @b. */
static SCOUT_ON_LOOP bool
loses_first(struct scout__chunk_index *a, struct scout__chunk_index *b, const struct parts *parts)
{
	int64_t more = excess(a, parts) - excess(b, parts);

	if (a->idle != b->idle)
		return a->idle;
	if (!is_fellow(a, b) && more != 0)
		return more > 0;
	if (is_fellow(a, b) && scout__unneeded_fill_extent(a) != scout__unneeded_fill_extent(b))
		return scout__unneeded_fill_extent(a);
	return held(a) > held(b);
}

struct scout__chunk_index *
scout__rebalance_find_giver(struct scout__chunk_index *taker, bool *ret_later)
{
	struct parts parts = count_parts(taker);
	struct scout__chunk_index *best = NULL;

	*ret_later = false;
	for (struct scout__chunk_index *other = taker->l1->indexes; other; other = other->member.next) {
		if (other->moves.looked || !may_give(other, taker, &parts))
			continue;
		if (other->moves.n_going > 0)
			*ret_later = true;
		else if (!best || loses_first(other, best, &parts))
			best = other;
	}
	return best;
}

/* One more extent, or what is left of the pool, leaves @index within its share. */
static SCOUT_ON_LOOP bool
may_grow_ahead(const struct scout__chunk_index *index, const struct parts *parts)
{
	const struct scout__pool *pool = &index->l1->pool;
	uint64_t left = pool->l1_bytes - pool->used_bytes;
	uint64_t more = extent_bytes(index) < left ? extent_bytes(index) : left;

	return index->extents.n_slots < index->max_entries && held_together(index) + more <= share(index, parts);
}

struct scout__chunk_index *
scout__rebalance_poorest(struct scout__l1 *l1)
{
	struct scout__chunk_index *poorest = NULL;
	struct parts parts = {0};
	uint64_t fewest = UINT64_MAX;

	if (l1->n_wanting > 0)
		return NULL;
	for (struct scout__chunk_index *index = l1->indexes; index; index = index->member.next) {
		uint64_t tokens = held(index) / index->token_bytes;

		if (index->idle || !scout__rebalance_pool_has_room(index))
			continue;
		if (parts.percent + parts.n_equal == 0)
			parts = count_parts(index);
		if (tokens >= fewest || !may_grow_ahead(index, &parts))
			continue;
		poorest = index;
		fewest = tokens;
	}
	return poorest;
}

bool
scout__rebalance_pool_has_room(const struct scout__chunk_index *index)
{
	const struct scout__pool *pool = &index->l1->pool;

	return pool->l1_bytes - pool->used_bytes >= index->chunk_bytes;
}

bool
scout__rebalance_ask(struct scout__chunk_index *index)
{
	bool later;

	if (index->member.wants_extent)
		return true;
	if (!index->l1->indexes->member.next || index->growth.n || !index->growth.is_out)
		return false;
	/* It evicts what nothing needs. */
	if (index->unneeded.n > 0)
		return false;
	/* There is room, or was: it is tried again soon, or the machine has no memory but what others hold. */
	if (scout__rebalance_pool_has_room(index) && !index->growth.again_us)
		return false;
	if (index->moves.ask_again_us && scout__now_us() < index->moves.ask_again_us)
		return false;
	if (!scout__rebalance_find_giver(index, &later) && !later)
		return false;
	index->member.wants_extent = true;
	index->l1->n_wanting++;
	return true;
}
