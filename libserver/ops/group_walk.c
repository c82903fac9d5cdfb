/* SPDX-License-Identifier: Apache-2.0 */
#include "group_walk.h"

#include <stdlib.h>
#include <string.h>

#include "block.h"
#include "fetch.h"
#include "msg.h"
#include "ns.h"
#include "restorable.h"
#include "run_queue.h"
#include "server_core.h"
#include "session.h"

/*
 * DESIGN
 *
 * What a lookup of several groups knows: three bits for each object of each group say whether it is there, whether it
 * is in L2 only, and whether the lengths of the answer need it. restorable.c says which lengths these bits allow, for
 * client and server.
 *
 * Each object also has a number among all groups: base of the group plus object. A question to L2 covers all groups.
 *
 * For each group the session keeps the range [from, n), with holes where nothing is promised (scout__kept.n_holes): so
 * an object is promised or given back by itself, in any order, and the session may end at any time.
 *
 * If no worker of this server has layers of a group, the group has no chunk index: all its objects count as present,
 * and there is nothing to promise.
 *
 * KEYS (keys.c) has objects without a prompt: in each group the objects of its part, in the order of the request.
 *
 * Threads: loop.
 */

#define GATHER 64u /* hashes that are looked for at once, when they do not lie one after the other */

bool
scout__group_is_vacant(const struct scout__ns_group *group)
{
	return group->ns->complete && !group->index;
}

/* ---- making a walk ---- */

static size_t
seen_bytes(const struct scout__walk_group *wg)
{
	return wg->n * sizeof(*wg->seen) + 1;
}

SCOUT_ON_LOOP static void
free_seen(struct scout__walk_group *wg)
{
	if (wg->seen)
		scout__block_free(wg->seen, seen_bytes(wg));
	wg->seen = NULL;
}

/* Make maps and handles of one group; scout__group_walk_open() fills in the handles. False: no memory. */
SCOUT_ON_LOOP static bool
make_group(struct scout__group_walk *walk, struct scout__walk_group *wg)
{
	size_t bytes = SCOUT__BITS_BYTES(wg->n);

	wg->present = calloc(4, bytes + 1);
	wg->seen = scout__block_resize(NULL, 0, seen_bytes(wg));
	if (!wg->present || !wg->seen)
		return false;
	walk->n_objects += wg->n;
	walk->bytes += seen_bytes(wg) + 4 * (bytes + 1);
	wg->in_l2 = wg->present + bytes;
	wg->wanted = wg->in_l2 + bytes;
	wg->promised = wg->wanted + bytes;
	if (scout__group_is_vacant(wg->group))
		memset(wg->present, 0xff, bytes);
	return true;
}

/* An empty walk for all groups of the namespace. NULL: no memory. */
SCOUT_ON_LOOP static struct scout__group_walk *
walk_alloc(const struct scout__ns *ns)
{
	size_t bytes = sizeof(struct scout__group_walk) + ns->groups.n * sizeof(struct scout__walk_group);
	struct scout__group_walk *walk = calloc(1, bytes);

	if (!walk)
		return NULL;
	walk->n_groups = ns->groups.n;
	walk->bytes = bytes;
	return walk;
}

struct scout__group_walk *
scout__group_walk_new(struct scout_server *s, const struct scout__lookup_op *pending, const struct scout__lookup_msg *m)
{
	struct scout__ns *ns = pending->op.ns;
	struct scout__group_walk *walk = walk_alloc(ns);
	bool made = true;

	if (!walk)
		return NULL;
	walk->first = m->first;
	walk->skip = m->skip;
	walk->total = m->first + m->n;
	walk->at_most = walk->total - m->beyond;
	walk->known = walk->total;
	walk->want_more = m->more;
	for (uint32_t g = 0; made && g < ns->groups.n; g++) {
		struct scout__walk_group *wg = &walk->of[g];

		wg->group = &ns->by_group[g];
		wg->base = walk->n_objects;
		wg->named = m->first / wg->group->stride;
		wg->from = m->skip / wg->group->stride;
		wg->n = walk->total / wg->group->stride;
		wg->space = scout__ns_space(s, ns, &m->tenant, (uint16_t)g);
		made = make_group(walk, wg);
	}
	if (made)
		return walk;
	scout__group_walk_free(s, walk);
	return NULL;
}

struct scout__group_walk *
scout__group_walk_new_keys(struct scout_server *s, const struct scout__lookup_op *pending,
			   const struct scout__keys_msg *m)
{
	struct scout__ns *ns = pending->op.ns;
	struct scout__group_walk *walk = walk_alloc(ns);
	bool made = true;

	if (!walk)
		return NULL;
	walk->by_key = true;
	for (uint32_t g = 0, part = 0; made && g < ns->groups.n; g++) {
		struct scout__walk_group *wg = &walk->of[g];

		wg->group = &ns->by_group[g];
		wg->base = walk->n_objects;
		wg->space = scout__ns_space(s, ns, &m->tenant, (uint16_t)g);
		if (part < m->n_parts && m->parts[part].group == g)
			wg->n = m->parts[part++].n;
		made = make_group(walk, wg);
	}
	if (made)
		return walk;
	scout__group_walk_free(s, walk);
	return NULL;
}

SCOUT_ON_LOOP static void
free_step(struct scout_server *s, struct scout__run_item *item)
{
	struct scout__group_walk *walk = SCOUT__OWNER(item, struct scout__group_walk, run);

	walk->left = SCOUT__WORK_STEP;
	while (walk->n_groups > 0) {
		struct scout__walk_group *wg = &walk->of[--walk->n_groups];

		free_seen(wg);
		free(wg->present);
		if (!scout__work(walk, wg->n) && walk->n_groups > 0) {
			scout__run_queue_add(s, item);
			return;
		}
	}
	free(walk);
}

void
scout__group_walk_free(struct scout_server *s, struct scout__group_walk *walk)
{
	if (!walk)
		return;
	walk->run.step = free_step;
	free_step(s, &walk->run);
}

bool
scout__group_walk_make_room(struct scout_server *s, const struct scout__lookup_op *pending)
{
	const struct scout__group_walk *walk = pending->walk;
	bool made = true;

	for (uint32_t g = 0; made && g < walk->n_groups; g++)
		made = scout__kept_resize(s, &pending->session->of[g], walk->of[g].n);
	return made;
}

/*
 * Objects [@from, @to) of a group are not promised, but for those that its session has promised before: a renewal's. In
 * the skipped part, what is found is noted only for the end of the session, which touches it.
 */
SCOUT_ON_LOOP static void
open_some(const struct scout__kept *kept, struct scout__walk_group *wg, uint32_t from, uint32_t to)
{
	bool is_empty = kept->kept_from == kept->kept_to;
	uint32_t first = is_empty ? kept->hit : kept->kept_from;

	memset(wg->seen + from, 0xff, (to - from) * sizeof(wg->seen[0])); /* every entry SCOUT__NO_ENTRY */
	first = first < wg->from ? first : wg->from;
	for (uint32_t i = from > first ? from : first; i < to; i++) {
		if (is_empty || i < kept->kept_from || i >= kept->kept_to)
			kept->handles[i] = (struct scout__handle){SCOUT__NO_ENTRY, UINT32_MAX};
		else if (kept->handles[i].entry != SCOUT__NO_ENTRY)
			scout__bit_set(wg->promised, i);
	}
}

/* The session keeps the range [from, n), with holes where nothing was promised before. */
SCOUT_ON_LOOP static void
open_end(struct scout__kept *kept, const struct scout__walk_group *wg)
{
	if (kept->kept_from == kept->kept_to)
		kept->kept_from = kept->kept_to = wg->from;
	if (wg->from < kept->kept_from) {
		kept->n_holes += kept->kept_from - wg->from;
		kept->kept_from = wg->from;
	}
	kept->n_holes += wg->n - kept->kept_to;
	kept->hit = kept->kept_to = wg->n;
}

bool
scout__group_walk_open(const struct scout__lookup_op *pending)
{
	struct scout__group_walk *walk = pending->walk;

	for (; walk->g < walk->n_groups; walk->g++, walk->i = 0) {
		struct scout__walk_group *wg = &walk->of[walk->g];
		struct scout__kept *kept = &pending->session->of[walk->g];
		uint32_t most = walk->left / SCOUT__WORK_FILL;
		uint32_t n = wg->n - walk->i < most ? wg->n - walk->i : most;

		open_some(kept, wg, walk->i, walk->i + n);
		walk->i += n;
		if (!scout__work(walk, (n + 1) * SCOUT__WORK_FILL) && walk->i < wg->n)
			return false;
		if (wg->n > 0)
			open_end(kept, wg);
	}
	return true;
}

/* ---- objects ---- */

const uint8_t *
scout__group_walk_hash(const struct scout__lookup_op *pending, uint32_t g, uint32_t i)
{
	const struct scout__group_walk *walk = pending->walk;
	size_t at = walk->by_key ? (size_t)walk->of[g].base + i
				 : (size_t)(i + 1) * walk->of[g].group->stride - 1 - walk->first;

	return pending->hashes + at * pending->op.ns->hash_bytes;
}

struct scout__object
scout__group_walk_object(const struct scout__lookup_op *pending, uint32_t number)
{
	const struct scout__group_walk *walk = pending->walk;
	uint32_t g = walk->n_groups - 1, i;
	const struct scout__walk_group *wg;

	while (walk->of[g].base > number)
		g--;
	wg = &walk->of[g];
	i = number - wg->base;
	return (struct scout__object){
		.group = wg->group,
		.hash = i >= wg->named ? scout__group_walk_hash(pending, g, i) : NULL,
		.space = wg->space,
		.is_asked_for = i >= wg->from && !scout__bit(wg->present, i) && wg->group->expected,
	};
}

uint64_t
scout__group_walk_count_shards(const struct scout__group_walk *walk)
{
	uint64_t n = 0;

	for (uint32_t g = 0; g < walk->n_groups; g++)
		if (walk->of[g].group->index)
			n += (uint64_t)(walk->of[g].n - walk->of[g].from) * walk->of[g].group->index->n_ranks;
	return n;
}

/* ---- the pool ---- */

/* The hashes of @n objects from @i on, one after the other. */
SCOUT_ON_LOOP static const uint8_t *
gather(const struct scout__lookup_op *pending, uint32_t g, uint32_t i, uint32_t n, uint8_t *room)
{
	size_t hash_bytes = pending->op.ns->hash_bytes;

	if (pending->walk->of[g].group->stride == 1 || pending->walk->by_key)
		return scout__group_walk_hash(pending, g, i);
	for (uint32_t k = 0; k < n; k++)
		memcpy(room + k * hash_bytes, scout__group_walk_hash(pending, g, i + k), hash_bytes);
	return room;
}

/* The pool has object @i, or expects it. */
SCOUT_ON_LOOP static void
note_found(struct scout__lookup_op *pending, uint32_t g, uint32_t i, uint32_t entry)
{
	struct scout__walk_group *wg = &pending->walk->of[g];
	struct scout__chunk_index *index = wg->group->index;

	wg->seen[i] = scout__index_handle(index, entry);
	if (i < wg->from) { /* to be touched at the end of the session */
		if (i < pending->session->of[g].kept_from)
			pending->session->of[g].handles[i] = wg->seen[i];
		return;
	}
	if (!scout__index_counts(index, entry))
		return;
	scout__bit_set(wg->present, i);
	if (!scout__index_is_hit(index, entry))
		scout__bit_set(wg->in_l2, i);
}

/* Look for objects [@i, @i + @n). */
SCOUT_ON_LOOP static void
scan(struct scout__lookup_op *pending, uint32_t g, uint32_t i, uint32_t n)
{
	const struct scout__walk_group *wg = &pending->walk->of[g];
	size_t hash_bytes = pending->op.ns->hash_bytes;
	uint8_t room[GATHER * SCOUT_MAX_HASH];
	const uint8_t *hashes = gather(pending, g, i, n, room);
	uint32_t entries[GATHER];

	for (uint32_t at = 0; at < n; at++) { /* the object after a run is not there */
		uint32_t found =
			scout__index_find_run(wg->group->index, wg->space, hashes + at * hash_bytes, n - at, entries);

		for (uint32_t k = 0; k < found; k++)
			note_found(pending, g, i + at + k, entries[k]);
		at += found;
		/* A look for a run hashes ahead, which costs too much where most objects are missing. */
		while (at + 1 < n && scout__index_find(wg->group->index, wg->space, hashes + (at + 1) * hash_bytes) ==
					     SCOUT__NO_ENTRY)
			at++;
	}
}

/* The object with which looking begins. */
SCOUT_ON_LOOP static uint32_t
begin_of(const struct scout__walk_group *wg)
{
	bool is_run = wg->group->ns->groups.group[wg->group->number].policy == SCOUT_POLICY_ALL;

	return is_run ? wg->named : wg->from;
}

bool
scout__group_walk_scan(struct scout_server *s, struct scout__lookup_op *pending)
{
	struct scout__group_walk *walk = pending->walk;

	while (walk->g < walk->n_groups) {
		struct scout__walk_group *wg = &walk->of[walk->g];
		uint32_t n;

		if (walk->i < begin_of(wg))
			walk->i = begin_of(wg);
		if (!wg->space)
			wg->space = scout__ns_space(s, pending->op.ns, &pending->tenant, wg->group->number);
		if (walk->i >= wg->n || !wg->space || !wg->group->index) {
			walk->g++;
			walk->i = 0;
			continue;
		}
		n = wg->n - walk->i < GATHER ? wg->n - walk->i : GATHER;
		scan(pending, walk->g, walk->i, n);
		walk->i += n;
		if (!scout__work(walk, n * SCOUT__WORK_OBJECT))
			return false;
	}
	return true;
}

bool
scout__group_walk_take_found(struct scout_server *s, const struct scout__lookup_op *pending)
{
	struct scout__group_walk *walk = pending->walk;

	while (walk->g < walk->n_groups) {
		struct scout__walk_group *wg = &walk->of[walk->g];

		if (walk->i < wg->from)
			walk->i = wg->from;
		walk->i = scout__bits_next_clear(wg->present, walk->i, wg->n);
		if (walk->i >= wg->n || !wg->group->expected) {
			walk->g++;
			walk->i = 0;
			continue;
		}
		if (scout__ask_found(s, pending, wg->base + walk->i)) {
			scout__bit_set(wg->present, walk->i);
			scout__bit_set(wg->in_l2, walk->i);
		}
		walk->i++;
		if (!scout__work(walk, SCOUT__WORK_OBJECT))
			return false;
	}
	return true;
}

/* ---- lengths ---- */

struct scout__need
scout__group_walk_need(const struct scout__group_walk *walk, const struct scout__walk_group *wg, uint32_t length)
{
	const struct scout__ns *ns = wg->group->ns;
	struct scout__need need = {0, 0};

	if (scout__group_is_vacant(wg->group) ||
	    !scout__need_of(&ns->groups.group[wg->group->number], ns->hash_tokens, walk->skip, length, &need))
		return (struct scout__need){0, 0};
	need.from = need.from > wg->from ? need.from : wg->from;
	need.to = need.to < wg->n ? need.to : wg->n;
	return need.from < need.to ? need : (struct scout__need){0, 0};
}

/* Mark what @length needs as wanted. */
SCOUT_ON_LOOP static void
want(const struct scout__group_walk *walk, struct scout__walk_group *wg, uint32_t length)
{
	struct scout__need need = scout__group_walk_need(walk, wg, length);

	scout__bits_fill(wg->wanted, need.from, need.to, 0xff);
}

/* Find the lengths of the answer with at most @looks. False: there may be more, or a longer hit. */
SCOUT_ON_LOOP static bool
find_lengths(const struct scout__lookup_op *pending, uint32_t *looks)
{
	struct scout__group_walk *walk = pending->walk;
	struct scout__restorable *lengths = &walk->lengths;

	for (uint32_t g = 0; walk->i == 0 && g < walk->n_groups; g++) {
		uint32_t end = walk->known / walk->of[g].group->stride;

		walk->presence[g] =
			(struct scout__presence){walk->of[g].present, end < walk->of[g].n ? end : walk->of[g].n};
	}
	if (walk->i == 0) {
		scout__restorable_init(lengths, &pending->op.ns->groups, pending->op.ns->hash_tokens, walk->presence,
				       walk->skip);
		lengths->length = walk->at_most < walk->known ? walk->at_most : walk->known;
		/* What the GPU has is a hit in any case. */
		walk->hit = walk->floor > walk->skip ? walk->floor : walk->skip;
		walk->n_more = 0;
		walk->i = 1;
	}
	while (scout__restorable_find(lengths, looks)) {
		if (walk->i++ == 1 && walk->hit < lengths->length)
			walk->hit = lengths->length;
		if (walk->n_more == walk->want_more || lengths->length <= walk->skip)
			return true;
		if (lengths->length < walk->hit)
			walk->more[walk->n_more++] = lengths->length;
		lengths->length--;
	}
	return false;
}

/* How far all groups with policy all reach. Present objects only become fewer, except for what L2 adds. */
SCOUT_ON_LOOP static void
find_divergence(struct scout__group_walk *walk, const struct scout__groups *groups)
{
	uint32_t diverges_at = UINT32_MAX;

	for (uint32_t g = 0; g < walk->n_groups; g++) {
		const struct scout__walk_group *wg = &walk->of[g];
		uint32_t to;

		if (groups->group[g].policy != SCOUT_POLICY_ALL)
			continue;
		to = scout__bits_next_clear(wg->present, wg->from, wg->n) * wg->group->stride;
		diverges_at = to < diverges_at ? to : diverges_at;
	}
	if (diverges_at != UINT32_MAX && diverges_at > walk->diverges_at)
		walk->diverges_at = diverges_at;
}

bool
scout__group_walk_evaluate(const struct scout__lookup_op *pending)
{
	struct scout__group_walk *walk = pending->walk;
	uint32_t most = walk->left / SCOUT__WORK_LOOK + 1, left = most;
	bool is_done = walk->by_key || find_lengths(pending, &left);

	(void)scout__work(walk, (most - left) * SCOUT__WORK_LOOK);
	if (is_done && !walk->by_key) {
		find_divergence(walk, &pending->op.ns->groups);
		(void)scout__work(walk, walk->n_objects / 16);
	}
	return is_done;
}

/*
 * Whatever lengths need, a lookup ahead wants all that is there and a renewal what its session promises already. KEYS
 * wants all that is there.
 */
SCOUT_ON_LOOP static void
want_in(const struct scout__lookup_op *pending, struct scout__walk_group *wg)
{
	const struct scout__group_walk *walk = pending->walk;
	uint32_t end = walk->known / wg->group->stride;

	memset(wg->wanted, 0, SCOUT__BITS_BYTES(wg->n));
	if (scout__group_is_vacant(wg->group))
		return;
	if (pending->ahead || walk->by_key)
		scout__bits_or(wg->wanted, wg->present, wg->n);
	else if (pending->renews)
		scout__bits_or(wg->wanted, wg->promised, wg->n);
	scout__bits_fill(wg->wanted, 0, wg->from, 0);
	if (pending->ahead && end < wg->n)
		scout__bits_fill(wg->wanted, end, wg->n, 0);
	if (walk->by_key)
		return;
	if (!pending->ahead && walk->hit > walk->skip)
		want(walk, wg, walk->hit);
	for (uint32_t i = 0; i < walk->n_more; i++)
		want(walk, wg, walk->more[i]);
}

bool
scout__group_walk_want(const struct scout__lookup_op *pending)
{
	struct scout__group_walk *walk = pending->walk;

	while (walk->g < walk->n_groups) {
		struct scout__walk_group *wg = &walk->of[walk->g++];

		want_in(pending, wg);
		wg->high = scout__bits_end(wg->wanted, wg->from, wg->n);
		wg->low = scout__bits_next(wg->wanted, NULL, wg->from, wg->high);
		if (!scout__work(walk, wg->n / 16 + 1))
			return false;
	}
	return true;
}

bool
scout__group_walk_trim(struct scout_server *s, const struct scout__lookup_op *pending)
{
	struct scout__group_walk *walk = pending->walk;

	while (walk->g < walk->n_groups) {
		struct scout__walk_group *wg = &walk->of[walk->g];
		struct scout__kept *kept = &pending->session->of[walk->g++];
		uint32_t low = wg->low > kept->kept_from ? wg->low : kept->kept_from;
		uint32_t high = wg->high > low ? wg->high : low;

		/* A renewal with a larger skip: objects below were promised before. */
		if (kept->kept_from < wg->from)
			low = kept->kept_from;
		kept->n_holes -= (low - kept->kept_from) + (kept->kept_to - high);
		kept->kept_from = low;
		kept->hit = kept->kept_to = high;
		(void)scout__kept_resize(s, kept, kept->hit);
		free_seen(wg);
		if (!scout__work(walk, wg->n))
			return false;
	}
	return true;
}

void
scout__group_walk_settle(struct scout__lookup_op *pending)
{
	struct scout__group_walk *walk = pending->walk;
	uint32_t looks = SCOUT__WORK_STEP / SCOUT__WORK_LOOK;

	for (uint32_t g = 0; g < walk->n_groups; g++) {
		struct scout__walk_group *wg = &walk->of[g];

		if (scout__group_is_vacant(wg->group))
			continue;
		memcpy(wg->present, wg->promised, SCOUT__BITS_BYTES(wg->n));
		scout__bits_fill(wg->present, 0, wg->from, 0);
	}
	/* The answer leaves now. If a step does not find the longest hit, it is a shorter one. */
	walk->i = 0;
	(void)find_lengths(pending, &looks);
}

uint32_t
scout__group_walk_count(const struct scout__lookup_op *pending, uint32_t *ret_l2)
{
	const struct scout__group_walk *walk = pending->walk;
	uint32_t n = 0, l2 = 0;

	for (uint32_t g = 0; walk->hit > walk->skip && g < walk->n_groups; g++) {
		const struct scout__walk_group *wg = &walk->of[g];
		struct scout__need need = scout__group_walk_need(walk, wg, walk->hit);

		n += need.to - need.from;
		l2 += scout__bits_count(wg->in_l2, need.from, need.to);
	}
	*ret_l2 = l2;
	return n;
}
